"""Fed-Bet with ε > 0: the answer is close to the best, covers belong to one champion, and ties end."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.options import Bet
from bestarm.simulate.draw import Drawn
from bestarm.simulate.run import Run
from rates import rate_exceeds


def runs(problem, seeds, **options):
    return [ba.identify(problem, "bet", seed=seed, **options) for seed in seeds]


@pytest.mark.parametrize("means", [[[0.5, 0.5], [0.5]], [[0.9, 0.9]], [[0.3], [0.3], [0.3]]])
def test_tied_arms_end_with_one_of_them(means):
    for record in runs(ba.Problem.bernoulli(means), range(4), delta=0.1, epsilon=0.2):
        assert record.verdict.status == "identified"
        assert ba.verify(record, replay=True).failures == ()
        low, high = record.verdict.interval
        assert low <= record.verdict.mean <= high


def test_ratings_end_with_an_arm_within_epsilon():
    ratings = {"kind": "table", "values": [0, 0.5, 1], "weights": [1, 2, 1]}
    problem = ba.Problem.from_rewards(
        {"g": {"a": {"kind": "beta", "a": 6, "b": 4}, "b": 0.2}, "h": {"c": ratings}}
    )
    for record in runs(problem, range(4), delta=0.05, epsilon=0.15):
        assert record.verdict.arm in ("g/a", "h/c")
        assert ba.verify(record).failures == ()


@pytest.mark.slow
def test_the_answer_is_rarely_further_from_the_best_than_epsilon():
    """Null: wrong with probability at most 0.3 (exact binomial test at 1e-6, 250 runs).

    Arms are a chain of steps below ε, so that covers that outlived their champion would add up. Power: a rate
    of 0.46 is found with probability 0.6.
    """
    problem = ba.Problem.bernoulli([[0.62], [0.56], [0.5], [0.44], [0.38]])
    found = runs(problem, range(250), delta=0.3, epsilon=0.1, n1=4, q=1.3)
    wrong = sum(record.verdict.arm not in ("g1/a1", "g2/a1") for record in found)
    assert all(record.verdict.status == "identified" for record in found)
    assert not rate_exceeds(wrong, len(found), 0.3)


def test_a_new_champion_wakes_the_covered_arms_and_its_covers_cost_more():
    problem, options = (
        ba.Problem.bernoulli([[0.55, 0.5], [0.5, 0.45]]),
        Bet(delta=0.2, epsilon=0.15, n1=2, q=1.3),
    )
    changes = covered = 0
    for seed in range(30):
        run = Run(problem, "bet", options, seed, Drawn(problem, seed))
        run.begin()
        seen = {client.name: (client.champions, client.covered.copy()) for client in run.clients}
        while not run.over:
            run.step()
            for client in run.clients:
                before, rested = seen[client.name]
                if client.champions > before and client.state == "pulling":
                    assert not client.covered.any()
                    assert not client.log_cover.any()
                    changes += before > 0
                    covered += rested.any()
                seen[client.name] = client.champions, client.covered.copy()
    assert changes > 10
    assert covered > 0  # some arms were woken
    for j in (1, 2, 3):
        at = np.log(2 * j * (j + 1) / 0.2)
        assert bet_decisions.covered(at + 1e-9, 0.2, j)
        assert not bet_decisions.covered(at - 1e-9, 0.2, j)


def test_half_of_delta_pays_for_the_covers():
    at = np.log(2 / 0.1)
    assert bet_decisions.leaves(at, 0.1, epsilon=0.05)
    assert not bet_decisions.leaves(np.log(1 / 0.1), 0.1, epsilon=0.05)
    assert bet_decisions.leaves(np.log(1 / 0.1), 0.1)


def test_a_larger_epsilon_saves_pulls():
    problem = ba.Problem.paper_instance(3)
    pulls = [
        np.mean([r.pulls.total for r in runs(problem, range(12), delta=0.1, epsilon=e)]) for e in (0.02, 0.2)
    ]
    assert pulls[1] < 0.8 * pulls[0]
