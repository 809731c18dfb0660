"""Reads files row by row in Python: JSON lines, and the first sheet of an Excel file."""

from __future__ import annotations

import datetime
import itertools
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bestarm.errors import InputError
from bestarm.problem.csv_file import repeated
from bestarm.problem.tables.batches import Batch, Wanted, coded
from bestarm.problem.tables.extras import need

ROWS = 2**16  # in a batch
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
    """The first sheet of an Excel file, with column names in its first row."""

    head = "row 1"
    unordered = ""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        rows = self._rows()
        self.header = tuple(str(cell).strip() for cell in next(rows, (0, ()))[1] if cell is not None)
        if not self.header:
            raise InputError("the first sheet is empty", where=name, expected="a first row with column names")
        if twice := [column for column in self.header if self.header.count(column) > 1]:
            raise repeated(twice[0], f"{name}, row 1")

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        rows, width = self._rows(), len(self.header)
        next(rows)
        places = [self.header.index(column) for column in wanted.columns]
        while block := [(*cells, *[None] * width)[:width] for _, cells in itertools.islice(rows, ROWS)]:
            columns = list(zip(*block, strict=True))
            yield Batch({c: coded(columns[k]) for c, k in zip(wanted.columns, places, strict=True)})

    def place(self, row: int) -> str:
        return next(f"row {line}" for k, (line, _) in enumerate(self._rows()) if k == row + 1)

    def _rows(self) -> Iterator[tuple[int, Sequence[object]]]:
        """The rows that are not empty, with their numbers."""
        openpyxl = need("openpyxl", "Excel")
        try:
            book = openpyxl.load_workbook(self.path, read_only=True, data_only=True)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"this is not an Excel file (.xlsx): {error}", where=self.name) from None
        try:
            for number, cells in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
                if any(cell is not None for cell in cells):
                    yield number, cells
        finally:
            book.close()


def _plain(cell: object) -> object:
    """A cell that can be compared: lists and objects as text."""
    return cell if isinstance(cell, str | float | int | bool | None | datetime.date) else str(cell)
