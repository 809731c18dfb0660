"""Reads the cells of one column, batch by batch: names, numbers of one kind, or times."""

from __future__ import annotations

import datetime
import math

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.tables.batches import Cells, Coded
from bestarm.problem.tables.cells import BOOLEAN, LACKING, PLAIN, name_text, number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

KIND_WORDS = {BOOLEAN: "yes or no, as in most rows"}
DATE, ZONED_DATE = "a date", "a date with a time zone"


class Names:
    """The distinct names of a column, in the order in which they came."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def read(self, cells: Cells) -> Integers:
        """The code of each cell; -1 if it is empty."""
        assert isinstance(cells, Coded)
        texts = [name_text(cell) for cell in cells.distinct]
        table = [self.codes.setdefault(t, len(self.codes)) if t.strip() else -1 for t in texts]
        found: Integers = np.array(table, dtype=np.int64)[cells.code]
        return found

    def renumber(self) -> Integers:
        """Give the names new codes that sort like them; returns the new code of each old one."""
        order = sorted(self.codes)
        rank = np.empty(len(order), dtype=np.int64)
        rank[[self.codes[name] for name in order]] = np.arange(len(order))
        self.codes = {name: code for code, name in enumerate(order)}
        return rank


class Numbers:
    """The numbers of a column, and how many of its cells are of which kind.

    With `expect`, cells of another kind are bad.
    """

    def __init__(self, expect: str | None) -> None:
        self.kinds: dict[str, int] = {}
        self.expect = expect

    @property
    def expected(self) -> str:
        """What a cell should hold, for errors."""
        if self.expect in (None, PLAIN):
            return "a finite number"
        return KIND_WORDS.get(self.expect or "", f'a number with "{self.expect}", as in most rows')

    def meaning(self, cell: object) -> tuple[str, float] | None:
        """The kind of a cell and its number; None if it has none."""
        return number(cell)

    def read(self, cells: Cells, count: Integers, keep: Mask) -> tuple[Floats, Mask]:
        """The numbers, with NaN for missing ones, and which cells can't be used."""
        if not isinstance(cells, Coded):
            there = keep & ~np.isnan(cells)
            self._add(PLAIN, int((count if there.all() else count[there]).sum()))
            fine = self.expect in (None, PLAIN)
            return cells, np.isinf(cells) if fine else ~np.isnan(cells)
        found = [self.meaning(cell) for cell in cells.distinct]
        values = np.array([math.nan if one is None else one[1] for one in found], dtype=np.float64)
        rows = np.bincount(cells.code[keep], weights=count[keep], minlength=len(found))
        for one, times in zip(found, rows.tolist(), strict=True):
            if one is not None:
                self._add(one[0], int(times))
        bad = np.array([one is None or not self._usable(one[0]) for one in found], dtype=bool)
        return values[cells.code], bad[cells.code]

    def _usable(self, kind: str) -> bool:
        return self.expect is None or kind in (LACKING, self.expect)

    def _add(self, kind: str, times: int) -> None:
        if times and kind != LACKING:
            self.kinds[kind] = self.kinds.get(kind, 0) + times

    @property
    def usual(self) -> str:
        """The kind of most cells."""
        return max(sorted(self.kinds), key=lambda kind: self.kinds[kind], default=PLAIN)

    @property
    def unusual(self) -> int:
        """How many cells are of another kind."""
        return sum(self.kinds.values()) - self.kinds.get(self.usual, 0)


class Times(Numbers):
    """Times as numbers: themselves, or the microseconds of dates and times in ISO 8601."""

    @property
    def expected(self) -> str:
        """What a cell should hold, for errors."""
        kind = "a number" if self.expect == PLAIN else self.expect
        if kind:
            return f"{kind}, as in most rows"
        return "a number, or a date such as 2024-05-31 or 2024-05-31T14:00 (not 05/31/2024 or 31/05/2024)"

    def meaning(self, cell: object) -> tuple[str, float] | None:
        """The kind of a cell and its number.

        >>> Times(None).meaning("1970-01-02"), Times(None).meaning("17"), Times(None).meaning("noon")
        (('a date', 86400000000.0), ('plain', 17.0), None)
        """
        if isinstance(cell, str):
            try:
                cell = datetime.datetime.fromisoformat(cell.strip())
            except ValueError:
                found = number(cell)
                return found if found is None or found[0] in (PLAIN, LACKING) else None
        if isinstance(cell, datetime.date) and str(cell) != "NaT":
            if not isinstance(cell, datetime.datetime):
                cell = datetime.datetime(cell.year, cell.month, cell.day)
            kind = DATE if cell.tzinfo is None else ZONED_DATE
            start = datetime.datetime(1970, 1, 1, tzinfo=None if cell.tzinfo is None else datetime.UTC)
            return kind, float((cell - start) // datetime.timedelta(microseconds=1))
        return number(cell)
