"""The costs of a run, compared with a plan, the proved bounds, and the limit on pulls."""

from __future__ import annotations

from functools import partial
from typing import Any

from bestarm.report import svg
from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.page.parts import MOST_ROWS, figure, fold
from bestarm.report.svg import number

COSTS = {
    "rounds": "rounds",
    "time": "time steps (each client makes one pull per step)",
    "pulls": "pulls",
    "longest": "pulls of the busiest client",
    "bits_up": "bits up",
    "bits_down": "bits down",
    "wire_bytes": "bytes on the wire, padding included",
}
INSIDE = ("pulls", "longest", "bits_up", "bits_down", "wire_bytes")  # a live experiment is one program


def costs(facts: RunFacts) -> Html:
    """The section about costs."""
    parts: list[Any] = [_beside_plan(facts), *_explained(facts)]
    dashed = ", with the limit for the busiest client (dashed)" if facts.limit else ""
    drawn = "Pulls of each honest client" if facts.visitors is None else "Rewards that count, by site"
    parts.append(figure(partial(svg.loads, facts), f"{drawn}{dashed}."))
    return join(*parts, _by_client(facts) if facts.visitors is None else None)


def _beside_plan(facts: RunFacts) -> Html:
    plan, least = facts.plan, facts.limit
    head = ["cost", "this run"]
    head += ["plan: mean", "plan: 90 % of runs"] if plan else []
    head += ["proved: at most"] if plan and plan.proved else []
    head += ["limit, on average"] if least else []
    limits = {"pulls": least.pulls, "longest": least.longest} if least else {}
    rows = _of_visitors(facts)
    for key, title in COSTS.items():
        value = getattr(facts.costs, key)
        if value is None or (facts.visitors is not None and key in INSIDE):
            continue
        honest = " of the honest clients" if key == "pulls" and facts.liars else ""
        row: list[Any] = [title + honest, number(value)]
        if plan:
            span = plan.ranges.get(key)
            row.append("–" if span is None else number(span.mean, 3))
            row.append("–" if span is None else f"{number(span.low)} to {number(span.high)}")
            if plan.proved:
                row.append(number(plan.proved.get(key), 3))
        if least:
            row.append(number(round(limits[key])) if key in limits else "–")
        rows.append(row)
    return table(head, rows, numbers=set(range(1, len(head))), caption="Costs of the run")


def _of_visitors(facts: RunFacts) -> list[list[Any]]:
    """The visitors of a live experiment, and how many of the rewards that count did not come."""
    found = facts.visitors
    if found is None:
        return []
    rows = [
        ["visitors who were given an option", number(found.assigned)],
        ["rewards told", number(found.told)],
    ]
    count = [] if facts.costs.pulls is None else [["rewards that count", number(facts.costs.pulls)]]
    return [*rows, *count, ["of these, filled in as missing", number(found.filled)]]


def _explained(facts: RunFacts) -> list[Html]:
    """Notes on where the numbers come from."""
    found = []
    if facts.plan:
        known = " and true means" if facts.heterogeneity else ""
        note = facts.plan.note or "all honest"
        found.append(f"Plan: {facts.plan.trials} simulated runs with the same settings{known}, {note}.")
    if facts.limit:
        holds = facts.limit.holds_for
        found.append(f"Limit: the fewest pulls, on average and with these means, of {holds}.")
    elif facts.no_limit:
        found.append(f"No limit on pulls is shown: {facts.no_limit}.")
    if facts.costs.pulls is None:
        found.append(
            "Only the clients know their pulls: the server is not told, so they are not in this record."
        )
    elif facts.private is False:
        found.append(
            "The pulls are those that the clients reported, with those of a last block that was not closed."
        )
    return [tag("p", text, class_="note") for text in found]


def _by_client(facts: RunFacts) -> Html | None:
    clients = sorted(facts.clients, key=lambda row: -(row.pulls or 0))
    titles = {"pulls": "pulls", "bits_up": "bits up", "messages": "messages taken"}
    shown = [key for key in titles if any(getattr(client, key) is not None for client in clients)]
    if not shown:
        return None
    rows = [
        [name(client.name, 80), name(client.group, 60), *(number(getattr(client, key)) for key in shown)]
        for client in clients[:MOST_ROWS]
    ]
    head = ["client", "group", *(titles[key] for key in shown)]
    kept = table(head, rows, numbers=set(range(2, len(head))), caption="Pulls and bits of each client")
    more = f" (the first {MOST_ROWS:,} of {len(clients):,})" if len(clients) > MOST_ROWS else ""
    return fold(f"By client{more}", kept)
