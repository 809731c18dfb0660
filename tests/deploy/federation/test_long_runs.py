"""Long runs: no limit of messages, bounded memory, restarts that check few signatures, early messages."""

from __future__ import annotations

import gc
import os
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from bestarm.deploy import envelope, identity
from bestarm.deploy.envelope import MOST_EVIDENCE, Envelope, Evidence, Slots
from bestarm.deploy.federation import desk as desks
from bestarm.deploy.federation import files, marks
from bestarm.deploy.federation.desk import AHEAD, DOWN, HELD, UP, WINDOW, Desk
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key, Roster
from bestarm.errors import InputError
from bestarm.report.follow import Journalled
from bestarm.util.journal import Journal
from endless import Office, endless
from federations import Folds, scenario

RUN = bytes(16)
MANY = (1 << 16) + 500  # the former limit of messages per client, and some more


@pytest.fixture
def folder():
    """A folder in memory if possible, because journals wait for the disk at every append."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield endless(Path(name) / "endless")


@pytest.fixture
def office(folder):
    found = Office(folder)
    yield found
    found.desk.journal.close()


@pytest.fixture
def checks(monkeypatch):
    """Counts the signatures that are checked."""
    count = []

    def verified(*args):
        count.append(args)
        return identity.verified(*args)

    for module in (envelope, marks):
        monkeypatch.setattr(module, "verified", verified)
    return count


def test_a_source_may_send_any_number_of_messages():
    slots = Slots(Roster().add("anna", "north", bytes(32)), RUN)
    for number in range(MANY):
        data = Envelope(RUN, "anna", UP, number, b"", bytes(64))
        assert slots.offer(data, signed=True).outcome == "accepted"
        slots.forget("anna", UP, number - WINDOW)
    assert slots.used["anna"] == MANY
    assert len(slots.accepted) == WINDOW + 1


@pytest.mark.soak
def test_a_client_may_send_more_than_65536_messages_to_a_server(office):
    office.send(MANY)
    assert office.desk.next["west-1"] == MANY
    assert not office.desk.refused
    before = office.state()
    office.restart()
    assert not office.desk.failures
    assert office.state() == before


def test_the_memory_of_a_server_does_not_grow_with_its_messages(office):
    def kept():
        office.send(400)
        office.send(400, "east-1")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = [kept() for _ in range(2)][-1]
        grown = kept() - first
    finally:
        tracemalloc.stop()
    assert grown < 50 * 800, "bytes for 800 messages: one envelope alone has more than 500"
    assert len(office.desk.slots.accepted) == 2 * WINDOW
    assert len(office.desk.broadcasts) == 2400
    assert [Envelope.decode(office.desk.broadcasts[n]).sequence for n in (0, 17, -1)] == [0, 17, 2399]


def test_the_memory_of_a_client_does_not_grow_with_its_messages(office):
    site, run = office.site(), office.setup.run

    def kept():
        for number in range(site.heard, site.heard + 700):
            site.received(Envelope.sign(office.key, run, "server", DOWN, number, b"go").encode())
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = [kept() for _ in range(2)][-1]
        grown = kept() - first
    finally:
        tracemalloc.stop()
    assert grown < 50 * 700
    assert len(site.ups) == 2101
    ups = list(site.ups)
    site.journal.close()
    again = office.site()
    assert list(again.ups) == ups
    assert Envelope.decode(ups[1000]).sequence == 1000
    again.journal.close()


class Endless(Folds):
    """A real method with one pull per round, in which south is beaten and two groups are tied for ever."""

    def __init__(self, folder, method, clients, **options):
        groups = {"west": {"a": 0.9}, "east": {"b": 0.9}, "south": {"c": 0.1}}
        case = scenario(method, groups, clients, period=1, c=2.0, delta=0.1, **options)
        files.init(case, folder, port=0, spare=0)
        super().__init__(folder, Means(case.problem))

    def play(self, rounds):
        """Play this many rounds, and return the memory in use."""
        end = self.desk.machine.round + rounds
        while self.desk.machine.round < end:
            self.turn()
        for one in (self.up, self.down, *self.seen.values()):  # what the broker keeps is not our matter
            one.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    def publish(self, desk):
        self.down += desk.broadcasts[self.published :]
        self.published = len(desk.broadcasts)

    published = 0


class Means:
    """Every reward is the mean of its arm."""

    def __init__(self, problem):
        self.problem = problem

    def rewards(self, client, arm, start, times):
        return [self.problem.rewards[client][arm].p] * times


METHODS_WITHOUT_LAST_ROUND = {"fed-sel": (1, {}), "robust-fed-sel": (3, {"byzantine": 1})}


@pytest.fixture
def endless_run(request, folder):
    clients, options = METHODS_WITHOUT_LAST_ROUND[request.param]
    run = Endless(folder / "real", request.param, clients, **options)
    yield run
    run.close()


@pytest.mark.parametrize("endless_run", METHODS_WITHOUT_LAST_ROUND, indirect=True)
def test_the_memory_of_machines_does_not_grow_with_the_rounds(endless_run):
    """A line of the server's history has some 1,000 bytes, what a client keeps of its message 120."""
    endless_run.play(150)
    tracemalloc.start()
    try:
        first = endless_run.play(300)
        grown = endless_run.play(300) - first
    finally:
        tracemalloc.stop()
    processes = 1 + len(endless_run.sites)
    assert grown < 300 * 50 * processes, "bytes for 300 rounds of all processes"
    assert len(endless_run.desk.machine.history) == 1
    assert endless_run.desk.machine.rounds == endless_run.desk.machine.round


