"""Journals restored from older backups and copied folders: they show at the hello, and nobody is accused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import urllib.parse

import pytest

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import broker, files, reception, streams, wire
from bestarm.deploy.federation import client as clients
from bestarm.deploy.federation.desk import DOWN, Desk
from bestarm.deploy.federation.hello import HELLO, NONCE_BYTES, Greetings, OlderJournal, greet
from bestarm.deploy.federation.renewal import server_keys
from bestarm.deploy.federation.server import Status
from bestarm.deploy.federation.site import Site
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key
from bestarm.errors import InputError
from bestarm.util.journal import Journal
from federations import CASES, SERVER, Coins, Folds, scenario
from helpers import CLI, SECONDS, client, serving, shown, until

CASE = CASES["fed-sel"]
NAMES = CASE.problem.layout.clients


def backup(folder, to):
    """Copy all journals while they are in use, as docs/federation-howto.md says."""
    for journal in folder.rglob(files.JOURNAL):
        copy = to / journal.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        source, target = sqlite3.connect(journal), sqlite3.connect(copy)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)


def restore(folder, copies, part="."):
    """Put the copy of one journal in the place of the current one."""
    for old in (folder / part).glob(f"{files.JOURNAL}*"):
        old.unlink()
    shutil.copy(copies / part / files.JOURNAL, folder / part / files.JOURNAL)


def part(name):
    return f"clients/{name}"


@pytest.fixture
def run(tmp_path):
    """A run after its fourth broadcast, and copies of its journals.

    "old" has two broadcasts; in "unheard" the clients have not heard the fourth; "newest" is where it stands.
    """
    folder = tmp_path / "f"
    files.init(CASE, folder, port=0)
    folds = Folds(folder, Coins(CASE.problem))
    while len(folds.desk.broadcasts) < 4:
        for name in NAMES:
            folds.step(name)
        if len(folds.desk.broadcasts) == 2:
            backup(folder, tmp_path / "old")
        folds.step(SERVER)
    backup(folder, tmp_path / "unheard")
    for name in NAMES:
        folds.step(name)
    backup(folder, tmp_path / "newest")
    folds.close()
    return folder


def broadcasts_of(folder):
    """The signed broadcasts of the server's journal."""
    with contextlib.closing(Journal.open(folder / files.JOURNAL, write=False)) as journal:
        return list(Desk(journal).broadcasts)


def heard_by(folder, name):
    """The broadcasts in a client's journal, in order."""
    with contextlib.closing(Journal.open(folder / part(name) / files.JOURNAL, write=False)) as journal:
        return [event.body for event in journal.events() if event.kind == DOWN]


async def verdict(folder, names=NAMES):
    async with serving(folder, CASE, names) as (server, tasks):
        record = await asyncio.wait_for(tasks["server"], SECONDS)
        assert server.desk.suspects() == {}
        return record.verdict


def check_goes_on(folder, names=NAMES):
    assert asyncio.run(verdict(folder, names)).arm == "west/a"
    assert verify(folder).ok


