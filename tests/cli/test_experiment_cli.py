"""``bestarm experiment`` as a user types it: new, serve, status, stop, and what other commands do with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import pytest

from bestarm.cli import main
from bestarm.deploy.experiment.folder import read


@pytest.fixture
def bestarm(monkeypatch, capsys, tmp_path):
    """Run the command in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["bestarm", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=said.out, stderr=said.err)

    return run


@contextlib.contextmanager
def served(*args):
    """A server of an experiment in a process of its own; yields the process and its address."""
    command = [sys.executable, "-m", "bestarm.cli", "experiment", "serve", *map(str, args), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


def call(url, token, path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Authorization": f"Bearer {token}", **headers})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


NEW = ("experiment", "new", "shop", "--option", "A", "--option", "B", "--binary", "--seed", "1", "--json")


@pytest.mark.slow
def test_an_experiment_is_created_served_killed_resumed_watched_and_verified(bestarm, tmp_path):
    token = json.loads(bestarm(*NEW).stdout)["token"]
    with served("shop") as (process, url):
        own = call(url, token, "/assign", {})
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with served("shop") as (process, url):
        assert call(url, token, "/reward", {"token": own["token"], "reward": 1})["outcome"] == "counted"
        while call(url, token, "/status")["state"] == "running":
            found = call(url, token, "/assign", {"times": 100})["assignments"]
            rewards = [{"token": each["token"], "reward": float(each["option"] == "B")} for each in found]
            call(url, token, "/reward", {"rewards": rewards})
        assert call(url, token, "/assign", {})["option"] == "B"
        busy = bestarm("experiment", "status", "shop", "--json")
        assert json.loads(busy.stdout)["answer"] == "B"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
        assert process.stderr.read().strip() == "stopped; run it again to resume"
    assert "The answer is: B" in bestarm("experiment", "status", "shop").stdout
    checked = bestarm("verify", "shop")
    assert checked.returncode == 0, checked.stdout
    assert "each once" in checked.stdout
    assert bestarm("report", "shop", "--out", "shop.html").returncode == 0
    assert bestarm("experiment", "stop", "shop").returncode == 0
    assert bestarm("verify", "shop/record.json").returncode == 0


def test_a_served_experiment_can_be_stopped_and_is_undecided(bestarm, tmp_path):
    token = json.loads(bestarm(*NEW).stdout)["token"]
    with served("shop") as (_, url):
        call(url, token, "/assign", {"times": 10})
        done = bestarm("experiment", "stop", "shop", "--json")
        assert (done.returncode, json.loads(done.stdout)["answer"]) == (3, None)
    assert bestarm("verify", "shop/record.json").returncode == 0


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("new", "shop", "--option", "A"), "only one option"),
        (
            ("new", "shop", "--option", "A", "--option", "B", "--deadline", "soon", "--missing", "0"),
            "duration",
        ),
        (("new", "shop", "--option", "A", "--option", "B", "--deadline", "1d"), "both or none"),
        (("new", "shop", "--option", "A", "--option", "B", "--deadline", "5", "--missing", "0"), "unit"),
        (("new", "shop", "--option", "A", "--option", "B", "--weight", "us"), "SITE=NUMBER"),
        (("new", "shop", "--option", "A", "--option", "B", "--weights", "us"), "--weights"),
        (
            ("new", "shop", "--option", "A", "--option", "B", "--weights", "us=1", "--weight", "us=1"),
            "one of",
        ),
        (("serve", "nowhere", "--stalled-after", "5"), "unit"),
        (("key", "nowhere"), "no experiment here"),
        (("serve", "nowhere"), "no experiment here"),
        (("status", "nowhere"), "no experiment here"),
        (("stop", "nowhere"), "no experiment here"),
        (("caller", "nowhere", "me"), "no experiment here"),
    ],
)
def test_wrong_input_ends_with_code_2_and_a_sentence(bestarm, args, what, tmp_path):
    done = bestarm("experiment", *args)
    assert done.returncode == 2
    assert what in " ".join(done.stderr.split())
    assert not (tmp_path / "shop").exists()


def test_a_folder_is_never_overwritten_and_callers_come_and_go(bestarm):
    assert bestarm(*NEW).returncode == 0
    again = bestarm(*NEW)
    assert (again.returncode, "not empty" in again.stderr) == (2, True)
    assert json.loads(bestarm("experiment", "caller", "shop", "ios", "--json").stdout)["caller"] == "ios"
    assert bestarm("experiment", "caller", "shop", "ios").returncode == 2
    assert bestarm("experiment", "caller", "shop", "ios", "--remove").returncode == 0


def test_the_status_of_an_experiment_without_assignments_has_no_pace_and_no_leader(bestarm):
    assert bestarm(*NEW).returncode == 0
    said = bestarm("experiment", "status", "shop").stdout
    assert "0 assigned" in said
    assert "nan" not in said
    assert "leads by" not in said


def test_the_question_is_given_as_for_other_commands_and_the_status_names_it(bestarm, tmp_path):
    new = ("experiment", "new", "shop", "--option", "A", "--option", "B", "--site", "us", "--site", "eu")
    assert bestarm(*new, "--weights", "us=3, eu=1", "--also", "each").returncode == 0
    settings = read(tmp_path / "shop").settings
    assert settings.problem().layout.question.weights == (0.75, 0.25)
    assert settings.problem().layout.question.by_site
    said = " ".join(bestarm("experiment", "status", "shop").stdout.split())
    assert "experiment shop, asked: which option has the best weighted average over all sites" in said
    assert "us 0.75, eu 0.25" in said
    single = bestarm("experiment", "new", "each", *new[3:], "--question", "each", "--simultaneous")
    assert single.returncode == 0
    assert read(tmp_path / "each").settings.problem().layout.question.simultaneous


def test_the_key_of_webhooks_is_printed(bestarm, tmp_path):
    assert bestarm(*NEW).returncode == 0
    key = read(tmp_path / "shop").settings.key
    assert bestarm("experiment", "key", "shop").stdout.strip() == key
    assert json.loads(bestarm("experiment", "key", "shop", "--json").stdout) == {"key": key}
