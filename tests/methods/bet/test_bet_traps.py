"""Plausible ways to break Fed-Bet, built on purpose: each loses the best arm more often than δ.

Null: the true rate is at most δ = 0.1 (exact binomial test at 1e-6, 20,000 runs with a fixed seed, two tied
coins). So ``test_bet_validity.py``, which counts the same, has the power to see such errors. The rates that
were seen are between 0.13 and 0.64; without a trap the same runs stay below δ.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bestarm.methods.bet import decisions
from methods.bet.two_arms import DELTA, coins, ever_left, tied_coins
from rates import rate_exceeds, rate_is_below

TRIALS = 20_000
COINS = tied_coins(0.5)


def promising(bets, champion, rival):
    """Whether the champion's rewards of a block are no worse than the centre of the bets."""
    return champion.total >= bets.centre * champion.count


def opposite(rng, trials, times, c):
    """Rewards of the rival that are 1 minus those of the champion."""
    ones = rng.binomial(times, 0.5, trials)
    return coins(ones, times), coins(times - ones, times)


def rounded_down(levels):
    """Squares that are rounded down to this many levels, for rewards that are not known to be 0/1."""

    def told(sums):
        unit = sums.count / levels
        return dataclasses.replace(sums, squares=np.floor(sums.squares / unit) * unit, least=0 * sums.least)

    return told


def clamped(sums):
    """Squares that are clamped to a range that does not contain them."""
    return dataclasses.replace(sums, squares=np.minimum(sums.squares, sums.count / 4), least=0 * sums.least)


def lucky(rng, arms=100, n1=48):
    """The champion is the best-looking of many arms, and the rewards that made it so count in its block."""
    ones = rng.binomial(n1, 0.5, (TRIALS, arms))
    champion, rival = coins(ones[:, 1:].max(axis=1), n1), coins(ones[:, 0], n1)
    before = coins(np.full(TRIALS, n1 // 2), n1)
    bets = decisions.bets(before, before, np.ones(TRIALS), n1)
    return champion, rival, decisions.log_factor(bets, champion, rival)


TRAPS = {
    "a rival skips blocks in which the report is low": {"counts": promising},
    "a block is void if the champion's client dies when it is bad": {"counts": promising, "void": True},
    "a wealth below 1 is set back to 1": {
        "after": lambda log_wealth: np.maximum(log_wealth, 0),
        "blocks": 45,
    },
    "a new champion's old rewards count": {"begin": lucky, "n1": 48},
    "squares are rounded down": {"told": rounded_down(2)},
    "squares are clamped downwards": {"told": clamped},
    "rewards of the two arms are opposite": {"draw": opposite},
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_loses_the_best_arm_more_often_than_delta(trap):
    keys = {"draw": COINS, **TRAPS[trap]}
    lost = ever_left(TRIALS, 1, **keys)
    assert rate_exceeds(lost, TRIALS, DELTA), lost / TRIALS


@pytest.mark.parametrize(
    "keys",
    [{}, {"blocks": 45}, {"n1": 48}, {"c": 4}, {"told": lambda s: dataclasses.replace(s, least=0 * s.least)}],
)
def test_without_a_trap_the_same_runs_keep_the_promise(keys):
    lost = ever_left(TRIALS, 1, COINS, **keys)
    assert rate_is_below(lost, TRIALS, DELTA), lost / TRIALS
