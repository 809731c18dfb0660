"""SVG pictures of facts, without scripts: they load fast, scale, print, and work with screen readers.

Each function takes the facts and a width in pixels (a page has every picture twice, for a screen and for a
phone) and returns an element, or None if there is no data. Points show their numbers as tooltips; every
picture comes with a table.
"""

from __future__ import annotations

from bestarm.report.numbers import number
from bestarm.report.svg.base import Axis, path, words
from bestarm.report.svg.chart import spread
from bestarm.report.svg.costs import cell_name, comparison, loads
from bestarm.report.svg.intervals import (
    MOST_LINES,
    bets_drawn,
    cut_off,
    drawable,
    has_bands,
    has_own_bands,
    inside,
    race,
    wealth_race,
)
from bestarm.report.svg.maps import graph, matrix, network

__all__ = [
    "MOST_LINES",
    "Axis",
    "bets_drawn",
    "cell_name",
    "comparison",
    "cut_off",
    "drawable",
    "graph",
    "has_bands",
    "has_own_bands",
    "inside",
    "loads",
    "matrix",
    "network",
    "number",
    "path",
    "race",
    "spread",
    "wealth_race",
    "words",
]
