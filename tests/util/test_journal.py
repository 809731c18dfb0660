"""The journal loses nothing that was acknowledged and never returns a damaged event."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bestarm.errors import DiskFull, InputError
from bestarm.util.journal import FORMAT, PAGE, Event, Journal
from bestarm.util.journal_file import WAL_PAGES
from marking import examples, slow


def contents(path: Path, **options) -> list[Event]:
    with Journal.open(path, **options) as journal:
        return list(journal.events())


def copied(path: Path, folder: Path) -> Path:
    """What a crash at this moment would leave. Tests open the copies, never the originals again."""
    folder.mkdir(parents=True)
    for name in (path.name, path.name + "-wal"):
        if (path.parent / name).exists():
            shutil.copy(path.parent / name, folder / name)
    return folder / path.name


def body(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 30, 500, 5000, 40_000]))


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run" / "client.journal"


def test_events_are_read_back_in_order_and_byte_for_byte(path):
    with Journal.create(path, "client", {"run": "ab", "arms": ["a", "ü"]}) as journal:
        assert journal.append("asked", b"\x00\xff") == 0
        assert journal.append_many([("rewards", b""), ("sent", b"x" * 100_000)]) == range(1, 3)
        assert journal.append_many([]) == range(3, 3)
        expected = [(0, "asked", b"\x00\xff"), (1, "rewards", b""), (2, "sent", b"x" * 100_000)]
        assert list(journal.events()) == expected
        assert list(journal.events(2)) == expected[2:]
        assert list(journal.events(3)) == list(journal.events(30)) == []
    with Journal.open(path, "client") as journal:
        assert (journal.kind, journal.header) == ("client", {"run": "ab", "arms": ["a", "ü"]})
        assert list(journal.events()) == expected
        assert len(journal) == journal.verify() == 3
        assert journal.append("received", b"y") == 3


def test_a_long_log_is_read_in_pages_without_gaps_or_repeats(path):
    with Journal.create(path, "server") as journal:
        for count in (PAGE, 2 * PAGE, 2 * PAGE + 7):
            journal.append_many(("k", b"%d" % n) for n in range(len(journal), count))
            assert [e.body for e in journal.events()] == [b"%d" % n for n in range(count)]
            assert [e.seq for e in journal.events(5)] == list(range(5, count))
        seen = []
        for event in journal.events(2 * PAGE):  # appending while reading is allowed
            seen.append(event.seq)
            journal.append("k", b"more")
        assert seen == list(range(2 * PAGE, 2 * PAGE + 7))
        assert journal.verify() == 2 * PAGE + 14


def test_a_journal_that_cannot_be_created_says_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be created"):
        Journal.create(tmp_path / "file" / "j", "client")
    with pytest.raises(InputError, match="header can't be written as JSON"):
        Journal.create(tmp_path / "j", "client", {"x": object()})
    with pytest.raises(InputError, match="can't be used"):
        Journal.create(tmp_path / "j", "")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_replay_gives_the_same_state(path):
    def fold(events):
        return reduce(lambda state, e: (state * 31 + len(e.kind) + sum(e.body)) % 2**61, events, 7)

    rng = random.Random(1)
    with Journal.create(path, "server") as journal:
        for _ in range(40):
            journal.append(rng.choice(["received", "sent"]), body(rng))
        before, head = fold(journal.events()), journal.head
    with Journal.open(path, "server") as journal:
        assert (fold(journal.events()), journal.head) == (before, head)


def test_the_head_depends_on_the_kind_the_header_and_every_event(tmp_path):
    def head(kind, header, events):
        with Journal.create(tmp_path / str(len(list(tmp_path.iterdir()))), kind, header) as journal:
            journal.append_many(events)
            return journal.head

    logs = [
        ("a", {}, [("k", b"1"), ("k", b"2")]),
        ("b", {}, [("k", b"1"), ("k", b"2")]),
        ("a", {"x": 1}, [("k", b"1"), ("k", b"2")]),
        ("a", {}, [("k", b"2"), ("k", b"1")]),
        ("a", {}, [("k", b"1"), ("k2", b"")]),
        ("a", {}, [("k", b"1")]),
        ("a", {}, []),
    ]
    heads = [head(*log) for log in logs]
    assert len(set(heads)) == len(logs)
    assert head(*logs[0]) == heads[0]


def test_a_copy_after_any_append_contains_every_event_so_far(path, tmp_path):
    rng, events = random.Random(2), []
    with Journal.create(path, "client") as journal:
        for number in range(60):
            more = [("kind", body(rng)) for _ in range(rng.choice([1, 1, 1, 5]))]
            journal.append_many(more)
            events += more
            copy = copied(path, tmp_path / f"copy-{number}")
            assert [(e.kind, e.body) for e in contents(copy)] == events
            shutil.rmtree(copy.parent)


def test_the_wal_has_its_full_size_before_the_first_event_and_a_crash_leaves_it_readable(path, tmp_path):
    wal = path.with_name(path.name + "-wal")
    with Journal.create(path, "client") as journal:
        size = wal.stat().st_size
        assert size >= WAL_PAGES * 4096
        empty = copied(path, tmp_path / "empty")
        for k in range(WAL_PAGES // 2):
            journal.append("event", bytes([k]))
        assert wal.stat().st_size == size  # a sync that makes a file grow costs more
        crashed = copied(path, tmp_path / "crashed")
    assert contents(empty) == []
    for _ in range(2):  # the second time without anything in the WAL
        assert [event.body for event in contents(crashed)] == [bytes([k]) for k in range(WAL_PAGES // 2)]


def test_without_space_for_the_wal_a_journal_is_opened_all_the_same(path, monkeypatch):
    Journal.create(path, "client").close()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("bestarm.util.journal_file.os.fsync", full)
        with Journal.open(path, "client") as journal:
            assert path.with_name(path.name + "-wal").stat().st_size == 0
            journal.append("event", b"1")
    assert [event.body for event in contents(path)] == [b"1"]


CHILD = """
import os, random, sys
from bestarm.util.journal import Journal
rng = random.Random(int(sys.argv[2]))
with Journal.create(sys.argv[1], "client") as journal:
    while True:
        many = [("k", rng.randbytes(rng.choice([10, 3000, 60_000]))) for _ in range(rng.choice([1, 1, 4]))]
        os.write(1, b"%d\\n" % journal.append_many(many)[-1])
