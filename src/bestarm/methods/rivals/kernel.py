"""Many trials of a rival at once. All trials are in the same round, since the schedule is fixed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bestarm.methods.rivals import decisions
from bestarm.methods.rivals.course import MOST, Course
from bestarm.methods.rivals.options import Rival
from bestarm.problem.problem import Problem
from bestarm.protocol.codec import width_of
from bestarm.protocol.decisions import GO_ON, IDENTIFIED, Floats, Ints
from bestarm.protocol.kernel import Arms, Columns, Kernel, Script, columns_of, remember
from bestarm.protocol.rounds import one_arm

REAL = 64  # bits of a sum of rewards that are not 0/1


class _Trials:
    """Some trials; `live` are the numbers of those that go on."""

    def __init__(self, problem: Problem, options: Rival, trials: int) -> None:
        self.course, self.arms, self.options = Course(problem.layout, options), Arms(problem), options
        self.place = np.array(self.course.place)  # (clients, arms): the option
        clients, number = self.course.players, self.course.number
        self.truth = self.course.values([[m or 0.0 for m in row] for row in problem.means])
        self.sums: Floats = np.zeros((trials, clients, number))
        self.inside = np.ones((trials, number), dtype=bool)
        self.each, self.first = np.zeros((2, trials), dtype=np.int64)  # pulls of every client
        self.rounds, self.bits_up, self.bits_down, self.outcome, self.winner = np.zeros(
            (5, trials), dtype=np.int64
        )
        self.good = np.ones(trials, dtype=bool)
        self.live = np.arange(trials)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Play round after round until every trial has ended."""
        r = 0
        while len(self.live):
            (n, margin), live = self.course.round(r), self.live
            step = n - self.course.size(r - 1)
            if step:
                self._pull(rng, step, trace, script)
            left = self.inside[live].sum(axis=1)
            self.each[live] += step * left
            self.first[live] += step * left * (r == 0)
            coins = sum(self.course.binary)
            self.bits_up[live] += left * (coins * width_of(n + 1) + (self.course.players - coins) * REAL)
            values = decisions.averages(self.sums[live], n)
            self.good[live] &= decisions.within(values, self.truth, self.inside[live], margin)
            self.inside[live] = decisions.left(values, self.inside[live], margin)
            self._close(r, left)
            r += 1

    def _pull(self, rng: np.random.Generator, step: int, trace: int | None, script: Script) -> None:
        """Draw the rewards of a round for all players."""
        live, clients = self.live, self.course.players
        times = step * self.inside[live][:, self.place].astype(np.int64)  # (live, clients, arms)
        rows = np.tile(np.arange(clients), len(live))
        drawn = self.arms.sums(rng, rows, times.reshape(-1, self.place.shape[1])).reshape(times.shape)
        if trace is not None and trace in live:
            at = int(np.flatnonzero(live == trace)[0])
            for i in range(clients):
                which = np.flatnonzero(times[at, i])
                remember(script, i, which, step, drawn[at, i, which])
        new = np.zeros(drawn.shape)
        np.put_along_axis(new, np.broadcast_to(self.place, drawn.shape), drawn, axis=-1)
        self.sums[live] += new

    def _close(self, r: int, left: Ints) -> None:
        """End trials, and count the server's message."""
        live, most = self.live, self.options.max_rounds
        self.rounds[live] += 1
        last_round = most is not None and r + 1 >= most
        code = decisions.outcome(
            self.inside[live], last_round=last_round, last_size=self.course.size(r + 1) > MOST
        )
        self.outcome[live], self.winner[live] = code, self.inside[live].argmax(axis=1)
        named = np.where(code == IDENTIFIED, width_of(self.course.number), 0)
        self.bits_down[live] += np.where(code == GO_ON, 1 + left, 2 + named)
        self.live = live[code == GO_ON]


def kernel(
    problem: Problem, options: Rival, rng: np.random.Generator, trials: int, trace: int | None = None
) -> tuple[Columns, Script]:
    """Run `trials` trials."""
    script: Script = {}
    found = _Trials(problem, options, trials)
    found.run(rng, trace, script)
    course = found.course
    everyone = np.ones(course.players, dtype=np.int64)
    unknown: NDArray[np.object_] = np.full(trials, None, dtype=object)
    columns = columns_of(
        problem.layout,
        outcome=found.outcome,
        winner=np.zeros_like(found.winner),
        picked=found.winner,
        good=found.good.astype(object) if found.arms.known else unknown,
        rounds=found.rounds,
        time=found.each,
        pulls1=np.outer(found.first, everyone),
        pulls2=np.outer(found.each - found.first, everyone),
        bits_up=found.bits_up,
        bits_down=found.bits_down,
    )
    if course.over_all:
        names = np.array(course.names, dtype=object)
        columns["arm"] = np.where(found.outcome == IDENTIFIED, names[found.winner], unknown)
    return columns, script


def kernel_for(problem: Problem, options: Rival, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None for budgets, recordings and liars, which only machines can follow."""
    layout = problem.layout
    if layout.finite or one_arm(layout) or options.budget is not None or liars:
        return None
    return kernel
