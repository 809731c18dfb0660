"""``bestarm plan``: what runs will cost, before they are made."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bestarm.cli.exit_codes import INTERRUPTED, OK
from bestarm.cli.options import Json, MethodOption, given, with_options
from bestarm.cli.render.plan import show_plan, show_schedule
from bestarm.cli.render.progress import plan_progress
from bestarm.cli.scenario_warnings import load_asked
from bestarm.cli.terminal import err
from bestarm.errors import InputError
from bestarm.simulate.setup import Scenario


@with_options
def plan(
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="[SCENARIO.toml]", help="a scenario with known or guessed means"),
    ] = None,
    gaps: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP=GAP,GAP;…",
            help="instead of a scenario: how far each arm is below the best, such as north=0,0.1;south=0.05",
        ),
    ] = None,
    method: MethodOption = None,
    trials: Annotated[int, typer.Option(help="simulated runs behind each number")] = 1000,
    seed: Annotated[int | None, typer.Option(help="the same seed gives the same plan")] = None,
    max_bits: Annotated[
        int | None,
        typer.Option(help="bits up and down: find the schedule most likely to end within them"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="costs only: no budgets, no advice")] = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Say what runs will cost: pulls, rounds, time, bits, the proved bounds, the limit on pulls, and advice.

    With --max-rounds or --max-bits also: the schedule that is most likely to end within them.
    """
    from bestarm.study.plan import plan as make_plan
    from bestarm.study.plan_setup import problem_from_gaps
    from bestarm.study.schedule import schedule

    chosen = given(options)
    limits = {"max_rounds": chosen.pop("max_rounds", None), "max_bits": max_bits}
    guessed = None if gaps is None else _parse_gaps(gaps)
    if scenario is not None and gaps is not None:
        raise InputError("give either a scenario or --gaps, not both")
    if guessed is not None:
        loaded = Scenario(problem_from_gaps(guessed))
    elif scenario is not None:
        loaded, chosen = load_asked(scenario, chosen)
    else:
        raise InputError("neither a scenario nor --gaps was given", expected="a scenario file or --gaps")
    try:
        with plan_progress(quiet=as_json) as watch:
            methods = None if method is None else [method]
            keys: dict[str, Any] = {"trials": trials, "seed": seed, "methods": methods, "watch": watch}
            found = make_plan(guessed or loaded, quick=quick, **keys, **chosen)
            keys["seed"] = found.seed
            limited = any(most is not None for most in limits.values())
            best = schedule(loaded, **limits, **keys, **chosen) if limited else None
    except KeyboardInterrupt:
        err.print("interrupted; a plan saves nothing")
        return INTERRUPTED
    if as_json:
        print(json.dumps({**found.to_dict(), "schedule": dataclasses.asdict(best) if best else None}))
        return OK
    show_plan(found)
    if best is not None:
        show_schedule(best, limits)
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
                expected='GROUP=GAP,GAP,… with each group once, separated by ";"',
            )
        found[name] = numbers
    return found
