"""Many trials of Fed-Bet at once.

Like the machines, the kernel takes its decisions from ``decisions`` and ``blocks``, and message sizes from
``messages``. All trials play block k at the same time, since the schedule of blocks is fixed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.levels import (
    LEAST_BITS,
    ceil_level,
    ceiled,
    floor_level,
    floored,
    report_precision,
    standing_precision,
)
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sizes import (
    KIND_BITS,
    LAST_BITS,
    named_bits,
    notice_bits,
    part_bits,
    report_bits,
    standing_bits,
)
from bestarm.problem.problem import Problem, target
from bestarm.protocol import decisions
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.kernel import Arms, Columns, Kernel, Script, columns_of, remember
from bestarm.protocol.messages import final_bits
from bestarm.protocol.rounds import one_arm
from bestarm.stats.sums import Sums


class _Trials:
    """The blocks of Fed-Bet in many trials; arrays are (trials,), (trials, groups) or also by arm.

    Arms of a trial are numbered through the padded table of groups and arms, in the order of the layout.
    """

    def __init__(self, problem: Problem, options: Bet, trials: int) -> None:
        layout, self.options = problem.layout, options
        self.arms, self.blocks, self.wire = Arms(problem), Blocks(options), wire_of(layout, options)
        self.groups, self.width = self.arms.valid.shape
        self.binary = np.array(self.wire.binary)
        shape = (trials, self.groups, self.width)
        self.sums = Sums.none(shape)
        self.log_wealth = np.zeros(shape)
        self.inside = np.broadcast_to(self.arms.valid, shape).copy()
        self.known = np.tile(np.array(layout.arm_counts), (trials, 1))
        self.champion = Sums.none(trials)  # its rewards as everybody knows them
        self.closed = Sums.none(trials)  # likewise of the champion of the block before
        self.name = np.full(trials, -1)  # its number
        self.ratio, self.naming = np.ones(trials, dtype=np.int64), np.zeros(trials, dtype=np.int64)
        self.pulls, self.first_pulls = np.zeros((2, trials, self.groups), dtype=np.int64)
        self.bits_up, self.bits_down, self.rounds, self.outcome, self.winner, self.time = np.zeros(
            (6, trials), dtype=np.int64
        )
        self.live = np.arange(trials)
        self.before, self.n, self.step, self.block = 0, 0, self.blocks.n1, 0
        self.final = final_bits(self.wire)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Play the first pulls, then block after block until every trial has ended."""
        while len(self.live):
            fresh = self._pull(rng, trace, script)
            if self.block == 0:
                self._first(fresh)
            else:
                self._close(fresh)
            self.block += 1

    def _pull(self, rng: np.random.Generator, trace: int | None, script: Script) -> Sums:
        """Make the pulls of a block; returns its rewards."""
        live = self.live
        times = np.where(self.inside[live], self.step, 0)
        if self.block > 0:
            group, arm = np.divmod(self.name[live], self.width)
            times[np.arange(len(live)), group, arm] *= self.ratio[live]
        rows = np.tile(np.arange(self.groups), len(live))
        flat = times.reshape(-1, self.width)
        if self.binary.all():
            total = self.arms.sums(rng, rows, flat).reshape(times.shape)
            squares, least, most = total, np.zeros(times.shape), np.ones(times.shape)
        else:
            drawn = self.arms.moments(rng, rows, flat).reshape(*times.shape, 4)
            coins = self.binary[:, None]
            total, squares = drawn[..., 0], drawn[..., 1]
            least, most = np.where(coins, 0.0, drawn[..., 2]), np.where(coins, 1.0, drawn[..., 3])
        fresh = Sums(times.astype(np.float64), total, squares, least, most)
        if trace is not None and trace in live:
            self._trace(int(np.flatnonzero(live == trace)[0]), times, fresh, script)
        made = times.sum(axis=2)
        self.pulls[live] += made
        self.first_pulls[live] += made * (self.block == 0)
        self.time[live] += made.max(axis=1)
        return fresh

    def _trace(self, at: int, times: Ints, fresh: Sums, script: Script) -> None:
        """Add the batches of one trial to its script."""
        for j in range(self.groups):
            which = np.flatnonzero(times[at, j])
            if not len(which):
                continue
            made = times[at, j, which]
            moments = np.stack([part[at, j, which] for part in fresh.parts[1:]], axis=-1)
            remember(
                script,
                j,
                which,
                made.min(),
                fresh.total[at, j, which],
                shares=made // made.min() if made.min() < made.max() else (),
                moments=None if self.binary[j] else moments,
            )

    def _first(self, fresh: Sums) -> None:
        """Send the standings of all top arms, and name the first champions."""
        live = self.live
        self._add(fresh)
        self.bits_up[live] += standing_bits(self.wire, self.n).sum()
        self.rounds[live] += 1
        top = bet_decisions.top(bet_decisions.rank_of(self.sums), self.inside)
        self._advance(*self._standings(top, np.ones(top.shape, dtype=bool)), report=0)

    def _add(self, fresh: Sums) -> None:
        """Take the rewards of a block."""
        self.before, self.n = self.n, self.n + self.step
        self.step = self.blocks.step(self.n)
        new = self.sums.at(self.live).plus(fresh)
        for whole, part in zip(self.sums.parts, new.parts, strict=True):
            whole[self.live] = part

    def _standings(self, top: Ints, sent: Mask) -> tuple[Floats, Floats]:
        """Means and second moments of the sent standings by arm, as they are read; NaN if not sent."""
        mean, second = self._read(self.sums.at(self.live), self.binary[:, None])
        there = (np.arange(self.width) == top[..., None]) & sent[..., None]
        return np.where(there, mean, np.nan), np.where(there, second, np.nan)

    def _read(self, sums: Sums, binary: Mask) -> tuple[Floats, Floats]:
        """The mean and the second moment that a standing with these rewards stands for."""
        mean, second = (bet_decisions.estimate(sums.count, x) for x in (sums.total, sums.squares))
        fine, coarse = standing_precision(self.n, False), standing_precision(self.n, True)
        coin = floored(floor_level(mean, coarse), coarse)
        other = floored(floor_level(mean, fine), fine), ceiled(ceil_level(second, fine), fine)
        return np.where(binary, coin, other[0]), np.where(binary, coin, other[1])

    def _close(self, fresh: Sums) -> None:
        """Close a block: parts, the champion's report, the next champion, wealths, and the end."""
        live, width = self.live, self.width
        rows, (home, arm) = np.arange(len(live)), np.divmod(self.name[live], width)
        champion = self.champion.at(live)
        rivals = self.inside[live]
        rivals[rows, home, arm] = False
        bets = self._bets(champion, rivals)
        self._add(fresh)
        # The parts: how many arms are in, whether another arm leads, and the report.
        sums = self.sums.at(live)
        top = bet_decisions.top(bet_decisions.rank_of(sums), rivals)
        best = Sums(*(np.take_along_axis(part, top[..., None], axis=2)[..., 0] for part in sums.parts))
        made = self.ratio[live] * (self.n - self.before)
        around = Sums(*(part[:, None] for part in champion.parts))
        leads = rivals.any(axis=2) & bet_decisions.leads(best, around, 0.0)
        left, known = self.inside[live].sum(axis=2), self.known[live]
        size = part_bits(self.wire, self.n, self.naming[live][:, None], known, left != known, leads)
        report = np.take_along_axis(report_bits(self.wire, made, self.before), home[:, None], axis=1)[:, 0]
        self.bits_up[live] += np.where(known > 0, size, 0).sum(axis=1) + report
        self.known[live] = np.where(known > 0, left, 0)
        self.rounds[live] += 1
        told = self._told(fresh, rows, home, arm)
        for whole, part in zip(self.closed.parts, champion.plus(told).parts, strict=True):
            whole[live] = part
        self._bet(bets, told, fresh, rivals)
        self._advance(*self._standings(top, leads), report=report)

    def _bets(self, champion: Sums, rivals: Mask) -> bet_decisions.Bets:
        """The bets of the block that is open, from the rewards before it, in the order of the rivals."""
        trial, group, arm = np.nonzero(rivals)
        own = self.sums.at((self.live[trial], group, arm))
        ratio, slope = self.ratio[self.live[trial]], self.blocks.slope
        return bet_decisions.bets(champion.at(trial), own, ratio, self.n, slope=slope)

    def _told(self, fresh: Sums, rows: Ints, home: Ints, arm: Ints) -> Sums:
        """The champion's rewards in this block, as its report is read."""
        count, total, squares, least, _ = (part[rows, home, arm] for part in fresh.parts)
        coins, bits = self.binary[home], report_precision(self.before)
        low = count * floored(floor_level(total / count, bits), bits)
        high = count * ceiled(ceil_level(squares / count, bits), bits)
        floor = floored(floor_level(least, LEAST_BITS), LEAST_BITS)
        return Sums(
            count,
            np.where(coins, total, low),
            np.where(coins, total, high),
            np.where(coins, 0.0, floor),
            np.ones(len(count)),
        )

    def _bet(self, bets: bet_decisions.Bets, told: Sums, fresh: Sums, rivals: Mask) -> None:
        """Update the wealths of the rivals; arms leave whose wealth has reached 1/δ."""
        at = np.nonzero(rivals)
        wealth = self.log_wealth[self.live]
        wealth[at] += bet_decisions.log_factor(bets, told.at(at[0]), fresh.at(at))
        self.log_wealth[self.live] = wealth
        self.inside[self.live] &= ~(rivals & bet_decisions.leaves(wealth, self.options.delta))

    def _advance(self, mean: Floats, second: Floats, report: Ints | int) -> None:
        """End trials, or name the next champions among the closed block's and the sent standings."""
        report = np.broadcast_to(report, self.live.shape)
        last, most = self.blocks.is_last(self.n), self.options.max_rounds
        ends = np.full(len(self.live), last)
        if most is not None:
            ends |= self.rounds[self.live] >= most - 1
        code = decisions.BUDGET if last else decisions.ROUNDS
        self._summarise(self.live[ends], code, LAST_BITS + report[ends])
        live = self.live = self.live[~ends]
        mean, second, report = mean[~ends], second[~ends], report[~ends]
        before, rows = self.name[live], np.arange(len(live))
        ranks = bet_decisions.rank_at(mean, second, self.n).reshape(len(live), self.groups * self.width)
        if self.block > 0:
            ranks[rows, before] = bet_decisions.rank_of(self.closed.at(live))
        named = bet_decisions.named(ranks, ~np.isnan(ranks))
        flat = (len(live), self.groups * self.width)
        self._name(live, before, named, mean.reshape(flat)[rows, named], second.reshape(flat)[rows, named])
        self.naming[live] = 0
        size = np.take_along_axis(
            named_bits(self.wire, self.n, named != before), (named // self.width)[:, None], 1
        )
        self.bits_down[live] += KIND_BITS + report + size[:, 0]
        if self.block > 0:
            self._notice(before, mean.reshape(flat), second.reshape(flat))

    def _name(self, live: Ints, before: Ints, named: Ints, mean: Floats, second: Floats) -> None:
        """Set the champions of these trials, and c."""
        new, n = named != before, float(self.n)
        fresh = (np.full(len(live), n), n * mean, n * second, np.zeros(len(live)), np.ones(len(live)))
        for whole, closed, values in zip(self.champion.parts, self.closed.parts, fresh, strict=True):
            whole[live] = np.where(new, values, closed[live])
        self.name[live] = named
        self.ratio[live] = bet_decisions.ratio(self.known[live].sum(axis=1) - 1)

    def _notice(self, closed: Ints, mean: Floats, second: Floats) -> None:
        """What clients say at once: that they have no arms left, or only the closed block's champion."""
        live = self.live
        group, arm = np.divmod(self.name[live], self.width)
        lost = ~self.inside[live, group, arm]
        for at in np.flatnonzero(lost):  # rare: the next champion has just left
            self._rename(int(live[at]), int(closed[at]), mean[at], second[at])
        left, known = self.inside[live].sum(axis=2), self.known[live]
        alone = (np.arange(self.groups) == (closed // self.width)[:, None]) & (left == 1)
        says = ~lost[:, None] & (left != known) & ((left == 0) | alone)
        sizes = np.array([notice_bits(self.wire, self.n, 0, j, True) for j in range(self.groups)])
        self.bits_up[live] += (says * sizes).sum(axis=1)
        self.known[live] = np.where(says, left, known)
        won = self.known[live].sum(axis=1) == 1
        self._summarise(live[won], decisions.IDENTIFIED, np.full(int(won.sum()), LAST_BITS))
        self.live = live[~won]

    def _rename(self, trial: int, closed: int, mean: Floats, second: Floats) -> None:
        """A trial whose named champion is not in: all messages in their order, until one is named that is."""
        width, inside = self.width, self.inside[trial]
        left, told, over = inside.sum(axis=1), self.known[trial].copy(), False
        standings = {int(k) // width: (int(k), mean[k], second[k]) for k in np.flatnonzero(~np.isnan(mean))}
        mail = deque(("named", j, int(self.name[trial]), 0) for j in range(self.groups))
        while mail:
            kind, j, name, naming = mail.popleft()
            if kind == "named":
                if told[j] == 0:
                    continue
                only = left[j] == 1 and closed // width == j
                if left[j] != told[j] and (left[j] == 0 or only):
                    mail.append(("left", j, name, naming))
                    told[j] = left[j]
                elif name // width == j and not inside[j, name % width] and not only:
                    mail.append(("standing", j, name, naming))
                continue
            bits = notice_bits(self.wire, self.n, naming, j, kind == "left")
            stale = naming < self.naming[trial]
            self.bits_up[trial] += -(-bits // 8) * 8 if stale else bits
            if over or (stale and kind == "standing"):
                continue
            if kind == "left":
                self.known[trial, j] = left[j]
                standings.pop(j, None)
                over = self.known[trial].sum() == 1
            owner = self.name[trial] // width == j and self.name[trial] != closed
            if over or not owner:
                continue
            if kind == "standing":
                standings[j] = self._next_top(trial, j, closed)
            self.naming[trial] += 1
            self.rounds[trial] += 1
            there = [standing for k, standing in standings.items() if self.known[trial, k]]
            self._name_again(trial, closed, there)
            mail.extend(
                ("named", k, int(self.name[trial]), int(self.naming[trial])) for k in range(self.groups)
            )

    def _next_top(self, trial: int, j: int, closed: int) -> tuple[int, float, float]:
        """The number, mean and second moment of a client's top arm, as its standing is read."""
        own, numbers = self.sums.at((trial, j)), j * self.width + np.arange(self.width)
        among = self.inside[trial, j] & (numbers != closed)
        arm = int(bet_decisions.top(bet_decisions.rank_of(own), among))
        mean, second = self._read(own.at(arm), self.binary[j])
        return j * self.width + arm, float(mean), float(second)

    def _name_again(self, trial: int, closed: int, standings: list[tuple[int, float, float]]) -> None:
        """Name another champion of the open block: the closed block's, or one of these standings."""
        at = np.array([trial])
        numbers = np.array([closed, *(name for name, _, _ in standings)])
        ranks = [bet_decisions.rank_of(self.closed.at(trial))]
        ranks += [bet_decisions.rank_at(mean, second, self.n) for _, mean, second in standings]
        order = np.argsort(numbers)  # ties: the first in the layout
        best = order[bet_decisions.named(np.array(ranks)[order], np.ones(len(order), dtype=bool))]
        _, mean, second = (closed, np.nan, np.nan) if best == 0 else standings[best - 1]
        named = numbers[[best]]
        self._name(at, np.array([closed]), named, np.array([mean]), np.array([second]))
        self.bits_down[trial] += KIND_BITS + int(
            named_bits(self.wire, self.n, best != 0)[named[0] // self.width]
        )

    def _summarise(self, trials: Ints, code: int, last: Ints) -> None:
        """End these trials: the last broadcast, summaries, and the verdict."""
        most = self.options.max_rounds
        asks = np.ones(len(trials), dtype=bool) if most is None else self.rounds[trials] < most
        inside, known = self.inside[trials], self.known[trials]
        self.rounds[trials] += asks
        alone = np.where(asks, inside.sum(axis=(1, 2)), known.sum(axis=1)) == 1
        self.outcome[trials] = np.where(alone, decisions.IDENTIFIED, code)
        self.winner[trials] = np.argmax(inside.reshape(len(trials), self.groups * self.width), axis=1)
        ended = self.final[np.where(alone, self.winner[trials] // self.width, -1)]
        self.bits_down[trials] += np.where(asks, last, 0) + ended


class Found(Protocol):
    """Trials that have ended; arrays are by trial, and `inside` also by group and arm, `pulls` by client."""

    arms: Arms
    width: int
    inside: Mask
    outcome: Ints
    winner: Ints
    rounds: Ints
    first_pulls: Ints
    pulls: Ints
    bits_up: Ints
    bits_down: Ints
    time: Ints


def columns(problem: Problem, found: Found) -> Columns:
    """The columns of a study, for single clients and for groups."""
    good = np.full(len(found.outcome), None, dtype=object)
    if found.arms.known and problem.best is not None:
        good = found.inside[:, *target(problem)].astype(object)
    return columns_of(
        problem.layout,
        outcome=found.outcome,
        winner=found.winner // found.width,
        picked=found.winner % found.width,
        good=good,
        rounds=found.rounds,
        pulls1=found.first_pulls,
        pulls2=found.pulls - found.first_pulls,
        bits_up=found.bits_up,
        bits_down=found.bits_down,
        time=found.time,
    )


def kernel(
    problem: Problem, options: Bet, rng: np.random.Generator, trials: int, trace: int | None = None
) -> tuple[Columns, Script]:
    """Run `trials` trials of Fed-Bet, with one client per group."""
    script: Script = {}
    found = _Trials(problem, options, trials)
    found.run(rng, trace, script)
    return columns(problem, found), script


def kernel_for(problem: Problem, options: Bet, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None for budgets, ε, recordings and filling, which only the machines can follow."""
    layout = problem.layout
    special = options.budget is not None or options.epsilon > 0.0 or options.silence != "wait"
    return None if liars or layout.finite or one_arm(layout) or special else kernel
