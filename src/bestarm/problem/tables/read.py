"""Reads recorded rewards from any table: the entry of this package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bestarm.errors import InputError, RewardError
from bestarm.problem.counted import Rows
from bestarm.problem.csv_file import demand_columns
from bestarm.problem.tables.batches import Table
from bestarm.problem.tables.columns import Columns
from bestarm.problem.tables.entries import cells_of
from bestarm.problem.tables.fold import HOLD, MOST_SHOWN, Fold, Request
from bestarm.problem.tables.names import settled
from bestarm.problem.tables.ratings import ratings_of
from bestarm.problem.tables.sources import open_table, place_of
from bestarm.util.text import counted, shorten

ALL = "all"  # the site where no column names one

Progress = Callable[[int], None]  # is told how many rows were read so far


def read_rows(
    source: object,
    columns: Columns,
    *,
    ordered: bool = False,
    sql: str | None = None,
    database: str | None = None,
    where: Mapping[str, object] | None = None,
    missing: str = "error",
    bounds: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Read the rewards of a table.

    Parameters
    ----------
    source : path, frame or None
        A CSV, TSV, Parquet, Feather, JSON lines (.jsonl, .ndjson) or Excel (.xlsx) file; a folder or a
        pattern such as ``data/*.parquet``; a pandas or Polars frame, an Arrow table or a DuckDB relation.
        None with `sql`. Everything but CSV and TSV needs the extra ``data``.
    columns : Columns
        Which column is what.
    ordered : bool
        Keep the rows in the order of the column ``columns.time``; without one, in the order of the table,
        which must be one CSV or TSV file or a frame. ``batch`` numbers the rows with the same time alike.
        Otherwise the order is lost and rewards are counted, by the engine that reads the table where there
        is one, so that a large table never is in memory.
    sql, database : str, optional
        A query and SQLAlchemy's address of the database that answers it.
    where : mapping, optional
        Values that a row must have in other columns; a list means any of them.
    missing : {"error", "skip"}
        What to do with rows without a name or a number.
    bounds : tuple of float, optional
        Bounds of the rewards: one outside is an error. They also fix the grid (see Returns).
    progress : callable, optional
        Is called with the number of rows read so far.

    Returns
    -------
    Rows
        Names are sorted. Without `ordered`, entries are sorted by site, option and value. With more than
        10⁶ distinct values they are then rounded down to a grid: ``width`` is its step, and each reward is in
        [value, value + width). ``notes`` say what the user should know about the table.

    Raises
    ------
    InputError
        If the table can't be read. The message names the first bad cell and says how many more there are.

    Examples
    --------
    >>> shops = Columns(option="courier", site="city", reward="minutes late")
    >>> rows = read_rows("examples/deliveries.csv", shops)
    >>> rows.sites, rows.total
    (('north', 'south'), 200)
    """
    table = open_table(source, sql=sql, database=database)
    numbers = {key: getattr(columns, key) for key in ("reward", "count", "successes", "trials")}
    request = Request(
        columns.names, {key: name for key, name in numbers.items() if name is not None}, columns.time,
        where or {}, missing, bounds, ordered, ratings=ratings_of(columns.ratings) if columns.ratings else {},
    )  # fmt: skip
    fold = read_table(table, request, progress)
    entries = fold.entries()
    notes = fold.notes()
    names: list[tuple[str, ...]] = [(ALL,)]
    codes = [np.zeros(len(entries.value), dtype=np.int64)]
    for column, raw, code in zip(request.names, fold.all_names(), entries.codes, strict=True):
        used = np.flatnonzero(np.bincount(code, minlength=len(raw)))
        texts, more = settled([raw[k] for k in used], column)
        place = np.zeros(len(raw), dtype=np.int64)
        place[used[np.argsort(texts)]] = np.arange(len(used))
        names.append(tuple(sorted(texts)))
        codes.append(code if (place == np.arange(len(raw))).all() else place[code])
        notes += more
    batch = None
    if not ordered:  # values are sorted already
        cells = cells_of(np.array(codes[-2:]))
        if (cells[1:] < cells[:-1]).any():  # names came in another order
            order = np.argsort(cells, kind="stable")
            entries, codes = entries.chosen(order), [code[order] for code in codes]
    elif entries.time is not None:  # rows with the same time came together
        batch = np.cumsum(np.diff(entries.time, prepend=entries.time[:1]) != 0)
    return Rows(
        names[-2], names[-1], codes[-2], codes[-1], entries.value, np.ascontiguousarray(entries.count),
        fold.width, tuple(notes), batch, fold.percent,
    )  # fmt: skip


