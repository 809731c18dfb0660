"""The arithmetic of every decision, as pure array functions over leading axes.

A machine calls them with shape (arms,) or (groups,), a study's kernels with (trials, clients, arms). No
statistic is compared anywhere else, so that a study and a deployed client can't disagree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.exact import clopper_pearson, rejects

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def skip(sums: Floats, active: Mask, boundary: ArrayLike) -> Ints:
    """How many epochs may be drawn at once without missing an elimination (at least 1).

    A gap of sums grows by at most 1 an epoch and the boundary t·β(t) never falls, so while the widest gap
    is D nothing can happen in fewer than boundary − D epochs.

    >>> int(skip(np.array([30.0, 10.0, 0.0]), np.array([True, True, False]), 100.5))
    80
    """
    gap = _top(sums, active) - np.min(np.where(active, sums, np.inf), axis=-1)
    return np.asarray(np.maximum(np.floor(boundary - gap), 1.0), dtype=np.int64)


def quiet(sums: Floats, active: Mask, boundary: ArrayLike, times: ArrayLike, drawn: Floats) -> Mask:
    """Whether no elimination can lie strictly inside a batch of 0/1 rewards whose sums are `drawn`.

    Inside the batch an arm has gained at most what it gains in all, and has missed at most what it misses
    in all. So the best sum is at most the largest sum at the end, and the best is ahead of arm l by at most
    what it was before plus the zeros of l.
    """
    before = _top(sums, active)[..., None]
    after = _top(sums + drawn, active)[..., None]
    ahead = np.minimum(after, before + np.asarray(times)[..., None] - drawn) - sums
    return np.asarray(np.max(np.where(active, ahead, -np.inf), axis=-1) < boundary)


def batch(
    epochs: ArrayLike,
    active: Mask,
    epoch: ArrayLike,
    *,
    least: ArrayLike,
    last: ArrayLike,
    left: ArrayLike | None = None,
) -> Ints:
    """Epochs that Phase I draws now, of those that it may; 0 where it is over or can't be paid for.

    A single arm has nothing to be compared with and is drawn up to `least`; ε ends Phase I at `last`;
    `left` is what the budget leaves.
    """
    epoch, many = np.asarray(epoch), active.sum(axis=-1)
    epochs = np.where(many == 1, np.asarray(least) - epoch, epochs)
    if left is not None:
        epochs = np.minimum(epochs, np.asarray(left) // many)
    return np.asarray(np.maximum(np.minimum(epochs, np.asarray(last) - epoch), 0), dtype=np.int64)


def finished(active: Mask, epoch: ArrayLike, *, least: ArrayLike, over: ArrayLike) -> Mask:
    """Whether Phase I has its arm: one is left after a plausible time, or ε ended it at epoch `over`."""
    epoch, alone = np.asarray(epoch), active.sum(axis=-1) == 1
    return np.asarray((alone & (epoch >= np.asarray(least))) | (epoch >= np.asarray(over)))


def eliminate(sums: Floats, active: Mask, boundary: ArrayLike) -> Mask:
    """Line 5 of Algorithm 1, times t: who stays, i.e. is less than t·β(t) behind the largest sum.

    >>> eliminate(np.array([30.0, 10.0, 9.0]), np.array([True, True, True]), 20.5).tolist()
    [True, True, False]
    """
    return np.asarray(active & (_top(sums, active)[..., None] - sums < np.asarray(boundary)[..., None]))


def _top(sums: Floats, active: Mask) -> Floats:
    return np.asarray(np.max(np.where(active, sums, -np.inf), axis=-1))


def best_arm(sums: Floats, active: Mask) -> Ints:
    """The active arm with the largest sum (the first of several)."""
    return np.asarray(np.argmax(np.where(active, sums, -np.inf), axis=-1))


def interval(mean: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats]:
    """Line 3 of Algorithm 2: mean ∓ 2α. One α is for chance; half of one is for the quantiser."""
    mean, alpha = np.asarray(mean, dtype=np.float64), np.asarray(alpha, dtype=np.float64)
    return np.asarray(mean - 2.0 * alpha), np.asarray(mean + 2.0 * alpha)


def precision(alpha: ArrayLike) -> Ints:
    """Bits B of the quantiser: the least B ≥ 1 with 2^−B ≤ α, which is max(1, ⌈log₂ 1/α⌉).

    >>> precision([2.0, 0.5, 0.3, 0.25]).tolist()
    [1, 1, 2, 2]
    """
    return np.asarray(np.maximum(1 - np.frexp(np.asarray(alpha, dtype=np.float64))[1], 1), dtype=np.int64)


def bin_index(mean: ArrayLike, bits: ArrayLike) -> Ints:
    """The bin of [0, 1], cut into 2^B, that holds the mean; 1.0 belongs to the last one."""
    mean, bits = np.asarray(mean, dtype=np.float64), np.asarray(bits, dtype=np.int64)
    index = np.floor(np.ldexp(mean, bits))
    return np.asarray(np.minimum(index, np.ldexp(1.0, bits) - 1.0), dtype=np.int64)


def bin_centre(index: ArrayLike, bits: ArrayLike) -> Floats:
    """What the server takes a bin for."""
    return np.asarray(np.ldexp(np.asarray(index, dtype=np.float64) + 0.5, -np.asarray(bits, dtype=np.int64)))


def threshold(lower: Floats, active: Mask) -> Floats:
    """Line 4 of Algorithm 2: the largest lower bound among the active."""
    return np.asarray(np.max(np.where(active, lower, -np.inf), axis=-1))


def leader(lower: Floats, active: Mask) -> Ints:
    """Who holds the largest lower bound (the first of several)."""
    return np.asarray(np.argmax(np.where(active, lower, -np.inf), axis=-1))


def contenders(lower: Floats, upper: Floats, active: Mask) -> Mask:
    """Line 5 of Algorithm 2: who stays, i.e. has an upper bound above the largest lower bound."""
    return np.asarray(active & (threshold(lower, active)[..., None] < upper))


def shortfall(lower: Floats, upper: Floats, active: Mask) -> Floats:
    """By how much the leader's mean can fall short of the best active one; −∞ if it is alone."""
    others = active & (np.arange(lower.shape[-1]) != leader(lower, active)[..., None])
    return np.asarray(np.max(np.where(others, upper, -np.inf), axis=-1) - threshold(lower, active))