@pytest.mark.parametrize("endless_run", METHODS_WITHOUT_LAST_ROUND, indirect=True)
def test_a_server_that_forgets_its_rounds_concludes_the_same(endless_run):
    """South loses to one of the others, which is dropped long afterwards: then nothing says who is best."""
    endless_run.play(500)
    desk = endless_run.desk
    assert desk.machine.active.tolist() == [True, True, False]
    for client in desk.setup.layout.groups[0].clients:
        desk.drop(client)
    desk.stop("interrupted")
    record = desk.record()  # from a machine that forgets nothing
    assert [row["round"] for row in record.verdict.certificate["server"]["rounds"]] == list(
        range(desk.machine.rounds)
    )
    assert record.warnings == desk.warnings
    assert any("arms that lost to it stay out" in warning["text"] for warning in desk.warnings)
    record.save(endless_run.folder / files.RECORD)
    endless_run.close()
    found = verify(endless_run.folder)
    assert found.ok, found.failures


def test_a_restart_gives_the_same_state(office, monkeypatch):
    monkeypatch.setattr(desks, "MARK_EVERY", 50)
    office.send(60)
    office.desk.take([office.message(59, content=b"a lie"), office.message(63)])
    office.send(45, "east-1")
    before = office.state()
    assert before.evidence
    for _ in range(2):
        office.restart()
        assert not office.desk.failures
        assert office.state() == before


def test_a_batch_with_many_messages_of_a_liar_is_taken_as_in_a_replay(office):
    office.send(40, "east-1")
    batch = [office.message(number) for number in range(40)]
    lies = [office.message(number, content=b"a lie") for number in (0, 20, 39)]
    office.desk.take([*batch[1:], batch[0], *lies, *batch])
    assert [found.first.sequence for found in office.desk.slots.evidence.values()] == [39]
    before = office.state()
    assert not office.restart().failures
    assert office.state() == before


def test_old_repeats_are_refused_and_counted_and_new_ones_are_harmless(office):
    office.send(20)
    office.desk.take([office.message(number) for number in range(20)])
    assert office.desk.refused == {("west-1", "old"): 20 - WINDOW}
    assert office.desk.next["west-1"] == 20


def test_a_restart_checks_only_the_signatures_after_the_last_mark(office, monkeypatch, checks):
    monkeypatch.setattr(desks, "MARK_EVERY", 100)
    office.send(400)
    assert sum(event.kind == "mark" for event in office.desk.journal.events()) >= 7
    checks.clear()
    office.restart()
    assert not office.desk.failures
    assert 0 < len(checks) <= 100 + 16 + 1, "those since the last mark, a batch, and the mark itself"
    office.desk.journal.close()
    checks.clear()
    assert verify(office.path).ok
    assert len(checks) > 800, "everyone else checks the messages, the broadcasts and the marks"


def test_a_batch_whose_signatures_are_checked_together_keeps_forgeries_out(office, monkeypatch):
    monkeypatch.setattr(envelope, "MANY", 1)
    monkeypatch.setattr(identity, "SHARE", 1)
    forged, lie = office.message(2, key=Key.generate()), office.message(1, content=b"a lie")
    batch = [office.message(0), office.message(1), forged, office.message(2), lie, b"noise"]
    assert office.desk.take(batch) == [True, True, False, True, True, False]
    assert office.desk.refused == {("west-1", "signature"): 1, ("?", "malformed"): 1}
    assert [evidence.second.encode() for evidence in office.desk.slots.evidence.values()] == [lie]
    before = office.state()
    assert not office.restart().failures
    assert office.state() == before


