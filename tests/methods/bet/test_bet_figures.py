"""Fed-Bet's published figures, as statistical tests.

"At most 3.85" means: a one-sided test of "the true mean is at most 3.85" does not reject it. A test fails by
chance with probability 1e-6 if the true mean is the target, and almost surely if it is 15 % above the target.
Trials that lose the best arm may run into a tie below it. They end undecided; they count as lost, and are not
in the means. `python -m benchmarks bet` prints all figures.
"""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.bet import FISHER, not_coins, paper_targets
from benchmarks.costs import capped, preferring
from benchmarks.ladder import many_clients

import bestarm as ba
from marking import slow, slow_but
from rates import mean_exceeds, rate_exceeds

DELTA, SEED = 0.1, 31
COLUMNS = {"× limit": "pulls_total", "rounds": "rounds", "bits up": "bits_up"}


def trials_of(problem, options, trials, delta=DELTA):
    """Trials, and which of them name an arm. Not too many have lost the best one."""
    done = ba.study(problem, trials=trials, seed=SEED, delta=delta, workers=1, **options)
    lost = sum(not right for right in done["correct"])
    assert not rate_exceeds(lost, trials, delta)
    return done, done["status"] == "identified"


@pytest.mark.parametrize("sigma", slow_but([3], [1, 3, 5, 7, 15]))
@pytest.mark.parametrize("prefer", ["balanced", "pulls", "rounds"])
def test_costs_on_the_paper_s_instance_are_at_most_the_published_ones(prefer, sigma):
    problem = ba.Problem.paper_instance(sigma)
    done, named = trials_of(problem, preferring(prefer), 4000)
    limit = ba.limit(problem, DELTA).total
    for figure, sign, most in paper_targets(prefer, sigma):
        assert sign == "≤"
        scale = limit if figure == "× limit" else 1.0
        assert not mean_exceeds(done[COLUMNS[figure]][named] / scale, most)


def test_the_test_sees_that_fed_fisher_needs_more():
    problem = ba.Problem.paper_instance(3)
    done, named = trials_of(problem, FISHER, 4000)
    limit = ba.limit(problem, DELTA).total
    (_, _, most), _, (_, _, bits) = paper_targets("balanced", 3)
    assert mean_exceeds(done["pulls_total"][named] / limit, 1.1 * most)
    assert mean_exceeds(done["bits_up"][named], 1.1 * bits)


@pytest.mark.parametrize(("delta", "most"), [(1e-3, 1.85), *slow((1e-6, 1.55))])
def test_a_small_delta_costs_little_more_than_the_limit(delta, most):
    problem = ba.Problem.paper_instance(1)
    done, named = trials_of(problem, preferring("pulls"), 2000, delta)
    assert not mean_exceeds(done["pulls_total"][named] / ba.limit(problem, delta).total, most)


@pytest.mark.slow
def test_a_thousand_arms_cost_at_most_the_published_pulls():
    problem = many_clients()
    done, named = trials_of(problem, capped(16, 1.25), 250)
    assert not mean_exceeds(done["pulls_total"][named] / ba.limit(problem, DELTA).total, 8.4)


@pytest.mark.parametrize("case", not_coins())
def test_rewards_as_they_are_save_most_of_the_pulls_of_their_coins(case):
    problem, fewer = not_coins()[case]
    bet, named = trials_of(problem, preferring("pulls"), 2000)
    fisher, decided = trials_of(problem, FISHER, 2000)
    both = named & decided
    more = fewer * bet["pulls_total"] - fisher["pulls_total"].astype(np.float64)
    assert not mean_exceeds(more[both], 0.0)
