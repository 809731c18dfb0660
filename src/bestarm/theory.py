"""What no method can beat, and what the theorems promise.

``limit`` is the information-theoretic lower bound on pulls for 0/1 rewards: any method that is wrong with
probability at most δ on every problem makes on average at least T*(μ)·kl(δ, 1−δ) pulls on this one
(Garivier and Kaufmann 2016), whatever it communicates.

``heterogeneity`` is Definition 1 of the paper, ``bounds`` its Theorem 1 as corrected (errata 1 to 8), to
be evaluated; ``printed`` has the terms as they stand in the paper. All of these need true means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.confidence import Radius
from bestarm.confidence import radius as make_radius
from bestarm.errors import InputError
from bestarm.exact import deviance
from bestarm.problem import Problem
from bestarm.protocol import decide

Floats = NDArray[np.float64]
TOLERANCE = 1e-9  # of σ: gaps of 0.9 − 0.85 and 0.85 − 0.8 are meant to be equal


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

    `shares` is how an ideal method would split the total among the arms. With `coins` there are rewards other
    than 0/1, and these bounds are for methods that turn them into coins, as Fed-Fisher does; a method that
    uses rewards as they are may need fewer pulls.
    """

    total: float
    longest: float
    shares: dict[str, float]
    coins: bool = False

    @property
    def holds_for(self) -> str:
        """The methods that can't do with less, in words."""
        return "any method that turns rewards into coins" if self.coins else "any method"


def limit(problem: Problem, delta: float) -> Limit:
    """T*(μ)·kl(δ, 1−δ) for the total of pulls, and its counterpart for clients that pull in parallel.

    Rewards count as 0/1 rewards with the problem's means. The best arm must be unique. A group of several
    clients shares its pulls among them.

    >>> import bestarm as ba
    >>> found = ba.limit(ba.Problem.paper_instance(1), 0.1)
    >>> round(found.total), found.longest < found.total
    (951, True)
    """
    _check_delta(delta)
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
    coins = not all(g.binary for g in problem.layout.groups)
    return Limit(total(first, others) * evidence, parallel * evidence, shares, coins)


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


@dataclass(frozen=True)
class Heterogeneity:
    """The arm-heterogeneity indices (Definition 1), by group: one row and column an arm-set.

    `matrix[i, j]` is ``σ_ij = Δ*_i / |r_i − r_j|``, r_i the best mean of group i: nan on the diagonal, ∞
    where two groups' best arms are tied. Small σ is *more* heterogeneous. `local_gaps` are the Δ*_i, between
    the two best arms of a group (0 where they are tied); `global_gaps` the Δ_1i, between the best arm of
    group `best` (the paper's client 1; the first of several) and that of group i.

    A single arm has no second one, so the paper leaves its Δ* open. Its client pulls τ(1/c) times (erratum
    16): as often as is needed for α ≤ Δ*/(c−2) at Δ* = (c−2)/c. That is its entry here, 3/4 at c = 8; with
    it every statement about α(t̄) ≤ Δ*/(c−2) holds for single arms too.
    """

    groups: tuple[str, ...]
    clients: tuple[tuple[str, ...], ...]
    best: int
    matrix: Floats
    local_gaps: Floats
    global_gaps: Floats

    @property
    def pairs(self) -> Floats:
        """σ_i1 and σ_1i of every group i but the best, as two columns."""
        others = np.arange(len(self.groups)) != self.best
        return np.stack([self.matrix[others, self.best], self.matrix[self.best, others]], axis=1)

    @property
    def largest(self) -> float:
        """The largest σ_i1 or σ_1i; 0 if there is only one group."""
        return float(self.pairs.max(initial=0.0))


