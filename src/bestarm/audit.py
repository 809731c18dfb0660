"""Checking a record without trusting whoever wrote it.

``verify`` feeds what the server was sent to a fresh server machine and compares every conclusion; it then
checks the clients' part against it, elimination by elimination. With ``replay=True`` it also runs again
from the seed. The digest shows that a file was altered; the rest shows that an altered file with a fresh
digest does not add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from bestarm.adversary import Adversary, check_adversaries
from bestarm.errors import InputError
from bestarm.network import Network
from bestarm.problem import Layout, Problem
from bestarm.protocol import method_for
from bestarm.protocol.machine import Start
from bestarm.protocol.options import make
from bestarm.protocol.rounds import heard
from bestarm.record import (
    SCHEMA,
    Bits,
    Record,
    count_pulls,
    digest,
    good_event,
    on_user_scale,
    overall,
    plain_json,
)
from bestarm.rewards import Scale
from bestarm.simulate import identify, on_unit_scale


@dataclass(frozen=True)
class Verification:
    """`ok`, or the `failures`, one sentence each."""

    ok: bool
    failures: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.ok


def verify(record: Record, replay: bool = False) -> Verification:
    """Check a record: digest, verdict, certificate, counts; with `replay` also a fresh run from its seed.

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
        if replay:
            failures += _replay(record)
    except InputError as error:
        failures.append(str(error))
    except Exception as error:  # a forged record may be malformed in any way; none may raise out of here
        failures.append(f"the record can't be read as a run: {type(error).__name__}: {error}")
    return Verification(not failures, tuple(failures))


def _check(record: Record) -> Iterator[str]:
    if record.schema != SCHEMA:
        yield f"schema {record.schema} is not {SCHEMA}, the one that this version can check"
        return
    layout, scale = Problem.layout_from_dict(record.problem)
    method = method_for(record.method, layout)
    options = make(method.options, {**record.options, "delta": record.delta}, where="options")
    options = on_unit_scale(options, scale)
    method.refuse(layout, options)
    gone: set[str] = set()  # nobody knows where those were when they were dropped
    if method.server is None:
        yield from _check_peers(record, layout)
        context: tuple[Any, ...] = (layout, options)
    else:
        server = method.server(layout, options)
        yield from _check_server(record, server, scale)
        context = (server,)
        gone = server.gone
    local = record.verdict.certificate.get("local")
    if local is None:
        if record.pulls is not None or record.good_event is not None or record.adversaries:
            yield "pulls, good_event or liars are claimed, but the clients' part that shows them is missing"
        return
    if set(local) != set(layout.clients):
        yield "the clients' part does not name the clients of the layout"
        return
    liars = check_adversaries(layout, [Adversary(**keys) for keys in record.adversaries])
    if {name: adversary.attack for name, adversary in liars.items()} != {
        name: part["attack"] for name, part in local.items() if "attack" in part
    }:
        yield "the clients that lied are not those that the record names"
    for name, part in local.items():
        if name not in liars and name not in gone:
            for failure in method.audit_client(part, *context, name):
                yield f"client {name} {failure}"
    if record.pulls != count_pulls(method, layout, options, local):
        yield "pulls do not follow from the clients' part"
    if record.good_event != _good_event(record, layout, options):
        yield "good_event does not follow from the clients' part and the true means"


def _check_peers(record: Record, layout: Layout) -> Iterator[str]:
    """What can be checked of a run of peers without a replay: their verdicts follow from the seed alone."""
    peers = record.peers or {}
    local = record.verdict.certificate.get("local")
    if (overall(list(peers.values())) if peers else None) != msgspec.structs.replace(
        record.verdict, certificate={}
    ):
        yield "the verdict does not follow from the peers'"
    if (
        record.rounds
        or record.warnings
        or record.interrupted != any(verdict.reason == "interrupted" for verdict in peers.values())
    ):
        yield "rounds, warnings or interrupted are not what a run of peers has"
    if record.network is None or record.network["nodes"] != len(layout.clients):
        yield "the network is missing, or has another number of nodes than there are clients"
    if local is None:
        return
    honest = {name: part for name, part in local.items() if "attack" not in part}
    if set(peers) != set(honest):
        yield "the peers that have a verdict are not the honest ones"
    told = {name: part["arm"] for name, part in honest.items() if part["sent"]["count"]}
    found = {layout.arm(layout.group_of[name], arm) for name, arm in told.items()}
    for arm in {verdict.arm for verdict in peers.values()} - {None} - found:
        yield f"no honest client found {arm}"
    faults = [
        {"client": fault["client"], "round": 0, "reason": fault["reason"], "by": name}
        for name, part in honest.items()
        for fault in part["faulty"]
    ]
    if record.proven_faulty != faults:
        yield "the proven faulty are not those that honest clients found"


def _check_server(record: Record, server: Any, scale: Scale) -> Iterator[str]:
    """Run a server machine on what the server was sent, and compare all that it concludes."""
    server.handle(Start())
    for event in heard(record.verdict.certificate["server"]["events"]):
        server.handle(event)
    if server.verdict is None:
        yield "what the server was sent leads to no verdict"
        return
    found = {
        "verdict": msgspec.structs.replace(on_user_scale(server.verdict, scale), certificate={}),
        "rounds": server.rounds,
        "bits": Bits(server.bits_up, server.bits_down),
        "wire_bytes": server.bytes,
        "proven_faulty": server.faulty,
        "warnings": server.warnings,
        "interrupted": server.verdict.reason == "interrupted",
        "peers": None,
        "certificate": server.certificate(),
    }
    plain = record.to_dict()
    claimed = {key: plain.get(key) for key in found}
    claimed["certificate"] = plain["verdict"]["certificate"]["server"]
    claimed["verdict"] = {**plain["verdict"], "certificate": {}}
    for key, value in plain_json(found).items():
        if not _agree(value, claimed[key]):
            yield f"{key} does not follow from what the server was sent"


def _agree(a: Any, b: Any) -> bool:
    """Equal, but for the last digits of real numbers: another version's logarithm may round another way."""
    if isinstance(a, float) and isinstance(b, int | float) and not isinstance(b, bool):
        return math.isclose(a, b, rel_tol=1e-11, abs_tol=1e-13)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_agree(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    return type(a) is type(b) and bool(a == b)


def _good_event(record: Record, layout: Layout, options: Any) -> bool | None:
    if any(None in row for group in record.problem["groups"] for row in group.get("rewards", [[None]])):
        return None  # nobody has written down what the true means are
    means = Problem.from_dict(record.problem).means
    return good_event(method_for(record.method, layout), layout, options, means, record.verdict.certificate)


def _replay(record: Record) -> Iterator[str]:
    if record.seed is None:
        yield "the record holds no seed to replay from"
        return
    problem = Problem.from_dict(record.problem)
    if record.interrupted:
        yield "an interrupted run can't be replayed: where it stopped is not in its seed"
        return
    again = identify(
        problem,
        method=record.method,
        delta=record.delta,
        seed=record.seed,
        adversaries=[Adversary(**keys) for keys in record.adversaries],
        network=Network.from_dict(record.network) if record.network else None,
        force=True,
        **record.options,
    ).to_dict()
    before = record.to_dict()
    for key in before:
        if key not in ("version", "digest") and before[key] != again[key]:
            yield f"a fresh run from seed {record.seed} gives another {key}"
