"""Every radius keeps one contract: it decreases, its inverse is exact, and it covers."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm.errors import InputError
from bestarm.stats.radii import MAX_COUNT, RADII, Radius, radius
from rates import rate_exceeds

every_radius = pytest.mark.parametrize("name", RADII)


def test_the_paper_s_radius_is_line_1_of_algorithm_1():
    t = 1234
    expected = np.sqrt(np.log(4 * 7 * 5 * t**2 / 0.1) / t)
    assert radius("paper", 7, 5, 0.1).alpha(t) == pytest.approx(expected, rel=1e-15)


def test_the_sharp_radius_is_that_of_erratum_6():
    t = 1234
    expected = np.sqrt(np.log(np.pi**2 * 7 * 5 * t**2 / (3 * 0.1)) / (2 * t))
    assert radius("sharp", 7, 5, 0.1).alpha(t) == pytest.approx(expected, rel=1e-15)


@every_radius
@pytest.mark.parametrize(("clients", "arms", "delta"), [(1, 2, 0.999), (3, 3, 0.1), (10**5, 10, 1e-9)])
def test_a_radius_decreases_over_the_integers_and_its_boundary_grows(name, clients, arms, delta):
    r = radius(name, clients, arms, delta)
    t = np.unique(np.concatenate([np.arange(1, 5000), np.geomspace(5000, 10**12, 2000).astype(np.int64)]))
    assert (np.diff(r.alpha(t)) < 0).all()
    assert (np.diff(r.boundary(t, 8.0)) > 0).all()


@every_radius
def test_the_inverse_is_exact_for_a_hundred_thousand_arguments(name):
    rng = np.random.default_rng(1)
    n = 100_000
    r = Radius(name, radius(name, 1, rng.integers(2, 10**6, n), 0.1).k, RADII[name][1])
    x = 10 ** rng.uniform(-5.5, 0.7, n)
    t = r.inverse(x)
    assert np.isfinite(t).all()
    assert (t >= 1).all()
    assert (t == np.floor(t)).all()
    assert (r.alpha(t) <= x).all()
    before = np.maximum(t - 1, 1)
    assert ((t == 1) | (r.alpha(before) > x)).all()


@every_radius
def test_the_inverse_at_values_of_the_radius_itself(name):
    r = radius(name, 3, 3, 0.1)
    t = np.arange(1, 20_000)
    assert (r.inverse(r.alpha(t)) == t).all()


@every_radius
def test_the_inverse_is_infinite_for_a_zero_gap_and_one_for_a_wide_gap(name):
    r = radius(name, 3, 3, 0.1)
    assert r.inverse([0.0, -1.0, 1e-9]).tolist() == [np.inf] * 3
    assert r.inverse([5.0, 1e6]).tolist() == [1.0, 1.0]
    assert r.alpha(MAX_COUNT) > 0


@every_radius
def test_one_at_a_time_or_all_at_once_gives_the_same_bits(name):
    """A machine evaluates one t, a kernel many: the results must be identical to the last bit."""
    r = radius(name, 3, 3, 0.1)
    t = np.random.default_rng(2).integers(1, 10**9, 4001)
    assert r.alpha(t).tolist() == [float(r.alpha(int(one))) for one in t]
    assert r.alpha(t.reshape(-1, 1)[::2]).ravel().tolist() == r.alpha(t)[::2].tolist()


def violations(r: Radius, arms: int, trials: int, horizon: int, rng: np.random.Generator) -> int:
    """The number of trials in which the mean of at least one of `arms` fair coins ever leaves its radius."""
    alpha = r.alpha(np.arange(1, horizon + 1))
    t = np.arange(1, horizon + 1)
    count = 0
    for _ in range(trials):
        means = np.cumsum(rng.random((arms, horizon)) < 0.5, axis=1) / t
        count += bool((np.abs(means - 0.5) > alpha).any())
    return count


@every_radius
def test_the_good_event_holds_with_probability_1_minus_delta(name):
    """Null: P(some mean leaves its radius) ≤ δ = 0.3; exact binomial test at 1e-6, 1500 trials.

    Power: a rate of 0.42 would be found with probability over 0.99.
    """
    rng = np.random.default_rng(3)
    assert not rate_exceeds(violations(radius(name, 1, 4, 0.3), 4, 1500, 1000, rng), 1500, 0.3)


def test_a_radius_that_is_too_narrow_is_detected():
    """Shows that the test above can fail."""
    narrow = Radius("narrow", np.asarray(8.0), 8.0)
    assert rate_exceeds(violations(narrow, 4, 400, 1000, np.random.default_rng(3)), 400, 0.3)


def test_an_unknown_radius_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match='Did you mean "sharp"'):
        radius("shapr", 1, 1, 0.1)
