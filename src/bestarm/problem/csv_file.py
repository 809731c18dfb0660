"""Reads CSV files: UTF-8, commas (or tabs) between columns, column names in the first line.

A file that can't be read raises InputError with the file and the line. A file that is something else, such as
Latin-1 text or Parquet, is called by its name.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from bestarm.errors import UNSHOWN, InputError, RewardError
from bestarm.util.text import nearest

MOST_NAMED = 20  # columns in a message

OTHER_SEPARATORS = {";": '";"', "\t": "tabs", "|": '"|"'}  # and their names in messages

SAVE = 'Save it as "CSV UTF-8"'

# How files that are not text start, and what they are.
MAGIC = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "a Feather (Arrow) file",
    b"PK\x03\x04": "an Excel or zip file",
    b"\xd0\xcf\x11\xe0": "an old Excel file (.xls)",
    b"\x1f\x8b": "a gzip file",
    b"SQLite format 3": "an SQLite database",
}
FIXES = {
    "a Parquet file": "Give it a name that ends with .parquet",
    "a Feather (Arrow) file": "Give it a name that ends with .feather",
    "an Excel or zip file": "If it is an Excel file, give it a name that ends with .xlsx",
    "an old Excel file (.xls)": "Save it as .xlsx or CSV",
    "a gzip file": "Unpack it",
    "an SQLite database": "Read it with --sql QUERY --database sqlite:///FILE",
}


@dataclass(frozen=True)
class Row:
    """The cells of one row by column, and the number of the line where it ends."""

    line: int
    cells: Mapping[str, str]


class CsvFile:
    """An open CSV file: its column names, and an iterator over its rows; see ``open_csv``."""

    def __init__(self, file: TextIO, path: Path, where: str, separator: str) -> None:
        self.path, self.where, self.separator = path, where, separator
        self._reader = csv.reader(file, delimiter=separator)
        self.header = [name.strip() for name in next(self._reader, [])]
        if not self.header:
            raise InputError("the file is empty", where=where, expected="a first line with column names")
        if twice := [name for name in self.header if self.header.count(name) > 1]:
            raise repeated(twice[0], f"{where}, line 1")

    def demand(self, *columns: str, fix: str = "") -> None:
        """Raise InputError if one of these columns is missing.

        By default the error suggests a column with a similar name. With `fix`, which says what the user can
        do, it lists the columns instead: a default name resembles others only by chance.
        """
        if not set(columns) <= set(self.header):
            self.demand_commas()
        demand_columns(self.header, columns, f"{self.where}, line 1", fix)

    def demand_commas(self) -> None:
        """Raise InputError if the first line is one cell that looks separated by something else."""
        for sign, name in OTHER_SEPARATORS.items():
            if len(self.header) == 1 and sign in self.header[0] and self.separator == ",":
                raise InputError(
                    f"this looks separated by {name}",
                    where=f"{self.where}, line 1",
                    expected="commas between columns, and a decimal point in numbers such as 3.5",
                    fix="Save it in that format, or as an Excel file (.xlsx)",
                )

    @property
    def line(self) -> int:
        """The number of the last line that was read."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[Row]:
        for cells in filter(None, self._reader):
            self._check_length(cells)
            yield Row(self.line, dict(zip(self.header, cells, strict=True)))

    def blocks(self, rows: int) -> Iterator[list[list[str]]]:
        """The rows without the first line, some at a time."""
        full = filter(None, self._reader)
        while block := list(itertools.islice(full, rows)):
            if set(map(len, block)) != {len(self.header)}:
                with open_csv(self.path, self.where, self.separator) as again:
                    list(again)  # raises InputError with the line
            yield block

    def _check_length(self, cells: list[str]) -> None:
        if len(cells) != len(self.header):
            raise InputError(
                f"{len(cells)} cell{'s' * (len(cells) != 1)}",
                where=f"{self.where}, line {self.line}",
                expected=f"{len(self.header)}, as in the first line",
            )


@contextlib.contextmanager
def open_csv(path: Path, where: str = "", separator: str = ",") -> Iterator[CsvFile]:
    """Open a CSV file for reading.

    Parameters
    ----------
    path
        The file.
    where
        The name of the file in errors; its path by default.
    separator
        What stands between cells.

    Raises
    ------
    InputError
        If the file can't be read, is not text, is empty, names a column twice, or has a row of another
        length. This may also be raised while rows are read inside the ``with`` block.
    """
    where = where or str(path)
    try:
        with path.open("rb") as start:
            _demand_text(start.read(4096), where)
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield CsvFile(file, path, where, separator)
    except UnicodeDecodeError as error:
        raise _not_utf8(path, where) from error
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=where) from None
    except csv.Error as error:
        raise InputError(f"can't be read: {error}", where=where) from None


def demand_columns(header: Sequence[str], columns: Iterable[str], where: str, fix: str = "") -> None:
    """Raise InputError if one of these columns is missing; see ``CsvFile.demand``."""
    for column in columns:
        if column not in header:
            more = ", …" if len(header) > MOST_NAMED else ""
            listed = f"The columns are: {', '.join(header[:MOST_NAMED])}{more}. {fix}"
            what = f'there is no column "{column}"'
            raise RewardError(  # a table without column names has data in its first line
                what,
                where=where,
                fix=listed if fix else nearest(column, header),
                plain=InputError(f"{what} (the others are {UNSHOWN})", where=where, fix=fix),
            )


def repeated(column: str, where: str) -> RewardError:
    """The error for a column that is named twice."""
    plain = InputError("a column appears more than once", where=where)
    return RewardError(f'column "{column}" appears more than once', where=where, plain=plain)


def _demand_text(start: bytes, where: str) -> None:
    """Raise InputError if a file that starts like this is not a CSV file in UTF-8, as far as one can see."""
    kind = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    if kind is not None:
        raise InputError(
            f"this is {kind}, not a text file", where=where, expected="CSV", fix=FIXES.get(kind, "")
        )
    if b"\0" in start or start.startswith((b"\xff\xfe", b"\xfe\xff")):
        sixteen = start.startswith((b"\xff\xfe", b"\xfe\xff")) or start.count(b"\0") * 3 > len(start)
        what = "this looks like UTF-16" if sixteen and len(start) > 4 else "this is not a text file"
        raise InputError(what, where=where, expected="CSV in UTF-8", fix=SAVE)


def _not_utf8(path: Path, where: str) -> InputError:
    """The error for text in another encoding: where it stops being UTF-8."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            if any(byte < 32 and byte != 9 for byte in line):
                return InputError(f"this is not a text file (line {number})", where=where)
            word = line[max(0, error.start - 10) : error.start + 10].decode("cp1252", "replace").strip()
            place = f"{where}, line {number}"
            what = "this is not UTF-8, and looks like Latin-1 or Windows-1252"
            plain = InputError(what, where=place, fix=SAVE)
            return RewardError(f"{what} ({word!r})", where=place, fix=SAVE, plain=plain)
    return InputError("this is not a text file", where=where)


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
