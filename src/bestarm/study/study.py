"""Studies: many seeded trials, in fixed blocks, on any ``concurrent.futures`` executor.

A study is a grid of *cells*, one for each combination of the varied keys. A cell's trials are split into
blocks, and each block has a random stream that depends only on seed, cell and block. So the numbers don't
depend on the executor, on the order of execution, or on the other cells of the study. A block runs through a
batched kernel if the method has one for these options, else through the machines, trial by trial.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph
from bestarm.problem.problem import Problem
from bestarm.protocol.kernel import Columns
from bestarm.protocol.options import Common
from bestarm.protocol.registry import unpacked
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.network import Network
from bestarm.simulate.setup import Scenario, with_question
from bestarm.study.cells import COLUMNS, Family, Runnable, _array, _cells, run_block
from bestarm.study.trials import Trials, check_format
from bestarm.util.files import write
from bestarm.util.seeds import check_seed
from bestarm.version import __version__

MOST_WAITING = 1000  # blocks submitted to an executor at a time
PATIENCE = 0.2  # seconds between checks for an interrupt


@dataclass(frozen=True)
class StudyProgress:
    """The progress of a study.

    Parameters
    ----------
    done : int
        Trials so far.
    total : int
        Trials in all.
    """

    done: int
    total: int


class StudyInterrupted(KeyboardInterrupt):
    """Raised on Ctrl-C during a study; `kept` is the file with the finished blocks, if there is one."""

    def __init__(self, kept: Path | None) -> None:
        super().__init__("interrupted")
        self.kept = kept


def study(
    problem: Problem | Scenario | Family,
    method: str | Common | None = None,
    *,
    trials: int,
    seed: int | None = None,
    vary: Mapping[str, Sequence[object]] | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    adversaries: Sequence[Adversary] | None = None,
    network: Network | Graph | None = None,
    force: bool = False,
    watch: Callable[[StudyProgress], None] | None = None,
    **options: object,
) -> Trials:
    """Run many seeded trials of a method, for each combination of the values in `vary`.

    Parameters
    ----------
    problem : Problem, Scenario or callable
        A callable makes a problem from parameters that `vary` can name, such as ``Problem.paper_instance``.
    method : str or options object, optional
        As for ``identify``.
    trials : int
        The number of trials of each combination.
    seed : int, optional
        The same seed gives the same numbers with any executor and number of workers.
    vary : mapping of names to sequences, optional
        The values to try of the method's options, of ``method`` itself, of the parameters of `problem`, and,
        if there are liars, of ``attack``.
    executor : concurrent.futures.Executor, optional
        By default, a pool of `workers` processes.
    workers : int, optional
        The number of processes; by default one per core.
    out : str or Path, optional
        A file for the rows (.csv, .jsonl or .parquet). Until it is complete, finished blocks are kept in a
        file next to it.
    resume : bool
        Resume an interrupted study from the finished blocks next to `out`.
    adversaries, network, force
        As for ``identify``.
    watch : callable, optional
        Called from time to time with the ``StudyProgress``.
    **options
        The method's options.

    Returns
    -------
    Trials
        One row per trial.

    Raises
    ------
    InputError
        If an argument is invalid.
    StudyInterrupted
        On Ctrl-C.

    Examples
    --------
    >>> import bestarm as ba
    >>> family, vary = ba.Problem.paper_instance, {"sigma": [1, 2]}
    >>> trials = ba.study(family, "fed-sel", trials=8, seed=1, delta=0.1, vary=vary)
    >>> [(row["sigma"], row["rounds"]["mean"]) for row in trials.summary()]
    [(1, 1.0), (2, 1.0)]
    """
    method, options = unpacked(method, options)
    if not callable(problem):
        problem, options = with_question(problem, options)
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise InputError(f"trials = {trials!r} can't be used", expected="a whole number of at least 1")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers = {workers!r} can't be used", expected="a whole number of at least 1")
    if resume and out is None:
        raise InputError("resume needs the file of the study", expected="out, as it was given before")
    if seed is None and isinstance(problem, Scenario):
        seed = problem.seed
    log = _Log(Path(out), resume) if out is not None else None
    seed = check_seed(log.seed if log and seed is None else seed)
    if adversaries is None:
        adversaries = problem.adversaries if isinstance(problem, Scenario) else ()
    if network is None and isinstance(problem, Scenario):
        network = problem.network
    cells = tuple(_cells(problem, method, dict(vary or {}), options, adversaries, network, force))
    log = log and log.begun(cells, trials, seed)
    columns = run_cells(cells, trials, seed, tuple(vary or ()), executor, workers, log, watch)
    result = Trials(columns, tuple(vary or ()), seed, cells, trials)
    if log:
        result.save(log.out)
        log.remove()
    return result


def run_cells(
    cells: Sequence[Runnable],
    trials: int,
    seed: int,
    varied: tuple[str, ...] = (),
    executor: Executor | None = None,
    workers: int | None = None,
    log: _Log | None = None,
    watch: Callable[[StudyProgress], None] | None = None,
) -> Columns:
    """Run all blocks of all cells: the columns of a study, cell after cell, with those of the varied keys."""
    tasks = [(c, b, size) for c, cell in enumerate(cells) for b, (_, size) in enumerate(cell.blocks(trials))]
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
        with _interrupted_once(), _executor(executor, workers, len(todo), cells) as pool:
            _run(cells, seed, todo, pool, take)
    except KeyboardInterrupt:
        raise StudyInterrupted(log.path if log else None) from None
    return _collect(cells, tasks, found, trials, varied)


@contextlib.contextmanager
def _executor(
    executor: Executor | None, workers: int | None, tasks: int, cells: Sequence[Runnable]
) -> Iterator[Executor | None]:
    """The executor to use; None means the current process."""
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
            f"the rewards or methods can't be sent to other processes: {error}",
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
        # Blocks are pure, so unfinished work can be discarded.
        with _deaf_to_interrupts():
            for process in list(getattr(pool, "_processes", None) or {}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if (results := getattr(pool, "_result_queue", None)) is not None:
                results._writer.close()  # else half a result, of a killed worker, is waited for for ever
            pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextlib.contextmanager
def _interrupted_once() -> Iterator[None]:
    """Ignore Ctrl-C after the first one: a second one could skip the end of the worker processes."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def once(*facts: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        before(*facts)

    signal.signal(signal.SIGINT, once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
    """Delay Ctrl-C until the end of the block; the list becomes non-empty at once.

    An executor's locks are taken in the main thread; an exception at that moment would leave them locked
    forever.
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
    cells: Sequence[Runnable],
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
    cells: Sequence[Runnable],
    tasks: Sequence[tuple[int, int, int]],
    found: Mapping[tuple[int, int], Columns],
    trials: int,
    varied: tuple[str, ...],
) -> Columns:
    columns: dict[str, NDArray[Any]] = {"trial": np.tile(np.arange(trials), len(cells))}
    for key in varied:
        values = np.empty(len(cells), dtype=object)
        values[:] = [cell.keys[key] for cell in cells]
        columns[key] = np.repeat(values, trials)
    for name in COLUMNS:
        columns[name] = np.concatenate([found[task[:2]][name] for task in tasks])
    return columns


def _identity(cells: Sequence[Runnable], trials: int, seed: int) -> str:
    """A digest of everything that must agree for a block of an earlier study to be reused."""
    facts = [[*cell.identity(), cell.blocks(trials)] for cell in cells]
    return hashlib.sha256(
        json.dumps([__version__, COLUMNS, trials, seed, facts], default=str).encode()
    ).hexdigest()


class _Log:
    """The finished blocks of a study, one JSON line each, in a file next to the final one.

    The first line identifies the study and its seed. A line that was cut off by a crash is dropped, and its
    block is run again.
    """

    def __init__(self, out: Path, resume: bool) -> None:
        check_format(out)
        self.out = out
        self.path = out.with_name(out.name + ".part")
        self.found: dict[tuple[int, int], Columns] = {}
        self.lines = self._lines()
        if self.lines and not resume:
            raise InputError(
                "this file belongs to an interrupted study",
                where=str(self.path),
                fix="Continue it with --resume, or remove the file",
            )
        if resume and not self.lines and out.exists():
            raise InputError(
                "the study is complete", where=str(out), fix="Leave out --resume to run it again"
            )
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
                "this is not the file of an interrupted study", where=str(self.path), fix="Move it away"
            ) from None
        return found

    def begun(self, cells: Sequence[Runnable], trials: int, seed: int) -> _Log:
        """This log, with the existing blocks, if they belong to this study, and with its first line."""
        unknown = any(
            None in row for cell in cells for g in cell.problem.to_dict()["groups"] for row in g["rewards"]
        )
        if self.lines and unknown:
            raise InputError(
                "rewards come from a user's function, so it is unknown whether this is the same study",
                where=str(self.path),
                fix="Remove the file and run the study again",
            )
        identity = _identity(cells, trials, seed)
        if self.lines and self.lines[0]["study"] != identity:
            raise InputError(
                "the blocks in this file belong to another study (or another version, seed or option)",
                where=str(self.path),
                fix="Use the same settings, or remove the file",
            )
        for line in self.lines[1:]:
            columns = {name: _array(name, values) for name, values in line["columns"].items()}
            self.found[line["cell"], line["block"]] = columns
        lines = self.lines or [{"study": identity, "seed": seed}]  # without a line that was cut off
        write(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        return self

    def add(self, place: tuple[int, int], columns: Columns) -> None:
        plain = {name: values.tolist() for name, values in columns.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"cell": place[0], "block": place[1], "columns": plain}) + "\n")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
