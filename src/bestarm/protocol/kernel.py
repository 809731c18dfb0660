"""Code shared by the kernels of all methods: draws for many trials at once, and the columns of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.coins import Coined
from bestarm.problem.layout import Layout
from bestarm.problem.moments import of_ones
from bestarm.problem.privacy import Private
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Bernoulli, RewardModel
from bestarm.protocol import decisions
from bestarm.protocol.events import Pull, Pulled

Columns = dict[str, NDArray[Any]]
Script = dict[int, list[tuple[Pull, Pulled]]]  # each client's batches, in order
CHUNK = 1 << 14  # (client, arm) pairs processed at a time, so that they fit in the CPU cache


class Arms:
    """The reward models of all clients as arrays, drawn from in one call where they are Bernoulli."""

    def __init__(self, problem: Problem) -> None:
        counts = [len(models) for models in problem.rewards]
        shape = (len(counts), max(counts))
        self.valid = np.arange(shape[1]) < np.asarray(counts)[:, None]
        self.p = np.zeros(shape)
        self.mean = np.zeros(shape)
        self.known = True
        self.other: dict[int, tuple[RewardModel, NDArray[np.bool_]]] = {}
        by_group = problem.means
        for i, (client, models) in enumerate(zip(problem.layout.clients, problem.rewards, strict=True)):
            for a, (model, mean) in enumerate(
                zip(models, by_group[problem.layout.group_of[client]], strict=True)
            ):
                self.known &= mean is not None
                self.mean[i, a] = np.nan if mean is None else mean
                if isinstance(model, Bernoulli | Coined | Private) and model.p is not None:
                    self.p[i, a] = model.p
                else:
                    where = self.other.setdefault(id(model), (model, np.zeros(shape, dtype=bool)))[1]
                    where[i, a] = True

    def sums(
        self, rng: np.random.Generator, clients: decisions.Ints, times: decisions.Ints
    ) -> decisions.Floats:
        """For each row (a client) and arm, the sum of `times` draws; `times` = 0 costs almost nothing."""
        found = rng.binomial(times, self.p[clients]).astype(np.float64)
        for model, where in self.other.values():
            mask = where[clients] & (times > 0)
            if mask.any():
                found[mask] = model.sums(rng, times[mask])
        return found

    def moments(
        self, rng: np.random.Generator, clients: decisions.Ints, times: decisions.Ints
    ) -> decisions.Floats:
        """For each row (a client) and arm, the moments of `times` draws, as a last axis (see moments.py)."""
        found = of_ones(rng.binomial(times, self.p[clients]), times)
        for model, where in self.other.values():
            mask = where[clients] & (times > 0)
            if mask.any():
                found[mask] = model.moments(rng, times[mask])
        return found

    def sums_of(
        self, rng: np.random.Generator, clients: decisions.Ints, arm: decisions.Ints, times: int
    ) -> decisions.Floats:
        """For each row (a client and one of its arms), the sum of `times` draws."""
        found = rng.binomial(times, self.p[clients, arm]).astype(np.float64)
        for model, where in self.other.values():
            mask = where[clients, arm]
            if mask.any():
                found[mask] = model.sums(rng, np.full(int(mask.sum()), times))
        return found


def remember(
    script: Script,
    client: SupportsInt,
    arms: decisions.Ints,
    times: SupportsInt,
    sums: decisions.Floats,
    *,
    shares: Iterable[SupportsInt] = (),
    moments: decisions.Floats | None = None,
) -> None:
    """Add a batch to the script of a traced trial: what was asked for, and what came.

    Parameters
    ----------
    script : dict
        The batches of each client so far.
    client : int
        The client that made the pulls.
    arms, times, shares
        The ``Pull`` of the client's machine.
    sums : array
        The sum of the rewards of each arm.
    moments : array, optional
        The moments of each arm, of shape (arms, 4), if the machine asks for them.
    """
    pull = Pull(tuple(arms.tolist()), int(times), tuple(map(int, shares)), moments is not None)
    rows = sums[:, None] if moments is None else moments
    script.setdefault(int(client), []).append((pull, Pulled.of(rows.astype(float).tolist(), pull.times)))


def columns_of(
    layout: Layout,
    outcome: decisions.Ints,
    winner: decisions.Ints,
    picked: decisions.Ints,
    good: NDArray[np.bool_] | NDArray[np.object_],
    rounds: decisions.Ints,
    time: decisions.Ints,
    pulls1: decisions.Ints,
    pulls2: decisions.Ints,
    bits_up: decisions.Ints,
    bits_down: decisions.Ints,
) -> Columns:
    """A study's columns; pulls are by (trial, client)."""
    identified = outcome == decisions.IDENTIFIED
    arm_names = [
        layout.arm(int(j), int(a)) if ok else None
        for ok, j, a in zip(identified, winner, picked, strict=True)
    ]
    per_client = pulls1 + pulls2
    return {
        "status": np.where(identified, "identified", "undecided"),
        "arm": np.array(arm_names, dtype=object),
        "good_event": good,
        "rounds": rounds,
        "time": time,
        "pulls_total": per_client.sum(axis=1),
        "pulls_phase1": pulls1.sum(axis=1),
        "pulls_phase2": pulls2.sum(axis=1),
        "pulls_max": per_client.max(axis=1, initial=0),
        "bits_up": bits_up,
        "bits_down": bits_down,
        "reason": np.array([decisions.REASON_OF.get(int(code)) for code in outcome], dtype=object),
    }


Kernel = Callable[..., tuple[Columns, Script]]
