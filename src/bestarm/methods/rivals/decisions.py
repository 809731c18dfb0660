"""The decisions of the rivals, as pure array functions over leading axes; options are the last axis."""

from __future__ import annotations

import numpy as np

from bestarm.protocol.decisions import BUDGET, GO_ON, IDENTIFIED, ROUNDS, Floats, Ints, Mask


def averages(sums: Floats, n: int) -> Floats:
    """The average of each option over the players, from (…, players, options) sums of n rewards each."""
    return np.asarray(sums.sum(axis=-2) / (sums.shape[-2] * n))


def left(values: Floats, inside: Mask, margin: float) -> Mask:
    """The options that are not more than the margin below the largest average.

    >>> left(np.array([0.9, 0.5, 0.6]), np.array([True, True, True]), 0.35).tolist()
    [True, False, True]
    """
    top = np.max(np.where(inside, values, -np.inf), axis=-1, keepdims=True)
    return np.asarray(inside & (values >= top - margin))


def within(values: Floats, truth: Floats, inside: Mask, margin: float) -> Mask:
    """Whether no average of these options is off by more than half the margin."""
    return np.asarray((~inside | (np.abs(values - truth) <= margin / 2.0)).all(axis=-1))


def feasible(before: Floats, after: Floats, pulls: int, slack: float) -> bool:
    """Whether sums of rewards in [0, 1] can grow from `before` to `after` in this many pulls."""
    grown = after - before
    return bool(((grown >= -slack) & (grown <= pulls + slack)).all())


def too_dear(made: int, cost: int, budget: int | None) -> bool:
    """Whether these pulls would exceed the budget of a client."""
    return budget is not None and made + cost > budget


def outcome(inside: Mask, *, last_round: bool, last_size: bool) -> Ints:
    """What becomes of a run after a round: an answer, the end of rounds or pulls, or another round."""
    alone = inside.sum(axis=-1) == 1
    code = ROUNDS if last_round else BUDGET if last_size else GO_ON
    return np.asarray(np.where(alone, IDENTIFIED, code))
