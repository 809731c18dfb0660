"""The limit, against published special cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import bestarm as ba
from bestarm.theory import kl, limit


@pytest.mark.parametrize(("sigma", "pulls"), [(1, 951), (3, 703), (7, 687), (15, 683)])
def test_the_paper_s_instance(sigma, pulls):
    assert round(limit(ba.Problem.paper_instance(sigma), 0.1).total) == pulls


@pytest.mark.parametrize(
    ("means", "shares"),
    [
        ([0.5, 0.45, 0.43, 0.4], [0.417, 0.390, 0.136, 0.057]),
        ([0.3, 0.21, 0.2, 0.19, 0.18], [0.336, 0.251, 0.177, 0.132, 0.104]),
    ],
)
def test_the_shares_of_garivier_and_kaufmann_s_experiments(means, shares):
    assert list(limit(ba.Problem.bernoulli([means]), 0.1).shares.values()) == pytest.approx(shares, abs=6e-4)


@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98))
def test_two_arms_are_chernoff_s_information(a, b):
    """For two arms 1/T* is kl(a, m), at the m between them with kl(a, m) = kl(b, m)."""
    if abs(a - b) < 1e-3:
        return
    m = brentq(lambda x: float(kl(a, x) - kl(b, x)), min(a, b), max(a, b), xtol=1e-15)
    found = limit(ba.Problem.bernoulli([[a, b]]), 0.1).total
    assert found == pytest.approx(float(kl(0.1, 0.9) / kl(a, m)), rel=1e-6)


@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(0.05, 0.7), min_size=1, max_size=3), min_size=1, max_size=3))
def test_no_other_allocation_does_better(rows):
    """Against a generic optimiser over all allocations, for the total and for the longest client."""
    rows[0] = [0.8, *rows[0]]
    problem = ba.Problem.bernoulli(rows)
    found = limit(problem, 0.1)
    mu = np.concatenate([np.asarray(r) for r in rows])
    client = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    rng = np.random.default_rng(1)

    def evidence(n):
        m = (n[0] * mu[0] + n[1:] * mu[1:]) / (n[0] + n[1:])
        return np.min(n[0] * kl(mu[0], m) + n[1:] * kl(mu[1:], m))

    for _ in range(300):
        n = rng.dirichlet(np.ones(len(mu)) * rng.uniform(0.3, 3)) + 1e-9
        n *= float(kl(0.1, 0.9)) / evidence(n)  # just enough evidence
        assert n.sum() >= found.total * (1 - 1e-6)
        assert max(np.bincount(client, weights=n)) >= found.longest * (1 - 1e-6)
    ideal = np.array(list(found.shares.values())) * found.total
    assert evidence(ideal) == pytest.approx(float(kl(0.1, 0.9)), rel=1e-6)


def test_more_clients_share_the_longest_client_s_pulls():
    one = limit(ba.Problem.bernoulli([[0.9, 0.8], [0.7, 0.6]]), 0.1)
    four = limit(ba.Problem.bernoulli([[0.9, 0.8], [0.7, 0.6]], clients=4), 0.1)
    assert four.longest == pytest.approx(one.longest / 4)
    assert four.total == pytest.approx(one.total)


@pytest.mark.parametrize("best", [1.0, 0.9, 0.5, 0.02, 0.001])
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.3, 0.999])
def test_extreme_means_follow_the_closed_form(best, share):
    rival = best * share
    found = limit(ba.Problem.bernoulli([[best, rival]]), 0.05)
    m = brentq(lambda x: float(kl(best, x) - kl(rival, x)), rival, best, xtol=1e-18, rtol=1e-14)
    assert found.total == pytest.approx(float(kl(0.05, 0.95) / kl(best, m)), rel=1e-6)


@pytest.mark.parametrize("gap", [1e-4, 1e-6, 1e-8, 1e-9])
def test_near_ties_follow_the_small_gap_formula(gap):
    """For two arms at p and p − g the limit tends to 8·p(1−p)/g² · kl(δ, 1−δ)."""
    found = limit(ba.Problem.bernoulli([[0.3 + gap, 0.3]]), 0.1).total
    assert found == pytest.approx(8 * 0.21 / gap**2 * float(kl(0.1, 0.9)), rel=2e-3)


def test_where_there_is_no_limit():
    assert limit(ba.Problem.bernoulli([[0.5]]), 0.1).total == 0
    assert limit(ba.Problem.bernoulli([[0.5, 0.4]]), 0.7).total == 0
    with pytest.raises(ba.InputError, match="not unique"):
        limit(ba.Problem.bernoulli([[0.5, 0.5]]), 0.1)
    with pytest.raises(ba.InputError, match="unknown"):
        limit(ba.Problem.from_rewards({"g": {"a": lambda rng: 0.0, "b": 0.1}}), 0.1)
    with pytest.raises(ba.InputError, match="delta"):
        limit(ba.Problem.bernoulli([[0.5, 0.4]]), 1.5)
