"""Pulls to an answer at δ = 0.1, beside other libraries, with all arms at one place.

The nine arms of the paper's instance (σ = 5), 0/1 rewards, seeded. The others don't know sites: they see all
arms and choose each pull anew, which sites that work in rounds can't. So this compares statistics, not
communication. What isn't installed is skipped with a line that says so: best-arm 0.1.1 (`make bench` brings
it) and banditpylib (from its repository). ``promise`` says whether the rule comes with a proof that it keeps
δ. Few trials of Track-and-Stop: it computes its shares anew before each pull.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bestarm as ba

DELTA = 0.1
PROBLEM = ba.Problem.paper_instance(5)
MEANS = [mean for row in PROBLEM.means for mean in row if mean is not None]
BEST = int(np.argmax(MEANS))

Way = Callable[[int], tuple[int, int]]  # seed -> (arm, pulls)


def across_sites(seed: int) -> tuple[int, int]:
    record = ba.identify(PROBLEM, "fisher", delta=DELTA, seed=seed)
    group, arm = (int(name[1:]) - 1 for name in str(record.verdict.arm).split("/"))
    return 3 * group + arm, record.pulls.total


def one_site(seed: int) -> tuple[int, int]:
    record = ba.identify(ba.Problem.bernoulli([MEANS]), "fisher", delta=DELTA, seed=seed)
    return int(str(record.verdict.arm).split("/a")[1]) - 1, record.pulls.total


def _coins(seed: int) -> Any:
    from best_arm.environment import BaseEnvironment

    rng = np.random.default_rng(seed)

    class Coins(BaseEnvironment):  # type: ignore[misc]
        def sample(self, arm: int) -> float:
            return float(rng.random() < MEANS[arm])

    return Coins(len(MEANS))


def lucb1(seed: int) -> tuple[int, int]:
    from best_arm.algorithms.lucb1 import LUCB1
    from best_arm.stopping_conditions import LUCBStoppingCondition

    arm, counts, _, _ = LUCB1(_coins(seed), DELTA, LUCBStoppingCondition(epsilon=0.0)).run()
    return int(arm), int(counts.sum())


def track_and_stop(seed: int) -> tuple[int, int]:
    from best_arm.algorithms.track_and_stop import DTracking
    from best_arm.stopping_conditions import ChernoffStoppingCondition

    np.random.seed(seed)  # noqa: NPY002 (the library draws from NumPy's global state)
    env, stop = _coins(seed), ChernoffStoppingCondition("practice")
    tracker, many = DTracking(len(MEANS)), len(MEANS)
    counts, rewards = np.ones(many, dtype=int), np.array([env.sample(arm) for arm in range(many)])
    while not stop.should_stop(counts, rewards, env, DELTA):
        arm = tracker.select_arm(counts, rewards, env)
        counts[arm] += 1
        rewards[arm] += env.sample(arm)
    return int(np.argmax(rewards / counts)), int(counts.sum())


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


WAYS: list[tuple[str, str, int, Way]] = [
    ("bestarm, Fed-Fisher, three sites", "proved", 400, across_sites),
    ("bestarm, Fed-Fisher, one site", "proved", 400, one_site),
    ("best-arm, LUCB1 (epsilon = 0)", "proved", 10, lucb1),
    ("best-arm, Track-and-Stop, threshold 'practice'", "heuristic", 3, track_and_stop),
    ("banditpylib, lil'UCB heuristic", "heuristic", 20, lil_ucb),
]


def measure() -> list[dict[str, Any]]:
    limit = ba.limit(PROBLEM, DELTA).total
    rows: list[dict[str, Any]] = []
    for name, promise, trials, way in WAYS:
        begun = time.perf_counter()
        try:
            found = [way(seed) for seed in range(trials)]
        except ImportError as error:
            rows.append({"way": name, "skipped": f"{error.name} is not installed"})
            continue
        pulls = np.array([pulls for _, pulls in found], dtype=float)
        rows.append(
            {
                "way": name,
                "promise": promise,
                "trials": trials,
                "pulls": float(pulls.mean()),
                "±": float(1.96 * pulls.std(ddof=1) / np.sqrt(trials)),
                "× limit": float(pulls.mean() / limit),
                "wrong": sum(arm != BEST for arm, _ in found),
                "seconds a trial": (time.perf_counter() - begun) / trials,
            }
        )
    return rows
