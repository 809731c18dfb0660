"""The stopping rule of Track-and-Stop for 0/1 rewards, and its thresholds.

Z_{b,a} = n_b·kl(p_b, m) + n_a·kl(p_a, m), with m the mean of all pulls of both, is the generalized likelihood
ratio of "b is better than a". A method stops at pull t when min_a Z_{b,a} > β(t, δ) for its leader b.

*proved*: β(t, δ) = ln(2t(K−1)/δ), valid for every way to choose the pulls (Garivier and Kaufmann 2016,
Theorem 10). *practice*: β(t, δ) = ln((1 + ln t)/δ), which most papers use in their experiments; nothing is
proved about it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bestarm.protocol.decisions import Floats, Ints

Threshold = Callable[[int, int, float], float]


def proved(t: int, arms: int, delta: float) -> float:
    """ln(2t(K−1)/δ)."""
    return float(np.log(2.0 * t * max(arms - 1, 1) / delta))


def practice(t: int, arms: int, delta: float) -> float:
    """ln((1 + ln t)/δ)."""
    return float(np.log((1.0 + np.log(t)) / delta))


def entropy(p: Floats) -> Floats:
    """p·ln p + (1−p)·ln(1−p), with 0·ln 0 = 0.

    >>> entropy(np.array([0.0, 0.5])).round(4).tolist()
    [0.0, -0.6931]
    """
    rest = 1.0 - p
    return np.asarray(p * np.log(np.maximum(p, 1e-300)) + rest * np.log(np.maximum(rest, 1e-300)))


def evidence(n: Ints, sums: Floats, leader: Ints) -> Floats:
    """Z of the leader against each option, by row: ∞ for the leader itself, 0 for an option with a larger
    mean.

    >>> evidence(np.array([[10, 10, 10]]), np.array([[9.0, 4.0, 9.5]]), np.array([0])).round(3).tolist()
    [[inf, 2.968, 0.0]]
    """
    rows, mean = np.arange(len(n)), sums / n
    own, top = n * entropy(mean), mean[rows, leader][:, None]
    both, total = n + n[rows, leader][:, None], sums + sums[rows, leader][:, None]
    z = own + own[rows, leader][:, None] - both * entropy(total / both)
    z = np.where(mean > top, 0.0, np.maximum(z, 0.0))
    z[rows, leader] = np.inf
    return np.asarray(z)
