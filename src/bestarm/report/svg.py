"""Pictures as SVG, from facts, without a script: they open at once, scale, print, and can be read aloud.

Each function takes the facts and a width in pixels (a page carries every picture twice, for a screen and
for a phone) and gives back an element, or None where there is nothing to draw. Points tell their numbers
when the mouse rests on them; every picture has a table beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bestarm.report.markup import Html, clean, join, tag

COLOURS = 7  # classes c0 … c6 of the style sheet: Okabe and Ito's palette
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4")
MOST_ROWS = 30  # of a picture with a row a group or client
MOST_LINES = 7  # of a picture with a line a group or arm
MOST_EDGES = 6000
CHARACTER = 8.2  # the width of one, about


def number(x: float | None, digits: int = 4) -> str:
    """A number for people: 1,234, 0.8712, 3.8e-12; a dash where there is none."""
    if x is None:
        return "–"
    if isinstance(x, str):
        return x
    if math.isinf(x):
        return "∞"
    if x == int(x) and abs(x) < 1e15:
        return f"{int(x):,}"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.{digits}g}"


def short(x: float) -> str:
    """A number for an axis.

    >>> [short(x) for x in (0.25, 1000, 2500000)]
    ['0.25', '1k', '2.5M']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.4g}{unit}"
    return f"{x:.4g}"


def cut(name: str, width: float) -> str:
    """A name that fits into so many pixels."""
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
    """From values to pixels, in equal steps or (`log`) equal ratios."""

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


def svg(width: float, height: float, label: str, *children: Any) -> Html:
    """A picture with a text for those who can't see it."""
    return tag(
        "svg", tag("title", label), *children,
        viewBox=f"0 0 {width:g} {height:g}", width=f"{width:g}", height=f"{height:g}", role="img",
        aria_label=label,
    )  # fmt: skip


def words(x: float, y: float, text: str, anchor: str = "start", **attributes: Any) -> Html:
    """A line of text."""
    return tag("text", text, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, **attributes)


def path(points: Sequence[tuple[float, float]], **attributes: Any) -> Html:
    """A line through points."""
    return tag("path", d="M" + "L".join(f"{x:g} {y:g}" for x, y in points), **attributes)


def frame(x: Axis, y: Axis, titles: tuple[str, str], count: int = 5) -> Html:
    """Grid lines with their numbers, and what the axes are."""
    parts = []
    for value in y.ticks(5):
        parts.append(path([(x.begin, y(value)), (x.end, y(value))], class_="grid"))
        parts.append(words(x.begin - 6, y(value) + 4, short(value), "end", class_="tick"))
    for value in x.ticks(count):
        parts.append(path([(x(value), y.begin), (x(value), y.begin + 5)], class_="axis"))
        parts.append(words(x(value), y.begin + 18, short(value), "middle", class_="tick"))
    parts.append(path([(x.begin, y.begin), (x.end, y.begin)], class_="axis"))
    parts.append(words((x.begin + x.end) / 2, y.begin + 36, titles[0], "middle", class_="tick"))
    parts.append(words(x.begin, y.end - 8, titles[1], class_="tick"))
    return join(*parts)


def spread(lines: Sequence[dict[str, Any]], scale: dict[str, Any]) -> tuple[float, float]:
    """The range of rewards that lines need, with a margin, inside the scale."""
    low = min(min(line["lower"]) for line in lines)
    high = max(max(line["upper"]) for line in lines)
    margin = 0.04 * (high - low) or 0.02 * (scale["high"] - scale["low"])
    return max(low - margin, scale["low"]), min(high + margin, scale["high"])


