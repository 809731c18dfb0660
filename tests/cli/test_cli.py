"""The command as a user types it: output, JSON, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from command_line import bestarm
from marking import slow

QUICK = """
method = "fed-sel"
delta = 0.1
[[group]]
name = "north"
arms = { a = 0.9, b = 0.2 }
[[group]]
name = "south [bold]"
arms = { c = 0.5, d = 0.1 }
"""
TIED = QUICK.replace("0.5", "0.9")
LATE = """
goal = "min"
[data]
csv = "late.csv"
group = "city"
arm = "courier"
reward = "minutes late"
bounds = [0, 60]
"""
ONCE = LATE + 'rows = "once"\n'
LATE += 'rows = "resample"\n'


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(QUICK, encoding="utf-8")
    return path


def test_run_names_the_best_arm(scenario):
    done = bestarm("run", scenario, "--seed", 1)
    assert done.returncode == 0
    assert "north/a is the best arm" in done.stdout
    assert "south [bold]" in done.stdout
    assert "seed 1" in done.stdout


def test_json_is_one_object_and_the_record(scenario, tmp_path):
    done = bestarm("run", scenario, "--seed", 1, "--json", "--out", tmp_path / "r.json")
    record = json.loads(done.stdout)
    assert record["verdict"]["arm"] == "north/a"
    assert done.stderr == ""
    saved = json.loads((tmp_path / "r.json").read_text())
    assert saved == record


def test_every_key_can_be_given_on_the_command_line(scenario):
    done = bestarm(
        "run", scenario, "--seed", 1, "--json", "--delta", 0.2, "--c", 4, "--period", 7,
        "--period_growth", 1.5, "--no-quantiser", "--radius", "sharp", "--intersect",
        "--early-stop", "--budget", 100000, "--max-rounds", 50, "--epsilon", 0.01, "--method", "fed-sel",
    )  # fmt: skip
    record = json.loads(done.stdout)
    assert record["delta"] == 0.2
    assert record["options"] == {
        "epsilon": 0.01, "byzantine": 0, "budget": 100000, "max_rounds": 50, "summaries": True,
        "c": 4.0, "period": 7, "period_growth": 1.5, "quantiser": False, "radius": "sharp",
        "intersect": True, "early_stop": True,
    }  # fmt: skip


def test_undecided_is_exit_code_3(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(TIED, encoding="utf-8")
    done = bestarm("run", path, "--seed", 1, "--budget", 20000)
    assert done.returncode == 3
    assert "Undecided" in done.stdout
    assert "north/a, south [bold]/c" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["run", "nowhere.toml"],
        ["run"],
        ["run", "{}", "--delta", "3"],
        ["run", "{}", "--delta", "x"],
        ["run", "{}", "--perod", "3"],
        ["run", "{}", "--method", "best"],
        ["run", "{}", "--budget", "1"],
        ["run", "{}", "--plot", "picture.xyz"],
        ["run", "{}", "--out", "/proc/nowhere/r.json"],
        ["check", "nowhere.toml"],
        ["verify", "nowhere.json"],
        ["verify", "{}"],
        ["new", "/proc/nowhere/x"],
        ["nonsense"],
    ],
)
def test_bad_input_is_exit_code_2_without_a_traceback(scenario, args, tmp_path):
    done = bestarm(*[scenario if a == "{}" else a for a in args], cwd=tmp_path)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_input_with_json_is_an_object_too():
    done = bestarm("run", "nowhere.toml", "--json")
    assert done.returncode == 2
    assert "nowhere.toml" in json.loads(done.stdout)["error"]


def test_new_then_check_then_run(tmp_path):
    assert bestarm("new", "mine", cwd=tmp_path).returncode == 0
    assert bestarm("new", "mine", cwd=tmp_path).returncode == 2
    checked = bestarm("check", "mine.toml", cwd=tmp_path)
    assert checked.returncode == 0
    assert "2 groups, 5 arms, 2 clients" in checked.stdout
    done = bestarm("run", "mine.toml", "--seed", 1, cwd=tmp_path)
    assert "north/a is the best arm" in done.stdout


def test_check_says_what_would_be_refused_and_what_is_tied(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(TIED.replace('name = "north"', 'name = "north"\nclients = 2'), encoding="utf-8")
    done = bestarm("check", path, "--json")
    assert done.returncode == 2
    facts = json.loads(done.stdout)
    assert "2 clients" in facts["refused"]
    assert "tied: north/a, south [bold]/c" in facts["warnings"][0]


def test_verify_accepts_a_sound_record_and_rejects_an_altered_one(scenario, tmp_path):
    path = tmp_path / "r.json"
    bestarm("run", scenario, "--seed", 1, "--out", path)
    assert bestarm("verify", path, "--replay").returncode == 0
    path.write_text(path.read_text().replace('"arm": "north/a"', '"arm": "south [bold]/c"'))
    done = bestarm("verify", path, "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["ok"] is False


def test_a_picture_is_drawn(scenario, tmp_path):
    for name in ("p.png", "p.svg"):
        assert bestarm("run", scenario, "--seed", 1, "--plot", tmp_path / name).returncode == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "p.svg").read_text()


@pytest.mark.slow
def test_an_invalid_path_is_reported_before_the_run_and_json_stays_one_object(scenario, tmp_path):
    for extra in (["--plot", "x.xyz"], ["--out", "/proc/nowhere/r.json"], ["--plot", "/proc/nowhere/p.png"]):
        done = bestarm("run", scenario, "--json", *extra, cwd=tmp_path)
        assert done.returncode == 2
        assert list(json.loads(done.stdout)) == ["error"]


def test_hostile_names_are_shown_as_they_are(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(QUICK.replace("north", r"_g$\\frac{$").replace("south", "<b>"), encoding="utf-8")
    done = bestarm("run", path, "--seed", 1, "--plot", tmp_path / "p.svg")
    assert done.returncode == 0, done.stderr
    assert r"_g$\frac{$/a is the best arm" in done.stdout
    done = bestarm("check", "sites:x:north.toml")
    assert "error: sites:x:north.toml: can't be read" in done.stderr


def test_a_terminal_without_unicode_gets_question_marks(scenario):
    done = subprocess.run(
        [sys.executable, "-m", "bestarm.cli", "run", scenario, "--seed", "1"],
        capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_goal_min_ranks_small_means_first(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('goal = "min"\n' + QUICK, encoding="utf-8")
    done = bestarm("run", path, "--seed", 1)
    assert "south [bold]/d is the best arm" in done.stdout
    lines = done.stdout.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("option"))
    means = [float(re.search(r" ([\d.]+) %", line)[1]) for line in lines[first + 1 : first + 5]]
    assert means == sorted(means)
    assert "Ahead by" in done.stdout


TOLD = """
import sys
from bestarm import cli
from bestarm.simulate import run as simulate

