"""Reads CSV files row by row: UTF-8, commas between columns, column names in the first line.

A file that can't be read raises InputError with the file and the line.
"""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from bestarm.errors import InputError
from bestarm.util.text import nearest

MOST_NAMED = 20  # columns in a message

OTHER_SEPARATORS = {";": '";"', "\t": "tabs", "|": '"|"'}  # and their names in messages


@dataclass(frozen=True)
class Row:
    """The cells of one row by column, and the number of the line where it ends."""

    line: int
    cells: Mapping[str, str]


class CsvFile:
    """An open CSV file: its column names, and an iterator over its rows; see ``open_csv``."""

    def __init__(self, file: TextIO, where: str) -> None:
        self.where = where
        self._reader = csv.reader(file)
        self.header = [name.strip() for name in next(self._reader, [])]
        if not self.header:
            raise InputError("the file is empty", where=where, expected="a first line with column names")
        if twice := [name for name in self.header if self.header.count(name) > 1]:
            raise InputError(f'column "{twice[0]}" appears more than once', where=f"{where}, line 1")

    def demand(self, *columns: str, fix: str = "") -> None:
        """Raise InputError if one of these columns is missing.

        By default the error suggests a column with a similar name. With `fix`, which says what the user can
        do, it lists the columns instead: a default name resembles others only by chance.
        """
        for column in columns:
            if column not in self.header:
                self.demand_commas()
                more = ", …" if len(self.header) > MOST_NAMED else ""
                listed = f"The columns are: {', '.join(self.header[:MOST_NAMED])}{more}. {fix}"
                raise InputError(
                    f'there is no column "{column}"',
                    where=f"{self.where}, line 1",
                    fix=listed if fix else nearest(column, self.header),
                )

    def demand_commas(self) -> None:
        """Raise InputError if the first line is one cell that looks separated by something else."""
        for sign, name in OTHER_SEPARATORS.items():
            if len(self.header) == 1 and sign in self.header[0]:
                raise InputError(
                    f"this looks separated by {name}",
                    where=f"{self.where}, line 1",
                    expected="commas between columns, and a decimal point in numbers such as 3.5",
                    fix="Save it in that format",
                )

    def __iter__(self) -> Iterator[Row]:
        for cells in filter(None, self._reader):
            if len(cells) != len(self.header):
                raise InputError(
                    f"{len(cells)} cell{'s' * (len(cells) != 1)}",
                    where=f"{self.where}, line {self._reader.line_num}",
                    expected=f"{len(self.header)}, as in the first line",
                )
            yield Row(self._reader.line_num, dict(zip(self.header, cells, strict=True)))


@contextlib.contextmanager
def open_csv(path: Path, where: str = "") -> Iterator[CsvFile]:
    """Open a CSV file for reading.

    Parameters
    ----------
    path
        The file.
    where
        The name of the file in errors; its path by default.

    Raises
    ------
    InputError
        If the file can't be read, is not text, is empty, names a column twice, or has a row of another
        length. This may also be raised while rows are read inside the ``with`` block.
    """
    where = where or str(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield CsvFile(file, where)
    except UnicodeDecodeError as error:
        raise InputError(f"this is not a text file (byte {error.start})", where=where) from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=where) from None
    except csv.Error as error:
        raise InputError(f"can't be read: {error}", where=where) from None


def finite_number(text: str) -> float | None:
    """The text as a finite number, or None; numbers with underscores are not accepted.

    >>> finite_number("3.5"), finite_number("1_000"), finite_number("nan"), finite_number("")
    (3.5, None, None, None)
    """
    try:
        number = math.nan if "_" in text else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
