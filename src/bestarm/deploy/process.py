"""Helpers for a process on a real machine: required packages, ports, clean shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from types import FrameType
from typing import TypeVar

from bestarm.errors import InputError

T = TypeVar("T")
Work = Coroutine[object, None, T]  # what calling an async function returns
Handler = Callable[[int, FrameType | None], object] | int | None  # of a signal

STOPS = (signal.SIGINT, signal.SIGTERM)

PORTS = range(20_000, 32_000)  # outside the range that the system assigns by itself
_given: set[int] = set()  # ports

# extra -> module that is imported -> package that provides it
PACKAGES = {
    "federation": {"cryptography": "cryptography", "nkeys": "nkeys", "nats": "nats-py"},
    "mesh": {"cryptography": "cryptography", "grpc": "grpcio"},
}


class Interrupted(Exception):
    """The operator stopped the process; it resumes when it is run again."""


def checkpoint() -> None:
    """Raise CancelledError if the current task was asked to stop.

    A library can swallow a cancellation: ``asyncio.wait_for`` does before Python 3.12 if the cancellation
    arrives as its future completes. So a loop that calls libraries checks by itself. Clean-up must not.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def cancellable(work: Awaitable[T]) -> T:
    """Await `work` and return its result; raise CancelledError even if `work` swallows the cancellation."""
    try:
        return await work
    finally:
        checkpoint()


def until_stopped(main: Work[T]) -> T:
    """Run a coroutine until it completes. Ctrl-C and SIGTERM stop it cleanly and raise ``Interrupted``.

    Another signal interrupts a step of the clean-up that hangs. After ``Interrupted`` both signals stay
    ignored, so that a late one does not change the exit code of a process that has stopped cleanly.
    """

    async def guarded() -> T:
        task = asyncio.create_task(main)
        loop = asyncio.get_running_loop()

        def stop(number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(task.cancel)

        _handle(stop)  # handlers of the loop would end with it, and restore the default ones
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted from None

    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        result = asyncio.run(guarded())
    except Interrupted:
        _handle(signal.SIG_IGN)
        raise
    except BaseException:
        _restore(before)
        raise
    _restore(before)
    return result


def _handle(handler: Handler) -> None:
    """Handle both signals like this; outside the main thread nothing is changed."""
    _restore(dict.fromkeys(STOPS, handler))


def _restore(handlers: Mapping[signal.Signals, Handler]) -> None:
    with contextlib.suppress(ValueError):  # not the main thread
        for number, handler in handlers.items():
            if handler is not None:  # None: not installed by Python
                signal.signal(number, handler)


async def together(*works: Work[object], beside: Iterable[Work[object]] = ()) -> None:
    """Run all `works` until they complete; tasks in `beside` run meanwhile and are then cancelled.

    The first error cancels all of them and is raised itself, not in a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(work) for work in beside]
            for task in [group.create_task(work) for work in works]:
                await task
            for helper in helpers:
                helper.cancel()
    except BaseExceptionGroup as errors:
        checkpoint()  # an error of one part must not hide that all of them were asked to stop
        error = first_error(errors)
        raise error from error.__cause__
    checkpoint()


def first_error(errors: BaseException) -> BaseException:
    """The first error in a group, at any depth.

    >>> first_error(ExceptionGroup("", [ExceptionGroup("", [OSError("disk")]), ValueError()]))
    OSError('disk')
    """
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within this context SIGTERM acts like Ctrl-C, so that this process also stops its children.

    After a SIGTERM both signals stay ignored, so that they do not interrupt that or change the exit code.
    """

    def end(number: int, frame: FrameType | None) -> None:
        _handle(signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)


def demand_packages(extra: str) -> None:
    """Raise InputError if a package of this extra is missing, before anything is created."""
    for module, package in PACKAGES[extra].items():
        if importlib.util.find_spec(module) is None:
            raise InputError(
                f'a {extra} needs the package "{package}"',
                fix=f'Install it with: pip install "bestarm[{extra}]"',
            )


def free_port() -> int:
    """A port on which nothing listens now, one of PORTS.

    It is a random one, and a process gets each port only once, so that it can be used some time later.
    """
    while True:
        port = secrets.choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
