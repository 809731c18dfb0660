"""Costs: pulls by client, and the cells of a study side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bestarm.report.facts import CellFacts, RunFacts, StudyFacts
from bestarm.report.markup import Html, clean, tag
from bestarm.report.numbers import beside, number, plus_minus, short
from bestarm.report.svg.base import (
    CHARACTER,
    MOST_ROWS,
    PHONE,
    Axis,
    cut,
    frame,
    path,
    svg,
    words,
)
from bestarm.util.text import counted


def loads(facts: RunFacts, width: int) -> Html | None:
    """Pulls by client: one bar per client, or a curve for many clients, the busiest client first."""
    rows = sorted(
        [(row.name, row.pulls) for row in facts.clients if row.pulls is not None], key=lambda row: -row[1]
    )
    if not rows or rows[0][1] == 0:
        return None
    least = None if facts.limit is None else facts.limit.longest
    if len(rows) > MOST_ROWS:
        return _curve([pulls for _, pulls in rows], least, width)
    return _bars(rows, least, width)


def _bars(rows: Sequence[tuple[str, int]], least: float | None, width: int) -> Html:
    narrow = width < PHONE
    step, left = (40, 10) if narrow else (24, min(200, 24 + CHARACTER * max(len(name) for name, _ in rows)))
    x = Axis(0, max(rows[0][1], least or 0), left, width - (70 if narrow else 90))
    parts: list[Any] = []
    for k, (name, pulls) in enumerate(rows):
        y = 8 + step * k + (16 if narrow else 0)
        told = tag("title", f"{clean(name, 80)}: {counted(pulls, 'pull')}")
        if narrow:
            parts.append(words(left, y - 4, cut(name, width - 20), class_="name"))
        else:
            parts.append(words(left - 8, y + 13, cut(name, left - 12), "end", class_="name"))
        bar = tag("rect", told, x=left, y=y, width=max(1.0, x(pulls) - left), height=16, class_="fill")
        parts.append(tag("g", bar, class_="c0"))
        parts.append(words(x(pulls) + 6, y + 13, beside(pulls), class_="tick"))
    height = 8 + step * len(rows) + 6
    if least:
        parts.append(path([(x(least), 4), (x(least), height - 2)], class_="limit"))
        near_end = x(least) > width * 0.6
        note, side = cut("limit for the busiest client", width - 60), "end" if near_end else "start"
        parts.append(words(x(least) + (-6 if near_end else 6), height + 12, note, side, class_="tick"))
        height += 20
    return svg(width, height, f"Pulls of {counted(len(rows), 'client')}, at most {rows[0][1]:,}", *parts)


def _curve(pulls: Sequence[int], least: float | None, width: int) -> Html:
    x, y = Axis(1, len(pulls), 52, width - 14), Axis(0, max(pulls[0], least or 0), 188, 24)
    outline = [(x(k + 1), y(p)) for k, p in enumerate(pulls)]
    area = path([(x(1), y(0)), *outline, (x(len(pulls)), y(0))], class_="fill")
    parts = [frame(x, y, ("clients, the busiest first", "pulls"), 5), tag("g", area, class_="c0")]
    if least:
        parts.append(path([(x.begin, y(least)), (x.end, y(least))], class_="limit"))
    return svg(width, 230, f"Pulls of {len(pulls)} clients, from {pulls[0]:,} down to {pulls[-1]:,}", *parts)


def comparison(facts: StudyFacts, width: int, *, name: str, title: str) -> Html | None:
    """A study's mean of one cost for each combination, with its 95 % interval."""
    cells = facts.cells[:MOST_ROWS]
    if not cells:
        return None
    labels, narrow = [cell_name(cell) for cell in cells], width < PHONE
    step, left = (42, 10) if narrow else (26, min(260, 24 + CHARACTER * max(map(len, labels))))
    rows = [
        (label, cost.mean, cost.interval or (cost.mean, cost.mean))
        for label, cell in zip(labels, cells, strict=True)
        for cost in [cell.costs[name]]
    ]
    low, high = min(span[0] for _, _, span in rows), max(span[1] for _, _, span in rows)
    log = low > 0 and high / low > 20
    x = Axis(low if log else min(0.0, low), high or 1.0, left, width - 70, log=log)
    parts: list[Any] = []
    height = 8 + step * len(cells)
    for value in x.ticks(4 if narrow else 6):
        parts.append(path([(x(value), 4), (x(value), height)], class_="grid"))
        parts.append(words(x(value), height + 16, short(value), "middle", class_="tick"))
    for k, (label, mean, span) in enumerate(rows):
        y = 8 + step * k + (28 if narrow else 13)
        told = tag("title", f"{label}: {number(mean)}, {number(span[0])} to {number(span[1])}")
        mark = path([(x(span[0]), y), (x(span[1]), y)], class_="whisker")
        parts.append(tag("g", told, mark, tag("circle", cx=x(mean), cy=y, r=5), class_="c0 line"))
        if narrow:
            parts.append(words(left, y - 12, cut(label, width - 20), class_="name"))
        else:
            parts.append(words(left - 10, y + 4, cut(label, left - 14), "end", class_="name"))
        end, side = x(span[1]), "start" if x(span[1]) + 60 < width else "end"
        parts.append(words(min(end + 8, width - 4), y + 4, _mean(mean, span), side, class_="tick over"))
    bottom = title + (" (logarithmic)" if log else "")
    parts.append(words((x.begin + x.end) / 2, height + 34, bottom, "middle", class_="tick"))
    means = "; ".join(f"{clean(label, 40)} {number(mean, 3)}" for label, mean, _ in rows)
    return svg(width, height + 42, f"{title}: {means}", *parts)


def _mean(mean: float, span: tuple[float, float]) -> str:
    """A mean beside its mark, rounded to its interval as in the table."""
    return beside(mean) if span[0] == span[1] or mean >= 1e6 else plus_minus(mean, span)[0]


def cell_name(cell: CellFacts) -> str:
    """A combination of a study's varied keys, in words."""
    return ", ".join(f"{key} = {clean(value, 40)}" for key, value in cell.keys.items()) or "all trials"
