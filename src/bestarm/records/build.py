"""Builds all records: of runs in process, and of servers and peers in real deployments.

``conclude`` and ``conclude_peers`` build the record of a run in process, ``conclude_server`` that of a
federation as its server knows it, and ``conclude_peer`` that of one peer of a mesh. All of them call
``_build``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.scale import Scale
from bestarm.protocol.machine import PeerMachine, ServerMachine
from bestarm.protocol.options import Common
from bestarm.protocol.registry import Method, method_for
from bestarm.protocol.summaries import SummaryBook
from bestarm.protocol.verdict import Answer, Verdict
from bestarm.records.record import GOING, SCHEMA, Bits, Pulls, Record
from bestarm.records.recordings import withdrawals
from bestarm.util.text import shorten
from bestarm.version import __version__

SAME = "play the same recording"  # of two clients, in a warning
SHARED = f"{SAME}, so each of its rewards counts more than once"  # in a group whose rewards are pooled
FOREIGN = f"{SAME}, so the answer about one of their sites is not about its own data"
COPIED = f"{SAME}: one of them may have been given the other's file"  # in a group whose clients are compared
FILLED = "did not come by their deadline and count as"  # of rewards, in a warning
CUT_OFF = "was cut off because it flooded the broker"  # of a client, in a warning


def on_user_scale(verdict: Verdict, scale: Scale) -> Verdict:
    """A machine's verdict, converted from [0, 1] to the user's scale."""
    return msgspec.structs.replace(
        verdict,
        mean=None if verdict.mean is None else scale.user(verdict.mean),
        interval=None if verdict.interval is None else scale.user_interval(*verdict.interval),
        gap=None if verdict.gap is None else min(verdict.gap * scale.width, scale.high - scale.low),
        answers=tuple(_answer_on_user_scale(answer, scale) for answer in verdict.answers),
    )


def _answer_on_user_scale(answer: Answer, scale: Scale) -> Answer:
    """A best option has a value and a lead, an option that is compared with a control a lead as its value."""
    if answer.value is None or answer.interval is None:
        return answer
    most = scale.high - scale.low

    def ahead(x: float, sign: float = 1.0) -> float:
        return min(max(sign * scale.width * x, -most), most)

    if answer.answer != "best":
        sign = -1.0 if scale.goal == "min" else 1.0
        low, high = sorted(ahead(end, sign) for end in answer.interval)
        return msgspec.structs.replace(answer, value=ahead(answer.value, sign), interval=(low, high))
    lead, ends = answer.lead, answer.lead_interval
    return msgspec.structs.replace(
        answer,
        value=scale.user(answer.value),
        interval=scale.user_interval(*answer.interval),
        lead=None if lead is None else ahead(lead),
        lead_interval=None if ends is None else (ahead(ends[0]), ahead(ends[1])),
    )


def count_pulls(method: Method, layout: Layout, options: Any, local: Mapping[str, Any]) -> Pulls:
    """Count the pulls of the honest clients, from their part of the certificate."""
    phases = {
        name: method.pulls_of(part, layout.arm_counts[layout.group_of[name]], options)
        for name, part in local.items()
        if "attack" not in part
    }
    for both in phases.values():
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise InputError(
                f"pulls_of returned {shorten(both)}",
                where=f'method "{method.name}"',
                expected="two numbers: the pulls of a client in the first and in the second phase",
            )
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
    """Whether the event occurred on which the method's guarantee rests; None if a true mean is unknown."""
    if any(mean is None for row in means for mean in row):
        return None
    return method.good_event(layout, options, means, certificate)


class RunTerms(Protocol):
    """What all parties of a deployed run know about it."""

    @property
    def method(self) -> str:
        """The name of the method."""

    @property
    def options(self) -> Any:
        """The options, as the user wrote them."""

    @property
    def unit(self) -> Any:
        """The options as the machines have them."""

    @property
    def problem(self) -> dict[str, Any]:
        """The problem without its means."""

    @property
    def layout(self) -> Layout:
        """Groups, arms and clients."""

    @property
    def scale(self) -> Scale:
        """The user's scale of rewards."""

    @property
    def name(self) -> str:
        """A label for readers: the scenario's file."""

    @property
    def date(self) -> str:
        """A label for readers: the day on which the run was set up."""


