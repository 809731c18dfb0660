"""The arithmetic of betting: never more wealth than the rewards give, and a fair game or worse."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bestarm.stats import betting
from marking import examples

rewards = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1 / 256, 255 / 256, 1e-300])),
    min_size=1,
    max_size=30,
)
centres = st.floats(betting.MARGIN, 1 - betting.MARGIN)
shares = st.floats(1e-6, 0.999)  # of the wealth that a reward of 0 takes away


def log_wealth(sample, stake, centre):
    return math.fsum(math.log1p(stake * (x - centre)) for x in sample)


def bound(sample, stake, centre, *, total=0.0, squares=0.0, least=1.0):
    """The bound from sums that are rounded by these amounts, and a smallest value scaled down."""
    x = np.asarray(sample)
    sums = (math.fsum(x) - total, math.fsum(x**2) + squares, x.min() * least)
    return float(betting.least_log_wealth(len(x), *sums, stake, centre))


@settings(max_examples=examples(2000))
@given(rewards, centres, shares, st.floats(0, 3), st.floats(0, 3), st.floats(0, 1))
def test_the_bound_is_never_above_the_wealth_however_the_sums_are_rounded(
    sample, centre, share, total, squares, least
):
    stake = share / centre
    true = log_wealth(sample, stake, centre)
    found = bound(sample, stake, centre, total=total, squares=squares, least=least)
    assert found <= true + 1e-9 * (1 + abs(true))


@settings(max_examples=examples(1000))
@given(rewards, centres, shares, st.floats(0, 1), st.floats(0, 1))
@example([5e-324], 0.5, 0.5, 0.0, 1.0)  # Q/S is beyond the largest number
def test_rounding_further_never_raises_the_bound(sample, centre, share, total, squares):
    stake = share / centre
    exact = bound(sample, stake, centre, least=0.0)
    for rounded in ({"total": total}, {"squares": squares}, {"total": total, "squares": squares}):
        assert bound(sample, stake, centre, least=0.0, **rounded) <= exact + 1e-9 * (1 + abs(exact))


@given(st.integers(0, 50), st.integers(0, 50), centres, shares)
def test_the_bound_is_exact_for_coins(zeros, ones, centre, share):
    sample, stake = [0.0] * zeros + [1.0] * ones, share / centre
    if sample:
        true = log_wealth(sample, stake, centre)
        assert bound(sample, stake, centre, least=0.0) == pytest.approx(true, rel=1e-12, abs=1e-12)


def test_the_bound_is_stable_for_a_billion_coins():
    n = 10**9
    for ones in (0, 1, n // 2, n - 1, n):
        for centre in (betting.MARGIN, 0.5, 1 - betting.MARGIN):
            for share in (1e-5, 0.75):
                stake = share / centre
                true = ones * math.log1p(stake * (1 - centre)) + (n - ones) * math.log1p(-stake * centre)
                found = float(betting.least_log_wealth(n, ones, ones, 0, stake, centre))
                assert found == pytest.approx(true, rel=1e-9, abs=1e-6)


def test_the_least_value_is_attained_by_a_distribution_with_the_same_moments():
    """The extremal sample has some rewards at the smallest value and the rest at the touching point."""
    low, touch, stake, centre = 0.25, 0.75, 1.2, 0.6
    sample = [low] * 7 + [touch] * 5
    assert bound(sample, stake, centre) == pytest.approx(log_wealth(sample, stake, centre), rel=1e-12)


def test_leading_axes_are_treated_alike():
    rng = np.random.default_rng(1)
    x = rng.random((3, 4, 20))
    sums = x.sum(-1), (x**2).sum(-1), x.min(-1)
    stakes = betting.stakes_of(np.full((3, 4), 0.4), 2.0, 9)
    assert stakes.shape == (3, 4, 9)
    whole = betting.least_log_wealth(20, *(s[..., None] for s in sums), stakes, 0.4)
    for i, j in itertools.product(range(3), range(4)):
        single = betting.least_log_wealth(20, *(s[i, j] for s in sums), stakes[i, j], 0.4)
        np.testing.assert_array_equal(whole[i, j], single)


LAWS = [  # values and probabilities
    ([0.0, 1.0], [0.5, 0.5]),
    ([0.0, 1.0], [0.02, 0.98]),
    ([0.0, 0.5, 1.0], [0.3, 0.4, 0.3]),
    ([0.1, 0.9], [0.7, 0.3]),
    ([0.5], [1.0]),
]


@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_factor_has_mean_at_most_one_if_both_arms_have_the_same_law(law, ratio):
    """Lemma 1 by enumeration: every outcome of a small block, with its probability."""
    values, chances = law
    size, rng = 2, np.random.default_rng(3)
    for _ in range(20):
        mean_b, mean_a = rng.random(2)
        centre = betting.centre_of(mean_b, mean_a, ratio)
        stakes = betting.stakes_of(centre, ratio, 9)
        spread = rng.random(2) / 4
        weights = betting.weights_of(
            stakes, ratio, mean_b - mean_a, tuple(spread), np.asarray(rng.random() / 9)
        )
        assert weights.sum() == pytest.approx(1.0)
        mean = 0.0
        for drawn in itertools.product(range(len(values)), repeat=(ratio + 1) * size):
            x = np.asarray([values[k] for k in drawn])
            b, a = x[: ratio * size], 1 - x[ratio * size :]
            ours = betting.least_log_wealth(len(b), b.sum(), (b**2).sum(), b.min(), stakes, centre)
            theirs = betting.least_log_wealth(
                len(a), a.sum(), (a**2).sum(), a.min(), ratio * stakes, 1 - centre
            )
            factor = math.exp(float(betting.log_mean_exp(ours + theirs, weights)))
            mean += factor * math.prod(chances[k] for k in drawn)
        assert mean <= 1 + 1e-12


@given(centres, st.integers(1, 16), st.integers(9, 40))
def test_no_stake_can_ruin_the_gambler(centre, ratio, number):
    stakes = betting.stakes_of(np.asarray(centre), ratio, number)
    assert (1 - stakes * centre > 0.2).all()
    assert (1 - ratio * stakes * (1 - centre) > 0.2).all()


def misses(draw, mean, alpha, trials, looks):
    """How often the interval misses the mean at any of these looks."""
    missed = 0
    for _ in range(trials):
        x = draw(max(looks))
        for n in looks:
            part = x[:n]
            low, high = betting.interval(n, part.sum(), (part**2).sum(), part.min(), part.max(), alpha)
            if not low <= mean <= high:
                missed += 1
                break
    return missed


@pytest.mark.slow
@pytest.mark.parametrize("law", ["coin", "rare", "beta"])
def test_the_interval_covers_the_mean_at_all_looks_together(law):
    """Null: the chance of a miss at any look is at most alpha = 0.1.

    400 trials with a fixed seed; the limit 75 is exceeded with probability below 1e-6 if the chance is 0.1.
    An interval that misses in 0.3 of the runs, as a fixed-sample one does at that many looks, is caught
    with probability above 0.999.
    """
    rng = np.random.default_rng(11)
    draws = {
        "coin": (lambda n: (rng.random(n) < 0.5).astype(float), 0.5),
        "rare": (lambda n: (rng.random(n) < 0.03).astype(float), 0.03),
        "beta": (lambda n: rng.beta(2, 6, n), 0.25),
    }
    draw, mean = draws[law]
    assert misses(draw, mean, 0.1, 400, (5, 10, 20, 40, 80, 160, 320, 640)) <= 75


def test_intervals_of_many_samples_are_those_of_each():
    rng = np.random.default_rng(6)
    n = rng.integers(0, 60, betting.MANY_SAMPLES + 300).astype(float)
    s = rng.binomial(n.astype(int), 0.3).astype(float)
    low, high = betting.intervals(n, s, s, 0 * n, 0 * n + 1, 0.05, rounded=0.01)
    for k in range(0, len(n), 40):
        own = betting.interval(n[k], s[k], s[k], 0.0, 1.0, 0.05, rounded=0.01)
        assert (low[k], high[k]) == pytest.approx(own, abs=1e-12)


def test_an_interval_from_rounded_sums_contains_the_exact_one():
    rng = np.random.default_rng(5)
    x = rng.beta(2, 3, 200)
    low, high = betting.interval(200, x.sum(), (x**2).sum(), x.min(), x.max(), 0.05)
    wide = betting.interval(200, x.sum() - 0.7, (x**2).sum() + 0.5, 0.0, 1.0, 0.05, rounded=0.8)
    assert wide[0] <= low < x.mean() < high <= wide[1]
    assert betting.interval(0, 0, 0, 0, 1, 0.05) == (0.0, 1.0)