def heterogeneity(problem: Problem, c: float = 8.0) -> Heterogeneity:
    """σ_ij, Δ*_i and Δ_1i of a problem whose means are known; `c` matters for single arms alone.

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


def one_round(problem: Problem, *, paper: bool = False) -> bool:
    """Whether Fed-SEL with c = 8 is sure to need one round alone, on the good event.

    It is if σ_i1 + σ_1i ≤ 2 for every i: at round 0 nothing is quantised, so each end is at most
    3α ≤ Δ*/2 off. Corollary 1 asks more, that every σ be at most 1; `paper` tells whether that holds.

    >>> import bestarm as ba
    >>> [one_round(ba.Problem.paper_instance(sigma)) for sigma in (1, 2)]
    [True, False]
    """
    pairs = heterogeneity(problem).pairs
    least = pairs.max(initial=0.0) if paper else pairs.sum(axis=1).max(initial=0.0) / 2.0
    return bool(least <= 1.0 + TOLERANCE)


@dataclass(frozen=True)
class Bounds:
    """The corrected Theorem 1, by group (Fed-SEL has one client a group) and in all.

    All hold together on the good event (every empirical mean within its radius at all times), so with
    probability at least 1−δ. ∞ means that there is no bound: a tie, or more than 2⁵⁰ pulls.
    """

    heterogeneity: Heterogeneity
    delta: float
    c: float
    period: int
    radii: Radius
    least: Floats
    """m_i ≤ t̄_i, the epochs of Phase I."""
    most: Floats
    """M_i ≥ t̄_i."""
    phase1_least: Floats
    """Pulls in Phase I, at least."""
    phase1_most: Floats
    """Pulls in Phase I, at most."""
    rounds_of: Floats
    """R_i, at most: rounds that client i takes part in, the Phase I report included (erratum 4)."""

    @property
    def rounds(self) -> float:
        """R, at most."""
        return float(self.rounds_of.max())

    @property
    def one_round(self) -> bool:
        """Whether one round is sure to do; at c = 8 it is where ``one_round(problem)`` holds."""
        return self.rounds <= 1.0

    @property
    def phase2_most(self) -> Floats:
        """Pulls in Phase II, at most: H(R_i − 1)."""
        return np.asarray(self.period * np.maximum(self.rounds_of - 1.0, 0.0))

    @property
    def pulls_least(self) -> float:
        """Pulls of all clients, at least."""
        return float(self.phase1_least.sum())

    @property
    def pulls_most(self) -> float:
        """Pulls of all clients, at most."""
        return float((self.phase1_most + self.phase2_most).sum())

    @property
    def longest_most(self) -> float:
        """Pulls of any one client, at most."""
        return float((self.phase1_most + self.phase2_most).max())

    def bits(self, k: int) -> Floats:
        """B_i(k), at most: the bits of client i's mean in round k ≥ 1 (round 0's travels exactly)."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k = {k!r} can't be used", expected="a round of Phase II: at least 1")
        count = np.where(np.isfinite(self.most), self.most, 1.0) + k * self.period
        return np.asarray(np.where(np.isfinite(self.most), decide.precision(self.radii.alpha(count)), np.inf))

    def rows(self) -> list[dict[str, Any]]:
        """A table: one row a group."""
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
    """Theorem 1 as corrected, for Fed-SEL without ε, early stop or a growing period; c > 2.

    With τ_i(x) the fewest samples for α_i ≤ x: m_i = τ_i(Δ*_i/(c−2)) ≤ t̄_i ≤ M_i = τ_i(Δ*_i/(c+2)), and
    likewise for each losing arm with its own gap. Group i falls by round κ_i, the least k with
    ρ_k·[α_i(m_i+kH) + α_1(m_1+kH)] ≤ Δ_1i, ρ_0 = 3 and else 3.5; R_i ≤ 1 + κ_i. A single arm is pulled
    τ_i(1/c) times in Phase I, exactly. What a tie keeps from ending is ∞.

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
        raise InputError("these bounds are for Fed-SEL, which takes one client a group", where="bounds")
    counts = np.array(layout.arm_counts)
    radii = make_radius(radius, len(counts), counts, delta)
    if layout.arm_counts == (1,):  # nothing to find out, and nothing is pulled or sent
        nothing = np.zeros(1)
        return Bounds(h, delta, c, period, radii, nothing, nothing, nothing, nothing, nothing)
    group = np.repeat(np.arange(len(counts)), counts)
    by_arm = Radius(radii.name, radii.k[group], radii.s)
    gaps = np.concatenate([np.max(row) - row for row in means])
    first = np.concatenate([np.arange(len(row)) == np.argmax(row) for row in means])
    single = counts == 1
    exact = radii.inverse(1.0 / c)

    def epochs(divisor: float) -> tuple[Floats, Floats]:
        """t̄ and the pulls of Phase I, were each arm to leave at α = gap/divisor."""
        last = np.where(single, exact, radii.inverse(h.local_gaps / divisor))
        losers = np.where(first, 0.0, by_arm.inverse(gaps / divisor))
        return last, last + np.bincount(group, weights=losers, minlength=len(counts))

    (least, phase1_least), (most, phase1_most) = epochs(c - 2.0), epochs(c + 2.0)
    rounds = 1.0 + _kappa(h, radii, least, period)
    rounds[h.best] = 1.0  # stays to the end
    rounds[h.best] = rounds.max() if np.isfinite(least).all() else np.inf
    return Bounds(h, delta, c, period, radii, least, most, phase1_least, phase1_most, rounds)


def _kappa(h: Heterogeneity, radii: Radius, least: Floats, period: int) -> Floats:
    """κ_i, the round in which group i has fallen at the latest; ∞ where it never must."""
    gap, one = h.global_gaps, h.best
    first = Radius(radii.name, radii.k[one], radii.s)
    with np.errstate(invalid="ignore"):
        need = np.maximum(radii.inverse(gap / 7.0) - least, first.inverse(gap / 7.0) - least[one])
    possible = np.isfinite(least) & np.isfinite(least[one]) & np.isfinite(need)
    own, best = np.where(possible, least, 1.0), least[one] if np.isfinite(least[one]) else 1.0

    def enough(k: Floats, rho: float) -> decide.Mask:
        """Whether round k is late enough; between rounds the left side only falls."""
        return np.asarray(rho * (radii.alpha(own + k * period) + first.alpha(best + k * period)) <= gap)

    at_once = enough(np.zeros_like(gap), 3.0)
    high = np.maximum(np.ceil(np.where(possible, need, 1.0) / period), 1.0)  # α ≤ Δ/7 each: enough
    low = np.zeros_like(high)
    while (high - low > 1.0).any():
        middle = np.floor((low + high) / 2.0)
        ok = enough(middle, 3.5) & (middle > low)
        low, high = np.where(ok | (middle <= low), low, middle), np.where(ok, middle, high)
    return np.where(possible, np.where(at_once, 0.0, high), np.inf)


@dataclass(frozen=True)
class Printed:
    """Theorem 1's leading terms as printed, by group. Not bounds: see ``printed``."""

    groups: tuple[str, ...]
    rounds_of: Floats
    rounds: float
    phase1: Floats
    phase2: Floats
    bits: float


