"""Reads files row by row in Python: JSON lines, and the first sheet of an Excel file."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem.csv_file import repeated
from bestarm.problem.tables.batches import Batch, Wanted, coded
from bestarm.problem.tables.extras import need
from bestarm.util.text import listed

ROWS = 2**16  # in a batch
HEAD_ROWS = 20  # of an Excel file, in which all cells must be in columns with names
HEAD = 1000  # lines in which the columns of JSON lines are looked for


class JsonLines:
    """A file with one JSON object per line; its keys are the columns. A missing key is an empty cell."""

    head = ""
    unordered = ""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        found = (key for _, row in itertools.islice(self._objects(), HEAD) for key in row)
        self.header = tuple(dict.fromkeys(found))

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        objects = self._objects()
        while block := [row for _, row in itertools.islice(objects, ROWS)]:
            yield Batch({c: coded(_plain(row.get(c)) for row in block) for c in wanted.columns})

    def place(self, row: int) -> str:
        return next(f"line {line}" for k, (line, _) in enumerate(self._objects()) if k == row)

    def _objects(self) -> Iterator[tuple[int, dict[str, object]]]:
        """The objects, with the numbers of their lines."""
        decoder = msgspec.json.Decoder(dict[str, object])
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield number, decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"this is not a JSON object: {error}",
                where=f"{self.name}, line {number}",
                expected='one object per line, such as {"site": "north", "reward": 0.5}',
            ) from None
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=self.name) from None


class ExcelSheet:
    """The first sheet of an Excel file, with column names in its first row that is not empty.

    The first column may have no name, as pandas writes it, and is then called "". In the first rows all other
    cells must be in columns with names: a title above the names would hide all columns but one.
    """

    unordered = ""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        with self._book() as book:
            first, *others = (sheet.title for sheet in book.worksheets)
        if others:
            self.name = f'{name}, sheet "{first}"'
        rows = list(itertools.islice(self._rows(), HEAD_ROWS))
        if len(rows) < 2:
            raise InputError(
                "the first sheet has no rows below its first" if rows else "the first sheet is empty",
                where=self.name,
                expected="a first row with column names, then rows",
                fix=f"Put the sheet with the rows first (the others: {listed(others)})" if others else "",
            )
        (number, top), *below = rows
        self.head = f"row {number}"
        names = [str(cell).strip() if cell is not None else "" for cell in top]
        self._places = {column: k for k, column in enumerate(names) if column or k == 0}
        self.header = tuple(self._places)
        if twice := [column for column in names if column and names.count(column) > 1]:
            raise repeated(twice[0], f"{self.name}, {self.head}")
        self._demand_names(below)

    def _demand_names(self, rows: Iterable[tuple[int, Sequence[object]]]) -> None:
        """Raise InputError if one of these rows has a cell in a column without a name."""
        named = set(self._places.values())
        for number, cells in rows:
            for k, cell in enumerate(cells):
                if cell is not None and k not in named:
                    raise InputError(
                        f"row {number} has a cell in column {k + 1}, which {self.head} gives no name",
                        where=self.name,
                        expected="the names of all columns in the first row",
                        fix="Delete titles above the names and notes beside the table",
                    )

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        rows, width = self._rows(), 1 + max(self._places.values())
        next(rows)
        places = [self._places[column] for column in wanted.columns]
        while block := [(*cells, *[None] * width)[:width] for _, cells in itertools.islice(rows, ROWS)]:
            columns = list(zip(*block, strict=True))
            yield Batch({c: coded(columns[k]) for c, k in zip(wanted.columns, places, strict=True)})

    def place(self, row: int) -> str:
        return next(f"row {line}" for k, (line, _) in enumerate(self._rows()) if k == row + 1)

    def _rows(self) -> Iterator[tuple[int, Sequence[object]]]:
        """The rows that are not empty, with their numbers."""
        with self._book() as book:
            for number, cells in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
                if any(cell is not None for cell in cells):
                    yield number, cells

    @contextlib.contextmanager
    def _book(self) -> Iterator[Any]:
        openpyxl = need("openpyxl", "Excel")
        try:
            book = openpyxl.load_workbook(self.path, read_only=True, data_only=True)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"this is not an Excel file (.xlsx): {error}", where=self.name) from None
        try:
            yield book
        finally:
            book.close()


def _plain(cell: object) -> object:
    """A cell that can be compared: lists and objects as text."""
    return cell if isinstance(cell, str | float | int | bool | None | datetime.date) else str(cell)
