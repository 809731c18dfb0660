"""Looks at any time: rows by arrival, in blocks whose sizes are fixed in advance.

The rows of each cell queue up in order of arrival. A block takes the next rows of every option that is in:
how many follows from earlier blocks only, and the rest waits for the next block. A block counts once all its
rows are there; it is never closed because somebody looks. So the result depends on the sequence of rows, not
on when or how often it was computed. Bets are those of Fed-Bet over several sites (``stats.contrasts``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm.evidence.contests import Floats, Ints
from bestarm.evidence.once import Claims, Mask
from bestarm.stats.contrasts import Sides, contrast_bets, estimate, log_factor, stake_count
from bestarm.stats.sums import Sums

FIRST = 16  # rows of an option in the first block, all sites together
GROWTH = 1.15


@dataclass(frozen=True)
class Race:
    """Where the bets stand after the last closed block.

    `log_wealth` has one number per claim, `rejected` says which claims are rejected, and `blocks` has the
    sums of each block by option and site.
    """

    log_wealth: Floats
    rejected: tuple[bool, ...]
    blocks: tuple[Sums, ...]


def quotas(weights: Floats, block: int) -> Ints:
    """How many rows of an option a block takes at each site; the first block is 0.

    >>> [quotas(np.ones(1), k).tolist() for k in range(4)]
    [[16], [3], [3], [4]]
    >>> quotas(np.array([0.75, 0.25]), 0).tolist()
    [12, 4]
    """
    sites = len(weights)
    n = max(2, math.ceil(FIRST / sites))
    step = n
    for _ in range(block):
        step = math.ceil(GROWTH * n) - n
        n += step
    return np.maximum(1, np.ceil(sites * weights * step - 1e-9)).astype(np.int64)


def race(queues: Sequence[Sequence[Floats]], weights: Floats, claims: Claims, level: float) -> Race:
    """Bet on the rows of a table, block by block, as far as they go.

    Parameters
    ----------
    queues : sequence
        The rewards of each cell on [0, 1], by option and site, in order of arrival.
    weights : ndarray
        The weight of each site.
    claims : Claims
        The statements that are disputed.
    level : float
        A claim is rejected once the wealth against it has reached 1/level.

    Returns
    -------
    Race
    """
    lanes = Lanes(1, len(queues), weights, claims, level)
    taken = np.zeros((len(queues), len(weights)), dtype=np.int64)
    waiting = np.array([[len(cell) for cell in row] for row in queues])
    while lanes.open[0]:
        take = lanes.due[0]
        if (taken + take > waiting).any():
            break
        lanes.close(_sums(queues, taken, take))
        taken = taken + take
    return lanes.race(0)


def replay(blocks: Sequence[Sums], weights: Floats, claims: Claims, level: float) -> Race | None:
    """The same from the sums of the blocks; None if their sizes are not those of the rule."""
    options = int(max(claims.down.max(), 0 if claims.up is None else claims.up.max())) + 1
    lanes = Lanes(1, options, weights, claims, level)
    for block in blocks:
        if not lanes.open[0] or not np.array_equal(block.count, lanes.due[0]):
            return None
        lanes.close(block.at(None))
    return lanes.race(0)


def _sums(queues: Sequence[Sequence[Floats]], taken: Ints, take: Ints) -> Sums:
    """The sums of the next rows of each cell, with a first axis of length 1."""
    parts = np.zeros((5, 1, *take.shape))
    parts[3] = 1.0
    for a, s in zip(*np.nonzero(take), strict=True):
        x = queues[a][s][taken[a, s] : taken[a, s] + take[a, s]]
        parts[:, 0, a, s] = len(x), x.sum(), x @ x, x.min(), x.max()
    return Sums(*parts)


class Lanes:
    """The wealths of all claims in several tables at once, updated block by block.

    Arrays begin with the axis of tables; the sums of a block go on with options and sites.
    """

    def __init__(self, tables: int, options: int, weights: Floats, claims: Claims, level: float) -> None:
        self.weights, self.claims, self.target = weights, claims, math.log(1 / level)
        self.before = Sums.none((tables, options, len(weights)))
        self.log_wealth = np.zeros((tables, len(claims.down)))
        self.rejected = np.zeros((tables, len(claims.down)), dtype=bool)
        self.blocks: list[Sums] = []

    @property
    def playing(self) -> Mask:
        """The options whose rows the next block takes."""
        claims, active = self.claims, self.claims.active(self.rejected)
        playing = np.zeros(self.before.count.shape[:2], dtype=bool)
        for options in (claims.down, *(() if claims.up is None else (claims.up,))):
            for k, option in enumerate(options.tolist()):
                playing[:, option] |= active[:, k]
        return playing

    @property
    def due(self) -> Ints:
        """How many rows of each cell the next block takes: this follows from earlier blocks only."""
        return np.asarray(quotas(self.weights, len(self.blocks)) * self.playing[..., None])

    @property
    def open(self) -> Mask:
        """Whether another block could change anything."""
        active = self.claims.active(self.rejected).sum(axis=-1)
        return np.asarray(active > (self.claims.up is None))

    def race(self, table: int) -> Race:
        """Where the bets on a table stand."""
        blocks = tuple(block.at(table) for block in self.blocks)
        return Race(self.log_wealth[table], tuple(self.rejected[table].tolist()), blocks)

    def close(self, block: Sums) -> None:
        """Count a block, whose bets are fixed by the blocks before it."""
        claims, bet = self.claims, self.claims.active(self.rejected) & self.open[:, None]
        up = np.broadcast_to(claims.down if claims.up is None else claims.up, bet.shape)
        if claims.up is None:
            champion = self._champion()[:, None]
            up = np.broadcast_to(champion, bet.shape)
            bet &= claims.down != champion  # the champion's wealth rests
            bet &= len(self.blocks) > 0  # the first block only says who is the champion
        if bet.any():
            gained = self._bet(block, up)
            self.log_wealth[bet] += gained[bet]
            self.rejected |= bet & (self.log_wealth >= self.target)
        self.blocks.append(block)
        self.before = self.before.plus(block)

    def _bet(self, block: Sums, up: Ints) -> Floats:
        """The logarithm of the factor of each claim; where there is no bet it means nothing."""
        b, a = (np.arange(len(up))[:, None], up), (slice(None), self.claims.down)
        pulls = Sides(np.maximum(block.count[b], 1.0), np.maximum(block.count[a], 1.0))
        weights = Sides(*(np.broadcast_to(self.weights, side.shape) for side in (pulls.up, pulls.down)))
        stakes = stake_count(int(sum(quotas(self.weights, k).sum() for k in range(len(self.blocks) + 1))))
        bets = contrast_bets(self.before.at(b), self.before.at(a), pulls, weights, stakes, self.claims.margin)
        return log_factor(bets, block.at(b), block.at(a))

    def _champion(self) -> Ints:
        """The option in with the largest weighted mean less one standard error so far; ties: the first."""
        mean = estimate(self.before.count, self.before.total)
        square = estimate(self.before.count, self.before.squares)
        error = np.maximum(square - mean**2, 0.0) / np.maximum(self.before.count, 1.0)
        worth = (self.weights * mean).sum(axis=-1) - np.sqrt((self.weights**2 * error).sum(axis=-1))
        return np.asarray(np.where(self.playing, worth, -np.inf).argmax(axis=-1))
