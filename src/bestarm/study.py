"""Studies: many seeded trials, in fixed blocks, on any ``concurrent.futures`` executor.

A study is a grid of *cells* (one for each combination of the varied keys); a cell's trials are cut into
blocks, and a block has one random stream that depends on seed, cell and block alone. So the numbers don't
depend on who computes them, in which order, or on which other cells are in the study. A block runs through
a batched kernel where the method has one for these options, else through the machines, trial by trial.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import inspect
import itertools
import json
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.adversary import Adversary, check_adversaries
from bestarm.errors import InputError, nearest, shorten
from bestarm.kernels import Columns, Script, kernel_for
from bestarm.network import Network
from bestarm.problem import Problem
from bestarm.protocol import METHODS
from bestarm.record import Record
from bestarm.rewards import stream
from bestarm.scenario import Scenario
from bestarm.simulate import (
    Run,
    Scripted,
    check_network,
    check_seed,
    on_unit_scale,
    options_for,
    prepare,
    run_of,
)
from bestarm.theory import limit
from bestarm.topology import Graph
from bestarm.version import __version__

COLUMNS = (
    "status", "arm", "correct", "good_event", "rounds", "pulls_total", "pulls_phase1", "pulls_phase2",
    "pulls_max", "bits_up", "bits_down", "reason",
)  # fmt: skip
NUMBERS = ("rounds", "pulls_total", "pulls_phase1", "pulls_phase2", "pulls_max", "bits_up", "bits_down")
MOST_TRIALS = 1024  # in a block; fewer for large problems, so that a block stays small
MOST_PAIRS = 1 << 17
MOST_WAITING = 1000  # blocks that an executor holds at a time
PATIENCE = 0.2  # seconds until an interrupt is looked for
LIMIT_ARMS = 20_000  # above this a summary leaves out the limit, which would take longer than the study

Family = Callable[..., Problem]


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
        """A number that belongs to these keys, whatever else is in the study."""
        text = json.dumps(self.keys, sort_keys=True, default=str).encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")

    @property
    def unit(self) -> Any:
        """The options as the machines take them."""
        return on_unit_scale(self.options, self.problem.scale)

    @property
    def kernel(self) -> Any:
        return kernel_for(self.method, self.problem, self.options, self.adversaries)

    def blocks(self, trials: int) -> list[tuple[int, int]]:
        """(first trial, number of trials) of each block: as equal as can be, none too large."""
        pairs = sum(len(models) for models in self.problem.rewards)
        most = max(1, min(MOST_TRIALS, MOST_PAIRS // pairs)) if self.kernel else 16
        count = -(-trials // most)
        cuts = [trials * i // count for i in range(count + 1)]
        return [(a, b - a) for a, b in itertools.pairwise(cuts)]


def run_block(cell: Cell, seed: int, block: int, size: int) -> Columns:
    """The columns of one block of trials. Pure: the same arguments give the same numbers anywhere."""
    if cell.kernel:
        columns, _ = cell.kernel(cell.problem, cell.unit, _stream(cell, seed, block), size)
    else:
        rows = [_row(_by_machines(cell, _trial_seed(cell, seed, block, i))) for i in range(size)]
        columns = {name: _array(name, [row[name] for row in rows]) for name in COLUMNS if name != "correct"}
    columns["correct"] = _correct(cell, columns["arm"])
    return {name: columns[name] for name in COLUMNS}


def _stream(cell: Cell, seed: int, block: int) -> np.random.Generator:
    return stream(seed, cell.stream, block)


def _trial_seed(cell: Cell, seed: int, block: int, trial: int) -> int:
    words = np.random.SeedSequence(seed, spawn_key=(cell.stream, block, trial)).generate_state(2, np.uint32)
    return int(words[0]) << 21 | int(words[1]) >> 11  # 53 bits: exact in every JSON reader


def _by_machines(cell: Cell, seed: int) -> Record:
    run = run_of(cell.problem, cell.method, cell.options, seed, cell.network, adversaries=cell.adversaries)
    run.go()
    return run.record()


def _row(record: Record) -> dict[str, Any]:
    assert record.pulls is not None
    verdict, pulls = record.verdict, record.pulls
    return {
        "status": verdict.status,
        "arm": verdict.arm,
        "good_event": record.good_event,
        "rounds": record.rounds,
        "pulls_total": pulls.total,
        "pulls_phase1": pulls.phase1,
        "pulls_phase2": pulls.phase2,
        "pulls_max": pulls.max_per_client,
        "bits_up": record.bits.up,
        "bits_down": record.bits.down,
        "reason": verdict.reason,
    }


def _correct(cell: Cell, arms: NDArray[Any]) -> NDArray[Any]:
    """True, False, or None where true means are unknown; an arm within ε of the best is right."""
    means = {
        cell.problem.layout.arm(j, a): mean
        for j, row in enumerate(cell.problem.means)
        for a, mean in enumerate(row)
    }
    if any(mean is None for mean in means.values()):
        return np.full(len(arms), None, dtype=object)
    least = max(mean for mean in means.values() if mean is not None) - cell.unit.epsilon
    right = {name for name, mean in means.items() if mean is not None and mean >= least}
    return np.array([arm in right for arm in arms], dtype=object)


def _array(name: str, values: Sequence[Any]) -> NDArray[Any]:
    return np.array(values, dtype=np.int64 if name in NUMBERS else object)


@dataclass(frozen=True)
class Trials:
    """The result of a study: one row a trial. ``trials["rounds"]`` is an array.

    >>> import bestarm as ba
    >>> trials = ba.study(ba.Problem.paper_instance(1), method="fed-sel", trials=20, delta=0.1, seed=7)
    >>> trials["rounds"].mean(), bool(trials["correct"].all())
    (np.float64(1.0), True)
    """

    columns: dict[str, NDArray[Any]]
    varied: tuple[str, ...] = ()
    seed: int = 0
    cells: tuple[Cell, ...] = field(default=(), repr=False)
    trials: int = 0

    def __len__(self) -> int:
        return len(self.columns["trial"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise InputError(f'there is no column "{name}"', fix=nearest(name, self.columns))
        return self.columns[name]

    def record(self, i: int) -> Record:
        """Row i again, through the machines, on the very rewards that the study drew for it."""
        if not 0 <= i < len(self):
            raise InputError(f"there is no row {i}", expected=f"a row from 0 to {len(self) - 1}")
        cell = self.cells[i // self.trials]
        trial = i % self.trials
        blocks = cell.blocks(self.trials)
        block = next(b for b, (start, size) in enumerate(blocks) if start <= trial < start + size)
        start, size = blocks[block]
        if not cell.kernel:
            return _by_machines(cell, _trial_seed(cell, self.seed, block, trial - start))
        script: Script
        _, script = cell.kernel(cell.problem, cell.unit, _stream(cell, self.seed, block), size, trial - start)
        source = Scripted(script)
        run = Run(cell.problem, cell.method, cell.options, None, source, adversaries=cell.adversaries)
        run.go()
        return run.record()

    def summary(self, level: float = 0.95, limits: bool = True) -> list[dict[str, Any]]:
        """For each cell: means and medians with intervals, the error rate with its exact interval, and
        (where true means are known, and unless `limits` is false) the least pulls that any method needs on
        average.
        """
        rows = []
        for keys, mask, cell in self._parts():
            identified = self["status"][mask] == "identified"
            row: dict[str, Any] = {**keys, "trials": len(identified), "undecided": int((~identified).sum())}
            if all(value is not None for value in self["correct"][mask]):
                wrong = int((identified & (self["correct"][mask] == False)).sum())  # noqa: E712
                row["errors"] = wrong
                row["error_rate"] = wrong / row["trials"]
                row["error_rate_interval"] = binomial_interval(wrong, row["trials"], level)
            for name in NUMBERS:
                values = self[name][mask].astype(np.float64)
                row[name] = {
                    "mean": float(values.mean()),
                    "mean_interval": mean_interval(values, level),
                    "median": float(np.median(values)),
                    "median_interval": median_interval(values, level),
                    "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
                }
            row["limit"] = _limit(cell) if limits and cell else None
            rows.append(row)
        return rows

    def _parts(self) -> Iterator[tuple[dict[str, Any], Any, Cell | None]]:
        """The varied keys, the rows and (unless it was read from a file) the cell of each combination."""
        for c, cell in enumerate(self.cells):
            yield cell.keys, slice(c * self.trials, (c + 1) * self.trials), cell
        if not self.cells:
            places: dict[tuple[Any, ...], list[int]] = {}
            for i, values in enumerate(zip(*(self[key] for key in self.varied), strict=True)):
                places.setdefault(values, []).append(i)
            for values, rows in (places or {(): list(range(len(self)))}).items():
                yield dict(zip(self.varied, values, strict=True)), np.array(rows), None

    @staticmethod
    def load(path: str | Path) -> Trials:
        """Read what ``save`` wrote. Rows can be summarised and drawn, not run again."""
        path = Path(path)
        check_format(path)
        try:
            with path.open(encoding="utf-8", newline="") as file:
                if path.suffix == ".parquet":
                    rows = _pyarrow().parquet.read_table(path).to_pylist()
                elif path.suffix == ".jsonl":
                    rows = [json.loads(line) for line in file]
                else:
                    rows = [{k: _cell(k, v) for k, v in row.items()} for row in csv.DictReader(file)]
            names = list(rows[0])
            if missing := [name for name in ("trial", *COLUMNS) if name not in names]:
                raise KeyError(missing[0])
            columns = {name: _array(name, [row[name] for row in rows]) for name in names}
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
        except (ValueError, LookupError, TypeError, AttributeError, csv.Error, OverflowError):
            raise InputError(
                "this is no file of a study",
                where=str(path),
                expected="what bestarm study --out wrote",
                fix="If these are rewards: bestarm new NAME --csv FILE, bestarm run NAME.toml --report FILE",
            ) from None
        varied = tuple(name for name in names if name not in ("trial", *COLUMNS))
        count = max((len(np.unique(columns["trial"].astype(np.int64))), 1))
        return Trials(columns, varied, 0, (), count)

    def plot(self, x: str | None = None, y: str = "pulls_total", ax: Any = None) -> Any:
        """Draw means of `y` with 95 % intervals against the varied key `x` (needs ``bestarm[report]``).

        Further varied keys give a line each. Gives Matplotlib axes.
        """
        from bestarm.report.plots import trials

        return trials(self, x, y, ax)

    def report(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file."""
        from bestarm.report import page

        return page.write(page.of_trials(self), path)

    def _repr_html_(self) -> str:
        from bestarm.report.page import study_fragment

        return study_fragment(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Plain rows."""
        names = list(self.columns)
        lists = [self.columns[name].tolist() for name in names]
        for values in zip(*lists, strict=True):
            yield dict(zip(names, values, strict=True))

    def save(self, path: str | Path) -> Path:
        """Write .csv, .jsonl or .parquet (the latter needs ``bestarm[study]``)."""
        path = Path(path)
        check_format(path)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".parquet":
                _pyarrow().parquet.write_table(
                    _pyarrow().table({k: v.tolist() for k, v in self.columns.items()}), scratch
                )
            else:
                with scratch.open("w", encoding="utf-8", newline="") as file:
                    if path.suffix == ".csv":
                        writer = csv.DictWriter(file, list(self.columns))
                        writer.writeheader()
                        writer.writerows(self.rows())
                    else:
                        file.writelines(json.dumps(row) + "\n" for row in self.rows())
            scratch.replace(path)
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None
        finally:
            scratch.unlink(missing_ok=True)
        return path


def _cell(name: str, text: str) -> Any:
    """A cell of a CSV file as the value that was written."""
    if name in NUMBERS or name == "trial":
        return int(text)
    plain = {"": None, "True": True, "False": False}
    if text in plain:
        return plain[text]
    if name not in COLUMNS:  # a varied key: a number or a word
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(text)
    return text


def _limit(cell: Cell) -> dict[str, float] | None:
    """The limit, where it is one: for an exact answer from 0/1 rewards (or coins), and not too many arms."""
    exact = cell.options.epsilon == 0 and (
        METHODS[cell.method].coins or all(group.binary for group in cell.problem.layout.groups)
    )
    if not exact or sum(cell.problem.layout.arm_counts) > LIMIT_ARMS:
        return None
    try:
        found = limit(cell.problem, cell.options.delta)
    except InputError:
        return None  # a tie, or means that nobody knows
    return {"total": found.total, "longest": found.longest, "coins": found.coins}


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet needs pyarrow, which is not installed",
            fix='Install it with: pip install "bestarm[study]"',
        ) from None
    return pyarrow


def check_format(path: Path) -> None:
    """InputError unless the file's ending names a format that can be written here."""
    if path.suffix not in (".csv", ".jsonl", ".parquet"):
        raise InputError(
            f'"{path.suffix}" names no format', where=str(path), expected=".csv, .jsonl or .parquet"
        )
    if path.suffix == ".parquet":
        _pyarrow()


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval for a probability.

    >>> [round(x, 4) for x in binomial_interval(0, 100)]
    [0.0, 0.0362]
    """
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    low = float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1.0 - tail)) if successes < trials else 1.0
    return low, high


def mean_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float] | None:
    """Student's interval for the mean: right for large samples, whatever their law; None for one value."""
    from scipy.special import stdtrit

    mean, n = float(values.mean()), len(values)
    if n < 2:
        return None
    half = float(stdtrit(n - 1, (1.0 + level) / 2.0) * values.std(ddof=1) / np.sqrt(n))
    return mean - half, mean + half


def median_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float] | None:
    """An interval between two order statistics that holds the median with at least this probability.

    None if there are too few values for one.
    """
    from scipy.special import bdtr

    ranked, n = np.sort(values), len(values)
    # The i-th value (from 0) lies above the median only if at most i values lie below it.
    fits = np.flatnonzero(bdtr(np.arange(n), n, 0.5) <= (1.0 - level) / 2.0)
    if not len(fits):
        return None
    low = int(fits[-1])
    return float(ranked[low]), float(ranked[n - 1 - low])