def _build(
    method: str,
    options: Common,
    problem: dict[str, Any],
    layout: Layout,
    unit: Common,
    *,
    verdict: Verdict,
    certificate: dict[str, Any],
    bits: Bits,
    wire_bytes: int,
    rounds: int = 0,
    time: int | None = None,
    seed: int | None = None,
    means: Sequence[Sequence[float | None]] | None = None,
    proven_faulty: Sequence[dict[str, Any]] = (),
    warnings: Sequence[dict[str, Any]] = (),
    adversaries: Sequence[dict[str, Any]] = (),
    evidence: Sequence[dict[str, Any]] = (),
    peers: dict[str, Verdict] | None = None,
    network: dict[str, Any] | None = None,
    summaries: SummaryBook | None = None,
    name: str = "",
    date: str = "",
) -> Record:
    """Build a record; pulls and the good event are computed from the clients' part, if there is one."""
    room, local = method_for(method, layout, options), certificate["local"]
    verdicts = [verdict, *(peers or {}).values()]
    pulls = None if local is None else count_pulls(room, layout, unit, local)
    data = Data.from_dict(problem)
    return Record(
        simulation="" if data is None else data.simulation(None if pulls is None else pulls.total),
        schema=SCHEMA,
        version=__version__,
        method=method,
        delta=options.delta,
        seed=seed,
        options={k: v for k, v in dataclasses.asdict(options).items() if k != "delta"},
        problem=problem,
        verdict=msgspec.structs.replace(verdict, certificate=certificate),
        rounds=rounds,
        time=time,
        pulls=pulls,
        bits=bits,
        wire_bytes=wire_bytes,
        proven_faulty=list(proven_faulty),
        warnings=list(warnings),
        adversaries=list(adversaries),
        good_event=None if means is None else good_event(room, layout, unit, means, certificate),
        peers=peers,
        network=network,
        evidence=list(evidence),
        interrupted=any(found.reason == "interrupted" for found in verdicts),
        summaries=None if summaries is None else dict(sorted(summaries.accepted.items())),
        refused_summaries=[] if summaries is None else list(summaries.refused),
        name=name,
        date=date,
    ).sealed()


def _bits_of(server: ServerMachine, summaries: SummaryBook | None) -> Bits:
    after = server.bits_after + (0 if summaries is None else summaries.bits)
    return Bits(server.bits_up, server.bits_down, after)


class Member(Protocol):
    """What the record needs of a client of a run in process."""

    @property
    def name(self) -> str:
        """The name of the client."""

    def local(self) -> dict[str, Any]:
        """The client's part of the certificate, as plain values."""


def _shown(seed: int | None, problem: Problem) -> int | None:
    """The seed as a record may show it: with it, anyone could undo the random answers to real rewards."""
    return None if problem.hides_rewards else seed


def conclude(
    problem: Problem,
    method: str,
    options: Common,
    unit: Common,
    seed: int | None,
    server: ServerMachine,
    clients: Sequence[Member],
    adversaries: Sequence[dict[str, Any]] = (),
    *,
    time: int | None,
    warnings: Sequence[dict[str, Any]] = (),
    summaries: SummaryBook | None = None,
) -> Record:
    """The record of a run in process, from its machines; `unit` are the options as the machines have them.

    `time` is the clock of the run, if it has time steps. The verdict of a run that has not ended is undecided
    without a reason.
    """
    local, plain = {client.name: client.local() for client in clients}, problem.to_dict()
    return _build(
        method, options, plain, problem.layout, unit,
        verdict=on_user_scale(server.verdict or GOING, problem.scale),
        certificate={"server": server.certificate(), "local": local},
        rounds=server.rounds,
        time=time,
        bits=_bits_of(server, summaries),
        wire_bytes=server.bytes,
        seed=_shown(seed, problem),
        means=problem.means,
        proven_faulty=server.faulty,
        warnings=[*withdrawals(plain), *server.warnings, *warnings],
        adversaries=adversaries,
        summaries=summaries,
    )  # fmt: skip


