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

from bestarm.errors import InputError
from bestarm.problem import Layout, Problem
from bestarm.protocol import METHODS, decide
from bestarm.protocol.elimination import end_by_epsilon, least_count
from bestarm.protocol.machine import PatienceOver, Received, Start, Stop
from bestarm.protocol.options import make
from bestarm.record import (
    EXIT_COLUMNS,
    SCHEMA,
    Bits,
    Record,
    count_pulls,
    digest,
    good_event,
    on_user_scale,
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
    method = METHODS[record.method]
    options = make(method.options, {**record.options, "delta": record.delta}, where="options")
    options = on_unit_scale(options, scale)
    method.refuse(layout, options)
    server = method.server(layout, options)
    yield from _check_server(record, server, scale)
    local = record.verdict.certificate.get("local")
    if local is None:
        if record.pulls is not None or record.good_event is not None:
            yield "pulls and good_event are claimed, but the clients' part that would show them is missing"
        return
    if set(local) != set(layout.clients):
        yield "the clients' part does not name the clients of the layout"
        return
    told = _told(record)
    for name, part in local.items():
        j = layout.group_of[name]
        for failure in _check_client(part, server, j, told[j]):
            yield f"client {name} {failure}"
    if record.pulls != count_pulls(layout, local):
        yield "pulls do not follow from the clients' part"
    if record.good_event != _good_event(record, layout, options, local):
        yield "good_event does not follow from the clients' part and the true means"


def _check_server(record: Record, server: Any, scale: Scale) -> Iterator[str]:
    """Run a server machine on what the server was sent, and compare all that it concludes."""
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


def _told(record: Record) -> dict[int, list[tuple[int, float]]]:
    """What the server held of each group, round by round; a group that stood still is listed once."""
    told: dict[int, list[tuple[int, float]]] = {j: [] for j in range(len(record.problem["groups"]))}
    for row in record.verdict.certificate["server"]["rounds"]:
        for j, count, mean in zip(row["group"], row["count"], row["mean"], strict=True):
            if (count, mean) not in told[j][-1:]:
                told[j].append((count, mean))
    return told


def _check_client(part: Any, server: Any, j: int, told: list[tuple[int, float]]) -> Iterator[str]:
    """Check one client's eliminations, its counts, and its sums against what the server decoded."""
    options, r, arms = server.options, server.radii[j], server.layout.arm_counts[j]
    epoch, count, sent = part["epoch"], part["count"], part["sent"]
    left = np.ones(arms, dtype=bool)
    before = 0
    for arm, at, total, top, top_total in zip(*(part["exits"][c] for c in EXIT_COLUMNS), strict=True):
        fair = (
            arm != top and left[arm] and left[top] and before <= at <= epoch and 0 <= total <= top_total <= at
        )
        if not fair or top_total - total < r.boundary(at, options.c):
            yield f"dropped arm {arm} in epoch {at}, which was not far enough behind"
        left[arm], before = False, at
    if not sent["count"]:
        if part["arm"] is not None or count != 0:
            yield "says that it sent nothing, and that it found an arm"
        return
    counts, sums = np.asarray(sent["count"]), np.asarray(sent["sum"], dtype=np.float64)
    periods = [decide.period(k, options.period, options.period_growth) for k in range(1, len(counts) + 1)]
    if counts[0] != epoch or np.diff(counts).tolist() != periods[:-1]:
        yield "sent counts that are not those of its rounds"
    if not 0 <= count - counts[-1] < periods[-1]:
        yield "made more pulls than a round has"
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that so many rewards can't have"
    spent = sum(part["exits"]["epoch"]) + int(left.sum()) * epoch + count - epoch
    if options.budget is not None and spent > options.budget:
        yield "made more pulls than its budget"
    report = server.reports[j]
    if report is None:
        bound = server.history[0]["threshold"] if server.history else np.inf
        if not decide.beaten(sums[:1], np.ones(1, dtype=bool), epoch, r.alpha(epoch), bound):
            yield "withdrew, but was not beaten"
        return
    yield from _check_report(part, report, left, r, options)
    means = sums / counts
    if options.quantiser:
        bits = decide.precision(r.alpha(counts))
        means[1:] = decide.bin_centre(decide.bin_index(means, bits), bits)[1:]
    mine = list(zip(counts.tolist(), means.tolist(), strict=True))
    if told != mine[: len(told)]:  # a last message may have come after the end
        yield "has sums that are not what the server was told"


def _check_report(part: Any, report: Any, left: Any, r: Any, options: Any) -> Iterator[str]:
    """A finished report must be finished, just then; an unfinished one must name the arms that were left."""
    epoch = part["epoch"]
    if part["arm"] != report.arm or not left[report.arm] or report.count != epoch:
        yield "reported an arm or a count that is not its own"
    least, over = least_count(r, options.c, options.epsilon), end_by_epsilon(r, options.epsilon)
    done = bool(decide.finished(left, epoch, least=least, over=over))
    if report.remaining is not None:
        if done or list(report.remaining) != left.tolist():
            yield "says that it was not finished, with other arms than were left"
    elif not done or epoch not in (over, max([least if len(left) == 1 else 0, *part["exits"]["epoch"]])):
        yield "says that it was finished, but its eliminations don't show it"


def _good_event(record: Record, layout: Layout, options: Any, local: Mapping[str, Any]) -> bool | None:
    if any(None in row for group in record.problem["groups"] for row in group.get("rewards", [[None]])):
        return None  # nobody has written down what the true means are
    means = Problem.from_dict(record.problem).means
    return good_event(layout, means, local, options.radius, record.delta)


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
