"""Folds batches of a table into counts of rewards, or into rewards in order, and checks every cell.

Reading goes on after a bad cell, so that an error can say how many there are. Counted rewards with more than
``grid.MOST_DISTINCT`` values are rounded to a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bestarm.problem.csv_file import finite_number
from bestarm.problem.tables import grid
from bestarm.problem.tables.batches import Batch, Cells, Coded, Wanted, size
from bestarm.problem.tables.cells import BOOLEAN, PERCENT, PLAIN, name_text
from bestarm.problem.tables.entries import Entries, cells_of, merged, ones
from bestarm.problem.tables.kinds import DATE, ZONED_DATE, Floats, Integers, Mask, Names, Numbers, Times
from bestarm.problem.tables.profile import looks_like_average
from bestarm.util.text import counted, listed, shorten

MOST_WAITING = 2**21  # entries before they are merged
MOST_SHOWN = 6  # values of a column that `where` asks about
LARGEST_COUNT = 2.0**50
SKIP = 'missing = "skip" (a flag: --missing skip) leaves out rows without a name or a number'
HOLD = "Declare bounds = [low, high] that contain every reward, including future ones"

_EMPTY = (np.empty(0, np.float64), np.empty(0, np.int64))
_Read = Mapping[str, tuple[Floats, Mask]]  # by column: numbers, and which cells can't be used


@dataclass(frozen=True)
class Request:
    """What is read: the columns of names and numbers, which rows, and how.

    `numbers` maps the roles ``reward``, ``count``, ``successes`` and ``trials`` to columns, and `ratings`
    maps columns of counts to the rating that they count. `where` gives the values that a row must have in
    other columns. `ordered` keeps the rows in order, by the column `time` if there is one.
    `failure_success` are the rewards that `successes` of `trials` stand for.
    """

    names: tuple[str, ...]
    numbers: Mapping[str, str]
    time: str | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    missing: str = "error"
    bounds: tuple[float, float] | None = None
    ordered: bool = False
    failure_success: tuple[float, float] = (0.0, 1.0)
    ratings: Mapping[str, float] = field(default_factory=dict)

    @property
    def wanted(self) -> Wanted:
        """The columns that are read."""
        time = () if self.time is None or not self.ordered else (self.time,)
        return Wanted(
            (*self.numbers.values(), *self.ratings), (*self.names, *time, *self.where),
            self.numbers.get("reward"), self.bounds, bool(self.where),
        )  # fmt: skip


@dataclass(frozen=True)
class BadCell:
    """A cell that can't be used: its row, what is wrong, what was expected, and how to fix it."""

    row: int
    what: str
    expected: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Fault:
    """Rows of a batch that have something wrong, and what it is, given the number of the row."""

    rows: Mask
    what: Callable[[int], str]
    expected: str = ""
    fix: str = ""


