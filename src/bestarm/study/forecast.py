"""The cost of runs of one method, from exact simulation studies on known means.

``Bench`` runs the studies of one plan or schedule; ``forecast`` makes a plan's row from them: costs, proved
bounds, and a sufficient budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.protocol.options import on_unit_scale
from bestarm.protocol.planning import Averages, RunBounds
from bestarm.protocol.registry import METHODS, Method
from bestarm.simulate.identify import as_pulled, prepare
from bestarm.simulate.setup import Scenario
from bestarm.stats.intervals import binomial_interval
from bestarm.study.kernels import kernel_for
from bestarm.study.study import StudyProgress, study
from bestarm.study.trials import Trials
from bestarm.util.seeds import seed_within

SURE = 0.95  # a budget is sufficient if this share of runs decides
MOST_WORK = 20_000_000  # rounds times trials of a study: about half a minute
MOST_STEPS = 2_000_000  # rounds times clients times trials through the machines: some minutes
SEARCH_TRIALS = 200
MACHINE_TRIALS = 50  # of a method without a kernel, whose runs are simulated one by one

FIRST, SEARCH, CHECK, OWN, INSTEAD = range(5)  # numbers of studies, each with its own seed


@dataclass(frozen=True)
class Range:
    """A cost over runs: mean, median, and the smallest closed range that contains 90 % of new runs.

    The mean is over the runs that name an arm, if there are any: a run that loses the best arm may go on for
    billions of pulls between tied arms.
    `share` is the share of new runs to expect inside the range. It is 0.9 for a cost with many distinct
    values. Rounds, bits and the pulls of a few large looks have few; where no range contains 90 %, the next
    larger share is given.
    """

    mean: float
    median: float
    low: float
    high: float
    share: float

    @staticmethod
    def of(values: NDArray[np.integer | np.floating], decided: NDArray[np.bool_] | None = None) -> Range:
        """The range of a study's column; `decided` tells which runs name an arm."""
        ordered, runs = np.sort(values), len(values)
        before = np.searchsorted(ordered, ordered, "left")  # how many are smaller
        after = runs - np.searchsorted(ordered, ordered, "right")
        # Of n runs, the range from the r-th to the s-th contains a new one with probability (s − r)/(n + 1).
        wanted = min(runs, int(np.ceil(0.9 * (runs + 1))) + 1)
        ends = np.minimum(before + wanted, runs) - 1  # for each low end, the first high end far enough
        inside = runs - before - after[ends]
        balance = np.abs(before - after[ends])
        first = int(np.lexsort((balance, np.where(inside >= wanted, inside, runs + 1)))[0])
        low, high = float(ordered[first]), float(ordered[ends[first]])
        share = float(inside[first] - 1) / (runs + 1)
        counted = values if decided is None or not decided.any() else values[decided]
        return Range(float(np.mean(counted)), float(np.median(values)), low, high, share)


@dataclass(frozen=True)
class Cost:
    """The cost of runs: pulls of all clients, pulls of the busiest client, rounds, time, bits up and down.

    `time` is in steps; each client makes one pull per step. `decided` is the share of the runs that ended
    with an identified arm.
    """

    pulls: Range
    longest: Range
    rounds: Range
    time: Range
    bits_up: Range
    bits_down: Range
    decided: float

    @staticmethod
    def of(trials: Trials) -> Cost:
        """The costs of a study's runs."""
        pulls, longest, rounds, time, up, down = (
            Range.of(trials[name], trials["status"] == "identified")
            for name in ("pulls_total", "pulls_max", "rounds", "time", "bits_up", "bits_down")
        )
        return Cost(pulls, longest, rounds, time, up, down, _decided(trials))

    @property
    def averages(self) -> Averages:
        """Mean pulls of all clients, and mean rounds."""
        return Averages(self.pulls.mean, self.rounds.mean)


@dataclass(frozen=True)
class Chance:
    """The share of runs that decide with this budget (pulls per client), with an exact 95 % interval."""

    budget: int
    decided: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class MethodPlan:
    """One method's forecast. `cost` is None if runs can't be simulated to their end; `why_not` says why.

    `enough` is the smallest budget found with which 95 % of the runs decide, checked on fresh runs.
    `at_budget` is the share that decides with the user's own budget. `trials` is the number of runs behind
    each number.
    """

    name: str
    method: str
    options: dict[str, Any]
    cost: Cost | None
    bounds: RunBounds | None
    enough: Chance | None
    at_budget: Chance | None
    trials: int
    why_not: str = ""


@dataclass(frozen=True)
class PlanProgress:
    """The number of the running study, its method, and its trials: done and in total."""

    study: int
    method: str
    done: int
    total: int


Watch = Callable[[PlanProgress], None]


