"""Theorem 1 of the paper, corrected, and its terms as printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bestarm.errors import InputError
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.options import FedSel
from bestarm.problem.problem import Problem
from bestarm.protocol import decisions
from bestarm.stats.heterogeneity import Heterogeneity, heterogeneity
from bestarm.stats.limit import TOLERANCE, Floats, _check_delta, _means
from bestarm.stats.radii import Radius
from bestarm.stats.radii import radius as make_radius


def one_round(problem: Problem, *, paper: bool = False) -> bool:
    """Whether Fed-SEL with c = 8 is certain to need only one round, on the good event.

    This is so if σ_i1 + σ_1i ≤ 2 for every i: nothing is quantised in round 0, so each end is off by at most
    3α ≤ Δ*/2. Corollary 1 requires more: that every σ is at most 1. With `paper`, check that instead.

    >>> import bestarm as ba
    >>> [one_round(ba.Problem.paper_instance(sigma)) for sigma in (1, 2)]
    [True, False]
    """
    pairs = heterogeneity(problem).pairs
    least = pairs.max(initial=0.0) if paper else pairs.sum(axis=1).max(initial=0.0) / 2.0
    return bool(least <= 1.0 + TOLERANCE)


@dataclass(frozen=True)
class Bounds:
    """The bounds of the corrected Theorem 1, by group and in total. Fed-SEL has one client per group.

    All bounds hold together on the good event (every empirical mean is within its radius at all times), so
    with probability at least 1−δ. ∞ means that there is no bound: a tie, or more than 2⁵⁰ pulls.

    Parameters
    ----------
    heterogeneity : Heterogeneity
        The gaps of the problem.
    delta : float
        The error probability.
    c : float
        The factor in β = cα.
    period : int
        H, the pulls between two rounds.
    radii : Radius
        The confidence radius of each group.
    least : array
        m_i, a lower bound on t̄_i, the epochs of Phase I.
    most : array
        M_i, an upper bound on t̄_i.
    phase1_least, phase1_most : array
        Bounds on the pulls in Phase I.
    rounds_of : array
        An upper bound on R_i, the rounds of client i, including the Phase I report (erratum 4).
    """

    heterogeneity: Heterogeneity
    delta: float
    c: float
    period: int
    radii: Radius
    least: Floats
    most: Floats
    phase1_least: Floats
    phase1_most: Floats
    rounds_of: Floats

    @property
    def rounds(self) -> float:
        """An upper bound on R, the number of rounds."""
        return float(self.rounds_of.max())

    @property
    def one_round(self) -> bool:
        """Whether one round is certain to be enough; at c = 8 it is if ``one_round(problem)`` is true."""
        return self.rounds <= 1.0

    @property
    def phase2_most(self) -> Floats:
        """An upper bound on the pulls in Phase II: H(R_i − 1)."""
        return np.asarray(self.period * np.maximum(self.rounds_of - 1.0, 0.0))

    @property
    def pulls_least(self) -> float:
        """A lower bound on the pulls of all clients together."""
        return float(self.phase1_least.sum())

    @property
    def pulls_most(self) -> float:
        """An upper bound on the pulls of all clients together."""
        return float((self.phase1_most + self.phase2_most).sum())

    @property
    def longest_most(self) -> float:
        """An upper bound on the pulls of any single client."""
        return float((self.phase1_most + self.phase2_most).max())

    def bits(self, k: int) -> Floats:
        """An upper bound on B_i(k), the bits of client i's mean in round k ≥ 1; round 0 sends it exactly."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k = {k!r} can't be used", expected="a round of Phase II: at least 1")
        count = np.where(np.isfinite(self.most), self.most, 1.0) + k * self.period
        return np.asarray(
            np.where(np.isfinite(self.most), fed_sel_decisions.precision(self.radii.alpha(count)), np.inf)
        )

    def rows(self) -> list[dict[str, Any]]:
        """A table with one row per group."""
        h = self.heterogeneity
        columns = {
            "group": h.groups,
            "local_gap": h.local_gaps.tolist(),
            "global_gap": h.global_gaps.tolist(),
            "epochs_least": self.least.tolist(),
            "epochs_most": self.most.tolist(),
            "phase1_least": self.phase1_least.tolist(),
            "phase1_most": self.phase1_most.tolist(),
            "rounds_most": self.rounds_of.tolist(),
            "phase2_most": self.phase2_most.tolist(),
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def bounds(
    problem: Problem, delta: float, c: float = 8.0, period: int = 100, radius: str = "paper"
) -> Bounds:
    """The bounds of the corrected Theorem 1 on rounds and pulls of Fed-SEL.

    They apply with `period_growth` = 1 and without ε, a budget or early stop.

    Parameters
    ----------
    problem : Problem
        A problem with known means and one client per group.
    delta : float
        The largest probability of a wrong answer.
    c : float
        The factor in β = cα, greater than 2.
    period : int
        H, the number of pulls between two rounds.
    radius : str
        The name of the confidence radius.

    Returns
    -------
    Bounds
        The bounds by group and in total; ∞ for a quantity that a tie makes unbounded.

    Raises
    ------
    InputError
        If a parameter is invalid, or if a group has several clients.

    Notes
    -----
    Let τ_i(x) be the fewest samples for which α_i ≤ x. Then
    m_i = τ_i(Δ*_i/(c−2)) ≤ t̄_i ≤ M_i = τ_i(Δ*_i/(c+2)), and likewise for each losing arm with its own gap.
    Group i is dropped by round κ_i, the least k with ρ_k·[α_i(m_i+kH) + α_1(m_1+kH)] ≤ Δ_1i, where ρ_0 = 3
    and ρ_k = 3.5 for k ≥ 1; R_i ≤ 1 + κ_i. A group with a single arm pulls it exactly τ_i(1/c) times in
    Phase I.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.bounds(ba.Problem.paper_instance(5), 0.1)
    >>> found.rounds, found.most.tolist(), found.one_round
    (4557.0, [43603.0, 1365614.0, 311868.0], False)
    """
    _check_delta(delta)
    _check_period(period)
    h = heterogeneity(problem, c)
    layout, means = problem.layout, _means(problem)
    if any(len(group.clients) != 1 for group in layout.groups):
        raise InputError("these bounds are for Fed-SEL, which takes one client per group", where="bounds")
    counts = np.array(layout.arm_counts)
    radii = make_radius(radius, len(counts), counts, delta)
    if layout.arm_counts == (1,):  # the answer is known: no pulls, no messages
        nothing = np.zeros(1)
        return Bounds(h, delta, c, period, radii, nothing, nothing, nothing, nothing, nothing)
    group = np.repeat(np.arange(len(counts)), counts)
    by_arm = Radius(radii.name, radii.k[group], radii.s)
    gaps = np.concatenate([np.max(row) - row for row in means])
    first = np.concatenate([np.arange(len(row)) == np.argmax(row) for row in means])
    single = counts == 1
    exact = radii.inverse(1.0 / c)

    def epochs(divisor: float) -> tuple[Floats, Floats]:
        """t̄ and the pulls of Phase I if each arm were dropped at α = gap/divisor."""
        last = np.where(single, exact, radii.inverse(h.local_gaps / divisor))
        losers = np.where(first, 0.0, by_arm.inverse(gaps / divisor))
        return last, last + np.bincount(group, weights=losers, minlength=len(counts))

    (least, phase1_least), (most, phase1_most) = epochs(c - 2.0), epochs(c + 2.0)
    rounds = 1.0 + _kappa(h, radii, least, period)
    rounds[h.best] = 1.0  # the best group stays until the end
    rounds[h.best] = rounds.max() if np.isfinite(least).all() else np.inf
    return Bounds(h, delta, c, period, radii, least, most, phase1_least, phase1_most, rounds)


def bounds_of_runs(problem: Problem, options: FedSel) -> Bounds | None:
    """The bounds of the corrected Theorem 1, or None if it does not apply to Fed-SEL with these options.

    The theorem covers rounds of equal length, and runs that continue until one group is left. With ε or early
    stop, clients end Phase I sooner. With a budget or finite data, a group may keep a wide interval and delay
    the others.

    >>> import bestarm as ba
    >>> problem = ba.Problem.paper_instance(1)
    >>> bounds_of_runs(problem, FedSel(delta=0.1)).rounds
    1.0
    >>> bounds_of_runs(problem, FedSel(delta=0.1, period_growth=2.0)) is None
    True
    """
    spoken_of = (
        options.c > 2.0
        and options.period_growth == 1.0
        and options.epsilon == 0.0
        and options.budget is None
        and not options.early_stop
        and not problem.layout.finite
    )
    return bounds(problem, options.delta, options.c, options.period, options.radius) if spoken_of else None


def _kappa(h: Heterogeneity, radii: Radius, least: Floats, period: int) -> Floats:
    """κ_i, the round by which group i must have been dropped; ∞ if there is no such round."""
    gap, one = h.global_gaps, h.best
    first = Radius(radii.name, radii.k[one], radii.s)
    with np.errstate(invalid="ignore"):
        need = np.maximum(radii.inverse(gap / 7.0) - least, first.inverse(gap / 7.0) - least[one])
    possible = np.isfinite(least) & np.isfinite(least[one]) & np.isfinite(need)
    own, best = np.where(possible, least, 1.0), least[one] if np.isfinite(least[one]) else 1.0

    def enough(k: Floats, rho: float) -> decisions.Mask:
        """Whether round k is late enough; the left side never increases with k."""
        return np.asarray(rho * (radii.alpha(own + k * period) + first.alpha(best + k * period)) <= gap)

    at_once = enough(np.zeros_like(gap), 3.0)
    high = np.maximum(np.ceil(np.where(possible, need, 1.0) / period), 1.0)  # enough, since each α ≤ Δ/7
    low = np.zeros_like(high)
    while (high - low > 1.0).any():
        middle = np.floor((low + high) / 2.0)
        ok = enough(middle, 3.5) & (middle > low)
        low, high = np.where(ok | (middle <= low), low, middle), np.where(ok, middle, high)
    return np.where(possible, np.where(at_once, 0.0, high), np.inf)


@dataclass(frozen=True)
class Printed:
    """The leading terms of Theorem 1 as printed, by group. These are not bounds; see ``printed``."""

    groups: tuple[str, ...]
    rounds_of: Floats
    rounds: float
    phase1: Floats
    phase2: Floats
    bits: float


def printed(problem: Problem, delta: float, period: int = 100) -> Printed:
    """The leading terms of Theorem 1 (c = 8) as printed in the paper, for comparison only.

    - `rounds_of`: max{R_i1, R_1i} of eqs. (4) and (5) without their O(log log) terms. They start from
      α_i(t̄_i) ≤ Δ*_i/8, derived from 2/9 < 1/8, which is false. The correct bound is Δ*_i/6 (erratum 1), and
      the printed step fails in about half of the runs. "R_i1 = 1 if σ_i1 ≤ 1" has a gap inside the
      maximum (3).
    - `phase1`: Σ log(|C||A_i|/(δΔ))/Δ², without the constant that its O(·) hides; the proof's "α ≤ Δ/4"
      is c = 2, not c = 8 (7).
    - `phase2`: H·R_i. Round 0 is a round, so it should be H(R_i − 1) (4).
    - `bits`: log₂(8/Δ*) + 1 per round, where Δ* is the gap of the two best *clients* (8). It holds only while
      k < R_i1, and it counts neither the downlink nor round 0 (5).

    >>> import bestarm as ba
    >>> round(printed(ba.Problem.paper_instance(5), 0.1).rounds)
    6843
    """
    _check_delta(delta)
    _check_period(period)
    h = heterogeneity(problem)
    counts, clients = np.array(problem.layout.arm_counts), len(problem.layout.clients)
    log_c = np.log(4.0 * clients * counts / delta) / 2.0
    others = np.arange(len(counts)) != h.best

    def leading(local: ArrayLike, log_cbar: ArrayLike, sigma: Floats) -> Floats:
        """1 + (1/H)·[128/Δ*²·(σ²−1)·log(128c̄/Δ²) + 256/Δ*²·log σ], or 1 where σ ≤ 1."""
        local, above = np.asarray(local), np.maximum(sigma, 1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_term = np.log(128.0) + np.asarray(log_cbar) - 2.0 * np.log(h.global_gaps)
            terms = (128.0 * (above**2 - 1.0) * log_term + 256.0 * np.log(above)) / local**2
        return np.where(
            sigma <= 1.0 + TOLERANCE, 1.0, np.where(np.isnan(terms), np.inf, 1.0 + terms / period)
        )

    of_i = leading(h.local_gaps, log_c, np.where(others, h.matrix[:, h.best], 0.0))
    of_1 = leading(h.local_gaps[h.best], log_c[h.best], np.where(others, h.matrix[h.best], 0.0))
    rounds_of = np.where(others, np.maximum(of_i, of_1), 1.0)
    rounds_of[h.best] = rounds_of.max()
    phase1 = np.zeros(len(counts))
    for i, row in enumerate(_means(problem)):
        gaps = np.delete(np.max(row) - row, np.argmax(row))
        with np.errstate(divide="ignore"):
            phase1[i] = (np.log(clients * counts[i] / (delta * gaps)) / gaps**2).sum()
    between = h.global_gaps[others].min(initial=np.inf)
    with np.errstate(divide="ignore"):
        bits = float(np.log2(8.0 / between) + 1.0) if others.any() else 0.0
    return Printed(h.groups, rounds_of, float(rounds_of.max()), phase1, period * rounds_of, bits)


class Lambert(NamedTuple):
    """W₋₁ between Lemma 5's bounds; `coefficient` is the γ with W₋₁(x) = log(−x) − γ·log(−log(−x))."""

    lower: Floats
    exact: Floats
    upper: Floats
    coefficient: Floats


def lambert_bounds(x: ArrayLike) -> Lambert:
    """Lemma 5: log(−x) − γ·log(−log(−x)) bounds W₋₁(x) on [−e⁻², 0) from below at γ = 4, above at γ = ¼.

    The bounds are correct but loose: the exact γ is between 1 (as x → 0) and 1.654 (at −e⁻²). All other code
    uses W₋₁ exactly (erratum 9).

    >>> found = lambert_bounds(-0.01)
    >>> [round(float(value), 3) for value in found]
    [-10.714, -6.473, -4.987, 1.223]
    """
    from scipy.special import lambertw

    x = np.asarray(x, dtype=np.float64)
    if not ((x >= -np.exp(-2.0)) & (x < 0.0)).all():
        raise InputError("x is outside the range of Lemma 5", expected="numbers from −1/e² to 0, 0 excluded")
    exact, log = np.asarray(np.real(lambertw(x, -1))), np.log(-x)
    loglog = np.log(-log)
    return Lambert(log - 4.0 * loglog, exact, log - loglog / 4.0, (log - exact) / loglog)


def _check_period(period: int) -> None:
    if isinstance(period, bool) or not isinstance(period, int) or not 1 <= period <= 2**40:
        raise InputError(f"period = {period!r} can't be used", expected="a whole number from 1 to 2^40")
