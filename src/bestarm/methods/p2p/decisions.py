"""The decisions of a peer, as pure array functions: the paper's trimming of means, and nested intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bestarm.protocol.decisions import Floats, Mask


def trimmed_mean(values: Floats, faults: int) -> float:
    """The paper's Trim of reported means: the middle one of the remaining values, any of which is valid.

    >>> trimmed_mean(np.array([0.5, 0.0, 0.6]), 1)
    0.5
    """
    left = np.sort(values)[faults : len(values) - faults]
    return float(left[len(left) // 2])


def nested(lower: float, upper: float, last_lower: float, last_upper: float) -> bool:
    """Whether these bounds form an interval that is contained in the last one.

    >>> nested(0.2, 0.4, 0.1, 0.4), nested(0.2, 0.5, 0.1, 0.4), nested(0.4, 0.2, 0.1, 0.4)
    (True, False, False)
    """
    return bool(last_lower <= lower <= upper <= last_upper)


def narrows(lower: ArrayLike, upper: ArrayLike, last_lower: ArrayLike, last_upper: ArrayLike) -> Mask:
    """Whether an interval has a tighter bound than the last one, on either side."""
    return np.asarray((np.asarray(lower) > last_lower) | (np.asarray(upper) < last_upper))


def torn(lower: Floats, upper: Floats) -> bool:
    """Whether some interval has no interior; honest intervals contain their mean in the interior."""
    return bool((lower >= upper).any())


def shrunk(width: Floats, last: Floats, factor: float) -> Mask:
    """Whether an interval has shrunk by the factor since it was last sent, or was never sent."""
    return np.asarray(~np.isfinite(last) | (width <= factor * last))
