"""The arena: numbers that depend on the pair alone, honest scores, files, and reasons for what is left
out."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import numpy as np
import pytest

import bestarm as ba
from bestarm.cli.render.arena import show_arena
from bestarm.protocol.registry import METHODS
from bestarm.report.page import of_arena
from bestarm.report.svg.arena import front, profile
from bestarm.stats.intervals import binomial_interval
from bestarm.study.arena.baselines import BASELINES
from bestarm.study.arena.entrants import entrant
from bestarm.study.arena.result import Arena, Entry, Ground, Mean, Score
from bestarm.study.study import StudyInterrupted

TINY = {"tiny": ba.Problem.bernoulli([[0.9, 0.2], [0.3]])}


def small(methods=("fisher", "round-robin"), instances=("zipf", "lil-0.6"), **keys):
    return ba.arena(methods, instances, **{"trials": 12, "seed": 3, "workers": 1, "delta": 0.1, **keys})


def made(scores, limit=100.0):
    """An arena with these (method, pulls, rounds, undecided) on one instance."""
    entries = [Entry(label=s[0], title=s[0], proof="", source="", headline=True) for s in scores]
    ground = Ground(
        name="i", about="a", source="", question="anywhere", shared=False,
        sites=1, clients=1, options=2, gap=0.1, limit=limit,
    )  # fmt: skip
    rows = [
        Score(
            method=m, instance="i", trials=10, undecided=u, errors=0, error=(0.0, 0.3), keeps="open",
            pulls=Mean(p, 1.0, p), rounds=Mean(r, 1.0, r), over_limit=None, command="",
            **{name: Mean(1.0, None, 1.0) for name in ("longest", "time", "bits_up", "bits_down")},
        )
        for m, p, r, u in scores
    ]  # fmt: skip
    return Arena(
        delta=0.1, trials=10, seed=1, most=10, version="1", entries=tuple(entries), grounds=(ground,),
        scores=tuple(rows),
    )  # fmt: skip


def test_a_second_run_gives_the_same_numbers_and_pairs_do_not_depend_on_each_other():
    first = small()
    assert small().to_json() == first.to_json()
    with ThreadPoolExecutor(2) as pool:
        assert small(executor=pool).to_json() == first.to_json()
    alone = small(["round-robin"], ["zipf"])
    assert alone.scores == (first.score("round-robin", "zipf"),)
    assert small(["round-robin"], ["zipf"], seed=4).scores != alone.scores


def test_the_numbers_of_a_registered_method_are_those_of_a_study_s_kernel():
    found = small(["bet:prefer=pulls"], ["zipf"], trials=40).scores[0]
    again = ba.study(
        ba.instances()["zipf"].problem, "bet", prefer="pulls", trials=400, delta=0.1, seed=9, workers=1
    )
    mean = again["pulls_total"].mean()
    wide = 5 * again["pulls_total"].std() / np.sqrt(40)
    assert abs(found.pulls.mean - mean) < wide, "same law; false alarm below 1e-5"


def test_processes_give_the_same_numbers():
    assert (
        small(["batched", "fpe"], ["crew"], workers=2).to_json()
        == small(["batched", "fpe"], ["crew"]).to_json()
    )


def test_a_pair_that_can_t_be_run_is_left_out_with_the_reason():
    found = small(["fed-sel", "fpe", "p2p", "fisher"], ["ties-below", "site-effects-5"], trials=2)
    why = {(one.method, one.instance): one.why for one in found.left_out}
    assert "never end" in why["fed-sel", "ties-below"]
    assert "same options" in why["fpe", "ties-below"]
    assert "network" in why["p2p", "ties-below"]
    assert "overall" in why["fisher", "site-effects-5"]
    assert [(s.method, s.instance) for s in found.scores] == [
        ("fisher", "ties-below"),
        ("fpe", "site-effects-5"),
    ]
    with pytest.raises(ba.InputError, match="overall"):
        found.score("fisher", "site-effects-5")


def test_the_limit_is_shown_only_where_it_applies():
    methods = ["fisher", "bet", "elimination", "batched", "top-two-practice"]
    found = small(methods, ["zipf", "ratings"], trials=4)
    shown = {(s.method, s.instance): s.over_limit is not None for s in found.scores}
    assert [shown[m, "zipf"] for m in methods] == [True, True, True, True, False]
    assert [shown[m, "ratings"] for m in methods] == [True, False, False, True, False], "coins only"
    limit = ba.limit(ba.instances()["zipf"].problem, 0.1).total
    score = found.score("batched", "zipf")
    assert score.over_limit == pytest.approx(score.pulls.mean / limit)


def _always(which, bandit, delta, rng, trials, most):
    """A kernel that names one option after one pull of it."""
    outcome = ba.Outcome(bandit, trials)
    load = np.zeros((trials, len(bandit.clients)), dtype=int)
    load[:, 0] = 1
    outcome.put(np.arange(trials), np.full(trials, which), 1, 1, load, 1, 1)
    return outcome


@pytest.mark.parametrize(("which", "errors", "keeps"), [(0, 0, "yes"), (1, 60, "no")])
def test_wrong_answers_are_counted_and_a_method_that_breaks_delta_is_shown_to(which, errors, keeps):
    guess = ba.Baseline("guess", "Guess", partial(_always, which))
    (score,) = ba.arena([guess], TINY, trials=60, delta=0.1, workers=1).scores
    assert (score.errors, score.keeps, score.undecided) == (errors, keeps, 0)
    assert score.error[0] <= errors / 60 <= score.error[1]


def test_whether_delta_is_kept_has_no_answer_if_no_run_had_one():
    (score,) = small(["round-robin"], ["zipf"], trials=60, most=50).scores
    assert (score.undecided, score.errors, score.keeps) == (60, 0, "no answer")
    assert "<td>no answer</td>" in _page(small(["round-robin"], ["zipf"], most=50))


def test_the_only_option_is_the_answer_without_a_pull():
    methods = ["fisher", *BASELINES]
    found = ba.arena(methods, {"one": ba.Problem.bernoulli([[0.4]]), **TINY}, trials=3, workers=1)
    for name in methods:
        score = found.score(name, "one")
        assert (score.errors, score.undecided, score.pulls.mean, score.rounds.mean) == (0, 0, 0.0, 0.0)
    assert found.profile("pulls", ["one"]) == {name: [1.0] for name in methods}
    assert "Pulls against rounds on tiny" in _page(found)


def _page(found):
    return re.sub(r"</?span[^>]*>|(?<=<td) [^>]*", "", of_arena(found))


def _nothing(bandit, delta, rng, trials, most):
    return None


def _forgetful(bandit, delta, rng, trials, most):
    return _always(0, bandit, delta, rng, trials - 1, most)


def _lazy(bandit, delta, rng, trials, most):
    return ba.Pulls(bandit, rng, trials, most).outcome


@pytest.mark.parametrize(
    ("kernel", "text"), [(_forgetful, "3 trials, and recorded 2"), (_lazy, "recorded 0")]
)
def test_a_kernel_must_record_every_trial(kernel, text):
    with pytest.raises(ba.InputError, match=f'baseline "g": the kernel was asked for .*{text}'):
        ba.arena([ba.Baseline("g", "G", kernel)], TINY, trials=3, workers=1)


def test_a_baseline_that_can_t_be_run_says_what_is_missing():
    with pytest.raises(ba.InputError, match=r'baseline "g": the kernel returned None.*outcome'):
        ba.arena([ba.Baseline("g", "G", _nothing)], TINY, trials=3, workers=1)
    with pytest.raises(ba.InputError, match="can't be called"):
        ba.Baseline("g", "G", 3)
    for name in ("", "a,b", "a:b", "a b", None):
        with pytest.raises(ba.InputError, match="commas and colons"):
            ba.Baseline(name, "G", _nothing)


def test_five_errors_in_sixty_leave_it_open_whether_delta_is_kept():
    def kernel(bandit, delta, rng, trials, most):
        outcome = _always(0, bandit, delta, rng, trials, most)
        outcome.answer[:5] = 1
        return outcome

    (score,) = ba.arena([ba.Baseline("g", "G", kernel)], TINY, trials=60, delta=0.1, workers=1).scores
    assert (score.errors, score.keeps) == (5, "open")


def test_a_claimed_proof_is_called_claimed_and_loses_its_limit_where_it_is_refuted(tmp_path):
    trusted = ba.Baseline("trust-me", "Trust me", partial(_always, 1), proof="trust me")
    found = ba.arena([trusted, "fisher"], TINY, delta=0.1, trials=60, workers=1)
    assert {entry.label: entry.proved for entry in found.entries} == {
        "trust-me": "claimed",
        "fisher": "proved",
    }
    assert found.refuted == {"trust-me"}
    for name in TINY:
        assert found.score("trust-me", name).over_limit is None
        assert found.score("fisher", name).over_limit > 1.0
    page = re.sub("<[^>]*>", " ", found.report(tmp_path / "p.html").read_text("utf-8"))
    lead = page.partition("Fewest pulls among the methods with a proof")[2].partition(" . ")[0]
    assert "fisher" in lead
    assert "trust-me" not in lead
    assert ba.Arena.load(found.save(tmp_path / "run").parent) == found


def test_too_few_runs_to_show_that_delta_is_kept_are_said_to_be_too_few(tmp_path, capsys):
    few = ba.arena(["fisher"], TINY, delta=0.1, trials=10, workers=1)
    need = few.runs_needed
    assert binomial_interval(0, need)[1] <= 0.1 < binomial_interval(0, need - 1)[1]
    assert f"open: needs ≥ {need} runs" in few.report(tmp_path / "p.html").read_text("utf-8")
    show_arena(few)
    assert f"10 runs cannot show that: it takes at least {need}." in " ".join(capsys.readouterr().out.split())
    enough = ba.arena(["fisher"], TINY, delta=0.1, trials=need, workers=1)
    assert "open: needs" not in enough.report(tmp_path / "p.html").read_text("utf-8")


def test_the_problem_of_an_instance_of_one_s_own_is_kept_and_gives_the_same_numbers(tmp_path):
    (tmp_path / "own.toml").write_text('[[group]]\nname = "g"\narms = { a = 0.9, b = 0.2 }\n')
    name = str(tmp_path / "own.toml")
    made = ba.arena(["fisher", "lucb"], [name, "zipf"], trials=5, workers=1, out=tmp_path / "run")
    (tmp_path / "own.toml").unlink()
    kept = ba.Arena.load(tmp_path / "run")
    assert [ground.problem is not None for ground in kept.grounds] == [True, False]
    problems = {name: kept.problem(name), "zipf": kept.problem("zipf")}
    again = ba.arena(["fisher", "lucb"], problems, trials=5, workers=1)
    costs = [[(s.pulls, s.rounds, s.errors) for s in one.scores] for one in (made, again)]
    assert costs[0] == costs[1]
    assert "arena.json holds the problem of" in (tmp_path / "run/index.html").read_text("utf-8")
    with pytest.raises(ba.InputError, match="no instance"):
        kept.problem("zip")


def test_there_is_no_command_with_a_method_that_only_this_process_knows(monkeypatch, tmp_path):
    mine = dataclasses.replace(METHODS["fisher"], name="mine", title="Mine")
    monkeypatch.setitem(METHODS, "mine", mine)
    found = ba.arena([mine, "fisher"], ["zipf"], trials=2, workers=1)
    assert [bool(score.command) for score in found.scores] == [False, True]
    assert "no command repeats all of it" in found.report(tmp_path / "p.html").read_text("utf-8")


def test_pictures_have_whiskers_and_profiles_reach_the_last_ratio():
    found = ba.arena(["fisher", "lucb"], TINY, trials=10, workers=1)
    (instance, *_) = TINY
    drawn = str(front(found, 430, instance=instance))
    assert drawn.count('class="whisker"') == 2 * len(found.on(instance))
    far = made([("a", 100.0, 1.0, 0), ("b", 50.0, 5000.0, 0)])
    lines = re.findall(
        r'd="M46 250[^"]* (\S+)"', str(profile(far, 760, cost="rounds", title="r", instances=["i"]))
    )
    assert lines[-2:] == ["24", "24"], "both solved the only instance"


def test_the_front_has_what_no_other_beats_in_both_costs():
    found = made([("a", 100.0, 9.0, 0), ("b", 50.0, 20.0, 0), ("c", 120.0, 9.5, 0), ("d", 10.0, 1.0, 3)])
    assert [score.method for score in found.front("i")] == ["a", "b"], "d stayed undecided"
    assert [score.method for score in found.on("i")] == ["b", "a", "c", "d"]


def test_a_method_that_was_shown_to_break_delta_is_in_no_front_and_no_profile():
    found = made([("a", 100.0, 9.0, 0), ("b", 50.0, 20.0, 0)])
    broken = msgspec.structs.replace(found.scores[1], errors=9, error=(0.5, 0.99), keeps="no")
    found = msgspec.structs.replace(found, scores=(found.scores[0], broken))
    assert [score.method for score in found.front("i")] == ["a"]
    assert found.profile("pulls", ["i"]) == {"a": [1.0]}
    assert [score.method for score in found.on("i")] == ["a", "b"]


def test_a_profile_has_the_ratios_to_the_least_cost():
    found = made([("a", 100.0, 9.0, 0), ("b", 50.0, 20.0, 0), ("d", 10.0, 1.0, 3)])
    assert found.profile("pulls", ["i"]) == {"a": [2.0], "b": [1.0]}
    assert found.profile("rounds", ["i"]) == {"a": [1.0], "b": [pytest.approx(20 / 9)]}


def test_files_hold_everything_and_load_again(tmp_path):
    found = small(out=tmp_path / "run")
    assert Arena.load(tmp_path / "run") == found
    rows = list(csv.DictReader((tmp_path / "run/cells.csv").read_text("utf-8").splitlines()))
    assert [(row["method"], row["instance"]) for row in rows] == [
        (s.method, s.instance) for s in found.scores
    ]
    assert float(rows[0]["pulls"]) == found.scores[0].pulls.mean
    trials = ba.Trials.load(tmp_path / "run/trials.csv")
    assert len(trials) == 12 * len(found.scores)
    assert not (tmp_path / "run/trials.csv.part").exists()
    page = (tmp_path / "run/index.html").read_text("utf-8")
    assert page.count("<script") == 1
    assert "script-src &#x27;sha256-" in page  # only the page's own
    assert "http" not in page.split("<body>")[1].split("data:")[0]


def test_the_command_of_a_cell_gives_its_numbers(tmp_path):
    from typer.testing import CliRunner

    from bestarm.cli.app import app

    found = small(["fisher", "batched"], ["zipf"], most=5000)
    words = found.scores[1].command.split()[1:]
    out = CliRunner().invoke(app, [*words, "--json", "--workers", "1"])
    (score,) = json.loads(out.stdout)["scores"]
    assert score["pulls"]["mean"] == found.scores[1].pulls.mean


def test_an_interrupted_arena_resumes_with_the_same_numbers(tmp_path):
    whole = small()
    seen = []

    def stop(progress):
        seen.append(progress.done)
        if progress.done >= 24:
            raise KeyboardInterrupt

    with pytest.raises(StudyInterrupted) as caught:
        small(out=tmp_path / "run", watch=stop)
    assert caught.value.kept == tmp_path / "run/trials.csv.part"
    again = []
    found = small(out=tmp_path / "run", resume=True, watch=lambda p: again.append(p.done))
    assert again[0] == 24
    assert found == whole


def test_a_complete_arena_resumes_to_its_result_unless_a_setting_differs(tmp_path):
    whole = small(out=tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert small(out=tmp_path, resume=True) == small(out=tmp_path, resume=True, seed=None) == whole
    fewer = {"methods": ["fisher"]}
    for other in (fewer, {"instances": ["zipf"]}, {"trials": 11}, {"seed": 4}, {"delta": 0.2}, {"most": 10}):
        with pytest.raises(ba.InputError, match="the folder has another result"):
            small(out=tmp_path, resume=True, **other)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_there_is_no_command_for_what_was_given_in_python_only(tmp_path):
    guess = ba.Baseline("guess", "Guess", partial(_always, 0))
    zipf = ba.instances()["zipf"]
    (tmp_path / "my file.toml").write_text('[[group]]\nname = "g"\narms = { a = 0.9, b = 0.2 }\n')
    found = ba.arena(
        ["fisher", guess], [zipf, str(tmp_path / "my file.toml")], delta=0.123456789, trials=2, workers=1
    )
    commands = {(s.method, s.instance == "zipf"): s.command for s in found.scores}
    assert commands["guess", True] == commands["guess", False] == ""
    assert "--instances zipf --delta 0.123456789 " in commands["fisher", True]
    assert f"--instances '{tmp_path / 'my file.toml'}'" in commands["fisher", False]
    assert ba.arena(["fisher"], TINY, trials=2, workers=1).scores[0].command == ""
    page = found.report(tmp_path / "page.html").read_text("utf-8")
    assert "no command repeats all of it" in page
    assert "<span>0.123456789</span>" in page


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"methods": ["lubc"]}, "lucb"),
        ({"methods": ["lucb:x=1"]}, "no options"),
        ({"methods": ["bet:prefr=pulls"]}, "prefer"),
        ({"methods": ["bet:prefer"]}, "KEY=VALUE"),
        ({"methods": ["fisher", "bet:prefer=pull"]}, '"bet:prefer=pull": prefer = \'pull\'.*"pulls"'),
        ({"methods": ["fisher", "bet:max-rounds=x"]}, "whole number"),
        ({"methods": ["bet:delta=0.2"]}, "delta"),
        ({"methods": ["bet", "bet"]}, "twice"),
        ({"methods": []}, "list"),
        ({"instances": ["zip"]}, "zipf"),
        ({"instances": ["zipf", "zipf"]}, "twice"),
        ({"instances": {"tie": ba.Problem.bernoulli([[0.5, 0.5]])}}, "unique"),
        ({"instances": {"x": 3}}, "Problem"),
        ({"trials": 0}, "trials"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 1e-300}, "delta = 1e-300"),
        ({"delta": 5e-324, "methods": ["lil-ucb"]}, "delta = 5e-324"),
        ({"most": True}, "most"),
        ({"resume": True}, "folder"),
        ({"methods": ["fpe"], "instances": ["zipf"]}, "nothing can be run"),
    ],
)
def test_bad_input_says_what_and_how_to_fix_it(keys, text):
    with pytest.raises(ba.InputError, match=text):
        small(**keys)


def test_a_file_that_is_no_arena_is_refused(tmp_path):
    (tmp_path / "arena.json").write_text("{}")
    with pytest.raises(ba.InputError, match=r"arena\.json: this is not the file of an arena"):
        Arena.load(tmp_path)
    with pytest.raises(ba.InputError, match="can't be read"):
        Arena.load(tmp_path / "none.json")


def test_a_problem_of_one_s_own_and_a_scenario_file_are_instances_too(tmp_path):
    (tmp_path / "mine.toml").write_text('[[group]]\nname = "g"\narms = { a = 0.9, b = 0.2 }\n')
    found = ba.arena(["fisher"], [str(tmp_path / "mine.toml")], trials=3, workers=1)
    assert found.grounds[0].options == 2
    assert ba.arena(["fisher"], TINY, trials=3, workers=1).scores[0].instance == "tiny"


def test_bestarm_s_question_about_averages_has_rows_on_instances_whose_sites_share_options():
    found = small(["bet", "fpe", "fisher"], ["site-effects-5"], trials=20)
    assert [score.method for score in found.on("site-effects-5")] == ["bet", "fpe"]
    bet = found.score("bet", "site-effects-5")
    assert (bet.errors, bet.undecided) == (0, 0)
    assert bet.pulls.mean < found.score("fpe", "site-effects-5").pulls.mean / 10
    asked = ba.instances()["site-effects-5"].problem.asking("overall")
    again = ba.study(asked, "bet", trials=200, delta=0.1, seed=9, workers=1)["pulls_total"]
    assert abs(bet.pulls.mean - again.mean()) < 5 * again.std() / np.sqrt(20), "false alarm below 1e-5"


def test_the_question_of_a_scenario_is_the_question_of_its_instance(tmp_path):
    sites = {"US": {"A": 0.2, "B": 0.5}, "EU": {"A": 0.9, "B": 0.8}}
    problem = ba.Problem.from_rewards(sites)
    found = ba.arena(["bet"], {"mine": problem.asking("overall")}, trials=4, delta=0.1, workers=1)
    assert (found.grounds[0].question, found.grounds[0].options) == ("overall", 2)
    for keys in ({"question": "each"}, {"question": "overall", "weights": {"US": 2, "EU": 1}}):
        with pytest.raises(ba.InputError, match="does not ask this question"):
            ba.arena(["bet"], {"mine": problem.asking(**keys)}, trials=1)


def test_options_of_an_entrant_are_read_as_numbers_and_words():
    assert entrant("bet:prefer=pulls:max-rounds=7").options == {"prefer": "pulls", "max_rounds": 7}
    assert entrant("fisher").proof
    assert entrant(ba.Method(**vars(entrant("fisher").method))).label == "fisher"


def files_of(page):
    """The files that a page of the documentation shows, by name."""
    return dict(
        re.findall(r"```{code-block} \w+\n:caption: (\S+)\n\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    )


def wheel(folder, files, sources):
    """A wheel as its pyproject.toml describes it: the files that it includes, and its entry points."""
    project = tomllib.loads(next(text for one, text in files.items() if one.endswith("pyproject.toml")))
    name, version = project["project"]["name"].replace("-", "_"), project["project"]["version"]
    info, include = (
        f"{name}-{version}.dist-info",
        project["tool"]["hatch"]["build"]["targets"]["wheel"]["include"],
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in found.items())
        for group, found in project["project"]["entry-points"].items()
    )
    content = {one: files.get(one) or (sources / one).read_text("utf-8") for one in include} | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for one, text in content.items():
            archive.writestr(one, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{one},,\n" for one in [*content, f"{info}/RECORD"]))
    return path


@pytest.fixture
def installed(root, tmp_path):
    """The example method and the baseline of the docs, installed with pip as packages of their own."""
    pages = [files_of(root / "docs" / page) for page in ("own-method.md", "bring-your-method.md")]
    wheels = [str(wheel(tmp_path, files, root / "examples")) for files in pages]
    words = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, *words, *wheels], check=True, capture_output=True)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


COIN_FLIP = """
import numpy as np
import bestarm as ba

