"""Opens a table: a file, a folder or pattern of files, a frame, or a query."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bestarm.errors import InputError
from bestarm.problem.csv_file import demand_columns
from bestarm.problem.tables.batches import Batch, Table, Wanted, size
from bestarm.problem.tables.database import Query
from bestarm.problem.tables.duck import DuckTable, feather, is_relation, parquet
from bestarm.problem.tables.frames import Frame
from bestarm.problem.tables.row_files import ExcelSheet, JsonLines
from bestarm.problem.tables.text_file import TextFile
from bestarm.util.text import counted

KINDS: dict[str, Callable[[Path, str], Table]] = {
    ".csv": TextFile, ".tsv": TextFile, ".tab": TextFile, ".txt": TextFile,
    ".parquet": parquet, ".pq": parquet,
    ".feather": feather, ".arrow": feather, ".ipc": feather,
    ".jsonl": JsonLines, ".ndjson": JsonLines, ".json": JsonLines,
    ".xlsx": ExcelSheet, ".xlsm": ExcelSheet,
}  # fmt: skip


def open_table(
    source: object, *, sql: str | None = None, database: str | None = None, name: str = ""
) -> Table:
    """The table of a source; see ``read_rows``. `name` is what errors call a file."""
    if (sql is None) != (database is None) or (sql is not None and source is not None):
        raise InputError(
            "it is not clear what to read", expected="a table, or both --sql QUERY and --database URL"
        )
    if sql is not None and database is not None:
        return Query(sql, database)
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fspath(source), name)
    if is_relation(source):
        return DuckTable(source, "the relation", file=False)
    return Frame(source)


def _open_path(text: str, name: str) -> Table:
    path = Path(text)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in KINDS and file.is_file())
        found = [
            file
            for file in found
            if not any(part.startswith((".", "_")) for part in file.parts[len(path.parts) :])
        ]
        if not found:
            raise InputError(
                "there is no table in this folder", where=text, expected=f"files such as {_SUFFIXES}"
            )
    elif path.exists() or not glob.has_magic(text):
        found = [path]
    else:
        found = sorted(Path(file) for file in glob.glob(text, recursive=True))
        if not found:
            raise InputError("no file matches this pattern", where=text)
    tables = [_open_file(file, name if len(found) == 1 else "") for file in found]
    return tables[0] if len(tables) == 1 else Several(tables, text)


def _open_file(path: Path, name: str) -> Table:
    name = name or str(path)
    if not path.exists():
        raise InputError("there is no such file", where=name, fix="Check the path")
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise InputError(
            f"files that end with {path.suffix!r} are not read"
            if path.suffix
            else "what is in this file is not clear",
            where=name,
            expected=f"a name that ends with {_SUFFIXES}",
        )
    return kind(path, name)


class Several:
    """Several tables with the same columns, one after another."""

    head = ""

    def __init__(self, tables: Sequence[Table], name: str) -> None:
        self.tables, self.name = tables, f"{name} ({counted(len(tables), 'file')})"
        self.unordered = "they come from several files"
        self.header = tuple(dict.fromkeys(column for table in tables for column in table.header))
        self._starts: list[int] = []

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        self._starts, row = [], 0
        for table in self.tables:
            demand_columns(table.header, wanted.columns, place_of(table, table.head))
            self._starts.append(row)
            for batch in table.batches(wanted, merged=merged):
                row += size(batch)
                yield batch

    def place(self, row: int) -> str:
        last = max(k for k, start in enumerate(self._starts) if start <= row)
        table = self.tables[last]
        return f"{table.name}, {table.place(row - self._starts[last])}"


def place_of(table: Table, place: str) -> str:
    """A place in a table, for errors."""
    return f"{table.name}, {place}" if place else table.name


_SUFFIXES = ", ".join(KINDS)
