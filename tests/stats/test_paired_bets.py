"""Bets on pairs: a fair game or worse under any dependence inside a pair, computed from the sums of Y."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Sides
from bestarm.stats.pairs import (
    PairedBets,
    PlayedPairs,
    paired_bets,
    paired_log_factor,
    paired_log_wealths,
)
from bestarm.stats.sums import Sums
from marking import examples, slow_but
from rates import rate_exceeds

numbers = st.integers(0, 2**32)
margins = st.sampled_from([0.0, 0.1, -0.1, 0.6])


def of_rows(differences):
    """The sums of Y = (1 + D)/2; the last axis is the row."""
    y = (1 + np.asarray(differences, dtype=float)) / 2
    count = np.full(y.shape[:-1], float(y.shape[-1]))
    return Sums(count, y.sum(-1), (y**2).sum(-1), y.min(-1, initial=1.0), y.max(-1, initial=0.0))


def of_coins(n, won, lost):
    """The sums of Y of n subjects, of which `won` have D = 1 and `lost` have D = −1."""
    n, won, lost = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(n, won, lost))
    total = (n + won - lost) / 2
    return Sums(n, total, (won + total) / 2, np.zeros_like(n), np.ones_like(n))


def past(rng, sites, n=20):
    """Rewards of b and a and their pairs in earlier blocks, by site."""
    x = rng.random((2, sites, n)) < rng.random((2, sites, 1))
    b, a = (Sums(np.full(sites, float(n)), x[k].sum(1), x[k].sum(1), np.zeros(sites), np.ones(sites))
            for k in (0, 1))  # fmt: skip
    met = of_rows(x[0].astype(float) - x[1]) if rng.random() < 0.5 else Sums.none(sites)
    return b, a, met


def tied_laws(rng, sites, weights, margin):
    """A law of (X_b, X_a) in {0, 1}² at each site, such that b is ahead by exactly `margin` on average."""
    laws = rng.dirichlet(np.full(4, rng.choice([0.2, 1.0])), size=sites)  # of 11, 10, 01, 00
    for _ in range(200):
        short = weights @ (laws[:, 1] - laws[:, 2]) - margin
        if abs(short) < 1e-12:
            break
        to = np.eye(4)[2 if short > 0 else 1]  # move some of the mass there
        part = rng.random((sites, 1))
        moved = part * (to - laws)
        change = weights @ (moved[:, 1] - moved[:, 2])
        laws = laws + moved * min(1.0, -short / change)
    return laws


@settings(max_examples=examples(300), deadline=None)
@given(numbers, margins)
def test_the_factor_of_a_block_has_mean_at_most_one_under_any_joint_law(seed, margin):
    """All outcomes of all subjects of all sites are enumerated; sites, pulls and weights are arbitrary."""
    rng = np.random.default_rng(seed)
    sites = int(rng.integers(1, 4))
    weights, pulls = rng.dirichlet(np.ones(sites)), rng.integers(1, 4, sites)
    laws = tied_laws(rng, sites, weights, margin)
    assert weights @ (laws[:, 1] - laws[:, 2]) == pytest.approx(margin)
    bets = paired_bets(*past(rng, sites), pulls, weights, 9, margin)
    outcomes = [[(won, lost) for won in range(n + 1) for lost in range(n + 1 - won)] for n in pulls.tolist()]
    chances = [
        [multinomial.pmf((w, v, n - w - v), n, (law[1], law[2], law[0] + law[3])) for w, v in own]
        for law, n, own in zip(laws, pulls.tolist(), outcomes, strict=True)
    ]
    rows = np.array(list(itertools.product(*outcomes)))
    chance = np.array([math.prod(c) for c in itertools.product(*chances)])
    met = of_coins(np.broadcast_to(pulls, rows.shape[:2]), rows[..., 0], rows[..., 1])
    factors = np.exp(paired_log_factor(bets, met, np.ones(sites, dtype=bool)))
    assert chance.sum() == pytest.approx(1.0)
    assert float(chance @ factors) <= 1 + 1e-9


def test_the_factor_has_mean_one_at_a_tie_and_grows_if_b_is_ahead():
    nothing = Sums.none(1)
    bets = paired_bets(nothing, nothing, nothing, [1.0], [1.0], 9)
    won, lost, same = (
        math.exp(float(paired_log_factor(bets, of_coins([1], [w], [v]), np.array([True]))))
        for w, v in ((1, 0), (0, 1), (0, 0))
    )
    assert (won + lost) / 2 == pytest.approx(1.0)
    assert same == pytest.approx(1.0)
    assert won > 1.2


@given(numbers, margins, st.booleans())
def test_the_wealth_is_the_product_over_rows_or_less(seed, margin, coins):
    rng = np.random.default_rng(seed)
    sites, n = int(rng.integers(1, 4)), int(rng.integers(1, 30))
    weights = rng.dirichlet(np.ones(sites))
    bets = paired_bets(*past(rng, sites), np.full(sites, n), weights, 9, margin)
    x = rng.random((2, sites, n)) ** rng.choice([0.2, 1, 5])
    x = (x < 0.5).astype(float) if coins else x
    d = x[0] - x[1]
    stakes = bets.stakes[:, None, None] * (weights / n)[:, None]
    assert (stakes * (1 + margin) < 1).all()
    direct = np.log(1 + stakes * (d - margin)).sum((1, 2))
    found = paired_log_wealths(bets, of_rows(d), np.full(sites, coins))
    if coins:
        assert found == pytest.approx(direct, rel=1e-9, abs=1e-9)
    assert (found <= direct + 1e-9).all()
    rounded = of_rows(d)
    rounded = Sums(rounded.count, rounded.total - rng.random(), rounded.squares + rng.random(),
                   rounded.least * rng.random(), rounded.most)  # fmt: skip
    worse = paired_log_wealths(bets, rounded, np.zeros(sites, dtype=bool))
    assert (worse <= direct + 1e-9).all()


def test_stakes_suit_the_spread_of_differences_and_not_that_of_the_options():
    n, half = np.array([400.0]), np.array([200.0])
    b, a = (Sums(n, half + lead, half + lead, 0 * n, 0 * n + 1) for lead in (20, 0))
    close, apart = of_coins(n, [20], [0]), of_coins(n, [110], [90])
    mean = [
        float((bets.stakes * bets.weights).sum())
        for bets in (paired_bets(b, a, met, [100.0], [1.0], 9) for met in (close, apart, Sums.none(1)))
    ]
    assert mean[0] > 2 * mean[1]
    assert mean[2] == pytest.approx(mean[1], rel=0.1)  # half of the subjects differ if they are independent


@pytest.mark.parametrize("correlation", slow_but([-1], [1, -1]))
def test_a_bound_on_a_lead_holds_for_dependent_pairs_at_a_stopping_time_that_seeks_a_miss(correlation):
    """The bound is checked after every block. Null: a miss at any of them has probability at most α = 0.1.

    False-alarm rate 1e-6 (exact binomial test); a rate of 0.13 is seen with probability above 0.95.
    """
    rng, alpha, trials = np.random.default_rng(5), 0.1, 5_000
    means, weights = np.array([[0.6, 0.2], [0.3, 0.45]]), np.array([0.7, 0.3])
    lead, missed = float(weights @ (means[0] - means[1])), np.zeros((2, trials), dtype=bool)
    blocks, mirrored = [], []
    for n in (4, 8, 16, 32, 64):
        u = rng.random((trials, 2, n))
        b = u < means[0][:, None]
        a = (u if correlation > 0 else 1 - u) < means[1][:, None]
        met, coins = of_rows(b.astype(float) - a), np.ones(2, dtype=bool)
        blocks.append(PlayedPairs(met, coins))
        mirrored.append(PlayedPairs(met.mirrored(), coins))
        sides = Sides(weights, weights)
        missed[0] |= contrasts.has_won(blocks, sides, alpha, lead)
        missed[1] |= contrasts.has_won(mirrored, sides, alpha, -lead)
    assert not any(rate_exceeds(int(row.sum()), trials, alpha) for row in missed)
    few = [PlayedPairs(block.pairs.at(slice(200)), block.coins) for block in blocks]
    bound = contrasts.lower_bound(few, sides, alpha)
    assert float(np.median(bound)) > lead - (0.15 if correlation > 0 else 0.25)


def test_the_mirror_of_a_mirror_is_the_same_and_nothing_mirrors_to_nothing():
    rng = np.random.default_rng(1)
    met = of_rows(rng.random((3, 9)) - rng.random((3, 9)))
    for part, again in zip(met.parts, met.mirrored().mirrored().parts, strict=True):
        assert again == pytest.approx(part)
    assert [part.tolist() for part in Sums.none(2).mirrored().parts] == [
        part.tolist() for part in Sums.none(2).parts
    ]


def test_a_margin_moves_the_centre_and_the_limit_of_the_stakes():
    bets = paired_bets(*(Sums.none(1),) * 3, [10.0], [1.0], 9, 0.5)
    assert isinstance(bets, PairedBets)
    assert float(bets.centre) == 0.75
    assert float(bets.stakes[0]) == pytest.approx(betting.CAP * 10 / 1.5)
