"""Reads CSV and TSV files as tables: large ones with PyArrow if it is installed, else Python's csv module."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bestarm.problem.csv_file import open_csv
from bestarm.problem.tables.batches import Batch, Cells, Wanted, coded, size
from bestarm.problem.tables.cells import MISSING

ROWS = 2**12  # in a batch
LARGE = 2**20  # bytes, above which it pays to load PyArrow
BLOCK = 2**21  # bytes that PyArrow parses at once
WHOLE = 2**28  # bytes up to which it parses a whole file at once, on all processors


class _Slow(Exception):
    """PyArrow can't read on; the csv module can, or says in which line it is stuck, and why."""


class TextFile:
    """A CSV or TSV file with column names in its first line."""

    head = "line 1"
    unordered = ""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.separator = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
        with open_csv(path, self.name, self.separator) as file:
            file.demand_commas()
            self.header = tuple(file.header)

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        done = 0  # rows
        try:
            for batch in self._arrow(wanted):
                done += size(batch)
                yield batch
        except _Slow:
            yield from self._python(wanted, done)

    def _python(self, wanted: Wanted, skip: int) -> Iterator[Batch]:
        """Read with the csv module; the first rows are skipped."""
        places = [self.header.index(column) for column in wanted.columns]
        with open_csv(self.path, self.name, self.separator) as file:
            for block in file.blocks(ROWS):
                columns = list(zip(*block[skip:], strict=True))
                skip = max(0, skip - len(block))
                if columns:
                    read = {c: _numbers if c in wanted.numbers else coded for c in wanted.columns}
                    pairs = zip(read.items(), places, strict=True)
                    yield Batch({column: cells(columns[k]) for (column, cells), k in pairs})

    def _arrow(self, wanted: Wanted) -> Iterator[Batch]:
        """Read with PyArrow, which is much faster but only takes plain numbers."""
        if self.path.stat().st_size < LARGE or any("\n" in column for column in self.header):
            raise _Slow
        try:
            import pyarrow as pa
            from pyarrow import csv
        except ImportError:
            raise _Slow from None
        from bestarm.problem.tables.arrow import cells_of

        names = pa.dictionary(pa.int32(), pa.string())
        types = {column: pa.float64() if column in wanted.numbers else names for column in wanted.columns}
        lacking = [change(word) for word in MISSING for change in (str, str.upper, str.title)]
        small = self.path.stat().st_size <= WHOLE
        options = (
            csv.ReadOptions(block_size=BLOCK, skip_rows=1, column_names=list(self.header)),
            csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=not small or _holds(self.path, b'"')
            ),
            csv.ConvertOptions(column_types=types, include_columns=list(wanted.columns), null_values=lacking),
        )
        try:
            if small:
                pieces = csv.read_csv(self.path, *options).to_batches()
            else:
                pieces = csv.open_csv(self.path, *options)
            for piece in pieces:
                if len(piece):
                    yield Batch(cells_of(piece, wanted))
        except pa.ArrowInvalid:
            raise _Slow from None

    def place(self, row: int) -> str:
        with open_csv(self.path, self.name, self.separator) as file:
            return next(f"line {found.line}" for k, found in enumerate(file) if k == row)


def _holds(path: Path, text: bytes) -> bool:
    """Whether a file holds a text. Without quotes, every line break of a CSV file ends a row."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def _numbers(cells: Sequence[str]) -> Cells:
    """Cells as numbers, if all of them are plain ones."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return coded(cells)
    plain = np.isfinite(values).all() and "_" not in "".join(cells)
    return values if plain else coded(cells)
