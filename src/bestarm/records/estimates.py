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
    found, samples = list[_Told](), list[Floats]()
    for j, count in enumerate(layout.arm_counts):
        clients = len(layout.groups[j].clients)
        for a in range(count):
            own = named if named is not None and (j, a) == winner else level
            told = _Told(j, a, tuple(claims_about(layout, summaries, j, a)), clients, liars)
            samples.append(told.samples(own, pooled))
            found.append(told)
    low, high = _ends(np.concatenate(samples))  # of all arms at once
    cuts = np.cumsum([len(rows) for rows in samples])[:-1]
    ends = zip(np.split(low, cuts), np.split(high, cuts), strict=True)
    return [told.estimate(*own) for told, own in zip(found, ends, strict=True)]


class _Told(msgspec.Struct, frozen=True):
    """What the clients of a group claim about an arm, up to `liars` of them falsely."""

    group: int
    arm: int
    claims: tuple[Claim, ...]
    clients: int
    liars: int

    @property
    def pulls(self) -> int:
        return sum(claim.pulls for claim in self.claims)

    def samples(self, level: float, pooled: bool) -> Floats:
        """Pulls, sum, squares and level of each sample that needs an interval; one if all are added up."""
        rows = [(float(c.pulls), c.total, c.squares) for c in self.claims]
        if not rows or (len(rows) < self.clients and not self.liars):  # a summary is missing, or no pulls
            return np.empty((0, 4))
        alike = pooled and len({claim.pulls for claim in self.claims}) == 1
        if not self.liars and (self.clients == 1 or alike):
            return np.array([[*np.sum(rows, axis=0), level]])
        return np.array([[*row, level / self.clients] for row in rows])

    def estimate(self, low: Floats, high: Floats) -> ArmEstimate:
        """The estimate, from the intervals of the samples."""
        if not self.claims:
            return ArmEstimate(self.group, self.arm, None, None, 0)
        plain = sum(claim.total for claim in self.claims) / self.pulls
        if self.liars:
            return self._trimmed(low, high, plain)
        if not len(low):
            return ArmEstimate(self.group, self.arm, None, None, self.pulls, None, self.claims)
        mean = plain if len(low) == 1 else sum(claim.mean for claim in self.claims) / self.clients
        ends = (float(low.mean()), float(high.mean()))
        return ArmEstimate(self.group, self.arm, mean, ends, self.pulls, plain, self.claims)

    def _trimmed(self, low: Floats, high: Floats, plain: float) -> ArmEstimate:
        """The estimate where some of the claims may be lies: without the largest and the smallest means."""
        missing, liars, claims = self.clients - len(self.claims), self.liars, self.claims
        lower = _order(np.append(low, np.zeros(missing)), self.clients - 1 - liars, 0.0)
        upper = _order(np.append(high, np.ones(missing)), liars, 1.0)
        order = sorted(range(len(claims)), key=lambda k: claims[k].mean)
        middle = set(order[liars : len(order) - liars])
        shown = tuple(msgspec.structs.replace(claim, kept=k in middle) for k, claim in enumerate(claims))
        if not middle:
            return ArmEstimate(self.group, self.arm, None, None, self.pulls, plain, shown)
        kept = [claim.mean for claim in shown if claim.kept]
        mean = sum(kept) / len(kept)
        interval = (lower, upper) if lower <= upper else None  # they contradict each other
        return ArmEstimate(self.group, self.arm, mean, interval, self.pulls, plain, shown)


def _order(values: Floats, place: int, default: float) -> float:
    return float(np.sort(values)[place]) if 0 <= place < len(values) else default


def _ends(samples: Floats) -> tuple[Floats, Floats]:
    """The intervals of samples with these counts, sums, squares and levels."""
    n, s, q, level = samples.T
    return betting.intervals(n, s, np.minimum(q, s), np.zeros(len(n)), np.ones(len(n)), level)


def weighted(
    rows: Sequence[tuple[float, ArmEstimate]], liars: int = 0
) -> tuple[float, tuple[float, float]] | None:
    """The value of an option over several cells, and its interval; None if a cell is unknown.

    Where some of the sites may lie, it is about the honest ones: the interval holds those of the averages
    without any `liars` sites or fewer, and the value is the average without the highest and the lowest.
    """
    if not liars:
        if any(cell.mean is None or cell.interval is None for _, cell in rows):
            return None
        value = sum(w * (cell.mean or 0.0) for w, cell in rows)
        ends = [sum(w * cell.interval[k] for w, cell in rows if cell.interval) for k in (0, 1)]
        return value, (ends[0], ends[1])
    kept = sorted((cell.mean, w) for w, cell in rows if cell.mean is not None)[liars:-liars]
    if not kept:
        return None
    weights, ends = (
        np.array([w for w, _ in rows]),
        np.array([cell.interval or (0.0, 1.0) for _, cell in rows]),
    )
    low, high = _least_average(ends[:, 0], weights, liars), 1 - _least_average(1 - ends[:, 1], weights, liars)
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
