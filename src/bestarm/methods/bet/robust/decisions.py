"""The decisions of Fed-Bet among liars, as array functions: medians, trimmed wealth, its price, who leaves.

A choice of clients in each block would be a union over all sequences of choices. So every client has its own
logarithm of wealth for each stake, added up over all blocks, and the server adds up the middle G − 2f of
these. Clients and stakes lie on the last two axes, except for the medians, where clients are last.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.stats import betting
from bestarm.stats.sums import Sums

CENTRE_BITS = 12  # of the centre of a bet, as the server publishes it


def median_of(total: Floats, count: Floats, known: Mask) -> Floats:
    """The median over clients of total/count, which f of 2f + 1 clients cannot move beyond the others.

    `known`: the clients that count. An arm without any gets ½.

    >>> known = np.array([[True, True, True, False]])
    >>> median_of(np.array([[2.0, 3.0, 9.0, 9.0]]), np.full((1, 4), 10.0), known)
    array([0.3])
    """
    share = np.sort(np.where(known, total / np.maximum(count, 1.0), np.inf), axis=-1)
    number = known.sum(axis=-1, keepdims=True)
    low, high = (
        np.take_along_axis(share, np.maximum(at, 0) // 2, axis=-1)[..., 0] for at in (number - 1, number)
    )
    with np.errstate(invalid="ignore"):
        return np.where(number[..., 0] > 0, low + (high - low) / 2, 0.5)


def centre_level(champion: ArrayLike, rival: ArrayLike, ratio: ArrayLike) -> Ints:
    """The centre of a bet, rounded to a level that a message can state."""
    return np.rint(np.ldexp(betting.centre_of(champion, rival, ratio), CENTRE_BITS)).astype(np.int64)


def centre_at(level: ArrayLike) -> Floats:
    """The centre that a level stands for.

    >>> centre_at(centre_level([0.9, 0.0], [0.3, 0.0], 1.0)).round(4).tolist()
    [0.6001, 0.002]
    """
    return np.asarray(np.ldexp(np.asarray(level, dtype=np.float64), -CENTRE_BITS))


def gained(champion: Sums, stakes: Floats, centre: Floats) -> Floats:
    """Each client's part of the logarithm of the wealth: the champion's rewards (Lemma 2)."""
    count, total, squares, least, _ = (part[..., None] for part in champion.parts)
    return betting.least_log_wealth(count, total, squares, least, stakes, centre[..., None])


def lost(rival: Sums, stakes: Floats, centre: Floats) -> Floats:
    """Each client's part of the logarithm of the wealth: the rival's rewards, reflected."""
    count, total, squares, _, most = (part[..., None] for part in rival.parts)
    mirrored = count - total, count - 2 * total + squares, 1.0 - most
    return betting.least_log_wealth(count, *mirrored, stakes, 1.0 - centre[..., None])


def trimmed(logarithms: Floats, faults: int) -> Floats:
    """The sum of the middle G − 2f of the clients' numbers, for each stake.

    >>> trimmed(np.array([[1.0], [-9.0], [5.0], [99.0], [3.0]]), 1).tolist()
    [9.0]
    """
    size = logarithms.shape[-2]
    return np.asarray(np.sort(logarithms, axis=-2)[..., faults : size - faults, :].sum(axis=-2))


def log_price(clients: int, faults: int) -> float:
    """ln C(G − f, f): what a group costs once, for all choices of G − 2f among G − f honest clients.

    >>> round(math.exp(log_price(5, 2)), 9)
    3.0
    """
    return math.log(math.comb(clients - faults, faults))


def log_wealth(sums: Floats) -> Floats:
    """ln Σ_g w_g·exp(sums) with the weights w_g = 1/((g + 1)(g + 2)), which never change.

    >>> round(float(log_wealth(np.zeros((3, 40)))[0]), 3)  # the stakes that are not used yet are missing
    -0.025
    """
    g = np.arange(sums.shape[-1])
    return betting.log_mean_exp(sums, 1.0 / ((g + 1.0) * (g + 2.0)))


def leaves(log_wealth: ArrayLike, inside: Mask, delta: float) -> Mask:
    """The arms whose wealth, less its price, has reached 1/δ. One arm always remains."""
    wealth = np.where(inside, log_wealth, -np.inf)
    gone = inside & bet_decisions.leaves(wealth, delta)
    everyone = (gone == inside).all(axis=-1, keepdims=True)
    least = np.argmin(np.where(inside, wealth, np.inf), axis=-1)[..., None]
    return np.asarray(gone & ~(everyone & (np.arange(wealth.shape[-1]) == least)))


def lower_ends(sums: Sums, faults: int, alpha: float) -> Floats:
    """Lower ends for the mean of each arm, from the rewards of each client, which is the last axis.

    Each end is too large with probability at most alpha/2, at any time and whatever f of the clients say.
    """
    size = sums.count.shape[-1]
    target = math.log(2 / alpha) + log_price(size, faults)
    shares = betting.CAP * np.exp2(-0.5 * np.arange(betting.INTERVAL_STAKES))
    count, total, squares, least, _ = (part[..., None] for part in sums.parts)
    low, high = np.zeros(count.shape[:-2]), np.ones(count.shape[:-2])
    for _ in range(betting.BISECTIONS):
        mean = (low + high) / 2
        at = mean[..., None, None]
        logs = betting.least_log_wealth(count, total, squares, least, shares / at, at)
        won = betting.log_mean_exp(trimmed(logs, faults), 1 / betting.INTERVAL_STAKES) >= target
        low, high = np.where(won, mean, low), np.where(won, high, mean)
    return low


def mean_bounds(sums: Sums, above: Floats, below: Floats, level: float) -> tuple[Floats, Floats]:
    """Hoeffding's bounds on each client's mean at a level for both ends; 0 and 1 without rewards.

    `above` and `below`: how much larger and smaller than its true value each sum may be, by rounding.
    """
    count = np.maximum(sums.count, 1.0)
    radius = np.where(sums.count > 0, np.sqrt(math.log(2 / level) / (2 * count)), np.inf)
    low, high = (sums.total - above) / count - radius, (sums.total + below) / count + radius
    return np.maximum(low, 0.0), np.minimum(high, 1.0)
