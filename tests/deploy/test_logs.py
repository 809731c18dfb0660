"""Logs: JSON lines with the same keys, files that rotate, and plain text on stderr by default."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from types import SimpleNamespace

import pytest

from bestarm.cli import terminal
from bestarm.cli.logs import LogOptions
from bestarm.deploy.federation.client import Progress
from bestarm.deploy.logs import Logs, client_events, fields, peer_events, server_events
from bestarm.errors import InputError

log = logging.getLogger("bestarm.federation")


@pytest.fixture
def started():
    """Start logs with these options; they end with the test."""
    running = []

    def start(*args, **options):
        running.append(Logs(*args, **options))
        running[-1].start()
        terminal.log_with(running[-1])
        return running[-1]

    yield start
    for logs in running:
        logs.stop()
    terminal.log_with(Logs())


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_each_line_is_one_json_object_with_time_level_message_run_and_fields(started, capsys):
    logs = started("json")
    logs.known.update(run="ab12", client="west-1")
    log.info("round %d", 3, extra=fields(round=3, refused=0))
    log.warning('two\nlines \x1b[2J and a quote: "')
    found = lines(capsys.readouterr().err)
    assert [entry["message"] for entry in found] == ["round 3", 'two\nlines \x1b[2J and a quote: "']
    first = found[0]
    assert (first["level"], first["logger"]) == ("info", "bestarm.federation")
    assert (first["run"], first["client"], first["round"], first["refused"]) == ("ab12", "west-1", 3, 0)
    when = datetime.datetime.fromisoformat(first["time"])
    assert when.utcoffset() == datetime.timedelta(0)
    assert abs(when - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(hours=1)


def test_an_exception_is_part_of_its_line(started, capsys):
    started("json")
    try:
        raise ValueError("the reason")
    except ValueError:
        log.exception("it failed")
    (entry,) = lines(capsys.readouterr().err)
    assert "ValueError: the reason" in entry["error"]


def test_what_a_command_prints_on_stderr_becomes_a_line_of_the_json_log(started, capsys):
    started("json")
    terminal.complain("the file is missing", as_json=False)
    terminal.warn(["rows are drawn again"])
    terminal.remark("stopped")
    found = lines(capsys.readouterr().err)
    assert [(entry["level"], entry["message"]) for entry in found] == [
        ("error", "the file is missing"), ("warning", "rows are drawn again"), ("info", "stopped"),
    ]  # fmt: skip


def test_a_log_file_has_events_and_errors_while_stderr_stays_plain(started, tmp_path, capsys):
    path = tmp_path / "server.log"
    started("json", path)
    log.info("an event", extra=fields(round=1))
    log.warning("a warning")
    terminal.complain("the end", as_json=False)
    assert [entry["message"] for entry in lines(path.read_text())] == ["an event", "a warning", "the end"]
    said = capsys.readouterr().err
    assert "an event" not in said
    assert "a warning" in said
    assert said.count("the end") == 1


def test_text_lines_of_a_file_hide_nothing(started, tmp_path):
    path = tmp_path / "client.log"
    started("text", path)
    log.info("evil \x1b[2J")
    assert path.read_text().endswith(" evil \\x1b[2J\n")


def test_a_log_file_is_renamed_when_it_is_long_and_only_some_are_kept(started, tmp_path):
    path = tmp_path / "server.log"
    started("json", path, size=0.001, keep=2)
    for k in range(100):
        log.info("event %d", k)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["server.log", "server.log.1", "server.log.2"]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert lines(path.read_text())[-1]["message"] == "event 99"


def test_options_that_cannot_be_used_are_refused(tmp_path):
    own = {"log_file": tmp_path / "own.log"}
    for options in ({"log": "xml"}, {**own, "log_size": 0.0}, {**own, "log_keep": 0}):
        with pytest.raises(InputError):
            LogOptions(**options).start()
    for options in ({"log_size": 5.0}, {"log_keep": 2}):
        with pytest.raises(InputError, match="Add --log-file"):
            LogOptions(**options).start()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--log-file"):
        LogOptions(log_file=tmp_path / "file" / "x.log").start()


def test_the_folder_of_a_log_file_must_exist(tmp_path):
    with pytest.raises(InputError, match=r"missing: the folder of the log file does not exist\. Create it"):
        LogOptions(log_file=tmp_path / "missing" / "x.log").start()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_log_file_on_a_full_disk_is_warned_about_once_and_continues_when_there_is_space(
    started, tmp_path, capsys
):
    import resource

    path = tmp_path / "server.log"
    started("json", path)
    log.info("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
    try:
        log.info("lost")
        log.info("lost as well")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert said.count(f"{path}: the log can't be written: ") == 1
    assert said.count("\n") == 1
    log.info("after")
    log.info("later")
    messages = [entry["message"] for entry in lines(path.read_text())]
    assert messages == [
        "before", "after", "2 lines are missing here: the log file could not be written", "later",
    ]  # fmt: skip


def test_watchers_log_only_what_changes(started, capsys):
    started("json")
    watch = client_events()
    for pulls in (5, 6, 7):
        watch(Progress("west-1", "pulling", pulls, 0, 1.0, None, True))
    watch(Progress("west-1", "reported", 8, 1, 1.0, None, True))
    found = lines(capsys.readouterr().err)
    assert [(entry["state"], entry["pulls"], entry["messages"]) for entry in found] == [
        ("pulling", 5, 0), ("reported", 8, 1),
    ]  # fmt: skip
    keys = ("state", "decided", "arm", "waits_for", "unreachable", "suspects")
    status = {"pulls": 1, **dict.fromkeys(keys)}
    see = peer_events()
    for _ in range(3):
        see(status)
    see({**status, "decided": True})
    assert [entry["decided"] for entry in lines(capsys.readouterr().err)] == [None, True]


def test_a_server_logs_rounds_and_refusals_with_their_counts(started, capsys):
    started("json")
    machine = SimpleNamespace(round=0, bits_up=0, bits_down=0)
    desk = SimpleNamespace(machine=machine, broadcasts=[], next={}, refused={}, waiting_for=lambda: ["a"])
    watch = server_events()

    def look():
        watch(SimpleNamespace(desk=desk, connected=True))

    look()
    look()
    machine.round, desk.broadcasts = 1, [b""]
    look()
    for count in range(1, 101):
        desk.refused["a", "malformed"] = count
        look()
    found = lines(capsys.readouterr().err)
    assert [entry["event"] for entry in found[:3]] == ["connection", "round", "round"]
    assert (found[2]["round"], found[2]["broadcasts"], found[2]["missing"]) == (1, 1, 1)
    refused = [entry["refused"] for entry in found[3:]]
    assert refused[0] == 1
    assert len(refused) < 10, "a flood does not fill the log"
