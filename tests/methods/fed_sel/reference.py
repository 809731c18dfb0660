"""Rounds and pulls of Fed-SEL on the paper's instance, by code that shares nothing with `src`.

REFERENCE is what ``python tests/methods/fed_sel/reference.py`` prints after ten minutes or so: Algorithms 1
and 2 as in transcription.py, with many epochs of Phase I drawn at once and sums in place of single pulls in
Phase II. ``tests/simulate/test_reference.py`` compares the two on the same rewards.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

TRIALS, DELTA, C, PERIOD = 2000, 0.1, 8.0, 100
STRETCH = 1 << 13  # epochs of Phase I that are drawn at once

# σ -> mean and standard deviation of rounds, Phase I pulls, Phase II pulls
REFERENCE = {
    1: ((1, 0), (3.8376e6, 5.781e4), (0, 0)),
    3: ((28.9415, 32.09), (2.30007e6, 4.291e4), (5588.3, 6417)),
    7: ((716.225, 7.477), (2.16291e6, 4.486e4), (143045, 1495)),
    15: ((818.197, 6.228), (2.14286e6, 4.408e4), (163439, 1246)),
}


def paper_instance(sigma: float) -> list[list[float]]:
    return [[0.9, 0.9 - 0.05 * sigma, 0.1], [0.85, 0.8, 0.3], [0.7, 0.6, 0.5]]


class Coins:
    """Fresh 0/1 rewards of one client. Rewards that are drawn and not used are discarded."""

    def __init__(self, rng: np.random.Generator, means: Sequence[float]) -> None:
        self.rng, self.means = rng, np.array(means)

    def path(self, arms: list[int], start: int, times: int) -> np.ndarray:
        """A row for each of these arms: its rewards, pull by pull, after `start` pulls."""
        return self.rng.random((len(arms), times)) < self.means[arms, None]

    def total(self, arm: int, start: int, times: int) -> float:
        """The sum of `times` rewards of one arm after its first `start`."""
        return self.rng.binomial(times, self.means[arm])


class Stream(Coins):
    """Rewards that are fixed in advance: `rewards[t-1, arm]` is the reward of the arm's t-th pull."""

    def __init__(self, rewards: np.ndarray) -> None:
        self.rewards, self.means = rewards, rewards[0]

    def path(self, arms: list[int], start: int, times: int) -> np.ndarray:
        return self.rewards[start : start + times, arms].T

    def total(self, arm: int, start: int, times: int) -> float:
        return self.rewards[start : start + times, arm].sum()


def alpha(t, clients: int, arms: int, delta: float):
    return np.sqrt(np.log(4.0 * clients * arms * np.square(t, dtype=float) / delta) / t)


def phase_1(rewards: Coins, clients: int, delta: float, c: float) -> tuple[int, int, float, int]:
    """Algorithm 1: the remaining arm, the epoch, the arm's sum, and the pulls of all arms."""
    arms = list(range(len(rewards.means)))
    count, sums, epoch, pulls = len(arms), np.zeros(len(arms)), 0, 0
    while len(arms) > 1:
        paths = sums[:, None] + np.cumsum(rewards.path(arms, epoch, STRETCH), axis=1)
        t = np.arange(epoch + 1, epoch + paths.shape[1] + 1)
        means = paths / t
        stay = means.max(axis=0) - means < c * alpha(t, clients, count, delta)
        exits = np.flatnonzero(~stay.all(axis=0))
        last = exits[0] if len(exits) else len(t) - 1
        pulls += (last + 1) * len(arms)
        epoch, left = int(t[last]), stay[:, last]
        arms, sums = np.array(arms)[left].tolist(), paths[left, last]
    return arms[0], epoch, float(sums[0]), int(pulls)


def fed_sel(rewards: Sequence[Coins], delta: float, c: float, period: int) -> tuple[int, int, int, int]:
    """Algorithm 2: the remaining client, its rounds k*+1, and the pulls of Phases I and II."""
    clients = len(rewards)
    local = [phase_1(source, clients, delta, c) for source in rewards]
    sums = [found[2] for found in local]
    active, k, later = list(range(clients)), 0, 0
    while True:
        lower, upper = {}, {}
        for i in active:
            arm, epoch, *_ = local[i]
            n = epoch + k * period
            if k:
                sums[i] += rewards[i].total(arm, n - period, period)
                later += period
            mean, width = sums[i] / n, float(alpha(n, clients, len(rewards[i].means), delta))
            if k:  # the quantiser of equation (2)
                bins = 2 ** max(1, math.ceil(math.log2(1 / width)))
                mean = (min(math.floor(mean * bins), bins - 1) + 0.5) / bins
            lower[i], upper[i] = mean - 2 * width, mean + 2 * width
        active = [i for i in active if max(lower.values()) < upper[i]]
        if len(active) == 1:
            return active[0], k + 1, sum(found[3] for found in local), later
        k += 1


def summary(sigma: float, trials: int) -> str:
    """One line of REFERENCE."""
    rng = np.random.default_rng([round(100 * sigma), trials])
    runs = [
        fed_sel([Coins(rng, means) for means in paper_instance(sigma)], DELTA, C, PERIOD)
        for _ in range(trials)
    ]
    columns = np.array(runs)[:, 1:].T
    figures = ", ".join(f"({x.mean():.6g}, {x.std(ddof=1):.4g})" for x in columns)
    return f"    {sigma}: ({figures}),"


if __name__ == "__main__":
    for sigma in REFERENCE:
        print(summary(sigma, int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS), flush=True)
