"""The stopping rule of Track-and-Stop for 0/1 rewards, and its thresholds.

Z_{b,a} = n_b·kl(p_b, m) + n_a·kl(p_a, m), with m the mean of all pulls of both, is the logarithm of the
generalized likelihood ratio of "b is better than a". A method stops at pull t when min_a Z_{b,a} > β(t, δ)
for its leader b.

*proved*: β(t, δ) = ln(2t(K−1)/δ), valid for every way to choose the pulls (Garivier and Kaufmann 2016,
Theorem 10). *practice*: β(t, δ) = ln((1 + ln t)/δ), which most papers use in their experiments; nothing is
proved about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

    With h(x) = x·ln x, Z is f(n_b, s_b) + f(n_a, s_a) − f(n_b + n_a, s_b + s_a), f(n, s) = h(s) + h(n − s) −
    h(n). Counts and sums of 0/1 rewards are whole numbers, whose h is looked up in a table.

    >>> evidence(np.array([[10, 10, 10]]), np.array([[9.0, 4.0, 9.5]]), np.array([0])).round(3).tolist()
    [[inf, 2.968, 0.0]]
    """
    at = np.arange(0, n.size, n.shape[1]) + leader
    whole = sums.astype(np.int64)
    h: Callable[[Any], Floats] = _looked_up if (whole == sums).all() else _h
    s: Any = whole if h is _looked_up else sums
    own = h(s) + h(n - s) - h(n)
    n_b, s_b, own_b = (values.reshape(-1).take(at)[:, None] for values in (n, s, own))
    both, total = n + n_b, s + s_b
    z = own + own_b - (h(total) + h(both - total) - h(both))
    ahead = s * n_b > s_b * n
    z = np.where(ahead, 0.0, np.maximum(z, 0.0))
    z.reshape(-1)[at] = np.inf
    return np.asarray(z)


def _h(x: Floats) -> Floats:
    from scipy.special import xlogy  # a quarter of a second to import

    return np.asarray(xlogy(x, x))


class _Table:
    """h of 0, 1, 2, …, as far as it was needed."""

    values: Floats = np.zeros(1)


def _looked_up(x: Ints) -> Floats:
    """h of whole numbers."""
    if (most := int(x.max(initial=0))) >= len(_Table.values):
        _Table.values = _h(np.arange(2.0 * most + 2.0))
    return np.asarray(_Table.values.take(x))
