"""The sections of the page of one client of a federation, or of one node of a mesh."""

from __future__ import annotations

from typing import Any

from bestarm.protocol.verdict import Verdict
from bestarm.records.card import Interval, OptionFacts
from bestarm.records.figures import labels, option_said, rough, said, span
from bestarm.report.facts import SiteFacts
from bestarm.report.facts.structs import OwnArmFacts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.page.answer import answer, entry
from bestarm.report.page.leaderboard import leaderboard
from bestarm.report.page.parts import MOST_ROWS, Section, all_options, filled, fold, keys, made_by, names
from bestarm.report.page.run import arms
from bestarm.report.page.verdict import guarantee, sentence
from bestarm.report.svg import number
from bestarm.util.text import counted

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
        ("leaderboard", "Leaderboard", leaderboard(facts) if facts.card and facts.card.options else None),
        ("arms", "Its arms", _arms(facts)),
        ("view", "What it knows about the others", _view(facts)),
        ("trust", "Who can be trusted", _trust(facts)),
        ("reproduce", "About this page", join(tag("p", made_by(facts.versions)), all_options(facts))),
    ]
    return [("top", "", _top(facts)), *filled(made)]


def _top(facts: SiteFacts) -> Html:
    shown = {
        "arms left": sum(arm.fate != "out" for arm in facts.arms),
        "messages sent": facts.sent,
        "messages heard": facts.heard,
        "rewards kept for later": facts.kept or None,
    }
    what = "node" if facts.peer else "client"
    about = join(f"What one {what} sees: ", name(facts.me, 80), ", of ", name(facts.group, 80), ".")
    words = _card(facts) if facts.card is None else answer(facts, facts.card)
    method = f" Method: {facts.method.summary}."
    return join(words, tag("p", about, method, class_="note"), keys(shown))


def _card(facts: SiteFacts) -> Html:
    """The answer card of a client, or of a node before its verdict: what it knows by itself."""
    verdict = facts.verdict
    doing = DOING.get(facts.state, facts.state)
    head = sentence(facts) if verdict else join(name(facts.me, 80), f" {doing}.")
    kind = "" if verdict is None else " yes" if verdict.status == "identified" and not facts.broken else " no"
    rows = [_risk(facts), entry("Cost here", counted(facts.costs.pulls or 0, "pull"))]
    own = [answer for answer in verdict.answers if answer.site == facts.group] if verdict else []
    if own and own[0].option:
        rows.insert(0, entry("Best here", name(own[0].option, 80)))
    elif verdict and verdict.arm:
        about = "" if verdict.mean is None else f"Its {clean(facts.mean)} is about {_mean(facts, verdict)}."
        rows.insert(0, entry("Best" if not facts.broken else "Named", name(verdict.arm, 80), about))
    elif not verdict and (wants := _wants(facts)):
        rows.insert(0, entry("Next", wants))
    bad = tag("p", "This journal is inconsistent: see “Who can be trusted”.", class_="bad")
    rests = fold("What that rests on", *guarantee(facts)) if verdict else None
    return tag(
        "div",
        tag("p", labels(facts.name, facts.date, facts.method.name, facts.delta, facts.seed), class_="labels"),
        bad if facts.checks else None,
        tag("h1", head, id="verdict"),
        tag("dl", *rows, class_="answers"),
        rests,
        tag("div", tag("h2", "Next step"), tag("p", _next(facts)), class_="next"),
        class_=f"verdict card{kind}",
    )


def _mean(facts: SiteFacts, verdict: Verdict) -> str:
    named = OptionFacts(name=str(verdict.arm), mean=verdict.mean, interval=verdict.interval, pulls=None)
    return option_said(named, facts.percent, facts.scale.unit)


def _next(facts: SiteFacts) -> str:
    """What to do here."""
    if facts.checks:
        return "Keep this folder as it is, and show its journal to the operator."
    if facts.verdict is None:
        return "None: keep the process running. If it stops, start it again, and it resumes from its journal."
    if facts.peer:
        return "Nothing is left to do here; the node may be stopped."
    return (
        "Nothing is left to do here; the client may be stopped. The server's report has the lead over the "
        "other options and what to do next."
    )


def _risk(facts: SiteFacts) -> Html:
    """What is promised, or will be."""
    if facts.broken:
        return entry("Risk", "not bounded", f"Nothing is promised: {clean(facts.broken, 300)}.")
    text = facts.intent
    if facts.promises:
        text = clean(" ".join(facts.promises), 600)
    elif facts.verdict is not None:
        text = f"A run like this is wrong with probability at most {facts.delta:g}."
    return entry("Risk", f"δ = {facts.delta:g}", text)


def _wants(facts: SiteFacts) -> str:
    """The next pulls."""
    if (wants := facts.wants) is None:
        return ""
    if wants.times is None:
        return f"{counted(wants.arms, 'arm')}, {number(wants.pulls)} pulls in all"
    each = " each" if wants.arms > 1 else ""
    return f"{counted(wants.arms, 'arm')}, {number(wants.times)} pulls{each}"


def _arms(facts: SiteFacts) -> Html:
    rows: list[list[Any]] = []
    for arm in facts.arms[:MOST_ROWS]:
        mean, ends = _numbers(facts, arm)
        shown = (
            rough(mean, facts.percent) if mean is None or ends is None else said(mean, ends, facts.percent)
        )
        between = "–" if ends is None else span(ends, facts.percent)
        rows.append([name(arm.name, 80), number(arm.pulls), shown, between, arm.fate])
    head = ["arm", "pulls", clean(facts.mean), "interval", "state"]
    kept = [k for k in range(5) if k != 3 or any(row[3] != "–" for row in rows)]
    return join(
        table(
            [head[k] for k in kept],
            [[row[k] for k in kept] for row in rows],
            numbers={1, 2, 3} if len(kept) == 5 else {1, 2},
            caption="The arms of this site",
        ),
        arms(facts),
    )


def _numbers(facts: SiteFacts, arm: OwnArmFacts) -> tuple[float | None, Interval | None]:
    """The mean and the interval of an arm here: those of the answer above, once it has some."""
    name, verdict = f"{facts.group}/{arm.name}", facts.verdict
    if told := _told(facts, name):
        return told.mean, told.interval
    if verdict and verdict.interval and verdict.arm == name:
        return verdict.mean, verdict.interval
    return arm.mean, None if arm.lower is None or arm.upper is None else (arm.lower, arm.upper)


def _told(facts: SiteFacts, option: str) -> OptionFacts | None:
    """What the answer card says about an option."""
    return next((row for row in facts.card.options if row.name == option), None) if facts.card else None


def _view(facts: SiteFacts) -> Html | None:
    if not facts.peer:
        return None
    rows: list[list[Any]] = []
    for seen in facts.view[:MOST_ROWS]:
        arm = "not known yet" if seen.arm is None else name(seen.arm, 80)
        told = _told(facts, f"{seen.group}/{seen.arm}")
        ends = seen.interval if told is None else told.interval
        value = rough(seen.mean if told is None else told.mean, facts.percent)
        value = value if seen.interval is None or ends is None else span(ends, facts.percent)
        fate = "" if seen.standing is None else "in the race" if seen.standing else "beaten"
        rows.append([name(seen.group, 80), arm, value, fate])
    heard: list[list[Any]] = [
        [name(node.name, 80), number(node.reports), "proven faulty" if node.out else ""]
        for node in facts.hears[:MOST_ROWS]
    ]
    return join(
        table(
            ["arm-set", "its best arm", "mean, or interval", "state"],
            rows,
            caption="What it knows of each arm-set",
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
