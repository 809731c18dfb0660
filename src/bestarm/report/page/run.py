"""The sections of the page of a run."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from bestarm.records.figures import rough
from bestarm.report import svg
from bestarm.report.facts import ExitFacts, RunFacts, SiteFacts
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.page.answer import answer
from bestarm.report.page.costs import costs
from bestarm.report.page.leaderboard import leaderboard, leaderboard_by_site
from bestarm.report.page.now import faults_now, going
from bestarm.report.page.options import options_by_site
from bestarm.report.page.parts import (
    MOST_ROWS,
    NARROW,
    Section,
    all_options,
    command,
    figure,
    filled,
    fold,
    made_by,
)
from bestarm.report.page.trust import notes, trust
from bestarm.report.standings import when, why_out
from bestarm.report.svg import number
from bestarm.report.words import against_control
from bestarm.util.text import counted


def run_sections(facts: RunFacts, attached: Html | None) -> list[Section]:
    """The page of a run; `attached` is a link to its record."""
    by_site = facts.options_by_site
    each = None if by_site and not facts.exits else arms(facts)
    made = [
        ("leaderboard", "Leaderboard", leaderboard(facts)),
        ("sites", "At each site", _at_each_site(facts)),
        ("options", "Options by site", None if by_site is None else options_by_site(facts, by_site)),
        ("intervals", "The race", None if by_site and not facts.lines else _race(facts)),
        ("arms", "Each option" if by_site else "Each arm", each),
        ("costs", "What it cost", costs(facts)),
        ("heterogeneity", "How different the groups are", None if by_site else _heterogeneity(facts)),
        ("network", "The network", _network(facts)),
        ("notes", "What clients told the operator", notes(facts)),
        ("trust", "Who can be trusted", trust(facts)),
        ("reproduce", "Run it again", _reproduce(facts, attached)),
    ]
    return [*filled([("alarms", "", faults_now(facts))]), ("top", "", top(facts)), *filled(made)]


def _at_each_site(facts: RunFacts) -> Html | None:
    """The options of each site, where both their best overall and the best at each site were asked."""
    by_site = facts.options_by_site
    asked = facts.verdict is not None and any(answer.site for answer in facts.verdict.answers)
    return leaderboard_by_site(facts) if by_site and by_site.weighted and asked else None


def top(facts: RunFacts) -> Html:
    """The verdict, its guarantee, and the most important numbers."""
    words = going(facts) if facts.card is None else answer(facts, facts.card)
    arms_ = sum(len(group.arms) for group in facts.groups)
    size = ", ".join(
        counted(n, what)
        for n, what in ((len(facts.groups), "group"), (arms_, "arm"), (len(facts.clients), "client"))
    )
    if facts.visitors is not None:
        options = {arm for group in facts.groups for arm in group.arms}
        size = f"{counted(len(facts.groups), 'site')}, {counted(len(options), 'option')}"
    said = f"{size}. Method: {facts.method.summary}. {facts.coins} {facts.privacy}".rstrip()
    return join(words, tag("p", said, class_="note"))


def _race(facts: RunFacts) -> Html | None:
    """The race of wealths for a method that bets, that of intervals for the others."""
    if facts.wealths is not None:
        return join(_wealths(facts), fold("The means", _intervals(facts)))
    return _intervals(facts)


def _wealths(facts: RunFacts) -> Html | None:
    caption = (
        "Bets against each option, which grow when it keeps losing. An option whose wealth reaches the "
        "dashed line is ruled out (×); the last one left is the answer (★). The scale is logarithmic. A line "
        "is level while its option is the champion, because nobody bets against it."
    )
    assert facts.wealths is not None
    if any(against_control(facts, bet.name) for bet in facts.wealths.bets):
        caption = (
            "Bets on the answer about each option or, while it is open, on the answer whose bets won most. "
            "An option whose wealth reaches the dashed line is settled (×). The scale is logarithmic."
        )
    if svg.cut_off(facts):
        caption += " Wealth beyond the top is drawn at the edge; point at it to see it."
    return figure(
        partial(svg.wealth_race, facts),
        caption + _not_drawn(len(facts.wealths.bets) - len(svg.bets_drawn(facts))),
    )


def _intervals(facts: RunFacts) -> Html | None:
    if not facts.lines and facts.so_far:
        told = facts.card is not None and bool(facts.card.options)  # then they are those of coins, as below
        own = " (means of the rewards themselves; pictures below are of coins)"
        own *= bool(facts.coins and not told)
        text = "No round was completed. The leaderboard shows what was drawn until then"
        return tag("p", f"{text}{own}.")
    if not facts.lines:
        return tag("p", "No round was completed.")
    first = "what the first honest client of each group sent"
    source = first if facts.method.peers else "what the server knew"
    others = len(facts.roster) - len(facts.lines)
    inner = f" The {others} other options lost inside their site: see the leaderboard." if others > 0 else ""
    what = "How the intervals of the options shrank" if svg.has_bands(facts) else "The means of the options"
    caption = f"{what}, from {source}. A cross marks where an option was dropped."
    if facts.card is not None and facts.card.alpha is not None:
        caption += " A line ends with the interval of the leaderboard."
    drawn = svg.drawable(facts)
    shown = figure(partial(svg.race, facts), caption + inner + _not_drawn(len(drawn) - svg.MOST_LINES))
    return shown or tag("p", "There was only one round: the leaderboard shows where it ended.")


def _not_drawn(count: int) -> str:
    return f" {count:,} further options, which left earlier, are not drawn." if count > 0 else ""


def arms(facts: RunFacts) -> Html:
    """Each arm inside its group, and which arms were dropped, when and why."""
    wide = [tag("div", panel, class_="panel") for panel in svg.inside(facts, 430)]
    parts: list[Any] = []
    own = svg.has_own_bands(facts)
    if wide:
        more = 0 if isinstance(facts, SiteFacts) else len(facts.groups) - len(wide)
        caption = (
            f"Each option inside its site: its mean{' and interval' if own else ''} as its pulls grew. A "
            "cross marks where an option was dropped."
        )
        caption += f" {more:,} further groups are not drawn." if more > 0 else ""
        narrow = tag("div", *svg.inside(facts, NARROW), class_="narrow")
        parts.append(
            tag("figure", tag("div", *wide, class_="panels wide"), narrow, tag("figcaption", caption))
        )
    rows = [_exit(facts, exit_) for exit_ in facts.exits[:MOST_ROWS]]
    if rows:
        compared = any(against_control(facts, exit_.name) for exit_ in facts.exits)
        by, what = ("against", "settled") if compared else ("beaten by", "dropped")
        first = "option" if facts.options_by_site else "arm or group"
        head = [first, "when", f"{what} by", "means then", by, "why"]
        parts.append(tag("h3", f"What was {what}, when and why"))
        parts.append(table(head, rows, caption=f"What was {what}, in order"))
        more = len(facts.exits) - len(rows)
        if more > 0:
            parts.append(tag("p", f"{more:,} more are in the record.", class_="note"))
    else:
        parts.append(tag("p", "No arm was dropped."))
    if facts.private is False and not facts.options_by_site:
        text = "When and why an arm lost inside a client stays at its site, so it is not in this record."
        parts.append(tag("p", text, class_="note"))
    return join(*parts)


def _exit(facts: RunFacts, exit_: ExitFacts) -> list[Any]:
    by = "the server"
    if isinstance(facts, SiteFacts):
        by = "itself"
    elif not exit_.by_server:
        by = "its client" if exit_.of == 1 else f"{exit_.clients} of {exit_.of} clients"
    rival = "–" if exit_.rival is None else name(exit_.rival, 80)
    mean = rough(exit_.mean, facts.percent)
    if exit_.rival_mean is not None:
        mean = f"{mean} against {rough(exit_.rival_mean, facts.percent)}"
    why = tag("span", why_out(facts, exit_), class_="why")
    return [name(exit_.name, 80), tag("span", when(exit_), class_="when"), by, mean, rival, why]


def _heterogeneity(facts: RunFacts) -> Html | None:
    h = facts.heterogeneity
    drawn = figure(
        partial(svg.matrix, facts),
        "σ of group i (row) against group j (column): the gap between a group's own two best arms, over the "
        "gap between the two groups' best arms. Blue (at most 1): once a group knows its own best arm it "
        "knows enough, and few rounds are needed. Orange: the groups are alike, and more rounds are needed.",
    )
    if drawn is None or h is None:
        return None
    more = tag("p", f"{h.more} further groups are not drawn.", class_="note") if h.more else None
    rows = [
        [name(group, 60), *("" if value is None else number(value, 3) for value in row)]
        for group, row in zip(h.groups, h.matrix, strict=True)
    ]
    head = ["", *(name(group, 30) for group in h.groups)]
    kept = table(head, rows, numbers=set(range(1, len(head))), caption="σ of row against column")
    return join(drawn, more, fold("The same as a table", kept))


def _network(facts: RunFacts) -> Html | None:
    net = facts.network
    drawn = figure(
        partial(svg.network, facts),
        "Who hears whom. A shape is a group, its colour the option that the group is for. A dashed ring "
        "marks a liar, a cross a client that was proven faulty. Where a name has no room, point at the "
        "client to see it.",
    )
    if drawn is None or net is None:
        return None
    said = [f"{counted(len(net.names), 'client')}, {counted(len(net.edges), 'directed edge')}"]
    said += [counted(net.messages, "message")] if net.messages else []
    shown = {"delay": net.delay, "loss": net.loss, "crashes": net.crashes}
    said += [f"{key} {value:g}" for key, value in shown.items() if value]
    rows = [[name(answer, 80), number(count)] for answer, count in (facts.peers or {}).items()]
    kept = (
        table(["answer", "honest peers"], rows, numbers={1}, caption="Verdicts of the peers")
        if rows
        else None
    )
    return join(tag("p", ", ".join(said) + "."), drawn, kept)


def _reproduce(facts: RunFacts, attached: Html | None) -> Html:
    parts: list[Any] = []
    if facts.command:
        parts.append(tag("p", "The run was made by this command:"))
        parts.append(command(facts.command))
    if facts.seed is not None:
        text = "The record below contains everything that is needed to run it again and compare the results:"
        parts.append(tag("p", text))
        parts.append(command(f"bestarm verify {shlex.quote(facts.file)} --replay"))
        parts.append(tag("p", "The same settings on your own scenario:"))
        parts.append(command(f"bestarm run SCENARIO.toml --seed {facts.seed} {_flags(facts)}"))
    elif facts.verdict is not None:
        why = "without a seed the run can't be repeated"
        if facts.visitors is not None:
            why = "the visitors can't come again, so the experiment can't be repeated"
        text = f"Anyone can check the record below; {why}."
        parts.append(tag("p", text))
        parts.append(command(f"bestarm verify {shlex.quote(facts.file)}"))
    seed = "" if facts.seed is None else f", seed {facts.seed}"
    parts.append(tag("p", f"The run: bestarm {facts.version}{seed}. {made_by(facts.versions)}"))
    if facts.digest:
        parts.append(tag("p", "Digest of the record (SHA-256): ", tag("code", facts.digest)))
    return join(*parts, attached, all_options(facts))


def _flags(facts: RunFacts) -> str:
    """The options in the form of the command line."""
    chosen = {**facts.asked, "method": facts.method.name, "delta": facts.delta, **facts.options}
    return " ".join(
        f"--{'' if value is not False else 'no-'}{key.replace('_', '-')}"
        + ("" if isinstance(value, bool) else f" {shlex.quote(str(value))}")
        for key, value in chosen.items()
        if value is not None
    )
