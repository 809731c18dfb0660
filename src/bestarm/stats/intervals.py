"""Confidence intervals for probabilities, means and medians."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.stats.fisher_exact import Floats


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval for a probability.

    >>> [round(x, 4) for x in binomial_interval(0, 100)]
    [0.0, 0.0362]
    """
    low, high = clopper_pearson(successes, trials, (1.0 - level) / 2.0)
    return float(low), float(high)


def mean_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float] | None:
    """Student's interval for the mean: valid for large samples of any distribution; None for one value."""
    from scipy.special import stdtrit

    mean, n = float(values.mean()), len(values)
    if n < 2:
        return None
    half = float(stdtrit(n - 1, (1.0 + level) / 2.0) * values.std(ddof=1) / np.sqrt(n))
    return mean - half, mean + half


def median_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float] | None:
    """An interval between two order statistics that contains the median with at least this probability.

    None if there are too few values.
    """
    from scipy.special import bdtr

    ranked, n = np.sort(values), len(values)
    # The i-th value (from 0) lies above the median only if at most i values lie below it.
    fits = np.flatnonzero(bdtr(np.arange(n), n, 0.5) <= (1.0 - level) / 2.0)
    if not len(fits):
        return None
    low = int(fits[-1])
    return float(ranked[low]), float(ranked[n - 1 - low])


def clopper_pearson(successes: ArrayLike, n: ArrayLike, level: ArrayLike) -> tuple[Floats, Floats]:
    """Exact lower and upper bounds for a probability, each wrong with probability at most `level`."""
    from scipy.special import betainccinv, betaincinv

    s, n, level = (np.asarray(x, dtype=np.float64) for x in (successes, n, level))
    with np.errstate(invalid="ignore"):
        low = np.where(s > 0, betaincinv(np.maximum(s, 1.0), n - s + 1.0, level), 0.0)
        high = np.where(s < n, betainccinv(s + 1.0, np.maximum(n - s, 1.0), level), 1.0)
    return np.asarray(low), np.asarray(high)
