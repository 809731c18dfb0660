"""The decisions of Fed-SEL, as pure array functions over leading axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bestarm.protocol.decisions import (
    BUDGET,
    CONTRADICTION,
    GO_ON,
    IDENTIFIED,
    ROUNDS,
    Floats,
    Ints,
    Mask,
    _top,
    leader,
    threshold,
)
from bestarm.stats.radii import MAX_COUNT


def skip(sums: Floats, active: Mask, boundary: ArrayLike) -> Ints:
    """How many epochs may be drawn at once without missing an elimination (at least 1).

    A gap between sums grows by at most 1 per epoch and the boundary t·β(t) never decreases. So if the widest
    gap is D, no arm can be eliminated in fewer than boundary − D epochs.

    >>> int(skip(np.array([30.0, 10.0, 0.0]), np.array([True, True, False]), 100.5))
    80
    """
    gap = _top(sums, active) - np.min(np.where(active, sums, np.inf), axis=-1)
    return np.asarray(np.maximum(np.floor(boundary - gap), 1.0), dtype=np.int64)


def quiet(sums: Floats, active: Mask, boundary: ArrayLike, times: ArrayLike, drawn: Floats) -> Mask:
    """Whether no elimination can occur strictly inside a batch of 0/1 rewards whose sums are `drawn`.

    At any time inside the batch, an arm has at most as many ones and at most as many zeros as in the whole
    batch. So the best sum is at most the largest sum at the end, and the best arm is ahead of arm l by at
    most its lead before the batch plus the number of zeros of l.
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
    """The number of epochs to draw next in Phase I; 0 if it is over or exceeds the budget.

    A single arm is not compared with others and is drawn up to `least`. Phase I ends at `last` because of ε.
    `left` is the remaining budget.
    """
    epoch, many = np.asarray(epoch), active.sum(axis=-1)
    epochs = np.where(many == 1, np.asarray(least) - epoch, epochs)
    if left is not None:
        epochs = np.minimum(epochs, np.asarray(left) // many)
    return np.asarray(np.maximum(np.minimum(epochs, np.asarray(last) - epoch), 0), dtype=np.int64)


def finished(active: Mask, epoch: ArrayLike, *, least: ArrayLike, over: ArrayLike) -> Mask:
    """Whether Phase I is over: one arm is left after at least `least` epochs, or ε ended it at `over`."""
    epoch, alone = np.asarray(epoch), active.sum(axis=-1) == 1
    return np.asarray((alone & (epoch >= np.asarray(least))) | (epoch >= np.asarray(over)))


def eliminate(sums: Floats, active: Mask, boundary: ArrayLike) -> Mask:
    """Line 5 of Algorithm 1, times t: the arms that stay, less than t·β(t) behind the largest sum.

    >>> eliminate(np.array([30.0, 10.0, 9.0]), np.array([True, True, True]), 20.5).tolist()
    [True, True, False]
    """
    return np.asarray(active & (_top(sums, active)[..., None] - sums < np.asarray(boundary)[..., None]))


def interval(mean: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats]:
    """Line 3 of Algorithm 2: mean ∓ 2α. One α covers chance; half of one covers the quantiser."""
    mean, alpha = np.asarray(mean, dtype=np.float64), np.asarray(alpha, dtype=np.float64)
    return np.asarray(mean - 2.0 * alpha), np.asarray(mean + 2.0 * alpha)


def precision(alpha: ArrayLike) -> Ints:
    """The number of bits B of the quantiser: the least B ≥ 1 with 2^−B ≤ α, i.e. max(1, ⌈log₂ 1/α⌉).

    >>> precision([2.0, 0.5, 0.3, 0.25]).tolist()
    [1, 1, 2, 2]
    """
    return np.asarray(np.maximum(1 - np.frexp(np.asarray(alpha, dtype=np.float64))[1], 1), dtype=np.int64)


def bin_index(mean: ArrayLike, bits: ArrayLike) -> Ints:
    """The bin that contains the mean, with [0, 1] cut into 2^B bins; 1.0 belongs to the last bin."""
    mean, bits = np.asarray(mean, dtype=np.float64), np.asarray(bits, dtype=np.int64)
    index = np.floor(np.ldexp(mean, bits))
    return np.asarray(np.minimum(index, np.ldexp(1.0, bits) - 1.0), dtype=np.int64)


def contenders(lower: Floats, upper: Floats, active: Mask) -> Mask:
    """Line 5 of Algorithm 2: the groups that stay, whose upper bound exceeds the largest lower bound."""
    return np.asarray(active & (threshold(lower, active)[..., None] < upper))


def shortfall(lower: Floats, upper: Floats, active: Mask) -> Floats:
    """How far the leader's mean can be below the best active mean; −∞ if the leader is alone."""
    others = active & (np.arange(lower.shape[-1]) != leader(lower, active)[..., None])
    return np.asarray(np.max(np.where(others, upper, -np.inf), axis=-1) - threshold(lower, active))


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
    """Close a round: the groups that stay, the outcome (a code), and the group to name if IDENTIFIED.

    `resolved`: the group has found its arm; `spent`: it makes no more pulls. An empty interval, or no group
    left, is a contradiction: neither can happen on the good event.

    A group that stays may be named if it is resolved and the upper bound of no other remaining group is more
    than ε/2 above its lower bound; without ε it must be alone. If several may be named, the one with the
    largest lower bound is chosen.
    """
    stay = contenders(lower, upper, active)
    many = stay.sum(axis=-1)
    nameable = stay & resolved & (_rivals(upper, stay) <= lower + epsilon / 2.0)
    hopeless = _hopeless(lower, upper, stay, resolved, spent, epsilon)
    stuck = (many == 1) | ~(stay & ~spent).any(axis=-1) | hopeless
    torn = (active & (lower > upper)).any(axis=-1) | (many == 0)
    codes = [CONTRADICTION, IDENTIFIED, BUDGET, ROUNDS]
    ends = [torn, nameable.any(axis=-1), stuck, np.full(torn.shape, last_round)]
    outcome = np.select(ends, codes, GO_ON)
    return stay, np.asarray(outcome, dtype=np.int64), leader(lower, nameable)


def _rivals(upper: Floats, active: Mask) -> Floats:
    """For each group, the largest upper bound among the other active groups; −∞ if there are none."""
    first = np.arange(upper.shape[-1]) == leader(upper, active)[..., None]
    second = _top(upper, active & ~first)[..., None]
    return np.where(first, second, _top(upper, active)[..., None])


def _hopeless(
    lower: Floats, upper: Floats, active: Mask, resolved: Mask, spent: Mask, epsilon: float
) -> Mask:
    """Whether no group can ever be named, given that none can be now.

    The proof is under "Running out" in docs/fed-sel-proofs.md.
    An idle group makes no more pulls. If its interval reaches ε/2 above all busy groups, it prevents each of
    them from being named. A resolved idle group can still become the group to name, as long as the busy
    groups may turn out on either side of its lower bound plus ε/2. An unresolved idle group never can.
    """
    idle, busy = active & spent, active & ~spent
    low, high = _top(lower, busy), _top(upper, busy)
    mark = lower + epsilon / 2.0
    open_to_name = idle & resolved & (low[..., None] <= mark) & (mark < high[..., None])
    return np.asarray((_top(upper, idle) - epsilon / 2.0 >= high) & ~open_to_name.any(axis=-1))


def beaten(sums: Floats, active: Mask, count: ArrayLike, alpha: ArrayLike, bound: ArrayLike) -> Mask:
    """Whether the upper bound of every active arm is at most a lower bound of another group."""
    _, upper = interval(_top(sums, active) / np.asarray(count), alpha)
    return np.asarray(upper <= np.asarray(bound))


def raises_bound(lower: ArrayLike, bound: ArrayLike) -> Mask:
    """Whether a lower bound is higher, and so beats more arms, than the one that was sent before."""
    return np.asarray(np.asarray(lower) > np.asarray(bound))


def period(k: int, first: int, growth: float) -> int:
    """The number of pulls before round k ≥ 1: H, or ⌈H·growth^(k−1)⌉; at most 2⁵⁰."""
    if growth == 1.0:
        return min(first, 1 << 50)
    with np.errstate(over="ignore"):
        return int(min(np.ceil(first * np.float64(growth) ** (k - 1)), 2.0**50))


def pulls_left(count: ArrayLike, pulls: ArrayLike, budget: int | None) -> Ints:
    """How often a client may still pull its arm, given the largest count and its budget.

    >>> int(pulls_left(100, 250, 300))
    50
    """
    left = MAX_COUNT - np.asarray(count)
    return np.asarray(left if budget is None else np.minimum(left, budget - np.asarray(pulls)))
