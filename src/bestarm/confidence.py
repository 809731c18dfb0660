"""Confidence radii: how far an empirical mean of t rewards may lie from the true mean.

A radius is α(t) = √( ln(k·t²) / (s·t) ). With probability at least 1−δ every empirical mean of every arm
of every client stays within α(t) of its true mean at all times t (Lemma 1: the *good event*). Two are known:

- ``paper``: k = 4|C||A|/δ, s = 1 (line 1 of Algorithm 1);
- ``sharp``: k = π²|C||A|/(3δ), s = 2: as valid, about half the pulls (Hoeffding's exponent is 2tα², and
  Σ 1/t² = π²/6; the paper gives both away).

To add one, add a row to ``RADII``; ``tests/test_confidence.py`` then checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError, nearest

# Counts of samples stay below this, so that t² and t + kH are exact or harmless in float64.
MAX_COUNT = 2**50

# name -> (k as a function of |C||A|/δ, s)
RADII: dict[str, tuple[Callable[[Any], Any], float]] = {
    "paper": (lambda x: 4.0 * x, 1.0),
    "sharp": (lambda x: np.pi**2 / 3.0 * x, 2.0),
}


@dataclass(frozen=True)
class Radius:
    """α(t) for one arm-set (or, with arrays, for several arm-sets at once)."""

    name: str
    k: NDArray[np.float64]
    s: float

    def alpha(self, t: ArrayLike) -> NDArray[np.float64]:
        """The radius after t ≥ 1 rewards; falls with t (over the integers, since k > 4)."""
        t = np.asarray(t, dtype=np.float64, order="C")
        # One expression and NumPy's log for everybody: the two ends of a wire must get the same bits.
        return np.asarray(np.sqrt(np.log(self.k * t * t) / (self.s * t)))

    def boundary(self, t: ArrayLike, c: float) -> NDArray[np.float64]:
        """t·β(t) = c·t·α(t), the gap of *sums* at which an arm falls; 0 at t = 0, and growing."""
        t = np.asarray(t, dtype=np.float64, order="C")
        return np.asarray(np.where(t > 0, c * t * self.alpha(np.maximum(t, 1.0)), 0.0))

    def inverse(self, x: ArrayLike) -> NDArray[np.float64]:
        """τ(x) = min{t ∈ ℕ : α(t) ≤ x}, exactly; ∞ where x ≤ 0 or τ(x) would pass 2⁵⁰.

        α(t) = x has the solution t = −(2/(s·x²))·W₋₁(−s·x²/(2√k)); rounding is then mended in integers.
        """
        from scipy.special import lambertw  # a quarter of a second to import, and rarely needed

        x, k = np.broadcast_arrays(np.asarray(x, dtype=np.float64), self.k)
        with np.errstate(all="ignore"):
            y = self.s * x * x / 2.0
            t = np.ceil(-np.real(lambertw(-y / np.sqrt(k), -1)) / y)
        reachable = (x > 0) & (self.alpha(MAX_COUNT) <= x)
        at_once = self.alpha(1) <= x
        t = np.where(reachable & ~at_once & np.isfinite(t), np.clip(t, 1.0, MAX_COUNT), 1.0)
        pending = reachable & ~at_once
        while True:
            above = pending & (self.alpha(t) > x)
            below = pending & ~above & (t > 1) & (self.alpha(np.maximum(t - 1, 1.0)) <= x)
            if not (above | below).any():
                return np.asarray(np.where(reachable, t, np.inf))
            t = t + above - below


def radius(name: str, clients: int, arms: ArrayLike, delta: float) -> Radius:
    """The radius `name` for so many clients (of all groups together) and so many arms in the arm-set.

    >>> r = radius("paper", clients=3, arms=3, delta=0.1)
    >>> round(float(r.alpha(1000)), 6)
    0.140362
    >>> int(r.inverse(0.125)), bool(r.alpha(1294) <= 0.125 < r.alpha(1293))
    (1294, True)
    """
    if name not in RADII:
        raise InputError(f'radius = "{name}" is unknown', fix=nearest(name, RADII))
    scale, s = RADII[name]
    return Radius(name, np.asarray(scale(clients * np.asarray(arms, dtype=np.float64) / delta)), s)
