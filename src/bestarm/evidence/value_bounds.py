"""Intervals for the values of options, and for leads, from blocks of rewards.

For every number x, bets on "the value is above x" (or "b is ahead of a by more than x") are made block by
block, with centres from earlier blocks, as in the races. x is below the truth if they ever win 1/α
(``stats.contrasts.lower_bound``). *At any time* the blocks are those of the look, and the bets have fixed
shares of a grid of stakes, so the bounds hold at all looks together. *Once*, the blocks are those of random
orders of the rows, there is one stake, tuned to the number of rows, and the mean over the orders of the final
wealth decides: an e-value, as for the verdict. No stake depends on x, so the wealth falls as x grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm.evidence.contests import Contest, Floats, Ints
from bestarm.evidence.once import log_mean, raised
from bestarm.evidence.shuffles import block_sizes, draw
from bestarm.stats import betting
from bestarm.stats.contrasts import Played, Sides, Stacked, estimate, largest_won
from bestarm.stats.sums import Sums

MOST_SUMS = 1 << 17  # of blocks in all orders, for the intervals of one look

Ends = tuple[Floats, Floats]


@dataclass(frozen=True)
class Blocks:
    """Blocks of rewards by block, order, option and site; there is one order unless rows were shuffled.

    Parameters
    ----------
    sums : Sums
        An option that took no part in a block has no rewards there.
    weights : ndarray
        The weight of each site; they sum to 1.
    grid : float
        Rewards lie between their value and their value + grid.
    tuned : float or None
        The level to which the one stake of shuffled rows is tuned; None for looks at any time.
    """

    sums: Sums
    weights: Floats
    grid: float = 0.0
    tuned: float | None = None

    @staticmethod
    def at_any_time(blocks: Sequence[Sums], weights: Floats, grid: float = 0.0) -> Blocks | None:
        """The closed blocks of a look at any time, in order; None if there are none."""
        if not blocks:
            return None
        sums = Sums(*(np.stack([block.parts[k] for block in blocks])[:, None] for k in range(5)))
        return Blocks(sums, weights, grid)

    @staticmethod
    def once(contest: Contest, orders: int, seed: int, tuned: float) -> Blocks:
        """Random orders of the rows of a contest: as many as were asked for, or fewer if it has many cells.

        How many follows from the layout of the table, never from rewards.
        """
        sizes = block_sizes(contest.rows)
        number = max(1, min(orders, MOST_SUMS // (len(sizes) * len(contest.values))))
        drawn = draw(contest, sizes, number, seed, 0)
        by_block = Sums(*(np.swapaxes(part, 0, 1) for part in drawn.parts))
        return Blocks(by_block, contest.weights, contest.grid, tuned)

    def values(self, alpha: Floats) -> Ends:
        """The ends of the intervals of all options; each misses with probability at most its alpha."""
        every = np.arange(self.sums.count.shape[2])
        return self._bound(every, None, alpha / 2), -self._bound(None, every, alpha / 2)

    def leads(self, up: Ints, down: Ints, alpha: Floats) -> Ends:
        """The ends of the intervals of the leads of options `up` over options `down`, with these alphas."""
        return self._bound(up, down, alpha / 2), -self._bound(down, up, alpha / 2)

    def _bound(self, up: Ints | None, down: Ints | None, alpha: Floats) -> Floats:
        """Lower bounds on leads; the value of an option that is not there counts as 0."""
        b, a = (_Cells.of(self, options, len(alpha)) for options in (up, down))
        weights = Sides(b.weights, a.weights)
        means, pulls = Sides(b.means, a.means), Sides(b.pulls, a.pulls)
        played = Played(means, pulls, b.sums, raised(a.sums, self.grid), self._stake(b, a))
        blocks = Stacked(played, b.took & a.took)

        def won(lead: Floats) -> NDArray[np.bool_]:
            logs = blocks.log_wealths(weights, lead)  # by order, bound and stake
            return np.asarray(log_mean(betting.log_mean_exp(logs, 1.0 / logs.shape[-1])) >= -np.log(alpha))

        span = (0.0 if down is None else -1.0), (0.0 if up is None else 1.0)
        return largest_won(won, alpha.shape, span)

    def _stake(self, b: _Cells, a: _Cells) -> Floats | None:
        """The one stake of each block, which needs the smallest distance to reach 1/tuned with these rows."""
        if self.tuned is None:
            return None
        in_table, in_block = (
            (b.weights**2 * b.spread / n[0] + a.weights**2 * a.spread / n[1]).sum(axis=-1)
            for n in ((b.pulls.sum(axis=0), a.pulls.sum(axis=0)), (b.pulls, a.pulls))
        )
        return np.asarray(np.sqrt(2 * math.log(1 / self.tuned) * in_table) / in_block)


@dataclass(frozen=True)
class _Cells:
    """The cells of one side of each bound: block, order, bound, site. `took` has no axis of sites."""

    sums: Sums
    weights: Floats
    means: Floats  # estimates before each block
    spread: Floats  # second moments about them
    pulls: Floats
    took: NDArray[np.bool_]

    @staticmethod
    def of(blocks: Blocks, options: Ints | None, number: int) -> _Cells:
        """The cells of these options, or of none."""
        if options is None:
            lead, sites = blocks.sums.count.shape[:2], blocks.sums.count.shape[3]
            none = np.zeros((*lead, number, sites))
            one = np.ones(none.shape)
            return _Cells(Sums.none(none.shape), none, one / 2, none, one, np.ones(none.shape[:-1], bool))
        sums = blocks.sums.at((slice(None), slice(None), options))
        n, s, q = (np.cumsum(part, axis=0) - part for part in sums.parts[:3])
        means = estimate(n, s)
        spread = (np.maximum(q - 2 * means * s + n * means**2, 0.0) + 4 * means * (1 - means)) / (n + 4)
        weights = np.broadcast_to(blocks.weights, n.shape)
        pulls = np.maximum(sums.count, 1.0)
        return _Cells(sums, weights, means, spread, pulls, np.asarray((sums.count > 0).all(axis=-1)))
