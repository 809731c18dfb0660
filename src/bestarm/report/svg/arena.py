"""Pictures of an arena: performance profiles, and pulls against rounds with the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bestarm.report.colours import COLOURS, DASHES
from bestarm.report.markup import Html, clean, tag
from bestarm.report.numbers import number
from bestarm.report.svg.base import PHONE, Axis, frame, path, svg, words
from bestarm.study.arena.result import Arena, Mean

Box = tuple[float, float, float, float]

FURTHEST = 1e6  # ratio at the right end of a profile
LEGEND = 230  # pixels beside a wide profile


def numbered(found: Arena) -> dict[str, int]:
    """The number of each entrant in pictures, from 1."""
    return {entry.label: k for k, entry in enumerate(found.entries, start=1)}


def profile(found: Arena, width: int, *, cost: str, title: str, instances: Sequence[str]) -> Html | None:
    """The share of instances on which an entrant's cost is at most τ times the least cost, against τ."""
    ratios = found.profile(cost, instances)
    if not ratios:
        return None
    most = min(FURTHEST, max(max(values) for values in ratios.values()))
    narrow = width < PHONE
    beside = 0 if narrow else LEGEND
    x, y = Axis(1.0, max(most, 2.0), 46, width - 20 - beside, log=True), Axis(0.0, 1.0, 250, 24)
    parts: list[Any] = [frame(x, y, (f"{title}, times the least of all entrants", "share of instances"), 5)]
    ranked = sorted(ratios, key=lambda label: -_area(ratios[label], len(instances), x.high))
    order = numbered(found)
    rows = -(-len(ranked) // 2) if narrow else len(ranked)  # a phone has two columns below the picture
    for place, label in enumerate(ranked):
        points, share = [(x(1.0), y(0.0))], 0.0
        for ratio in (value for value in ratios[label] if value <= x.high):
            points.append((x(ratio), y(share)))
            share += 1.0 / len(instances)
            points.append((x(ratio), y(share)))
        points.append((x(x.high), y(share)))
        line = path(points, stroke_dasharray=_dash(order[label]), stroke_width="2")
        told = tag("title", f"{clean(label, 60)}: within 2 times on {_within(ratios[label], 2)} instances")
        parts.append(tag("g", told, line, class_=f"line c{(order[label] - 1) % len(COLOURS)}"))
        column, row = divmod(place, rows)
        at = (4 + column * width / 2, 306) if narrow else (width - LEGEND + 4, 30)
        parts += _legend(label, order[label], at[0], at[1] + 15 * row, 16 if narrow else 30)
    text = "; ".join(
        f"{clean(label, 40)} within 2 times on {_within(ratios[label], 2)} of {len(instances)}"
        for label in ranked
    )
    height = 306 + 15 * rows if narrow else max(300, 40 + 15 * rows)
    return svg(width, height, f"Performance profile, {title}: {text}", *parts)


def _area(ratios: Sequence[float], instances: int, most: float) -> float:
    """Orders profiles: how many instances are solved, those with small ratios first."""
    return sum(1.0 / value for value in ratios if value <= most) / instances


def _within(ratios: Sequence[float], times: float) -> int:
    return sum(value <= times for value in ratios)


def _dash(place: int) -> str | None:
    return DASHES[(place - 1) // len(COLOURS) % len(DASHES)] or None


def _legend(label: str, place: int, left: float, top: float, most: int) -> list[Html]:
    """A line's number and name, of which at most so many characters are shown."""
    line = path([(left, top), (left + 22, top)], stroke_dasharray=_dash(place), stroke_width="2")
    text = words(left + 28, top + 4, f"{place} {clean(label, most)}", class_="tick")
    return [tag("g", line, class_=f"line c{(place - 1) % len(COLOURS)}"), text]


def front(found: Arena, width: int, *, instance: str) -> Html | None:
    """Pulls against rounds of every entrant on an instance, with the front that no other beats in both."""
    scores = [score for score in found.on(instance) if score.solved]
    if not scores or not all(score.pulls.mean and score.rounds.mean for score in scores):  # log axes
        return None
    limit = {ground.name: ground.limit for ground in found.grounds}[instance]
    pulls, rounds = [_ends(score.pulls) for score in scores], [_ends(score.rounds) for score in scores]
    low = min([*(ends[0] for ends in pulls), *([limit] if limit else [])])
    few, many = min(ends[0] for ends in rounds), max(ends[1] for ends in rounds)
    x = Axis(few * 0.8, many * 1.4, 58, width - 16, log=True)
    y = Axis(low * 0.8, max(ends[1] for ends in pulls) * 1.3, 236, 26, log=True)
    parts: list[Any] = [frame(x, y, ("rounds", "pulls"), 4)]
    if limit:
        parts.append(path([(x.begin, y(limit)), (x.end, y(limit))], class_="limit"))
    best = found.front(instance)
    parts.append(path([(x(s.rounds.mean), y(s.pulls.mean)) for s in best], class_="axis"))
    order, proofs = numbered(found), {entry.label: entry.proof for entry in found.entries}
    for score in scores:
        at = x(score.rounds.mean), y(score.pulls.mean)
        told = (
            f"{clean(score.method, 60)}: {number(score.pulls.mean)} pulls, {number(score.rounds.mean)} rounds"
        )
        mark = _mark(at, bool(proofs[score.method]))
        up, across = _ends(score.pulls), _ends(score.rounds)
        whiskers = [
            path([(at[0], y(up[0])), (at[0], y(up[1]))], class_="whisker"),
            path([(x(across[0]), at[1]), (x(across[1]), at[1])], class_="whisker"),
        ]
        kind = f"line c{(order[score.method] - 1) % len(COLOURS)}"
        parts.append(tag("g", tag("title", told), *whiskers, mark, class_=kind))
    marks = {order[score.method]: (x(score.rounds.mean), y(score.pulls.mean)) for score in scores}
    parts += _labels(marks, y.begin)
    if limit:
        parts.append(words(x.end, y.end - 8, "dashed: limit of proved methods", "end", class_="tick"))
    named = ", ".join(f"{clean(score.method, 40)}" for score in best)
    return svg(width, 282, f"Pulls against rounds on {clean(instance, 60)}. On the front: {named}", *parts)


def _ends(cost: Mean) -> tuple[float, float]:
    """The 95 % interval of a mean, no lower than a tenth of it, for a logarithmic axis."""
    half = cost.half or 0.0
    return max(cost.mean - half, cost.mean / 10), cost.mean + half


def _mark(at: tuple[float, float], proved: bool) -> Html:
    """A filled circle for an entrant with a proof, an open square for one without."""
    if proved:
        return tag("circle", cx=at[0], cy=at[1], r=5)
    corners = [(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5), (-4.5, -4.5)]
    return path([(at[0] + dx, at[1] + dy) for dx, dy in corners], stroke_width="2")


def _labels(places: Mapping[int, tuple[float, float]], bottom: float) -> list[Html]:
    """The number of each entrant beside its mark, where it covers neither a mark nor another number."""
    taken = [(left - 6, top - 6, left + 6, top + 6) for left, top in places.values()]
    found = []
    for place, (left, top) in sorted(places.items(), key=lambda item: item[1][1]):
        wide = 7.5 * len(str(place))
        boxes = [
            (left + dx, top + dy - 5, left + dx + wide, top + dy + 5)
            for far in (0, 9, 18, 27, 36)
            for dx, dy in (
                (8 + far, 0), (-8 - wide - far, 0), (-wide / 2, -13 - far), (-wide / 2, 13 + far),
                (8, -9 - far), (8, 9 + far), (-8 - wide, -9 - far), (-8 - wide, 9 + far),
            )
        ]  # fmt: skip
        free = [box for box in boxes if box[3] < bottom and not any(_overlap(box, other) for other in taken)]
        spot = free[0] if free else boxes[0]
        taken.append(spot)
        found.append(words(spot[0], spot[3] - 1, str(place), class_="tick over"))
    return found


def _overlap(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]
