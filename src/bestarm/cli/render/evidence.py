"""Evidence on the terminal: the verdict, the promise, every option, notes."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.table import Table

from bestarm.cli.render.card import say_long, show_next
from bestarm.cli.terminal import out, safe
from bestarm.evidence.describe import STATUS, assumptions, headline, method, next_steps, promise, remedies
from bestarm.evidence.record import Evidence, Option, Settings
from bestarm.records.figures import said, span

MOST_ROWS = 20  # of a table


def show(evidence: Evidence, file: str | Path | None = None) -> None:
    """Print what recorded data show, for people; `file` is where the record was saved."""
    withdrawn = evidence.promise == "withdrawn"
    style = "bold red" if withdrawn else "bold green" if evidence.status == "identified" else "bold yellow"
    say_long(headline(evidence), style)
    say_long(promise(evidence), "red" if withdrawn else None)
    for text in remedies(evidence):
        say_long(text)
    say_long(method(evidence), "dim")
    _show_options(evidence)
    for note in evidence.notes:
        say_long(f"Note: {note}.")
    if not withdrawn:
        out.print("This holds if:", style="dim")
        for text in assumptions(evidence):
            say_long(f"- {text}", "dim")
    commands = (
        () if file is None else (f"bestarm {verb} {shlex.quote(str(file))}" for verb in ("verify", "report"))
    )
    show_next(next_steps(evidence), list(commands))


def _show_options(evidence: Evidence) -> None:
    """A table of the options; those compared with a control have their lead instead of an interval."""
    settings = evidence.settings
    sites, gaps = settings.question == "each", settings.question == "control"
    fisher = evidence.test == "exact"
    table = Table(box=None, header_style="dim", pad_edge=False, collapse_padding=True)
    for title in (*(["site"] * sites), "option"):
        table.add_column(title, min_width=8, overflow="fold")
    spans = ("lead", "interval") if gaps else ("interval",)
    mean = f"mean ({settings.unit})" if settings.unit else "mean"
    for title in ("rows", mean, *spans, "e-value", *(["p-value"] * fisher)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    sign = 1.0 if settings.goal == "min" else -1.0
    ranked = sorted(evidence.options, key=lambda o: (o.site, 0.0 if o.mean is None else sign * o.mean))
    for option in ranked[:MOST_ROWS]:
        cells = [safe(option.site)] if sites else []
        cells += [safe(option.name), f"{option.rows:,}", _mean(option, settings)]
        if gaps:
            lead = "" if option.gap is None else f"{option.gap:+.3g}"
            cells += [lead, _span(option.gap_interval)]
        else:
            cells.append(span(option.interval, _percent(settings)))
        cells.append(f"{option.evalue:.3g}" if option.tests else "")
        if fisher:
            cells.append(_pvalue(option))
        table.add_row(*cells, option.status if gaps else STATUS[option.status])
    out.print(table)
    if len(ranked) > MOST_ROWS:
        out.print(f"… and {len(ranked) - MOST_ROWS:,} more options", style="dim")


def _percent(settings: Settings) -> bool:
    """Whether means are shares of 0/1 rewards."""
    return settings.bounds is None and not settings.unit


def _mean(option: Option, settings: Settings) -> str:
    """The mean of an option, rounded to its interval."""
    return "–" if option.mean is None else said(option.mean, option.interval, _percent(settings))


def _span(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3g} – {ends[1]:.3g}"


def _pvalue(option: Option) -> str:
    found = [test.pvalue for test in option.tests if test.pvalue is not None]
    return f"{min(found):.2g}" if found else ""
