"""Reads Parquet and Feather files and DuckDB relations: DuckDB counts equal rows, and only counts get here.

Requires DuckDB and PyArrow, which ``bestarm[data]`` installs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.tables import grid
from bestarm.problem.tables.arrow import cells_of
from bestarm.problem.tables.batches import Batch, Wanted
from bestarm.problem.tables.extras import need

if TYPE_CHECKING:
    import duckdb

ROWS = 2**17  # in a batch
MEMORY = "2GB"  # what DuckDB may use before it writes to disk
NUMERIC = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "REAL", "BOOLEAN")  # as the names of types begin or end
PARTS = "Parquet and Feather are written in parts, in any order"


class DuckTable:
    """A DuckDB relation as a table: one of the user's, or all of a `file`, whose rows have numbers."""

    head = ""

    def __init__(self, relation: duckdb.DuckDBPyRelation, name: str, *, file: bool) -> None:
        self.relation, self.name, self.file = relation, name, file
        self.unordered = PARTS if file else "a DuckDB relation is a query, whose rows come in any order"
        self.header = tuple(relation.columns)
        self.types = dict(zip(self.header, map(str, relation.types), strict=True))

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        span = self._span(wanted) if merged else None
        step = None if span is None else grid.grid_step(*(wanted.bounds or span))
        parts = [self._cell(column, column in wanted.numbers) for column in wanted.columns]
        if step is not None:
            place = wanted.columns.index(wanted.reward or "")
            parts[place] = f"floor({parts[place]} / {step!r}) * {step!r}"
        listed = ", ".join(f'{part} as "c{k}"' for k, part in enumerate(parts))
        count = ", count(*) as n" if merged else ""
        found = self._ask(f"select {listed}{count} from t" + " group by all" * merged)
        read = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch  # the old name
        for piece in read(ROWS):
            n = piece.column(len(parts)).to_numpy().astype(np.int64) if merged else None
            yield Batch(cells_of(piece, wanted), n, span)

    def _ask(self, query: str) -> Any:
        return self.relation.query("t", query)

    def _cell(self, column: str, number: bool) -> str:
        """A column in SQL; numbers become floats."""
        quoted = _quoted(column)
        kind = self.types[column]
        if number and (kind.startswith(NUMERIC) or kind.endswith("INT")):
            return f"cast({quoted} as double)"
        return f"cast({quoted} as varchar)" if kind.startswith("ENUM") else quoted

    def _span(self, wanted: Wanted) -> tuple[float, float] | None:
        """The range of the rewards, if they certainly have too many distinct values to be counted one by one.

        Only then are they rounded here; the fold, which sees all of the table, decides the other cases.
        """
        if wanted.reward is None or wanted.filtered:
            return None
        reward = self._cell(wanted.reward, True)
        if not reward.startswith("cast"):
            return None
        query = f"select approx_count_distinct({reward}), min({reward}), max({reward}) from t"
        distinct, low, high = self._ask(query).fetchall()[0]
        if distinct < 2 * grid.MOST_DISTINCT or not np.isfinite([low, high]).all():
            return None
        bounds = wanted.bounds or (low, high)
        return (low, high) if bounds[0] <= low and high <= bounds[1] else None

    def place(self, row: int) -> str:
        return f"row {row + 1:,}" if self.file else ""


def is_relation(source: object) -> TypeGuard[duckdb.DuckDBPyRelation]:
    """Whether a source is a DuckDB relation; DuckDB is not loaded for that."""
    return type(source).__name__ == "DuckDBPyRelation"


def parquet(path: Path, name: str) -> DuckTable:
    """The table of a Parquet file."""
    duckdb = need("duckdb", "Parquet")
    try:
        return DuckTable(_connection().read_parquet(str(path)), name, file=True)
    except duckdb.Error as error:
        raise InputError(f"this is not a Parquet file: {str(error).splitlines()[0]}", where=name) from None


def feather(path: Path, name: str) -> DuckTable:
    """The table of a Feather file, which is Arrow's file format."""
    need("duckdb", "Feather")
    pa = need("pyarrow", "Feather")
    from pyarrow import dataset

    try:
        return DuckTable(_connection().from_arrow(dataset.dataset(path, format="feather")), name, file=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"this is not a Feather file: {str(error).splitlines()[0]}", where=name) from None


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    import duckdb

    found = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": tempfile.gettempdir()})
    found.execute("set enable_progress_bar = false")  # it would be printed on stdout
    return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
