"""The command line: one thin command a function. All text for people is made here."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import io
import json
import math
import os
import shlex
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Optional, cast, get_type_hints

import typer
import typer.core
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from bestarm import audit, kept, topology
from bestarm.errors import InputError, visible
from bestarm.problem import Data
from bestarm.protocol import METHODS
from bestarm.record import Record, fallen, views
from bestarm.rewards import Scale
from bestarm.scenario import TEMPLATE, Scenario, load
from bestarm.simulate import (
    DEFAULT_METHOD,
    Interrupted,
    Progress,
    check_network,
    identify,
    prepare,
)
from bestarm.study import StudyInterrupted, StudyProgress, Trials
from bestarm.study import study as run_study
from bestarm.table import scenario_for_csv
from bestarm.version import __version__
from bestarm.words import (
    aim,
    coins_said,
    leading,
    mean_of,
    nothing_promised,
    still_in,
    what_helps,
    why_undecided,
)

OK, BAD_INPUT, UNDECIDED, NOT_VERIFIED, UNREACHABLE, INTERRUPTED = 0, 2, 3, 4, 5, 130
MOST_ROWS = 20
TAKEN = "Of the arms only names and bounds were taken: rewards come from the sites."
LINE_SECONDS, NEWS_SECONDS = 60.0, 5.0  # between a client's lines without a terminal; if it has a new message

app = typer.Typer(add_completion=False, rich_markup_mode=None)
out, err = Console(highlight=False), Console(stderr=True, highlight=False)

ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="the scenario file")]
MethodOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--method", help=f"one of: {', '.join(METHODS)} [default: the scenario's, or {DEFAULT_METHOD}]"
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="run on a network that can't bear its liars all the same")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def safe(text: str) -> str:
    """Somebody's text for the terminal: no markup, no control characters, no turned writing."""
    return escape(visible(text))


def main() -> None:
    """The `bestarm` command: runs it and turns errors into exit codes."""
    as_json = "--json" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that can't show a character shows "?"
            stream.reconfigure(errors="replace")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except InputError as error:
        _complain(str(error), as_json)
        code = BAD_INPUT
    except typer.TyperException as error:
        _complain(error.format_message(), as_json)
        err.print('See "bestarm --help" or "bestarm COMMAND --help".')
        code = BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        err.print("interrupted")
        code = INTERRUPTED
    sys.exit(code or OK)


def _complain(message: str, as_json: bool) -> None:
    err.print("error:", style="bold red", end=" ")
    err.print(safe(message), soft_wrap=True)
    if as_json:
        print(json.dumps({"error": message}))


def _version(value: bool) -> None:
    if value:
        print(f"bestarm {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Which option is best? Best-arm identification across sites that can't pool their data.

    Exit codes: 0 identified or ok, 1 internal error, 2 bad input, 3 undecided, 4 verification failed
    or network too weak, 5 unreachable, 130 interrupted.
    """


class InPanels(typer.core.TyperCommand):
    """A command whose help shows its options in panels, in plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if (line := parameter.get_help_record(ctx)) is not None:
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(line)
        for title, lines in panels.items():
            with formatter.section(title):
                formatter.write_dl(lines)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one --key for each option of each method, with the help that the method declares."""
    signature = inspect.signature(command, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added: dict[str, inspect.Parameter] = {}
    for method in METHODS.values():
        hints = get_type_hints(method.options)
        for field in dataclasses.fields(method.options):
            kind = next(
                t for t in (bool, int, float, str) if t in (hints[field.name], *_members(hints[field.name]))
            )
            flag = "--" + field.name.replace("_", "-")
            names = (
                [f"{flag}/--no-{flag[2:]}"]
                if kind is bool
                else list(dict.fromkeys([flag, f"--{field.name}"]))
            )
            info = typer.Option(
                *names,
                help=f"{field.metadata['help']} [default: {_shown(field.name)}]",
                show_default=False,
                rich_help_panel=_panel(field.name),
            )
            annotation = Annotated[Optional[kind], info]  # type: ignore[valid-type] # noqa: UP045
            added[field.name] = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
    parameters = [*kept, *added.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _panel(key: str) -> str:
    """The panel of the help in which a method's option stands: by the methods that have it."""
    have = [name for name, method in METHODS.items() if key in method.options.__dataclass_fields__]
    return "Options of all methods" if len(have) == len(METHODS) else f"Options of {', '.join(have)}"


def _shown(key: str) -> str:
    """The default of a method's option; where methods differ, each one's."""
    by_value: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        for field in dataclasses.fields(method.options):
            if field.name == key:
                by_value.setdefault(str(field.metadata["shown"]), []).append(name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} for {', '.join(names)}" for value, names in by_value.items())


def _members(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__args__", ())


@app.command(cls=InPanels)
@with_options
def run(
    scenario: ScenarioPath,
    method: MethodOption = None,
    seed: Annotated[Optional[int], typer.Option(help="the same seed gives the same run")] = None,  # noqa: UP045
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="FILE.json", help="save the record here"),
    ] = None,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.png", help="save a picture of the intervals here (.png, .svg, .pdf)"),
    ] = None,
    report: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.html", help="write a report of the run here"),
    ] = None,
    journal: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE.db", help="write what is drawn here: to watch the run, and to go on after a stop"
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Run a scenario once, in process, and name the best arm. Keys given here win over the file's."""
    chosen = {key: value for key, value in options.items() if value is not None}
    loaded = load(scenario)
    _warn_of_ties(loaded, method, {**loaded.options, **chosen})
    _warn_of_liars(loaded, method, {**loaded.options, **chosen})
    for path in (save, plot, report, journal):
        _check_folder(path)
    if plot is not None:
        from bestarm.report import plots

        plots.check_format(plot)
    code = OK
    try:
        with _progress(quiet=as_json) as watch:
            record = identify(loaded, method, seed=seed, force=force, watch=watch, journal=journal, **chosen)
        if record.verdict.status == "undecided":
            code = UNDECIDED
    except Interrupted as stopped:
        record, code = stopped.record, INTERRUPTED
        if journal is not None:
            when = "interrupted while it read what is there" if stopped.rereading else "interrupted"
            err.print(f"{when}; the same command goes on from {safe(str(journal))}", soft_wrap=True)
            if stopped.rereading:
                return code
    if save is not None:
        record.save(save)
    if as_json:
        print(json.dumps(record.to_dict()))
    else:
        show(record, drawn=seed is None and loaded.seed is None and journal is None)
    if plot is not None:
        if record.peers is not None and loaded.network is not None:
            groups = loaded.network.groups(loaded.problem.layout)
            plots.save(plots.network(loaded.network.graph, groups), str(plot))
        else:
            plots.save(plots.intervals(record), str(plot))
        if not as_json:
            out.print(f"picture: {safe(str(plot))}")
    if report is not None:
        from bestarm.report import page

        command, name = f"bestarm {shlex.join(sys.argv[1:])}", save.name if save else "record.json"
        page.write(page.of_record(record, command=command, file_name=name), report)
        if not as_json:
            out.print(f"report: {safe(str(report))}", soft_wrap=True)
    return code


@app.command("report")
def make_report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="a record, a study's rows, a run's journal, or the folder of a server, a client or a mesh's "
            "node",
        ),
    ],
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--out", metavar="FILE.html", help="the file to write [default: beside RUN; of a folder: here]"
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="leave out what takes further runs: plan and arms' traces")
    ] = False,
    as_json: Json = False,
) -> int:
    """Write a report as one HTML file that opens without a network: verdict, race, costs, faults, record."""
    from bestarm.report import page

    target = save or _beside(run)
    _check_folder(target)
    html = page.read(run, quick=quick)
    page.write(html, target)
    size = len(html.encode())
    return _said({"file": str(target), "bytes": size}, f"report: {target} ({size // 1000:,} kB)", as_json)


def _beside(run: Path) -> Path:
    """Where a report goes by itself: beside its run, but not among the private keys of a folder."""
    folder, target = run if run.is_dir() else run.parent, run.with_suffix(".html")
    if run.is_dir() or any(folder.glob("*.key")):
        here = Path("..") if any(Path().glob("*.key")) else Path()
        target = here / f"{folder.resolve().name or 'report'}.html"
    if target.is_file() and b"bestarm" not in target.read_bytes()[:2000]:
        raise InputError("there is another file of this name", where=str(target), fix="Use --out FILE.html")
    return target


