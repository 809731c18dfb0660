"""The question "overall": Fed-Bet beside Hoeffding on averages, FedElim and the information limit; δ = .05.

Equal weights, site effects with standard deviation .2, interactions .05, values .55, .50, then .48 … .35;
means over random instances with fixed seeds. Required: at most half the pulls of Hoeffding on averages in
every cell, and with two options at most 2.5 times the limit T*·kl(δ, 1−δ) for gaps of .02 to .1. ``of
Hoeffding's`` is the ratio of pulls; ``wrong`` counts trials that name a wrong option.

*Hoeffding on averages* (ours): after n pulls of each cell an option leaves if its average over all sites is
√(ln((K−1)/δ_r)/(Mn)) below the largest one, δ_r = 6δ/(π²r²) at look r. n grows by 1.25 from max(2, ⌈16/M⌉).
*FedElim* (Reddy, Karthik and Tan, arXiv 2208.09215): n = 2^t, an option leaves if its average is 2α below the
largest one, α = √(2σ²·ln(8Kn²/δ)/(Mn)), σ = ½; only its part about the global best. The radius agrees with
the authors' code (pnkarthik/AAAI-2023-Code).
Baselines are charged one exact sum for each option that is left, site and round.

The last table is the validity campaign of tests/methods/bet/question_games.py: how often an option that ties
for the best leaves, with the exact (Clopper-Pearson) 99.9% upper bound, and what forbidden rules would do.

LONG=1 runs ten times as many trials.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, binom

import bestarm as ba

LONG = 10 if os.environ.get("LONG") else 1
DELTA, SEED, INSTANCES = 0.05, 2022, 4
SITES, OPTIONS, GAPS = (5, 20, 100), (2, 10, 50), (0.02, 0.05, 0.1)
TRIALS = {2: 200 * LONG, 10: 50 * LONG, 50: 25 * LONG}  # of each instance
SETTINGS: dict[str, dict[str, Any]] = {
    "q = 1.25": {"prefer": "pulls", "q": 1.25},
    "pulls": {"prefer": "pulls"},
    "balanced": {"prefer": "balanced"},
    "rounds": {"prefer": "rounds"},
}
ENDS = 1 / 15  # of ratings, the share that is 0 or 1; the others are four coins: variance .3·μ(1 − μ)
FED_ELIM = "FedElim (arXiv 2208.09215, global part)"

Row = dict[str, Any]
Floats = NDArray[np.float64]


def instance(sites: int, options: int, seed: int, gap: float = 0.05) -> Floats:
    """Means of the cells, (sites, options), within [.02, .98]; the options' values are exact."""
    rng = np.random.default_rng((SEED, sites, options, seed))
    values = np.r_[0.5 + gap, 0.5, np.linspace(0.48, 0.35, options - 2)]
    means = rng.normal(0.0, 0.2, (sites, 1)) + rng.normal(0.0, 0.05, (sites, options)) + values
    for k, value in enumerate(values):
        row = means[:, k].copy()
        by = brentq(lambda x, row=row, value=value: _clipped(row, x).mean() - value, -3, 3, xtol=1e-15)
        means[:, k] = _clipped(row, by)
    return means


def _clipped(row: Floats, by: float) -> Floats:
    return np.clip(row + by, 0.02, 0.98)


def rating(mean: float) -> ba.Table:
    """Ratings 0, ¼, ½, ¾, 1 with this mean and variance .3·mean·(1 − mean)."""
    shares = (1 - ENDS) * binom.pmf(np.arange(5), 4, mean)
    shares[[0, -1]] += ENDS * np.array([1 - mean, mean])
    return ba.Table((0.0, 0.25, 0.5, 0.75, 1.0), tuple(shares.tolist()))


def problem_of(means: Floats, stars: bool) -> ba.Problem:
    """The problem with these means."""
    reward: Callable[[float], Any] = rating if stars else float
    return ba.Problem.from_rewards(
        {f"s{j}": {f"o{k}": reward(float(m)) for k, m in enumerate(row)} for j, row in enumerate(means)}
    ).asking("overall")


