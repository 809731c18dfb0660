"""One mean and one interval for each option, from the clients' summaries, valid at the stopping time.

All rewards of an arm count, and the intervals are those of ``stats.betting.intervals``, which hold at any
stopping time. Together they miss with probability at most α (theory of Fed-Bet, section 6). If a run names
the best arm a*, the named arm has α/2 and the others share α/2: as long as the answer is right, the named arm
is the fixed arm a*, so P(the answer is wrong, or an interval misses) ≤ δ + α. Otherwise every arm has the
same share of α.

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


def estimates(
    layout: Layout,
    summaries: Mapping[str, Summary],
    alpha: float,
    *,
    winner: tuple[int, int] | None = None,
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
    alpha : float
        The probability that any of the intervals misses.
    winner : tuple of two int, optional
        The arm that the run named as the best one, unless ε > 0 allowed others.
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
    found = []
    for j, a in places:
        level = alpha / len(places)
        if winner is not None:
            level = alpha / 2 if (j, a) == winner else alpha / (2 * max(1, len(places) - 1))
        clients = layout.groups[j].clients
        claims = claims_about(layout, summaries, j, a)
        found.append(_estimate(j, a, claims, len(clients), level, liars, pooled))
    return found


def _estimate(
    group: int, arm: int, claims: list[Claim], clients: int, level: float, liars: int, pooled: bool
) -> ArmEstimate:
    pulls = sum(claim.pulls for claim in claims)
    if not pulls:
        return ArmEstimate(group, arm, None, None, 0)
    plain = sum(claim.total for claim in claims) / pulls
    if liars:
        return _trimmed(group, arm, claims, clients, level, liars, plain)
    if len(claims) < clients:  # a summary is missing, or a client never pulled it
        return ArmEstimate(group, arm, None, None, pulls, None, tuple(claims))
    if clients == 1 or (pooled and len({claim.pulls for claim in claims}) == 1):
        sums = _sums(claims).sum(axis=0)
        low, high = _ends(sums[None, :], level)
        return ArmEstimate(group, arm, plain, (float(low[0]), float(high[0])), pulls, plain, tuple(claims))
    low, high = _ends(_sums(claims), level / clients)
    mean = sum(claim.mean for claim in claims) / clients
    return ArmEstimate(group, arm, mean, (float(low.mean()), float(high.mean())), pulls, plain, tuple(claims))


def _trimmed(
    group: int, arm: int, claims: list[Claim], clients: int, level: float, liars: int, plain: float
) -> ArmEstimate:
    """The estimate where some of the claims may be lies: without the `liars` largest and smallest means."""
    low, high = _ends(_sums(claims), level / clients)
    lower = _order(np.append(low, np.zeros(clients - len(claims))), clients - 1 - liars, 0.0)
    upper = _order(np.append(high, np.ones(clients - len(claims))), liars, 1.0)
    order = sorted(range(len(claims)), key=lambda k: claims[k].mean)
    middle = set(order[liars : len(order) - liars])
    shown = tuple(msgspec.structs.replace(claim, kept=k in middle) for k, claim in enumerate(claims))
    if not middle:
        return ArmEstimate(group, arm, None, None, sum(c.pulls for c in claims), plain, shown)
    kept = [claim.mean for claim in shown if claim.kept]
    mean = sum(kept) / len(kept)
    interval = (lower, upper) if lower <= upper else None  # they contradict each other
    return ArmEstimate(group, arm, mean, interval, sum(c.pulls for c in claims), plain, shown)


def _order(values: Floats, place: int, default: float) -> float:
    return float(np.sort(values)[place]) if 0 <= place < len(values) else default


def _sums(claims: Sequence[Claim]) -> Floats:
    return np.array([(c.pulls, c.total, c.squares) for c in claims], dtype=np.float64)


def _ends(sums: Floats, level: float) -> tuple[Floats, Floats]:
    """The intervals of samples with these counts, sums and squares."""
    n, s, q = sums.T
    return betting.intervals(n, s, np.minimum(q, s), np.zeros(len(n)), np.ones(len(n)), level)


def weighted(rows: Sequence[tuple[float, ArmEstimate]]) -> tuple[float, tuple[float, float]] | None:
    """The value of an option over several cells, and its interval; None if a cell is unknown."""
    if any(cell.mean is None or cell.interval is None for _, cell in rows):
        return None
    value = sum(w * (cell.mean or 0.0) for w, cell in rows)
    ends = [sum(w * cell.interval[k] for w, cell in rows if cell.interval) for k in (0, 1)]
    return value, (ends[0], ends[1])
