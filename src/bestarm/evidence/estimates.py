"""One interval for each option, and one for each lead: all of them together miss with probability at most α.

With one site, 0/1 rewards and one look, options have Clopper and Pearson's exact intervals, which share α,
and the interval of a lead follows from those of the options. Everywhere else half of α goes to the options
and half to leads, which have their own intervals: by bets (``value_bounds``) or, for few rows, Hoeffding.

The best option, if one is named, is a fixed option as long as the answer is right. So it has half of the
options' share, and only its leads need an interval: the answer is wrong, or an interval misses, with
probability at most δ + α (docs/evidence-proofs.md). All numbers here are on [0, 1], where more is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bestarm.evidence.contests import Contest, Floats, Ints
from bestarm.evidence.record import Settings
from bestarm.evidence.value_bounds import Blocks, Ends
from bestarm.records.estimates import shares
from bestarm.stats import betting
from bestarm.stats.intervals import clopper_pearson
from bestarm.stats.sums import Sums

FEW = 100  # rows of an option: at 1/Σ(w²/n) below this, Hoeffding's interval is the better one
MANY = 500  # contests, above which bets for the intervals of each would take minutes


@dataclass(frozen=True)
class Ahead:
    """How far an option is ahead of the next best one: its interval is about all other options at once."""

    option: int
    over: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimates:
    """The means and intervals of a contest.

    Parameters
    ----------
    contest : Contest
        Its options and rows.
    settings : Settings
        What was fixed before the data were read.
    contests : int
        How many contests share α.
    sums : Sums
        The rewards that count, by option and site.
    closed : sequence of Sums or None
        The blocks of a look at any time.
    named : int or None
        The option that was found best.
    """

    contest: Contest
    settings: Settings
    contests: int
    sums: Sums
    closed: Sequence[Sums] | None
    named: int | None

    @cached_property
    def means(self) -> Floats:
        """Σ w·mean over the sites; NaN without rows."""
        sums = self.sums
        mean = np.where(sums.count > 0, sums.total / np.maximum(sums.count, 1.0), np.nan)
        return np.asarray((self.contest.weights * (mean + self.contest.grid / 2)).sum(axis=-1))

    @cached_property
    def ends(self) -> Ends:
        """The ends of the interval of every option."""
        if self._coins:
            ones, rows = self.sums.total[:, 0], self.sums.count[:, 0]
            return clopper_pearson(ones, rows, self._levels / 2)
        if self.contest.single and (self._few or self.closed is not None):
            return self._betting()
        if self._few:
            low, high = self._around(self.means, self._variance, self._levels)
            return np.maximum(low, 0.0), np.minimum(high, 1.0)
        if self._blocks is None:
            return np.zeros(len(self.means)), np.ones(len(self.means))
        return self._blocks.values(self._levels)

    def gaps(self, control: int) -> Ends:
        """The ends of the interval of the lead of every option over a control."""
        others = np.array([a for a in range(len(self.means)) if a != control])
        low, high = np.zeros(len(self.means)), np.zeros(len(self.means))
        low[others], high[others] = self._leads(others, np.full_like(others, control))
        return low, high

    def lead(self, *, stands: bool) -> Ahead | None:
        """The lead of the named option, or of the one with the best mean; None if a mean is not known.

        If the promise `stands`, a named option is not behind: that the answer is wrong counts for δ.
        """
        if np.isnan(self.means).any():
            return None
        first = int(self.means.argmax()) if self.named is None else self.named
        others = np.array([a for a in range(len(self.means)) if a != first])
        if self.named is None and len(others) > 1:  # any pair may be the one that is shown
            low, high = self.ends[0][first] - self.ends[1][others], self.ends[1][first] - self.ends[0][others]
        else:
            low, high = self._leads(np.full_like(others, first), others)
        least, most = float(low.min()), float(high.min())
        if self.named is not None and stands:
            least, most = max(least, 0.0), max(most, 0.0)
        over = int(others[self.means[others].argmax()])
        value = min(max(float(self.means[first] - self.means[over]), least), most)
        return Ahead(first, over, value, least, most)

    @property
    def _coins(self) -> bool:
        """Whether there are exact intervals: the layout and the settings say so, never the rewards."""
        return self.settings.bounds is None and self.closed is None and self.contest.single

    @property
    def _alpha(self) -> float:
        """The share of this contest, and of one look."""
        looks = self.settings.looks if self.closed is None else 1
        return self.settings.alpha / (self.contests * looks)

    @cached_property
    def _variance(self) -> Floats:
        """Σ w²/n: four times the largest variance that the weighted mean of an option can have."""
        return np.asarray((self.contest.weights**2 / np.maximum(self.sums.count, 1.0)).sum(axis=-1))

    @property
    def _few(self) -> bool:
        """Whether one look has too few rows for bets that leave room for any centre, or too many contests."""
        return self.closed is None and (self.contests > MANY or bool((FEW * self._variance > 1).any()))

    @property
    def _levels(self) -> Floats:
        """The probability that the interval of each option misses."""
        alpha = self._alpha if self._coins else self._alpha / 2
        fixed = self.settings.question != "control"
        level, best = shares(alpha, len(self.contest.options), fixed=fixed, stated=False)
        found = np.full(len(self.contest.options), level)
        if self.named is not None:
            found[self.named] = best
        return found

    @cached_property
    def _blocks(self) -> Blocks | None:
        """The blocks on which bets are made: those of a look at any time, or of shuffled rows."""
        contest, settings = self.contest, self.settings
        if self.closed is not None:
            return Blocks.at_any_time(self.closed, contest.weights, contest.grid)
        tuned = self._alpha / (8 * (len(contest.options) - 1))  # that of most intervals, whoever is named
        return Blocks.once(contest, settings.orders, settings.seed, tuned)

    def _around(self, middle: Floats, variance: Floats, alpha: Floats | float) -> Ends:
        """Hoeffding's interval for a weighted sum of rewards."""
        radius = np.sqrt(np.log(2 / np.asarray(alpha)) / 2 * variance) + self.contest.grid
        return middle - radius, middle + radius

    def _betting(self) -> Ends:
        """With one site the betting interval holds at any time, for all rows of the closed blocks."""
        sums, grid = self.sums, self.contest.grid
        upper = np.minimum(sums.most + grid, 1.0)
        squares = sums.squares + 2 * grid * sums.total + sums.count * grid**2
        low, high = betting.intervals(
            sums.count,
            sums.total,
            squares,
            sums.least,
            upper,
            self._levels[:, None],
            rounded=grid * sums.count,
        )
        return low[:, 0], high[:, 0]

    def _leads(self, up: Ints, down: Ints) -> Ends:
        """The ends of the intervals of some leads, which share what is left of α."""
        if self._few and not self._coins:
            variance = self._variance[up] + self._variance[down]
            low, high = self._around(self.means[up] - self.means[down], variance, self._alpha / 2 / len(up))
            return np.maximum(low, -1.0), np.minimum(high, 1.0)
        if self._coins or self._blocks is None:
            low, high = self.ends
            return low[up] - high[down], high[up] - low[down]
        return self._blocks.leads(up, down, np.full(len(up), self._alpha / 2 / len(up)))
