"""How the groups differ, and who hears whom."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bestarm.report.colours import colour, places
from bestarm.report.facts import NetworkFacts, RunFacts
from bestarm.report.markup import Html, clean, tag
from bestarm.report.numbers import number
from bestarm.report.svg.base import PHONE, cut, path, svg, words
from bestarm.util.text import counted

MOST_EDGES = 6000

MOST_LABELS = 60  # most nodes with labels

MOST_GROUPS = 14  # of a legend

Box = tuple[float, float, float, float]


def matrix(facts: RunFacts, width: int) -> Html | None:
    """σ of group i (row) against group j (column): blue below 1, orange above."""
    h = facts.heterogeneity
    if h is None or len(h.groups) < 2:
        return None
    n, left = len(h.groups), 100 if width < PHONE else 150
    side = min(56.0, (width - left - 60) / n)
    top, turned_by, room = (70, -35, 70) if side > 24 else (96, -90, 86)  # upright names need least room
    parts: list[Html] = []
    for j, name in enumerate(h.groups):
        at, turn = left + (j + 0.5) * side, top - 8
        at += 0 if side > 24 else 4
        turned = {"x": at, "y": turn, "transform": f"rotate({turned_by} {at:g} {turn})"}
        parts.append(tag("text", cut(name, room), **turned, class_="tick"))
        beside = top + (j + 0.5) * side + 4
        parts.append(words(left - 8, beside, cut(name, left - 16), "end", class_="name"))
    for i, row in enumerate(h.matrix):
        for j, value in enumerate(row):
            if value is not None:
                told = f"σ of {clean(h.groups[i], 60)} against {clean(h.groups[j], 60)}"
                parts += _box(value, told, left + j * side, top + i * side, side)
    return svg(left + n * side + 60, top + n * side + 8, f"Heterogeneity indices of {n} groups", *parts)


def _box(value: float, told: str, x: float, y: float, side: float) -> list[Html]:
    """One index as a coloured square."""
    shown = number(value, 2)
    size = min(math.log2(max(value, 1e-9)), 4.0)
    strength = min(abs(size) / 4.0, 1.0) * 0.55 + 0.08
    box = tag(
        "rect", tag("title", f"{told}: {shown}"), x=f"{x:.1f}", y=f"{y:.1f}", width=f"{side - 2:.1f}",
        height=f"{side - 2:.1f}", fill_opacity=f"{strength:.2f}", class_="fill",
    )  # fmt: skip
    found = [tag("g", box, class_="c0" if size <= 0 else "c1")]
    if side > 24:
        found.append(words(x + side / 2 - 1, y + side / 2 + 4, shown, "middle", class_="cell"))
    return found


def network(facts: RunFacts, width: int) -> Html | None:
    """Who hears whom in a run. A node has the shape of its group and the colour of the option it is for."""
    if facts.network is None:
        return None
    faults, place = {fault.client for fault in facts.faults}, places(facts.roster)
    lines = {line.group: line.name for line in facts.lines}
    kinds = []
    for j, group in enumerate(facts.groups):
        option = lines.get(j, "")
        kinds.append((option or group.name, place.get(option, -1)))
    return graph(facts.network, width, kinds, facts.liars, faults)


def graph(
    net: NetworkFacts,
    width: int,
    groups: Sequence[tuple[str, int]] = (),
    liars: Mapping[str, str] | None = None,
    faults: Collection[str] = (),
) -> Html:
    """A network.

    `groups` are labels and places of options (−1: none yet), `liars` are nodes with their attacks, `faults`
    are nodes that were proven faulty.
    """
    liars, n = liars or {}, len(net.names)
    size = width if width < PHONE else 620
    r = 8 if n <= 60 else 4 if n <= 300 else 2
    at = [(30 + (size - 60) * px, 24 + (size - 60) * 0.8 * py) for px, py in net.places]
    edges = sorted({(min(u, v), max(u, v)) for u, v in net.edges})[:MOST_EDGES]
    d = "".join(f"M{at[u][0]:.0f} {at[u][1]:.0f}L{at[v][0]:.0f} {at[v][1]:.0f}" for u, v in edges)
    parts: list[Any] = [tag("path", d=d, class_="edge")]
    for (x, y), name, j in zip(at, net.names, net.group, strict=True):
        told = clean(name, 80) + (f" ({clean(groups[j][0], 60)})" if j >= 0 else "")
        if name in liars:
            told += f", lies ({clean(liars[name], 40)})"
            parts.append(tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r + 5, class_="ring"))
        node = shape(j, x, y, r)
        parts.append(tag("g", tag("title", told), node, class_=_node(groups, j), data_tip=told))
        if name in faults:
            parts.append(tag("path", d=f"M{x - 6:.0f} {y - 6:.0f}l12 12m0-12l-12 12", class_="cross"))
    if n <= MOST_LABELS and width > PHONE:
        parts += _labels(net.names, at, size, [r + 6.0 if name in liars else r for name in net.names])
    height = 24 + (size - 60) * 0.8 + 30
    keys = _legend(groups, bool(liars), size, height)
    label = f"A network of {counted(n, 'client')} and {counted(len(net.edges), 'edge')}"
    rows = min(len(groups), MOST_GROUPS + 1)
    return svg(size, height + 20 * rows, label, *parts, *keys)


def _legend(groups: Sequence[tuple[str, int]], liars: bool, size: float, top: float) -> list[Html]:
    shown, parts = groups[:MOST_GROUPS], []
    for j, (name, _) in enumerate(shown):
        parts.append(tag("g", shape(j, 30, top + 20 * j, 7), class_=_node(groups, j)))
        parts.append(words(46, top + 20 * j + 4, cut(name, size - 160), class_="name"))
    if len(groups) > len(shown):
        more = f"{len(groups) - len(shown)} further groups: see their nodes"
        parts.append(words(46, top + 20 * len(shown) + 4, more, class_="tick"))
    if liars and shown:
        parts.append(tag("circle", cx=size - 70, cy=top, r=8, class_="ring"))
        parts.append(words(size - 56, top + 4, "a liar", class_="name"))
    return parts


def _node(groups: Sequence[tuple[str, int]], j: int) -> str:
    """The class of a node: the colour of its group's option, or none."""
    return f"c{colour(groups[j][1])}" if j >= 0 and groups[j][1] >= 0 else "plain"


