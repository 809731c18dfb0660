"""Runs on recorded rewards in order: drift and dependence take the promise back."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import bestarm as ba
from bestarm.graphs.generators import complete
from bestarm.records.answer import answer_card
from bestarm.records.recordings import withdrawals, withdrawn
from bestarm.report.facts import of_record
from bestarm.scenario.load import load
from command_line import bestarm
from rates import rate_exceeds

MORE = [("a", 0.0), ("b", 0.6)]
SCENARIO = '[data]\ncsv = "rows.csv"\narm = "option"\nreward = "ok"\n'


def rows(rng, late: float, number: int = 2000) -> list[tuple[str, int]]:
    """Results of two options, of which b is better; in the second half both win more often by `late`."""
    options = rng.choice(["a", "b"], number)
    chance = 0.3 + 0.25 * (options == "b") + late * (np.arange(number) >= number / 2)
    return list(zip(options.tolist(), (rng.random(number) < chance).astype(int).tolist(), strict=True))


def scenario_of(folder, found, more: str = ""):
    lines = ["option,ok", *(f"{option},{ok}" for option, ok in found)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "rows.toml").write_text(SCENARIO + more, "utf-8")
    return load(folder / "rows.toml")


@pytest.mark.parametrize("method", ["bet", "fisher", "fed-sel"])
def test_rows_that_drift_take_the_promise_back(tmp_path, method):
    steady, drifting = (rows(np.random.default_rng(5), late) for late in (0.0, 0.3))
    plain = ba.identify(scenario_of(tmp_path, steady), method, seed=1)
    assert not withdrawn(plain.warnings)
    assert answer_card(plain).tone != "bad"
    record = ba.identify(scenario_of(tmp_path, drifting), method, seed=1)
    card = answer_card(record)
    assert card.tone == "bad"
    assert card.risk.startswith("Nothing is promised: the rewards of ")
    assert "change over time" in card.headline
    assert not any(option.interval for option in card.options)
    assert ba.verify(record, replay=True).ok
    without = msgspec.structs.replace(record, warnings=[]).sealed()
    assert "warnings does not follow from the messages to the server" in ba.verify(without).failures


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_rows_that_drift_take_the_promise_of_peers_back(late):
    rng = np.random.default_rng(5)
    chance = 0.1 + late * (np.arange(4000) >= 2000)
    arms = {name: ba.Recording(tuple((rng.random(4000) < chance + more).tolist())) for name, more in MORE}
    problem = ba.Problem.from_rewards({"g1": arms, "g2": {"c": 0.1}, "g3": {"d": 0.1}})
    record = ba.identify(problem, "p2p", network=ba.Network(complete(3)), seed=1)
    assert record.verdict.arm == "g1/b"
    assert bool(withdrawn(record.warnings)) == (late > 0)
    card = answer_card(record)
    assert card.risk.startswith("Nothing is promised: the rewards of ") == (late > 0)
    assert bool(of_record(record, quick=True).broken) == (late > 0)
    assert ba.verify(record, replay=True).ok
    if late:
        without = msgspec.structs.replace(record, warnings=[]).sealed()
        assert "rounds, warnings or interrupted do not fit a run of peers" in ba.verify(without).failures


def test_rows_that_have_no_order_are_not_tested(tmp_path):
    drifting = rows(np.random.default_rng(5), 0.3)
    simulated = ba.identify(scenario_of(tmp_path, drifting, 'rows = "resample"\n'), seed=1)
    assert simulated.warnings == []
    counted = {"g": {a: {"kind": "recording", "values": [0, 1], "counts": [40, 60]} for a in "ab"}}
    assert withdrawals(ba.Problem.from_rewards(counted).to_dict()) == []
    pairs = {"finite": True, "paired": True, "groups": []}
    assert withdrawals(pairs) == []


def test_independent_rows_lose_the_promise_in_at_most_one_run_of_a_hundred():
    """2,000 problems of three arms with 60 rewards. Null: the rate is at most .01; false alarms at 1e-6.

    A rate of .03 is found with probability .98.
    """
    rng, wrong, tables = np.random.default_rng(8), 0, 2000
    for values in (rng.random((tables, 3, 60)) < 0.5).astype(float).tolist():
        arms = [{"kind": "recording", "values": value} for value in values]
        group = {"name": "g", "clients": ["g"], "arms": ["a", "b", "c"], "rewards": [arms]}
        wrong += bool(withdrawals({"finite": True, "groups": [group]}))
    assert not rate_exceeds(wrong, tables, 0.01)


def test_the_command_says_so_and_exits_with_6(tmp_path):
    scenario_of(tmp_path, rows(np.random.default_rng(5), 0.3))
    done = bestarm("run", "rows.toml", "--seed", 1, "--out", "run.json", "--report", "run.html", cwd=tmp_path)
    assert done.returncode == 6
    first, *rest = done.stdout.splitlines()
    assert first.startswith("No safe answer: the rewards of ")
    assert first.endswith("The run named all/b.")
    assert "next: Do not act on this answer." in rest
    assert "with probability at most" not in done.stdout
    assert "change over time" in (tmp_path / "run.html").read_text("utf-8")
    assert bestarm("verify", "run.json", cwd=tmp_path).returncode == 0


def test_methane_minutes_take_the_promise_back(data, tmp_path):
    text = (
        f'[data]\ncsv = "{data / "methane_metec.csv"}"\ngroup = "region"\narm = "sensor"\nreward = "reward"\n'
    )
    (tmp_path / "methane.toml").write_text(text + "where = { release = 2 }\n", "utf-8")
    record = ba.identify(load(tmp_path / "methane.toml"), seed=1)
    assert record.verdict.status == "identified"
    assert "alike than independent rows" in " ".join(warning["text"] for warning in record.warnings)
    assert answer_card(record).tone == "bad"
