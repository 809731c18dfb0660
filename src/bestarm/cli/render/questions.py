"""The answers to a question about several sites on the terminal, and the table of options by site."""

from __future__ import annotations

from rich.table import Table

from bestarm.cli.terminal import out, safe
from bestarm.records.describe import nothing_promised, what_helps
from bestarm.records.questions import OptionTable, Situation, headline, promise
from bestarm.records.record import Record

MOST_ROWS = 20
MOST_SITES = 8


def show_answers(record: Record) -> None:
    """Print the answers, and what is promised about them."""
    verdict = record.verdict
    style = "green" if verdict.status == "identified" else "yellow"
    if verdict.status == "undecided":
        out.print("[bold yellow]Undecided[/]: not every answer was found.")
    situation = Situation.of(record)
    for text in headline(situation):
        out.print(safe(text), style=f"bold {style}", soft_wrap=True)
    if verdict.status == "undecided" and (helps := what_helps(record)):
        out.print(safe(helps), soft_wrap=True)
    if why := nothing_promised(record):
        out.print(f"Nothing is promised: {safe(why.rstrip('.'))}.", style="yellow")
        return
    for text in promise(situation):
        out.print(safe(text), soft_wrap=True)


def show_options(found: OptionTable) -> None:
    """Print options by site: means, the value over all sites, and who disagrees."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("option")
    if found.weighted:
        table.add_column("value", justify="right")
    for site in found.sites[:MOST_SITES]:
        table.add_column(safe(site), justify="right")
    table.add_column("pulls", justify="right")
    table.add_column("")
    for row in found.rows[:MOST_ROWS]:
        means = [_number(mean) for mean in row.means[:MOST_SITES]]
        value = [_number(row.value)] if found.weighted else []
        table.add_row(safe(row.name), *value, *means, f"{row.pulls:,}", row.result)
    out.print(table)
    if (more := len(found.rows) - MOST_ROWS) > 0:
        out.print(f"… and {more} more options", style="dim")
    if (more := len(found.sites) - MOST_SITES) > 0:
        out.print(f"… and {more} more sites (the record and the report have all of them)", style="dim")
    if found.weighted and found.dissenters:
        shown = [f"{site} ({best})" for site, best in found.dissenters[:MOST_SITES]]
        rest = ", …" if len(found.dissenters) > MOST_SITES else ""
        text = f"Another option has the best mean at {', '.join(shown)}{rest}."
        out.print(safe(text), style="dim", soft_wrap=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
