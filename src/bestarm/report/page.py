"""The report: one HTML file without scripts that needs no network. A function of facts (``report.facts``).

``sections`` gives the parts of a page, so that a live page can show a partial run with the same pieces;
``page`` puts them into a whole file with the record inside. ``read`` finds out what a path holds.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem import Problem
from bestarm.protocol.rounds import DROPPED
from bestarm.protocol.verdict import REASONS
from bestarm.record import Record
from bestarm.report import facts as collect
from bestarm.report import svg
from bestarm.report.facts import Facts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.svg import number
from bestarm.study import Trials
from bestarm.topology import Graph

WIDE, NARROW = 900, 330  # pixels of a picture on a screen and on a phone
MOST_ROWS = 1000  # of a table
LARGEST_LINK = 1_900_000  # characters: browsers refuse a longer address
COSTS = {
    "rounds": "rounds", "pulls": "pulls", "longest": "pulls of the busiest client",
    "bits_up": "bits up", "bits_down": "bits down", "wire_bytes": "bytes on the wire, padding included",
}  # fmt: skip
METHODS = {
    "fed-sel": "Fed-SEL (local successive elimination, then rounds with the server)",
    "robust-fed-sel": "Robust Fed-SEL (votes and trimmed means: some clients may lie)",
    "fisher": "Fed-Fisher (exact tests at geometrically spaced looks)",
    "p2p": "peer to peer (no server)",
}

SPENT = ("budget", "rounds", "time", "interrupted")  # it ended early, and nothing is amiss

Section = tuple[str, str, Html]


@cache
def style() -> str:
    """The style sheet."""
    return files("bestarm.report").joinpath("style.css").read_text(encoding="utf-8")


def figure(draw: Callable[[Facts, int], Html | None], facts: Facts, caption: str) -> Html | None:
    """A picture in both widths, with its caption; None where there is nothing to draw."""
    wide, narrow = draw(facts, WIDE), draw(facts, NARROW)
    if wide is None or narrow is None:
        return None
    both = [tag("div", wide, class_="wide"), tag("div", narrow, class_="narrow")]
    return tag("figure", *both, tag("figcaption", caption))


def fold(title: str, *children: Any) -> Html:
    """What is shown when one asks for it."""
    return tag("details", tag("summary", title), *children)


def sentence(facts: Facts) -> Html:
    """The verdict in a sentence."""
    verdict = facts["verdict"]
    if verdict is None and facts["peers"] is not None:
        done, honest = sum(facts["peers"].values()), len(facts["clients"]) - len(facts["liars"])
        return join(f"Not decided yet: {done:,} of {honest:,} honest clients have a verdict.")
    if verdict is None:
        return join("Not decided yet: the run is in round ", number(facts["rounds"]), ".")
    if verdict["status"] == "identified":
        epsilon = facts["options"].get("epsilon") or 0.0
        close = f", or at most {epsilon:g} worse than the best" if epsilon else ""
        what = f": {facts['aim']}" if facts["aim"] else ""
        return join(tag("strong", name(verdict["arm"])), " is the best arm", close, clean(what), ".")
    why = facts.get("why") or REASONS.get(str(verdict["reason"]), str(verdict["reason"]))
    return join("Undecided: ", why, ".")


def guarantee(facts: Facts) -> Iterator[Html]:
    """What is promised, in plain words, a paragraph each."""
    verdict, options = facts["verdict"], facts["options"]
    if verdict is None:
        missing = facts["waiting"]
        if missing:
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            shown = join(*[[", " if k else None, name(c, 60)] for k, c in enumerate(missing[:8])])
            yield tag("p", "It waits for ", shown, more, ".")
            drop = tag("code", "bestarm federation drop FOLDER CLIENT")
            hint = "A client that has stopped goes on when it is started again. To go on without it: "
            yield tag("p", hint, drop, class_="note")
        return
    if verdict["mean"] is not None:
        between = verdict["interval"]
        span = f", and it lies between {number(between[0])} and {number(between[1])}" if between else ""
        yield tag("p", f"Its {clean(facts['mean'])} is about {number(verdict['mean'])}{span}.")
    if facts["data"]:
        yield tag("p", clean(facts["data"]["said"], 400), class_="bad" if facts["data"]["replace"] else None)
    if verdict["status"] != "identified":
        if facts.get("helps"):
            yield tag("p", clean(facts["helps"], 400))
        if facts["aim"]:
            yield tag("p", f"Best would be {clean(facts['aim'])}.")
        left = facts.get("left", verdict["candidates"])
        more = f" and {len(left) - 20} more" if len(left) > 20 else ""
        shown = join(*[[", " if k else None, name(c, 80)] for k, c in enumerate(left[:20])])
        known = ", as far as the server knows" if facts.get("private") is False else ""
        yield tag("p", f"Still in the race{known}: ", shown or "nobody", more, ".")
        if verdict["gap"] is not None:
            first = name(facts.get("first") or "The leading one", 80)
            yield tag("p", first, f" is at most {number(verdict['gap'])} from the best.")
        if verdict["reason"] in SPENT and facts["method"] != "p2p" and not facts["broken"]:
            text = "No arm is named. What holds: the best arm is among those left"
            yield tag("p", f"{text}, except with probability at most δ = {facts['delta']:g}.")
        return
    if facts["broken"]:
        yield tag("p", "Nothing is promised: ", facts["broken"], ".", class_="bad")
        return
    for warning in facts["warnings"]:
        if DROPPED in warning["text"]:
            yield tag("p", "Group ", name(warning["group"], 60), f": {warning['text']}.", class_="bad")
    delta, liars = facts["delta"], options.get("byzantine") or 0
    often = f"in at most {100 * delta:g} of 100 such runs"
    about = ""
    where = (
        ", as long as each arm's rewards are drawn independently with a mean that doesn't change, and stay "
        "within their bounds"
    )
    if facts["data"] and facts["data"]["replace"]:
        about, where = ", about the file", " in the file, and only there"
    lies = ""
    if liars and facts["method"] == "p2p":
        lies = f", even if up to {liars} of the clients that each client hears lie, collude or fall silent"
    elif liars:
        lies = f", even if up to {liars} client{'s' * (liars > 1)} of each group lie, collude or fall silent"
    yield tag(
        "p",
        f"How sure is that{about}? A run like this names a wrong arm with probability at most δ = {delta:g}: "
        f"{often}, on average{lies}. That holds whatever the arms' means are{where}.",
    )
    if facts["method"] == "p2p" and options.get("exchange") == "means":
        yield tag(
            "p",
            "It also takes a premise that means alone don't show: the two best arms of the best arm-set, "
            "and of each other one, are at most as far apart as the best arms of the two sets (σ ≤ 1). "
            'exchange = "intervals" needs no such premise.',
        )


def _verdict(facts: Facts) -> Html:
    verdict = facts["verdict"]
    kind = "" if verdict is None else " yes" if verdict["status"] == "identified" else " no"
    words = [tag("h1", sentence(facts), id="verdict"), *guarantee(facts)]
    checks = facts["checks"]
    if checks:
        words.append(
            tag("p", "This run's own record does not add up: see “Who can be trusted”.", class_="bad")
        )
    shown = {
        "rounds": facts["costs"].get("rounds"),
        "pulls": facts["costs"].get("pulls"),
        "bits up": facts["costs"].get("bits_up"),
        "groups": len(facts["groups"]),
        "arms": sum(len(g["arms"]) for g in facts["groups"]),
        "clients": len(facts["clients"]),
    }
    keys = [tag("div", tag("dt", k), tag("dd", number(v))) for k, v in shown.items() if v is not None]
    method = METHODS.get(facts["method"], facts["method"])
    note = tag("p", f"Method: {method}. {facts['coins']}", class_="note")
    return join(tag("div", *words, class_=f"verdict{kind}"), tag("dl", *keys, class_="keys"), note)


def _intervals(facts: Facts) -> Html:
    claimed = facts["claimed"]
    eye = (
        ""
        if claimed
        else " Fed-Fisher decides by exact tests and claims no intervals: the 95 % ones are for the eye."
    )
    source = (
        "what the first honest client of each group sent"
        if facts["method"] == "p2p"
        else "what the server knew"
    )
    ended = "stands" if facts["verdict"] is None else "ended"
    parts = [
        figure(
            svg.forest, facts, f"Where each group {ended}, from {source}: its arm's mean and interval.{eye}"
        ),
        figure(
            svg.race,
            facts,
            f"How the intervals shrank. A cross marks where a group was dropped.{eye}",
        ),
    ]
    sign = svg.better_first(facts, facts["lines"])
    rows = [
        [
            name(line["name"], 80),
            number(line["pulls"][-1]),
            number(line["mean"][-1]),
            f"{number(line['lower'][-1])} to {number(line['upper'][-1])}",
            svg.fate_of(facts, line),
        ]
        for line in sign[:MOST_ROWS]
    ]
    if not rows and facts["so_far"]:
        drawn = [[name(n, 80), number(pulls), number(mean)] for n, pulls, mean in facts["so_far"][:MOST_ROWS]]
        told = table(["arm", "pulls", clean(facts["mean"])], drawn, numbers={1, 2})
        own = " (means of the rewards themselves; pictures below are of coins)" * bool(facts.get("coins"))
        return join(tag("p", f"No round was completed. What was drawn until then{own}:"), told)
    if not rows:
        return tag("p", "No round was completed.")
    kept = table(["arm", "pulls behind it", "mean", "interval", "fate"], rows, numbers={1, 2})
    return join(*parts, fold("The same as a table", kept))


def _reason(exit_: dict[str, Any]) -> str:
    why = exit_["why"]
    if why["kind"] == "p":
        p = "below 1e-300" if why["p"] == 0.0 else f"{why['p']:.2g}"
        return f"exact test: p = {p}, at most the level {why['level']:.2g}"
    if why["kind"] == "radius":
        apart = abs(exit_["rival_mean"] - exit_["mean"])
        return f"{number(apart)} behind the best, at least c·α = {number(why['bound'])}"
    return f"its interval ends at {number(why['end'])}, the best one begins at {number(why['best'])}"


def _when(exit_: dict[str, Any]) -> str:
    many = exit_["pulls_last"] != exit_["pulls"]
    pulls = f"{number(exit_['pulls'])} to {number(exit_['pulls_last'])}" if many else number(exit_["pulls"])
    where = f"round {exit_['round']}, " if exit_["round"] is not None else ""
    return f"{where}{pulls} pulls"


def _arms(facts: Facts) -> Html:
    wide = [tag("div", panel, class_="panel") for panel in svg.inside(facts, 430)]
    narrow = svg.inside(facts, NARROW)
    parts: list[Any] = []
    if wide:
        more = 0 if facts["kind"] == "site" else len(facts["groups"]) - len(wide)
        caption = "Each arm inside its group: mean and interval as its pulls grew. A cross: it was dropped."
        caption += f" {more:,} further groups are not drawn." if more > 0 else ""
        both = [tag("div", *wide, class_="panels wide"), tag("div", *narrow, class_="narrow")]
        parts.append(tag("figure", *both, tag("figcaption", caption)))
    rows = []
    for exit_ in facts["exits"][:MOST_ROWS]:
        by = "the server"
        if facts["kind"] == "site":
            by = "itself"
        elif exit_["where"] == "clients":
            by = "its client" if exit_["of"] == 1 else f"{exit_['clients']} of {exit_['of']} clients"
        rival = "–" if exit_["rival"] is None else name(exit_["rival"], 80)
        mean = number(exit_["mean"])
        if exit_["rival_mean"] is not None:
            mean = f"{mean} against {number(exit_['rival_mean'])}"
        rows.append([name(exit_["name"], 80), _when(exit_), by, mean, rival, _reason(exit_)])
    if rows:
        head = ["who left", "when", "dropped by", "means then", "beaten by", "why"]
        parts.append(tag("h3", "Who left, when and why"))
        parts.append(table(head, rows))
        more = len(facts["exits"]) - len(rows)
        if more > 0:
            parts.append(tag("p", f"{more:,} more are in the record.", class_="note"))
    else:
        parts.append(tag("p", "Nobody was dropped."))
    if facts["traces"] == [] and facts["verdict"] is not None:
        text = "The server never learns of arms that lost inside a client, so they are not in this record."
        parts.append(tag("p", text, class_="note"))
    return join(*parts)


def _costs(facts: Facts) -> Html:
    plan, least = facts["plan"], facts["limit"] or {}
    head = ["", "this run"]
    head += ["plan: mean", "plan: 90 % of runs"] if plan else []
    head += ["proved: at most"] if plan and plan["proved"] else []
    head += [f"limit: {least['for']} needs it"] if least else []
    rows = []
    for key, title in COSTS.items():
        value = facts["costs"].get(key)
        if value is None:
            continue
        row: list[Any] = [title, number(value)]
        if plan:
            span = plan["ranges"].get(key)
            row.append("–" if span is None else number(span["mean"]))
            row.append("–" if span is None else f"{number(span['low'])} to {number(span['high'])}")
            if plan["proved"]:
                row.append(number(plan["proved"].get(key)))
        if least:
            row.append(number(round(least[key])) if key in least else "–")
        rows.append(row)
    parts: list[Any] = [table(head, rows, numbers=set(range(1, len(head))))]
    if plan:
        text = f"Plan: {plan['trials']} simulated runs with the same settings and true means, all honest."
        parts.append(tag("p", text, class_="note"))
    if least:
        text = f"Limit: the least pulls on average that {least['for']} needs with this δ on these means."
        parts.append(tag("p", text, class_="note"))
    if facts["costs"].get("pulls") is None:
        text = (
            "Pulls are the clients' own affair: a server doesn't know them, so they are not in this record."
        )
        parts.append(tag("p", text, class_="note"))
    dashed = ", with the least that the busiest client needs (dashed)" if least else ""
    parts.append(figure(svg.loads, facts, f"Pulls of each honest client{dashed}."))
    clients = sorted(facts["clients"], key=lambda row: -(row["pulls"] or 0))
    shown = [k for k in ("pulls", "bits_up", "messages") if any(c[k] is not None for c in clients)]
    titles = {"pulls": "pulls", "bits_up": "bits up", "messages": "messages taken"}
    if shown:
        rows = [[name(c["name"], 80), name(c["group"], 60), *(number(c[k]) for k in shown)] for c in clients]
        head = ["client", "group", *(titles[k] for k in shown)]
        kept = table(head, rows[:MOST_ROWS], numbers=set(range(2, len(head))))
        more = f" (the first {MOST_ROWS:,} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
        parts.append(fold(f"By client{more}", kept))
    return join(*parts)


def _heterogeneity(facts: Facts) -> Html | None:
    drawn = figure(
        svg.matrix,
        facts,
        "σ of group i (row) against group j (column): the gap between a group's own two best arms, over the "
        "gap between the two groups' best arms. Blue (at most 1): once a group knows its own best arm it "
        "knows enough, and few rounds are needed. Orange: the groups are alike, and must talk for longer.",
    )
    if drawn is None:
        return None
    h = facts["heterogeneity"]
    more = tag("p", f"{h['more']} further groups are not drawn.", class_="note") if h["more"] else None
    rows = [
        [name(g, 60), *("" if v is None else v if isinstance(v, str) else f"{v:.3g}" for v in row)]
        for g, row in zip(h["groups"], h["matrix"], strict=True)
    ]
    head = ["", *(name(g, 30) for g in h["groups"])]
    return join(drawn, more, fold("The same as a table", table(head, rows, numbers=set(range(1, len(head))))))


def _trust(facts: Facts) -> Html:
    parts: list[Any] = []
    faults = facts["faults"]
    if faults:
        parts.append(tag("h3", "Proven faulty"))
        rows, seen = [], set()
        for fault in faults:
            key = (fault["client"], fault["reason"])
            if key not in seen:
                seen.add(key)
                by = "the server" if "by" not in fault else "its neighbours"
                when = number(fault["round"]) if by == "the server" else "–"
                rows.append([name(fault["client"], 80), when, fault["reason"], by])
        parts.append(
            table(["client", "round", "what it sent that no honest client can", "found by"], rows[:MOST_ROWS])
        )
    else:
        parts.append(tag("p", "Nobody was proven faulty."))
    if facts["liars"]:
        caught = {fault["client"] for fault in faults}
        parts.append(tag("h3", "Clients that lied in this simulation"))
        rows = [
            [name(client, 80), attack, "proven faulty" if client in caught else "not caught"]
            for client, attack in facts["liars"].items()
        ]
        parts.append(table(["client", "attack", ""], rows[:MOST_ROWS]))
        parts.append(
            tag("p", "A liar that isn't caught said nothing impossible; the method bears it.", class_="note")
        )
    for warning in facts["warnings"][:50]:
        text = [f"Round {warning['round']}, group ", name(warning["group"], 60), f": {warning['text']}."]
        parts.append(tag("p", *text, class_="bad"))
    if facts["dropped"]:
        parts.append(tag("p", "Dropped by the operator: ", ", ".join(facts["dropped"]), "."))
    if facts["refused"]:
        parts.append(tag("h3", "Messages that were refused"))
        parts.append(
            table(
                ["who and why", "times"], [[k, number(v)] for k, v in facts["refused"].items()], numbers={1}
            )
        )
    parts.append(tag("h3", "Checked"))
    if facts["checks"]:
        parts.append(tag("ul", *[tag("li", failure, class_="bad") for failure in facts["checks"][:50]]))
    elif facts["verdict"] is None:
        parts.append(tag("p", "What is there so far adds up."))
    else:
        sound = "The record is sound: its digest fits, and verdict, rounds, bits and eliminations follow "
        parts.append(tag("p", f"{sound} from what was sent.", class_="good"))
    if facts.get("good_event") is False:
        failed = "The event on which the promise rests failed here; that has probability at most δ."
        parts.append(tag("p", failed, class_="bad"))
    return join(*parts)


def _notes(facts: Facts) -> Html | None:
    if not facts["notes"]:
        return None
    rows = [
        [
            name(note["client"], 80),
            number(note["round"]),
            "messages of it came" if note["later"] else "nothing came",
            clean(note["text"], 300),
        ]
        for note in facts["notes"][-50:]
    ]
    words = "What went wrong at a site, in its client's own words. No decision rests on them."
    return join(tag("p", words), table(["client", "in round", "since then", "its words"], rows, numbers={1}))


def _network(facts: Facts) -> Html | None:
    net = facts["network"]
    drawn = figure(
        svg.network,
        facts,
        "Who hears whom. Colours and shapes are groups; a dashed ring marks a liar, a cross who was proven "
        "faulty.",
    )
    if drawn is None:
        return None
    facts_of = [f"{len(net['names'])} clients, {len(net['edges']):,} directed edges"]
    facts_of += [f"{net['messages']:,} messages"] if net.get("messages") else []
    facts_of += [f"{key} {net[key]:g}" for key in ("delay", "loss", "crashes") if net.get(key)]
    answers = facts["peers"] or {}
    rows = [[name(answer, 80), number(count)] for answer, count in answers.items()]
    kept = table(["answer", "honest peers"], rows, numbers={1}) if rows else None
    return join(tag("p", ", ".join(facts_of) + "."), drawn, kept)


def _options(facts: Facts) -> list[list[Any]]:
    return [[key, "–" if value is None else str(value)] for key, value in facts["options"].items()]


def _reproduce(facts: Facts, attached: Html | None) -> Html:
    parts: list[Any] = []
    if facts["command"]:
        parts.append(tag("p", "It was made by this command:"))
        parts.append(tag("pre", facts["command"]))
    if facts["seed"] is not None:
        flags = " ".join(
            f"--{'' if value is not False else 'no-'}{key.replace('_', '-')}"
            + ("" if isinstance(value, bool) else f" {value}")
            for key, value in {"method": facts["method"], "delta": facts["delta"], **facts["options"]}.items()
            if value is not None
        )
        parts.append(
            tag("p", "The record below holds all that it takes to run it again and compare everything:")
        )
        parts.append(tag("pre", f"bestarm verify {shlex.quote(facts['file'])} --replay"))
        parts.append(tag("p", "The same settings on your own scenario:"))
        parts.append(tag("pre", f"bestarm run SCENARIO.toml --seed {facts['seed']} {flags}"))
    elif facts["verdict"] is not None:
        parts.append(
            tag("p", "The record below can be checked by anyone; without a seed it can't be run again.")
        )
        parts.append(tag("pre", f"bestarm verify {shlex.quote(facts['file'])}"))
    versions = ", ".join(f"{key} {value}" for key, value in facts["versions"].items())
    seed = "–" if facts["seed"] is None else facts["seed"]
    parts.append(tag("p", f"The run: bestarm {facts['version']}, seed {seed}. This page: {versions}."))
    if facts["digest"]:
        parts.append(tag("p", "Digest of the record (SHA-256): ", tag("code", facts["digest"])))
    parts.append(attached)
    parts.append(
        fold("All options", table(["option", "value"], [["delta", f"{facts['delta']:g}"], *_options(facts)]))
    )
    return join(*parts)


def sections(facts: Facts, attached: Html | None = None) -> list[Section]:
    """The parts of a page: (id, title, HTML). Parts for which there are no facts are left out."""
    if facts["kind"] == "study":
        return _study_sections(facts, attached)
    if facts["kind"] == "site":
        return _site_sections(facts)
    made = [
        ("intervals", "The race", _intervals(facts)),
        ("arms", "Each arm", _arms(facts)),
        ("costs", "What it cost", _costs(facts)),
        ("heterogeneity", "How different the groups are", _heterogeneity(facts)),
        ("network", "The network", _network(facts)),
        ("notes", "What clients told the operator", _notes(facts)),
        ("trust", "Who can be trusted", _trust(facts)),
        ("reproduce", "Run it again", _reproduce(facts, attached)),
    ]
    return [("top", "", _verdict(facts)), *[(key, title, body) for key, title, body in made if body]]


DOING = {
    "exploring": "compares its own arms", "sampling": "samples its best arm", "pulling": "pulls its arms",
    "reported": "has reported and waits for the server", "resting": "samples no more and listens",
    "done": "is done", "new": "has not begun",
}  # fmt: skip


def _site_top(facts: Facts) -> Html:
    verdict, wants = facts["verdict"], facts["wants"]
    doing = DOING.get(facts["state"], facts["state"])
    head = sentence(facts) if verdict else join(name(facts["me"], 80), f" {doing}.")
    kind = "" if verdict is None else " yes" if verdict["status"] == "identified" else " no"
    what = "node" if facts["peer"] else "client"
    lines = [
        tag("p", f"What one {what} sees: ", name(facts["me"], 80), ", of ", name(facts["group"], 80), ".")
    ]
    if verdict:
        lines = [*guarantee(facts), *lines]
    elif wants:
        each = " each" if wants["arms"] > 1 else ""
        arms = "1 arm" if wants["arms"] == 1 else f"{wants['arms']} arms"
        lines.append(tag("p", f"Next: {arms}, {number(wants['times'])} pulls{each}."))
    if facts["checks"]:
        lines.append(tag("p", "This journal does not add up: see “Who can be trusted”.", class_="bad"))
    shown = {
        "pulls": facts["costs"]["pulls"],
        "arms left": sum(arm["fate"] != "out" for arm in facts["arms"]),
        "messages sent": facts["sent"],
        "messages heard": facts["heard"],
        "rewards kept for later": facts["kept"] or None,
    }
    keys = [tag("div", tag("dt", k), tag("dd", number(v))) for k, v in shown.items() if v is not None]
    method = METHODS.get(facts["method"], facts["method"])
    words = tag("div", tag("h1", head, id="verdict"), *lines, class_=f"verdict{kind}")
    return join(words, tag("dl", *keys, class_="keys"), tag("p", f"Method: {method}.", class_="note"))


def _site_arms(facts: Facts) -> Html:
    rows = []
    for arm in facts["arms"][:MOST_ROWS]:
        span = f" ({number(arm['lower'])} to {number(arm['upper'])})" if "mean" in arm else ""
        mean = f"{number(arm.get('mean'))}{span}"
        rows.append([name(arm["name"], 80), number(arm["pulls"]), mean, arm["fate"]])
    return join(table(["arm", "pulls", "mean and interval", ""], rows, numbers={1}), _arms(facts))


def _site_view(facts: Facts) -> Html | None:
    if not facts["peer"]:
        return None
    rows: list[list[Any]] = []
    for row in facts["view"][:MOST_ROWS]:
        arm = "not known yet" if row["arm"] is None else name(row["arm"], 80)
        span = row["interval"]
        value = number(row["mean"]) if span is None else f"{number(span[0])} to {number(span[1])}"
        fate = "" if row["standing"] is None else "in the race" if row["standing"] else "beaten"
        rows.append([name(row["group"], 80), arm, value, fate])
    told = table(["arm-set", "its best arm", "mean, or interval", ""], rows)
    heard = [
        [name(n["name"], 80), number(n["reports"]), "proven faulty" if n["out"] else ""]
        for n in facts["hears"][:MOST_ROWS]
    ]
    tells = join(*[[", " if k else None, name(c, 60)] for k, c in enumerate(facts["tells"][:50])])
    more = f" and {len(facts['tells']) - 50} more" if len(facts["tells"]) > 50 else ""
    return join(
        told,
        tag("h3", "Whom it hears"),
        table(["node", "arm-sets that it reported on", ""], heard, numbers={1}),
        tag("p", "It tells: ", tells or "nobody", more, "."),
    )


def _site_trust(facts: Facts) -> Html:
    parts: list[Any] = []
    if facts["faults"]:
        rows = [[name(fault["client"], 80), clean(fault["reason"], 300)] for fault in facts["faults"]]
        parts.append(tag("h3", "Proven faulty"))
        parts.append(table(["node", "how"], rows[:MOST_ROWS]))
    elif facts["peer"]:
        parts.append(tag("p", "Nobody was proven faulty."))
    if facts["checks"]:
        parts.append(tag("ul", *[tag("li", failure, class_="bad") for failure in facts["checks"][:50]]))
    else:
        sound = "What its journal holds adds up: each message follows from what came before it."
        parts.append(tag("p", sound, class_="good"))
    return join(*parts)


def _site_sections(facts: Facts) -> list[Section]:
    versions = ", ".join(f"{key} {value}" for key, value in facts["versions"].items())
    options = fold(
        "All options", table(["option", "value"], [["delta", f"{facts['delta']:g}"], *_options(facts)])
    )
    made = [
        ("arms", "Its arms", _site_arms(facts)),
        ("view", "What it knows of the others", _site_view(facts)),
        ("trust", "Who can be trusted", _site_trust(facts)),
        ("reproduce", "About this page", join(tag("p", f"This page: {versions}."), options)),
    ]
    return [("top", "", _site_top(facts)), *[(key, title, body) for key, title, body in made if body]]


def _study_sections(facts: Facts, attached: Html | None) -> list[Section]:
    rows = facts["rows"]
    kinds = {
        "rounds": "rounds",
        "pulls_total": "pulls",
        "pulls_max": "pulls of the busiest client",
        "bits_up": "bits up",
    }
    total = sum(row["trials"] for row in rows)
    top = [tag("h1", f"A study of {total:,} runs", id="verdict")]
    if len(rows) > 1:
        ranked = sorted(rows, key=lambda row: row["pulls_total"]["mean"])
        (best, fewest), (worst, most) = (
            (svg.cell_name(facts, row), row["pulls_total"]["mean"]) for row in (ranked[0], ranked[-1])
        )
        ratio = f"{number(most / max(fewest, 1e-9), 3)} times as many"
        lead = ["Fewest pulls on average: ", tag("strong", best), f", {number(fewest)}. "]
        top.append(tag("p", *lead, f"The most: {worst}, {number(most)} ({ratio})."))
    wrong = sum(row.get("errors", 0) for row in rows)
    undecided = sum(row["undecided"] for row in rows)
    top.append(tag("p", f"{wrong:,} of {total:,} runs named a wrong arm, {undecided:,} stayed undecided."))
    head = [*facts["varied"], "trials", *kinds.values(), "wrong", "wrong: 95 % interval", "undecided"]
    cells = []
    for row in rows[:MOST_ROWS]:
        cell: list[Any] = [name(row[key], 60) for key in facts["varied"]] + [number(row["trials"])]
        for key in kinds:
            span = row[key]["mean_interval"]
            half = f" ± {number((span[1] - span[0]) / 2, 3)}" if span else ""
            cell.append(f"{number(row[key]['mean'])}{half}")
        known = "errors" in row
        cell.append(number(row["errors"]) if known else "–")
        cell.append("{:.2g} to {:.2g}".format(*row["error_rate_interval"]) if known else "–")
        cells.append([*cell, number(row["undecided"])])
    kept = table(head, cells, numbers=set(range(len(facts["varied"]), len(head))))
    drawn = [
        figure(partial(svg.comparison, name=key, title=title), facts, f"Mean {title} with 95 % intervals.")
        for key, title in kinds.items()
    ]
    versions = ", ".join(f"{key} {value}" for key, value in facts["versions"].items())
    again = join(
        tag(
            "p",
            "Made by ",
            tag("code", "bestarm study SCENARIO.toml --trials … --vary … --out FILE"),
            f", then by this page: {versions}.",
        ),
        tag("p", f"Seed {facts['seed']}.") if facts["seed"] else None,
        attached,
    )
    if facts["data"]:
        top.append(tag("p", clean(facts["data"]["said"], 400)))
    note = tag("p", "Means ± 95 %; the rate of wrong answers with its exact interval.", class_="note")
    return [
        ("top", "", tag("div", *top, class_="verdict yes")),
        ("table", "The numbers", join(kept, note)),
        ("figures", "Side by side", join(*drawn)),
        ("reproduce", "Run it again", again),
    ]


def page(facts: Facts, attachment: bytes | None = None, file_name: str = "record.json") -> str:
    """A whole page, with the record (or the rows of a study) inside for download."""
    facts = {**facts, "file": file_name}
    attached = None if attachment is None else _download(attachment, file_name)
    made = sections(facts, attached)
    links = [tag("li", tag("a", title, href=f"#{key}")) for key, title, _ in made if title]
    body = [
        tag("section", tag("h2", title) if title else None, content, id=key) for key, title, content in made
    ]
    policy = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    content = f"default-src 'none'; style-src 'sha256-{policy}'; base-uri 'none'; form-action 'none'"
    verdict = facts.get("verdict")
    title = (
        "bestarm: a study"
        if facts["kind"] == "study"
        else f"bestarm: {(verdict or {}).get('arm') or 'undecided'}"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=content),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(style())),
    )
    skip = tag("a", "To the verdict", href="#verdict", class_="skip")
    whole = tag(
        "html",
        head,
        tag("body", skip, tag("nav", tag("ul", *links), aria_label="sections"), tag("main", *body)),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{whole}\n"


def _download(data: bytes, file_name: str) -> Html:
    """A link that holds the file; packed where it is long, and left out where even that is too long."""
    for packed, kind, ending in ((data, "application/json", ""), (None, "application/gzip", ".gz")):
        content = base64.b64encode(gzip.compress(data, mtime=0) if packed is None else packed).decode()
        if len(content) <= LARGEST_LINK:
            shown = f"{file_name}{ending}"
            link = tag("a", f"Download {shown}", href=Html(f"data:{kind};base64,{content}"), download=shown)
            return tag(
                "p", link, f" ({len(data):,} bytes{', packed with gzip' if ending else ''})", class_="screen"
            )
    return tag(
        "p",
        f"The record has {len(data):,} bytes, too many to be carried in this page: keep its file with it.",
    )


def write(html: str, path: str | Path) -> Path:
    """Write a page, whole or not at all."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.part")
        scratch.write_text(html, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None
    return path


def of_record(
    record: Record, *, quick: bool = False, command: str | None = None, file_name: str = "record.json"
) -> str:
    """The page of a run; `file_name` is that of its record."""
    facts = collect.of_record(record, quick=quick, command=command)
    return page(facts, msgspec.json.encode(record.to_dict()), file_name)


def of_trials(trials: Trials) -> str:
    """The page of a study."""
    rows = "".join(json.dumps(row, default=str) + "\n" for row in trials.rows())
    return page(collect.of_trials(trials), rows.encode(), "trials.jsonl")


def read(path: str | Path, *, quick: bool = False) -> str:
    """The page of whatever lies there: a record, a study's rows, or the folder or journal of a federation's
    server, of a client or of a mesh's node."""
    path = Path(path)
    if path.suffix in (".csv", ".jsonl", ".parquet"):
        return of_trials(Trials.load(path))
    if path.suffix == ".toml":
        raise InputError(
            "this is a scenario, not a run", where=str(path), fix="bestarm run … --report FILE.html"
        )
    if path.is_dir() or path.suffix == ".db":
        return _of_journal(path)
    return of_record(Record.load(path), quick=quick, file_name=path.name)


def _of_journal(path: Path) -> str:
    from bestarm.report.follow import Journalled

    found = Journalled(path)
    if not found.path.is_file():
        raise InputError("there is no journal here", where=str(found.path), fix="Check the path")
    with closing(found):
        found.catch_up()
        facts = found.facts()
        if found.trouble or facts is None:
            raise InputError(found.trouble.removeprefix(f"{found.path.resolve()}: "), where=str(found.path))
        return page(facts, found.record())


def _fragment(body: Html) -> str:
    """Something for a notebook: the page's style, fenced in."""
    return tag("div", tag("style", Html(f"@scope {{ {style().replace(':root', ':scope')} }}")), body)


def record_fragment(record: Record) -> str:
    """A record in a notebook."""
    facts = collect.of_record(record, quick=True)
    drawn = [figure(svg.forest, facts, ""), figure(svg.race, facts, "")]
    return _fragment(join(_verdict(facts), *drawn))


def study_fragment(trials: Trials) -> str:
    """A study in a notebook."""
    made = {key: body for key, _, body in sections(collect.of_trials(trials))}
    return _fragment(made["table"])


def problem_fragment(problem: Problem) -> str:
    """A problem in a notebook: who can pull what, with the means where they are known."""
    rows = []
    for group, means in zip(problem.layout.groups[:MOST_ROWS], problem.means, strict=False):
        arms = [
            [
                ", " if k else None,
                name(arm, 40),
                "" if mean is None else f" {number(problem.scale.user(mean))}",
            ]
            for k, (arm, mean) in enumerate(zip(group.arms[:30], means, strict=False))
        ]
        more = f" and {len(group.arms) - 30} more" if len(group.arms) > 30 else ""
        rows.append([name(group.name, 60), number(len(group.clients)), join(*arms, more)])
    return _fragment(table(["group", "clients", "arms, with their means"], rows, numbers={1}))


def graph_fragment(graph: Graph) -> str:
    """A network in a notebook."""
    edges = [(u, v) for u, v in graph.edges.tolist()]
    names = list(graph.names or map(str, range(graph.n)))
    facts = collect.drawn_network(names, edges, [-1] * graph.n, graph.positions)
    shown = {"network": facts, "groups": [], "liars": {}, "faults": []}
    text = tag("p", f"{graph.n:,} nodes, {len(edges):,} edges")
    return _fragment(join(text, svg.network(shown, WIDE)))