"""


@pytest.mark.parametrize("seed", [0, *slow(1, 2, 3, 4)])
def test_a_killed_process_loses_nothing_that_was_acknowledged(path, seed):
    child = subprocess.Popen([sys.executable, "-c", CHILD, path, str(seed)], stdout=subprocess.PIPE)
    with child:
        lines = [child.stdout.readline() for _ in range(random.Random(seed).randint(1, 150))]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines()
    acknowledged = int(lines[-1])
    rng, expected = random.Random(seed), []
    while len(expected) <= acknowledged + 1:  # at most one batch was in progress
        expected += [rng.randbytes(rng.choice([10, 3000, 60_000])) for _ in range(rng.choice([1, 1, 4]))]
    found = contents(path)
    assert len(found) > acknowledged
    assert [e.body for e in found] == expected[: len(found)]
    with Journal.open(path, "client") as journal:  # the lock ended with the dead writer
        assert journal.append("k", b"on") == len(found)


@pytest.fixture(scope="module")
def worn(tmp_path_factory):
    """A crashed journal with some events in the file and more in the WAL, and the list of its events."""
    folder, rng = tmp_path_factory.mktemp("worn"), random.Random(3)
    path = folder / "live" / "j"
    with Journal.create(path, "client", {"run": 1}) as journal:
        journal.append_many([("old", rng.randbytes(rng.choice([5, 200, 9000]))) for _ in range(150)])
    with Journal.open(path, "client") as journal:
        for _ in range(40):
            journal.append("new", rng.randbytes(rng.choice([5, 200, 9000])))
        events = list(journal.events())
        return copied(path, folder / "crashed"), events


def torn(worn: Path, folder: Path, suffix: str, damage) -> Path:
    copy = copied(worn, folder)
    file = copy.with_name(copy.name + suffix)
    file.write_bytes(damage(file.read_bytes()))
    return copy


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("how", ["cut", "zeros", "flip"])
def test_a_torn_file_is_refused_or_gives_a_prefix(worn, tmp_path, suffix, how):
    crashed, events = worn
    rng, outcomes = random.Random(f"{suffix}{how}"), {"refused": 0, "prefix": 0, "whole": 0}

    def damage(data: bytes) -> bytes:
        at = rng.randrange(len(data))
        if how == "cut":
            return data[:at]
        if how == "zeros":
            return (data[:at] + bytes(4096) + data[at + 4096 :])[: len(data)]
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

    for number in range(40):
        copy = torn(crashed, tmp_path / str(number), suffix, damage)
        found = []
        try:
            with Journal.open(copy, "client") as journal:
                found.extend(journal.events())
        except InputError:
            outcomes["refused"] += 1
        else:
            outcomes["whole" if found == events else "prefix"] += 1
        assert found == events[: len(found)]
    # Damage in the file is detected; the WAL's own checksums truncate it at the damage.
    assert outcomes["prefix" if suffix else "refused"] > 0, outcomes
    if suffix:
        assert outcomes["refused"] == 0, outcomes


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE event SET body = x'00' WHERE seq = 5",
        "UPDATE event SET kind = 'other' WHERE seq = 5",
        "UPDATE event SET body = 'text' WHERE seq = 5",
        "UPDATE event SET body = 7 WHERE seq = 5",
        "UPDATE event SET hash = NULL WHERE seq = 5",
        "UPDATE event SET hash = zeroblob(32) WHERE seq = 199",
        "DELETE FROM event WHERE seq = 5",
        "UPDATE event SET seq = 500 WHERE seq = 5",
        "UPDATE event SET seq = 9223372036854775807 WHERE seq = 199",
    ],
)
def test_an_altered_event_is_detected_and_events_before_it_are_read_intact(path, change):
    events = [("k", b"%d" % number) for number in range(200)]
    with Journal.create(path, "client") as journal:
        journal.append_many(events)
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    found = []
    with pytest.raises(InputError, match="damaged"), Journal.open(path, "client") as journal:
        found.extend(journal.events())
    assert [(e.kind, e.body) for e in found] == events[: len(found)]
    assert len(found) <= 200 - ("199" in change)
    with pytest.raises(InputError, match="damaged"), Journal.open(path, write=False) as journal:
        journal.verify()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE journal SET kind = 'server'",
        "UPDATE journal SET header = x'7b7d'",
        "DELETE FROM journal",
        "INSERT INTO journal SELECT * FROM journal",
        "DROP TABLE event",
        "CREATE TABLE other (x)",
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM event; END",
    ],
)
def test_another_header_or_other_tables_are_refused(path, change):
    Journal.create(path, "client", {"x": 1}).close()
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    with pytest.raises(InputError, match="damaged"):
        Journal.open(path)


def test_foreign_files_are_refused_and_left_alone(tmp_path):
    (tmp_path / "text").write_text("a journal? no" * 1000)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "short").write_bytes(b"SQLite format 3\x00")
    with sqlite3.connect(tmp_path / "other") as db:
        db.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, kind TEXT, body BLOB, hash BLOB)")
    db.close()
    for name in ("text", "empty", "short", "other"):
        before = (tmp_path / name).read_bytes()
        for write in (True, False):
            with pytest.raises(InputError, match="not a bestarm journal"):
                Journal.open(tmp_path / name, write=write)
        assert (tmp_path / name).read_bytes() == before
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="there is no journal here"):
            Journal.open(missing)


def test_a_journal_of_a_later_format_or_of_another_kind_is_refused(path):
    Journal.create(path, "client").close()
    with pytest.raises(InputError, match=r'this is the journal of a .client.\. Expected that of a "server"'):
        Journal.open(path, "server")
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={FORMAT + 1}")
    db.close()
    with pytest.raises(InputError, match=f"format {FORMAT + 1}.*reads formats up to {FORMAT}"):
        Journal.open(path, "client")


def test_creating_over_a_file_or_its_leftovers_is_refused(path):
    with Journal.create(path, "client") as journal:
        journal.append("k", b"1")
        wal = path.with_name(path.name + "-wal").read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        Journal.create(path, "client")
    assert [e.body for e in contents(path)] == [b"1"]
    path.unlink()
    path.with_name(path.name + "-wal").write_bytes(wal)  # would be replayed into the new file
    with pytest.raises(InputError, match="-wal: the file exists already"):
        Journal.create(path, "client")


def test_leftovers_of_a_crash_during_creation_do_no_harm(path):
    path.parent.mkdir()
    for suffix in ("", "-journal", "-wal"):
        path.with_name(f".{path.name}.new{suffix}").write_bytes(b"half a file")
    with Journal.create(path, "client") as journal:
        journal.append("k", b"1")
    assert [e.body for e in contents(path)] == [b"1"]
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}-lock"]


def test_a_second_writer_is_refused_here_and_in_another_process(path):
    code = "import sys; from bestarm.util.journal import Journal as J; J.open(sys.argv[1]).append('k', b'2')"

    def other():
        return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)

    with Journal.create(path, "client") as journal:
        for _ in range(2):
            with pytest.raises(InputError, match="another writer has this journal open"):
                Journal.open(path, "client")
            assert "another writer has this journal open" in other().stderr
            journal.append("k", b"1")
    assert other().returncode == 0
    assert [e.body for e in contents(path)] == [b"1", b"1", b"2"]


@pytest.mark.parametrize(
    ("kind", "writer"),
    [("federation-server", "server"), ("federation-client", "client"), ("mesh-peer", "peer"), ("run", "run")],
)
def test_a_second_start_says_what_is_running_and_how_to_watch_it(path, kind, writer):
    place = path if kind == "run" else path.parent
    with Journal.create(path, kind), pytest.raises(InputError) as caught:
        Journal.open(path, kind)
    text = f"{place}: a {writer} is running here already. To look at it: bestarm watch {place}."
    assert str(caught.value) == text


def test_readers_see_the_log_grow_and_cannot_write(path):
    with Journal.create(path, "server") as writer, Journal.open(path, "server", write=False) as reader:
        assert len(reader) == 0
        for number in range(5):
            writer.append("k", b"%d" % number)
            assert len(reader) == number + 1
        assert list(reader.events()) == list(writer.events())
        assert reader.head == writer.head
        with pytest.raises(InputError, match="takes no more events"):
            reader.append("k", b"")


def test_a_follower_in_another_process_sees_every_event_once(path):
    code = """
