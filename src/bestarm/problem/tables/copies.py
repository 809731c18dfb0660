"""Rows that repeat another row exactly, in tables that have a column in which nearly every row differs."""

from __future__ import annotations

from collections import Counter

from bestarm.problem.tables.batches import Coded, Table, Wanted
from bestarm.problem.tables.cells import MISSING, name_text
from bestarm.problem.tables.profile import is_date

MOST_ROWS = 100_000  # that are looked at
FIRST_ROWS = 1_000  # that show whether a column tells rows apart
LEAST_ROWS = 50
DIFFERENT = 0.8  # of the rows have a value of their own, in a column that tells rows apart
MOST_TIMES = 20  # that one of its values occurs


def copies_said(table: Table) -> str:
    """A note on rows that repeat another one exactly; empty if there are none, or no column tells rows apart.

    Times and numbers with decimals tell nothing apart: two visitors may well have spent the same.

    >>> from bestarm.problem.tables.sources import open_table
    >>> copies_said(open_table("examples/deliveries.csv"))
    ''
    """
    rows: list[tuple[object, ...]] = []
    for batch in table.batches(Wanted((), table.header), merged=False):
        columns = [batch.cells[column] for column in table.header]
        rows += zip(*(_cells(column) for column in columns), strict=True)
        few = len(rows) < LEAST_ROWS
        if len(rows) >= MOST_ROWS or not (few or _have_names(rows[:FIRST_ROWS])):
            break
    rows = rows[:MOST_ROWS]
    copies = len(rows) - len(set(rows))
    if not copies or len(rows) < LEAST_ROWS or not _have_names(rows):
        return ""
    if copies == 1:
        return "1 row repeats another row exactly; if it is a copy, remove it"
    return f"{copies:,} rows repeat another row exactly; if they are copies, remove them"


def _have_names(rows: list[tuple[object, ...]]) -> bool:
    """Whether some column tells rows apart."""
    return any(_tells_apart(cells) for cells in zip(*rows, strict=True))


def _cells(column: object) -> list[object]:
    assert isinstance(column, Coded)
    return [column.distinct[code] for code in column.code.tolist()]


def _tells_apart(cells: tuple[object, ...]) -> bool:
    """Whether nearly every row has a value of its own, such as the name of a visitor."""
    times = Counter(cells)
    if len(times) < DIFFERENT * len(cells) or max(times.values()) > MOST_TIMES or is_date(cells[0]):
        return False
    return not any(_is_missing_or_decimal(name_text(cell).strip()) for cell in times)


def _is_missing_or_decimal(text: str) -> bool:
    if text.lower() in MISSING:
        return True
    try:
        return not float(text).is_integer()
    except ValueError:
        return False
