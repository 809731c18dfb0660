"""The record: all that one run leaves behind, and the one place where it is put together.

A record is checked by ``bestarm.audit``; it can be saved, loaded, and cut down to what the server may know.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.exact import clopper_pearson
from bestarm.problem import Layout, Problem
from bestarm.protocol import Method, method_for
from bestarm.protocol.verdict import Verdict
from bestarm.rewards import Scale
from bestarm.version import __version__

SCHEMA = 1
GOING = Verdict(status="undecided")  # of a run that has none yet
INLINE_CLIENTS = 1000  # above this, the clients' part of the certificate goes to a side file


class Pulls(msgspec.Struct, frozen=True):
    """Pulls of all clients together, by phase, of the busiest client, and by client."""

    total: int
    phase1: int
    phase2: int
    max_per_client: int
    by_client: dict[str, int]


class Bits(msgspec.Struct, frozen=True):
    """Payload bits as encoded. A broadcast counts once; between peers each edge counts (as `up`)."""

    up: int
    down: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `rounds` counts the Phase I reports as round 0, so Phase II took rounds − 1 exchanges.

    `good_event` says whether the event held on which the promise rests: in Fed-SEL, every empirical mean
    that a decision rested on lay within its radius of the true mean; in Fed-Fisher, the best arm was never
    dropped. It is null where that can't be known. `peers` holds each honest peer's verdict in a network, and
    `verdict` is theirs if all have the same. Means in `verdict` are on the user's scale; those in its
    certificate are on [0, 1].
    """

    schema: int
    version: str
    method: str
    delta: float
    seed: int | None
    options: dict[str, Any]
    problem: dict[str, Any]
    verdict: Verdict
    rounds: int
    pulls: Pulls | None
    bits: Bits
    wire_bytes: int
    proven_faulty: list[dict[str, Any]]
    good_event: bool | None
    warnings: list[dict[str, Any]] = []
    adversaries: list[dict[str, Any]] = []
    peers: dict[str, Verdict] | None = None
    network: dict[str, Any] | None = None
    interrupted: bool = False
    digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the object that `bestarm run --json` prints."""
        plain: dict[str, Any] = plain_json(self)
        return plain

    def sealed(self) -> Record:
        """This record with its digest."""
        return msgspec.structs.replace(self, digest=digest(self.to_dict()))

    def public(self) -> Record:
        """What the server may know: no seed, no true means, and of the clients only what they sent."""
        problem = {
            **self.problem,
            "groups": [{k: v for k, v in g.items() if k != "rewards"} for g in self.problem["groups"]],
        }
        certificate = {**self.verdict.certificate, "local": None}
        verdict = msgspec.structs.replace(self.verdict, certificate=certificate)
        return msgspec.structs.replace(
            self,
            seed=None,
            pulls=None,
            good_event=None,
            adversaries=[],
            problem=problem,
            verdict=verdict,
        ).sealed()

    def save(self, path: str | Path) -> Path:
        """Write JSON. Clients' parts of more than 1,000 clients go to a side file next to it."""
        path = Path(path)
        plain = self.to_dict()
        local = plain["verdict"]["certificate"].get("local")
        if local is not None and len(local) > INLINE_CLIENTS:
            side = path.with_name(path.stem + ".local.json")
            _write(side, local)
            plain["verdict"]["certificate"] |= {"local": None, "local_file": side.name}
        _write(path, plain)
        return path

    @staticmethod
    def load(path: str | Path) -> Record:
        """Read what ``save`` wrote."""
        path = Path(path)
        plain = _read(path)
        try:
            certificate = plain["verdict"]["certificate"]
            if "local_file" in certificate:
                side = path.with_name(Path(str(certificate.pop("local_file"))).name)
                certificate["local"] = _read(side)
            return msgspec.convert(plain, Record)
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise InputError(
                f"this is no record of bestarm ({error})",
                where=str(path),
                fix="Name a file that bestarm saved",
            ) from None

    def plot(self, ax: Any = None) -> Any:
        """Draw the groups' intervals round by round (needs ``bestarm[report]``); gives Matplotlib axes."""
        from bestarm.report.plots import intervals

        return intervals(self, ax)

    def report(self, path: str | Path, *, quick: bool = False) -> Path:
        """Write a report, one HTML file; `quick` leaves out what takes further runs (plan, arms' traces)."""
        from bestarm.report import page

        return page.write(page.of_record(self, quick=quick), path)

    def _repr_html_(self) -> str:
        from bestarm.report.page import record_fragment

        return record_fragment(self)


def plain_json(value: Any) -> Any:
    """A value as JSON would give it back: lists for tuples, dicts for structs."""
    return msgspec.json.decode(msgspec.json.encode(value))


@dataclasses.dataclass(frozen=True)
class View:
    """What a picture shows of one group in one round, on [0, 1]: pulls of its arm, mean and interval."""

    group: int
    round: int
    pulls: int
    mean: float
    lower: float
    upper: float


def views(record: Record) -> list[View]:
    """What the server knew, round by round. Fed-Fisher claims no intervals; 95 % ones are for the eye."""
    return views_of(record.verdict.certificate["server"]["rounds"])


def views_of(rounds: Sequence[Mapping[str, Any]]) -> list[View]:
    """The same from a server's history, of a run that may still go on."""
    found = []
    for row in rounds:
        if "mean" in row:
            columns = (row["count"], row["mean"], row["lower"], row["upper"])
        else:
            low, high = np.asarray(row["lower"]), np.asarray(row["upper"])
            n = np.asarray(row.get("coins", [row["pulls"]] * len(low)))
            below, above = clopper_pearson(low, n, 0.025)[0], clopper_pearson(high, n, 0.025)[1]
            columns = (n.tolist(), ((low + high) / (2 * n)).tolist(), below.tolist(), above.tolist())
        for j, *values in zip(row["group"], *columns, strict=True):
            found.append(View(j, row["round"], *values))
    return found


