"""Wrong verdicts about tied options in 20,000 recorded data sets per case, both ways to look at them.

*Once* is the mean of the final wealths over 100 random orders of the rows of each data set. *Any time* takes
rows by arrival, and a data set is wrong if a look ever ruled out a given option. What a look has ruled out
stays so, and a block is never closed because of a look, so looks after every tenth of the rows are wrong if
and only if the last one is. *Forbidden* shuffles all rows again at each of ten looks, or of 200. δ = .05; the
bound is the exact upper end at 99.9 % of the largest rate over the options. ``SETS=2000 python -m benchmarks
evidence_validity`` takes a tenth of the time.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from bestarm.evidence.any_time import Lanes
from bestarm.evidence.once import ORDERS, Claims, log_mean, log_wealth
from bestarm.evidence.shuffles import block_sizes
from bestarm.stats.sums import Sums

DELTA, AT_ONCE = 0.05, 40_000
Ints = NDArray[np.int64]
CASES: dict[str, tuple[list[list[int]], list[list[float]], list[float]]] = {
    "two options, one site": ([[200], [200]], [[0.5], [0.5]], [1.0]),
    "rare successes, unequal rows": ([[900], [120]], [[0.02], [0.02]], [1.0]),
    "sites that differ, the other way round": (
        [[37, 200, 90], [300, 25, 60]], [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], [1 / 3] * 3,
    ),
    "five options, weights 4 to 1": (
        [[100, 20], [40, 200], [60, 60], [300, 30], [25, 25]], [[0.7, 0.3]] * 5, [0.8, 0.2],
    ),
}  # fmt: skip


def shuffled(ones: Ints, rows: Ints, rng: np.random.Generator) -> Sums:
    """A random order of each data set of coins, of which `ones` are 1, as sums of blocks."""
    sizes = block_sizes(rows)
    left, zeros = ones.copy(), rows - ones
    total = np.empty((len(ones), *sizes.shape))
    for k, size in enumerate(sizes):
        total[:, k] = drawn = rng.hypergeometric(left, zeros, np.broadcast_to(size, left.shape))
        left, zeros = left - drawn, zeros - (size - drawn)
    count = np.broadcast_to(sizes.astype(np.float64), total.shape)
    return Sums(count, total, total, np.zeros(total.shape), np.ones(total.shape))


def once(rows: Ints, means: Any, weights: Any, sets: int, rng: np.random.Generator) -> Ints:
    """How many data sets rule out each option, by the mean over orders."""
    claims, wrong = Claims.best(len(rows)), np.zeros(len(rows), dtype=np.int64)
    step = AT_ONCE // ORDERS
    for first in range(0, sets, step):
        some = min(step, sets - first)
        ones = np.repeat(rng.binomial(rows, means, size=(some, *rows.shape)), ORDERS, axis=0)
        logs = log_wealth(shuffled(ones, rows, rng), weights, claims, DELTA)[:, -1]
        found = log_mean(np.moveaxis(logs.reshape(some, ORDERS, len(rows)), 1, 0))
        wrong += (found >= math.log(1 / DELTA)).sum(axis=0)
    return wrong


def any_time(rows: Ints, means: Any, weights: Any, sets: int, rng: np.random.Generator) -> Ints:
    """How many data sets ever rule out each option, as rows arrive. All data sets race at once."""
    lanes = Lanes(sets, len(rows), weights, Claims.best(len(rows)), DELTA)
    seen = np.zeros((sets, *rows.shape), dtype=np.int64)
    while True:
        due = lanes.due
        fits = ((seen + due) <= rows).all(axis=(1, 2)) & lanes.open
        if not fits.any():
            return np.asarray(lanes.rejected.sum(axis=0))
        before = lanes.log_wealth.copy(), lanes.rejected.copy()
        ones = rng.binomial(due, means).astype(np.float64)
        lanes.close(Sums(due.astype(np.float64), ones, ones, np.zeros(ones.shape), np.ones(ones.shape)))
        # A table whose rows do not fill the block keeps its wealths for good.
        lanes.log_wealth[~fits], lanes.rejected[~fits] = before[0][~fits], before[1][~fits]
        seen = np.where(fits[:, None, None], seen + due, rows + 1)


def forbidden(rows: Ints, means: Any, weights: Any, sets: int, looks: int, rng: np.random.Generator) -> Ints:
    """The same looks, with all rows so far shuffled again at each of them: this is not valid."""
    claims, wrong = Claims.best(len(rows)), np.zeros((sets, len(rows)), dtype=bool)
    ones, before = np.zeros((sets, *rows.shape), dtype=np.int64), np.zeros_like(rows)
    for look in range(1, looks + 1):
        now = rows * look // looks
        ones = ones + rng.binomial(now - before, means, size=ones.shape)
        before = now
        if now.min() > 0:
            for part in range(0, sets, AT_ONCE):
                piece = slice(part, part + AT_ONCE)
                logs = log_wealth(shuffled(ones[piece], now, rng), weights, claims, DELTA)[:, -1]
                wrong[piece] |= logs >= math.log(1 / DELTA)
    return np.asarray(wrong.sum(axis=0))


def _row(name: str, way: str, wrong: Ints, sets: int) -> dict[str, Any]:
    most = int(wrong.max())
    bound = float(beta.ppf(0.999, most + 1, sets - most)) if most < sets else 1.0
    return {"case": name, "look": way, "data sets": sets, "wrong": most / sets, "at most": bound}


def measure() -> list[dict[str, Any]]:
    sets = int(os.environ.get("SETS", 20_000))
    made = []
    for number, (name, case) in enumerate(CASES.items()):
        rows, means, weights = (np.array(part) for part in case)
        rng = np.random.default_rng([2024, number])
        made.append(_row(name, "once, 100 orders", once(rows, means, weights, sets, rng), sets))
        made.append(_row(name, "any time", any_time(rows, means, weights, sets, rng), sets))
        wrong = forbidden(rows, means, weights, sets, 10, rng)
        made.append(_row(name, "forbidden, ten looks", wrong, sets))
    rows, means, weights = np.array([[4000], [4000]]), np.full((2, 1), 0.5), np.ones(1)
    wrong = forbidden(rows, means, weights, sets // 10, 200, np.random.default_rng([2024, 99]))
    made.append(_row("two options, 4,000 rows each", "forbidden, 200 looks", wrong, sets // 10))
    return made
