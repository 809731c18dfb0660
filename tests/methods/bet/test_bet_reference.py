"""Fed-Bet equals its definition on every path of 0/1 rewards."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bestarm as ba
from marking import examples
from methods.fed_sel.test_fed_sel import on_streams

CAP, FLOOR = 0.75, 0.02


def p_hat(s, n):
    return (s + 0.5) / (n + 1)


def rank(mean, n):
    return mean - math.sqrt(max(mean - mean**2, 0.0) / n)


def standing_of(s, own, n):
    """The mean as it is sent after n pulls per arm: rounded down to the bits that its error deserves."""
    bits = min(math.ceil(0.5 * math.log2(n)) + 3, math.ceil(math.log2(n + 1))) if n > 1 else 1
    return min(math.floor(p_hat(s, own) * 2**bits), 2**bits - 1) / 2**bits


class Book:
    """Section 2 of the theory for 0/1 rewards, with Python numbers, pull by pull; no code of `src`.

    `rewards[j]` is an array (pulls, arms) of client j. All arms of a client are read in order, each at its
    own pace. `log` has a row for each block: the champion, the schedule after it, and the logarithms of the
    rivals' wealths. `exits` has the block in which each arm left.
    """

    def __init__(self, rewards, delta, n1, q):
        self.rewards, self.delta, self.q, self.n1 = rewards, delta, Fraction(q).limit_denominator(10**6), n1
        self.arms = [(j, a) for j, r in enumerate(rewards) for a in range(r.shape[1])]
        self.made, self.sums = dict.fromkeys(self.arms, 0), dict.fromkeys(self.arms, 0)
        self.wealth = dict.fromkeys(self.arms, 0.0)
        self.inside = list(self.arms)
        self.log, self.exits, self.winner = [], {}, None

    def pull(self, arm, times):
        j, a = arm
        fresh = self.rewards[j][self.made[arm] : self.made[arm] + times, a].tolist()
        assert len(fresh) == times, "the streams are too short"
        self.made[arm] += times
        return fresh

    def rank(self, arm):
        return rank(p_hat(self.sums[arm], self.made[arm]), self.made[arm])

    def top(self, j, arms):
        """A client's best arm by its own numbers: the first one of the largest rank."""
        return max([arm for arm in arms if arm[0] == j], key=self.rank, default=None)

    def bets(self, known, arm, c, n):
        """Centre, stakes and weights against an arm, from rewards of earlier blocks."""
        n_b, s_b = known
        n_a, s_a = self.made[arm], self.sums[arm]
        high, low = p_hat(s_b, n_b), p_hat(s_a, n_a)
        m = min(max((c * high + low) / (c + 1), 0.002), 0.998)
        v_b, v_a = ((s - 2 * m * s + k * m * m + 4 * m * (1 - m)) / (k + 4) for k, s in (known, (n_a, s_a)))
        count = max(9, math.ceil(math.log2(n)) + 1)
        stakes = [CAP * 2 ** (-g / 2) * min(1 / m, 1 / (c * (1 - m))) for g in range(count)]
        error = v_a / n_a + v_b / n_b
        fit = [-((x * (v_b + c * v_a) - (high - low)) ** 2) / (2 * error) for x in stakes]
        shares = [math.exp(f - max(fit)) for f in fit]
        weights = [FLOOR / count + (1 - FLOOR) * x / math.fsum(shares) for x in shares]
        return m, stakes, weights

    def factor(self, bets, c, ours, theirs):
        m, stakes, weights = bets
        terms = [
            math.log(w)
            + math.fsum(math.log(1 + x * (r - m)) for r in ours)
            + math.fsum(math.log(1 - c * x * (r - m)) for r in theirs)
            for x, w in zip(stakes, weights, strict=True)
        ]
        return max(terms) + math.log(math.fsum(math.exp(t - max(terms)) for t in terms))

    def go(self, blocks):
        """Play some blocks, or until one arm is left. Returns whether no champion had to be named again."""
        n, told = self.n1, [r.shape[1] for r in self.rewards]
        clients = range(len(told))
        for arm in self.arms:
            self.sums[arm] += sum(self.pull(arm, n))
        tops = [self.top(j, self.inside) for j in clients]
        sent = {arm: standing_of(self.sums[arm], self.made[arm], n) for arm in tops}
        champion, known = self.name(None, None, sent, n)
        for block in range(1, blocks + 1):
            c = min(max(round(math.sqrt(sum(told) - 1)), 1), 16)
            d = math.ceil(self.q * n) - n
            rivals = [arm for arm in self.inside if arm != champion]
            bets = {arm: self.bets(known, arm, c, n) for arm in rivals}
            told = [sum(arm[0] == j for arm in self.inside) for j in clients]
            fresh = {arm: self.pull(arm, d * (c if arm == champion else 1)) for arm in self.inside}
            for arm, rewards in fresh.items():
                self.sums[arm] += sum(rewards)
            n += d
            leaders = [arm for arm in (self.top(j, rivals) for j in clients) if arm]
            leaders = [arm for arm in leaders if self.rank(arm) > rank(p_hat(known[1], known[0]), known[0])]
            sent = {arm: standing_of(self.sums[arm], self.made[arm], n) for arm in leaders}
            after = known[0] + c * d, known[1] + sum(fresh[champion])
            named, known = self.name(champion, after, sent, n)
            for arm in rivals:
                self.wealth[arm] += self.factor(bets[arm], c, fresh[champion], fresh[arm])
                if self.wealth[arm] >= math.log(1 / self.delta):
                    self.inside.remove(arm)
                    self.exits[arm] = block
            self.log.append((list(champion), n, {arm: self.wealth[arm] for arm in rivals}))
            if self.inside == [champion]:
                self.winner = champion
                return True
            if named not in self.inside and block < blocks:
                return False
            champion = named
        return True

    def name(self, champion, known, sent, n):
        """The next champion, and its pulls and sum as everybody knows them."""
        there = {champion: rank(p_hat(known[1], known[0]), known[0])} if champion else {}
        there |= {arm: rank(mean, n) for arm, mean in sent.items()}
        best = max(sorted(there), key=there.get)
        return (best, known) if best == champion else (best, (n, n * sent[best]))


