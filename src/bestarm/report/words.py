"""Common wording of pages and pictures for groups and for a method's intervals."""

from __future__ import annotations

from bestarm.protocol.rounds import DROPPED
from bestarm.records.describe import fate
from bestarm.report.facts import LineFacts, MethodFacts, RunFacts

ILLUSTRATIVE = "illustrative only (95 %)"


def fate_of(facts: RunFacts, line: LineFacts) -> str:
    """The state of a group, in a few words."""
    if line.fate == "in" and facts.verdict is None:
        return "in the race"
    if against := against_control(facts, line.name):
        return against
    group = line.name if facts.options_by_site else facts.groups[line.group].name
    named = facts.verdict is not None and facts.verdict.status == "identified"
    became = fate(
        group,
        None if facts.verdict is None else facts.verdict.arm,
        line.when if line.fate == "out" else None,
        line.when if line.fate == "withdrew" else None,
        any(warning.group == group and DROPPED in warning.text for warning in facts.warnings),
    )
    if became == "winner" and facts.broken:
        return "named, unsafe"
    return "behind the winner" if named and became == "not ruled out" else became


def against_control(facts: RunFacts, option: str) -> str:
    """The answer about an option that is compared with a control; empty for other questions."""
    rows = facts.options_by_site.rows if facts.options_by_site else ()
    results = ("control", "better", "worse", "within", "open")
    return next((row.result for row in rows if row.name == option and row.result in results), "")


def interval_label(claimed: bool) -> str:
    """The label for intervals on the axis of a picture."""
    return ", with its interval" if claimed else f"; intervals {ILLUSTRATIVE}"


def interval_note(method: MethodFacts) -> str:
    """A sentence about intervals that the method does not claim; empty if it claims them."""
    if method.claims_intervals:
        return ""
    return f"{method.title} decides without intervals; those shown are {ILLUSTRATIVE}."
