"""The setup of one run: problem, method, options, seed, liars and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bestarm.problem.problem import Problem
from bestarm.problem.question import KEYS, replaced
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
    if isinstance(problem, Scenario):
        return asking(problem, keys)
    question, rest = _parted(keys)
    return (_asked(problem, question) if question and isinstance(problem, Problem) else problem), rest


def asking(scenario: Scenario, keys: Mapping[str, Any]) -> tuple[Scenario, dict[str, Any]]:
    """``with_question`` for a scenario."""
    question, rest = _parted(keys)
    if not question:
        return scenario, rest
    return replace(scenario, problem=_asked(scenario.problem, question), asked=True), rest


def _parted(keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a question, and the others."""
    question = {key: value for key, value in keys.items() if key in KEYS}
    return question, {key: value for key, value in keys.items() if key not in KEYS}


def _asked(problem: Problem, question: Mapping[str, Any]) -> Problem:
    """The problem with these keys of its question replaced."""
    names = [group.name for group in problem.layout.groups]
    return problem.asking(**replaced(problem.layout.question.keys(names), question))