class Bench:
    """Runs the studies of one plan; each study number has its own seed.

    Runs with rounds of a fixed length are stopped when the study would take too long, and then count as
    undecided.
    """

    def __init__(
        self, scenario: Scenario, trials: int, seed: int, workers: int | None, watch: Watch | None
    ) -> None:
        if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
            raise InputError(f"trials = {trials!r} can't be used", expected="a whole number of at least 1")
        self.scenario, self.trials, self.seed, self.workers = scenario, trials, seed, workers
        self.watch, self.studies = watch, 0

    def run(self, method: str, keys: Mapping[str, Any], number: int, trials: int | None = None) -> Trials:
        """Run study `number`, by default with as many trials as the plan asks for."""
        trials = self.trials_of(method, keys) if trials is None else trials
        if METHODS[method].plan.periodic:
            most = MOST_WORK
            if not self.quick(method, keys):
                most = MOST_STEPS // len(self.scenario.problem.layout.clients)
            own = keys.get("max_rounds") or self.most_rounds
            keys = {**keys, "max_rounds": min(own, max(1, most // trials))}
        self.studies += 1

        def told(progress: StudyProgress) -> None:
            if self.watch is not None:
                self.watch(PlanProgress(self.studies, method, progress.done, progress.total))

        seed = seed_within(self.seed, number)
        return study(
            self.scenario, method, trials=trials, seed=seed, workers=self.workers, watch=told, **keys
        )

    @property
    def most_rounds(self) -> int:
        """The scenario's limit on rounds, or a number larger than can be simulated."""
        return self.scenario.options.get("max_rounds") or MOST_WORK

    def quick(self, method: str, keys: Mapping[str, Any]) -> bool:
        """Whether a kernel can simulate these runs, rather than the machines one by one."""
        problem, _, chosen = prepare(self.scenario, method, keys)
        unit, liars = on_unit_scale(chosen, problem.scale), self.scenario.adversaries
        return kernel_for(method, as_pulled(problem, method), unit, liars) is not None

    def trials_of(self, method: str, keys: Mapping[str, Any]) -> int:
        """The number of runs behind each number."""
        return self.trials if self.quick(method, keys) else min(self.trials, MACHINE_TRIALS)

    def chance(
        self, method: str, keys: Mapping[str, Any], budget: int, number: int, trials: int | None = None
    ) -> Chance:
        """The share of fresh runs that decide with this budget."""
        capped, free = {**keys, "budget": budget}, {**keys, "budget": None}
        longest = METHODS[method].plan.budget_is_longest
        # Runs without a budget tell the same, and a kernel may be able to simulate them.
        instead = longest and self.quick(method, free) and not self.quick(method, capped)
        found = self.run(method, free if instead else capped, number, trials)
        decides = (found["status"] == "identified") & (found["pulls_max"] <= budget)
        decided = int(decides.sum())
        return Chance(budget, decided / len(found), binomial_interval(decided, len(found)))


def forecast(
    bench: Bench, name: str, method: str, keys: dict[str, Any], budget: int | None, quick: bool
) -> MethodPlan:
    """One row of a plan; with `quick`, no sufficient budget is searched for."""
    problem, _, chosen = prepare(bench.scenario, method, keys)
    why_not = _endless(problem, METHODS[method], chosen, bench.trials)
    cost = enough = None
    if not why_not:
        found = bench.run(method, keys, FIRST)
        cost = Cost.of(found)
        enough = None if quick else _enough(bench, method, keys, found)
    at_budget = None if budget is None else bench.chance(method, keys, budget, OWN)
    return MethodPlan(
        name=name,
        method=method,
        options=keys,
        cost=cost,
        bounds=METHODS[method].plan.bounds(problem, chosen),
        enough=enough,
        at_budget=at_budget,
        trials=bench.trials_of(method, keys),
        why_not=why_not,
    )


def _endless(problem: Problem, method: Method, options: Any, trials: int) -> str:
    """Why runs can't be simulated to their end; empty if they can."""
    if problem.layout.finite or options.epsilon > 0.0:
        return ""
    if ties := problem.ties(local=method.local_bests):
        return f"{ties[0]}; without epsilon or a budget it never ends"
    return method.plan.too_long(problem, options, MOST_WORK / trials)


def endless(bench: Bench, method: str) -> str:
    """Why runs of a method can't be simulated to their end; empty if they can."""
    problem, _, chosen = prepare(bench.scenario, method, {})
    return _endless(problem, METHODS[method], chosen, bench.trials)


def _enough(bench: Bench, method: str, keys: Mapping[str, Any], found: Trials) -> Chance | None:
    """The smallest budget with which 95 % decide: a quantile, lowered by bisection, raised by a check.

    Where a client that has no pulls left keeps its interval and can still be eliminated, fewer pulls than
    the quantile may be enough, often far fewer.
    """
    if _decided(found) < SURE:
        return None
    facts = METHODS[method].plan
    budget = int(np.quantile(found["pulls_max"], SURE, method="higher"))
    if facts.periodic:
        # A run that takes far more rounds than the others because of a small budget counts as undecided.
        keys = {**keys, "max_rounds": min(bench.most_rounds, 5 * int(found["rounds"].max()) + 10)}
    if not facts.budget_is_longest:
        budget = _least_budget(bench, method, keys, budget)
    for _ in range(50):
        checked = bench.chance(method, keys, budget, CHECK)
        if checked.decided >= SURE:
            return checked
        budget += max(1, budget // 100)
    return None


def _least_budget(bench: Bench, method: str, keys: Mapping[str, Any], high: int) -> int:
    """By bisection, to 2 %: a budget with which 95 % of a few runs decide, given that `high` is enough."""
    few = min(bench.trials, SEARCH_TRIALS if bench.quick(method, keys) else MACHINE_TRIALS // 2)
    low = max(bench.scenario.problem.layout.arm_counts) - 1
    while high - low > max(1.0, 0.02 * high):
        middle = max(low + 1, int(np.sqrt(float(max(low, 1)) * high)))
        if bench.chance(method, keys, middle, SEARCH, few).decided >= SURE:
            high = middle
        else:
            low = middle
    return high


def _decided(trials: Trials) -> float:
    return float((trials["status"] == "identified").mean())
