"""What the federation and mesh commands report to their operator."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys

import pytest
from rich.console import Console

import bestarm as ba
from bestarm.cli.render import federation as rendered
from bestarm.deploy.federation import files
from bestarm.deploy.federation.client import Progress
from bestarm.deploy.federation.verification import verify
from bestarm.report import page
from bestarm.util.journal import Journal
from command_line import bestarm
from federations import CASES, Coins, Folds
from marking import slow

QUICK = """
[[group]]
name = "g"
clients = 2
arms = { a = 0.9 }
[network]
generator = "complete"
n = 2
"""


def alone(*args, cwd=None, without="no_such_module"):
    """Run a command in a process of its own; the module `without` is treated as not installed."""
    code = "import sys; from bestarm import cli; sys.modules[sys.argv.pop(1)] = None; cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, without, *map(str, args)],
        capture_output=True, text=True, cwd=cwd, timeout=120,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "package", "command"),
    [
        ("cryptography", "cryptography", "federation init s.toml --out made"),
        ("grpc", "grpcio", "mesh init s.toml --out made"),
        *slow(
            ("nkeys", "nkeys", "federation init s.toml --out made"),
            ("nats", "nats-py", "federation demo --out made"),
            ("cryptography", "cryptography", "mesh init s.toml --out made"),
            ("cryptography", "cryptography", "mesh demo --out made"),
            ("cryptography", "cryptography", "mesh check made"),
        ),
    ],
)
def test_a_missing_package_is_named_before_anything_is_created(tmp_path, module, package, command):
    (tmp_path / "s.toml").write_text(QUICK)
    done = alone(*command.split(), cwd=tmp_path, without=module)
    assert done.returncode == 2, done.stderr
    extra = command.split()[0]
    wanted = f'a {extra} needs the package "{package}". Install it with: pip install "bestarm[{extra}]"'
    assert wanted in done.stderr
    assert not (tmp_path / "made").exists()


def test_an_init_that_fails_leaves_no_folder_behind(tmp_path, monkeypatch):
    def full(*_):
        raise ba.InputError("no space is left")

    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with monkeypatch.context() as patch:
            patch.setattr(files.Roster, "save", full)
            with pytest.raises(ba.InputError, match="no space"):
                files.init(CASES["fisher"], tmp_path / name, port=0)
        assert (tmp_path / name).exists() == (name != "new")  # existing files stay unchanged
        assert name == "new" or list((tmp_path / name).iterdir()) == []
        files.init(CASES["fisher"], tmp_path / name, port=0)


def test_an_init_that_fails_behind_a_link_leaves_no_keys(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(files.Roster, "save", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        files.init(CASES["fisher"], tmp_path / "link", port=0)
    assert list((tmp_path / "real").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o755


NAMES = """
[[group]]
name = "Berlin"
bounds = [0, 60]
arms = ["Anna", "Bob"]
[[group]]
name = "Rome"
bounds = [0, 60]
arms = ["Dino"]
[network]
generator = "complete"
n = 2
"""


@pytest.mark.slow
def test_a_scenario_that_only_names_its_arms_is_for_sites_and_not_for_a_run(tmp_path):
    (tmp_path / "s.toml").write_text(NAMES)
    checked = bestarm("check", "s.toml", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "2 groups, 3 arms, 2 clients" in checked.stdout
    assert bestarm("network", "s.toml", cwd=tmp_path).returncode == 0
    assert bestarm("mesh", "init", "s.toml", "--out", "mesh", "--port", 0, cwd=tmp_path).returncode == 0
    made = bestarm("federation", "init", "s.toml", "--out", "fed", "--port", 0, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "Means and data of the scenario were not taken: rewards come from the sites." in made.stdout
    layout = files.Federation.load(tmp_path / "fed").setup.layout
    assert [(group.arms, group.binary) for group in layout.groups] == [
        (("Anna", "Bob"), False),
        (("Dino",), False),
    ]
    for command in (("run",), ("plan",), ("study", "--trials", 2)):
        done = bestarm(*command, "s.toml", cwd=tmp_path)
        assert done.returncode == 2
        assert (
            "these arms have no rewards here: Berlin/Anna, Berlin/Bob, Rome/Dino. Run a federation"
            in done.stderr
        )


@pytest.mark.slow
def test_a_table_of_another_site_is_refused_before_a_pull_and_columns_may_have_other_names(tmp_path):
    (tmp_path / "s.toml").write_text(NAMES)
    (tmp_path / "Rome.csv").write_text("courier,minutes late\nDino,12\n")
    bestarm("federation", "init", "s.toml", "--out", "fed", "--port", 0, cwd=tmp_path)
    bestarm("mesh", "init", "s.toml", "--out", "mesh", "--port", 0, cwd=tmp_path)
    for command, place in (("client", tmp_path / "fed/clients"), ("peer", tmp_path / "mesh/nodes")):
        wrong = alone(command, place / "Rome-1", "--csv", "Rome.csv", cwd=tmp_path)
        assert wrong.returncode == 2
        assert "The columns are: courier, minutes late. Name yours: --arm-column, " in wrong.stderr
        named = ("--csv", "Rome.csv", "--arm-column", "courier", "--reward-column", "minutes late")
        other = alone(command, place / "Berlin-1", *named, cwd=tmp_path)
        assert other.returncode == 2
        assert 'Rome.csv: there are no rewards for arm "Anna". Known: Dino.' in other.stderr
        with Journal.open(place / "Berlin-1" / "journal.db", write=False) as journal:
            assert list(journal.events()) == []


@pytest.fixture
def folds(tmp_path):
    """A federation in process, before its first message."""
    files.init(CASES["fisher"], tmp_path / "fed", port=0)
    made = Folds(tmp_path / "fed", Coins(CASES["fisher"].problem))
    yield made
    made.close()


def say(folds, client, text):
    """Send a client's note to the operator."""
    site = folds.sites[client]
    site.note(text)
    folds.desk.take(site.notes[-1:])


