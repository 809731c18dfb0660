"""Alarms of a live experiment: do rewards drift, resemble their neighbours, or stay away from one option?

The tests are those of ``stats.alarms``. Each cell (an option at a site) is looked at when it has 256
rewards that count, then 512, 1,024 and so on, and each look takes exactly its first rewards: how many a cell
gets may depend on results, but what is tested at a look may not. The m-th look (m = 0, 1, …) of a test gets
the share 1/((m + 1)(m + 2)) of its level, and the shares of all looks sum to 1. So the probability of any
false alarm in the whole run is at most ``FALSE_ALARMS``, however long it runs.

*Missing* compares two options of one site: how often the i-th subject of one has no reward by its deadline
and that of the other has. If subjects are lost for reasons that have nothing to do with options and rewards,
each such difference is as likely to be +1 as −1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from bestarm.deploy.experiment.assignments import Assignments, State
from bestarm.stats.alarms import FALSE_ALARMS, Alarm, Check, dependence, drift

FIRST_LOOK = 256  # rewards of a cell
KINDS = ("drift", "dependence")
MISSING = "missing"

TEXT = {
    "drift": "rewards drift: the later half differs from the earlier one",
    "dependence": "neighbouring rewards are alike: they are not independent",
    MISSING: "rewards are missing more often for one option than for another. That is fine if a missing "
    "reward means what it counts as (no click is 0); if rewards were lost, the answer may be wrong",
}


class Looked(msgspec.Struct, frozen=True):
    """One look at one test: how many rewards it took, the test, and the level that it is held to."""

    rows: int
    check: Check
    level: float

    @property
    def alarm(self) -> Alarm | None:
        """The alarm, if there is one."""
        if self.check.pvalue > self.level:
            return None
        return Alarm(self.check.kind, self.check.cell, self.check.pvalue, self.level)


def words(alarm: Alarm) -> str:
    """An alarm in a sentence."""
    return f"{alarm.cell}: {TEXT[alarm.kind]} (p = {alarm.pvalue:.2g})"


class Watch:
    """The looks at an experiment, or at one site of a federation, so far. Each is made once.

    Parameters
    ----------
    engine : Assignments
        Whose rewards are looked at.
    share : float
        The share of ``FALSE_ALARMS`` that belongs to these looks: 1/M for one of M sites.
    """

    def __init__(self, engine: Assignments, share: float = 1.0) -> None:
        self.engine = engine
        groups = engine.problem.layout.groups
        self.cells = [(i, a) for i, group in enumerate(groups) for a in range(len(group.arms))]
        self.pairs = [
            (i, a, b) for i, group in enumerate(groups) for a, b in combinations(range(len(group.arms)), 2)
        ]
        tests = len(KINDS) * len(self.cells)
        if engine.settings.deadline is not None:
            tests += len(self.pairs)
        self.level = share * FALSE_ALARMS / tests
        self.looks: dict[tuple[object, ...], Looked] = {}
        self._made: dict[tuple[int, ...], int] = {}  # looks at each cell or pair

    def alarms(self) -> list[Alarm]:
        """Make the looks that are due, and return all alarms so far."""
        for cell in self.cells:
            self._look(cell, self.engine.lanes[cell[0]].counts.get(cell[1], 0))
        if self.engine.settings.deadline is not None:
            for i, a, b in self.pairs:
                counts = self.engine.lanes[i].counts
                self._look((i, a, b), min(counts.get(a, 0), counts.get(b, 0)))
        return [alarm for look in self.looks.values() if (alarm := look.alarm) is not None]

    def _look(self, place: tuple[int, ...], rows: int) -> None:
        while rows >= (n := FIRST_LOOK << self._made.get(place, 0)):
            m = self._made.get(place, 0)
            self._made[place] = m + 1
            for check in self._checks(place, n):
                level = self.level / ((m + 1) * (m + 2))
                self.looks[(place, check.kind, m)] = Looked(n, check, level)

    def _checks(self, place: tuple[int, ...], n: int) -> Iterator[Check]:
        i, *arms = place
        group = self.engine.problem.layout.groups[i]
        rows = [self._rows(i, arm, n) for arm in arms]
        if len(arms) == 1:
            name, values = f"{group.name}/{group.arms[arms[0]]}", rows[0][0]
            for kind, differences in zip(KINDS, (drift, dependence), strict=True):
                yield Check.of(kind, name, differences(values))
        else:
            name = f"{group.name}: {group.arms[arms[0]]}, {group.arms[arms[1]]}"
            yield Check.of(MISSING, name, rows[0][1] - rows[1][1])

    def _rows(self, i: int, arm: int, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The first n rewards of a cell in the order of assignment, in [0, 1], and which are missing."""
        engine = self.engine
        site = np.frombuffer(engine.site, dtype=np.uint16)
        own = np.frombuffer(engine.arm, dtype=np.uint16)
        state = np.frombuffer(bytes(engine.state), dtype=np.uint8)
        planned = (state != State.UNPLANNED) & (state != State.AFTER)
        which = np.flatnonzero((site == i) & (own == arm) & planned)[:n]
        missing = state[which] == State.FILLED
        rewards = np.frombuffer(engine.reward)[which].copy()
        rewards[missing] = engine.settings.missing
        del site, own
        scale = engine.problem.scale
        return np.array([scale.inner(x) for x in rewards.tolist()]), missing.astype(np.float64)
