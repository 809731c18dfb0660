"""Verifies a record of a run in process, a federation or a peer, without trusting its author.

``verify`` feeds the messages that the server received to a fresh server machine and compares every
conclusion. It then checks the clients' part against it, elimination by elimination. With ``replay=True`` it
also repeats the run from the seed. The digest reveals that a file was altered; the other checks reveal that
an altered file with a new digest is inconsistent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Start
from bestarm.protocol.options import make, on_unit_scale
from bestarm.protocol.registry import method_for, method_named
from bestarm.protocol.rounds import heard
from bestarm.protocol.summaries import SummaryBook, summary_failures
from bestarm.records.build import (
    CUT_OFF,
    FILLED,
    SAME,
    count_pulls,
    faults_of,
    good_event,
    on_user_scale,
    overall,
)
from bestarm.records.record import SCHEMA, Bits, Record, digest, plain_json
from bestarm.records.recordings import withdrawals

EVIDENCE = {"accused", "topic", "sequence", "first", "second"}  # the keys of a piece of evidence

EvidenceCheck = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Verification:
    """The result of ``verify``. It is true in a boolean context if the record passed.

    Attributes
    ----------
    ok : bool
        Whether the record passed all checks.
    failures : tuple of str
        One sentence for each failed check.
    """

    ok: bool
    failures: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.ok


def verify(
    record: Record, replay: bool = False, *, check_evidence: EvidenceCheck | None = None
) -> Verification:
    """Check a record: digest, verdict, certificate, counts, evidence.

    Parameters
    ----------
    record : Record
        The record of any kind of run.
    replay : bool
        Whether to repeat the run from the seed and compare.
    check_evidence : callable, optional
        Returns why a piece of the record's evidence is invalid, or an empty string; see
        ``bestarm.deploy.evidence.checker``, which needs a roster. Without it, signatures are not checked.

    Returns
    -------
    Verification
        Whether the record passed, and which checks failed.

    Examples
    --------
    >>> import bestarm as ba
    >>> record = ba.identify(ba.Problem.bernoulli([[.9, .2], [.5]]), method="fed-sel", seed=1)
    >>> ba.verify(record, replay=True).ok
    True
    """
    failures = []
    if record.digest != digest(record.to_dict()):
        failures.append("the digest does not match: the record was altered after it was written")
    try:
        failures += _check(record)
        failures += _check_evidence(record, check_evidence)
        if replay:
            failures += _replay(record)
    except InputError as error:
        failures.append(str(error))
    except Exception as error:  # a forged record may be malformed in any way
        failures.append(f"the record can't be read as a run: {type(error).__name__}: {error}")
    return Verification(not failures, tuple(failures))


def _check(record: Record) -> Iterator[str]:
    if record.schema != SCHEMA:
        yield f"schema {record.schema} is not {SCHEMA}, the one that this version can check"
        return
    layout, scale = Problem.layout_from_dict(record.problem)
    options = make(
        method_named(record.method).options, {**record.options, "delta": record.delta}, where="options"
    )
    options = on_unit_scale(options, scale)
    method = method_for(record.method, layout, options)
    method.refuse(layout, options)
    gone: set[str] = set()  # their state when they were dropped is unknown
    if method.server is None:
        yield from _check_peers(record, layout)
        yield from _check_peers_summaries(record, SummaryBook(layout, method.coins))
        context: tuple[Any, ...] = (layout, options)
    else:
        server = method.server(layout, options)
        yield from _check_server(record, server, scale)
        book = SummaryBook(layout, method.coins, {fault["client"] for fault in server.faulty} | server.gone)
        yield from _check_summaries(record, book, record.bits.after - server.bits_after)
        context = (server,)
        gone = server.gone
    local = record.verdict.certificate.get("local")
    if local is None:
        if record.pulls is not None or record.good_event is not None or record.adversaries:
            yield "pulls, good_event or liars are given, but the clients' part that shows them is missing"
        return
    if set(local) != (set(record.peers or ()) if _is_one_peer(record) else set(layout.clients)):
        yield "the clients' part does not name the clients of the layout"
        return
    from bestarm.simulate.adversary import Adversary, check_adversaries

    liars = check_adversaries(layout, [Adversary(**keys) for keys in record.adversaries])
    if {name: adversary.attack for name, adversary in liars.items()} != {
        name: part["attack"] for name, part in local.items() if "attack" in part
    }:
        yield "the clients that lied are not the ones that the record names"
    for name, part in local.items():
        if name not in liars and name not in gone:
            for failure in method.audit_client(part, *context, name):
                yield f"client {name} {failure}"
    if record.pulls != count_pulls(method, layout, options, local):
        yield "pulls do not follow from the clients' part"
    if record.good_event != _good_event(record, layout, options):
        yield "good_event does not follow from the clients' part and the true means"


def _is_one_peer(record: Record) -> bool:
    """Whether this is the record of one peer of a mesh, which knows neither the network nor the others."""
    return record.network is None and record.peers is not None and len(record.peers) == 1


def _check_evidence(record: Record, check: EvidenceCheck | None) -> Iterator[str]:
    clients = {client for group in record.problem["groups"] for client in group["clients"]}
    for plain in record.evidence:
        accused = plain.get("accused")
        if set(plain) != EVIDENCE or accused not in clients or plain["first"] == plain["second"]:
            yield "a piece of evidence accuses no client, or proves nothing"
        elif check is not None and (why := check(plain)):
            yield f"the evidence against {accused} does not hold: {why}"


def _check_peers(record: Record, layout: Layout) -> Iterator[str]:
    """The checks of peers that need no replay; their verdicts can be checked only from the seed."""
    peers = record.peers or {}
    local = record.verdict.certificate.get("local")
    if (overall(list(peers.values())) if peers else None) != msgspec.structs.replace(
        record.verdict, certificate={}
    ):
        yield "the verdict does not follow from the verdicts of the peers"
    if (
        record.rounds
        or record.warnings != withdrawals(record.problem)
        or record.interrupted != any(verdict.reason == "interrupted" for verdict in peers.values())
    ):
        yield "rounds, warnings or interrupted do not fit a run of peers"
    alone = _is_one_peer(record)
    if not alone and (record.network is None or record.network["nodes"] != len(layout.clients)):
        yield "the network is missing, or its number of nodes is not the number of clients"
    if local is None:
        return
    honest = {name: part for name, part in local.items() if "attack" not in part}
    if set(peers) != set(honest):
        yield "the peers that have a verdict are not the honest ones"
    told = {name: part["arm"] for name, part in honest.items() if part["sent"]["count"]}
    found = {layout.arm(layout.group_of[name], arm) for name, arm in told.items()}
    for arm in {verdict.arm for verdict in peers.values()} - {None} - found:
        if not alone:  # one peer's record does not show what the others found
            yield f"no honest client found {arm}"
    if record.proven_faulty != faults_of(honest):
        yield "the clients proven faulty are not the ones that honest clients found"


def _check_server(record: Record, server: Any, scale: Scale) -> Iterator[str]:
    """Run a server machine on the messages that the server received, and compare all its conclusions."""
    server.handle(Start())
    for event in heard(record.verdict.certificate["server"]["events"]):
        server.handle(event)
    if server.verdict is None:
        yield "the messages to the server lead to no verdict"
        return
    found = {
        "verdict": msgspec.structs.replace(on_user_scale(server.verdict, scale), certificate={}),
        "rounds": server.rounds,
        "bits": Bits(server.bits_up, server.bits_down, record.bits.after),  # see _check_summaries
        "wire_bytes": server.bytes,
        "proven_faulty": server.faulty,
        "warnings": [*withdrawals(record.problem), *server.warnings],
        "interrupted": server.verdict.reason == "interrupted",
        "peers": None,
        "certificate": server.certificate(),
    }
    plain = record.to_dict()
    claimed = {key: plain.get(key) for key in found}
    claimed["certificate"] = plain["verdict"]["certificate"]["server"]
    claimed["verdict"] = {**plain["verdict"], "certificate": {}}
    # Whether clients play the same recording, who was cut off, and what came late, is only in the journal.
    claimed["warnings"] = [
        w for w in plain["warnings"] if not any(text in w["text"] for text in (SAME, CUT_OFF, FILLED))
    ]
    found["certificate"] = as_before(server.certificate(), plain["verdict"]["certificate"]["server"])
    for key, value in plain_json(found).items():
        if not _agree(value, claimed[key]):
            yield f"{key} does not follow from the messages to the server"


def _check_peers_summaries(record: Record, book: SummaryBook) -> Iterator[str]:
    """The summaries of peers, each of which takes every edge that the record's author knows."""
    book.refuses = {fault["client"] for fault in record.proven_faulty}
    book.refuses |= {str(plain.get("accused")) for plain in record.evidence}
    size = sum(summary.encode()[1] for summary in (record.summaries or {}).values())
    size += 8 * sum(row.bytes for row in record.refused_summaries)
    if record.network is not None:
        edges = sum(u != v for u, v in record.network["edges"])
    else:  # one peer of a mesh: how many hear it is in its journal only
        edges = record.bits.after // size if size else 0
    after = size if edges * size == record.bits.after else -1
    yield from _check_summaries(record, book, after)