def printed(problem: Problem, delta: float, period: int = 100) -> Printed:
    """The leading terms of Theorem 1 (c = 8) as the paper prints them; for comparison, not for use.

    - `rounds_of`: max{R_i1, R_1i} of eqs. (4) and (5) without their O(log log) terms. They start from
      α_i(t̄_i) ≤ Δ*_i/8, by 2/9 < 1/8, which is false: Δ*_i/6 is what holds (erratum 1), and the printed
      step fails in about half of the runs. "R_i1 = 1 if σ_i1 ≤ 1" has a gap inside the maximum (3).
    - `phase1`: Σ log(|C||A_i|/(δΔ))/Δ², without the constant that its O(·) hides; the proof's "α ≤ Δ/4"
      is c = 2, not c = 8 (7).
    - `phase2`: H·R_i. Round 0 is a round, so it should be H(R_i − 1) (4).
    - `bits`: log₂(8/Δ*) + 1 a round, Δ* the gap of the two best *clients* (8). It holds only while
      k < R_i1, and neither the downlink nor round 0 is counted (5).

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

    True but loose: the exact γ lies between 1 (as x → 0) and 1.654 (at −e⁻²). Everything else here takes
    W₋₁ exactly (erratum 9).

    >>> found = lambert_bounds(-0.01)
    >>> [round(float(value), 3) for value in found]
    [-10.714, -6.473, -4.987, 1.223]
    """
    from scipy.special import lambertw

    x = np.asarray(x, dtype=np.float64)
    if not ((x >= -np.exp(-2.0)) & (x < 0.0)).all():
        raise InputError("x is out of Lemma 5's range", expected="numbers from −1/e² to 0, 0 excluded")
    exact, log = np.asarray(np.real(lambertw(x, -1))), np.log(-x)
    loglog = np.log(-log)
    return Lambert(log - 4.0 * loglog, exact, log - loglog / 4.0, (log - exact) / loglog)


