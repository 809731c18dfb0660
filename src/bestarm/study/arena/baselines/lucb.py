"""LUCB and KL-LUCB: in each round, pull the leader and the rival with the largest upper bound.

Both stop when the leader's lower bound is at least that rival's upper bound. They differ in their bounds.

*LUCB* (Kalyanakrishnan, Tewari, Auer and Stone 2012) has the radius √(ln(5Kt⁴/(4δ)) / (2n)) in round t. The
paper could not be read; ln(5Kt⁴/(4δ)) is the rate in public code of AT-LUCB, a later method, for KL bounds.
*Proof.* In round t an arm has at most t pulls. A wrong answer needs the best arm's mean above its upper
bound, or another arm's mean below its lower bound: one side per arm. By Hoeffding's inequality and a union
over arms, rounds and counts that has probability at most Σ_t t·K·4δ/(5Kt⁴) = 0.8·ζ(3)·δ < δ. ∎

*KL-LUCB* (Kaufmann and Kalyanakrishnan 2013) has as upper bound the largest q with n·kl(mean, q) ≤ β, and as
lower bound the smallest one. The paper itself could not be read; the first author's later code
(EmilieKaufmann/BAI_epsBAI_code) pulls and stops in the same way, with a β of the caller's choice. In public
code after the paper (marcotcr/anchor) β = r + ln r in round t, r = ln(405.5·K·t^1.1/δ). The rate here is
ours, as the title says: smaller, in the method's favour, and dependent on the arm's own pulls:
β(n) = ln(11·K·n^1.1/δ). *Proof.* By Chernoff's inequality, n·kl(mean, μ) > β(n) with the mean on a given side
of μ has probability at most exp(−β(n)) for rewards in [0, 1]. One side per arm is enough, as above, and
Σ_n δ/(11·K·n^1.1) = ζ(1.1)/11·δ/K < δ/K. ∎
"""

from __future__ import annotations

import numpy as np

from bestarm.protocol.decisions import Floats, Ints
from bestarm.stats.limit import kl
from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline


def radius(n: float, t: int, arms: int, delta: float) -> float:
    """LUCB's radius in round t of an arm with n pulls."""
    return float(np.sqrt(np.log(1.25 * arms * float(t) ** 4 / delta) / (2.0 * n)))


def rate(n: Ints | float, arms: int, delta: float) -> Floats:
    """KL-LUCB's β(n).

    >>> rate(100, 10, 0.1).round(3).tolist()
    12.069
    """
    return np.asarray(np.log(11.0 * arms / delta) + 1.1 * np.log(n))


def kl_bound(mean: Floats, level: Floats, upper: bool) -> Floats:
    """The largest (or smallest) q with kl(mean, q) ≤ level, to a relative error of 1e-12 of its distance.

    kl is convex in q, so Newton's method goes towards the root monotonically from outside. It starts at the
    bound that Pinsker's inequality gives, or a closer one, neither of which is ever inside.

    >>> kl_bound(np.array([0.5, 0.0]), np.array([0.02, 0.1]), True).round(6).tolist()
    [0.599008, 0.095163]
    """
    from scipy.special import xlog1py, xlogy  # a quarter of a second to import

    if not upper:
        return np.asarray(1.0 - kl_bound(1.0 - mean, level, True))
    rest = 1.0 - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        own = xlogy(mean, mean) + xlogy(rest, rest) - level
        # Two bounds from outside: Pinsker's, and (1−mean)·ln(1/(1−q)) ≤ level + entropy.
        top = np.minimum(mean + np.sqrt(level / 2.0), -np.expm1(own / rest))
        q = np.where(mean < 1.0, np.minimum(top, 1.0 - 1e-15), 1.0)
        for _ in range(50):
            far = q - mean
            step = (own - xlogy(mean, q) - xlog1py(rest, -q)) * q * (1.0 - q) / far
            step = np.maximum(np.where(mean < 1.0, step, 0.0), 0.0)
            q = np.maximum(q - step, mean)
            if not (step > 1e-6 * far).any():  # the error is squared by each step
                break
    return np.asarray(q)


def _lucb(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    scale = np.ones((trials, bandit.k))  # of the radius: 1/√n
    while len(game):
        leader = game.mean.argmax(axis=1)
        best = game.cells(leader)
        upper = scale * radius(1.0, game.rounds, bandit.k, delta)
        lower = game.mean.reshape(-1).take(best) - upper.reshape(-1).take(best)
        upper += game.mean
        upper.reshape(-1)[best] = -np.inf
        rival = upper.argmax(axis=1)
        keep = game.stop(lower >= upper.reshape(-1).take(game.cells(rival)), leader)
        if keep is not None:
            leader, rival, scale = leader[keep], rival[keep], scale[keep]
        if len(game):
            game.pull(leader, rival)
            for arm in (leader, rival):
                at = game.cells(arm)
                scale.reshape(-1)[at] = 1.0 / np.sqrt(game.n.reshape(-1).take(at))
    return game.outcome


def _kl_lucb(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    upper = np.ones((trials, bandit.k))
    level = rate(1.0, bandit.k, delta)
    upper[:] = kl_bound(game.mean, np.full(game.mean.shape, level), True)
    while len(game):
        leader = game.mean.argmax(axis=1)
        best = game.cells(leader)
        reach = upper.copy()
        reach.reshape(-1)[best] = -np.inf
        rival = reach.argmax(axis=1)
        top, n = game.mean.reshape(-1).take(best), game.n.reshape(-1).take(best)
        rest = reach.reshape(-1).take(game.cells(rival))
        # The leader's lower bound is at least q if q is below its mean and kl(mean, q) ≥ β(n)/n.
        apart = (rest < top) & (n * kl(top, np.minimum(rest, top)) >= rate(n, bandit.k, delta))
        keep = game.stop(apart, leader)
        if keep is not None:
            leader, rival, upper = leader[keep], rival[keep], upper[keep]
        if len(game):
            game.pull(leader, rival)
            at = np.concatenate([game.cells(leader), game.cells(rival)])
            n, mean = game.n.reshape(-1).take(at), game.mean.reshape(-1).take(at)
            upper.reshape(-1)[at] = kl_bound(mean, rate(n, bandit.k, delta) / n, True)
    return game.outcome


LUCB = Baseline(
    "lucb",
    "LUCB",
    _lucb,
    proof="proved: Kalyanakrishnan et al. 2012, and in the module's docstring",
    source="Kalyanakrishnan, Tewari, Auer, Stone, PAC subset selection in stochastic bandits, 2012",
)
KL_LUCB = Baseline(
    "kl-lucb",
    "KL-LUCB, smaller rate",
    _kl_lucb,
    proof="proved in the module's docstring, for the rate ln(11·K·n^1.1/δ)",
    source="Kaufmann and Kalyanakrishnan, Information complexity in bandit subset selection, 2013",
)
