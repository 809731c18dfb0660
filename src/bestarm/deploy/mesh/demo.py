"""A mesh on one computer: twelve peers, of which one lies, one is killed, and one starts late.

Everything is real: processes with their own keys, on loopback. The liar has a valid key and certificate; it
sends its neighbours conflicting reports, votes twice, and forges reports of another peer.
"""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy.demo_processes import CLI, COINS, DemoProcesses
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.mesh import files
from bestarm.deploy.mesh.node import REPORT, SUMMARY
from bestarm.deploy.mesh.verification import verify
from bestarm.deploy.mesh.wire import Line
from bestarm.deploy.sources import Coins, FromPython
from bestarm.methods.p2p.messages import Claim, Conclusion, decode_claim
from bestarm.methods.p2p.options import PeerToPeer
from bestarm.scenario.load import scenario_from_dict
from bestarm.simulate.setup import Scenario

KEYS = {
    "method": "p2p",
    "exchange": "intervals",
    "delta": 0.05,
    "byzantine": 1,
    "group": [
        {"name": "north", "clients": 4, "arms": {"a": 0.95, "b": 0.05}},
        {"name": "south", "clients": 4, "arms": {"c": 0.6, "d": 0.02}},
        {"name": "west", "clients": 4, "arms": {"e": 0.45, "f": 0.02}},
    ],
    "network": {"generator": "circulant", "n": 12, "k": 5},
}

BEST = "north/a"
LIAR, KILLED, LATE = "south-4", "west-2", "north-3"
LIMIT = 300.0


def scenario(**keys: Any) -> Scenario:
    return dataclasses.replace(scenario_from_dict({**KEYS, **keys}, Path()), name="mesh demo")


class Lies(Line):
    """A liar's line: conflicting reports to different neighbours, a second vote, and a forged report."""

    def worded(self, data: bytes) -> Sequence[bytes]:
        if data[:1] != REPORT:
            return ()  # it does not pass on evidence
        envelope = Envelope.decode(data[1:])
        if envelope.source != self.place.name or envelope.topic == SUMMARY:
            return (data,)
        index = [n.name for n in self.place.heard].index(self.to.name)
        other = self._said(envelope, self._twisted(envelope.content))
        forged = Envelope.sign(
            self.place.key, envelope.run, self._victim(), envelope.topic, envelope.sequence, other.content
        )
        stories = (envelope, other) if index % 2 else (other, envelope)
        return [REPORT + e.encode() for e in (*stories, forged)]

    def _said(self, envelope: Envelope, content: bytes) -> Envelope:
        return Envelope.sign(
            self.place.key, envelope.run, envelope.source, envelope.topic, envelope.sequence, content
        )

    def _victim(self) -> str:
        return next(n.name for n in self.place.neighbours if n.name != self.to.name)

    def _twisted(self, content: bytes) -> bytes:
        """The same kind of report, but for another arm, with a mean far above all others."""
        setup = self.place.setup
        assert isinstance(setup.unit, PeerToPeer)
        counts, exchange = setup.layout.arm_counts, setup.unit.exchange
        said = decode_claim(content, counts, exchange)
        if isinstance(said, Conclusion):
            group = (said.group + 1) % len(counts)
            return Conclusion(group, 0).encode(counts, exchange)[0]
        arm = (said.arm + 1) % counts[said.group]
        return Claim(said.group, arm, mean=1.0, lower=0.99, upper=1.0).encode(counts, exchange)[0]


def lie(folder: str) -> None:
    """The liar's process."""
    from bestarm.deploy.mesh.run import Run
    from bestarm.deploy.process import until_stopped

    run = Run(folder, lambda node: FromPython(Coins(), made=node.made), line=Lies)
    run.node.careful = False
    until_stopped(run.run())


