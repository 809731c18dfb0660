"""The federation on the wire: real processes that are killed, hostile clients, the operator's orders."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
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

import bestarm as ba
import federations
from bestarm import cli
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import broker, certificates, files, wire
from bestarm.deploy.federation import client as clients
from bestarm.deploy.federation.broker import Unreachable, binary
from bestarm.deploy.federation.client import Client
from bestarm.deploy.federation.demo import PATIENCE
from bestarm.deploy.federation.desk import AHEAD, NOTE_BYTES, NOTES
from bestarm.deploy.federation.server import Server, Status
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key
from bestarm.deploy.process import free_port
from bestarm.deploy.pulling import REDRAWN
from bestarm.deploy.sources import FromPython, SourceFailed
from bestarm.errors import InputError
from bestarm.records.record import Record
from federations import CASES, Coins, comparable, in_process, scenario
from helpers import (
    CLI,
    SECONDS,
    Processes,
    alive,
    check_pulls,
    client,
    get,
    listening,
    listens,
    serving,
    shown,
    until,
)
from marking import slow


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


@pytest.mark.parametrize("seed", [1, *slow(0, 2, 3, 4, 5, 6, 7)])
def test_a_killed_process_restarts_and_nothing_is_lost(tmp_path, seed):
    kill_somewhere(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8, 108))
def test_a_hundred_more_moments(tmp_path, seed):
    kill_somewhere(tmp_path, seed)


@pytest.mark.slow
def test_killing_the_champion_s_client_again_and_again_delays_fed_bet_and_does_no_harm(tmp_path):
    case = scenario("bet", {"west": {"a": 0.9}, "east": {"b": 0.7, "c": 0.4}}, delta=0.01, q=1.15)
    federation = Processes(tmp_path / "f", case, pause=0.01)
    try:
        for name in ("server", *federation.names):
            federation.start(name)
        for _ in range(8):
            time.sleep(0.7)
            if federation.running["server"].poll() is None:
                federation.kill("west-1")
        federation.wait()
    finally:
        federation.end()
    assert Record.load(tmp_path / "f" / files.RECORD).verdict.arm == "west/a"
    found = verify(tmp_path / "f")
    assert found.ok, found.failures
    check_pulls(tmp_path / "f", federation.names)


@pytest.mark.parametrize("name", ["fed-sel", "fisher"])
def test_the_record_over_the_wire_equals_that_of_the_run_in_process(tmp_path, name):
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
    assert any("waiting for west-1, east-1 and mid-1" in table for table in tables)
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


def test_a_hostile_client_harms_only_itself(tmp_path):
    """A client with a valid key can only send its own messages, to its own mailbox."""
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
            # as another client, as the server, into its consumers and inboxes
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
            # malformed, early, of another run, too many notes, a note that is too long, an unknown kind
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

            # ids that an honest client might use: it uses none, and its message arrives
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
            with contextlib.suppress(Exception):  # it may be cut off already
                await nc.publish(up, bytes(1 << 15))  # too long: the sender is disconnected, not the others
                await until(lambda: not nc.is_connected or nc.last_error is not None)
                await asyncio.wait_for(nc.close(), 2)
            await until(lambda: server.federation.slots[bad.slot].blocked)  # because of its flood
            files.allow(folder, "mid-1")
            await until(lambda: not server.federation.slots[bad.slot].blocked)
            tasks["mid-1"] = asyncio.create_task(client(folder, case, "mid-1").run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(folder).ok


def test_keys_that_are_unknown_revoked_or_of_another_federation_are_refused(tmp_path, caplog):
    """The broker refuses them and tells the operator; the server's roster refuses them too."""
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
            coins = ("--arms", "bestarm.deploy.sources:Coins", "--nats", west.setup.url)
            federation.start("east-1", *coins, place=stranger)
            tls = ssl.create_default_context(cafile=folder / "broker" / "ca.pem")
            naked = {"tls": tls, "tls_handshake_first": True, "allow_reconnect": False}
            with pytest.raises((wire.nats.errors.Error, OSError)):  # without any key
                await wire.Nats().connect(west.setup.url, **naked)

            # revoked while connected, with a message to send
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
            assert "may belong to another federation" in (folder / "east-1.log").read_text()
            before = len(server.desk.journal)
            server.desk.take([Envelope.sign(west.key, west.setup.run, "west-1", "up", 1, b"x").encode()])
            assert len(server.desk.journal) == before, "the roster refuses it, whatever the broker does"

            # a new key in a spare slot: the client resumes its old journal
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
    with pytest.raises(InputError, match=r"already has a key. To replace it, first run: bestarm fed"):
        files.add_client(folder, "east-1")
    with pytest.raises(InputError, match="no client"):
        files.add_client(folder, "nobody")


@pytest.mark.parametrize("name", ["fed-sel", "fisher", "pooled"])
def test_the_operator_may_drop_a_missing_client_and_the_certificate_shows_it(tmp_path, name):
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


def half_made(store):
    """Both streams, as a broker leaves them that is killed while it makes them."""
    for path in store.glob("jetstream/*/streams/*/meta.inf"):
        path.rename(path.with_suffix(".inf.tmp"))