def fallen(record: Record) -> dict[int, int]:
    """Groups that the server dropped, with the round."""
    return {j: row["round"] for row in record.verdict.certificate["server"]["rounds"] for j in row["out"]}


def digest(plain: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a record without its digest."""
    rest = {k: v for k, v in plain.items() if k != "digest"}
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()


def _write(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
        scratch.replace(path)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None


def _read(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"can't be read: {error.strerror}",
            where=str(path),
            fix="Check the path; bestarm run … --out FILE writes a record",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is not JSON ({error})", where=str(path)) from None


def on_user_scale(verdict: Verdict, scale: Scale) -> Verdict:
    """A machine's verdict, which is on [0, 1], with its numbers on the user's scale."""
    width = scale.high - scale.low
    return msgspec.structs.replace(
        verdict,
        mean=None if verdict.mean is None else scale.user(verdict.mean),
        interval=None if verdict.interval is None else scale.user_interval(*verdict.interval),
        gap=None if verdict.gap is None else verdict.gap * width,
    )


def count_pulls(method: Method, layout: Layout, options: Any, local: Mapping[str, Any]) -> Pulls:
    """Pulls of the honest clients, from their part of the certificate."""
    phases = {
        name: method.pulls_of(part, layout.arm_counts[layout.group_of[name]], options)
        for name, part in local.items()
        if "attack" not in part
    }
    by_client = {name: sum(both) for name, both in phases.items()}
    return Pulls(
        total=sum(by_client.values()),
        phase1=sum(first for first, _ in phases.values()),
        phase2=sum(second for _, second in phases.values()),
        max_per_client=max(by_client.values(), default=0),
        by_client=by_client,
    )


def good_event(
    method: Method,
    layout: Layout,
    options: Any,
    means: Sequence[Sequence[float | None]],
    certificate: Mapping[str, Any],
) -> bool | None:
    """Whether the event held on which the method's guarantee rests; None if true means are unknown."""
    if any(mean is None for row in means for mean in row):
        return None
    return method.good_event(layout, options, means, certificate)


def conclude(
    problem: Problem,
    method: str,
    options: Any,
    unit: Any,
    seed: int | None,
    server: Any,
    clients: Sequence[Any],
    adversaries: Sequence[dict[str, Any]] = (),
) -> Record:
    """The record of a run, from its machines; `unit` are the options as the machines have them.

    A run that still goes on is undecided without a reason.
    """
    room = method_for(method, problem.layout)
    local = {client.name: client.local() for client in clients}
    certificate = {"server": server.certificate(), "local": local}
    verdict = on_user_scale(server.verdict or GOING, problem.scale)
    return Record(
        schema=SCHEMA,
        version=__version__,
        method=method,
        delta=options.delta,
        seed=seed,
        options={k: v for k, v in dataclasses.asdict(options).items() if k != "delta"},
        problem=problem.to_dict(),
        verdict=msgspec.structs.replace(verdict, certificate=certificate),
        rounds=server.rounds,
        pulls=count_pulls(room, problem.layout, unit, local),
        bits=Bits(server.bits_up, server.bits_down),
        wire_bytes=server.bytes,
        proven_faulty=server.faulty,
        warnings=server.warnings,
        adversaries=list(adversaries),
        good_event=good_event(room, problem.layout, unit, problem.means, certificate),
        interrupted=verdict.reason == "interrupted",
    ).sealed()


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a network: that of its honest peers, if they all have the same."""
    if len({verdict.arm for verdict in verdicts}) == 1 and verdicts[0].arm is not None:
        return max(verdicts, key=lambda verdict: verdict.interval is not None)
    reasons = [verdict.reason for verdict in verdicts if verdict.reason]
    named = [(verdict.arm,) if verdict.arm else verdict.candidates for verdict in verdicts]
    candidates = tuple(dict.fromkeys(name for names in named for name in names))
    return Verdict(status="undecided", reason=reasons[0] if reasons else "discord", candidates=candidates)


def conclude_peers(run: Any, adversaries: Sequence[dict[str, Any]]) -> Record:
    """The record of a run of peers; those that are not done yet have no verdict in it."""
    problem, options = run.problem, run.options
    room = method_for(run.method, problem.layout)
    local = {peer.name: peer.local() for peer in run.peers}
    honest = [run.peers[i] for i in run.honest]
    certificate = {"server": {"events": [], "rounds": [], "ignored": 0}, "local": local}
    verdicts = {peer.name: on_user_scale(peer.verdict, problem.scale) for peer in honest if peer.verdict}
    found = overall(list(verdicts.values())) if len(verdicts) == len(honest) else GOING
    return Record(
        schema=SCHEMA,
        version=__version__,
        method=run.method,
        delta=options.delta,
        seed=run.seed,
        options={k: v for k, v in dataclasses.asdict(options).items() if k != "delta"},
        problem=problem.to_dict(),
        verdict=msgspec.structs.replace(found, certificate=certificate),
        rounds=0,
        pulls=count_pulls(room, problem.layout, run.unit, local),
        bits=Bits(run.bits, 0),
        wire_bytes=run.bytes,
        proven_faulty=[
            {"client": fault["client"], "round": 0, "reason": fault["reason"], "by": peer.name}
            for peer in honest
            for fault in peer.faulty
        ],
        good_event=good_event(room, problem.layout, run.unit, problem.means, certificate),
        adversaries=list(adversaries),
        peers=verdicts,
        network={**run.network.to_dict(), "messages": run.messages},
        interrupted=any(verdict.reason == "interrupted" for verdict in verdicts.values()),
    ).sealed()
