"""The decisions of Fed-Bet, as array functions over leading axes: ranks, bets, wealth, and who leaves.

A machine calls them with shape (arms,), the kernel with (trials, arms). Stakes lie on an additional last
axis. Nothing here knows about messages or blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.stats import betting
from bestarm.stats.sums import Sums

MOST_RATIO = 16  # the most pulls of the champion per pull of a rival


def estimate(count: ArrayLike, total: ArrayLike) -> Floats:
    """p̂ = (S + ½)/(N + 1), which is never 0 or 1. With sums of squares it estimates the second moment."""
    return np.asarray((np.asarray(total) + 0.5) / (np.asarray(count) + 1.0))


def rank_at(mean: ArrayLike, second: ArrayLike, count: ArrayLike) -> Floats:
    """p̂ − √(v/N): the mean less a standard error, by which champions are chosen."""
    p = np.asarray(mean)
    variance = np.maximum(np.asarray(second) - p**2, 0.0)
    return np.asarray(p - np.sqrt(variance / np.maximum(count, 1)))  # an arm that does not exist has no pulls


def rank_of(sums: Sums) -> Floats:
    """The rank of arms with these rewards. For 0/1 rewards the squares equal the sums, so v = p̂(1 − p̂)."""
    return rank_at(estimate(sums.count, sums.total), estimate(sums.count, sums.squares), sums.count)


def top(ranks: Floats, inside: Mask) -> Ints:
    """The arm with the largest rank among those that are in; the first one if several are tied."""
    return np.asarray(np.argmax(np.where(inside, ranks, -np.inf), axis=-1))


def leads(arms: Sums, champion: Sums, epsilon: float) -> Mask:
    """Whether arms are ahead of the champion as of its last report, so that they may replace it.

    Without ε, by their ranks. With ε a new champion costs more, so they must lead by a standard error.
    """
    mean, second = estimate(arms.count, arms.total), estimate(arms.count, arms.squares)
    return leads_at(mean, second, arms.count, champion, epsilon)


def leads_at(mean: ArrayLike, second: ArrayLike, count: ArrayLike, champion: Sums, epsilon: float) -> Mask:
    """``leads`` for arms with these means and second moments after `count` pulls."""
    if epsilon == 0.0:
        return np.asarray(rank_at(mean, second, count) > rank_of(champion))
    best = estimate(champion.count, champion.total)
    variance = np.maximum(np.asarray(second) - np.asarray(mean) ** 2, 0.0) / np.maximum(count, 1)
    own = np.maximum(estimate(champion.count, champion.squares) - best**2, 0.0) / champion.count
    return np.asarray(np.asarray(mean) - best > np.sqrt(variance + own))


def ratio(rivals: ArrayLike) -> Ints:
    """c: the champion's pulls per pull of a rival, the rounded root of the number of rivals, 1 to 16.

    >>> ratio([0, 1, 2, 3, 8, 999]).tolist()
    [1, 1, 1, 2, 3, 16]
    """
    root = np.rint(np.sqrt(np.asarray(rivals, dtype=np.float64)))
    return np.asarray(np.clip(root, 1, MOST_RATIO), dtype=np.int64)


def pooled_ratio(c: ArrayLike, champions: ArrayLike, rivals: ArrayLike) -> Floats:
    """The champion's rewards per reward of a rival, if their groups have these numbers of clients.

    Each of the champion's clients makes c pulls per pull of a rival's client.

    >>> pooled_ratio(2, 3, [3, 4, 1]).tolist()
    [2.0, 1.5, 6.0]
    """
    return np.asarray(np.asarray(c) * np.asarray(champions) / np.asarray(rivals))


@dataclass(frozen=True)
class Bets:
    """The bets of a block, fixed before its pulls: a centre, and a grid of stakes with their weights.

    They bet that the champion is better than the rival by more than −ε.
    """

    ratio: Floats
    centre: Floats
    stakes: Floats
    weights: Floats
    epsilon: float = 0.0


def bets(
    champion: Sums, rival: Sums, c: ArrayLike, pulls: int, epsilon: float = 0.0, slope: float = 1.0
) -> Bets:
    """The bets against rivals, from the rewards of champion and rivals in earlier blocks.

    `slope`: see ``betting.stake_count``.
    """
    c = np.asarray(c, dtype=np.float64)
    high, low = estimate(champion.count, champion.total), estimate(rival.count, rival.total)
    centre = betting.centre_of(high, low, c)
    stakes = betting.stakes_of(centre, c, betting.stake_count(pulls, slope))
    spread = (
        betting.second_moment(champion.count, champion.total, champion.squares, centre),
        betting.second_moment(rival.count, rival.total, rival.squares, centre),
    )
    error = spread[1] / rival.count + spread[0] / champion.count
    weights = betting.weights_of(stakes, c, high - low + epsilon, spread, error)
    return Bets(c, centre, stakes, weights, epsilon)


def log_factor(bets: Bets, champion: Sums, rival: Sums) -> Floats:
    """The logarithm of the factor of a block: its rewards of the champion and of each rival."""
    c, centre = bets.ratio[..., None], bets.centre[..., None]
    b, a = (Sums(*(np.asarray(part)[..., None] for part in sums.parts)) for sums in (champion, rival))
    gained = betting.least_log_wealth(
        b.count, b.total, b.squares, b.least, bets.stakes, centre - bets.epsilon
    )
    lost = betting.least_log_wealth(
        a.count,
        a.count - a.total,
        a.count - 2 * a.total + a.squares,
        1.0 - a.most,
        c * bets.stakes,
        1.0 - centre,
    )
    return betting.log_mean_exp(gained + lost, bets.weights)


def exit_wealth(delta: float, epsilon: float) -> float:
    """The wealth at which an arm leaves: 1/δ, or 2/δ if half of δ pays for the covers of ε."""
    return (1.0 if epsilon == 0.0 else 2.0) / delta


def leaves(log_wealth: ArrayLike, delta: float, epsilon: float = 0.0) -> Mask:
    """Whether the wealth is large enough that the arm leaves."""
    return np.asarray(np.asarray(log_wealth) >= math.log(exit_wealth(delta, epsilon)))


def covered(log_cover: ArrayLike, delta: float, champions: int) -> Mask:
    """Whether an arm is covered by the j-th champion: its cover has reached 2j(j + 1)/δ."""
    return np.asarray(np.asarray(log_cover) >= math.log(2 * champions * (champions + 1) / delta))


def interval_level(alpha: float, epsilon: float = 0.0, champions: int = 1) -> float:
    """The level of the winner's interval, α/2: the other half of α is for the intervals of the other arms.

    With ε it is that of the rewards since the j-th naming.
    """
    return alpha / 2 if epsilon == 0.0 else alpha / (2 * champions * (champions + 1))


def named(ranks: Floats, candidate: Mask) -> Ints:
    """The next champion: the largest rank among the candidates; the first in the layout if tied."""
    return top(ranks, candidate)