@app.command()
def watch(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="a run's journal, a record, a study's rows, or the folder of a server, a client or a node",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="listen here; beyond this computer a token is asked for")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port [default: a free one]")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="open it in a browser")] = False,
    as_json: Json = False,
) -> int:
    """Show a run as a live page that follows its journal, with a slider to look back. Read-only."""
    from bestarm.deploy import Interrupted as Stopped
    from bestarm.report import live

    def ready(url: str) -> None:
        _said({"url": url, "run": str(run)}, f"watch it at {url} (Ctrl-C ends this)", as_json)
        sys.stdout.flush()
        if not live.is_loopback(host):
            err.print("warning: this is plain HTTP; who can listen on the way can see token and page")
        if browser:
            import webbrowser

            webbrowser.open(url)

    with suppress(Stopped):
        live.watch(run, host=host, port=port, ready=ready)
    return INTERRUPTED


def _check_folder(path: Path | None) -> None:
    """InputError if a file can't be written there: said before the work, not after it."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK) or path.is_dir():
            raise PermissionError(errno.EACCES, "no file can be written there")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None


@app.command(cls=InPanels)
@with_options
def study(
    scenario: ScenarioPath,
    trials: Annotated[int, typer.Option(help="trials for each combination of the varied keys")],
    method: MethodOption = None,
    vary: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="KEY=A,B,…", help="run every value of a key; may be given several times"),
    ] = None,
    seed: Annotated[Optional[int], typer.Option(help="the same seed gives the same numbers")] = None,  # noqa: UP045
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="FILE", help="one row a trial: .csv, .jsonl or .parquet"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an interrupted study")] = False,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="processes [default: all cores]; the numbers don't depend on it"),
    ] = None,
    dask: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="ADDRESS", help="run on the Dask cluster whose scheduler is there"),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Run many seeded trials and summarise them, with error bars and the least that any method needs."""
    chosen = {key: value for key, value in options.items() if value is not None}
    values: dict[str, list[Any]] = {}
    for text in vary or []:
        key, several = _parse_vary(text)
        if key in values:
            raise InputError(f"--vary {key} is given twice", expected="one list of values for each key")
        values[key] = several
    _check_folder(save)
    loaded = load(scenario)
    _warn_of_ties(loaded, method, {**loaded.options, **chosen, **values})
    try:
        with _cluster(dask) as executor, _study_progress(quiet=as_json) as watch:
            done = run_study(
                loaded,
                method,
                trials=trials,
                seed=seed,
                vary=values,
                executor=executor,
                workers=workers,
                out=save,
                resume=resume,
                force=force,
                watch=watch,
                **chosen,
            )
    except StudyInterrupted as stopped:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # it is ending: an impatient second Ctrl-C changes nothing
        kept = (
            f"finished blocks are in {stopped.kept}: go on with --resume"
            if stopped.kept
            else "nothing is kept"
        )
        err.print(f"interrupted; {safe(kept)}", soft_wrap=True)
        return INTERRUPTED
    if as_json:
        print(json.dumps({"seed": done.seed, "trials": trials, "cells": done.summary()}))
    else:
        _show_study(done)
        _show_data(loaded.problem.data)
        if save is not None:
            out.print(f"rows: {safe(str(save))}", soft_wrap=True)
    return OK


