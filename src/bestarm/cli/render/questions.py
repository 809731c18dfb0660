"""The options of a question about several sites on the terminal: a table by site."""

from __future__ import annotations

from rich.table import Table

from bestarm.cli.terminal import out, safe
from bestarm.records.card import AnswerCard, OptionFacts
from bestarm.records.figures import rough, said, span
from bestarm.records.questions import OptionRow, OptionTable

MOST_ROWS = 20
MOST_SITES = 8


def show_options(found: OptionTable, card: AnswerCard) -> None:
    """Print options by site: means, the value over all sites with its interval, and who disagrees."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("option")
    known = {row.name: row for row in card.options if row.mean is not None}
    if found.weighted:
        table.add_column("value", justify="right")
        table.add_column("interval", justify="right")
    for site in found.sites[:MOST_SITES]:
        table.add_column(safe(site), justify="right")
    table.add_column("pulls", justify="right")
    table.add_column("")
    ranks = {row.name: k for k, row in enumerate(card.options)}  # they may trim
    for row in sorted(found.rows, key=lambda row: ranks.get(row.name, len(ranks)))[:MOST_ROWS]:
        means = [rough(mean, card.percent) for mean in row.means[:MOST_SITES]]
        value = _value(row, known.get(row.name), card.percent) if found.weighted else ()
        unsafe = row.result == "best" and card.tone == "bad"  # nothing is promised, or it is wrong
        table.add_row(safe(row.name), *value, *means, f"{row.pulls:,}", "named" if unsafe else row.result)
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


def _value(row: OptionRow, known: OptionFacts | None, percent: bool) -> tuple[str, str]:
    """The value of an option over all sites, and its interval."""
    if known is None or known.mean is None:
        return rough(row.value, percent), ""
    ends = span(known.interval, percent) if known.interval else ""
    return said(known.mean, known.interval, percent), ends