GO_ON, IDENTIFIED, CONTRADICTION, BUDGET, ROUNDS = range(5)


def close_round(
    lower: Floats,
    upper: Floats,
    active: Mask,
    resolved: Mask,
    spent: Mask,
    *,
    epsilon: float = 0.0,
    last_round: bool = False,
) -> tuple[Mask, Ints, Ints]:
    """The end of a round: who stays, what follows (a code above), and the leader.

    `resolved`: the group has found its arm; `spent`: it makes no more pulls. An interval that is empty, or
    nobody left, is a contradiction: it can't be on the good event.
    """
    stay = contenders(lower, upper, active)
    first = leader(lower, active)
    many = stay.sum(axis=-1)
    within = many == 1
    if epsilon > 0:
        within = within | (shortfall(lower, upper, stay) <= epsilon / 2.0)
    found = within & np.take_along_axis(resolved, first[..., None], axis=-1)[..., 0]
    stuck = (many == 1) | ~(stay & ~spent).any(axis=-1) | _hopeless(lower, upper, stay, spent, epsilon)
    torn = (active & (lower > upper)).any(axis=-1) | (many == 0)
    codes = [CONTRADICTION, IDENTIFIED, BUDGET, ROUNDS]
    outcome = np.select([torn, found, stuck, np.full(torn.shape, last_round)], codes, GO_ON)
    return stay, np.asarray(outcome, dtype=np.int64), first


