"""The journal: an append-only log of events in one SQLite file, and the truth about a run.

The contract, for a server, a client and a peer alike:

- **Write ahead.** An event is appended before anyone else can see an effect of it: before it is acknowledged,
  answered or paid for. A client appends a batch that it asks for before it pulls, the batch's rewards before
  they count for anyone, its own signed bytes before it first sends them (and sends those same bytes for
  ever). What follows from an event may go to the disk in one piece with it.
- **Durable.** When ``append`` returns, the event survives a crash of the process and of the machine. An
  event whose ``append`` did not return is there as a whole or not at all; ``append_many`` is all or nothing.
- **State is a fold.** All that a participant knows follows from the header and the events in their order.
  A restart is a replay. Bodies come back byte for byte; nothing is ever changed or taken away.
- **One writer.** Opening for writing takes a lock that ends with the process; a second writer is refused.
  Readers need no lock: each sees a prefix of the log, and may follow it while it grows.
- **Checked.** Each event carries SHA-256(hash before it, seq, kind, body), and the first "hash before" is
  that of kind and header. ``events`` hands out nothing that does not fit its chain; opening checks the last
  events and ``verify`` all. A damaged file is refused, or ends early; it never gives other events. The chain
  finds accidents, not a forger who writes a whole new file: for that, bodies are signed (``identity``).
- **After a failed append** nothing more is taken: close, open again, replay.

The file belongs on a local disk (SQLite's WAL does not work on network file systems). What was not yet
folded into it lies next to it in ``…-wal``: copy both, or close first. A journal may be used from any
thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from bestarm.errors import InputError, shorten

FORMAT = 1
APPLICATION = 0x42415231  # SQLite's application_id: whose file this is
MAX_BODY = 1 << 26
MAX_KIND = 100
TAIL = 64  # events that opening checks
PAGE = 512  # events that are read at a time
# kind -> who writes such a journal: alone in its folder, but for a run, whose journal is a file of its own
WRITERS = {"federation-server": "server", "federation-client": "client", "mesh-peer": "peer", "run": "run"}
SCHEMA = (
    "CREATE TABLE event (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL, hash BLOB)",
    "CREATE TABLE journal (kind TEXT NOT NULL, header BLOB NOT NULL, hash BLOB)",
)


class Event(NamedTuple):
    """One event; the first has seq 0."""

    seq: int
    kind: str
    body: bytes


class Journal:
    """One journal, open for writing or for reading. Made by ``create`` and ``open``."""

    def __init__(
        self, path: Path, db: sqlite3.Connection, lock: sqlite3.Connection | None, kind: str | None
    ) -> None:
        self.path = path
        self._db, self._lock, self._guard, self._fit = db, lock, threading.RLock(), True
        with self._reading():
            self._demand_format()
            self.kind, self.header, self._genesis = self._identify(kind)
            self._next = int(db.execute("SELECT coalesce(max(seq), -1) + 1 FROM event").fetchone()[0])
        self._head = self._hash_before(self._next)
        for _ in self.events(max(0, self._next - TAIL)):
            pass

    @staticmethod
    def create(path: str | Path, kind: str, header: dict[str, Any] | None = None) -> Journal:
        """A new journal, open for writing. `header` is plain JSON; `kind` says whose journal it is."""
        path = Path(path).resolve()
        _demand_kind(kind, str(path))
        try:
            body = msgspec.json.encode(header or {}, order="sorted")
        except (TypeError, ValueError) as error:
            raise InputError(f"the header can't be written as JSON: {error}", where=str(path)) from None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"can't be made: {error.strerror}", where=str(path)) from None
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(contextlib.closing(_lock(path, kind)))
            wal = path.with_name(path.name + "-wal")
            if path.exists() or (wal.exists() and wal.stat().st_size):
                raise InputError(
                    "there is a file already; a journal is never overwritten",
                    where=str(path if path.exists() else wal),
                    fix="Open it, or move it away",
                )
            _build(path, kind, body)
            db = stack.enter_context(contextlib.closing(_connect(path, "rw")))
            journal = Journal(path, db, lock, kind)
            stack.pop_all()  # it closes them now
        return journal

    @staticmethod
    def open(path: str | Path, kind: str | None = None, *, write: bool = True) -> Journal:
        """A journal that exists: of this kind, or of any if `kind` is None; with ``write=False`` to read."""
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError("there is no journal here", where=str(path), fix="Check the path")
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(contextlib.closing(_lock(path, kind))) if write else None
            db = stack.enter_context(contextlib.closing(_connect(path, "rw" if write else "ro")))
            journal = Journal(path, db, lock, kind)
            stack.pop_all()
        return journal

    def __len__(self) -> int:
        """How many events there are."""
        with self._reading():
            return int(self._db.execute("SELECT coalesce(max(seq), -1) + 1 FROM event").fetchone()[0])

    @property
    def head(self) -> bytes:
        """The hash of the last event: 32 bytes that stand for the whole journal."""
        return self._hash_before(len(self))

    def append(self, kind: str, body: bytes) -> int:
        """Add one event and give its seq. It is on the disk when this returns."""
        return self.append_many([(kind, body)])[0]

    def append_many(self, events: Iterable[tuple[str, bytes]]) -> range:
        """Add all of these events or none, and give their seqs."""
        with self._guard:
            if self._lock is None or not self._fit:
                raise InputError(
                    "this journal takes no more events",
                    where=str(self.path),
                    expected="a journal that is open for writing, and whose last append did not fail",
                )
            rows, head, seq = [], self._head, self._next
            for kind, body in events:
                _demand_kind(kind, str(self.path))
                if not isinstance(body, bytes) or len(body) > MAX_BODY:
                    raise InputError(
                        f"{shorten(body)} is no body of an event", expected=f"at most {MAX_BODY} bytes"
                    )
                head = _chain(head, seq, kind, body)
                rows.append((seq, kind, body, head))
                seq += 1
            if rows:
                self._fit = False  # until the commit is done
                try:
                    self._db.execute("BEGIN IMMEDIATE")
                    self._db.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", rows)
                    self._db.execute("COMMIT")
                except BaseException as error:
                    with contextlib.suppress(sqlite3.Error):
                        self._db.rollback()
                    if isinstance(error, sqlite3.Error):
                        raise InputError(f"can't be written: {error}", where=str(self.path)) from error
                    raise
                self._head, self._next, self._fit = head, seq, True
            return range(seq - len(rows), seq)

    def events(self, start: int = 0) -> Iterator[Event]:
        """The events from `start` on, each checked against the chain, up to the last one there is.

        InputError at the first that does not fit; those before it were right.
        """
        if start < 0:
            raise InputError(f"start = {start}", expected="a whole number of at least 0")
        return self._events(start)

    def _events(self, start: int) -> Iterator[Event]:
        seq, before = start, b""
        while True:
            with self._reading():
                rows = self._db.execute(
                    "SELECT seq, kind, body, hash FROM event WHERE seq >= ? ORDER BY seq LIMIT ?", (seq, PAGE)
                ).fetchall()
            if rows and not before:
                before = self._hash_before(seq)
            for number, kind, body, chained in rows:
                whole = isinstance(kind, str) and isinstance(body, bytes)
                if number != seq or not whole or chained != _chain(before, seq, kind, body):
                    self._refuse(f"event {seq} does not fit the ones before it")
                yield Event(seq, kind, body)
                seq, before = seq + 1, chained
            if len(rows) < PAGE:
                return

    def follow(
        self, start: int = 0, *, poll: float = 0.2, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """The events from `start` on, then each new one; looks every `poll` seconds until `stop()`."""
        while True:
            ending = stop()  # asked first, so that nothing appended before the answer is missed
            for event in self.events(start):
                yield event
                start = event.seq + 1
            if ending:
                return
            time.sleep(poll)

    def verify(self) -> int:
        """Check the whole chain and give the number of events; InputError if anything does not fit."""
        return sum(1 for _ in self.events())

    def close(self) -> None:
        """End it. What was appended stays; the lock is given back."""
        with self._guard:
            self._db.close()
            if self._lock is not None:
                self._lock.close()
            self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _demand_format(self) -> None:
        application, version = (
            self._db.execute(f"PRAGMA {key}").fetchone()[0] for key in ("application_id", "user_version")
        )
        if application != APPLICATION:
            self._refuse("this is no journal of bestarm", damage=False)
        if version != FORMAT:
            raise InputError(
                f"this journal has format {version}; this version of bestarm reads format {FORMAT}",
                where=str(self.path),
                fix="Open it with the version that wrote it, or a newer one",
            )
        if tuple(row[0] for row in self._db.execute("SELECT sql FROM sqlite_master ORDER BY name")) != SCHEMA:
            self._refuse("its tables are not those of a journal")
        if self._lock is not None:
            mode = self._db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise InputError(f"SQLite can't keep a WAL here (mode {mode})", where=str(self.path))
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA fullfsync=ON")  # where a plain fsync is not enough

    def _identify(self, wanted: str | None) -> tuple[str, dict[str, Any], bytes]:
        rows = self._db.execute("SELECT kind, header, hash FROM journal").fetchall()
        kind, header, genesis = rows[0] if len(rows) == 1 else ("", b"", b"")
        if not isinstance(kind, str) or not isinstance(header, bytes) or genesis != _genesis(kind, header):
            self._refuse("its header is damaged")
        if wanted is not None and kind != wanted:
            raise InputError(
                f"this is the journal of a {shorten(kind)}",
                where=str(self.path),
                expected=f'that of a "{wanted}"',
            )
        return kind, msgspec.json.decode(header), genesis

    def _hash_before(self, seq: int) -> bytes:
        if seq == 0:
            return self._genesis
        with self._reading():
            row = self._db.execute("SELECT hash FROM event WHERE seq = ?", (seq - 1,)).fetchone()
        if row is None or not isinstance(row[0], bytes):
            self._refuse(f"event {seq - 1} is missing")
        return bytes(row[0])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._guard:
            try:
                yield
            except sqlite3.ProgrammingError:
                raise InputError("this journal is closed", where=str(self.path)) from None
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
                    self._refuse("this is no journal of bestarm", damage=False)
                self._refuse(str(error))

    def _refuse(self, what: str, damage: bool = True) -> NoReturn:
        text = f"the journal is damaged: {what}" if damage else what
        fix = "Restore a copy of it (with its -wal file)" if damage else "Name a file that bestarm made"
        raise InputError(text, where=str(self.path), fix=fix) from None


def _demand_kind(kind: str, where: str) -> None:
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND or not kind.isprintable():
        raise InputError(
            f"kind {shorten(kind)} can't be used",
            where=where,
            expected=f"1 to {MAX_KIND} printable characters",
        )


def _genesis(kind: str, header: bytes) -> bytes:
    name = kind.encode()
    return hashlib.sha256(b"bestarm journal 1\n" + len(name).to_bytes(4, "big") + name + header).digest()


def _chain(before: bytes, seq: int, kind: str, body: bytes) -> bytes:
    name = kind.encode()
    prefix = before + seq.to_bytes(8, "big") + len(name).to_bytes(4, "big") + name
    return hashlib.sha256(prefix + body).digest()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        uri = f"{path.as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10, check_same_thread=False)
    except sqlite3.Error as error:
        raise InputError(f"can't be opened: {error}", where=str(path)) from None


def _lock(path: Path, kind: str | None) -> sqlite3.Connection:
    """The writer's lock: an exclusive transaction on an empty file next to the journal."""
    lock = None
    try:
        lock = sqlite3.connect(f"{path}-lock", isolation_level=None, timeout=0, check_same_thread=False)
        lock.execute("PRAGMA journal_mode=OFF")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if lock is not None:
            lock.close()
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            if kind in WRITERS:
                place = str(path if kind == "run" else path.parent)
                raise InputError(
                    f"a {WRITERS[kind]} is running here already",
                    where=place,
                    fix=f"To look at it: bestarm watch {shlex.quote(place)}",
                ) from None
            raise InputError(
                "another writer has this journal open",
                where=str(path),
                expected="one writer at a time",
                fix="Stop the other process, or open the journal for reading",
            ) from None
        raise InputError(f"can't be locked for writing: {error}", where=str(path)) from None
    return lock


def _build(path: Path, kind: str, header: bytes) -> None:
    """Put an empty journal at `path`, whole or not at all. The caller holds the lock."""
    scratch = path.with_name(f".{path.name}.new")
    try:
        for suffix in ("", "-journal", "-wal", "-shm"):  # what a crash may have left
            Path(f"{scratch}{suffix}").unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(scratch, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN")
            db.execute(f"PRAGMA application_id={APPLICATION}")
            db.execute(f"PRAGMA user_version={FORMAT}")
            for table in SCHEMA:
                db.execute(table)
            db.execute("INSERT INTO journal VALUES (?, ?, ?)", (kind, header, _genesis(kind, header)))
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode=WAL")
        scratch.replace(path)
        with contextlib.suppress(OSError):  # not every system can sync a folder
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"can't be made: {error}", where=str(path)) from None
