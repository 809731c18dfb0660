"""Elimination in rounds by players who all have the same options: FedElim, FPE and collaborative exploration.

In round r every one of the M players brings each remaining option to n_r pulls and sends its sum. The server
averages over the players, drops every option whose average is more than a margin below the largest one, and
broadcasts the rest. n_r and the margin depend on r alone, so a baseline here is a schedule of pairs (n_r,
margin). Each sum of 0/1 rewards costs ⌈log₂(n_r + 1)⌉ bits, any other 64; a broadcast costs one bit per
option that was left.

*FedElim* (Reddy, Karthik and Tan 2023, arXiv 2208.09215): n_r = 2^r for r = 0, 1, …, margin 2α,
α = √(2σ²·ln(8Kn²/δ)/(Mn)), σ = ½. Only the part that finds the global best option; the local bests are left
out, in its favour. The formula is from memory: the copy of the paper that could be read ends before it.
*Proof.* An average is off by α or more with probability at most 2·exp(−Mnα²/(2σ²)) = δ/(4Kn²), and Σ_r 4^(−r)
= 4/3. ∎

*FPE* (Réda, Vakili and Kaufmann 2022, arXiv 2206.00121) for equal weights, where all players keep the same
options: in round r = 0, 1, … with Δ = 2^(−r), n is the least number ≥ n_{r−1} with n ≥ σ²·β(n)/(MΔ²), and the
margin is 2Ω, Ω = σ·√(β(n)/(Mn)), σ = ½, β = 2·threshold. Rewritten from the authors' code. *Theory*: the
threshold of Kaufmann and Koolen 2021, M·C(ln(KM/δ)/M) + 2·Σ_m ln(4 + ln n), proved for Gaussian rewards by a
martingale that bounds sub-Gaussian ones, such as rewards in [0, 1], too. *Heuristic*: ln((1 + ln(Mn))/δ),
without a proof.

*Collaborative exploration* (Hillel, Karnin, Koren, Lempel and Somekh 2013, arXiv 1311.0800, the algorithm
with several rounds, at ε = 0), for players whose options pay alike: with ε_r = 2^(−r), r = 1, 2, …,
n_r = ⌈2·ln(4Kr²/δ)/(M·ε_r²)⌉, margin ε_r. From memory, as above. *Proof.* An average is off by ε_r/2 or more
with probability at most 2·exp(−2·M·n_r·ε_r²/4) = δ/(2Kr²), which sums to δ·π²/12. ∎
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np

from bestarm.problem.instances import ANYWHERE, OVERALL
from bestarm.protocol.decisions import Floats
from bestarm.study.arena.bandit import REAL, Bandit, Outcome
from bestarm.study.arena.baseline import Baseline

SIGMA = 0.5  # rewards in [0, 1] are sub-Gaussian with this parameter
Schedule = Callable[[int, int, float], Iterator[tuple[int, float]]]


def fed_elim(players: int, options: int, delta: float) -> Iterator[tuple[int, float]]:
    """FedElim's (n_r, margin).

    >>> n, margin = next(fed_elim(10, 5, 0.1))
    >>> n, round(margin, 4)
    (1, 1.0947)
    """
    for r in count():
        n = 1 << r
        alpha = np.sqrt(2.0 * SIGMA**2 * np.log(8.0 * options * float(n) ** 2 / delta) / (players * n))
        yield n, float(2.0 * alpha)


def collaborative(players: int, options: int, delta: float) -> Iterator[tuple[int, float]]:
    """(n_r, margin) of Hillel et al."""
    for r in count(1):
        width = 2.0**-r
        yield int(np.ceil(2.0 / (players * width**2) * np.log(4.0 * options * r**2 / delta))), width


def fpe(players: int, options: int, delta: float, *, theory: bool) -> Iterator[tuple[int, float]]:
    """FPE's (n_r, margin)."""
    base = mixture(players, options, delta) if theory else 0.0

    def beta(n: float) -> float:
        if theory:
            return float(2.0 * (base + 2.0 * players * np.log(4.0 + np.log(n))))
        return float(2.0 * np.log((1.0 + np.log(players * n)) / delta))

    n = 1
    for r in count():
        scale = SIGMA**2 * 4.0**r / players
        low, high = n - 1, n
        while high < scale * beta(high):
            low, high = high, 2 * high
        while high - low > 1:  # n/β(n) increases with n
            middle = (low + high) // 2
            low, high = (middle, high) if middle < scale * beta(middle) else (low, middle)
        n = high
        yield n, float(2.0 * SIGMA * np.sqrt(beta(n) / (players * n)))


