"""The JSON schemas of what commands print with --json, apart from records and evidence.

Each class, here or in ``json_results.py``, is the shape of one object; ``output_schema`` makes a schema from
it. Records have ``bestarm.record_schema``. docs/json.md lists every field, and a test validates real output.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bestarm.cli.json_results import RESULTS, SAME
from bestarm.deploy.experiment.status import Status
from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.stats.alarms import Alarm
from bestarm.study.arena.result import Arena
from bestarm.study.forecast import Chance, Cost
from bestarm.study.schedule import Schedule
from bestarm.util.text import nearest


class PlanLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The information limit."""

    total: float | None
    longest: float | None
    coins: bool


class Indices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much groups differ."""

    groups: tuple[str, ...]
    sigma: tuple[tuple[float | None, ...], ...]
    local_gaps: tuple[float | None, ...]
    global_gaps: tuple[float | None, ...]


class PlanBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a theorem proves about the costs."""

    rounds: float | None
    one_round: bool
    pulls_least: float | None
    pulls_most: float | None
    longest_most: float | None
    by_group: tuple[dict[str, str | float | None], ...]


class PlanRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The forecast of one method."""

    name: str
    method: str
    options: dict[str, str | float | bool | None]
    cost: Cost | None
    bounds: PlanBounds | None
    enough: Chance | None
    at_budget: Chance | None
    trials: int
    why_not: str
    unproved: str


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``bestarm plan --json`` prints."""

    delta: float
    trials: int
    seed: int
    budget: int | None
    heterogeneity: Indices
    limit: PlanLimit | None
    no_limit: str
    methods: tuple[PlanRow, ...]
    advice: tuple[str, ...]
    left_out: dict[str, str]
    assumption: str
    schedule: Schedule | None


class CellCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cost over the trials of a cell."""

    mean: float
    mean_interval: tuple[float, float] | None
    median: float
    median_interval: tuple[float, float] | None
    sd: float | None


class StudyCell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the varied keys, which are further fields."""

    trials: int
    undecided: int
    errors: int | msgspec.UnsetType = msgspec.UNSET
    error_rate: float | msgspec.UnsetType = msgspec.UNSET
    error_rate_interval: tuple[float, float] | msgspec.UnsetType = msgspec.UNSET
    rounds: CellCost
    time: CellCost
    pulls_total: CellCost
    pulls_phase1: CellCost
    pulls_phase2: CellCost
    pulls_max: CellCost
    bits_up: CellCost
    bits_down: CellCost
    limit: PlanLimit | None
    no_limit: str
    unproved: str


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``bestarm study --json`` prints."""

    seed: int
    trials: int
    cells: tuple[StudyCell, ...]


class NetworkCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``bestarm network --json`` prints."""

    nodes: int
    edges: int
    robustness: dict[str, float | None]
    tolerance: dict[str, int]
    weakest: str
    witness: tuple[str | int, ...]
    add: tuple[tuple[str | int, str | int], ...] | None
    remedy: str | None


class ScenarioCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``bestarm check --json`` prints."""

    ok: bool
    groups: int
    arms: int
    clients: int
    question: str
    asked_silently: bool
    method: str
    refused: str | None
    warnings: tuple[str, ...]
    data: Data | None


class ExperimentStatus(Status, frozen=True, kw_only=True, forbid_unknown_fields=True):
    __doc__ = Status.__doc__
    alarms: tuple[Alarm, ...]


OUTPUTS: dict[str, type] = {
    "plan": Plan,
    "arena": Arena,
    "study": Study,
    "network": NetworkCheck,
    "check": ScenarioCheck,
    "experiment status": ExperimentStatus,
    **RESULTS,
}


def output_schema(command: str) -> dict[str, Any]:
    """Return the JSON schema of what a command prints with --json; that of "arena" is also arena.json's.

    Parameters
    ----------
    command : str
        Such as "plan" or "experiment status".

    Returns
    -------
    dict
        A schema of JSON Schema 2020-12.

    Raises
    ------
    InputError
        If there is no schema for this command.

    Examples
    --------
    >>> sorted(output_schema("arena")["$defs"])
    ['Arena', 'Entry', 'Ground', 'LeftOut', 'Mean', 'Score']
    """
    command = SAME.get(command, command)
    if command not in OUTPUTS:
        raise InputError(f'there is no schema for "{command}"', fix=nearest(command, list(OUTPUTS)))
    made = json.loads(msgspec.json.encode(msgspec.json.schema(OUTPUTS[command])))
    title = f"Output of bestarm {command} --json"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}
