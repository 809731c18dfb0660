"""How the intervals of options shrank, the wealth of the bets against them, options inside their group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from bestarm.records.card import OptionFacts
from bestarm.records.figures import rough
from bestarm.report.colours import places
from bestarm.report.facts import BetFacts, LineFacts, RunFacts, SiteFacts, TraceFacts
from bestarm.report.markup import Html
from bestarm.report.numbers import number
from bestarm.report.standings import named, states, wealth_said
from bestarm.report.svg.base import PHONE, cut
from bestarm.report.svg.chart import Curve, Frame, chart, spread
from bestarm.report.words import against_control, fate_of
from bestarm.util.text import counted

MOST_LINES = 20  # of a chart of the race

MOST_PANELS = 12  # groups whose arms are drawn

HIGHEST = 1.6  # times the logarithm of the limit: the top of the race of wealths

ENDLESS = 700.0  # a larger logarithm has no exponential


def better_first(facts: RunFacts, lines: Sequence[LineFacts]) -> list[LineFacts]:
    """Lines from the best mean to the worst; those that are still in the race first."""
    sign = 1 if facts.scale.goal == "min" else -1
    return sorted(lines, key=lambda line: (line.fate != "in", sign * line.mean[-1]))


def drawable(facts: RunFacts) -> list[LineFacts]:
    """The lines that a chart of the race can show, those that stayed longest first."""
    by = facts.method.axis
    lines = [line for line in facts.lines if (line.round if by == "round" else line.pulls)]
    return sorted(better_first(facts, lines), key=lambda line: -len(line.pulls))


def has_bands(facts: RunFacts) -> bool:
    """Whether the race shows how intervals shrank: those that the method claims, while they are promised.

    A peer's own ones are not those of the answer, which follow from what its neighbours say.
    """
    if facts.card is None:
        return facts.method.claims_intervals
    return facts.method.claims_intervals and facts.card.alpha is not None and not facts.method.peers


def race(facts: RunFacts, width: int) -> Html | None:
    """How the options' intervals shrank, over rounds or over pulls, whichever the method counts.

    There are bands where the method claims intervals, and a line ends with the mean and the interval that the
    answer card has for the option.
    """
    by = facts.method.axis
    lines = better_first(facts, drawable(facts)[:MOST_LINES])
    at = {line.name: line.round if by == "round" else line.pulls for line in lines}
    if max((len(values) for values in at.values()), default=0) < 2:
        return None
    place, state = places(facts.roster), states(facts)
    if facts.card is not None:
        told = {option.name: option for option in facts.card.options}
        lines = [_as_told(line, told.get(line.name)) for line in lines]
    bands = has_bands(facts)
    curves = [
        Curve(
            name=line.name,
            place=place.get(line.name, 0),
            state=state.get(line.name, "in" if line.fate == "in" else "out"),
            at=at[line.name],
            value=line.mean,
            lower=line.lower if bands else (),
            upper=line.upper if bands else (),
            end=None if bands or facts.card is None or not line.lower else (line.lower[-1], line.upper[-1]),
            note=fate_of(facts, line),
            cross=line.fate != "in",
        )
        for line in lines
    ]
    title = "pulls of the option" if by == "pulls" else "round (0: the first reports)"
    layout = Frame(
        by=by,
        titles=(title, cut(facts.mean, width - 60)),
        width=width,
        height=340 if width > PHONE else 260,
        span=spread((y for curve in curves for y in curve.heights), facts.scale),
        format=partial(rough, percent=facts.percent),
        percent=facts.percent,
    )
    return chart(curves, layout)


def _as_told(line: LineFacts, told: OptionFacts | None) -> LineFacts:
    """The line with the mean and the interval of the answer card at its end; one interval, or none."""
    mean = line.mean if told is None or told.mean is None else (*line.mean[:-1], told.mean)
    if told is None or told.interval is None:
        return replace(line, mean=mean, lower=(), upper=())
    low, high = told.interval
    return replace(line, mean=mean, lower=(*line.lower[:-1], low), upper=(*line.upper[:-1], high))


def bets_drawn(facts: RunFacts) -> list[BetFacts]:
    """The options that the race of wealths shows: those that stayed longest."""
    bets = facts.wealths.bets if facts.wealths else ()
    return sorted(bets, key=lambda bet: (bet.out, -bet.pulls[-1]))[:MOST_LINES]


def wealth_race(facts: RunFacts, width: int) -> Html | None:
    """The wealth of the bets against each option, which climbs to the limit at which the option leaves."""
    if facts.wealths is None:
        return None
    limit, place, state = facts.wealths.limit, places(facts.roster), states(facts)
    last = max(bet.pulls[-1] for bet in facts.wealths.bets)
    compared = any(against_control(facts, bet.name) for bet in facts.wealths.bets)
    where = " at a site" if facts.options_by_site else ""
    curves = []
    for bet in bets_drawn(facts):
        pulls, wealth = list(bet.pulls), list(bet.log_wealth)
        if not bet.out and pulls[-1] < last:  # a champion rests
            pulls, wealth = [*pulls, last], [*wealth, wealth[-1]]
        against = against_control(facts, bet.name)
        note = f"{against or 'out'} after {counted(bet.pulls[-1], 'pull')}{where}" if bet.out else against
        won = state.get(bet.name, "in")
        curves.append(
            Curve(
                name=bet.name,
                place=place.get(bet.name, 0),
                state="out" if bet.out and not against else won,
                at=pulls,
                value=[_wealth(value, limit) for value in wealth],
                real=[math.exp(min(value, ENDLESS)) for value in wealth],
                note=note or {"won": named(facts), "out": "behind"}.get(won, "in the race"),
                cross=bet.out,
            )
        )
    low = min(min(curve.value) for curve in curves)
    layout = Frame(
        by="pulls",
        titles=(
            f"pulls of each rival{where}",
            "wealth of the answer" if compared else "wealth against the option",
        ),
        width=width,
        height=340 if width > PHONE else 260,
        span=(0.9 * min(low, 1.0), _wealth(math.inf, limit)),
        log=True,
        label="Wealth of the bets against each option",
        format=lambda value: f"{wealth_said(math.log(value))} times its start",
        limit=(math.exp(limit), f"{'settled' if compared else 'leaves'} at {number(math.exp(limit))}"),
    )
    return chart(curves, layout)


def _wealth(log_wealth: float, limit: float) -> float:
    """A wealth within the chart: what is far outside is drawn at the edge."""
    return math.exp(min(max(log_wealth, -limit), HIGHEST * limit))


def cut_off(facts: RunFacts) -> bool:
    """Whether a line of the race of wealths goes beyond the top edge."""
    found = facts.wealths
    return found is not None and any(max(b.log_wealth) > HIGHEST * found.limit for b in bets_drawn(facts))


def has_own_bands(facts: RunFacts) -> bool:
    """Whether the options of a group are drawn with intervals."""
    return isinstance(facts, SiteFacts) and facts.verdict is None


def inside(facts: RunFacts, width: int) -> list[Html]:
    """Each option's mean inside its group as its pulls grew: one panel per group, the winner's first.

    Only a client's own page has intervals here, and only before the verdict: then an option has its one
    interval in a table.
    """
    by_group: dict[int, list[TraceFacts]] = {}
    for trace in facts.traces:
        by_group.setdefault(trace.group, []).append(trace)
    if not by_group:
        return []
    own, place, state = has_own_bands(facts), places(facts.roster), states(facts)
    sign = 1 if facts.scale.goal == "min" else -1
    ranked = sorted(by_group, key=lambda j: min(sign * t.mean[-1] for t in by_group[j]))[:MOST_PANELS]
    chosen = {j: sorted(by_group[j], key=lambda t: (t.out, sign * t.mean[-1]))[:MOST_LINES] for j in ranked}
    drawn: list[tuple[str, list[Curve]]] = []
    for j, traces in chosen.items():
        group = facts.groups[j]
        curves = [
            Curve(
                name=trace.arm,
                place=place.get(f"{group.name}/{trace.arm}", place.get(trace.arm, 0)),
                state="out" if trace.out else state.get(f"{group.name}/{trace.arm}", "in"),
                at=trace.pulls,
                value=trace.mean,
                lower=trace.lower if own else (),
                upper=trace.upper if own else (),
                note="out" if trace.out else "",
                cross=trace.out,
            )
            for trace in traces
        ]
        heading = group.name + (f", as {traces[0].client} saw it" if group.clients > 1 else "")
        if len(by_group[j]) > len(traces):
            heading += f": the best {len(traces)} of {len(by_group[j])} arms"
        drawn.append((heading, curves))
    span = spread((y for _, curves in drawn for curve in curves for y in curve.heights), facts.scale)
    titles, told = ("pulls of the option", cut(facts.mean, width - 60)), partial(rough, percent=facts.percent)
    frames = [
        Frame("pulls", titles, width, 230, span, heading, format=told, percent=facts.percent)
        for heading, _ in drawn
    ]
    return [chart(curves, place) for (_, curves), place in zip(drawn, frames, strict=True)]
