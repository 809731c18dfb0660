"""How a liar alters the messages of Fed-Bet among liars."""

from __future__ import annotations

import numpy as np

from bestarm.methods.bet.groups.messages import Block, sums_of
from bestarm.methods.bet.levels import Report
from bestarm.methods.bet.robust.client import Client
from bestarm.methods.bet.robust.messages import Part, decode, encode
from bestarm.protocol.lies import Liar, Lies


def alter(liar: Liar, payload: bytes) -> bytes | None:
    """A part with the liar's answers.

    A vote for another arm swaps its numbers with those of the leading arm. Messages contain no counts, so a
    lie about the count is a part of a block that has not begun. Claimed means are told as rewards that are
    all alike: numbers that are feasible, and on which bets win most.
    """
    machine: Client = liar.machine
    said = machine.sent[liar.turn]
    if not isinstance(said, Part):
        return None
    block, group = machine.told[said.block], machine.group
    message, _ = decode(payload, machine.wire, group, said.block, block)
    assert isinstance(message, Part)
    arms = np.flatnonzero(block.pulls(group)).tolist()
    means = {arm: mean_of(block, group, arm, r) for arm, r in zip(arms, message.reports, strict=True)}
    top = max(arms, key=lambda arm: means[arm])
    swapped, other = dict(means), liar.arm(top)
    if other in means:
        swapped[top], swapped[other] = means[other], means[top]
    reports = []
    for arm, report in zip(arms, message.reports, strict=True):
        claim = min(max(liar.mean(arm, swapped[arm]), 0.0), 1.0)
        reports.append(report if claim == means[arm] else constant(block, group, arm, claim))
    count = message.reports[0].count
    late = int(liar.count(count) != count)
    return encode(Part(said.block + late, tuple(reports)), machine.wire)[0]


def _mirrored(block: Block, group: int, arm: int) -> bool:
    return not block.wire.binary[group] and not block.is_champion(group, arm)


def mean_of(block: Block, group: int, arm: int, report: Report) -> float:
    """The mean of the rewards that a report tells."""
    count, total, *_ = sums_of(report, _mirrored(block, group, arm))
    return total / count


def constant(block: Block, group: int, arm: int, mean: float) -> Report:
    """The report of an arm whose rewards were all alike; for 0/1 rewards, of the nearest sum."""
    count, binary = int(block.pulls(group)[arm]), block.wire.binary[group]
    if binary:
        return Report.of(count, block.n, round(mean * count), 0.0, 0.0, binary)
    value = 1.0 - mean if _mirrored(block, group, arm) else mean
    return Report.of(count, block.n, count * value, count * value**2, value, binary)


def observed(machine: Client, arm: int) -> float | None:
    """The empirical mean that a client has of an arm."""
    whole = machine.whole.at(arm)
    return float(whole.total / whole.count) if whole.count else None


def early(machine: Client) -> bytes:
    """A part of the first block, sent before any pull: every arm always pays."""
    block = machine.told[0]
    reports = tuple(constant(block, machine.group, arm, 1.0) for arm in range(machine.arms))
    return encode(Part(0, reports), machine.wire)[0]


LIES = Lies(
    claims=lambda options: frozenset({"arm", "mean", "count"}),
    alter=alter,
    observed=observed,
    early=early,
)
