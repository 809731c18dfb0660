"""A run that is still going on: what is wrong, who leads and by how much, and when it may end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bestarm.records.card import CardCosts
from bestarm.records.figures import costs_said, gap_said, labels, said
from bestarm.report.facts import ClientFacts, RangeFacts, RunFacts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.numbers import number
from bestarm.report.page.answer import entry
from bestarm.report.page.parts import MOST_ROWS
from bestarm.report.page.verdict import guarantee, sentence
from bestarm.report.standings import standings
from bestarm.util.text import counted


def faults_now(facts: RunFacts) -> Html | None:
    """Whatever is wrong in a run that has no verdict yet; None if nothing is."""
    if facts.verdict is not None:
        return None
    found: list[Any] = [
        tag("li", name(fault.client, 80), f" is proven faulty: {clean(fault.reason, 300)}")
        for fault in facts.faults[:20]
    ]
    found += [tag("li", clean(text, 300)) for text in facts.checks[:20]]
    found += [
        tag("li", warning.place, name(warning.group, 60), f": {clean(warning.text, 300)}")
        for warning in facts.warnings[:20]
    ]
    if facts.broken:
        found.append(tag("li", f"Nothing is promised: {clean(facts.broken, 300)}"))
    if not found:
        return None
    return tag("div", tag("h2", "What is wrong"), tag("ul", *found), class_="verdict alarm", role="alert")


def going(facts: RunFacts) -> Html:
    """The answer card of a run that has no verdict yet: the same shape, with what is known by now."""
    rows = [*_leader(facts), _promised(facts), _so_far(facts), _end(facts)]
    steps = [*guarantee(facts)] or [tag("p", "None: the run continues by itself, and this page follows it.")]
    words = labels(facts.name, facts.date, facts.method.name, facts.delta, facts.seed)
    return tag(
        "div",
        tag("p", words, class_="labels"),
        tag("h1", sentence(facts), id="verdict"),
        tag("dl", *[one for one in rows if one], class_="answers"),
        tag("div", tag("h2", "Next step"), *steps, class_="next"),
        class_="verdict card",
    )


def _leader(facts: RunFacts) -> list[Html]:
    """The option with the best mean, and its lead: illustrative until the verdict."""
    by_site = facts.options_by_site
    if by_site is not None and not by_site.weighted:
        text = "The table below has the means of each site."
        return [entry("Leads", "see the sites", text)]
    ranked = [one for one in standings(facts) if one.mean is not None and one.state != "out"]
    if not ranked:
        return [entry("Leads", "not known yet", "No mean has been reported.")]
    first = ranked[0]
    ends = None if first.lower is None or first.upper is None else (first.lower, first.upper)
    mean = "–" if first.mean is None else said(first.mean, ends, facts.percent, facts.scale.unit)
    about = f"{clean(facts.mean)} {mean} so far"
    left = f"{len(ranked):,} of {counted(len(facts.roster), 'option')} in the race"
    found = [entry("Leads", name(first.name, 60), about, left)]
    if len(ranked) > 1 and ranked[1].mean is not None and first.mean is not None:
        apart = gap_said(first.mean - ranked[1].mean, facts.percent, facts.scale.unit)
        found.append(
            entry("Lead so far", apart, join("over ", name(ranked[1].name, 60)), "Not a result yet.")
        )
    return found


def _promised(facts: RunFacts) -> Html:
    if facts.broken:
        return entry("Risk", "not bounded", f"Nothing will be promised: {clean(facts.broken, 300)}.")
    return entry("Risk", f"δ = {facts.delta:g}", facts.intent)


def _so_far(facts: RunFacts) -> Html:
    costs = facts.costs
    bits = (costs.bits_up or 0) + (costs.bits_down or 0)
    known = CardCosts(pulls=costs.pulls, rounds=costs.rounds, bits=bits, after=0, time=costs.time)
    main, _, rest = costs_said(known).partition(", ")
    unknown = "" if costs.pulls is not None or facts.options_by_site else "Only the clients know their pulls."
    return entry("Cost so far", main, rest, unknown)


def _end(facts: RunFacts) -> Html:
    """When similar runs end."""
    key = "time" if facts.method.peers else "rounds"
    span = facts.plan.ranges.get(key) if facts.plan else None
    if facts.plan is None or span is None:
        known = facts.rounds or facts.heterogeneity  # which follows from the true means
        why = "Runs like this one are not simulated here." if known else "Too little is known yet."
        return entry("Similar runs end", "not forecast", facts.no_plan or why)
    note = f"90 % of {facts.plan.trials} simulated runs {facts.plan.note}"
    return entry("Similar runs end", _after(span, "time step" if facts.method.peers else "round"), note)


def signs(facts: RunFacts, seen: Mapping[str, float]) -> Html | None:
    """Each client's last sign of life, while a server runs; `seen` has the times that this page saw."""
    if facts.verdict is not None or all(client.messages is None for client in facts.clients):
        return None
    waiting, gone = set(facts.waiting), set(facts.dropped)
    faulty = {fault.client for fault in facts.faults}
    ranked = sorted(
        facts.clients, key=lambda client: (client.name not in waiting, seen.get(client.name, 0.0))
    )
    rows: list[list[Any]] = []
    for client in ranked[:MOST_ROWS]:
        state = "dropped" if client.name in gone else "awaited" if client.name in waiting else "has reported"
        state = "proven faulty" if client.name in faulty else state
        rows.append(
            [
                name(client.name, 80),
                name(client.group, 60),
                state,
                number(client.messages),
                _sign(client, seen),
            ]
        )
    more = f" (the first {MOST_ROWS:,} of {len(ranked):,})" if len(ranked) > MOST_ROWS else ""
    head = ["client", "group", "state", "messages", "last sign of life"]
    return table(head, rows, numbers={3}, caption=f"The clients, awaited ones first{more}")


def _sign(client: ClientFacts, seen: Mapping[str, float]) -> Html | str:
    at = seen.get(client.name)
    if at is None:
        return "before this page was opened" if client.messages else "none yet"
    clock = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
    return tag("time", clock, data_since=f"{at:.0f}")


def _after(span: RangeFacts, unit: str) -> str:
    low, high = round(span.low), round(span.high)
    return f"after {counted(high, unit)}" if low == high else f"after {low:,} to {counted(high, unit)}"
