"""``bestarm evidence``: what the rows of a table show about its options, each row counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bestarm.cli.exit_codes import OK, UNDECIDED, WITHDRAWN
from bestarm.cli.options import Json, check_folder
from bestarm.cli.render.evidence import show
from bestarm.cli.render.progress import evidence_progress
from bestarm.cli.terminal import out, safe
from bestarm.errors import InputError
from bestarm.evidence.record import Evidence

LOOK, QUESTION, TABLE = "How to look", "The question", "The table"


def _column(name: str, what: str) -> typer.models.OptionInfo:
    flags = (f"--{name}", f"--{name}-column")
    return typer.Option(*flags, metavar="COLUMN", help=what, rich_help_panel=TABLE)  # type: ignore[no-any-return]


def evidence(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="CSV, TSV, Parquet, Feather, JSON lines or Excel; a folder or a pattern"
        ),
    ] = "",
    option: Annotated[str, _column("option", "names what is compared")] = "",
    site: Annotated[str, _column("site", "names where it was tried; none: there is one site")] = "",
    reward: Annotated[str, _column("reward", "contains the rewards")] = "",
    count: Annotated[str, _column("count", "says how many rows a reward stands for")] = "",
    successes: Annotated[str, _column("successes", "counts the rewards that are 1")] = "",
    trials: Annotated[str, _column("trials", "counts all rewards")] = "",
    ratings: Annotated[
        list[str] | None,
        typer.Option(
            "--ratings",
            "--ratings-column",
            metavar="COLUMN",
            help='counts one rating, such as "5 stars"; give it once for each column',
            rich_help_panel=TABLE,
        ),
    ] = None,
    time: Annotated[str, _column("time", "says when a row was recorded")] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="use these rows only", rich_help_panel=TABLE),
    ] = None,
    missing: Annotated[
        str, typer.Option(metavar="error|skip", help="rows without a name or number", rich_help_panel=TABLE)
    ] = "error",
    sql: Annotated[
        str | None,
        typer.Option(metavar="QUERY", help="ask a database instead of a table", rich_help_panel=TABLE),
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="the database to ask", rich_help_panel=TABLE)
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(
            metavar="anywhere|overall|each|control",
            help="what is asked [default: overall if all sites offer the same options, else anywhere]",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="max|min",
            help="is more better, or less? [default: max, unless the column's name says less]",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="the range of all rewards, known without the data [default: rewards are 0 or 1]",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="what rewards are measured in, such as ms", rich_help_panel=QUESTION)
    ] = "",
    delta: Annotated[
        float, typer.Option(help="probability of a wrong verdict", rich_help_panel=QUESTION)
    ] = 0.05,
    alpha: Annotated[
        float, typer.Option(help="probability that any interval misses", rich_help_panel=QUESTION)
    ] = 0.05,
    weights: Annotated[
        str,
        typer.Option(
            metavar="equal|rows|SITE=NUMBER,…", help="how much each site counts", rich_help_panel=QUESTION
        ),
    ] = "equal",
    control: Annotated[
        str | None,
        typer.Option(metavar="OPTION", help="compare the others with it", rich_help_panel=QUESTION),
    ] = None,
    margin: Annotated[
        float, typer.Option(help="a lead over the control that does not matter", rich_help_panel=QUESTION)
    ] = 0.0,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="each: all sites right together", rich_help_panel=QUESTION)
    ] = False,
    look: Annotated[
        str,
        typer.Option(metavar="once|any-time", help="test all rows once, or by arrival", rich_help_panel=LOOK),
    ] = "once",
    looks: Annotated[
        int, typer.Option(help="how many looks will be made, declared at the first", rich_help_panel=LOOK)
    ] = 1,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="the record of all looks: read, checked, continued", rich_help_panel=LOOK
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="file|none",
            help="is the order of the rows the order of arrival? [default: file for single rows of CSV]",
            rich_help_panel=LOOK,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="fixes the random orders of rows", rich_help_panel=LOOK)
    ] = 0,
    save: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="write the record here")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="write a report here")] = None,
    as_json: Json = False,
) -> int:
    """Say what recorded data show: all rows, each counted once. Needs no scenario file.

    Columns that are not named are found by their names and contents, if only one reading is plausible.

    Exit codes: 0 identified, 3 undecided, 6 promise withdrawn (rows drift or depend on each other), 2 bad
    input.
    """
    from bestarm.evidence.card import in_words
    from bestarm.evidence.evidence import evidence as compute

    if not table and sql is None:
        raise InputError("no table is named", fix="Use bestarm evidence TABLE …, or --sql and --database")
    for path in (save, report, record):
        check_folder(path)
    with evidence_progress(quiet=as_json) as (reading, watch):
        found = compute(
            table or None,
            option=option or None,
            site="" if site == "none" else site or None,
            reward=reward or None,
            successes=successes or None,
            trials=trials or None,
            count=count or None,
            ratings=ratings or (),
            time=time or None,
            question=question,
            goal=goal,
            bounds=bounds,
            unit=unit,
            delta=delta,
            alpha=alpha,
            weights=_weights(weights),
            control=control,
            margin=margin,
            simultaneous=simultaneous,
            look=look,
            looks=looks,
            order=order,
            record=record,
            seed=seed,
            where=_pairs(where or []),
            missing=missing,
            sql=sql,
            database=database,
            reading=reading,
            watch=watch,
        )
    for path in (record, save):
        if path is not None:
            found.save(path)
    if report is not None:
        from bestarm.report.page import of_evidence, write

        kept = save or record
        write(of_evidence(found, kept.name if kept else None), report)
    if as_json:
        print(json.dumps({**found.to_dict(), "card": msgspec.to_builtins(in_words(found))}))
        return exit_code(found)
    show(found, save or record)
    if report is not None:
        out.print(f"report: {safe(str(report))}", soft_wrap=True)
    return exit_code(found)


def exit_code(found: Evidence) -> int:
    """0 identified, 3 undecided, 6 promise withdrawn."""
    if found.promise == "withdrawn":
        return WITHDRAWN
    return OK if found.status == "identified" else UNDECIDED


def _weights(text: str) -> str | dict[str, float]:
    if "=" not in text:
        return text
    found = {}
    for part in text.split(","):
        site, _, number = part.rpartition("=")
        try:
            found[site.strip()] = float(number)
        except ValueError:
            raise InputError(f'"{part}" in --weights', expected="SITE=NUMBER, such as north=2") from None
    return found


def _pairs(texts: list[str]) -> dict[str, object]:
    """Rows to use: a column that is given several times may have any of the values."""
    found: dict[str, list[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column:
            raise InputError(f'--where "{text}"', expected="COLUMN=VALUE")
        found.setdefault(column.strip(), []).append(value.strip())
    return dict(found)
