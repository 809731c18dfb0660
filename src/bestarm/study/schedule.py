"""Finds the schedule that is most likely to end within a communication budget.

``schedule`` tries a fixed list of each method's schedules on simulated runs. It is a forecast for the given
means. The error probability is at most δ whatever the means are, because a schedule is fixed before the data
are seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.protocol.registry import METHODS
from bestarm.simulate.identify import prepare
from bestarm.simulate.setup import Scenario, with_question
from bestarm.stats.intervals import binomial_interval
from bestarm.study.forecast import CHECK, SEARCH, SEARCH_TRIALS, Bench, Cost, Watch
from bestarm.study.plan_setup import plannable, scenario_for
from bestarm.study.trials import Trials
from bestarm.util.seeds import check_seed

HEURISTIC = (
    "A heuristic: the best of {tried} schedules that were tried on simulated runs with these means. Another "
    "schedule may be better, and other means may need a different one. A schedule is fixed before the data "
    "are seen, so the verdict is wrong with probability at most delta whatever the means are."
)


@dataclass(frozen=True)
class Schedule:
    """A schedule for a communication budget, and its results on fresh runs.

    Parameters
    ----------
    method : str
        The method.
    options : dict
        Its options.
    probability : float
        The probability of an identified verdict within the budget.
    interval : tuple of two float
        The exact 95 % interval of that probability.
    cost : Cost
        The costs on fresh runs.
    tried : int
        How many schedules were tried.
    note : str
        What this is a forecast for.
    """

    method: str
    options: dict[str, Any]
    probability: float
    interval: tuple[float, float]
    cost: Cost
    tried: int
    note: str


def schedule(
    problem: Problem | Scenario,
    *,
    max_rounds: int | None = None,
    max_bits: int | None = None,
    delta: float | None = None,
    trials: int = 1000,
    seed: int | None = None,
    budget: int | None = None,
    methods: Sequence[str] | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
    **options: object,
) -> Schedule:
    """Find the schedule that is most likely to end with a verdict within the given rounds or bits.

    This is a heuristic: it simulates a fixed list of schedules (Fed-SEL: `period` and `period_growth`;
    Fed-Fisher: `n0`, `q` and `quiet`). Of those within 0.01 of the best probability, it chooses the one with
    the fewest pulls, and measures it again on fresh runs. A schedule is fixed before the data are seen, so
    the error probability is at most δ with each of them.

    Parameters
    ----------
    problem : Problem or Scenario
        A problem with known means. The options of a scenario are the defaults.
    max_rounds, max_bits : int, optional
        The communication budget: rounds, bits up and down together, or both.
    delta : float, optional
        The probability of a wrong answer is at most this.
    trials : int
        The number of runs behind the result.
    seed : int, optional
        By default the scenario's, or a random one.
    budget : int, optional
        Pulls per client. Without a budget, a schedule may save rounds by making more pulls.
    methods : sequence of str, optional
        The methods to try; by default Fed-SEL and Fed-Fisher, if they can handle the problem.
    workers : int, optional
        The number of processes.
    watch : callable, optional
        Called from time to time with the progress.
    **options
        Options of the methods.

    Returns
    -------
    Schedule
        The method, its options, and their results on fresh runs.

    Raises
    ------
    InputError
        If there is no communication budget, an option is invalid, or no run of any method ends.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.schedule(ba.Problem.paper_instance(5), max_rounds=2, delta=0.1, trials=50, seed=1)
    >>> found.method, found.probability > 0.9, found.cost.rounds.high <= 2
    ('fisher', True, True)
    """
    _check_limits(max_rounds, max_bits)
    given = {"delta": delta, "max_rounds": max_rounds, "budget": budget}
    keys = {**options, **{key: value for key, value in given.items() if value is not None}}
    problem, keys = with_question(problem, keys)
    if methods is None:
        methods = [name for name in plannable(problem, keys)[0] if METHODS[name].plan.scheduled]
    scenario = scenario_for(problem, keys, methods)
    if max_bits is not None:
        # Each round has a broadcast with a bit per group (the last one has less), which limits the rounds.
        most = 2 + max_bits // max(1, len(scenario.problem.layout.groups))
        scenario.options["max_rounds"] = min(most, scenario.options.get("max_rounds", most))
    bench = Bench(scenario, trials, check_seed(scenario.seed if seed is None else seed), workers, watch)
    method, own, tried = _search(bench, methods, max_bits)
    found = bench.run(method, own, CHECK)
    hits = _within(found, max_bits)
    return Schedule(
        method=method,
        options=own,
        probability=hits / len(found),
        interval=binomial_interval(hits, len(found)),
        cost=Cost.of(found),
        tried=tried,
        note=HEURISTIC.format(tried=tried),
    )


def _check_limits(max_rounds: int | None, max_bits: int | None) -> None:
    if max_rounds is None and max_bits is None:
        raise InputError("there is no communication budget", expected="max_rounds, max_bits or both")
    if max_bits is not None and (isinstance(max_bits, bool) or not isinstance(max_bits, int) or max_bits < 1):
        raise InputError(f"max_bits = {max_bits!r} can't be used", expected="a whole number of at least 1")


def _search(bench: Bench, methods: Sequence[str], max_bits: int | None) -> tuple[str, dict[str, Any], int]:
    """The method and options of the best schedule, and how many were tried."""
    tried = []
    for method, own in _candidates(bench.scenario, methods):
        few = min(bench.trials_of(method, own), SEARCH_TRIALS)
        found = bench.run(method, own, SEARCH, few)
        tried.append((_within(found, max_bits) / few, float(found["pulls_total"].mean()), method, own))
    if not tried:
        raise InputError(
            "no method can be tried: runs that never end can't be simulated",
            fix="Set epsilon, or a budget of pulls",
        )
    top = max(row[0] for row in tried)
    _, _, method, own = min((row for row in tried if row[0] >= top - 0.01), key=lambda row: row[1])
    return method, own, len(tried)


def _within(found: Trials, max_bits: int | None) -> int:
    """How many runs decide within the communication budget; `max_rounds` has already been applied."""
    bits = found["bits_up"] + found["bits_down"]
    fits = bits <= (np.inf if max_bits is None else max_bits)
    return int(((found["status"] == "identified") & fits).sum())


def _candidates(scenario: Scenario, methods: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schedules to try, of methods whose runs end."""
    for method in methods:
        problem, _, chosen = prepare(scenario, method, {})
        ties = problem.ties(local=METHODS[method].local_bests)
        if ties and chosen.epsilon == 0.0 and chosen.budget is None and not problem.layout.finite:
            continue
        for keys in METHODS[method].plan.schedules():
            yield method, keys
