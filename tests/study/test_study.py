"""Studies are seeded, independent of the workers, resumable, and summarised with valid intervals."""

from __future__ import annotations

import csv
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as reference

import bestarm as ba
from bestarm.stats.intervals import binomial_interval, mean_interval, median_interval
from command_line import bestarm

ROOT = Path(__file__).resolve().parents[2]

module = sys.modules["bestarm.study.study"]  # the package's own name for it is the function

QUICK = ba.Problem.bernoulli([[0.95, 0.3], [0.6, 0.2]])
OPTIONS = {"delta": 0.2, "c": 2.0, "radius": "sharp"}


def same(a: ba.Trials, b: ba.Trials) -> bool:
    return a.columns.keys() == b.columns.keys() and all(np.array_equal(a[k], b[k]) for k in a.columns)


def cli(*args):
    return bestarm(*args, cwd=ROOT)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 10 trials, so that a small study has several."""
    monkeypatch.setattr(sys.modules["bestarm.study.cells"], "MOST_TRIALS", 10)


def run(**keys) -> ba.Trials:
    return ba.study(QUICK, "fed-sel", **{"trials": 35, "seed": 5, "workers": 1, **OPTIONS, **keys})


def test_a_study_has_the_documented_columns():
    assert list(run(vary={"period": [5, 50]}).columns) == [
        "trial", "period", "status", "arm", "correct", "good_event", "rounds", "time", "pulls_total",
        "pulls_phase1", "pulls_phase2", "pulls_max", "bits_up", "bits_down", "reason",
    ]  # fmt: skip


def test_the_numbers_do_not_depend_on_the_executor():
    alone = run(vary={"period": [5, 50]})
    assert same(alone, run(vary={"period": [5, 50]}, workers=2))
    with ThreadPoolExecutor(3) as pool:
        assert same(alone, run(vary={"period": [5, 50]}, executor=pool))


def test_the_numbers_do_not_depend_on_what_else_is_varied():
    both = run(vary={"period": [5, 50]})
    one = run(vary={"period": [50]})
    mask = both["period"] == 50
    assert np.array_equal(both["pulls_total"][mask], one["pulls_total"])


@pytest.mark.slow
def test_a_study_runs_on_a_real_dask_cluster():
    distributed = pytest.importorskip("distributed", reason="Dask comes with bestarm[study]")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        assert same(run(), run(executor=executor))
        args = [
            "study",
            ROOT / "examples/paper.toml",
            "--trials",
            20,
            "--seed",
            1,
            "--method",
            "fisher",
            "--json",
        ]
        there = cli(*args, "--dask", cluster.scheduler_address)
        assert there.returncode == 0, there.stderr
        assert json.loads(there.stdout) == json.loads(cli(*args).stdout)


def test_another_seed_gives_other_numbers():
    assert not same(run(), run(seed=6))


def test_any_problem_that_has_no_kernel_goes_through_the_machines():
    trials = run(early_stop=True, trials=20)
    assert trials["correct"].all()
    record = trials.record(3)
    assert record.pulls.total == trials["pulls_total"][3]
    assert ba.verify(record, replay=True)
    recording = {"kind": "recording", "values": [0, 1, 1]}
    short = ba.study(
        ba.Problem.from_rewards({"g": {"a": recording, "b": recording}}), "fed-sel", trials=3, seed=1
    )
    assert set(short["reason"]) == {"budget"}
    assert short["correct"].tolist() == [None] * 3
    assert "error_rate" not in short.summary()[0]


def test_a_problem_with_one_arm_needs_no_pulls():
    assert ba.study(ba.Problem.bernoulli([[0.5]]), "fed-sel", trials=3, seed=1)["pulls_total"].tolist() == [
        0,
        0,
        0,
    ]


@pytest.mark.slow
def test_a_family_is_varied_by_its_parameters():
    trials = ba.study(
        ba.Problem.paper_instance, "fed-sel", trials=5, seed=1, delta=0.1, vary={"sigma": [1, 15]}, workers=1
    )
    rows = trials.summary()
    assert [row["sigma"] for row in rows] == [1, 15]
    assert [row["rounds"]["mean"] > 700 for row in rows] == [False, True]
    assert round(rows[0]["limit"]["total"]) == 951
    assert trials.record(7).rounds == trials["rounds"][7]


def test_an_epsilon_best_arm_counts_as_correct():
    tied = ba.Problem.bernoulli([[0.7, 0.69], [0.2]])
    trials = ba.study(tied, "fed-sel", trials=30, seed=1, epsilon=0.2, **OPTIONS)
    assert trials["correct"].all()
    assert len(set(trials["arm"])) == 2


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_rows_are_written_in_each_format(tmp_path, suffix):
    path = tmp_path / "deep" / f"t.{suffix}"
    trials = run(out=path, vary={"period": [5, 50]})
    if suffix == "csv":
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["rounds"]) for row in rows] == trials["rounds"].tolist()
    elif suffix == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["pulls_total"] for row in rows] == trials["pulls_total"].tolist()
        assert rows[0]["correct"] is True
    else:
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow comes with bestarm[study]")
        assert parquet.read_table(path).column("bits_up").to_pylist() == trials["bits_up"].tolist()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.json"]


def test_an_interrupted_study_resumes_without_repeating_a_block(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    expected = run()
    original, ran = module.run_block, []

    def run_block(cell, seed, block, size):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(block)
        return original(cell, seed, block, size)

    monkeypatch.setattr(module, "run_block", run_block)
    with pytest.raises(ba.StudyInterrupted) as stopped:
        run(out=path)
    assert stopped.value.kept.exists()
    assert not path.exists()
    with pytest.raises(ba.InputError, match="interrupted study"):
        run(out=path)
    with pytest.raises(ba.InputError, match="another study"):
        run(out=path, resume=True, seed=9)
    with stopped.value.kept.open("a") as file:
        file.write('{"cell": 0, "block": 2, "colu')  # truncated by a crash
    again = []
    monkeypatch.setattr(module, "run_block", lambda *args: again.append(args[2]) or original(*args))
    assert same(run(out=path, resume=True), expected)
    assert (ran, again) == ([0, 1], [2, 3])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "t.csv.json"]


def test_a_study_without_a_seed_resumes_with_the_seed_that_was_drawn(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    original = module.run_block

    def run_block(cell, seed, block, size):
        if block == 2:
            raise KeyboardInterrupt
        return original(cell, seed, block, size)

    monkeypatch.setattr(module, "run_block", run_block)
    with pytest.raises(ba.StudyInterrupted):
        run(out=path, seed=None)
    monkeypatch.setattr(module, "run_block", original)
    resumed = run(out=path, seed=None, resume=True)
    assert same(resumed, run(seed=resumed.seed))
    with pytest.raises(ba.InputError, match="complete"):
        run(out=path, resume=True)


@pytest.mark.parametrize("text", ["garbage", "[1]", '{"a": 1}', ""])
def test_an_unrelated_file_at_its_path_is_not_touched(tmp_path, text):
    part = tmp_path / "t.csv.part"
    part.write_text(text)
    with pytest.raises(ba.InputError, match="not the file of an interrupted study"):
        run(out=tmp_path / "t.csv", resume=True)
    assert part.read_text() == text


def test_rewards_of_a_function_can_t_be_resumed(tmp_path, monkeypatch):
    problem = ba.Problem.from_rewards({"g": {"a": lambda rng: float(rng.random() < 0.9), "b": 0.1}})
    keys = {"trials": 40, "seed": 1, "workers": 1, "out": tmp_path / "t.csv", **OPTIONS}
    original, calls = module.run_block, []
    monkeypatch.setattr(
        module, "run_block", lambda *a: calls.append(a) or (original(*a) if len(calls) < 2 else 1 / 0)
    )
    with pytest.raises(ZeroDivisionError):
        ba.study(problem, "fed-sel", **keys)
    with pytest.raises(ba.InputError, match="user's function"):
        ba.study(problem, "fed-sel", resume=True, **keys)


def until(condition, seconds=120.0):
    """Wait until the condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.05)