@dataclass(frozen=True)
class StudyProgress:
    """Trials that are done, and trials in all."""

    done: int
    total: int


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C during a study; `kept` is the file that holds the finished blocks, if there is one."""

    def __init__(self, kept: Path | None) -> None:
        super().__init__("interrupted")
        self.kept = kept


def study(
    problem: Problem | Scenario | Family,
    method: str | None = None,
    *,
    trials: int,
    seed: int | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    adversaries: Sequence[Adversary] | None = None,
    network: Network | Graph | None = None,
    force: bool = False,
    watch: Callable[[StudyProgress], None] | None = None,
    **options: Any,
) -> Trials:
    """Run many seeded trials of a method, for each combination of the values in `vary`.

    `vary` may hold options of the method, ``method`` itself, and the parameters of `problem` where that is
    a function of them, such as ``sigma`` of ``Problem.paper_instance``; with `adversaries` (clients that
    lie, by default the scenario's) also ``attack``. `network` and `force` are as for ``identify``.
    `executor` is any executor of ``concurrent.futures``; without one, `workers` processes are used (all
    cores by default). With `out`, finished blocks are kept beside the file until it is written, and `resume`
    goes on after an interrupt.

    >>> import bestarm as ba
    >>> family, vary = ba.Problem.paper_instance, {"sigma": [1, 2]}
    >>> trials = ba.study(family, "fed-sel", trials=8, seed=1, delta=0.1, vary=vary)
    >>> [(row["sigma"], row["rounds"]["mean"]) for row in trials.summary()]
    [(1, 1.0), (2, 1.0)]
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise InputError(f"trials = {trials!r} can't be used", expected="a whole number of at least 1")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers = {workers!r} can't be used", expected="a whole number of at least 1")
    if resume and out is None:
        raise InputError("resume needs the file to go on with", expected="out, as it was given before")
    if seed is None and isinstance(problem, Scenario):
        seed = problem.seed
    log = _Log(Path(out), resume) if out is not None else None
    seed = check_seed(log.seed if log and seed is None else seed)
    if adversaries is None:
        adversaries = problem.adversaries if isinstance(problem, Scenario) else ()
    if network is None and isinstance(problem, Scenario):
        network = problem.network
    cells = tuple(_cells(problem, method, dict(vary or {}), options, adversaries, network, force))
    tasks = [(c, b, size) for c, cell in enumerate(cells) for b, (_, size) in enumerate(cell.blocks(trials))]
    if log:
        log.begin(cells, trials, seed)
    found: dict[tuple[int, int], Columns] = dict(log.found) if log else {}
    todo = [task for task in tasks if task[:2] not in found]
    done = sum(size for c, b, size in tasks if (c, b) in found)
    total = trials * len(cells)

    def take(task: tuple[int, int, int], columns: Columns) -> None:
        nonlocal done
        if log:
            log.add(task[:2], columns)
        found[task[:2]] = columns
        done += task[2]
        if watch:
            watch(StudyProgress(done, total))

    if watch:
        watch(StudyProgress(done, total))
    try:
        with _executor(executor, workers, len(todo), cells) as pool:
            _run(cells, seed, todo, pool, take)
    except KeyboardInterrupt:
        raise StudyInterrupted(log.path if log else None) from None
    result = _collect(cells, tasks, found, trials, seed, tuple(vary or ()))
    if log:
        result.save(log.out)
        log.remove()
    return result


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
        known = {name for m in METHODS.values() for name in m.options.__dataclass_fields__} | {
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
            raise InputError(f"vary {key} holds a value twice", expected="each value once")
        vary[key] = plain
    for values in itertools.product(*vary.values()):
        keys = dict(zip(vary, values, strict=True))
        own = {key: value for key, value in keys.items() if key in parameters}
        base: Any = problem
        if own or (callable(problem) and not isinstance(problem, Scenario)):
            assert family is not None
            made = family(**own)
            base = (
                Scenario(made, problem.method, None, problem.options, problem.adversaries)
                if isinstance(problem, Scenario)
                else made
            )
        rest = {
            **options,
            **{key: value for key, value in keys.items() if key not in (*own, "method", "attack")},
        }
        if "method" in vary:  # a key may be meant for one of the methods
            rest = options_for(keys["method"], rest)
        liars = tuple(
            dataclasses.replace(adversary, attack=keys.get("attack", adversary.attack))
            for adversary in adversaries
        )
        ready = prepare(base, keys.get("method", method), rest)
        ready[0].demand_rewards()
        check_adversaries(ready[0].layout, liars)
        yield Cell(keys, *ready, liars, check_network(*ready, network, force, liars))


@contextlib.contextmanager
def _executor(
    executor: Executor | None, workers: int | None, tasks: int, cells: Sequence[Cell]
) -> Iterator[Executor | None]:
    """The executor to use; None means right here."""
    if executor is not None:
        yield executor
        return
    count = min(workers or os.cpu_count() or 1, tasks)
    if count <= 1:
        yield None
        return
    try:
        pickle.dumps(cells)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise InputError(
            f"the rewards can't be sent to other processes: {error}",
            fix="Use functions that are defined at the top of a module, or workers=1",
        ) from None
    pool = ProcessPoolExecutor(count, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool
    except BrokenProcessPool:
        raise InputError(
            "the worker processes ended early",
            fix='Start the study under `if __name__ == "__main__":`, or use workers=1',
        ) from None
    except BaseException:
        # Blocks are pure: what a worker has not handed over is not missed. A second Ctrl-C must not hang.
        with _deaf_to_interrupts():
            for process in list(getattr(pool, "_processes", None) or {}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _holding_interrupts() -> Iterator[list[Any]]:
    """Ctrl-C takes effect at the end, and fills the list at once.

    An executor's locks are taken in the main thread; an exception in the midst of that would leave them
    locked for ever.
    """
    held: list[Any] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield held
        return
    signal.signal(signal.SIGINT, lambda *facts: held.append(facts))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        before(*held[0])


def _run(
    cells: Sequence[Cell],
    seed: int,
    todo: Iterable[tuple[int, int, int]],
    pool: Executor | None,
    take: Callable[[tuple[int, int, int], Columns], None],
) -> None:
    if pool is None:
        for task in todo:
            take(task, run_block(cells[task[0]], seed, task[1], task[2]))
        return
    waiting: dict[Future[Columns], tuple[int, int, int]] = {}
    left = iter(todo)
    with _holding_interrupts() as held:
        try:
            while not held:
                for task in itertools.islice(left, MOST_WAITING - len(waiting)):
                    waiting[pool.submit(run_block, cells[task[0]], seed, task[1], task[2])] = task
                if not waiting:
                    break
                for future in wait(waiting, PATIENCE, FIRST_COMPLETED).done:
                    take(waiting.pop(future), future.result())
        finally:
            for future in waiting:
                future.cancel()


def _collect(
    cells: tuple[Cell, ...],
    tasks: Sequence[tuple[int, int, int]],
    found: Mapping[tuple[int, int], Columns],
    trials: int,
    seed: int,
    varied: tuple[str, ...],
) -> Trials:
    columns: dict[str, NDArray[Any]] = {"trial": np.tile(np.arange(trials), len(cells))}
    for key in varied:
        values = np.empty(len(cells), dtype=object)
        values[:] = [cell.keys[key] for cell in cells]
        columns[key] = np.repeat(values, trials)
    for name in COLUMNS:
        columns[name] = np.concatenate([found[task[:2]][name] for task in tasks])
    return Trials(columns, varied, seed, cells, trials)


def _identity(cells: Sequence[Cell], trials: int, seed: int) -> str:
    """What must agree for a block of an earlier study to be a block of this one."""
    facts = [
        [
            cell.keys,
            cell.method,
            vars(cell.options),
            cell.problem.to_dict(),
            [adversary.to_dict(cell.problem.layout) for adversary in cell.adversaries],
            [cell.network.to_dict(), cell.network.placement, cell.network.attack] if cell.network else None,
            cell.blocks(trials),
        ]
        for cell in cells
    ]
    return hashlib.sha256(json.dumps([__version__, trials, seed, facts], default=str).encode()).hexdigest()


class _Log:
    """Finished blocks of a study, one JSON line each, beside the file that they will become.

    The first line says which study it is, and its seed. A line that was cut off by a crash is dropped, and
    its block is run again.
    """

    def __init__(self, out: Path, resume: bool) -> None:
        check_format(out)
        self.out = out
        self.path = out.with_name(out.name + ".part")
        self.found: dict[tuple[int, int], Columns] = {}
        self.lines = self._lines()
        if self.lines and not resume:
            raise InputError(
                "an interrupted study lies there",
                where=str(self.path),
                fix="Go on with --resume, or remove the file",
            )
        if resume and not self.lines and out.exists():
            raise InputError("the study is complete", where=str(out), fix="Leave out --resume to run it anew")
        self.seed: int | None = self.lines[0]["seed"] if self.lines else None

    def _lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        found: list[dict[str, Any]] = []
        try:
            with contextlib.suppress(json.JSONDecodeError):  # the last line may be cut off
                found.extend(map(json.loads, self.path.read_text(encoding="utf-8").splitlines()))
            if not isinstance(found[0]["study"], str) or not isinstance(found[0]["seed"], int):
                raise TypeError
        except (OSError, UnicodeDecodeError, LookupError, TypeError):
            raise InputError(
                "this is no file of an interrupted study", where=str(self.path), fix="Move it away"
            ) from None
        return found

    def begin(self, cells: Sequence[Cell], trials: int, seed: int) -> None:
        """Take the blocks that are there, if they are of this study; write the first line."""
        unknown = any(
            None in row for cell in cells for g in cell.problem.to_dict()["groups"] for row in g["rewards"]
        )
        if self.lines and unknown:
            raise InputError(
                "rewards come from a user's function, so nobody can tell whether it is the same study",
                where=str(self.path),
                fix="Remove the file and run it anew",
            )
        identity = _identity(cells, trials, seed)
        if self.lines and self.lines[0]["study"] != identity:
            raise InputError(
                "the blocks there belong to another study (or another version, seed or option)",
                where=str(self.path),
                fix="Use the same settings, or remove the file",
            )
        for line in self.lines[1:]:
            columns = {name: _array(name, values) for name, values in line["columns"].items()}
            self.found[line["cell"], line["block"]] = columns
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("w", encoding="utf-8") as file:  # without what was cut off
                lines = self.lines or [{"study": identity, "seed": seed}]
                file.writelines(json.dumps(line) + "\n" for line in lines)
            scratch.replace(self.path)
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror}", where=str(self.path)) from None

    def add(self, place: tuple[int, int], columns: Columns) -> None:
        plain = {name: values.tolist() for name, values in columns.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"cell": place[0], "block": place[1], "columns": plain}) + "\n")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
