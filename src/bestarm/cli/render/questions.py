"""The options of a question about several sites on the terminal: a table by site."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm.cli.render.tables import Column, print_table
from bestarm.cli.terminal import out, safe
from bestarm.records.card import AnswerCard, OptionFacts
from bestarm.records.figures import mean_places, rough, said, span
from bestarm.records.questions import OptionRow, OptionTable
from bestarm.util.text import counted, short_names

MOST_ROWS = 20
MOST_SITES = 8
MOST_LETTERS = 12  # of the name of a site
PULLS, SITE = 1, 2  # columns that a narrow terminal has no room for, the last one first


def show_options(found: OptionTable, card: AnswerCard, unit: str = "pulls") -> None:
    """Print options by site: means, the value over all sites with its interval, and who disagrees.

    `unit` is what rewards are counted in.
    """
    ranks = {row.name: k for k, row in enumerate(card.options)}  # they may trim
    rows = sorted(found.rows, key=lambda row: ranks.get(row.name, len(ranks)))[:MOST_ROWS]
    names, results = [row.name for row in rows], [_result(row, card) for row in rows]
    columns = _columns(found, rows, card, unit)
    shown = print_table("option", names, columns, results)
    sites = sum(column.rank == SITE for column in shown)
    below = [column for column in columns if column.rank == SITE][sites:]
    while below:  # a narrow terminal shows the other sites in further tables
        shown = print_table("option", names, below, [""] * len(names))
        sites, below = sites + len(shown), below[max(1, len(shown)) :]
    if (more := len(found.rows) - MOST_ROWS) > 0:
        out.print(f"… and {more} more options", style="dim")
    if (more := len(found.sites) - sites) > 0:
        text = f"… and {counted(more, 'more site')} (the record and the report have all of them)"
        out.print(text, style="dim")
    if found.weighted and found.dissenters:
        others = [f"{site} ({best})" for site, best in found.dissenters[:MOST_SITES]]
        rest = ", …" if len(found.dissenters) > MOST_SITES else ""
        text = f"Another option has the best mean at {', '.join(others)}{rest}."
        out.print(safe(text), style="dim", soft_wrap=True)


def _columns(found: OptionTable, rows: Sequence[OptionRow], card: AnswerCard, unit: str) -> list[Column]:
    """The value over all sites, the mean at each site, and the pulls."""
    known = {row.name: row for row in card.options if row.mean is not None}
    places = mean_places(card)
    values = [_value(row, known.get(row.name), card.percent, places) for row in rows if found.weighted]
    titles = list(short_names(found.sites, MOST_LETTERS).values())
    columns = [Column("value", [row[0] for row in values]), Column("interval", [row[1] for row in values])]
    return [
        *(columns if found.weighted else ()),
        *(
            Column(title, [rough(row.means[j], card.percent) for row in rows], SITE)
            for j, title in enumerate(titles[:MOST_SITES])
        ),
        Column(unit, [f"{row.pulls:,}" for row in rows], PULLS),
    ]


def _result(row: OptionRow, card: AnswerCard) -> str:
    """What became of an option; none is the best if nothing is promised, or if the answer is wrong."""
    return "named" if row.result == "best" and card.tone == "bad" else row.result


def _value(row: OptionRow, known: OptionFacts | None, percent: bool, places: int | None) -> tuple[str, str]:
    """The value of an option over all sites, and its interval."""
    if known is None or known.mean is None:
        return rough(row.value, percent), ""
    ends = span(known.interval, percent) if known.interval else ""
    return said(known.mean, known.interval, percent, places=places), ends
