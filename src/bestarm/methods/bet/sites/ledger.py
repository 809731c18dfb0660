"""What follows from the closed blocks of a question: the sums of all cells, and the state of every race.

The ledger is a fold over closed blocks. A server folds one run, the kernel many trials. If the operator drops
a site, the server folds the same blocks again for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Before, BestRace, Block, Openers, Race, Stand, races_of
from bestarm.protocol.decisions import Floats, Mask
from bestarm.stats.sums import Sums


class Ledger:
    """The sums and races of some trials, about the clients that take part."""

    def __init__(self, course: Course, present: Mask, trials: int = 1) -> None:
        self.course, self.present = course, present
        self.races: list[Race] = races_of(course.cells, course.question, course.options, present, trials)
        shape = (trials, course.clients, course.number)
        self.sums = Sums.none(shape)
        # In a paired layout: how the options that were compared with each other did.
        self.met = Sums.none((*shape, course.number)) if course.layout.paired else None
        self.rounded: Floats = np.zeros(shape)  # how much larger than its sum the true one may be
        # For each race: pulls of a cell that was never the champion's, at a client of average weight.
        self.n = [0] * len(self.races)

    @property
    def over(self) -> Mask:
        """The trials in which every race is decided."""
        return np.asarray(np.all([race.over for race in self.races], axis=0))

    def stands(self) -> list[Stand]:
        """Who plays the next block, in each race."""
        found = [race.stand(self.sums) for race in self.races]
        for stand, n in zip(found, self.n, strict=True):
            # Nothing is known yet, or the i-th pull of every option is the same subject.
            if n == 0 or self.course.layout.paired:
                stand.ratio = np.ones_like(stand.ratio)
        return found

    def refreshed(self, stands: Sequence[Stand | None]) -> list[Stand | None]:
        """The stands of a block, with the champions that the blocks before it suggest.

        A block that was announced early names the champion of fewer blocks. Who bets on whom may depend on
        all rewards of the blocks before it (docs/questions-proofs.md), unlike the pulls.
        """
        found = list[Stand | None]()
        for race, stand in zip(self.races, stands, strict=False):
            if stand is not None and not self.course.layout.paired:
                newest = race.stand(self.sums).champion
                usable = stand.inside[np.arange(len(newest)), newest]
                stand = replace(stand, champion=np.where(usable, newest, stand.champion))
            found.append(stand)
        return found

    @property
    def openers(self) -> list[Openers]:
        """The bets on the first pulls of each race.

        Two options need no champion: each bets on itself. At many sites these pulls are a good part of all.
        There are none in a paired layout, whose options share their subjects, and where sites may lie.
        """
        found = list[Openers]()
        for race in self.races:
            offered = np.flatnonzero(race.weights[race.clients].sum(axis=0) > 0).tolist()
            several = type(race) is BestRace and len(race.clients) > 1 and not self.course.layout.paired
            found.append(tuple(permutations(offered, 2)) if several and len(offered) == 2 else ())
        return found

    def close(
        self,
        block: Block,
        stands: Sequence[Stand | None],
        step: int,
        races: Sequence[int] | None = None,
        before: Before | None = None,
    ) -> None:
        """Add a block of `step` pulls of some races, by default of all. Without stands: the first pulls.

        Its bets follow from the rewards `before`, by default those of all closed blocks.
        """
        for race, openers in zip(self.races, self.openers, strict=True):
            if openers and not stands and isinstance(race, BestRace):
                race.begin(block, openers)
        for race, stand, n in zip(self.races, stands, self.n, strict=False):
            if stand is not None:
                race.close(before or Before(self.sums, self.met), block, stand, n)
        self.sums = self.sums.plus(block.fresh)
        self.rounded += block.unit
        if self.met is not None and block.pairs is not None:
            block.pairs.add_to(self.met)
        for r in range(len(self.n)) if races is None else races:
            self.n[r] += step
