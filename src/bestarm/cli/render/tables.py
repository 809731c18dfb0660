"""Tables that fit the terminal: numbers are never cut, and names keep enough to be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from bestarm.cli.terminal import out, safe
from bestarm.util.text import short_names, visible

LEAST_NAME = 12  # letters of a name, however narrow the terminal is
LEAST_WORDS = 6  # letters of the last column that are worth showing
GAP = 2


class Column(NamedTuple):
    """A column of numbers. Where there is no room for all, those of the highest rank are left out first."""

    title: str
    cells: Sequence[str]
    rank: int = 0

    @property
    def width(self) -> int:
        """Its longest cell, with the gap to the next column."""
        return _longest([visible(self.title), *self.cells]) + GAP


def print_table(
    title: str, names: Sequence[str], columns: Sequence[Column], became: Sequence[str]
) -> list[Column]:
    """Print names, numbers and what became of each; returns the columns that there was room for."""
    shown, words = list(columns), _longest(became)
    least = max(min(LEAST_NAME, _longest(names)), cell_len(title)) + GAP
    while least + sum(column.width for column in shown) + words > out.width:
        rank = max(column.rank for column in shown)
        if not rank:
            break
        shown.pop(max(k for k, column in enumerate(shown) if column.rank == rank))
    room = out.width - sum(column.width for column in shown)
    words = min(words, room - least) if room - least >= LEAST_WORDS else 0
    found = short_names(map(visible, names), max(least, room - words) - GAP)
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column(title, no_wrap=True, min_width=least - GAP)
    for column in shown:
        table.add_column(safe(column.title), justify="right", no_wrap=True, min_width=column.width - GAP)
    if words:
        table.add_column("", no_wrap=True, max_width=words)
    for k, name in enumerate(names):
        cells = [column.cells[k] for column in shown] + ([became[k]] if words else [])
        table.add_row(escape(found[visible(name)]), *map(safe, cells))
    out.print(table)
    return shown


def _longest(texts: Sequence[str]) -> int:
    return max((cell_len(visible(text)) for text in texts), default=0)
