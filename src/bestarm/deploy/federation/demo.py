"""A federation on one computer, in a minute, with a liar, a straggler, a copy, and a client that is killed.

Everything is real: a broker, a server and eight client processes with their own keys. The liar has a valid
key and signs messages that no honest client can send; the straggler pulls slowly; a copy of one client's
folder is started beside the original; one client is killed while it works and started again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy.demo_processes import CLI, COINS, DemoProcesses
from bestarm.deploy.federation import files
from bestarm.deploy.federation.files import JOURNAL
from bestarm.deploy.federation.server import Server, Status
from bestarm.deploy.federation.site import Site
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.process import together
from bestarm.deploy.sources import Coins, FromPython
from bestarm.errors import InputError
from bestarm.protocol.events import Action, Send
from bestarm.records.record import Record
from bestarm.scenario.load import scenario_from_dict
from bestarm.simulate.setup import Scenario
from bestarm.util.journal import Journal

KEYS = {
    "method": "robust-fed-sel",
    "delta": 0.05,
    "byzantine": 1,
    "period": 5000,
    "group": [
        {"name": "north", "clients": 4, "arms": {"a": 0.9, "b": 0.3}},
        {"name": "south", "clients": 4, "arms": {"c": 0.75, "d": 0.2}},
    ],
}

BEST = "north/a"
LIAR, STRAGGLER, KILLED, COPIED = "south-4", "north-4", "north-2", "south-1"
PATIENCE, HURRY = 60.0, 2.0  # for all clients, and for the straggler alone
LIMIT = 300.0


def scenario() -> Scenario:
    return dataclasses.replace(scenario_from_dict(KEYS, Path()), name="federation demo")


class Liar(Site):
    """A site that sends nonsense under its client's name."""

    def _act(self, actions: list[Action]) -> None:
        super()._act([Send(a.to, b"\xff" * 9, 72) if isinstance(a, Send) else a for a in actions])


def lie(folder: str) -> None:
    """The liar's process."""
    from bestarm.deploy.federation.client import Client
    from bestarm.deploy.process import until_stopped

    client = Client(folder, lambda site: FromPython(Coins(), made=site.made), site=Liar)
    until_stopped(client.run())


@dataclass(frozen=True)
class Shown:
    """The results of the demo: right verdict, liar named, journal valid."""

    ok: bool
    record: Record
    notes: list[str]


def demo(folder: Path | None, seed: int, say: Callable[[str], None]) -> Shown:
    """Create a federation, run it, and check its result. No process is left running."""
    notes: list[str] = []

    def tell(text: str) -> None:
        notes.append(text)
        say(text)

    with ExitStack() as stack:
        kept = folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "federation"
        made = files.init(scenario(), folder, port=0)
        where = shlex.quote(str(folder)) if kept else "DIR"
        tell("runs a whole federation on this computer, in up to a minute; the same by hand:")
        tell(f"  bestarm federation init SCENARIO.toml --out {where}")
        tell(f"  bestarm client {where}/clients/CLIENT --csv FILE    # at each site")
        tell(f"  bestarm server {where} --patience {PATIENCE:g}")
        tell(f"{len(made.setup.layout.clients)} clients in two groups; one liar per group is tolerated")
        crowd = _Crowd(folder, seed)
        stack.callback(crowd.end)
        for name in made.setup.layout.clients:
            crowd.start(name)
        tell(f"{LIAR} lies, {STRAGGLER} is slow, {KILLED} will be killed and started again")

        def hurry(status: Status) -> None:
            """On a slow computer the other clients are slow too: only the straggler is not waited for."""
            server.patience = HURRY if status.desk.waiting_for() == [STRAGGLER] else PATIENCE

        server = Server(folder, patience=PATIENCE, linger=PATIENCE, watch=hurry)
        record = asyncio.run(_run(server, crowd, random.Random(seed), tell))
        found = verify(folder)
    liars = {fault["client"] for fault in record.proven_faulty}
    tell(f"the journal of {found.events} events is {'sound' if found.ok else 'NOT sound'}")
    look = f"bestarm verify {where}, bestarm report {where}" if kept else "--out DIR keeps the folder"
    tell(f"to look at it: {look}")
    return Shown(found.ok and record.verdict.arm == BEST and liars == {LIAR}, record, notes)


async def _run(server: Server, crowd: _Crowd, rng: random.Random, tell: Callable[[str], None]) -> Record:
    async def trouble() -> None:
        while crowd.events(KILLED) < 5:
            await asyncio.sleep(0.1)
        await asyncio.sleep(rng.random())
        crowd.kill(KILLED)
        events = crowd.events(KILLED)
        tell(f"{KILLED} was killed while working ({events} events in its journal)")
        await asyncio.sleep(0.5)
        crowd.start(KILLED)
        tell(f"{KILLED} is back")

    async def copy() -> None:
        while crowd.events(COPIED) < 5:
            await asyncio.sleep(0.1)
        crowd.copy(COPIED)
        tell(f"a copy of the folder of {COPIED} was started beside it")
        while not crowd.copy_was_told(COPIED):
            await asyncio.sleep(0.1)
        crowd.end_copy(COPIED)
        tell(f"the copy was told that another process uses its key, and is deleted; {COPIED} continues")

    async def serve() -> None:
        records.append(await server.run())

    records: list[Record] = []
    async with asyncio.timeout(LIMIT):
        await together(serve(), beside=[trouble(), copy()])
    return records[0]


class _Crowd(DemoProcesses):
    """The client processes."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        self.folder, self.seed = folder, seed

    def start(self, name: str) -> None:
        groups: Any = KEYS["group"]
        means = next(g["arms"] for g in groups if name.startswith(g["name"]))
        pause = {STRAGGLER: 0.2, KILLED: 0.05}.get(name, 0)
        place = self.folder / "clients" / name
        arguments = [*CLI, "client", str(place), *COINS]
        if name == LIAR:
            arguments = ["-c", f"import {__name__} as d; d.lie({str(place)!r})"]
        self.spawn(name, arguments, place / "client.log", means=means, pause=pause, seed=self.seed)

    def copy(self, name: str) -> None:
        """Start a copy of a client's folder."""
        place = self.folder / "clients" / name
        copy = self._copy_of(name)
        shutil.copytree(place, copy, ignore=shutil.ignore_patterns("client.log", f"{JOURNAL}*"))
        source, target = sqlite3.connect(place / JOURNAL), sqlite3.connect(copy / JOURNAL)
        with closing(source), closing(target):
            source.backup(target)
        self.start(copy.name)

    def copy_was_told(self, name: str) -> bool:
        """Whether the copy has learnt that another process is connected with its key."""
        log = self._copy_of(name) / "client.log"
        return log.exists() and "another process" in log.read_text(errors="replace")

    def end_copy(self, name: str) -> None:
        """Stop the copy and delete it."""
        self.kill(self._copy_of(name).name)
        shutil.rmtree(self._copy_of(name))

    def _copy_of(self, name: str) -> Path:
        return self.folder / "clients" / f"{name}-copy"

    def events(self, name: str) -> int:
        """The progress of a client: the length of its journal."""
        with suppress(InputError), Journal.open(self.folder / "clients" / name / JOURNAL, write=False) as own:
            return len(own)
        return 0

    def end(self, seconds: float = 3) -> None:
        """Give the clients time to end by themselves, then stop those that remain."""
        self.wait_for_all(seconds)
        super().end(seconds)
        shutil.rmtree(self._copy_of(COPIED), ignore_errors=True)