def _parse_vary(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    if not equals or not key or not values:
        raise InputError(f'--vary "{text}" can\'t be read', expected="KEY=A,B,…, such as period=100,200")
    return key.strip().replace("-", "_"), [_parse_value(value.strip()) for value in values.split(",")]


def _parse_value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """An executor on a Dask cluster, or None."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask needs Dask", fix='Install it with: pip install "bestarm[study]"') from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError(
            f"there is no Dask scheduler: {error}", where=address, expected="tcp://HOST:PORT"
        ) from None
    with client, client.get_executor() as executor:  # type: ignore[no-untyped-call]
        yield executor


@contextmanager
def _study_progress(quiet: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.completed:,}/{task.total:,} trials"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda progress: bar.update(task, completed=progress.done, total=progress.total)


def _show_study(done: Trials) -> None:
    rows = done.summary()
    titles = {"rounds": "rounds", "pulls_total": "pulls", "pulls_max": "longest", "bits_up": "bits up"}
    undecided = ["undecided"] if any(row["undecided"] for row in rows) else []
    table = Table(box=None, header_style="dim", pad_edge=False, collapse_padding=True)
    for title in (*done.varied, *titles.values(), "×limit", "wrong", *undecided):
        table.add_column(title, justify="right", overflow="fold")
    for row in rows:
        bound = row.get("limit")
        ratio = _short(row["pulls_total"]["mean"] / bound["total"]) if bound and bound["total"] else "–"
        wrong = f"{row['errors']} ≤{row['error_rate_interval'][1]:.2g}" if "errors" in row else "–"
        cells = [safe(str(row[key])) for key in done.varied] + [_plus_minus(row[name]) for name in titles]
        table.add_row(*cells, ratio, wrong, *[str(row[name]) for name in undecided])
    # Whoever reads it through a pipe gets it whole; a narrow terminal breaks cells, and cuts none.
    out.print(table, width=None if out.is_terminal else 200)
    out.print(
        f"Means of {done.trials:,} trials ± 95 %. longest: pulls of the busiest client. ×limit: pulls "
        "against the least that an exact answer from 0/1 rewards, or from coins, needs on average. wrong: "
        f"wrong answers, and the upper end of the exact 95 % interval of their rate. Seed {done.seed}.",
        style="dim",
    )


def _plus_minus(cell: dict[str, Any]) -> str:
    if cell["mean_interval"] is None:
        return _short(cell["mean"])
    half = (cell["mean_interval"][1] - cell["mean_interval"][0]) / 2
    return f"{_short(cell['mean'])} ±{_short(float(f'{half:.2g}'))}"


def _short(x: float) -> str:
    """A number in about six characters: 3.836M, 28.3, 177."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.4g}{unit}"
    return f"{x:.3g}"


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A progress bar on stderr once the work has taken two seconds; nothing where nobody looks."""
    if quiet or not err.is_terminal:
        yield None
        return
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} clients have reported"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )
    task = bar.add_task("")
    begun = time.monotonic()
    started = False

    def watch(progress: Progress) -> None:
        nonlocal started
        if not started and time.monotonic() - begun > 2.0:
            bar.start()
            started = True
        if started:
            text = f"{progress.pulls:,} pulls, {progress.rounds} rounds"
            bar.update(task, description=text, completed=progress.reported, total=progress.clients)

    try:
        yield watch
    finally:
        if started:
            bar.stop()


def show(record: Record, drawn: bool = False) -> None:
    """Print a record for people; `drawn` if nobody has chosen its seed."""
    verdict, data, best = record.verdict, Data.from_dict(record.problem), aim(record.problem)
    if verdict.status == "identified":
        epsilon = record.options.get("epsilon") or 0.0
        close = f", or at most {epsilon:g} worse" if epsilon else ""
        what = f": {safe(best)}" if best else ""
        out.print(f"[bold green]{safe(verdict.arm or '')}[/] is the best arm{close}{what}.", soft_wrap=True)
        if verdict.mean is not None:
            between = ", between {:.4g} and {:.4g}".format(*verdict.interval) if verdict.interval else ""
            out.print(f"Its mean is about {verdict.mean:.4g}{between}.")
        if why := nothing_promised(record):
            out.print(f"Nothing is promised: {safe(why.rstrip('.'))}.", style="yellow")
        else:
            about = " about the file" if data and data.replace else ""
            out.print(f"This is wrong{about} with probability at most {record.delta:g}.")
    else:
        out.print(f"[bold yellow]Undecided[/]: {why_undecided(record)}.")
        if helps := what_helps(record):
            out.print(safe(helps), soft_wrap=True)
        if best:
            out.print(f"Best would be {safe(best)}.", soft_wrap=True)
        names = [safe(name) for name in still_in(record)]
        more = f" and {len(names) - MOST_ROWS} more" if len(names) > MOST_ROWS else ""
        known = "" if verdict.certificate.get("local") else ", as far as the server knows"
        out.print(f"Still in the race{known}: {', '.join(names[:MOST_ROWS])}{more}.", soft_wrap=True)
        if verdict.gap is not None:
            first = safe(leading(record) or "The leading one")
            out.print(f"{first} is at most {verdict.gap:.4g} from the best.")
    _show_data(data)
    for text in dict.fromkeys(_fault(fault) for fault in record.proven_faulty):
        out.print(safe(text), style="red")
    for warning in record.warnings:
        text = f"Group {warning['group']}, round {warning['round']}: {warning['text']}."
        out.print(safe(text), style="yellow")
    for adversary in record.adversaries:
        caught = {fault["client"] for fault in record.proven_faulty}
        uncaught = [name for name in adversary["clients"] if name not in caught]
        if uncaught:
            out.print(
                safe(f"Lied and not caught: {', '.join(uncaught)} ({adversary['attack']})."), style="dim"
            )
    _show_groups(record)
    rounds = f"{record.rounds} rounds" if record.rounds != 1 else "1 round"
    phased = record.method != "fisher"
    phases = ("Phase I", "Phase II") if phased else ("quiet looks", "the others")
    if phased:
        rounds += f" (the Phase I reports, and {max(record.rounds - 1, 0)} of Phase II)"
    if record.peers is None:
        out.print(rounds)
    else:
        _show_peers(record)
    if record.pulls is not None:
        p = record.pulls
        parts = f" ({p.phase1:,} in {phases[0]}, {p.phase2:,} in {phases[1]})" if phased or p.phase1 else ""
        out.print(f"{p.total:,} pulls{parts}, at most {p.max_per_client:,} by one client")
    if record.peers is None:
        out.print(f"{record.bits.up:,} bits up, {record.bits.down:,} bits down")
    else:
        out.print(f"{record.bits.up:,} bits along all edges")
    seed = "" if record.seed is None else f", seed {record.seed}"  # a federation's rewards have none
    again = f" (drawn: --seed {record.seed} gives the same run)" if drawn else ""
    out.print(f"method {record.method}{seed}{again}", style="dim", soft_wrap=True)


def _show_data(data: Data | None) -> None:
    if data is not None:
        out.print(safe(str(data)), style="yellow" if data.replace else "dim", soft_wrap=True)


def _fault(fault: dict[str, Any]) -> str:
    if "by" in fault:  # in a network each neighbour finds it out for itself
        return f"Proven faulty: {fault['client']}: {fault['reason']}."
    return f"Proven faulty: {fault['client']} in round {fault['round']}: {fault['reason']}."


def _show_peers(record: Record) -> None:
    verdicts = record.peers or {}
    found = Counter(verdict.arm or f"undecided ({verdict.reason})" for verdict in verdicts.values())
    for answer, count in found.most_common():
        out.print(safe(f"{count} of {len(verdicts)} honest peers: {answer}"))
    if record.options["exchange"] == "means" and record.verdict.status == "identified":
        out.print(
            "That holds if the two best arms of the best arm-set, and of each other one, are at most as far "
            "apart as the best arms of the two sets (σ ≤ 1; a single arm counts as a gap of (c−2)/c). Means "
            'alone don\'t show that; exchange = "intervals" needs no such premise.',
            style="yellow",
        )


def _show_groups(record: Record) -> None:
    scale = Scale(**record.problem["scale"])
    last = {view.group: view for view in views(record)}
    if not last:
        _show_arms(record)
        return
    fell = fallen(record)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title, justify in (("group", "left"), ("mean", "right"), ("interval", "left"), ("", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    final = max(view.round for view in last.values())
    ranked = sorted(last.values(), key=lambda view: -view.mean)
    for view in ranked[:MOST_ROWS]:
        won = str(record.verdict.arm).startswith(f"{record.problem['groups'][view.group]['name']}/")
        stay = "wins" if won else "stays"
        fate = stay if view.round == final else f"withdrew in round {view.round + 1}"
        fate = f"out in round {fell[view.group]}" if view.group in fell else fate
        name = safe(record.problem["groups"][view.group]["name"])
        bar = _bar(view.mean, view.lower, view.upper, flip=scale.goal == "min")
        mean = record.verdict.mean if won and record.verdict.mean is not None else scale.user(view.mean)
        table.add_row(name, f"{mean:.4g}", bar, fate)
    out.print(table)
    if len(ranked) > MOST_ROWS:
        out.print(f"… and {len(ranked) - MOST_ROWS} more groups", style="dim")
    if coins := coins_said(record.method, record.problem):
        out.print(coins, style="dim", soft_wrap=True)


def _show_arms(record: Record) -> None:
    """Pulls and means of the arms of a run that ended before its first round."""
    from bestarm.report.facts import so_far

    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("arm", "pulls", mean_of(record.problem)):
        table.add_column(safe(title), justify="left" if title == "arm" else "right")
    arms = so_far(record)
    for name, pulls, mean in arms[:MOST_ROWS]:
        table.add_row(safe(name), f"{pulls:,}", f"{mean:.4g}")
    if arms:
        out.print(table)
    if len(arms) > MOST_ROWS:
        out.print(f"… and {len(arms) - MOST_ROWS} more arms", style="dim")


def _bar(mean: float, lower: float, upper: float, flip: bool, width: int = 36) -> str:
    """An interval of [0, 1] drawn in a line of characters, from the least reward to the largest."""

    def place(x: float) -> int:
        x = min(max(x, 0.0), 1.0)
        return round((1.0 - x if flip else x) * (width - 1))

    first, last = sorted((place(lower), place(upper)))
    at = place(mean)
    return "".join("●" if i == at else "━" if first <= i <= last else "·" for i in range(width))


@app.command()
def check(scenario: ScenarioPath, as_json: Json = False) -> int:
    """Check a scenario file without running it."""
    loaded = load(scenario)
    refused = _refusal(loaded)
    warnings = _warn_of_ties(loaded, None, loaded.options) + _warn_of_liars(loaded, None, loaded.options)
    data = loaded.problem.data
    if data and data.replace:
        warnings += _warn([str(data)])
    layout = loaded.problem.layout
    facts = {
        "ok": True,
        "groups": len(layout.groups),
        "arms": sum(layout.arm_counts),
        "clients": len(layout.clients),
        "method": loaded.method or DEFAULT_METHOD,
        "refused": refused,
        "warnings": warnings,
        "data": dataclasses.asdict(data) if data else None,
    }
    if as_json:
        print(json.dumps({**facts, "ok": refused is None}))
    elif refused is None:
        out.print(
            f"{safe(str(scenario))} is fine: {facts['groups']} groups, {facts['arms']} arms, "
            f"{facts['clients']} clients, method {facts['method']}."
        )
        best = safe(aim(loaded.problem.to_dict()))
        if data:
            less = f"; {data.skipped:,} without a name or a number left out" if data.skipped else ""
            out.print(f"Best is {best}, from {data.rows:,} rows of {safe(data.csv)}{less}.", soft_wrap=True)
        elif best:
            out.print(f"Best is {best}.")
    if refused is not None:
        _complain(f"{scenario}: {refused}", as_json=False)
        return BAD_INPUT
    return OK


def _warn_of_ties(scenario: Scenario, method: str | None, options: dict[str, Any]) -> list[str]:
    """Say on stderr what would keep an exact comparison from ending, unless an option ends it."""
    if options.get("budget") or options.get("epsilon"):
        return []
    ties = scenario.problem.ties(local=(method or scenario.method or DEFAULT_METHOD) != "fisher")
    cure = "budget" if (method or scenario.method) in ("p2p", "robust-fed-sel") else "epsilon or budget"
    return _warn([f"{tie}. An exact comparison never ends there: set {cure}" for tie in ties])


def _warn_of_liars(scenario: Scenario, method: str | None, options: dict[str, Any]) -> list[str]:
    """Say on stderr where more clients lie than the run is made for."""
    if (method or scenario.method) == "p2p":
        return []  # there it matters how many are around one client, and a run refuses too many
    borne = options.get("byzantine", 0)
    liars: dict[str, int] = {}
    for adversary in scenario.adversaries:
        names = adversary.names(scenario.problem.layout)
        liars[adversary.group] = liars.get(adversary.group, 0) + len(names)
    return _warn(
        [
            f'group "{group}" has {count} lying clients, but byzantine = {borne}: nothing is promised'
            for group, count in liars.items()
            if count > borne
        ]
    )


def _warn(warnings: list[str]) -> list[str]:
    for warning in warnings:
        err.print("warning:", style="bold yellow", end=" ")
        err.print(safe(warning), soft_wrap=True)
    return warnings


def _refusal(scenario: Scenario) -> str | None:
    """Why the scenario's own method would not run it."""
    try:
        problem, method, options = prepare(scenario, None, {})
        check_network(problem, method, options, scenario.network, adversaries=scenario.adversaries)
    except InputError as error:
        return str(error)
    return None


@app.command()
def network(
    graph: Annotated[
        Path, typer.Argument(metavar="GRAPH", help="GraphML, edge list, adjacency CSV, or SCENARIO.toml")
    ],
    groups: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="A=1,2;B=3,4", help="the nodes of each group [default: the scenario's]"),
    ] = None,
    byzantine: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=0, help="fail (exit code 4) unless it bears so many liars around each client"),
    ] = None,
    exchange: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="the protocol: means (3f+1) or intervals (2f+1) [default: the scenario's, or means]"
        ),
    ] = None,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.svg", help="draw it, with the weak part marked (.png, .svg, .pdf)"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say how many liars a network bears, where it is weak, and which edges would help."""
    made, by_group, options = _read_network(graph, groups)
    exchange = exchange or options.get("exchange", "means")
    byzantine = options.get("byzantine") if byzantine is None else byzantine
    if plot is not None:
        _check_folder(plot)
        from bestarm.report import plots

        plots.check_format(plot)
    found = {name: topology.strong_robustness(made, nodes) for name, nodes in by_group.items()}
    weakest = min(found, key=lambda name: found[name][0])
    r, witness = found[weakest]
    borne = {kind: topology.tolerance(made, by_group, kind) for kind in topology.SHARES}
    if exchange not in borne:
        raise InputError(f'exchange = "{exchange}"', expected=" or ".join(borne))
    try:
        more: list[tuple[Any, Any]] | None = topology.weak_points(made, by_group, exchange)
        remedy = None
    except InputError as error:
        more, remedy = None, str(error)
    facts = {
        "nodes": made.n,
        "edges": len(made.targets),
        "robustness": {name: None if value[0] == math.inf else value[0] for name, value in found.items()},
        "tolerance": borne,
        "weakest": weakest,
        "witness": sorted(witness, key=str),
        "add": more,
        "remedy": remedy,
    }
    if as_json:
        print(json.dumps(facts))
    else:
        _show_network(facts, r, exchange, remedy)
    if plot is not None:
        plots.save(plots.network(made, by_group, witness), str(plot))
        if not as_json:
            out.print(f"picture: {safe(str(plot))}")
    return NOT_VERIFIED if byzantine is not None and borne[exchange] < byzantine else OK


