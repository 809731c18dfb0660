"""Kernels: methods vectorised over arrays of (trials, clients, arms).

A kernel makes every decision through its method's decision functions, as the machines do, and draws exactly
the batches that the machines would ask for. ``script`` contains the batches of one trial, so that the
machines can be run on them (``Trials.record``) and must produce the same record.

A kernel is ``kernel(problem, options, rng, trials, trace) -> (columns, script)``. A method's field ``kernel``
says for which problems, options and liars it has one; for all others, ``study`` runs the machines trial by
trial.
"""

from __future__ import annotations

from collections.abc import Sequence

from bestarm.problem.problem import Problem
from bestarm.protocol.kernel import Kernel
from bestarm.protocol.options import Common
from bestarm.protocol.registry import method_for
from bestarm.simulate.adversary import Adversary, check_adversaries


def kernel_for(
    method: str, problem: Problem, options: Common, adversaries: Sequence[Adversary] = ()
) -> Kernel | None:
    """The kernel that can simulate these runs, or None if only the machines can."""
    ask = method_for(method, problem.layout, options).kernel
    if ask is None:
        return None
    liars = check_adversaries(problem.layout, adversaries)
    return ask(problem, options, {name: adversary.attack for name, adversary in liars.items()})
