"""Forecasts the cost of a run.

``plan`` simulates each method on known (or guessed) means, and reports the costs together with the proved
bounds, and with the limit on pulls where it applies. It is a forecast for the given means; the error
probability is at most δ whatever the means are. ``study.schedule`` looks for the schedule that is most likely
to end within a given number of rounds or bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.protocol.planning import RunBounds
from bestarm.protocol.registry import METHODS
from bestarm.simulate.identify import prepare
from bestarm.simulate.setup import Scenario, with_question
from bestarm.stats.heterogeneity import Heterogeneity, heterogeneity
from bestarm.stats.limit import Limit
from bestarm.study.advice import advise
from bestarm.study.forecast import Bench, MethodPlan, Watch, forecast
from bestarm.study.limits import limit_of_runs
from bestarm.study.plan_setup import is_recorded, plannable, problem_from_gaps, scenario_for, variants
from bestarm.util.seeds import check_seed
from bestarm.util.text import counted, nearest

ASSUMPTION = "The gaps are guesses: 0/1 rewards were assumed, with {best:g} as the mean of the best arm."
RECORDED = (
    "The means of the recorded rewards are used, and runs draw from the recordings with replacement, "
    "so no recording runs out."
)


@dataclass(frozen=True)
class Plan:
    """A forecast for each method, the limit, and advice from measured alternatives.

    ``plan["fed-sel"]`` is the row of that name.

    Parameters
    ----------
    delta : float
        The error probability.
    trials : int
        Simulated runs behind each number.
    seed : int
        Gives the same plan again.
    budget : int or None
        The pulls per client that were given.
    heterogeneity : Heterogeneity
        The gaps, and how much groups differ.
    limit : Limit or None
        The fewest pulls on average of any method; None where it does not apply.
    methods : tuple of MethodPlan
        One row per method, or per variant of its options.
    advice : tuple of str
        Sentences from measured alternatives.
    left_out : dict
        The methods that can't handle the problem, and why.
    assumption : str
        What was assumed about rewards; else empty.
    no_limit : str
        Why there is no limit; else empty.
    """

    delta: float
    trials: int
    seed: int
    budget: int | None
    heterogeneity: Heterogeneity
    limit: Limit | None
    methods: tuple[MethodPlan, ...]
    advice: tuple[str, ...]
    left_out: dict[str, str]
    assumption: str = ""
    no_limit: str = ""

    def __repr__(self) -> str:
        methods = ", ".join(row.name for row in self.methods)
        return f"Plan({methods}; {counted(self.trials, 'run')} each, seed {self.seed})"

    def __getitem__(self, name: str) -> MethodPlan:
        for row in self.methods:
            if row.name == name:
                return row
        raise InputError(f'"{name}" is not in the plan', fix=nearest(name, [m.name for m in self.methods]))

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values; unbounded and unknown values are null."""
        h, least = self.heterogeneity, self.limit
        plain = {
            "delta": self.delta,
            "trials": self.trials,
            "seed": self.seed,
            "budget": self.budget,
            "heterogeneity": {
                "groups": list(h.groups),
                "sigma": h.matrix.tolist(),
                "local_gaps": h.local_gaps.tolist(),
                "global_gaps": h.global_gaps.tolist(),
            },
            "limit": least and {k: getattr(least, k) for k in ("total", "longest", "coins")},
            "no_limit": self.no_limit,
            "methods": [_row_to_dict(row) for row in self.methods],
            "advice": list(self.advice),
            "left_out": self.left_out,
            "assumption": self.assumption,
        }
        result: dict[str, Any] = _finite(plain)
        return result


def _row_to_dict(row: MethodPlan) -> dict[str, Any]:
    return {
        "name": row.name,
        "method": row.method,
        "options": row.options,
        "cost": dataclasses.asdict(row.cost) if row.cost else None,
        "bounds": _bounds_to_dict(row.bounds) if row.bounds else None,
        "enough": dataclasses.asdict(row.enough) if row.enough else None,
        "at_budget": dataclasses.asdict(row.at_budget) if row.at_budget else None,
        "trials": row.trials,
        "why_not": row.why_not,
        "unproved": METHODS[row.method].unproved,
    }


