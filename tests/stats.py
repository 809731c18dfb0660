"""Statistical tests with a stated false-alarm rate: each of these is passed a seed-fixed sample."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom, ks_2samp

FALSE_ALARM = 1e-6


def rate_exceeds(failures: int, trials: int, rate: float) -> bool:
    """Exact one-sided binomial test of "the true rate is at most `rate`", at FALSE_ALARM."""
    return bool(binom.sf(failures - 1, trials, rate) <= FALSE_ALARM)


def laws_differ(x: np.ndarray, y: np.ndarray) -> bool:
    """Two-sample Kolmogorov-Smirnov test of "same law", at FALSE_ALARM (ties only make it more careful)."""
    return bool(ks_2samp(x, y).pvalue <= FALSE_ALARM)
