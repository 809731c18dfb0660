"""Runs similar to a given one, through the machines one by one: of peers, and of methods without a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bestarm.problem.problem import Problem
from bestarm.protocol.options import Common
from bestarm.records.record import Record
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.identify import run_of
from bestarm.simulate.network import Network
from bestarm.util.seeds import seed_within

FEW = 20  # runs
MOST_STEPS = 100_000  # events of all these runs together: some ten seconds


def similar_runs(
    problem: Problem,
    method: str,
    options: Common,
    network: Network | None = None,
    adversaries: Sequence[Adversary] = (),
    *,
    most: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Record] | None:
    """Simulate a few runs to their end; None if that would take more than `most` events, or MOST_STEPS."""
    found, steps = list[Record](), 0
    most = MOST_STEPS if most is None else most
    network = None if network is None else replace(network, placement=None)
    for k in range(FEW):
        run = run_of(problem, method, options, seed_within(1, k), network, adversaries=adversaries)
        run.begin()
        while not run.over and steps * FEW <= most * (k + 1) and not stop():
            run.step()
            steps += 1
        if not run.over:
            return None
        found.append(run.record())
    return found
