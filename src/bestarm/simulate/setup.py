"""The setup of one run: problem, method, options, seed, liars and network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bestarm.problem.problem import Problem
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
    """

    problem: Problem
    method: str | None = None
    seed: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    adversaries: tuple[Adversary, ...] = ()
    network: Network | None = None
    family: Callable[..., Problem] | None = None
