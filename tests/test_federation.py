"""The federation on the wire: real processes that are killed, hostile clients, the operator's orders."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
import io
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from rich.console import Console

import bestarm as ba
import federations
from bestarm import cli
from bestarm.deploy import free_port
from bestarm.errors import InputError
from bestarm.federation import broker, files, wire
from bestarm.federation import client as clients
from bestarm.federation.broker import Unreachable, binary
from bestarm.federation.client import Client, Site
from bestarm.federation.demo import PATIENCE
from bestarm.federation.server import AHEAD, NOTE_BYTES, NOTES, Server, Status, verify
from bestarm.identity import Envelope, Key
from bestarm.pulling import REDRAWN
from bestarm.record import Record
from bestarm.sources import MEANS, PAUSE, FromPython, SourceFailed
from federations import CASES, Coins, comparable, in_process, scenario

CLI = [sys.executable, "-m", "bestarm.cli"]
SECONDS = 120.0  # for anything: a bound that only what never comes reaches, however slow the machine is


@pytest.fixture(autouse=True)
def _slow_machines_connect_too(monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", SECONDS)


class Processes:
    """A federation of real processes; nothing of it is left when the test ends."""

    def __init__(self, folder, case, pause=0.0, linger=10.0):
        self.folder, self.case, self.linger = folder, case, linger
        files.init(case, folder, port=0)
        self.names = case.problem.layout.clients
        self.pause, self.running = pause, {}

    def start(self, name, *args, place=None):
        """The server, or a client: with a coin for each arm, or with the source that `args` name."""
        environment = {**os.environ, PAUSE: str(self.pause)}
        if name == "server":
            command = [*CLI, "server", str(self.folder), "--linger", str(self.linger), *(args or ["--json"])]
        else:
            j = self.case.problem.layout.group_of[name]
            arms = self.case.problem.layout.groups[j].arms
            environment[MEANS] = json.dumps(dict(zip(arms, self.case.problem.means[j], strict=True)))
            place = str(place or self.folder / "clients" / name)
            command = [
                *CLI,
                "client",
                place,
                *(args or ["--arms", "bestarm.sources:Coins"]),
                "--json",
            ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def broker(self):
        pids = [int(p.stem.rpartition("_")[2]) for p in (self.folder / "broker").glob("*.ports")]
        return pids[0] if pids else None

    def kill(self, name):
        if name == "broker":
            pid = self.broker()
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        self.running[name].kill()
        self.running[name].wait()
        self.start(name)

    def ends(self, name, seconds=SECONDS):
        """The exit code of a process that ends by itself."""
        try:
            return self.running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} goes on\n{self.logs()}") from None

    def says(self, name, text, seconds=SECONDS):
        """Wait until this stands in a process's log."""
        until = time.monotonic() + seconds
        while text not in (self.folder / f"{name}.log").read_text():
            assert time.monotonic() < until, f"{text}: {self.logs()}"
            time.sleep(0.05)

    def wait(self, seconds=2 * SECONDS):
        until = time.monotonic() + seconds
        while self.running["server"].poll() is None:
            assert time.monotonic() < until, self.logs()
            time.sleep(0.05)
        assert self.running["server"].returncode == 0, self.logs()
        for name in self.names:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.running[name].wait(5)

    def logs(self):
        return "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in self.folder.glob("*.log"))

    def end(self):
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check_pulls(folder, names):
    """Every pull that a client's journal holds counts once, or waits to be used."""
    for name in names:
        site = Site.open(files.Place.load(folder / "clients" / name))
        federations.check_pulls(site)
        site.journal.close()


def kill_somewhere(tmp_path, seed):
    rng = random.Random(seed)
    case = CASES["fed-sel" if seed % 2 else "fisher"]
    federation = Processes(tmp_path / "f", case, pause=0.02)
    try:
        for name in ("server", *federation.names):
            federation.start(name)
        until = time.monotonic() + SECONDS
        while not federation.broker():
            assert time.monotonic() < until, federation.logs()
            time.sleep(0.02)
        for _ in range(2):
            time.sleep(rng.random() * 1.5)
            federation.kill(rng.choice(["server", "broker", *federation.names]))
        federation.wait()
    finally:
        federation.end()
    assert Record.load(tmp_path / "f" / files.RECORD).verdict.arm == "west/a"
    found = verify(tmp_path / "f")
    assert found.ok, found.failures
    check_pulls(tmp_path / "f", federation.names)


