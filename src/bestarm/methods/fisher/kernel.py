"""Many trials of Fed-Fisher at once.

Like the machines, the kernel takes its decisions from ``decisions`` and ``looks``, and message sizes from
``messages``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import looks_of, wire_of
from bestarm.methods.fisher.messages import (
    look_down_bits,
    look_report_bits,
    look_stopped_bits,
    withdrawn_bits,
)
from bestarm.methods.fisher.options import Fisher
from bestarm.problem.problem import Problem, target
from bestarm.protocol import decisions
from bestarm.protocol.kernel import Arms, Columns, Kernel, Script, columns_of, remember
from bestarm.protocol.messages import final_bits
from bestarm.protocol.rounds import one_arm


class _Looks:
    """The looks of Fed-Fisher in many trials; arrays are (trials, groups) or (trials, groups, arms)."""

    def __init__(self, problem: Problem, options: Fisher, trials: int) -> None:
        layout, self.options = problem.layout, options
        self.arms = Arms(problem.coined())
        self.looks, self.wire = looks_of(layout, options), wire_of(layout, options)
        self.groups, self.width = self.arms.valid.shape
        shape = (trials, self.groups)
        self.sums, self.counts = np.zeros((2, *shape, self.width), dtype=np.int64)  # of each arm
        self.race = np.broadcast_to(self.arms.valid, self.sums.shape).copy()  # arms that are still active
        self.active = np.ones(shape, dtype=bool)
        self.halted = np.zeros(shape, dtype=bool)
        self.dropped = np.zeros(shape, dtype=bool)  # by the server
        self.pulls, self.quiet_pulls, self.tops, self.index = np.zeros((4, *shape), dtype=np.int64)
        self.reported = np.zeros(shape, dtype=np.int64)  # pulls when the last look was closed
        self.bits_up, self.bits_down, self.rounds, self.time, self.outcome, self.winner = np.zeros(
            (6, trials), dtype=np.int64
        )
        self.live = np.arange(trials)
        self.look, self.last_bits = 0, 0  # bits of a bin at the last look with a message
        self.final = final_bits(self.wire)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Run all looks of all trials; the first ones are local."""
        while len(self.live):
            busy = self._pull(rng, trace, script)
            top = self._drop_own(busy)
            if self.look >= self.looks.quiet:
                self._report(busy, top)
                stay, lower, leader = self._close()
                self._tell(stay, lower, leader)
            self.look += 1

    @property
    def n(self) -> int:
        """Pulls of each arm at this look."""
        return self.looks.size(self.look)

    def _pull(self, rng: np.random.Generator, trace: int | None, script: Script) -> decisions.Mask:
        """Pull the active arms up to the size of this look; returns the clients whose budget allowed it."""
        live, step = self.live, self.n - self.looks.size(self.look - 1)
        mine = self.race[live] & self.active[live][..., None]
        cost = step * mine.sum(axis=2)
        dear = fisher_decisions.too_dear(self.pulls[live], cost, self.options.budget)
        self.halted[live] |= self.active[live] & dear
        busy = self.active[live] & ~self.halted[live]
        mine &= busy[..., None]
        times = (step * mine).reshape(-1, self.width)
        drawn = self.arms.sums(rng, np.tile(np.arange(self.groups), len(live)), times)
        new = drawn.reshape(mine.shape).astype(np.int64)
        if trace is not None and trace in live:
            at = int(np.flatnonzero(live == trace)[0])
            for j in np.flatnonzero(busy[at]):
                which = np.flatnonzero(mine[at, j])
                remember(script, j, which, step, new[at, j, which])
        self.sums[live] += new
        self.counts[live] += step * mine
        self.pulls[live] += np.where(busy, cost, 0)
        if self.look < self.looks.quiet:
            self.quiet_pulls[live] += np.where(busy, cost, 0)
        return busy

    def _drop_own(self, busy: decisions.Mask) -> decisions.Ints:
        """Drop the arms that lose to their client's own top arm; returns the top arms."""
        live, level = self.live, self.looks.level(self.look)
        mine = self.race[live] & busy[..., None]
        top = decisions.best_arm(self.sums[live].astype(np.float64), self.race[live])
        best = np.take_along_axis(self.sums[live], top[..., None], axis=2)
        lost = mine & fisher_decisions.loses(np.where(mine, self.sums[live], best), best, self.n, level)
        np.put_along_axis(lost, top[..., None], False, axis=2)
        self.race[live] &= ~lost
        return top

    def _report(self, busy: decisions.Mask, top: decisions.Ints) -> None:
        """Send the bin of each client's top arm, or the message that its budget is used up."""
        live, bits = self.live, self.looks.bits(self.look)
        best = np.take_along_axis(self.sums[live], top[..., None], axis=2)[..., 0]
        found = fisher_decisions.look_bin(best, self.n, bits)
        last = None if self.look == self.looks.quiet else self.index[live]
        size = look_report_bits(self.wire, found, bits, top != self.tops[live], last, self.last_bits)
        stopped = (self.active[live] & self.halted[live]) * look_stopped_bits(self.wire)
        self.bits_up[live] += np.where(busy, size, stopped).sum(axis=1)
        self.tops[live], self.index[live], self.last_bits = top, found, bits

    def _close(self) -> tuple[decisions.Mask, decisions.Ints, decisions.Ints]:
        """Close a look at the server; returns the groups that stay, the lower edges and the leader."""
        live, look, options = self.live, self.look, self.options
        stuck = np.asarray((self.active[live] & self.halted[live]).any(axis=1))
        lower, upper = fisher_decisions.bin_edges(self.index[live], self.n, self.looks.bits(look))
        level = self.looks.level(look)
        stay, leader = fisher_decisions.close_look(lower, upper, self.active[live], self.n, level)
        named = fisher_decisions.settled(
            lower,
            upper,
            stay,
            self.race[live].sum(axis=2) == 1,
            leader,
            self.n,
            epsilon=options.epsilon,
            level=self.looks.interval_level(look),
        )
        self.rounds[live] += ~stuck
        self.time[live] += (self.pulls[live] - self.reported[live]).max(axis=1)
        self.reported[live] = self.pulls[live]
        last_round = options.max_rounds is not None and look + 1 - self.looks.quiet >= options.max_rounds
        code = fisher_decisions.outcome(named, last_round=last_round, last_look=self.looks.is_last(look))
        code = np.where(stuck, decisions.BUDGET, code)
        stay = np.where(stuck[:, None], self.active[live], stay)
        self.dropped[live] |= self.active[live] & ~stay
        self.active[live], self.outcome[live], self.winner[live] = stay, code, leader
        won, go = code == decisions.IDENTIFIED, code == decisions.GO_ON
        onward = look_down_bits(self.wire, self.looks.bits(look))
        self.bits_down[live] += np.where(go, onward, self.final[np.where(won, leader, -1)])
        self.live = live[go]
        return stay[go], lower[go], leader[go]

    def _tell(self, stay: decisions.Mask, lower: decisions.Ints, leader: decisions.Ints) -> None:
        """Drop the arms that lose to the leader's lower edge; a client with no arms left withdraws."""
        live, level = self.live, self.looks.level(self.look)
        rival = np.take_along_axis(lower, leader[:, None], axis=1)[..., None]
        mine = self.race[live] & stay[..., None]
        sums = np.where(mine, self.sums[live], rival)
        self.race[live] &= ~(mine & fisher_decisions.loses(sums, rival, self.n, level))
        gone = stay & ~self.race[live].any(axis=2)
        self.bits_up[live] += gone.sum(axis=1) * withdrawn_bits(self.wire)
        self.active[live] = stay & ~gone


def kernel(
    problem: Problem,
    options: Fisher,
    rng: np.random.Generator,
    trials: int,
    trace: int | None = None,
) -> tuple[Columns, Script]:
    """Run `trials` trials of Fed-Fisher, with one client per group."""
    script: Script = {}
    found = _Looks(problem, options, trials)
    found.run(rng, trace, script)
    good = np.full(trials, None, dtype=object)
    if found.arms.known and problem.best is not None:
        home, arm = target(problem)
        good = (found.race[:, home, arm] & ~found.dropped[:, home]).astype(object)
    columns = columns_of(
        problem.layout,
        outcome=found.outcome,
        winner=found.winner,
        picked=found.tops[np.arange(trials), found.winner],
        good=good,
        rounds=found.rounds,
        time=found.time,
        pulls1=found.quiet_pulls,
        pulls2=found.pulls - found.quiet_pulls,
        bits_up=found.bits_up,
        bits_down=found.bits_down,
    )
    return columns, script


def kernel_for(problem: Problem, options: Fisher, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None for recordings, which have an order that only the machines can follow."""
    return None if liars or problem.layout.finite or one_arm(problem.layout) else kernel
