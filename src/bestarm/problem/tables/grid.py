"""The grid that rewards are rounded to where they have too many distinct values.

Its step is a power of two: such grids nest, and a float is rounded to them exactly, so that every reader ends
with the same grid and the same counts whatever the order of its batches.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

MOST_DISTINCT = 10**6  # values, above which they are rounded
STEPS = 2**19  # at most this many steps between the smallest and the largest reward


def too_many(values: NDArray[np.float64]) -> bool:
    """Whether there are too many distinct values to be counted one by one."""
    return len(values) > MOST_DISTINCT and len(np.unique(values)) > MOST_DISTINCT


def grid_step(low: float, high: float) -> float:
    """The step of the grid for rewards in this range.

    >>> grid_step(0, 1) == 2**-19, grid_step(0, 1.5) == 2**-18
    (True, True)
    """
    return 2.0 ** math.ceil(math.log2((high - low) / STEPS)) if high > low else 1.0
