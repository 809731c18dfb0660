"""Many trials of pooled Fed-Fisher at once.

Like the machines, the kernel takes its decisions from ``decisions``, ``looks`` and ``Pool``, and message
sizes from ``messages``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import MAX_LOOK, looks_of, wire_of
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.fisher.pooled.messages import pool_down_bits, sums_bits
from bestarm.methods.fisher.pooled.server import Pool
from bestarm.problem.problem import Problem, target
from bestarm.protocol import decisions
from bestarm.protocol.kernel import Arms, Columns, Kernel, Script, columns_of, remember
from bestarm.protocol.messages import final_bits
from bestarm.protocol.rounds import one_arm

ATTACK = "extreme"  # the only supported attack: the best arm never pays, all others always do


class _Looks:
    """The looks of pooled Fed-Fisher in many trials.

    Sums are (trials, clients, arms of a group); the race is (trials, arms of all groups in order).
    """

    def __init__(self, problem: Problem, options: Fisher, trials: int, liars: tuple[int, ...]) -> None:
        layout, self.options, self.liars = problem.layout, options, liars
        self.arms = Arms(problem.coined())
        self.looks, self.wire = looks_of(layout, options), wire_of(layout, options)
        self.pool = Pool(layout, options, self.looks)
        self.clients, self.width = self.arms.valid.shape
        self.group = np.array([layout.group_of[name] for name in layout.clients])
        self.starts = np.cumsum([0, *layout.arm_counts])
        self.members = [np.flatnonzero(self.group == j) for j in range(len(layout.groups))]
        self.owned = [slice(int(a), int(b)) for a, b in itertools.pairwise(self.starts)]
        self.home, self.buried = target(problem)
        self.best = int(self.starts[self.home]) + self.buried  # the best arm, which liars bury
        self.honest = [  # the honest clients in the event of the proof
            [i for i in mine if i not in liars][: len(mine) - options.byzantine] for mine in self.members
        ]
        self.sums = np.zeros((trials, self.clients, self.width), dtype=np.int64)
        self.race = np.ones((trials, self.pool.arms), dtype=bool)
        self.pulls, self.quiet_pulls = np.zeros((2, trials, self.clients), dtype=np.int64)
        self.bits_up, self.bits_down, self.rounds, self.time, self.outcome, self.winner = np.zeros(
            (6, trials), dtype=np.int64
        )
        self.good = np.ones(trials, dtype=bool)
        self.live, self.look = np.arange(trials), self.looks.quiet
        self.final, self.onward = final_bits(self.wire), pool_down_bits(self.wire)

    @property
    def n(self) -> int:
        """Pulls of each arm at this look."""
        return self.looks.size(self.look)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Run all looks of all trials."""
        while len(self.live):
            if self.n > MAX_LOOK:
                self.outcome[self.live] = decisions.BUDGET
                self.bits_down[self.live] += self.final[-1]
                return
            self._pull(rng, trace, script)
            self._note_good_event()
            self._close()
            self.look += 1

    def _pull(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Pull the remaining arms of every client up to the size of this look, and send their sums."""
        live, first = self.live, self.look == self.looks.quiet
        step = self.n - (0 if first else self.looks.size(self.look - 1))
        mine = np.zeros((len(live), self.clients, self.width), dtype=bool)
        for own, members in zip(self.owned, self.members, strict=True):
            mine[:, members, : own.stop - own.start] = self.race[live, None, own]
        rows = np.tile(np.arange(self.clients), len(live))
        drawn = self.arms.sums(rng, rows, (step * mine).reshape(-1, self.width))
        new = drawn.reshape(mine.shape).astype(np.int64)
        if trace is not None and trace in live:
            at = int(np.flatnonzero(live == trace)[0])
            for i in range(self.clients):
                which = np.flatnonzero(mine[at, i])
                if len(which):
                    remember(script, i, which, step, new[at, i, which])
        self.sums[live] += new
        asked = mine.sum(axis=2)
        self.pulls[live] += step * asked
        self.time[live] += step * asked.max(axis=1)
        if first:
            self.quiet_pulls[live] += self.looks.size(self.look - 1) * asked
        size = sums_bits(self.wire, self.look - self.looks.quiet, asked, self.n)
        self.bits_up[live] += np.where(asked > 0, size, 0).sum(axis=1)

    def _said(self) -> decisions.Ints:
        """The sums as clients send them: liars send 0 for the best arm and the maximum for all others."""
        said = self.sums[self.live]
        for i in self.liars:
            said[:, i] = self.n
            if self.group[i] == self.home:
                said[:, i, self.buried] = 0
        return said

    def _note_good_event(self) -> None:
        """Whether any h honest sums of the best arm would lose to any h honest sums of a rival."""
        live, pool = self.live, self.pool
        small, large = np.zeros((2, len(live), pool.arms), dtype=np.int64)
        for own, honest, kept in zip(self.owned, self.honest, pool.kept, strict=True):
            ranked = np.sort(self.sums[live][:, honest, : own.stop - own.start], axis=1)
            small[:, own] = ranked[:, :kept].sum(axis=1)
            large[:, own] = ranked[:, ::-1][:, :kept].sum(axis=1)
        coins, level = pool.coins(self.look), pool.level(self.look)
        rivals = self.race[live].copy()
        rivals[:, self.best] = False
        bad = fisher_decisions.loses(
            small[:, self.best, None],
            large,
            coins[self.home],
            level[self.home, pool.group],
            coins[pool.group],
        )
        self.good[live] &= ~(self.race[live, self.best] & (bad & rivals).any(axis=1))

    def _close(self) -> None:
        """Close a look at the server."""
        live, pool, options, said = self.live, self.pool, self.options, self._said()
        everyone = np.ones(1, dtype=bool)
        low = np.zeros((len(live), pool.arms), dtype=np.int64)
        for own, members in zip(self.owned, self.members, strict=True):
            sums = said[:, members, : own.stop - own.start]
            low[:, own], _ = fisher_decisions.pool(sums, everyone, self.n, options.byzantine)
        coins, level = pool.coins(self.look), pool.level(self.look)
        self.race[live] &= ~fisher_decisions.pooled_losers(
            low, low, self.race[live], pool.group, coins, level
        )
        self.rounds[live] += 1
        last_round = options.max_rounds is not None and self.look + 1 - self.looks.quiet >= options.max_rounds
        code = fisher_decisions.outcome(self.race[live].sum(axis=1) == 1, last_round=last_round)
        first = np.argmax(self.race[live], axis=1)
        self.outcome[live], self.winner[live] = code, first
        won, go = code == decisions.IDENTIFIED, code == decisions.GO_ON
        ended = self.final[np.where(won, pool.group[first], -1)]
        self.bits_down[live] += np.where(go, self.onward, ended)
        self.live = live[go]


def kernel(
    problem: Problem,
    options: Fisher,
    rng: np.random.Generator,
    trials: int,
    trace: int | None = None,
    liars: tuple[int, ...] = (),
) -> tuple[Columns, Script]:
    """Run `trials` trials of pooled Fed-Fisher.

    The `liars` (indices of clients) claim that the best arm never pays and all others always do.
    """
    script: Script = {}
    found = _Looks(problem, options, trials, liars)
    found.run(rng, trace, script)
    sizes = zip(found.honest, found.pool.sizes, strict=True)
    enough = all(len(mine) >= size - options.byzantine for mine, size in sizes)
    known = found.arms.known and problem.best is not None and enough
    group = found.pool.group[found.winner]
    truthful = np.array([i for i in range(found.clients) if i not in liars], dtype=np.int64)
    first = np.minimum(found.quiet_pulls, found.pulls)[:, truthful]
    columns = columns_of(
        problem.layout,
        outcome=found.outcome,
        winner=group,
        picked=found.winner - found.starts[group],
        good=found.good.astype(object) if known else np.full(trials, None, dtype=object),
        rounds=found.rounds,
        time=found.time,
        pulls1=first,
        pulls2=found.pulls[:, truthful] - first,
        bits_up=found.bits_up,
        bits_down=found.bits_down,
    )
    return columns, script


def kernel_for(problem: Problem, options: Fisher, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None if only the machines can simulate these runs.

    This is the case with budgets, ε and recordings, and with liars whose attack is not "extreme".
    """
    layout = problem.layout
    if layout.finite or one_arm(layout) or options.budget is not None or options.epsilon > 0.0:
        return None
    if any(attack != ATTACK for attack in liars.values()):
        return None
    return functools.partial(kernel, liars=tuple(i for i, c in enumerate(layout.clients) if c in liars))
