"""What a process on a real machine needs: the terms of its run, files that are written whole, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem import Layout, Problem
from bestarm.protocol import Method, method_for
from bestarm.protocol.options import make
from bestarm.rewards import Scale
from bestarm.simulate import on_unit_scale

SCHEMA = 1
_ports = itertools.count()
# extra -> what its rooms import -> the package that has it
PACKAGES = {
    "federation": {"cryptography": "cryptography", "nkeys": "nkeys", "nats": "nats-py"},
    "mesh": {"cryptography": "cryptography", "grpc": "grpcio"},
}


@dataclass(frozen=True)
class Terms:
    """What all parties know of a run: its id, the method, its options, and the problem without its means."""

    run: bytes
    method: str
    keys: dict[str, Any]
    problem: dict[str, Any]

    @cached_property
    def layout(self) -> Layout:
        return Problem.layout_from_dict(self.problem)[0]

    @cached_property
    def scale(self) -> Scale:
        return Problem.layout_from_dict(self.problem)[1]

    @cached_property
    def room(self) -> Method:
        return method_for(self.method, self.layout)

    @cached_property
    def options(self) -> Any:
        return make(self.room.options, self.keys, where="options")

    @cached_property
    def unit(self) -> Any:
        """The options as the machines have them."""
        return on_unit_scale(self.options, self.scale)


def without_means(problem: Problem) -> dict[str, Any]:
    """A problem as all parties may know it; rewards come from elsewhere, so no file stands behind it."""
    plain = {key: value for key, value in problem.to_dict().items() if key != "data"}
    groups = [{k: v for k, v in group.items() if k != "rewards"} for group in plain["groups"]]
    return {**plain, "groups": groups}


class Interrupted(Exception):
    """The operator stopped it; it goes on when it is run again."""


def until_stopped(main: Any) -> Any:
    """Run a coroutine to its end. Ctrl-C and SIGTERM end it cleanly, and raise ``Interrupted``."""

    async def guarded() -> Any:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows, or not the main thread
                loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted from None

    return asyncio.run(guarded())


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within it SIGTERM ends this process like Ctrl-C, so that it ends its children, too."""

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def demand_packages(extra: str) -> None:
    """InputError if a package is missing that this extra brings: said before anything is made."""
    for module, package in PACKAGES[extra].items():
        if importlib.util.find_spec(module) is None:
            raise InputError(
                f'a {extra} needs the package "{package}"',
                fix=f'Install it with: pip install "bestarm[{extra}]"',
            )


def free_port() -> int:
    """A port that nobody listens on now, and that the system gives to no caller.

    One process is given each once, and processes begin far apart: a port may be used some time later.
    """
    while True:
        port = 20_000 + (997 * os.getpid() + next(_ports)) % 12_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


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
