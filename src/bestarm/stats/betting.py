"""Betting on rewards in [0, 1]: the least wealth that sums allow, the stakes of a block, and an interval.

A gambler with stake λ and centre m multiplies the wealth by 1 + λ(x − m) for each reward x. The logarithm of
the wealth is bounded from below from four numbers only: how many rewards there were, their sum, the sum of
their squares, and the smallest one (Lemma 2 of Fed-Bet). The bound is exact for 0/1 rewards. All functions
work on arrays and treat leading axes alike; grids of stakes lie on the last axis.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

CAP = 0.75  # the largest share of the wealth that a single reward can take away
FLOOR = 0.02  # the share of the wealth that is spread evenly over all stakes
MARGIN = 0.002  # how far the centre of a bet stays away from 0 and 1
LEAST_STAKES = 9
LARGEST_LEAST = 255 / 256  # the bound needs room between the smallest reward and 1
INTERVAL_STAKES = 20
BISECTIONS = 60
MANY_SAMPLES = 500  # whose intervals are computed together


def least_log_wealth(
    count: ArrayLike,
    total: ArrayLike,
    squares: ArrayLike,
    least: ArrayLike,
    stake: ArrayLike,
    centre: ArrayLike,
) -> Floats:
    """A lower bound on Σ ln(1 + stake·(x − centre)) over all samples with these sums.

    Parameters
    ----------
    count : array_like
        The number of rewards.
    total : array_like
        Their sum, or less.
    squares : array_like
        The sum of their squares, or more.
    least : array_like
        Their smallest value, or less; at least 0.
    stake, centre : array_like
        The bet: stake > 0, and stake·(centre − least) < 1.

    Returns
    -------
    ndarray
        The bound: the smallest value over all distributions with these moments if the sums are exact, and
        the value itself if all rewards are 0 or 1.

    Examples
    --------
    Three ones among four rewards:

    >>> round(float(least_log_wealth(4, 3, 3, 0, 0.5, 0.5)), 9), round(math.log(1.25**3 * 0.75), 9)
    (0.381748581, 0.381748581)
    """
    n, stake, centre = (np.asarray(x, dtype=np.float64) for x in (count, stake, centre))
    low = np.minimum(np.asarray(least, dtype=np.float64), LARGEST_LEAST)
    total, squares = np.asarray(total, dtype=np.float64), np.asarray(squares, dtype=np.float64)
    first = total - n * low
    second = squares - 2 * low * total + n * low**2
    width = 1.0 - low
    inside = (second > 0) & (second < width * first)
    # The parabola that agrees with the logarithm at the smallest reward touches it here.
    touch = np.where(inside, second / np.where(inside, first, 1.0), width)
    base = 1.0 + stake * (low - centre)
    ratio = stake * touch / base
    slope = stake / base
    share = _log1p_over(ratio)
    secant = slope * share
    tangent = slope / (1.0 + ratio)
    bend = slope**2 * _bend(ratio, share)
    linear = 2 * secant - tangent
    return np.asarray(n * np.log(base) + linear * first + bend * second)


def _log1p_over(x: Floats) -> Floats:
    """ln(1 + x)/x, and 1 at 0."""
    return np.asarray(np.where(x > 0, np.log1p(x) / np.where(x > 0, x, 1.0), 1.0))


def _bend(x: Floats, share: Floats) -> Floats:
    """(1/(1 + x) − share)/x for share = ln(1 + x)/x, by its series where the difference would cancel."""
    small = x < 1e-3
    series = -1 / 2 + x * (2 / 3 + x * (-3 / 4 + x * (4 / 5 - x * 5 / 6)))
    big = np.where(small, 1.0, x)
    return np.asarray(np.where(small, series, (1.0 / (1.0 + big) - share) / big))


def stake_count(pulls: int, slope: float = 1.0) -> int:
    """How many stakes a bet uses after this many pulls per arm.

    Random answers of slope κ make all gaps κ times as large, and n of them tell about as much as κ²·n
    rewards: the smallest stake is then κ times the one after so many rewards, or less.

    >>> [stake_count(n) for n in (16, 256, 257, 1000)]
    [9, 9, 10, 11]
    >>> [stake_count(n, 0.25) for n in (256, 4096, 4097)]
    [13, 13, 14]
    """
    rewards = max(round(pulls * slope**2, 6), 1.0)
    return max(LEAST_STAKES, math.ceil(math.log2(rewards)) + 1) + smaller_stakes(slope)


def smaller_stakes(slope: float) -> int:
    """How many stakes are added below the others, so that the smallest is κ times as large, or less.

    >>> [smaller_stakes(slope) for slope in (1.0, 0.76, 0.5, 0.245)]
    [0, 1, 2, 5]
    """
    return math.ceil(round(-2 * math.log2(slope), 6))


def centre_of(champion: ArrayLike, rival: ArrayLike, ratio: ArrayLike) -> Floats:
    """The centre of the bets: the weighted mean of the two estimates, away from 0 and 1."""
    c = np.asarray(ratio, dtype=np.float64)
    middle = (c * np.asarray(champion) + np.asarray(rival)) / (c + 1)
    return np.asarray(np.clip(middle, MARGIN, 1 - MARGIN))


def stakes_of(centre: ArrayLike, ratio: ArrayLike, number: int) -> Floats:
    """The grid of the champion's stakes; the rival's are `ratio` times as large."""
    m, c = np.asarray(centre, dtype=np.float64), np.asarray(ratio, dtype=np.float64)
    largest = CAP * np.minimum(1 / m, 1 / (c * (1 - m)))
    return np.asarray(largest[..., None] * np.exp2(-0.5 * np.arange(number)))


def second_moment(count: ArrayLike, total: ArrayLike, squares: ArrayLike, centre: ArrayLike) -> Floats:
    """An estimate of E(x − centre)², with four pulls' worth of a coin's variance added."""
    n, m = np.asarray(count, dtype=np.float64), np.asarray(centre, dtype=np.float64)
    about = np.asarray(squares) - 2 * m * np.asarray(total) + n * m**2
    return np.asarray((about + 4 * m * (1 - m)) / (n + 4))


def weights_of(
    stakes: Floats, ratio: ArrayLike, gap: ArrayLike, spread: tuple[ArrayLike, ArrayLike], error: ArrayLike
) -> Floats:
    """The shares of the wealth that are put on each stake; they sum to 1.

    Parameters
    ----------
    stakes : ndarray
        The champion's stakes, on the last axis.
    ratio : array_like
        The champion's pulls per pull of the rival.
    gap : array_like
        The champion's estimated lead.
    spread : tuple of two array_like
        The second moments of champion and rival about the centre.
    error : array_like
        The variance of the estimated lead.
    """
    champion, rival = (np.asarray(v, dtype=np.float64) for v in spread)
    return weights_around(stakes * (champion + np.asarray(ratio) * rival)[..., None], gap, error)


def weights_around(suits: Floats, gap: ArrayLike, error: ArrayLike) -> Floats:
    """The shares of the wealth on stakes that suit the leads `suits`, if the lead is estimated as `gap`.

    `error` is the variance of that estimate. A share of FLOOR is spread evenly over all stakes.
    """
    fit = -((suits - np.asarray(gap)[..., None]) ** 2) / (2 * np.asarray(error)[..., None])
    shares = np.exp(fit - fit.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.asarray(FLOOR / suits.shape[-1] + (1 - FLOOR) * shares)


def log_mean_exp(logarithms: Floats, weights: ArrayLike) -> Floats:
    """ln Σ weights·exp(logarithms) over the last axis, without overflow."""
    top = logarithms.max(axis=-1, keepdims=True)
    return np.asarray(np.log((weights * np.exp(logarithms - top)).sum(axis=-1)) + top[..., 0])


def interval(
    count: float,
    total: float,
    squares: float,
    least: float,
    most: float,
    alpha: float,
    *,
    rounded: float = 0.0,
) -> tuple[float, float]:
    """An interval that contains the mean of the rewards with probability at least 1 − alpha at any time.

    The rewards may be counted at any stopping time, for example when a run ends.

    Parameters
    ----------
    count, total, squares, least, most
        The number of rewards, their sum, the sum of their squares, the smallest and the largest one.
    alpha : float
        The probability of a miss, half of it for each end.
    rounded : float
        How much larger than `total` the true sum may be. `squares` may be rounded up, `least` down and
        `most` up.

    Returns
    -------
    tuple of two float
        The ends of the interval.

    Examples
    --------
    >>> low, high = interval(100, 50, 50, 0, 1, 0.05)
    >>> round(low, 3), round(high, 3)
    (0.335, 0.665)
    """
    lower, upper = intervals(count, total, squares, least, most, alpha, rounded=rounded)
    return float(lower), float(upper)


def intervals(
    count: ArrayLike,
    total: ArrayLike,
    squares: ArrayLike,
    least: ArrayLike,
    most: ArrayLike,
    alpha: ArrayLike,
    *,
    rounded: ArrayLike = 0.0,
) -> tuple[Floats, Floats]:
    """The ends of ``interval`` for arrays of samples and levels; without rewards they are 0 and 1.

    >>> low, high = intervals([0, 100], [0, 50], [0, 50], [1, 0], [0, 1], 0.05)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.335], [1.0, 0.665])
    """
    n, s, q, low, high = (np.asarray(x, dtype=np.float64) for x in (count, total, squares, least, most))
    if n.ndim == 1 and n.size > MANY_SAMPLES:  # of thousands of arms, many have the same sums
        rows = np.stack([n, s, q, low, high, np.broadcast_to(rounded, n.shape)])
        rows, place = np.unique(rows, axis=1, return_inverse=True)
        ends = np.empty(rows.shape[1]), np.empty(rows.shape[1])
        for first in range(0, rows.shape[1], MANY_SAMPLES):  # in parts, so that arrays stay small
            part = slice(first, first + MANY_SAMPLES)
            n, s, q, low, high, rounding = rows[:, part]
            ends[0][part], ends[1][part] = intervals(n, s, q, low, high, alpha, rounded=rounding)
        return ends[0][place.ravel()], ends[1][place.ravel()]
    lower = _lower_end(n, s, q, low, alpha)
    upper = 1.0 - _lower_end(n, n - s - np.asarray(rounded), n - 2 * s + q, 1.0 - high, alpha)
    return lower, upper


def _lower_end(count: Floats, total: Floats, squares: Floats, least: Floats, alpha: ArrayLike) -> Floats:
    """The smallest mean against which the gambler has not won yet."""
    shares = CAP * np.exp2(-0.5 * np.arange(INTERVAL_STAKES))
    n, s, q, smallest = (x[..., None] for x in (count, total, squares, least))
    target = np.log(2 / np.asarray(alpha))
    low, high = np.zeros(count.shape), np.ones(count.shape)
    for _ in range(BISECTIONS):
        mean = (low + high) / 2
        logs = least_log_wealth(n, s, q, smallest, shares / mean[..., None], mean[..., None])
        won = log_mean_exp(logs, 1 / INTERVAL_STAKES) >= target
        low, high = np.where(won, mean, low), np.where(won, high, mean)
    return low
