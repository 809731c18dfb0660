"""Errors of a disk in words: a full disk, and a folder that is read-only, are told apart from damage."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path

from bestarm.errors import DiskFull, InputError

FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)  # EFBIG: the limit of a process
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

PROBE_BYTES = 1 << 16  # written to find out why SQLite could not write


def is_full(error: BaseException) -> bool:
    """Whether this error says that a disk is full, or that the user's quota is used up."""
    return isinstance(error, OSError) and error.errno in FULL


def write_error(
    error: OSError | sqlite3.Error, path: Path, what: str = "can't be written", *, journal: bool = False
) -> InputError:
    """Return the error to raise when a file can't be written.

    Parameters
    ----------
    error : OSError or sqlite3.Error
        What happened.
    path : Path
        The file.
    what : str
        What can't be done.
    journal : bool
        Whether the file is a journal, from which a process resumes.

    Returns
    -------
    InputError
        A ``DiskFull`` if there is no space; otherwise it says whether the file or its folder is read-only.
    """
    why = error.strerror if isinstance(error, OSError) else str(error)
    return disk_error(error, path, what, journal=journal) or InputError(f"{what}: {why}", where=str(path))


def disk_error(
    error: OSError | sqlite3.Error, path: Path, what: str, *, journal: bool = False
) -> InputError | None:
    """Return the error to raise if a full or read-only disk is the cause, and None if it is not."""
    folder = _existing(path if path.is_dir() else path.parent)
    cause = error if isinstance(error, OSError) else _cause(error, folder, path)
    if cause is not None and cause.errno in FULL:
        fix = f"Make space for {folder} and run the command again"
        if journal:
            fix = f"Nothing that was written is lost: make space for {folder} and start again"
        return DiskFull(f"{what}: the disk is full, or the quota is used up", where=str(path), fix=fix)
    if cause is not None and cause.errno in READ_ONLY:
        return _read_only(what, path if path.exists() and _writable(folder) else folder)
    return None


def demand_writable(path: Path) -> None:
    """Raise InputError if a file in an existing folder is read-only, or the folder itself."""
    for each in (path.parent, path):
        if each.exists() and not _writable(each):
            raise _read_only("can't be written", each)


def _read_only(what: str, path: Path) -> InputError:
    kind = "folder" if path.is_dir() else "file"
    fix = "Make it writable for this user"
    return InputError(f"{what}: the {kind} is read-only", where=str(path), fix=fix)


def _cause(error: sqlite3.Error, folder: Path, path: Path) -> OSError | None:
    """What the system said to SQLite, as far as it can be found out; None if the disk is not the cause."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL"):
        return OSError(errno.ENOSPC, str(error))
    if name.startswith("SQLITE_READONLY"):
        return OSError(errno.EROFS, str(error))
    if not name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")):
        return None
    return OSError(errno.EACCES, str(error)) if path.exists() and not _writable(path) else _probe(folder)


def _probe(folder: Path) -> OSError | None:
    """Write a small file, and return the error if that fails."""
    probe = folder / f".probe.{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return None


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)
