"""Top-Two with β = ½ for 0/1 rewards: T3C (Shang, de Heide, Kaufmann, Ménard and Valko 2020).

The leader is the option with the largest draw from the posteriors Beta(1 + successes, 1 + failures). With
probability ½ it is pulled, else its challenger, the option that costs least to mistake for it: the one with
the smallest Z of ``likelihood.py``; at random among those with a larger mean. It stops by the rule of the
same file.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.likelihood import Threshold, evidence, practice, proved


def _top_two(
    bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int, *, threshold: Threshold
) -> Outcome:
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    while len(game):
        best = game.mean.argmax(axis=1)
        cost = evidence(game.n, game.s, best)
        keep = game.stop(cost.min(axis=1) > threshold(game.t, bandit.k, delta), best)
        if keep is not None:
            best, cost = best[keep], cost[keep]
        if not len(game):
            break
        leader = rng.beta(1.0 + game.s, 1.0 + game.n - game.s).argmax(axis=1)
        other = np.flatnonzero(leader != best)
        if other.size:
            cost[other] = evidence(game.n[other], game.s[other], leader[other])
        ahead = cost == 0.0
        cost[ahead] = -rng.random(int(ahead.sum()))
        coin = rng.random(len(game)) < 0.5
        game.pull(np.where(coin, leader, cost.argmin(axis=1)))
    return game.outcome


SOURCE = "Shang, de Heide, Kaufmann, Ménard, Valko, Fixed-confidence guarantees for Bayesian BAI, 2020"
TOP_TWO = Baseline(
    "top-two",
    "Top-Two (T3C, β = ½)",
    partial(_top_two, threshold=proved),
    proof="proved for 0/1 rewards: Garivier and Kaufmann 2016, Theorem 10",
    source=SOURCE,
    coins=True,
)
TOP_TWO_PRACTICE = Baseline(
    "top-two-practice",
    "Top-Two (T3C, β = ½), threshold of practice",
    partial(_top_two, threshold=practice),
    source=SOURCE,
    coins=True,
)
