"""The schedules of FedElim, FPE and collaborative exploration: n_r and the margin of each round.

In round r each of the M players brings every option that is left to n_r pulls. An option whose average over
the players is more than the margin below the largest one is dropped. Both numbers depend on r alone, so a
method of this folder is a schedule of pairs (n_r, margin), and half a margin is what an average may be off.
Rewards lie in [0, 1], so they are sub-Gaussian with σ = ½ (Hoeffding).

*FedElim* (Reddy, Karthik and Tan 2023, arXiv 2208.09215), the part that finds the global best option: n_r =
2^r for r = 0, 1, …, margin 2α, α = √(2σ²·ln(8Kn²/δ)/(Mn)). That is the rule of the authors' own code
(pnkarthik/AAAI-2023-Code, σ = 1), which also counts a cost of C for each number that a client sends
(``audit.uplinks``). The local bests, which cost more pulls, are left out, in its favour.
*Proof.* An average is off by more than α with probability at most 2·exp(−Mnα²/(2σ²)) = δ/(4Kn²). Over K
options and n = 1, 2, 4, … that sums to δ/4·Σ 4^(−r) = δ/3. If none is off, the best option's average is never
more than 2α below another. ∎

*Collaborative exploration* (Hillel, Karnin, Koren, Lempel and Somekh 2013, arXiv 1311.0800, the algorithm
with several rounds, at ε = 0): with ε_r = 2^(−r), r = 1, 2, …, n_r = ⌈2·ln(4Kr²/δ)/(M·ε_r²)⌉, margin ε_r. The
paper itself could not be read beyond its beginning; the formula agrees with two public transcriptions of it
(``MultiRoundEpsilonArm`` in C++, and ``MultiRound`` in the code of Jin et al. 2024, with the options left for
K).
*Proof.* An average is off by more than ε_r/2 with probability at most 2·exp(−2·M·n_r·ε_r²/4) ≤ δ/(2Kr²),
which sums to δ·π²/12 over options and rounds. ∎ Players may differ: the proof is about averages over them.

*FPE* (Réda, Vakili and Kaufmann 2022, arXiv 2206.00121) for one target with equal weights, where all players
keep the same options; a target for each player, with weights of its own, is not covered. In round r = 0, 1, …
with Δ = 2^(−r), n is the least number ≥ n_{r−1} with n ≥ σ²·β(n)/(MΔ²), and the margin is 2Ω, Ω =
σ·√(β(n)/(Mn)), β = 2·threshold. Written after reading the authors' code (clreda/near-optimal-federated).
*Theory*: the threshold of Kaufmann and Koolen 2021,
M·C(ln(KM/δ)/M) + 2·Σ_m ln(4 + ln n), proved for Gaussian rewards by a martingale that bounds sub-Gaussian
ones, too. KM counts options and targets, as in the authors' code; with one target K would do, and n be up to
5 % smaller. *Heuristic*: ln((1 + ln(Mn))/δ), for which nothing is proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

SIGMA = 0.5  # rewards in [0, 1] are sub-Gaussian with this parameter


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
    """(n_r, margin) of Hillel et al.

    >>> next(collaborative(10, 5, 0.1))
    (5, 0.5)
    """
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
