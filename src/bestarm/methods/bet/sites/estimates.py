"""Estimates for the answers of a question: values of best options, their leads, and leads over a control.

Their intervals hold at the stopping time, if means do not change. Together those of all answers that are
right miss with probability at most α/2. The other half of α is for the intervals of all cells, which hold
at the same time (``records.estimates``), so the shorter ends of both count here. Where sites may lie, the
intervals are about the honest ones, and hold whatever f sites report (docs/questions-proofs.md, "The
intervals").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from bestarm.methods.bet.sites.decisions import Before, Block, ControlRace, Race, Stand
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.protocol.decisions import Floats, Ints
from bestarm.protocol.verdict import Answer, Verdict
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Played, PlayedBlock, Sides, Stacked
from bestarm.stats.pairs import PlayedPairs
from bestarm.stats.sums import Sums

Pair = tuple[int | None, int | None]
Ends = tuple[float, float]
EVEN = 0.5  # an estimate that is the same at all sites
MOST_TERMS = 1 << 22  # of one evaluation: blocks × clients × stakes


class Closed(NamedTuple):
    """A closed block: its pulls and rewards, the stands and the step of its races, and what its bets use."""

    block: Block
    stands: list[Stand | None]
    step: int
    races: tuple[int, ...]
    before: Before | None  # None: the rewards of all blocks that were closed before


def with_estimates(verdict: Verdict, ledger: Ledger, closed: Sequence[Closed]) -> Verdict:
    """The verdict with the estimated values and leads of its answers, and their intervals, in [0, 1]."""
    if not closed:
        return verdict
    alpha = ledger.course.options.alpha / (2 * max(len(verdict.answers), 1))
    if ledger.course.question.control is not None:
        answers = [_over_control(answer, ledger, closed, alpha) for answer in verdict.answers]
        return replace(verdict, answers=tuple(answers))
    races = zip(verdict.answers, ledger.races, strict=True)
    answers = [_best(answer, race, ledger, closed, alpha) for answer, race in races]
    first = answers[0]
    whole = {} if verdict.arm is None else {"mean": first.value, "interval": first.interval}
    return replace(verdict, answers=tuple(answers), **whole)


def _best(answer: Answer, race: Race, ledger: Ledger, closed: Sequence[Closed], alpha: float) -> Answer:
    """The value of the best option and its lead over the next one; each has half of alpha."""
    if answer.option is None:
        return answer
    names = ledger.course.cells.options
    option = names.index(answer.option)
    bounds = _Bounds(ledger, closed, race.clients, race.weights)
    value, ends = bounds.value(option, alpha / 2)
    answer = replace(answer, value=value, interval=ends)
    rivals = [k for k in np.flatnonzero(race.weights[race.clients].sum(axis=0) > 0).tolist() if k != option]
    if not rivals:
        return answer
    leads = {k: bounds.lead(option, k) for k in rivals}
    rivals.sort(key=leads.__getitem__)
    found = bounds.least_lead(option, rivals, alpha / (2 * len(rivals)))
    low, high = _both(found, bounds.lead_of_cells(option, rivals))
    low, high = max(low, 0.0), max(high, 0.0)  # it is the best, or the answer is wrong
    lead = min(max(leads[rivals[0]], low), high)
    return replace(answer, over=names[rivals[0]], lead=lead, lead_interval=(low, high))


def _over_control(answer: Answer, ledger: Ledger, closed: Sequence[Closed], alpha: float) -> Answer:
    """The lead of an option over the control."""
    (race,) = ledger.races
    assert isinstance(race, ControlRace)
    assert answer.option is not None
    option = ledger.course.cells.options.index(answer.option)
    if not race.offered[option]:
        return answer
    bounds = _Bounds(ledger, closed, race.clients, race.weights)
    found = bounds.least_lead(option, [race.control], alpha)
    low, high = _both(found, bounds.lead_of_cells(option, [race.control]))
    # An answer that is right narrows the interval down; together they fail with probability at most δ + α.
    margin = race.margin
    ends = {"better": (margin, 1.0), "worse": (-1.0, -margin), "within": (-margin, margin)}
    least, most = ends.get(answer.answer, (-1.0, 1.0))
    interval = (max(low, least), min(high, most))
    return replace(answer, value=bounds.lead(option, race.control), interval=interval)


def _both(ends: Ends, others: Ends) -> Ends:
    """The values in two intervals; the first interval if there are none."""
    low, high = max(ends[0], others[0]), min(ends[1], others[1])
    return (low, high) if low <= high else ends


@dataclass(frozen=True)
class _Bounds:
    """Values and leads over some clients, with bounds that hold at any stopping time."""

    ledger: Ledger
    closed: Sequence[Closed]
    clients: Ints
    weights: Floats

    @property
    def faults(self) -> int:
        return self.ledger.course.options.byzantine

    def _means(self, option: int) -> tuple[Floats, Floats]:
        """The mean of an option at each client, and the weights of the clients."""
        sums, place = self.ledger.sums, (0, self.clients, option)
        total = sums.total[place] + self.ledger.rounded[place] / 2
        return total / np.maximum(sums.count[place], 1), self.weights[self.clients, option]

    def _average(self, values: Floats, weights: Floats) -> float:
        """The weighted average over the clients; where sites may lie, without the f highest and lowest."""
        if not self.faults:
            return float((weights * values).sum())
        home = self.ledger.course.cells.site[self.clients]
        parts = [(weights[home == j].sum(), (weights * values)[home == j].sum()) for j in np.unique(home)]
        parts.sort(key=lambda part: part[1] / part[0])
        share, total = np.sum(parts[self.faults : len(parts) - self.faults], axis=0)
        return float(total / share)

    def value(self, option: int, alpha: float) -> tuple[float, Ends]:
        """The value of an option, and its interval."""
        means, weights = self._means(option)
        offered = weights > 0
        value = self._average(means, weights)
        if offered.sum() == 1:
            place = (0, self.clients[offered], option)
            own, rounded = self.ledger.sums.at(place), self.ledger.rounded[place]
            ends = betting.intervals(*own.parts, alpha, rounded=rounded)
            found = float(ends[0][0]), float(ends[1][0])
        else:
            low = self._bound((option, None), alpha / 2, (0.0, 1.0))
            found = low, -self._bound((None, option), alpha / 2, (-1.0, 0.0))
        low, high = _both(found, self._of_cells(option))
        return min(max(value, low), high), (low, high)

    @property
    def whole(self) -> bool:
        """Whether each site is one client, so that cells here are those of ``records.estimates``."""
        return not self.faults and self.ledger.course.clients == len(self.ledger.course.layout.groups)

    def _of_cells(self, option: int) -> Ends:
        """The interval of a value that follows from those of its cells; they share α/2 with all cells."""
        if not self.whole:
            return 0.0, 1.0
        course, place = self.ledger.course, (0, self.clients, option)
        level = course.options.alpha / (2 * sum(course.layout.arm_counts))
        own, rounded = self.ledger.sums.at(place), self.ledger.rounded[place]
        ends = betting.intervals(*own.parts, level, rounded=rounded)
        low, high = ((self.weights[self.clients, option] * end).sum() for end in ends)
        return float(low), float(high)

    def lead_of_cells(self, option: int, rivals: Sequence[int]) -> Ends:
        """The interval of the least lead over some rivals that follows from those of all values."""
        if not self.whole:
            return -1.0, 1.0
        own, others = self._of_cells(option), [self._of_cells(rival) for rival in rivals]
        return own[0] - max(high for _, high in others), own[1] - max(low for low, _ in others)

    def lead(self, option: int, rival: int) -> float:
        """How far an option is ahead of another one."""
        (own, weight), (other, against) = self._means(option), self._means(rival)
        if self.faults:  # every site offers both
            return self._average(own - other, weight)
        return float((weight * own - against * other).sum())

    def least_lead(self, option: int, rivals: Sequence[int], alpha: float) -> Ends:
        """An interval for the least lead over some rivals, of which the first one is the closest.

        Each of them has alpha. A rival beyond the first is looked at only as far as it changes an end.
        """
        low = self._bound((option, rivals[0]), alpha / 2)
        behind = self._bound((rivals[0], option), alpha / 2)
        for rival in rivals[1:]:
            if not self._won((option, rival), alpha / 2, low):
                low = min(low, self._bound((option, rival), alpha / 2))
            if self._won((rival, option), alpha / 2, behind):
                behind = max(behind, self._bound((rival, option), alpha / 2))
        return low, -behind

    def _bound(self, pair: Pair, alpha: float, span: tuple[float, float] = (-1.0, 1.0)) -> float:
        """A lower bound on the lead of the first option of a pair; without one of them, on ± a value."""
        return float(contrasts.largest_won(self._test(pair, alpha), (), span))

    def _won(self, pair: Pair, alpha: float, lead: float) -> bool:
        """Whether a lead is below the bound of a pair."""
        return bool(self._test(pair, alpha)(np.asarray(lead)))

    def _test(self, pair: Pair, alpha: float) -> contrasts.Won:
        """Whether a lead is below the bound, for any lead."""
        weights = Sides(*(self._weights(k) for k in pair))
        if self.faults:  # there are no pairs where sites may lie
            home, stacked = self.ledger.course.cells.site[self.clients], list(self._stacked(pair))
            return lambda lead: contrasts.has_won_without(stacked, weights, alpha, lead, home, self.faults)
        paired = self.ledger.course.layout.paired and None not in pair
        blocks: list[PlayedBlock] = [*(self._pairs(pair) if paired else self._stacked(pair))]
        return lambda lead: contrasts.has_won(blocks, weights, alpha, lead)

    def _weights(self, option: int | None) -> Floats:
        return np.zeros(len(self.clients)) if option is None else self.weights[self.clients, option]

    def _stacked(self, pair: Pair) -> Iterator[Stacked]:
        """All blocks, some at a time; bets are made in those in which all cells of a pair were pulled."""
        sides = [self._rewards(k, view) for k, view in zip(pair, (Block.up, Block.down), strict=True)]
        means = [self._before(k, side) for k, side in zip(pair, sides, strict=True)]
        if self.faults and None in pair:  # the centres of all sites must dispute the same value
            means = [np.full(side.count.shape, EVEN) for side in sides]
        took = np.ones(len(self.closed), dtype=bool)
        for side, k in zip(sides, pair, strict=True):
            took &= ((side.count > 0) | (self._weights(k) == 0)).all(axis=-1)
        pulls = [np.where(took[:, None], side.count, 1.0) for side in sides]
        size = max(1, MOST_TERMS // (len(self.clients) * contrasts.STAKES))
        for start in range(0, len(took), size):
            some = slice(start, start + size)
            before, now = (Sides(*(part[some] for part in parts)) for parts in (means, pulls))
            up, down = (side.at(some) for side in sides)
            yield Stacked(Played(before, now, up, down), took[some])

    def _rewards(self, option: int | None, view: Callable[[Block, tuple[Ints, ...]], Sums]) -> Sums:
        """The rewards of an option in all blocks, (blocks, clients)."""
        cells = self.clients
        if option is None:
            return Sums.none((len(self.closed), len(cells)))
        place = (np.zeros_like(cells), cells, np.full_like(cells, option))
        found = [view(block, place).parts for block, *_ in self.closed]
        return Sums(*(np.stack(parts) for parts in zip(*found, strict=True)))

    def _before(self, option: int | None, rewards: Sums) -> Floats:
        """The estimates of an option that the bets of each block follow, (blocks, clients)."""
        count, total = (np.cumsum(part, axis=0) - part for part in (rewards.count, rewards.total))
        found = contrasts.estimate(count, total)
        for k, closed in enumerate(self.closed):
            if closed.before is not None and option is not None:
                past = closed.before.sums.at((0, self.clients, option))
                found[k] = contrasts.estimate(past.count, past.total)
        return found

    def _pairs(self, pair: Pair) -> Iterator[PlayedPairs]:
        """The blocks whose subjects tried both options of a pair."""
        cells, (b, a) = self.clients, pair
        for block, *_ in self.closed:
            assert block.pairs is not None
            reference = block.pairs.reference[0, cells]
            met = block.pairs.on(np.zeros_like(cells), cells, np.full_like(cells, b), np.full_like(cells, a))
            if (met.count > 0).all() and ((reference == a) | (reference == b)).all():
                yield PlayedPairs(met, block.pairs.coins[cells])
