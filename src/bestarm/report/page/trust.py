"""Proven faults, liars, refused messages, and whether the record is valid."""

from __future__ import annotations

from typing import Any

from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.page.parts import MOST_ROWS
from bestarm.report.svg import number


def trust(facts: RunFacts) -> Html:
    """The section about whom to trust."""
    parts: list[Any] = [*_faults(facts), *_liars(facts)]
    for warning in facts.warnings[:50]:
        text = [warning.place, name(warning.group, 60), f": {warning.text}."]
        parts.append(tag("p", *text, class_="bad"))
    if facts.dropped:
        parts.append(tag("p", "Dropped by the operator: ", ", ".join(facts.dropped), "."))
    if facts.refused:
        rows: list[list[Any]] = [[who, number(times)] for who, times in facts.refused.items()]
        parts.append(tag("h3", "Messages that were refused"))
        parts.append(
            table(["from whom, and why", "times"], rows, numbers={1}, caption="Messages that were refused")
        )
    return join(*parts, tag("h3", "Checked"), *_checks(facts))


def _faults(facts: RunFacts) -> list[Html]:
    if not facts.faults and facts.visitors is not None:
        return []
    if not facts.faults:
        return [tag("p", "No client was proven faulty.")]
    rows: dict[tuple[str, str], list[Any]] = {}
    for fault in facts.faults:
        when, by = ("–", "its neighbours") if fault.by else (number(fault.round), "the server")
        rows.setdefault((fault.client, fault.reason), [name(fault.client, 80), when, fault.reason, by])
    head = ["client", "round", "what it sent that no honest client can send", "found by"]
    return [
        tag("h3", "Proven faulty"),
        table(head, list(rows.values())[:MOST_ROWS], caption="Clients that were proven faulty"),
    ]


def _liars(facts: RunFacts) -> list[Html]:
    if not facts.liars:
        return []
    caught = {fault.client for fault in facts.faults}
    rows: list[list[Any]] = [
        [name(client, 80), attack, "proven faulty" if client in caught else "not caught"]
        for client, attack in facts.liars.items()
    ]
    note = "A liar that was not caught sent nothing impossible; the method tolerates it."
    return [
        tag("h3", "Clients that lied in this simulation"),
        table(["client", "attack", "found"], rows[:MOST_ROWS], caption="Clients that lied"),
        tag("p", note, class_="note"),
    ]


def _checks(facts: RunFacts) -> list[Html]:
    if facts.checks:
        found = [tag("ul", *[tag("li", failure, class_="bad") for failure in facts.checks[:50]])]
    elif facts.verdict is None:
        found = [tag("p", "Everything so far is consistent.")]
    else:
        sound = "The record is sound: its digest matches, and verdict, rounds, bits and eliminations follow"
        found = [tag("p", f"{sound} from what was sent.", class_="good")]
    if facts.good_event is False:
        failed = "The event on which the promise rests failed here; that has probability at most δ."
        found.append(tag("p", failed, class_="bad"))
    return found


def notes(facts: RunFacts) -> Html | None:
    """Messages from clients to the operator."""
    if not facts.notes:
        return None
    rows: list[list[Any]] = [
        [
            name(note.client, 80),
            number(note.round),
            "messages arrived" if note.later else "nothing arrived",
            clean(note.text, 300),
        ]
        for note in facts.notes[-50:]
    ]
    words = "What went wrong at a site, in its client's own words. No decision depends on them."
    return join(
        tag("p", words),
        table(
            ["client", "in round", "since then", "its words"],
            rows,
            numbers={1},
            caption="Messages to the operator",
        ),
    )