def _read_network(
    path: Path, groups: str | None
) -> tuple[topology.Graph, dict[str, list[Any]], dict[str, Any]]:
    """The graph, its groups, and the options that a scenario sets."""
    if path.suffix == ".toml":
        if groups is not None:
            raise InputError("a scenario has its own groups", fix="Leave out --groups")
        loaded = load(path)
        if loaded.network is None:
            raise InputError("the scenario has no [network]", where=str(path))
        return loaded.network.graph, loaded.network.groups(loaded.problem.layout), loaded.options
    made = topology.Graph.read(path)
    if groups is None:
        raise InputError(
            "a graph does not say which nodes belong together", expected='--groups "A=1,2;B=3,4"'
        )
    by_group: dict[str, list[Any]] = {}
    for part in groups.split(";"):
        name, equals, members = part.partition("=")
        nodes = [node.strip() for node in members.split(",") if node.strip()]
        if not equals or not name.strip() or not nodes or name.strip() in by_group:
            raise InputError(f'--groups "{part}" can\'t be read', expected='"A=1,2;B=3,4", each group once')
        if made.names is None:
            nodes = [
                int(node) if node.isascii() and node.isdigit() and len(node) < 19 else node  # type: ignore[misc]
                for node in nodes
            ]
        by_group[name.strip()] = nodes
    topology.members(made, by_group)  # checks them
    return made, by_group, {}


def _show_network(facts: dict[str, Any], r: float, exchange: str, remedy: str | None) -> None:
    out.print(f"{facts['nodes']:,} nodes, {facts['edges']:,} edges")
    for kind, f in facts["tolerance"].items():
        text = "no run at all: something never gets around" if f < 0 else f"{f} liars around each client"
        out.print(f'exchange = "{kind}": bears [bold]{text}[/]')
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("group", "strongly r-robust"):
        table.add_column(title)
    ranked = sorted(facts["robustness"].items(), key=lambda at: math.inf if at[1] is None else at[1])
    for name, value in ranked[:MOST_ROWS]:
        table.add_row(safe(name), "any r" if value is None else f"r = {value:g}")
    out.print(table)
    if facts["witness"]:
        names = [str(node) for node in facts["witness"]]
        more = f" and {len(names) - 12} more" if len(names) > 12 else ""
        out.print(
            safe(
                f"Weakest: group {facts['weakest']}. Nobody in this set hears more than {r:g} clients "
                f"outside of it: {', '.join(names[:12])}{more}"
            )
        )
    if facts["add"]:
        edges = ", ".join(f"{u}→{v}" for u, v in facts["add"][:12])
        rest = " …" if len(facts["add"]) > 12 else ""
        out.print(
            safe(f"To bear one more (exchange {exchange}) add {len(facts['add'])} edges: {edges}{rest}"),
            soft_wrap=True,
        )
        out.print("Found by a greedy search: fewer might do.", style="dim")
    elif remedy:
        out.print(safe(remedy), soft_wrap=True)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="name of the scenario; NAME.toml is written")] = "scenario",
    csv: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="a scenario for this CSV file: columns and bounds are filled in"),
    ] = None,
    group_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="names the group [default: the first column of text]")
    ] = "",
    arm_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="names the arm [default: the next column of text]")
    ] = "",
    reward_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="holds the rewards [default: the last column of numbers]")
    ] = "",
    goal: Annotated[str, typer.Option(metavar="max|min", help="is more better, or less?")] = "",
    as_json: Json = False,
) -> int:
    """Write a commented scenario to start from. An existing file is left alone."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    about = (group_column, arm_column, reward_column, goal)
    if csv is None and any(about):
        raise InputError("columns and goal are those of a CSV file", fix="Name it with --csv FILE")
    text = TEMPLATE.format(file=path) if csv is None else scenario_for_csv(csv, path, *about)
    try:
        data = text.encode()
        with path.open("xb") as file:
            file.write(data)
    except UnicodeEncodeError:
        raise InputError("its name is no text", where=str(csv), fix="Give it another name") from None
    except FileExistsError:
        raise InputError("the file exists", where=str(path), fix="Choose another name") from None
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None
    if as_json:
        print(json.dumps({"file": str(path)}))
    else:
        first = guessed = ""
        if csv is not None:
            said = tomllib.loads(text)["data"]
            guessed = " with " + ", ".join(f'{key} = "{said[key]}"' for key in ("group", "arm", "reward"))
            first = "read its lines marked CHECK, then "
        out.print(safe(f"wrote {path}{guessed}. Next: {first}bestarm check {path}"), soft_wrap=True)
    return OK


@app.command()
def verify(
    record: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="a saved record, the folder of a federation's server or a peer, or evidence"
        ),
    ],
    replay: Annotated[
        bool, typer.Option("--replay", help="also run again from the seed and compare")
    ] = False,
    roster: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="a roster.json that was kept: only its keys count"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Check a saved record: its digest, its certificate, its counts; with --replay a fresh run.

    In the folder of a federation's server or of a peer: replay its journal with all signatures, and name
    every suspect. A file evidence-NAME.json: whether it proves that NAME signed two stories.
    """
    journalled = record.is_dir() or record.suffix == ".db"
    if journalled and replay:
        raise InputError(
            "--replay runs a record again from its seed",
            where=str(record),
            fix="A journal is replayed without it",
        )
    if (record / "peer.json").exists():
        return _verify_peer(record, roster, as_json)
    if journalled:
        return _verify_federation(record, roster, as_json)
    from bestarm.mesh.node import is_evidence

    if is_evidence(record):
        return _verify_evidence(record, roster, as_json)
    if roster is not None:
        raise InputError("a record has no signatures, so --roster has nothing to check", fix="Leave it out")
    loaded = Record.load(record)
    result = audit.verify(loaded, replay=replay and loaded.seed is not None)
    if result.ok and replay and loaded.seed is None:
        raise InputError(
            "it is sound, but a federation's record has no seed to run it again from",
            where=str(record),
            fix=f"Its journal can be replayed: bestarm verify {record.parent}",
        )
    if as_json:
        print(json.dumps({"ok": result.ok, "failures": result.failures}))
    elif result.ok:
        out.print(f"{safe(str(record))} is sound.")
        if loaded.peers is not None and not replay:
            out.print("What each peer was told is not in the record: only --replay checks their verdicts.")
    else:
        for failure in result.failures:
            out.print(f"- {safe(failure)}")
    return OK if result.ok else NOT_VERIFIED


