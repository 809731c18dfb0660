"""The sections of the page of one client of a federation, or of one node of a mesh."""

from __future__ import annotations

from typing import Any

from bestarm.report.facts import SiteFacts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.page.parts import MOST_ROWS, Section, all_options, filled, keys, made_by, names
from bestarm.report.page.run import arms
from bestarm.report.page.verdict import guarantee, sentence
from bestarm.report.svg import number

DOING = {
    "exploring": "compares its own arms",
    "sampling": "samples its best arm",
    "pulling": "pulls its arms",
    "reported": "has reported and waits for the server",
    "resting": "has stopped sampling and listens",
    "done": "is done",
    "new": "has not begun",
}


def site_sections(facts: SiteFacts) -> list[Section]:
    """The page of a client or a node."""
    made = [
        ("arms", "Its arms", _arms(facts)),
        ("view", "What it knows about the others", _view(facts)),
        ("trust", "Who can be trusted", _trust(facts)),
        ("reproduce", "About this page", join(tag("p", made_by(facts.versions)), all_options(facts))),
    ]
    return [("top", "", _top(facts)), *filled(made)]


def _top(facts: SiteFacts) -> Html:
    verdict, wants = facts.verdict, facts.wants
    doing = DOING.get(facts.state, facts.state)
    head = sentence(facts) if verdict else join(name(facts.me, 80), f" {doing}.")
    kind = "" if verdict is None else " yes" if verdict.status == "identified" else " no"
    what = "node" if facts.peer else "client"
    about = tag("p", f"What one {what} sees: ", name(facts.me, 80), ", of ", name(facts.group, 80), ".")
    lines = [*guarantee(facts), about] if verdict else [about]
    if not verdict and wants:
        count = "1 arm" if wants.arms == 1 else f"{wants.arms} arms"
        if wants.times is None:
            pulls = f"{number(wants.pulls)} pulls in all"
        else:
            pulls = f"{number(wants.times)} pulls{' each' if wants.arms > 1 else ''}"
        lines.append(tag("p", f"Next: {count}, {pulls}."))
    if facts.checks:
        lines.append(tag("p", "This journal is inconsistent: see “Who can be trusted”.", class_="bad"))
    shown = {
        "pulls": facts.costs.pulls,
        "arms left": sum(arm.fate != "out" for arm in facts.arms),
        "messages sent": facts.sent,
        "messages heard": facts.heard,
        "rewards kept for later": facts.kept or None,
    }
    words = tag("div", tag("h1", head, id="verdict"), *lines, class_=f"verdict{kind}")
    return join(words, keys(shown), tag("p", f"Method: {facts.method.summary}.", class_="note"))


def _arms(facts: SiteFacts) -> Html:
    verdict = facts.verdict
    rows: list[list[Any]] = []
    for arm in facts.arms[:MOST_ROWS]:
        mean, interval = arm.mean, (arm.lower, arm.upper)
        if verdict and verdict.interval and verdict.arm == f"{facts.group}/{arm.name}":
            mean, interval = verdict.mean, verdict.interval  # an option has only one interval
        span = "" if None in (mean, *interval) else f" ({number(interval[0])} to {number(interval[1])})"
        rows.append([name(arm.name, 80), number(arm.pulls), f"{number(mean)}{span}", arm.fate])
    return join(
        table(
            ["arm", "pulls", "mean and interval", "state"], rows, numbers={1}, caption="The arms of this site"
        ),
        arms(facts),
    )


def _view(facts: SiteFacts) -> Html | None:
    if not facts.peer:
        return None
    rows: list[list[Any]] = []
    for row in facts.view[:MOST_ROWS]:
        arm = "not known yet" if row.arm is None else name(row.arm, 80)
        span = row.interval
        value = number(row.mean) if span is None else f"{number(span[0])} to {number(span[1])}"
        fate = "" if row.standing is None else "in the race" if row.standing else "beaten"
        rows.append([name(row.group, 80), arm, value, fate])
    heard: list[list[Any]] = [
        [name(node.name, 80), number(node.reports), "proven faulty" if node.out else ""]
        for node in facts.hears[:MOST_ROWS]
    ]
    return join(
        table(
            ["arm-set", "its best arm", "mean, or interval", "state"],
            rows,
            caption="The arm-sets, as it knows them",
        ),
        tag("h3", "Nodes that it hears"),
        table(
            ["node", "arm-sets that it reported on", "state"],
            heard,
            numbers={1},
            caption="Nodes that it hears",
        ),
        tag("p", "It reports to: ", names(facts.tells, 50, 60) or "no node", "."),
    )


def _trust(facts: SiteFacts) -> Html:
    parts: list[Any] = []
    if facts.faults:
        rows: list[list[Any]] = [[name(f.client, 80), clean(f.reason, 300)] for f in facts.faults]
        parts.append(tag("h3", "Proven faulty"))
        parts.append(table(["node", "how"], rows[:MOST_ROWS], caption="Nodes that were proven faulty"))
    elif facts.peer:
        parts.append(tag("p", "No node was proven faulty."))
    if facts.checks:
        parts.append(tag("ul", *[tag("li", failure, class_="bad") for failure in facts.checks[:50]]))
    else:
        sound = "Its journal is consistent: each message follows from what came before it."
        parts.append(tag("p", sound, class_="good"))
    return join(*parts)
