"""Theorem 1: the best arm leaves with probability at most δ, whatever the rewards and whoever is champion.

Each test counts the runs in which the best arm has ever left. Null: the true rate is above δ = 0.1. The null
is rejected at 1e-6 by the exact upper confidence bound of 20,000 runs with a fixed seed, which is at most δ
if no more than 1,800 runs (9 %) have lost the best arm. So a method that broke the promise would pass with
probability below 1e-6, and one whose true rate is at most 0.08 passes with probability above 0.999999. The
largest rate that was seen is 0.045. That the statistic sees broken promises is shown in
``test_bet_traps.py``.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import bestarm as ba
from bestarm.methods.bet.kernel import _Trials
from bestarm.methods.bet.options import Bet
from marking import slow
from methods.bet.hostile import adversary, scrambled, sparing_the_first, worst
from methods.bet.two_arms import DELTA, coins, ever_left
from rates import rate_is_below

TRIALS = 20_000
RATINGS = {"kind": "table", "values": [0, 0.25, 0.5, 0.75, 1], "weights": [5, 5, 10, 30, 50]}
NARROW = {"kind": "beta", "a": 60, "b": 40}
WIDE = {"kind": "beta", "a": 0.2, "b": 0.2}
CONSTANT = {"kind": "table", "values": [0.5], "weights": [1]}
THREE = {"kind": "table", "values": [0, 0.5, 1], "weights": [1, 2, 1]}


def runs_that_lost_the_first_arm(rows, *, chunk=2000, **options):
    """In how many runs the first arm has ever left; a study has no column for it if arms are tied."""
    problem = ba.Problem.from_rewards(
        {f"g{i}": {f"a{j}": reward for j, reward in enumerate(row)} for i, row in enumerate(rows)}
    )
    chosen, lost = Bet(delta=DELTA, **options), 0
    for seed in range(TRIALS // chunk):
        trials = _Trials(problem, chosen, chunk)
        trials.run(np.random.default_rng(seed), None, {})
        lost += int((~trials.inside[:, 0, 0]).sum())
    return lost


def spread(reward, arms, clients):
    """This many arms with the same reward, spread over clients."""
    return [[reward] * (arms // clients) for _ in range(clients)]


LONG = {"prefer": "pulls", "max_rounds": 27}  # 25 blocks, up to about 540 pulls of each rival
SHORT = {"prefer": "balanced", "max_rounds": 10}  # 8 blocks, up to about 620 pulls


@pytest.mark.parametrize(
    ("arms", "clients", "p", "options"),
    [
        (2, 2, 0.5, LONG),
        (9, 3, 0.5, SHORT),
        *slow(
            *(
                (2, clients, p, LONG)
                for clients in (1, 2)
                for p in (0.02, 0.5, 0.98)
                if (clients, p) != (2, 0.5)
            ),
            *(
                (9, clients, p, SHORT)
                for clients in (3, 9)
                for p in (0.02, 0.5, 0.98)
                if (clients, p) != (3, 0.5)
            ),
            *((100, 100, p, {"prefer": "balanced", "max_rounds": 7}) for p in (0.02, 0.5, 0.98)),
            (100, 10, 0.5, {"prefer": "balanced", "max_rounds": 7}),
        ),
    ],
)
def test_tied_coins_lose_the_first_arm_with_probability_at_most_delta(arms, clients, p, options):
    lost = runs_that_lost_the_first_arm(spread(p, arms, clients), **options)
    assert rate_is_below(lost, TRIALS, DELTA), lost / TRIALS


@pytest.mark.parametrize(
    ("named", "arms", "options"),
    [
        (sparing_the_first, 9, SHORT),
        *slow(
            (sparing_the_first, 9, LONG),
            (worst, 9, SHORT),
            (scrambled, 9, SHORT),
            (worst, 2, LONG),
            (worst, 100, {"prefer": "balanced", "max_rounds": 6}),
            (sparing_the_first, 100, {"prefer": "balanced", "max_rounds": 6}),
        ),
    ],
)
def test_an_adversary_who_names_the_champions_gains_nothing(named, arms, options):
    with adversary(named):
        lost = runs_that_lost_the_first_arm(spread(0.5, arms, arms), **options)
    assert rate_is_below(lost, TRIALS, DELTA), lost / TRIALS


@pytest.mark.parametrize(
    ("rows", "hostile"),
    [
        ([[RATINGS], [RATINGS]], False),
        *slow(
            ([[RATINGS] * 3] * 3, False),
            ([[RATINGS]] * 6, True),
            ([[NARROW], [NARROW]], False),
            ([[WIDE], [WIDE, WIDE]], True),
            ([[0.5], [CONSTANT, THREE], [WIDE]], True),  # one mean, different laws
            ([[CONSTANT], [0.5], [THREE]], True),
        ),
    ],
)
def test_ratings_and_beta_rewards_keep_the_promise(rows, hostile):
    with adversary(sparing_the_first) if hostile else contextlib.nullcontext():
        lost = runs_that_lost_the_first_arm(rows, n1=8, q=1.5, max_rounds=9)
    assert rate_is_below(lost, TRIALS, DELTA), lost / TRIALS


def drifting(follow):
    """Coins whose common mean moves slowly, within blocks too, and may follow what the arms have paid.

    The rival is the best arm: its mean is the champion's, or 0.02 above it. Both spread their pulls over the
    block, half of them before its middle, so that the rival's average mean is at least the champion's.
    """
    level = 0.5

    def draw(rng, trials, times, c):
        nonlocal level
        above = 0.02 * (rng.random(trials) < 0.2)
        sums, start = [np.zeros(trials), np.zeros(trials)], level
        slope = rng.uniform(-0.1, 0.1, trials)
        halves = (times // 2, times - times // 2)
        for part, half in zip((0.0, 1.0), halves, strict=True):
            mean = np.clip(start + part * slope, 0.02, 0.97)
            sums[0] += rng.binomial(c * half, mean)
            sums[1] += rng.binomial(half, mean + above)
        level = np.clip(start + slope, 0.02, 0.97)
        if follow:  # up after a block that was good for the champion, down after a bad one
            level = np.clip(level + np.where(sums[0] > c * sums[1], 0.05, -0.05), 0.02, 0.97)
        return coins(sums[0], c * times), coins(sums[1], times)

    return draw


@pytest.mark.parametrize(("follow", "c"), [(True, 1), *slow((False, 1), (True, 4), (False, 4))])
def test_slow_drift_in_which_the_best_arm_stays_best_keeps_the_promise(follow, c):
    lost = ever_left(TRIALS, 5, drifting(follow), c=c)
    assert rate_is_below(lost, TRIALS, DELTA), lost / TRIALS


def test_the_bound_of_this_file_is_where_its_docstring_says():
    assert rate_is_below(1800, TRIALS, DELTA)
    assert not rate_is_below(1801, TRIALS, DELTA)
