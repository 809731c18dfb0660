"""A chart of options over rounds or pulls: lines, with bands around them where there are intervals.

An option has the colour of its place in the problem. The winner is drawn thick, with a star; options that are
out are faded and end with a cross. The page's script reads the ``data-`` attributes: which option a part
belongs to, and the points of a line with their numbers in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bestarm.problem.scale import Scale
from bestarm.report.colours import COLOURS, colour, dash
from bestarm.report.markup import Html, clean, tag
from bestarm.report.numbers import number
from bestarm.report.standings import State
from bestarm.report.svg.base import CHARACTER, PHONE, Axis, cut, frame, path, svg, words

MOST_TOLD = 40  # points of a line with their numbers

WON = "M0 -7L1.8 -2.2L6.7 -2.2L2.8 .9L4.2 5.7L0 2.9L-4.2 5.7L-2.8 .9L-6.7 -2.2L-1.8 -2.2Z"  # a star


@dataclass(frozen=True)
class Curve:
    """The line of an option; `at` has its horizontal positions, `cross` says whether it ends in a cross.

    `end` is an interval at its last point, `real` has the values where `value` is cut off at the edge.
    """

    name: str
    place: int
    state: State
    at: Sequence[float]
    value: Sequence[float]
    lower: Sequence[float] = ()
    upper: Sequence[float] = ()
    end: tuple[float, float] | None = None
    note: str = ""
    cross: bool = False
    real: Sequence[float] = ()

    @property
    def label(self) -> str:
        """The name, with what became of the option."""
        return f"{self.name} ({self.note})" if self.note else self.name

    @property
    def heights(self) -> tuple[float, ...]:
        """All values that are drawn."""
        return (*self.value, *self.lower, *self.upper, *(self.end or ()))


@dataclass(frozen=True)
class Frame:
    """The layout of a chart: "round" or "pulls", the titles of the axes, the size and the vertical axis."""

    by: str
    titles: tuple[str, str]
    width: int
    height: int
    span: tuple[float, float]
    heading: str = ""
    label: str = "Intervals as they shrank"
    format: Callable[[float], str] = number
    limit: tuple[float, str] | None = None
    log: bool = False
    percent: bool = False


def spread(values: Iterable[float], scale: Scale) -> tuple[float, float]:
    """The range of some values, with a margin, within the scale."""
    found = list(values)
    low, high = min(found), max(found)
    margin = 0.04 * (high - low) or 0.02 * (scale.high - scale.low)
    return max(low - margin, scale.low), min(high + margin, scale.high)


def look(place: int, state: State) -> str:
    """The classes of an option's part: its colour, and its weight."""
    weight = {"won": " won", "out": " lost", "in": ""}[state]
    return f"line c{colour(place)}{weight}"


def dot(place: int, *, won: bool = False) -> Html:
    """The mark of an option in a table, in its colour: a star for the winner.

    From the ninth option on, options of the same colour differ in shape, as their lines differ in dashes.
    """
    block = place // len(COLOURS) % 4
    if won:
        drawn = tag("path", d=WON, transform="translate(8 8)", class_="fill")
    elif block in (0, 1):
        drawn = tag("circle", cx=8, cy=8, r=5 - block, class_=("fill", "hollow")[block])
    else:
        drawn = tag("path", d="M3.5 3.5h9v9h-9z", class_=("fill", "hollow")[block - 2])
    said = {"role": "img", "aria_label": "winner"} if won else {"aria_hidden": "true"}
    return tag(
        "svg", drawn, width="16", height="16", viewBox="0 0 16 16", class_=f"dot c{colour(place)}", **said
    )