def left(session):
    """Whether any process of a session is still running."""
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_ctrl_c_twice_ends_the_command_and_its_workers(tmp_path):
    args = [
        "study",
        ROOT / "examples/paper.toml",
        "--trials",
        "200000",
        "--vary",
        "sigma=15,7",
        "--workers",
        "2",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "bestarm.cli", *map(str, args), "--out", tmp_path / "a.csv"],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    part = tmp_path / "a.csv.part"
    until(lambda: part.exists() and len(part.read_text().splitlines()) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT), err  # a shell shows both as 130
    until(lambda: not left(process.pid))


def test_a_limit_is_shown_only_where_it_is_valid():
    def limit_of(problem, *method, **keys):
        row = ba.study(problem, *method, **{"trials": 3, "seed": 1, "workers": 1, **keys}).summary()[0]
        assert bool(row["no_limit"]) == (row["limit"] is None)
        return row["limit"]

    real = ba.Problem.from_rewards({"g": {"a": {"kind": "beta", "a": 9, "b": 1}, "b": 0.1}})
    assert not limit_of(QUICK)["coins"]
    assert limit_of(QUICK, epsilon=0.2) is None
    assert limit_of(QUICK, budget=10**6) is None
    assert limit_of(QUICK, max_rounds=1000) is None
    assert limit_of(QUICK, "fed-sel", adversaries=[ba.Adversary("g1", "bury", 1)]) is None
    assert limit_of(real, method="fed-sel", c=2, radius="sharp") is None
    assert limit_of(real, method="fisher")["coins"]  # a method that needs no coins may need fewer pulls


