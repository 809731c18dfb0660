"""The assignments of one client of a federation, whose machine says how many rewards of each arm it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bestarm.deploy.experiment.assignments import Assignments, State
from bestarm.deploy.experiment.settings import Settings
from bestarm.protocol.events import Pull


class SiteAssignments(Assignments):
    """One site. `want` plans assignments; the rewards of each arm are read in the order of assignment."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, settings.problem())
        self.arms = len(self.problem.layout.groups[0].arms)
        self.planned = [0] * self.arms
        self.order: list[list[int]] = [[] for _ in range(self.arms)]  # planned assignments of each arm

        self.won: int | None = None  # the arm that subjects get after the verdict

    @property
    def over(self) -> bool:
        return self.won is not None

    def winner(self, site: int) -> int:
        return self.leader(site) if self.won is None else self.won

    def end(self, time: float, arm: int) -> None:
        """Give subjects this arm from now on."""
        self.tick(time)
        self.won, self.decided = arm, self.now

    def want(self, time: float, counts: Sequence[int]) -> None:
        """Plan this many more assignments of each arm, in a random order of fixed proportions."""
        self.tick(time)
        arms = tuple(arm for arm, n in enumerate(counts) if n)
        times = math.gcd(*(counts[arm] for arm in arms))
        shares = tuple(counts[arm] // times for arm in arms)
        self.lanes[0].add(Pull(arms, times, shares if max(shares) > 1 else ()))
        self.planned = [before + n for before, n in zip(self.planned, counts, strict=True)]

    def ready(self, arm: int, start: int, most: int) -> list[float]:
        """The rewards of an arm from number `start` on, as far as all before them are in."""
        found = list[float]()
        for number in self.order[arm][start : start + most]:
            if self.state[number] == State.COUNTED:
                found.append(self.reward[number])
            elif self.state[number] == State.FILLED and self.settings.missing is not None:
                found.append(self.settings.missing)
            else:
                break
        return found

    def _hurry(self, i: int) -> None:
        """Nothing more can be planned until the machine asks."""

    def _count(self, i: int) -> None:
        """Forget batches that are complete; their rewards are read arm by arm."""
        lane = self.lanes[0]
        while lane.batches and lane.batches[0].complete:
            lane.count()

    def _assigned(self, number: int, arm: int) -> None:
        self.order[arm].append(number)
