"""The information limit of the question "overall" for two options: T* over all cells.

A cell is an option at a client. 1/T* is the largest value, over the shares n of the pulls, of the least
Σ_j n_j·kl(μ_j, ν_j) over all means ν for which the best option is no longer ahead. That set is convex, and kl
is convex in ν, so 1/T* is also the least value over ν of max_j kl(μ_j, ν_j) (Sion): every cell moves by the
same kl, downwards if it belongs to the best option and upwards otherwise, until the options are level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.problem.truth import values_of
from bestarm.stats.limit import Limit, kl

Floats = NDArray[np.float64]
BISECTIONS = 60


def overall_limit(problem: Problem, delta: float) -> Limit:
    """T*·kl(δ, 1−δ) for two options and the question "overall"; ``bestarm.limit`` calls it.

    Parameters
    ----------
    problem : Problem
        All means must be known, and the values of the two options must differ.
    delta : float
        The probability of a wrong answer.

    Returns
    -------
    Limit

    Raises
    ------
    InputError
        If there are more than two options, a mean is unknown, or the options are tied.

    Examples
    --------
    >>> import bestarm as ba
    >>> regions = ba.Problem.from_rewards({"US": {"A": 0.3, "B": 0.4}, "EU": {"A": 0.7, "B": 0.5}})
    >>> round(ba.limit(regions.asking("overall"), 0.05).total)
    1931
    """
    names, means, contrast, clients = _cells(problem)
    evidence = float(kl(delta, 1.0 - delta)) if delta < 0.5 else 0.0
    total, parts = fewest_pulls(means, contrast)
    shares: dict[str, float] = {}
    for name, part in zip(names, parts.tolist(), strict=True):
        shares[name] = shares.get(name, 0.0) + part
    coins = not all(group.binary for group in problem.layout.groups)
    return Limit(total * evidence, least_load(means, contrast, clients) * evidence, shares, coins)


def _cells(problem: Problem) -> tuple[list[str], Floats, Floats, NDArray[np.int64]]:
    """The cells of two options: their names, means, contrasts (± their weights) and clients."""
    layout = problem.layout
    options = {name for group in layout.groups for name in group.arms}
    if layout.question.kind != "overall" or layout.question.also or len(options) != 2:
        raise InputError(
            "the limit is known only for two options",
            where=f'question = "{layout.question.kind}"',
            expected='two options and question = "overall", or question = "anywhere"',
        )
    cells, values = values_of(problem)
    if np.isnan(values).any():
        raise InputError("the mean of a cell is unknown, so there is no limit")
    if values[0] == values[1]:
        raise InputError("the best option is not unique: no number of pulls is enough", where="limit")
    weights = cells.weights(layout.question.weights, np.ones(len(layout.clients), dtype=bool))
    names, means, contrast, clients = [], [], [], []
    for i, (row, models) in enumerate(zip(cells.place, problem.rewards, strict=True)):
        for k, model in zip(row, models, strict=True):
            names.append(f"{layout.groups[cells.site[i]].name}/{cells.options[k]}")
            means.append(float(model.mean or 0.0))
            contrast.append(weights[i, k] if values[k] == values.max() else -weights[i, k])
            clients.append(i)
    return names, np.array(means), np.array(contrast), np.array(clients)


def fewest_pulls(means: Floats, contrast: Floats) -> tuple[float, Floats]:
    """T* for these cells, and the shares of the pulls at which it is reached.

    Parameters
    ----------
    means : ndarray
        The mean of each cell.
    contrast : ndarray
        The weights of the best option's cells, and minus the weights of the other's. Σ contrast·means > 0.

    Returns
    -------
    tuple of float and ndarray

    Examples
    --------
    One site is the problem of two arms; two sites that are alike need as many pulls in total.

    >>> one, shares = fewest_pulls(np.array([0.6, 0.4]), np.array([1.0, -1.0]))
    >>> two, _ = fewest_pulls(np.array([0.6, 0.4, 0.6, 0.4]), np.array([0.5, -0.5, 0.5, -0.5]))
    >>> round(one, 3), round(two, 3), shares.round(3).tolist()
    (49.663, 49.663, [0.5, 0.5])
    """

    least = _root(lambda nats: float((contrast * _moved(means, contrast, nats)).sum()))
    nu = _moved(means, contrast, least)
    gap = np.abs(nu - means)  # 0 only for a cell at 0 or 1 that cannot move, which needs no pulls
    pulls = np.abs(contrast) * nu * (1.0 - nu) / np.where(gap > 0, gap, np.inf)
    return 1.0 / least, np.asarray(pulls / pulls.sum())


def least_load(means: Floats, contrast: Floats, clients: NDArray[np.int64]) -> float:
    """The fewest pulls of the busiest client, if clients pull in parallel, for one nat of evidence.

    Its inverse is the least sum, over clients, of the largest kl of a client's cells. With a multiplier θ for
    the lead, the least costly ν depend on the pulls of each cell. A client shares its pulls between its two
    cells so that both move by the same kl.
    """
    up, down = contrast > 0, contrast < 0
    number = int(clients.max()) + 1
    cells = np.full((2, number), -1)
    cells[0, clients[up]], cells[1, clients[down]] = np.flatnonzero(up), np.flatnonzero(down)
    has, size = cells >= 0, np.abs(contrast)[cells]
    mu = np.stack([means[cells[0]], 1.0 - means[cells[1]]])  # the second option is reflected, and falls, too

    def moved(theta: float) -> tuple[Floats, Floats]:
        low, high = np.zeros(number), np.ones(number)
        for _ in range(BISECTIONS):
            share = np.where(has[1], np.where(has[0], (low + high) / 2, 0.0), 1.0)
            nu = _least_costly(mu, theta * size, np.stack([share, 1.0 - share]))
            first, second = kl(mu, nu)
            low, high = np.where(first > second, share, low), np.where(first > second, high, share)
        return nu, np.where(has, np.stack([first, second]), 0.0)

    def lead(theta: float) -> float:
        nu, _ = moved(theta)
        return float((size * has * (np.stack([nu[0], nu[1] - 1.0]))).sum())

    return float(1.0 / moved(_root(lead))[1].max(axis=0).sum())


def _least_costly(mu: Floats, price: Floats, pulls: Floats) -> Floats:
    """The ν that minimises pulls·kl(μ, ν) + price·ν: pulls·(μ − ν) = price·ν(1 − ν)."""
    r = price / np.maximum(pulls, 1e-100)
    return np.asarray(2.0 * mu / (1.0 + r + np.sqrt((1.0 + r) ** 2 - 4.0 * r * mu)))


def _moved(means: Floats, contrast: Floats, nats: float) -> Floats:
    """The means at kl `nats` from each cell's, on the side that takes away the lead of the best option."""
    near, far = means, np.where(contrast > 0, 0.0, 1.0)
    for _ in range(BISECTIONS):
        middle = (near + far) / 2
        inside = kl(means, middle) < nats
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return np.asarray((near + far) / 2)


def _root(falling: Callable[[float], float]) -> float:
    """Where a decreasing function of a positive number is 0."""
    from scipy.optimize import brentq

    low = high = 1.0
    while falling(low) < 0:
        low /= 4.0
    while falling(high) > 0:
        high *= 4.0
    return float(np.exp(brentq(lambda x: falling(float(np.exp(x))), np.log(low), np.log(high), xtol=1e-13)))
