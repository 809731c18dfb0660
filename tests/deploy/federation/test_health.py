"""Health and patience follow whether the broker stores messages, not whether it is connected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bestarm.deploy.federation import files, health, streams
from bestarm.deploy.federation.health import Health, Patience, Restarts, has_space
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.process import free_port
from federations import CASES
from helpers import SECONDS, check_pulls, client, get, serving, until

SMALL = 1 << 19  # bytes: less than a trial of the disk, more than any journal here


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    one = types.SimpleNamespace(now=100.0, monotonic=lambda: one.now)
    monkeypatch.setattr(health, "time", one)
    return one


def machine(number=0):
    return types.SimpleNamespace(round=number, ticking=True)


def test_patience_counts_only_time_in_which_messages_were_stored(clock):
    one = Health(None)
    patience = Patience(one)
    one.hear("")
    assert patience.left(machine(), 10.0, True) == 10
    clock.now += 6
    one.hear("")
    assert patience.left(machine(), 10.0, True) == 4
    clock.now += 3
    for _ in range(20):
        one.hear("the disk is full")
        assert patience.left(machine(), 10.0, True) == 4
        clock.now += 1
        assert not patience.over(10.0)
    one.hear("")
    assert patience.left(machine(), 10.0, True) == 10, "clients need time to reconnect"


def test_a_round_that_waited_long_before_an_outage_waits_a_little_longer_after_it(clock, monkeypatch):
    monkeypatch.setattr(health, "RETURN_SECONDS", 30.0)
    one = Health(None)
    patience = Patience(one)
    one.hear("")
    patience.left(machine(), 600.0, True)
    for _ in range(59):
        clock.now += 10
        one.hear("")
    assert patience.left(machine(), 600.0, True) == 10
    one.hear("no leader")
    one.hear("")
    assert patience.left(machine(), 600.0, True) == 30


def test_patience_ends_only_after_an_answer_of_the_streams(clock):
    one = Health(None)
    patience = Patience(one)
    one.hear("")
    patience.left(machine(), 3.0, True)
    clock.now += 4
    assert patience.left(machine(), 3.0, True) == 0
    assert not patience.over(3.0)
    assert one.wanted.is_set(), "it asks now"
    one.hear("")
    assert patience.over(3.0)


def test_patience_starts_again_with_each_round_and_while_a_broadcast_is_not_stored(clock):
    one = Health(None)
    patience = Patience(one)
    one.hear("")
    patience.left(machine(), 3.0, True)
    clock.now += 2
    one.hear("")
    assert patience.left(machine(), 3.0, True) == 1
    assert patience.left(machine(), 3.0, False) == 3
    clock.now += 2
    one.hear("")
    assert patience.left(machine(1), 3.0, True) == 3


def test_a_suspended_server_does_not_count_the_time_in_which_it_slept(clock):
    one = Health(None)
    one.hear("")
    clock.now += 3600
    one.hear("")
    assert one.clock == one.now() == health.LONGEST_STEP


def test_a_folder_has_space_if_a_file_can_be_written(tmp_path):
    assert has_space(tmp_path)
    assert not has_space(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("error", "first"), [("JetStream failed to store a msg", 10), ("", 60)])
def test_a_stuck_broker_is_restarted_less_and_less_often(tmp_path, clock, error, first):
    """One that reports no error may only be slow: it gets more time."""
    starts = []
    broker = types.SimpleNamespace(store=tmp_path, stop=lambda: None, start=lambda: starts.append(clock.now))
    one = Health(None)
    one.hear("")
    restarts = Restarts(broker, one)
    begin = clock.now
    one.hear("no answer")
    for _ in range(first + 100):
        restarts.hear(error)
        asyncio.run(restarts.check())
        clock.now += 1
    assert [at - begin for at in starts] == [first, first + 10, first + 30, first + 70]
    one.hear("")
    asyncio.run(restarts.check())
    one.hear("no answer again")
    for _ in range(first + 1):
        restarts.hear(error)
        asyncio.run(restarts.check())
        clock.now += 1
    assert len(starts) == 5, "after it had recovered, the pauses begin anew"


def test_a_healthy_server_says_that_its_broker_stores_messages(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "ANSWER_SECONDS", SECONDS)
    folder, case, port = tmp_path / "f", CASES["fed-sel"], free_port()

    async def main():
        async with serving(folder, case, metrics=port) as (server, _):
            await until(lambda: not server.health.trouble)
            before = server.health.clock
            server.health.wanted.set()
            await until(lambda: server.health.clock > before)
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok\n")
            assert "\nbestarm_broker_stores 1\n" in (await asyncio.to_thread(get, port, "/metrics"))[1]
            assert set(server.streams.last) == {"UP", "DOWN"}
            assert server.desk.refused.total() == 0, "the server ignores its own probes"

    asyncio.run(main())


@contextlib.contextmanager
def full_disk(broker):
    """Let writes of this broker fail, and the server's trials of the disk: no file may grow that much."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def run_with_a_full_disk(folder, full):
    """Run a federation whose broker's disk is full for some time; return the record."""
    case, port, patience = CASES["robust-fed-sel"], free_port(), 3.0
    names = case.problem.layout.clients

    async def main():
        async with serving(folder, case, names[:-1], metrics=port, patience=SECONDS) as (server, tasks):
            await until(lambda: server.desk.waiting_for() == [names[-1]] and not server.health.trouble)
            with full(server.broker):
                first = server.broker.process.pid
                await until(lambda: server.health.trouble)
                server.patience = patience
                server.waiting.restart(server.desk.machine)
                tasks[names[-1]] = asyncio.create_task(client(folder, case, names[-1]).run())
                for _ in range(4):
                    assert await asyncio.to_thread(get, port, "/healthz") == (503, "")
                    assert (
                        "\nbestarm_broker_stores 0\n" in (await asyncio.to_thread(get, port, "/metrics"))[1]
                    )
                    await asyncio.sleep(patience / 2)
                assert server.online
                assert server.broker.process.pid == first
                assert not server.desk.done
                assert "patience" not in [event.kind for event in server.desk.journal.events()]
                await until(lambda: server.restarts.full)
            server.patience = SECONDS  # a slow computer must not look like a silent client
            # The verdict may come before the next probe of the streams.
            await until(lambda: not server.health.trouble or tasks["server"].done())
            if not tasks["server"].done():
                assert server.broker.process.pid != first
            return await asyncio.wait_for(tasks["server"], SECONDS)

    record = asyncio.run(main())
    assert record.verdict.arm == "west/a"
    assert verify(folder).ok
    check_pulls(folder, names)


