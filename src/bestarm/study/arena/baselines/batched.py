"""Best-arm identification in a few batches: Tri-BBAI, and a method like it that keeps δ.

*Tri-BBAI* (Jin, Yang, Tang, Xiao and Xu 2024, arXiv 2310.14129), as in the experiments of the authors' code
(panxulab/Optimal-Batched-Best-Arm-Identification), since the formulas of the paper itself could not be read.
Every option gets L₁ = ⌈2·ln K·√ln(1/δ)⌉ pulls. Then twice, for q = 1, 2: with b the means, the largest
lowered and all others raised by ε = 0.01, every option gets min(⌈2^q·α·w*(b)·T*(b)·ln(1/δ)⌉, L₂) pulls, α =
1.001, L₂ = ⌈80·ln(1/δ)·ln ln(1/δ)/K⌉. If then Z ≥ ln((1 + ln t)/δ) (``likelihood.py``), the leader is named;
if not, every option is brought to L₃ = ⌈ln²(1/δ)⌉ pulls, and the largest mean is named, however small its
lead. So there are three or four batches, and nothing is proved about δ at these constants: the paper's
theorem is about δ → 0. We keep L₂ at 1 or more, where the formula is not positive (δ > 1/e).

Opt-BBAI of the same paper adds a last stage that eliminates options and checks whether the best one was among
them. It is left out: in the authors' code all earlier sets of options are the same object as the current one,
so that the code does not show what the paper's check is.

*Batched* replaces the last stage, and its constants are ours: the first batch has 32 pulls per option; every
further one brings the total to 1.25·T*(means)·β, but at least to twice and at most to four times what it was,
in the shares w*(means), with at least √total pulls of each option; after each batch the rule of
``likelihood.py`` decides. *Proof.* That rule is valid for every way to choose the pulls (Garivier and
Kaufmann 2016, Theorem 10), so also for looks after some pulls only. ∎

A batch costs one message down per site, with the number of pulls of each option, and one up, with the sums.
"""

from __future__ import annotations

import numpy as np

from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.study.arena.bandit import Bandit, Outcome
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.likelihood import evidence
from bestarm.study.arena.baselines.track_and_stop import Shares

FIRST = 32
SAFETY = 1.25
MOST_GROWTH = 4.0
EPSILON, ALPHA = 0.01, 1.001


class _Batches:
    """The trials of a kernel that still run, with what their batches have cost."""

    def __init__(self, bandit: Bandit, rng: np.random.Generator, trials: int, most: int) -> None:
        self.bandit, self.rng, self.most = bandit, rng, most
        self.outcome, self.rounds = Outcome(bandit, trials), 0
        self.trial = np.arange(trials)
        self.n, self.sums = np.zeros((trials, bandit.k), dtype=np.int64), np.zeros((trials, bandit.k))
        self.load = np.zeros((trials, len(bandit.clients)), dtype=np.int64)
        self.time, self.bits = np.zeros(trials, dtype=np.int64), np.zeros(trials, dtype=np.int64)

    def pull(self, batch: Ints) -> Ints:
        """Make a batch; trials that it would make too dear end undecided. Returns the leaders of the rest."""
        dear = (self.n + batch).sum(axis=1) > self.most
        self.stop(dear, np.full(len(dear), -1))
        batch = batch[~dear]
        more, where = self.bandit.batch(self.rng, batch)
        self.rounds, self.n, self.sums = self.rounds + 1, self.n + batch, self.sums + more
        self.load, self.time = self.load + where, self.time + self.bandit.steps(where)
        self.bits = self.bits + np.ceil(np.log2(batch + 1.0)).astype(np.int64).sum(axis=1)
        return np.asarray((self.sums / self.n).argmax(axis=1))

    def stop(self, ended: Mask, answer: Ints) -> None:
        """End these trials; an answer of −1 is undecided."""
        if not ended.any():
            return
        bits = self.bits[ended]
        costs = (self.time[ended], self.load[ended], bits, bits + self.bandit.address_bits)
        self.outcome.put(self.trial[ended], answer[ended], self.rounds, *costs)
        for name in ("trial", "n", "sums", "load", "time", "bits"):
            setattr(self, name, getattr(self, name)[~ended])