def better_first(facts: dict[str, Any], lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines from the best mean to the worst; those that are still in the race first."""
    sign = 1 if facts["scale"]["goal"] == "min" else -1
    return sorted(lines, key=lambda line: (line["fate"] != "stays", sign * line["mean"][-1]))


def fate_of(facts: dict[str, Any], line: dict[str, Any]) -> str:
    """What became of a group, in a few words."""
    verdict = facts["verdict"]
    if line["fate"] == "out":
        return f"out in round {line['when']}"
    if line["fate"] == "withdrew":
        return f"withdrew in round {line['when']}"
    if verdict is None:
        return "in the race"
    if verdict["status"] != "identified":
        return "stays"
    group = facts["groups"][line["group"]]["name"]
    return "wins" if str(verdict["arm"]).startswith(f"{group}/") else "stays"


def forest(facts: dict[str, Any], width: int) -> Html | None:
    """Where each group ended: its arm's mean and interval, a row each."""
    lines = better_first(facts, facts["lines"])
    if not lines:
        return None
    shown = lines[:MOST_ROWS]
    low, high = spread([{k: line[k][-1:] for k in ("lower", "upper")} for line in shown], facts["scale"])
    narrow = width < 500
    step, left = (44, 10) if narrow else (26, min(220, 24 + CHARACTER * max(len(r["name"]) for r in shown)))
    x = Axis(low, high, left, width - (14 if narrow else 150))
    height = 12 + step * len(shown) + 44
    parts: list[Html] = []
    for value in x.ticks(4 if narrow else 6):
        parts.append(path([(x(value), 8), (x(value), height - 40)], class_="grid"))
        parts.append(words(x(value), height - 24, short(value), "middle", class_="tick"))
    parts.append(
        words((x.begin + x.end) / 2, height - 6, cut(facts["mean"], width - 20), "middle", class_="tick")
    )
    for k, line in enumerate(shown):
        fate = fate_of(facts, line)
        y = 12 + step * k + (30 if narrow else 14)
        mean, lower, upper = (line[key][-1] for key in ("mean", "lower", "upper"))
        told = f"{line['name']}: {number(mean)}, {number(lower)} to {number(upper)}; {fate}"
        live = fate in ("wins", "stays", "in the race")
        mark = path([(x(lower), y), (x(upper), y)], class_="whisker")
        ends = [path([(x(v), y - 5), (x(v), y + 5)], class_="whisker") for v in (lower, upper)]
        dot = tag("circle", cx=x(mean), cy=y, r=5)
        group = tag("g", tag("title", told), mark, *ends, dot, class_=f"c{0 if live else 1} line")
        if narrow:
            label = cut(line["name"], width - 130)
            parts.append(words(left, y - 14, label, class_="name"))
            parts.append(words(width - 6, y - 14, fate, "end", class_="tick"))
        else:
            parts.append(words(left - 12, y + 4, cut(line["name"], left - 16), "end", class_="name"))
            parts.append(words(width - 140, y + 4, fate, class_="tick"))
        parts.append(group)
    label = f"Final intervals of {len(shown)} groups: " + "; ".join(
        f"{clean(r['name'], 40)} {number(r['mean'][-1], 3)}" for r in shown[:8]
    )
    return svg(width, height, label, *parts)


def race(facts: dict[str, Any], width: int) -> Html | None:
    """How the groups' intervals shrank: bands over rounds, or over pulls (Fed-Fisher, peers)."""
    by = "pulls" if facts["method"] in ("fisher", "p2p") else "round"
    lines = [line for line in better_first(facts, facts["lines"]) if len(line[by]) > 0]
    if not lines or max(len(line[by]) for line in lines) < 2:
        return None
    ranked = sorted(lines, key=lambda line: -len(line[by]))
    shown = better_first(facts, ranked[:MOST_LINES])
    title = "pulls of the group's arm" if by == "pulls" else "round (0: the first reports)"
    names = [f"{line['name']} ({fate_of(facts, line)})" for line in shown]
    return _bands(
        facts, shown, names, by, (title, cut(facts["mean"], width - 60)), width, 340 if width > 500 else 260,
        legend=True, crosses=[line["fate"] != "stays" for line in shown],
    )  # fmt: skip


def _bands(
    facts: dict[str, Any],
    lines: Sequence[dict[str, Any]],
    names: Sequence[str],
    by: str,
    titles: tuple[str, str],
    width: float,
    height: float,
    *,
    crosses: Sequence[bool],
    legend: bool = False,
    heading: str = "",
    range_: tuple[float, float] | None = None,
) -> Html:
    low, high = range_ or spread(lines, facts["scale"])
    values = [v for line in lines for v in line[by]]
    top = 26 if not heading else 44
    rows = len(names) if legend else 0
    x = Axis(min(values), max(values), 46, width - 14, log=by == "pulls" and min(values) > 0)
    y = Axis(low, high, height - 42, top)
    parts: list[Any] = [words(46, 14, cut(heading, width - 56), class_="name") if heading else None]
    parts.append(frame(x, y, titles, 4 if width < 500 else 7))
    for k, line in reversed(list(enumerate(lines))):
        at = [x(v) for v in line[by]]
        upper = [(a, y(v)) for a, v in zip(at, line["upper"], strict=True)]
        lower = [(a, y(v)) for a, v in zip(at, line["lower"], strict=True)]
        mean = [(a, y(v)) for a, v in zip(at, line["mean"], strict=True)]
        inner: list[Any] = [tag("title", _told(names[k], line, by))]
        if len(at) == 1:
            inner += [
                path([upper[0], lower[0]], class_="whisker"),
                tag("circle", cx=at[0], cy=mean[0][1], r=4),
            ]
        else:
            inner += [
                path([*upper, *lower[::-1]], class_="band"),
                path(mean, class_="mean", stroke_dasharray=DASHES[k % 7]),
            ]
        if len(at) <= 30:
            inner += [_point(p, _told(names[k], line, by, i)) for i, p in enumerate(mean)]
        if crosses[k]:
            a, b = mean[-1]
            inner.append(tag("path", d=f"M{a - 5} {b - 5}l10 10m0-10l-10 10", class_="cross"))
        parts.append(tag("g", *inner, class_=f"c{k % COLOURS} line"))
    for k, name in enumerate(names if legend else ()):
        at_y = height + 12 + 18 * k
        parts.append(
            tag(
                "g",
                path([(46, at_y), (74, at_y)], class_="mean", stroke_dasharray=DASHES[k % 7]),
                class_=f"c{k % COLOURS} line",
            )
        )
        parts.append(words(82, at_y + 4, cut(name, width - 96), class_="name"))
    label = heading or "Intervals as they shrank"
    return svg(
        width,
        height + 18 * rows + (10 if rows else 0),
        f"{clean(label, 80)}: {'; '.join(clean(n, 60) for n in names)}",
        *parts,
    )


def _told(name: str, line: dict[str, Any], by: str, i: int = -1) -> str:
    lower, mean, upper = (number(line[key][i]) for key in ("lower", "mean", "upper"))
    return f"{clean(name, 80)}, {by} {number(line[by][i])}: {mean}, {lower} to {upper}"


def _point(at: tuple[float, float], told: str) -> Html:
    return tag("circle", tag("title", told), cx=at[0], cy=at[1], r=3)


def inside(facts: dict[str, Any], width: int) -> list[Html]:
    """Each arm's interval as it shrank inside its group: a panel a group, the winner's first."""
    by_group: dict[int, list[dict[str, Any]]] = {}
    for trace in facts["traces"]:
        by_group.setdefault(trace["group"], []).append(trace)
    if not by_group:
        return []
    sign = 1 if facts["scale"]["goal"] == "min" else -1
    ranked = sorted(by_group, key=lambda j: min(sign * t["mean"][-1] for t in by_group[j]))
    chosen = [
        sorted(by_group[j], key=lambda t: (t["out"], sign * t["mean"][-1]))[:MOST_LINES] for j in ranked[:12]
    ]
    whole = spread([t for traces in chosen for t in traces], facts["scale"])
    panels = []
    for j, traces in zip(ranked, chosen, strict=False):
        names = [f"{t['arm']}{' (out)' if t['out'] else ''}" for t in traces]
        several = facts["groups"][j]["clients"] > 1
        heading = facts["groups"][j]["name"] + (f", as {traces[0]['client']} saw it" if several else "")
        if len(by_group[j]) > len(traces):
            heading += f": the best {len(traces)} of {len(by_group[j])} arms"
        panels.append(
            _bands(
                facts,
                traces,
                names,
                "pulls",
                ("pulls of the arm", cut(facts["mean"], width - 60)),
                width,
                230,
                crosses=[t["out"] for t in traces],
                legend=True,
                heading=heading,
                range_=whole,
            )
        )
    return panels


def loads(facts: dict[str, Any], width: int) -> Html | None:
    """Pulls by client: a bar each; of many clients a curve from the busiest to the idlest."""
    rows = sorted((r for r in facts["clients"] if r["pulls"] is not None), key=lambda r: -r["pulls"])
    if not rows or rows[0]["pulls"] == 0:
        return None
    least = (facts["limit"] or {}).get("longest")
    if len(rows) > MOST_ROWS:
        return _curve(rows, least, width)
    narrow = width < 500
    step, left = (40, 10) if narrow else (24, min(200, 24 + CHARACTER * max(len(r["name"]) for r in rows)))
    most = max(rows[0]["pulls"], least or 0)
    x = Axis(0, most, left, width - (70 if narrow else 90))
    parts: list[Any] = []
    for k, row in enumerate(rows):
        y = 8 + step * k + (16 if narrow else 0)
        told = f"{clean(row['name'], 80)}: {row['pulls']:,} pulls"
        bar = tag(
            "rect",
            tag("title", told),
            x=left,
            y=y,
            width=max(1.0, x(row["pulls"]) - left),
            height=16,
            class_="fill",
        )
        if narrow:
            parts.append(words(left, y - 4, cut(row["name"], width - 20), class_="name"))
        else:
            parts.append(words(left - 8, y + 13, cut(row["name"], left - 12), "end", class_="name"))
        parts.append(tag("g", bar, class_="c0"))
        parts.append(words(x(row["pulls"]) + 6, y + 13, short(row["pulls"]), class_="tick"))
    height = 8 + step * len(rows) + 6
    if least:
        parts.append(path([(x(least), 4), (x(least), height - 2)], class_="limit"))
        near_end = x(least) > width * 0.6
        note = "the busiest client's least"
        parts.append(
            words(
                x(least) + (-6 if near_end else 6),
                height + 12,
                cut(note, width - 60),
                "end" if near_end else "start",
                class_="tick",
            )
        )
        height += 20
    return svg(width, height, f"Pulls of {len(rows)} clients, at most {rows[0]['pulls']:,}", *parts)


def _curve(rows: list[dict[str, Any]], least: float | None, width: int) -> Html:
    pulls = [r["pulls"] for r in rows]
    x, y = Axis(1, len(pulls), 52, width - 14), Axis(0, max(pulls[0], least or 0), 188, 24)
    outline = [(x(k + 1), y(p)) for k, p in enumerate(pulls)]
    area = path([(x(1), y(0)), *outline, (x(len(pulls)), y(0))], class_="fill")
    parts = [
        frame(x, y, ("clients, from the busiest to the idlest", "pulls"), 5),
        tag("g", area, class_="c0"),
    ]
    if least:
        parts.append(path([(x.begin, y(least)), (x.end, y(least))], class_="limit"))
    return svg(width, 230, f"Pulls of {len(pulls)} clients, from {pulls[0]:,} down to {pulls[-1]:,}", *parts)


def matrix(facts: dict[str, Any], width: int) -> Html | None:
    """σ of group i (row) against group j (column): blue below 1, orange above."""
    h = facts["heterogeneity"]
    if h is None or len(h["groups"]) < 2:
        return None
    n = len(h["groups"])
    left = 100 if width < 500 else 150
    side = min(56.0, (width - left - 60) / n)
    top, parts = 70, []
    for j, name in enumerate(h["groups"]):
        at = left + (j + 0.5) * side
        turn = tag(
            "text", cut(name, 70), x=at, y=top - 8, transform=f"rotate(-35 {at:g} {top - 8})", class_="tick"
        )
        parts += [
            turn,
            words(left - 8, top + (j + 0.5) * side + 4, cut(name, left - 16), "end", class_="name"),
        ]
    for i, row in enumerate(h["matrix"]):
        for j, value in enumerate(row):
            if i == j:
                continue
            shown = value if isinstance(value, str) else f"{value:.2g}"
            size = 4.0 if isinstance(value, str) else math.log2(max(value, 1e-9))
            strength = min(abs(size) / 4.0, 1.0) * 0.55 + 0.08
            told = f"σ of {clean(h['groups'][i], 60)} against {clean(h['groups'][j], 60)}: {shown}"
            x, y = left + j * side, top + i * side
            box = tag(
                "rect", tag("title", told), x=f"{x:.1f}", y=f"{y:.1f}", width=f"{side - 2:.1f}",
                height=f"{side - 2:.1f}", fill_opacity=f"{strength:.2f}", class_="fill",
            )  # fmt: skip
            parts.append(tag("g", box, class_="c0" if size <= 0 else "c1"))
            if side > 24:
                parts.append(words(x + side / 2 - 1, y + side / 2 + 4, shown, "middle", class_="cell"))
    return svg(left + n * side + 60, top + n * side + 8, f"Heterogeneity indices of {n} groups", *parts)


def network(facts: dict[str, Any], width: int) -> Html | None:
    """Who hears whom: groups by colour and shape, liars ringed, the proven faulty crossed."""
    net = facts["network"]
    if net is None:
        return None
    names, n = net["names"], len(net["names"])
    size = width if width < 500 else 620
    r = 8 if n <= 60 else 4 if n <= 300 else 2
    at = [(30 + (size - 60) * px, 24 + (size - 60) * 0.8 * py) for px, py in net["places"]]
    edges = sorted({(min(u, v), max(u, v)) for u, v in net["edges"]})[:MOST_EDGES]
    d = "".join(f"M{at[u][0]:.0f} {at[u][1]:.0f}L{at[v][0]:.0f} {at[v][1]:.0f}" for u, v in edges)
    parts: list[Any] = [tag("path", d=d, class_="edge")]
    faults = {fault["client"] for fault in facts["faults"]}
    for (x, y), name, j in zip(at, names, net["group"], strict=True):
        told = clean(name, 80) + (f" ({clean(facts['groups'][j]['name'], 60)})" if j >= 0 else "")
        if name in facts["liars"]:
            told += f", lies ({clean(facts['liars'][name], 40)})"
            parts.append(tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r + 5, class_="ring"))
        parts.append(
            tag("g", tag("title", told), shape(j, x, y, r), class_=f"c{j % COLOURS}" if j >= 0 else "tick")
        )
        if name in faults:
            parts.append(tag("path", d=f"M{x - 6:.0f} {y - 6:.0f}l12 12m0-12l-12 12", class_="cross"))
        if n <= 40 and width > 500:
            turned = x > size - 120
            beside = round(x - r - 3) if turned else round(x + r + 3)
            parts.append(
                words(beside, round(y - r), cut(name, 110), "end" if turned else "start", class_="tick")
            )
    height = 24 + (size - 60) * 0.8 + 30
    for j, group in enumerate(facts["groups"][: COLOURS * 2]):
        parts.append(tag("g", shape(j, 30, height + 20 * j, 7), class_=f"c{j % COLOURS}"))
        parts.append(words(46, height + 20 * j + 4, cut(group["name"], size - 60), class_="name"))
        if facts["liars"] and j == 0:
            parts.append(tag("circle", cx=size - 150, cy=height, r=8, class_="ring"))
            parts.append(words(size - 136, height + 4, "a liar", class_="name"))
    height += 20 * min(len(facts["groups"]), COLOURS * 2)
    label = f"A network of {n} clients and {len(net['edges'])} edges"
    return svg(size, height, label, *parts)


