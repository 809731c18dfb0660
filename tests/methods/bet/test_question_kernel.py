"""The kernel of questions about several sites draws and decides as the machines do, for coins and others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.stats import contrasts
from bestarm.stats.contrasts import Sides
from bestarm.stats.sums import Sums
from marking import slow

STARS = ba.Table((0.0, 0.25, 0.5, 0.75, 1.0), (1.0, 1.0, 2.0, 3.0, 3.0))
OPTIONS = ("x", "y", "z")


def three_options(sites, stars, seed):
    """Sites with options in different orders; ratings at every `stars`-th site."""
    rng, groups = np.random.default_rng(seed), {}
    for s in range(sites):
        order = rng.permutation(3)
        rated = stars and s % stars == 0
        groups[f"s{s}"] = {
            OPTIONS[k]: STARS if rated and k == 2 else ba.Bernoulli(float(rng.uniform(0.2, 0.8)))
            for k in order
        }
    return ba.Problem.from_rewards(groups)


def check(trials, i):
    record = trials.record(i)
    assert ba.verify(record).failures == ()
    told = {
        "status": record.verdict.status, "arm": record.verdict.summary, "reason": record.verdict.reason,
        "good_event": record.good_event, "rounds": record.rounds, "time": record.time,
        "pulls_total": record.pulls.total, "pulls_phase1": record.pulls.phase1,
        "pulls_phase2": record.pulls.phase2, "pulls_max": record.pulls.max_per_client,
        "bits_up": record.bits.up, "bits_down": record.bits.down,
    }  # fmt: skip
    assert told == {name: trials[name][i] for name in told}


@pytest.mark.parametrize(("sites", "stars"), [(3, 0), (3, 2), *slow((3, 1), (40, 0), (40, 3))])
@pytest.mark.parametrize("question", ["overall", "each"])
def test_a_trial_of_a_question_replays_in_every_column(sites, stars, question):
    problem = three_options(sites, stars, seed=sites + stars)
    trials = ba.study(
        problem, question=question, trials=5, seed=7, delta=0.2, max_rounds=12, q=1.5, workers=1
    )
    for i in (0, 4):
        check(trials, i)


def test_batches_of_trials_begin_anew_but_replay_all_the_same(monkeypatch):
    monkeypatch.setattr("bestarm.methods.bet.sites.kernel.MOST_CELLS", 18)  # two trials of 3 sites × 3 arms
    trials = ba.study(
        three_options(3, 2, seed=1),
        question="overall",
        trials=5,
        seed=7,
        delta=0.2,
        max_rounds=8,
        q=1.5,
        workers=1,
    )
    for i in range(5):
        check(trials, i)


@given(st.integers(0, 2**32))
def test_coins_have_the_same_wealth_with_and_without_their_shortcut(seed):
    rng, sites = np.random.default_rng(seed), 4
    pulls = Sides(*rng.integers(1, 9, (2, sites)).astype(float))
    weights = Sides(*rng.dirichlet(np.ones(sites), 2)) if seed % 2 else Sides.of([0.25] * 4, [0.25] * 4)

    def coins(count):
        ones = rng.binomial(count.astype(int), 0.6).astype(float)
        return Sums(count, ones, ones, np.zeros(sites), np.ones(sites))

    before = coins(rng.integers(0, 30, sites).astype(float)), coins(rng.integers(0, 30, sites).astype(float))
    bets = contrasts.contrast_bets(*before, pulls, weights, 9, margin=0.1 * (seed % 3))
    fresh = coins(pulls.up), coins(pulls.down)
    slowly, quickly = (contrasts.log_wealths(bets, *fresh, coins=coins) for coins in (False, True))
    np.testing.assert_allclose(quickly, slowly, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reward", [ba.Bernoulli, lambda mean: ba.Beta(40 * mean, 40 * (1 - mean))])
def test_the_first_pulls_of_two_options_can_decide_and_the_record_tells_who_left(reward):
    groups = {f"s{j}": {"x": reward(0.05), "y": reward(0.95)} for j in range(200)}
    trials = ba.study(ba.Problem.from_rewards(groups), question="overall", trials=2, seed=1, workers=1)
    check(trials, 1)
    record = trials.record(1)
    assert (record.verdict.arm, record.rounds, record.pulls.total) == ("y", 1, 400)
    assert record.good_event
    (left,) = record.verdict.certificate["server"]["exits"]
    assert (left["option"], left["champion"], left["block"]) == (0, 1, 0)


def test_the_first_pulls_of_three_options_or_at_one_client_are_no_bets():
    for sites, options in ((5, 3), (1, 2)):
        groups = {f"s{j}": {f"o{k}": 0.5 for k in range(options)} for j in range(sites)}
        course = Course(ba.Problem.from_rewards(groups).asking("overall").layout, Bet())
        assert Ledger(course, np.ones(sites, dtype=bool)).openers == [()]


def test_the_first_pulls_are_no_bets_if_options_share_their_subjects_or_sites_may_lie():
    groups = {f"s{j}": {"x": 0.5, "y": 0.5} for j in range(5)}
    layout, everyone = ba.Problem.from_rewards(groups).asking("overall").layout, np.ones(5, dtype=bool)
    assert Ledger(Course(layout, Bet()), everyone).openers == [((0, 1), (1, 0))]
    assert Ledger(Course(dataclasses.replace(layout, paired=True, finite=True), Bet()), everyone).openers == [
        ()
    ]
    assert Ledger(Course(layout, Bet(byzantine=1)), everyone).openers == [()]
