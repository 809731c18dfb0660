"""A million trials of Fed-Fisher on the paper's instance (σ = 1, δ = 0.1): time, and the error rate.

Rounds are capped at 30: if the best arm is dropped, which happens a few times in a million, the next two arms
are tied at σ = 1, and an exact comparison of them never ends.
"""

from __future__ import annotations

import time
from typing import Any

import bestarm as ba

TRIALS = 1_000_000


def measure() -> list[dict[str, Any]]:
    begun = time.perf_counter()
    trials = ba.study(ba.Problem.paper_instance(1), "fisher", trials=TRIALS, seed=1, delta=0.1, max_rounds=30)
    seconds = time.perf_counter() - begun
    row = trials.summary()[0]
    low, high = row["error_rate_interval"]
    return [
        {
            "trials": TRIALS,
            "seconds": seconds,
            "trials/s": TRIALS / seconds,
            "mean pulls": row["pulls_total"]["mean"],
            "mean rounds": row["rounds"]["mean"],
            "errors": row["errors"],
            "undecided": row["undecided"],
            "error rate, 95 %": f"{low:.2g} to {high:.2g}",
        }
    ]