def shape(j: int, x: float, y: float, r: float) -> Html:
    """The mark of a group: another shape for each of a few."""
    kind = max(j, 0) % 4
    if kind == 0:
        return tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r, class_="fill")
    corners = {1: ((-1, -1), (1, -1), (1, 1), (-1, 1)), 2: ((0, -1.2), (1.2, 1), (-1.2, 1))}
    ends = corners.get(kind, ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)))
    return path([(round(x + r * dx, 1), round(y + r * dy, 1)) for dx, dy in ends], class_="fill")


def comparison(facts: dict[str, Any], width: int, *, name: str, title: str) -> Html | None:
    """A study's mean of one cost for each combination, with its 95 % interval."""
    rows = facts["rows"][:MOST_ROWS]
    if not rows:
        return None
    labels = [cell_name(facts, row) for row in rows]
    narrow = width < 500
    step, left = (42, 10) if narrow else (26, min(260, 24 + CHARACTER * max(map(len, labels))))
    spans = [row[name]["mean_interval"] or (row[name]["mean"],) * 2 for row in rows]
    low, high = min(a for a, _ in spans), max(b for _, b in spans)
    log = low > 0 and high / low > 20
    x = Axis(low if log else min(0.0, low), high or 1.0, left, width - 70, log=log)
    parts: list[Any] = []
    height = 8 + step * len(rows)
    for value in x.ticks(4 if narrow else 6):
        parts.append(path([(x(value), 4), (x(value), height)], class_="grid"))
        parts.append(words(x(value), height + 16, short(value), "middle", class_="tick"))
    for k, (row, label, span) in enumerate(zip(rows, labels, spans, strict=True)):
        y = 8 + step * k + (28 if narrow else 13)
        mean = row[name]["mean"]
        told = f"{label}: {number(mean)}, {number(span[0])} to {number(span[1])}"
        dot = tag("circle", cx=x(mean), cy=y, r=5)
        parts.append(
            tag(
                "g",
                tag("title", told),
                path([(x(span[0]), y), (x(span[1]), y)], class_="whisker"),
                dot,
                class_="c0 line",
            )
        )
        parts.append(
            words(
                left if narrow else left - 10,
                y - 12 if narrow else y + 4,
                cut(label, width - 20 if narrow else left - 14),
                "start" if narrow else "end",
                class_="name",
            )
        )
        parts.append(
            words(
                min(x(span[1]) + 8, width - 4),
                y + 4,
                short(float(f"{mean:.4g}")),
                "start" if x(span[1]) + 60 < width else "end",
                class_="tick",
            )
        )
    parts.append(
        words(
            (x.begin + x.end) / 2,
            height + 34,
            title + (" (logarithmic)" if log else ""),
            "middle",
            class_="tick",
        )
    )
    return svg(
        width,
        height + 42,
        f"{title}: "
        + "; ".join(
            f"{clean(a, 40)} {number(r[name]['mean'], 3)}" for a, r in zip(labels, rows, strict=True)
        ),
        *parts,
    )


def cell_name(facts: dict[str, Any], row: dict[str, Any]) -> str:
    """A combination of a study's varied keys, in words."""
    return ", ".join(f"{key} = {clean(row[key], 40)}" for key in facts["varied"]) or "all trials"
