"""How the groups differ, and who hears whom."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bestarm.report.facts import NetworkFacts, RunFacts
from bestarm.report.markup import Html, clean, tag
from bestarm.report.svg.base import COLOURS, PHONE, cut, path, svg, words

MOST_EDGES = 6000

MOST_LABELS = 40  # most nodes with labels


def matrix(facts: RunFacts, width: int) -> Html | None:
    """σ of group i (row) against group j (column): blue below 1, orange above."""
    h = facts.heterogeneity
    if h is None or len(h.groups) < 2:
        return None
    n, top = len(h.groups), 70
    left = 100 if width < PHONE else 150
    side = min(56.0, (width - left - 60) / n)
    parts: list[Html] = []
    for j, name in enumerate(h.groups):
        at, turn = left + (j + 0.5) * side, top - 8
        turned = {"x": at, "y": turn, "transform": f"rotate(-35 {at:g} {turn})"}
        parts.append(tag("text", cut(name, 70), **turned, class_="tick"))
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
    shown = "∞" if math.isinf(value) else f"{value:.2g}"
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
    """Who hears whom in a run: groups by colour and shape, liars ringed, proven faulty clients crossed."""
    if facts.network is None:
        return None
    groups, faults = [group.name for group in facts.groups], {fault.client for fault in facts.faults}
    return graph(facts.network, width, groups, facts.liars, faults)


def graph(
    net: NetworkFacts,
    width: int,
    groups: Sequence[str] = (),
    liars: Mapping[str, str] | None = None,
    faults: Collection[str] = (),
) -> Html:
    """A network; `liars` are nodes with their attacks, `faults` are those that were proven faulty."""
    liars, n = liars or {}, len(net.names)
    size = width if width < PHONE else 620
    r = 8 if n <= 60 else 4 if n <= 300 else 2
    at = [(30 + (size - 60) * px, 24 + (size - 60) * 0.8 * py) for px, py in net.places]
    edges = sorted({(min(u, v), max(u, v)) for u, v in net.edges})[:MOST_EDGES]
    d = "".join(f"M{at[u][0]:.0f} {at[u][1]:.0f}L{at[v][0]:.0f} {at[v][1]:.0f}" for u, v in edges)
    parts: list[Any] = [tag("path", d=d, class_="edge")]
    for (x, y), name, j in zip(at, net.names, net.group, strict=True):
        told = clean(name, 80) + (f" ({clean(groups[j], 60)})" if j >= 0 else "")
        if name in liars:
            told += f", lies ({clean(liars[name], 40)})"
            parts.append(tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r + 5, class_="ring"))
        colour = f"c{j % COLOURS}" if j >= 0 else "tick"
        parts.append(tag("g", tag("title", told), shape(j, x, y, r), class_=colour))
        if name in faults:
            parts.append(tag("path", d=f"M{x - 6:.0f} {y - 6:.0f}l12 12m0-12l-12 12", class_="cross"))
        if n <= MOST_LABELS and width > PHONE:
            turned = x > size - 120
            beside, side = (round(x - r - 3), "end") if turned else (round(x + r + 3), "start")
            parts.append(words(beside, round(y - r), cut(name, 110), side, class_="tick"))
    height = 24 + (size - 60) * 0.8 + 30
    shown = groups[: COLOURS * 2]
    for j, name in enumerate(shown):
        parts.append(tag("g", shape(j, 30, height + 20 * j, 7), class_=f"c{j % COLOURS}"))
        parts.append(words(46, height + 20 * j + 4, cut(name, size - 60), class_="name"))
    if liars and shown:
        parts.append(tag("circle", cx=size - 150, cy=height, r=8, class_="ring"))
        parts.append(words(size - 136, height + 4, "a liar", class_="name"))
    label = f"A network of {n} clients and {len(net.edges)} edges"
    return svg(size, height + 20 * len(shown), label, *parts)


def shape(j: int, x: float, y: float, r: float) -> Html:
    """The mark of a group: neighbouring groups have different shapes."""
    kind = max(j, 0) % 4
    if kind == 0:
        return tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r, class_="fill")
    corners = {1: ((-1, -1), (1, -1), (1, 1), (-1, 1)), 2: ((0, -1.2), (1.2, 1), (-1.2, 1))}
    ends = corners.get(kind, ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)))
    return path([(round(x + r * dx, 1), round(y + r * dy, 1)) for dx, dy in ends], class_="fill")
