"""``bestarm study``: many seeded trials, in processes here or on a Dask cluster."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from bestarm.cli.exit_codes import INTERRUPTED, OK
from bestarm.cli.options import (
    Force,
    Json,
    MethodOption,
    ScenarioPath,
    Workers,
    check_folder,
    given,
    with_options,
)
from bestarm.cli.render.progress import study_progress
from bestarm.cli.render.record import show_data
from bestarm.cli.render.study import show_study
from bestarm.cli.scenario_warnings import load_asked, warn_of_ties
from bestarm.cli.terminal import err, out, safe
from bestarm.errors import InputError
from bestarm.study.study import StudyInterrupted
from bestarm.study.study import study as run_study


@with_options
def study(
    scenario: ScenarioPath,
    trials: Annotated[int, typer.Option(help="trials for each combination of the varied keys")],
    method: MethodOption = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,…", help="run every value of a key; may be given several times"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="the same seed gives the same numbers")] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="one row per trial: .csv, .jsonl or .parquet; the settings go to FILE.json",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume an interrupted study")] = False,
    workers: Workers = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="run on the Dask cluster with this scheduler"),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Run many seeded trials and summarise them, with error bars and, where it applies, the limit."""
    chosen = given(options)
    values = _varied(vary or [])
    check_folder(save)
    loaded, chosen = load_asked(scenario, chosen)
    warn_of_ties(loaded, method, {**loaded.options, **chosen, **values})
    try:
        with cluster(dask) as executor, study_progress(quiet=as_json) as watch:
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
        return interrupted(stopped)
    if as_json:
        print(json.dumps({"seed": done.seed, "trials": trials, "cells": done.summary()}))
    else:
        show_study(done)
        show_data(loaded.problem.data)
        if save is not None:
            out.print(f"rows: {safe(str(save))}", soft_wrap=True)
    return OK


def interrupted(stopped: StudyInterrupted) -> int:
    """Say what is kept of a study that was interrupted; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending: an impatient second Ctrl-C changes nothing
    kept = f"finished blocks are in {stopped.kept}: resume with --resume"
    err.print(f"interrupted; {safe(kept) if stopped.kept else 'nothing is saved'}", soft_wrap=True)
    return INTERRUPTED


def _varied(texts: list[str]) -> dict[str, list[Any]]:
    """The values of each key that --vary names."""
    values: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, several = text.partition("=")
        if not equals or not key or not several:
            raise InputError(f'--vary "{text}" can\'t be read', expected="KEY=A,B,…, such as period=100,200")
        key = key.strip().replace("-", "_")
        if key in values:
            raise InputError(f"--vary {key} is given twice", expected="one list of values for each key")
        values[key] = [_value(value.strip()) for value in several.split(",")]
    return values


def _value(text: str) -> bool | int | float | str | None:
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


@contextmanager
def cluster(address: str | None) -> Iterator[Executor | None]:
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
