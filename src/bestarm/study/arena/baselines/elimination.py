"""Equal pulls: all options in turn, with and without dropping those that lose.

*Successive elimination* (Even-Dar, Mannor and Mansour 2006) pulls every remaining option once per round and
drops an option whose mean is at least 2w_n below the largest one, w_n = √(ln(cKn²/δ) / (2n)), c = π²/3.
*Proof.* By Hoeffding's inequality a mean is off by w_n or more with probability at most 2δ/(cKn²); over all
options and n that sums to δ. If none is, the best option never falls 2w_n behind. ∎ (The paper has a radius
that is wider by √2; this one is the same argument with a sharp constant.) The kernel makes rounds in which
nothing can be dropped at once.

*Round robin* pulls all options in turn until the likelihood ratio of Track-and-Stop (``likelihood.py``) tells
the leader from every rival. It shows what choosing the options is worth.
"""

from __future__ import annotations

import numpy as np

from bestarm.protocol.decisions import Floats, Ints
from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.likelihood import evidence, proved


def width(n: Ints, arms: int, delta: float) -> Floats:
    """w_n, the radius after n pulls of each option.

    >>> width(np.array([100]), 10, 0.1).round(4).tolist()
    [0.2739]
    """
    return np.asarray(np.sqrt(np.log(np.pi**2 / 3.0 * arms * n.astype(np.float64) ** 2 / delta) / (2.0 * n)))


def safe_rounds(n: Ints, spread: Floats, arms: int, delta: float) -> Ints:
    """How many rounds can be made at once, by row, because no option can be dropped before the last of them.

    `spread` is the largest sum minus the smallest. It grows by at most 1 per round, and an option goes when
    it is 2n·w_n = √(2n·ln(cKn²/δ)) or more. With ℓ = ln(cKn²/δ) as it is now, i further rounds are safe
    while √(2ℓ(n + i)) > spread + i, a quadratic inequality in √(n + i).
    """
    now = np.maximum(n, 1)
    double = 2.0 * np.log(np.pi**2 / 3.0 * arms * now.astype(np.float64) ** 2 / delta)
    root = (np.sqrt(double) + np.sqrt(double + 4.0 * (now - spread))) / 2.0
    return np.asarray(np.where(n > 0, np.maximum(root**2 - now, 1.0), 1.0).astype(np.int64))


def _elimination(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    outcome, trial = Outcome(bandit, trials), np.arange(trials)
    left = np.ones((trials, bandit.k), dtype=bool)
    sums, load = np.zeros((trials, bandit.k)), np.zeros((trials, len(bandit.clients)), dtype=np.int64)
    time, n = np.zeros(trials, dtype=np.int64), np.zeros(trials, dtype=np.int64)
    while len(trial):
        count = left.sum(axis=1)
        spread = np.where(left, sums, -np.inf).max(axis=1) - np.where(left, sums, np.inf).min(axis=1)
        last = (most - bandit.k - load.sum(axis=1)) // count + 1  # the round after which it is too dear
        jump = np.minimum(safe_rounds(n, spread, bandit.k, delta), last)
        more, where = bandit.batch(rng, left * jump[:, None])
        n, sums, load, time = n + jump, sums + more, load + where, time + jump * bandit.round_steps(left)
        top = np.where(left, sums, -np.inf).max(axis=1)
        left &= sums > (top - 2.0 * n * width(n, bandit.k, delta))[:, None]
        pulls = load.sum(axis=1)
        alone, over = left.sum(axis=1) == 1, pulls + bandit.k > most
        ended = np.flatnonzero(alone | over)
        if not ended.size:
            continue
        made = pulls[ended]
        outcome.put(
            trial[ended],
            np.where(alone, left.argmax(axis=1), -1)[ended],
            n[ended],
            time[ended],
            load[ended],
            made * bandit.reward_bits,
            (made + 1) * bandit.address_bits,
        )
        keep = ~(alone | over)
        trial, left, sums, load, time, n = (a[keep] for a in (trial, left, sums, load, time, n))
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
