"""Intervals by bets, at any time and once: they hold, and are narrower than Hoeffding's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm.evidence.any_time import quotas
from bestarm.evidence.value_bounds import Blocks
from bestarm.stats.sums import Sums
from evidence.recorded import coins, contest, stars
from marking import slow_but
from rates import rate_is_below

ALPHA, TRIALS, WEIGHTS = 0.1, 300, np.array([0.5, 0.3, 0.2])


def played(draw, blocks=20):
    """The blocks of many options with the same distribution, which stand for independent trials."""
    rng = np.random.default_rng(31)
    shape = (TRIALS, len(WEIGHTS))
    return [draw(np.broadcast_to(quotas(WEIGHTS, k), shape), rng) for k in range(blocks)]


def value_bounds(blocks, weights, alpha, grid=0.0):
    made = Blocks.at_any_time(blocks, weights, grid)
    return made.values(np.full(blocks[0].count.shape[0], alpha))


@pytest.mark.parametrize("means", slow_but([[0.9, 0.5, 0.1]], [[0.9, 0.5, 0.1], [0.02, 0.03, 0.01]]))
def test_the_interval_misses_the_weighted_mean_with_probability_at_most_alpha_at_any_look(means):
    """Looks after blocks 5 and 20; the null is a rate above alpha, the seen rate is below .02."""
    blocks = played(lambda sizes, rng: coins(sizes, np.array(means), rng))
    truth, missed = float(WEIGHTS @ means), np.zeros(TRIALS, dtype=bool)
    for look in (5, 20):
        low, high = value_bounds(blocks[:look], WEIGHTS, ALPHA)
        assert (low <= high).all()
        missed |= (low > truth) | (high < truth)
    assert rate_is_below(int(missed.sum()), TRIALS, ALPHA)


def test_it_is_much_narrower_than_hoeffding_s_where_the_variance_is_small():
    shares = np.array([0.0, 0.02, 0.96, 0.02, 0.0])
    blocks = played(lambda sizes, rng: stars(sizes, shares, rng))
    low, high = value_bounds(blocks, WEIGHTS, ALPHA)
    rows = sum(quotas(WEIGHTS, k) for k in range(20))
    hoeffding = math.sqrt(math.log(2 * 20 * 21 / ALPHA) / 2 * float((WEIGHTS**2 / rows).sum()))
    assert float(np.mean(high - low)) < 0.5 * 2 * hoeffding
    assert ((low < 0.5) & (high > 0.5)).mean() > 1 - ALPHA


def test_an_option_that_has_left_keeps_its_interval():
    rng = np.random.default_rng(5)
    first = [coins(np.full((2, 2), 30), np.array([0.6, 0.4]), rng) for _ in range(6)]
    both = value_bounds(first, np.array([0.5, 0.5]), ALPHA)
    gone = coins(np.array([[30, 30], [0, 0]]), np.array([0.6, 0.4]), rng)
    after = value_bounds([*first, gone], np.array([0.5, 0.5]), ALPHA)
    assert (after[0][1], after[1][1]) == (both[0][1], both[1][1])
    assert after[0][0] != both[0][0]


def test_a_grid_widens_the_interval_upwards():
    rng = np.random.default_rng(6)
    blocks = []
    for _ in range(8):
        x = np.floor(rng.random((50, 1, 2)) * 8) / 8
        parts = (np.full((1, 2), 50.0), x.sum(axis=0), (x**2).sum(axis=0), x.min(axis=0), x.max(axis=0))
        blocks.append(Sums(*parts))
    plain = value_bounds(blocks, np.array([0.5, 0.5]), ALPHA)
    wide = value_bounds(blocks, np.array([0.5, 0.5]), ALPHA, 1 / 8)
    assert wide[0][0] == plain[0][0]
    assert wide[1][0] > plain[1][0] + 0.1


def test_without_a_block_there_are_no_bounds():
    assert Blocks.at_any_time([], WEIGHTS) is None


def recorded(draw, rows, sets):
    """A table of independent data sets, each an option with cells at all sites."""
    rng = np.random.default_rng(32)
    cells = [draw(s, rows, rng) for _ in range(sets) for s in range(len(WEIGHTS))]
    values, counts = zip(*((v[c > 0], c[c > 0]) for v, c in cells), strict=True)
    return contest(list(values), list(counts), list(WEIGHTS))


def coin_cell(means):
    def draw(site, rows, rng):
        ones = int(rng.binomial(rows, means[site]))
        return np.array([0.0, 1.0]), np.array([rows - ones, ones])

    return draw


def star_cell(site, rows, rng):
    return np.arange(5) / 4, rng.multinomial(rows, [0.05, 0.0, 0.8, 0.05, 0.1])


CELLS = {
    "sites that differ": (coin_cell([0.9, 0.5, 0.1]), float(WEIGHTS @ [0.9, 0.5, 0.1])),
    "rare": (coin_cell([0.02, 0.03, 0.01]), float(WEIGHTS @ [0.02, 0.03, 0.01])),
    "stars": (star_cell, float(np.arange(5) / 4 @ [0.05, 0.0, 0.8, 0.05, 0.1])),
}


@pytest.mark.parametrize("name", slow_but(["sites that differ"], CELLS))
@pytest.mark.parametrize("rows", slow_but([150], [10, 150]))
def test_one_look_misses_a_value_or_a_lead_with_probability_at_most_alpha(name, rows):
    """Each option is compared with one of the same value. Null: the rate is above alpha; level 1e-6.

    The seen rates are about .02. At that rate the null is rejected with probability .9999 for values and .85
    for leads, of which there are half as many.
    """
    draw, truth = CELLS[name]
    blocks = Blocks.once(recorded(draw, rows, 2 * TRIALS), 100, 5, ALPHA / 2)
    low, high = blocks.values(np.full(2 * TRIALS, ALPHA))
    assert (low <= high).all()
    assert rate_is_below(int(((low > truth) | (high < truth)).sum()), 2 * TRIALS, ALPHA)
    first = np.arange(TRIALS)
    low, high = blocks.leads(first, first + TRIALS, np.full(TRIALS, ALPHA))
    assert (low <= high).all()
    assert rate_is_below(int(((low > 0) | (high < 0)).sum()), TRIALS, ALPHA)


def test_the_stake_is_the_same_for_every_level_so_that_intervals_are_nested():
    made = Blocks.once(recorded(CELLS["stars"][0], 100, 10), 100, 5, 0.01)
    wide, narrow = made.values(np.full(10, 0.02)), made.values(np.full(10, 0.1))
    assert (wide[0] < narrow[0]).all()
    assert (wide[1] > narrow[1]).all()


@pytest.mark.parametrize(("name", "share"), [("sites that differ", 0.85), ("rare", 0.5), ("stars", 0.65)])
def test_one_look_is_narrower_than_hoeffding_s_interval(name, share):
    """Half the width at rare successes."""
    rows = 1000
    made = Blocks.once(recorded(CELLS[name][0], rows, 20), 100, 5, ALPHA / 2)
    low, high = made.values(np.full(20, ALPHA))
    hoeffding = math.sqrt(math.log(2 / ALPHA) / 2 * float((WEIGHTS**2 / rows).sum()))
    assert float(np.mean(high - low)) < share * 2 * hoeffding
