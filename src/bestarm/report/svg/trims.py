"""What trimming saved: each client's claim, kept or trimmed, and the plain mean beside the robust one."""

from __future__ import annotations

from bestarm.records.card import ClaimFacts, TrimFacts
from bestarm.records.figures import said
from bestarm.report.markup import Html, join, tag
from bestarm.report.numbers import short
from bestarm.report.svg.base import CHARACTER, PHONE, Axis, cut, path, svg, words

ROW, HEAD = 74, 22  # height of an option, and of the space above it
NAME = 42  # width of the name of a mean


def trims(rows: tuple[TrimFacts, ...], percent: bool, width: int) -> Html | None:
    """The claims of the clients about the options where trimming matters."""
    if not rows:
        return None
    values = [claim.mean for row in rows for claim in row.claims]
    values += [x for row in rows for x in (row.plain, row.robust, row.true) if x is not None]
    pad = 0.06 * (max(values) - min(values)) or 0.05
    x = Axis(min(values) - pad, max(values) + pad, 16, width - 16)
    height = HEAD + ROW * len(rows) + 30
    parts: list[Html] = []
    for value in x.ticks(3 if width < PHONE else 6):
        parts.append(path([(x(value), HEAD), (x(value), height - 28)], class_="grid"))
        label = f"{short(100 * value)} %" if percent else short(value)
        if not 0 < x(value) - CHARACTER * len(label) / 2 < width - CHARACTER * len(label):
            continue  # it would be cut off
        parts.append(words(x(value), height - 10, label, "middle", class_="tick"))
    for k, row in enumerate(rows):
        parts.append(_row(row, x, HEAD + ROW * k, percent, width))
    told = "; ".join(
        f"{row.option}: plain mean {said(row.plain, None, percent)}, robust {said(row.robust, None, percent)}"
        for row in rows
    )
    return svg(width, height, f"What each client claimed. {told}", *parts)


def _row(row: TrimFacts, x: Axis, top: float, percent: bool, width: int) -> Html:
    line = top + 46
    parts: list[Html] = [
        words(16, top + 10, cut(row.option, width - 32), class_="name"),
        path([(x.begin, line), (x.end, line)], class_="axis"),
        _mark(x(row.plain), line, "plain", "limit", row.plain < row.robust, width),
        _mark(x(row.robust), line, "robust", "cross", row.plain >= row.robust, width),
    ]
    if row.true is not None:
        at = x(row.true)
        told = tag("title", f"true mean {said(row.true, None, percent)}")
        shape = f"M{at:g} {line + 8:g}l5 9h-10z"
        parts.append(tag("g", told, tag("path", d=shape, class_="fill"), class_="true c2"))
    parts += [_claim(claim, x, line, percent) for claim in row.claims]
    return join(*parts)


def _mark(at: float, line: float, text: str, kind: str, left: bool, width: int) -> Html:
    """A mean as a line across the axis, with its name on the outer side, so that two names never meet.

    Where the picture ends, the name stands above the line.
    """
    fits = at - 4 > NAME if left else at + 4 < width - NAME
    edge, height = (at - 4 if left else at + 4, 14) if fits else (2 if left else width - 2, 25)
    name = words(edge, line - height, text, "end" if left == fits else "start", class_="tick")
    return join(path([(at, line - 22), (at, line + 12)], class_=kind), name)


def _claim(claim: ClaimFacts, x: Axis, line: float, percent: bool) -> Html:
    """A dot if the claim was kept, a cross if it was trimmed; liars of a simulation have a ring."""
    at, state = x(claim.mean), "kept" if claim.kept else "trimmed"
    liar = ", a liar" if claim.liar else ""
    told = tag("title", f"{claim.client}: {said(claim.mean, None, percent)}, {state}{liar}")
    if claim.kept:
        shape = tag("circle", cx=at, cy=line, r=5)
    else:
        shape = path([(at - 5, line - 5), (at + 5, line + 5)], class_="mean")
        shape = join(shape, path([(at - 5, line + 5), (at + 5, line - 5)], class_="mean"))
    ring = tag("circle", cx=at, cy=line, r=9, class_="ring") if claim.liar else None
    return tag("g", told, tag("g", shape, class_=f"line {'c0' if claim.kept else 'c1'}"), ring)
