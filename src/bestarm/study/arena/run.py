"""``arena``: every entrant on every instance, through the blocks, seeds and executors of studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.problem.instances import ANYWHERE, INSTANCES, OVERALL, Instance
from bestarm.problem.instances import instance as instance_named
from bestarm.problem.problem import Problem
from bestarm.protocol.kernel import Columns
from bestarm.protocol.options import Common, make
from bestarm.protocol.registry import Method
from bestarm.scenario.load import load
from bestarm.simulate.setup import Scenario
from bestarm.stats.intervals import binomial_interval, mean_interval
from bestarm.stats.limit import limit
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.entrants import Entrant, chosen
from bestarm.study.arena.result import FILE, Arena, Entry, Ground, LeftOut, Mean, Score
from bestarm.study.cells import Cell, Runnable
from bestarm.study.limits import _why_no_limit
from bestarm.study.study import StudyProgress, _Log, run_cells
from bestarm.study.trials import Trials
from bestarm.util.disk_errors import write_error
from bestarm.util.seeds import check_seed
from bestarm.util.text import counted, shorten
from bestarm.version import __version__

HEADLINE = (
    "paper-1", "paper-5", "near-tie", "many-arms", "many-sites", "zipf", "small-rates", "ratings", "tas-1",
    "ties-below", "crew", "site-effects-20",
)  # fmt: skip
COLUMN_OF = {
    "pulls": "pulls_total",
    "longest": "pulls_max",
    "rounds": "rounds",
    "time": "time",
    "bits_up": "bits_up",
    "bits_down": "bits_down",
}
FROM_FILE = "from a scenario file"
TRIALS = "trials.csv"
MOST = 1_000_000  # pulls of a baseline's run
Instances = Sequence[str | Instance] | Mapping[str, Problem]


def arena(
    methods: Sequence[str | Baseline | Method] | None = None,
    instances: Instances | None = None,
    *,
    delta: float = 0.05,
    trials: int = 100,
    seed: int | None = 1,
    most: int = MOST,
    out: str | Path | None = None,
    resume: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    watch: Callable[[StudyProgress], None] | None = None,
) -> Arena:
    """Run methods and baselines on named instances, and compare them with each other and with the limit.

    The numbers of a pair depend only on its method, its instance, `delta`, `trials` and `seed`: not on the
    other pairs, nor on the executor. A pair that can't be run (sites without common options, a tie that the
    method can't decide, …) is left out with the reason.

    Parameters
    ----------
    methods : sequence, optional
        Names of registered methods, with options if you like (``"bet:prefer=pulls"``), names of baselines,
        ``Method`` or ``Baseline`` objects; by default all.
    instances : sequence or mapping, optional
        Names of ``instances()``, paths of scenario files, ``Instance`` objects, or problems by name; by
        default the twelve of the headline table.
    delta : float
        The probability of a wrong answer.
    trials : int
        Runs of each pair.
    seed : int, optional
        The same seed gives the same numbers; None draws one.
    most : int
        The most pulls of a baseline's run, which then ends undecided. Registered methods have no such limit.
    out : str or Path, optional
        A folder for the results: arena.json, cells.csv, trials.csv and the page index.html. Until they are
        complete, finished blocks are kept there.
    resume : bool
        Resume an interrupted arena from the finished blocks in `out`. If `out` already has the complete
        result of the same settings, return that.
    executor, workers, watch
        As for ``study``.

    Returns
    -------
    Arena

    Raises
    ------
    InputError
        If an argument is invalid, nothing can be run, or `out` has a result that this one would not contain.
    StudyInterrupted
        On Ctrl-C.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.arena(["fisher", "kl-lucb", "fpe"], ["zipf"], delta=0.1, trials=50, seed=7, workers=1)
    >>> for score in found.on("zipf"):
    ...     print(score.method, round(score.over_limit, 1), score.errors)
    fisher 7.2 0
    kl-lucb 13.7 0
    >>> found.left_out[0].why
    'needs sites that all have the same options. Expected one group, or question = "overall".'
    """
    _check(delta, trials, workers, most)
    if resume and out is None:
        raise InputError("resume needs the folder of the arena", expected="out, as it was given before")
    entrants, grounds = chosen(methods), _instances(instances)
    pairs, left_out = _pairs(entrants, grounds, float(delta), most)
    if not pairs:
        first = left_out[0]
        raise InputError(f"nothing can be run. {first.method} on {first.instance}: {first.why}")
    cells = [cell for _, _, cell in pairs]
    known = {ground.name: _ground(ground, delta) for ground in grounds}
    result = partial(
        Arena,
        delta=float(delta),
        trials=trials,
        most=most,
        version=__version__,
        entries=tuple(
            Entry(
                label=e.label,
                title=e.title,
                proof=e.proof,
                source=e.source,
                headline=e.headline,
                included=e.included,
            )
            for e in entrants
        ),
        grounds=tuple(known.values()),
        left_out=tuple(left_out),
    )
    folder = _folder(out) if out is not None else None
    names = [(who.label, where.name) for who, where, _ in pairs]
    if folder and resume and (whole := _complete(folder, result, names, seed)):
        return whole
    if folder:
        _demand_no_more(folder, set(names), (float(delta), seed, most), trials)
    log = _Log(folder / TRIALS, resume) if folder else None
    seed = check_seed(log.seed if log and seed is None else seed)
    if log:
        _demand_no_more(log.out.parent, set(names), (float(delta), seed, most), trials)
    log = log and log.begun(cells, trials, seed)
    varied = ("method", "instance")
    columns = run_cells(cells, trials, seed, varied, executor, workers, log, watch)
    scores = []
    for k, (who, where, cell) in enumerate(pairs):
        part = {name: values[k * trials : (k + 1) * trials] for name, values in columns.items()}
        command = _command(who, where, delta, trials, seed, most)
        scores.append(_score(who, known[where.name], cell, part, delta, command))
    refuted = result(seed=seed, scores=tuple(scores)).refuted  # the limit says nothing about these
    scores = [
        msgspec.structs.replace(score, over_limit=None) if score.method in refuted else score
        for score in scores
    ]
    found = result(seed=seed, scores=tuple(scores))
    if log:
        found.save(log.out.parent)
        Trials(columns, varied, seed, (), trials).save(log.out)
        log.remove()
    return found


def _check(delta: object, trials: object, workers: object, most: object) -> None:
    make(Common, {"delta": delta})  # as registered methods check it
    for name, value in (("trials", trials), ("workers", workers), ("most", most)):
        if name == "workers" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} = {value!r} can't be used", expected="a whole number of at least 1")


def _complete(
    folder: Path, result: Callable[..., Arena], names: list[tuple[str, str]], seed: int | None
) -> Arena | None:
    """The complete result in a folder, if it has these pairs and settings; None allows any seed."""
    if not (folder / FILE).is_file() or (folder / f"{TRIALS}.part").exists():
        return None
    before = Arena.load(folder)
    again = result(seed=before.seed if seed is None else seed, scores=before.scores)
    pairs = [(score.method, score.instance) for score in before.scores]
    return before if before == again and pairs == names else None


def _demand_no_more(
    folder: Path, asked: set[tuple[str, str]], fixed: tuple[float, int | None, int], trials: int
) -> None:
    """InputError if a folder has a result that this arena would not contain; seed None may be any."""
    if not (folder / FILE).is_file():
        return
    before = Arena.load(folder)
    lost = {(score.method, score.instance) for score in before.scores} - asked
    delta, seed, most = fixed
    known = (delta, before.seed if seed is None else seed, most)
    if lost or (before.delta, before.seed, before.most) != known or before.trials > trials:
        raise InputError(
            f"the folder has another result: {counted(len(before.scores), 'pair')} of a method and an "
            f"instance, {counted(before.trials, 'run')} of each, δ = {before.delta:g}, seed {before.seed}",
            where=str(folder),
            fix="Choose another folder, or remove this one",
        )


def _folder(out: str | Path) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError("can't be written: it is a file", where=str(folder), expected="the name of a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(error, folder) from None
    return folder


def _instances(given: Instances | None) -> list[Instance]:
    """The instances of these names, scenario files, objects or problems; InputError if one comes twice."""
    if given is None:
        given = HEADLINE
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping) or not given:
        raise InputError(f"instances = {shorten(given)} can't be used", expected="a list of instances")
    if isinstance(given, Mapping):
        found = [_of_problem(name, problem, "given by the caller") for name, problem in given.items()]
    else:
        found = [_instance(one) for one in given]
    names = [one.name for one in found]
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise InputError(f'instance "{twice[0]}" is given twice', expected="each instance once")
    return found


def _instance(given: str | Instance) -> Instance:
    if isinstance(given, Instance):
        return given
    if isinstance(given, str) and given.endswith(".toml"):
        return _of_problem(given, load(given), FROM_FILE)
    return instance_named(given)


def _of_problem(name: str, problem: Problem | Scenario, about: str) -> Instance:
    problem = problem.problem if isinstance(problem, Scenario) else problem
    if not isinstance(problem, Problem):
        raise InputError(f"expected a Problem, got a {type(problem).__name__}", where=f'instance "{name}"')
    problem.demand_rewards()
    question = problem.layout.question
    if question.kind not in (ANYWHERE, OVERALL) or question.also or len(set(question.weights)) > 1:
        raise InputError(
            "the arena does not ask this question",
            where=f'instance "{name}"',
            expected='question = "anywhere", or "overall" with equal weights',
        )
    unknown = any(mean is None for row in problem.means for mean in row)
    if problem.layout.finite or unknown or problem.best is None:
        raise InputError(
            "can't tell right answers from wrong ones",
            where=f'instance "{name}"',
            expected="rewards that do not run out, with known means and a unique best arm",
        )
    return Instance(name, about, lambda: problem, question=question.kind)


def _pairs(
    entrants: Sequence[Entrant], grounds: Sequence[Instance], delta: float, most: int
) -> tuple[list[tuple[Entrant, Instance, Runnable]], list[LeftOut]]:
    """What can be run, and what is left out."""
    pairs, left_out = [], []
    for ground in grounds:
        for who in entrants:
            try:
                pairs.append((who, ground, who.cell(ground, delta, most)))
            except InputError as error:
                left_out.append(LeftOut(who.label, ground.name, str(error)))
    return pairs, left_out


@lru_cache(maxsize=64)
def _limit(problem: Problem, delta: float) -> float:
    return limit(problem, delta).total


def _ground(instance: Instance, delta: float) -> Ground:
    layout, values = instance.problem.layout, sorted(instance.values.values(), reverse=True)
    return Ground(
        name=instance.name,
        about=instance.about,
        source=instance.source,
        question=instance.question,
        shared=instance.shared,
        sites=len(layout.groups),
        clients=len(layout.clients),
        options=len(values),
        gap=values[0] - values[1] if len(values) > 1 else 1.0,
        limit=_limit(instance.problem, float(delta)) if instance.question == ANYWHERE else None,
        problem=None if INSTANCES.get(instance.name) is instance else _plain(instance.problem),
    )


def _plain(problem: Problem) -> dict[str, Any]:
    """The problem as a file gives it back."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(problem.to_dict()))
    return plain