def test_a_client_s_note_is_shown_with_its_round_and_whether_messages_came_later(folds, tmp_path):
    say(folds, "west-1", "wrong file")
    while folds.desk.machine.round < 1:
        folds.turn()
    say(folds, "east-1", "all rewards were played")
    folds.close()
    notes = verify(tmp_path / "fed").notes
    assert notes == (("west-1", "wrong file", 0, True), ("east-1", "all rewards were played", 1, False))
    done = bestarm("verify", tmp_path / "fed")
    assert "west-1 said (in round 0; it has sent messages since): wrong file" in done.stdout
    assert "east-1 said (in round 1): all rewards were played" in done.stdout
    html = page.read(tmp_path / "fed")
    told, trust = html.index('<section id="notes"'), html.index('<section id="trust"')
    assert html.index("What clients told the operator", told) < html.index("wrong file", told) < trust
    assert "wrong file" not in html[trust:]


def test_a_server_says_what_files_it_left_and_why_clients_are_missing(folds, tmp_path):
    say(folds, "east-1", "wrong file")
    while not folds.desk.next["east-1"]:
        folds.turn()
    say(folds, "west-1", "all rewards were played")
    folds.desk.stop("silence")
    folds.close()
    done = alone("server", "fed", "--linger", 0, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "the run is over; telling the clients" in done.stderr
    assert re.search(r"west-1 said \(in round \d+\): all rewards were played", done.stdout)
    assert "wrong file" not in done.stdout, "that was fixed"
    assert "record: fed/record.json. Next: bestarm verify fed, bestarm report fed\n" in done.stdout


def test_input_that_can_t_be_replayed_or_verified_is_an_input_error(folds, tmp_path):
    record = folds.go()
    folds.close()
    path = tmp_path / "fed" / "record.json"
    record.save(path)
    assert bestarm("verify", "fed", cwd=tmp_path).returncode == 0
    assert bestarm("verify", "fed/record.json", cwd=tmp_path).returncode == 0
    wrong = {
        ("fed", "--replay"): "A journal is replayed without it",
        ("fed/record.json", "--replay"): "the record is sound, but a federation's record has no seed",
        ("fed/clients/west-1",): "bestarm verify FOLDER --roster fed/clients/west-1/client.json",
        ("fed/clients/west-1/journal.db",): "a client's folder can be watched or reported, not verified",
    }
    for args, text in wrong.items():
        done = bestarm("verify", *args, cwd=tmp_path)
        assert done.returncode == 2, args
        assert text in done.stderr
    path.write_text(path.read_text().replace('"arm": "west/a"', '"arm": "east/c"'))
    assert bestarm("verify", path, "--replay").returncode == 4


@pytest.mark.slow
def test_a_report_is_not_written_among_private_keys(folds, tmp_path):
    folds.go().save(tmp_path / "fed" / "record.json")
    folds.close()
    (tmp_path / "mine").mkdir()
    for run, name in (("fed", "fed"), ("fed/record.json", "fed"), ("fed/clients/west-1", "west-1")):
        done = bestarm("report", tmp_path / run, "--quick", "--json", cwd=tmp_path / "mine")
        assert json.loads(done.stdout)["file"] == f"{name}.html"
        assert (tmp_path / "mine" / f"{name}.html").is_file()
    assert not list((tmp_path / "fed").rglob("*.html"))


def test_without_a_terminal_a_client_logs_its_state_with_each_new_message(monkeypatch, capsys):
    now = [1000.0]
    monkeypatch.setattr(rendered.time, "monotonic", lambda: now[0])
    console = Console(stderr=True, highlight=False, width=200, force_terminal=False)
    monkeypatch.setattr(rendered, "err", console)
    steps = [  # seconds, state, messages, pulls, speed
        (0, "pulling", 0, 32, 100.0), (1, "reported", 1, 96, 0.0), (7, "reported", 1, 96, 0.0),
        (20, "reported", 1, 96, 0.0), (21, "pulling", 1, 100, 50.0), (70, "pulling", 1, 900, 50.0),
        (82, "pulling", 1, 1200, 50.0),
    ]  # fmt: skip
    with rendered.client_line(quiet=False) as line:
        for seconds, state, messages, pulls, speed in steps:
            now[0] = 1000.0 + seconds
            line(Progress("Rome-1", state, pulls, messages, speed, None, True))
    assert capsys.readouterr().err.splitlines() == [
        "Rome-1: pulling, 0 messages, 32 pulls, 100/s",
        "Rome-1: waits for the server, 1 message, 96 pulls",
        "Rome-1: pulling, 1 message, 100 pulls, 50/s",
        "Rome-1: pulling, 1 message, 1,200 pulls, 50/s",
    ]


@pytest.mark.parametrize(
    ("online", "text"),
    [(False, "offline for 2 hours: check that the server runs"), (True, "no news for 2 hours")],
)
def test_a_client_whose_server_is_gone_says_for_how_long_with_growing_pauses(
    online, text, monkeypatch, capsys
):
    now = [1000.0]
    monkeypatch.setattr(rendered.time, "monotonic", lambda: now[0])
    console = Console(stderr=True, highlight=False, width=200, force_terminal=False)
    monkeypatch.setattr(rendered, "err", console)
    with rendered.client_line(quiet=False) as line:
        for _ in range(3 * 3600):
            now[0] += 1.0
            line(Progress("Rome-1", "reported", 96, 1, 0.0, None, online))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) < 10
    assert text in lines[-1]
