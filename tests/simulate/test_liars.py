"""Liars in scenarios, studies and on the command line; what Robust Fed-SEL costs when nobody lies."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import bestarm as ba
from bestarm import Adversary, InputError, Problem
from bestarm.cli import app

SCENARIO = """
delta = 0.1
byzantine = 1
seed = 7

[[group]]
name = "north"
clients = 3
arms = { a = 0.9, b = 0.2 }

[[group]]
name = "south"
clients = 3
arms = { c = 0.6 }

[[adversary]]
group = "north"
attack = "negative-count"

[[adversary]]
group = "south"
clients = ["south-2"]
attack = "sleeper"
options = { turns = 2 }
"""


def written(tmp_path, text=SCENARIO):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


def test_a_scenario_names_its_liars(tmp_path):
    scenario = ba.load(written(tmp_path))
    assert [a.attack for a in scenario.adversaries] == ["negative-count", "sleeper"]
    record = ba.identify(scenario)
    assert record.verdict.arm == "north/a"
    assert [fault["client"] for fault in record.proven_faulty] == ["north-1"]
    assert record.adversaries[1] == {
        "group": "south",
        "clients": ["south-2"],
        "attack": "sleeper",
        "options": {"turns": 2},
    }
    assert set(record.pulls.by_client) == {"north-2", "north-3", "south-1", "south-3"}
    assert ba.verify(record, replay=True).ok
    assert record.public().adversaries == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('attack = "sleeper"', 'attack = "sleepers"', 'Did you mean "sleeper"'),
        ('group = "south"\n', 'group = "sou"\n', "no such group"),
        ("turns = 2", "turn = 2", "among: turns"),
        ('clients = ["south-2"]', 'clients = ["south-9"]', "no client"),
        ('attack = "negative-count"', "", '"attack" is missing'),
        ('attack = "negative-count"', 'attack = "vote"\nstrength = 3', '"strength" = 3 is unknown'),
        ("byzantine = 1", "byzantine = 2", "at least 5 clients"),
    ],
)
def test_bad_tables_are_refused(tmp_path, before, after, message):
    assert before in SCENARIO
    path = written(tmp_path, SCENARIO.replace(before, after))
    with pytest.raises(InputError, match=message):
        ba.identify(ba.load(path))


def test_the_command_says_who_was_caught_and_why(tmp_path):
    path = str(written(tmp_path))
    shown = CliRunner().invoke(app, ["run", path])
    assert shown.exit_code == 0
    assert "Proven faulty: north-1 in round 0" in shown.output
    assert "Lied and not caught: south-2 (sleeper)" in shown.output
    found = json.loads(CliRunner().invoke(app, ["run", path, "--json"]).output)
    assert found["proven_faulty"][0]["client"] == "north-1"
    assert found["warnings"] == []


def test_the_command_warns_of_more_liars_than_are_tolerated(tmp_path):
    path = written(tmp_path, SCENARIO.replace("byzantine = 1\n", ""))
    shown = CliRunner().invoke(app, ["check", str(path)])
    assert shown.exit_code == 0
    assert 'group "north" has 1 lying client, but byzantine = 0' in " ".join(shown.output.split())


def test_attacks_and_f_can_be_varied_in_a_study(tmp_path):
    scenario = ba.load(written(tmp_path))
    scenario = type(scenario)(
        Problem.bernoulli({"north": {"a": 0.9, "b": 0.2}, "south": {"c": 0.6}}, clients=5),
        options=scenario.options,
        adversaries=(Adversary("north", "bury", 2), Adversary("south", "promote", 2)),
    )
    vary = {"attack": ["bury", "extreme"], "byzantine": [0, 2]}
    trials = ba.study(scenario, trials=4, seed=1, vary=vary, max_rounds=20, workers=1)
    wrong = {(row["attack"], row["byzantine"]): row["errors"] for row in trials.summary()}
    assert wrong["extreme", 2] == wrong["bury", 2] == 0
    assert wrong["extreme", 0] == 4
    with pytest.raises(InputError, match="can't be varied"):
        ba.study(scenario.problem, trials=1, vary={"attack": ["bury"]}, byzantine=1)


def test_a_study_of_liars_is_the_same_on_any_number_of_workers():
    problem = Problem.bernoulli([[0.9, 0.2], [0.6]], clients=3)
    for attack in ("extreme", "adaptive"):
        liars = [Adversary("g1", attack), Adversary("g2", attack)]
        keys = {"trials": 40, "seed": 3, "byzantine": 1, "adversaries": liars}
        one, two = (ba.study(problem, workers=w, **keys) for w in (1, 2))
        for name in one.columns:
            assert one[name].tolist() == two[name].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [7, 15])
def test_without_liars_it_costs_about_what_fed_sel_costs(sigma):
    """Pulls per client .9 to 1.15 of Fed-SEL's, rounds .9 to 1.2, with the same |C| in the radius.

    α depends on |C|/δ alone: Fed-SEL with a third of δ has the radius of three times as many clients. A
    run's rounds have a standard deviation of about 1 %, so means of 3 are near their limits.
    """
    single = Problem.paper_instance(sigma)
    means = [list(row) for row in single.means]
    for rules, size in (("tight", 3), ("paper", 4)):
        plain = ba.study(single, "fed-sel", trials=400, seed=1, delta=0.1 / size, workers=1)
        problem = Problem.bernoulli(means, clients=size)
        trials = ba.study(
            problem, "robust-fed-sel", rules=rules, trials=3, seed=1, delta=0.1, byzantine=1, workers=1
        )
        assert (trials["arm"] == "g1/a1").all()
        pulls = trials["pulls_total"].mean() / size / plain["pulls_total"].mean()
        rounds = trials["rounds"].mean() / plain["rounds"].mean()
        assert 0.9 <= pulls <= 1.15
        assert 0.9 <= rounds <= 1.2


def test_a_silent_minority_costs_time_but_not_correctness():
    """With f of 2f+1 clients silent, every round waits until patience is over; the answer is the same."""
    problem = Problem.bernoulli([[0.95, 0.05], [0.8, 0.05]], clients=5)
    keys = {"delta": 0.1, "seed": 4, "byzantine": 2, "period": 4000}
    liars = [Adversary(g, "silent", 2) for g in ("g1", "g2")]
    quiet = ba.identify(problem, "robust-fed-sel", adversaries=liars, **keys)
    loud = ba.identify(problem, "robust-fed-sel", **keys)
    waits = [e for e in quiet.verdict.certificate["server"]["events"] if e[0] == "patience"]
    assert len(waits) == quiet.rounds
    assert quiet.verdict.arm == loud.verdict.arm == "g1/a1"


def test_forged_records_are_detected():
    problem = Problem.bernoulli([[0.9, 0.2], [0.6, 0.1]], clients=3)
    liars = [Adversary("g1", "negative-count"), Adversary("g2", "bury")]
    for method in ("robust-fed-sel", "fisher"):
        record = ba.identify(problem, method, delta=0.1, seed=2, byzantine=1, adversaries=liars)
        assert ba.verify(record, replay=True).ok

        def forge(change, record=record):
            plain = record.to_dict()
            change(plain)
            import msgspec

            return ba.verify(msgspec.convert(plain, ba.Record).sealed())

        def no_fault(plain):
            plain["proven_faulty"] = []

        def a_warning(plain):
            plain["warnings"] = [{"group": "g1", "round": 0, "text": "x"}]

        def no_liars(plain):
            plain["adversaries"] = []

        def other_sum(plain, key="sums" if method == "fisher" else "sum"):
            sent = plain["verdict"]["certificate"]["local"]["g1-2"]["sent"]
            sent[key][0] = [1, 1] if key == "sums" else 1.0

        def fewer_pulls(plain):
            plain["pulls"]["total"] -= 1

        for change in (no_fault, a_warning, no_liars, other_sum, fewer_pulls):
            assert not forge(change).ok, (method, change.__name__)


def test_pulls_that_a_liar_claims_are_not_in_the_record():
    problem = Problem.bernoulli([[0.9, 0.2], [0.6, 0.1]], clients=3)
    record = ba.identify(problem, delta=0.1, seed=2, byzantine=1, adversaries=[Adversary("g1", "bury")])
    assert record.verdict.certificate["local"]["g1-1"] == {"attack": "bury"}
    assert "g1-1" not in record.pulls.by_client
    assert np.isfinite(record.verdict.mean)