def kernel(bandit, delta, rng, trials, most):
    game = ba.Pulls(bandit, rng, trials, most)
    game.everything()
    game.stop(np.ones(trials, dtype=bool), rng.integers(bandit.k, size=trials))
    return game.outcome

BASELINE = ba.Baseline("coin-flip", "Coin flip", kernel)
TAKEN = ba.Baseline("fisher", "Not Fed-Fisher", kernel)
"""


def test_a_baseline_of_an_installed_package_takes_part_and_a_broken_one_is_left_out(tmp_path):
    info = tmp_path / "site" / "bestarm_flip-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bestarm-flip\nVersion: 1.0\n")
    points = "coin-flip = flip:BASELINE\nlost = no_such_module:X\nwrong = flip:kernel\ntaken = flip:TAKEN\n"
    (info / "entry_points.txt").write_text("[bestarm.baselines]\n" + points)
    (tmp_path / "site/flip.py").write_text(COIN_FLIP)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    words = ["arena", "--methods", "coin-flip,fisher", "--instances", "lil-0.6", "--trials", "9", "--json"]
    command = [sys.executable, "-m", "bestarm.cli", *words, "--workers", "2"]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    scores = {one["method"]: one for one in json.loads(done.stdout)["scores"]}
    assert scores["coin-flip"]["pulls"]["mean"] == 10.0
    assert scores["coin-flip"]["errors"] > scores["fisher"]["errors"] == 0
    left_out = {"lost": "no_such_module", "wrong": "expected a bestarm Baseline", "taken": '"fisher"'}
    for name, why in left_out.items():
        assert any(f"baseline {name} " in line and why in line for line in done.stderr.splitlines())


def test_a_method_outside_the_package_gets_a_row_in_the_table(installed, tmp_path):
    words = [
        "arena",
        "--methods",
        "uniform:n0=16,greedy,fisher",
        "--instances",
        "lil-0.6",
        "--trials",
        "4",
        "--seed",
        "2",
    ]
    command = [sys.executable, "-m", "bestarm.cli", *words, "--out", str(tmp_path / "run"), "--workers", "2"]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=True)
    assert "uniform:n0=16" in done.stdout
    found = Arena.load(tmp_path / "run")
    score = found.score("uniform:n0=16", "lil-0.6")
    assert (score.trials, score.errors, score.undecided) == (4, 0, 0)
    words = {entry.label: entry.proved for entry in found.entries}
    assert words == {"uniform:n0=16": "claimed", "greedy": "claimed", "fisher": "proved"}
    for name in ("fisher", "greedy", "uniform:n0=16"):
        assert found.score(name, "lil-0.6").over_limit is not None
    assert "Uniform (n0 = 16)" in (tmp_path / "run/index.html").read_text("utf-8")
