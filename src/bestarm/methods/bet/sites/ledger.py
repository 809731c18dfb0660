"""What follows from the closed blocks of a question: the sums of all cells, and the state of every race.

The ledger is a fold over closed blocks. A server folds one run, the kernel many trials. If the operator drops
a site, the server folds the same blocks again for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Before, Block, Race, Stand, races_of
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
        self.n = 0  # pulls of a cell that was never the champion's, at a client of average weight

    @property
    def over(self) -> Mask:
        """The trials in which every race is decided."""
        return np.asarray(np.all([race.over for race in self.races], axis=0))

    def stands(self) -> list[Stand]:
        """Who plays the next block, in each race."""
        found = [race.stand(self.sums) for race in self.races]
        if self.course.layout.paired:  # the i-th pull of every option is the same subject
            for stand in found:
                stand.ratio = np.ones_like(stand.ratio)
        return found

    def close(self, block: Block, stands: Sequence[Stand | None], step: int) -> None:
        """Add a block of `step` pulls. Without stands, these are the first pulls."""
        for race in self.races if not stands else ():
            race.begin(block)
        for race, stand in zip(self.races, stands, strict=False):
            if stand is not None:
                race.close(Before(self.sums, self.met), block, stand, self.n)
        self.sums = self.sums.plus(block.fresh)
        self.rounded += block.unit
        if self.met is not None and block.pairs is not None:
            block.pairs.add_to(self.met)
        self.n += step
