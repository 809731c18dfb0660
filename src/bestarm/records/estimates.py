"""One mean and one interval for each option, from the clients' summaries, valid at the stopping time.

All rewards of an arm count, and the intervals are those of ``stats.betting.intervals``, which hold at any
stopping time. ``shares`` are their levels: together the intervals miss with probability at most α (theory of
Fed-Bet, section 6). If a run names the best arm a*, that arm has α/2 and each of the K − 1 others has
α/(2(K − 1)): as long as the answer is right, the named arm is the fixed arm a*, so P(the answer is wrong, or
an interval misses) ≤ δ + α. In a run that names none, every arm has α/(2(K − 1)), which is at most what it
would have had, so the promise is one about all runs. Where the named arm is not fixed (ε > 0, a dropped site)
or the method states the intervals of its answers, which take α/2, the K arms share α or the rest of it.

Where f clients of a group may lie, each client's interval has its share of the arm's level, and the arm's
interval reaches from the (f + 1)-th largest lower end to the (f + 1)-th smallest upper end: of f + 1 clients
at least one is honest. All numbers here are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from bestarm.problem.layout import Layout
from bestarm.protocol.summaries import Summary
from bestarm.stats import betting
from bestarm.stats.betting import Floats

_Sample = tuple[float, float, float, float]  # the level of an interval, and the rewards: count, sum, squares


class Claim(msgspec.Struct, frozen=True):
    """What one client says about an arm: pulls, sum and squares; `kept` is false if it was trimmed."""

    client: str
    pulls: int
    total: float
    squares: float
    kept: bool = True

    @property
    def mean(self) -> float:
        """The mean that it claims."""
        return self.total / self.pulls


class ArmEstimate(msgspec.Struct, frozen=True):
    """An arm of a group: its mean, its interval, its pulls, and what each client claims.

    `plain` is the mean of all claimed rewards, without trimming. The mean is None if a summary that it needs
    is missing.
    """

    group: int
    arm: int
    mean: float | None
    interval: tuple[float, float] | None
    pulls: int
    plain: float | None = None
    claims: tuple[Claim, ...] = ()


def claims_about(layout: Layout, summaries: Mapping[str, Summary], group: int, arm: int) -> list[Claim]:
    """What the clients of a group claim about an arm, as far as they have pulled it."""
    found = []
    for client in layout.groups[group].clients:
        if client in summaries and (n := summaries[client].count[arm]):
            summary = summaries[client]
            squares = summary.total[arm] if summary.squares is None else summary.squares[arm]
            found.append(Claim(client, n, summary.total[arm], squares))
    return found


def shares(alpha: float, arms: int, *, fixed: bool, stated: bool) -> tuple[float, float]:
    """The level of each arm's interval, and that of the named arm.

    Parameters
    ----------
    alpha : float
        The probability that any of the intervals misses.
    arms : int
        The number of arms.
    fixed : bool
        Whether the named arm is the best one, a fixed arm, as long as the answer is right.
    stated : bool
        Whether the method states intervals of its own for what it names, at α/2 in all.

    Examples
    --------
    >>> shares(0.05, 6, fixed=True, stated=True), shares(0.04, 2, fixed=False, stated=False)
    ((0.005, 0.025), (0.02, 0.02))
    """
    if fixed and arms > 1:
        return alpha / (2 * (arms - 1)), alpha / 2
    level = alpha / (2 * arms if stated else arms)
    return level, level


def estimates(
    layout: Layout,
    summaries: Mapping[str, Summary],
    level: float,
    *,
    winner: tuple[int, int] | None = None,
    named: float | None = None,
    liars: int = 0,
    pooled: bool = False,
) -> list[ArmEstimate]:
    """The mean and the interval of every arm.

    Parameters
    ----------
    layout : Layout
        Groups, arms and clients.
    summaries : mapping of str to Summary
        What clients sent.
    level : float
        The probability that the interval of an arm misses, see ``shares``.
    winner : tuple of two int, optional
        The arm that the run named as the best one.
    named : float, optional
        The level of its interval.
    liars : int
        How many clients of a group may lie.
    pooled : bool
        Whether clients of a group pull an arm equally often at every step, so that their rewards may be added
        up even if their means differ.

    Returns
    -------
    list of ArmEstimate
        In the order of the layout.
    """
    places = [(j, a) for j, count in enumerate(layout.arm_counts) for a in range(count)]
    claims = [claims_about(layout, summaries, j, a) for j, a in places]
    own_level = level if named is None else named
    levels = [own_level if place == winner else level for place in places]
    clients = [len(layout.groups[j].clients) for j, _ in places]
    samples = [
        _samples(own, most, level, liars, pooled)
        for own, most, level in zip(claims, clients, levels, strict=True)
    ]
    ends = _ends({sample for own in samples for sample in own})
    return [
        _estimate(*place, own, most, liars, [ends[sample] for sample in wanted])
        for place, own, most, wanted in zip(places, claims, clients, samples, strict=True)
    ]


def _samples(claims: list[Claim], clients: int, level: float, liars: int, pooled: bool) -> list[_Sample]:
    """The samples whose intervals an estimate needs: all rewards together, or those of each client."""
    if not claims or (not liars and len(claims) < clients):  # a summary is missing, or there are no pulls
        return []
    rows = [(claim.pulls, claim.total, claim.squares) for claim in claims]
    if not liars and (clients == 1 or (pooled and len({claim.pulls for claim in claims}) == 1)):
        n, s, q = np.sum(rows, axis=0).tolist() if clients > 1 else rows[0]
        return [(level, n, s, q)]
    return [(level / clients, *row) for row in rows]


def _estimate(
    group: int, arm: int, claims: list[Claim], clients: int, liars: int, ends: list[tuple[float, float]]
) -> ArmEstimate:
    pulls = sum(claim.pulls for claim in claims)
    if not pulls:
        return ArmEstimate(group, arm, None, None, 0)
    plain = sum(claim.total for claim in claims) / pulls
    if liars:
        return _trimmed(group, arm, claims, clients, liars, plain, ends)
    if not ends:
        return ArmEstimate(group, arm, None, None, pulls, None, tuple(claims))
    if len(ends) == 1:
        return ArmEstimate(group, arm, plain, ends[0], pulls, plain, tuple(claims))
    low, high = (float(np.mean(side)) for side in zip(*ends, strict=True))
    mean = sum(claim.mean for claim in claims) / clients
    return ArmEstimate(group, arm, mean, (low, high), pulls, plain, tuple(claims))


def _trimmed(
    group: int,
    arm: int,
    claims: list[Claim],
    clients: int,
    liars: int,
    plain: float,
    ends: list[tuple[float, float]],
) -> ArmEstimate:
    """The estimate where some of the claims may be lies: without the `liars` largest and smallest means."""
    silent = clients - len(claims)
    lower = _order([low for low, _ in ends] + [0.0] * silent, clients - 1 - liars, 0.0)
    upper = _order([high for _, high in ends] + [1.0] * silent, liars, 1.0)
    order = sorted(range(len(claims)), key=lambda k: claims[k].mean)
    middle = set(order[liars : len(order) - liars])
    shown = tuple(msgspec.structs.replace(claim, kept=k in middle) for k, claim in enumerate(claims))
    if not middle:
        return ArmEstimate(group, arm, None, None, sum(c.pulls for c in claims), plain, shown)
    kept = [claim.mean for claim in shown if claim.kept]
    mean = sum(kept) / len(kept)
    interval = (lower, upper) if lower <= upper else None  # they contradict each other
    return ArmEstimate(group, arm, mean, interval, sum(c.pulls for c in claims), plain, shown)


def _order(values: list[float], place: int, default: float) -> float:
    return sorted(values)[place] if 0 <= place < len(values) else default


def _ends(samples: set[_Sample]) -> dict[_Sample, tuple[float, float]]:
    """The interval of each sample."""
    found: dict[_Sample, tuple[float, float]] = {}
    for level in {level for level, _, _, _ in samples}:
        own = [sample for sample in samples if sample[0] == level]
        _, n, s, q = np.array(own, dtype=np.float64).T
        low, high = betting.intervals(n, s, np.minimum(q, s), np.zeros(len(n)), np.ones(len(n)), level)
        found |= dict(zip(own, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return found


def weighted(
    rows: Sequence[tuple[float, ArmEstimate]], liars: int = 0
) -> tuple[float, tuple[float, float] | None] | None:
    """The value of an option over several cells, and its interval; None if a cell is unknown.

    There is no interval if a cell has none, unless sites may lie.

    Where some of the sites may lie, it is about the honest ones: the interval holds those of the averages
    without any `liars` sites or fewer, and the value is the average without the highest and the lowest.
    """
    if not liars:
        if any(cell.mean is None for _, cell in rows):
            return None
        value = sum(w * (cell.mean or 0.0) for w, cell in rows)
        if any(cell.interval is None for _, cell in rows):
            return value, None
        ends = [sum(w * cell.interval[k] for w, cell in rows if cell.interval) for k in (0, 1)]
        return value, (ends[0], ends[1])
    kept = sorted((cell.mean, w) for w, cell in rows if cell.mean is not None)[liars:-liars]
    if not kept:
        return None
    weights = np.array([w for w, _ in rows])
    lower, upper = np.array([cell.interval or (0.0, 1.0) for _, cell in rows]).T
    low, high = _least_average(lower, weights, liars), 1 - _least_average(1 - upper, weights, liars)
    return sum(w * mean for mean, w in kept) / sum(w for _, w in kept), (low, high)


def _least_average(values: Floats, weights: Floats, f: int) -> float:
    """The smallest weighted average without at most f of the values.

    >>> round(_least_average(np.array([0.2, 0.4, 0.9]), np.array([1.0, 1.0, 1.0]), 1), 3)
    0.3
    """
    least = float(np.average(values, weights=weights))
    while True:  # to leave out what exceeds an average most lowers it, until the average is the least one
        excess = weights * (values - least)
        kept = np.argsort(-excess, kind="stable")[f:]
        kept = np.union1d(kept, np.flatnonzero(excess <= 0))
        smaller = float(np.average(values[kept], weights=weights[kept]))
        if smaller >= least - 1e-15:
            return least
        least = smaller
