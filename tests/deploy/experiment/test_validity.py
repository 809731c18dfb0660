"""The promise of live experiments: delays that do not depend on rewards leave it alone, others break it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import bestarm as ba
from bestarm.deploy.experiment.settings import make_settings
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Block
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.protocol.options import on_unit_scale
from bestarm.stats.sums import Sums

DELTA = 0.05
TIED = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])  # (sites, options): all have the value 0.5


def simulated(trials, means, blocks, seed, *, paces=True):
    """Many experiments at once, as the engine lets the machine see them: plans are stale, blocks in order.

    How many blocks are open when a plan is made, and how fast each site is, change with time and by site, and
    do not depend on rewards. Returns for each option whether it left.
    """
    rng = np.random.default_rng(seed)
    sites, options = means.shape
    names, places = [f"o{k}" for k in range(options)], [f"s{k}" for k in range(sites)]
    settings = make_settings(
        names, places, None, delta=DELTA, bounds=(0.0, 1.0), goal="max", binary=True, deadline=None,
        missing=None, after="stop", seed=1, keys={},
    )  # fmt: skip
    problem, _, chosen = settings.prepared()
    course = Course(problem.layout, on_unit_scale(chosen, problem.scale))
    ledger = Ledger(course, np.ones(sites, dtype=bool), trials)
    first = np.broadcast_to(course.first(), (trials, sites, options))
    ledger.close(_played(rng, first, means), [], course.n1)
    n, known = course.n1, [ledger.stands()]
    for k in range(blocks):
        step = course.blocks.step(n)
        lag = np.minimum(rng.poisson(1 + np.sin(k) ** 2 + np.arange(trials) % 3), len(known) - 1)
        old = len(known) - 1 - lag  # the newest block that was closed when the plan was made
        stand = known[-1][0]
        stand.inside = np.stack([known[b][0].inside[t] for t, b in enumerate(old.tolist())])
        stand.ratio = np.array([known[b][0].ratio[t] for t, b in enumerate(old.tolist())])
        scale = 1.0 + 9.0 * rng.random((trials, sites)) * (1 + np.cos(k + np.arange(sites)))
        pulls = course.pulls([stand], step, course.steps(step, scale if paces else None))
        ledger.close(_played(rng, pulls, means), ledger.refreshed([stand]), step)
        n += step
        known.append(ledger.stands())
    return ~ledger.races[0].inside


def _played(rng, pulls, means):
    fresh = Sums.none(pulls.shape)
    ones = rng.binomial(pulls, means).astype(float)
    fresh.count[:], fresh.total[:], fresh.squares[:] = pulls, ones, ones
    fresh.least[:], fresh.most[:] = np.where(pulls > 0, 0.0, 1.0), np.where(pulls > 0, 1.0, 0.0)
    return Block(pulls, fresh, np.zeros(pulls.shape), True)


@pytest.mark.parametrize("trials", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_with_delays_by_time_and_site_the_best_option_leaves_with_probability_at_most_delta(trials):
    """Null: each of three tied options leaves with probability ≤ δ. False alarms: 1e-6 for the three.

    Power at 20,000 trials: a rate of 0.06 is found with probability 0.9.
    """
    gone = simulated(trials, TIED, 14, seed=4)
    most = stats.binom.isf(1e-6 / 3, trials, DELTA)
    assert (gone.sum(axis=0) <= most).all()
    assert gone.any()  # the bets are real ones


def test_the_simulation_finds_the_best_option():
    gone = simulated(200, np.array([[0.3, 0.5, 0.4], [0.6, 0.8, 0.5]]), 14, seed=4)
    assert gone[:, 1].sum() == 0
    assert (gone.sum(axis=1) == 2).mean() > 0.9


def lived(seed, lost, subjects=4000):
    """A real experiment with two options whose rewards have the mean ½; `lost` says which never come."""
    rng, now = np.random.default_rng(seed), 0.0
    experiment = ba.Experiment(
        ["A", "B"], ["us", "eu"], delta=DELTA, deadline=500.0, missing=0.5, seed=seed, clock=lambda: now
    )
    waiting = []
    for k in range(subjects // 40):
        now = 10.0 * k
        for site in ("us", "eu"):
            for own in experiment.ask_many(site, 20):
                reward = float(rng.random() < 0.5)
                delay = rng.exponential(20.0 if site == "us" else 5.0 + 20.0 * (k % 7))
                if not lost(own.option, reward, rng):
                    waiting.append((now + delay, own.token, reward))
        experiment.tell_many([(token, x) for time, token, x in waiting if time <= now])
        waiting = [row for row in waiting if row[0] > now]
        if experiment.verdict is not None:
            break
    return experiment


def test_rewards_that_are_lost_because_of_their_value_break_the_promise_and_raise_an_alarm():
    """A quarter of the failures of A is never reported: the answer is always wrong.

    The alarm needs 256 rewards of each option that count; where a verdict comes sooner, only the docs warn.
    """

    def lost(option, reward, rng):
        return option == "A" and reward == 0 and rng.random() < 0.25

    runs = [lived(seed, lost, subjects=20_000) for seed in range(5)]
    assert [run.verdict and run.verdict.arm for run in runs] == ["A"] * 5
    raised = [any(alarm.kind == "missing" for alarm in run.alarms) for run in runs]
    assert sum(raised) == 3
    assert all(raised[k] or run.record().pulls.total < 4 * 256 for k, run in enumerate(runs))


def test_rewards_that_are_lost_for_other_reasons_leave_it_alone():
    """Null: a verdict, all of which are wrong, has probability ≤ 2δ = 0.1. More than 8 of 10: 1e-7."""
    runs = [lived(seed, lambda option, x, rng: rng.random() < 0.3, subjects=2000) for seed in range(10)]
    assert sum(run.verdict is not None for run in runs) <= 8
    assert not any(run.alarms for run in runs)


def lived_tied(seed, subjects=1500):
    """A real experiment with two tied options at two sites that prefer different ones, and late rewards.

    Delays depend on the site and the time. Returns whether option A left.
    """
    rng, now = np.random.default_rng(seed), 0.0
    experiment = ba.Experiment(
        ["A", "B"], ["us", "eu"], delta=DELTA, binary=True, seed=seed, clock=lambda: now
    )
    means, waiting = {"us": (0.7, 0.3), "eu": (0.3, 0.7)}, list[tuple[float, str, float]]()
    for k in range(subjects // 50):
        now = 10.0 * k
        for site, times in (("us", 40), ("eu", 10)):
            for own in experiment.ask_many(site, times):
                reward = float(rng.random() < means[site]["AB".index(own.option)])
                delay = rng.exponential((10.0 if site == "us" else 30.0) * (1 + k % 5))
                waiting.append((now + delay, own.token, reward))
        experiment.tell_many([(token, x) for time, token, x in waiting if time <= now])
        waiting = [row for row in waiting if row[0] > now]
    experiment.tell_many([(token, x) for _, token, x in waiting])
    return experiment.verdict is not None and experiment.verdict.arm == "B"


@pytest.mark.parametrize("trials", [15, pytest.param(20_000, marks=pytest.mark.soak)])
def test_real_experiments_lose_a_tied_option_with_probability_at_most_delta(trials):
    """Null: rate ≤ δ. False alarms: 1e-6. Power at 20,000 trials: 0.06 is found with probability 0.9."""
    assert sum(lived_tied(seed) for seed in range(trials)) <= stats.binom.isf(1e-6, trials, DELTA)


def lived_to_the_end(seed):
    """The record of a real experiment with three options at two sites, random delays and random pace."""
    rng, now = np.random.default_rng(seed), 0.0
    experiment = ba.Experiment(
        ["A", "B", "C"], ["us", "eu"], delta=DELTA, binary=True, seed=seed, clock=lambda: now
    )
    means = dict(zip(("us", "eu"), np.array([[0.3, 0.6, 0.4], [0.6, 0.9, 0.5]]), strict=True))
    waiting = list[tuple[float, str, float]]()
    for k in range(30):
        now = 10.0 * k
        for site, times in (("us", int(rng.integers(10, 60))), ("eu", int(rng.integers(1, 20)))):
            for own in experiment.ask_many(site, times):
                reward = float(rng.random() < means[site]["ABC".index(own.option)])
                waiting.append((now + rng.exponential(20.0 * (1 + k % 3)), own.token, reward))
        experiment.tell_many([(token, x) for time, token, x in waiting if time <= now])
        waiting = [row for row in waiting if row[0] > now]
    return experiment.record()


def modelled(records):
    """Fold the closed blocks of many records at once; the wealths, and whether each option is still in."""
    settings = make_settings(
        ["A", "B", "C"], ["us", "eu"], None, delta=DELTA, bounds=(0.0, 1.0), goal="max", binary=True,
        deadline=None, missing=None, after="stop", seed=1, keys={},
    )  # fmt: skip
    problem, _, chosen = settings.prepared()
    course = Course(problem.layout, on_unit_scale(chosen, problem.scale))
    ledger = Ledger(course, np.ones(2, dtype=bool), len(records))
    closed = [len(record.verdict.certificate["server"]["rounds"]) for record in records]
    n, step = 0, course.n1
    for k in range(max(closed)):
        pulls, ones = np.zeros((2, len(records), 2, 3), dtype=np.int64)
        for t, record in enumerate(records):
            for i, site in enumerate(("us", "eu")):
                rows = [r for r in record.verdict.certificate["local"][site]["batches"] if r["n"] == n]
                for row in rows if k < closed[t] else ():
                    pulls[t, i, row["arms"]] = [each * row["times"] for each in row["each"]]
                    ones[t, i, row["arms"]] = row["sums"]
        fresh = Sums.none(pulls.shape)
        fresh.count[:], fresh.total[:], fresh.squares[:] = pulls, ones, ones
        fresh.least[:], fresh.most[:] = np.where(pulls > 0, 0.0, 1.0), np.where(pulls > 0, 1.0, 0.0)
        (stand,) = ledger.stands()
        stand.inside = (pulls > 0).any(axis=1)
        block = Block(pulls, fresh, np.zeros(pulls.shape), True)
        ledger.close(block, ledger.refreshed([stand]) if k else [], step)
        n, step = n + step, course.blocks.step(n + step)
    return ledger.races[0].log_wealth, ledger.races[0].inside


@pytest.mark.parametrize("trials", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_the_vectorised_model_and_the_engine_agree_on_the_same_arrivals(trials):
    records = [lived_to_the_end(seed) for seed in range(trials)]
    wealth, inside = modelled(records)
    for t, record in enumerate(records):
        server = record.verdict.certificate["server"]
        gone = {row["option"] for row in server["exits"]}
        assert gone == set(np.flatnonzero(~inside[t]).tolist())
        last = {
            option: value
            for row in server["wealth"]
            for option, value in zip(row["option"], row["log_wealth"], strict=True)
        }
        assert [last[k] for k in sorted(last)] == pytest.approx(wealth[t, sorted(last)].tolist())
        assert (record.verdict.arm is not None) == (inside[t].sum() == 1)
    assert {record.verdict.arm for record in records} == {"B", None}  # some end before the last arrival
