"""A new key for the server of a running federation: a statement signed with the old key names it."""

from __future__ import annotations

import dataclasses
import os
import random
import tempfile
from pathlib import Path

import pytest

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files
from bestarm.deploy.federation.desk import DOWN, KEY
from bestarm.deploy.federation.hello import HELLO, NONCE_BYTES, Greetings
from bestarm.deploy.federation.site import Site
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key
from bestarm.errors import InputError
from bestarm.util.journal import Journal
from endless import Office, endless
from federations import Coins, Folds, comparable, in_process, scenario

TWO = {"west": {"a": 0.99, "b": 0.01}, "east": {"c": 0.5}}


@pytest.fixture
def shelf():
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def office(shelf):
    found = Office(endless(shelf / "endless"))
    yield found
    found.desk.journal.close()


@pytest.fixture
def site(office):
    """A client that answers nothing: its broadcasts come from the desk of the test."""
    found = office.site()
    yield found
    found.journal.close()


def broadcast(office, number, key, topic=DOWN):
    return Envelope.sign(key, office.setup.run, "server", topic, number, b"answer").encode()


def test_broadcasts_are_signed_with_the_old_key_before_the_statement_and_with_the_new_after_it(office):
    new = Key.generate()
    office.send(2)
    office.desk.succeed(new)
    office.desk.succeed(new)  # safe to repeat
    office.send(2)
    found = [Envelope.decode(data) for data in office.desk.broadcasts]
    assert [(e.sequence, e.topic) for e in found] == [(0, DOWN), (1, DOWN), (2, KEY), (3, DOWN), (4, DOWN)]
    assert [e.signed_with(new.public) for e in found] == [False, False, False, True, True]
    assert found[2].signed_with(office.key.public)
    assert found[2].content == new.public
    assert Envelope.decode(office.desk.have("west-1")).signed_with(new.public)


@pytest.mark.parametrize("number", [1, 99])
def test_nobody_can_stop_the_server_with_a_key_that_was_replaced(office, number):
    """A key may be replaced because a client has got hold of it."""
    place, greetings = office.places["west-1"], Greetings(office.desk)

    def greet(key):
        content = os.urandom(NONCE_BYTES) + bytes(4) + broadcast(office, number, key)
        hello = Envelope.sign(place.key, office.setup.run, "west-1", HELLO, 0, content).encode()
        return greetings.answer("west-1", hello, lambda: True)

    office.send(2)
    with pytest.raises(InputError, match="restored from an older backup"):
        greet(office.key)
    new = Key.generate()
    office.desk.succeed(new)
    assert greet(office.key) is None
    assert office.desk.refused == {("west-1", HELLO): 1}
    with pytest.raises(InputError, match="restored from an older backup"):
        greet(new)


def test_the_key_in_force_follows_from_the_journal(office):
    second, third = Key.generate(), Key.generate()
    office.send(2)
    office.desk.succeed(second)
    with pytest.raises(InputError, match="the server's key is not"):
        office.restart(office.key)
    desk = office.restart(office.key, second)  # the new key's file may not be in place yet
    assert not desk.failures
    office.send(2)
    desk.succeed(third)
    office.send(1)
    before = office.state()
    desk = office.restart(third)
    assert not desk.failures
    assert office.state() == before
    assert [text.partition(": ")[2] for text in desk.changes] == [
        f"the server's key {office.key.public.hex()[:16]} was replaced by {second.public.hex()[:16]}",
        f"the server's key {second.public.hex()[:16]} was replaced by {third.public.hex()[:16]}",
    ]
    desk.journal.close()
    found = verify(office.path)
    assert found.ok, found.failures
    assert found.changes == tuple(desk.changes)


def test_a_statement_without_the_old_key_is_refused_by_server_and_client(office, site):
    eve = Key.generate()
    office.send(1)
    forged = Envelope.sign(eve, office.setup.run, "server", KEY, 1, eve.public).encode()
    for data in (office.desk.broadcasts[0], forged, broadcast(office, 2, eve)):
        site.received(data)
    assert site.heard == 1
    assert site.server == office.key.public
    office.desk.journal.append("key", bytes(16) + forged)
    office.desk.journal.close()
    assert "a broadcast that the server's key did not sign" in verify(office.path).failures[0]


def test_a_client_follows_the_statements_and_refuses_the_old_key_after_them(office, site):
    new = Key.generate()
    office.send(1)
    office.desk.succeed(new)
    office.send(1)
    for data in office.desk.broadcasts[:2]:
        site.received(data)
    site.received(broadcast(office, 2, office.key))
    assert site.heard == 2
    site.received(office.desk.broadcasts[2])
    assert site.heard == 3
    assert site.server == new.public
    site.journal.close()
    late = Site.open(site.place)
    assert (late.heard, late.server) == (3, new.public)
    late.journal.close()


@pytest.mark.parametrize("seed", range(10))
def test_broadcasts_may_arrive_in_any_order_around_a_statement(office, site, seed):
    keys = [Key.generate(), Key.generate()]
    for key in keys:
        office.send(2)
        office.desk.succeed(key)
    office.send(2)
    order, forged = list(office.desk.broadcasts), broadcast(office, 7, office.key)
    random.Random(seed).shuffle(order)
    site.received(forged)  # signed with the old key, but its number comes after the statements
    for _ in range(3):  # the server sends again what a client has not heard
        for data in order:
            if Envelope.decode(data).sequence >= site.heard:
                site.received(data)
    assert site.heard == len(order) == 8
    assert site.server == keys[-1].public
    assert site.machine.heard == 6
    site.journal.close()
    again = Site.open(site.place)
    assert (again.heard, again.server, again.machine.heard) == (8, keys[-1].public, 6)
    again.journal.close()


def test_a_run_with_a_new_server_key_has_the_same_record(shelf):
    case = scenario("fed-sel", TWO, period=3000, delta=0.1)
    folder = shelf / "fed-sel"
    files.init(case, folder, port=0)
    folds = Folds(folder, Coins(case.problem))
    folds.key = Key.generate()
    folds.desk.succeed(folds.key)
    for _ in range(3):
        folds.turn()
    third = Key.generate()
    folds.desk.succeed(third)
    folds.desk.journal.close()
    folds.desk, folds.key = None, third
    record = folds.go()
    record.save(folder / files.RECORD)
    assert comparable(record) == comparable(in_process(case, Coins(case.problem)))
    folds.close()
    found = verify(folder)
    assert found.ok, found.failures
    assert found.record == record
    assert len(found.changes) == 2


def test_verification_notices_a_broadcast_signed_with_a_replaced_key(office):
    new = Key.generate()
    office.send(1)
    office.desk.succeed(new)
    office.send(1)
    events = list(office.desk.journal.events())
    last = max(event.seq for event in events if event.kind == DOWN)
    old = Envelope.decode(office.desk.broadcasts[2])
    forged = dataclasses.replace(old, signature=Envelope.sign(office.key, *old.slot, old.content).signature)
    other = office.path.with_name("forged.db")
    with Journal.create(other, "federation-server", office.desk.journal.header) as journal:
        journal.append_many(
            [(e.kind, e.body[:16] + forged.encode() if e.seq == last else e.body) for e in events]
        )
    assert f"event {last}: a broadcast that the server's key did not sign" in verify(other).failures
