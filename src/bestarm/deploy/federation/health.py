"""Whether the broker stores messages, how long a round has waited, and restarts of a broker that is stuck.

A broker with a full disk, or a cluster without a majority, stays connected but stores nothing, and a stream
that failed to write refuses messages until the broker is restarted. So ``Health`` publishes a small message
to each stream every few seconds. Its clock counts only the time in which both streams are known to store
messages; ``Patience`` is measured on that clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bestarm.deploy.federation.broker import Broker
from bestarm.protocol.machine import ServerMachine

PROBE_SECONDS, AGAIN_SECONDS = 2.0, 0.5  # between two questions to the streams; while they store nothing

LONGEST_STEP = 10.0  # counted at most between two answers: the server itself may have been suspended

RETURN_SECONDS = 30.0  # after an outage a round waits at least this long, because clients have to reconnect

RESTART_SECONDS, LONGEST_PAUSE = 10.0, 300.0  # before the broker is restarted, doubled each time, up to this

SILENT_SECONDS = (
    60.0  # before that, if the broker reports no error: it may be slow, and a restart is work, too
)

TRIAL_BYTES = 1 << 20  # that must fit on the disk before the broker is restarted

log = logging.getLogger("bestarm.federation")


class Health:
    """Asks repeatedly whether the broker stores messages, and keeps the time in which it does.

    Parameters
    ----------
    ask : callable
        Returns why nothing is stored now, or "" if messages are stored.
    advice : str
        What the operator can do if nothing is stored.
    """

    def __init__(self, ask: Callable[[], Awaitable[str]], advice: str = "") -> None:
        self.ask, self.advice = ask, advice
        self.trouble = "the server is starting"
        self.since = time.monotonic()  # when this trouble began
        self.clock = 0.0  # seconds in which messages were stored, up to the last answer
        self.back = 0.0  # the clock at the end of the last outage
        self.answered = 0.0  # when the last answer came
        self.wanted = asyncio.Event()  # ask now

    async def watch(self) -> None:
        """Ask for ever."""
        while True:
            self.wanted.clear()
            self.hear(await self.ask())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS if self.trouble else PROBE_SECONDS):
                    await self.wanted.wait()

    def hear(self, trouble: str) -> None:
        """Take an answer: a reason why nothing is stored, or "" if messages are stored."""
        now, before = time.monotonic(), self.trouble
        if not trouble and not before:
            self.clock += min(now - self.answered, LONGEST_STEP)
        elif not trouble:
            self.back = self.clock
            log.log(
                logging.WARNING if self.answered else logging.INFO,
                "the broker stores messages (before: %s)",
                before,
            )
        elif not before:
            self.since = now
            log.warning("%s; patience does not run until messages are stored again%s", trouble, self.advice)
        if not trouble:
            self.answered = now
        self.trouble = trouble

    def now(self) -> float:
        """The clock, with an estimate of the time since the last answer."""
        return self.clock + (0.0 if self.trouble else min(time.monotonic() - self.answered, LONGEST_STEP))


class Patience:
    """How long the current round has waited. Time in which nothing could be stored does not count."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.round, self.began = -1, 0.0  # the round, and when its wait began

    def restart(self, machine: ServerMachine) -> None:
        """Let the wait of this round begin now."""
        self.round, self.began = machine.round, self.health.now()

    def left(self, machine: ServerMachine, limit: float, waits: bool) -> float:
        """Seconds until the round has waited for `limit` seconds; `waits` is whether it waits at all."""
        if machine.round != self.round or not machine.ticking or not waits:
            self.restart(machine)
        return max(0.0, self._end(limit) - self.health.now())

    def over(self, limit: float) -> bool:
        """Whether the time is up. If that depends on the time since the last answer, ask first."""
        if self.health.clock >= self._end(limit):
            return True
        if self.health.now() >= self._end(limit):
            self.health.wanted.set()
        return False

    def _end(self, limit: float) -> float:
        return max(self.began + limit, self.health.back + min(limit, RETURN_SECONDS))


class Restarts:
    """Restarts an embedded broker that stores nothing although its disk has space, less and less often."""

    def __init__(self, broker: Broker, health: Health) -> None:
        self.broker, self.health = broker, health
        self.pause, self.next = RESTART_SECONDS, 0.0
        self.full = False  # the disk is known to be full
        self.reported = False  # the broker has reported that it can't store messages

    def hear(self, text: str) -> None:
        """Take an error from the broker's log."""
        self.reported |= "jetstream" in text.lower() or "filestore" in text.lower()

    async def check(self) -> None:
        """Restart the broker if that is due."""
        now = time.monotonic()
        if not self.health.trouble:
            self.pause, self.next, self.full, self.reported = RESTART_SECONDS, 0.0, False, False
            return
        wait = RESTART_SECONDS if self.reported else SILENT_SECONDS
        if now < max(self.health.since + wait, self.next):
            return
        if not await asyncio.to_thread(has_space, self.broker.store):
            if not self.full:
                log.warning(
                    "%s: the disk is full; the broker is restarted when it has space", self.broker.store
                )
            self.full = True
            self.next = now + PROBE_SECONDS
            return
        self.full, self.next, self.pause = False, now + self.pause, min(2 * self.pause, LONGEST_PAUSE)
        log.warning("the broker stores nothing although its disk has space; restarting it")
        self.broker.stop()
        self.broker.start()


def has_space(folder: Path) -> bool:
    """Whether a file of some size can be written in this folder."""
    path = folder / ".space"
    try:
        with path.open("wb", buffering=0) as file:
            left = TRIAL_BYTES
            while left:
                left -= file.write(bytes(left)) or 0
            os.fsync(file.fileno())
        return True
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
