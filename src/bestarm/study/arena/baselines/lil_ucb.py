"""lil'UCB (Jamieson, Malloy, Nowak and Bubeck 2014): pull the largest upper bound until one option has most
pulls.

The index of an option with n pulls is mean + (1+β)(1+√ε)·√(2σ²(1+ε)·ln(ln((1+ε)n)/δ′)/n), σ = ½ for rewards
in [0, 1]. The run ends when an option has at least 1 + λ times the pulls of all others together, and names
it.

*lil'UCB*: ε = 0.01, β = 1, λ = ((2+β)/β)² = 9, and δ′ = (√(1+δ) − 1)²/(4c), c = (2+ε)/ε·(1/ln(1+ε))^(1+ε), so
that 4√(cδ′) + 4cδ′ = δ. The paper could not be read; these are the values of public code with which a later
paper compares itself (NicolasSchreuder/Robust_lilUCB). Other versions of that code have a larger δ′,
ln(1+ε)·(εδ/(2+ε))^(1/(1+ε)), and so pull less. The theorem, as we remember it, asks for a λ that is
larger by a factor that depends on δ′, and λ = 9 is that of the experiments. So nothing is claimed here.

*The heuristic* of the same paper: ε = 0, β = ½, λ = 1 + 10/K and δ′ = δ/5, without a proof. It agrees with
public code (Alanthink/banditpylib, where σ = 1).

The kernel makes pulls of the same option at once where the index can't fall below the others before the last.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bestarm.protocol.decisions import Floats, Ints
from bestarm.study.arena.bandit import Bandit, Outcome
from bestarm.study.arena.baseline import Baseline

SIGMA = 0.5


def bonus(n: Floats | Ints, epsilon: float, beta: float, inner: float) -> Floats:
    """What is added to the mean of an option with n pulls; ∞ while ln((1+ε)n) is 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.log((1.0 + epsilon) * n) / inner)
    scale = (1.0 + beta) * (1.0 + np.sqrt(epsilon)) * SIGMA * np.sqrt(2.0 * (1.0 + epsilon))
    return np.asarray(np.where(np.isfinite(logs), scale * np.sqrt(np.maximum(logs, 0.0) / n), np.inf))


def inner_level(delta: float, epsilon: float) -> float:
    """δ′ with 4√(cδ′) + 4cδ′ = δ."""
    c = (2.0 + epsilon) / epsilon * (1.0 / np.log(1.0 + epsilon)) ** (1.0 + epsilon)
    root = np.expm1(0.5 * np.log1p(delta))  # √(1+δ) − 1, which is 0 in floating point if δ is tiny
    return float(root**2 / (4.0 * c))


def safe_pulls(mean: Floats, n: Ints, wide: Floats, second: Floats) -> Floats:
    """How many pulls of the leading option can be made at once, by row, because it leads until the last one.

    After i pulls that all pay 0, its index is at least mean·r² + wide·r, r = √(n/(n + i)), since the log
    in the bonus grows. It leads as long as that is above the second largest index.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        r = 2.0 * second / (wide + np.sqrt(wide**2 + 4.0 * mean * second))
        sure = np.ceil(n * (1.0 / r**2 - 1.0) * (1.0 - 1e-9))
    return np.asarray(np.where(np.isfinite(wide) & (sure > 1.0), sure, 1.0))


def _lil_ucb(
    bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int, *, heuristic: bool
) -> Outcome:
    if heuristic:
        epsilon, beta, share, inner = 0.0, 0.5, 1.0 + 10.0 / bandit.k, delta / 5.0
    else:
        epsilon, beta, share, inner = 0.01, 1.0, 9.0, inner_level(delta, 0.01)
    outcome, trial, k = Outcome(bandit, trials), np.arange(trials), bandit.k
    once = np.ones((trials, k), dtype=np.int64)
    s, load = bandit.batch(rng, once)
    first = int(bandit.round_steps(once > 0)[0])
    t, n, index = np.full(trials, k), once, s + bonus(np.ones(1), epsilon, beta, inner)
    while len(trial):
        arm = index.argmax(axis=1)
        at = np.arange(0, n.size, k) + arm
        index.reshape(-1)[at] = -np.inf
        own = n.reshape(-1).take(at)
        mean = s.reshape(-1).take(at) / own
        sure = safe_pulls(mean, own, bonus(own, epsilon, beta, inner), index.max(axis=1))
        enough = np.ceil(1.0 + share * (t - own)) - own  # pulls that the option lacks to win
        jump = np.minimum(np.minimum(sure, np.maximum(enough, 1.0)), most - 1 - t).astype(np.int64)
        rewards, where = bandit.several(rng, arm, jump)
        own, t = own + jump, t + jump
        load = load if where is None else load + where
        n.reshape(-1)[at] = own
        s.reshape(-1)[at] += rewards
        index.reshape(-1)[at] = s.reshape(-1).take(at) / own + bonus(own, epsilon, beta, inner)
        done = own >= 1.0 + share * (t - own)
        ended = done | (t + 2 > most)
        if ended.any():
            made, sites = t[ended], load[ended]
            if where is None:
                sites = bandit.sites_of(rng, n[ended], s[ended])
            bits = (made * bandit.reward_bits, (made + 1) * bandit.address_bits)
            rounds = made - k + 1  # the first round has a pull of each option, each further one has one pull
            answer = np.where(done, arm, -1)[ended]
            outcome.put(trial[ended], answer, rounds, rounds - 1 + first, sites, *bits)
            trial, t, n, s, index, load = (values[~ended] for values in (trial, t, n, s, index, load))
    return outcome


LIL_UCB = Baseline(
    "lil-ucb",
    "lil'UCB",
    partial(_lil_ucb, heuristic=False),
    source="Jamieson, Malloy, Nowak, Bubeck, lil' UCB: an optimal exploration algorithm, 2014",
)
LIL_UCB_HEURISTIC = Baseline(
    "lil-ucb-heuristic",
    "lil'UCB, heuristic",
    partial(_lil_ucb, heuristic=True),
    source="Jamieson, Malloy, Nowak, Bubeck, lil' UCB: an optimal exploration algorithm, 2014",
)