def streams(seed, tied):
    rng = np.random.default_rng(seed)
    pool = [0.5, 0.52] if tied else [0.03, 0.2, 0.4, 0.6, 0.8, 0.95]
    counts = rng.integers(1, 4, int(rng.integers(2, 4)))
    return [(rng.random((40_000, k)) < rng.choice(pool, k)).astype(float) for k in counts]


@settings(max_examples=examples(200))
@given(
    st.integers(0, 2**32),
    st.booleans(),
    st.sampled_from([(16, 1.15), (24, 1.5), (1, 1.5), (2, 3.0)]),
    st.sampled_from([0.01, 0.3]),
)
def test_fed_bet_equals_section_2_on_every_path(seed, tied, schedule, delta):
    (n1, q), rewards = schedule, streams(seed, tied)
    blocks = 7 if q > 1.2 else 14
    book = Book(rewards, delta, n1, q)
    assume(book.go(blocks))
    record = ba.identify(on_streams(rewards), "bet", delta=delta, n1=n1, q=q, max_rounds=blocks + 2, seed=0)
    certificate = record.verdict.certificate
    assert record.verdict.arm == (None if book.winner is None else "g{}/a{}".format(*book.winner))
    assert record.pulls.by_client == {
        f"c{j}": sum(book.made[j, a] for a in range(r.shape[1])) for j, r in enumerate(rewards)
    }
    rows = certificate["server"]["rounds"][1:]
    assert [row["champion"] for row in rows][: len(book.log)] == [champion for champion, _, _ in book.log]
    for j in range(len(rewards)):
        part = certificate["local"][f"c{j}"]
        exits = {(j, a): k for a, k in zip(part["exits"]["arm"], part["exits"]["block"], strict=True)}
        assert exits == {arm: k for arm, k in book.exits.items() if arm[0] == j}
        played = [k for k, (_, _, wealth) in enumerate(book.log, start=1) if any(i == j for i, _ in wealth)]
        assert [row["block"] for row in part["wealth"] if row["arm"]] == played
        for row in part["wealth"]:
            champion, n, wealth = book.log[row["block"] - 1]
            assert (row["champion"], row["pulls"]) == (champion, n)
            assert [(j, a) for a in row["arm"]] == [arm for arm in wealth if arm[0] == j]
            ours = [wealth[j, a] for a in row["arm"]]
            np.testing.assert_allclose(row["log_wealth"], ours, rtol=1e-9, atol=1e-9)