import sys
from bestarm.util.journal import Journal
with Journal.open(sys.argv[1], "server", write=False) as journal:
    for event in journal.follow(2, poll=0.01):
        print(event.seq, event.body.decode(), flush=True)
        if event.kind == "end":
            break
"""
    with Journal.create(path, "server") as journal:
        journal.append_many([("k", b"%d" % number) for number in range(3)])
        with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as child:
            first = child.stdout.readline()
            for number in range(3, 20):
                journal.append("k", b"%d" % number)
            journal.append("end", b"20")
            rest = child.stdout.read()
    assert (first + rest).split() == [word for number in range(2, 21) for word in (str(number),) * 2]


def test_following_stops_on_request_without_missing_events(path):
    answers = iter([False, True])

    with Journal.create(path, "server") as journal:

        def stop():
            journal.append("k", b"")
            return next(answers)

        assert [e.seq for e in journal.follow(poll=0, stop=stop)] == [0, 1]


def test_threads_may_share_a_journal(path):
    with Journal.create(path, "server") as journal:

        def work(name):
            for number in range(20):
                seq = journal.append(name, b"%d" % number)
                assert next(journal.events(seq)) == (seq, name, b"%d" % number)

        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert journal.verify() == 40
        for name in "ab":
            assert [e.body for e in journal.events() if e.kind == name] == [b"%d" % n for n in range(20)]


def test_a_failed_append_writes_nothing_and_ends_writing(path):
    with Journal.create(path, "client") as journal:
        journal.append("k", b"1")
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count={pages}")  # a full disk
        with pytest.raises(InputError, match=r"can't be written.*full"):
            journal.append_many([("k", b"2"), ("k", bytes(100_000))])
        with pytest.raises(DiskFull, match=r"can't be written.*full"):  # the reason, whoever appends next
            journal.append("k", b"3")
        assert [e.body for e in journal.events()] == [b"1"]
    assert [e.body for e in contents(path)] == [b"1"]


@pytest.mark.parametrize("event", [("", b""), ("a\n", b""), ("x" * 101, b""), (7, b""), ("k", "text")])
def test_an_invalid_event_is_refused_and_the_journal_stays_usable(path, event):
    with Journal.create(path, "client") as journal:
        with pytest.raises(InputError):
            journal.append_many([("k", b"good"), event])
        assert journal.append("k", b"1") == 0
        with pytest.raises(InputError, match="start = -1"):
            journal.events(-1)


def test_a_closed_journal_says_so(path):
    journal = Journal.create(path, "client")
    journal.close()
    journal.close()
    with pytest.raises(InputError, match="closed"):
        len(journal)
    with pytest.raises(InputError, match="takes no more events"):
        journal.append("k", b"")


def test_uri_characters_in_a_file_name_have_no_special_meaning(tmp_path):
    path = tmp_path / "a?mode=memory#b %41"
    with Journal.create(path, "client") as journal:
        journal.append("k", b"1")
    assert path.is_file()
    assert [e.body for e in contents(path)] == [b"1"]


class JournalAgainstAList(RuleBasedStateMachine):
    """Append, reopen, crash, read: a journal is a list that outlives its process."""

    events = st.tuples(st.sampled_from(["asked", "rewards", "sent", "é"]), st.binary(max_size=200))

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "0" / "j"
        self.journal = Journal.create(self.path, "peer", {"n": 1})
        self.model: list[tuple[str, bytes]] = []
        self.crashes = 0

    @rule(more=st.lists(events, max_size=4))
    def append_many(self, more):
        assert self.journal.append_many(more) == range(len(self.model), len(self.model) + len(more))
        self.model += more

    @rule(event=events)
    def append(self, event):
        assert self.journal.append(*event) == len(self.model)
        self.model.append(event)

    @rule()
    def reopen(self):
        self.journal.close()
        self.journal = Journal.open(self.path, "peer")

    @rule()
    def crash(self):
        self.crashes += 1
        self.path = copied(self.path, self.folder / str(self.crashes))
        self.journal.close()
        self.journal = Journal.open(self.path, "peer")

    @rule(part=st.floats(0, 1))
    @precondition(lambda self: self.model)
    def read_from_the_middle(self, part):
        start = int(part * len(self.model))
        with Journal.open(self.path, "peer", write=False) as reader:
            assert [(e.kind, e.body) for e in reader.events(start)] == self.model[start:]

    @invariant()
    def is_the_list(self):
        assert list(self.journal.events()) == [(i, *event) for i, event in enumerate(self.model)]
        assert len(self.journal) == len(self.model)

    def teardown(self):
        self.journal.close()
        shutil.rmtree(self.folder)


TestJournalAgainstAList = JournalAgainstAList.TestCase
TestJournalAgainstAList.settings = settings(max_examples=examples(50), stateful_step_count=20, deadline=None)