def conclude_server(
    terms: RunTerms,
    server: ServerMachine,
    *,
    warnings: Sequence[dict[str, Any]],
    evidence: Sequence[dict[str, Any]],
    summaries: SummaryBook | None = None,
) -> Record:
    """The record of a federation as its server knows it: without the clients' part."""
    return _build(
        terms.method, terms.options, terms.problem, terms.layout, terms.unit,
        verdict=on_user_scale(server.verdict or GOING, terms.scale),
        certificate={"server": server.certificate(), "local": None},
        rounds=server.rounds,
        bits=_bits_of(server, summaries),
        wire_bytes=server.bytes,
        proven_faulty=server.faulty,
        warnings=warnings,
        evidence=evidence,
        summaries=summaries,
        name=terms.name,
        date=terms.date,
    )  # fmt: skip


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a network: that of its honest peers, if they all agree."""
    if len({verdict.arm for verdict in verdicts}) == 1 and verdicts[0].arm is not None:
        return max(verdicts, key=lambda verdict: verdict.interval is not None)
    reasons = [verdict.reason for verdict in verdicts if verdict.reason]
    named = [(verdict.arm,) if verdict.arm else verdict.candidates for verdict in verdicts]
    candidates = tuple(dict.fromkeys(name for names in named for name in names))
    return Verdict(status="undecided", reason=reasons[0] if reasons else "discord", candidates=candidates)


def faults_of(local: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The clients that honest peers have proven faulty, from the peers' part of the certificate."""
    return [
        {"client": fault["client"], "round": 0, "reason": fault["reason"], "by": name}
        for name, part in local.items()
        if "attack" not in part
        for fault in part["faulty"]
    ]


def _certificate_of(peers: Sequence[PeerMachine]) -> dict[str, Any]:
    """The certificate of peers; its server part is empty."""
    local = {peer.name: peer.local() for peer in peers}
    return {"server": {"events": [], "rounds": [], "ignored": 0}, "local": local}


class PeersRun(Protocol):
    """The attributes of a run of peers in process that its record needs."""

    method: str
    problem: Problem
    options: Any
    unit: Any
    seed: int
    peers: list[Any]  # liars among them
    honest: list[int]
    network: Any
    now: float
    decided: float
    bits: int
    bytes: int
    messages: int
    heard_by: list[list[int]]

    @property
    def summaries(self) -> SummaryBook | None:
        """What the peers sent after the last verdict."""


def conclude_peers(run: PeersRun, adversaries: Sequence[dict[str, Any]]) -> Record:
    """The record of a run of peers in process; peers that have not finished have no verdict in it."""
    problem, honest = run.problem, [run.peers[i] for i in run.honest]
    certificate = _certificate_of(run.peers)
    verdicts = {peer.name: on_user_scale(peer.verdict, problem.scale) for peer in honest if peer.verdict}
    over = len(verdicts) == len(honest)
    book, edges, plain = run.summaries, sum(map(len, run.heard_by)), problem.to_dict()
    return _build(
        run.method, run.options, plain, problem.layout, run.unit,
        verdict=overall(list(verdicts.values())) if over else GOING,
        certificate=certificate,
        time=math.ceil(run.decided if over else run.now),
        bits=Bits(run.bits, 0, 0 if book is None else edges * book.bits),
        wire_bytes=run.bytes,
        seed=_shown(run.seed, problem),
        means=problem.means,
        proven_faulty=faults_of(certificate["local"]),
        warnings=withdrawals(plain),
        adversaries=adversaries,
        peers=verdicts,
        network={**run.network.to_dict(), "messages": run.messages},
        summaries=book,
    )  # fmt: skip


def conclude_peer(
    terms: RunTerms,
    peer: PeerMachine,
    *,
    bits: Bits,
    wire_bytes: int,
    evidence: Sequence[dict[str, Any]],
    summaries: SummaryBook | None = None,
) -> Record:
    """The record of one peer of a mesh: its own part and verdict, without the network, which it can't see."""
    certificate = _certificate_of([peer])
    verdict = on_user_scale(peer.verdict or GOING, terms.scale)
    return _build(
        terms.method, terms.options, terms.problem, terms.layout, terms.unit,
        verdict=verdict,
        certificate=certificate,
        bits=bits,
        wire_bytes=wire_bytes,
        proven_faulty=faults_of(certificate["local"]),
        peers={peer.name: verdict},
        evidence=evidence,
        summaries=summaries,
        name=terms.name,
        date=terms.date,
    )  # fmt: skip
