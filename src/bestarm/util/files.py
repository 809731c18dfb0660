"""Atomic file writes: a file is written completely or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.util.disk_errors import write_error

SCHEMA = 1  # of the files that bestarm writes for itself


def as_json(value: object) -> bytes:
    """Indented JSON (by msgspec: the standard encoder is slow with a thousand clients)."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


@contextlib.contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A scratch path next to `path`, which replaces it when the block ends without an error.

    Readers see the old file or the new one, never a part of it. Missing folders are created. With `sync` the
    new file also survives a power failure; use ``sync=False`` for files that are written often and may be
    lost.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(error, path) from None
    with _scratch(path, sync, lambda scratch: scratch.replace(path)) as scratch:
        yield scratch


@contextlib.contextmanager
def _scratch(path: Path, sync: bool, name: Callable[[Path], object]) -> Iterator[Path]:
    """A scratch path next to `path`, to which `name` gives its name when the block ends without an error."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.unlink(missing_ok=True)  # may be left from a crash
        try:
            yield scratch
            if sync:
                with scratch.open("r+b") as file:  # not every system can sync a file that is open for reading
                    os.fsync(file.fileno())
            name(scratch)
        finally:
            scratch.unlink(missing_ok=True)
        if sync:
            sync_folder(path.parent)
    except OSError as error:
        raise write_error(error, path) from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure, on systems that support it."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def sync_all(folder: Path) -> None:
    """Make all files of a folder survive a power failure: one sync for many files written without it."""
    if sys.platform == "linux":  # elsewhere this may return before the files are written
        os.sync()
        return
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError), open(os.path.join(place, name), "r+b") as file:
                os.fsync(file.fileno())
        sync_folder(Path(place))


def write(path: Path, data: bytes, mode: int = 0o644, *, sync: bool = True) -> None:
    """Write a file atomically: see ``replacing``."""
    with replacing(path, sync=sync) as scratch:
        _fill(scratch, data, mode)


def write_new(
    path: Path, data: bytes, mode: int = 0o644, *, sync: bool = True, fix: str = "Use it, or move it away"
) -> None:
    """Write a file atomically that must not exist yet, in an existing folder.

    Without `sync` see ``sync_all``. `fix` is what the user can do if the file exists.
    """
    exists = InputError("the file already exists, and is never overwritten", where=str(path), fix=fix)

    def name(scratch: Path) -> None:
        try:
            os.link(scratch, path)  # unlike a rename, it never overwrites a file
        except FileExistsError:
            raise exists from None
        except OSError:  # not every file system has links
            if os.path.lexists(path):
                raise exists from None
            scratch.rename(path)

    if os.path.lexists(path):
        raise exists
    with _scratch(path, sync, name) as scratch:
        _fill(scratch, data, mode)


def _fill(scratch: Path, data: bytes, mode: int) -> None:
    """Write a new file that has this mode from the beginning, to protect secrets."""
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def read(path: Path, fix: str, newest: int = SCHEMA) -> dict[str, Any]:
    """The JSON object in a file that bestarm wrote, with a schema up to `newest`."""
    try:
        plain: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=str(path), fix=fix) from None
    except ValueError as error:
        raise InputError(f"this is not JSON ({error})", where=str(path), fix=fix) from None
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or type(schema) is not int or schema < 1:
        raise InputError("was not written by bestarm", where=str(path), expected=f"schema {newest}", fix=fix)
    if schema > newest:
        raise InputError(
            f"was written by a newer version of bestarm (schema {schema})",
            where=str(path),
            expected=f"schema {newest} or older",
            fix="Install the newer version here",
        )
    return plain
