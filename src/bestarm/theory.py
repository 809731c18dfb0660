"""What no method can beat, and what the theorems promise.

``limit`` is the information-theoretic lower bound on pulls for 0/1 rewards: any method that is wrong with
probability at most δ on every problem makes on average at least T*(μ)·kl(δ, 1−δ) pulls on this one
(Garivier and Kaufmann 2016), whatever it communicates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError
from bestarm.exact import deviance
from bestarm.problem import Problem

Floats = NDArray[np.float64]


def kl(p: ArrayLike, q: ArrayLike) -> Floats:
    """Relative entropy of two coins, without cancellation where they are close; 0·log 0 is 0.

    >>> round(float(kl(0.1, 0.9)), 6), float(kl(0.5, 0.5 + 1e-9)) > 0
    (1.75778, True)
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return np.asarray(deviance(p, q) + deviance(1.0 - p, 1.0 - q))


@dataclass(frozen=True)
class Limit:
    """Lower bounds on expected pulls: of all clients together, and of the longest client.

    `shares` is how an ideal method would split the total among the arms.
    """

    total: float
    longest: float
    shares: dict[str, float]


def limit(problem: Problem, delta: float) -> Limit:
    """T*(μ)·kl(δ, 1−δ) for the total of pulls, and its counterpart for clients that pull in parallel.

    Rewards count as 0/1 rewards with the problem's means. The best arm must be unique. A group of several
    clients shares its pulls among them.

    >>> import bestarm as ba
    >>> found = ba.limit(ba.Problem.paper_instance(1), 0.1)
    >>> round(found.total), found.longest < found.total
    (951, True)
    """
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta = {delta!r} can't be used", expected="a number in (0, 1)")
    names, means, groups = [], [], []
    for j, row in enumerate(problem.means):
        for a, mean in enumerate(row):
            if mean is None:
                raise InputError(f"the mean of {problem.layout.arm(j, a)} is unknown, so its limit is too")
            names.append(problem.layout.arm(j, a))
            means.append(mean)
            groups.append(j)
    if len(names) == 1:
        return Limit(0.0, 0.0, {names[0]: 1.0})
    if problem.best is None:
        raise InputError("the best arm is not unique: no number of pulls is enough", where="limit")
    mu, group = np.asarray(means), np.asarray(groups)
    best = names.index(problem.best)
    rivals = np.flatnonzero(np.arange(len(mu)) != best)
    evidence = float(kl(delta, 1.0 - delta)) if delta < 0.5 else 0.0
    clients = np.array([len(g.clients) for g in problem.layout.groups], dtype=np.float64)

    def total(first: float, others: Floats) -> float:
        return first + float(others.sum())

    def longest(first: float, others: Floats) -> float:
        loads = np.bincount(group[rivals], weights=others, minlength=len(clients))
        loads[group[best]] += first
        return float((loads / clients).max())

    first, others = _allocate(mu[best], mu[rivals], total)
    all_pulls = np.zeros(len(mu))
    all_pulls[best], all_pulls[rivals] = first, others
    shares = dict(zip(names, (all_pulls / all_pulls.sum()).tolist(), strict=True))
    parallel = longest(*_allocate(mu[best], mu[rivals], longest))
    return Limit(total(first, others) * evidence, parallel * evidence, shares)


def _allocate(best: float, rivals: Floats, cost: Callable[[float, Floats], float]) -> tuple[float, Floats]:
    """Pulls of the best arm and of its rivals that give one nat of evidence against each, at least cost.

    Given the pulls of the best arm, each rival's are determined, fall and are convex; both costs are convex
    and grow with every pull, so their minimum over one variable is found by a bounded search.
    """
    from scipy.optimize import minimize_scalar

    # Below this many pulls of the best arm, even endless pulls of the hardest rival are not enough.
    with np.errstate(divide="ignore"):
        floor = float(np.max(1.0 / kl(best, rivals)))
    # A fair share, at which every rival's pulls are moderate; the best answer costs less than this one.
    fair = floor + float(np.max(1.0 / kl(best, (best + rivals) / 2.0)))
    most = cost(fair, _rival_pulls(best, rivals, fair))

    def value(x: float) -> float:
        first = floor + float(np.exp(x))
        return cost(first, _rival_pulls(best, rivals, first))

    ends = (np.log(fair) - 12.0 if floor > 0 else np.log(fair / 300.0), np.log(most))
    found = minimize_scalar(value, bounds=ends, method="bounded", options={"xatol": 1e-9})
    first = floor + float(np.exp(found.x))
    return first, _rival_pulls(best, rivals, first)


def _rival_pulls(best: float, rivals: Floats, first: float) -> Floats:
    """Least n with first·kl(best, m) + n·kl(rival, m) ≥ 1 for every m between rival and best.

    The m that is hardest to rule out is the weighted mean of the two. With m = rival + u·(best − rival),
    n = first·(1−u)/u, and the evidence falls with u: solve for the logit of u, by bisection and then Newton.
    """

    def log_evidence(logit: Floats) -> Floats:
        u = 1.0 / (1.0 + np.exp(-logit))
        middle = rivals + u * (best - rivals)
        evidence = kl(best, middle) + np.exp(-logit) * kl(rivals, middle)
        return np.asarray(np.log(np.maximum(first * evidence, 1e-300)))

    low, high = np.full(rivals.shape, -690.0), np.full(rivals.shape, 40.0)
    for _ in range(26):
        middle = (low + high) / 2.0
        enough = log_evidence(middle) >= 0.0
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    logit, step = (low + high) / 2.0, 1e-4
    for _ in range(3):
        slope = (log_evidence(logit + step) - log_evidence(logit - step)) / (2.0 * step)
        logit = np.clip(logit - log_evidence(logit) / np.minimum(slope, -1e-9), low - 1e-3, high + 1e-3)
    return np.asarray(first * np.exp(-logit))
