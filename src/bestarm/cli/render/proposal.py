"""Shows what the columns of a table may be, and asks where that is not clear."""

from __future__ import annotations

import dataclasses
import sys

import typer
from rich.table import Table

from bestarm.cli.terminal import out, safe
from bestarm.scenario.from_table import MOST_COLUMNS, Proposal, ways


def choose(proposal: Proposal) -> Proposal:
    """Show the first rows of a table and how it can be read; on a terminal, ask which reading is meant."""
    shown = [safe(profile.name) for profile in proposal.profiles[:MOST_COLUMNS]]
    table = Table(*shown, box=None, header_style="dim")
    for row in proposal.sample:
        table.add_row(*(safe(cell[:30]) for cell in row[:MOST_COLUMNS]))
    out.print(table)
    found = proposal.readings
    for line in found[0].reasons if len(found) == 1 else ways(found):
        out.print(safe(line), style="dim" if len(found) == 1 else "yellow", soft_wrap=True)
    if len(found) > 1 and sys.stdin.isatty() and sys.stdout.isatty():
        number = typer.prompt("Which one? (0: I don't know yet)", default=0, type=int)
        if 1 <= number <= len(found):
            return dataclasses.replace(proposal, readings=[found[number - 1]])
    return proposal
