"""Arrivals of a live experiment: a bar for each of the last hours, with a part for each site."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bestarm.report.colours import COLOURS
from bestarm.report.markup import Html, clean, tag
from bestarm.report.svg.base import CHARACTER, PHONE, Axis, cut, path, svg, ticks, words

Hours = tuple[str, Sequence[int]]  # a site, and its arrivals in each hour, the present one last

MOST_SITES = len(COLOURS)  # with a colour of their own; of more, only the sum is drawn


def arrivals(sites: Sequence[Hours], now: float, width: int) -> Html | None:
    """Arrivals per hour, up to `now` (seconds since 1970); None if there were none."""
    count = max((len(hours) for _, hours in sites), default=0)
    rows = [(site, (*[0] * (count - len(hours)), *hours)) for site, hours in sites]
    if len(rows) > MOST_SITES:
        rows = [(f"all {len(rows)} sites", tuple(map(sum, zip(*(hours for _, hours in rows), strict=True))))]
    most = max((sum(hours[k] for _, hours in rows) for k in range(count)), default=0)
    if not most:
        return None
    left, bottom = 52, 170
    x, y = Axis(0, count, left, width - 14), Axis(0, most, bottom, 24)
    parts: list[Any] = []
    for value in ticks(0, most, 4):
        if value == int(value):
            parts.append(path([(x.begin, y(value)), (x.end, y(value))], class_="grid"))
            parts.append(words(x.begin - 6, y(value) + 4, f"{value:,.0f}", "end", class_="tick"))
    step = (x.end - x.begin) / count
    wide = min(max(step - 2, 1.0), 60.0)  # the first hours are no wider than others
    for k in range(count):
        below = 0
        at = datetime.fromtimestamp(now - 3600 * (count - 1 - k), UTC)
        for place, (site, hours) in enumerate(rows):
            if hours[k]:
                told = f"{clean(site, 60)}, {at:%H}:00 to {at:%H}:59 UTC: {hours[k]:,}"
                top, height = y(below + hours[k]), y(below) - y(below + hours[k])
                box = tag(
                    "rect", tag("title", told), x=f"{x(k) + (step - wide) / 2:.1f}", y=f"{top:.1f}",
                    width=f"{wide:.1f}", height=f"{max(height, 1.0):.1f}", class_="fill",
                )  # fmt: skip
                parts.append(tag("g", box, class_=f"c{place}", data_tip=told))
            below += hours[k]
    each = max(1, -(-count // (4 if width < PHONE else 8)))
    for k in range(count - 1, -1, -each):
        hour = datetime.fromtimestamp(now - 3600 * (count - 1 - k), UTC)
        parts.append(words(x(k + 0.5), bottom + 18, f"{hour:%H}:00", "middle", class_="tick"))
    parts.append(path([(x.begin, bottom), (x.end, bottom)], class_="axis"))
    parts.append(words((x.begin + x.end) / 2, bottom + 36, "hour (UTC)", "middle", class_="tick"))
    parts.append(words(x.begin, 14, "assignments per hour", class_="tick"))
    keys, height = _legend([site for site, _ in rows], width, bottom + 54)
    return svg(width, height, f"Arrivals per hour, at most {most:,}", *parts, *keys)


def _legend(sites: Sequence[str], width: int, top: float) -> tuple[list[Html], float]:
    longest = 40 + CHARACTER * max(len(clean(site, 40)) for site in sites)
    columns = max(1, min(len(sites), int((width - 52) / longest)))
    found = []
    for k, site in enumerate(sites):
        left, at = 52 + (width - 52) / columns * (k % columns), top + 20 * (k // columns)
        box = tag("rect", x=left, y=at - 9, width=12, height=12, class_="fill")
        label = words(left + 20, at + 2, cut(site, (width - 52) / columns - 24), class_="name")
        found.append(tag("g", box, class_=f"c{k}"))
        found.append(label)
    return found, top + 20 * -(-len(sites) // columns)
