"""Pulls to an answer at δ = 0.1, compared with other libraries, with all arms in one place.

The problem has the nine arms of the paper's instance (σ = 5), with 0/1 rewards and fixed seeds. The other
libraries have no notion of sites: they see all arms and choose each pull individually, which sites that work
in rounds can't. So this compares statistics, not communication. ``promise`` says whether the error
probability of the rule is proved to be at most δ; the limit on pulls applies only in that case. The last row
compares Fed-Bet, which has a proof, with Track-and-Stop at the threshold of practice, which has none.

Libraries that aren't installed are skipped with a note. `make bench` installs best-arm 0.1.1. It does not
install banditpylib, which is in no package index (it needs protobuf < 3.21), or confseq 0.0.11, which must be
compiled with Boost's headers and, from Python 3.11 on, a newer pybind11 than it asks for
(``pip install scikit-build 'pybind11<2.14'``, then ``pip install --no-build-isolation confseq``).

Track-and-Stop recomputes its shares before each pull, so there are few trials of it; ``LONG=1`` runs more
(about a quarter of an hour on two idle cores, instead of two minutes).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.methods.fisher.looks import Looks
from bestarm.methods.fisher.options import Fisher

LONG = bool(os.environ.get("LONG"))
DELTA = 0.1
PROBLEM = ba.Problem.paper_instance(5)
MEANS = [mean for row in PROBLEM.means for mean in row if mean is not None]
BEST = int(np.argmax(MEANS))

Way = Callable[[int], tuple[int, int]]  # seed -> (arm, pulls)


SITES = PROBLEM, ba.Problem.bernoulli([MEANS])  # the arms at three sites, and at one


def ours(options: dict[str, Any], problem: ba.Problem, seed: int) -> tuple[int, int]:
    record = ba.identify(problem, delta=DELTA, seed=seed, **options)
    names = [problem.layout.arm(j, a) for j, row in enumerate(problem.means) for a in range(len(row))]
    return names.index(str(record.verdict.arm)), record.pulls.total


def _coins(seed: int) -> Any:
    from best_arm.environment import BaseEnvironment

    rng = np.random.default_rng(seed)

    class Coins(BaseEnvironment):  # type: ignore[misc]
        def sample(self, arm: int) -> float:
            return float(rng.random() < MEANS[arm])

    coins = Coins(len(MEANS))
    coins.probs = MEANS  # tells the stopping rule that rewards are 0/1
    return coins


def lucb1(seed: int) -> tuple[int, int]:
    from best_arm.algorithms.lucb1 import LUCB1
    from best_arm.stopping_conditions import LUCBStoppingCondition

    arm, counts, _, _ = LUCB1(_coins(seed), DELTA, LUCBStoppingCondition(epsilon=0.0)).run()
    return int(arm), int(counts.sum())


def _divergence(p: float, q: float) -> float:
    """The library's own expression in plain floats: the same pulls, in a sixth of the time."""
    p, q = min(max(float(p), 1e-8), 1 - 1e-8), min(max(float(q), 1e-8), 1 - 1e-8)
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def track_and_stop(threshold: str, seed: int) -> tuple[int, int]:
    """``practice``: ln((ln t + 1)/δ). ``proved``: ln(2t(K−1)/δ), Garivier and Kaufmann (2016), Theorem 10."""
    from best_arm import stopping_conditions, utils
    from best_arm.algorithms.track_and_stop import DTracking, TrackAndStop

    utils._kl_bernoulli = stopping_conditions._kl_bernoulli = _divergence
    np.random.seed(seed)  # noqa: NPY002 (the library draws from NumPy's global state)
    if threshold == "practice":
        stop = stopping_conditions.ChernoffStoppingCondition("practice")
    else:
        stop = stopping_conditions.TopTwoStoppingCondition()
    arm, counts, _, _ = TrackAndStop(_coins(seed), DELTA, DTracking(len(MEANS)), stop).run()
    return int(arm), int(counts.sum())


def at_looks() -> Iterator[int]:
    looks = Looks(Fisher(delta=DELTA), len(MEANS))
    return (looks.size(r) for r in count())


def each_pull() -> Iterator[int]:
    return count(1)


def intervals(moments: Callable[[], Iterable[int]], seed: int) -> tuple[int, int]:
    """Pull all remaining arms equally; drop an arm whose interval is below another's. The loop is ours.

    The intervals are confseq's for 0/1 rewards, at δ/K per arm. They are valid at all times simultaneously,
    so each arm keeps the intersection. They are tuned for 1,000 pulls per arm, the best here of 100, 300,
    500, 1,000 and 3,000.
    """
    from confseq.boundaries import bernoulli_confidence_interval

    rng, means, level = np.random.default_rng(seed), np.array(MEANS), DELTA / len(MEANS)
    low, high, sums = np.zeros(len(MEANS)), np.ones(len(MEANS)), np.zeros(len(MEANS), dtype=int)
    left, before, pulls = np.arange(len(MEANS)), 0, 0
    for n in moments():
        sums[left] += rng.binomial(n - before, means[left])
        pulls += (n - before) * left.size
        before = n
        for arm in left:
            below, above = bernoulli_confidence_interval(sums[arm], n, level, 1000, level)
            low[arm], high[arm] = max(low[arm], below), min(high[arm], above)
        left = left[high[left] >= low[left].max()]
        if left.size == 1:
            break
    return int(left[0]), pulls


