"""Intervals of groups and of arms: where they ended, and how they shrank."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm.report.facts import LineFacts, RunFacts, TraceFacts
from bestarm.report.markup import Html, clean, tag
from bestarm.report.svg.bands import Band, Frame, bands, spread
from bestarm.report.svg.base import CHARACTER, MOST_ROWS, PHONE, Axis, cut, number, path, short, svg, words
from bestarm.report.words import fate_of

MOST_LINES = 7  # of a picture with one line per group or arm

MOST_PANELS = 12  # groups whose arms are drawn


def better_first(facts: RunFacts, lines: Sequence[LineFacts]) -> list[LineFacts]:
    """Lines from the best mean to the worst; those that are still in the race first."""
    sign = 1 if facts.scale.goal == "min" else -1
    return sorted(lines, key=lambda line: (line.fate != "in", sign * line.mean[-1]))


def forest(facts: RunFacts, width: int) -> Html | None:
    """Where each group ended: its arm's mean and interval, one row per group."""
    shown = better_first(facts, facts.lines)[:MOST_ROWS]
    if not shown:
        return None
    narrow = width < PHONE
    step, left = (44, 10) if narrow else (26, min(220, 24 + CHARACTER * max(len(r.name) for r in shown)))
    x = Axis(*spread(shown, facts.scale, last=True), left, width - (14 if narrow else 150))
    height = 12 + step * len(shown) + 44
    parts: list[Html] = []
    for value in x.ticks(4 if narrow else 6):
        parts.append(path([(x(value), 8), (x(value), height - 40)], class_="grid"))
        parts.append(words(x(value), height - 24, short(value), "middle", class_="tick"))
    title, middle = cut(facts.mean, width - 20), (x.begin + x.end) / 2
    parts.append(words(middle, height - 6, title, "middle", class_="tick"))
    for k, line in enumerate(shown):
        became = fate_of(facts, line)
        y = 12 + step * k + (30 if narrow else 14)
        if narrow:
            parts.append(words(left, y - 14, cut(line.name, width - 130), class_="name"))
            parts.append(words(width - 6, y - 14, became, "end", class_="tick"))
        else:
            parts.append(words(left - 12, y + 4, cut(line.name, left - 16), "end", class_="name"))
            parts.append(words(width - 140, y + 4, became, class_="tick"))
        parts.append(_whisker(line, became, x, y))
    ends = "; ".join(f"{clean(r.name, 40)} {number(r.mean[-1], 3)}" for r in shown[:8])
    return svg(width, height, f"Final intervals of {len(shown)} groups: {ends}", *parts)


def _whisker(line: LineFacts, became: str, x: Axis, y: float) -> Html:
    """A mean with its interval, in one row."""
    mean, lower, upper = line.mean[-1], line.lower[-1], line.upper[-1]
    told = f"{line.name}: {number(mean)}, {number(lower)} to {number(upper)}; {became}"
    mark = path([(x(lower), y), (x(upper), y)], class_="whisker")
    ends = [path([(x(v), y - 5), (x(v), y + 5)], class_="whisker") for v in (lower, upper)]
    dot = tag("circle", cx=x(mean), cy=y, r=5)
    colour = 0 if line.fate == "in" else 1
    return tag("g", tag("title", told), mark, *ends, dot, class_=f"c{colour} line")


def race(facts: RunFacts, width: int) -> Html | None:
    """How the groups' intervals shrank: bands over rounds or over pulls, whichever the method counts."""
    by = facts.method.axis
    lines = [(line, line.round if by == "round" else line.pulls) for line in facts.lines]
    lines = [(line, at) for line, at in lines if at]
    if max((len(at) for _, at in lines), default=0) < 2:
        return None
    at = {line.group: at for line, at in lines}
    first = better_first(facts, [line for line, _ in lines])
    longest = sorted(first, key=lambda line: -len(at[line.group]))[:MOST_LINES]
    shown = [
        Band(f"{line.name} ({fate_of(facts, line)})", at[line.group], line, line.fate != "in")
        for line in better_first(facts, longest)
    ]
    title = "pulls of the group's arm" if by == "pulls" else "round (0: the first reports)"
    place = Frame(
        by=by,
        titles=(title, cut(facts.mean, width - 60)),
        width=width,
        height=340 if width > PHONE else 260,
        span=spread([band.line for band in shown], facts.scale),
    )
    return bands(shown, place)


def inside(facts: RunFacts, width: int) -> list[Html]:
    """Each arm's interval as it shrank inside its group: one panel per group, the winner's first."""
    by_group: dict[int, list[TraceFacts]] = {}
    for trace in facts.traces:
        by_group.setdefault(trace.group, []).append(trace)
    if not by_group:
        return []
    sign = 1 if facts.scale.goal == "min" else -1
    ranked = sorted(by_group, key=lambda j: min(sign * t.mean[-1] for t in by_group[j]))[:MOST_PANELS]
    chosen = {j: sorted(by_group[j], key=lambda t: (t.out, sign * t.mean[-1]))[:MOST_LINES] for j in ranked}
    span = spread([t for traces in chosen.values() for t in traces], facts.scale)
    panels = []
    for j, traces in chosen.items():
        shown = [Band(f"{t.arm}{' (out)' if t.out else ''}", t.pulls, t, t.out) for t in traces]
        several = facts.groups[j].clients > 1
        heading = facts.groups[j].name + (f", as {traces[0].client} saw it" if several else "")
        if len(by_group[j]) > len(traces):
            heading += f": the best {len(traces)} of {len(by_group[j])} arms"
        titles = ("pulls of the arm", cut(facts.mean, width - 60))
        panels.append(bands(shown, Frame("pulls", titles, width, 230, span, heading)))
    return panels
