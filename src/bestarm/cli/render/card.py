"""The answer card on the terminal: alarms, the headline, lead, risk, the options, and the next step."""

from __future__ import annotations

from itertools import zip_longest

from bestarm.cli.render.tables import Column, print_table
from bestarm.cli.terminal import out, safe
from bestarm.protocol.rounds import DROPPED
from bestarm.records.card import AnswerCard, OptionFacts
from bestarm.records.describe import dropped_groups, fate, nothing_promised
from bestarm.records.figures import (
    ahead_said,
    lead_places,
    mean_places,
    number_of,
    option_said,
    rough,
    rough_gap,
    said,
    span,
)
from bestarm.records.record import Record
from bestarm.records.views import trace_of
from bestarm.util.text import counted

MOST_ROWS = 20  # of a table
STYLES = {"good": "bold green", "amber": "bold yellow", "bad": "bold red", "going": "bold"}


def say_long(text: str, style: str | None = None) -> None:
    """Print a sentence: wrapped at the width of a terminal, in one line for a file or a pipe."""
    out.print(safe(text), style=style, soft_wrap=True)


def show_alarms(card: AnswerCard) -> None:
    """Print what a reader must know before the answer."""
    for text in card.alarms:
        say_long(text, "red" if text.startswith("Proven faulty") else "yellow")


def show_headline(card: AnswerCard) -> None:
    """Print the answer, in a colour that matches the promise."""
    say_long(card.headline, STYLES[card.tone])


def show_lead(card: AnswerCard) -> None:
    """Print the mean of the named option, and how far it is ahead."""
    best = next((row for row in card.options if row.best), None)
    if best is not None and best.mean is not None:
        whose = f"The mean of {best.name} over all sites" if card.sites else "Its mean"
        say_long(f"{whose} is about {option_said(best, card.percent, card.unit, mean_places(card))}.")
    if best is not None and card.lead is None and card.kept:
        say_long(f"How far it is ahead is not known: the numbers of the others were {card.kept}.", "dim")
    told = ahead_said(card)
    for text in told[:MOST_ROWS]:
        say_long(text)
    if (more := len(told) - MOST_ROWS) > 0:
        out.print(f"… and {more:,} more (the record and the report have all of them)", style="dim")


def show_risk(card: AnswerCard) -> None:
    """Print what is promised, and in a simulation whether the answer is right."""
    if not card.headline.startswith("No safe answer") or not card.risk.startswith("Nothing is promised:"):
        say_long(card.risk)
    elif card.alpha is not None:
        say_long(f"The probability that any interval here misses is at most {card.alpha:g}.")
    if card.truth:
        say_long(card.truth, "red" if card.right is False else "dim")


def show_curse(card: AnswerCard) -> None:
    """Print how much too good the mean of a winner tends to be; its place is below the numbers."""
    if card.curse:
        say_long(card.curse, "dim")


def show_ranking(record: Record, card: AnswerCard) -> None:
    """Print the options, the best first: mean, interval, pulls, lead over the next, what became of them."""
    found, rows = fates(record), card.options[:MOST_ROWS]
    if card.best is not None and card.tone == "bad":  # nothing is promised, or it is wrong
        found[card.best] = "named"
    cells = [_cells(row, after, card) for row, after in zip_longest(rows, card.options[1 : MOST_ROWS + 1])]
    titles = (f"mean ({card.unit})" if card.unit else "mean", "interval", "pulls", "ahead")
    columns = [
        Column(title, [row[k] for row in cells], rank=max(0, k - 1))
        for k, title in enumerate(titles)
        if any(row[k] for row in cells)
    ]
    print_table("option", [row.name for row in rows], columns, [found.get(row.name, "") for row in rows])
    if (more := len(card.options) - MOST_ROWS) > 0:
        out.print(f"… and {more:,} more options (the record and the report have all of them)", style="dim")


def _cells(row: OptionFacts, after: OptionFacts | None, card: AnswerCard) -> tuple[str, ...]:
    if row.mean is None:
        return "–", "", f"{row.pulls or 0:,}", ""
    lead = ""
    if after is not None and after.mean is not None:
        gap = abs(row.mean - after.mean)
        lead = rough_gap(gap, card.percent, lead_places(card) if row.interval else None)
    if card.lead is not None and card.lead.option == row.name:  # as the sentence above the table has it
        lead = number_of(card.lead, card.percent, lead_places(card))
    ends = span(row.interval, card.percent) if row.interval else ""
    pulls = "" if row.pulls is None else f"{row.pulls:,}"
    mean = rough(row.mean, card.percent)
    if row.interval:
        mean = said(row.mean, row.interval, card.percent, places=mean_places(card))
    return mean, ends, pulls, lead


def fates(record: Record) -> dict[str, str]:
    """What became of each arm, by its full name, as far as the record shows."""
    trace, groups = trace_of(record), record.problem["groups"]
    dropped, verdict = dropped_groups(record.warnings), record.verdict
    by_group = {line.group: line for line in trace.lines()}
    lost = {(e.group, e.arm): e for e in trace.exits() if e.arm is not None}
    found = {}
    for j, group in enumerate(groups):
        line = by_group.get(j)
        for a, arm in enumerate(group["arms"]):
            name, leaves = f"{group['name']}/{arm}", lost.get((j, a))
            if name == verdict.arm:
                found[name] = "named, unsafe" if nothing_promised(record) else "winner"
            elif group["name"] in dropped:
                found[name] = DROPPED
            elif leaves is not None:
                found[name] = f"out after {counted(leaves.pulls[1], 'pull')}"
            elif record.peers is not None and verdict.status == "identified":  # peers keep no common race
                found[name] = "out"
            elif line is not None and line.arm in (None, a):
                found[name] = fate("", verdict.arm, line.out, line.withdrew)
            elif verdict.status == "undecided" and name in verdict.candidates:
                found[name] = "not ruled out"
            elif verdict.status == "identified" and not verdict.certificate.get("local"):
                found[name] = "out"
    return found


def show_next(steps: list[str], commands: list[str]) -> None:
    """Print the next steps, and the commands for them."""
    for text in steps:
        say_long(f"next: {text}", "cyan")
    for text in commands:
        say_long(f"next: {text}", "cyan")
