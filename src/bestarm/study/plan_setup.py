"""The setup of plans and schedules: a problem with known means, and the methods that can handle it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bestarm.errors import InputError
from bestarm.problem.counted_recording import CountedRecording
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Recording, RewardModel, tabulate
from bestarm.protocol.options import unknown_key
from bestarm.protocol.registry import METHODS, method_named, options_for
from bestarm.simulate.identify import check_network, default_method, prepare
from bestarm.simulate.setup import Scenario
from bestarm.stats.heterogeneity import heterogeneity
from bestarm.util.text import shorten


def problem_from_gaps(groups: Mapping[str, Sequence[float]], best: float = 0.5) -> Problem:
    """Make a problem from guessed gaps: how far each arm's mean is below the mean of the best arm overall.

    Rewards are assumed to be 0/1. Their variance is largest at a mean of 0.5, so a plan made with it tends to
    ask for too many pulls rather than too few.

    Parameters
    ----------
    groups : mapping of str to sequence of float
        The gaps of each group's arms. Exactly one gap in all groups together is 0.
    best : float
        The mean assumed for the best arm.

    Returns
    -------
    Problem
        With arms a1, a2, … in each group.

    Raises
    ------
    InputError
        If a gap is invalid, or not exactly one of them is 0.

    Examples
    --------
    >>> problem_from_gaps({"north": [0, 0.1], "south": [0.05]}).means
    ((0.5, 0.4), (0.45,))
    """
    if not isinstance(groups, Mapping) or not groups:
        raise InputError(f"{shorten(groups)} does not describe gaps", expected="{group: [gap of each arm]}")
    if isinstance(best, bool) or not isinstance(best, int | float) or not 0.0 < best <= 1.0:
        raise InputError(f"best = {shorten(best)} can't be used", expected="a mean in (0, 1]")
    zeros = 0
    for name, gaps in groups.items():
        if isinstance(gaps, str) or not isinstance(gaps, Sequence):
            raise InputError(f"{shorten(gaps)} is not a list of gaps", where=f'group "{name}"')
        for gap in gaps:
            if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0.0 <= gap <= best:
                raise InputError(
                    f"the gap {shorten(gap)} can't be used",
                    where=f'group "{name}"',
                    expected=f"a number from 0 to {best:g}, the mean assumed for the best arm",
                )
            zeros += gap == 0
    if zeros != 1:
        raise InputError(f"{zeros} of the gaps are 0", expected="exactly one: that of the best arm")
    return Problem.from_rewards(
        {
            name: {f"a{i}": round(best - gap, 12) for i, gap in enumerate(gaps, start=1)}
            for name, gaps in groups.items()
        }
    )


def is_recorded(problem: Problem) -> bool:
    """Whether some rewards are recordings."""
    return any(isinstance(model, Recording | CountedRecording) for row in problem.rewards for model in row)


def _redrawn(problem: Problem) -> Problem:
    """The problem with recordings replaced by draws with replacement, whose means are known."""
    if not is_recorded(problem):
        return problem
    if problem.layout.paired:
        raise InputError(
            "a plan draws the rewards of options independently, which pairs are not",
            fix="Leave out pair for a plan; a run with pairs needs fewer rows if a subject's scores agree",
        )
    rewards = tuple(tuple(_with_replacement(model) for model in row) for row in problem.rewards)
    layout = dataclasses.replace(problem.layout, finite=False)
    return dataclasses.replace(problem, layout=layout, rewards=rewards)


def _with_replacement(model: RewardModel) -> RewardModel:
    match model:
        case Recording(values):
            return tabulate(values)
        case CountedRecording(distinct, counts):
            return tabulate(distinct, counts)
    return model


def plannable(problem: Problem | Scenario, keys: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The methods that can handle the problem, and why the others are left out; InputError if none can.

    Methods that are there for comparison only are not listed.
    """
    scenario = problem if isinstance(problem, Scenario) else Scenario(problem)
    methods, refused = [], {}
    asked = scenario.problem.layout.question.kind
    for name, method in METHODS.items():
        if asked not in method.questions or method.rival:
            continue
        try:
            ready, _, made = prepare(scenario, name, options_for(name, keys))
            check_network(ready, name, made, scenario.network, adversaries=scenario.adversaries)
        except InputError as error:
            refused[name] = error
            continue
        if why := method.plan.left_out(ready.layout):
            refused[name] = InputError(why)
        else:
            methods.append(name)
    if not methods:
        chosen, liars = {**scenario.options, **keys}, bool(scenario.adversaries)
        usual = scenario.method or default_method(chosen, scenario.problem.layout, liars)
        raise refused.get(usual) or next(iter(refused.values()))
    return methods, {name: str(error) for name, error in refused.items()}


def scenario_for(problem: Problem | Scenario, keys: Mapping[str, Any], methods: Sequence[str]) -> Scenario:
    """The problem as a scenario with these options; InputError if no method knows one of them."""
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise InputError(f"methods = {shorten(methods)} can't be used", expected="a list of methods")
    known = {key for name in methods for key in method_named(name).options.__dataclass_fields__}
    for key in keys:
        if key not in known:
            raise unknown_key(key, known)
    base = problem if isinstance(problem, Scenario) else Scenario(problem)
    base.problem.demand_rewards()
    if base.problem.hides_rewards:
        raise InputError(
            "privacy hides the means of these rewards, which a plan needs",
            expected="means that you guess, with the same privacy",
            fix="Write them in a scenario without the rewards: arms = { name = mean } in each [[group]]",
        )
    scenario = dataclasses.replace(base, options={**base.options, **keys})
    for method in methods:
        prepare(scenario, method, options_for(method, keys))
    scenario = dataclasses.replace(scenario, problem=_redrawn(scenario.problem))
    heterogeneity(scenario.problem)  # the means must be known
    return scenario


def variants(scenario: Scenario, methods: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The rows of a plan, as (name, method, options): each method once for each variant of its options."""
    for method in methods:
        problem, _, chosen = prepare(scenario, method, {})
        for label, keys in METHODS[method].plan.variants(problem.layout, chosen):
            yield f"{method} ({label})" if label else method, method, keys
