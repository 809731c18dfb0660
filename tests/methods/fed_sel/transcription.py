"""Algorithms 1 and 2 as the paper prints them: pull by pull, in means, sharing no code with `src`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


def alpha_of(clients: int, arms: int, delta: float):
    return lambda t: math.sqrt(math.log(4 * clients * arms * t**2 / delta) / t)


@dataclass
class Local:
    """Outcome of Algorithm 1: (arm, epoch) of each elimination, the output and its epoch, if it ended."""

    exits: list[tuple[int, int]]
    arm: int | None
    epoch: int


def algorithm_1(rewards: np.ndarray, alpha, c: float) -> Local:
    """`rewards[t-1, arm]` is the reward of the arm's t-th pull."""
    horizon, arms = rewards.shape
    active = list(range(arms))
    sums = [0.0] * arms
    exits = []
    for t in range(1, horizon + 1):
        for arm in active:
            sums[arm] += rewards[t - 1, arm]
        means = {arm: sums[arm] / t for arm in active}
        best = max(means.values())
        stay = [arm for arm in active if best - means[arm] < c * alpha(t)]
        exits += [(arm, t) for arm in active if arm not in stay]
        active = stay
        if len(active) == 1:
            return Local(exits, active[0], t)
    return Local(exits, None, horizon)


@dataclass
class Federated:
    """Outcome of Algorithm 2: its output as (client, arm), k*+1, and each client's counts by round."""

    client: int
    arm: int
    rounds: int
    means: list[list[float]]


def algorithm_2(rewards: list[np.ndarray], delta: float, c: float, period: int) -> Federated:
    """Round 0 is exact; later means pass through the quantiser of equation (2)."""
    clients = range(len(rewards))
    alphas = [alpha_of(len(rewards), rewards[i].shape[1], delta) for i in clients]
    local = [algorithm_1(rewards[i], alphas[i], c) for i in clients]
    assert all(found.arm is not None for found in local), "the streams are too short"
    active = set(clients)
    k = 0
    means: list[list[float]] = [[] for _ in clients]
    while True:
        upper, lower = {}, {}
        for i in active:
            n = local[i].epoch + k * period
            mean = rewards[i][:n, local[i].arm].sum() / n
            if k >= 1:
                bits = max(1, math.ceil(math.log2(1 / alphas[i](n))))
                index = min(math.floor(mean * 2**bits), 2**bits - 1)
                mean = (index + 0.5) / 2**bits
            means[i].append(mean)
            upper[i], lower[i] = mean + 2 * alphas[i](n), mean - 2 * alphas[i](n)
        threshold = max(lower.values())
        active = {i for i in active if threshold < upper[i]}
        if len(active) == 1:
            (winner,) = active
            return Federated(winner, local[winner].arm, k + 1, means)
        k += 1