def chart(curves: Sequence[Curve], place: Frame) -> Html:
    """A chart with a legend below it."""
    width, height = place.width, place.height
    values = [at for curve in curves for at in curve.at]
    log = place.by == "pulls" and min(values) > 0 and max(values) > 4 * min(values)
    x = Axis(min(values), max(values), 52, width - 18, log=log)
    y = Axis(*place.span, height - 42, 44 if place.heading else 26, log=place.log)
    parts: list[Any] = []
    if place.heading:
        parts.append(words(52, 14, cut(place.heading, width - 62), class_="name"))
    parts.append(frame(x, y, place.titles, 4 if width < PHONE else 7, whole=True, percent=place.percent))
    if place.limit:
        at, said = place.limit
        parts.append(path([(x.begin, y(at)), (x.end, y(at))], class_="limit"))
    order = {"out": 0, "in": 1, "won": 2}
    parts += [_drawn(curve, x, y, place) for curve in sorted(curves, key=lambda c: order[c.state])]
    if place.limit:  # last, so that no line crosses it
        parts.append(words(x.begin + 6, y(at) - 6, said, class_="tick over"))
    keys, below = _legend(curves, width, height + 12)
    names = "; ".join(clean(curve.label, 60) for curve in curves)
    return svg(
        width, below, f"{clean(place.heading or place.label, 80)}: {names}", *parts, *keys,
        class_="chart", data_axis=place.by, data_left=x.begin, data_right=x.end, data_low=x.low,
        data_high=x.high, data_log="1" if log else None, data_top=y.end, data_bottom=y.begin,
    )  # fmt: skip


def _legend(curves: Sequence[Curve], width: int, top: float) -> tuple[list[Html], float]:
    """The entries of the legend in columns, and where they end."""
    longest = 60 + CHARACTER * max(len(clean(curve.label, 60)) for curve in curves)
    begin = 52 if width - 52 > longest else 8  # a long name needs the whole width of a phone
    columns = max(1, min(len(curves), int((width - begin) / longest)))
    rows, wide = -(-len(curves) // columns), (width - begin) / columns
    keys = []
    for k, curve in enumerate(curves):
        left, at = begin + wide * (k // rows), top + 20 * (k % rows)
        line = path([(left, at), (left + 26, at)], class_="mean", stroke_dasharray=dash(curve.place) or None)
        name = words(left + 34, at + 4, cut(curve.label, wide - 40), class_="name")
        box = tag("rect", x=left - 4, y=at - 10, width=wide - 4, height=20, class_="hit")
        mark = _mark(curve, left + 13, at)
        keys.append(
            tag(
                "g",
                box,
                line,
                mark,
                name,
                class_=f"{look(curve.place, curve.state)} key",
                data_option=curve.place,
            )
        )
    return keys, top + 20 * rows


def _mark(curve: Curve, x: float, y: float) -> Html | None:
    """A star for the winner, a cross for an option that left."""
    if curve.state == "won":
        return tag("path", d=WON, transform=f"translate({x:g} {y:g})", class_="star")
    if curve.cross:
        return tag("path", d=f"M{x - 4:g} {y - 4:g}l8 8m0-8l-8 8", class_="cross")
    return None


def _drawn(curve: Curve, x: Axis, y: Axis, place: Frame) -> Html:
    at = [x(v) for v in curve.at]
    line = [(a, y(v)) for a, v in zip(at, curve.value, strict=True)]
    inner: list[Any] = [tag("title", f"{clean(curve.label, 80)}: {_told(curve, len(at) - 1, place)}")]
    if curve.lower:
        upper, lower = (
            [(a, y(v)) for a, v in zip(at, ends, strict=True)] for ends in (curve.upper, curve.lower)
        )
        if len(at) == 1:
            inner.append(path([upper[0], lower[0]], class_="whisker"))
        else:
            inner.append(path([*upper, *lower[::-1]], class_="band"))
    if curve.end:
        inner.append(path([(at[-1], y(end)) for end in curve.end], class_="whisker"))
    if len(at) == 1:
        inner.append(tag("circle", cx=at[0], cy=line[0][1], r=4))
    else:
        inner.append(path(line, class_="mean", stroke_dasharray=dash(curve.place) or None))
    inner.append(_mark(curve, *line[-1]))
    points = "|".join(
        f"{curve.at[i]:g}~{line[i][0]:g}~{line[i][1]:g}~{_told(curve, i, place)}" for i in _some(len(at))
    )
    return tag(
        "g", *inner, class_=look(curve.place, curve.state), data_option=curve.place, data_points=points,
        data_name=clean(curve.name, 80),
    )  # fmt: skip


def _some(count: int) -> list[int]:
    """Indices of at most MOST_TOLD points, with the first and the last."""
    if count <= MOST_TOLD:
        return list(range(count))
    return sorted({round(k * (count - 1) / (MOST_TOLD - 1)) for k in range(MOST_TOLD)})


def _told(curve: Curve, i: int, place: Frame) -> str:
    """A point's numbers in words. Intervals are in tables: an option has only one."""
    return f"{place.by} {number(curve.at[i])}: {place.format((curve.real or curve.value)[i])}"