def read_table(table: Table, request: Request, progress: Progress | None = None) -> Fold:
    """Fold a table; InputError for the first bad cell, with the number of others."""
    _check(table, request)
    fold = Fold(request)
    for batch in table.batches(request.wanted, merged=not request.ordered):
        fold.take(batch)
        if progress is not None:
            progress(fold.rows)
    if fold.bad or fold.unusual:
        raise _complaint(table, fold)
    if not fold.used:
        raise _no_row(table, fold)
    _check_percentages(table, fold)
    return fold


def _no_row(table: Table, fold: Fold) -> InputError:
    """What `where` asks for and the table does not have."""
    for column, held in fold.held.items():
        if column not in fold.asked and held:
            value = fold.request.where[column]
            asked = " or ".join(map(str, value)) if isinstance(value, list) else str(value)
            names = sorted(held)
            shown = ", ".join(shorten(name) for name in names[:MOST_SHOWN])
            more = ", …" if len(names) > MOST_SHOWN else ""
            return InputError(
                f'no row has {column} = "{asked}"', where=table.name, expected=f"one of {shown}{more}"
            )
    return InputError("no row is left", where=table.name, fix="Check where, and that the table has rows")


def _check_percentages(table: Table, fold: Fold) -> None:
    """Raise InputError where bounds look like percentages, but the rewards are shares of 1."""
    column, bounds = fold.request.numbers.get("reward"), fold.request.bounds
    if bounds is None or not fold.percent:
        return
    if max(map(abs, bounds)) >= 10 * max(1.0, *map(abs, fold.range)):
        low, high = bounds
        raise InputError(
            f'column "{column}" holds percentages, and 12% is read as 0.12: bounds from {low:g} to {high:g} '
            f"mean {low:,.0%} to {high:,.0%}",
            where=table.name,
            expected=f"bounds from {low / 100:g} to {high / 100:g}, if you meant per cent",
        )


def _check(table: Table, request: Request) -> None:
    """Raise InputError for columns that are missing, and where rows have no order but need one."""
    if request.missing not in ("error", "skip"):
        raise InputError(f"missing = {shorten(request.missing)}", expected='"error" or "skip"')
    demand_columns(table.header, request.wanted.columns, place_of(table, table.head))
    low, high = request.bounds or (-math.inf, math.inf)
    for column, rating in request.ratings.items():
        if not low <= rating <= high:
            what = f'column "{column}" counts ratings of {rating:g}, not in [{low:g}, {high:g}]'
            raise InputError(what, where=table.name, fix="Widen the bounds")
    if request.ordered and request.time is None and table.unordered:
        raise InputError(
            f"the rows have no order: {table.unordered}",
            where=table.name,
            expected="a column that says when a row was recorded",
            fix="Name it: --time COLUMN",
        )


def _complaint(table: Table, fold: Fold) -> RewardError:
    """The error for the first bad cell of a table."""
    bad, first = fold.bad, fold.first
    if fold.merged or first is None:  # which row it was is not known yet: read again, in order
        expect = {column: numbers.usual for column, numbers in fold.numbers.items()}
        bad += 0 if fold.bad else fold.unusual
        finder = Fold(replace(fold.request, ordered=True), expect if first is None else None)
        for batch in table.batches(finder.request.wanted, merged=False):
            finder.take(batch)
            if finder.first is not None:
                first = finder.first
                break
    assert first is not None
    place = table.place(first.row)
    more = f" ({counted(bad - 1, 'more row')} can't be used either)" if bad > 1 else ""
    fix = first.fix
    if fix == HOLD:
        fix = f"In this table they range from {fold.range[0]:g} to {fold.range[1]:g}. {HOLD}"
    return RewardError(first.what + more, where=place_of(table, place), expected=first.expected, fix=fix)
