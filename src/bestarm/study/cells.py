"""The cells of a study, and how to run one block of a cell's trials."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph
from bestarm.problem.problem import Problem
from bestarm.problem.truth import truth
from bestarm.protocol.kernel import Columns
from bestarm.protocol.options import on_unit_scale
from bestarm.protocol.registry import METHODS, method_for, options_for
from bestarm.records.record import Record
from bestarm.simulate.adversary import Adversary, check_adversaries, refuse_attacks
from bestarm.simulate.identify import check_network, prepare, run_of
from bestarm.simulate.network import Network
from bestarm.simulate.setup import Scenario
from bestarm.study.kernels import kernel_for
from bestarm.util.seeds import seed_within, stream
from bestarm.util.text import nearest, shorten

COLUMNS = (
    "status", "arm", "correct", "good_event", "rounds", "time", "pulls_total", "pulls_phase1", "pulls_phase2",
    "pulls_max", "bits_up", "bits_down", "reason",
)  # fmt: skip

NUMBERS = (
    "rounds", "time", "pulls_total", "pulls_phase1", "pulls_phase2", "pulls_max", "bits_up", "bits_down",
)  # fmt: skip
MOST_TRIALS = 1024  # in a block; fewer for large problems, so that a block stays small
MOST_PAIRS = 1 << 17
Family = Callable[..., Problem]


class Runnable(Protocol):
    """What a study or an arena runs in blocks: a problem with everything that is done to it."""

    @property
    def keys(self) -> dict[str, Any]:
        """What tells this cell from the others; its random stream depends on it."""

    @property
    def problem(self) -> Problem:
        """The problem of the runs."""

    def blocks(self, trials: int) -> list[tuple[int, int]]:
        """(first trial, number of trials) of each block."""

    def run(self, seed: int, block: int, size: int) -> Columns:
        """The columns of one block of trials. A pure function of its arguments."""

    def identity(self) -> list[Any]:
        """Everything that must agree for the blocks of an earlier study to be reused, for JSON."""


@dataclass(frozen=True)
class Cell:
    """One combination of the varied keys, ready to run."""

    keys: dict[str, Any]
    problem: Problem
    method: str
    options: Any
    adversaries: tuple[Adversary, ...] = ()
    network: Network | None = None

    @property
    def stream(self) -> int:
        """A number that depends only on these keys, not on the other cells of the study."""
        return stream_of(self.keys)

    @property
    def unit(self) -> Any:
        """The options as the machines take them."""
        return on_unit_scale(self.options, self.problem.scale)

    @property
    def kernel(self) -> Any:
        return kernel_for(self.method, self.problem, self.options, self.adversaries)

    def blocks(self, trials: int) -> list[tuple[int, int]]:
        """(first trial, number of trials) of each block; blocks are of nearly equal, limited size."""
        return blocks_of(trials, self.problem if self.kernel else None)

    def run(self, seed: int, block: int, size: int) -> Columns:
        """The columns of one block of trials. A pure function of its arguments."""
        if self.kernel:
            columns, _ = self.kernel(self.problem, self.unit, _stream(self, seed, block), size)
        else:
            rows = [_row(_by_machines(self, _trial_seed(self, seed, block, i))) for i in range(size)]
            columns = {
                name: _array(name, [row[name] for row in rows]) for name in COLUMNS if name != "correct"
            }
        columns["correct"] = _correct(self, columns["arm"])
        return {name: columns[name] for name in COLUMNS}

    def identity(self) -> list[Any]:
        """Everything that must agree for a block of an earlier study to be reused."""
        network = self.network
        return [
            self.keys,
            self.method,
            vars(self.options),
            self.problem.to_dict(),
            [adversary.to_dict(self.problem.layout) for adversary in self.adversaries],
            [network.to_dict(), network.placement, network.attack] if network else None,
        ]


def run_block(cell: Runnable, seed: int, block: int, size: int) -> Columns:
    """The columns of one block of trials. A pure function of its arguments."""
    return cell.run(seed, block, size)


def stream_of(keys: dict[str, Any]) -> int:
    """The number of the random stream of a cell with these keys."""
    text = json.dumps(keys, sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def blocks_of(trials: int, problem: Problem | None) -> list[tuple[int, int]]:
    """Blocks of nearly equal, limited size: for a kernel on this problem, or (None) for machines."""
    most = 16
    if problem is not None:
        pairs = sum(len(models) for models in problem.rewards)
        most = max(1, min(MOST_TRIALS, MOST_PAIRS // pairs))
    count = -(-trials // most)
    cuts = [trials * i // count for i in range(count + 1)]
    return [(a, b - a) for a, b in itertools.pairwise(cuts)]


def _stream(cell: Cell, seed: int, block: int) -> np.random.Generator:
    return stream(seed, cell.stream, block)


def _trial_seed(cell: Cell, seed: int, block: int, trial: int) -> int:
    return seed_within(seed, cell.stream, block, trial)


def _by_machines(cell: Cell, seed: int) -> Record:
    run = run_of(cell.problem, cell.method, cell.options, seed, cell.network, adversaries=cell.adversaries)
    run.go()
    return run.record()


def _row(record: Record) -> dict[str, Any]:
    assert record.pulls is not None
    verdict, pulls = record.verdict, record.pulls
    return {
        "status": verdict.status,
        "arm": verdict.summary,
        "good_event": record.good_event,
        "rounds": record.rounds,
        "time": record.time,
        "pulls_total": pulls.total,
        "pulls_phase1": pulls.phase1,
        "pulls_phase2": pulls.phase2,
        "pulls_max": pulls.max_per_client,
        "bits_up": record.bits.up,
        "bits_down": record.bits.down,
        "reason": verdict.reason,
    }


def _correct(cell: Cell, arms: NDArray[Any]) -> NDArray[Any]:
    """True, False, or None where true means are unknown; an arm within ε of the best is correct."""
    if cell.problem.layout.question.kind != "anywhere":
        right = truth(cell.problem, getattr(cell.unit, "margin", 0.0))
        return np.array([None if right is None else arm == right for arm in arms], dtype=object)
    means = {
        cell.problem.layout.arm(j, a): mean
        for j, row in enumerate(cell.problem.means)
        for a, mean in enumerate(row)
    }
    if any(mean is None for mean in means.values()):
        return np.full(len(arms), None, dtype=object)
    least = max(mean for mean in means.values() if mean is not None) - cell.unit.epsilon
    close = {name for name, mean in means.items() if mean is not None and mean >= least}
    return np.array([arm in close for arm in arms], dtype=object)


def _array(name: str, values: Sequence[Any]) -> NDArray[Any]:
    return np.array(values, dtype=np.int64 if name in NUMBERS else object)


def _cells(
    problem: Problem | Scenario | Family,
    method: str | None,
    vary: dict[str, Sequence[Any]],
    options: dict[str, Any],
    adversaries: Sequence[Adversary],
    network: Network | Graph | None,
    force: bool,
) -> Iterator[Cell]:
    family = problem.family if isinstance(problem, Scenario) else problem if callable(problem) else None
    parameters = list(inspect.signature(family).parameters) if family else []
    for key, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise InputError(f"vary {key} = {shorten(values)}", expected="a list of at least one value")
        known = {field.name for m in METHODS.values() for field in dataclasses.fields(m.options)} | {
            "method",
            *(["attack"] if adversaries else []),
            *parameters,
        }
        if key not in known:
            raise InputError(f'"{key}" can\'t be varied here', fix=nearest(key, known))
        plain = [value.item() if isinstance(value, np.generic) else value for value in values]
        for value in plain:
            if not isinstance(value, str | int | float | None):
                raise InputError(
                    f"vary {key} = {shorten(value)}", expected="numbers, words, true, false or none"
                )
        if len(set(plain)) < len(plain):
            raise InputError(f"vary {key} contains a value twice", expected="each value once")
        vary[key] = plain
    for values in itertools.product(*vary.values()):
        keys = dict(zip(vary, values, strict=True))
        own = {key: value for key, value in keys.items() if key in parameters}
        base: Any = problem
        if own or (callable(problem) and not isinstance(problem, Scenario)):
            assert family is not None
            made = family(**own)
            if isinstance(problem, Scenario):
                question = problem.problem.layout.question
                made = dataclasses.replace(made, layout=dataclasses.replace(made.layout, question=question))
            base = (
                Scenario(made, problem.method, None, problem.options, problem.adversaries)
                if isinstance(problem, Scenario)
                else made
            )
        rest = {
            **options,
            **{key: value for key, value in keys.items() if key not in (*own, "method", "attack")},
        }
        if "method" in vary:  # a key may belong to only one of the methods
            rest = options_for(keys["method"], rest)
        liars = tuple(
            dataclasses.replace(adversary, attack=keys.get("attack", adversary.attack))
            for adversary in adversaries
        )
        ready = prepare(base, keys.get("method", method), rest, liars=bool(liars))
        ready[0].demand_rewards()
        check_adversaries(ready[0].layout, liars)
        refuse_attacks(method_for(ready[1], ready[0].layout, ready[2]), ready[2], liars)
        yield Cell(keys, *ready, liars, check_network(*ready, network, force, liars))