class Scaling(NamedTuple):
    """How one cost of a method depends on one parameter. `basis` is "proved" or "measured"."""

    method: str
    parameter: str
    formula: str
    meaning: str
    basis: str


def scaling() -> list[Scaling]:
    """How each method's cost scales in δ, H, σ, K and f, each row labelled as proved or measured.

    "Proved" rows follow from the corrected theorems (for Fed-SEL: on the good event); "measured" ones are
    what simulated runs on the paper's instance show, and no promise elsewhere.

    >>> sorted({row.basis for row in scaling()})
    ['measured', 'proved']
    """
    rows = [
        ("fed-sel", "delta", "τ_i(x) ~ x⁻²·ln(1/δ) as δ → 0", "pulls grow with ln(1/δ)", "proved"),
        (
            "fed-sel",
            "period",
            "κ_i(H) = ⌈κ_i(1)/H⌉ beyond round 0",
            "the bound on rounds falls as 1/H; that on a client's Phase II pulls grows by less than H",
            "proved",
        ),
        (
            "fed-sel",
            "sigma",
            "κ_i·H < H + max over j in {i, 1} of τ_j(Δ_1i/7) − τ_j(σ·Δ_1i/6), σ = σ_i1 or σ_1i",
            "rounds grow with σ up to a ceiling; one round if σ_i1 + σ_1i ≤ 2 (c = 8)",
            "proved",
        ),
        (
            "fed-sel",
            "arms",
            "M_i + Σ_ℓ τ_i(Δ_ℓ/(c+2)) over a client's own arms",
            "other clients' arms cost nothing, other clients only ln|C|",
            "proved",
        ),
        ("fisher", "delta", "x_r = δ·s_r/(K−1)", "pulls grow about linearly in ln(1/δ)", "measured"),
        (
            "fisher",
            "period",
            "rounds = r + 1 − quiet, where n_r = ⌈n₀·q^r⌉ is the last look",
            "no period: rounds grow with the logarithm of pulls, and fewer come with a larger q",
            "proved",
        ),
        ("fisher", "sigma", "none", "rounds hardly change with σ", "measured"),
        (
            "fisher",
            "arms",
            "x_r = δ·s_r/(K−1)",
            "an arm that is far behind costs two or three looks, about 2·n₀ pulls",
            "measured",
        ),
        (
            "every method",
            "byzantine",
            "G ≥ 2f+1",
            "with f liars a group, any method with δ < ½ needs 2f+1 clients in each group",
            "proved",
        ),
        (
            "robust-fed-sel",
            "byzantine",
            "ln(|C|/δ), |C| = the clients of all groups",
            "without liars a client's pulls are about those of fed-sel: clients add work, and save none",
            "measured",
        ),
        (
            "fisher with groups",
            "byzantine",
            "h = G − 2f of G sums count, at level x_r/C(G−f, f)²",
            "of 10 clients, with f = 0, 1, 2, each makes 0.10, 0.22, 0.34 of the pulls of one alone",
            "measured",
        ),
    ]
    return [Scaling(*row) for row in rows]


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


def _check_c(c: float) -> None:
    if isinstance(c, bool) or not isinstance(c, int | float) or not 2.0 < c < 1e6:
        raise InputError(f"c = {c!r} can't be used", expected="a number above 2, below a million")


def _check_period(period: int) -> None:
    if isinstance(period, bool) or not isinstance(period, int) or not 1 <= period <= 2**40:
        raise InputError(f"period = {period!r} can't be used", expected="a whole number from 1 to 2^40")