def _labels(
    names: Sequence[str], at: Sequence[tuple[float, float]], size: float, radii: Sequence[float]
) -> list[Html]:
    """Names beside their nodes, where there is room; the tooltip has the others."""
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(at, radii, strict=True)]
    found = []
    for (x, y), name, r in zip(at, names, radii, strict=True):
        text = cut(name, 110)
        wide = 7.0 * len(text)
        spots = {
            "start": (x + r + 3, y - 5),
            "end": (x - r - 3 - wide, y - 5),
            "middle": (x - wide / 2, y - r - 14),
        }
        for side, (left, top) in spots.items():
            box = (left, top, left + wide, top + 11)
            if box[0] < 0 or box[2] > size or box[1] < 0 or any(_overlap(box, other) for other in taken):
                continue
            taken.append(box)
            anchor = {"start": left, "end": left + wide, "middle": x}[side]
            found.append(words(round(anchor), round(top + 9), text, side, class_="tick over"))
            break
    return found


def _overlap(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def shape(j: int, x: float, y: float, r: float) -> Html:
    """The mark of a group: neighbouring groups have different shapes."""
    kind = max(j, 0) % 4
    if kind == 0:
        return tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r, class_="fill")
    corners = {1: ((-1, -1), (1, -1), (1, 1), (-1, 1)), 2: ((0, -1.2), (1.2, 1), (-1.2, 1))}
    ends = corners.get(kind, ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)))
    return path([(round(x + r * dx, 1), round(y + r * dy, 1)) for dx, dy in ends], class_="fill")
