"""``bestarm experiment``: create, serve, look at and end a live experiment."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from bestarm.cli.exit_codes import INTERRUPTED, OK, UNDECIDED
from bestarm.cli.options import Json
from bestarm.cli.terminal import out, remark, safe, say, warn
from bestarm.errors import InputError
from bestarm.util.durations import in_seconds
from bestarm.util.loopback import is_loopback
from bestarm.util.text import counted

RATE = 1_000.0  # the default of deploy.experiment.limits, which a test compares
app = typer.Typer(help="Live experiments: assignment over HTTP, late rewards.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder of the experiment")]


def duration(text: str | None) -> float | None:
    """Seconds, from a text such as "90s", "15m", "24h" or "7d"."""
    return None if text is None else in_seconds(text)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a new folder")],
    option: Annotated[list[str], typer.Option(metavar="NAME", help="an option; give it at least twice")],
    site: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="a site; once for each [default: one]")
    ] = None,
    question: Annotated[str, typer.Option(help="overall, each, control or anywhere")] = "overall",
    control: Annotated[str | None, typer.Option(help="the option that others are compared with")] = None,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="SITE=NUMBER", help="the weight of a site; once for each")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help='weights of the sites: equal, or "us=3,eu=1" [default: equal]')
    ] = None,
    also: Annotated[
        str | None, typer.Option(help="with overall: each, to answer for every site as well")
    ] = None,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="with each: one delta for all sites together")
    ] = False,
    delta: Annotated[float, typer.Option(help="probability of a wrong answer, at most")] = 0.05,
    deadline: Annotated[
        str | None, typer.Option(help="when a missing reward counts as --missing: 90s, 24h, 7d")
    ] = None,
    missing: Annotated[float | None, typer.Option(help="what a missing reward counts as")] = None,
    after: Annotated[str, typer.Option(help="after the verdict: winner or stop")] = "winner",
    low: Annotated[float, typer.Option(help="the smallest possible reward")] = 0.0,
    high: Annotated[float, typer.Option(help="the largest possible reward")] = 1.0,
    goal: Annotated[str, typer.Option(help="max or min: which rewards are better")] = "max",
    unit: Annotated[str, typer.Option(help="what rewards are measured in, such as ms")] = "",
    binary: Annotated[bool, typer.Option("--binary", help="every reward is 0 or 1")] = False,
    margin: Annotated[float | None, typer.Option(help="lead over the control that does not matter")] = None,
    prefer: Annotated[str | None, typer.Option(help="what to save: balanced, pulls or rounds")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the order of assignments")] = None,
    as_json: Json = False,
) -> int:
    """Create an experiment and show its first caller's token, once."""
    from bestarm.deploy.experiment import folder as place
    from bestarm.deploy.experiment.settings import make_settings

    if (deadline is None) != (missing is None):
        raise InputError(
            "one of --deadline and --missing is given without the other",
            expected="both or none: a reward that has not come by the deadline counts as --missing",
            fix="For example: --deadline 24h --missing 0",
        )
    chosen: dict[str, Any] = {"control": control, "margin": margin, "prefer": prefer}
    keys = {key: value for key, value in chosen.items() if value is not None}
    if weight and weights is not None:
        raise InputError("both --weight and --weights are given", expected="one of them")
    named = weight or ([] if weights in (None, "equal") else str(weights).split(","))
    if named:
        keys["weights"] = dict(_weight(text, "--weight" if weight else "--weights") for text in named)
    if also is not None:
        keys["also"] = also
    if simultaneous:
        keys["simultaneous"] = True
    settings = make_settings(
        option, site, question, delta=delta, bounds=(low, high), goal=goal, unit=unit, binary=binary,
        deadline=duration(deadline), missing=missing, after=after, seed=seed, keys=keys,
        name=folder.resolve().name,
    )  # fmt: skip
    token = place.create(folder, settings)
    text = (
        f"{folder} is ready. Programs that call it need the token of a caller. That of the first one "
        f"({place.FIRST_CALLER}) is not shown again:"
    )
    say({"folder": str(folder), "caller": place.FIRST_CALLER, "token": token}, text, as_json)
    if not as_json:
        out.print(token, soft_wrap=True)
        out.print(
            f"next: bestarm experiment serve {safe(shlex.quote(str(folder)))} --port 8933", soft_wrap=True
        )
    return OK


