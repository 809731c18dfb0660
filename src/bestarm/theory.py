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
from bestarm.problem import Problem

Floats = NDArray[np.float64]


def kl(p: ArrayLike, q: ArrayLike) -> Floats:
    """Relative entropy of two coins; 0·log 0 is 0.

    >>> round(float(kl(0.1, 0.9)), 6)
    1.75778
    """
    from scipy.special import rel_entr

    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return np.asarray(rel_entr(p, q) + rel_entr(1.0 - p, 1.0 - q))


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
    and grow with every pull, so their minimum over one variable is found by a golden-section search.
    """
    from scipy.optimize import minimize_scalar

    # Below this many pulls of the best arm, even endless pulls of the hardest rival are not enough.
    floor = max(float(np.max(1.0 / kl(best, rivals))), 1e-9)

    def value(x: float) -> float:
        first = floor * (1.0 + np.exp(x))
        return cost(first, _rival_pulls(best, rivals, first))

    found = minimize_scalar(value, bounds=(-25.0, 25.0), method="bounded", options={"xatol": 1e-10})
    first = floor * (1.0 + float(np.exp(found.x)))
    return first, _rival_pulls(best, rivals, first)


def _rival_pulls(best: float, rivals: Floats, first: float) -> Floats:
    """Least n with first·kl(best, m) + n·kl(rival, m) ≥ 1 for every m between; by bisection over m.

    The m that is hardest to rule out is the weighted mean of the two, so n follows from m: at the right m,
    first·kl(best, m) + n(m)·kl(rival, m) = 1 with n(m) = first·(best − m)/(m − rival).
    """
    low, high = rivals.copy(), np.full(rivals.shape, best)
    for _ in range(200):
        middle = (low + high) / 2.0
        weight = first * (best - middle) / np.maximum(middle - rivals, 1e-300)
        evidence = first * kl(best, middle) + weight * kl(rivals, middle)
        enough = evidence >= 1.0
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    middle = low
    return np.asarray(first * (best - middle) / np.maximum(middle - rivals, 1e-300))
