"""Checking a record without trusting whoever wrote it.

``verify`` feeds what the server was sent to a fresh server machine and compares every conclusion; it then
checks the clients' part against it, elimination by elimination. With ``replay=True`` it also runs again
from the seed. The digest shows that a file was altered; the rest shows that an altered file with a fresh
digest does not add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from bestarm.confidence import radius
from bestarm.errors import InputError
from bestarm.problem import Layout, Problem
from bestarm.protocol import METHODS, decide
from bestarm.protocol.machine import PatienceOver, Received, Start, Stop
from bestarm.protocol.options import make
from bestarm.record import SCHEMA, Bits, Record, count_pulls, digest, good_event, on_user_scale, plain_json
from bestarm.rewards import Scale
from bestarm.simulate import identify


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
    method = METHODS[record.method]
    options = make(method.options, {**record.options, "delta": record.delta}, where="options")
    method.refuse(layout, options)
    certificate = record.verdict.certificate
    yield from _check_server(record, layout, scale, options)
    if certificate.get("local") is None:
        return
    yield from _check_local(record, layout, options, certificate["local"])


def _check_server(record: Record, layout: Layout, scale: Scale, options: Any) -> Iterator[str]:
    """Run a server machine on what the server was sent."""
    server = METHODS[record.method].server(layout, options)
    server.handle(Start())
    for event in record.verdict.certificate["server"]["events"]:
        match event:
            case ["received", sender, data]:
                server.handle(Received(sender, bytes.fromhex(data)))
            case ["patience", k]:
                server.handle(PatienceOver(k))
            case ["stop", reason]:
                server.handle(Stop(reason))
            case _:
                yield f"event {event!r} is none that a server can take"
    if server.verdict is None:
        yield "what the server was sent leads to no verdict"
        return
    found = {
        "verdict": msgspec.structs.replace(on_user_scale(server.verdict, scale), certificate={}),
        "rounds": server.rounds,
        "bits": Bits(server.bits_up, server.bits_down),
        "wire_bytes": server.bytes,
        "proven_faulty": server.faulty,
        "interrupted": server.verdict.reason == "interrupted",
        "peers": None,
        "certificate": server.certificate(),
    }
    plain = record.to_dict()
    claimed = {key: plain.get(key) for key in found}
    claimed["certificate"] = plain["verdict"]["certificate"]["server"]
    claimed["verdict"] = {**plain["verdict"], "certificate": {}}
    for key, value in plain_json(found).items():
        if value != claimed[key]:
            yield f"{key} does not follow from what the server was sent"


def _check_local(record: Record, layout: Layout, options: Any, local: Mapping[str, Any]) -> Iterator[str]:
    """Check each client's eliminations, and its messages against what the server decoded."""
    if set(local) != set(layout.clients):
        yield "the clients' part does not name the clients of the layout"
        return
    told: dict[int, list[tuple[int, float]]] = {j: [] for j in range(len(layout.groups))}
    rounds = record.verdict.certificate["server"]["rounds"]
    for row in rounds:
        for j, count, mean in zip(row["group"], row["count"], row["mean"], strict=True):
            if (count, mean) not in told[j][-1:]:  # a client that is out of pulls stands with its last one
                told[j].append((count, mean))
    for name, part in local.items():
        j = layout.group_of[name]
        r = radius(options.radius, len(layout.clients), layout.arm_counts[j], record.delta)
        exits, sent = part["exits"], part["sent"]
        gaps = np.asarray(exits["top_sum"]) - np.asarray(exits["sum"])
        if not (gaps >= r.boundary(exits["epoch"], options.c)).all():
            yield f"client {name} dropped an arm that was not far enough behind"
        left = set(range(layout.arm_counts[j])) - set(exits["arm"])
        if max([0, *exits["epoch"]]) > part["epoch"] or len(set(exits["arm"])) < len(exits["arm"]):
            yield f"client {name} dropped an arm twice or after Phase I"
        if not left or not set(exits["top"]) <= set(range(layout.arm_counts[j])):
            yield f"client {name} dropped all its arms, or against one that it hasn't"
        if not sent["count"]:
            if part["arm"] is not None or part["count"] != 0:
                yield f"client {name} says that it sent nothing, and that it found an arm"
            continue
        counts, means = np.asarray(sent["count"]), np.asarray(sent["sum"]) / np.asarray(sent["count"])
        reported = record.verdict.certificate["server"]["arms"][j]
        if part["arm"] not in left or reported not in (None, part["arm"]):
            yield f"client {name}'s arm is not the one that it reported"
        if counts[0] != part["epoch"] or part["count"] < counts[-1]:
            yield f"client {name}'s counts don't fit together"
        if options.quantiser:
            bits = decide.precision(r.alpha(counts))
            decoded = np.asarray(decide.bin_centre(decide.bin_index(means, bits), bits))
            decoded[0] = means[0]
        else:
            decoded = means
        if told[j] and not _same(told[j], counts, decoded):
            yield f"client {name}'s sums are not what the server was told"
        if rounds and not told[j] and means[0] + 2 * r.alpha(counts[0]) > rounds[0]["threshold"]:
            yield f"client {name} withdrew, but was not beaten"
    yield from _check_totals(record, layout, options, local)


def _same(told: list[tuple[int, float]], counts: Any, means: Any) -> bool:
    """Whether the server's view is the client's, but for a last message that came after the end."""
    mine = list(zip(counts.tolist(), means.tolist(), strict=True))
    return told == mine[: len(told)]


def _check_totals(record: Record, layout: Layout, options: Any, local: Mapping[str, Any]) -> Iterator[str]:
    pulls = count_pulls(layout, local)
    if record.pulls != pulls:
        yield "pulls do not follow from the clients' part"
    if "rewards" in record.problem["groups"][0] and record.good_event is not None:
        means = Problem.from_dict(record.problem).means
        if record.good_event != good_event(layout, means, local, options.radius, record.delta):
            yield "good_event does not follow from the clients' part and the true means"


def _replay(record: Record) -> Iterator[str]:
    if record.seed is None:
        yield "the record holds no seed to replay from"
        return
    problem = Problem.from_dict(record.problem)
    if record.interrupted:
        yield "an interrupted run can't be replayed: where it stopped is not in its seed"
        return
    again = identify(
        problem, method=record.method, delta=record.delta, seed=record.seed, **record.options
    ).to_dict()
    before = record.to_dict()
    for key in before:
        if key not in ("version", "digest") and before[key] != again[key]:
            yield f"a fresh run from seed {record.seed} gives another {key}"
