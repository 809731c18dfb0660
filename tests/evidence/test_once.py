"""One look at recorded data: valid e-values, the power of the one tuned stake, and the traps around them.

Wrong verdicts are counted in 20,000 recorded data sets per case. The null is "the rate is above delta"; it is
rejected by the exact binomial test at 1e-6 (``rate_is_below``), so at the seen rates of .01 and less tests
pass with near certainty, and they fail if the true rate is above delta.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import fisher_exact

from bestarm.evidence.once import ORDERS, Claims, log_evalues, log_mean, log_wealth, pvalues
from bestarm.evidence.shuffles import block_sizes, draw
from bestarm.stats.fisher_exact import rejects
from bestarm.stats.sums import Sums
from evidence.recorded import blocks, coins, contest, split, stars
from marking import slow_but
from rates import laws_differ, mean_exceeds, rate_exceeds, rate_is_below

DELTA, SETS = 0.05, 20_000
TIED = {
    "two options, one site": ([[200], [200]], [[0.5], [0.5]], [1.0]),
    "rare successes, unequal rows": ([[900], [120]], [[0.02], [0.02]], [1.0]),
    "sites that differ, the other way round": (
        [[37, 200, 90], [300, 25, 60]],
        [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]],
        [1 / 3] * 3,
    ),
    "five options, weights 4 to 1": (
        [[100, 20], [40, 200], [60, 60], [300, 30], [25, 25]],
        [[0.7, 0.3]] * 5,
        [0.8, 0.2],
    ),
}


def shapes(name):
    rows, means, weights = (np.array(x) for x in TIED[name])
    return rows, means, weights, Claims.best(len(rows))


@pytest.mark.parametrize("name", slow_but(list(TIED)[:3], TIED))
def test_tied_options_are_ruled_out_with_probability_at_most_delta(name):
    rows, means, weights, claims = shapes(name)
    drawn = coins(blocks(rows, SETS), means, np.random.default_rng(11))
    logs = log_wealth(drawn, weights, claims, DELTA)[:, -1]
    wrong = (logs >= math.log(1 / DELTA)).sum(axis=0)
    assert all(rate_is_below(int(count), SETS, DELTA) for count in wrong)
    assert not any(mean_exceeds(values, 1.0) for values in np.exp(logs).T)


def test_ratings_that_are_tied_keep_the_promise():
    rows, _, weights, claims = shapes("five options, weights 4 to 1")
    shares = np.array([0.1, 0.1, 0.2, 0.3, 0.3])
    drawn = stars(blocks(rows, 4000), shares, np.random.default_rng(12))
    logs = log_wealth(drawn, weights, claims, DELTA)[:, -1]
    assert all(rate_is_below(int(n), 4000, DELTA) for n in (logs >= math.log(20)).sum(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two options, one site", "sites that differ, the other way round"])
def test_the_mean_over_orders_keeps_the_promise(name):
    """1,000 data sets, each with 100 orders of its own rows; the benchmark evidence_validity has 20,000."""
    rows, means, weights, claims = shapes(name)
    rng, sets = np.random.default_rng(13), 1000
    wrong = np.zeros(len(rows), dtype=int)
    for _ in range(5):
        ones = np.repeat(rng.binomial(rows, means, size=(sets // 5, *rows.shape)), ORDERS, axis=0)
        drawn = split(ones, blocks(rows, len(ones)), rng)
        logs = log_wealth(drawn, weights, claims, DELTA)[:, -1].reshape(-1, ORDERS, len(rows))
        wrong += (log_mean(np.moveaxis(logs, 1, 0)) >= math.log(1 / DELTA)).sum(axis=0)
    assert all(rate_is_below(int(count), sets, DELTA) for count in wrong)


def test_running_maxima_of_the_wealth_are_no_e_values():
    rows, means, weights, claims = shapes("two options, one site")
    drawn = coins(blocks(rows, SETS), means, np.random.default_rng(14))
    path = log_wealth(drawn, weights, claims, DELTA)
    assert mean_exceeds(np.exp(path.max(axis=1))[:, 0], 2.0)


@pytest.mark.slow
def test_shuffling_all_rows_again_at_every_look_breaks_the_promise():
    """Null: the rate is at most delta. The seen rate is .09 after 200 looks, so the power is near 1."""
    rng, sets, step = np.random.default_rng(15), 2000, 20
    ones, wrong = np.zeros((sets, 2, 1), dtype=int), np.zeros(sets, dtype=bool)
    for look in range(1, 201):
        ones = ones + rng.binomial(step, 0.5, size=ones.shape)
        drawn = split(ones, blocks(np.full((2, 1), step * look), sets), rng)
        logs = log_wealth(drawn, np.ones(1), Claims.best(2), DELTA)[:, -1, 0]
        wrong |= logs >= math.log(1 / DELTA)
    assert rate_exceeds(int(wrong.sum()), sets, DELTA)


def test_looks_declared_in_advance_keep_the_promise():
    """Σ E/N over N = 5 looks at growing data, with every row shuffled anew at each look."""
    rng, sets = np.random.default_rng(16), 4000
    ones, total = np.zeros((sets, 2, 1), dtype=int), np.zeros(sets)
    for look in range(1, 6):
        ones = ones + rng.binomial(100, 0.5, size=ones.shape)
        drawn = split(ones, blocks(np.full((2, 1), 100 * look), sets), rng)
        total += np.exp(log_wealth(drawn, np.ones(1), Claims.best(2), DELTA / 5)[:, -1, 0]) / 5
    assert rate_is_below(int((total >= 1 / DELTA).sum()), sets, DELTA)
    assert not mean_exceeds(total, 1.0)


# Power with 1,000 rows each, p = .5 against .5 + x, by the theory: of the e-value and of Fisher's test.
POWER = {0.05: (0.42, 0.71), 0.06: (0.59, 0.86), 0.08: (0.87, 0.97), 0.10: (0.98, 1.00)}


@pytest.mark.parametrize("x", slow_but([0.06], POWER))
def test_the_power_is_that_of_the_theory(x):
    """100 data sets: four standard errors are at most .2."""
    rng, sets = np.random.default_rng(17), 100
    found = fisher = 0
    for seed in range(sets):
        ones = rng.binomial(1000, [0.5, 0.5 + x])
        two = contest([[0, 1]] * 2, [[1000 - n, n] for n in ones])
        found += log_evalues(two, Claims.best(2), DELTA, seed)[0] >= math.log(20)
        fisher += pvalues(two.sums, Claims.best(2))[0] <= DELTA
    wide = 4 * math.sqrt(0.25 / sets)
    assert abs(found / sets - POWER[x][0]) < wide
    assert abs(fisher / sets - POWER[x][1]) < wide
    assert fisher >= found


def test_the_answer_hardly_depends_on_the_seed():
    two = contest([[0, 1]] * 2, [[500, 500], [430, 570]])
    logs = [log_evalues(two, Claims.best(2), DELTA, seed)[0] for seed in range(10)]
    assert np.std(logs) < 0.15
    assert log_evalues(two, Claims.best(2), DELTA, 3)[0] == logs[3]


def test_one_block_of_bets_is_the_formula_of_the_theory():
    """Two options, one site, the second block by hand."""
    total = np.array([[[[4.0], [7.0]], [[5.0], [8.0]]]])
    sizes = np.array([[[[10.0], [10.0]], [[20.0], [20.0]]]])
    drawn = Sums(sizes, total, total, np.zeros(sizes.shape), np.ones(sizes.shape))
    path = log_wealth(drawn, np.ones(1), Claims.best(2), DELTA)[0]
    pa, pb = 4.5 / 11, 7.5 / 11
    m = (pa + pb) / 2
    va, vb = ((s - 2 * m * s + 10 * m**2 + 4 * m * (1 - m)) / 14 for s in (4, 7))
    v_table, v_block = va / 30 + vb / 30, va / 20 + vb / 20
    stake = min(math.sqrt(2 * math.log(20) * v_table) / v_block, 0.75 * min(20 / m, 20 / (1 - m)))
    up, down = stake / 20, stake / 20
    hand = 8 * math.log1p(up * (1 - m)) + 12 * math.log1p(-up * m)
    hand += 5 * math.log1p(-down * (1 - m)) + 15 * math.log1p(down * m)
    assert path[1, 0] - path[0, 0] == pytest.approx(hand, rel=1e-12)


def test_without_earlier_blocks_there_is_no_bet_on_three_options():
    three = contest([[0, 1]] * 3, [[1, 0], [50, 50], [10, 90]])
    assert log_evalues(three, Claims.best(3), DELTA, 1) == pytest.approx(np.zeros(3), abs=1e-12)


def test_counts_and_rows_shuffled_one_by_one_have_the_same_law():
    """The sums of the second block in 4,000 orders: by counts, row by row, and by an explicit shuffle."""
    values = np.array([0.0, 0.3, 0.5, 1.0])
    many, few = [200, 125, 150, 110], [12, 9, 10, 8]  # above and below 50 rows per value
    both = contest([values, values], [many, few])
    sizes = block_sizes(both.rows)
    drawn = draw(both, sizes, 4000, 18, 0)
    rng = np.random.default_rng(20)
    for j, counts in enumerate((many, few)):
        rows = np.repeat(values, counts)
        first, second = np.cumsum(sizes[:2, j, 0])
        explicit = np.array([rng.permutation(rows)[first:second].sum() for _ in range(4000)])
        assert not laws_differ(drawn.total[:, 1, j, 0], explicit)
        assert np.allclose(drawn.total[:, :, j].sum(axis=1), rows.sum())
        assert np.allclose(drawn.squares[:, :, j].sum(axis=1), (rows**2).sum())


def test_coins_in_blocks_have_the_law_of_shuffled_rows():
    two = contest([[0, 1], [0, 1]], [[30, 21], [60, 44]])
    sizes = block_sizes(two.rows)
    drawn = draw(two, sizes, 4000, 21, 0)
    rng = np.random.default_rng(22)
    rows = np.repeat([0.0, 1.0], [60, 44])
    explicit = np.array([rng.permutation(rows)[: sizes[0, 1, 0]].sum() for _ in range(4000)])
    assert not laws_differ(drawn.total[:, 0, 1, 0], explicit)
    assert (drawn.total.sum(axis=1) == [[21.0], [44.0]]).all()
    assert (drawn.count == sizes).all()


def test_large_cells_in_pieces_are_random_orders_of_their_rows():
    """12,000 distinct values in each of 20 cells: the sums of a block have the law of a random subset."""
    rng = np.random.default_rng(23)
    values = np.sort(rng.random(12_000))
    large = contest([values] * 20, [np.ones(12_000)] * 20)
    sizes = block_sizes(large.rows)
    drawn = draw(large, sizes, 100, 1, 0)
    assert (drawn.count.sum(axis=1) == 12_000).all()
    assert np.allclose(drawn.total.sum(axis=1), values.sum())
    mean = drawn.total[:1, 2] / drawn.count[:1, 2]  # one order of each cell: these are independent
    error = values.std() * np.sqrt((1 - 0.1) / 1200)
    scores = (mean.ravel() - values.mean()) / error
    assert 0.3 < scores.std() < 2.2
    assert abs(scores.mean()) < 5 / np.sqrt(20)


def test_a_grid_never_raises_the_evidence():
    """Champions count at the lower end of the grid, rivals at the upper one."""
    rng, step = np.random.default_rng(24), 2.0**-5
    for _ in range(20):
        fine = np.stack([rng.random(100), rng.random(100) ** 0.5], axis=-1).reshape(1, 1, 100, 2)
        path = []
        for x, grid in ((fine, 0.0), (np.floor(fine / step) * step, step)):
            total, squares = (part.sum(axis=2)[..., None] for part in (x, x**2))
            n, zero = np.full(total.shape, 100.0), np.zeros(total.shape)
            block = Sums(n, total, squares, zero, zero + 1)
            path.append(log_wealth(block, np.ones(1), Claims.best(2), DELTA, grid)[0, 0])
        assert (path[1] < path[0]).all()


def test_fisher_tests_each_other_option_at_its_share_of_delta():
    three = contest([[0, 1]] * 3, [[60, 40], [50, 50], [30, 70]])
    p = [fisher_exact([[s[1], s[0]], [40, 60]], alternative="greater").pvalue for s in ([50, 50], [30, 70])]
    assert pvalues(three.sums, Claims.best(3))[0] == pytest.approx(2 * min(p), rel=1e-9)


def test_tied_coins_are_ruled_out_by_fisher_with_probability_at_most_delta():
    rng = np.random.default_rng(25)
    for p in (0.03, 0.5):
        ones = rng.binomial([400, 90, 60], p, size=(SETS, 3))
        lost = [rejects(ones[:, 0], ones[:, k], 400, DELTA / 2, (0, 90, 60)[k]) for k in (1, 2)]
        assert rate_is_below(int((lost[0] | lost[1]).sum()), SETS, DELTA * 1.2)
        assert not rate_exceeds(int((lost[0] | lost[1]).sum()), SETS, DELTA)


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_comparisons_with_a_control_are_all_true_with_probability_at_least_1_minus_delta(margin):
    """Two options equal to the control, or at the edge of the margin: any claim of a difference is wrong."""
    rng, sets = np.random.default_rng(26), 4000
    claims = Claims.control(3, 0, margin)
    level = DELTA / ((4 if margin else 2) * 2)
    rows = np.array([[200, 80], [100, 100], [60, 300]])
    means = np.array([[0.5, 0.3], [0.5 + margin, 0.3 + margin], [0.5 - margin, 0.3 - margin]])
    drawn = coins(blocks(rows, sets), means, rng)
    logs = log_wealth(drawn, np.array([0.5, 0.5]), claims, level)[:, -1]
    rejected = logs >= math.log(1 / level)
    wrong = rejected[:, :4].any(axis=1)
    if margin:  # within the margin is wrong for neither option: they lie on its edge; both claims would be
        wrong |= rejected[:, 4] | rejected[:, 7]
    assert rate_is_below(int(wrong.sum()), sets, DELTA)