def damaged(store):
    for path in store.glob("jetstream/*/streams/*/meta.inf"):
        path.write_bytes(path.read_bytes()[::-1])


@pytest.mark.parametrize("harm", [shutil.rmtree, half_made, damaged])
def test_losing_the_broker_s_store_loses_nothing(tmp_path, harm):
    """The server requests from clients what the broker lost, and sends its own messages again."""
    folder, case = tmp_path / "f", CASES["fed-sel"]

    async def half():
        async with serving(folder, case, case.problem.layout.clients[:2]) as (server, _):
            await until(lambda: len(server.desk.slots.accepted) == 2)

    async def rest():
        async with serving(folder, case, case.problem.layout.clients) as (_, tasks):
            return await asyncio.wait_for(tasks["server"], SECONDS)

    asyncio.run(half())
    harm(folder / "broker" / "store")
    assert asyncio.run(rest()).verdict.arm == "west/a"
    assert verify(folder).ok


def test_losing_the_broker_s_store_while_the_server_runs_loses_nothing(tmp_path, monkeypatch):
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


def test_streams_that_vanish_are_recreated_and_health_reports_it(tmp_path, monkeypatch):
    folder, case, port = tmp_path / "f", CASES["fed-sel"], free_port()
    monkeypatch.setattr(wire, "LATE_SECONDS", 0.5)

    async def main():
        names = case.problem.layout.clients
        async with serving(folder, case, names[:2], metrics=port) as (server, tasks):
            await until(lambda: len(server.desk.slots.accepted) == 2)
            make, gate = server.streams.make, asyncio.Event()

            async def made(slots):
                await gate.wait()
                return await make(slots)

            monkeypatch.setattr(server.streams, "make", made)
            await server.streams.api("STREAM.DELETE.DOWN")
            assert "error" in await server.streams.api("STREAM.INFO.DOWN")
            tasks[names[2]] = asyncio.create_task(client(folder, case, names[2]).run())
            await until(lambda: server.health.trouble)
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 503
            await until(lambda: server.desk.broadcasts)
            gate.set()
            await until(lambda: not server.health.trouble or tasks["server"].done())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(folder).ok


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_a_finished_server_sends_the_verdict_again_when_restarted(tmp_path, host):
    folder, case = tmp_path / "f", CASES["fisher"]
    if host == "::1" and not listens(socket.AF_INET6, host):
        pytest.skip("this computer has no IPv6")
    files.init(case, folder, host=host, port=0)
    folds = federations.Folds(folder, Coins(case.problem))
    while True:  # the clients never receive the verdict
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
                await until(lambda: server.farewell.unheard == ["mid-1", "west-1"])
            else:
                await asyncio.wait_for(tasks["server"], SECONDS)
            return {verdict.arm for verdict in heard}, server.farewell.unheard

    assert asyncio.run(main(["east-1"])) == ({"west/a"}, ["mid-1", "west-1"])
    assert asyncio.run(main(case.problem.layout.clients)) == ({"west/a"}, [])


@pytest.mark.slow
def test_a_straggler_delays_the_run_by_at_most_patience_and_still_gets_the_verdict(tmp_path):
    folder, case = tmp_path / "f", CASES["robust-fed-sel"]

    async def main():
        names = [c for c in case.problem.layout.clients if c != "west-2"]
        async with serving(folder, case, names, watch=shown) as (server, tasks):
            await until(lambda: server.desk.waiting_for() == ["west-2"])
            server.patience = 1.0  # at least this much time passes after round 0 begins
            await until(lambda: server.desk.machine.round > 0)
            server.patience = None  # a slow computer must not look like a silent client
            late = client(folder, case, "west-2")
            tasks["west-2"] = asyncio.create_task(late.run())
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            await asyncio.wait_for(tasks["west-2"], SECONDS)
            return record, late.site.verdict

    record, verdict = asyncio.run(main())
    assert record.verdict.arm == verdict.arm == "west/a"
    assert "west-2" not in [fault["client"] for fault in record.proven_faulty]
    assert verify(folder).ok


@pytest.mark.slow
def test_an_existing_nats_server_can_be_the_broker(tmp_path, caplog, monkeypatch):
    """The broker includes accounts.conf, one client uses a leaf node, and missing sync gives a warning."""
    folder, case = tmp_path / "f", CASES["fisher"]
    port, page, leaf, local = (free_port() for _ in range(4))
    certificates.create(tmp_path, "localhost")
    url, ca = f"tls://localhost:{port}", tmp_path / "ca.pem"
    files.init(case, folder, url=url, ca=ca)
    with pytest.raises(InputError, match="is not an address"):
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


