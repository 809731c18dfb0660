"""What every process on a real machine needs: files that are written whole or not at all, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec

from bestarm.errors import InputError

SCHEMA = 1


class Interrupted(Exception):
    """The operator stopped it; it goes on when it is run again."""


def until_stopped(main: Any) -> Any:
    """Run a coroutine to its end. Ctrl-C and SIGTERM end it cleanly, and raise ``Interrupted``."""

    async def guarded() -> Any:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted from None

    return asyncio.run(guarded())


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_json(value: Any) -> bytes:
    """A text for people and programs (msgspec: the standard encoder is slow with a thousand clients)."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write whole or not at all."""
    try:
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None


def read(path: Path, fix: str) -> Any:
    """The JSON object in a file of ours."""
    try:
        plain = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=str(path), fix=fix) from None
    except ValueError as error:
        raise InputError(f"this is not JSON ({error})", where=str(path), fix=fix) from None
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise InputError(
            "was not written by this version of bestarm", where=str(path), expected=f"schema {SCHEMA}"
        )
    return plain
