"""Equal pulls: all options in turn, with and without dropping those that lose.

*Successive elimination* (Even-Dar, Mannor and Mansour 2006) pulls every remaining option once per round and
drops an option whose mean is at least 2w_n below the largest one, w_n = √(ln(cKn²/δ) / (2n)), c = π²/3.
*Proof.* By Hoeffding's inequality a mean is off by w_n or more with probability at most 2δ/(cKn²); over all
options and n that sums to δ. If none is, the best option never falls 2w_n behind. ∎ (The paper has a radius
that is wider by √2; this one is the same argument with a sharp constant.)

*Round robin* pulls all options in turn until the likelihood ratio of Track-and-Stop (``likelihood.py``) tells
the leader from every rival. It shows what choosing the options is worth.
"""

from __future__ import annotations

import numpy as np

from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.likelihood import evidence, proved


def width(n: int, arms: int, delta: float) -> float:
    """w_n, the radius after n pulls of each option.

    >>> round(width(100, 10, 0.1), 4)
    0.2739
    """
    return float(np.sqrt(np.log(np.pi**2 / 3.0 * arms * float(n) ** 2 / delta) / (2.0 * n)))


def _elimination(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    outcome, trial = Outcome(bandit, trials), np.arange(trials)
    left = np.ones((trials, bandit.k), dtype=bool)
    sums, load = np.zeros((trials, bandit.k)), np.zeros((trials, len(bandit.clients)), dtype=np.int64)
    time, n = np.zeros(trials, dtype=np.int64), 0
    while len(trial):
        n += 1
        more, where = bandit.batch(rng, left.astype(np.int64))
        sums, load, time = sums + more, load + where, time + bandit.steps(where)
        means = np.where(left, sums / n, -np.inf)
        left &= means > means.max(axis=1, keepdims=True) - 2.0 * width(n, bandit.k, delta)
        pulls = load.sum(axis=1)
        alone, over = left.sum(axis=1) == 1, pulls + bandit.k > most
        ended = np.flatnonzero(alone | over)
        if not ended.size:
            continue
        made = pulls[ended]
        outcome.put(
            trial[ended],
            np.where(alone, left.argmax(axis=1), -1)[ended],
            n,
            time[ended],
            load[ended],
            made * bandit.reward_bits,
            (made + 1) * bandit.address_bits,
        )
        keep = ~(alone | over)
        trial, left, sums, load, time = trial[keep], left[keep], sums[keep], load[keep], time[keep]
    return outcome


def _round_robin(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game = Pulls(bandit, rng, trials, most)
    game.everything()
    while len(game):
        leader = game.mean.argmax(axis=1)
        game.stop(evidence(game.n, game.s, leader).min(axis=1) > proved(game.t, bandit.k, delta), leader)
        if len(game):
            game.everything()
    return game.outcome


ELIMINATION = Baseline(
    "elimination",
    "Successive elimination",
    _elimination,
    proof="proved in the module's docstring, after Even-Dar et al. 2006",
    source="Even-Dar, Mannor, Mansour, Action elimination and stopping conditions, 2006",
)
ROUND_ROBIN = Baseline(
    "round-robin",
    "Round robin (uniform)",
    _round_robin,
    proof="proved for 0/1 rewards: Garivier and Kaufmann 2016, Theorem 10",
    source="all options equally often, with the stopping rule of Track-and-Stop",
    coins=True,
)
