"""Plain transcriptions of sequential baselines, one pull at a time, for the tests of their kernels."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import xlogy

import bestarm as ba
from bestarm.study.arena.bandit import Bandit


class Told(Bandit):
    """A bandit with one row whose rewards are told in advance: option k pays told[k][i] at its i-th pull."""

    def one(self, rng, arm):
        rewards = [self._next(k) for k in arm.reshape(-1).tolist()]
        return np.array(rewards, dtype=float).reshape(arm.shape), np.zeros_like(arm)

    def several(self, rng, arm, times):
        paid = sum(self._next(int(arm[0])) for _ in range(int(times[0])))
        return np.array([float(paid)]), times[:, None]

    def batch(self, rng, times):
        paid = [[sum(self._next(k) for _ in range(count)) for k, count in enumerate(times[0].tolist())]]
        return np.array(paid, dtype=float), times.sum(axis=1, keepdims=True)

    def _next(self, k):
        used = self.__dict__.setdefault("used", [0] * self.k)
        used[k] += 1
        return self.__dict__["told"][k][used[k] - 1]


def told(means, seed, length=60_000):
    """A bandit with these means, and its rewards."""
    bandit = Told(ba.Problem.bernoulli([list(means)]))
    rng = np.random.default_rng(seed)
    rewards = [(rng.random(length) < mean).astype(int).tolist() for mean in means]
    bandit.__dict__["told"] = rewards
    return bandit, rewards


def kl(p, q):
    q = min(max(q, 1e-300), 1 - 1e-16)
    parts = [x * math.log(x / y) for x, y in ((p, q), (1 - p, 1 - q)) if x > 0]
    return sum(parts)


class State:
    """Counts and sums of a plain run."""

    def __init__(self, rewards):
        self.rewards = rewards
        self.n, self.s = [0] * len(rewards), [0] * len(rewards)
        for k in range(len(rewards)):
            self.pull(k)

    def pull(self, k):
        self.s[k] += self.rewards[k][self.n[k]]
        self.n[k] += 1

    @property
    def means(self):
        return [s / n for s, n in zip(self.s, self.n, strict=True)]

    def glr(self, b, a):
        m = (self.s[a] + self.s[b]) / (self.n[a] + self.n[b])
        return self.n[b] * kl(self.means[b], m) + self.n[a] * kl(self.means[a], m)

    def settled(self, delta):
        best = max(range(len(self.n)), key=lambda k: self.means[k])
        others = [k for k in range(len(self.n)) if k != best]
        enough = math.log(2 * sum(self.n) * len(others) / delta)
        return best, min(self.glr(best, k) for k in others) > enough


def lucb(rewards, delta):
    state, t, arms = State(rewards), 1, len(rewards)
    while True:
        wide = [math.sqrt(math.log(5 * arms * t**4 / (4 * delta)) / (2 * n)) for n in state.n]
        means = state.means
        h = max(range(arms), key=lambda k: means[k])
        rival = max((k for k in range(arms) if k != h), key=lambda k: means[k] + wide[k])
        if means[h] - wide[h] >= means[rival] + wide[rival]:
            return h, sum(state.n)
        state.pull(h)
        state.pull(rival)
        t += 1


def elimination(rewards, delta):
    state, arms = State(rewards), len(rewards)
    left, n = list(range(arms)), 1
    while True:
        wide = math.sqrt(math.log(math.pi**2 / 3 * arms * n**2 / delta) / (2 * n))
        best = max(state.s[k] / n for k in left)
        left = [k for k in left if state.s[k] / n > best - 2 * wide]
        if len(left) == 1:
            return left[0], sum(state.n)
        for k in left:
            state.pull(k)
        n += 1


def kl_lucb(rewards, delta):
    state, arms = State(rewards), len(rewards)

    def bound(k, upper):
        p, level = state.means[k], math.log(11 * arms * state.n[k] ** 1.1 / delta) / state.n[k]
        if upper:
            return 1.0 if p == 1 else brentq(lambda q: kl(p, q) - level, p, 1 - 1e-16, xtol=1e-14)
        return 0.0 if p == 0 else brentq(lambda q: kl(p, q) - level, 1e-300, p, xtol=1e-14)

    while True:
        means = state.means
        h = max(range(arms), key=lambda k: means[k])
        rival = max((k for k in range(arms) if k != h), key=lambda k: bound(k, True))
        if bound(h, False) >= bound(rival, True):
            return h, sum(state.n)
        state.pull(h)
        state.pull(rival)


def lil_ucb(rewards, delta):
    state, arms, c = State(rewards), len(rewards), 2.01 / 0.01 * (1 / math.log(1.01)) ** 1.01
    inner = (math.sqrt(1 + delta) - 1) ** 2 / (4 * c)

    def index(k):
        n = state.n[k]
        return state.means[k] + 2 * 1.1 * math.sqrt(
            2 * 0.25 * 1.01 * math.log(math.log(1.01 * n) / inner) / n
        )

    while True:
        k = max(range(arms), key=index)
        state.pull(k)
        if state.n[k] >= 1 + 9 * (sum(state.n) - state.n[k]):
            return k, sum(state.n)


def lil_ucb_heuristic(rewards, delta):
    state, arms = State(rewards), len(rewards)

    def index(k):
        n = state.n[k]
        if n == 1:
            return math.inf
        return state.means[k] + 1.5 * math.sqrt(2 * 0.25 * math.log(math.log(n) / (delta / 5)) / n)

    while True:
        k = max(range(arms), key=index)
        state.pull(k)
        if state.n[k] >= 1 + (1 + 10 / arms) * (sum(state.n) - state.n[k]):
            return k, sum(state.n)


def round_robin(rewards, delta):
    state = State(rewards)
    while True:
        best, settled = state.settled(delta)
        if settled:
            return best, sum(state.n)
        for k in range(len(rewards)):
            state.pull(k)


def track_and_stop(rewards, delta):
    """The shares come from ``bestarm.limit``, which finds them in another way."""
    state, arms = State(rewards), len(rewards)
    while True:
        means, t = state.means, sum(state.n)
        tied = [k for k in range(arms) if means[k] == max(means)]
        best, settled = state.settled(delta)
        if settled and len(tied) == 1:
            return best, t
        least = min(range(arms), key=lambda k: state.n[k])
        if state.n[least] < max(math.sqrt(t) - arms / 2, 0):
            state.pull(least)
        elif len(tied) > 1:
            state.pull(min(tied, key=lambda k: state.n[k]))
        else:
            clipped = [min(max(mean, 1e-9), 1 - 1e-9) for mean in means]
            shares = list(ba.limit(ba.Problem.bernoulli([clipped]), 0.1).shares.values())
            state.pull(max(range(arms), key=lambda k: t * shares[k] - state.n[k]))


def top_two(rewards, delta, rng):
    """Makes the draws of the kernel, in its order. Rounding decides whether Z of equal means is 0, so Z is
    computed as in likelihood.py."""
    state, arms = State(rewards), len(rewards)

    def f(n, s):
        return xlogy(s, s) + xlogy(n - s, n - s) - xlogy(n, n)

    def z(b, a):
        (n, s), (m, r) = (state.n[a], state.s[a]), (state.n[b], state.s[b])
        return 0 if s * m > r * n else max(f(n, s) + f(m, r) - f(n + m, s + r), 0)

    while True:
        best, settled = state.settled(delta)
        if settled:
            return best, sum(state.n)
        draws = [rng.beta(1 + s, 1 + n - s) for n, s in zip(state.n, state.s, strict=True)]
        leader = max(range(arms), key=lambda k: draws[k])
        cost = {k: z(leader, k) for k in range(arms) if k != leader}
        ahead = [k for k in cost if cost[k] == 0]
        cost |= dict(zip(ahead, -rng.random(len(ahead)), strict=True))
        state.pull(leader if rng.random() < 0.5 else min(cost, key=cost.get))


def tri_bbai(rewards, delta):
    """The constants of the authors' experiments; the shares come from ``bestarm.limit``."""
    state, arms, log = State(rewards), len(rewards), math.log(1 / delta)

    def pull(times):
        for k, count in enumerate(times):
            for _ in range(count):
                state.pull(k)

    pull([math.ceil(2 * math.log(arms) * math.sqrt(log)) - 1] * arms)  # a State begins with one pull of each
    cap = math.ceil(80 * log * math.log(log) / arms)
    for q in (1, 2):
        best = max(range(arms), key=lambda k: state.means[k])
        b = [mean - 0.01 if k == best else mean + 0.01 for k, mean in enumerate(state.means)]
        found = ba.limit(ba.Problem.bernoulli([b]), 0.1)
        hardness = found.total / kl(0.1, 0.9)  # the limit is T*·kl(δ, 1 − δ)
        shares = list(found.shares.values())
        pull([min(math.ceil(2**q * 1.001 * share * hardness * log), cap) for share in shares])
    best = max(range(arms), key=lambda k: state.means[k])
    enough = math.log((1 + math.log(sum(state.n))) / delta)
    if min(state.glr(best, k) for k in range(arms) if k != best) < enough:
        pull([max(math.ceil(log**2) - n, 0) for n in state.n])
        best = max(range(arms), key=lambda k: state.means[k])
    return best, sum(state.n)
