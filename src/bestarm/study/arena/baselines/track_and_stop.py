"""Track-and-Stop (Garivier and Kaufmann 2016) for 0/1 rewards, with D-tracking.

After one pull of each option, pull t+1 is of the least pulled option if it has fewer than √t − K/2 pulls,
else of the option that is furthest behind its share t·w_a, where w = w*(means) are the shares that would be
optimal if the means were true. If several options are tied for the largest mean, the least pulled one of them
is next. It stops by the rule of ``likelihood.py``. The shares are computed anew before every pull, to a
relative error of about 1e-6.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.likelihood import Threshold, entropy, evidence, practice, proved

EDGE = 1e-9  # means are kept this far from 0 and 1, where kl is infinite
LEAST = 1e-30  # of kl, so that its third power can be divided by
PRECISE = 1e-6
CLOSE = 1e-3  # from here one more step is enough
MOST_STEPS = 100


class Shares:
    """w*(μ) by row, kept from pull to pull as the start of the next search.

    With b the best option and x_a = w_a/w_b, the optimal shares solve g_a(x_a) = y for every rival a and
    Σ_a kl(μ_b, m_a)/kl(μ_a, m_a) = 1, where m_a = (μ_b + x_a·μ_a)/(1 + x_a) and
    g_a(x) = kl(μ_b, m_a) + x·kl(μ_a, m_a) (Theorem 5 of the paper). g_a is increasing and concave with slope
    kl(μ_a, m_a), and the sum increases with y: Newton's method for both, and bisection in y where it leaves
    its bracket.
    """

    def __init__(self, rows: int, arms: int) -> None:
        self.x, self.y = np.ones((rows, arms)), np.zeros(rows)
        self.best = np.full(rows, -1)

    def keep(self, rows: Mask | Ints) -> None:
        """Keep these rows only."""
        self.x, self.y, self.best = self.x[rows], self.y[rows], self.best[rows]

    def solve(self, means: Floats, best: Ints, rows: Ints) -> Floats:
        """The shares in these rows for means whose largest is at `best` and unique."""
        at, mu = np.arange(len(rows)), np.clip(means, EDGE, 1.0 - EDGE)
        top = mu[at, best][:, None]
        rival = np.ones(mu.shape, dtype=bool)
        rival[at, best] = False
        gap = top - mu
        # kl(μ_b, μ_a) is the limit of g_a for x → ∞, so y stays below the smallest of them.
        reach = entropy(top) - top * np.log(mu) - (1.0 - top) * np.log1p(-mu)
        high = np.where(rival, reach, np.inf).min(axis=1)
        x, y = self.x[rows], self.y[rows]
        new = np.flatnonzero(best != self.best[rows])  # another best option: start anew
        wide = np.where(rival, gap, np.inf)[new]
        x[new] = np.clip((wide.min(axis=1, keepdims=True) / wide) ** 2, 1e-6, 1.0)
        y[new] = high[new] / 2.0
        state = [x, np.minimum(y, high * (1.0 - 1e-9)), np.zeros(len(mu)), high]
        facts, todo = (mu, top, gap, rival, entropy(mu), entropy(top)), at
        for _ in range(MOST_STEPS):
            if len(todo) == len(at):
                done = _step(state, facts)
            else:
                part = [values[todo] for values in state]
                done = _step(
                    part, (mu[todo], top[todo], gap[todo], rival[todo], facts[4][todo], facts[5][todo])
                )
                for values, found in zip(state, part, strict=True):
                    values[todo] = found
            todo = todo[~done]
            if not todo.size:
                break
        x = np.where(rival, state[0], 1.0)
        self.x[rows], self.y[rows], self.best[rows] = x, state[1], best
        return np.asarray(x / x.sum(axis=1, keepdims=True))


def _step(state: list[Floats], facts: tuple[Floats, Floats, Floats, Mask, Floats, Floats]) -> Mask:
    """One step of Newton's method; returns the rows that are solved. Those that were stay as they are."""
    x, y, low, high = state
    mu, top, gap, rival, own, own_top = facts
    m = np.clip(top - gap * x / (1.0 + x), EDGE, 1.0 - EDGE)
    log_m, log_w = np.log(m), np.log1p(-m)
    first = np.maximum(own_top - top * log_m - (1.0 - top) * log_w, LEAST)
    second = np.maximum(own - mu * log_m - (1.0 - mu) * log_w, LEAST)
    off = first + x * second - y[:, None]
    total = np.where(rival, first / second, 0.0).sum(axis=1) - 1.0
    worst = np.where(rival, np.abs(off), 0.0).max(axis=1)
    near = worst <= PRECISE * y + 1e-14
    done = near & ((np.abs(total) <= PRECISE) | (high - low <= PRECISE * high))
    # The slope of the sum in y, with every x following its own equation.
    bend = ((top - m) * second + (m - mu) * first) * gap / (m * (1.0 - m) * (1.0 + x) ** 2 * second**3)
    bend = np.where(rival, bend, 0.0)
    state[2], state[3] = np.where(near & (total < 0), y, low), np.where(near & (total > 0), y, high)
    # Move y by what the sum lacks, after each x has followed its own error at the old y.
    new = y - (total - (bend * off).sum(axis=1)) / np.maximum(bend.sum(axis=1), 1e-300)
    inside = (new > state[2]) & (new < state[3])
    last = inside & (worst <= CLOSE * y) & (np.abs(total) <= CLOSE)  # the error is squared by each step
    new = np.where(inside, new, (state[2] + state[3]) / 2.0)
    moved = np.clip(x - (off - (new - y)[:, None]) / second, x / 16.0, x * 16.0)
    state[0], state[1] = np.where((done[:, None]) | ~rival, x, moved), np.where(done, y, new)
    return np.asarray(done | last)


