"""Many trials of Fed-Bet for groups of several clients at once.

Like the machines, the kernel takes its decisions from ``decisions`` and ``blocks``, and message sizes from
``messages``. All trials play block k at the same time, since the schedule of blocks is fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.groups.messages import down_bits, part_bits
from bestarm.methods.bet.kernel import columns
from bestarm.methods.bet.levels import LEAST_BITS, ceil_level, ceiled, floor_level, floored, report_precision
from bestarm.methods.bet.options import Bet
from bestarm.problem.problem import Problem
from bestarm.protocol import decisions
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.kernel import Arms, Columns, Kernel, Script, remember
from bestarm.protocol.messages import final_bits
from bestarm.protocol.rounds import one_arm
from bestarm.stats.sums import Sums


class Trials:
    """The blocks of many trials; arrays are (trials,) or (trials, groups, arms of a group).

    Arms of a trial are numbered through the padded table of groups and arms, in the order of the layout.
    """

    def __init__(self, problem: Problem, options: Bet, trials: int) -> None:
        layout, self.options = problem.layout, options
        self.arms, self.blocks, self.wire = Arms(problem), Blocks(options), wire_of(layout, options)
        self.sizes = np.array([len(group.clients) for group in layout.groups])
        self.starts = np.array(
            [0, *itertools.accumulate(self.sizes[:-1].tolist())]
        )  # each group's first client
        self.home = np.repeat(np.arange(len(self.sizes)), self.sizes)  # each client's group
        self.binary = np.array(self.wire.binary)
        self.width = self.arms.valid.shape[1]
        shape = (trials, len(self.sizes), self.width)
        self.sums, self.log_wealth = Sums.none(shape), np.zeros(shape)
        self.inside = np.broadcast_to(self.arms.valid[self.starts], shape).copy()
        self.name = np.full(trials, -1)  # the champion's number
        self.ratio = np.ones(trials, dtype=np.int64)
        self.pulls, self.first_pulls = np.zeros((2, trials, len(self.home)), dtype=np.int64)
        self.bits_up, self.bits_down, self.rounds, self.outcome, self.winner, self.time = np.zeros(
            (6, trials), dtype=np.int64
        )
        self.live = np.arange(trials)
        self.n, self.step = 0, self.blocks.n1
        self.final, self.down = final_bits(self.wire), down_bits(self.wire)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Play the first pulls, then block after block until every trial has ended."""
        while len(self.live):
            self._close(self._pull(rng, trace, script))

    @property
    def champions(self) -> Mask:
        """The champion of each trial, as a mask."""
        numbers = np.arange(len(self.sizes) * self.width).reshape(-1, self.width)
        return np.asarray(numbers == self.name[self.live][:, None, None])

    def _pull(self, rng: np.random.Generator, trace: int | None, script: Script) -> Sums:
        """Make the pulls of a block; returns the rewards of each group as the server reads them."""
        live, champions = self.live, self.champions
        times = np.where(self.inside[live], self.step, 0)
        times = np.where(champions, times * self.ratio[live][:, None, None], times)
        each = times[:, self.home]
        rows, flat = np.tile(np.arange(len(self.home)), len(live)), each.reshape(-1, self.width)
        if self.binary.all():
            total = self.arms.sums(rng, rows, flat).reshape(each.shape)
            fresh = Sums(each.astype(np.float64), total, total, np.zeros(each.shape), np.ones(each.shape))
        else:
            drawn = self.arms.moments(rng, rows, flat).reshape(*each.shape, 4)
            fresh = Sums(each.astype(np.float64), *np.moveaxis(drawn, -1, 0))
        if trace is not None and trace in live:
            self._trace(int(np.flatnonzero(live == trace)[0]), each, fresh, script)
        made = times.sum(axis=2)
        self.pulls[live] += made[:, self.home]
        self.first_pulls[live] += made[:, self.home] * (self.n == 0)
        self.time[live] += made.max(axis=1)
        self.bits_up[live] += (self._part_bits(times) * self.sizes).sum(axis=1)
        return self._pooled(self._told(fresh, champions[:, self.home]))

    def _part_bits(self, times: Ints) -> Ints:
        """The size in bits of each group's part."""
        return part_bits(self.wire, times, self.n)

    def _trace(self, at: int, each: Ints, fresh: Sums, script: Script) -> None:
        """Add the batches of one trial to its script."""
        for i, j in enumerate(self.home):
            which = np.flatnonzero(each[at, i])
            if not len(which):
                continue
            made = each[at, i, which]
            moments = np.stack([part[at, i, which] for part in fresh.parts[1:]], axis=-1)
            remember(
                script,
                i,
                which,
                made.min(),
                fresh.total[at, i, which],
                shares=made // made.min() if made.min() < made.max() else (),
                moments=None if self.binary[j] else moments,
            )

    def _told(self, fresh: Sums, champions: Mask) -> Sums:
        """The rewards of clients as they are read from their parts."""
        if self.binary.all():
            return fresh
        count, total, squares, least, most = fresh.parts
        mirrored = ~champions
        first = np.where(mirrored, count - total, total)
        second = np.where(mirrored, count - 2 * total + squares, squares)
        smallest = np.where(mirrored, 1.0 - most, least)
        bits, some = report_precision(self.n), np.maximum(count, 1.0)
        first = count * floored(floor_level(first / some, bits), bits)
        second = count * ceiled(ceil_level(second / some, bits), bits)
        smallest = floored(floor_level(smallest, LEAST_BITS), LEAST_BITS)
        coins = self.binary[self.home][:, None]

        def choose(exact: Floats | float, champion: Floats | float, rival: Floats | float) -> Floats:
            return np.where(coins, exact, np.where(mirrored, rival, champion))

        return Sums(
            count,
            choose(total, first, count - first),
            choose(total, second, count - 2 * first + second),
            choose(0.0, smallest, 0.0),
            choose(1.0, 1.0, 1.0 - smallest),
        )

    def _pooled(self, told: Sums) -> Sums:
        """The rewards of each group: those of its clients, added up."""
        joins = (np.add, np.add, np.add, np.minimum, np.maximum)
        parts = zip(joins, told.parts, strict=True)
        return Sums(*(join.reduceat(part, self.starts, axis=1) for join, part in parts))

    def _close(self, fresh: Sums) -> None:
        """Close a block: wealths, exits, the end of some trials, and the next champions."""
        live = self.live
        if self.n > 0:
            self._bet(fresh)
        for whole, part in zip(self.sums.parts, self.sums.at(live).plus(fresh).parts, strict=True):
            whole[live] = part
        self.n += self.step
        self.rounds[live] += 1
        last, most = self.blocks.is_last(self.n), self.options.max_rounds
        limited = np.zeros(len(live), dtype=bool) if most is None else self.rounds[live] >= most
        inside = self.inside[live].reshape(len(live), -1)
        cases = [inside.sum(axis=1) == 1, np.full(len(live), last), limited]
        codes = [decisions.IDENTIFIED, decisions.BUDGET, decisions.ROUNDS]
        code = np.select(cases, codes, decisions.GO_ON)
        self.outcome[live], self.winner[live] = code, np.argmax(inside, axis=1)
        won, go = code == decisions.IDENTIFIED, code == decisions.GO_ON
        ended = self.final[np.where(won, self.winner[live] // self.width, -1)]
        self.bits_down[live] += np.where(go, 0, ended)
        self.live = live[go]
        self._name()

    def _bet(self, fresh: Sums) -> None:
        """Update the wealths of the rivals; arms leave whose wealth has reached 1/δ."""
        live, champions = self.live, self.champions
        at = np.nonzero(self.inside[live] & ~champions)
        own = self.sums.at(live)
        before, new = own.at(champions), fresh.at(champions)  # one champion per trial
        sizes = self.sizes[self.name[live] // self.width]
        ratio = bet_decisions.pooled_ratio(self.ratio[live][at[0]], sizes[at[0]], self.sizes[at[1]])
        pulls, slope = self.n * int(self.sizes.max()), self.blocks.slope
        bets = bet_decisions.bets(before.at(at[0]), own.at(at), ratio, pulls, slope=slope)
        wealth = self.log_wealth[live]
        wealth[at] += bet_decisions.log_factor(bets, new.at(at[0]), fresh.at(at))
        self.log_wealth[live] = wealth
        self.inside[live] &= champions | ~bet_decisions.leaves(wealth, self.options.delta)

    def _name(self) -> None:
        """Name the champions of the next block."""
        live = self.live
        self.step = self.blocks.step(self.n)
        flat = (len(live), len(self.sizes) * self.width)
        inside = self.inside[live].reshape(flat)
        self.name[live] = bet_decisions.top(bet_decisions.rank_of(self.sums.at(live)).reshape(flat), inside)
        self.ratio[live] = bet_decisions.ratio(inside.sum(axis=1) - 1)
        self.bits_down[live] += self.down[self.name[live] // self.width]


def kernel(
    problem: Problem, options: Bet, rng: np.random.Generator, trials: int, trace: int | None = None
) -> tuple[Columns, Script]:
    """Run `trials` trials of Fed-Bet with groups of several clients."""
    script: Script = {}
    found = Trials(problem, options, trials)
    found.run(rng, trace, script)
    return columns(problem, found), script


def kernel_for(problem: Problem, options: Bet, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None for budgets and recordings, which only the machines can follow."""
    layout = problem.layout
    return None if liars or layout.finite or one_arm(layout) or options.budget is not None else kernel
