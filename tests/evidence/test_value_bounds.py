"""Intervals of weighted means at any time: they hold at every block, and are narrower than Hoeffding's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm.evidence.any_time import quotas
from bestarm.evidence.value_bounds import value_bounds
from bestarm.stats.sums import Sums
from evidence.recorded import coins, stars
from marking import slow_but
from rates import rate_is_below

ALPHA, TRIALS, WEIGHTS = 0.1, 300, np.array([0.5, 0.3, 0.2])


def played(draw, blocks=20):
    """The blocks of many options with the same distribution, which stand for independent trials."""
    rng = np.random.default_rng(31)
    shape = (TRIALS, len(WEIGHTS))
    return [draw(np.broadcast_to(quotas(WEIGHTS, k), shape), rng) for k in range(blocks)]


@pytest.mark.parametrize("means", slow_but([[0.9, 0.5, 0.1]], [[0.9, 0.5, 0.1], [0.02, 0.03, 0.01]]))
def test_the_interval_misses_the_weighted_mean_with_probability_at_most_alpha_at_any_look(means):
    """Looks after blocks 5 and 20; the null is a rate above alpha, the seen rate is below .02."""
    blocks = played(lambda sizes, rng: coins(sizes, np.array(means), rng))
    truth, missed = float(WEIGHTS @ means), np.zeros(TRIALS, dtype=bool)
    for look in (5, 20):
        low, high = value_bounds(blocks[:look], (TRIALS, 3), WEIGHTS, ALPHA)
        assert (low <= high).all()
        missed |= (low > truth) | (high < truth)
    assert rate_is_below(int(missed.sum()), TRIALS, ALPHA)


def test_it_is_much_narrower_than_hoeffding_s_where_the_variance_is_small():
    shares = np.array([0.0, 0.02, 0.96, 0.02, 0.0])
    blocks = played(lambda sizes, rng: stars(sizes, shares, rng))
    low, high = value_bounds(blocks, (TRIALS, 3), WEIGHTS, ALPHA)
    rows = sum(quotas(WEIGHTS, k) for k in range(20))
    hoeffding = math.sqrt(math.log(2 * 20 * 21 / ALPHA) / 2 * float((WEIGHTS**2 / rows).sum()))
    assert float(np.mean(high - low)) < 0.5 * 2 * hoeffding
    assert ((low < 0.5) & (high > 0.5)).mean() > 1 - ALPHA


def test_an_option_that_has_left_keeps_its_interval():
    rng = np.random.default_rng(5)
    first = [coins(np.full((2, 2), 30), np.array([0.6, 0.4]), rng) for _ in range(6)]
    both = value_bounds(first, (2, 2), np.array([0.5, 0.5]), ALPHA)
    gone = coins(np.array([[30, 30], [0, 0]]), np.array([0.6, 0.4]), rng)
    after = value_bounds([*first, gone], (2, 2), np.array([0.5, 0.5]), ALPHA)
    assert (after[0][1], after[1][1]) == (both[0][1], both[1][1])
    assert after[0][0] != both[0][0]


def test_a_grid_widens_the_interval_upwards():
    rng = np.random.default_rng(6)
    blocks = []
    for _ in range(8):
        x = np.floor(rng.random((50, 1, 2)) * 8) / 8
        parts = (np.full((1, 2), 50.0), x.sum(axis=0), (x**2).sum(axis=0), x.min(axis=0), x.max(axis=0))
        blocks.append(Sums(*parts))
    plain = value_bounds(blocks, (1, 2), np.array([0.5, 0.5]), ALPHA)
    wide = value_bounds(blocks, (1, 2), np.array([0.5, 0.5]), ALPHA, 1 / 8)
    assert wide[0][0] == plain[0][0]
    assert wide[1][0] > plain[1][0] + 0.1


def test_without_a_block_nothing_is_known():
    low, high = value_bounds([], (2, 3), WEIGHTS, ALPHA)
    assert (low.tolist(), high.tolist()) == ([0.0, 0.0], [1.0, 1.0])
