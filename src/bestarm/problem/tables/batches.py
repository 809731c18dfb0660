"""Pieces of a table on their way from a reader to the fold: some columns of some rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Coded:
    """Cells of any type: the distinct ones, and for each row which of them it holds."""

    distinct: Sequence[object]
    code: NDArray[np.int64]

    def __getitem__(self, row: int) -> object:
        return self.distinct[self.code[row]]


Cells = NDArray[np.float64] | Coded  # numbers, with NaN for a missing one; or any cells


@dataclass(frozen=True)
class Batch:
    """Some rows: their cells by column. `count` says how many rows each one stands for.

    Without `count` each is one row, and batches come in the order of the table. With it, the reader has
    merged equal rows, and the order is lost. With `span`, which is the range of the rewards, it also has
    rounded them down to the grid of that range.
    """

    cells: Mapping[str, Cells]
    count: NDArray[np.int64] | None = None
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Wanted:
    """The columns to read: `numbers`, and `others`, which may hold anything.

    `reward`, if given, is a number that may be rounded to the grid of `bounds` or of its own range, unless
    the rows will be `filtered` afterwards.
    """

    numbers: tuple[str, ...]
    others: tuple[str, ...]
    reward: str | None = None
    bounds: tuple[float, float] | None = None
    filtered: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them, once each."""
        return tuple(dict.fromkeys((*self.others, *self.numbers)))


class Table(Protocol):
    """A table that can be read: a file, several files, a frame, or the result of a query.

    `name` is what errors call it, `header` its columns, and `head` where they are named, such as "line 1".
    `unordered` says why its rows have no order; it is empty if they have one.
    """

    name: str
    head: str
    header: tuple[str, ...]
    unordered: str

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        """The wanted columns, piece by piece; if `merged`, equal rows may be merged on the way."""
        ...

    def place(self, row: int) -> str:
        """Where a row is, for errors, such as "line 7"; rows count from 0."""
        ...


def size(batch: Batch) -> int:
    """The number of entries of a batch."""
    cells = next(iter(batch.cells.values()))
    return len(cells.code) if isinstance(cells, Coded) else len(cells)


def coded(cells: Iterable[object]) -> Coded:
    """Cells by their distinct values.

    >>> coded(["b", "a", "b"])
    Coded(distinct=['b', 'a'], code=array([0, 1, 0]))
    """
    places: defaultdict[object, int] = defaultdict()
    places.default_factory = places.__len__
    code = np.fromiter(map(places.__getitem__, cells), dtype=np.int64)
    return Coded(list(places), code)