def _bounds_to_dict(found: RunBounds) -> dict[str, Any]:
    return {
        "rounds": found.rounds,
        "one_round": found.one_round,
        "pulls_least": found.pulls_least,
        "pulls_most": found.pulls_most,
        "longest_most": found.longest_most,
        "by_group": found.rows(),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def plan(
    problem: Problem | Scenario | Mapping[str, Sequence[float]],
    *,
    delta: float | None = None,
    trials: int = 1000,
    seed: int | None = None,
    budget: int | None = None,
    methods: Sequence[str] | None = None,
    quick: bool = False,
    workers: int | None = None,
    watch: Watch | None = None,
    **options: object,
) -> Plan:
    """Forecast the cost of each method on a problem with known means or guessed gaps.

    A method without a kernel is simulated at most 50 times.

    Parameters
    ----------
    problem : Problem, Scenario or mapping
        A mapping contains guessed gaps, as for ``problem_from_gaps``. The options of a scenario are the
        defaults.
    delta : float, optional
        The probability of a wrong answer is at most this.
    trials : int
        The number of runs behind each number.
    seed : int, optional
        By default the scenario's, or a random one; the plan contains it.
    budget : int, optional
        Your budget of pulls per client.
    methods : sequence of str, optional
        By default all methods that can handle the problem, with Fed-Fisher once for each `prefer`.
    quick : bool
        Do not search for a sufficient budget, and do not measure alternatives.
    workers : int, optional
        The number of processes.
    watch : callable, optional
        Called from time to time with the progress.
    **options
        Options of the methods.

    Returns
    -------
    Plan
        A row for each method, the limit and advice.

    Raises
    ------
    InputError
        If an option is invalid, a mean is unknown, or no method can handle the problem.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.plan(ba.Problem.bernoulli([[.9, .3], [.5, .2]]), delta=0.1, trials=50, seed=1, quick=True)
    >>> print(*(row.name for row in found.methods if row.name.startswith("bet")), sep=", ")
    bet (balanced), bet (pulls), bet (rounds), bet (bits)
    >>> found["fed-sel"].cost.rounds.high <= found["fed-sel"].bounds.rounds
    True
    """
    assumption = ""
    if isinstance(problem, Mapping):
        problem, assumption = problem_from_gaps(problem), ASSUMPTION.format(best=0.5)
    given = {**options, **({} if delta is None else {"delta": delta})}
    asked, keys = with_question(problem, given)
    left_out: dict[str, str] = {}
    if methods is None:
        methods, left_out = plannable(asked, keys)
    scenario = scenario_for(asked, keys, methods)
    if is_recorded(asked.problem if isinstance(asked, Scenario) else asked):
        assumption = RECORDED
    own = scenario.options.pop("budget", None)
    budget = own if budget is None else budget
    if budget is not None:
        for method in methods:
            prepare(scenario, method, {"budget": budget})  # checks it
    bench = Bench(scenario, trials, check_seed(scenario.seed if seed is None else seed), workers, watch)
    rows = tuple(
        forecast(bench, name, method, chosen, budget, quick)
        for name, method, chosen in list(variants(scenario, methods))
    )
    best, no_limit = _limit(scenario, rows)
    return Plan(
        delta=prepare(scenario, methods[0], {})[2].delta,
        trials=trials,
        seed=bench.seed,
        budget=budget,
        heterogeneity=heterogeneity(scenario.problem),
        limit=best,
        methods=rows,
        advice=() if quick else tuple(dict.fromkeys(advise(bench, best, rows, budget))),
        left_out=left_out,
        assumption=assumption,
        no_limit=no_limit,
    )


def expected(
    problem: Problem, method: str, *, trials: int = 200, seed: int | None = None, **options: object
) -> MethodPlan:
    """Forecast the cost of one method with exactly these options: a plan's row, without budgets or advice.

    >>> import bestarm as ba
    >>> row = expected(ba.Problem.bernoulli([[.9, .3], [.5, .2]]), "fisher", trials=50, seed=1, delta=0.1)
    >>> row.cost.decided
    1.0
    """
    asked, keys = with_question(problem, options)
    bench = Bench(scenario_for(asked, keys, [method]), trials, check_seed(seed), 1, None)
    return forecast(bench, method, method, {}, None, quick=True)


def _limit(scenario: Scenario, rows: Sequence[MethodPlan]) -> tuple[Limit | None, str]:
    """The limit, if it applies to the runs of all these methods; else None, and why not."""
    found = None
    for row in rows:
        problem, _, chosen = prepare(scenario, row.method, row.options)
        undecided = 0 if row.cost is None else round((1.0 - row.cost.decided) * row.trials)
        found, why_not = limit_of_runs(problem, row.method, chosen, undecided=undecided)
        if why_not:
            return None, f"{row.name}: {why_not}"
    return found, ""