@app.command(cls=InPanels)
@with_options
def plan(
    scenario: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="[SCENARIO.toml]", help="a scenario with known or guessed means"),
    ] = None,
    gaps: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="GROUP=GAP,GAP;…",
            help="instead of a scenario: how far each arm is below the best, such as north=0,0.1;south=0.05",
        ),
    ] = None,
    method: MethodOption = None,
    trials: Annotated[int, typer.Option(help="simulated runs behind each number")] = 1000,
    seed: Annotated[Optional[int], typer.Option(help="the same seed gives the same plan")] = None,  # noqa: UP045
    max_bits: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="bits up and down: look for the schedule that most probably ends within them"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="costs alone: no budgets, no advice")] = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Say what runs will cost: pulls, rounds, bits, the proved bounds, the limit, and advice.

    With --max-rounds or --max-bits also: the schedule that most probably ends within them.
    """
    from bestarm.plan import plan as make_plan
    from bestarm.plan import problem_from_gaps, schedule

    chosen = {key: value for key, value in options.items() if value is not None}
    max_rounds = chosen.pop("max_rounds", None)
    if (scenario is None) == (gaps is None):
        raise InputError("there is nothing to plan for, or twice", expected="a scenario file or --gaps")
    if gaps is not None:
        guessed = _parse_gaps(gaps)
        target: Any = guessed
        loaded = Scenario(problem_from_gaps(guessed))
    else:
        target = loaded = load(cast(Path, scenario))
    methods = None if method is None else [method]
    try:
        with _plan_progress(quiet=as_json) as watch:
            keys: dict[str, Any] = {"trials": trials, "seed": seed, "methods": methods, "watch": watch}
            found = make_plan(target, quick=quick, **keys, **chosen)
            keys["seed"] = found.seed
            limits = {"max_rounds": max_rounds, "max_bits": max_bits}
            limited = any(most is not None for most in limits.values())
            best = schedule(loaded, **limits, **keys, **chosen) if limited else None
    except KeyboardInterrupt:
        err.print("interrupted; a plan keeps nothing")
        return INTERRUPTED
    if as_json:
        print(json.dumps({**found.to_dict(), "schedule": dataclasses.asdict(best) if best else None}))
        return OK
    for name, why in found.left_out.items():
        out.print(f"{name} is left out: {safe(why)}", style="dim", soft_wrap=True)
    _show_plan(found)
    if best is not None:
        _show_schedule(best, limits)
    return OK


def _parse_gaps(text: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, values = (word.strip() for word in part.partition("="))
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not name or not numbers or name in found:
            raise InputError(
                f'"{part}" in --gaps can\'t be read',
                expected="GROUP=GAP,GAP,… with each group once, ; between",
            )
        found[name] = numbers
    return found


@contextmanager
def _plan_progress(quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    """What is being simulated, on stderr, once the work has taken two seconds."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("study {task.fields[study]}: {task.fields[method]}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    bar = Bar(*columns, console=err, transient=True)
    task = bar.add_task("", total=1, study=1, method="")
    begun = time.monotonic()

    def watch(progress: Any) -> None:
        if time.monotonic() - begun > 2.0:
            bar.start()
        bar.update(
            task, completed=progress.done, total=progress.total, study=progress.study, method=progress.method
        )

    try:
        yield watch
    finally:
        bar.stop()


COSTS = {
    "pulls": "pulls", "longest": "longest client", "rounds": "rounds",
    "bits_up": "bits up", "bits_down": "bits down",
}  # fmt: skip


def _show_plan(found: Any) -> None:
    for row in found.methods:
        out.print(f"[bold]{safe(row.name)}[/]")
        if row.cost is None:
            out.print(f"  not simulated: {safe(row.why_not)}", soft_wrap=True)
        if row.cost is not None or row.bounds is not None:
            out.print(_cost_table(row.cost, row.bounds))
        if row.enough is not None:
            text = f"  95 % decide with {row.enough.budget:,} pulls a client: {_chance(row.enough)}"
            out.print(text, soft_wrap=True)
        if row.at_budget is not None:
            text = f"  with your {row.at_budget.budget:,} pulls a client: {_chance(row.at_budget)}"
            out.print(text, soft_wrap=True)
        if row.cost is not None and row.cost.decided < 1.0:
            out.print(f"  {100 * row.cost.decided:.3g} % of the runs decided")
        out.print()
    if found.limit is not None:
        out.print(
            f"The least that {found.limit.holds_for} needs with this promise: {_count(found.limit.total)} "
            f"pulls on average, and {_count(found.limit.longest)} of the longest client (proved).",
            soft_wrap=True,
        )
    for line in (*found.advice, *([found.assumption] if found.assumption else [])):
        out.print(f"- {safe(line)}", soft_wrap=True)
    proved = any(row.bounds is not None for row in found.methods)
    out.print(
        f"Means and ranges: measured on {_runs(found)} simulated runs with these means. "
        + (
            f"proved: Theorem 1 as corrected, with probability at least {1 - found.delta:g}. "
            if proved
            else ""
        )
        + f"delta = {found.delta:g}, seed {found.seed}.",
        style="dim",
    )


def _runs(found: Any) -> str:
    """How many runs are behind the numbers, where need be of each method."""
    fewer = [f"{row.name}: {row.trials}" for row in found.methods if row.trials < found.trials]
    return f"{found.trials:,}" + (f" ({', '.join(fewer)})" if fewer else "")


def _cost_table(cost: Any, bounds: Any) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=True)
    for title in ("", "mean", "range", "of the runs", *(["proved"] if bounds is not None else [])):
        table.add_column(title, justify="left" if not title else "right")
    proved = {}
    if bounds is not None:
        proved = {
            "pulls": f"{_count(bounds.pulls_least)} to {_count(bounds.pulls_most)}",
            "longest": f"at most {_count(bounds.longest_most)}",
            "rounds": f"at most {_count(bounds.rounds)}",
        }
    for key, title in COSTS.items():
        cells = [proved.get(key, "")] if bounds is not None else []
        if cost is not None:
            spread = getattr(cost, key)
            mean = f"{spread.mean:,.3g}" if spread.mean < 100 else _count(spread.mean)
            span = f"{_count(spread.low)} to {_count(spread.high)}"
            table.add_row(title, mean, span, f"{100 * spread.share:.0f} %", *cells)
        elif key in proved:
            table.add_row(title, "–", "–", "–", *cells)
    return table


def _count(x: float) -> str:
    """A number of things: 1,234, 3.836M, or "unbounded"."""
    return "unbounded" if math.isinf(x) else f"{x:,.0f}" if x < 1e5 else _short(x)


def _chance(chance: Any) -> str:
    low, high = (100 * x for x in chance.interval)
    return f"{100 * chance.decided:.3g} % of fresh runs (95 % interval {low:.3g} to {high:.3g})"


def _show_schedule(best: Any, limits: dict[str, int | None]) -> None:
    within = " and ".join(f"{n:,} {key[4:-1] if n == 1 else key[4:]}" for key, n in limits.items() if n)
    keys = " ".join(f"--{key.replace('_', '-')} {value:g}" for key, value in best.options.items())
    low, high = (100 * x for x in best.interval)
    out.print(f"[bold]Within {within}[/]: --method {best.method} {keys}", soft_wrap=True)
    out.print(
        f"  ends there with a verdict in {100 * best.probability:.3g} % of fresh runs "
        f"(95 % interval {low:.3g} to {high:.3g})"
    )
    out.print(_cost_table(best.cost, None))
    out.print(safe(best.note), style="dim")


@app.command()
def figures(
    folder: Annotated[Path, typer.Argument(metavar="OUT/", help="the folder to write to; made if need be")],
    only: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="4a,5,…", help="some of them: 1, 2, 3, 4a, 4b (4: both), 5 [default: all]"),
    ] = None,
    trials: Annotated[int, typer.Option(help="runs behind each point of Figure 4; the paper has 50")] = 50,
    seed: Annotated[int, typer.Option(help="the same seed gives the same files")] = 1,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="processes [default: all cores]; the numbers don't depend on it"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Make the paper's figures anew: SVG, PNG, the numbers as CSV, and a caption each."""
    from bestarm.report.figures import Made, make

    made: list[Made] = []
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    try:
        with _study_progress(quiet=as_json) as watch:
            made.extend(make(folder, only=names, trials=trials, seed=seed, workers=workers, watch=watch))
    except KeyboardInterrupt:
        kept = f"finished: {', '.join(done.name for done in made)}" if made else "nothing was written"
        err.print(f"interrupted; {kept}")
        return INTERRUPTED
    if as_json:
        rows = [{"name": d.name, "title": d.title, "files": [str(path) for path in d.files]} for d in made]
        print(json.dumps({"folder": str(folder), "trials": trials, "seed": seed, "figures": rows}))
    else:
        for done in made:
            out.print(f"Figure {done.name}: {done.title}", style="bold")
            out.print(f"  {', '.join(path.name for path in done.files)}", soft_wrap=True)
        where = safe(str(folder))
        out.print(
            f"In {where}: pictures (.svg, .png), their numbers (.csv) and captions (.txt).", soft_wrap=True
        )
    return OK


