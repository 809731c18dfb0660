"""The leaderboard: every option ranked, with its mean, interval, pulls, lead, and when it left and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bestarm.records.figures import (
    lead_places,
    mean_places,
    number_of,
    places_of,
    rough,
    rough_gap,
    said,
    span,
)
from bestarm.report.colours import colour
from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, clean, join, name, table, tag, unbroken
from bestarm.report.numbers import number, short
from bestarm.report.page.parts import in_two
from bestarm.report.standings import Standing, site_standings, standings
from bestarm.report.svg import Axis, path, words
from bestarm.report.svg.base import svg
from bestarm.report.svg.chart import dot
from bestarm.report.words import interval_note

SHORT = 24  # characters; a longer name may be broken

APART = 44  # pixels between the numbers of the axis

WIDTH = 150  # of the picture in a row

Places = tuple[int | None, int | None]  # the decimals of all means, and of all leads


def leaderboard(facts: RunFacts) -> Html | None:
    """The section; None if nothing is known about any option."""
    by_site = facts.options_by_site
    if by_site is not None and not by_site.weighted:
        return leaderboard_by_site(facts)
    ranked = standings(facts)
    text = f"Ranked by {clean(facts.mean)}."
    if facts.card is not None and facts.card.lead is not None and facts.card.lead.value < 0:
        text = f"The named option first, then ranked by {clean(facts.mean)}."
    return _leaderboard(facts, ranked, list(range(1, len(ranked) + 1)), text)


def leaderboard_by_site(facts: RunFacts) -> Html | None:
    """The options of each site, ranked there."""
    sites = site_standings(facts)
    ranks = [rank for rows in sites for rank in range(1, len(rows) + 1)]
    text = f"Ranked by {clean(facts.mean)} at each site."
    return _leaderboard(facts, [one for rows in sites for one in rows], ranks, text)


def _leaderboard(facts: RunFacts, ranked: Sequence[Standing], ranks: Sequence[int], text: str) -> Html | None:
    if all(one.mean is None and one.state == "in" for one in ranked):
        return None
    x, places = _axis(facts, ranked), _places(facts, ranked)

    def made(some: slice, caption: str) -> Html:
        return _table(facts, ranked[some], ranks[some], x, places, caption)

    note = tag("p", unbroken(_said(facts, ranked, text)), class_="note")
    return join(note, in_two(len(ranked), made, "" if facts.verdict else ", by now"))


def _places(facts: RunFacts, ranked: Sequence[Standing]) -> Places:
    """The decimals of the columns: those of the answer card, once there is one."""
    own = places_of(((one.mean, _ends(one)) for one in ranked), facts.percent)
    if facts.card is None or mean_places(facts.card) is None:
        return own, own
    return mean_places(facts.card), lead_places(facts.card)


def _what_intervals_promise(facts: RunFacts) -> str:
    """What the intervals of the table promise, in a sentence."""
    if facts.card is not None and facts.card.alpha is not None:
        return "The intervals are those of the answer above, which says how probable it is that all hold."
    return interval_note(facts.method) or "The interval is the one that the method claims."


def _said(facts: RunFacts, ranked: Sequence[Standing], text: str) -> str:
    """What the columns are, in a few sentences."""
    found = [text if len(ranked) > 1 else ""]
    if any(one.lower is not None for one in ranked):
        found.append(_what_intervals_promise(facts))
    if any(one.mean is None for one in ranked):
        kept = facts.card is not None and facts.card.kept
        silent = "A dash is what the clients kept: they sent no summaries."
        found.append(silent if kept else "A dash is what the server was never told: it stayed at the site.")
    if facts.liars and facts.card is not None and any(one.pulls for one in ranked):
        found.append("Pulls include those that liars claim; the cost counts honest clients only.")
    points = ", in percentage points" if facts.percent else ""
    found.append(f"Lead: how far an option is ahead of the next one{points}.")
    return " ".join(filter(None, found))


def _axis(facts: RunFacts, ranked: Sequence[Standing]) -> Axis | None:
    """One axis for the pictures of all rows."""
    ends = [end for one in ranked for end in (one.lower, one.upper, one.mean) if end is not None]
    if not ends:
        return None
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or 0.02 * (facts.scale.high - facts.scale.low)
    return Axis(max(low - margin, facts.scale.low), min(high + margin, facts.scale.high), 8, WIDTH - 8)


def _table(
    facts: RunFacts,
    shown: Sequence[Standing],
    ranks: Sequence[int],
    x: Axis | None,
    places: Places,
    caption: str,
) -> Html:
    head: list[Any] = [
        "",
        "option",
        clean(facts.mean),
        _scale(x, facts.percent),
        "interval",
        "pulls",
        "lead",
        "result",
        "left",
        "why",
    ]
    rows = [
        [
            str(rank) if one.mean is not None else "–",
            _option(one),
            _mean(facts, one, places),
            _whisker(facts, one, x, places),
            _interval(facts, one),
            number(one.pulls),
            _lead(facts, one, places),
            tag("span", one.became, class_="when"),
            tag("span", one.left, class_="when") if one.left else "–",
            tag("span", one.why, class_="why") if one.why else "–",
        ]
        for rank, one in zip(ranks, shown, strict=False)
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


def _mean(facts: RunFacts, one: Standing, places: Places) -> str:
    """The mean of an option, in per cent where the answer card writes per cent."""
    if one.mean is None or _ends(one) is None:
        return rough(one.mean, facts.percent)
    return said(one.mean, _ends(one), facts.percent, places=places[0])


def _lead(facts: RunFacts, one: Standing, places: Places) -> str:
    """The lead over the next option: of the first one as the answer card writes it."""
    lead = facts.card.lead if facts.card else None
    if lead is not None and lead.option == one.name and one.lead is not None:
        return number_of(lead, facts.percent, places[1])
    if one.lead is None:
        return "–"
    return rough_gap(one.lead, facts.percent, None if _ends(one) is None else places[1])


def _interval(facts: RunFacts, one: Standing) -> str:
    ends = _ends(one)
    return "–" if ends is None else span(ends, facts.percent)


def _whisker(facts: RunFacts, one: Standing, x: Axis | None, places: Places) -> Html | None:
    """The mean with its interval, on the axis of all rows."""
    if x is None or one.mean is None:
        return None
    parts: list[Any] = []
    told = f"{clean(one.name, 80)}: {_mean(facts, one, places)}"
    if one.lower is not None and one.upper is not None:
        told += f", {_interval(facts, one)}"
        parts.append(path([(x(one.lower), 9), (x(one.upper), 9)], class_="whisker"))
        parts += [path([(x(end), 5), (x(end), 13)], class_="whisker cap") for end in (one.lower, one.upper)]
    parts.append(tag("circle", cx=x(one.mean), cy=9, r=4))
    weight = {"won": " won", "out": " lost", "in": ""}[one.state]
    drawn = tag("g", tag("title", told), *parts, class_=f"line c{colour(one.place)}{weight}", data_tip=told)
    return svg(WIDTH, 18, told, drawn, class_="row")


def _scale(x: Axis | None, percent: bool) -> Html | None:
    """The numbers of the axis, for the head of the table."""
    if x is None:
        return None
    ticks = [value for value in x.ticks(4) if 14 <= x(value) <= WIDTH - 14]
    while len(ticks) > 1 and x(ticks[1]) - x(ticks[0]) < APART:
        ticks = ticks[::2]

    def told(value: float) -> str:
        return f"{short(100 * value)} %" if percent else short(value)

    parts = [words(x(v), 11, told(v), "middle", class_="tick") for v in ticks]
    parts += [path([(x(v), 14), (x(v), 18)], class_="axis") for v in ticks]
    return svg(WIDTH, 18, f"axis from {told(x.low)} to {told(x.high)}", *parts, class_="row")
