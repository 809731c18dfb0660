"""The arithmetic of every decision, as pure array functions over leading axes.

A machine calls them with shape (arms,) or (groups,), the kernels of a study with (trials, clients, arms).
Statistics (sums, means, bounds, p-values) are compared only here and in the ``decisions`` module of each
method, so a study and a deployed client cannot disagree. Machines themselves only count pulls, rounds,
replies and votes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.protocol.verdict import Reason

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def _top(sums: Floats, active: Mask) -> Floats:
    return np.asarray(np.max(np.where(active, sums, -np.inf), axis=-1))


def best_arm(sums: Floats, active: Mask) -> Ints:
    """The active arm with the largest sum; the first one if several are tied."""
    return np.asarray(np.argmax(np.where(active, sums, -np.inf), axis=-1))


def bin_centre(index: ArrayLike, bits: ArrayLike) -> Floats:
    """The centre of a bin, which the server uses as the mean."""
    return np.asarray(np.ldexp(np.asarray(index, dtype=np.float64) + 0.5, -np.asarray(bits, dtype=np.int64)))


def threshold(lower: Floats, active: Mask) -> Floats:
    """Line 4 of Algorithm 2: the largest lower bound among the active groups."""
    return np.asarray(np.max(np.where(active, lower, -np.inf), axis=-1))


def leader(lower: Floats, active: Mask) -> Ints:
    """The active group with the largest lower bound; the first one if several are tied."""
    return np.asarray(np.argmax(np.where(active, lower, -np.inf), axis=-1))


def empty(lower: ArrayLike, upper: ArrayLike) -> Mask:
    """Whether an interval is empty.

    >>> empty([0.1, 0.5], [0.3, 0.4]).tolist()
    [False, True]
    """
    return np.asarray(np.asarray(lower) > np.asarray(upper))


GO_ON, IDENTIFIED, CONTRADICTION, BUDGET, ROUNDS = range(5)  # outcomes of a round
REASON_OF: dict[int, Reason] = {CONTRADICTION: "contradiction", BUDGET: "budget", ROUNDS: "rounds"}


def disagree(lower: Floats, upper: Floats, faults: int) -> bool:
    """Whether no point lies in all but `faults` of these intervals. All honest intervals contain the mean.

    >>> disagree(np.array([.1, .2, .9]), np.array([.3, .4, .95]), 0)
    True
    >>> disagree(np.array([.1, .2, .9]), np.array([.3, .4, .95]), 1)
    False
    """
    lower, upper = np.sort(lower), np.sort(upper)
    begun, over = np.arange(1, len(lower) + 1), np.searchsorted(upper, lower, side="left")
    return len(lower) > 0 and bool((begun - over).max() < len(lower) - faults)