def _verify_federation(folder: Path, roster: Path | None, as_json: bool) -> int:
    from bestarm.federation.server import verify as verify_journal

    place = folder if folder.is_dir() else folder.parent
    if folder.is_file() and kept.is_one(folder):
        raise InputError(
            "this is the journal of a run in process, which has no signatures",
            where=str(folder),
            fix="Verify its record: bestarm run … --out FILE, then bestarm verify FILE --replay",
        )
    if (place / "client.json").exists():
        raise InputError(
            "a client's folder can be watched or reported, not verified",
            where=str(place),
            fix=f"Verify the server's: bestarm verify FOLDER --roster {place / 'roster.json'}",
        )
    found = verify_journal(folder, roster)
    verdict = found.record.verdict if found.record else None
    if as_json:
        evidence = [{"client": e.first.source, "evidence": e.encode().hex()} for e in found.evidence]
        facts = {"ok": found.ok, "failures": found.failures, "events": found.events}
        arm = verdict.arm if verdict else None
        notes = [note._asdict() for note in found.notes]
        facts = {**facts, "arm": arm, "suspects": found.suspects, "evidence": evidence, "notes": notes}
        facts["key_changes"] = found.changes
        print(json.dumps(facts))
        return OK if found.ok else NOT_VERIFIED
    for failure in found.failures:
        out.print(f"- {safe(failure)}")
    for client, why in found.suspects.items():
        out.print(f"Proven faulty: {safe(client)}, {safe(why)}.", style="red")
    for note in found.notes:
        out.print(safe(_told(note)), soft_wrap=True)
    for text in found.changes:
        out.print(f"Keys, {safe(text)}.", soft_wrap=True)
    if found.ok:
        end = "it is not finished" if verdict is None else verdict.arm or f"undecided ({verdict.reason})"
        out.print(f"{safe(str(folder))} is sound: {found.events} events; {safe(end)}.", soft_wrap=True)
    return OK if found.ok else NOT_VERIFIED


def _told(note: Any) -> str:
    """What a client told the operator, and when."""
    since = "; messages of it came later" if note.later else ""
    return f"{note.client} said (in round {note.round}{since}): {note.text}"


def _verify_peer(folder: Path, roster: Path | None, as_json: bool) -> int:
    from bestarm.mesh.node import verify as verify_journal

    found = verify_journal(folder, roster)
    arm = found.verdict.arm if found.verdict else None
    if as_json:
        evidence = [{"client": e.first.source, "evidence": e.encode().hex()} for e in found.evidence]
        facts = {"ok": found.ok, "failures": found.failures, "events": found.events, "arm": arm}
        print(json.dumps({**facts, "suspects": found.suspects, "evidence": evidence}))
        return OK if found.ok else NOT_VERIFIED
    for failure in found.failures:
        out.print(f"- {safe(failure)}")
    for client, why in found.suspects.items():
        out.print(f"Proven faulty: {safe(client)}, {safe(why)}.", style="red")
    if found.ok:
        end = "it is not finished" if found.verdict is None else arm or f"undecided ({found.verdict.reason})"
        out.print(f"{safe(str(folder))} is sound: {found.events} events; {safe(end)}.", soft_wrap=True)
    return OK if found.ok else NOT_VERIFIED


def _verify_evidence(path: Path, roster: Path | None, as_json: bool) -> int:
    from bestarm.mesh.node import verify_evidence

    accused, holds = verify_evidence(path, roster)
    text = f"{accused} signed two different reports for one place" if holds else "this proves nothing"
    _said({"ok": holds, "accused": accused}, text, as_json)
    return OK if holds else NOT_VERIFIED


federation = typer.Typer(add_completion=False, help="Make and manage a federation on real machines.")
app.add_typer(federation, name="federation")
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the folder that federation init made")]
ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="a client of the scenario")]


def _said(facts: dict[str, Any], text: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps(facts))
    else:
        out.print(safe(text), soft_wrap=True)
    return OK


