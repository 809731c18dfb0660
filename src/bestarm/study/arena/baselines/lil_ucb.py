"""lil'UCB (Jamieson, Malloy, Nowak and Bubeck 2014): pull the largest upper bound until one option has most
pulls.

The index of an option with n pulls is mean + (1+β)(1+√ε)·√(2σ²(1+ε)·ln(ln((1+ε)n)/δ′)/n), σ = ½ for rewards
in [0, 1]. The run ends when an option has at least 1 + λ times the pulls of all others together, and names
it.

*lil'UCB*: ε = 0.01, β = 1, λ = ((2+β)/β)² = 9, and δ′ = (√(1+δ) − 1)²/(4c), c = (2+ε)/ε·(1/ln(1+ε))^(1+ε), so
that the paper's bound 4√(cδ′) + 4cδ′ equals δ. The paper's theorem could not be read; as we remember it, it
asks for a λ that is larger by a factor that depends on δ′, and λ = 9 is that of its experiments. So nothing
is claimed here.

*The heuristic* of the same paper: ε = 0, β = ½, λ = 1 + 10/K and δ′ = δ/5, without a proof.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bestarm.protocol.decisions import Floats
from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline

SIGMA = 0.5


def bonus(n: Floats, epsilon: float, beta: float, inner: float) -> Floats:
    """What is added to the mean of an option with n pulls; ∞ while ln((1+ε)n) is 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.log((1.0 + epsilon) * n) / inner)
    scale = (1.0 + beta) * (1.0 + np.sqrt(epsilon)) * SIGMA * np.sqrt(2.0 * (1.0 + epsilon))
    return np.asarray(np.where(np.isfinite(logs), scale * np.sqrt(np.maximum(logs, 0.0) / n), np.inf))


def inner_level(delta: float, epsilon: float) -> float:
    """δ′ with 4√(cδ′) + 4cδ′ = δ."""
    c = (2.0 + epsilon) / epsilon * (1.0 / np.log(1.0 + epsilon)) ** (1.0 + epsilon)
    return float((np.sqrt(1.0 + delta) - 1.0) ** 2 / (4.0 * c))


def _lil_ucb(
    bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int, *, heuristic: bool
) -> Outcome:
    if heuristic:
        epsilon, beta, share, inner = 0.0, 0.5, 1.0 + 10.0 / bandit.k, delta / 5.0
    else:
        epsilon, beta, share, inner = 0.01, 1.0, 9.0, inner_level(delta, 0.01)
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    index = game.mean + bonus(np.ones((trials, 1)), epsilon, beta, inner)
    while len(game):
        arm = index.argmax(axis=1)
        game.pull(arm)
        rows = game.rows
        n = game.n[rows, arm].astype(np.float64)
        index[rows, arm] = game.mean[rows, arm] + bonus(n, epsilon, beta, inner)
        keep = game.stop(n >= 1.0 + share * (game.t - n), arm)
        if keep is not None:
            index = index[keep]
    return game.outcome


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