def _tri_bbai(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game, log, k = _Batches(bandit, rng, trials, most), np.log(1.0 / delta), bandit.k
    leader = game.pull(np.full((trials, k), max(int(np.ceil(2.0 * np.log(k) * np.sqrt(log))), 1)))
    cap = max(np.ceil(80.0 * log * np.log(log) / k), 1.0)
    for q in (1, 2):
        share, need = optimal(_pessimistic(game.sums / game.n, leader))
        leader = game.pull(np.minimum(np.ceil(2.0**q * ALPHA * log * need * share), cap).astype(np.int64))
    enough = np.log((1.0 + np.log(np.maximum(game.n.sum(axis=1), 1))) / delta)
    done = evidence(game.n, game.sums, leader).min(axis=1) >= enough
    game.stop(done, leader)
    if len(game.trial):
        leader = game.pull(np.maximum(int(np.ceil(log**2)) - game.n, 0))
        game.stop(np.ones(len(leader), dtype=bool), leader)
    return game.outcome


def _pessimistic(means: Floats, leader: Ints) -> Floats:
    """The means with the largest lowered and all others raised by ε."""
    found, rows = means + EPSILON, np.arange(len(means))
    found[rows, leader] -= 2.0 * EPSILON
    return found


def optimal(means: Floats) -> tuple[Floats, Floats]:
    """w*(means) by row, and T*(means) as a column."""
    rows, best = np.arange(len(means)), means.argmax(axis=1)
    means = np.clip(means, 1e-3, 1.0 - 1e-3)  # away from 0 and 1, where shares are not defined
    rivals = means.copy()
    rivals[rows, best] = -np.inf
    means[rows, best] = np.maximum(means[rows, best], rivals.max(axis=1) + 1e-4)  # nor at a tie
    shares = Shares(*means.shape)
    w = shares.solve(means, best, rows)
    return w, 1.0 / np.maximum(w[rows, best] * shares.y, 1e-300)[:, None]  # 1/T* = w_b·y


def _batched(bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int) -> Outcome:
    game = _Batches(bandit, rng, trials, most)
    leader = game.pull(np.full((trials, bandit.k), FIRST))
    while len(game.trial):
        beta = np.log(2.0 * game.n.sum(axis=1) * max(bandit.k - 1, 1) / delta)
        done = evidence(game.n, game.sums, leader).min(axis=1) > beta
        game.stop(done, leader)
        if len(game.trial):
            leader = game.pull(next_batch(game.n, game.sums, beta[~done]))
    return game.outcome


def next_batch(n: Ints, sums: Floats, beta: Floats) -> Ints:
    """The pulls of each option in the next batch, by row."""
    total = n.sum(axis=1, keepdims=True)
    w, need = optimal((sums + 0.5) / (n + 1.0))
    goal = np.clip(SAFETY * beta[:, None] * need, 2.0 * total, MOST_GROWTH * total)
    share = np.maximum(w * goal, np.sqrt(goal))  # no option starves after bad luck
    return np.asarray(np.maximum(np.ceil(share).astype(np.int64) - n, 0))


SOURCE = "Jin, Yang, Tang, Xiao, Xu, Optimal batched best arm identification, arXiv 2310.14129"
TRI_BBAI = Baseline(
    "tri-bbai",
    "Tri-BBAI, constants of its experiments",
    _tri_bbai,
    source=SOURCE + ", from the authors' code",
    coins=True,
)
BATCHED = Baseline(
    "batched",
    "Batched, in the manner of Tri-BBAI",
    _batched,
    proof="proved for 0/1 rewards: Garivier and Kaufmann 2016, Theorem 10; the constants are ours",
    source="after " + SOURCE,
    coins=True,
    headline=False,
)