@federation.command("init")
def federation_init(
    scenario: ScenarioPath,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder to make")],
    method: MethodOption = None,
    host: Annotated[str, typer.Option(help="the server's name or address, as clients see it")] = "localhost",
    port: Annotated[int, typer.Option(help="the broker's port; 0 for a free one")] = 4222,
    spare: Annotated[int, typer.Option(help="slots for keys that are added later")] = 4,
    nats: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="URL", help="a NATS that exists, in the place of the embedded one"),
    ] = None,
    ca: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE.pem", help="with --nats: whose certificates to trust [default: the system's]"
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Make keys, certificates, the broker's accounts, and a folder to hand to each client's site."""
    from bestarm.federation import files

    made = files.init(
        load(scenario), folder, method=method, host=host, port=port, spare=spare, url=nats, ca=ca
    )
    clients = len(made.setup.layout.clients)
    facts = {"folder": str(folder), "url": made.setup.url, "clients": clients, "run": made.setup.run.hex()}
    text = (
        f"{folder}: a federation of {clients} clients at {made.setup.url}. {TAKEN} Hand each folder in "
        f"{folder}/clients to its site; there: bestarm client FOLDER --csv FILE (or --exec, --http, --arms). "
        f"Here: bestarm server {folder}"
    )
    return _said(facts, text, as_json)


@federation.command("add-client")
def federation_add(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Give a client of the scenario a new key, after its old one was revoked; nobody else notices."""
    from bestarm.federation import files

    place = files.add_client(folder, client)
    return _said({"client": client, "folder": str(place)}, f"{client} has a new key: {place}", as_json)


@federation.command("revoke")
def federation_revoke(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Take a client's key away: broker and server refuse it from now on."""
    from bestarm.federation import files

    files.revoke(folder, client)
    return _said({"client": client, "revoked": True}, f"the key of {client} is revoked", as_json)


@federation.command("drop")
def federation_drop(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Go on without a client, on your word; the certificate shows it."""
    from bestarm.federation import files

    files.drop(folder, client)
    return _said({"client": client, "dropped": True}, f"the run goes on without {client}", as_json)


@federation.command("demo")
def federation_demo(
    folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="DIR", help="keep the federation's folder here"),
    ] = None,
    seed: Annotated[int, typer.Option(help="of the rewards, and of the moment of the kill")] = 7,
    as_json: Json = False,
) -> int:
    """Eight client processes here: a liar, a straggler, one that is killed and comes back."""
    from bestarm.deploy import terminable
    from bestarm.federation.broker import Unreachable
    from bestarm.federation.demo import demo

    say: Callable[[str], None] = (lambda text: None) if as_json else lambda text: out.print(safe(text))
    _log_to_stderr()
    try:
        with terminable():
            shown = demo(folder, seed, say)
    except Unreachable as error:
        return _unreachable(error, as_json)
    if as_json:
        print(json.dumps({"ok": shown.ok, "record": shown.record.to_dict(), "notes": shown.notes}))
    else:
        show(shown.record)
    return OK if shown.ok else NOT_VERIFIED


def _unreachable(error: Exception, as_json: bool) -> int:
    _complain(str(error), as_json)
    return UNREACHABLE


def _log_to_stderr() -> None:
    import logging

    class Shown(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return "\n".join(map(visible, super().format(record).split("\n")))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Shown("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it remarks on every TLS connection that ends


@app.command()
def server(
    folder: Folder,
    nats: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="URL", help="use this NATS [default: what init was told]"),
    ] = None,
    monitor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="URL", help="that NATS's monitoring page: is each message synced?"),
    ] = None,
    patience: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SECONDS", help="wait so long for what a round is missing [default: for ever]"),
    ] = None,
    metrics: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(metavar="PORT", help="/metrics and /healthz on this port of this computer"),
    ] = None,
    linger: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="after the verdict: wait so long for who has not heard it"),
    ] = 10.0,
    as_json: Json = False,
) -> int:
    """Run a federation's server to its verdict. Stopped or killed, it goes on where it was."""
    from bestarm.deploy import Interrupted as Stopped
    from bestarm.deploy import until_stopped
    from bestarm.federation.broker import Unreachable
    from bestarm.federation.server import Server
    from bestarm.pulling import REDRAWN

    _log_to_stderr()
    try:
        with _server_table(quiet=as_json) as watch:
            run = Server(
                folder,
                url=nats,
                monitor=monitor,
                patience=patience,
                metrics=metrics,
                linger=linger,
                watch=watch,
            )
            record = until_stopped(run.run())
    except Stopped:
        err.print(f"stopped; to go on: bestarm server {safe(str(folder))}", soft_wrap=True)
        if as_json:
            print(json.dumps({"interrupted": True, "folder": str(folder)}))
        return INTERRUPTED
    except Unreachable as error:
        return _unreachable(error, as_json)
    if as_json:
        print(json.dumps(record.to_dict()))
    else:
        show(record)
        for note in run.desk.notes:  # what the verdict is about, or why a client did not come, in its words
            if note.text == REDRAWN or (record.verdict.status == "undecided" and not note.later):
                out.print(safe(_told(note)), soft_wrap=True)
        where = shlex.quote(str(folder))
        text = f"record: {folder / 'record.json'}. Next: bestarm verify {where}, bestarm report {where}"
        out.print(safe(text), soft_wrap=True)
    return OK if record.verdict.status == "identified" else UNDECIDED


@contextmanager
def _server_table(quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    """A live table on a terminal; elsewhere a line whenever what is waited for has changed."""
    if quiet:
        yield None
        return
    if not err.is_terminal:
        said: list[str] = []

        def line(status: Any) -> None:
            text = _waiting(status)
            if said[-1:] != [text]:
                said[:] = [text]
                err.print(safe(text), soft_wrap=True)

        yield line
        return
    from rich.live import Live

    with Live(console=err, refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(_status_table(status))


def _waiting(status: Any) -> str:
    desk = status.desk
    if desk.done:
        return "the run is over; the clients are told"
    names = desk.waiting_for()
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    left = f" (for {status.left:.0f} s)" if status.left is not None and err.is_terminal else ""
    return f"round {desk.machine.round}: waiting for {', '.join(names[:8])}{more}{left}"


def _status_table(status: Any) -> Group:
    desk, m = status.desk, status.desk.machine
    layout, missing, suspects = desk.setup.layout, set(desk.waiting_for()), desk.suspects()
    title = [_waiting(status), f"{m.bits_up:,} bits up, {m.bits_down:,} bits down"]
    if not status.connected:
        title[-1] += ", no connection to the broker"
    table = Table(box=None)
    for column in ("group", "reported", "last heard", "suspects"):
        table.add_column(column)
    for j, group in list(enumerate(layout.groups))[:MOST_ROWS]:
        here = sum(client not in missing and desk.next[client] > 0 for client in group.clients)
        bad = ", ".join(client for client in group.clients if client in suspects)
        heard = _heard(desk, j) if m.active[j] else "out"
        row = (group.name, f"{here}/{len(group.clients)}", heard, bad)
        table.add_row(*map(escape, row), style=None if m.active[j] else "dim")
    refused = Counter[str]()
    for (who, _), n in desk.refused.items():
        refused[who] += n
    below = [_told(note) for note in desk.notes if not note.later][-3:]
    if refused:
        below.append("messages refused: " + ", ".join(f"{who}: {n}" for who, n in refused.most_common(3)))
    return Group(*map(safe, title), table, *map(safe, below))


def _heard(desk: Any, j: int) -> str:
    """What the last round said of a group: an interval, or the successes of its best arm at a look."""
    last = desk.machine.history[-1] if desk.machine.history else {"group": []}
    if j not in last["group"]:
        return ""
    k = last["group"].index(j)
    low, high = last["lower"][k], last["upper"][k]
    if "look" not in last:
        return "{:.4g} to {:.4g}".format(*desk.setup.scale.user_interval(low, high))
    arm = desk.setup.layout.groups[j].arms[last["arm"][k]]
    coins = last["coins"][k] if "coins" in last else last["pulls"]
    leads = " (leads)" if last.get("leader") == j else ""
    return f"look {last['look']}: {arm}, {low} to {high} of {coins}{leads}"


ArmsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="package.module:object", help="rewards from a Python function or object"),
]
CommandOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--exec", metavar="CMD", help="rewards from a command: 'read-sensor {arm}'"),
]
HttpOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="rewards from a web address with {arm} in it"),
]
CsvOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(metavar="FILE", help="rewards from a CSV file with the columns arm and reward"),
]
ReplaceOption = Annotated[bool, typer.Option(help="draw from the CSV file with replacement")]
ArmColumn = Annotated[str, typer.Option(metavar="NAME", help="the CSV file's column of arms")]
RewardColumn = Annotated[str, typer.Option(metavar="NAME", help="the CSV file's column of rewards")]


def _source(
    arms: str | None, command: str | None, http: str | None, csv: Path | None, **table: Any
) -> Callable[[Any], Any]:
    """For a client's or a peer's site: where its rewards come from."""
    from bestarm.pulling import source_from

    if sum(given is not None for given in (arms, command, http, csv)) != 1:
        raise InputError(
            "it is not clear where rewards come from", expected="--arms, --exec, --http or --csv"
        )
    if csv is not None and table["replace"]:
        _warn([f"pulls draw from {csv} with replacement, so this is about the file; see --no-replace"])
    return lambda site: source_from(
        site.place.setup.scale, site.made, site.place.key.public, names=site.group.arms,
        arms=arms, command=command, http=http, csv=csv, **table,
    )  # fmt: skip


@app.command()
def client(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder of this client")],
    arms: ArmsOption = None,
    command: CommandOption = None,
    http: HttpOption = None,
    csv: CsvOption = None,
    replace: ReplaceOption = True,
    arm_column: ArmColumn = "arm",
    reward_column: RewardColumn = "reward",
    nats: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="URL", help="another address of the broker"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Run one client of a federation. Stopped or killed, it goes on where it was."""
    from bestarm.deploy import Interrupted as Stopped
    from bestarm.deploy import until_stopped
    from bestarm.federation.broker import Unreachable
    from bestarm.federation.client import Client
    from bestarm.sources import SourceFailed

    source = _source(
        arms, command, http, csv, replace=replace, arm_column=arm_column, reward_column=reward_column
    )
    _log_to_stderr()
    try:
        with _client_line(quiet=as_json) as watch:
            run = Client(folder, source, url=nats, watch=watch)
            verdict = until_stopped(run.run())
    except Stopped:
        err.print("stopped; run it again to go on")
        if as_json:
            print(json.dumps({"interrupted": True, "folder": str(folder)}))
        return INTERRUPTED
    except (Unreachable, SourceFailed) as error:
        return _unreachable(error, as_json)
    arm = verdict.arm if verdict else None
    facts = {"client": run.place.client, "arm": arm, "pulls": run.site.pulls}
    text = f"{arm} is the best arm" if arm else "the run ended without a verdict"
    _said(facts, f"{text}; {run.site.pulls:,} pulls were made here", as_json)
    return OK if arm or verdict is None else UNDECIDED


mesh = typer.Typer(add_completion=False, help="Make and check a mesh of peers on real machines.")
app.add_typer(mesh, name="mesh")


@mesh.command("init")
def mesh_init(
    graph: Annotated[
        Path,
        typer.Argument(
            metavar="GRAPH", help="SCENARIO.toml with a [network], GraphML, edge list, adjacency CSV"
        ),
    ],
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="the folder to make, or to make again")
    ],
    groups: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="A=1,2;B=3,4", help="the nodes of each group [default: the scenario's]"),
    ] = None,
    arms: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="A=x,y;B=z", help="the arms of each group [default: the scenario's]"),
    ] = None,
    byzantine: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=0, help="liars around each node; exit code 4 if the network can't bear them"),
    ] = None,
    exchange: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="means or intervals [default: the scenario's, or means]"),
    ] = None,
    delta: Annotated[Optional[float], typer.Option(help="the error probability")] = None,  # noqa: UP045
    address: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="NODE=HOST:PORT", help="where a node listens; may be given for each"),
    ] = None,
    port: Annotated[int, typer.Option(help="of the first node without an address; 0 for free ones")] = 7443,
    new_run: Annotated[
        bool, typer.Option("--new-run", help="begin another run, with the keys that are there")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make keys and certificates, and a folder to hand to each node. Made again, no key is overwritten."""
    from bestarm.mesh import files

    chosen = {"byzantine": byzantine, "exchange": exchange, "delta": delta}
    keys = {key: value for key, value in chosen.items() if value is not None}
    if graph.suffix == ".toml" and groups is None and arms is None:
        terms, made = files.terms_of(load(graph), keys)
    else:
        read, by_group, _ = _read_network(graph, groups)
        if arms is None:
            raise InputError("a graph does not say which arms there are", expected='--arms "A=x,y;B=z"')
        pairs = [part.partition("=") for part in arms.split(";")]
        by_arm = {name.strip(): [a.strip() for a in rest.split(",")] for name, _, rest in pairs}
        terms, made = files.terms_for(read, by_group, by_arm, keys)
    pairs = [text.partition("=") for text in address or ()]
    try:
        addresses = {n: where for n, _, where in pairs}
        terms = files.init(terms, made, folder, addresses, port=port, new_run=new_run)
    except files.TooWeak as error:
        _complain(str(error), as_json)
        return NOT_VERIFIED
    clients = len(terms.layout.clients)
    facts = {"folder": str(folder), "nodes": clients, "run": terms.run.hex()}
    text = f"{folder}: a mesh of {clients} nodes. {TAKEN} Hand each folder in {folder}/nodes to its machine; "
    old = " It is a new run: move the journal.db* of the old one away on each machine." if new_run else ""
    return _said(facts, f"{text}there: bestarm peer NODE --exec 'read-sensor {{arm}}'.{old}", as_json)


@mesh.command("check")
def mesh_check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a node's folder, or that of mesh init")],
    offline: Annotated[bool, typer.Option("--offline", help="look at the files only")] = False,
    as_json: Json = False,
) -> int:
    """Find expired or wrong certificates, neighbours that can't be reached, and clocks that differ."""
    from bestarm.mesh.check import check

    found, looked = check(folder, connect=not offline)
    if as_json:
        rows = [{"node": t.node, "about": t.about, "what": t.what} for t in found]
        print(json.dumps({"ok": not found, "nodes": looked, "troubles": rows}))
    else:
        for trouble in found:
            out.print(safe(f"{trouble.node} → {trouble.about}: {trouble.what}"), soft_wrap=True)
        if not found:
            out.print(f"{looked} nodes looked at, all is well.")
    return UNREACHABLE if found else OK


