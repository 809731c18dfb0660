"""What simulated runs like a given one tell: what would have decided it, and what would have been cheaper.

The runs have no budget and no limit on rounds. Their means are those of the simulation, or else the estimates
of the run itself; then rewards are assumed to be 0/1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.protocol.registry import METHODS, options_for
from bestarm.records.card import Outlook
from bestarm.records.estimates import claims_about
from bestarm.records.figures import MANY
from bestarm.records.ranking import simulated
from bestarm.records.record import Record
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.identify import prepare
from bestarm.simulate.network import Network
from bestarm.simulate.setup import Scenario
from bestarm.study.forecast import FIRST, INSTEAD, SURE, Bench, endless
from bestarm.study.plan_setup import plannable, scenario_for
from bestarm.study.similar import similar_runs

TRIALS = 200  # simulated runs behind each number
FEW = 50  # the same for other methods
LARGEST, SMALLEST = 0.05, 0.001  # the ε that are tried, as shares of the range of the rewards
MOST_ARMS = 10_000  # in all simulated runs together: some seconds, with hundreds of arms
MOST_STEPS = 60_000  # events of the runs that are simulated one by one: some seconds
PROBE, FAR = 4, 3.0  # runs of a method that is left out if they need so many times the pulls
WORTH = 0.1  # a method is cheaper if it saves at least this share of the pulls
TOO_LONG = "such runs take too long to simulate here"
LIMITS = ("budget", "max_rounds", "summaries")


def outlook(record: Record, *, trials: int = TRIALS, seed: int = 0) -> Outlook:
    """Simulate runs like this one, and say what would decide it and what would be cheaper.

    Parameters
    ----------
    record : Record
        A run that is over.
    trials : int
        The number of simulated runs behind each number; fewer if there are more than 50 options, and none if
        there are thousands.
    seed : int
        The seed of these runs.

    Returns
    -------
    Outlook

    Examples
    --------
    >>> import bestarm as ba
    >>> record = ba.identify(ba.Problem.bernoulli([[.9, .2], [.5]]), budget=50, seed=1)
    >>> found = outlook(record)
    >>> record.verdict.status, 100 < found.enough < 1000
    ('undecided', True)
    """
    layout, _ = Problem.layout_from_dict(record.problem)
    most = MOST_ARMS // sum(layout.arm_counts)
    if most < PROBE:
        return Outlook(why_not=TOO_LONG)
    trials = min(trials, most)
    problem = simulated(record)
    guessed = problem is None
    try:
        problem = _guess(record) if problem is None else problem
        return _outlook(record, problem, guessed, trials, seed)
    except InputError as error:  # a method, a question or a network that a plan does not support
        return Outlook(why_not=str(error).rstrip("."))


def _guess(record: Record) -> Problem:
    """The problem with the means that this run estimated, and 0/1 rewards."""
    layout, _ = Problem.layout_from_dict(record.problem)
    rewards: dict[str, dict[str, float]] = {}
    for j, group in enumerate(layout.groups):
        for a, arm in enumerate(group.arms):
            claims = claims_about(layout, record.summaries or {}, j, a)
            if not claims:
                raise InputError("the means of some options are not known")
            mean = sum(claim.total for claim in claims) / sum(claim.pulls for claim in claims)
            rewards.setdefault(group.name, {})[arm] = mean
    found = Problem.from_rewards(rewards, clients={g.name: len(g.clients) for g in layout.groups})
    asked = layout.question
    return found if asked.kind == "anywhere" else found.asking(**asked.keys([g.name for g in layout.groups]))


def _outlook(record: Record, problem: Problem, guessed: bool, trials: int, seed: int) -> Outlook:
    method, decided = record.method, record.verdict.status == "identified"
    keys: dict[str, Any] = {k: v for k, v in record.options.items() if k not in LIMITS and v is not None}
    keys["delta"] = record.delta
    if guessed:
        keys.pop("epsilon", None)
    liars = () if guessed else tuple(Adversary(**found) for found in record.adversaries)
    if METHODS[method].peers:
        return _one_by_one(record, problem, keys, liars, guessed)
    scenario = Scenario(problem, adversaries=liars)
    bench = Bench(scenario_for(scenario, keys, [method]), trials, seed, 1, None)
    if why := endless(bench, method):
        return Outlook(trials=trials, guessed=guessed, why_not=why)
    if not bench.quick(method, {}):
        return _one_by_one(record, problem, keys, liars, guessed)
    found = bench.run(method, {}, FIRST)
    named = found["status"] == "identified"
    pulls = float(np.mean(found["pulls_total"][named])) if named.any() else np.inf
    sure = SURE if trials >= MANY else 1.0  # few runs say what all of them need
    enough = int(np.quantile(found["pulls_total"], sure, method="higher")) if named.mean() >= sure else None
    saved, epsilon = (None, None) if decided else _epsilon(bench, record, problem, pulls)
    cheaper, less = _cheaper(bench, method, scenario, keys, pulls) if decided else ("", None)
    return Outlook(
        trials=trials,
        guessed=guessed,
        enough=enough,
        saved=saved,
        epsilon=epsilon,
        cheaper=cheaper,
        less=less,
    )


def _one_by_one(
    record: Record, problem: Problem, keys: Mapping[str, Any], liars: Sequence[Adversary], guessed: bool
) -> Outlook:
    """The same from few runs through the machines, where no kernel can simulate them."""
    if record.verdict.status == "identified":
        return Outlook(why_not="such runs can only be simulated one by one")
    ready, _, options = prepare(problem, record.method, keys)
    network = None if record.network is None else Network.from_dict(record.network)
    if not options.epsilon and (ties := problem.ties(local=METHODS[record.method].local_bests)):
        return Outlook(guessed=guessed, why_not=f"{ties[0]}; without epsilon or a budget it never ends")
    runs = similar_runs(ready, record.method, options, network, liars, most=MOST_STEPS)
    if runs is None:
        return Outlook(guessed=guessed, why_not=TOO_LONG)
    if any(run.verdict.status != "identified" or run.pulls is None for run in runs):
        return Outlook(guessed=guessed, why_not="some of such runs end undecided even without a budget")
    pulls = max(run.pulls.total for run in runs if run.pulls is not None)
    return Outlook(trials=len(runs), guessed=guessed, enough=pulls)


def _epsilon(
    bench: Bench, record: Record, problem: Problem, pulls: float
) -> tuple[float | None, float | None]:
    """The share of the pulls that ε saves, and that ε."""
    asked = problem.layout.question.kind != "anywhere"
    if asked or not METHODS[record.method].epsilon or record.options.get("epsilon"):
        return None, None
    epsilon = _about_the_lead(problem)
    try:
        found = bench.run(record.method, {"epsilon": epsilon}, INSTEAD)
    except InputError:
        return None, None
    saved = 1.0 - float(np.mean(found["pulls_total"])) / pulls
    return (saved, epsilon) if saved >= WORTH else (None, None)


def _about_the_lead(problem: Problem) -> float:
    """An ε as large as the lead of the best option, rounded to one digit, in units of the rewards.

    >>> import bestarm as ba
    >>> _about_the_lead(ba.Problem.bernoulli([[0.083, 0.071], [0.02]]))
    0.01
    """
    means = sorted(mean for row in problem.means for mean in row if mean is not None)
    lead = means[-1] - means[-2] if len(means) > 1 else LARGEST
    share = min(max(lead, SMALLEST), LARGEST)
    return float(f"{share * (problem.scale.high - problem.scale.low):.1g}")


def _cheaper(
    first: Bench, method: str, scenario: Scenario, keys: Mapping[str, Any], pulls: float
) -> tuple[str, float | None]:
    """Another method that needs fewer pulls at the same δ, and the share that it saves."""
    best, least = "", pulls
    shared = {key: keys[key] for key in ("delta", "byzantine", "epsilon") if key in keys}
    able, _ = plannable(scenario, shared)
    for name in able:
        if name == method or METHODS[name].peers:
            continue
        own = options_for(name, shared)
        bench = Bench(scenario_for(scenario, own, [name]), min(first.trials, FEW), first.seed, 1, None)
        if endless(bench, name) or not bench.quick(name, {}):
            continue
        if np.mean(bench.run(name, {}, FIRST, PROBE)["pulls_total"]) > FAR * pulls:
            continue
        found = bench.run(name, {}, FIRST)
        named = found["status"] == "identified"
        if named.mean() >= SURE and (mean := float(np.mean(found["pulls_total"][named]))) < least:
            best, least = name, mean
    less = 1.0 - least / pulls
    return (best, less) if less >= WORTH else ("", None)
