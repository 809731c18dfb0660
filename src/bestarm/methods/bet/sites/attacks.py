"""How a lying site alters its messages."""

from __future__ import annotations

import numpy as np

from bestarm.methods.bet.sites.client import Client
from bestarm.methods.bet.sites.messages import Part, Report, encode
from bestarm.protocol.lies import Liar, Lies
from bestarm.stats.sums import Sums


def alter(liar: Liar, payload: bytes) -> bytes | None:
    """A part with the liar's answers.

    A vote for another arm swaps its numbers with those of the best one. Claimed means are told as rewards
    that are all alike, which are feasible. Messages contain no counts.
    """
    machine: Client = liar.machine
    said = machine.sent[liar.turn]
    if not isinstance(said, Part):
        return None
    arms = machine.arms_of[liar.turn]
    means = {arm: mean_of(report) for arm, report in zip(arms, said.reports, strict=True)}
    top = max(arms, key=lambda arm: means[arm])
    swapped, other = dict(means), liar.arm(top)
    if other in means:
        swapped[top], swapped[other] = means[other], means[top]
    reports = []
    for arm, report in zip(arms, said.reports, strict=True):
        claim = min(max(liar.mean(arm, swapped[arm]), 0.0), 1.0)
        reports.append(report if claim == means[arm] else constant(report, claim))
    return encode(Part(tuple(reports), said.supply), machine.own_wire)[0]


def mean_of(report: Report) -> float:
    """The mean of the rewards that a report tells."""
    if len(report.levels) == 1:
        return report.levels[0] / report.count
    return float(report.levels[0] * 2.0**-report.bits)


def constant(report: Report, mean: float) -> Report:
    """The report of rewards that were all alike; for 0/1 rewards, of the nearest sum."""
    binary, n = len(report.levels) == 1, report.count
    total = float(round(mean * n)) if binary else n * mean
    return Report.of(n, report.bits, (total, n * mean**2, mean, mean), binary)


def observed(machine: Client, arm: int) -> float | None:
    """The empirical mean that a client has of an arm, from all rewards of blocks that it has reported."""
    told = [
        (report.count, mean_of(report))
        for arms, part in zip(machine.arms_of, machine.sent, strict=False)
        if isinstance(part, Part)
        for a, report in zip(arms, part.reports, strict=True)
        if a == arm
    ]
    pulls = sum(count for count, _ in told)
    return float(np.dot(*map(np.array, zip(*told, strict=True))) / pulls) if pulls else None


def early(machine: Client) -> bytes:
    """A part of the first block, sent before any pull: the first option always pays, the others never."""
    n, values = machine.pulls_due.astype(float), np.eye(1, machine.arms)[0]
    first = Sums(n, n * values, n * values, values, values)
    met = None
    if machine.reference is not None:
        halves = (1.0 + values[machine.reference] - values) / 2.0
        met = (Sums(n, n * halves, n * halves**2, halves, halves), machine.reference)
    part = Part.of(first, machine.n, machine.own_wire, machine.binary, machine.supply, met)
    return encode(part, machine.own_wire)[0]


LIES = Lies(claims=lambda options: frozenset({"arm", "mean"}), alter=alter, observed=observed, early=early)