@mesh.command("demo")
def mesh_demo(
    folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="DIR", help="keep the mesh's folder here"),
    ] = None,
    seed: Annotated[int, typer.Option(help="of the order in which peers start")] = 7,
    as_json: Json = False,
) -> int:
    """Twelve peers here: a liar, one that is killed and comes back, one that comes late."""
    from bestarm.deploy import terminable
    from bestarm.mesh.demo import demo

    with terminable(), _mesh_table(quiet=as_json) as watch:
        shown = demo(
            folder, seed, (lambda text: None) if as_json else lambda text: out.print(safe(text)), watch
        )
    if as_json:
        facts = {"ok": shown.ok, "verdicts": shown.verdicts, "accused": shown.accused, "notes": shown.notes}
        print(json.dumps(facts))
    else:
        for name, arm in shown.verdicts.items():
            text = f"{name}: {arm or 'no verdict'}; accused: {', '.join(shown.accused[name]) or 'nobody'}"
            out.print(safe(text))
    return OK if shown.ok else NOT_VERIFIED


@contextmanager
def _mesh_table(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A live table of who knows what about which arm-set, on a terminal."""
    if quiet or not out.is_terminal:
        yield lambda found: None
        return
    from rich.live import Live

    with Live(console=out, refresh_per_second=4) as live:
        yield lambda found: live.update(_knowledge(found))


def _knowledge(found: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    sets = list(next(iter(found.values()))["knows"]) if found else []
    for title in ("peer", "state", "pulls", *sets, "verdict", "accuses"):
        table.add_column(title, justify="right" if title == "pulls" else "left")
    for name, status in found.items():
        known = [status["knows"][group] or "·" for group in sets]
        end = (status["arm"] or "undecided") if status["decided"] else "·"
        row = (name, status["state"], f"{status['pulls']:,}", *known, end, ", ".join(status["suspects"]))
        table.add_row(*map(escape, row))
    return table


@app.command()
def peer(
    folder: Annotated[Path, typer.Argument(metavar="NODE", help="the folder of this node")],
    arms: ArmsOption = None,
    command: CommandOption = None,
    http: HttpOption = None,
    csv: CsvOption = None,
    replace: ReplaceOption = True,
    arm_column: ArmColumn = "arm",
    reward_column: RewardColumn = "reward",
    listen: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="HOST:PORT", help="listen here [default: the address that others know]"),
    ] = None,
    linger: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SECONDS", help="serve at most so long after the verdict [default: for ever]"),
    ] = None,
    patience: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="SECONDS", help="end undecided after so long with no news [default: never]"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Run one peer of a mesh. Stopped or killed, it goes on where it was.

    After its verdict it serves on until all its neighbours have theirs, or until it is stopped.
    """
    from bestarm.deploy import Interrupted as Stopped
    from bestarm.deploy import until_stopped
    from bestarm.mesh.run import Run
    from bestarm.record import on_user_scale
    from bestarm.sources import SourceFailed

    source = _source(
        arms, command, http, csv, replace=replace, arm_column=arm_column, reward_column=reward_column
    )
    _log_to_stderr()
    try:
        with _peer_line(quiet=as_json) as watch:
            run = Run(folder, source, listen=listen, linger=linger, patience=patience, watch=watch)
            until_stopped(run.run())
    except Stopped:
        if run.node.verdict is None:
            if as_json:
                print(json.dumps({"interrupted": True, **run.status()}))
            err.print("stopped; run it again to go on")
            return INTERRUPTED
    except SourceFailed as error:
        return _unreachable(error, as_json)
    if run.node.verdict is None:
        facts = {**run.status(), "status": "undecided", "reason": run.gave_up}
        text = f"undecided ({run.gave_up}): nothing new for {patience:g} s; {_missing(facts) or 'no news'}"
        _said(facts, f"{text}. Run it again to go on", as_json)
        return UNDECIDED
    verdict = on_user_scale(run.node.verdict, run.place.setup.scale)
    facts = {**run.status(), "status": verdict.status, "reason": verdict.reason, "mean": verdict.mean}
    end = f"{verdict.arm} is the best arm" if verdict.arm else f"undecided ({verdict.reason})"
    for client, why in run.node.suspects().items():
        err.print(f"proven faulty: {safe(client)}, {safe(why)}", style="red", soft_wrap=True)
    _said(facts, f"{end}; {run.node.pulls:,} pulls were made here", as_json)
    return OK if verdict.arm else UNDECIDED


def _missing(status: dict[str, Any]) -> str:
    """Whom a peer waits for."""
    parts = ("waits for", status["waits_for"]), ("can't reach", status["unreachable"])
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)


@contextmanager
def _peer_line(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    if quiet:
        yield None
        return
    if not err.is_terminal:
        last: list[Any] = [-math.inf, ""]  # when, and what

        def word(s: dict[str, Any]) -> None:
            text = _missing(s)
            if text != last[1] and time.monotonic() - last[0] > 10:
                last[:] = [time.monotonic(), text]
                err.print(safe(f"{s['name']}: {text or 'all neighbours are there'}"), soft_wrap=True)

        yield word
        return
    with err.status("starting") as status:

        def line(s: dict[str, Any]) -> None:
            known = sum(arm is not None for arm in s["knows"].values())
            end = f"verdict {s['arm'] or 'undecided'}, serving its neighbours" if s["decided"] else s["state"]
            text = f"{s['name']}: {end}, {s['pulls']:,} pulls, knows {known}/{len(s['knows'])} arm-sets"
            status.update(safe(text))

        yield line


@contextmanager
def _client_line(quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    def text(p: Any) -> str:
        left = f", about {p.left:.0f} s to its next message" if p.left else ""
        online = "" if p.online else " (offline: it reports when the network is back)"
        speed = f", {p.speed:,.0f}/s" if p.speed else ""
        state = "waits for the server" if p.state == "reported" else p.state
        messages = "1 message" if p.messages == 1 else f"{p.messages:,} messages"
        return safe(f"{p.client}: {state}, {messages}, {p.pulls:,} pulls{speed}{left}{online}")

    if quiet:
        yield None
    elif err.is_terminal:
        with err.status("starting") as status:
            yield lambda p: status.update(text(p))
    else:
        last: list[Any] = [-math.inf, None, None]  # when, whether online, what it does and has said

        def line(p: Any) -> None:
            now, doing = time.monotonic(), (p.state, p.messages)
            pause = NEWS_SECONDS if doing != last[2] else LINE_SECONDS
            if now - last[0] > pause or p.online != last[1]:
                last[:] = [now, p.online, doing]
                err.print(text(p), soft_wrap=True)

        yield line


if __name__ == "__main__":
    main()
