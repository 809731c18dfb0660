"""The audit of Fed-Fisher: checks of the clients' part of a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import Looks
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.fisher.server import Server
from bestarm.problem.layout import Layout

Exited = tuple[int, int, int, int]  # arm, look, its sum, the rival's sum
Sent = tuple[int, int, int]  # look, arm, its sum


def pulls_of(part: Mapping[str, Any], arms: int, options: Fisher) -> tuple[int, int]:
    """Pulls in the quiet looks and in the later looks, from a client's part of the certificate."""
    looks = Looks(options, 2)  # sizes don't depend on the number of arms
    exits = [looks.size(look) for look in part["exits"]["look"]]
    made = np.asarray(exits + [part["count"]] * (arms - len(exits)), dtype=np.int64)
    quiet = np.minimum(made, looks.size(looks.quiet - 1))
    return int(quiet.sum()), int((made - quiet).sum())


def good_event(
    layout: Layout, options: Fisher, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether the best arm was never dropped; None if it is not unique, or if a client lied."""
    if any("attack" in part for part in certificate["local"].values()):
        return None
    flat = [(mean, j, arm) for j, row in enumerate(means) for arm, mean in enumerate(row)]
    top = max(flat)[0]
    best = [(j, arm) for mean, j, arm in flat if mean == top]
    if len(best) > 1:
        return None
    ((j, arm),) = best
    part = certificate["local"][layout.groups[j].clients[0]]
    lost = any(j in row["out"] for row in certificate["server"]["rounds"])
    return arm not in part["exits"]["arm"] and not lost


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check the p-value of each arm that a client dropped, and its reports against the server's part."""
    j = server.layout.group_of[name]
    looks, arms = server.looks, server.layout.arm_counts[j]
    exits = list(zip(*(part["exits"][c] for c in ("arm", "look", "sum", "rival")), strict=True))
    sent = list(zip(*(part["sent"][c] for c in ("look", "arm", "sum")), strict=True))
    held = {row["look"]: (row, row["group"].index(j)) for row in server.history if j in row["group"]}
    leaders = {row["look"]: row["lower"][row["group"].index(row["leader"])] for row in server.history}
    tops = {look: total for look, _, total in sent}
    last = looks.quiet + len(sent) - 1  # the last look that was reported
    if [look for look, _, _ in sent] != list(range(looks.quiet, last + 1)) or len(set(tops) - set(held)) > 1:
        yield "reported looks that do not match the looks of the run"
    if set(held) - set(tops):
        yield "has no record of a report that the server received"
    ended = server.verdict is not None and (server.verdict.reason or "rounds") == "rounds"
    if sent:  # it stopped right after a report or, unless a round ended the run, before the next one
        fits = looks.size(last) <= part["count"] <= looks.size(last if ended else last + 1)
        fits = fits and part["look"] - last in (0, 1)
    else:
        fits = 0 <= part["look"] <= looks.quiet and 0 <= part["count"] <= looks.size(part["look"])
    if not fits:
        yield "has a number of pulls that does not match its looks"
    if (
        server.options.budget is not None
        and sum(pulls_of(part, arms, server.options)) > server.options.budget
    ):
        yield "made more pulls than its budget allows"
    yield from _audit_exits(exits, arms, looks, tops, leaders)
    yield from _audit_reports(sent, exits, arms, looks, held)
    withdrawn = [look for group, look in server.withdrew if group == j]
    lost_all = len({arm for arm, _, _, _ in exits}) == arms
    if withdrawn and not (
        lost_all and exits[-1][1] == withdrawn[0] - 1 and exits[-1][3] == leaders.get(last)
    ):
        yield "withdrew, but had not lost all its arms to the leader"
    if lost_all and ended and not withdrawn:
        yield "lost all its arms, but did not withdraw"


def _audit_exits(
    exits: Sequence[Exited], arms: int, looks: Looks, tops: Mapping[int, int], leaders: Mapping[int, int]
) -> Iterator[str]:
    """Check each arm that a client dropped; `tops` and `leaders` have the rivals' sums by look."""
    last = looks.quiet + len(tops) - 1
    left, before = np.ones(arms, dtype=bool), 0
    for arm, look, total, rival in exits:
        n = looks.size(look)
        fair = left[arm] and before <= look <= max(last, looks.quiet - 1) and 0 <= total <= rival <= n
        known = look < looks.quiet or (
            rival in (tops.get(look), leaders.get(look)) and total <= tops.get(look, n)
        )
        if not fair or not known or not fisher_decisions.loses(total, rival, n, looks.level(look)):
            yield f"dropped arm {arm} at look {look}, but its p-value does not allow that"
        left[arm], before = False, look


def _audit_reports(
    sent: Sequence[Sent],
    exits: Sequence[Exited],
    arms: int,
    looks: Looks,
    held: Mapping[int, tuple[Mapping[str, Any], int]],
) -> Iterator[str]:
    """Check each report of a client; `held` has the server's row of each look and the place in it."""
    for look, arm, total in sent:
        gone = {a for a, at, _, _ in exits if at < look}
        own = {a for a, at, _, rival in exits if at == look and rival == total}
        if arm in gone | own or not 0 <= total <= looks.size(look):
            yield f"reported arm {arm} at look {look}, but it had dropped that arm"
        if look in held:
            row, place = held[look]
            alone = arms - len(gone | own) == 1
            right = row["arm"][place] == arm and row["single"][place] == alone
            if not right or not row["lower"][place] <= total <= row["upper"][place]:
                yield f"has sums that do not match what the server received at look {look}"