@pytest.mark.parametrize("seed", range(8))
def test_a_process_that_is_killed_comes_back_and_nothing_is_lost(tmp_path, seed):
    kill_somewhere(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8, 108))
def test_a_hundred_more_moments(tmp_path, seed):
    kill_somewhere(tmp_path, seed)


@contextlib.asynccontextmanager
async def serving(folder, case, start=(), **options):
    """A server in this process, and these clients; everything ends with the test."""
    if not folder.exists():
        files.init(case, folder, port=0)
    server = Server(folder, **{"linger": SECONDS, **options})
    tasks = {"server": asyncio.create_task(server.run())}
    try:
        await until(lambda: (server.ready and server.seen) or tasks["server"].done())
        if tasks["server"].done():
            tasks["server"].result()
        for name in start:
            tasks[name] = asyncio.create_task(client(folder, case, name).run())
        yield server, tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def shown(status):
    """The server's table, as text."""
    console = Console(width=200, file=io.StringIO())
    console.print(cli._status_table(status))
    return console.file.getvalue()


def client(folder, case, name, place=None, **options):
    coins = Coins(case.problem)
    i = case.problem.layout.clients.index(name)
    arms = case.problem.layout.groups[case.problem.layout.group_of[name]].arms

    def source(site):
        def pull(arm, times):
            return coins.rewards(i, arms.index(arm), site.made[arm], times)

        return FromPython(pull)

    return Client(place or folder / "clients" / name, source, **options)


@pytest.mark.parametrize("name", ["fed-sel", "fisher"])
def test_over_the_wire_the_record_is_that_of_the_run_in_process(tmp_path, name):
    case = CASES[name]

    tables, lines = set(), []

    async def main():
        async with serving(tmp_path / "f", case, watch=lambda s: tables.add(shown(s))) as (server, tasks):
            for each in case.problem.layout.clients:
                work = client(tmp_path / "f", case, each, watch=lines.append)
                tasks[each] = asyncio.create_task(work.run())
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            tables.add(shown(Status(server.desk, True, 3.0, 0)))
            return record

    record = asyncio.run(main())
    assert comparable(in_process(case, Coins(case.problem))) == comparable(record)
    assert any("waiting for west-1, east-1, mid-1" in table for table in tables)
    last = next(table for table in tables if "the run is over" in table)
    assert "\\n" not in last
    assert last.splitlines()[1].startswith(f"{record.bits.up:,} bits up")
    assert re.search(
        {
            "fed-sel": r"west +1/1 +0\.\d+ to",
            "fisher": r"west +1/1 +look \d+: a, \d+ to \d+ of \d+ \(leads\)",
        }[name],
        last,
    )
    assert {line.client for line in lines} == set(case.problem.layout.clients)


