"""One row per entrant over all instances of an arena, for its page and for docs/compare.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bestarm.study.arena.result import Arena, Entry, Score


@dataclass(frozen=True)
class Row:
    """An entrant and its scores. Its means are geometric, over the instances that it solved."""

    entry: Entry
    scores: tuple[Score, ...]

    @property
    def solved(self) -> list[Score]:
        """The scores on the instances that it solved."""
        return [score for score in self.scores if score.solved]

    @property
    def over_limit(self) -> float | None:
        """The mean of pulls over the limit, where the limit applies."""
        return _geometric(score.over_limit for score in self.solved if score.over_limit)

    @property
    def errors(self) -> int:
        """Wrong answers of all runs."""
        return sum(score.errors for score in self.scores)

    @property
    def trials(self) -> int:
        """All runs."""
        return sum(score.trials for score in self.scores)

    @property
    def refuted(self) -> int:
        """On how many instances it was shown to be wrong more often than δ."""
        return sum(score.keeps == "no" for score in self.scores)

    @property
    def kept(self) -> int:
        """On how many instances it was shown to keep δ."""
        return sum(score.keeps == "yes" for score in self.scores)

    def mean(self, cost: str) -> float | None:
        """The mean of a cost, such as "rounds"."""
        return _geometric(score.cost(cost).mean for score in self.solved)


def overview(found: Arena, headline: bool) -> list[Row]:
    """The entrants of the headline table, or all others, those with the fewest pulls over the limit first.

    Entrants that the limit says nothing about come last, in the order of their pulls.
    """
    rows = [
        Row(entry, tuple(score for score in found.scores if score.method == entry.label))
        for entry in found.entries
        if entry.headline == headline
    ]
    return sorted((row for row in rows if row.scores), key=_place)


def _place(row: Row) -> tuple[bool, float]:
    over, pulls = row.over_limit, row.mean("pulls")
    if over is not None:
        return False, over
    return True, float("inf") if pulls is None else pulls


def _geometric(values: Iterable[float]) -> float | None:
    """The geometric mean: 0 if a value is 0, None if there are none."""
    found = list(values)
    with np.errstate(divide="ignore"):
        return float(np.exp(np.mean(np.log(found)))) if found else None