def test_a_forged_mark_is_not_trusted(office, checks):
    office.send(50)
    office.desk.journal.append("mark", Key.generate().sign(b"all is well"))
    checks.clear()
    desk = office.restart()
    assert desk.failures == ["event 100: a mark that the server's key did not sign"]
    assert len(checks) > 100
    desk.journal.close()
    assert not verify(office.path).ok


def test_a_mark_does_not_cover_changed_events(office, monkeypatch):
    """A forger without the server's key writes the chain of hashes again, and keeps the mark."""
    monkeypatch.setattr(desks, "MARK_EVERY", 100)
    office.send(80)
    events = list(office.desk.journal.events())
    header = office.desk.journal.header
    office.desk.journal.close()
    assert events[-1].seq > max(event.seq for event in events if event.kind == "mark") > 50
    forged = office.message(3, content=b"a lie", key=Key.generate())
    place = [event.seq for event in events if event.kind == UP][3]
    other = office.path.with_name("forged.db")
    with Journal.create(other, desks.KIND, header) as journal:
        journal.append_many([(e.kind, forged if e.seq == place else e.body) for e in events])
        desk = Desk(journal, office.key)
        assert f"event {place}: a message that is signature" in desk.failures
        assert any("a mark that the server's key did not sign" in failure for failure in desk.failures)


def test_a_long_run_can_be_watched(office, monkeypatch):
    monkeypatch.setattr(desks, "MARK_EVERY", 50)
    office.send(60)
    office.desk.journal.append(UP, office.message(2, content=b"a lie"))  # as earlier versions accepted it
    watched = Journalled(office.folder)
    watched.catch_up()
    assert (watched.trouble, watched.count) == ("", len(office.desk.journal))
    assert not watched.fold.state.failures
    assert len(watched.fold.state.slots.evidence) == 1


def test_a_server_starts_only_with_its_own_key(office):
    office.send(3)
    with pytest.raises(InputError, match="the server's key is not"):
        office.restart(Key.generate())


def test_old_evidence_in_a_journal_is_still_evidence(office):
    """Earlier versions kept all messages in memory, and accepted conflicting ones of any age."""
    office.send(20)
    second = office.message(2, content=b"a lie")
    office.desk.take([second])
    assert not office.desk.slots.evidence, "now it is too old"
    office.desk.journal.append(UP, second)
    desk = office.restart()
    assert not desk.failures
    (found,) = desk.slots.evidence.values()
    assert isinstance(found, Evidence)
    assert found.second.encode() == second
    desk.journal.append(UP, office.message(3, content=b"a lie", key=Key.generate()))
    assert "a message that is old" in office.restart().failures[0]


def test_a_liar_cannot_fill_the_memory_with_evidence(office):
    for number in range(MOST_EVIDENCE + 10):
        office.send(1)
        office.desk.take([office.message(number, content=b"a lie")])
    assert len(office.desk.slots.evidence) == MOST_EVIDENCE
    assert office.desk.refused == {("west-1", "closed"): 10}
    office.desk.journal.append(UP, office.message(MOST_EVIDENCE + 9, content=b"a lie"))  # as versions before
    assert not office.restart().failures
    assert len(office.desk.slots.evidence) == MOST_EVIDENCE + 1


def test_a_client_whose_message_was_refused_as_early_is_asked_for_earlier_ones(office):
    early = AHEAD + 5
    office.desk.take([office.message(early, "west-1"), office.message(early, "east-1", key=Key.generate())])
    assert office.desk.refused == {("west-1", "early"): 1, ("east-1", "early"): 1}
    assert office.desk.gaps() == {"west-1"}, "nobody signed the other one"
    office.send(1)
    assert not office.desk.gaps()


def test_few_messages_of_a_client_wait_for_an_earlier_one(office):
    office.send(HELD + 40, "east-1")  # others go on
    office.desk.take([office.message(number) for number in range(1, HELD + 40)])
    assert len(office.desk.inbox.held["west-1"]) == HELD - 1
    assert office.desk.gaps() == {"west-1"}
    office.send(HELD + 40)
    assert office.desk.next["west-1"] == HELD + 40
    assert not office.desk.gaps()
