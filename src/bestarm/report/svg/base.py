"""The parts of SVG pictures: formatted numbers, axes, lines and text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bestarm.report.markup import Html, clean, join, tag
from bestarm.report.numbers import short

MOST_ROWS = 30  # of a picture with one row per group or client

PHONE = 500  # pixels; narrower pictures are for phones

CHARACTER = 8.2  # approximate width of a character


def cut(name: str, width: float) -> str:
    """Shorten a name to fit a width in pixels."""
    return clean(name, max(4, int(width / CHARACTER)))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0.02, 0.97)
    [0.2, 0.4, 0.6, 0.8]
    """
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / count))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if (high - low) / (m * step) <= count)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels, on a linear or (`log`) logarithmic scale."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(x, 1e-12)) for x in (value, low, high))
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self, count: int) -> list[float]:
        if not self.log:
            return ticks(self.low, self.high, count)
        powers = [
            10.0**k for k in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ]
        several = powers if len(powers) > 3 else [m * p for p in powers for m in (1, 2, 5)]
        inside = [x for x in several if self.low <= x <= self.high] or [self.low, self.high]
        return inside[:: -(-len(inside) // max(count, 1))]


def svg(width: float, height: float, label: str, *children: Any, **attributes: Any) -> Html:
    """A picture with a text alternative."""
    return tag(
        "svg", tag("title", label), *children,
        viewBox=f"0 0 {width:g} {height:g}", width=f"{width:g}", height=f"{height:g}", role="img",
        aria_label=label, **attributes,
    )  # fmt: skip


def words(x: float, y: float, text: str, anchor: str = "start", **attributes: Any) -> Html:
    """A line of text."""
    return tag("text", text, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, **attributes)


def path(points: Sequence[tuple[float, float]], **attributes: Any) -> Html:
    """A line through points."""
    return tag("path", d="M" + "L".join(f"{x:g} {y:g}" for x, y in points), **attributes)


def frame(
    x: Axis, y: Axis, titles: tuple[str, str], count: int = 5, *, whole: bool = False, percent: bool = False
) -> Html:
    """Grid lines with their numbers, and the titles of the axes.

    `whole` has no fractions on the x axis, `percent` has the numbers of the y axis in per cent.
    """
    parts = []
    for value in y.ticks(5):
        told = f"{short(100 * value)} %" if percent else short(value)
        parts.append(path([(x.begin, y(value)), (x.end, y(value))], class_="grid"))
        parts.append(words(x.begin - 6, y(value) + 4, told, "end", class_="tick"))
    for value in x.ticks(count):
        if whole and value != int(value):
            continue
        parts.append(path([(x(value), y.begin), (x(value), y.begin + 5)], class_="axis"))
        parts.append(words(x(value), y.begin + 18, short(value), "middle", class_="tick"))
    parts.append(path([(x.begin, y.begin), (x.end, y.begin)], class_="axis"))
    parts.append(words((x.begin + x.end) / 2, y.begin + 36, titles[0], "middle", class_="tick"))
    parts.append(words(x.begin, y.end - 8, titles[1], class_="tick"))
    return join(*parts)
