"""Bets on contrasts: a fair game or worse whatever the sites are like, and bounds that hold at any time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from bestarm.methods.bet import decisions
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Played, Sides
from bestarm.stats.sums import Sums
from marking import examples
from rates import rate_exceeds


def coins(count, ones):
    n, s = np.asarray(count, dtype=float), np.asarray(ones, dtype=float)
    return Sums(n, s, s, np.zeros_like(s), np.ones_like(s))


@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 16), st.integers(0, 2**32))
def test_one_site_is_fed_bet_s_own_bet(before, step, ratio, seed):
    rng = np.random.default_rng(seed)
    b0, a0 = (coins([before], [rng.integers(before + 1)]) for _ in range(2))
    b1, a1 = (coins([n], [rng.integers(n + 1)]) for n in (ratio * step, step))
    own = decisions.bets(b0.at(0), a0.at(0), np.array(float(ratio)), before)
    one = Sides.of([1.0], [1.0])
    pulls = Sides.of([ratio * step], [step])
    bets = contrasts.contrast_bets(b0, a0, pulls, one, betting.stake_count(before))
    expected = decisions.log_factor(own, b1.at(0), a1.at(0))
    assert contrasts.log_factor(bets, b1, a1) == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


def mean_factor(pulls, weights, means, before, margin):
    """The exact mean of a factor, by going through all sums of all cells of 0/1 rewards."""
    bets = contrasts.contrast_bets(*before, pulls, weights, 9, margin)
    cells = [(int(n), m) for side, mean in zip((pulls.up, pulls.down), means, strict=True)
             for n, m in zip(side, mean, strict=True)]  # fmt: skip
    sums = np.array(list(itertools.product(*(range(n + 1) for n, _ in cells))))
    chance = np.prod([binom.pmf(sums[:, k], n, m) for k, (n, m) in enumerate(cells)], axis=0)
    sites = len(pulls.up)
    up, down = (coins(np.broadcast_to(side, (len(sums), sites)), part) for side, part in
                ((pulls.up, sums[:, :sites]), (pulls.down, sums[:, sites:])))  # fmt: skip
    logs = contrasts.log_wealths(bets, up, down)
    return float(chance @ np.exp(betting.log_mean_exp(logs, bets.weights)))


numbers = st.integers(0, 2**32)


@settings(max_examples=examples(400), deadline=None)
@given(numbers, st.booleans(), st.sampled_from([0.0, 0.1, -0.1]))
def test_a_factor_has_mean_at_most_one_however_the_sites_differ(seed, alike, margin):
    """Values that differ by the margin or less; sites, pulls, weights and the past are arbitrary."""
    rng = np.random.default_rng(seed)
    sites = int(rng.integers(1, 4))
    weights = rng.dirichlet(np.ones(sites), size=2)
    weights[1] = weights[0] if alike else weights[1]
    pulls = Sides.of(rng.integers(1, 4, sites), rng.integers(1, 4, sites))
    past = [coins(np.full(sites, 20), rng.integers(0, 21, sites)) for _ in range(2)]
    means = rng.random((2, sites))
    # Move option a's means, as far as they can go, until b is ahead by at most the margin.
    short = weights[0] @ means[0] - weights[1] @ means[1] - margin
    means[1] = np.clip(means[1] + short, 0, 1)
    short = weights[0] @ means[0] - weights[1] @ means[1] - margin
    if short > 0:
        means[0] = np.clip(means[0] - short, 0, 1)
    if weights[0] @ means[0] - weights[1] @ means[1] > margin + 1e-12:
        return
    found = mean_factor(pulls, Sides(*weights), means, past, margin)
    assert found <= 1 + 1e-9


def test_a_factor_grows_if_the_option_is_ahead():
    pulls, weights = Sides.of([3, 3], [3, 3]), Sides.of([0.5, 0.5], [0.5, 0.5])
    past = [coins([20, 20], [18, 10]), coins([20, 20], [12, 2])]
    assert mean_factor(pulls, weights, ([0.9, 0.5], [0.6, 0.1]), past, 0.0) > 1.1


@given(numbers, st.floats(-0.5, 0.5), st.booleans())
def test_centres_dispute_exactly_the_margin(seed, margin, alike):
    rng = np.random.default_rng(seed)
    sites = int(rng.integers(1, 6))
    up, down = rng.dirichlet(np.ones(sites), size=2)
    weights = Sides(up, up if alike else down)
    means = Sides(rng.random(sites), rng.random(sites))
    pulls = Sides.of(rng.integers(1, 50, sites), rng.integers(1, 50, sites))
    m = contrasts.centres_of(means, pulls, weights, margin)
    assert weights.up @ m.up - weights.down @ m.down == pytest.approx(margin, abs=1e-9)


@given(numbers, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_rounding_never_helps_the_gambler(seed, total, squares, ends):
    rng = np.random.default_rng(seed)
    sites, n = 3, 12
    weights = Sides.of(np.full(sites, 1 / 3), np.full(sites, 1 / 3))
    pulls = Sides.of(np.full(sites, n), np.full(sites, n))
    past = [coins(np.full(sites, 30), rng.integers(0, 31, sites)) for _ in range(2)]
    bets = contrasts.contrast_bets(*past, pulls, weights, 9)
    x = rng.random((2, sites, n)) ** rng.choice([0.2, 1, 5])

    def sums(values):
        return Sums(np.full(sites, float(n)), values.sum(1), (values**2).sum(1), values.min(1), values.max(1))

    b, a = sums(x[0]), sums(x[1])
    exact = contrasts.log_wealths(bets, b, a)
    up = Sums(b.count, b.total - total, b.squares + squares, b.least * ends, b.most)
    # The sum of 1 − x rounded down by `total`, that of its squares rounded up by `squares`.
    down = Sums(a.count, a.total + total, a.squares + 2 * total + squares, a.least, 1 - (1 - a.most) * ends)
    assert (contrasts.log_wealths(bets, up, down) <= exact + 1e-9).all()
    stakes = bets.stakes[:, None, None]
    true = np.log1p(stakes * bets.share.up[:, None] * (x[0] - bets.centres.up[:, None])).sum((1, 2))
    true += np.log1p(-stakes * bets.share.down[:, None] * (x[1] - bets.centres.down[:, None])).sum((1, 2))
    assert (exact <= true + 1e-9).all()


def test_a_bound_on_a_lead_holds_at_a_stopping_time_that_seeks_a_miss():
    """The bound is checked after every block. Null: a miss at any of them has probability at most α = 0.1.

    False-alarm rate 1e-6 (exact binomial test); a rate of 0.13 is seen with probability above 0.95.
    """
    rng, alpha, trials = np.random.default_rng(5), 0.1, 5_000
    means, weights = np.array([[0.6, 0.2], [0.3, 0.45]]), Sides.of([0.7, 0.3], [0.7, 0.3])
    lead = float(weights.up @ means[0] - weights.down @ means[1])
    blocks, before, missed = [], [coins(*np.zeros((2, trials, 2)))] * 2, np.zeros(trials, dtype=bool)
    for n in (4, 8, 16, 32, 64):
        fresh = [coins(np.full((trials, 2), n), rng.binomial(n, row, (trials, 2))) for row in means]
        guess = Sides(*(contrasts.estimate(s.count, s.total) for s in before))
        blocks.append(Played(guess, Sides.of(*np.full((2, trials, 2), n)), *fresh))
        before = [s.plus(new) for s, new in zip(before, fresh, strict=True)]
        missed |= contrasts.has_won(blocks, weights, alpha, lead)
    assert not rate_exceeds(int(missed.sum()), trials, alpha)
    few = [Played(Sides(b.means.up[:9], b.means.down[:9]), Sides(b.pulls.up[:9], b.pulls.down[:9]),
                  b.on.at(slice(9)), b.against.at(slice(9))) for b in blocks]  # fmt: skip
    bound = contrasts.lower_bound(few, weights, alpha)
    assert contrasts.has_won(few, weights, alpha, bound - 1e-9).all()
    assert not contrasts.has_won(few, weights, alpha, bound + 1e-5).any()


def test_a_bound_closes_in_on_the_lead():
    rng, weights = np.random.default_rng(1), Sides.of([0.5, 0.5], [0.5, 0.5])
    means, before, blocks = [[0.8, 0.5], [0.4, 0.3]], [coins([0, 0], [0, 0])] * 2, []
    for n in (10, 100, 1000, 10_000):
        fresh = [coins([n, n], rng.binomial(n, row)) for row in means]
        guess = Sides(*(contrasts.estimate(s.count, s.total) for s in before))
        blocks.append(Played(guess, Sides.of([n, n], [n, n]), *fresh))
        before = [s.plus(new) for s, new in zip(before, fresh, strict=True)]
    assert 0.27 < contrasts.lower_bound(blocks, weights, 0.05) < 0.3
    swapped = [Played(Sides(b.means.down, b.means.up), b.pulls, b.against, b.on) for b in blocks]
    assert -0.33 < contrasts.lower_bound(swapped, weights, 0.05) < -0.3


def test_many_stakes_are_used_after_many_pulls():
    assert contrasts.stake_count(10) == 9
    assert contrasts.stake_count(2**20) == 21
    assert math.isfinite(float(contrasts.largest_stake(Sides.of([0.5], [0.5]), Sides.of([1.0], [1.0]))))
