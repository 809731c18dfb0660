"""Random orders of recorded rewards, as sums of blocks: rows are never laid out one by one.

Shuffling the rows of a cell and cutting them into blocks gives each block a multivariate hypergeometric draw
from what the blocks before it have left of the cell's counts. Only the sums of a block are kept.

Cells with very many rows and values are shuffled once and cut into 100 pieces, and each order puts the pieces
in a random order. Every single order is then still a random order of the rows, which is all that an e-value
needs; only the orders are not independent of each other, and blocks may be a few rows longer or shorter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bestarm.evidence.contests import Contest, Floats, Ints
from bestarm.stats.sums import Sums

BLOCKS = 10
MOST_AT_ONCE = 1 << 21  # sums that are held at once, for one of five arrays
LAID_OUT = 1 << 22  # rows that are shuffled one by one where few of them are equal
LAID_OUT_ONCE = 1 << 24  # rows of a cell that are shuffled once, if that is less work than counting pieces
ALIKE = 50  # rows per distinct value, above which counts are drawn instead
PIECES = 100
MOST_WORK = 200_000  # rows or draws per order, all cells together, above which pieces are used
LEAST_FOR_PIECES = 10_000  # rows of a cell


def block_sizes(rows: Ints, most: int = BLOCKS) -> Ints:
    """How many rows of each cell are in each block; the first axis is the block.

    Block k of B takes rows ⌊N(k−1)/B⌋ + 1 to ⌊Nk/B⌋ of a cell with N rows, and B is `most` or, if that is
    less, the number of rows of the smallest cell.

    >>> block_sizes(np.array([25, 4])).tolist()
    [[6, 1], [6, 1], [6, 1], [7, 1]]
    """
    blocks = min(most, int(rows.min()))
    ends = rows[None] * np.arange(blocks + 1).reshape(-1, *(1,) * rows.ndim) // blocks
    return np.diff(ends, axis=0)


def orders_at_once(contest: Contest, blocks: int) -> int:
    """How many orders are drawn at once; it bounds the memory."""
    return max(1, MOST_AT_ONCE // (blocks * len(contest.values)))


def draw(
    contest: Contest,
    sizes: Ints,
    orders: int,
    seed: int,
    part: int,
    told: Callable[[float], None] | None = None,
) -> Sums:
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
    told : callable, optional
        Called with the share of the cells that are done.

    Returns
    -------
    Sums
        Its axes are the order, the block, the option and the site. The smallest and the largest reward are
        those of the whole cell, so that they bound those of a block.
    """
    blocks = len(sizes)
    per_cell = sizes.reshape(blocks, -1)
    count, total, squares = (np.empty((orders, blocks, len(contest.values))) for _ in range(3))
    count[:] = per_cell
    simple = [j for j, values in enumerate(contest.values) if len(values) <= 2]
    if simple:
        rng = _stream(seed, part, len(contest.values))
        total[..., simple], squares[..., simple] = _two_values(contest, simple, per_cell, orders, rng)
    for j, (values, counts) in enumerate(zip(contest.values, contest.counts, strict=True)):
        if len(values) > 2:
            rows, rng = int(counts.sum()), _stream(seed, part, j)
            few = rows <= min(LAID_OUT, ALIKE * len(values))
            way, work = (_laid_out, rows) if few else (_counted, 2 * blocks * len(values))
            if work * len(contest.values) > MOST_WORK and rows >= LEAST_FOR_PIECES:
                cut = block_sizes(np.array([rows]), PIECES)[:, 0]
                way = _laid_out if rows <= min(LAID_OUT_ONCE, PIECES * len(values)) else _counted
                pieces = np.array([cut, *(found[0] for found in way(values, counts, cut, 1, rng))])
                count[..., j], total[..., j], squares[..., j] = _put_together(pieces, blocks, orders, rng)
            else:
                total[..., j], squares[..., j] = way(values, counts, per_cell[:, j], orders, rng)
            if told is not None:
                told((j + 1) / len(contest.values))
    shape = (orders, *sizes.shape)
    cells = contest.sums
    ends = (np.broadcast_to(end, shape) for end in (cells.least, cells.most))
    return Sums(*(part.reshape(shape) for part in (count, total, squares)), *ends)


def _put_together(pieces: Floats, blocks: int, orders: int, rng: np.random.Generator) -> Floats:
    """Counts and sums of blocks, by order: each order cuts a random order of the pieces into blocks."""
    number = pieces.shape[1]
    order = rng.permuted(np.tile(np.arange(number), (orders, 1)), axis=1)
    starts = number * np.arange(blocks) // blocks
    return np.asarray(np.add.reduceat(pieces[:, order], starts, axis=2))


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