async def until(condition, seconds=SECONDS):
    """Wait until this holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.02)


def test_a_hostile_client_harms_only_itself(tmp_path):
    """Its key is valid; all that it may do is to speak for itself, in its own mailbox."""
    folder, case = tmp_path / "f", CASES["fed-sel"]

    async def main():
        async with serving(folder, case) as (server, tasks):
            places = {n: files.Place.load(folder / "clients" / n) for n in case.problem.layout.clients}
            bad, good = places["mid-1"], places["west-1"]
            subject, run = bad.setup.subject, bad.setup.run
            nc = await wire.connect(
                bad.setup.url, bad.nkey, bad.folder / "ca.pem", "mid", f"_INBOX_{bad.slot}"
            )
            heard = []

            async def hear(message):
                heard.append(message)

            up, others = f"{subject}.up.{bad.slot}", f"{subject}.up.{good.slot}"
            for stranger in (f"{subject}.up.*", others, f"{subject}.all", f"{subject}.down.*", ">", "$JS.>",
                             f"_INBOX_{good.slot}.>", "_INBOX_server.>", "_INBOX.>", "_R_.>"):  # fmt: skip
                await nc.subscribe(stranger, cb=hear)
            forged = Envelope.sign(bad.key, run, "west-1", "up", 0, b"x").encode()
            # as another, as the server, into its consumers and inboxes
            for stranger in (others, f"{subject}.all", f"{subject}.down.{good.slot}", "_INBOX_server.x.1",
                             f"_INBOX_{good.slot}.x", f"$JS.ACK.DOWN.{good.slot}.1.1.1.1.1",
                             f"{subject}.next.{good.slot}"):  # fmt: skip
                await nc.publish(stranger, forged)
            # through the broker's answers
            wish = json.dumps({"batch": 5, "expires": 10**9}).encode()
            for reply in (others, f"_INBOX_{good.slot}.x", f"{subject}.all", up):
                await nc.publish(up, b"junk", reply=reply)
                await nc.publish(f"{subject}.next.{bad.slot}", wish, reply=reply)
            requests = (
                "INFO", "STREAM.NAMES", "STREAM.INFO.UP", "STREAM.PURGE.UP", "STREAM.DELETE.UP",
                "STREAM.DELETE.DOWN", "STREAM.UPDATE.UP", "STREAM.CREATE.X", "STREAM.MSG.GET.UP",
                "STREAM.MSG.DELETE.DOWN", "CONSUMER.MSG.NEXT.UP.server", "CONSUMER.DELETE.UP.server",
                f"CONSUMER.DELETE.DOWN.{good.slot}", f"CONSUMER.INFO.DOWN.{good.slot}",
                f"CONSUMER.MSG.NEXT.DOWN.{good.slot}", "CONSUMER.DURABLE.CREATE.DOWN.x",
            )  # fmt: skip
            answers = await asyncio.gather(
                *(nc.request(f"$JS.API.{request}", b"", timeout=1) for request in requests),
                return_exceptions=True,
            )
            assert [r for r, a in zip(requests, answers, strict=True) if not isinstance(a, Exception)] == []
            # malformed, early, of another run, too many notes, too long a note, a kind that there is not
            junk = [b"", b"junk", forged, os.urandom(900), bytes(1000)]
            junk += [
                Envelope.sign(bad.key, rr, "mid-1", kind, number, content).encode()
                for rr, kind, number, content in (
                    (run, "up", AHEAD + 1, b"x"), (run, "up", 2**32 - 1, b"x"), (run, "note", NOTES, b"x"),
                    (run, "note", 0, b"x" * (NOTE_BYTES + 1)), (run, "down", 0, b"x"), (run, "have", 0, b"x"),
                    (secrets.token_bytes(16), "up", 0, b"x"),
                )
            ]  # fmt: skip
            stranger = Envelope.sign(Key.generate(), run, "mid-1", "up", 0, b"x").encode()
            before = len(server.desk.journal)
            for data in 5 * [*junk, stranger]:
                await asyncio.wait_for(wire.publish(nc, up, data), SECONDS)
            await until(lambda: server.desk.refused.total() >= 5 * (len(junk) + 1))
            reasons = {reason for _, reason in server.desk.refused}
            assert reasons >= {"malformed", "early", "note", "kind", "run", "signature"}
            assert len(server.desk.journal) == before, "nothing of it was accepted"
            assert server.desk.next.total() == 0

            # ids that an honest client might use: it uses none, and its message comes
            honest = client(folder, case, "west-1")
            tasks["west-1"] = asyncio.create_task(honest.run())
            await until(lambda: honest.site.ups)
            for identifier in {hashlib.sha256(data).hexdigest() for data in honest.site.ups} | {"0", "1"}:
                await nc.publish(
                    up, b"first", reply=f"_INBOX_{bad.slot}.x", headers={"Nats-Msg-Id": identifier}
                )
            await until(lambda: server.desk.next["west-1"])

            # a flood fills its own mailbox; meanwhile another is heard
            for _ in range(5000):
                await nc.publish(up, b"flood")
            tasks["east-1"] = asyncio.create_task(client(folder, case, "east-1").run())
            await until(lambda: server.desk.next["east-1"])
            late = [m for m in heard if m.subject != "x" and m.data and b"stream" not in m.data]
            assert late == [], "it hears nothing but the answers to its own"
            await nc.publish(up, bytes(1 << 15))  # too long: it is cut off, the others are not
            await until(lambda: not nc.is_connected or nc.last_error is not None)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(nc.close(), 2)
            tasks["mid-1"] = asyncio.create_task(client(folder, case, "mid-1").run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(folder).ok


def test_keys_that_are_unknown_revoked_or_of_another_federation_are_refused(tmp_path, caplog):
    """By the broker, with a word to the operator; and by the server's roster."""
    folder, case = tmp_path / "f", CASES["fed-sel"]
    files.init(case, tmp_path / "other", port=0)
    federation = Processes(folder, case)

    async def refused(place, nkey):
        with pytest.raises(Unreachable, match="refuses this key"):
            await wire.connect(place.setup.url, nkey, place.folder / "ca.pem", "x", f"_INBOX_{place.slot}")

    async def main():
        async with serving(folder, case) as (server, tasks):
            west = files.Place.load(folder / "clients" / "west-1")
            unknown, stranger = files.Nkey.generate(), tmp_path / "other" / "clients" / "west-1"
            await refused(west, unknown)
            await until(lambda: f"unknown key {unknown.public}" in caplog.text)
            with pytest.raises(Unreachable, match="certificate"):
                await wire.connect(west.setup.url, west.nkey, stranger / "ca.pem", "x", "_INBOX_x")
            coins = ("--arms", "bestarm.sources:Coins", "--nats", west.setup.url)
            federation.start("east-1", *coins, place=stranger)
            tls = ssl.create_default_context(cafile=folder / "broker" / "ca.pem")
            naked = {"tls": tls, "tls_handshake_first": True, "allow_reconnect": False}
            with pytest.raises((wire.nats.errors.Error, OSError)):  # without any key
                await wire.Nats().connect(west.setup.url, **naked)

            # revoked while it is connected: at work, with something to say
            first = client(folder, case, "west-1")
            tasks["west-1"] = asyncio.create_task(first.run())
            await until(lambda: server.desk.next["west-1"])
            files.revoke(folder, "west-1")
            with pytest.raises(Unreachable, match="refuses this key"):
                await asyncio.wait_for(tasks["west-1"], SECONDS)
            assert "west-1" not in server.desk.slots.roster.current
            await until(lambda: "the revoked key of west-1" in caplog.text)
            federation.start("west-1")
            for name, why in (("west-1", "refuses this key"), ("east-1", "certificate")):
                assert await asyncio.to_thread(federation.ends, name) == 5
                assert why in (folder / f"{name}.log").read_text()
            assert "may be of another federation" in (folder / "east-1.log").read_text()
            before = len(server.desk.journal)
            server.desk.take([Envelope.sign(west.key, west.setup.run, "west-1", "up", 1, b"x").encode()])
            assert len(server.desk.journal) == before, "the roster refuses it, whatever the broker does"

            # a new key in a spare slot: it goes on with its old journal
            made = first.site.pulls
            fresh = files.add_client(folder, "west-1")
            assert files.Place.load(fresh).slot != west.slot
            for journal in west.folder.glob("journal.db*"):
                journal.rename(fresh / journal.name)
            second = client(folder, case, "west-1", place=fresh)
            assert second.site.pulls == made
            tasks["west-1"] = asyncio.create_task(second.run())
            for name in ("east-1", "mid-1"):
                tasks[name] = asyncio.create_task(client(folder, case, name).run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    try:
        with caplog.at_level("WARNING"):
            assert asyncio.run(main()).verdict.arm == "west/a"
        assert verify(folder).ok
    finally:
        federation.end()
    with pytest.raises(InputError, match="has a key already"):
        files.add_client(folder, "east-1")
    with pytest.raises(InputError, match="no client"):
        files.add_client(folder, "nobody")


@pytest.mark.parametrize("name", ["fed-sel", "fisher", "pooled"])
def test_the_operator_may_drop_a_client_that_never_comes_and_the_certificate_shows_it(tmp_path, name):
    case = CASES[name]
    gone = [c for c in case.problem.layout.clients if c.startswith("west")]

    async def main():
        rest = [c for c in case.problem.layout.clients if c not in gone]
        async with serving(tmp_path / "f", case, rest) as (server, tasks):
            await until(lambda: server.desk.waiting_for() == gone)
            for c in gone:
                files.drop(tmp_path / "f", c)
            return await asyncio.wait_for(tasks["server"], SECONDS)

    record = asyncio.run(main())
    assert record.verdict.arm == "east/c"
    assert ["drop", gone[0]] in record.verdict.certificate["server"]["events"]
    assert any("operator" in warning["text"] for warning in record.warnings)
    assert ba.verify(record).ok


def test_a_lost_store_of_the_broker_loses_nothing(tmp_path):
    """The journals are the truth: the server asks for what the broker lost, and says again what it said."""
    folder, case = tmp_path / "f", CASES["fed-sel"]

    async def half():
        async with serving(folder, case, case.problem.layout.clients[:2]) as (server, _):
            await until(lambda: len(server.desk.slots.accepted) == 2)

    async def rest():
        async with serving(folder, case, case.problem.layout.clients) as (_, tasks):
            return await asyncio.wait_for(tasks["server"], SECONDS)

    asyncio.run(half())
    shutil.rmtree(folder / "broker" / "store")
    assert asyncio.run(rest()).verdict.arm == "west/a"
    assert verify(folder).ok


def test_a_store_that_the_broker_loses_while_the_server_runs_loses_nothing(tmp_path, monkeypatch):
    folder, case = tmp_path / "f", CASES["fed-sel"]

    async def main():
        async with serving(folder, case, case.problem.layout.clients[:2]) as (server, tasks):
            await until(lambda: len(server.desk.slots.accepted) == 2)
            start = server.broker.start

            def emptied():
                shutil.rmtree(folder / "broker" / "store")
                start()

            monkeypatch.setattr(server.broker, "start", emptied)
            server.broker.process.kill()
            await until(lambda: not server.online)
            tasks["mid-1"] = asyncio.create_task(client(folder, case, "mid-1").run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(folder).ok


def test_streams_that_vanish_are_made_anew_and_health_tells_of_it(tmp_path, monkeypatch):
    folder, case, port = tmp_path / "f", CASES["fed-sel"], free_port()
    monkeypatch.setattr(wire, "LATE_SECONDS", 0.5)

    async def main():
        names = case.problem.layout.clients
        async with serving(folder, case, names[:2], metrics=port) as (server, tasks):
            await until(lambda: len(server.desk.slots.accepted) == 2)
            streams, gate = server._streams, asyncio.Event()

            async def made():
                await gate.wait()
                return await streams()

            monkeypatch.setattr(server, "_streams", made)
            await server._api("STREAM.DELETE.DOWN")
            assert "error" in await server._api("STREAM.INFO.DOWN")
            tasks[names[2]] = asyncio.create_task(client(folder, case, names[2]).run())
            await until(lambda: server.stuck)
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 503
            assert server.desk.downs
            gate.set()
            await until(lambda: not server.stuck)
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(folder).ok


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_a_server_that_has_ended_tells_the_verdict_when_it_is_started_again(tmp_path, host):
    folder, case = tmp_path / "f", CASES["fisher"]
    if host == "::1" and not listens(socket.AF_INET6, host):
        pytest.skip("this computer has no IPv6")
    files.init(case, folder, host=host, port=0)
    folds = federations.Folds(folder, Coins(case.problem))
    while True:  # the clients never hear the verdict
        folds.step("server")
        if folds.desk.done:
            break
        for name in folds.names:
            folds.step(name)
    folds.close()

    async def main(start):
        async with serving(folder, case, start) as (server, tasks):
            heard = [await asyncio.wait_for(tasks[name], SECONDS) for name in start]
            if len(start) < 3:
                await until(lambda: server.unheard == ["mid-1", "west-1"])
            else:
                await asyncio.wait_for(tasks["server"], SECONDS)
            return {verdict.arm for verdict in heard}, server.unheard

    assert asyncio.run(main(["east-1"])) == ({"west/a"}, ["mid-1", "west-1"])
    assert asyncio.run(main(case.problem.layout.clients)) == ({"west/a"}, [])


def listens(family, host):
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def test_a_straggler_is_waited_for_no_longer_than_patience_and_still_hears_the_verdict(tmp_path):
    folder, case = tmp_path / "f", CASES["robust-fed-sel"]

    async def main():
        names = [c for c in case.problem.layout.clients if c != "west-2"]
        async with serving(folder, case, names, watch=shown) as (server, tasks):
            await until(lambda: server.desk.waiting_for() == ["west-2"])
            server.patience = 1.0  # that much has to pass since round 0 began
            await until(lambda: server.desk.machine.round > 0)
            server.patience = None  # a slow computer is not a silent client
            late = client(folder, case, "west-2")
            tasks["west-2"] = asyncio.create_task(late.run())
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            await asyncio.wait_for(tasks["west-2"], SECONDS)
            return record, late.site.verdict

    record, verdict = asyncio.run(main())
    assert record.verdict.arm == verdict.arm == "west/a"
    assert "west-2" not in [fault["client"] for fault in record.proven_faulty]
    assert verify(folder).ok


def test_a_nats_that_exists_serves_as_the_broker(tmp_path, caplog, monkeypatch):
    """Its operator includes accounts.conf; one client is behind a leaf node; no sync, a warning."""
    folder, case = tmp_path / "f", CASES["fisher"]
    port, page, leaf, local = (free_port() for _ in range(4))
    files.certificates(tmp_path, "localhost")
    url, ca = f"tls://localhost:{port}", tmp_path / "ca.pem"
    files.init(case, folder, url=url, ca=ca)
    with pytest.raises(InputError, match="no address"):
        files.init(case, tmp_path / "g", url="localhost")
    with pytest.raises(InputError, match="certificate"):
        files.init(case, tmp_path / "g", url=url, ca=folder / "roster.json")
    (tmp_path / "nats.conf").write_text(
        f"""listen: "127.0.0.1:{port}"
        http: "127.0.0.1:{page}"
        leafnodes {{ listen: "127.0.0.1:{leaf}", tls {{ cert_file: "{tmp_path}/broker.pem",
                                                     key_file: "{tmp_path}/broker.key" }} }}
        tls {{ cert_file: "{tmp_path}/broker.pem", key_file: "{tmp_path}/broker.key", handshake_first: auto }}
        jetstream {{ store_dir: "{tmp_path}/store" }}
        include "f/broker/accounts.conf"
        """
    )
    seed = files.Place.load(folder / "clients" / "west-1").nkey.seed
    (tmp_path / "leaf.conf").write_text(
        f"""listen: "127.0.0.1:{local}"
        leafnodes {{ remotes: [
            {{ url: "tls://localhost:{leaf}", nkey: {seed}, tls {{ ca_file: "{ca}" }} }}
        ] }}
        """
    )
    running = [
        subprocess.Popen([binary(), "-c", str(tmp_path / name)], stderr=subprocess.DEVNULL)
        for name in ("nats.conf", "leaf.conf")
    ]

    async def main():
        monitor = f"http://127.0.0.1:{page}"
        await until(lambda: listening(port) and listening(local))
        async with serving(folder, case, ("east-1", "mid-1"), monitor=monitor) as (server, tasks):
            assert server.broker is None
            west = client(folder, case, "west-1", url=f"nats://127.0.0.1:{local}")
            tasks["west-1"] = asyncio.create_task(west.run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    try:
        with caplog.at_level("WARNING"):
            assert asyncio.run(main()).verdict.arm == "west/a"
        assert "does NOT sync each message" in caplog.text
        with pytest.raises(InputError, match="monitoring page"):
            asyncio.run(Server(folder, url=url, monitor="http://127.0.0.1:1").run())
    finally:
        for process in running:
            process.terminate()
            process.wait()
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.5)
    with pytest.raises(Unreachable):
        asyncio.run(Server(folder).run())


def test_an_operator_stops_looks_drops_and_goes_on(tmp_path):
    """Ctrl-C at the server and at a client; health, metrics, a second server; a client that never comes."""
    port = free_port()
    federation = Processes(tmp_path / "f", CASES["fed-sel"], pause=0.03, linger=SECONDS)
    running = federation.running
    show = ("--metrics", str(port))
    try:
        for name in ("west-1", "east-1"):  # offline at first: there is no server yet
            federation.start(name)
        federation.start("server", *show)
        federation.says("server", "waiting for mid-1\n")
        assert get(port, "/healthz") == (200, "ok\n")
        code, text = get(port, "/metrics")
        assert code == 200
        assert "# TYPE bestarm_round gauge\nbestarm_round 0\n" in text
        assert "\nbestarm_clients_missing 1\n" in text
        assert get(port, "/")[0] == 404
        second = subprocess.run(
            [*CLI, "server", federation.folder], capture_output=True, text=True, timeout=SECONDS
        )
        assert second.returncode == 2
        assert "a server is running here already. To look at it: bestarm watch" in second.stderr
        for name in ("server", "west-1"):
            os.killpg(running[name].pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the broker, too
            assert federation.ends(name) == 130
            federation.says(name, "stopped")
        federation.says("west-1", '{"interrupted": true')
        assert federation.broker() is None or not alive(federation.broker())
        with socket.create_server(("127.0.0.1", port)):
            federation.start("server", *show)
            assert federation.ends("server") == 2
            federation.says("server", f"port {port} can't be used")
        for name in ("server", "west-1"):
            federation.start(name, *(show if name == "server" else ()))
        dropped = subprocess.run([*CLI, "federation", "drop", federation.folder, "mid-1"], timeout=SECONDS)
        assert dropped.returncode == 0
        assert federation.ends("server") == 0
        assert federation.ends("west-1") == 0
    finally:
        federation.end()
    record = Record.load(federation.folder / files.RECORD)
    assert record.verdict.arm == "west/a"
    assert ["drop", "mid-1"] in record.verdict.certificate["server"]["events"]
    check_pulls(federation.folder, ["west-1", "east-1"])


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


MEND = """
import os, random, sys, time
from pathlib import Path
def reward(arm):
    if os.environ["BAD"] == "range" and random.random() < 0.05:
        return 7
    return int(random.random() < {"a": 0.95, "b": 0.02}[arm])
if __name__ == "__main__":
    for line in sys.stdin:
        if os.environ["BAD"] == "exit" and random.random() < 0.05:
            sys.exit("the sensor is off")
        print(reward(line.strip()), flush=True)
"""


def test_each_source_of_rewards_serves_a_client_and_its_troubles_reach_the_operator(tmp_path, monkeypatch):
    """Python, a command, the web, a table, and a table that runs out; a bad reward; a command that fails."""
    case = scenario(
        "fisher",
        {"g": {"a": 0.95, "b": 0.02}, "h": {"a": 0.5, "b": 0.02}},
        3,
        byzantine=1,
        delta=0.1,
        budget=10**6,
    )
    (tmp_path / "mend.py").write_text(MEND)
    rows = ["a,1", "a,0", "a,1", "a,0", "b,0"]
    (tmp_path / "rows.csv").write_text("\n".join(["arm,reward", *rows]))
    (tmp_path / "short.csv").write_text("\n".join(["arm,reward", *(20 * rows)]))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    python, page = "mend:reward", http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    mine = {
        "g-1": ("--arms", python),
        "g-2": ("--exec", f"{sys.executable} {tmp_path}/mend.py"),
        "g-3": ("--http", f"http://127.0.0.1:{page.server_port}/?arm={{arm}}&times={{times}}"),
        "h-1": ("--csv", str(tmp_path / "rows.csv")),
        "h-2": ("--csv", str(tmp_path / "short.csv"), "--no-replace"),
        "h-3": ("--csv", str(tmp_path / "rows.csv")),
    }
    federation = Processes(tmp_path / "f", case, linger=SECONDS)
    try:
        monkeypatch.setenv("BAD", "range")
        federation.start("g-1", *mine["g-1"])  # offline: its note comes later
        monkeypatch.setenv("BAD", "exit")
        federation.start("g-2", "--exec", "false {arm}")
        federation.start("server")
        monkeypatch.setenv("BAD", "")
        for name in ("g-3", "h-1", "h-2", "h-3"):
            federation.start(name, *mine[name])
        assert federation.ends("g-1") == 2
        federation.says("g-1", "gave a reward of 7")
        assert federation.ends("g-2") == 5
        federation.says("g-2", "given up after 5 tries")
        federation.says("server", "h-2 says: ")
        for name in ("g-1", "g-2"):  # mended
            federation.start(name, *mine[name])
            federation.says("server", f"{name} says: ")  # at the latest now
        federation.wait()
        assert [federation.ends(name) for name in mine] == [0] * 6
    finally:
        federation.end()
        page.shutdown()
        page.server_close()
    found = verify(tmp_path / "f")
    assert (found.ok, found.record.verdict.arm) == (True, "g/a")
    notes = {note.client: note.text for note in found.notes}
    assert set(notes) == {"g-1", "g-2", "h-1", "h-2", "h-3"}
    assert notes["h-1"] == notes["h-3"] == REDRAWN
    assert "gave a reward of 7.0" in notes["g-1"]
    assert "given up after 5 tries" in notes["g-2"]
    assert "all 20 rewards were played" in notes["h-2"]
    check_pulls(tmp_path / "f", mine)


def test_a_client_that_ends_with_an_error_tells_the_operator_before_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "TELL_SECONDS", SECONDS)

    async def main():
        async with serving(tmp_path / "f", CASES["fed-sel"]) as (server, _):

            async def broken(arm):
                await until(lambda: one.nc is not None)
                raise SourceFailed("the sensor is off")

            one = Client(tmp_path / "f" / "clients" / "west-1", lambda site: FromPython(broken))
            with pytest.raises(SourceFailed):
                await asyncio.wait_for(one.run(), SECONDS)
            await until(lambda: server.desk.notes)
            return server.desk.notes

    (note,) = asyncio.run(main())
    assert (note.client, note.text) == ("west-1", "the sensor is off")


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        wish = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        mean = {"a": 0.95, "b": 0.02}[wish["arm"][0]]
        body = json.dumps([int(random.random() < mean) for _ in range(int(wish["times"][0]))]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_the_command_line_makes_a_federation_and_refuses_what_it_cant_use(tmp_path, capsys, monkeypatch):
    toml = tmp_path / "s.toml"
    toml.write_text('method = "fed-sel"\n[[group]]\nname = "g"\narms = { a = 0.9, b = 0.1 }\n')

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["bestarm", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, capsys.readouterr().out

    folder = tmp_path / "f"
    code, text = run("federation", "init", toml, "--out", folder, "--port", 0, "--json")
    assert code == 0
    assert json.loads(text)["clients"] == 1
    for name in ("client.key", "client.nk"):
        assert (folder / "clients" / "g-1" / name).stat().st_mode & 0o777 == 0o600
    assert run("federation", "init", toml, "--out", folder)[0] == 2
    assert run("federation", "init", toml, "--out", tmp_path / "g", "--ca", toml)[0] == 2
    assert (
        run("federation", "init", toml, "--out", tmp_path / "g", "--nats", "tls://x:1", "--ca", toml)[0] == 2
    )
    assert run("federation", "drop", folder, "nobody")[0] == 2
    assert run("federation", "add-client", folder, "g-1")[0] == 2
    assert run("federation", "revoke", folder, "g-1")[0] == 0
    code, text = run("federation", "add-client", folder, "g-1", "--json")
    assert code == 0
    assert files.Place.load(Path(json.loads(text)["folder"])).client == "g-1"
    assert run("client", folder / "clients" / "g-1")[0] == 2
    assert run("client", folder, "--csv", toml)[0] == 2
    (folder / "clients" / "g-1" / "client.nk").chmod(0o644)
    assert run("client", folder / "clients" / "g-1", "--csv", toml)[0] == 2


def test_the_demo_ends_right(tmp_path):
    cli = [sys.executable, "-m", "bestarm.cli", "federation", "demo", "--json", "--out", str(tmp_path / "f")]
    demo = subprocess.Popen(
        cli, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, errors = demo.communicate(timeout=4 * SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(demo.pid, signal.SIGKILL)  # its clients too
    assert demo.returncode == 0, errors
    shown = json.loads(said)
    assert shown["ok"]
    assert shown["record"]["verdict"]["arm"] == "north/a"
    (fault,) = shown["record"]["proven_faulty"]
    assert (fault["client"], fault["reason"]) == (
        "south-4",
        "it says that it stops, which only a run with a budget allows",
    )
    said = "\n".join(shown["notes"])
    assert f"bestarm server {tmp_path / 'f'} --patience {PATIENCE:g}\n" in said
    assert said.endswith(f"to look at it: bestarm verify {tmp_path / 'f'}, bestarm report {tmp_path / 'f'}")


def test_a_broker_is_not_taken_for_one_that_was_killed_as_it_started(tmp_path, monkeypatch):
    made = files.init(CASES["fisher"], tmp_path / "f", port=0)
    asked, fetch, popen = [], broker.fetch, subprocess.Popen

    def start(*args, **keys):  # just before, the old one writes its file, and is gone
        plain = {"nats": [], "monitoring": ["http://127.0.0.1:9"]}
        (tmp_path / "f" / "broker" / "nats-server_1.ports").write_text(json.dumps(plain))
        return popen(*args, **keys)

    monkeypatch.setattr(broker.subprocess, "Popen", start)
    monkeypatch.setattr(broker, "fetch", lambda url: asked.append(url) or fetch(url))
    one = broker.Broker(tmp_path / "f", made)
    one.start()
    one.stop()
    assert asked
    assert not [url for url in asked if url.startswith("http://127.0.0.1:9/")]
