"""Rewards by cell of a table, and how equal ones are merged and counted."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.tables.kinds import Floats, Integers, Mask

MANY = 2**16  # entries, above which it pays to choose how they are merged
SAMPLE = 2**14  # of them, from which that is chosen


@dataclass(frozen=True)
class Entries:
    """Rewards: for each entry a code for each column of names, a value, how often it occurred, and when."""

    codes: Integers  # names by entries
    value: Floats
    count: Integers
    time: Floats | None = None

    @staticmethod
    def joined(parts: Sequence[Entries]) -> Entries:
        """Several pieces as one."""
        times = [part.time for part in parts if part.time is not None]
        return Entries(
            np.concatenate([part.codes for part in parts], axis=1),
            np.concatenate([part.value for part in parts]),
            _joined_counts([part.count for part in parts]),
            np.concatenate(times) if times else None,
        )

    def chosen(self, places: Mask | Integers) -> Entries:
        """Some of the entries."""
        time = None if self.time is None else self.time[places]
        return Entries(self.codes[:, places], self.value[places], self.count[places], time)


def ones(size: int) -> Integers:
    """A count of 1 for each of many entries, which takes no memory and can't be changed."""
    return np.broadcast_to(np.int64(1), (size,))


def _joined_counts(parts: Sequence[Integers]) -> Integers:
    """Several pieces as one; those of ``ones`` remain without memory."""
    if all(part.strides == (0,) and part[:1].all() for part in parts):
        return ones(sum(map(len, parts)))
    return np.concatenate(parts)


def merged(entries: Entries) -> Entries:
    """The entries sorted by codes and value, with equal ones merged.

    >>> found = merged(Entries(np.array([[1, 0, 1]]), np.array([0.5, 2.0, 0.5]), np.array([1, 1, 3])))
    >>> found.codes.tolist(), found.value.tolist(), found.count.tolist()
    ([[0, 1]], [2.0, 0.5], [1, 4])
    """
    if not len(entries.value):
        return entries
    entries = replace(entries, value=entries.value + 0.0)  # −0 is 0
    cell = cells_of(entries.codes)
    return _hashed(entries, cell) or _sorted(entries, cell)


def _sorted(entries: Entries, cell: NDArray[np.integer]) -> Entries:
    """Sort each cell by itself, which is much faster than sorting by two keys."""
    order = np.argsort(cell, kind="stable")
    cell, value, single = cell[order], entries.value[order], bool((entries.count == 1).all())
    count = entries.count if single else entries.count[order]
    starts = np.flatnonzero(_changes(cell))

    def sort(piece: tuple[int, int]) -> None:
        a, b = piece
        if single:
            value[a:b].sort()
        else:
            inner = np.argsort(value[a:b])
            value[a:b], count[a:b] = value[a:b][inner], count[a:b][inner]

    pieces = list(pairwise([*starts.tolist(), len(cell)]))
    if len(cell) < MANY:
        for piece in pieces:
            sort(piece)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(sort, pieces))
    new = _changes(value)
    new[starts] = True
    if single and new.all():  # real numbers rarely occur twice
        codes = np.repeat(entries.codes[:, order[starts]], np.diff(starts, append=len(value)), axis=1)
        return Entries(codes, value, count)
    first = np.flatnonzero(new)
    times = np.diff(first, append=len(value)) if single else np.add.reduceat(count, first)
    codes = np.repeat(entries.codes[:, order[starts]], np.add.reduceat(new, starts, dtype=np.int64), axis=1)
    return Entries(codes, value[first], times)


def _changes(values: NDArray[np.generic]) -> Mask:
    """Where a value differs from the one before."""
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def _hashed(entries: Entries, cell: NDArray[np.integer]) -> Entries | None:
    """Count in a table of cells and distinct values; None if there are too many, or PyArrow is not in use."""
    value, count = entries.value, entries.count
    if len(value) < MANY or "pyarrow" not in sys.modules:
        return None
    some = value[:: len(value) // SAMPLE]
    if len(np.unique(some)) > 0.75 * len(some):
        return None
    import pyarrow as pa

    coded = pa.array(value).dictionary_encode()
    distinct = coded.dictionary.to_numpy()
    size = (int(cell.max()) + 1) * len(distinct)
    if size > 4 * len(value):
        return None
    order = np.argsort(distinct)
    rank = np.empty(len(distinct), dtype=np.int64)
    rank[order] = np.arange(len(distinct))
    key = cell.astype(np.int64) * len(distinct) + rank[coded.indices.to_numpy()]
    many = not bool((count == 1).all())
    if many and count.sum() > 2**53:  # weights are summed as floats
        return None
    table = np.bincount(key, weights=count if many else None, minlength=size)
    found = np.flatnonzero(table)
    codes = np.array(np.unravel_index(found // len(distinct), _sizes(entries.codes)))
    return Entries(codes, distinct[order][found % len(distinct)], table[found].astype(np.int64))


def cells_of(codes: Integers) -> NDArray[np.integer]:
    """One number per combination of codes, which sorts like them; small ones sort faster.

    >>> cells_of(np.array([[0, 1, 1], [2, 0, 1]]))
    array([2, 3, 4], dtype=uint16)
    """
    sizes = _sizes(codes)
    kind: type[np.integer] = np.uint16 if math.prod(sizes) < 2**16 else np.int64
    cell: NDArray[np.integer] = np.zeros(codes.shape[1], dtype=kind)
    for code, size in zip(codes, sizes, strict=True):
        cell = cell * kind(size) + code.astype(kind)
    return cell


def _sizes(codes: Integers) -> list[int]:
    """How many codes each column can have."""
    return [int(code.max(initial=0)) + 1 for code in codes]
