"""Many runs of one rival against one champion around the decisions of Fed-Bet, with hooks that break them."""

from __future__ import annotations

import math

import numpy as np

from bestarm.methods.bet import decisions
from bestarm.problem.moments import of_ones
from bestarm.stats.sums import Sums

DELTA = 0.1


def coins(ones, times):
    """The sums of `times` coins, of which `ones` showed 1."""
    count = np.full(np.shape(ones), float(times))
    return Sums(count, *np.moveaxis(of_ones(ones, count), -1, 0))


def tied_coins(p):
    """Blocks of two arms with one mean: `times` pulls of the rival, and c times as many of the champion."""

    def draw(rng, trials, times, c):
        return coins(rng.binomial(c * times, p, trials), c * times), coins(
            rng.binomial(times, p, trials), times
        )

    return draw


def always(bets, champion, rival):
    return np.ones(np.shape(champion.count), dtype=bool)


def ever_left(
    trials,
    seed,
    draw,
    *,
    c=1,
    n1=16,
    q=1.15,
    blocks=25,
    counts=always,
    void=False,
    told=lambda sums: sums,
    after=lambda log_wealth: log_wealth,
    begin=None,
):
    """How many of the runs have let the rival leave.

    Parameters
    ----------
    draw : callable
        ``draw(rng, trials, times, c)`` returns the rewards of champion and rival in a block.
    counts : callable
        Which trials count the block; all of them, unless a trap is built.
    void : bool
        Whether the rewards of a block that does not count are forgotten.
    told : callable
        What the champion's report says of its rewards.
    after : callable
        What becomes of the wealth after a block.
    begin : callable, optional
        ``begin(rng)`` returns the first rewards of champion and rival and the first logarithm of the wealth.
    """
    rng = np.random.default_rng(seed)
    log_wealth = np.zeros(trials)
    if begin is None:
        champion, rival = draw(rng, trials, n1, 1)
    else:
        champion, rival, log_wealth = begin(rng)
    n, left = n1, decisions.leaves(log_wealth, DELTA)
    for _ in range(blocks):
        step = math.ceil(q * n) - n
        bets = decisions.bets(champion, rival, np.full(trials, c), n)
        fresh, own = draw(rng, trials, step, c)
        report = told(fresh)
        counted = counts(bets, fresh, own)
        factor = decisions.log_factor(bets, report, own)
        log_wealth = after(log_wealth + np.where(counted, factor, 0.0))
        left |= decisions.leaves(log_wealth, DELTA)
        kept = counted if void else always(bets, fresh, own)
        champion, rival = added(champion, report, kept), added(rival, own, kept)
        n += step
    return int(left.sum())


def added(sums, fresh, kept):
    both = sums.plus(fresh)
    return Sums(*(np.where(kept, new, old) for new, old in zip(both.parts, sums.parts, strict=True)))
