"""The leaderboard: every option ranked, with its mean, interval, pulls, lead, and when it left and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bestarm.records.figures import rough, said, span
from bestarm.report.colours import colour
from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.numbers import number, short
from bestarm.report.page.parts import MOST_ROWS, fold
from bestarm.report.standings import Standing, standings
from bestarm.report.svg import Axis, path, words
from bestarm.report.svg.base import svg
from bestarm.report.svg.chart import dot
from bestarm.report.words import interval_note

ALL, FIRST = 30, 20  # up to ALL options are shown at once; of more, the FIRST ones, and a fold with the rest

SHORT = 24  # characters; a longer name may be broken

WIDTH = 150  # of the picture in a row


def leaderboard(facts: RunFacts) -> Html | None:
    """The section; None if nothing is known about any option."""
    ranked = standings(facts)
    if all(one.mean is None and one.state == "in" for one in ranked):
        return None
    x = _axis(facts, ranked)
    first = ranked if len(ranked) <= ALL else ranked[:FIRST]
    rest = ranked[len(first) : MOST_ROWS]
    parts: list[Any] = [tag("p", _said(facts, ranked, first), class_="note")]
    parts.append(_table(facts, first, 1, x, _caption(facts, ranked, len(first))))
    if rest:
        named = f"The other {len(ranked) - len(first):,} options"
        if len(first) + len(rest) < len(ranked):
            named += f" (the first {len(rest):,} of them; all are in the record)"
        parts.append(fold(named, _table(facts, rest, len(first) + 1, x, f"{named}, ranked")))
    return join(*parts)


def _caption(facts: RunFacts, ranked: Sequence[Standing], shown: int) -> str:
    now = "" if facts.verdict else ", by now"
    if shown < len(ranked):
        return f"The first {shown} of {len(ranked):,} options{now}; the rest is in the fold below"
    return f"All {len(ranked)} options{now}"


def _what_intervals_promise(facts: RunFacts) -> str:
    """What the intervals of the table promise, in a sentence."""
    if facts.card is not None and facts.card.alpha is not None:
        return "The intervals are those of the answer above, which says how probable it is that all hold."
    return interval_note(facts.method) or "The interval is the one that the method claims."


def _said(facts: RunFacts, ranked: Sequence[Standing], first: Sequence[Standing]) -> str:
    """What the columns are, in a few sentences."""
    found = [f"Ranked by {clean(facts.mean)}." if len(ranked) > 1 else ""]
    if any(one.lower is not None for one in ranked):
        found.append(_what_intervals_promise(facts))
    if any(one.mean is None for one in ranked):
        found.append("A dash is what the server was never told: it stayed at the site.")
    found.append("Lead: how far an option is ahead of the next one.")
    return " ".join(filter(None, found))


def _axis(facts: RunFacts, ranked: Sequence[Standing]) -> Axis | None:
    """One axis for the pictures of all rows."""
    ends = [end for one in ranked for end in (one.lower, one.upper, one.mean) if end is not None]
    if not ends:
        return None
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or 0.02 * (facts.scale.high - facts.scale.low)
    return Axis(max(low - margin, facts.scale.low), min(high + margin, facts.scale.high), 8, WIDTH - 8)


def _table(facts: RunFacts, shown: Sequence[Standing], rank: int, x: Axis | None, caption: str) -> Html:
    head: list[Any] = [
        "",
        "option",
        clean(facts.mean),
        _scale(x),
        "interval",
        "pulls",
        "lead",
        "result",
        "left",
        "why",
    ]
    rows = [
        [
            str(rank + k) if one.mean is not None else "–",
            _option(one),
            _rounded(facts, one, one.mean),
            _whisker(facts, one, x),
            _interval(facts, one),
            number(one.pulls),
            _rounded(facts, one, one.lead).removesuffix(" %"),
            tag("span", one.became, class_="when"),
            tag("span", one.left, class_="when") if one.left else "–",
            tag("span", one.why, class_="why") if one.why else "–",
        ]
        for k, one in enumerate(shown)
    ]
    kept = [k for k in range(len(head)) if k < 3 or any(row[k] != "–" and row[k] is not None for row in rows)]
    marks = [
        {"data_option": one.place, "class_": {"won": "won", "out": "lost", "in": None}[one.state]}
        for one in shown
    ]
    return table(
        [head[k] for k in kept],
        [[row[k] for k in kept] for row in rows],
        caption=caption,
        numbers={at for at, k in enumerate(kept) if k in (0, 2, 4, 5, 6)},
        marks=marks,
    )


def _option(one: Standing) -> Html:
    """The name of an option, after its mark."""
    kind = "option short" if len(one.name) <= SHORT else "option"
    return tag("span", dot(one.place, won=one.state == "won"), name(one.name, 80), class_=kind)


def _ends(one: Standing) -> tuple[float, float] | None:
    return None if one.lower is None or one.upper is None else (one.lower, one.upper)


def _rounded(facts: RunFacts, one: Standing, value: float | None) -> str:
    """A number of an option: rounded to its interval, in per cent where the answer card writes per cent."""
    ends = _ends(one)
    if value is None or (ends is None and not facts.percent):
        return number(value)
    return said(value, ends, facts.percent) if ends else rough(value, facts.percent)


def _interval(facts: RunFacts, one: Standing) -> str:
    ends = _ends(one)
    return "–" if ends is None else span(ends, facts.percent)


def _whisker(facts: RunFacts, one: Standing, x: Axis | None) -> Html | None:
    """The mean with its interval, on the axis of all rows."""
    if x is None or one.mean is None:
        return None
    parts: list[Any] = []
    told = f"{clean(one.name, 80)}: {_rounded(facts, one, one.mean)}"
    if one.lower is not None and one.upper is not None:
        told += f", {_interval(facts, one)}"
        parts.append(path([(x(one.lower), 9), (x(one.upper), 9)], class_="whisker"))
        parts += [path([(x(end), 5), (x(end), 13)], class_="whisker") for end in (one.lower, one.upper)]
    parts.append(tag("circle", cx=x(one.mean), cy=9, r=4))
    weight = {"won": " won", "out": " lost", "in": ""}[one.state]
    drawn = tag("g", tag("title", told), *parts, class_=f"line c{colour(one.place)}{weight}", data_tip=told)
    return svg(WIDTH, 18, told, drawn, class_="row")


def _scale(x: Axis | None) -> Html | None:
    """The numbers of the axis, for the head of the table."""
    if x is None:
        return None
    ticks = x.ticks(3)
    parts = [words(min(max(x(v), 14), WIDTH - 14), 11, short(v), "middle", class_="tick") for v in ticks]
    parts += [path([(x(v), 14), (x(v), 18)], class_="axis") for v in ticks]
    return svg(WIDTH, 18, f"axis from {short(x.low)} to {short(x.high)}", *parts, class_="row")
