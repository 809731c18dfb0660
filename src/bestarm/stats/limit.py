"""The information limit: a lower bound on the expected pulls of any method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.stats.fisher_exact import deviance

Floats = NDArray[np.float64]
LIMIT_ARMS = 20_000  # above this, the limit takes longer to compute than the runs
TOLERANCE = 1e-9  # of σ: gaps of 0.9 − 0.85 and 0.85 − 0.8 should count as equal


def kl(p: ArrayLike, q: ArrayLike) -> Floats:
    """Relative entropy of two Bernoulli distributions, without cancellation if they are close; 0·log 0 is 0.

    >>> round(float(kl(0.1, 0.9)), 6), float(kl(0.5, 0.5 + 1e-9)) > 0
    (1.75778, True)
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return np.asarray(deviance(p, q) + deviance(1.0 - p, 1.0 - q))


@dataclass(frozen=True)
class Limit:
    """The fewest pulls on average: of all clients together, and of the busiest client.

    The limit applies to any method that names the best arm with probability at least 1 − δ on every problem
    with 0/1 rewards and a unique best arm. A method that may end undecided, or name an arm that is only close
    to the best, can need fewer.

    Parameters
    ----------
    total : float
        The pulls of all clients together.
    longest : float
        The pulls of the busiest client.
    shares : dict
        How an ideal method would split the total among the arms.
    coins : bool
        True if there are rewards other than 0/1. The limit is then for methods that turn them into coins, as
        Fed-Fisher does; a method that uses rewards as they are may need fewer pulls.
    """

    total: float
    longest: float
    shares: dict[str, float]
    coins: bool = False

    @property
    def holds_for(self) -> str:
        """The methods that the limit applies to, in words."""
        return limited(self.coins)


def limited(coins: bool = False) -> str:
    """The methods that the limit applies to, in words."""
    if coins:
        return (
            "any method that turns rewards into 0/1 coins and names the best arm with probability at least "
            "1 − δ on every problem with a unique best arm"
        )
    return (
        "any method that names the best arm with probability at least 1 − δ on every problem with 0/1 "
        "rewards and a unique best arm"
    )


def limit(problem: Problem, delta: float) -> Limit:
    """The fewest pulls, on average, that a method needs to name the best arm: T*(μ)·kl(δ, 1−δ).

    ``Limit`` describes the methods that it applies to.

    Parameters
    ----------
    problem : Problem
        All means must be known and the best arm must be unique. Rewards are treated as 0/1 rewards with these
        means; the clients of a group share its pulls. The question is "anywhere", or "overall" with two
        options.
    delta : float
        The probability of a wrong answer.

    Returns
    -------
    Limit
        The limit on the total of all clients, and on the busiest client if clients pull in parallel.

    Raises
    ------
    InputError
        If a mean is unknown, the best arm is tied, or no limit is known for the question.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.limit(ba.Problem.paper_instance(1), 0.1)
    >>> round(found.total), found.longest < found.total
    (951, True)

    References
    ----------
    Garivier and Kaufmann, *Optimal best arm identification with fixed confidence*, 2016, Theorem 1.
    """
    _check_delta(delta)
    if problem.layout.question.kind != "anywhere":
        from bestarm.stats.overall_limit import overall_limit

        return overall_limit(problem, delta)
    names, means, groups = [], [], []
    for j, row in enumerate(problem.means):
        for a, mean in enumerate(row):
            if mean is None:
                raise InputError(f"the mean of {problem.layout.arm(j, a)} is unknown, so there is no limit")
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
    coins = not all(g.binary for g in problem.layout.groups)
    return Limit(total(first, others) * evidence, parallel * evidence, shares, coins)


def _allocate(best: float, rivals: Floats, cost: Callable[[float, Floats], float]) -> tuple[float, Floats]:
    """Pulls of the best arm and of its rivals that give one nat of evidence against each, at least cost.

    The pulls of the best arm determine those of each rival, as a decreasing convex function. Both costs are
    convex and increase with every pull, so a bounded search over one variable finds their minimum.
    """
    from scipy.optimize import minimize_scalar

    # Below this many pulls of the best arm, even endless pulls of the hardest rival are not enough.
    with np.errstate(divide="ignore"):
        floor = float(np.max(1.0 / kl(best, rivals)))
    # A fair share, at which every rival's pulls are moderate; the optimum costs less than this.
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


def _means(problem: Problem) -> list[Floats]:
    """True means by group; InputError if one is unknown."""
    for j, row in enumerate(problem.means):
        for a, mean in enumerate(row):
            if mean is None:
                raise InputError(
                    f"the mean of {problem.layout.arm(j, a)} is unknown",
                    expected="known means",
                    fix="Guess the gaps: --gaps on the command line, problem_from_gaps in Python",
                )
    return [np.array(row, dtype=np.float64) for row in problem.means]


def _check_delta(delta: float) -> None:
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0.0 < delta < 1.0:
        raise InputError(f"delta = {delta!r} can't be used", expected="a number in (0, 1)")
