"""Connections to the broker: logging in with an nkey, publishing until it is stored, reading a consumer.

NATS redelivers, repeats and comes back in its own time; what is sent twice is the same bytes, and whoever
receives it puts it in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.federation.broker import Unreachable
from bestarm.federation.files import Nkey

try:
    import nats.errors
    from nats.aio.client import Client as Nats
except ImportError:
    raise InputError(
        'a federation needs the package "nats-py"', fix='Install it with: pip install "bestarm[federation]"'
    ) from None

CONNECT_SECONDS = 6.0
PULL_SECONDS = 5.0  # how long a consumer's request stays open
LATE_SECONDS = 5.0  # that a message waits for its stream before anyone is told; then twice that, and so on
log = logging.getLogger("bestarm.federation")


async def connect(
    url: str, nkey: Nkey, ca: Path, name: str, inbox: str, on_back: Callable[[], None] = lambda: None
) -> Nats:
    """A connection that comes back by itself; ``Unreachable`` if the first attempt does not succeed.

    With tls:// nothing is said before the broker has shown its certificate, so that nobody on the way can
    talk us out of TLS.
    """
    nc, last, hopeless = Nats(), ["no answer"], asyncio.Event()

    async def on_error(error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text != last[0]:  # before it is connected, who waits for that hears of it
            log.log(
                logging.WARNING if nc.connected_url or nc.is_reconnecting else logging.INFO,
                "%s: %s",
                url,
                text,
            )
        if not hopeless.is_set():
            last[0] = text
        if any(word in text.lower() for word in ("authorization", "certificate")):
            hopeless.set()

    async def on_reconnect() -> None:
        log.info("%s: connected again", url)
        on_back()

    try:
        context = ssl.create_default_context(cafile=str(ca) if ca.exists() else None)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"is no certificate ({error})", where=str(ca)) from None
    connecting = nc.connect(
        servers=[url],
        name=name,
        nkeys_seed_str=nkey.seed,
        tls=context,
        tls_handshake_first=url.startswith("tls:"),
        inbox_prefix=inbox.encode(),
        error_cb=on_error,
        reconnected_cb=on_reconnect,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.25,  # type: ignore[arg-type]
        connect_timeout=3,
        ping_interval=5,  # a line that is dead in silence is noticed after three of them
        max_outstanding_pings=2,
    )
    attempt, refusal = asyncio.ensure_future(connecting), asyncio.ensure_future(hopeless.wait())
    try:
        await asyncio.wait({attempt, refusal}, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not attempt.done():
            raise TimeoutError
        attempt.result()
    except (TimeoutError, OSError, nats.errors.Error, ssl.SSLError) as error:
        why = last[0] if isinstance(error, TimeoutError) or hopeless.is_set() else str(error)
        raise Unreachable(f"{url}: {_plain(why)}") from None
    finally:
        refusal.cancel()
        if not attempt.done() or attempt.cancelled() or attempt.exception():
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(nc.close(), 2)
    return nc


def _plain(why: str) -> str:
    low = why.lower()
    if "authorization" in low:
        return "the broker refuses this key (it was revoked, or belongs to another federation)"
    if "certificate" in low:
        what = "the broker's certificate is not the one that is expected"
        return f"{what}: this folder may be of another federation, or of an older init ({why})"
    return why


async def publish(
    nc: Nats, subject: str, data: bytes, identifier: str = "", late: Callable[[], None] = lambda: None
) -> None:
    """Returns when the stream has it. After a time-out the same bytes go out again.

    `late` is called when a broker that is there does not store it for long.

    Each time-out is longer than the one before: a broker that is behind must not get more to do for it.
    A broker drops a second message with an id that it knows, whoever used it first. So only the server, alone
    on its stream, gives ids; what a client sends twice the server's slots sort out.
    """
    headers = {"Nats-Msg-Id": identifier} if identifier else None
    pause, timeout, wait, since = 0.05, 2.0, LATE_SECONDS, time.monotonic()
    while True:
        try:
            answer = await nc.request(subject, data, timeout=timeout, headers=headers)
            if "error" not in (said := json.loads(answer.data)):
                return
            why = str(said["error"])
        except (nats.errors.Error, OSError, ValueError) as error:
            if nc.is_closed:
                raise Unreachable(str(error)) from None
            why = str(error) or type(error).__name__
        if not nc.is_connected:
            since = time.monotonic()
        elif time.monotonic() - since > wait:
            wait *= 2
            log.warning("the broker does not store %s (%s); it is tried again and again", subject, why)
            late()
        log.info("%s: %s; sent again", subject, why)
        await asyncio.sleep(pause)
        pause, timeout = min(2 * pause, 1.0), min(2 * timeout, 30.0)


class Feed:
    """A durable pull consumer, asked on `subject` and read as its messages come."""

    def __init__(self, nc: Nats, subject: str, batch: int = 256) -> None:
        self.nc, self.subject, self.batch, self.left, self.until = nc, subject, batch, 0, 0.0
        self.inbox = nc.new_inbox()
        self.sub: Any = None
        self.found: list[Any] = []
        self.there = asyncio.Event()

    async def _arrived(self, message: Any) -> None:
        self.found.append(message)
        self.there.set()

    def again(self) -> None:
        """Ask anew: what was asked before may be lost."""
        self.until = 0.0

    async def next(self, timeout: float) -> list[Any]:
        """The messages that are there, or that come within `timeout` seconds."""
        try:
            if self.sub is None:
                self.sub = await self.nc.subscribe(self.inbox, cb=self._arrived)
            now = time.monotonic()
            if self.left <= 0 or now >= self.until:
                self.left, self.until = self.batch, now + PULL_SECONDS
                wish = {"batch": self.batch, "expires": int(PULL_SECONDS * 1e9)}
                await self.nc.publish(self.subject, json.dumps(wish).encode(), reply=self.inbox)
        except nats.errors.Error:  # the connection is gone, or coming back
            await asyncio.sleep(0.1)
        if not self.found:
            self.there.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.there.wait()
        found, self.found = self.found, []
        messages = [m for m in found if not (m.headers and "Status" in m.headers)]
        if len(messages) < len(found):
            self.left = 0
            if not messages:  # an empty answer: don't ask again at once
                await asyncio.sleep(0.02)
        self.left -= len(messages)
        return messages


async def acknowledge(messages: list[Any]) -> None:
    """Tell the broker that these are on the disk; one that does not hear it brings them again."""
    with contextlib.suppress(nats.errors.Error):
        for message in messages:
            await message.ack()