def go(run, go=simulate.Run.go):
    print("it goes", file=sys.stderr, flush=True)
    go(run)

simulate.Run.go = go
cli.main()
"""


def test_ctrl_c_leaves_a_record_and_exits_with_130(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(TIED, encoding="utf-8")
    command = [sys.executable, "-c", TOLD, "run", path, "--seed", "1", "--out", tmp_path / "r.json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "tied" in process.stderr.readline()
    assert "it goes" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in out
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["interrupted"] is True
    assert record["verdict"]["reason"] == "interrupted"
    assert bestarm("verify", tmp_path / "r.json").returncode == 0


def of_couriers(folder, rows, scenario=LATE):
    """Write a CSV file with `rows` rows per courier, and a scenario for it."""
    couriers = {"Rome,Gio": 10, "Rome,Leo": 14, "Rome,Dino": 40, "Oslo,Ida": 20}
    lines = [f"{name},{mean + 6 * (k % 3 - 1)}" for k in range(rows) for name, mean in couriers.items()]
    (folder / "late.csv").write_text("\n".join(["city,courier,minutes late", *lines]) + "\n")
    path = folder / "late.toml"
    path.write_text(scenario, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_verdict_from_draws_with_replacement_says_that_it_is_about_the_file(tmp_path):
    path = of_couriers(tmp_path, rows=20)
    done = bestarm("run", path, "--seed", 1)
    first, second, *_ = done.stdout.splitlines()
    assert re.fullmatch(
        r"Simulation: [\d,]+ draws from 80 rows of late.csv \([\d.]+ draws per row: your data .*", first
    )
    assert second == "Rome/Gio is the best arm: the lowest mean of minutes late."
    assert "wrong about the file with probability at most 0.05" in done.stdout
    said = "Pulls draw from the 80 rows of late.csv with replacement: a verdict is about the file"
    assert said in done.stdout
    assert "Means are of coins" not in done.stdout
    assert "Means are of coins" in bestarm("run", path, "--seed", 1, "--method", "fisher").stdout
    assert said in bestarm("study", path, "--trials", 2, "--seed", 1, "--workers", 1).stdout
    record = json.loads(bestarm("run", path, "--seed", 1, "--json").stdout)
    data = {"csv": "late.csv", "reward": "minutes late", "rows": 80, "rewards": 80, "resample": True}
    more = {"skipped": 0, "counts": False, "shuffled": False, "notes": [], "pair": ""}
    assert record["problem"]["data"] == {**data, **more}
    assert next(iter(record)) == "simulation"
    assert record["simulation"] + "." == first
    checked = bestarm("check", path)
    assert said in checked.stderr
    assert "Best means the lowest mean of minutes late, from 80 rows of late.csv." in checked.stdout
    facts = json.loads(bestarm("check", path, "--json").stdout)
    assert said in facts["warnings"][0]
    once = bestarm("run", of_couriers(tmp_path, rows=1500, scenario=ONCE), "--seed", 1)
    assert "This is wrong with probability at most 0.05." in once.stdout
    assert "6,000 rows, each played once" in once.stdout
    assert "imulation" not in once.stdout
    assert bestarm("check", path).stderr == ""
    client = bestarm("client", tmp_path / "nowhere", "--csv", tmp_path / "late.csv", "--rows", "resample")
    assert "with replacement, so a verdict is about the file; see --rows once" in client.stderr


def test_data_that_run_out_name_the_arm_and_a_remedy(tmp_path):
    fisher = ("--seed", 1, "--method", "fisher")
    few = bestarm("run", of_couriers(tmp_path, rows=50, scenario=ONCE), *fisher)
    assert few.returncode == 3
    assert "Undecided: the data are used up." in few.stdout
    assert "has 50 rewards, and the next look takes 72" in few.stdout
    assert "What helps: more data, epsilon" in few.stdout
    assert "tighter bounds" in few.stdout
    assert "bestarm evidence on the same table uses all rows" in few.stdout
    assert "Still in the race: Rome/Gio, Rome/Leo and Oslo/Ida." in few.stdout  # Rome eliminated Dino
    allowed = bestarm("run", of_couriers(tmp_path, rows=50), *fisher, "--budget", 100)
    assert "the budget of pulls per client (100)" in allowed.stdout
    assert "What helps: a larger budget" in allowed.stdout


def test_a_run_without_a_round_shows_what_was_drawn(tmp_path):
    done = bestarm("run", of_couriers(tmp_path, rows=6, scenario=ONCE), "--seed", 1, "--method", "fisher")
    assert done.returncode == 3
    assert "0 rounds" in done.stdout
    rows = {
        line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.startswith("Rome/")
    }
    assert rows["Rome/Gio"] == ["6", "10"]
    assert rows["Rome/Dino"] == ["6", "40"]


def test_the_leader_within_epsilon_is_named_and_one_arm_has_one_mean(tmp_path):
    fisher = ("--method", "fisher", "--seed", 1)
    done = bestarm("run", of_couriers(tmp_path, rows=50, scenario=ONCE), *fisher, "--epsilon", 1)
    assert re.search(r"^Rome/Gio is at most [\d.]+( points?)? from the best\.$", done.stdout, re.MULTILINE)
    for method in ("fisher", "fed-sel"):
        done = bestarm("run", of_couriers(tmp_path, rows=20), "--seed", 2, "--method", method)
        said = re.search(r"Its mean is about ([\d.]+\d)", done.stdout)[1]
        assert re.search(r"^Rome/Gio +(\S+) .* winner", done.stdout, re.MULTILINE)[1] == said


def test_a_drawn_seed_can_be_reused_and_empty_phases_are_omitted(scenario):
    first = bestarm("run", scenario, "--method", "fisher").stdout
    seed = re.search(r"--seed (\d+) gives the same run", first)[1]
    again = bestarm("run", scenario, "--method", "fisher", "--seed", seed).stdout
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert "gives the same run" not in again
    assert "quiet looks" not in first
    assert "in quiet looks" in bestarm("run", scenario, "--method", "fisher", "--prefer", "rounds").stdout


def test_many_remaining_arms_are_listed(tmp_path):
    arms = ", ".join(f"arm{k} = 0.5" for k in range(22))
    path = tmp_path / "s.toml"
    path.write_text(f'[[group]]\nname = "g"\narms = {{ {arms} }}', encoding="utf-8")
    done = bestarm("run", path, "--seed", 1, "--budget", 100)
    assert "g/arm19 and 2 more." in done.stdout


def test_a_draft_for_sites_with_the_same_options_asks_which_is_best_overall(tmp_path):
    rows = [f"{city},{courier},{k % 2}" for k in range(20) for city in ("Rome", "Oslo") for courier in "ab"]
    (tmp_path / "late.csv").write_text("\n".join(["city,courier,late", *rows]) + "\n")
    bestarm("new", "mine", "--csv", "late.csv", cwd=tmp_path)
    assert 'question = "overall"    # CHECK' in (tmp_path / "mine.toml").read_text("utf-8")


@pytest.mark.slow
def test_new_reads_a_csv_file(tmp_path):
    of_couriers(tmp_path, rows=20)
    done = bestarm("new", "mine", "--csv", "late.csv", cwd=tmp_path)
    assert 'with group = "city", arm = "courier", reward = "minutes late". Next: read' in done.stdout
    text = (tmp_path / "mine.toml").read_text("utf-8")
    assert 'reward = "minutes late"' in text
    assert "question = " not in text  # each city has couriers of its own
    assert 'goal = "CHECK: max or min"' in text  # its name sounds as if less were better
    for command in ("check", "run"):
        refused = bestarm(command, "mine.toml", cwd=tmp_path)
        assert refused.returncode == 2
        assert "goal = 'CHECK: max or min' is not decided. Expected \"max\"" in refused.stderr
    (tmp_path / "mine.toml").write_text(text.replace("CHECK: max or min", "min"), "utf-8")
    checked = bestarm("check", "mine.toml", cwd=tmp_path)
    assert "2 groups, 4 arms" in checked.stdout
    named = bestarm(
        "new", "other", "--csv", "late.csv", "--arm-column", "city", "--group-column", "courier", cwd=tmp_path
    )
    assert named.returncode == 0
    assert 'arm = "city"' in (tmp_path / "other.toml").read_text("utf-8")
    assert bestarm("new", "third", "--arm-column", "city", cwd=tmp_path).returncode == 2
    assert bestarm("new", "third", "--csv", "late.csv", "--goal", "least", cwd=tmp_path).returncode == 2
    assert bestarm("new", "third", "--csv", "late.csv", "--goal", "min", cwd=tmp_path).returncode == 0
    assert "lowest mean of minutes late" in bestarm("check", "third.toml", cwd=tmp_path).stdout
    assert bestarm("new", "fourth", "--csv", "late.csv", "--unit", "min", cwd=tmp_path).returncode == 0
    assert 'unit = "min"' in (tmp_path / "fourth.toml").read_text("utf-8")


def test_a_path_that_is_not_a_run_is_reported_with_a_next_step(tmp_path):
    of_couriers(tmp_path, rows=2)
    for args, words in (
        (("report", "late.csv"), "bestarm evidence FILE"),
        (("run", "late.csv"), "bestarm new late.csv"),
        (("report", "nope.json"), "bestarm run … --out FILE"),
    ):
        done = bestarm(*args, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
        assert "KeyError" not in done.stderr


def test_help_shows_options_by_method():
    for command in ("run", "study", "plan"):
        text = bestarm(command, "--help").stdout
        own, fisher = text.index("\nOptions:"), text.index("\nOptions of fisher:")
        assert own < text.index("--seed") < text.index("\nOptions of all methods:") < text.index("--delta")
        assert fisher < text.index("--prefer") < text.index("\nOptions of p2p:")


def test_version_and_help():
    assert bestarm("--version").stdout.startswith("bestarm ")
    for command in ("run", "check", "new", "verify"):
        assert bestarm(command, "--help").returncode == 0


def test_only_the_verdict_s_group_is_marked_as_winner(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        'epsilon = 0.2\n[[group]]\nname = "g"\narms = { a = 0.6, b = 0.1 }\n'
        '[[group]]\nname = "h"\narms = { c = 0.58, d = 0.1 }\n',
        encoding="utf-8",
    )
    done = bestarm("run", path, "--seed", 1)
    assert done.returncode == 0
    assert done.stdout.count(" winner") == 1
    assert done.stdout.count(" not ruled out") == 1


@pytest.mark.parametrize(("low", "high"), [("1e308", "-1e308"), ("5e-324", "0"), ("1e308", "1e308")])
def test_new_refuses_rewards_whose_bounds_it_can_t_choose(tmp_path, low, high):
    (tmp_path / "x.csv").write_text(f"g,a,r\nA,x,{low}\nA,y,{high}\n")
    done = bestarm("new", "mine", "--csv", "x.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "your own bounds" in done.stderr
    assert not (tmp_path / "mine.toml").exists()


@pytest.mark.slow
def test_a_report_overwrites_nothing_but_reports(scenario, tmp_path):
    made = bestarm("run", scenario, "--seed", 1, "--out", tmp_path / "r.json")
    assert made.returncode == 0
    (tmp_path / "r.html").write_text("precious")
    done = bestarm("report", "r.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "the file exists and is not a report of bestarm" in done.stderr
    assert (tmp_path / "r.html").read_text() == "precious"
    (tmp_path / "r.html").unlink()
    assert [bestarm("report", "r.json", cwd=tmp_path).returncode for _ in range(2)] == [0, 0]


LONG = "regional-hospital-of-district"
OPTIONS = ", ".join(f"an-option-with-a-rather-long-name-{k} = {0.9 - 0.03 * k}" for k in range(25))
PAIRS = [f"new-treatment = {0.9 - 0.03 * k}, old-treatment = 0.1" for k in range(25)]
WIDE_SCENARIOS = {
    "options": f'[[group]]\nname = "{LONG}"\narms = {{ {OPTIONS} }}',
    "sites": "\n".join(
        f'[[group]]\nname = "{LONG}-{k:02}"\narms = {{ {pair} }}' for k, pair in enumerate(PAIRS)
    ),
}


def on_a_terminal(columns, *args):
    """What a command prints on a terminal of this width, on stdout and on stderr."""
    env = {**os.environ, "COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "bestarm.cli", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    found = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text) for text in (done.stdout, done.stderr)]
    for text in found:
        assert max((len(line.rstrip()) for line in text.splitlines()), default=0) <= columns, text
    return found


@pytest.fixture
def wide(tmp_path):
    """Scenarios with long names."""
    for name, text in WIDE_SCENARIOS.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("columns", [80, *slow(40, 120)])
def test_no_line_on_a_terminal_is_longer_than_the_terminal_is_wide(wide, columns):
    for keys in ([], ["--budget", "2000"]):
        plain, _ = on_a_terminal(columns, "run", wide / "options.toml", "--seed", 1, *keys)
        assert "… and 5 more options" in plain
        assert "next: " in plain
    if columns >= 80:
        told, _ = on_a_terminal(columns, "--help")
        assert "..." not in told.split("Commands:")[1]


@pytest.mark.parametrize("columns", [80, *slow(40, 120)])
def test_long_names_that_sites_share_fit_a_terminal(wide, columns):
    plain, _ = on_a_terminal(columns, "run", wide / "sites.toml", "--seed", 1)
    assert plain.startswith("Asked: which option of which site is")
    shown = re.findall(r"^\S*\d\d/\S+(?= +\d)", plain, re.MULTILINE)
    assert len(set(shown)) == 20


@pytest.mark.parametrize("columns", [80, *slow(40)])
def test_warnings_errors_and_plans_fit_a_terminal(wide, columns):
    ties = wide / "ties.toml"
    ties.write_text(f'[[group]]\nname = "{LONG}"\narms = {{ a-long-name = 0.5, another-long-name = 0.5 }}')
    _, warned = on_a_terminal(columns, "check", ties)
    assert warned.startswith("warning: ")
    _, refused = on_a_terminal(columns, "run", wide / "no-such-scenario-in-this-folder.toml")
    assert refused.startswith("error: ")
    easy = wide / "easy.toml"
    easy.write_text('[[group]]\nname = "g"\narms = { a = 0.9, b = 0.1 }')
    planned, _ = on_a_terminal(columns, "plan", easy, "--trials", 20, "--quick", "--seed", 1)
    assert "Limit: " in planned


def test_a_sentence_stays_on_one_line_in_a_pipe(wide):
    lines = bestarm("run", wide / "sites.toml", "--seed", 1).stdout.splitlines()
    assert lines[0].endswith("--question control for a comparison with one option.")


def test_a_narrow_terminal_shows_names_and_whole_numbers(wide):
    plain, _ = on_a_terminal(40, "run", wide / "options.toml", "--seed", 1)
    assert re.search(r"^\S{12,} +89\.\d %  \S+ to \S+ %", plain, re.MULTILINE)


def test_a_run_without_summaries_writes_means_in_per_cent_and_says_that_the_lead_is_not_known(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        '[[group]]\nname = "g"\narms = { a = 0.9, b = 0.1 }\n[[group]]\nname = "h"\narms = { c = 0.3 }\n'
    )
    told = bestarm("run", path, "--method", "fisher", "--seed", 1, "--no-summaries").stdout
    assert "How far it is ahead is not known: the numbers of the others were kept at the site." in told
    assert re.search(r"^g +\d+\.\d %  winner", told, re.MULTILINE)
    assert "●" not in told


@pytest.mark.parametrize("family", ["experiment", "federation", "mesh"])
def test_the_help_of_a_family_of_commands_cuts_no_summary(family, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = bestarm(family, "--help").stdout.split("Commands:")[1]
    assert told.count("\n") > 4
    assert "..." not in told
