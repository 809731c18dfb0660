"""What follows from true means: heterogeneity, the limit on pulls, and a forecast of runs like this one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.records.describe import nothing_promised
from bestarm.records.record import Record
from bestarm.report.facts.structs import HeterogeneityFacts, LimitFacts, PlanFacts, RangeFacts, RunFacts
from bestarm.simulate.identify import prepare, run_of
from bestarm.simulate.network_run import NetworkRun
from bestarm.simulate.run import Run
from bestarm.stats.heterogeneity import heterogeneity
from bestarm.study.forecast import Range
from bestarm.study.kernels import kernel_for
from bestarm.study.limits import limit_of_runs
from bestarm.study.plan import expected
from bestarm.study.similar import similar_runs

MOST_MATRIX = 12  # groups of a matrix of heterogeneity indices


def with_true_means(facts: RunFacts, problem: Problem, record: Record, quick: bool) -> RunFacts:
    """Add the facts that follow from known true means."""
    _, _, options = prepare(problem, record.method, {**record.options, "delta": record.delta})
    undecided = int(bool(record.verdict.reason) and record.verdict.status != "identified")  # not: is running
    least, no_limit = limit_of_runs(
        problem, record.method, options, undecided=undecided, broken=nothing_promised(record)
    )
    return msgspec.structs.replace(
        facts,
        heterogeneity=_heterogeneity(problem),
        limit=None if least is None else LimitFacts(least.total, least.longest, least.holds_for),
        no_limit=no_limit,
        plan=None if quick else _plan(problem, record),
    )


def _heterogeneity(problem: Problem) -> HeterogeneityFacts:
    found = heterogeneity(problem)
    shown = np.argsort(found.global_gaps, kind="stable")[:MOST_MATRIX]
    matrix = found.matrix[np.ix_(shown, shown)].tolist()
    return HeterogeneityFacts(
        groups=tuple(found.groups[j] for j in shown),
        matrix=tuple(tuple(None if np.isnan(x) else x for x in row) for row in matrix),
        more=len(found.groups) - len(shown),
    )


def going_plan(run: Run | NetworkRun, stop: Callable[[], bool] = lambda: False) -> PlanFacts | None:
    """A forecast for a simulated run that has just begun, if its true means are known. May take seconds."""
    if any(mean is None for row in run.problem.means for mean in row):
        return None
    try:
        quick = None if run.adversaries else _plan(run.problem, run.record(), most=60)
        return quick or _by_machines(run, stop)
    except InputError:  # such as rewards of a function that is not here
        return None


def _by_machines(run: Run | NetworkRun, stop: Callable[[], bool]) -> PlanFacts | None:
    """A forecast from similar runs with the same network and liars; None if they would take too long.

    Peers have no rounds, so their forecast is in time steps.
    """
    network = run.network if isinstance(run, NetworkRun) else None
    found = similar_runs(run.problem, run.method, run.options, network, run.adversaries, stop=stop)
    if found is None:
        return None
    span = Range.of(np.array([(record.time or 0) if network else record.rounds for record in found]))
    ranges = {"time" if network else "rounds": RangeFacts(span.mean, span.low, span.high)}
    return PlanFacts(len(found), ranges, {}, "with the same liars" if run.adversaries else "")


def as_it_looks(facts: RunFacts, stop: Callable[[], bool] = lambda: False) -> PlanFacts | None:
    """A forecast for a run whose true means are unknown, as if they were what the server knows by now.

    Options that the server was not told about are left out: they are behind at their sites.
    """
    known = {facts.groups[line.group].name: line for line in facts.lines if line.fate == "in"}
    if facts.options_by_site or facts.method.peers or len(known) < 2:
        return None
    clients = {group.name: group.clients for group in facts.groups}
    width, low = facts.scale.width, facts.scale.low
    means = {group: {"option": (line.mean[-1] - low) / width} for group, line in known.items()}
    if facts.scale.goal == "min":
        means = {group: {"option": 1.0 - own["option"]} for group, own in means.items()}
    keys = {k: v for k, v in facts.options.items() if v is not None and k not in ("budget", "max_rounds")}
    note = "if the means are as they look now"
    try:
        problem = Problem.bernoulli(means, clients=[clients[group] for group in means])
        ready, _, options = prepare(problem, facts.method.name, {**keys, "delta": facts.delta})
        if kernel_for(facts.method.name, problem, options) is None:
            found = _by_machines(run_of(ready, facts.method.name, options, 1), stop)
            return found and msgspec.structs.replace(found, note=note)
        row = expected(problem, facts.method.name, trials=40, seed=1, delta=facts.delta, **keys)
    except InputError:  # such as means that are too close for a plan
        return None
    if row.cost is None:
        return None
    rounds = row.cost.rounds
    return PlanFacts(40, {"rounds": RangeFacts(rounds.mean, rounds.low, rounds.high)}, {}, note)


def _plan(problem: Problem, record: Record, most: int = 200) -> PlanFacts | None:
    """A forecast from similar runs without liars, if they can be simulated quickly."""
    _, _, options = prepare(problem, record.method, {**record.options, "delta": record.delta})
    if record.network is not None or kernel_for(record.method, problem, options) is None:
        return None
    pairs = sum(len(models) for models in problem.rewards)
    trials = min(400_000 // max(record.rounds, 1), 200_000 // pairs, most)
    if trials < 20:
        return None
    keys = {k: v for k, v in record.options.items() if v is not None}
    row = expected(problem, record.method, trials=trials, seed=1, delta=record.delta, **keys)
    if row.cost is None:
        return None
    cost, proved = row.cost, {}
    # A forecast draws from recordings with replacement; here they run out, which the theorem doesn't cover.
    if row.bounds is not None and not problem.layout.finite and not record.adversaries:
        proved = {
            "pulls": row.bounds.pulls_most,
            "longest": row.bounds.longest_most,
            "rounds": row.bounds.rounds,
        }
    ranges = {
        "pulls": cost.pulls,
        "longest": cost.longest,
        "rounds": cost.rounds,
        "time": cost.time,
        "bits_up": cost.bits_up,
        "bits_down": cost.bits_down,
    }
    return PlanFacts(trials, {key: RangeFacts(r.mean, r.low, r.high) for key, r in ranges.items()}, proved)
