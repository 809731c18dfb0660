"""The settings of a study, in a file beside its rows: everything that it takes to run a trial again.

The rows of ``sweep.csv`` have their settings in ``sweep.csv.json``: seed, trials, the problem of each cell,
its method, options, liars and network, and the digest of the rows that they belong to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.protocol.options import make
from bestarm.protocol.registry import method_named
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.network import Network
from bestarm.study.cells import Cell
from bestarm.util import files
from bestarm.version import __version__

FORMAT = 1


class CellSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A cell; `problem` is its place among the problems of the study."""

    keys: dict[str, str | int | float | bool | None]
    method: str
    options: dict[str, Any]
    problem: int
    adversaries: list[dict[str, Any]]
    network: dict[str, Any] | None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a study; `rows` is the digest of the file with its rows."""

    format: int
    version: str
    rows: str
    seed: int
    trials: int
    varied: list[str]
    problems: list[dict[str, Any]]
    cells: list[CellSettings]


def place_of(rows: Path) -> Path:
    """The file with the settings of the study that has these rows."""
    return rows.with_name(f"{rows.name}.json")


def write(rows: Path, cells: Sequence[Cell], seed: int, trials: int, varied: Sequence[str]) -> None:
    """Write the settings beside the rows, which are already there."""
    problems: list[dict[str, Any]] = []
    found = []
    for cell in cells:
        plain = cell.problem.to_dict()
        if plain not in problems:
            problems.append(plain)
        network = None
        if (on := cell.network) is not None:
            network = {**on.to_dict(), "placement": on.placement, "attack": on.attack}
        found.append(
            CellSettings(
                keys=cell.keys,
                method=cell.method,
                options=dict(vars(cell.options)),
                problem=problems.index(plain),
                adversaries=[adversary.to_dict(cell.problem.layout) for adversary in cell.adversaries],
                network=network,
            )
        )
    kept = Settings(
        format=FORMAT,
        version=__version__,
        rows=_digest(rows),
        seed=seed,
        trials=trials,
        varied=list(varied),
        problems=problems,
        cells=found,
    )
    files.write(place_of(rows), msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def read(rows: Path) -> tuple[Settings | None, str]:
    """The settings of the study that has these rows; or None, and why they are not known."""
    place = place_of(rows)
    try:
        found = msgspec.json.decode(place.read_bytes(), type=Settings)
    except FileNotFoundError:
        return None, f"{place.name}, which has the settings of the study, is not beside {rows.name}"
    except (OSError, msgspec.DecodeError):
        return None, f"{place.name} can't be read as the settings of a study"
    if found.format != FORMAT:
        return None, f"{place.name} has the format {found.format} of another version of bestarm"
    if found.rows != _digest(rows):
        return None, f"{rows.name} has changed since {place.name} was written"
    return found, ""


def cells_of(kept: Settings) -> tuple[Cell, ...]:
    """The cells of a study, ready to run; InputError if they can't be made again."""
    try:
        problems = [Problem.from_dict(plain) for plain in kept.problems]
        return tuple(_cell(cell, problems[cell.problem]) for cell in kept.cells)
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"its settings can't be used: {error}") from None


def _cell(kept: CellSettings, problem: Problem) -> Cell:
    method = method_named(kept.method)
    return Cell(
        kept.keys,
        problem,
        kept.method,
        make(method.options, kept.options),
        tuple(Adversary(**plain) for plain in kept.adversaries),
        None if kept.network is None else Network.from_dict(kept.network),
    )


def _digest(rows: Path) -> str:
    return hashlib.sha256(rows.read_bytes()).hexdigest()