def _weight(text: str, flag: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise InputError(f'{flag} "{text}"', expected="SITE=NUMBER, such as us=2") from None


@app.command()
def key(folder: Folder, as_json: Json = False) -> int:
    """Print the secret key that signs webhooks, in hexadecimal."""
    from bestarm.deploy.experiment import folder as place
    from bestarm.deploy.experiment import ledger

    with ledger.open_journal(place.journal_of(folder), write=False) as journal:
        found = ledger.settings_of(journal).key
    return say({"key": found}, found, as_json)


@app.command()
def caller(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the name of a caller")],
    remove: Annotated[bool, typer.Option("--remove", help="revoke its token")] = False,
    as_json: Json = False,
) -> int:
    """Add a caller and show its token, once; or remove one. A running server notices within seconds."""
    from bestarm.deploy.experiment import folder as place

    place.journal_of(folder)
    callers = place.callers_of(folder)
    if remove:
        callers.remove(name)
        return say({"removed": name}, f"{name} can no longer call", as_json)
    token = callers.add(name)
    return say({"caller": name, "token": token}, f"the token of {name}, not shown again: {token}", as_json)


@app.command()
def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port [default: a free one]")] = 0,
    webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="send the verdict, alarms and stalled sites to this address"),
    ] = None,
    stalled_after: Annotated[
        str, typer.Option(help="how long a site may hold up a block before it counts as stalled: 15m, 24h")
    ] = "24h",
    rate: Annotated[float, typer.Option(help="requests per second of one caller; inf for no limit")] = RATE,
    as_json: Json = False,
) -> int:
    """Serve an experiment over HTTP. If it is stopped or killed, run it again to resume."""
    from bestarm.deploy.experiment.serve import serve as run
    from bestarm.deploy.logs import Logs
    from bestarm.deploy.process import Interrupted as Stopped
    from bestarm.deploy.process import until_stopped
    from bestarm.report.experiment import page_of

    Logs().start()

    def ready(url: str) -> None:
        text = f"serving {folder} at {url} (press Ctrl-C to stop); its page: {url}/?token=TOKEN"
        say({"url": url, "folder": str(folder)}, text, as_json)
        sys.stdout.flush()
        if not is_loopback(host):
            warn(["this is plain HTTP: put a proxy with TLS in front of it, or tokens can be read"])

    with suppress(Stopped):
        until_stopped(
            run(
                folder,
                host=host,
                port=port,
                webhooks=webhook or (),
                stalled=duration(stalled_after),
                rate=rate,
                pages=page_of,
                ready=ready,
            )
        )
    remark("stopped; run it again to resume")
    return INTERRUPTED


@app.command()
def status(folder: Folder, as_json: Json = False) -> int:
    """Show what an experiment looks like now, also while it is served."""
    from bestarm.deploy.experiment.alarms import TEXT, Watch
    from bestarm.deploy.experiment.folder import read
    from bestarm.deploy.experiment.status import status_of
    from bestarm.report.experiment import headline, summary

    engine = read(folder)
    found, alarms = status_of(engine, time.time()), Watch(engine).alarms()
    if as_json:
        print(json.dumps({**msgspec.to_builtins(found), "alarms": msgspec.to_builtins(alarms)}))
    else:
        out.print(safe(headline(found)), soft_wrap=True)
        if found.risk:
            out.print(safe(found.risk), soft_wrap=True)
        for line in summary(found):
            out.print(f"- {safe(line)}", soft_wrap=True)
        for site in found.sites:
            counts = (
                f"{site.assigned:,} assigned, {counted(site.told, 'reward')}, {site.open:,} open, "
                f"{site.filled:,} missing, {site.late:,} late"
            )
            pace = "" if math.isnan(site.per_hour) else f", {site.per_hour:,.0f} per hour"
            out.print(f"{safe(site.site)}: {counts}{pace}", soft_wrap=True)
        if found.state != "running":
            for command in ("verify", "report"):
                out.print(f"next: bestarm {command} {safe(shlex.quote(str(folder)))}", soft_wrap=True)
        warn([f"{alarm.cell}: {TEXT[alarm.kind]}" for alarm in alarms])
    return UNDECIDED if found.state == "undecided" else OK


@app.command()
def stop(folder: Folder, as_json: Json = False) -> int:
    """End an experiment: without an answer so far, it is undecided. Nobody can resume it."""
    from bestarm.deploy.experiment import folder as place
    from bestarm.deploy.experiment.experiment import Experiment
    from bestarm.util.files import write

    journal = place.journal_of(folder)
    try:
        experiment = Experiment.open(journal)
    except InputError:
        request = journal.parent / place.STOP
        write(request, b"")  # its server is running, and looks for this file
        for _ in range(100):
            time.sleep(0.1)
            if not request.exists():
                break
        else:
            request.unlink(missing_ok=True)
            raise
        engine = place.read(folder)
        verdict = engine.verdict
    else:
        with experiment:
            verdict = experiment.stop()
            experiment.record().save(journal.parent / place.RECORD)
    answer = verdict.summary if verdict is not None else None
    text = f"the answer is: {answer}" if answer else "the experiment ended undecided"
    say({"answer": answer, "record": str(journal.parent / place.RECORD)}, text, as_json)
    return OK if answer else UNDECIDED