def _track_and_stop(
    bandit: Bandit, delta: float, rng: np.random.Generator, trials: int, most: int, *, threshold: Threshold
) -> Outcome:
    game, shares = Pulls(bandit, rng, trials, most), Shares(trials, bandit.k)
    game.everything()
    while len(game):
        leader = game.mean.argmax(axis=1)
        tied = (game.mean == game.mean.max(axis=1, keepdims=True)).sum(axis=1) > 1
        z = evidence(game.n, game.s, leader).min(axis=1)
        keep = game.stop(~tied & (z > threshold(game.t, bandit.k, delta)), leader)
        if keep is not None:
            leader, tied = leader[keep], tied[keep]
            shares.keep(keep)
            if not len(game):
                break
        game.pull(_next(game, shares, leader, tied))
    return game.outcome


def _next(game: Pulls, shares: Shares, leader: Ints, tied: Mask) -> Ints:
    """The option to pull next, by row."""
    least = game.n.argmin(axis=1)
    arm = least.copy()
    if tied.any():
        among = game.mean[tied] == game.mean[tied].max(axis=1, keepdims=True)
        arm[tied] = np.where(among, game.n[tied], np.iinfo(np.int64).max).argmin(axis=1)
    forced = game.n[game.rows, least] < max(np.sqrt(game.t) - game.bandit.k / 2.0, 0.0)
    arm[forced] = least[forced]
    free = np.flatnonzero(~(forced | tied))
    if free.size:
        w = shares.solve(game.mean[free], leader[free], free)
        arm[free] = (game.t * w - game.n[free]).argmax(axis=1)
    return np.asarray(arm)


SOURCE = "Garivier and Kaufmann, Optimal best arm identification with fixed confidence, 2016"
TRACK_AND_STOP = Baseline(
    "track-and-stop",
    "Track-and-Stop",
    partial(_track_and_stop, threshold=proved),
    proof="proved for 0/1 rewards: Garivier and Kaufmann 2016, Theorem 10",
    source=SOURCE,
    coins=True,
)
TRACK_AND_STOP_PRACTICE = Baseline(
    "track-and-stop-practice",
    "Track-and-Stop, threshold of practice",
    partial(_track_and_stop, threshold=practice),
    source=SOURCE,
    coins=True,
)
