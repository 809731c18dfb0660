"""Arm-heterogeneity indices of the paper (Section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.stats.limit import Floats, _means


@dataclass(frozen=True)
class Heterogeneity:
    """The arm-heterogeneity indices (Definition 1), by group: one row and one column per arm-set.

    Small σ is *more* heterogeneous.

    A group with a single arm has no second one, so the paper does not define its Δ*. Its client pulls τ(1/c)
    times (erratum 16): as often as is needed for α ≤ Δ*/(c−2) at Δ* = (c−2)/c. This is the value used here,
    3/4 at c = 8; with it every statement about α(t̄) ≤ Δ*/(c−2) holds for single arms too.

    Parameters
    ----------
    groups : tuple of str
        The names of the groups.
    clients : tuple of tuple of str
        The names of the clients of each group.
    best : int
        The group with the best arm: the paper's client 1, or the first of several.
    matrix : array
        ``matrix[i, j]`` is ``σ_ij = Δ*_i / |r_i − r_j|``, where r_i is the best mean of group i: nan on the
        diagonal, ∞ where two groups' best arms are tied.
    local_gaps : array
        Δ*_i, the gap between the two best arms of group i; 0 where they are tied.
    global_gaps : array
        Δ_1i, the gap between the best arm of group `best` and that of group i.
    """

    groups: tuple[str, ...]
    clients: tuple[tuple[str, ...], ...]
    best: int
    matrix: Floats
    local_gaps: Floats
    global_gaps: Floats

    @property
    def pairs(self) -> Floats:
        """σ_i1 and σ_1i of every group i except the best, as two columns."""
        others = np.arange(len(self.groups)) != self.best
        return np.stack([self.matrix[others, self.best], self.matrix[self.best, others]], axis=1)

    @property
    def largest(self) -> float:
        """The largest σ_i1 or σ_1i; 0 if there is only one group."""
        return float(self.pairs.max(initial=0.0))


def heterogeneity(problem: Problem, c: float = 8.0) -> Heterogeneity:
    """The arm-heterogeneity indices σ_ij and the gaps Δ*_i and Δ_1i of a problem.

    Parameters
    ----------
    problem : Problem
        All means must be known.
    c : float
        The constant of Algorithm 1; it matters only for groups with a single arm.

    Returns
    -------
    Heterogeneity
        The indices and gaps of all groups.

    Raises
    ------
    InputError
        If a mean is unknown.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.heterogeneity(ba.Problem.paper_instance(5))
    >>> found.matrix.round(2).tolist()
    [[nan, 5.0, 1.25], [1.0, nan, 0.33], [0.5, 0.67, nan]]
    >>> found.local_gaps.round(2).tolist(), found.global_gaps.round(2).tolist()
    ([0.25, 0.05, 0.1], [0.0, 0.05, 0.2])
    """
    _check_c(c)
    rows = [np.sort(row)[::-1] for row in _means(problem)]
    top = np.array([row[0] for row in rows])
    local = np.array([row[0] - row[1] if len(row) > 1 else (c - 2.0) / c for row in rows])
    between = np.abs(top[:, None] - top)
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = np.where(between > 0.0, local[:, None] / between, np.inf)
    np.fill_diagonal(matrix, np.nan)
    groups = problem.layout.groups
    names, clients = tuple(g.name for g in groups), tuple(g.clients for g in groups)
    best = int(np.argmax(top))
    return Heterogeneity(names, clients, best, matrix, local, top[best] - top)


def _check_c(c: float) -> None:
    if isinstance(c, bool) or not isinstance(c, int | float) or not 2.0 < c < 1e6:
        raise InputError(f"c = {c!r} can't be used", expected="a number above 2 and below a million")
