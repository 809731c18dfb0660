"""The setup of one run: problem, method, options, seed, liars and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bestarm.problem.problem import Problem
from bestarm.problem.question import KEYS
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.network import Network


@dataclass(frozen=True)
class Scenario:
    """The contents of a scenario file.

    Parameters
    ----------
    problem : Problem
        The groups, arms, clients and rewards.
    method : str, optional
        The method's name.
    seed : int, optional
        The seed of the run.
    options : dict
        Options of methods; each method uses the ones that it knows.
    adversaries : tuple of Adversary
        Clients that lie.
    network : Network, optional
        The network, for methods without a server.
    family : callable, optional
        Makes the problem from parameters that a study can vary, if the file names a family.
    asked : bool
        Whether the file says which question it asks.
    name : str
        A label for readers: the file's name without its ending.
    """

    problem: Problem
    method: str | None = None
    seed: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    adversaries: tuple[Adversary, ...] = ()
    network: Network | None = None
    family: Callable[..., Problem] | None = None
    asked: bool = False
    name: str = ""

    def __repr__(self) -> str:
        named = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        liars = f", {len(self.adversaries)} adversaries" if self.adversaries else ""
        return f"Scenario({self.problem!r}, {self.method or 'no method'}{', ' * bool(named)}{named}{liars})"


def with_question(
    problem: Problem | Scenario, keys: Mapping[str, Any]
) -> tuple[Problem | Scenario, dict[str, Any]]:
    """The problem or scenario with the question that some of the keys describe, and the other keys."""
    question = {key: value for key, value in keys.items() if key in KEYS}
    rest = {key: value for key, value in keys.items() if key not in KEYS}
    if not question:
        return problem, rest
    if isinstance(problem, Scenario):
        return asking(problem, keys)
    return (problem.asking(**question) if isinstance(problem, Problem) else problem), rest


def asking(scenario: Scenario, keys: Mapping[str, Any]) -> tuple[Scenario, dict[str, Any]]:
    """``with_question`` for a scenario; without `question`, the other keys are about the scenario's own."""
    question = {key: value for key, value in keys.items() if key in KEYS}
    rest = {key: value for key, value in keys.items() if key not in KEYS}
    if not question:
        return scenario, rest
    if "question" not in question:
        names = [group.name for group in scenario.problem.layout.groups]
        question = {**scenario.problem.layout.question.keys(names), **question}
    return replace(scenario, problem=scenario.problem.asking(**question), asked=True), rest
