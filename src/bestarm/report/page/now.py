"""A run that is still going on: what is wrong, who leads and by how much, and when it may end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bestarm.report.facts import ClientFacts, RangeFacts, RunFacts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.numbers import number
from bestarm.report.page.parts import MOST_ROWS
from bestarm.report.standings import standings


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
        tag("li", f"Round {warning.round}, group ", name(warning.group, 60), f": {clean(warning.text, 300)}")
        for warning in facts.warnings[:20]
    ]
    if facts.broken:
        found.append(tag("li", f"Nothing is promised: {clean(facts.broken, 300)}"))
    if not found:
        return None
    return tag("div", tag("h2", "What is wrong"), tag("ul", *found), class_="verdict alarm", role="alert")


def now(facts: RunFacts) -> Html | None:
    """The leader, its lead, and the forecast; None once there is a verdict."""
    if facts.verdict is not None:
        return None
    ranked = [one for one in standings(facts) if one.mean is not None and one.state != "out"]
    cards: list[Html] = []
    if ranked:
        first = ranked[0]
        cards.append(_card("leads", name(first.name, 60), f"{clean(facts.mean)} {number(first.mean)}"))
    if len(ranked) > 1 and ranked[1].mean is not None and ranked[0].mean is not None:
        apart = abs(ranked[0].mean - ranked[1].mean)
        cards.append(
            _card("ahead by", number(apart, 3), join("of ", name(ranked[1].name, 60), ", not yet sure"))
        )
    if ranked:
        cards.append(_card("in the race", number(len(ranked)), f"of {len(facts.roster):,} options"))
    if facts.plan and (span := facts.plan.ranges.get("rounds")):
        cards.append(
            _card(
                "similar runs end",
                _rounds(span),
                facts.plan.note or f"90 % of {facts.plan.trials} simulated runs",
            )
        )
    return tag("div", *cards, class_="cards") if cards else None


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
    return table(head, rows, numbers={3}, caption=f"The clients, those that are awaited first{more}")


def _sign(client: ClientFacts, seen: Mapping[str, float]) -> Html | str:
    at = seen.get(client.name)
    if at is None:
        return "before this page was opened" if client.messages else "none yet"
    clock = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
    return tag("time", clock, data_since=f"{at:.0f}")


def _rounds(span: RangeFacts) -> str:
    low, high = round(span.low), round(span.high)
    return f"after {low:,} rounds" if low == high else f"after {low:,} to {high:,} rounds"


def _card(title: str, value: Any, note: Any) -> Html:
    return tag(
        "div", tag("p", title, class_="what"), tag("p", value, class_="value"), tag("p", note, class_="note")
    )
