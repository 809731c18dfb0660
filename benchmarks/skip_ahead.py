"""Pulls per second of a study at σ = 1, against a compiled pull-by-pull loop and best-arm's LUCB1.

Each uses one core and runs three times in the same process; the results are medians. The loop is Algorithm 1
with Numba, one epoch per step, on the same three clients. LUCB1 chooses arms differently, so it needs a
different number of pulls: its row compares only the speed of simulation. (The package best-arm must be
installed without its dependencies, as `make bench` does, because it requires an old SciPy.)
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import numba
import numpy as np

import bestarm as ba

TRIALS = 2048
MEANS = [np.array(row) for row in ba.Problem.paper_instance(1).means]


@numba.njit  # type: ignore[untyped-decorator]
def algorithm_1(rng: Any, means: Any, k: float, c: float) -> int:
    sums = np.zeros(means.shape[0])
    active = np.ones(means.shape[0], dtype=np.bool_)
    left, t, pulls = means.shape[0], 0, 0
    while left > 1:
        t += 1
        top = -1.0
        for a in range(means.shape[0]):
            if active[a]:
                pulls += 1
                if rng.random() < means[a]:
                    sums[a] += 1.0
                top = max(top, sums[a])
        boundary = c * math.sqrt(t * math.log(k * t * t))
        for a in range(means.shape[0]):
            if active[a] and top - sums[a] >= boundary:
                active[a] = False
                left -= 1
    return pulls


def by_loop(seed: int) -> tuple[int, float]:
    rng = np.random.default_rng(seed)
    begun = time.perf_counter()
    pulls = sum(algorithm_1(rng, means, 4 * 3 * 3 / 0.1, 8.0) for means in MEANS for _ in range(4))
    return pulls, time.perf_counter() - begun


def by_study(seed: int) -> tuple[int, float]:
    begun = time.perf_counter()
    trials = ba.study(ba.Problem.paper_instance(1), "fed-sel", delta=0.1, trials=TRIALS, seed=seed, workers=1)
    return int(trials["pulls_total"].sum()), time.perf_counter() - begun


def by_lucb1(seed: int) -> tuple[int, float]:
    from best_arm.algorithms.lucb1 import LUCB1
    from best_arm.environment import BaseEnvironment
    from best_arm.stopping_conditions import LUCBStoppingCondition

    class Coins(BaseEnvironment):  # type: ignore[misc]
        def sample(self, arm: int) -> float:
            return float(rng.random() < probabilities[arm])

    rng = np.random.default_rng(seed)
    probabilities = np.concatenate(MEANS).tolist()
    begun = time.perf_counter()
    _, counts, _, _ = LUCB1(Coins(9), 0.1, LUCBStoppingCondition(epsilon=0.02)).run()
    return int(counts.sum()), time.perf_counter() - begun


def measure() -> list[dict[str, Any]]:
    algorithm_1(np.random.default_rng(0), MEANS[2], 360.0, 2.0)  # compile
    by_study(0)  # trigger lazy imports
    ways = {"study": by_study, "compiled loop (Numba)": by_loop, "best-arm LUCB1": by_lucb1}
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    pulls_of, seconds_of = {}, {}
    for seed in (1, 2, 3):
        for name, way in ways.items():
            pulls, seconds = way(seed)
            speeds[name].append(pulls / seconds)
            pulls_of[name], seconds_of[name] = pulls, seconds
    median = {name: statistics.median(values) for name, values in speeds.items()}
    return [
        {
            "way": name,
            "pulls (last run)": pulls_of[name],
            "seconds (last run)": seconds_of[name],
            "pulls/s": median[name],
            "spread": f"{min(speeds[name]):.3g} to {max(speeds[name]):.3g}",
            "study is × as fast": median["study"] / median[name],
        }
        for name in ways
    ]