@pytest.mark.parametrize("keys", [{"max_rounds": 2}, {"budget": 150}])
def test_trials_that_may_end_undecided_have_no_limit_anywhere(keys, tmp_path, root):
    scenario = root / "examples" / "paper.toml"
    flags = [word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", value)]
    common = ("study", scenario, "--method", "fisher", "--trials", 20, "--seed", 1)
    done, plain = cli(*common, *flags), cli(*common)
    assert done.returncode == plain.returncode == 0, done.stderr
    assert "×limit" in plain.stdout
    assert "No limit" not in plain.stdout
    assert "×limit" not in done.stdout
    assert "No limit: " in done.stdout
    told, shown = (json.loads(cli(*common, *more, "--json").stdout)["cells"][0] for more in (flags, []))
    assert told["pulls_total"]["mean"] < shown["limit"]["total"]  # so it would be called impossible
    assert told["limit"] is None
    assert "may end a run before it has decided" in told["no_limit"]
    assert shown["no_limit"] == ""


def test_methods_are_compared_each_with_its_own_keys():
    trials = ba.study(
        QUICK, trials=5, seed=1, workers=1, vary={"method": ["fed-sel", "fisher"]}, period=50, q=2.0
    )
    assert [row["method"] for row in trials.summary()] == ["fed-sel", "fisher"]
    with pytest.raises(ba.InputError, match="period"):
        ba.study(QUICK, "fisher", trials=5, seed=1, period=50)


KILLED = """
import os, signal
from bestarm import cli
from bestarm.study.study import _Log

def add(log, place, columns, add=_Log.add):
    add(log, place, columns)
    if len(log.path.read_text().splitlines()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

_Log.add = add
cli.main()
"""


def test_a_killed_study_resumes_from_its_file(tmp_path, monkeypatch):
    """After kill -9 of a real command, --resume gives the results of an uninterrupted study."""
    monkeypatch.undo()  # blocks of the usual size, as in the command
    args = ["study", ROOT / "examples/paper.toml", "--method", "fisher", "--trials", "3000"]
    args += ["--vary", "sigma=15", "--seed", "3", "--workers", "1"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *args, "--out", tmp_path / "a.csv"])
    assert killed.returncode == -signal.SIGKILL
    assert len((tmp_path / "a.csv.part").read_text().splitlines()) == 3
    done = cli(*args, "--out", tmp_path / "a.csv", "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(cli(*args, "--json").stdout)


def test_rewards_that_can_t_be_sent_to_a_process_are_refused_with_a_remedy():
    problem = ba.Problem.from_rewards({"g": {"a": lambda rng: float(rng.random() < 0.9), "b": 0.1}})
    with pytest.raises(ba.InputError, match="workers=1"):
        ba.study(problem, "fed-sel", trials=40, seed=1, workers=2, **OPTIONS)
    assert len(ba.study(problem, "fed-sel", trials=3, seed=1, workers=1, **OPTIONS)) == 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"trials": 0}, "trials = 0"),
        ({"trials": 2.5}, "trials = 2.5"),
        ({"vary": {"perod": [1]}}, "period"),
        ({"vary": {"sigma": [1]}}, "can't be varied"),
        ({"vary": {"period": []}}, "at least one value"),
        ({"vary": {"period": 5}}, "at least one value"),
        ({"vary": {"period": [5, 5]}}, "twice"),
        ({"vary": {"c": [8, 8.0]}}, "twice"),
        ({"vary": {"period": [[1, 2]]}}, "numbers, words"),
        ({"workers": 0}, "workers = 0"),
        ({"resume": True}, "needs the file"),
        ({"vary": {"period": [0]}}, "period = 0"),
        ({"vary": {"method": ["x"]}}, "unknown"),
        ({"out": "x.xls"}, "not a supported format"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_invalid_input_of_a_study_is_refused(keys, message):
    with pytest.raises(ba.InputError, match=message):
        run(**keys)


def test_a_missing_column_or_row_is_an_error():
    trials = run()
    with pytest.raises(ba.InputError, match='Did you mean "rounds"'):
        trials["round"]
    with pytest.raises(ba.InputError, match="no row 99"):
        trials.record(99)


@pytest.mark.parametrize(("x", "n"), [(0, 50), (3, 50), (50, 50), (1, 2)])
def test_the_binomial_interval_is_clopper_and_pearson_s(x, n):
    exact = reference.binomtest(x, n).proportion_ci(0.95, method="exact")
    assert binomial_interval(x, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_the_mean_interval_is_student_s():
    values = np.random.default_rng(1).exponential(size=40)
    expected = reference.t.interval(0.95, 39, values.mean(), reference.sem(values))
    assert mean_interval(values) == pytest.approx(expected)
    assert mean_interval(np.array([3.0])) is None
    assert median_interval(values[:5]) is None


def test_the_median_interval_covers():
    """Null: it misses at most 5 %; binomial test at 1e-6 with 4,000 samples of 25."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(4000):
        low, high = median_interval(rng.exponential(size=25))
        missed += not low <= np.log(2) <= high
    assert reference.binom.sf(missed - 1, 4000, 0.05) > 1e-6
    assert missed > 40  # the interval is not the whole range


def test_the_summary_counts_errors_and_undecided():
    close = ba.Problem.bernoulli([[0.6, 0.1], [0.5, 0.1]])
    trials = ba.study(
        close, "fed-sel", trials=35, seed=1, workers=1, vary={"max_rounds": [1, 10**6]}, **OPTIONS
    )
    first, second = trials.summary()
    assert first["undecided"] > 0
    assert second["undecided"] == 0
    wrong = [s == "identified" and not c for s, c in zip(trials["status"], trials["correct"], strict=True)]
    assert first["errors"] == sum(wrong[:35])
    low, high = second["pulls_total"]["mean_interval"]
    assert low < second["pulls_total"]["mean"] < high


@pytest.mark.slow
def test_the_study_command_writes_and_summarises_trials(tmp_path, root):
    scenario = root / "examples" / "paper.toml"
    vary = ["--vary", "sigma=1,2", "--vary", "period=50,100"]
    bad = [["--vary", "sigma"], ["--vary", "perod=1"], ["--trials", "x"], ["--dask", "tcp://127.0.0.1:1"]]
    refusals = [cli("study", scenario, "--trials", 5, *keys) for keys in bad]
    done = cli("study", scenario, "--trials", 20, *vary, "--seed", 1, "--out", tmp_path / "t.csv")
    assert done.returncode == 0, done.stderr
    assert "×limit" in done.stdout
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 81
    found = json.loads(cli("study", scenario, "--trials", 5, "--seed", 1, "--json").stdout)
    assert found["cells"][0]["errors"] == 0
    for refused in refusals:
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr


def test_ctrl_c_waits_until_no_lock_of_the_executor_is_held():
    from bestarm.study.study import _holding_interrupts

    reached = []

    def interrupted():
        with _holding_interrupts() as held:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            reached.append(len(held))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_more_blocks_than_an_executor_holds_are_all_run(monkeypatch):
    kwargs = {"trials": 40, "seed": 1, "vary": {"delta": [0.1, 0.2, 0.3]}}
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.5, 0.1]])
    whole = ba.study(problem, "fisher", workers=1, **kwargs)
    monkeypatch.setattr(importlib.import_module("bestarm.study.study"), "MOST_WAITING", 2)
    again = ba.study(problem, "fisher", workers=2, **kwargs)
    assert (whole["pulls_total"] == again["pulls_total"]).all()


def test_trials_convert_to_other_libraries_tables_and_have_a_short_text():
    problem = ba.Problem.bernoulli([[0.9, 0.1], [0.5, 0.2]])
    trials = ba.study(problem, "fisher", trials=5, seed=1, delta=0.1, workers=1, vary={"q": [1.5, 2.0]})
    rows = list(trials.rows())
    assert trials.to_pandas().to_dict("records")[3]["pulls_total"] == rows[3]["pulls_total"]
    assert trials.to_polars().to_dicts() == rows
    assert trials.to_arrow().to_pylist() == rows
    assert repr(trials) == "Trials(10 trials, varying q, 10 identified, seed 1)"
    record = trials.record(0)
    assert repr(record).startswith("Record(fisher, Verdict(identified: g1/a1, mean 0.")
    assert len(repr(record)) < 120
    assert repr(ba.Verdict(status="undecided", reason="budget", candidates=tuple("abcd"))) == (
        "Verdict(undecided, budget: a, b, c, …)"
    )