def _hopeless(lower: Floats, upper: Floats, active: Mask, spent: Mask, epsilon: float) -> Mask:
    """Whether a group that makes no more pulls will stay for ever beside one that goes on.

    On the good event an interval always holds its mean. So if a spent group reaches above all that go on,
    none of them can ever beat it; and if one that goes on lies above the spent ones' lower bounds, they
    can't beat that one either. (With ε > 0: not even by ε/2.)
    """
    idle, busy = active & spent, active & ~spent
    reach = np.max(np.where(idle, upper, -np.inf), axis=-1) - epsilon / 2.0
    above = threshold(lower, busy) > threshold(lower, idle) + epsilon / 2.0
    return np.asarray(idle.any(axis=-1) & above & (reach >= np.max(np.where(busy, upper, -np.inf), axis=-1)))


def beaten(sums: Floats, active: Mask, count: ArrayLike, alpha: ArrayLike, bound: ArrayLike) -> Mask:
    """Whether every active arm's upper bound is at most a lower bound that somebody else holds."""
    _, upper = interval(_top(sums, active) / np.asarray(count), alpha)
    return np.asarray(upper <= np.asarray(bound))


def period(k: int, first: int, growth: float) -> int:
    """Pulls before round k ≥ 1: H, or ⌈H·growth^(k−1)⌉; never more than 2⁵⁰."""
    with np.errstate(over="ignore"):
        return int(min(np.ceil(first * np.float64(growth) ** (k - 1)), 2.0**50))


def loses(
    sums: ArrayLike, rival: ArrayLike, n: ArrayLike, level: ArrayLike, m: ArrayLike | None = None
) -> Mask:
    """Fed-Fisher's test: arms whose sum of n coins is too low to be at least as good as the rival's of m."""
    return rejects(sums, rival, n, level, m)


