"""The decisions of Fed-Fisher, as pure array functions over leading axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bestarm.protocol.decisions import BUDGET, GO_ON, IDENTIFIED, ROUNDS, Floats, Ints, Mask, leader
from bestarm.stats.fisher_exact import fisher_pvalue, rejects
from bestarm.stats.intervals import clopper_pearson


def loses(
    sums: ArrayLike, rival: ArrayLike, n: ArrayLike, level: ArrayLike, m: ArrayLike | None = None
) -> Mask:
    """Fed-Fisher's test: whether a sum of n coins is significantly lower than the rival's sum of m coins."""
    return rejects(sums, rival, n, level, m)


def look_bin(total: ArrayLike, n: ArrayLike, bits: ArrayLike) -> Ints:
    """The bin of the mean total/n among 2^bits, in integer arithmetic; a mean of 1 is in the last bin."""
    total, n, bits = (np.asarray(x, dtype=np.int64) for x in (total, n, bits))
    return np.asarray(np.minimum((total << bits) // n, (1 << bits) - 1))


def bin_edges(index: ArrayLike, n: ArrayLike, bits: ArrayLike) -> tuple[Ints, Ints]:
    """The smallest and the largest sum of n coins whose mean is in the bin.

    >>> [int(x) for x in bin_edges(look_bin(700, 1000, 5), 1000, 5)]
    [688, 718]
    """
    index, n, bits = (np.asarray(x, dtype=np.int64) for x in (index, n, bits))
    lower = -((-n * index) >> bits)
    upper = np.where(index == (1 << bits) - 1, n, -((-n * (index + 1)) >> bits) - 1)
    return np.asarray(lower), np.asarray(upper)


def close_look(lower: Ints, upper: Ints, active: Mask, n: ArrayLike, level: ArrayLike) -> tuple[Mask, Ints]:
    """The groups that stay, and the leader. A group whose *upper* edge loses to the leader's *lower* goes."""
    first = leader(lower.astype(np.float64), active)
    best = np.take_along_axis(lower, first[..., None], axis=-1)
    lost = active & loses(upper, best, n, level)
    np.put_along_axis(lost, first[..., None], False, axis=-1)
    return np.asarray(active & ~lost), first


def look_shortfall(
    lower: Ints, upper: Ints, active: Mask, single: Mask, first: Ints, n: ArrayLike, level: float
) -> Floats:
    """How far the leader's mean can be below that of the best active arm, by exact bounds at one look.

    An arm below its group's top arm has a smaller sum, so its upper bound is smaller too. The leader's own
    group is included unless the leader is its only arm.
    """
    low, _ = clopper_pearson(lower, n, level)
    _, high = clopper_pearson(upper, n, level)
    rivals = active & ~(single & (np.arange(lower.shape[-1]) == first[..., None]))
    best = np.take_along_axis(low, first[..., None], axis=-1)[..., 0]
    return np.asarray(np.max(np.where(rivals, high, -np.inf), axis=-1) - best)


def settled(
    lower: Ints,
    upper: Ints,
    active: Mask,
    single: Mask,
    first: Ints,
    n: ArrayLike,
    *,
    epsilon: float = 0.0,
    level: float = 0.0,
) -> Mask:
    """Whether the leader can be named: no other arm is left, or none is better by more than ε.

    `level` is the level of the exact bounds; it is only used with ε > 0.
    """
    alone = (active.sum(axis=-1) == 1) & np.take_along_axis(single, first[..., None], axis=-1)[..., 0]
    if epsilon == 0.0:
        return np.asarray(alone)
    return np.asarray(alone | (look_shortfall(lower, upper, active, single, first, n, level) <= epsilon))


def within(short: ArrayLike, epsilon: float) -> Mask:
    """Whether an arm that is at most `short` below the best may be named."""
    return np.asarray(np.asarray(short) <= epsilon)


def outcome(named: ArrayLike, *, last_round: bool, last_look: bool = False) -> Ints:
    """The outcome of a look, as a code: an arm is named, rounds or looks are used up, or continue."""
    named = np.asarray(named)
    ends = [named, np.full(named.shape, last_round), np.full(named.shape, last_look)]
    return np.asarray(np.select(ends, [IDENTIFIED, ROUNDS, BUDGET], GO_ON), dtype=np.int64)


def too_dear(pulls: ArrayLike, cost: ArrayLike, budget: int | None) -> Mask:
    """Whether a look would exceed the budget of a client that has made these pulls."""
    total = np.asarray(pulls) + np.asarray(cost)
    return np.zeros(total.shape, dtype=bool) if budget is None else np.asarray(total > budget)


def pool(sums: Ints, known: Mask, n: ArrayLike, faults: int) -> tuple[Ints, Ints]:
    """Robustly pooled sums of a group: per arm, the total of the middle G − 2f of the clients' sums.

    Missing sums are replaced by the value that makes rejection least likely: 0 in the first result, for an
    arm that is the rival, and n in the second, for an arm that may be dropped. Shapes are (…, clients, arms)
    and (…, clients, 1).
    """
    size = sums.shape[-2]
    keep = (..., slice(faults, size - faults), slice(None))
    low, high = (np.sort(np.where(known, sums, fill), axis=-2)[keep].sum(axis=-2) for fill in (0, n))
    return np.asarray(low), np.asarray(high)


def can_follow(before: Ints, sums: Ints, pulls: int) -> bool:
    """Whether sums of coins can follow `before` after this number of further pulls of each arm."""
    rise = sums - before
    return bool(((rise >= 0) & (rise <= pulls)).all())


def pooled_shortfall(
    low: Ints, high: Ints, active: Mask, n: ArrayLike, level: ArrayLike
) -> tuple[Ints, Floats]:
    """The arm with the best exact lower bound, and how far it can be below the best arm.

    `low` and `high` are each arm's pooled sums of n coins; the last axis is the arm.
    """
    lower, upper = clopper_pearson(low, n, level)[0], clopper_pearson(high, n, level)[1]
    first = leader(lower, active)
    others = active & (np.arange(lower.shape[-1]) != first[..., None])
    best = np.take_along_axis(lower, first[..., None], axis=-1)[..., 0]
    return first, np.asarray(np.max(np.where(others, upper, -np.inf), axis=-1) - best)


def clearest_rival(
    total: int, low: Ints, active: Mask, n: int, coins: Ints, log_level: Floats
) -> tuple[int, float]:
    """The rival that beats an arm with this sum of n coins most clearly, and the log of the p-value.

    Each rival has its own number of coins and its own level.
    """
    log_p = np.where(active, fisher_pvalue(total, low, n, coins, log=True), np.inf) - log_level
    rival = int(np.argmin(log_p))
    return rival, float(log_p[rival] + log_level[rival])


def pooled_losers(low: Ints, high: Ints, active: Mask, group: Ints, n: Ints, level: Floats) -> Mask:
    """The arms whose pooled sum `high` loses to the `low` of the best arm of some group.

    The last axis is the arm; `group` gives the group of each arm. Group j pools n[j] coins of each arm, and
    a test of an arm of j against one of l has level[j, l].
    """
    lost = np.zeros(active.shape, dtype=bool)
    for j in range(len(n)):
        best = np.max(np.where(active & (group == j), low, -1), axis=-1)[..., None]
        lost |= active & loses(high, np.maximum(best, 0), n[group], level[group, j], n[j])
    return lost