class Crowd(DemoProcesses):
    """The processes of a mesh on this computer; ``end`` stops them all. A seed fixes their rewards."""

    def __init__(
        self,
        folder: Path,
        case: Scenario,
        liars: Sequence[str] = (),
        pause: float = 0.0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.folder, self.case, self.liars, self.pause, self.seed = folder, case, liars, pause, seed
        self.layout = case.problem.layout
        terms, graph = files.terms_of(case, {})
        self.terms = files.init(terms, graph, folder, port=0)

    @property
    def honest(self) -> list[str]:
        return [name for name in self.layout.clients if name not in self.liars]

    def place(self, name: str) -> Path:
        return files.place_of(self.folder, self.layout, name)

    def start(self, name: str) -> None:
        j = self.layout.group_of[name]
        means = dict(zip(self.layout.groups[j].arms, self.case.problem.means[j], strict=True))
        place = self.place(name)
        arguments = [*CLI, "peer", str(place), "--json", *COINS]
        if name in self.liars:
            arguments = ["-c", f"import {__name__} as d; d.lie({str(place)!r})"]
        self.spawn(name, arguments, place / "peer.log", means=means, pause=self.pause, seed=self.seed)

    def statuses(self) -> dict[str, dict[str, Any]]:
        """The last status of each peer."""
        found = {}
        for name in self.layout.clients:
            try:
                found[name] = json.loads((self.place(name) / files.STATUS).read_bytes())
            except (OSError, ValueError):
                continue
        return found

    def wait(
        self, enough: Callable[[dict[str, dict[str, Any]]], bool], limit: float = LIMIT,
        watch: Callable[[dict[str, dict[str, Any]]], None] = lambda found: None,
    ) -> bool:  # fmt: skip
        """Wait until `enough` is true of the statuses; False after a timeout or if an honest peer failed."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            found = self.statuses()
            watch(found)
            if enough(found):
                return True
            if any(self.processes[n].poll() not in (None, 0) for n in self.honest if n in self.processes):
                return False
            time.sleep(0.1)
        return False

    def logs(self) -> str:
        parts = [
            f"{name}: {path.read_text()[-500:]}"
            for name in self.layout.clients
            if (path := self.place(name) / "peer.log").exists()
        ]
        return "\n".join(parts)


@dataclass(frozen=True)
class Shown:
    """The results of the demo: verdicts and accusations of the honest peers, and whether they are right."""

    ok: bool
    verdicts: dict[str, str | None]
    accused: dict[str, list[str]]
    notes: list[str]


def demo(
    folder: Path | None,
    seed: int,
    say: Callable[[str], None],
    watch: Callable[[dict[str, dict[str, Any]]], None] = lambda found: None,
) -> Shown:
    """Create a mesh, run it, and check the results of its peers. No process is left running."""
    notes: list[str] = []

    def tell(text: str) -> None:
        notes.append(text)
        say(text)

    rng = random.Random(seed)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mesh"
        crowd = Crowd(folder, scenario(), liars=[LIAR], pause=0.01, seed=seed)
        stack.callback(crowd.end)
        tell(f"{len(crowd.layout.clients)} peers, each hears five others; each tolerates one lying neighbour")
        tell(f"{LIAR} lies, {KILLED} will be killed and started again, {LATE} starts late")
        names = [name for name in crowd.layout.clients if name != LATE]
        rng.shuffle(names)
        for name in names:
            crowd.start(name)
        crowd.wait(lambda found: found.get(KILLED, {}).get("pulls", 0) > 0, watch=watch)
        crowd.kill(KILLED)
        tell(f"{KILLED} was killed")
        crowd.start(LATE)
        tell(f"{LATE} starts")
        crowd.start(KILLED)
        tell(f"{KILLED} is back")
        ended = crowd.wait(lambda found: _complete(found, crowd.honest), watch=watch)
        if not ended:
            tell(crowd.logs())
        crowd.end()
        verdicts, accused, sound = {}, {}, True
        for name in crowd.honest:
            found = verify(crowd.place(name))
            sound &= found.ok
            verdicts[name] = found.verdict.arm if found.verdict else None
            accused[name] = [e.first.source for e in found.evidence]
    tell(f"the journals of the honest peers are {'sound' if sound else 'NOT sound'}")
    right = set(verdicts.values()) == {BEST} and all(names == [LIAR] for names in accused.values())
    return Shown(ended and sound and right, verdicts, accused, notes)


def _complete(found: dict[str, dict[str, Any]], honest: Sequence[str]) -> bool:
    """Whether every honest peer has its verdict, has stopped sampling, and knows about the liar."""
    return all(found.get(n, {}).get("done") and found[n]["suspects"] for n in honest)