def look_bin(total: ArrayLike, n: ArrayLike, bits: ArrayLike) -> Ints:
    """The bin of the mean total/n among 2^bits, from integers; a mean of 1 belongs to the last one."""
    total, n, bits = (np.asarray(x, dtype=np.int64) for x in (total, n, bits))
    return np.asarray(np.minimum((total << bits) // n, (1 << bits) - 1))


def bin_edges(index: ArrayLike, n: ArrayLike, bits: ArrayLike) -> tuple[Ints, Ints]:
    """The least and the largest sum of n coins whose mean lies in the bin.

    >>> [int(x) for x in bin_edges(look_bin(700, 1000, 5), 1000, 5)]
    [688, 718]
    """
    index, n, bits = (np.asarray(x, dtype=np.int64) for x in (index, n, bits))
    lower = -((-n * index) >> bits)
    upper = np.where(index == (1 << bits) - 1, n, -((-n * (index + 1)) >> bits) - 1)
    return np.asarray(lower), np.asarray(upper)


def close_look(lower: Ints, upper: Ints, active: Mask, n: ArrayLike, level: ArrayLike) -> tuple[Mask, Ints]:
    """Who stays at a look, and the leader: a group goes if its *upper* edge loses to the leader's *lower*."""
    first = leader(lower.astype(np.float64), active)
    best = np.take_along_axis(lower, first[..., None], axis=-1)
    lost = active & loses(upper, best, n, level)
    np.put_along_axis(lost, first[..., None], False, axis=-1)
    return np.asarray(active & ~lost), first


def look_shortfall(
    lower: Ints, upper: Ints, active: Mask, single: Mask, first: Ints, n: ArrayLike, level: float
) -> Floats:
    """By how much the leader's mean can fall short of the best active arm's, by exact bounds of one look.

    An arm below its group's top arm has a smaller sum, so its upper bound is smaller too. The leader's own
    group counts unless the leader is its only arm.
    """
    low, _ = clopper_pearson(lower, n, level)
    _, high = clopper_pearson(upper, n, level)
    rivals = active & ~(single & (np.arange(lower.shape[-1]) == first[..., None]))
    best = np.take_along_axis(low, first[..., None], axis=-1)[..., 0]
    return np.asarray(np.max(np.where(rivals, high, -np.inf), axis=-1) - best)


def tally(votes: Ints, arms: int) -> Ints:
    """Votes for each arm; −1 is no vote. The last axis of `votes` runs over clients.

    >>> tally(np.array([2, 0, 2, -1]), 3).tolist()
    [1, 0, 2]
    """
    return np.asarray((votes[..., None] == np.arange(arms)).sum(axis=-2))


def trim(lower: Floats, upper: Floats, members: Mask, faults: ArrayLike) -> tuple[Floats, Floats]:
    """Robust bounds from the members' intervals, of which `faults` may lie (erratum 14).

    U is the (f+1)-th smallest upper bound, L the (f+1)-th largest lower bound: each lies on the safe side of
    some honest one. The paper trims f values on both sides and takes any of the rest; these are the tightest.
    It takes f+1 members; with fewer nothing is known. The last axis runs over clients.

    >>> trim(np.array([.1, .2, .9]), np.array([.3, .4, .95]), np.ones(3, dtype=bool), 1)
    (array(0.2), array(0.4))
    """
    faults = np.asarray(faults, dtype=np.int64)
    known = (faults >= 0) & (members.sum(axis=-1) > faults)
    at = np.clip(faults, 0, lower.shape[-1] - 1)[..., None]
    high = np.take_along_axis(np.sort(np.where(members, upper, np.inf), axis=-1), at, axis=-1)[..., 0]
    low = -np.take_along_axis(np.sort(np.where(members, -lower, np.inf), axis=-1), at, axis=-1)[..., 0]
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


def trimmed_mean(values: Floats, faults: int) -> float:
    """The paper's Trim of reported means: the middle one of those that are left, each of which will do.

    >>> trimmed_mean(np.array([0.5, 0.0, 0.6]), 1)
    0.5
    """
    left = np.sort(values)[faults : len(values) - faults]
    return float(left[len(left) // 2])


def disagree(lower: Floats, upper: Floats, faults: int) -> bool:
    """Whether no point is in all but `faults` of these intervals; honest ones share the mean.

    >>> disagree(np.array([.1, .2, .9]), np.array([.3, .4, .95]), 0)
    True
    >>> disagree(np.array([.1, .2, .9]), np.array([.3, .4, .95]), 1)
    False
    """
    lower, upper = np.sort(lower), np.sort(upper)
    begun, over = np.arange(1, len(lower) + 1), np.searchsorted(upper, lower, side="left")
    return len(lower) > 0 and bool((begun - over).max() < len(lower) - faults)


def pool(sums: Ints, known: Mask, n: ArrayLike, faults: int) -> tuple[Ints, Ints]:
    """Robustly pooled sums of a group: per arm, the middle G − 2f of the clients' sums of n coins.

    What is missing is filled against rejection: with 0 in the first result, for an arm that is the rival,
    and with n in the second, for an arm that may be dropped. Shapes (…, clients, arms) and (…, clients, 1).
    """
    size = sums.shape[-2]
    keep = (..., slice(faults, size - faults), slice(None))
    low, high = (np.sort(np.where(known, sums, fill), axis=-2)[keep].sum(axis=-2) for fill in (0, n))
    return np.asarray(low), np.asarray(high)


def pooled_losers(low: Ints, high: Ints, active: Mask, group: Ints, n: Ints, level: Floats) -> Mask:
    """Arms whose pooled sum loses to the best of some group: `high` against the rival's `low`.

    The last axis runs over all arms; `group` says whose they are. Group j pools n[j] coins of each arm, and
    a test of an arm of j against one of l has level[j, l].
    """
    lost = np.zeros(active.shape, dtype=bool)
    for j in range(len(n)):
        best = np.max(np.where(active & (group == j), low, -1), axis=-1)[..., None]
        lost |= active & loses(high, np.maximum(best, 0), n[group], level[group, j], n[j])
    return lost