def lil_ucb(seed: int) -> tuple[int, int]:
    from banditpylib.arms import BernoulliArm
    from banditpylib.bandits import MultiArmedBandit
    from banditpylib.learners.mab_fcbai_learner import LilUCBHeuristic

    np.random.seed(seed)  # noqa: NPY002
    bandit = MultiArmedBandit(arms=[BernoulliArm(mean) for mean in MEANS])
    bandit.reset()
    learner = LilUCBHeuristic(arm_num=len(MEANS), confidence=1 - DELTA)
    learner.reset()
    pulls = 0
    while True:
        actions = learner.actions(bandit.context)
        if not actions.arm_pulls:
            return int(learner.best_arm), pulls
        learner.update(bandit.feed(actions))
        pulls += sum(pull.times for pull in actions.arm_pulls)


FISHER, BALANCED = {"method": "fisher"}, {"method": "bet"}
BET = {"method": "bet", "prefer": "pulls"}
PROVED, PRACTICE = "bestarm, Fed-Bet, pulls, three sites", "best-arm, Track-and-Stop, 'practice'"
# name, promise, trials, trials with LONG=1, way
WAYS: list[tuple[str, str, int, int, Way]] = [
    (PROVED, "proved", 400, 1000, partial(ours, BET, SITES[0])),
    ("bestarm, Fed-Bet, pulls, one site", "proved", 400, 400, partial(ours, BET, SITES[1])),
    ("bestarm, Fed-Bet, balanced, three sites", "proved", 400, 400, partial(ours, BALANCED, SITES[0])),
    ("bestarm, Fed-Fisher, three sites", "proved", 400, 400, partial(ours, FISHER, SITES[0])),
    ("bestarm, Fed-Fisher, one site", "proved", 400, 400, partial(ours, FISHER, SITES[1])),
    ("confseq's intervals, at Fed-Fisher's looks", "proved", 100, 400, partial(intervals, at_looks)),
    ("confseq's intervals, after each pull", "proved", 20, 100, partial(intervals, each_pull)),
    (PRACTICE, "heuristic", 20, 400, partial(track_and_stop, "practice")),
    ("best-arm, Track-and-Stop, ln(2t(K-1)/δ)", "proved", 4, 20, partial(track_and_stop, "proved")),
    ("best-arm, LUCB1 (epsilon = 0)", "proved", 4, 20, lucb1),
    ("banditpylib, lil'UCB heuristic", "heuristic", 20, 100, lil_ucb),
]


def trial(way: Way, seed: int) -> tuple[int, int, float]:
    begun = time.perf_counter()
    return *way(seed), time.perf_counter() - begun


def against_practice(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Fed-Bet's pulls over those of Track-and-Stop, and whether the intervals of the two means are apart."""
    by_way = {row["way"]: row for row in rows}
    bet, practice = by_way[PROVED], by_way[PRACTICE]
    if "skipped" in practice:
        return {"way": f"{PROVED}, over {PRACTICE}", "skipped": practice["skipped"]}
    apart = bet["pulls"] + bet["±"] < practice["pulls"] - practice["±"]
    return {
        "way": f"{PROVED}, over {PRACTICE}",
        "× pulls": bet["pulls"] / practice["pulls"],
        "means": "fewer, intervals apart" if apart else "intervals overlap: run more trials (LONG=1)",
    }


def measure() -> list[dict[str, Any]]:
    limit = ba.limit(PROBLEM, DELTA).total
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor() as pool:
        for name, promise, few, many, way in WAYS:
            trials = many if LONG else few
            try:
                found = list(pool.map(partial(trial, way), range(trials)))
            except ImportError as error:
                rows.append({"way": name, "skipped": f"{error.name} is not installed"})
                continue
            pulls = np.array([pulls for _, pulls, _ in found], dtype=float)
            rows.append(
                {
                    "way": name,
                    "promise": promise,
                    "trials": trials,
                    "pulls": float(pulls.mean()),
                    "±": float(1.96 * pulls.std(ddof=1) / np.sqrt(trials)),
                    "× limit": float(pulls.mean() / limit) if promise == "proved" else "–",
                    "wrong": sum(arm != BEST for arm, _, _ in found),
                    "seconds a trial": sum(seconds for _, _, seconds in found) / trials,
                }
            )
    return [*rows, against_practice(rows)]
