"""Statistical tests with a stated false-alarm rate: each is applied to a sample with a fixed seed."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom, ks_2samp, norm

FALSE_ALARM = 1e-6


def rate_exceeds(failures: int, trials: int, rate: float) -> bool:
    """Exact one-sided binomial test of "the true rate is at most `rate`", at FALSE_ALARM."""
    return bool(binom.sf(failures - 1, trials, rate) <= FALSE_ALARM)


def laws_differ(x: np.ndarray, y: np.ndarray) -> bool:
    """Two-sample Kolmogorov-Smirnov test of "same law", at FALSE_ALARM (conservative with ties)."""
    # SciPy's exact method warns and gives up if large samples with ties are nearly equal.
    method = "asymp" if min(len(x), len(y)) >= 1000 else "auto"
    return bool(ks_2samp(x, y, method=method).pvalue <= FALSE_ALARM)


def mean_exceeds(values: np.ndarray, most: float) -> bool:
    """One-sided normal test of "the true mean is at most `most`", at FALSE_ALARM; for large samples."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return bool(values.mean() - most > norm.isf(FALSE_ALARM) * error)


def rate_is_below(failures: int, trials: int, rate: float) -> bool:
    """Whether the exact upper confidence bound of the true rate, at FALSE_ALARM, is at most `rate`."""
    return bool(binom.cdf(failures, trials, rate) <= FALSE_ALARM)