def test_a_server_restored_from_a_backup_stops_if_the_broker_has_newer_broadcasts(run, tmp_path, monkeypatch):
    monkeypatch.setattr(reception, "WAIT_SECONDS", 0.0)

    async def published():
        async with serving(run, CASE) as (server, _):
            await until(lambda: not server.publisher.pending)

    asyncio.run(published())
    backup(run, tmp_path / "newest")
    restore(run, tmp_path / "old")
    before = broadcasts_of(run)
    ended = subprocess.run([*CLI, "server", run], capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 2
    said = " ".join(ended.stderr.split())
    assert "this journal has 2 broadcasts, but this server has sent at least 4" in said
    assert "restored from an older backup" in said
    assert "Restore the newest copy of journal.db" in said
    assert broadcasts_of(run) == before, "it signed nothing"
    restore(run, tmp_path / "newest")
    check_goes_on(run)


@pytest.mark.parametrize("first", NAMES)
def test_a_server_restored_together_with_its_broker_stops_at_the_first_hello(run, tmp_path, first):
    """The broker's store is restored too (here: empty), so only the clients know of the newer broadcasts."""
    newest = broadcasts_of(run)
    restore(run, tmp_path / "old")

    async def main():
        async with serving(run, CASE, [first]) as (_, tasks):
            with pytest.raises(InputError, match="has 2 broadcasts, but this server has sent at least 4"):
                await asyncio.wait_for(tasks["server"], SECONDS)

    asyncio.run(main())
    for name in NAMES:
        assert heard_by(run, name) == newest
    restore(run, tmp_path / "newest")
    check_goes_on(run)


@pytest.mark.parametrize("renewals", [1, 3])
def test_a_server_restored_from_before_a_renewal_of_its_key_stops_at_the_first_hello(run, tmp_path, renewals):
    """It does not know the key that signed the newest broadcast, but its own signed the first statement."""
    folds = Folds(run, Coins(CASE.problem))
    for _ in range(renewals):
        folds.desk.succeed(Key.generate())
    for name in (*NAMES, SERVER, *NAMES):
        folds.step(name)
    newest = list(folds.desk.broadcasts)
    assert Envelope.decode(newest[-1]).topic == DOWN
    folds.close()
    restore(run, tmp_path / "old")

    async def main():
        async with serving(run, CASE, NAMES[:1]) as (server, tasks):
            with pytest.raises(InputError, match="restored from an older backup"):
                await asyncio.wait_for(tasks["server"], SECONDS)
            assert not server.desk.refused

    asyncio.run(main())
    assert heard_by(run, NAMES[0]) == [data for data in newest if Envelope.decode(data).topic == DOWN]


def test_a_restarted_server_sends_no_new_broadcast_before_its_clients_have_said_hello(
    run, tmp_path, monkeypatch
):
    """Only west has heard the newer broadcasts; without it, the server decides something else."""
    monkeypatch.setattr(reception, "WAIT_SECONDS", SECONDS)
    newest = broadcasts_of(run)
    for name in (".", part("east-1"), part("mid-1")):
        restore(run, tmp_path / "old", name)

    async def main():
        async with serving(run, CASE, ["east-1", "mid-1"]) as (server, tasks):
            await until(lambda: server.reception.awaited == {"west-1"})
            files.drop(run, "west-1")
            await until(lambda: server.desk.done)
            await asyncio.sleep(1.0)
            tasks["west-1"] = asyncio.create_task(client(run, CASE, "west-1").run())
            with pytest.raises(InputError, match=r"differs from the one that was sent|sent at least 4"):
                await asyncio.wait_for(tasks["server"], SECONDS)

    asyncio.run(main())
    for name in NAMES:
        heard = heard_by(run, name)
        assert heard == newest[: len(heard)], "nobody has heard another broadcast"


def test_a_restarted_server_waits_only_a_while_for_a_client_that_is_gone(run, monkeypatch, caplog):
    monkeypatch.setattr(reception, "WAIT_SECONDS", SECONDS)

    async def main():
        async with serving(run, CASE, ["west-1", "east-1"], linger=1.0) as (server, tasks):
            await until(lambda: server.reception.awaited == {"mid-1"})
            server.reception.until = 0.0  # the time is up
            await until(lambda: not server.reception.awaited)
            files.drop(run, "mid-1")
            return await asyncio.wait_for(tasks["server"], SECONDS)

    with caplog.at_level("WARNING"):
        assert asyncio.run(main()).verdict.arm == "west/a"
    assert "continuing without a hello from mid-1" in caplog.text


def test_a_client_restored_from_a_backup_ends_before_it_sends_anything(run, tmp_path, caplog):
    restore(run, tmp_path / "old", part("west-1"))

    async def main():
        async with serving(run, CASE) as (server, tasks):
            before, refused = len(server.desk.journal), server.desk.refused.total()
            one = client(run, CASE, "west-1")
            with pytest.raises(OlderJournal, match="restored from an older backup, or is a copy") as error:
                await asyncio.wait_for(one.run(), SECONDS)
            assert re.search(r"the server has \d+ messages? of this client, but its", str(error.value))
            assert "bestarm federation drop DIR west-1" in str(error.value)
            assert (len(server.desk.journal), server.desk.refused.total()) == (before, refused)
            assert server.desk.suspects() == {}
            await until(lambda: "west-1 connected with" in caplog.text)
            ended = await asyncio.to_thread(
                subprocess.run,
                [*CLI, "client", run / part("west-1"), "--arms", "bestarm.deploy.sources:Coins"],
                capture_output=True, text=True, timeout=SECONDS,
                env={**os.environ, "BESTARM_DEMO_MEANS": '{"a": 0.95, "b": 0.02}'},
            )  # fmt: skip
            assert (ended.returncode, "older backup" in ended.stderr) == (2, True), ended.stderr
            assert len(server.desk.journal) == before
            restore(run, tmp_path / "newest", part("west-1"))
            for name in NAMES:
                tasks[name] = asyncio.create_task(client(run, CASE, name).run())
            await asyncio.wait(tasks.values(), timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
            assert [
                str(task.exception()) for task in tasks.values() if task.done() and task.exception()
            ] == []
            assert [name for name, task in tasks.items() if not task.done()] == []
            assert server.desk.suspects() == {}
            return tasks["server"].result()

    with caplog.at_level("WARNING"):
        assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(run).ok


def test_a_restored_client_ends_although_what_it_lacks_follows_from_broadcasts(tmp_path):
    """In some rounds of Fed-Fisher a message needs no new pull, so the server's answer brings it back."""
    means = {"west": {"a": 0.6, "b": 0.3}, "east": {"c": 0.4, "d": 0.2}}
    folder, case, name = tmp_path / "f", scenario("fisher", means, n0=8, q=1.05), "west-1"
    files.init(case, folder, port=0)
    folds = Folds(folder, Coins(case.problem))
    site, made = folds.sites[name], []
    while DOWN not in made or "up" not in made or "rewards" in made:
        folds.step(SERVER)
        for other in case.problem.layout.clients:
            if other != name:
                folds.step(other)
        backup(folder, tmp_path / "old")
        before = len(site.journal)
        folds.step(name)
        made = [event.kind for event in site.journal.events(before)]
        assert folds.desk.machine.state != "done"
    while folds.desk.next[name] < len(site.ups):
        folds.step(SERVER)
    folds.close()
    restore(folder, tmp_path / "old", part(name))

    async def main():
        async with serving(folder, case, []) as (server, _):
            server.reception.awaited.clear()  # answers have the missing broadcasts from the start
            with pytest.raises(OlderJournal, match=r"the server has \d+ messages? of this client, but its"):
                await asyncio.wait_for(client(folder, case, name).run(), SECONDS)

    asyncio.run(main())


def test_the_server_learns_who_has_the_verdict_although_a_killed_process_acknowledged_nothing(
    run, monkeypatch
):
    """The broker counts messages that the killed process had received as unread for a long time."""
    monkeypatch.setattr(streams, "AGAIN_SECONDS", 3600)
    monkeypatch.setattr(reception, "WAIT_SECONDS", 0.1)
    place = files.Place.load(run / part("west-1"))

    async def main():
        async with serving(run, CASE) as (server, tasks):
            killed = await wire.connect(
                place.setup.url, place.nkey, place.folder / "ca.pem", "west-1", f"_INBOX_{place.slot}"
            )
            assert await wire.Feed(killed, f"{place.setup.subject}.next.{place.slot}").next(SECONDS)
            await killed.close()
            for name in NAMES:
                tasks[name] = asyncio.create_task(client(run, CASE, name).run())
            await asyncio.wait_for(asyncio.gather(*tasks.values()), SECONDS / 2)
            assert server.farewell.unheard == []

    asyncio.run(main())


def wanting(run, tmp_path):
    """The client west-1 with its old journal, and a broadcast after which it wants to pull."""
    restore(run, tmp_path / "old", part("west-1"))
    one = client(run, CASE, "west-1")
    for data in broadcasts_of(run)[:3]:
        one.site.received(data)
    assert one.site.ups
    assert one.site.pull
    return one, one.site.pulls


def test_a_client_restored_from_a_backup_ends_before_it_pulls(run, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "FIRST_ANSWER_SECONDS", SECONDS)

    async def main():
        async with serving(run, CASE, []):
            one, before = wanting(run, tmp_path)
            with pytest.raises(OlderJournal):
                await asyncio.wait_for(one.run(), SECONDS)
            assert one.site.pulls == before

    asyncio.run(main())


def test_a_resumed_client_pulls_offline_after_it_has_waited_for_the_server(run, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "FIRST_ANSWER_SECONDS", 0.2)

    async def main():
        one, before = wanting(run, tmp_path)
        task = asyncio.create_task(one.run())
        await until(lambda: one.site.pulls > before)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


class Zeros:
    """Rewards of 0 only."""

    def rewards(self, client, arm, start, times):
        return [0.0] * times


def test_a_client_that_signed_other_messages_since_its_backup_is_noticed(run, tmp_path):
    """Offline, a restored client signs as many messages as the server has of it, but others."""
    restore(run, tmp_path / "old", part("west-1"))
    folds = Folds(run, Zeros())
    west = folds.sites["west-1"]
    for data in broadcasts_of(run)[2:]:
        west.received(data)
        while west.pull is not None:
            folds.step("west-1")
    folds.close()

    async def main():
        async with serving(run, CASE) as (server, _):
            before = len(server.desk.journal)
            with pytest.raises(OlderJournal, match=r"differs from the one in its journal"):
                await asyncio.wait_for(client(run, CASE, "west-1").run(), SECONDS)
            assert len(server.desk.journal) == before
            assert server.desk.suspects() == {}

    asyncio.run(main())


def test_the_run_goes_on_without_a_client_whose_journal_is_lost(run):
    """A new key does not help: what the client said before can't be said again. The operator drops it."""
    for journal in (run / part("mid-1")).glob(f"{files.JOURNAL}*"):
        journal.unlink()
    files.revoke(run, "mid-1")
    anew = files.add_client(run, "mid-1")

    async def main():
        async with serving(run, CASE, ["west-1", "east-1"], linger=1.0) as (server, tasks):
            with pytest.raises(OlderJournal, match="bestarm federation drop DIR mid-1"):
                await asyncio.wait_for(client(run, CASE, "mid-1", place=anew).run(), SECONDS)
            files.drop(run, "mid-1")
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            assert server.desk.suspects() == {}
            return record

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(run).ok


def test_a_client_that_never_sent_a_message_may_lose_its_journal(tmp_path):
    folder = tmp_path / "f"
    files.init(CASE, folder, port=0)
    Site.open(files.Place.load(folder / part("mid-1"))).journal.close()
    for journal in (folder / part("mid-1")).glob(f"{files.JOURNAL}*"):
        journal.unlink()
    check_goes_on(folder)


def test_a_copy_of_a_running_client_is_told_and_the_original_goes_on(run, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "COPY_SECONDS", 1.0)

    async def main():
        async with serving(run, CASE, ["west-1"]) as (server, tasks):
            await until(lambda: not server.reception.awaited - {"east-1", "mid-1"})
            copy = shutil.copytree(run / part("west-1"), tmp_path / "copy")
            for stale in copy.glob("*-lock"):
                stale.unlink()
            with pytest.raises(InputError, match="another process is connected") as error:
                await asyncio.wait_for(client(run, CASE, "west-1", place=copy).run(), SECONDS)
            assert "If this folder is a copy" in str(error.value)
            assert not tasks["west-1"].done()
            for name in ("east-1", "mid-1"):
                tasks[name] = asyncio.create_task(client(run, CASE, name).run())
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            assert server.desk.suspects() == {}
            await asyncio.wait_for(tasks["west-1"], SECONDS)
            return record

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(run).ok


def test_two_processes_with_one_key_are_noticed_when_they_say_hello_in_turn(run, tmp_path, caplog):
    """A cluster lets a copy of a client's folder connect. A client that was restarted is none."""
    place = files.Place.load(run / part("west-1"))
    copy = files.Place.load(shutil.copytree(place.folder, tmp_path / "copy"))
    with contextlib.closing(Journal.open(run / files.JOURNAL)) as journal:
        greetings = Greetings(Desk(journal, *server_keys(run)))

        def says(*sites):
            for site in sites:
                assert greetings.answer("west-1", greet(site), lambda: True)
            return greetings.shared

        trial = Site(copy, Journal.open(copy.folder / files.JOURNAL, write=False), speak=False)
        before, other = Site.open(place), Site.open(copy)
        assert says(before, before) == set()
        before.journal.close()
        after = Site.open(place)
        assert says(after, trial, after) == set()
        assert says(other) == set(), "it may have taken the place of the other"
        assert caplog.text == ""
        assert says(after, other, after) == {"west-1"}
        assert caplog.text.count("two processes use the key of west-1") == 1
        for site in (after, other, trial):
            site.journal.close()


def test_a_false_hello_is_counted_and_shown_and_stops_nothing(run):
    """A client with a valid key invents a broadcast, uses another's hello, repeats its own, sends junk."""

    async def main():
        async with serving(run, CASE, ["west-1", "east-1"]) as (server, tasks):
            mid, west = (files.Place.load(run / part(name)) for name in ("mid-1", "west-1"))
            site = Site.open(mid)
            nc = await wire.connect(
                mid.setup.url, mid.nkey, mid.folder / "ca.pem", "mid-1", f"_INBOX_{mid.slot}"
            )
            subject, id_ = f"{mid.setup.subject}.{HELLO}.{mid.slot}", mid.setup.run

            def hello(key, name, content, number=0, topic=HELLO):
                return Envelope.sign(key, id_, name, topic, number, content).encode()

            nonce, other = bytes(NONCE_BYTES + 4), Key.generate()
            invented = [
                Envelope.sign(key, id_, SERVER, DOWN, number, b"invented").encode()
                for key in (mid.key, other)
                for number in (0, 99)
            ]
            own = greet(site)
            false = [
                *(hello(mid.key, "mid-1", nonce + proof) for proof in invented),
                hello(mid.key, "mid-1", nonce + own),  # not a broadcast
                hello(mid.key, "mid-1", nonce + os.urandom(300)),
                hello(mid.key, "mid-1", b"short"),
                hello(mid.key, "west-1", nonce),  # in another's name
                hello(west.key, "west-1", nonce),  # another's hello, with a valid signature
                hello(other, "mid-1", nonce),
                hello(mid.key, "mid-1", nonce, topic=DOWN),
                b"", b"junk", os.urandom(500), own[:-1],
            ]  # fmt: skip
            assert await wire.request(nc, subject, own, SECONDS)
            for data in [*false, own]:  # at last its own hello again
                before = server.desk.refused["mid-1", HELLO]
                await nc.publish(subject, data, reply=f"_INBOX_{mid.slot}.x")
                await until(lambda before=before: server.desk.refused["mid-1", HELLO] == before + 1)
            assert "mid-1" in shown(Status(server.desk, True, None, 0))
            assert f"{len(false) + 1}" in shown(Status(server.desk, True, None, 0))
            await nc.publish(f"{mid.setup.subject}.{HELLO}.{west.slot}", own, reply=f"_INBOX_{mid.slot}.x")
            await nc.close()
            site.journal.close()
            assert not tasks["server"].done()
            tasks["mid-1"] = asyncio.create_task(client(run, CASE, "mid-1").run())
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            assert server.desk.suspects() == {}
            return record

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(run).ok


def test_a_client_stops_at_a_second_broadcast_with_the_same_number(run):
    site = Site.open(files.Place.load(run / part("west-1")))
    key, id_ = Key.load(run / "server.key"), site.place.setup.run
    events = len(site.journal)
    for number, data in enumerate(broadcasts_of(run)):
        site.received(data)  # a repeat
        site.received(Envelope.sign(Key.generate(), id_, SERVER, DOWN, number, b"x").encode())
        with pytest.raises(InputError, match=f"two different broadcasts with number {number}"):
            site.received(Envelope.sign(key, id_, SERVER, DOWN, number, b"another").encode())
    early = len(broadcasts_of(run)) + 1
    site.received(Envelope.sign(key, id_, SERVER, DOWN, early, b"early").encode())
    with pytest.raises(InputError, match=f"two different broadcasts with number {early}"):
        site.received(Envelope.sign(key, id_, SERVER, DOWN, early, b"another").encode())
    assert len(site.journal) == events + 1
    site.journal.close()


def test_broadcasts_that_a_client_lost_are_sent_again(run, tmp_path, monkeypatch):
    """The broker has delivered them and does not do so again, so that only the server can send them."""
    monkeypatch.setattr(reception, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(streams, "RECENT", 0)

    async def deliver():
        async with serving(run, CASE, ["west-1"]) as (server, _):
            await until(lambda: not server.publisher.pending)
            slot = files.Place.load(run / part("west-1")).slot
            while not await server.streams.has_read_all(slot):
                await asyncio.sleep(0.05)

    async def again():
        async with serving(run, CASE) as (_, tasks):
            west = client(run, CASE, "west-1")
            assert west.site.heard == 3
            tasks["west-1"] = asyncio.create_task(west.run())
            await until(lambda: west.site.heard == 4)

    async def nothing(_):
        pass

    with monkeypatch.context() as silent:  # it must not send what the restored journal lacks
        silent.setattr(clients.Client, "_send_all", nothing)
        asyncio.run(deliver())
    restore(run, tmp_path / "unheard", part("west-1"))
    asyncio.run(again())
    check_goes_on(run)


def test_a_hello_waits_until_the_server_has_read_what_its_client_sent_before(run):
    """Otherwise a restored client would not learn of a message that waits in its mailbox."""

    async def main():
        async with serving(run, CASE) as (server, _):
            mid = files.Place.load(run / part("mid-1"))
            site = Site.open(mid)
            nc = await wire.connect(
                mid.setup.url, mid.nkey, mid.folder / "ca.pem", "mid-1", f"_INBOX_{mid.slot}"
            )
            unread = server.streams.unread
            server.streams.unread = lambda: asyncio.sleep(0, {mid.slot})
            subject = f"{mid.setup.subject}.{HELLO}.{mid.slot}"
            assert await wire.request(nc, subject, greet(site), 1.0) == b""
            server.streams.unread = unread
            assert await wire.request(nc, subject, greet(site), SECONDS)
            await nc.publish(f"{mid.setup.subject}.up.{mid.slot}", b"x")
            await until(lambda: server.desk.refused["?", "malformed"])
            while mid.slot in await unread():  # until the server has acknowledged it
                await asyncio.sleep(0.02)
            await nc.close()
            site.journal.close()

    asyncio.run(main())


def test_answers_and_messages_that_are_lost_are_asked_for_again(tmp_path, monkeypatch):
    """The first answers to each hello are lost, and so is a message that the broker said it had stored."""
    folder, lost, answers = tmp_path / "f", [], []
    monkeypatch.setattr(clients, "HELLO_SECONDS", 1.0)
    monkeypatch.setattr(clients, "IDLE_SECONDS", 0.2)
    publish = wire.publish

    async def losing(nc, subject, *args, **keywords):
        if ".up." in subject and not lost:
            lost.append(subject)
        else:
            await publish(nc, subject, *args, **keywords)

    monkeypatch.setattr(wire, "publish", losing)

    async def main():
        async with serving(folder, CASE) as (server, tasks):
            answer = server.reception.greetings.answer

            def silent(*args):
                answers.append(answer(*args))
                return None if len(answers) <= 6 else answers[-1]

            monkeypatch.setattr(server.reception.greetings, "answer", silent)
            for name in NAMES:
                tasks[name] = asyncio.create_task(client(folder, CASE, name).run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert lost
    assert verify(folder).ok


class Proxy:
    """A network path that can die without a word: the broker does not learn that its client is gone."""

    def __init__(self, url):
        self.target = urllib.parse.urlsplit(url).port
        self.pairs = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.join, "127.0.0.1", 0)
        self.url = f"tls://localhost:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for tasks, writers in self.pairs:
            for task in tasks:
                task.cancel()
            for writer in writers:
                writer.close()

    async def join(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self.target)

        async def pump(source, sink):
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 16):
                    sink.write(data)
                    await sink.drain()

        tasks = [asyncio.create_task(pump(*pair)) for pair in ((reader, back), (there, writer))]
        self.pairs.append((tasks, (writer, back)))

    def cut(self):
        """End all connections at the client's side only."""
        for tasks, (near, _) in self.pairs:
            for task in tasks:
                task.cancel()
            near.close()


def test_a_connection_that_the_broker_believes_alive_does_not_lock_its_client_out(run, monkeypatch):
    monkeypatch.setattr(broker, "PING", "1s")
    monkeypatch.setattr(clients, "COPY_SECONDS", 0.0)  # this process was connected before, so it stays

    async def main():
        async with serving(run, CASE) as (server, tasks), Proxy(server.url) as proxy:
            west = client(run, CASE, "west-1", url=proxy.url)
            tasks["west-1"] = asyncio.create_task(west.run())
            await until(lambda: west.sessions >= 1)
            proxy.cut()
            await until(lambda: west.sessions >= 2)
            for name in ("east-1", "mid-1"):
                tasks[name] = asyncio.create_task(client(run, CASE, name).run())
            return await asyncio.wait_for(tasks["server"], SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    assert verify(run).ok
