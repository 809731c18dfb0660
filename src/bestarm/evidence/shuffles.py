"""Random orders of recorded rewards, as sums of blocks: rows are never laid out one by one.

Shuffling the rows of a cell and cutting them into blocks gives each block a multivariate hypergeometric draw
from what the blocks before it have left of the cell's counts. Only the sums of a block are kept.
"""

from __future__ import annotations

import numpy as np

from bestarm.evidence.contests import Contest, Floats, Ints
from bestarm.stats.sums import Sums

BLOCKS = 10
MOST_AT_ONCE = 1 << 21  # sums that are held at once, for one of five arrays
LAID_OUT = 1 << 22  # rows that are shuffled one by one where few of them are equal
ALIKE = 50  # rows per distinct value, above which counts are drawn instead


def block_sizes(rows: Ints) -> Ints:
    """How many rows of each cell are in each block; the first axis is the block.

    Block k of B takes rows ⌊N(k−1)/B⌋ + 1 to ⌊Nk/B⌋ of a cell with N rows, and B is 10 or, if that is less,
    the number of rows of the smallest cell.

    >>> block_sizes(np.array([25, 4])).tolist()
    [[6, 1], [6, 1], [6, 1], [7, 1]]
    """
    blocks = min(BLOCKS, int(rows.min()))
    ends = rows[None] * np.arange(blocks + 1).reshape(-1, *(1,) * rows.ndim) // blocks
    return np.diff(ends, axis=0)


def orders_at_once(contest: Contest, blocks: int) -> int:
    """How many orders are drawn at once; it bounds the memory."""
    return max(1, MOST_AT_ONCE // (blocks * len(contest.values)))


def draw(contest: Contest, sizes: Ints, orders: int, seed: int, part: int) -> Sums:
    """The sums of the blocks of some random orders.

    Parameters
    ----------
    contest : Contest
        The cells.
    sizes : ndarray of int
        See ``block_sizes``.
    orders : int
        The number of orders.
    seed, part : int
        They fix the orders: `part` numbers the groups of orders that are drawn at once.

    Returns
    -------
    Sums
        Its axes are the order, the block, the option and the site. The smallest and the largest reward are
        those of the whole cell, so that they bound those of a block.
    """
    blocks = len(sizes)
    per_cell = sizes.reshape(blocks, -1)
    total, squares = (np.empty((orders, blocks, len(contest.values))) for _ in range(2))
    simple = [j for j, values in enumerate(contest.values) if len(values) <= 2]
    if simple:
        rng = _stream(seed, part, len(contest.values))
        total[..., simple], squares[..., simple] = _two_values(contest, simple, per_cell, orders, rng)
    for j, (values, counts) in enumerate(zip(contest.values, contest.counts, strict=True)):
        if len(values) > 2:
            rows = int(counts.sum())
            few = rows <= min(LAID_OUT, ALIKE * len(values))
            way = _laid_out if few else _counted
            total[..., j], squares[..., j] = way(
                values, counts, per_cell[:, j], orders, _stream(seed, part, j)
            )
    shape = (orders, *sizes.shape)
    cells = contest.sums
    ends = (np.broadcast_to(end, shape) for end in (cells.least, cells.most))
    count = np.broadcast_to(sizes.astype(np.float64), shape)
    return Sums(count, total.reshape(shape), squares.reshape(shape), *ends)


def _stream(seed: int, *place: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=place)))


def _two_values(
    contest: Contest, cells: list[int], sizes: Ints, orders: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Cells with at most two distinct values, such as coins: all of them at once, block by block."""
    low = np.array([contest.values[j][0] for j in cells])
    high = np.array([contest.values[j][-1] for j in cells])
    many = np.array([contest.counts[j][-1] for j in cells])
    few = np.array([contest.counts[j].sum() for j in cells]) - many
    many, few = (np.tile(left, (orders, 1)) for left in (many, few))
    total, squares = (np.empty((orders, len(sizes), len(cells))) for _ in range(2))
    for k, size in enumerate(sizes[:, cells]):
        drawn = rng.hypergeometric(many, few, np.broadcast_to(size, many.shape))
        many, few = many - drawn, few - (size - drawn)
        total[:, k] = drawn * high + (size - drawn) * low
        squares[:, k] = drawn * high**2 + (size - drawn) * low**2
    return total, squares


def _laid_out(
    values: Floats, counts: Ints, sizes: Ints, orders: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A cell with many distinct values: its rows are shuffled one by one, a few orders at a time."""
    rows = np.repeat(values, counts)
    starts = np.cumsum(sizes) - sizes
    total, squares = (np.empty((orders, len(sizes))) for _ in range(2))
    step = max(1, LAID_OUT // len(rows))
    for first in range(0, orders, step):
        some = slice(first, min(first + step, orders))
        mixed = rng.permuted(np.tile(rows, (some.stop - first, 1)), axis=1)
        total[some] = np.add.reduceat(mixed, starts, axis=1)
        squares[some] = np.add.reduceat(mixed**2, starts, axis=1)
    return total, squares


def _counted(
    values: Floats, counts: Ints, sizes: Ints, orders: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A cell with many rows per value: how often each value is in a block is drawn."""
    total, squares = (np.empty((orders, len(sizes))) for _ in range(2))
    both = np.array([values, values**2])
    for order in range(orders):
        left = counts.copy()
        for k, size in enumerate(sizes.tolist()):
            drawn = left
            if k < len(sizes) - 1:
                drawn = rng.multivariate_hypergeometric(left, size, method="marginals")
            total[order, k], squares[order, k] = both @ drawn
            left = left - drawn
    return total, squares
