"""Batches in the manner of Tri-BBAI (Jin, Yang, Tang, Xiao and Xu 2024, arXiv 2310.14129).

That method explores a little, then makes one large batch in the shares that would be optimal if the means
were true, tests by likelihood ratio, and continues only if the test fails. Its formulas could not be read, so
the constants here are ours, and its last stage is replaced: the first batch has 32 pulls per option; every
further one brings the total to 1.25·T*(means)·β, but at least to twice and at most to four times what it was,
in the shares w*(means), with at least √total pulls of each option; after each batch the rule of
``likelihood.py`` decides. *Proof.* That rule is valid for every way to choose the pulls (Garivier and
Kaufmann 2016, Theorem 10), so also for looks after some pulls only. ∎

A batch costs one message down per site, with the number of pulls of each option, and one up, with the sums.
"""

from __future__ import annotations

import numpy as np

from bestarm.protocol.decisions import Floats, Ints
from bestarm.study.arena.bandit import Bandit, Outcome
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.likelihood import evidence
from bestarm.study.arena.baselines.track_and_stop import Shares

FIRST = 32
SAFETY = 1.25
MOST_GROWTH = 4.0


def _batched(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    outcome, trial, rounds = Outcome(bandit, trials), np.arange(trials), 0
    n, sums = np.zeros((trials, bandit.k), dtype=np.int64), np.zeros((trials, bandit.k))
    load = np.zeros((trials, len(bandit.clients)), dtype=np.int64)
    time, bits = np.zeros(trials, dtype=np.int64), np.zeros(trials, dtype=np.int64)
    batch = np.full((trials, bandit.k), FIRST)
    while len(trial):
        more, where = bandit.batch(rng, batch)
        rounds, n, sums = rounds + 1, n + batch, sums + more
        load, time = load + where, time + bandit.steps(where)
        bits += np.ceil(np.log2(batch + 1.0)).astype(np.int64).sum(axis=1)
        leader, t = (sums / n).argmax(axis=1), n.sum(axis=1)
        beta = np.log(2.0 * t * max(bandit.k - 1, 1) / delta)
        done = evidence(n, sums, leader).min(axis=1) > beta
        batch = next_batch(n, sums, leader, beta)
        ended = done | (t + batch.sum(axis=1) > most)
        if ended.any():
            answer, down = np.where(done, leader, -1)[ended], bits[ended] + bandit.address_bits
            outcome.put(trial[ended], answer, rounds, time[ended], load[ended], bits[ended], down)
            trial, n, sums, load, time, bits, batch = (
                values[~ended] for values in (trial, n, sums, load, time, bits, batch)
            )
    return outcome


def next_batch(n: Ints, sums: Floats, leader: Ints, beta: Floats) -> Ints:
    """The pulls of each option in the next batch, by row."""
    rows, total = np.arange(len(n)), n.sum(axis=1)
    means = (sums + 0.5) / (n + 1.0)  # away from 0 and 1, where shares are not defined
    rivals = means.copy()
    rivals[rows, leader] = -np.inf
    means[rows, leader] = np.maximum(means[rows, leader], rivals.max(axis=1) + 0.5 / total)  # nor at a tie
    shares = Shares(len(n), n.shape[1])
    w = shares.solve(np.minimum(means, 1.0), leader, rows)
    need = SAFETY * beta / np.maximum(w[rows, leader] * shares.y, 1e-300)  # 1/T* = w_b·y
    goal = np.clip(need, 2.0 * total, MOST_GROWTH * total)
    share = np.maximum(w * goal[:, None], np.sqrt(goal)[:, None])  # no option starves after bad luck
    return np.asarray(np.maximum(np.ceil(share).astype(np.int64) - n, 0))


BATCHED = Baseline(
    "batched",
    "Batched, in the manner of Tri-BBAI",
    _batched,
    proof="proved for 0/1 rewards: Garivier and Kaufmann 2016, Theorem 10; the constants are ours",
    source="after Jin, Yang, Tang, Xiao, Xu, Optimal batched best arm identification, arXiv 2310.14129",
    coins=True,
    headline=False,
)
