"""Exact tests and intervals: against rational arithmetic where it is feasible, SciPy where it is not."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, hypergeom

from bestarm.errors import InputError
from bestarm.stats.fisher_exact import MANY, fisher_pvalue, rejects
from bestarm.stats.intervals import clopper_pearson


def rational(sa: int, sb: int, n: int, m: int) -> Fraction:
    ones = sa + sb
    ways = sum(comb(ones, j) * comb(n + m - ones, m - j) for j in range(sb, min(ones, m) + 1))
    return Fraction(ways, comb(n + m, m))


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_every_table_of_small_counts(n, m):
    sa, sb = np.meshgrid(np.arange(n + 1), np.arange(m + 1))
    found = fisher_pvalue(sa, sb, n, m)
    exact = [
        [float(rational(int(a), int(b), n, m)) for a, b in zip(*row, strict=True)]
        for row in zip(sa, sb, strict=True)
    ]
    assert found == pytest.approx(np.array(exact), rel=1e-12)


@settings(max_examples=300)
@given(st.integers(1, 400), st.integers(1, 400), st.data())
def test_larger_counts_in_logarithms(n, m, data):
    sa, sb = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    exact = rational(sa, sb, n, m)
    expected = log(exact.numerator) - log(exact.denominator)
    assert float(fisher_pvalue(sa, sb, n, m, log=True)) == pytest.approx(expected, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("n", [10**3, 10**5, 10**6])
@pytest.mark.parametrize("z", [0.01, 0.5, 2.0, 5.0, 12.0, 30.0])
@pytest.mark.parametrize("p", [0.001, 0.3, 0.97])
def test_large_counts_against_scipy(n, z, p):
    sd = np.sqrt(2 * n * p * (1 - p))
    sa, sb = max(0, int(n * p - z * sd / 2)), min(n, int(n * p + z * sd / 2))
    expected = hypergeom.sf(sb - 1, 2 * n, sa + sb, n)
    if expected > 1e-300:
        assert float(fisher_pvalue(sa, sb, n)) == pytest.approx(expected, rel=1e-7)


def test_a_billion_rewards_and_tails_far_below_1e_300():
    """Continuity across sizes: at a fixed z-score the p-value tends to the normal tail."""
    for z, normal in ((2.0, -3.7831843336820326), (10.0, -53.23128515051247)):
        n, p = 10**9, 0.3
        half = z * np.sqrt(2 * n * p * (1 - p)) / 2
        found = float(fisher_pvalue(round(n * p - half), round(n * p + half), n, log=True))
        assert found == pytest.approx(normal, rel=1e-3)
    assert float(fisher_pvalue(10**8, 5 * 10**8, 10**9, log=True)) < -1e8
    assert float(fisher_pvalue(0, 10**9, 10**9, log=True)) == pytest.approx(-2e9 * np.log(2), rel=1e-6)
    assert float(fisher_pvalue(0, 600, 600, log=True)) == pytest.approx(-log(comb(1200, 600)), rel=1e-12)


def test_unequal_sizes_keep_their_digits():
    """b has nearly all of the rewards; the law of a's ones is worked out in rationals."""
    n, m, sa, sb = 7, 10**9, 5, 2 * 10**8
    ones, total = sa + sb, n + m
    below = Fraction(0)
    for j in range(sa + 1):  # P(a holds j of the ones)
        weight = Fraction(comb(n, j))
        for i in range(j):
            weight *= Fraction(ones - i, total - i)
        for i in range(n - j):
            weight *= Fraction(total - ones - i, total - j - i)
        below += weight
    assert float(fisher_pvalue(sa, sb, n, m)) == pytest.approx(float(below), rel=1e-11)


@pytest.mark.parametrize("counts", [(-1, 2, 5), (6, 2, 5), (1, 6, 5), (float("nan"), 2, 5), (0, 0, 0)])
def test_invalid_counts_are_refused(counts):
    with pytest.raises(InputError, match="not counts"):
        fisher_pvalue(*counts)


def test_direct_and_smooth_sums_agree_where_they_meet(monkeypatch):
    from bestarm.stats import fisher_exact

    sa, sb, n = 300_000 - np.array([50, 900, 1800]), 300_000 + np.array([50, 900, 1800]), 10**6
    smooth = fisher_pvalue(sa, sb, n, log=True)
    monkeypatch.setattr(fisher_exact, "DIRECT_TERMS", 10**6)
    assert smooth == pytest.approx(fisher_pvalue(sa, sb, n, log=True), abs=1e-10)


@given(st.integers(1, 5000), st.data())
def test_it_rises_with_a_and_falls_with_b(n, data):
    sa, sb = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    p, more_a, more_b = fisher_pvalue([sa, sa + 1, sa], [sb, sb, sb + 1], n, log=True)
    assert more_a >= p - 1e-12
    assert more_b <= p + 1e-12


@settings(max_examples=200)
@given(st.integers(1, 10**6), st.data(), st.floats(1e-12, 0.5))
def test_rejecting_is_a_p_value_at_most_the_level(n, data, level):
    sa = data.draw(st.integers(0, n))
    sb = data.draw(st.integers(max(0, sa - 10), min(n, sa + int(6 * np.sqrt(n)) + 1)))
    assert bool(rejects(sa, sb, n, level)) == bool(fisher_pvalue(sa, sb, n, log=True) <= np.log(level))


def test_one_at_a_time_or_all_at_once_decides_the_same():
    rng = np.random.default_rng(1)
    sa = rng.integers(0, 2000, (40, 25))
    sb = np.minimum(sa + rng.integers(0, 150, sa.shape), 2000)
    together = rejects(sa, sb, 2000, 1e-3)
    assert together.any()
    assert not together.all()
    alone = [bool(rejects(a, b, 2000, 1e-3)) for a, b in zip(sa.ravel(), sb.ravel(), strict=True)]
    assert together.ravel().tolist() == alone


@settings(max_examples=30)
@given(st.integers(1, 10**5), st.integers(1, 10**5), st.floats(1e-9, 0.4), st.integers(0, 2**32))
def test_many_arms_against_few_rivals_are_decided_as_each_alone(n, m, level, seed):
    rng = np.random.default_rng(seed)
    means, many = rng.random(3), 1 + MANY // 3
    sb = rng.binomial(m, means)[:, None]
    spread = 8 * np.sqrt(n * (1 + n / m))
    sa = np.clip(n * means[:, None] - spread * rng.random((3, many)), 0, n).astype(np.int64)
    together = rejects(sa, sb, n, level, m)
    assert together.shape == sa.shape
    assert (together == rejects(sa, sb, n, np.full(sa.shape, level), m)).all()


@given(st.integers(1, 10**6), st.data(), st.sampled_from([0.3, 1e-3, 1e-9]))
def test_the_intervals_are_clopper_and_pearson_s(n, data, level):
    s = data.draw(st.integers(0, n))
    low, high = clopper_pearson(s, n, level)
    assert float(low) == pytest.approx(beta.ppf(level, s, n - s + 1) if s else 0.0, rel=1e-6, abs=1e-12)
    assert float(high) == pytest.approx(beta.isf(level, s + 1, n - s) if s < n else 1.0, rel=1e-6)
