"""What the columns of a table hold, from its first rows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.tables.batches import Coded, Table, Wanted, size
from bestarm.problem.tables.cells import BOOLEAN, LACKING, MISSING, PERCENT, PLAIN, name_text, number
from bestarm.problem.tables.kinds import DATE, ZONED_DATE, Times
from bestarm.util.text import visible

MOST_ROWS = 100_000  # that are looked at
MOST_ODD = 0.02  # cells that are no numbers, or of another kind, per number; reading the column complains
OTHER_DATES = re.compile(r"\d{1,4}[/.]\d{1,2}[/.]\d{1,4}( .*)?|\d{1,2}:\d{2}(:\d{2})?")
NUMBER, DATES, TEXT, EMPTY = "numbers", "dates", "text", "nothing"
AVERAGES = frozenset(["average", "avg", "mean", "median", "rate", "share", "ratio", "percent", "pct", "ctr"])
ROW_NUMBERS = frozenset({"", "id", "index", "row", "nr", "no", "unnamed", "key", "uuid", "guid"})


@dataclass(frozen=True, eq=False)
class Profile:
    """What one column holds.

    `holds` is one of "numbers", "yes and no", "dates", "text" and "nothing". `values` are its numbers, with
    NaN for those that are missing, and `unit` is what stands with them, such as "%".
    """

    name: str
    holds: str
    rows: int
    distinct: int
    missing: int
    examples: tuple[str, ...]
    values: NDArray[np.float64]
    unit: str = ""

    @property
    def words(self) -> frozenset[str]:
        """The words of its name, in lower case, without a plural s."""
        return words_of(self.name)

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers of at least 0."""
        found = self.values[~np.isnan(self.values)]
        return self.holds == NUMBER and bool(((found >= 0) & (found == np.floor(found))).all())

    @property
    def counts_rows(self) -> bool:
        """Whether it numbers the rows."""
        with np.errstate(over="ignore"):  # numbers near the largest float
            steps = np.diff(self.values)
        words = self.words or {self.name.strip()}  # a name such as "1" or "3★" has no words
        named = words <= ROW_NUMBERS and self.distinct == self.rows > 1
        return named or (self.whole and self.rows > 2 and bool((steps == 1).all()))

    @property
    def nearly_unique(self) -> bool:
        """Whether most rows have a value of their own."""
        return self.rows > 50 and self.distinct > self.rows / 2

    def __str__(self) -> str:
        """What it holds, in words."""
        if self.holds == NUMBER:
            unit, times = (f" {self.unit}" if self.unit else ""), (100 if self.unit == PERCENT else 1)
            low, high = times * np.nanmin(self.values), times * np.nanmax(self.values)
            found = f"numbers from {low:g} to {high:g}{unit}"
        else:
            more = [", …"] if self.distinct > 3 else []
            found = f"{self.holds}: " + "".join([", ".join(self.examples[:3]), *more])
        return found + (f"; missing: {self.missing:,}" if self.missing else "")


def words_of(name: str) -> frozenset[str]:
    """The words of the name of a column, in lower case, also without a plural s.

    >>> sorted(words_of("minutesLate_avg"))
    ['avg', 'late', 'minute', 'minutes']
    """
    parts = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return frozenset(parts) | {part.removesuffix("s") for part in parts}


def looks_like_average(column: str, kind: str) -> bool:
    """Whether cells look like averages or shares of several tries, and not like single rewards.

    >>> looks_like_average("avg_score", ""), looks_like_average("response", "%")
    (True, True)
    """
    return kind == PERCENT or bool(words_of(column) & AVERAGES)


def profiles(table: Table) -> tuple[list[Profile], list[list[str]]]:
    """What each column of a table holds, and its first five rows as text."""
    cells: dict[str, list[object]] = {column: [] for column in table.header}
    rows = 0
    for batch in table.batches(Wanted((), table.header), merged=False):
        for column, found in batch.cells.items():
            assert isinstance(found, Coded)
            cells[column] += [found.distinct[code] for code in found.code.tolist()]
        rows += size(batch)
        if rows >= MOST_ROWS:
            break
    shown = [[visible(name_text(column[row])) for column in cells.values()] for row in range(min(rows, 5))]
    return [_profile(name, column[:MOST_ROWS]) for name, column in cells.items()], shown


def _profile(name: str, cells: Sequence[object]) -> Profile:
    texts = Counter(name_text(cell).strip() for cell in cells)
    missing = sum(times for text, times in texts.items() if text.lower() in MISSING)
    left = [text for text in texts if text.lower() not in MISSING]
    examples = tuple(visible(text[:30]) for text in left[:4])
    found = {cell: number(cell) for cell in dict.fromkeys(cells)}
    kinds = Counter(None if (one := found[cell]) is None else one[0] for cell in cells)
    del kinds[LACKING]
    none = np.full(len(cells), math.nan)
    if not left:
        return Profile(name, EMPTY, len(cells), 0, missing, examples, none)
    (kind, most), *_ = kinds.most_common()
    if kind is not None and kinds.total() - most <= MOST_ODD * most:
        values = np.array([_value(found[cell], kind) for cell in cells])
        holds, unit = (BOOLEAN, "") if kind == BOOLEAN else (NUMBER, "" if kind == PLAIN else kind)
        return Profile(name, _NAMES.get(holds, holds), len(cells), len(left), missing, examples, values, unit)
    dates = sum(is_date(cell) for cell in found)
    holds = DATES if dates > 0.9 * len(left) else TEXT
    return Profile(name, holds, len(cells), len(left), missing, examples, none)


_NAMES = {BOOLEAN: "yes and no", PERCENT: NUMBER}


def _value(found: tuple[str, float] | None, kind: str) -> float:
    return math.nan if found is None or found[0] != kind else found[1]


def is_date(cell: object) -> bool:
    """Whether a cell holds a date or a time."""
    meaning = Times(None).meaning(cell)
    if meaning is not None and meaning[0] in (DATE, ZONED_DATE):
        return True
    return isinstance(cell, str) and OTHER_DATES.fullmatch(cell.strip()) is not None