def hoeffding(sites: int, options: int) -> Iterator[tuple[int, float]]:
    """(n, margin) of each look."""
    n = max(2, -(-16 // sites))
    for r in count(1):
        level = 6 * DELTA / (math.pi * r) ** 2
        yield n, math.sqrt(math.log((options - 1) / level) / (sites * n))
        n = math.ceil(1.25 * n)


def fed_elim(sites: int, options: int) -> Iterator[tuple[int, float]]:
    """(n, margin) of each round; σ² = ¼."""
    for t in count():
        n = 1 << t
        yield n, 2 * math.sqrt(0.5 * math.log(8 * options * n**2 / DELTA) / (sites * n))


def elimination(means: Floats, stars: bool, trials: int, schedule: Any) -> Row:
    """Costs of a method that drops options by their averages over all sites; option 0 is the best."""
    rng, (sites, options) = np.random.default_rng(SEED), means.shape
    left, total, before = np.ones((trials, options), dtype=bool), np.zeros((trials, options)), 0
    pulls, bits, rounds = np.zeros((3, trials))
    for n, margin in schedule(sites, options):
        live = left.sum(axis=1) > 1
        if not live.any():
            break
        step, playing = n - before, left & live[:, None]
        total += np.where(playing, _sums(rng, means, step, stars, trials), 0.0)
        pulls += sites * step * playing.sum(axis=1)
        bits += sites * playing.sum(axis=1) * math.ceil(math.log2((4 if stars else 1) * step + 1))
        rounds += live
        average = np.where(left, total / (sites * n), -np.inf)
        left &= ~live[:, None] | (average > average.max(axis=1, keepdims=True) - margin)
        before = n
    return _costs(pulls, rounds, bits, int((~left[:, 0]).sum()))


def _sums(rng: np.random.Generator, means: Floats, times: int, stars: bool, trials: int) -> Floats:
    """The sum over all sites of `times` rewards of each cell."""
    size = (trials, *means.shape)
    if not stars:
        return np.asarray(rng.binomial(times, means, size).sum(axis=1), dtype=np.float64)
    ends = rng.binomial(times, ENDS, size)
    sums = rng.binomial(4 * (times - ends), means) / 4 + rng.binomial(ends, means)
    return np.asarray(sums.sum(axis=1))


def bet(problem: ba.Problem, trials: int, options: Row) -> Row:
    """Costs of Fed-Bet."""
    done = ba.study(problem, trials=trials, seed=SEED, delta=DELTA, workers=1, **options)
    wrong = sum(right is False for right in done["correct"])
    return _costs(done["pulls_total"], done["rounds"], done["bits_up"], wrong)


def _costs(pulls: Floats, rounds: Floats, bits: Floats, wrong: int) -> Row:
    found = {"pulls": pulls.mean(), "rounds": rounds.mean(), "kbit": bits.mean() / 1000, "wrong": wrong}
    return found | {"trials": len(pulls)}


def averaged(rows: list[Row]) -> Row:
    """Means over instances; wrong answers and trials are added up."""
    kept = {key: float(np.mean([row[key] for row in rows])) for key in ("pulls", "rounds", "kbit")}
    return kept | {key: sum(row[key] for row in rows) for key in ("wrong", "trials")}


def cell(sites: int, options: int, stars: bool) -> list[Row]:
    """All methods on the instances of one cell of the table."""
    trials = TRIALS[options]
    all_means = [instance(sites, options, i) for i in range(INSTANCES)]
    problems = [problem_of(means, stars) for means in all_means]
    found = {
        "Hoeffding": averaged([elimination(means, stars, trials, hoeffding) for means in all_means]),
        FED_ELIM: averaged([elimination(means, stars, trials, fed_elim) for means in all_means]),
    }
    for name, keys in SETTINGS.items():
        found[f"bet, {name}"] = averaged([bet(problem, trials, keys) for problem in problems])
    if options == 2 and not stars:
        least = float(np.mean([ba.limit(problem, DELTA).total for problem in problems]))
        found["T*·kl"] = {"pulls": least}
    rows, most = [], found["Hoeffding"]["pulls"]
    for name, row in found.items():
        head: Row = {"case": f"{'stars' if stars else '0/1'} M{sites} K{options}", "method": name, **row}
        if name.startswith("bet"):
            head["of Hoeffding's"] = ratio = row["pulls"] / most
            head["≤ .5"] = "met" if ratio <= 0.5 else "MISSED"
        rows.append(head)
    return rows


def near_limit(sites: int, gap: float) -> list[Row]:
    """Two options with a smaller or larger gap: pulls over T*·kl."""
    rows = []
    problems = [problem_of(instance(sites, 2, i, gap), stars=False) for i in range(INSTANCES)]
    least = float(np.mean([ba.limit(problem, DELTA).total for problem in problems]))
    for name in ("q = 1.25", "pulls"):
        row = averaged([bet(problem, TRIALS[2], SETTINGS[name]) for problem in problems])
        times = row["pulls"] / least
        met = "met" if times <= 2.5 else "MISSED"
        head = {"case": f"0/1 M{sites} K2, gap {gap:g}", "method": f"bet, {name}"}
        rows.append(head | {"× T*·kl": times, "≤ 2.5": met, "T*·kl": least} | row)
    return rows


def validity() -> list[Row]:
    """How often an option that ties for the best leaves."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from methods.bet.question_games import CASES, FORBIDDEN, MANY_BLOCKS, most_lost

    rows = []
    for name, case in CASES.items():
        trials = 20_000 if math.prod(case.shape) <= 100 or LONG > 1 else 2_000
        rows.append(_lost(f"tied: {name}", most_lost(case, trials, SEED), trials))
    for name, (rule, case) in FORBIDDEN.items():
        lost = most_lost(CASES[case], 20_000, SEED, rule=rule, blocks=MANY_BLOCKS)
        rows.append(_lost(f"tied, FORBIDDEN: {name}", lost, 20_000))
    return rows


def _lost(case: str, lost: int, trials: int) -> Row:
    bound = float(beta.ppf(0.999, lost + 1, trials - lost))
    row = {"case": case, "lost": lost / trials, "at most": bound, "trials": trials}
    return row | {f"≤ δ = {DELTA}": "met" if bound <= DELTA else "exceeded"}


def measure() -> list[Row]:
    rows: list[Row] = []
    for stars in (False, True):
        for sites in SITES:
            for options in OPTIONS:
                rows += cell(sites, options, stars)
                print(f"  {rows[-1]['case']}", file=sys.stderr, flush=True)
    for sites in SITES:
        for gap in GAPS:
            rows += near_limit(sites, gap)
    return rows + validity()
