"""The SQLite file of a journal: its format, and how it is created, opened and locked. See ``journal``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sqlite3
from pathlib import Path

from bestarm.errors import InputError
from bestarm.util.disk_errors import demand_writable, write_error
from bestarm.util.files import sync_folder

FORMAT = 2
READABLE = (1, 2)  # 2 added kinds of events: an older bestarm can't replay them
APPLICATION = 0x42415231  # SQLite's application_id: whose file this is
WAL_PAGES = 64  # of the WAL before it is used again from its start
WAL_BYTES = 32 + WAL_PAGES * (24 + 4096)  # the header of a WAL, and its pages, each with a header

# kind -> the writer of such a journal. It is alone in its folder, except for a run and an experiment.
WRITERS = {"federation-server": "server", "federation-client": "client", "mesh-peer": "peer", "run": "run"}
WRITERS |= {"experiment": "program with this experiment"}

SCHEMA = (
    "CREATE TABLE event (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL, hash BLOB)",
    "CREATE TABLE journal (kind TEXT NOT NULL, header BLOB NOT NULL, hash BLOB)",
)


def genesis_hash(kind: str, header: bytes) -> bytes:
    """The hash that the first event of a journal continues."""
    name = kind.encode()
    return hashlib.sha256(b"bestarm journal 1\n" + len(name).to_bytes(4, "big") + name + header).digest()


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect to the file of a journal; `mode` is that of SQLite."""
    try:
        uri = f"{path.as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10, check_same_thread=False)
    except sqlite3.Error as error:
        raise InputError(f"can't be opened: {error}", where=str(path)) from None


def reserve_wal(path: Path) -> None:
    """Fill a new WAL with zeros: a commit costs about a third less if it does not make the file grow.

    To SQLite a WAL of zeros is empty. Without space for it, SQLite makes the WAL grow as usual.
    """
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return  # events after a crash
    try:
        with wal.open("wb") as file:
            file.write(bytes(WAL_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(wal, 0)


def reading_mode(path: Path) -> str:
    """How to read a journal: SQLite needs to write next to it, unless it is on a read-only disk."""
    wal = path.with_name(path.name + "-wal")
    still = not os.access(path.parent, os.W_OK) and not (wal.exists() and wal.stat().st_size)
    return "ro&immutable=1" if still else "ro"


def lock_writer(path: Path, kind: str | None) -> sqlite3.Connection:
    """The writer's lock: an exclusive transaction on an empty file next to the journal."""
    demand_writable(path)
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
                place = str(path if kind in ("run", "experiment") else path.parent)
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
        raise write_error(error, Path(f"{path}-lock"), "can't be locked for writing") from None
    return lock


def build(path: Path, kind: str, header: bytes) -> None:
    """Create an empty journal at `path` atomically. The caller holds the lock."""
    scratch = path.with_name(f".{path.name}.new")
    try:
        for suffix in ("", "-journal", "-wal", "-shm"):  # may be left from a crash
            Path(f"{scratch}{suffix}").unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(scratch, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN")
            db.execute(f"PRAGMA application_id={APPLICATION}")
            db.execute(f"PRAGMA user_version={FORMAT}")
            for table in SCHEMA:
                db.execute(table)
            db.execute("INSERT INTO journal VALUES (?, ?, ?)", (kind, header, genesis_hash(kind, header)))
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode=WAL")
        scratch.replace(path)
        sync_folder(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise write_error(error, path, "can't be created") from None
