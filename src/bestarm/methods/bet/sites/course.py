"""What all participants know about the blocks of a question: who pulls what, and how often.

A block is played as the server's message says: the options that are in, the champion and c of each race, and
the step d. Both ends compute the pulls of every cell from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bestarm.methods.bet.blocks import Blocks
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.decisions import Stand, races_of
from bestarm.problem.layout import Layout
from bestarm.problem.question import Cells
from bestarm.protocol.decisions import Floats, Ints
from bestarm.stats.sums import Sums

SLACK = 1e-9  # of a quota, against the rounding of weights that are equal


class Course:
    """The cells of a layout, the clients of each race, and the schedule of blocks."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.layout, self.options, self.question = layout, options, layout.question
        self.cells = Cells.of(layout)
        self.clients, self.number = len(layout.clients), len(self.cells.options)
        self.coins = all(group.binary for group in layout.groups)
        everyone = np.ones(self.clients, dtype=bool)
        races = races_of(self.cells, self.question, options, everyone, 1)
        self.members = [race.clients for race in races]
        self.sites = [race.site for race in races]
        self.offered = [np.flatnonzero(self.cells.offers[race.clients].any(axis=0)) for race in races]
        own = np.bincount(self.cells.site)[self.cells.site]
        weights = self.question.weights or (1.0 / len(layout.groups),) * len(layout.groups)
        self.weights: Floats = np.asarray(weights)[self.cells.site] / own  # of each client
        self.blocks = Blocks(options)
        self.n1 = self._first_pulls() if options.n1 is None else options.n1

    @property
    def own_pace(self) -> bool:
        """Whether every site closes its own blocks: each has its own bets, and need not wait for others."""
        return self.question.kind == "each" and self.options.open_blocks > 1

    def _first_pulls(self) -> int:
        """⌈n1/M⌉ pulls of each cell; n1 where every site gets an answer of its own.

        M is the number of clients; with the question "anywhere", of those that offer an option.
        """
        n1 = self.blocks.n1
        anywhere = self.question.kind == "anywhere"
        among = int(self.cells.offers.sum(axis=0).max()) if anywhere else self.clients
        return n1 if self.question.by_site else -(-n1 // among)

    def first(self) -> Ints:
        """The pulls of each cell before the first bets."""
        return np.where(self.cells.offers, self.n1, 0)

    def steps(self, step: int, scale: Floats | None = None) -> Ints:
        """d_s of each client: its part of the step, by the weights or by `scale`, at least 1.

        `scale` has the clients as its last axis.
        """
        if self.options.allocation == "equal":
            return np.full(self.clients, step)
        share = self.weights if scale is None else scale
        part = share / share.sum(axis=-1, keepdims=True) * self.clients * step
        return np.asarray(np.maximum(1, np.ceil(part - SLACK)), dtype=np.int64)

    def neyman(self, sums: Sums) -> Floats:
        """w·σ of each client, with the average standard deviation of its options."""
        mean = (sums.total + 0.5) / (sums.count + 1.0)
        variance = np.maximum((sums.squares + 0.5) / (sums.count + 1.0) - mean**2, 1e-6)
        offers = self.cells.offers
        spread = np.where(offers, np.sqrt(variance), 0.0).sum(axis=-1) / offers.sum(axis=-1)
        return np.asarray(self.weights * spread)

    def references(self, stands: Sequence[Stand | None]) -> list[int | None]:
        """The arm of each client that its others are compared with, in a paired layout with one trial.

        Without stands, before the first bets, it is the control or the first arm.
        """
        found: list[int | None] = [None] * self.clients
        if not self.layout.paired:
            return found
        control = self.question.control
        for i, place in enumerate(self.cells.place):
            found[i] = 0 if control is None else place.index(self.cells.options.index(control))
        for stand, clients in zip(stands, self.members, strict=False):
            for i in clients.tolist():
                champion = None if stand is None else int(stand.champion[0])
                found[i] = None if champion is None else self.cells.place[i].index(champion)
        return found

    def pulls(self, stands: Sequence[Stand | None], step: int, steps: Ints) -> Ints:
        """The pulls of each cell: (trials, clients, options). A race without a stand is over.

        `steps` are those of the clients in the races about all sites; a site's own race takes `step`. If both
        are run, the larger one counts, so that the pulls of a client are multiples of one number.
        """
        if self.question.also:
            steps = np.maximum(steps, step)
        trials = next(len(stand.champion) for stand in stands if stand is not None)
        found = np.zeros((trials, self.clients, self.number), dtype=np.int64)
        for stand, clients, site in zip(stands, self.members, self.sites, strict=True):
            if stand is None:
                continue
            alone = site is not None and not self.question.also
            own = np.broadcast_to(step if alone else steps, (trials, self.clients))[:, clients]
            champion = np.arange(self.number) == stand.champion[:, None]
            each = stand.inside * np.where(champion, stand.ratio[:, None], 1)
            demand = own[:, :, None] * each[:, None, :] * self.cells.offers[clients]
            found[:, clients] = np.maximum(found[:, clients], demand)
        return found


def fitting(course: Course, step: int, supply: Ints, scale: Floats | None = None) -> int:
    """The largest step of at most `step` that no client's supply is too small for; 0 if there is none."""
    low, high = 0, step
    while low < high:
        middle = (low + high + 1) // 2
        if (course.steps(middle, scale) <= supply).all() and middle <= supply.min():
            low = middle
        else:
            high = middle - 1
    return low


def log_limit(level: float) -> float:
    """The logarithm of the wealth at which an option leaves, or is settled."""
    return math.log(1.0 / level)
