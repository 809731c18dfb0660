"""``bestarm arena``: methods and baselines on named instances, in one table and one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bestarm.cli.exit_codes import OK
from bestarm.cli.options import Json, Workers
from bestarm.cli.render.arena import show_arena, show_choices
from bestarm.cli.render.progress import study_progress
from bestarm.cli.study import cluster, interrupted
from bestarm.cli.terminal import out, safe
from bestarm.errors import InputError
from bestarm.problem.instances import instances as named_instances
from bestarm.study.arena.entrants import everyone
from bestarm.study.arena.run import HEADLINE, MOST
from bestarm.study.arena.run import arena as run_arena
from bestarm.study.study import StudyInterrupted


def arena(
    methods: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="methods and baselines, such as bet:prefer=pulls [default: all]"),
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="named instances or scenario files [default: the headline ones]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="the probability of a wrong answer")] = 0.05,
    trials: Annotated[int, typer.Option(help="runs of each method on each instance")] = 100,
    seed: Annotated[int, typer.Option(help="the same seed gives the same numbers")] = 1,
    most: Annotated[int, typer.Option(help="pulls after which a baseline's run ends undecided")] = MOST,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="write index.html, cells.csv, trials.csv and arena.json"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume an interrupted arena in --out")] = False,
    workers: Workers = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="run on the Dask cluster with this scheduler")
    ] = None,
    choices: Annotated[bool, typer.Option("--list", help="list methods, baselines and instances")] = False,
    as_json: Json = False,
) -> int:
    """Compare methods and baselines on named instances, with each other and with the information limit."""
    if choices:
        if as_json:
            known = {"methods": [one.label for one in everyone()], "instances": list(named_instances())}
            print(json.dumps({**known, "headline": list(HEADLINE)}))
        else:
            show_choices(everyone(), named_instances(), HEADLINE)
        return OK
    try:
        with cluster(dask) as executor, study_progress(quiet=as_json) as watch:
            found = run_arena(
                _names(methods, "--methods"),
                _names(instances, "--instances"),
                delta=delta,
                trials=trials,
                seed=seed,
                most=most,
                out=folder,
                resume=resume,
                executor=executor,
                workers=workers,
                watch=watch,
            )
    except StudyInterrupted as stopped:
        return interrupted(stopped)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        show_arena(found)
        if folder is not None:
            out.print(f"page: {safe(str(folder / 'index.html'))}", soft_wrap=True)
    return OK


def _names(text: str | None, flag: str) -> list[str] | None:
    """The names in a list with commas, or None for the default."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f'{flag} "{text}" can\'t be read', expected="names with commas between them")
    return names
