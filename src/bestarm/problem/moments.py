"""The moments of rewards in [0, 1]: the sum, the sum of squares, the smallest and the largest of n draws.

They are the last axis of an array, in this order. Without draws they are 0, 0, 1, 0, which changes nothing
when sums are added up and extremes are compared. Every function here returns moments that fit together
despite rounding: n·least ≤ sum ≤ n·most, and sum²/n ≤ squares ≤ sum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
CHUNK = 1 << 16  # draws made at a time, so that they fit in memory


def of_ones(sums: ArrayLike, times: ArrayLike) -> Floats:
    """The moments of 0/1 rewards, from their sums.

    >>> of_ones([0, 1, 2, 0], [2, 2, 2, 0])
    array([[0., 0., 0., 0.],
           [1., 1., 0., 1.],
           [2., 2., 1., 1.],
           [0., 0., 1., 0.]])
    """
    ones = np.asarray(sums, dtype=np.float64)
    return np.stack([ones, ones, ones == np.asarray(times), ones > 0], axis=-1).astype(np.float64)


def of_counts(counts: ArrayLike, values: ArrayLike) -> Floats:
    """The moments of rewards of which `counts` (last axis) are equal to each of `values`.

    >>> of_counts([2, 0, 1], [0.5, 0.0, 1.0]).tolist()
    [2.0, 1.5, 0.5, 1.0]
    """
    counts, values = np.asarray(counts), np.asarray(values, dtype=np.float64)
    least = np.where(counts > 0, values, 1.0).min(axis=-1)
    most = np.where(counts > 0, values, 0.0).max(axis=-1)
    return _consistent(counts @ values, counts @ values**2, least, most, counts.sum(axis=-1))


def of_values(values: Floats) -> Floats:
    """The moments of these rewards.

    >>> of_values(np.array([0.5, 0.5, 1.0])).tolist()
    [2.0, 1.5, 0.5, 1.0]
    """
    least, most = values.min(initial=1.0), values.max(initial=0.0)
    return _consistent(values.sum(), (values * values).sum(), least, most, len(values))


def of_draws(times: ArrayLike, draw: Callable[[int], Floats]) -> Floats:
    """For each entry of `times` the moments of that many rewards; ``draw(m)`` returns the next m rewards."""
    times = np.asarray(times, dtype=np.int64)
    sums, squares = np.zeros(times.size), np.zeros(times.size)
    least, most = np.ones(times.size), np.zeros(times.size)
    rows = np.flatnonzero(times)
    lengths = times.ravel()[rows]
    ends = np.cumsum(lengths)
    total = int(lengths.sum())
    for first in range(0, total, CHUNK):
        rewards = draw(min(CHUNK, total - first))
        begin, last = np.searchsorted(ends, [first, first + len(rewards) - 1], side="right")
        here = slice(begin, last + 1)
        row, starts = rows[here], np.maximum(ends[here] - lengths[here] - first, 0)
        sums[row] += np.add.reduceat(rewards, starts)
        squares[row] += np.add.reduceat(rewards * rewards, starts)
        least[row] = np.minimum(least[row], np.minimum.reduceat(rewards, starts))
        most[row] = np.maximum(most[row], np.maximum.reduceat(rewards, starts))
    return _consistent(sums, squares, least, most, times.ravel()).reshape(*times.shape, 4)


def _consistent(
    sums: ArrayLike, squares: ArrayLike, least: ArrayLike, most: ArrayLike, times: ArrayLike
) -> Floats:
    """The moments as one array, without what rounding may have added to the sums or taken from them."""
    n, least, most = np.asarray(times, dtype=np.float64), np.asarray(least), np.asarray(most)
    sums = np.clip(sums, n * least, n * most)
    squares = np.clip(squares, sums * (sums / np.maximum(n, 1.0)), sums)
    return np.stack([sums, squares, least, most], axis=-1)
