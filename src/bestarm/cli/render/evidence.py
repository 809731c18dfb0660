"""Evidence on the terminal: the verdict, the promise, every option, notes."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.table import Table

from bestarm.cli.render.card import say_long, show_headline, show_lead, show_next, show_risk
from bestarm.cli.render.questions import show_options
from bestarm.cli.terminal import out, safe
from bestarm.evidence.card import evidence_card, lead_cells, steps
from bestarm.evidence.describe import (
    IF_INDEPENDENT,
    assumptions,
    compared_briefly,
    evalue_said,
    method,
    ranked,
    status_of,
)
from bestarm.evidence.record import Evidence, Option
from bestarm.evidence.sites import AT_EACH_SITE, means_by_site
from bestarm.records.card import AnswerCard
from bestarm.records.figures import mean_places, rough, said, span

MOST_ROWS = 20  # of a table


def show(evidence: Evidence, file: str | Path | None = None) -> None:
    """Print what recorded data show, for people; `file` is where the record was saved."""
    card, withdrawn = evidence_card(evidence), evidence.promise == "withdrawn"
    show_headline(card)
    if evidence.settings.question != "control":  # the table has the leads over a control
        show_lead(card)
    show_risk(card)
    say_long(method(evidence), "dim")
    _show_options(evidence, card)
    if (by_site := means_by_site(evidence)) is not None:
        out.print(f"{AT_EACH_SITE}:", style="dim")
        show_options(by_site, card, "rows")
    if withdrawn:
        say_long(IF_INDEPENDENT)
    for note in evidence.notes:
        say_long(f"Note: {note}.")
    if not withdrawn:
        out.print("This holds if:", style="dim")
        for text in assumptions(evidence):
            say_long(f"- {text}", "dim")
    commands = [f"bestarm {verb} {shlex.quote(str(file))}" for verb in ("verify", "report")]
    keep = [] if withdrawn else ["Add --out evidence.json to keep the record."]
    show_next(steps(evidence), commands if file else keep)


def _show_options(evidence: Evidence, card: AnswerCard) -> None:
    """A table of the options; those compared with a control have their lead instead of an interval."""
    settings = evidence.settings
    sites, gaps = settings.question == "each", settings.question == "control"
    fisher = evidence.test == "exact"
    table = Table(box=None, header_style="dim", pad_edge=False, collapse_padding=True)
    for title in (*(["site"] * sites), "option"):
        table.add_column(title, min_width=8, overflow="fold")
    stands = evidence.promise != "withdrawn"
    spans = ("lead", "interval") if gaps else ("interval",) * stands
    mean = safe(f"mean ({settings.unit})") if settings.unit else "mean"
    for title in ("rows", mean, *spans, "e-value", *(["p-value"] * fisher)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    options, percent, leads = ranked(evidence), card.percent, lead_cells(card)
    places = mean_places(card)
    for option in options[:MOST_ROWS]:
        cells = [safe(option.site)] if sites else []
        cells += [safe(option.name), f"{option.rows:,}"]
        cells.append(_mean(option, percent, places) if stands else rough(option.mean, percent))
        if gaps:
            cells += map(safe, leads.get(option.name, ("", "")))
        elif stands:
            cells.append(span(option.interval, percent))
        cells.append(evalue_said(option.evalue) if option.tests else "")
        if fisher:
            cells.append(_pvalue(option))
        became = compared_briefly(settings, option.status) if gaps else status_of(evidence, option)
        table.add_row(*cells, became)
    out.print(table)
    if len(options) > MOST_ROWS:
        out.print(f"… and {len(options) - MOST_ROWS:,} more options", style="dim")


def _mean(option: Option, percent: bool, places: int | None) -> str:
    """The mean of an option, with the decimals of its column."""
    return "–" if option.mean is None else said(option.mean, option.interval, percent, places=places)


def _pvalue(option: Option) -> str:
    found = [test.pvalue for test in option.tests if test.pvalue is not None]
    return f"{min(found):.2g}" if found else ""
