"""The page of a run that has no verdict yet says when similar runs end, also for peers and among liars."""

from __future__ import annotations

import threading

import msgspec
import pytest

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.graphs.generators import complete
from bestarm.report import follow, page
from bestarm.report.facts import as_it_looks, forecast
from bestarm.report.forecaster import PENDING, Forecast, Forecaster
from bestarm.simulate import run_journal as kept
from bestarm.simulate.network import Network
from bestarm.study import similar
from bestarm.util.journal import Journal
from federations import CASES, Coins, Folds

PROBLEM = ba.Problem.bernoulli([[0.9, 0.3], [0.6, 0.2]], clients=4)
LIARS = [ba.Adversary("g1", "extreme", 1)]
RUNS = {
    "peers": ({"method": "p2p", "network": Network(complete(8), delay=5.0)}, "time steps", False),
    "placed": (
        {"method": "p2p", "network": Network(complete(8), delay=5.0, placement="worst")}, "time steps", True,
    ),
    "no kernel": ({"method": "robust-fed-sel"}, "round", False),
    "robust": ({"method": "robust-fed-sel", "adversaries": LIARS}, "round", True),
    "pooled": ({"method": "fisher", "adversaries": LIARS}, "rounds", True),
    "betting": ({"method": "bet", "adversaries": LIARS}, "rounds", True),
}  # fmt: skip


def begun(path, keys):
    """The first facts of a run whose journal is at a path, with their forecast, and the record."""
    record = ba.identify(PROBLEM, delta=0.1, byzantine=1, seed=3, journal=path, **keys)
    with Journal.open(path, kept.KIND, write=False) as journal:
        fold = follow.Fold(follow.Beginning(path, kept.KIND, journal.header))
    return msgspec.structs.replace(fold.facts(), plan=forecast.going_plan(fold.state.run)), record


@pytest.mark.parametrize("name", RUNS)
def test_similar_runs_are_simulated_with_the_same_network_and_liars(tmp_path, name):
    keys, unit, liars = RUNS[name]
    facts, record = begun(tmp_path / "run.db", keys)
    text = str(page.sections(facts))
    assert facts.plan is not None
    assert facts.plan.trials >= 20
    span = facts.plan.ranges["time" if "network" in keys else "rounds"]
    spent = record.time if "network" in keys else record.rounds
    assert 0.5 * span.low <= spent <= 2 * span.high
    assert unit in text.split("Similar runs end")[1][:200]
    assert ("with the same liars" in text) is liars


def test_runs_that_take_long_to_simulate_have_no_forecast(tmp_path, monkeypatch):
    monkeypatch.setattr(similar, "MOST_STEPS", 10)
    facts, _ = begun(tmp_path / "run.db", RUNS["robust"][0])
    assert facts.plan is None
    assert "not forecast" in str(page.sections(facts))


@pytest.mark.parametrize("name", ["peers", "robust"])
def test_a_run_whose_means_are_known_says_why_it_has_no_forecast(tmp_path, monkeypatch, name):
    monkeypatch.setattr(similar, "MOST_STEPS", 10)
    facts, _ = begun(tmp_path / "run.db", RUNS[name][0])
    assert facts.plan is None
    text = str(page.sections(facts))
    assert "Runs like this one are not simulated here." in text, "only a live page makes a forecast"
    done = threading.Event()
    forecaster, due = Forecaster(done.set), Forecast(0, 0, lambda stop: None)
    assert forecaster.now(facts, due).no_plan == PENDING
    assert done.wait(60)
    text = str(page.sections(forecaster.now(facts, due)))
    assert "Runs like this one take too long to simulate here." in text
    assert "Too little is known" not in text


@pytest.mark.parametrize("name", ["pooled", "bet, liars", "robust-fed-sel"])
def test_a_server_among_liars_forecasts_from_the_means_that_it_knows(tmp_path, name):
    files.init(CASES[name], tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(CASES[name].problem), batch=2000)
    folds.go()
    folds.close()
    source, plans = follow.Journalled(tmp_path / "f"), []
    while source.catch_up(0.0):  # an event at a time
        facts = source.facts()
        if facts.rounds and not facts.verdict:
            plans.append(as_it_looks(facts))
    found = [plan for plan in plans if plan]
    assert found
    assert all(plan.note == "if the means are as they look now" for plan in found)
    assert found[-1].ranges["rounds"].low <= source.facts().rounds <= 2 * found[-1].ranges["rounds"].high
