"""Confidence radii: how far an empirical mean of t rewards may lie from the true mean.

A radius is α(t) = √( ln(k·t²) / (s·t) ). With probability at least 1−δ every empirical mean of every arm
of every client stays within α(t) of its true mean at all times t (Lemma 1: the *good event*). There are two:

- ``paper``: k = 4|C||A|/δ, s = 1 (line 1 of Algorithm 1);
- ``sharp``: k = π²|C||A|/(3δ), s = 2: equally valid, with about half the pulls (Hoeffding's exponent is
  2tα², and Σ 1/t² = π²/6; the paper uses weaker constants for both).

To add one, add a row to ``RADII``; ``tests/stats/test_radii.py`` then checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError
from bestarm.util.text import nearest

# Counts of samples stay below this, so that t² and t + kH are exact or harmless in float64.
MAX_COUNT = 2**50

# name -> (k as a function of |C||A|/δ, s)
RADII: dict[str, tuple[Callable[[Any], Any], float]] = {
    "paper": (lambda x: 4.0 * x, 1.0),
    "sharp": (lambda x: np.pi**2 / 3.0 * x, 2.0),
}


@dataclass(frozen=True)
class Radius:
    """α(t) = √(ln(k·t²)/(s·t)) for one arm-set (or, with arrays, for several arm-sets at once).

    Parameters
    ----------
    name : str
        "paper" or "sharp".
    k : array
        The factor in the logarithm, which depends on δ and on the sizes of the problem.
    s : float
        The factor of t.
    """

    name: str
    k: NDArray[np.float64]
    s: float

    def alpha(self, t: ArrayLike) -> NDArray[np.float64]:
        """The radius after t ≥ 1 rewards; decreases with t (over the integers, since k > 4).

        Parameters
        ----------
        t : array_like
            Numbers of rewards.

        Returns
        -------
        array
            The radii.
        """
        t = np.asarray(t, dtype=np.float64, order="C")
        # One expression and NumPy's log everywhere: sender and receiver must compute the same bits.
        return np.asarray(np.sqrt(np.log(self.k * t * t) / (self.s * t)))

    def boundary(self, t: ArrayLike, c: float) -> NDArray[np.float64]:
        """t·β(t) = c·t·α(t), the gap of *sums* at which an arm is eliminated; 0 at t = 0, and increasing.

        Parameters
        ----------
        t : array_like
            Numbers of rewards.
        c : float
            The factor in β = cα.

        Returns
        -------
        array
            The gaps.
        """
        t = np.asarray(t, dtype=np.float64, order="C")
        return np.asarray(np.where(t > 0, c * t * self.alpha(np.maximum(t, 1.0)), 0.0))

    def inverse(self, x: ArrayLike) -> NDArray[np.float64]:
        """τ(x) = min{t ∈ ℕ : α(t) ≤ x}, exactly; ∞ where x ≤ 0 or τ(x) would exceed 2⁵⁰.

        α(t) = x has the solution t = −(2/(s·x²))·W₋₁(−s·x²/(2√k)); rounding is then corrected in integers.

        Parameters
        ----------
        x : array_like
            Radii.

        Returns
        -------
        array
            The smallest numbers of rewards with radii of at most `x`.
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
    """The confidence radius α(t) of one arm-set.

    Parameters
    ----------
    name : str
        A key of ``RADII``: "paper" or "sharp".
    clients : int
        The number of clients of all groups together: ``|C|`` in the paper.
    arms : int or array of int
        The number of arms in the arm-set: ``|A|``.
    delta : float
        The probability that some empirical mean is ever farther than its radius from the true mean.

    Returns
    -------
    Radius
        The radius as a function of the number of rewards.

    Raises
    ------
    InputError
        If there is no radius with this name.

    Examples
    --------
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
