"""What recorded data show: the power of one look and of looks at any time beside a single test, and the time.

Power is the share of 400 tables in which the worse options are all ruled out at δ = .05, n rows each, 0/1
rewards, the best option x ahead of the others. *Fisher* is a single look with Fisher's exact tests at δ/(K−1)
(for K = 2 one test), *e-value* the one-look e-value, *any time* the same rows by arrival in blocks, where the
last open block does not count. *Rows at any time* is how many more rows a look at any time needs for the same
power as the single test, in simulated tables. The time of one look is beside NumPy's sort of as many rows.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from bestarm.evidence.any_time import Lanes, race
from bestarm.evidence.contests import Contest
from bestarm.evidence.once import Claims, log_evalues, pvalues
from bestarm.stats.fisher_exact import rejects
from bestarm.stats.sums import Sums

DELTA, TABLES, SEED = 0.05, 400, 12_041
CASES = [(2, 1000, x) for x in (0.05, 0.06, 0.08, 0.10)] + [(3, 1000, 0.08), (10, 1000, 0.10)]
Row = dict[str, Any]


def contest_of(values: list[np.ndarray], counts: list[np.ndarray], sites: int = 1) -> Contest:
    """Options with these rewards, by option and site."""
    options = tuple(f"o{k}" for k in range(len(values) // sites))
    names = tuple(f"s{k}" for k in range(sites))
    places = tuple((s, a) for a in range(len(options)) for s in range(sites))
    return Contest("", options, names, np.full(sites, 1 / sites), places, tuple(values), tuple(counts))


def power(options: int, rows: int, x: float) -> Row:
    """How often each way to look rules out all options but the best."""
    rng = np.random.default_rng(SEED)
    claims, found = Claims.best(options), np.zeros(3)
    means = np.full(options, 0.5)
    means[-1] += x
    for table in range(TABLES):
        played = [(rng.random(rows) < p).astype(float) for p in means]
        ones = [int(row.sum()) for row in played]
        one = contest_of([np.array([0.0, 1.0])] * options, [np.array([rows - n, n]) for n in ones])
        logs = log_evalues(one, claims, DELTA, table)
        found += (
            (pvalues(one.sums, claims)[:-1] <= DELTA).all(),
            (logs[:-1] >= math.log(1 / DELTA)).all(),
            all(race([[row] for row in played], np.ones(1), claims, DELTA).rejected[:-1]),
        )
    fisher, evalue, any_time = (found / TABLES).tolist()
    return {
        "K": options,
        "rows each": rows,
        "x": x,
        "Fisher": fisher,
        "e-value": evalue,
        "any time": any_time,
    }


def rows_of_one_test(x: float, share: float) -> int:
    """Rows per option with which a single Fisher test has this power."""
    rng, rows = np.random.default_rng(SEED), 0
    lost = np.zeros(1)
    while lost.mean() < share:
        rows += 20
        ones = rng.binomial(rows, [0.5, 0.5 + x], size=(4000, 2))
        lost = rejects(ones[:, 0], ones[:, 1], rows, DELTA)
    return rows


def rows_needed(x: float, share: float, at_most: int) -> float:
    """Rows per option after which a look at any time has decided in this share of tables, two options."""
    rng, tables = np.random.default_rng(SEED), 1000
    lanes = Lanes(tables, 2, np.ones(1), Claims.best(2), DELTA)
    rows = 0
    while rows < at_most:
        due = lanes.due.max(axis=(0, 2), initial=0)
        size = np.broadcast_to(due[None, :, None], (tables, 2, 1))
        ones = rng.binomial(size, np.array([[0.5], [0.5 + x]])).astype(float)
        lanes.close(Sums(size.astype(float), ones, ones, np.zeros(ones.shape), np.ones(ones.shape)))
        rows += int(due.max())
        if lanes.rejected[:, 0].mean() >= share:
            return rows
    return math.inf


def seconds(name: str, values: list[np.ndarray], counts: list[np.ndarray]) -> Row:
    """The time of one look, beside sorting as many rows (at most 10⁷) once."""
    rows = int(sum(count.sum() for count in counts))
    one = contest_of(values, counts)
    begun = time.perf_counter()
    log_evalues(one, Claims.best(len(values)), DELTA, 1)
    took = time.perf_counter() - begun
    some = np.random.default_rng(1).random(min(rows, 10**7))
    begun = time.perf_counter()
    np.sort(some)
    sort = (time.perf_counter() - begun) * rows / len(some)
    return {"table": name, "rows": rows, "seconds": took, "× sorting the rows": took / sort}


def measure() -> list[Row]:
    rng = np.random.default_rng(SEED)
    made = [power(*case) for case in CASES]
    for x in (0.05, 0.10):
        single, needed = rows_of_one_test(x, 0.8), rows_needed(x, 0.8, 20_000)
        made.append({"x": x, "power": 0.8, "one test": single, "any time": needed, "×": needed / single})
    coins = [np.array([0.0, 1.0])] * 3632
    made.append(seconds("3,632 options, coins", coins, [np.array([60, 40])] * 3632))
    stars = [np.linspace(0, 1, 11)] * 4
    made.append(seconds("10⁸ ratings", stars, [rng.integers(1, 4_500_000, 11) for _ in stars]))
    fine = [np.sort(rng.random(10**6)) for _ in range(2)]
    made.append(seconds("2 × 10⁶ distinct numbers", fine, [np.ones(10**6, dtype=int)] * 2))
    return made
