"""``bestarm run``, ``check`` and ``new``: run a scenario once, check it, write one to start from."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bestarm.cli.exit_codes import BAD_INPUT, INTERRUPTED, OK, UNDECIDED, WITHDRAWN
from bestarm.cli.options import Force, Json, MethodOption, ScenarioPath, check_folder, given, with_options
from bestarm.cli.render.progress import run_progress, waiting
from bestarm.cli.render.proposal import choose
from bestarm.cli.render.record import show
from bestarm.cli.scenario_warnings import (
    load_asked,
    say_question,
    warn_of_liars,
    warn_of_lying_sites,
    warn_of_ties,
)
from bestarm.cli.terminal import complain, err, out, safe, warn
from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.tables.sources import KINDS
from bestarm.protocol.registry import method_for
from bestarm.records.describe import aim
from bestarm.records.questions import NO_MARGIN
from bestarm.records.record import Record
from bestarm.records.recordings import withdrawn
from bestarm.scenario.from_table import as_toml, keys_of, propose_for, scenario_for
from bestarm.scenario.load import load
from bestarm.scenario.template import TEMPLATE
from bestarm.simulate.adversary import refuse_attacks
from bestarm.simulate.identify import Interrupted, check_network, default_method, identify, prepare
from bestarm.simulate.setup import Scenario
from bestarm.util.files import write_new
from bestarm.util.text import counted


@with_options
def run(
    scenario: ScenarioPath,
    method: MethodOption = None,
    seed: Annotated[int | None, typer.Option(help="the same seed gives the same run")] = None,
    save: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="save the record here")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="save a picture of the intervals here (.png, .svg, .pdf)"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="write a report of the run here")
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.db", help="keep a journal here: to watch the run, and to resume it after a stop"
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Run a scenario once, in this process, and name the best arm. Options given here override the file's."""
    chosen = given(options)
    with waiting("reading the scenario and its data", quiet=as_json):
        loaded, chosen = load_asked(scenario, chosen)
    simulates = loaded.problem.data is not None and loaded.problem.data.resample
    say_question(loaded, chosen, quiet=as_json or simulates)
    warn_of_ties(loaded, method, {**loaded.options, **chosen})
    warn_of_liars(loaded, method, {**loaded.options, **chosen})
    for path in (save, plot, report, journal):
        check_folder(path)
    if plot is not None:
        from bestarm.report import plots

        plots.check_format(plot)
    code = OK
    try:
        with run_progress(quiet=as_json) as watch:
            record = identify(
                loaded,
                method,
                seed=seed,
                force=force,
                watch=watch,
                journal=journal,
                name=scenario.stem,
                **chosen,
            )
        if record.verdict.status == "undecided":
            code = UNDECIDED
        if withdrawn(record.warnings):
            code = WITHDRAWN
    except Interrupted as stopped:
        record, code = stopped.record, INTERRUPTED
        if journal is not None:
            when = "interrupted while reading the journal" if stopped.rereading else "interrupted"
            text = f"{when}; run the same command to resume from {safe(str(journal))}"
            err.print(text, soft_wrap=True)
            if stopped.rereading:
                return code
    wrote = []  # files are written before anything is printed
    if save is not None:
        record.save(save)
    if plot is not None:
        _draw(record, loaded, plot)
        wrote.append(f"picture: {plot}")
    if report is not None:
        with waiting("writing the report", quiet=as_json):
            _report(record, report, save.name if save else "record.json")
        wrote.append(f"report: {report}")
    if as_json:
        print(json.dumps(record.to_dict()))
        return code
    show(
        record, seed is None and loaded.seed is None and journal is None, None if save is None else str(save)
    )
    if simulates:  # whose first line says so
        say_question(loaded, chosen)
    for text in wrote:
        out.print(safe(text), soft_wrap=True)
    return code


def _draw(record: Record, scenario: Scenario, path: Path) -> None:
    """Save a picture of a run: of its intervals, or of the network of its peers."""
    from bestarm.report import network_plot, plots

    if record.peers is not None and scenario.network is not None:
        named = scenario.network.named(scenario.problem.layout)
        picture = network_plot.network(named.graph, named.groups(scenario.problem.layout))
    else:
        picture = plots.race(record)
    plots.save(picture, str(path))


def _report(record: Record, path: Path, file_name: str) -> None:
    """Write the report of a run; `file_name` is what it calls the record."""
    from bestarm.report import page

    command = f"bestarm {shlex.join(sys.argv[1:])}"
    page.write(page.of_record(record, command=command, file_name=file_name), path)