def _check_summaries(record: Record, book: SummaryBook, after: int) -> Iterator[str]:
    """The summaries: each is one that the book accepts, and they fit the clients' part if it is there."""
    found = record.summaries
    yield from summary_failures(book, found or {}, record.refused_summaries, after)
    if found is not None and record.options.get("summaries") is False:
        yield "there are summaries, although the clients keep them"
    for name, summary in (found or {}).items():
        made = None if record.pulls is None else record.pulls.by_client.get(name)
        if made is not None and sum(summary.count) != made:
            yield f"the summary of {name} is about {sum(summary.count):,} pulls, not about {made:,}"


def _agree(a: Any, b: Any) -> bool:
    """Equal up to the last digits of real numbers: logarithms may round differently in other versions."""
    if isinstance(a, float) and isinstance(b, int | float) and not isinstance(b, bool):
        return math.isclose(a, b, rel_tol=1e-11, abs_tol=1e-13)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_agree(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    return type(a) is type(b) and bool(a == b)


def as_before(certificate: dict[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The server's part of a certificate without what a saved one of an older version lacks."""
    return {key: value for key, value in certificate.items() if key in saved or key != "stopped"}


def _good_event(record: Record, layout: Layout, options: Any) -> bool | None:
    if any(None in row for group in record.problem["groups"] for row in group.get("rewards", [[None]])):
        return None  # the record does not contain all true means
    means = Problem.from_dict(record.problem).means
    method = method_for(record.method, layout, options)
    return good_event(method, layout, options, means, record.verdict.certificate)


def _replay(record: Record) -> Iterator[str]:
    if record.seed is None:
        yield "the record has no seed to replay from"
        return
    problem = Problem.from_dict(record.problem)
    if record.interrupted:
        yield "an interrupted run can't be replayed: the seed does not determine where it stopped"
        return
    from bestarm.simulate.adversary import Adversary
    from bestarm.simulate.identify import identify
    from bestarm.simulate.network import Network

    again = identify(
        problem,
        method=record.method,
        delta=record.delta,
        seed=record.seed,
        adversaries=[Adversary(**keys) for keys in record.adversaries],
        network=Network.from_dict(record.network) if record.network else None,
        force=True,
        **{"summaries": False, **record.options},  # older records have none
    ).to_dict()
    before = record.to_dict()
    again["options"] = {key: again["options"][key] for key in before["options"]}
    parts = again["verdict"]["certificate"]
    parts["server"] = as_before(parts["server"], before["verdict"]["certificate"]["server"])
    unknown = {"version", "digest", "name", "date"}
    if record.time is None:  # as in older records
        unknown.add("time")
    for key in before:
        if key not in unknown and before[key] != again[key]:
            yield f"{key} differs in a fresh run from seed {record.seed}"
