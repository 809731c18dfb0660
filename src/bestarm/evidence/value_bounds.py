"""Intervals for weighted means over several sites, from the blocks of a look at any time.

For every value x, bets on "the weighted mean is above x" are made block by block with centres from earlier
blocks, as in the races; x is below the mean if they ever win 1/α (``stats.contrasts.lower_bound``). So they
hold at any time, without a share of α for each look.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm.evidence.contests import Floats
from bestarm.evidence.once import raised
from bestarm.stats.contrasts import Played, Sides, Stacked, estimate, lower_bound
from bestarm.stats.sums import Sums


def value_bounds(
    blocks: Sequence[Sums], shape: tuple[int, int], weights: Floats, alpha: float, grid: float = 0.0
) -> tuple[Floats, Floats]:
    """The lower and the upper ends of the weighted mean of each option; both miss with probability at most α.

    Parameters
    ----------
    blocks : sequence of Sums
        The closed blocks by option and site, in order; an option that took no part has no rewards.
    shape : tuple of two int
        The number of options and of sites.
    weights : ndarray
        The weight of each site; they sum to 1.
    alpha : float
        The probability of a miss, on either side.
    grid : float
        Rewards lie between their value and their value + grid.

    Returns
    -------
    tuple of two ndarray
    """
    if not blocks:
        return np.zeros(shape[0]), np.ones(shape[0])
    whole = Sums(*(np.stack([block.parts[k] for block in blocks]) for k in range(5)))
    took = np.asarray((whole.count > 0).all(axis=-1))
    pulls, zero = np.where(took[..., None], whole.count, 1.0), np.zeros(whole.count.shape)
    count, total = (np.cumsum(part, axis=0) - part for part in (whole.count, whole.total))
    means, half, none = estimate(count, total), zero + 0.5, Sums.none(zero.shape)
    own = np.broadcast_to(weights, zero.shape)
    up = Played(Sides(means, half), Sides(pulls, zero), whole, none)
    down = Played(Sides(half, means), Sides(zero, pulls), none, raised(whole, grid))
    low = lower_bound([Stacked(up, took)], Sides(own, zero), alpha / 2, (0.0, 1.0))
    high = -lower_bound([Stacked(down, took)], Sides(zero, own), alpha / 2, (-1.0, 0.0))
    return low, high
