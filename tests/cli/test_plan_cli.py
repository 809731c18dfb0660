"""`bestarm plan` as a user types it: shows what `ba.plan` and `ba.schedule` find, refuses invalid input."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys

import pytest
from rich.console import Console

import bestarm as ba
from bestarm import cli
from bestarm.cli.render import progress
from bestarm.cli.render.numbers import count
from bestarm.cli.render.plan import COSTS
from bestarm.stats.limit import limited
from bestarm.study.forecast import PlanProgress
from command_line import bestarm
from marking import slow

QUICK = """
delta = 0.1
[[group]]
name = "north"
arms = { a = 0.9, b = 0.3 }
[[group]]
name = "south [bold]"
arms = { c = 0.5, d = 0.2 }
"""


def planned(*args):
    done = bestarm("plan", *args, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(QUICK, encoding="utf-8")
    return path


def test_the_json_is_the_plan(scenario):
    told = planned(scenario, "--trials", 4, "--seed", 4, "--budget", 500, "--period", 50)
    found = ba.plan(ba.load(scenario), trials=4, seed=4, budget=500, period=50, workers=1).to_dict()
    assert told.pop("schedule") is None
    assert set(told["left_out"]) == {"robust-fed-sel", "p2p"}
    assert told == json.loads(json.dumps(found))
    assert told["budget"] == 500
    assert [row["name"] for row in told["methods"]][:2] == ["fed-sel", "fisher (pulls)"]


@pytest.mark.slow
def test_the_tables_show_the_plan_s_numbers(scenario):
    done = bestarm("plan", scenario, "--trials", 30, "--seed", 4, "--budget", 500)
    assert done.returncode == 0, done.stderr
    found = ba.plan(ba.load(scenario), trials=30, seed=4, budget=500, workers=1)
    lines = done.stdout.splitlines()
    for row in found.methods:
        begin = lines.index(row.name)
        table = lines[begin : lines.index("", begin)]
        cells = {title: next(x for x in table if x.startswith(f" {title} ")) for title in COSTS.values()}
        for key, title in COSTS.items():
            spread = getattr(row.cost, key)
            shown = [count(spread.low), count(spread.high)]
            assert re.search(rf" {re.escape(shown[0])} to {re.escape(shown[1])}\b", cells[title]), cells
        assert f"95 % decide with {row.enough.budget:,} pulls per client" in "\n".join(table)
        assert "with your 500 pulls per client" in "\n".join(table)
    proved = ba.bounds(ba.load(scenario).problem, 0.1)
    assert f"at most {count(proved.rounds)}" in done.stdout
    assert f"Limit: {limited()} needs on average at least {found.limit.total:,.0f} pulls, " in done.stdout
    for line in found.advice:
        assert f"- {line}" in lines
    assert "seed 4" in done.stdout


@pytest.mark.slow
def test_gaps_can_replace_a_scenario(tmp_path):
    told = planned("--gaps", "north=0,0.3 ; south=0.2,0.4;", "--trials", 20, "--seed", 2, "--quick")
    assert told["heterogeneity"]["groups"] == ["north", "south"]
    assert told["heterogeneity"]["local_gaps"] == pytest.approx([0.3, 0.2])
    assert told["heterogeneity"]["global_gaps"] == pytest.approx([0.0, 0.2])
    assert "guesses" in told["assumption"]
    path = tmp_path / "s.toml"
    path.write_text(
        '[[group]]\nname = "north"\narms = { a1 = 0.5, a2 = 0.2 }\n'
        '[[group]]\nname = "south"\narms = { a1 = 0.3, a2 = 0.1 }\n',
        encoding="utf-8",
    )
    assert planned(path, "--trials", 20, "--seed", 2, "--quick") == {**told, "assumption": ""}


@pytest.mark.slow
def test_a_schedule_keeps_to_the_communication_budget(scenario):
    args = (scenario, "--trials", 40, "--seed", 3, "--quick", "--max-rounds", 1)
    told = planned(*args)["schedule"]
    found = ba.schedule(ba.load(scenario), max_rounds=1, trials=40, seed=3, workers=1)
    assert (told["method"], told["options"], told["probability"]) == (
        found.method, found.options, found.probability,
    )  # fmt: skip
    assert told["cost"]["rounds"]["high"] == 1
    text = " ".join(bestarm("plan", *args).stdout.split())
    assert f"Within 1 round: --method {found.method}" in text
    assert "heuristic" in text
    assert "wrong with probability at most delta whatever the means are" in text
    # The options it names can be typed as shown.
    shown = re.search(r"Within 1 round: (--method .*?) ends there", text)
    done = bestarm("run", scenario, "--seed", 1, "--max-rounds", 1, "--json", *shown.group(1).split())
    assert done.returncode in (0, 3), done.stderr
    assert json.loads(done.stdout)["rounds"] == 1


@pytest.mark.slow
def test_a_communication_budget_can_be_given_in_bits(scenario):
    told = planned(scenario, "--trials", 40, "--seed", 3, "--quick", "--max-bits", 60)["schedule"]
    cost = told["cost"]
    assert told["probability"] >= 0.8
    assert cost["bits_up"]["median"] + cost["bits_down"]["median"] <= 60


@pytest.mark.slow
def test_a_method_that_refuses_is_left_out_with_the_reason(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(QUICK.replace('name = "north"', 'name = "north"\nclients = 3'), encoding="utf-8")
    told = planned(path, "--trials", 20, "--seed", 1, "--quick")
    assert {row["method"] for row in told["methods"]} == {"bet", "fisher", "robust-fed-sel"}
    assert "3 clients" in told["left_out"]["fed-sel"]
    assert "network" in told["left_out"]["p2p"]
    text = bestarm("plan", path, "--trials", 20, "--seed", 1, "--quick").stdout
    assert "fed-sel is left out" in text
    assert bestarm("plan", path, "--method", "fed-sel", "--trials", 20).returncode == 2


def test_a_method_that_never_ends_is_reported(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(QUICK.replace("0.5", "0.9"), encoding="utf-8")
    done = bestarm("plan", path, "--trials", 20, "--seed", 1, "--quick", "--method", "fed-sel")
    assert done.returncode == 0, done.stderr
    assert "not simulated" in done.stdout
    assert "tied" in done.stdout
    assert "at most unbounded" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nowhere.toml"],
        ["{}", "--gaps", "north=0,0.1"],
        ["--gaps", ""],
        ["--gaps", "north"],
        ["--gaps", "north=0,x"],
        ["--gaps", "north=0,nan"],
        ["--gaps", "north=0,0.1;north=0.2"],
        ["--gaps", "north=0,0.1;south=0"],
        ["{}", "--trials", "0"],
        ["{}", "--seed", "-1"],
        ["{}", "--budget", "0"],
        *slow((["{}", "--max-rounds", "0"],), (["{}", "--max-bits", "0"],)),
        ["{}", "--method", "best"],
        ["{}", "--delta", "2"],
        ["{}", "--method", "fisher", "--period", "10"],
    ],
)
def test_invalid_input_is_an_error_that_says_so(args, scenario, tmp_path, monkeypatch, capsys):
    """Call the entry point in this process and expect exit code 2, one line and no traceback."""
    monkeypatch.chdir(tmp_path)
    words = [str(scenario) if a == "{}" else a for a in args]
    few = [] if "--trials" in words else ["--trials", "5"]
    monkeypatch.setattr(sys, "argv", ["bestarm", "plan", *words, *few, "--quick", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert list(json.loads(shown.out)) == ["error"]
    assert shown.err.startswith("error:")


def test_ctrl_c_is_reported_and_exits_with_130(scenario, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("bestarm.study.forecast"), "study", interrupted)
    monkeypatch.setattr(sys, "argv", ["bestarm", "plan", str(scenario)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "interrupted; a plan saves nothing\n"


def test_the_bar_of_a_plan_names_the_method_and_counts_its_runs(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(progress, "err", console)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.plan_progress(quiet=False) as watch:
        watch(PlanProgress(study=6, method="fisher", done=10, total=40))
    assert "simulated runs of fisher: 10 of 40" in console.file.getvalue()


@pytest.mark.slow
def test_a_plan_shows_its_progress():
    seen = []
    ba.plan(ba.Problem.bernoulli([[0.9, 0.3], [0.5]]), trials=10, seed=1, quick=True, watch=seen.append)
    assert {(p.study, p.method) for p in seen} == {
        (1, "fed-sel"),
        (2, "fisher"),
        (3, "fisher"),
        (4, "fisher"),
        *((study, "bet") for study in (5, 6, 7, 8)),
    }
    assert all(0 <= p.done <= p.total == 10 for p in seen)
    assert [p.study for p in seen] == sorted(p.study for p in seen)
    assert [p.done for p in seen][-1] == 10