def check(scenario: ScenarioPath, as_json: Json = False) -> int:
    """Check a scenario file without running it."""
    loaded = load(scenario)
    refused = _refusal(loaded)
    asked = say_question(loaded, {}, quiet=as_json)
    warnings = warn_of_ties(loaded, None, loaded.options) + warn_of_liars(loaded, None, loaded.options)
    if loaded.problem.layout.question.kind == "control" and not loaded.options.get("margin"):
        warnings += warn([NO_MARGIN])
    warnings += warn_of_lying_sites(loaded)
    data = loaded.problem.data
    if data and data.resample:
        warnings += warn([str(data)])
    layout = loaded.problem.layout
    facts = {
        "ok": refused is None,
        "groups": len(layout.groups),
        "arms": sum(layout.arm_counts),
        "clients": len(layout.clients),
        "question": layout.question.kind,
        "asked_silently": bool(asked),
        "method": loaded.method or default_method(loaded.options, layout, bool(loaded.adversaries)),
        "refused": refused,
        "warnings": warnings,
        "data": dataclasses.asdict(data) if data else None,
    }
    if as_json:
        print(json.dumps(facts))
    elif refused is None:
        ask = "" if facts["question"] == "anywhere" else f", question {facts['question']}"
        out.print(
            f"{safe(str(scenario))} is fine: {facts['groups']} groups, {facts['arms']} arms, "
            f"{facts['clients']} clients, method {facts['method']}{ask}."
        )
        _show_aim(aim(loaded.problem.to_dict()), data)
    if refused is not None:
        complain(f"{scenario}: {refused}", as_json=False)
        return BAD_INPUT
    return OK


def _show_aim(best: str, data: Data | None) -> None:
    """Print what "best" means, and from which rows."""
    if data:
        less = f"; {counted(data.skipped, 'row')} without a name or a number skipped" if data.skipped else ""
        out.print(
            f"Best means {safe(best)}, from {counted(data.rows, 'row')} of {safe(data.csv)}{less}.",
            soft_wrap=True,
        )
    elif best:
        out.print(f"Best means {safe(best)}.")


def _refusal(scenario: Scenario) -> str | None:
    """Why the scenario's own method would not run it."""
    try:
        problem, method, options = prepare(scenario, None, {})
        refuse_attacks(method_for(method, problem.layout, options), options, scenario.adversaries)
        check_network(problem, method, options, scenario.network, adversaries=scenario.adversaries)
    except InputError as error:
        return str(error)
    return None


def new(
    table: Annotated[
        str,
        typer.Argument(
            metavar="[TABLE|NAME]",
            help="a table (CSV, TSV, Parquet, Feather, JSON lines, Excel) to write a scenario for, or the "
            "name of a scenario to start from; NAME.toml is written",
        ),
    ] = "scenario",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="name of the scenario [default: that of the table]")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="the table, if NAME comes first")] = None,
    group_column: Annotated[str, typer.Option(metavar="COLUMN", help="names the site")] = "",
    arm_column: Annotated[str, typer.Option(metavar="COLUMN", help="names what is compared")] = "",
    reward_column: Annotated[str, typer.Option(metavar="COLUMN", help="contains the rewards")] = "",
    count_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="how many equal rewards a row stands for")
    ] = "",
    successes_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="how many trials were a success")
    ] = "",
    trials_column: Annotated[str, typer.Option(metavar="COLUMN", help="how many trials there were")] = "",
    ratings_column: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help='counts one rating, such as "5 stars"; once for each column'),
    ] = None,
    goal: Annotated[str, typer.Option(metavar="max|min", help="is more better, or less?")] = "",
    unit: Annotated[str, typer.Option(help="what rewards are measured in, such as ms")] = "",
    as_json: Json = False,
) -> int:
    """Write a commented scenario to start from, or one for your table. Never overwrites a file."""
    source = csv or (Path(table) if Path(table).suffix.lower() in KINDS else None)
    if source is None and Path(table).is_dir():
        raise InputError("this is a folder", where=table, fix="Name one table in it, or another scenario")
    title = name or (Path(table).stem if source is not None and csv is None else table)
    path = Path(title if title.endswith(".toml") else f"{title}.toml")
    given = {
        "group": group_column, "arm": arm_column, "reward": reward_column, "count": count_column,
        "successes": successes_column, "trials": trials_column,
    }  # fmt: skip
    if source is None:
        if any(given.values()) or ratings_column or goal or unit:
            raise InputError("columns, goal and unit describe a table", fix="Name it: bestarm new FILE")
        return _write_scenario(path, TEMPLATE.format(file=path), as_json, {})
    proposal = propose_for(source, given, ratings_column or ())
    if not as_json:
        proposal = choose(proposal)
    found = keys_of(proposal.readings[0])
    text = scenario_for(proposal, source, path, goal, unit)
    facts = {"columns": found, "readings": [keys_of(reading) for reading in proposal.readings]}
    return _write_scenario(path, text, as_json, facts)


def _write_scenario(path: Path, text: str, as_json: bool, facts: dict[str, Any]) -> int:
    """Write a new scenario, and say what to do next."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InputError("the file name is not valid text", where=str(path), fix="Rename the file") from None
    write_new(path, data, 0o666, fix="Choose another name: --name NAME")
    if as_json:
        print(json.dumps({"file": str(path), **facts}))
        return OK
    said = first = ""
    if facts:
        said = f" with {as_toml(facts['columns'])}"
        first = "read its lines marked CHECK, then "
        if len(facts["readings"]) > 1:
            said, first = "", "choose the columns in its lines marked CHECK, then "
    out.print(
        safe(f"wrote {path}{said}. Next: {first}bestarm check {shlex.quote(str(path))}"), soft_wrap=True
    )
    return OK
