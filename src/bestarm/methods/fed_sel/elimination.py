"""Algorithm 1, local successive elimination, in batches.

All active arms are pulled once per epoch. An arm is eliminated when its mean is at least β(t) = c·α(t) below
the best. The skip-ahead bound (``decisions.skip``) allows many epochs to be drawn at once without missing a
decision: each elimination happens in the same epoch as in a pull-by-pull run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.protocol import decisions
from bestarm.stats.radii import MAX_COUNT, Radius


@dataclass(frozen=True)
class Exit:
    """An elimination, with the sums of the arm and of the best arm in that epoch."""

    arm: int
    epoch: int
    sum: float
    top: int
    top_sum: float


class Elimination:
    """Phase I of one client. Draw ``batch()`` epochs and pass the sums to ``absorb`` until ``finished``.

    With ε > 0 it also ends when α(t) ≤ ε/4: the leading arm is then within ε/2 of the best one (erratum
    19). With a budget it is `exhausted` when another epoch would cost more than the remaining budget.
    """

    def __init__(
        self, arms: int, radius: Radius, c: float, *, epsilon: float = 0.0, budget: int | None = None
    ) -> None:
        self.radius, self.c, self.epsilon, self.budget = radius, c, epsilon, budget
        self.sums = np.zeros(arms)
        self.active = np.ones(arms, dtype=bool)
        self.epoch = 0
        self.boundary = radius.boundary(0, c)
        self.pulls = 0
        self.exits: list[Exit] = []
        self.least = least_count(radius, c, epsilon)
        self.over = end_by_epsilon(radius, epsilon)

    @property
    def arms(self) -> tuple[int, ...]:
        return tuple(int(a) for a in np.flatnonzero(self.active))

    @property
    def best(self) -> int:
        return int(decisions.best_arm(self.sums, self.active))

    @property
    def finished(self) -> bool:
        return bool(fed_sel_decisions.finished(self.active, self.epoch, least=self.least, over=self.over))

    @property
    def exhausted(self) -> bool:
        return not self.finished and self.batch() == 0

    def batch(self) -> int:
        """The number of epochs to draw next; 0 if the budget does not allow one."""
        return int(
            fed_sel_decisions.batch(
                fed_sel_decisions.skip(self.sums, self.active, self.boundary),
                self.active,
                self.epoch,
                least=self.least,
                last=min(self.over, MAX_COUNT),
                left=None if self.budget is None else self.budget - self.pulls,
            )
        )

    def absorb(self, sums: tuple[float, ...], times: int) -> None:
        """Add `times` further epochs of the active arms, and eliminate arms."""
        self.sums[self.active] += sums
        self.epoch += times
        self.pulls += times * len(sums)
        self.boundary = self.radius.boundary(self.epoch, self.c)
        stay = fed_sel_decisions.eliminate(self.sums, self.active, self.boundary)
        top = self.best
        for arm in np.flatnonzero(self.active & ~stay):
            self.exits.append(Exit(int(arm), self.epoch, float(self.sums[arm]), top, float(self.sums[top])))
        self.active = stay


def least_count(radius: Radius, c: float, epsilon: float = 0.0) -> int:
    """τ(1/c), the fewest samples after which Phase I can end: gaps are at most 1 (erratum 16)."""
    return int(radius.inverse(max(1.0 / c, epsilon / 4.0)))


def end_by_epsilon(radius: Radius, epsilon: float) -> float:
    """τ(ε/4), the epoch at which ε ends Phase I; without ε, never."""
    return float(radius.inverse(epsilon / 4.0)) if epsilon > 0 else np.inf
