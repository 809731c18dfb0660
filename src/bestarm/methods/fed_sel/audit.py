"""The audit of Fed-SEL: checks of the clients' part of a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.client import EXIT_COLUMNS
from bestarm.methods.fed_sel.elimination import end_by_epsilon, least_count
from bestarm.methods.fed_sel.server import Server
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.options import Common
from bestarm.stats.radii import Radius, radius


def pulls_of(part: Mapping[str, Any], arms: int, options: Common) -> tuple[int, int]:
    """Pulls of Phase I and of Phase II, from a client's part of the certificate."""
    exits = part["exits"]["epoch"]
    return sum(exits) + (arms - len(exits)) * part["epoch"], max(0, part["count"] - part["epoch"])


def good_event(
    layout: Layout, options: Any, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool:
    """Whether every mean of an honest client that was used in a decision was within α of the true mean."""
    for client, part in certificate["local"].items():
        if "attack" in part:
            continue
        j = layout.group_of[client]
        name = getattr(options, "radius", "paper")
        alpha = radius(name, len(layout.clients), layout.arm_counts[j], options.delta).alpha
        true = np.asarray(means[j], dtype=np.float64)
        exits, sent = part["exits"], part["sent"]
        arms = np.asarray([*exits["arm"], *exits["top"], *[part["arm"]] * len(sent["sum"])], dtype=np.int64)
        counts = np.asarray([*exits["epoch"], *exits["epoch"], *sent["count"]], dtype=np.float64)
        sums = np.asarray([*exits["sum"], *exits["top_sum"], *sent["sum"]])
        if len(arms) and not (np.abs(sums / counts - true[arms]) <= alpha(counts)).all():
            return False
    return True


def audit_exits(part: Mapping[str, Any], r: Radius, arms: int, c: float) -> Iterator[str]:
    """Check one client's eliminations in Phase I."""
    left = np.ones(arms, dtype=bool)
    before = 0
    for arm, at, total, top, top_total in zip(*(part["exits"][c] for c in EXIT_COLUMNS), strict=True):
        fair = arm != top and left[arm] and left[top] and before <= at <= part["epoch"]
        pair = np.asarray([total, top_total])
        stays, _ = fed_sel_decisions.eliminate(pair, np.ones(2, dtype=bool), r.boundary(at, c))
        if not (fair and 0 <= total <= top_total <= at) or stays:
            yield f"dropped arm {arm} in epoch {at}, which was not far enough behind"
        left[arm], before = False, at


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check one client's eliminations, its counts, and its sums against what the server decoded."""
    j = server.layout.group_of[name]
    options, r, arms = server.options, server.radii[j], server.layout.arm_counts[j]
    epoch, count, sent = part["epoch"], part["count"], part["sent"]
    yield from audit_exits(part, r, arms, options.c)
    left = np.ones(arms, dtype=bool)
    left[part["exits"]["arm"]] = False
    if not sent["count"]:
        if part["arm"] is not None or count != 0:
            yield "claims that it sent nothing, but also that it found an arm"
        return
    counts, sums = np.asarray(sent["count"]), np.asarray(sent["sum"], dtype=np.float64)
    periods = [
        fed_sel_decisions.period(k, options.period, options.period_growth) for k in range(1, len(counts) + 1)
    ]
    if counts[0] != epoch or np.diff(counts).tolist() != periods[:-1]:
        yield "sent counts that do not match its rounds"
    if not 0 <= count - counts[-1] < periods[-1]:
        yield "made more pulls than its last round required"
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that are impossible for its number of rewards"
    spent = sum(part["exits"]["epoch"]) + int(left.sum()) * epoch + count - epoch
    if options.budget is not None and spent > options.budget:
        yield "made more pulls than its budget allows"
    report = server.reports[j]
    if report is None:
        bound = max(server.bound, server.history[0]["threshold"]) if server.history else np.inf
        if not fed_sel_decisions.beaten(sums[:1], np.ones(1, dtype=bool), epoch, r.alpha(epoch), bound):
            yield "withdrew, but was not beaten"
        return
    yield from _audit_report(part, report, left, r, options)
    means = sums / counts
    if options.quantiser:
        bits = fed_sel_decisions.precision(r.alpha(counts))
        means[1:] = decisions.bin_centre(fed_sel_decisions.bin_index(means, bits), bits)[1:]
    mine = list(zip(counts.tolist(), means.tolist(), strict=True))
    told = _told(server, j)
    if told != mine[: len(told)]:  # the last message may have arrived after the end
        yield "has sums that do not match what the server received"


def _audit_report(part: Any, report: Any, left: Any, r: Any, options: Any) -> Iterator[str]:
    """Check that a finished report has the right epoch, or that an unfinished one names the arms left."""
    epoch = part["epoch"]
    if part["arm"] != report.arm or not left[report.arm] or report.count != epoch:
        yield "reported an arm or a count that does not match its own part"
    least, over = least_count(r, options.c, options.epsilon), end_by_epsilon(r, options.epsilon)
    done = bool(fed_sel_decisions.finished(left, epoch, least=least, over=over))
    if report.remaining is not None:
        if done or list(report.remaining) != left.tolist():
            yield "claims that Phase I was not finished, but its eliminations do not agree"
    elif not done or epoch not in (over, max([least if len(left) == 1 else 0, *part["exits"]["epoch"]])):
        yield "claims that Phase I was finished, but its eliminations do not agree"


def _told(server: Server, j: int) -> list[tuple[int, float]]:
    """The counts and means that the server had of a group, round by round, without repeats."""
    told: list[tuple[int, float]] = []
    for row in server.history:
        if j in row["group"]:
            place = row["group"].index(j)
            if (row["count"][place], row["mean"][place]) not in told[-1:]:
                told.append((row["count"][place], row["mean"][place]))
    return told
