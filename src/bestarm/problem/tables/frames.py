"""Reads frames: pandas, Polars, Arrow, and whatever else Narwhals takes, which ``bestarm[data]`` installs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.tables.batches import Batch, Cells, Wanted, coded
from bestarm.problem.tables.extras import need

if TYPE_CHECKING:
    import narwhals as nw

COUNT = "bestarm: count"  # the name of a column of counts
LAZY = "a lazy frame is a query, whose rows come in any order"


class Frame:
    """A frame as a table. Rows that are merged are counted by the frame's own library."""

    head = ""

    def __init__(self, native: object) -> None:
        narwhals = need("narwhals", "a frame")
        try:
            frame = narwhals.from_native(native)
        except narwhals.exceptions.DuplicateError:
            raise InputError("two columns of the frame have the same name", fix="Rename one") from None
        except TypeError:
            raise InputError(
                f"a {type(native).__name__} is no table",
                expected="a path, or a frame of pandas, Polars, Arrow or DuckDB",
            ) from None
        if not isinstance(frame, narwhals.DataFrame | narwhals.LazyFrame):
            raise InputError(f"a {type(native).__name__} is not a frame", expected="a frame with columns")
        self.frame: nw.DataFrame[Any] | nw.LazyFrame[Any] = frame
        self.name = "the frame"
        self.unordered = LAZY if isinstance(frame, narwhals.LazyFrame) else ""
        self.header = _names(frame)

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        import narwhals as nw

        frame = self.frame.select(*wanted.columns)
        if merged:
            frame = frame.group_by(*wanted.columns).agg(nw.len().alias(COUNT))
        eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        cells = {column: _cells(eager[column], column in wanted.numbers) for column in wanted.columns}
        yield Batch(cells, eager[COUNT].to_numpy().astype(np.int64) if merged else None)

    def place(self, row: int) -> str:
        return "" if self.unordered else f"row {row + 1:,}"


def _names(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> tuple[str, ...]:
    """The names of the columns; InputError unless they are texts."""
    names = frame.collect_schema().names()
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"the frame has a column called {name!r}, which is not text", fix="Rename it")
    return tuple(names)


def _cells(column: nw.Series[Any], number: bool) -> Cells:
    import narwhals as nw

    if number and column.dtype.is_numeric():
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return coded(column.to_list())