class Fold:
    """Takes batches one by one and keeps what the request asks for.

    With `expect`, which gives a kind of number for each column, cells of another kind are bad.
    """

    def __init__(self, request: Request, expect: Mapping[str, str] | None = None) -> None:
        self.request, expect = request, expect or {}
        self.names = {column: Names() for column in request.names}
        counts = (*request.numbers.values(), *request.ratings)
        self.numbers = {column: Numbers(expect.get(column)) for column in counts}
        if request.time is not None and request.ordered:
            self.numbers[request.time] = Times(expect.get(request.time))
        # The range of all rewards, including those out of bounds.
        self.range = (
            min(request.ratings.values(), default=math.inf),
            max(request.ratings.values(), default=-math.inf),
        )
        self.width = 0.0  # of the grid; 0: none
        self.rows = self.used = self.skipped = self.bad = 0  # rows seen, kept, left out, unusable
        self.first: BadCell | None = None
        self.merged = False  # whether rows came merged, so that the number of a row means nothing
        self.held: dict[str, set[str]] = {column: set() for column in request.where}  # a few values of each
        self.asked: set[str] = set()  # the columns of `where` that hold a value that was asked for
        self._parts: list[Entries] = []
        self._empty: list[Integers] = []  # the names of rows that count nothing
        self._waiting = 0

    def take(self, batch: Batch) -> None:
        """Check the cells of a batch and keep its rewards."""
        cells = batch.cells
        count = ones(size(batch)) if batch.count is None else batch.count
        self.merged |= batch.count is not None
        keep = self._chosen(cells, len(count))
        codes = np.array([names.read(cells[c]) for c, names in self.names.items()], dtype=np.int64)
        read = {c: numbers.read(cells[c], count, keep) for c, numbers in self.numbers.items()}
        values = {column: value for column, (value, _) in read.items()}
        lacks: Mask = np.any(codes < 0, axis=0, keepdims=True)[0]
        for value, wrong in read.values():
            lacks |= np.isnan(value) & ~wrong
        if self.request.missing == "skip":
            self.skipped += int(count[keep & lacks].sum())
            keep &= ~lacks
        self._widen(values, keep, batch.span)
        keep &= ~self._bad(self._faults(batch, codes, read), count, keep)
        self.rows += int(count.sum())
        if not keep.all():
            codes, count = codes[:, keep], count[keep]
            values = {c: value[keep] for c, value in values.items()}
        self.used += int(count.sum())
        self._keep(codes, values, count)

    def _widen(self, values: Mapping[str, Floats], keep: Mask, span: tuple[float, float] | None) -> None:
        """Extend the range of the rewards; with `span`, these are already rounded."""
        if span is not None:
            self.range = min(self.range[0], span[0]), max(self.range[1], span[1])
            self.width = max(self.width, grid.grid_step(*(self.request.bounds or self.range)))
        elif "reward" in self.request.numbers:
            reward = values[self.request.numbers["reward"]]
            usable = keep & np.isfinite(reward)
            reward = reward if usable.all() else reward[usable]
            if len(reward):
                self.range = min(self.range[0], float(reward.min())), max(self.range[1], float(reward.max()))

    def _chosen(self, cells: Mapping[str, Cells], size: int) -> Mask:
        """The rows that `where` asks for."""
        keep = np.ones(size, dtype=bool)
        for column, value in self.request.where.items():
            options, found = value if isinstance(value, list) else [value], cells[column]
            assert isinstance(found, Coded)
            table = [any(_matches(cell, option) for option in options) for cell in found.distinct]
            if any(table):
                self.asked.add(column)
            elif len(self.held[column]) <= MOST_SHOWN:
                self.held[column] |= {name_text(cell).strip() for cell in found.distinct[: MOST_SHOWN + 1]}
            keep &= np.array(table, dtype=bool)[found.code]
        return keep

    def _bad(self, faults: Iterator[Fault], count: Integers, keep: Mask) -> Mask:
        """The rows that can't be used; the first of them is remembered."""
        bad, found = np.zeros(len(keep), dtype=bool), []
        for fault in faults:
            bad |= fault.rows & keep
            found.append(fault)
        if bad.any():
            self.bad += int(count[bad].sum())
            if self.first is None:
                row = int(bad.argmax())
                fault = next(one for one in found if one.rows[row])
                self.first = BadCell(self.rows + row, fault.what(row), fault.expected, fault.fix)
        return bad

    def _faults(self, batch: Batch, codes: Integers, read: _Read) -> Iterator[Fault]:
        """What can be wrong with the names and numbers of a batch."""
        for column, code in zip(self.names, codes, strict=True):
            yield Fault(code < 0, partial(_empty, column), fix=SKIP)
        for column, (value, wrong) in read.items():
            what = partial(_holds, column, batch.cells[column])
            expected = self.numbers[column].expected
            yield Fault(wrong, what, expected)
            yield Fault(np.isnan(value) & ~wrong, what, expected, SKIP)
        of = self.request.numbers
        counts = [of[role] for role in ("count", "successes", "trials") if role in of]
        for column in (*counts, *self.request.ratings):
            value, _ = read[column]
            wrong = (value < 0) | (value > LARGEST_COUNT) | (value != np.floor(value))
            yield Fault(wrong, partial(_counts, column, value), "a whole number of at least 0")
        if "trials" in of:
            good, trials = read[of["successes"]][0], read[of["trials"]][0]
            yield Fault(good > trials, lambda row: f"{good[row]:g} successes of {trials[row]:g} trials")
        elif "reward" in of and self.request.bounds is not None and batch.span is None:
            (low, high), (reward, _) = self.request.bounds, read[of["reward"]]
            yield Fault(
                (reward < low) | (reward > high),
                lambda row: f"{of['reward']} = {reward[row]:g} not in [{low:g}, {high:g}]",
                fix=HOLD,
            )

    def _keep(self, codes: Integers, values: Mapping[str, Floats], count: Integers) -> None:
        """Keep the rewards of usable rows."""
        of = self.request.numbers
        time = values.get(self.request.time or "") if self.request.ordered else None
        self._keep_empty(codes, values)
        if "trials" in of:
            good, trials = (values[of[role]].astype(np.int64) for role in ("successes", "trials"))
            failure, success = self.request.failure_success
            value = np.tile([success, failure], len(good))
            times = np.column_stack([good, trials - good]).ravel() * np.repeat(count, 2)
            codes, time = np.repeat(codes, 2, axis=1), None if time is None else np.repeat(time, 2)
        elif self.request.ratings:
            each, ratings = len(self.request.ratings), list(self.request.ratings.values())
            value = np.tile(ratings, len(count))
            found = [values[column].astype(np.int64) for column in self.request.ratings]
            times = np.column_stack(found).ravel() * np.repeat(count, each)
            codes, time = np.repeat(codes, each, axis=1), None if time is None else np.repeat(time, each)
        else:
            value = values[of["reward"]]
            times = values[of["count"]].astype(np.int64) * count if "count" in of else count
        part = Entries(codes, value, times, time)
        self._parts.append(part if times.all() else part.chosen(times > 0))
        self._waiting += len(value)
        if self._waiting > MOST_WAITING and not self.request.ordered:
            self._merge()

    def _keep_empty(self, codes: Integers, values: Mapping[str, Floats]) -> None:
        """Remember the names of rows that count nothing."""
        of = self.request.numbers
        counts = [of[role] for role in ("count", "trials") if role in of] or list(self.request.ratings)
        if counts and (none := np.all([values[column] == 0 for column in counts], axis=0)).any():
            self._empty.append(np.unique(codes[:, none], axis=1))

    def _without_rows(self) -> str:
        """A note on combinations of names all of whose rows count nothing."""
        if not self._empty:
            return ""
        empty, kept = np.unique(np.concatenate(self._empty, axis=1), axis=1), self._merge().codes
        cells = cells_of(np.concatenate([empty, kept], axis=1))
        empty = empty[:, ~np.isin(cells[: empty.shape[1]], cells[empty.shape[1] :])]
        names = [
            "/".join(names[code] for names, code in zip(self.all_names(), one, strict=True))
            for one in empty.T.tolist()
        ]
        return f"nothing is known about {listed(names)}, where all counts are 0" if names else ""

    def _merge(self) -> Entries:
        """Put everything that was kept into one piece: merged, or in order."""
        whole = Entries.joined(self._parts or [Entries(np.empty((len(self.names), 0), np.int64), *_EMPTY)])
        if self.request.ordered:
            whole = whole if whole.time is None else whole.chosen(np.argsort(whole.time, kind="stable"))
        else:
            whole = merged(self._rounded(whole))
            if not self.width and grid.too_many(whole.value):
                self.width = grid.grid_step(*(self.request.bounds or self.range))
                whole = merged(self._rounded(whole))
        self._parts, self._waiting = [whole], 0
        return whole

    def _rounded(self, entries: Entries) -> Entries:
        """The entries with their values rounded down to the grid, if there is one."""
        if not self.width:
            return entries
        self.width = max(self.width, grid.grid_step(*(self.request.bounds or self.range)))
        value = np.floor(entries.value / self.width) * self.width
        return Entries(entries.codes, value, entries.count)

    def entries(self) -> Entries:
        """All rewards: sorted by names and value with equal ones merged, or in order."""
        for k, names in enumerate(self.names.values()):
            rank = names.renumber()
            if (np.diff(rank) < 0).any():
                for codes in (*(part.codes for part in self._parts), *self._empty):
                    codes[k] = rank[codes[k]]
        return self._merge()

    @property
    def unusual(self) -> int:
        """How many numbers are written in another way than most of their column."""
        return sum(numbers.unusual for numbers in self.numbers.values())

    @property
    def percent(self) -> bool:
        """Whether the rewards are percentages, which were read as shares."""
        column = self.request.numbers.get("reward")
        return column is not None and self.numbers[column].usual == PERCENT

    def notes(self) -> list[str]:
        """What the user should know about the cells."""
        found = []
        for column, numbers in self.numbers.items():
            if (kind := numbers.usual) == PERCENT:
                found.append(f'column "{column}" holds percentages: 12% is read as 0.12')
            elif kind == BOOLEAN:
                found.append(f'column "{column}" holds yes and no: they are read as 1 and 0')
            elif kind not in (PLAIN, DATE, ZONED_DATE):
                found.append(f'column "{column}" holds numbers in {shorten(kind)}')
        reward, count = (self.request.numbers.get(role) for role in ("reward", "count"))
        if reward and count and looks_like_average(reward, self.numbers[reward].usual):
            found.append(
                f'column "{reward}" looks like averages or shares, and with "{count}" every try counts as '
                "exactly that number, which makes results look surer than they are. If it holds shares, give "
                f'successes and trials; if averages, leave out "{count}"'
            )
        if self.skipped:
            found.append(f"{counted(self.skipped, 'row')} without a name or a number left out")
        if without := self._without_rows():
            found.append(without)
        if self.width:
            text = f"more than {grid.MOST_DISTINCT:,} distinct rewards"
            found.append(f"{text}: rounded down to a grid of {self.width:g}")
        return found

    def all_names(self) -> list[list[str]]:
        """The names of each column by their codes."""
        return [list(names.codes) for names in self.names.values()]


def _empty(column: str, row: int) -> str:
    return f'column "{column}" is empty'


def _holds(column: str, cells: Cells, row: int) -> str:
    cell = cells[row]
    return f'column "{column}" holds {shorten(cell if isinstance(cell, str) else name_text(cell))}'


def _counts(column: str, value: Floats, row: int) -> str:
    return f'column "{column}" holds a count of {value[row]:g}'


def _matches(cell: object, option: object) -> bool:
    """Whether a cell has the value that `where` asks for."""
    text = name_text(cell).strip()
    if isinstance(option, int | float) and not isinstance(option, bool):
        return finite_number(text) == option
    return text == (str(option).lower() if isinstance(option, bool) else str(option))
