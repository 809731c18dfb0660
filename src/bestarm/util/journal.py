"""The journal: an append-only log of events in one SQLite file, and the source of truth about a run.

The contract is the same for a server, a client and a peer:

- **Write ahead.** An event is appended before any effect of it is visible to others: before it is
  acknowledged, answered or paid for. A client appends the batch that it asks for before it pulls, the batch's
  rewards before anyone uses them, and its own signed bytes before it first sends them (it sends those same
  bytes from then on). Consequences of an event may be written in the same transaction.
- **Durable.** When ``append`` returns, the event survives a crash of the process and of the machine. An
  event whose ``append`` did not return is written completely or not at all. ``append_many`` is atomic.
- **State is a fold.** All that a participant knows follows from the header and the events in order. A
  restart is a replay. Bodies are returned byte for byte; events are never changed or removed.
- **One writer.** Opening for writing takes a lock that ends with the process; a second writer is refused.
  Readers need no lock: each sees a prefix of the log, and can follow it while it grows.
- **Checked.** Each event carries SHA-256(previous hash, seq, kind, body); the first "previous hash" is that
  of kind and header. ``events`` never yields an event that does not fit the chain. Opening checks the last
  events, and ``verify`` checks all of them. A damaged file is refused or ends early; it never yields wrong
  events. The chain detects accidents, but not a forger who writes a whole new file; signatures of bodies do
  (``identity``).
- **After a failed append** the journal accepts no more events: close it, open it again, and replay.

Keep the file on a local disk: SQLite's WAL does not work on network file systems. Recent events may be in the
``…-wal`` file next to it: copy both files, or close the journal first. A journal can be used from any thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from bestarm.errors import DiskFull, InputError
from bestarm.util.disk_errors import disk_error, write_error
from bestarm.util.journal_file import (
    APPLICATION,
    FORMAT,
    READABLE,
    SCHEMA,
    WAL_PAGES,
    build,
    connect,
    genesis_hash,
    lock_writer,
    reading_mode,
    reserve_wal,
)
from bestarm.util.text import shorten

MAX_BODY = 1 << 26
MAX_KIND = 100
TAIL = 64  # number of events checked on opening
PAGE = 512  # number of events read at a time


class Event(NamedTuple):
    """One event; the first one has seq 0."""

    seq: int
    kind: str
    body: bytes


class Journal:
    """A journal, open for writing or reading. Use ``create`` or ``open`` to get one."""

    def __init__(
        self, path: Path, db: sqlite3.Connection, lock: sqlite3.Connection | None, kind: str | None
    ) -> None:
        self.path = path
        self._db, self._lock, self._guard, self._fit = db, lock, threading.RLock(), True
        self._full: DiskFull | None = None  # why the last append failed
        with self._reading():
            self._demand_format()
            self.kind, self.header, self._genesis = self._identify(kind)
            self._next = int(db.execute("SELECT coalesce(max(seq), -1) + 1 FROM event").fetchone()[0])
        self._head = self.hash_before(self._next)
        for _ in self.events(max(0, self._next - TAIL)):
            pass

    @staticmethod
    def create(path: str | Path, kind: str, header: dict[str, Any] | None = None) -> Journal:
        """Create a journal, open for writing. `header` is plain JSON; `kind` says what writes the journal."""
        path = Path(path).resolve()
        _demand_kind(kind, str(path))
        try:
            body = msgspec.json.encode(header or {}, order="sorted")
        except (TypeError, ValueError) as error:
            raise InputError(f"the header can't be written as JSON: {error}", where=str(path)) from None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, path, "can't be created") from None
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(contextlib.closing(lock_writer(path, kind)))
            wal = path.with_name(path.name + "-wal")
            if path.exists() or (wal.exists() and wal.stat().st_size):
                raise InputError(
                    "the file exists already; a journal is never overwritten",
                    where=str(path if path.exists() else wal),
                    fix="Open it, or move it away",
                )
            build(path, kind, body)
            db = stack.enter_context(contextlib.closing(connect(path, "rw")))
            journal = Journal(path, db, lock, kind)
            stack.pop_all()  # the journal closes them from now on
        return journal

    @staticmethod
    def open(path: str | Path, kind: str | None = None, *, write: bool = True) -> Journal:
        """Open an existing journal of this kind (of any kind if None); with ``write=False`` for reading."""
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError("there is no journal here", where=str(path), fix="Check the path")
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(contextlib.closing(lock_writer(path, kind))) if write else None
            mode = "rw" if write else reading_mode(path)
            db = stack.enter_context(contextlib.closing(connect(path, mode)))
            journal = Journal(path, db, lock, kind)
            stack.pop_all()
        return journal

    def __len__(self) -> int:
        """The number of events."""
        with self._reading():
            if self._lock is not None and self._fit:  # nobody else writes
                return self._next
            return int(self._db.execute("SELECT coalesce(max(seq), -1) + 1 FROM event").fetchone()[0])

    @property
    def head(self) -> bytes:
        """The hash of the last event: 32 bytes that identify the whole journal."""
        return self.hash_before(len(self))

    def append(self, kind: str, body: bytes) -> int:
        """Add one event and return its seq. It is on the disk when this returns."""
        return self.append_many([(kind, body)])[0]

    def append_many(self, events: Iterable[tuple[str, bytes]]) -> range:
        """Add all of these events or none, and return their seqs."""
        with self._guard:
            if self._full is not None:  # whoever appends next must not hide the reason
                raise self._full
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
                        f"{shorten(body)} is not the body of an event", expected=f"at most {MAX_BODY} bytes"
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
                        found = write_error(error, self.path, journal=True)
                        self._full = found if isinstance(found, DiskFull) else None
                        raise found from error
                    raise
                self._head, self._next, self._fit = head, seq, True
            return range(seq - len(rows), seq)

    def events(self, start: int = 0) -> Iterator[Event]:
        """The events from `start` to the last one, each checked against the chain.

        Raises InputError at the first event that does not fit; the events before it are valid.
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
                before = self.hash_before(seq)
            for number, kind, body, chained in rows:
                whole = isinstance(kind, str) and isinstance(body, bytes)
                if number != seq or not whole or chained != _chain(before, seq, kind, body):
                    self._refuse(f"event {seq} does not fit the ones before it")
                yield Event(seq, kind, body)
                seq, before = seq + 1, chained
            if len(rows) < PAGE:
                return

    def read(self, seq: int) -> Event:
        """Event number `seq`, checked against the hash of the one before it."""
        with self._reading():
            row = self._db.execute("SELECT kind, body, hash FROM event WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise InputError(f"there is no event {seq}", where=str(self.path))
        kind, body, chained = row
        whole = isinstance(kind, str) and isinstance(body, bytes)
        if not whole or chained != _chain(self.hash_before(seq), seq, kind, body):
            self._refuse(f"event {seq} does not fit the ones before it")
        return Event(seq, kind, body)

    def last(self, kind: str) -> Event | None:
        """The newest event of a kind, or None; see ``read``."""
        with self._reading():
            row = self._db.execute(
                "SELECT seq FROM event WHERE kind = ? ORDER BY seq DESC LIMIT 1", (kind,)
            ).fetchone()
        return None if row is None else self.read(row[0])

    def follow(
        self, start: int = 0, *, poll: float = 0.2, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """The events from `start`, then each new one; polls every `poll` seconds until `stop()` is true."""
        while True:
            ending = stop()  # checked first, so that no event appended before the check is missed
            for event in self.events(start):
                yield event
                start = event.seq + 1
            if ending:
                return
            time.sleep(poll)

    def verify(self) -> int:
        """Check the whole chain and return the number of events; InputError if an event does not fit."""
        return sum(1 for _ in self.events())

    def close(self) -> None:
        """Close the journal and release the lock."""
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
            self._refuse("this is not a bestarm journal", damage=False)
        if version not in READABLE:
            raise InputError(
                f"this journal has format {version}; this version of bestarm reads formats up to {FORMAT}",
                where=str(self.path),
                fix="Open it with the version that wrote it, or a newer one",
            )
        if tuple(row[0] for row in self._db.execute("SELECT sql FROM sqlite_master ORDER BY name")) != SCHEMA:
            self._refuse("its tables are not those of a journal")
        if self._lock is not None:
            mode = self._db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise InputError(f"SQLite can't use a WAL here (mode {mode})", where=str(self.path))
            reserve_wal(self.path)
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA fullfsync=ON")  # where a plain fsync is not enough
            self._db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
            if version != FORMAT:
                self._db.execute(f"PRAGMA user_version={FORMAT}")

    def _identify(self, wanted: str | None) -> tuple[str, dict[str, Any], bytes]:
        rows = self._db.execute("SELECT kind, header, hash FROM journal").fetchall()
        kind, header, genesis = rows[0] if len(rows) == 1 else ("", b"", b"")
        if (
            not isinstance(kind, str)
            or not isinstance(header, bytes)
            or genesis != genesis_hash(kind, header)
        ):
            self._refuse("its header is damaged")
        if wanted is not None and kind != wanted:
            raise InputError(
                f"this is the journal of a {shorten(kind)}",
                where=str(self.path),
                expected=f'that of a "{wanted}"',
            )
        return kind, msgspec.json.decode(header), genesis

    def hash_before(self, seq: int) -> bytes:
        """The hash that event number `seq` continues: 32 bytes that identify all events before it."""
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
                name = getattr(error, "sqlite_errorname", "")
                if name == "SQLITE_NOTADB":
                    self._refuse("this is not a bestarm journal", damage=False)
                if found := disk_error(error, self.path, "can't be used", journal=True):
                    raise found from None
                self._refuse(str(error))

    def _refuse(self, what: str, damage: bool = True) -> NoReturn:
        text = f"the journal is damaged: {what}" if damage else what
        fix = "Restore a copy of it (with its -wal file)" if damage else "Choose a file that bestarm wrote"
        raise InputError(text, where=str(self.path), fix=fix) from None


def _demand_kind(kind: str, where: str) -> None:
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND or not kind.isprintable():
        raise InputError(
            f"kind {shorten(kind)} can't be used",
            where=where,
            expected=f"1 to {MAX_KIND} printable characters",
        )


def _chain(before: bytes, seq: int, kind: str, body: bytes) -> bytes:
    name = kind.encode()
    prefix = before + seq.to_bytes(8, "big") + len(name).to_bytes(4, "big") + name
    return hashlib.sha256(prefix + body).digest()
