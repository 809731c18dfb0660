"""The recipes of docs/real-data.md, end to end: run, verified, reported, and checked against the page.

The page shows the first recipe; the others are files in examples/real-data.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import bestarm as ba
from bestarm.records.recordings import withdrawn
from bestarm.report import page
from bestarm.scenario.load import scenario_from_dict

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "real-data.md").read_text("utf-8")
RECIPES = dict(re.findall(r"```toml\n# (\w+)\.toml\n(.*?)```", PAGE, re.DOTALL))
RECIPES |= {path.stem: path.read_text("utf-8") for path in (ROOT / "examples/real-data").glob("*.toml")}
FLIGHTS = "flights_nyc.csv"


def scenario(name, folder, **changes):
    """A recipe with its data from `folder`; `changes` apply to the [data] table."""
    keys = tomllib.loads(RECIPES[name])
    keys["data"] |= changes
    return scenario_from_dict(keys, folder)


def said(number):
    """Whether the page contains this number."""
    return re.search(rf"(?<![\d,]){number:,}(?![\d,]*\d)", PAGE) is not None


def whole(record, tmp_path):
    """Verify, replay, save, load and report a record."""
    assert ba.verify(record, replay=True)
    again = ba.Record.load(record.save(tmp_path / "r.json"))
    assert again.to_dict() == record.to_dict()
    record.report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    assert (record.verdict.arm or "Undecided") in text
    return record


def test_there_are_six_recipes_and_the_page_names_each():
    assert set(RECIPES) == {"flights", "restaurants", "methane", "headlines", "heart", "relays"}
    assert [name for name in RECIPES if f"{name}.toml" not in PAGE] == []


def test_the_table_has_the_right_sizes_and_gaps(data):
    rows = re.findall(r"^\| (\w+) \| (\d+) \w+, (\d+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert {row[0] for row in rows} == set(RECIPES)
    for name, groups, arms, gap in rows:
        changes = {"flights": {"csv": FLIGHTS}, "methane": {"rows": "resample"}}.get(name, {})
        problem = scenario(name, data, **changes).problem
        means = sorted((mean for row in problem.means for mean in row), reverse=True)
        assert (len(problem.layout.groups), len(means)) == (int(groups), int(arms))
        assert f"{means[0] - means[1]:.{len(gap) - 2}f}" == gap


def test_flights_run_as_they_are(tmp_path):
    own = ba.load(ROOT / "examples/flights.toml")
    assert own.problem.to_dict() == scenario("flights", ROOT / "examples").problem.to_dict()
    record = whole(ba.identify(own), tmp_path)
    assert record.verdict.arm == own.problem.best == "JFK/HA"
    assert said(record.pulls.total)
    assert said(record.bits.up)
    assert said(ba.identify(own, prefer="bits").pulls.total)


def test_our_flights_equal_those_of_the_shared_table(data):
    shared = scenario("flights", data, csv=FLIGHTS)
    assert shared.problem == ba.load(ROOT / "examples/flights.toml").problem


def test_one_liar_fools_a_plain_mean_and_not_a_robust_one(data, tmp_path):
    loaded = scenario("restaurants", data)
    record = whole(ba.identify(loaded), tmp_path)
    assert record.verdict.arm == loaded.problem.best
    assert record.proven_faulty == []
    assert said(record.pulls.total)
    fooled = ba.identify(loaded, byzantine=0)
    assert fooled.verdict.status == "identified"
    assert fooled.verdict.arm != loaded.problem.best
    assert fooled.verdict.arm in PAGE
    assert "Nothing is promised" in page.of_record(fooled, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "clients"), [("tight", 3), ("paper", 4)])
def test_the_paper_s_robust_method_is_not_fooled_either(data, rules, clients):
    loaded = scenario("restaurants", data, clients=clients)
    record = ba.identify(loaded, method="robust-fed-sel", rules=rules)
    assert record.verdict.arm == loaded.problem.best
    assert said(record.pulls.total)


@pytest.mark.slow
def test_a_plain_mean_is_fooled_again_and_again(data):
    """Null: with byzantine = 1 a run is wrong with probability ≤ 0.05; 6 of 8 then have one < 1e-6."""
    loaded = scenario("restaurants", data)
    wrong = {
        f: sum(ba.identify(loaded, byzantine=f, seed=s).verdict.arm != loaded.problem.best for s in range(8))
        for f in (0, 1)
    }
    assert wrong[0] == 8
    assert wrong[1] < 6


@pytest.mark.slow
def test_methane_is_undecided_on_real_minutes_and_found_when_resampled(data, tmp_path):
    minutes = whole(ba.identify(scenario("methane", data)), tmp_path)
    assert minutes.verdict.status == "undecided"
    assert minutes.verdict.reason == "budget"
    assert {name.split("/")[0] for name in minutes.verdict.candidates} == {"west"}
    loaded = scenario("methane", data, rows="resample")
    record = ba.identify(loaded)
    assert record.verdict.arm == loaded.problem.best
    assert said(record.pulls.total)
    found = {k: ba.identify(scenario("methane", data, where={"release": k})) for k in range(10)}
    assert [k for k, one in found.items() if one.verdict.status == "undecided"] == [0, 1, 7]
    assert [k for k, one in found.items() if withdrawn(one.warnings)] == [2, 4, 5, 6, 7, 8, 9]


@pytest.mark.slow
def test_headlines_with_small_rates_are_decided(data, tmp_path):
    loaded = scenario("headlines", data)
    record = whole(ba.identify(loaded), tmp_path)
    assert record.verdict.arm == loaded.problem.best
    assert said(record.pulls.total)
    for week in (201408, 201437):
        loaded = scenario("headlines", data, where={"week": week})
        record = ba.identify(loaded)
        assert record.verdict.arm == loaded.problem.best
        assert said(record.pulls.total)


def within(problem, arm, epsilon):
    group, _, name = arm.partition("/")
    means = {(g.name, a): m for g, row in zip(problem.layout.groups, problem.means, strict=True)
             for a, m in zip(g.arms, row, strict=True)}  # fmt: skip
    width = problem.scale.high - problem.scale.low
    return means[group, name] >= max(means.values()) - epsilon / width


@pytest.mark.slow
def test_heart_needs_epsilon(data, tmp_path):
    loaded = scenario("heart", data)
    record = whole(ba.identify(loaded), tmp_path)
    assert within(loaded.problem, record.verdict.arm, 0.02)
    exact = ba.identify(loaded, epsilon=0.0)
    assert exact.verdict.arm == loaded.problem.best
    assert exact.pulls.total > 50 * record.pulls.total
    assert said(record.pulls.total)
    assert said(exact.pulls.total)
    short = ba.identify(loaded, epsilon=0.0, budget=100_000)
    assert (short.verdict.status, len(short.verdict.candidates)) == ("undecided", 2)
    correct = ba.identify(scenario("heart", data, reward="correct"), epsilon=0.0)
    assert said(correct.pulls.total)


@pytest.mark.slow
def test_relays_need_epsilon(data, tmp_path):
    loaded = scenario("relays", data)
    record = whole(ba.identify(loaded), tmp_path)
    assert within(loaded.problem, record.verdict.arm, 10)
    assert said(record.pulls.total)
    assert said(ba.identify(loaded, epsilon=20).pulls.total)
    exact = ba.identify(loaded, epsilon=0.0, budget=10_000_000)
    assert (exact.verdict.status, len(exact.verdict.candidates)) == ("undecided", 34)
