"""The time of one Fisher test, alone and in a batch, compared with SciPy's `hypergeom.sf` in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from bestarm.stats.fisher_exact import fisher_pvalue, rejects

BATCH = 100_000


def cost(call: Callable[[], object], times: int, tests: int = 1) -> float:
    """Microseconds per test: the median of five."""
    runs = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(times):
            call()
        runs.append((time.perf_counter() - begun) / times / tests * 1e6)
    return statistics.median(runs)


def measure() -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    rows = []
    for n in (100, 10_000, 1_000_000):
        a, b = np.sort(rng.binomial(n, 0.5, (BATCH, 2)), axis=1).T
        one = int(a[0]), int(b[0])
        for what, ours, theirs in (
            (
                "alone",
                cost(lambda one=one, n=n: rejects(*one, n, 1e-3), 500),
                cost(lambda one=one, n=n: hypergeom.sf(one[1] - 1, 2 * n, sum(one), n), 100),
            ),
            (
                "in a batch",
                cost(lambda a=a, b=b, n=n: rejects(a, b, n, 1e-3), 1, BATCH),
                cost(lambda a=a, b=b, n=n: hypergeom.sf(b[:500] - 1, 2 * n, (a + b)[:500], n), 1, 500),
            ),
        ):
            rows.append({"n": n, "one test": what, "µs": ours, "SciPy µs": theirs, "ratio": theirs / ours})
        rows.append({"n": n, "one p-value": "alone", "µs": cost(lambda: fisher_pvalue(*one, n), 200)})  # noqa: B023
    return rows
