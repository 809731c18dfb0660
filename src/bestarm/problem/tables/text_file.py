"""Reads CSV and TSV files as tables: with PyArrow where it is installed, else with Python's csv module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bestarm.problem.csv_file import open_csv
from bestarm.problem.tables.batches import Batch, Wanted, coded

ROWS = 2**16  # in a batch


class TextFile:
    """A CSV or TSV file with column names in its first line."""

    unordered = ""

    def __init__(self, path: Path, name: str = "") -> None:
        self.path, self.name = path, name or str(path)
        self.separator = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
        with open_csv(path, self.name, self.separator) as file:
            self.header = tuple(file.header)

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        with open_csv(self.path, self.name, self.separator) as file:
            file.demand(*wanted.columns)
            places = [self.header.index(column) for column in wanted.columns]
            for block in file.blocks(ROWS):
                columns = list(zip(*block, strict=True))
                yield Batch({c: coded(columns[k]) for c, k in zip(wanted.columns, places, strict=True)})

    def place(self, row: int) -> str:
        with open_csv(self.path, self.name, self.separator) as file:
            return next(f"line {found.line}" for k, found in enumerate(file) if k == row)
