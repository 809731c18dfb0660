"""The advice in a plan. Each sentence comes from a study of the alternative that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.problem.privacy import Private, price
from bestarm.protocol.planning import Averages, change, percent
from bestarm.protocol.registry import METHODS, method_for
from bestarm.simulate.identify import default_method, prepare
from bestarm.stats.limit import Limit
from bestarm.study.forecast import INSTEAD, SEARCH_TRIALS, SURE, Bench, Cost, MethodPlan


def advise(bench: Bench, best: Limit | None, rows: Sequence[MethodPlan], budget: int | None) -> Iterator[str]:
    """Sentences on what would save pulls or rounds, and whether the budget is enough."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.why_not:
            reasons.setdefault(row.why_not, []).append(row.name)
    for why_not, names in reasons.items():
        yield f"{'; '.join(names)}: {why_not}."
    measured = [(row, row.cost) for row in rows if row.cost is not None]
    for row, cost in measured:
        yield from _own_advice(bench, row, cost)
    if measured:
        first, least = min(measured, key=lambda pair: pair[1].pulls.mean)
        for row, cost in measured:
            if row is not first:
                yield _comparison(row.name, cost.averages, first.name, least.averages)
        found = [_epsilon_advice(bench, first, least.pulls.mean)]
    else:
        found = [_epsilon_advice(bench, row, np.inf) for row in rows]
    if known := [pair for pair in found if pair is not None]:
        yield min(known)[1]
    if (cost_of := _privacy_advice(bench)) is not None:
        yield cost_of
    if (default := _liars_advice(bench)) is not None:
        yield default
    if budget is not None:
        yield _budget_advice(rows, best, budget)


def _own_advice(bench: Bench, row: MethodPlan, cost: Cost) -> Iterator[str]:
    """The method's own advice about its options."""
    problem, _, chosen = prepare(bench.scenario, row.method, row.options)

    def measure(keys: Mapping[str, Any]) -> Averages:
        return Cost.of(bench.run(row.method, {**row.options, **keys}, INSTEAD)).averages

    return METHODS[row.method].plan.advice(problem, chosen, cost.averages, measure)


def _comparison(name: str, cost: Averages, first: str, least: Averages) -> str:
    return (
        f"Compared with {first}, {name} takes {change(cost.pulls, least.pulls, 'pulls')} and "
        f"{change(cost.rounds, least.rounds, 'rounds')} ({cost.rounds:.1f} instead of {least.rounds:.1f})."
    )


def _epsilon_advice(bench: Bench, row: MethodPlan, pulls: float) -> tuple[float, str] | None:
    """The smallest of a few ε that saves a tenth of the pulls (or lets the run end): its pulls and a text."""
    problem, _, chosen = prepare(bench.scenario, row.method, row.options)
    if chosen.epsilon > 0.0 or not method_for(row.method, problem.layout, chosen).epsilon:
        return None
    width = problem.scale.high - problem.scale.low  # ε is on the user's scale, also with privacy
    for epsilon in (0.01 * width, 0.02 * width, 0.05 * width, 0.1 * width):
        few = min(row.trials, SEARCH_TRIALS)
        other = Cost.of(bench.run(row.method, {**row.options, "epsilon": epsilon}, INSTEAD, few))
        if other.decided < SURE or other.pulls.mean > 0.9 * pulls:
            continue
        saved = (
            f"save {percent(1.0 - other.pulls.mean / pulls)} of the pulls"
            if np.isfinite(pulls)
            else f"let it end after {other.pulls.mean:,.0f} pulls on average"
        )
        return other.pulls.mean, (
            f"epsilon = {epsilon:g} would {saved} ({row.name}); "
            "the answer may then be that far from the best."
        )
    return None


def _privacy_advice(bench: Bench) -> str | None:
    """What privacy costs, predicted from the arms that matter: it is in the measured pulls already."""
    problem = bench.scenario.problem
    if problem.scale.privacy is None:
        return None
    firsts = [problem.rewards[problem.layout.clients.index(g.clients[0])] for g in problem.layout.groups]
    arms = [model for row in firsts for model in row if isinstance(model, Private)]
    if any(model.mean is None for model in arms) or len(arms) < 2:
        return None
    if problem.layout.question.kind == "anywhere":  # else every cell has a part in the answer
        arms = sorted(arms, key=lambda model: -(model.mean or 0.0))[:2]
    factor = price([model.model for model in arms], problem.scale.privacy)
    if factor is None:
        return None
    return (
        f"privacy = {problem.scale.privacy:g} takes about {factor:.3g} times the pulls of a run without it "
        "(predicted for small gaps); the forecasts include it."
    )


def _liars_advice(bench: Bench) -> str | None:
    """Which method is the default among liars, where a plan of runs in peace may suggest another one."""
    options, layout = bench.scenario.options, bench.scenario.problem.layout
    if not options.get("byzantine") or layout.question.kind != "anywhere":
        return None
    kind = "0/1 rewards" if all(group.binary for group in layout.groups) else "rewards that are not 0/1"
    peace = "" if bench.scenario.adversaries else " In these forecasts nobody lies; [[adversary]] adds liars."
    return (
        f"With byzantine above 0 and {kind} the default is {default_method(options, layout)}, which took the "
        f"fewest pulls under attack in our measurements.{peace}"
    )


def _budget_advice(rows: Sequence[MethodPlan], best: Limit | None, budget: int) -> str:
    chances = [(row, row.at_budget) for row in rows if row.at_budget is not None]
    row, chance = max(chances, key=lambda pair: pair[1].decided)
    text = (
        f"At your budget of {budget:,} pulls per client "
        f"{row.name} decides in {percent(chance.decided)} of the runs"
    )
    if chance.decided >= SURE:
        return f"{text}: it is enough."
    word = "not decidable" if chance.decided < 0.5 else "often not decidable"
    needs = [(r.enough.budget, r.name) for r in rows if r.enough is not None]
    least = f"; {min(needs)[1]} needs {min(needs)[0]:,} for {percent(SURE)}" if needs else ""
    fewest = (
        " No method that names the best arm with probability at least 1 - delta on every problem with 0/1 "
        f"rewards and a unique best arm needs fewer than {best.longest:,.0f} on average."
        if best
        else ""
    )
    return f"{text}, so this is {word}{least}.{fewest}"
