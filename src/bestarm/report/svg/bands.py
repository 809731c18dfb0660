"""Means with their intervals as bands, over rounds or over pulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bestarm.problem.scale import Scale
from bestarm.report.facts import BandFacts
from bestarm.report.markup import Html, clean, tag
from bestarm.report.svg.base import COLOURS, DASHES, PHONE, Axis, cut, frame, number, path, svg, words

MOST_POINTS = 30  # most points of a line with tooltips


@dataclass(frozen=True)
class Band:
    """A line with its name; `at` has its horizontal positions, `cross` says whether it was dropped."""

    name: str
    at: tuple[int, ...]
    line: BandFacts
    cross: bool


@dataclass(frozen=True)
class Frame:
    """The layout of bands: by "round" or "pulls", the titles of the axes, and the size of the picture."""

    by: str
    titles: tuple[str, str]
    width: int
    height: int
    span: tuple[float, float]
    heading: str = ""


def spread(lines: Sequence[BandFacts], scale: Scale, *, last: bool = False) -> tuple[float, float]:
    """The range of rewards of the lines, or with `last` of their ends, with a margin, within the scale."""
    low = min(line.lower[-1] if last else min(line.lower) for line in lines)
    high = max(line.upper[-1] if last else max(line.upper) for line in lines)
    margin = 0.04 * (high - low) or 0.02 * (scale.high - scale.low)
    return max(low - margin, scale.low), min(high + margin, scale.high)


def bands(shown: Sequence[Band], place: Frame) -> Html:
    """A picture with a legend below it."""
    width, height = place.width, place.height
    values = [at for band in shown for at in band.at]
    log = place.by == "pulls" and min(values) > 0
    x = Axis(min(values), max(values), 46, width - 14, log=log)
    y = Axis(*place.span, height - 42, 44 if place.heading else 26)
    parts: list[Any] = []
    if place.heading:
        parts.append(words(46, 14, cut(place.heading, width - 56), class_="name"))
    parts.append(frame(x, y, place.titles, 4 if width < PHONE else 7))
    parts += [_drawn(band, k, x, y, place.by) for k, band in reversed(list(enumerate(shown)))]
    for k, band in enumerate(shown):
        at_y = height + 12 + 18 * k
        dash = path([(46, at_y), (74, at_y)], class_="mean", stroke_dasharray=DASHES[k % 7])
        parts.append(tag("g", dash, class_=f"c{k % COLOURS} line"))
        parts.append(words(82, at_y + 4, cut(band.name, width - 96), class_="name"))
    label = clean(place.heading or "Intervals as they shrank", 80)
    names = "; ".join(clean(band.name, 60) for band in shown)
    return svg(width, height + 18 * len(shown) + 10, f"{label}: {names}", *parts)


def _drawn(band: Band, k: int, x: Axis, y: Axis, by: str) -> Html:
    line, at = band.line, [x(v) for v in band.at]
    upper, lower, mean = (
        [(a, y(v)) for a, v in zip(at, values, strict=True)] for values in (line.upper, line.lower, line.mean)
    )
    inner: list[Any] = [tag("title", _told(band, by, -1))]
    if len(at) == 1:
        inner.append(path([upper[0], lower[0]], class_="whisker"))
        inner.append(tag("circle", cx=at[0], cy=mean[0][1], r=4))
    else:
        inner.append(path([*upper, *lower[::-1]], class_="band"))
        inner.append(path(mean, class_="mean", stroke_dasharray=DASHES[k % 7]))
    if len(at) <= MOST_POINTS:
        for i, (a, b) in enumerate(mean):
            inner.append(tag("circle", tag("title", _told(band, by, i)), cx=a, cy=b, r=3))
    if band.cross:
        a, b = mean[-1]
        inner.append(tag("path", d=f"M{a - 5} {b - 5}l10 10m0-10l-10 10", class_="cross"))
    return tag("g", *inner, class_=f"c{k % COLOURS} line")


def _told(band: Band, by: str, i: int) -> str:
    """A point's numbers in words."""
    lower, mean, upper = (number(values[i]) for values in (band.line.lower, band.line.mean, band.line.upper))
    return f"{clean(band.name, 80)}, {by} {number(band.at[i])}: {mean}, {lower} to {upper}"
