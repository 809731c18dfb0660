"""What runs like a given one tell about the next step."""

from __future__ import annotations

import sys

import msgspec

import bestarm as ba
from bestarm.graphs.generators import complete
from bestarm.records.answer import answer_card
from bestarm.records.figures import next_steps
from bestarm.simulate.network import Network
from bestarm.study.forecast import Bench
from bestarm.study.outlook import PROBE, outlook

PROBLEM = ba.Problem.bernoulli([[0.7, 0.3], [0.5]])


def test_an_undecided_run_learns_how_many_pulls_decide_95_percent_of_such_runs():
    record = ba.identify(PROBLEM, seed=1, budget=60)
    found = outlook(record)
    assert record.verdict.status == "undecided"
    assert found.enough > record.pulls.total
    fresh = ba.study(PROBLEM, trials=400, seed=9)
    share = (fresh["pulls_total"] <= found.enough).mean()
    assert 0.88 <= share <= 1.0
    assert not found.guessed


def test_runs_with_many_options_are_simulated_fewer_times_or_not_at_all(monkeypatch):
    record = ba.identify(PROBLEM, seed=1, budget=60)
    monkeypatch.setattr(sys.modules[outlook.__module__], "MOST_ARMS", 30)
    found = outlook(record)
    assert found.trials == 10
    assert "all of 10 simulated runs" in next_steps(answer_card(record), found)[0]
    monkeypatch.setattr(sys.modules[outlook.__module__], "MOST_ARMS", 11)
    found = outlook(record)
    assert found.enough is None
    assert "too long to simulate" in " ".join(next_steps(answer_card(record), found))


def test_without_true_means_the_estimates_of_the_run_stand_in_for_them():
    found = outlook(ba.identify(PROBLEM, seed=1, budget=200).public())
    assert found.guessed
    assert found.enough or found.why_not


def test_a_decided_run_learns_of_a_cheaper_method():
    found = outlook(ba.identify(PROBLEM, "fed-sel", seed=1, delta=0.1))
    assert found.cheaper in ("bet", "fisher")
    assert found.less > 0.5


def test_an_undecided_question_is_forecast_from_the_estimates_of_its_cells():
    rows = {"s1": {"A": 0.3, "B": 0.6}, "s2": {"A": 0.5, "B": 0.7}}
    record = ba.identify(ba.Problem.from_rewards(rows), seed=1, question="overall", max_rounds=1)
    found = outlook(record.public())
    assert record.verdict.status == "undecided"
    assert found.guessed
    assert found.enough


def test_a_cheaper_method_is_named_although_some_of_its_runs_are_long():
    found = outlook(ba.identify(ba.Problem.paper_instance(5), "fisher", seed=7, delta=0.1))
    assert found.cheaper == "bet"
    assert 0.2 < found.less < 0.5


def test_a_tie_is_named_instead_of_a_number_of_pulls():
    tied = ba.Problem.bernoulli([[0.5, 0.2], [0.5]])
    found = outlook(ba.identify(tied, seed=1, budget=100))
    assert found.enough is None
    assert "tied" in found.why_not or "never ends" in found.why_not


def test_kept_summaries_leave_nothing_to_guess_from():
    record = ba.identify(PROBLEM, seed=1, budget=200)
    silent = msgspec.structs.replace(record.public(), summaries=None)
    assert outlook(silent).why_not


def test_an_undecided_run_of_peers_learns_how_many_pulls_decide_all_of_a_few_such_runs():
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.5]], clients=3)
    network = Network(complete(6))
    record = ba.identify(problem, "p2p", network=network, seed=1, budget=20)
    assert record.verdict.status == "undecided"
    found = outlook(record)
    assert found.trials == 20
    assert found.enough > record.pulls.total
    again = ba.identify(problem, "p2p", network=network, seed=5)
    assert again.pulls.total <= 1.5 * found.enough
    told = next_steps(answer_card(record), found)
    assert told[0].endswith(" pulls decide all of 20 simulated runs.")


def test_a_method_that_needs_far_more_pulls_is_tried_with_few_runs_only(monkeypatch):
    made = []
    run = Bench.run

    def counted(self, method, keys, number, trials=None):
        made.append((method, trials))
        return run(self, method, keys, number, trials)

    monkeypatch.setattr(Bench, "run", counted)
    outlook(ba.identify(PROBLEM, seed=1))
    assert [trials for method, trials in made if method == "fed-sel"] == [PROBE]
