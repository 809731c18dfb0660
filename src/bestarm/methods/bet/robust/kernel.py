"""Many trials of Fed-Bet among liars at once, in peace and for liars that claim fixed means.

Like the machines, the kernel takes its decisions from ``decisions`` and message sizes from ``messages``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.groups import kernel as groups
from bestarm.methods.bet.kernel import columns
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.robust import decisions as robust_decisions
from bestarm.methods.bet.robust.blocks import Pool, robust_wire
from bestarm.methods.bet.robust.decisions import CENTRE_BITS
from bestarm.methods.bet.robust.messages import down_bits, part_bits
from bestarm.problem.problem import Problem, target
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.kernel import Columns, Kernel, Script
from bestarm.protocol.rounds import one_arm
from bestarm.stats import betting
from bestarm.stats.sums import Sums

# The attacks that a kernel can play: the mean that a liar claims for each of its arms, or NaN for the truth.
# The arguments are masks of its arms: the best one of all, and those of the best arm's group.
Claim = Callable[[Mask, bool], Floats]
ATTACKS: Mapping[str, Claim] = {
    "extreme": lambda best, home: np.where(best, 0.0, 1.0),
    "bury": lambda best, home: np.where(best, 0.0, np.nan),
    "promote": lambda best, home: np.full(best.shape, np.nan if home else 1.0),
}


class _Trials(groups.Trials):
    """The blocks of many trials; rewards are by client here. Tables are by trial, arm, client and stake."""

    def __init__(self, problem: Problem, options: Bet, trials: int, liars: Mapping[int, str]) -> None:
        super().__init__(problem, options, trials)
        self.wire, self.pool = robust_wire(problem.layout, options), Pool(problem.layout, options)
        self.down = down_bits(self.wire)
        self.sums = Sums.none((trials, len(self.home), self.width))
        shapes = [(trials, self.inside[0].size, int(size), 0) for size in self.sizes]
        self.lost, self.gained = [np.zeros(shape) for shape in shapes], [np.zeros(shape) for shape in shapes]
        self.met = np.zeros((trials, self.inside[0].size, len(self.sizes)), dtype=bool)
        self.centre = np.zeros(self.inside.shape)  # of the open block, as published
        self.number = 0  # of the open block
        best_group, best = target(problem)
        self.claims = {
            i: ATTACKS[attack](
                (np.arange(self.width) == best) & (self.home[i] == best_group), self.home[i] == best_group
            )
            for i, attack in liars.items()
        }

    def _part_bits(self, times: Ints) -> Ints:
        return part_bits(self.wire, times, self.n, self.number)

    def _told(self, fresh: Sums, champions: Mask) -> Sums:
        """The rewards of clients as they are read from their parts, with the claims of liars."""
        for i, claim in self.claims.items():
            lies = ~np.isnan(claim)
            count, value = fresh.count[:, i, lies], claim[lies]
            for column, values in zip(
                fresh.parts[1:], (count * value, count * value**2, value, value), strict=True
            ):
                column[:, i, lies] = values
        return super()._told(fresh, champions)

    def _pooled(self, told: Sums) -> Sums:
        """Rewards are not added up over clients."""
        return told

    def _bet(self, fresh: Sums) -> None:
        """Add the block to the tables; arms leave whose trimmed wealth, less its price, has reached 1/δ."""
        live, flat = self.live, (len(self.live), -1)
        champion = self.name[live]
        b = champion // self.width
        places = np.arange(len(self.sizes))
        ratio = self.pool.ratio(self.ratio[live][:, None], b[:, None], places[None])
        centre = self.centre[live]
        stakes = betting.stakes_of(centre, ratio[..., None], self.pool.stakes(self.n))
        mine = (ratio[..., None, None] * stakes).reshape(*flat, stakes.shape[-1])
        stakes, centre = stakes.reshape(mine.shape), centre.reshape(flat)
        rivals = (self.inside[live] & ~self.champions).reshape(flat)
        total = np.zeros(mine.shape)
        for j, members in enumerate(self.pool.members):
            own = slice(j * self.width, (j + 1) * self.width)
            told = fresh.at((slice(None), members))
            each = Sums(*(np.moveaxis(part, 1, 2) for part in told.parts))
            values = robust_decisions.lost(each, mine[:, own, None], centre[:, own, None])
            table = self._table(self.lost, j, stakes.shape[-1])
            table[live, own] += np.where(rivals[:, own, None, None], values, 0.0)
            total[:, own] += robust_decisions.trimmed(table[live, own], self.pool.f)
            table = self._table(self.gained, j, stakes.shape[-1])
            if len(at := np.flatnonzero(b == j)):
                given = told.at((at[:, None], slice(None), (champion % self.width)[at][:, None]))
                values = robust_decisions.gained(given, stakes[at][:, :, None], centre[at][:, :, None])
                table[live[at]] += np.where(rivals[at][..., None, None], values, 0.0)
                self.met[live[at], :, j] |= rivals[at]
            total += robust_decisions.trimmed(table[live], self.pool.f)
        price = np.repeat(self.pool.log_price, self.width) + self.met[live] @ self.pool.log_price
        inside = self.inside[live].reshape(flat)
        wealth = robust_decisions.log_wealth(total) - price
        gone = robust_decisions.leaves(wealth, inside, self.options.delta)
        self.inside[live] &= ~gone.reshape(self.inside[live].shape)

    def _table(self, tables: list[Floats], j: int, stakes: int) -> Floats:
        """The table of a group, with a column for each stake."""
        more = stakes - tables[j].shape[-1]
        if more:
            tables[j] = np.pad(tables[j], ((0, 0), (0, 0), (0, 0), (0, more)))
        return tables[j]

    def _name(self) -> None:
        """Name the champions of the next block, and publish the centres of its bets."""
        live = self.live
        self.step, self.number = self.blocks.step(self.n), self.number + 1
        known = self.sums.at(live)
        means = np.stack(
            [
                robust_decisions.median_of(
                    np.moveaxis(known.total[:, mine], 1, 2) + 0.5,
                    np.moveaxis(known.count[:, mine], 1, 2) + 1,
                    np.moveaxis(known.count[:, mine], 1, 2) > 0,
                )
                for mine in self.pool.members
            ],
            axis=1,
        )
        flat = (len(live), len(self.sizes) * self.width)
        inside = self.inside[live].reshape(flat)
        self.name[live] = name = bet_decisions.top(means.reshape(flat), inside)
        left = inside.sum(axis=1)
        self.ratio[live] = bet_decisions.ratio(left - 1)
        best = np.take_along_axis(means.reshape(flat), name[:, None], axis=1)[..., None]
        ratio = self.pool.ratio(
            self.ratio[live][:, None], (name // self.width)[:, None], np.arange(len(self.sizes))[None]
        )
        self.centre[live] = robust_decisions.centre_at(
            robust_decisions.centre_level(best, means, ratio[..., None])
        )
        self.bits_down[live] += self.down[name // self.width] + CENTRE_BITS * (left - 1)


def kernel(
    problem: Problem,
    options: Bet,
    rng: np.random.Generator,
    trials: int,
    trace: int | None = None,
    liars: Mapping[int, str] | None = None,
) -> tuple[Columns, Script]:
    """Run `trials` trials of Fed-Bet among liars; `liars` gives the attacks of clients by their index."""
    script: Script = {}
    found = _Trials(problem, options, trials, liars or {})
    found.run(rng, trace, script)
    honest = [i for i in range(len(found.home)) if i not in found.claims]
    found.pulls, found.first_pulls = found.pulls[:, honest], found.first_pulls[:, honest]
    return columns(problem, found), script


def kernel_for(problem: Problem, options: Bet, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None for budgets, recordings and other attacks, which only the machines can follow."""
    layout = problem.layout
    if (
        layout.finite
        or one_arm(layout)
        or options.budget is not None
        or not set(liars.values()) <= set(ATTACKS)
    ):
        return None
    attacks = {i: liars[name] for i, name in enumerate(layout.clients) if name in liars}
    return functools.partial(kernel, liars=attacks)