def mixture(players: int, options: int, delta: float) -> float:
    """M·C(ln(KM/δ)/M), C(x) = min (g(λ) + x)/λ over λ in (½, 1]: Kaufmann and Koolen 2021, Corollary 10."""
    from scipy.optimize import minimize_scalar
    from scipy.special import zeta

    def value(a: float) -> float:
        g = 2.0 * a - 2.0 * a * np.log(4.0 * a) + np.log(zeta(2.0 * a)) - 0.5 * np.log1p(-a)
        return float((g + np.log(options * players / delta) / players) / a)

    return float(players * minimize_scalar(value, bounds=(0.5 + 1e-9, 1.0 - 1e-9), method="bounded").fun)


def _players(bandit: Bandit) -> int:
    """The number of players: the clients of one site, or one per site."""
    return int(bandit.clients[0]) if bandit.question == ANYWHERE else len(bandit.clients)


def _sums(bandit: Bandit, rng: np.random.Generator, rows: int, n: int) -> Floats:
    """Sums of n pulls per player of each option, over all players."""
    total, players = np.zeros((rows, bandit.k)), _players(bandit)
    alike = bandit.question == ANYWHERE
    for models in bandit.models:
        for k, model in enumerate(models):
            total[:, k] += model.sums(rng, np.full(rows, n * players if alike else n))
    return total


def _play(
    bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int, *, schedule: Schedule
) -> Outcome:
    outcome, trial, players = Outcome(bandit, trials), np.arange(trials), _players(bandit)
    left, sums, before = np.ones((trials, bandit.k), dtype=bool), np.zeros((trials, bandit.k)), 0
    each, up, down = (np.zeros(trials, dtype=np.int64) for _ in range(3))  # each: pulls of every player
    uplinks = np.zeros(trials, dtype=np.int64)
    for r, (n, margin) in enumerate(schedule(players, bandit.k, delta), start=1):
        options = left.sum(axis=1)
        over = players * (each + options * (n - before)) > most
        sums += np.where(left, _sums(bandit, rng, len(trial), n - before), 0.0)
        each = np.where(over, each, each + options * (n - before))
        up += players * options * (int(n).bit_length() if bandit.binary else REAL)
        uplinks += players * options
        down += options
        means = np.where(left, sums / (players * n), -np.inf)
        left &= means >= means.max(axis=1, keepdims=True) - margin
        alone = (left.sum(axis=1) == 1) & ~over
        ended, keep = np.flatnonzero(alone | over), ~(alone | over)
        if ended.size:
            whole = each[ended][:, None] * (players if bandit.question == ANYWHERE else 1)
            load = np.repeat(whole, len(bandit.clients), axis=1)
            answer = np.where(alone, left.argmax(axis=1), -1)[ended]
            outcome.put(trial[ended], answer, r, each[ended], load, up[ended], down[ended])
            outcome.uplinks[trial[ended]] = uplinks[ended]
            trial, left, sums, each, up, down, uplinks = (
                values[keep] for values in (trial, left, sums, each, up, down, uplinks)
            )
        before = n
        if not len(trial):
            break
    return outcome


def cost_with_uplinks(outcome: Outcome, per_uplink: float) -> Floats:
    """FedElim's own cost of each trial: pulls, and `per_uplink` for each number that a client sends."""
    return np.asarray(outcome.columns()["pulls_total"] + per_uplink * outcome.uplinks)


def _shared(bandit: Bandit) -> str:
    if bandit.question == ANYWHERE and len(bandit.clients) > 1:
        return "needs sites that all have the same options"
    return ""


SAME = (ANYWHERE, OVERALL)
FED_ELIM = Baseline(
    "fed-elim",
    "FedElim, global part",
    partial(_play, schedule=fed_elim),
    proof="proved in the module's docstring; the radius is from memory",
    source="Reddy, Karthik, Tan, Almost cost-free communication in federated BAI, arXiv 2208.09215",
    questions=SAME,
    refuse=_shared,
    headline=False,
)
FPE = Baseline(
    "fpe",
    "FPE, threshold of theory",
    partial(_play, schedule=partial(fpe, theory=True)),
    proof="proved: Réda, Vakili and Kaufmann 2022, with the threshold of Kaufmann and Koolen 2021",
    source="Réda, Vakili, Kaufmann, Near-optimal collaborative learning in bandits, arXiv 2206.00121",
    questions=SAME,
    refuse=_shared,
)
FPE_HEURISTIC = Baseline(
    "fpe-heuristic",
    "FPE, heuristic threshold",
    partial(_play, schedule=partial(fpe, theory=False)),
    source="Réda, Vakili, Kaufmann, Near-optimal collaborative learning in bandits, arXiv 2206.00121",
    questions=SAME,
    refuse=_shared,
)
COLLABORATIVE = Baseline(
    "collaborative",
    "Collaborative exploration, several rounds",
    partial(_play, schedule=collaborative),
    proof="proved in the module's docstring; the schedule is from memory",
    source="Hillel, Karnin, Koren, Lempel, Somekh, Distributed exploration in MAB, arXiv 1311.0800",
    questions=(ANYWHERE,),
    refuse=_shared,
    headline=False,
)