@pytest.mark.slow
def test_a_full_disk_stops_patience_and_the_broker_is_restarted_when_there_is_space(
    tmp_path, monkeypatch, caplog
):
    """The broker's writes fail. It keeps failing when there is space again, until it is restarted."""
    monkeypatch.setattr(health, "RESTART_SECONDS", 1.0)
    monkeypatch.setattr(health, "SILENT_SECONDS", 1.0)  # its log can't grow, either
    run_with_a_full_disk(tmp_path / "f", full_disk)
    assert "the disk is full" in caplog.text
    assert "stores nothing although its disk has space" in caplog.text


@contextlib.contextmanager
def ballast(broker):
    """Fill the disk of this broker."""
    path = broker.store / "ballast"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    try:
        yield
    finally:
        path.unlink()


SMALL_DISK = """
import sys
from pathlib import Path
import test_health
from bestarm.deploy.federation import health
health.RESTART_SECONDS = health.SILENT_SECONDS = 1.0
health.PROBE_SECONDS = 0.1  # a message may still fit into a block of a file
test_health.run_with_a_full_disk(Path(sys.argv[1]), test_health.ballast)
"""


@pytest.mark.slow
def test_a_disk_that_is_really_full_does_the_same(tmp_path):
    """The broker's store is a small disk in a mount namespace of its own."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this computer does not allow mount namespaces")
    files.init(CASES["robust-fed-sel"], tmp_path / "f", port=0)
    store = tmp_path / "f" / "broker" / "store"
    store.mkdir()
    mount = 'mount -t tmpfs -o size=8m none "$1" && shift && exec "$@"'
    python = [sys.executable, "-c", SMALL_DISK, str(tmp_path / "f")]
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", str(store), *python],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=2 * SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_operator_of_a_nats_server_is_told_what_to_do(tmp_path, caplog):
    """The server does not restart a broker that is not its own."""
    files.init(CASES["fed-sel"], tmp_path / "f", url="nats://localhost:1")
    server = Server(tmp_path / "f")
    server.desk.journal.close()
    assert server.restarts is None
    server.health.hear("")
    server.health.hear("the broker stores nothing in stream UP: no answer")
    assert "in stream UP: no answer" in caplog.text
    assert "Check the disks of your NATS servers" in caplog.text
