"""The assignments and rewards of some sites: a fold without I/O or clock, whoever decides what is assigned.

``Assignments`` gives the subjects of a site the options that its lane plans, takes their rewards, and fills
in those whose deadline is over. ``Engine`` lets machines plan the lanes, ``SiteAssignments`` a federation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from bestarm.deploy.experiment.lane import Batch, Lane
from bestarm.deploy.experiment.settings import Settings
from bestarm.problem.problem import Problem

MINUTES = 60  # that a pace is measured in
Outcome = Literal["counted", "again", "late", "unplanned", "after"]


class State(IntEnum):
    """What an assignment is: part of the plan and open, counted, or filled in; or outside the plan."""

    OPEN, COUNTED, FILLED, UNPLANNED, AFTER = range(5)


@dataclass(frozen=True)
class Given:
    """An assignment: its number, and the place of its option among those of the site."""

    number: int
    arm: int


@dataclass
class Tally:
    """The counts of one site."""

    assigned: int = 0
    told: int = 0
    counted: int = 0
    filled: int = 0
    late: int = 0
    unplanned: int = 0
    after: int = 0
    open: int = 0
    recent: int = 0  # assignments, those before the last announcements counted less
    last: float = math.nan  # the time of the last assignment
    minutes: dict[int, int] = field(default_factory=dict)  # assignments in each of the last minutes
    hours: dict[int, int] = field(default_factory=dict)  # assignments in each hour

    def arrive(self, time: float) -> None:
        """Note an assignment."""
        self.assigned += 1
        self.recent += 1
        self.last = time
        minute = int(time // 60)
        if minute not in self.minutes and len(self.minutes) > 2 * MINUTES:
            self.minutes = {k: n for k, n in self.minutes.items() if k > minute - MINUTES}
        self.minutes[minute] = self.minutes.get(minute, 0) + 1
        self.hours[minute // 60] = self.hours.get(minute // 60, 0) + 1

    def pace(self, now: float, began: float) -> float:
        """Assignments per hour, in the last hour."""
        since = max(began, (int(now // 60) - MINUTES + 1) * 60.0)
        made = sum(n for k, n in self.minutes.items() if k > int(now // 60) - MINUTES)
        return 3600.0 * made / max(now - since, 60.0)


class Assignments(ABC):
    """The assignments and rewards so far."""

    def __init__(self, settings: Settings, problem: Problem) -> None:
        self.settings, self.problem = settings, problem
        self.index = {name: i for i, name in enumerate(problem.layout.clients)}
        self.lanes = [Lane(settings.seed, i) for i in range(len(self.index))]
        self.tallies = [Tally() for _ in self.index]
        # One entry per assignment.
        self.site, self.arm, self.state = array("H"), array("H"), bytearray()
        self.time, self.reward = array("d"), array("d")
        self.batch: dict[int, Batch] = {}  # of assignments that are open
        self.expired = 0  # assignments before this one are past their deadline
        self.now, self.began, self.decided = -math.inf, math.nan, math.nan

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether nothing counts any more."""

    def ended(self, site: int) -> bool:
        """Whether nothing counts any more at this site."""
        return self.over

    def dropped_site(self, site: int) -> bool:
        """Whether the operator dropped this site."""
        return False

    @abstractmethod
    def winner(self, site: int) -> int:
        """The option that a site's subjects get when it has ended."""

    @abstractmethod
    def _hurry(self, i: int) -> None:
        """A site has assigned all that is planned: plan more, if that is possible."""

    def _assigned(self, number: int, arm: int) -> None:  # noqa: B027 (an engine needs nothing here)
        """An assignment of the plan was made."""

    @abstractmethod
    def _count(self, i: int) -> None:
        """A batch of a site is complete."""

    def tick(self, time: float) -> None:
        """Let time pass: fill in the rewards whose deadline is over."""
        self.now = max(self.now, time)
        deadline, missing = self.settings.deadline, self.settings.missing
        if deadline is None or missing is None:
            return
        while not self.over and self.expired < len(self.time):
            number = self.expired
            if self.time[number] + deadline > self.now:
                break
            self.expired += 1
            if self.state[number] == State.OPEN and not self.ended(self.site[number]):
                self.state[number] = State.FILLED
                self.tallies[self.site[number]].filled += 1
                self._add(number, missing)

    def due(self, time: float) -> bool:
        """Whether `tick` would fill in a reward."""
        deadline, number = self.settings.deadline, self.expired
        if deadline is None or self.over:
            return False
        while number < len(self.time) and self.time[number] + deadline <= time:
            if self.state[number] == State.OPEN and not self.ended(self.site[number]):
                return True
            number += 1
        return False

    def ask(self, time: float, site: int) -> Given:
        """Assign an option to the next subject of a site."""
        self.tick(time)
        if math.isnan(self.began):
            self.began = self.now
        number, tally, batch = len(self.time), self.tallies[site], None
        tally.arrive(self.now)
        if self.ended(site):
            arm, state = self.winner(site), State.AFTER
            tally.after += 1
        else:
            lane = self.lanes[site]
            if not lane.free:
                self._hurry(site)
            if lane.free:
                (arm, batch), state = lane.assign(), State.OPEN
                tally.open += 1
                self.batch[number] = batch
                self._assigned(number, arm)
            else:
                arm, state = self.leader(site), State.UNPLANNED
                tally.unplanned += 1
        self.site.append(site)
        self.arm.append(arm)
        self.state.append(state)
        self.time.append(self.now)
        self.reward.append(math.nan)
        return Given(number, arm)

    def tell(self, time: float, number: int, reward: float) -> Outcome:
        """Take the reward of an assignment. The first one stands; the same one again changes nothing."""
        self.tick(time)
        if not math.isnan(self.reward[number]):
            return "again"
        tally, state = self.tallies[self.site[number]], self.state[number]
        self.reward[number] = reward
        tally.told += 1
        if state == State.OPEN and not self.ended(self.site[number]):
            self.state[number] = State.COUNTED
            tally.counted += 1
            self._add(number, reward)
            return "counted"
        if state == State.UNPLANNED:
            return "unplanned"
        if state == State.FILLED:
            tally.late += 1
            return "late"
        if state == State.OPEN:
            tally.open -= 1
            self.state[number] = State.AFTER
            self.batch.pop(number)
        return "after"

    def _add(self, number: int, reward: float) -> None:
        """Add a reward to its batch, and tell the machine if the batch is complete."""
        i = self.site[number]
        self.tallies[i].open -= 1
        batch = self.batch.pop(number)
        batch.add(self.arm[number], self.problem.scale.inner(reward))
        batch.filled += self.state[number] == State.FILLED
        if batch.complete:
            self._count(i)

    def leader(self, site: int) -> int:
        """The option with the largest mean at a site."""
        means = self.means(site)
        return max(range(len(means)), key=means.__getitem__)

    def means(self, site: int) -> list[float]:
        """The mean reward of each option at a site, over the rewards that counted, in [0, 1]."""
        return self.lanes[site].means(len(self.problem.layout.groups[site].arms))
