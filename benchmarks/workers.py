"""The same study with 1 and with 2 worker processes: the time, and whether the numbers are the same."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import bestarm as ba

TRIALS = 8192


def measure() -> list[dict[str, Any]]:
    problem = ba.Problem.paper_instance(3)
    ba.study(problem, "fed-sel", delta=0.1, trials=8, seed=0)
    rows: list[dict[str, Any]] = []
    reference = None
    for workers in (1, 2):
        begun = time.perf_counter()
        trials = ba.study(problem, "fed-sel", delta=0.1, trials=TRIALS, seed=1, workers=workers)
        seconds = time.perf_counter() - begun
        reference = trials if reference is None else reference
        same = all(np.array_equal(trials[name], reference[name]) for name in trials.columns)
        rows.append(
            {
                "workers": workers,
                "trials": TRIALS,
                "seconds": seconds,
                "trials/s": TRIALS / seconds,
                "× 1 worker": (rows[0]["seconds"] if rows else seconds) / seconds,
                "same numbers": "yes" if same else "NO",
            }
        )
    return rows