def _score(who: Entrant, ground: Ground, cell: Runnable, part: Columns, delta: float, command: str) -> Score:
    identified = part["status"] == "identified"
    trials, errors = len(identified), int((identified & (part["correct"] == False)).sum())  # noqa: E712
    low, high = binomial_interval(errors, trials)
    undecided = int((~identified).sum())
    costs: dict[str, Mean] = {name: _mean(part[column]) for name, column in COLUMN_OF.items()}
    over = None
    if ground.limit and _limited(who, cell, undecided):
        over = costs["pulls"].mean / ground.limit
    return Score(
        method=who.label,
        instance=ground.name,
        trials=trials,
        undecided=undecided,
        errors=errors,
        error=(low, high),
        keeps=_keeps(low, high, delta) if undecided < trials else "no answer",
        over_limit=over,
        command=command,
        **costs,
    )


def _keeps(low: float, high: float, delta: float) -> str:
    return "yes" if high <= delta else "no" if low > delta else "open"


def _mean(values: Any) -> Mean:
    numbers = np.asarray(values, dtype=np.float64)
    span = mean_interval(numbers)
    half = None if span is None else (span[1] - span[0]) / 2
    return Mean(float(numbers.mean()), half, float(np.median(numbers)))


def _limited(who: Entrant, cell: Runnable, undecided: int) -> bool:
    """Whether the limit on pulls applies: only to methods that keep δ, on 0/1 rewards or coins."""
    if not who.proof:
        return False
    if isinstance(cell, Cell):
        return not _why_no_limit(cell.problem, cell.method, cell.options, undecided, "")
    binary = all(group.binary for group in cell.problem.layout.groups)
    return not undecided and binary


def _command(who: Entrant, where: Instance, delta: float, trials: int, seed: int, most: int) -> str:
    """The command that gives the same numbers; empty if it can't name the method or the instance."""
    if not (who.has_name and (INSTANCES.get(where.name) is where or where.about == FROM_FILE)):
        return ""
    limited = f" --most {most}" if most != MOST else ""
    return (
        f"bestarm arena --methods {quote(who.label)} --instances {quote(where.name)} "
        f"--delta {float(delta)!r} --trials {trials} --seed {seed}{limited}"
    )
