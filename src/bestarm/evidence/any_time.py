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
from bestarm.evidence.once import Claims
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
    lanes = Lanes(len(queues), weights, claims, level)
    taken = np.zeros((len(queues), len(weights)), dtype=np.int64)
    waiting = np.array([[len(cell) for cell in row] for row in queues])
    while lanes.open:
        take = quotas(weights, len(lanes.blocks)) * lanes.playing[:, None]
        if (taken + take > waiting).any():
            break
        lanes.close(_sums(queues, taken, take))
        taken = taken + take
    return lanes.race


def replay(blocks: Sequence[Sums], weights: Floats, claims: Claims, level: float) -> Race | None:
    """The same from the sums of the blocks; None if their sizes are not those of the rule."""
    options = blocks[0].count.shape[0] if blocks else int(claims.down.max()) + 1
    lanes = Lanes(options, weights, claims, level)
    for block in blocks:
        due = quotas(weights, len(lanes.blocks)) * lanes.playing[:, None]
        if not lanes.open or not np.array_equal(block.count, due):
            return None
        lanes.close(block)
    return lanes.race


def _sums(queues: Sequence[Sequence[Floats]], taken: Ints, take: Ints) -> Sums:
    """The sums of the next rows of each cell."""
    parts = np.zeros((5, *take.shape))
    parts[3] = 1.0
    for a, s in zip(*np.nonzero(take), strict=True):
        x = queues[a][s][taken[a, s] : taken[a, s] + take[a, s]]
        parts[:, a, s] = len(x), x.sum(), x @ x, x.min(), x.max()
    return Sums(*parts)


class Lanes:
    """The wealths of all claims, and which options still count rows; updated block by block."""

    def __init__(self, options: int, weights: Floats, claims: Claims, level: float) -> None:
        self.weights, self.claims, self.target = weights, claims, math.log(1 / level)
        self.before = Sums.none((options, len(weights)))
        self.log_wealth = np.zeros(len(claims.down))
        self.rejected = np.zeros(len(claims.down), dtype=bool)
        self.blocks: list[Sums] = []

    @property
    def playing(self) -> Ints:
        """1 for each option whose rows the next block takes."""
        claims, active = self.claims, self.claims.active(self.rejected)
        playing = np.zeros(self.before.count.shape[0], dtype=np.int64)
        playing[claims.down[active]] = 1
        if claims.up is not None:
            playing[claims.up[active]] = 1
        return playing

    @property
    def open(self) -> bool:
        """Whether another block could change anything."""
        active = int(self.claims.active(self.rejected).sum())
        return active > 0 if self.claims.up is not None else active > 1

    @property
    def race(self) -> Race:
        """Where the bets stand."""
        return Race(self.log_wealth, tuple(self.rejected.tolist()), tuple(self.blocks))

    def close(self, block: Sums) -> None:
        """Count a block, whose bets are fixed by the blocks before it."""
        claims = self.claims
        bet = claims.active(self.rejected)
        up = claims.up
        if up is None:
            champion = self._champion()
            up = np.full(len(claims.down), champion)
            bet &= claims.down != champion  # the champion's wealth rests
            bet &= bool(self.blocks)  # the first block only says who is the champion
        at = np.flatnonzero(bet)
        if len(at):
            self._bet(block, up[at], claims.down[at], at)
        self.blocks.append(block)
        self.before = self.before.plus(block)

    def _bet(self, block: Sums, up: Ints, down: Ints, at: Ints) -> None:
        pulls = Sides(block.count[up], block.count[down])
        weights = Sides(*(np.broadcast_to(self.weights, side.shape) for side in (pulls.up, pulls.down)))
        n = int(self.before.count.sum(axis=-1).max() + block.count.sum(axis=-1).max())
        bets = contrast_bets(
            self.before.at(up),
            self.before.at(down),
            pulls,
            weights,
            stake_count(n),
            self.claims.margin[at],
        )
        self.log_wealth[at] += log_factor(bets, block.at(up), block.at(down))
        self.rejected[at] = self.log_wealth[at] >= self.target

    def _champion(self) -> int:
        """The option in with the largest weighted mean less one standard error so far; ties: the first."""
        mean = estimate(self.before.count, self.before.total)
        square = estimate(self.before.count, self.before.squares)
        error = np.maximum(square - mean**2, 0.0) / np.maximum(self.before.count, 1.0)
        worth = (self.weights * mean).sum(axis=-1) - np.sqrt((self.weights**2 * error).sum(axis=-1))
        return int(np.where(self.playing > 0, worth, -np.inf).argmax())