@pytest.mark.slow
def test_an_operator_stops_inspects_drops_and_resumes(tmp_path):
    """Covers Ctrl-C at server and client, health, metrics, a second server, and a missing client."""
    port = free_port()
    federation = Processes(tmp_path / "f", CASES["fed-sel"], pause=0.03, linger=SECONDS)
    running = federation.running
    show = ("--metrics", str(port))
    try:
        for name in ("west-1", "east-1"):  # offline at first: there is no server yet
            federation.start(name)
        federation.start("server", *show)
        federation.says("server", "waiting for mid-1\n")
        end = time.monotonic() + SECONDS
        while get(port, "/healthz") != (200, "ok\n"):  # it has not asked the streams yet
            assert time.monotonic() < end, federation.logs()
            time.sleep(0.05)
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
            os.killpg(running[name].pid, signal.SIGINT)  # Ctrl-C in a terminal reaches the broker too
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


FAULTY = """
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


@pytest.mark.slow
def test_each_reward_source_serves_a_client_and_its_errors_reach_the_operator(tmp_path, monkeypatch):
    """Covers Python, a command, the web, a table, exhausted data, a bad reward, and a failing command."""
    case = scenario(
        "fisher",
        {"g": {"a": 0.95, "b": 0.02}, "h": {"a": 0.5, "b": 0.02}},
        3,
        byzantine=1,
        delta=0.1,
        budget=10**6,
    )
    (tmp_path / "faulty.py").write_text(FAULTY)
    rows = ["a,1", "a,0", "a,1", "a,0", "b,0"]
    (tmp_path / "rows.csv").write_text("\n".join(["arm,reward", *rows]))
    (tmp_path / "short.csv").write_text("\n".join(["arm,reward", *(20 * rows)]))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    python, page = "faulty:reward", http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    mine = {
        "g-1": ("--arms", python),
        "g-2": ("--exec", f"{sys.executable} {tmp_path}/faulty.py"),
        "g-3": ("--http", f"http://127.0.0.1:{page.server_port}/?arm={{arm}}&times={{times}}"),
        "h-1": ("--csv", str(tmp_path / "rows.csv"), "--rows", "resample"),
        "h-2": ("--csv", str(tmp_path / "short.csv"), "--rows", "once"),
        "h-3": ("--csv", str(tmp_path / "rows.csv"), "--rows", "resample"),
    }
    federation = Processes(tmp_path / "f", case, linger=SECONDS)
    try:
        monkeypatch.setenv("BAD", "range")
        federation.start("g-1", *mine["g-1"])  # offline: its note arrives later
        monkeypatch.setenv("BAD", "exit")
        federation.start("g-2", "--exec", "false {arm}")
        federation.start("server")
        monkeypatch.setenv("BAD", "")
        for name in ("g-3", "h-1", "h-2", "h-3"):
            federation.start(name, *mine[name])
        assert federation.ends("g-1") == 2
        federation.says("g-1", "gave a reward of 7")
        assert federation.ends("g-2") == 5
        federation.says("g-2", "gave up after 5 attempts")
        federation.says("server", "h-2 says: ")
        for name in ("g-1", "g-2"):  # fixed
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
    assert "gave a reward out of bounds" in notes["g-1"]
    assert "gave up after 5 attempts" in notes["g-2"]
    assert "all 20 rewards were played" in notes["h-2"]
    check_pulls(tmp_path / "f", mine)


def test_a_client_reports_its_error_to_the_operator_before_it_exits(tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "ALARM_SECONDS", SECONDS)

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


def test_the_command_line_creates_a_federation_and_refuses_what_it_cannot_use(tmp_path, capsys, monkeypatch):
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


@pytest.mark.slow
def test_the_demo_decides_correctly(tmp_path):
    cli = [sys.executable, "-m", "bestarm.cli", "federation", "demo", "--json", "--out", str(tmp_path / "f")]
    demo = subprocess.Popen(
        cli, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, errors = demo.communicate(timeout=4 * SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(demo.pid, signal.SIGKILL)  # its clients end too
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


def test_a_broker_is_not_mistaken_for_one_killed_during_its_start(tmp_path, monkeypatch):
    made = files.init(CASES["fisher"], tmp_path / "f", port=0)
    asked, fetch, popen = [], broker.fetch, subprocess.Popen

    def start(*args, **keys):  # just before, the old one writes its file and exits
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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a broker outlives a killed server")
def test_a_broker_that_hangs_ends_with_its_server(tmp_path):
    """Otherwise it keeps the port, and the server can't be started again."""
    federation = Processes(tmp_path / "f", CASES["fisher"])
    port = urllib.parse.urlsplit(files.Federation.load(tmp_path / "f").setup.url).port
    end = time.monotonic() + SECONDS
    try:
        federation.start("server")
        while not federation.broker():
            assert time.monotonic() < end, federation.logs()
            time.sleep(0.02)
        os.kill(federation.broker(), signal.SIGSTOP)
        federation.running["server"].kill()
        while listening(port):
            assert time.monotonic() < end, "the broker goes on"
            time.sleep(0.02)
    finally:
        federation.end()


def test_a_broker_starts_without_forking_this_process(tmp_path):
    """Code between fork and exec can conflict with gRPC's threads; a separate process cannot."""
    forks = []
    os.register_at_fork(before=lambda: forks.append(1))
    one = broker.Broker(tmp_path / "f", files.init(CASES["fisher"], tmp_path / "f", port=0))
    one.start()
    one.stop()
    assert forks == []
