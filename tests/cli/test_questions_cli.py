"""Questions on the command line: what is asked is said, and the answer comes with its table and exit code."""

from __future__ import annotations

import json
from functools import partial

import pytest

import command_line

SITES = """
[[group]]
name = "US"
arms = { A = 0.30, B = 0.62 }
[[group]]
name = "EU"
arms = { A = 0.80, B = 0.55 }
"""


@pytest.fixture
def bestarm(tmp_path):
    (tmp_path / "plain.toml").write_text(SITES)
    (tmp_path / "overall.toml").write_text(f'question = "overall"\nweights = {{ US = 3, EU = 1 }}\n{SITES}')

    return partial(command_line.bestarm, cwd=tmp_path)


def test_sites_that_share_options_are_told_what_is_asked_in_the_first_line(bestarm):
    for command in ("check", "run"):
        done = bestarm(command, "plain.toml", *(["--seed", 1] if command == "run" else []))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Asked: which option of which site is best?")
        assert "--question overall" in done.stdout.splitlines()[0]
    asked = bestarm("run", "plain.toml", "--seed", 1, "--question", "anywhere")
    assert not asked.stdout.startswith("Asked")
    told = json.loads(bestarm("check", "plain.toml", "--json").stdout)
    assert (told["question"], told["asked_silently"]) == ("anywhere", True)


def test_a_simulation_says_so_before_it_says_what_was_asked(bestarm, tmp_path):
    rows = [f"s{k % 2},{'ab'[k // 2 % 2]},{int(k % 4 < 2)}" for k in range(40)]
    (tmp_path / "won.csv").write_text("\n".join(["site,banner,won", *rows]) + "\n")
    data = 'csv = "won.csv"\ngroup = "site"\narm = "banner"\nreward = "won"\nrows = "resample"'
    (tmp_path / "again.toml").write_text(f"max_rounds = 2\n[data]\n{data}\n")
    lines = bestarm("run", "again.toml", "--seed", 1).stdout.splitlines()
    assert lines[0].startswith("Simulation: ")
    assert lines[-1].startswith("Asked: which option of which site is best?")


def test_the_overall_answer_is_shown_with_a_table_of_options_by_site(bestarm, tmp_path):
    done = bestarm("run", "overall.toml", "--seed", 1, "--out", "record.json", "--report", "page.html")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("B is the best option overall, on average over 2 weighted sites")
    assert "however much the sites differ" in done.stdout
    assert "Another option has the best mean at EU (A)" in done.stdout
    assert bestarm("verify", "record.json", "--replay").returncode == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Options by site" in page
    assert "B is the best option overall" in page


def test_flags_ask_another_question_than_the_file(bestarm):
    found = json.loads(bestarm("run", "overall.toml", "--seed", 1, "--question", "each", "--json").stdout)
    assert [(a["site"], a["option"]) for a in found["verdict"]["answers"]] == [("US", "B"), ("EU", "A")]
    assert found["verdict"]["arm"] is None
    args = ("run", "overall.toml", "--seed", 1, "--weights", "US=1,EU=9", "--also", "each", "--json")
    found = json.loads(bestarm(*args).stdout)
    assert found["verdict"]["arm"] == "A"
    assert len(found["verdict"]["answers"]) == 3


def test_an_open_answer_has_exit_code_3_and_says_why(bestarm):
    args = ("--question", "control", "--control", "A", "--max-rounds", 1)
    done = bestarm("run", "plain.toml", "--seed", 1, *args)
    assert done.returncode == 3
    assert "B is open: the allowed number of rounds is used up" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--question", "overal"], "Did you mean"),
        (["--question", "overall", "--weights", "US 1"], "SITE=NUMBER"),
        (["--question", "overall", "--weights", "US=x"], "SITE=NUMBER"),
        (["--question", "overall", "--weights", "1,2"], "SITE=NUMBER"),
        (["--question", "overall", "--epsilon", 0.1], "budget"),
        (["--question", "overall", "--method", "fisher"], "does not answer"),
        (["--question", "control"], "needs the name of the control"),
        (["--margin", 0.1], "do not belong"),
    ],
)
def test_what_makes_no_sense_is_an_input_error(bestarm, args, message):
    done = bestarm("run", "plain.toml", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_study_and_a_plan_answer_the_question(bestarm):
    done = bestarm("study", "overall.toml", "--trials", 40, "--seed", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells"][0]["errors"] == 0
    done = bestarm("plan", "overall.toml", "--trials", 20, "--quick", "--json")
    assert {row["method"] for row in json.loads(done.stdout)["methods"]} == {"bet"}


def test_another_question_keeps_the_weights_of_the_file_and_says_what_it_leaves_out(bestarm, tmp_path):
    text = (tmp_path / "overall.toml").read_text()
    (tmp_path / "both.toml").write_text(f'also = ["each"]\n{text}')
    done = bestarm("run", "both.toml", "--seed", 1, "--question", "control", "--control", "A", "--json")
    asked = json.loads(done.stdout)["problem"]["question"]
    assert (asked["question"], asked["weights"]) == ("control", [0.75, 0.25])
    assert 'also does not belong to question = "control"' in done.stderr
    assert "weights" not in done.stderr
