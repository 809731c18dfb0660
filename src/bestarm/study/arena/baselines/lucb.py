"""LUCB and KL-LUCB: in each round, pull the leader and the rival with the largest upper bound.

Both stop when the leader's lower bound is at least that rival's upper bound. They differ in their bounds.

*LUCB* (Kalyanakrishnan, Tewari, Auer and Stone 2012) has the radius √(ln(5Kt⁴/(4δ)) / (2n)) in round t.
*Proof.* In round t an arm has at most t pulls. A wrong answer needs the best arm's mean above its upper
bound, or another arm's mean below its lower bound: one side per arm. By Hoeffding's inequality and a union
over arms, rounds and counts that has probability at most Σ_t t·K·4δ/(5Kt⁴) = 0.8·ζ(3)·δ < δ. ∎

*KL-LUCB* (Kaufmann and Kalyanakrishnan 2013) has as upper bound the largest q with n·kl(mean, q) ≤ β(n), and
as lower bound the smallest one. The paper's own rate could not be read; the one here is β(n) =
ln(K·n(n+1)/δ). *Proof.* By Chernoff's inequality n·kl(mean, μ) > β(n) with the mean on a given side of μ has
probability at most exp(−β(n)) for rewards in [0, 1]. One side per arm is enough, as above, and Σ_n
δ/(K·n(n+1)) = δ/K. ∎
"""

from __future__ import annotations

import numpy as np

from bestarm.protocol.decisions import Floats, Ints
from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline


def radius(n: Floats, t: int, arms: int, delta: float) -> Floats:
    """LUCB's radius in round t of an arm with n pulls."""
    return np.asarray(np.sqrt(np.log(1.25 * arms * float(t) ** 4 / delta) / (2.0 * n)))


def rate(n: Floats, arms: int, delta: float) -> Floats:
    """KL-LUCB's β(n)."""
    return np.asarray(np.log(arms * n * (n + 1.0) / delta))


def kl_bound(mean: Floats, level: Floats, upper: bool) -> Floats:
    """The largest (or smallest) q with kl(mean, q) ≤ level, to 1e-12.

    kl is convex in q, so Newton's method goes towards the root monotonically from outside. It starts at the
    bound that Pinsker's inequality gives, which is never inside.

    >>> kl_bound(np.array([0.5, 0.0]), np.array([0.02, 0.1]), True).round(6).tolist()
    [0.599008, 0.095163]
    """
    if not upper:
        return np.asarray(1.0 - kl_bound(1.0 - mean, level, True))
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(mean > 0.0, mean * np.log(mean), 0.0)
        own += np.where(mean < 1.0, (1.0 - mean) * np.log1p(-mean), 0.0)
        # Two bounds from outside: Pinsker's, and (1−mean)·ln(1/(1−q)) ≤ level + entropy.
        top = np.minimum(mean + np.sqrt(level / 2.0), -np.expm1((own - level) / (1.0 - mean)))
        q = np.where(mean < 1.0, np.minimum(top, 1.0 - 1e-15), 1.0)
        for _ in range(50):
            excess = own - np.where(mean > 0.0, mean * np.log(q), 0.0) - (1.0 - mean) * np.log1p(-q) - level
            step = np.where(mean < 1.0, excess * q * (1.0 - q) / (q - mean), 0.0)
            q = np.maximum(q - np.maximum(step, 0.0), mean)
            if not (step > 1e-12).any():
                break
    return q


def _lucb(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    while len(game):
        wide = radius(game.n.astype(np.float64), game.rounds, bandit.k, delta)
        rows, upper = game.rows, game.mean + wide
        leader = game.mean.argmax(axis=1)
        lower = game.mean[rows, leader] - wide[rows, leader]
        upper[rows, leader] = -np.inf
        rival = upper.argmax(axis=1)
        keep = game.stop(lower >= upper[rows, rival], leader)
        if keep is not None:
            leader, rival = leader[keep], rival[keep]
        if len(game):
            game.pull(leader, rival)
    return game.outcome


def _kl_lucb(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    lower, upper = np.zeros((trials, bandit.k)), np.zeros((trials, bandit.k))
    for arm in range(bandit.k):
        _renew(game, lower, upper, np.arange(trials), np.full(trials, arm), delta)
    while len(game):
        rows = game.rows
        leader = game.mean.argmax(axis=1)
        reach = upper.copy()
        reach[rows, leader] = -np.inf
        rival = reach.argmax(axis=1)
        keep = game.stop(lower[rows, leader] >= reach[rows, rival], leader)
        if keep is not None:
            lower, upper, leader, rival = lower[keep], upper[keep], leader[keep], rival[keep]
        if len(game):
            game.pull(leader, rival)
            _renew(game, lower, upper, np.tile(game.rows, 2), np.concatenate([leader, rival]), delta)
    return game.outcome


def _renew(game: Pulls, lower: Floats, upper: Floats, rows: Ints, arms: Ints, delta: float) -> None:
    """Compute the bounds of one arm per row again; those of all others stay as they are."""
    n, mean = game.n[rows, arms].astype(np.float64), game.mean[rows, arms]
    level = rate(n, game.bandit.k, delta) / n
    upper[rows, arms] = kl_bound(mean, level, True)
    lower[rows, arms] = kl_bound(mean, level, False)


LUCB = Baseline(
    "lucb",
    "LUCB",
    _lucb,
    proof="proved: Kalyanakrishnan et al. 2012, and in the module's docstring",
    source="Kalyanakrishnan, Tewari, Auer, Stone, PAC subset selection in stochastic bandits, 2012",
)
KL_LUCB = Baseline(
    "kl-lucb",
    "KL-LUCB",
    _kl_lucb,
    proof="proved in the module's docstring, for the rate ln(K·n(n+1)/δ)",
    source="Kaufmann and Kalyanakrishnan, Information complexity in bandit subset selection, 2013",
)
