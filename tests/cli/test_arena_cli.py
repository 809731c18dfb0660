"""``bestarm arena``: a table, a folder, JSON for machines, and errors without a traceback."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import bestarm as ba
from bestarm.cli.app import app
from bestarm.study.arena.baselines import BASELINES
from bestarm.study.arena.run import HEADLINE

SMALL = ["arena", "--methods", "fisher,batched", "--instances", "lil-0.6", "--trials", "3", "--workers", "1"]


def run(*words):
    return CliRunner().invoke(app, list(words))


def test_a_table_has_a_row_per_method_and_the_folder_has_the_page(tmp_path):
    done = run(*SMALL, "--out", str(tmp_path / "a"))
    assert done.exit_code == 0
    assert {"fisher", "batched"} <= set(done.stdout.split())
    assert "index.html" in done.stdout
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "arena.json", "cells.csv", "index.html", "trials.csv",
    ]  # fmt: skip


def test_what_was_not_run_is_said_once_per_reason():
    words = ["--methods", "fisher,fpe,collaborative,fed-sel", "--instances", "zipf,ties-below"]
    lines = [line for line in run(*SMALL, *words).stdout.splitlines() if line.startswith("not run: ")]
    assert [line.split(": ")[1] for line in lines] == [
        "fpe and collaborative on zipf and ties-below",
        "fed-sel on ties-below",
    ]
    assert "same options" in lines[0]
    assert "tied" in lines[1]


def test_json_is_one_object_with_the_numbers_of_python():
    done = run(*SMALL, "--json")
    found = ba.arena(["fisher", "batched"], ["lil-0.6"], trials=3, workers=1)
    assert json.loads(done.stdout) == json.loads(found.to_json())


def test_one_command_makes_a_table_and_a_second_run_gives_the_same_files(tmp_path):
    words = ["arena", "--methods", "bet,fisher,fed-elim,fpe,round-robin,batched", "--trials", "6"]
    words += ["--instances", "lil-0.6,site-effects-5,crew", "--seed", "1", "--workers", "1"]
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        assert run(*words, "--out", str(folder)).exit_code == 0
    assert json.loads((first / "arena.json").read_text("utf-8"))["scores"]
    for name in ("arena.json", "cells.csv", "trials.csv", "index.html"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_result_is_not_overwritten_by_one_that_lacks_some_of_it(tmp_path):
    where = ["--instances", "zipf", "--out", str(tmp_path), "--trials"]
    words = ["arena", "--methods", "fisher,batched", *where]
    assert run(*words, "5").exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    fewer = ["arena", "--methods", "fisher", *where, "5"]
    for other in (fewer, [*words, "4"], [*words, "5", "--seed", "2"], [*words, "5", "--delta", "0.1"]):
        done = run(*other)
        assert isinstance(done.exception, ba.InputError)
        assert "2 pairs of a method and an instance, 5 runs of each" in str(done.exception)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(*words, "5").exit_code == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(*words, "6").exit_code == 0
    assert ba.Arena.load(tmp_path).trials == 6


def test_resuming_a_complete_arena_shows_its_table(tmp_path):
    words = [*SMALL, "--out", str(tmp_path)]
    first, again = run(*words), run(*words, "--resume")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    done = run(*words, "--resume", "--seed", "2")
    assert "the folder has another result" in str(done.exception)


def test_the_list_names_every_method_baseline_and_instance():
    known = json.loads(run("arena", "--list", "--json").stdout)
    assert set(BASELINES) | {"bet", "fisher"} <= set(known["methods"])
    assert known["instances"] == list(ba.instances())
    assert known["headline"] == list(HEADLINE)
    text = run("arena", "--list").stdout
    assert "many-arms" in text
    assert "kl-lucb" in text
    assert " ".join(text.split()).endswith(f"run on {', '.join(HEADLINE)}.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "fisher,"], "commas"),
        (["--methods", "nobody"], "unknown"),
        (["--instances", "nowhere"], "unknown"),
        (["--trials", "0"], "trials"),
        (["--delta", "2"], "delta"),
        (["--delta", "1e-300"], "delta = 1e-300"),
        (["--resume"], "folder"),
        (["--out", "README.md/x"], "README.md"),
        (["--out", "README.md"], "it is a file"),
    ],
)
def test_bad_input_is_an_input_error_and_writes_nothing(words, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("kept")
    done = run(*SMALL, *words)
    assert isinstance(done.exception, ba.InputError)
    assert said in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_numbers(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask comes with bestarm[study]")
    words = ["arena", "--methods", "fisher,bet,batched,fpe", "--instances", "lil-0.6,site-effects-5"]
    words += ["--trials", "20", "--seed", "3", "--json"]
    here = run(*words, "--workers", "1")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        there = run(*words, "--dask", cluster.scheduler_address, "--out", str(tmp_path / "a"))
    assert there.exit_code == 0, there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert len(json.loads(here.stdout)["scores"]) == 6
    assert (tmp_path / "a/index.html").is_file()


def test_a_report_of_an_arena_s_folder_is_its_page(tmp_path):
    run(*SMALL, "--out", str(tmp_path / "a"))
    page = (tmp_path / "a/index.html").read_bytes()
    for path in (tmp_path / "a", tmp_path / "a/arena.json"):
        done = run("report", str(path), "--out", str(tmp_path / "again.html"))
        assert done.exit_code == 0, done.output
        assert (tmp_path / "again.html").read_bytes() == page
