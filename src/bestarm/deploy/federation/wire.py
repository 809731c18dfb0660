"""Connections to the broker: logging in with an nkey, publishing until stored, reading a consumer.

NATS may redeliver, repeat and reconnect at any time. A message that is sent twice has the same bytes, and the
receiver puts messages in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from bestarm.deploy.federation.broker import SECOND_CONNECTION, Unreachable
from bestarm.deploy.federation.keys import Nkey, addresses
from bestarm.deploy.process import cancellable
from bestarm.errors import InputError

try:
    import nats.errors
    from nats.aio.client import Client as Nats
    from nats.protocol.command import hpub_cmd, pub_cmd
except ImportError:
    raise InputError(
        'a federation needs the package "nats-py"', fix='Install it with: pip install "bestarm[federation]"'
    ) from None


CONNECT_SECONDS = 6.0
PULL_SECONDS = 15.0  # how long a consumer's request stays open
EXPIRED = "408"  # the status of a request that was open for so long
STATUS_LINE = b"NATS/1.0 "  # begins the headers of a message about a request; others have no status
# The wait for messages that share a write with the first one: for each that is missing, at least and at most.
EACH_SECONDS, GATHER_SECONDS, LONGEST_GATHER = 0.0001, 0.005, 0.02
REFUSED_SECONDS = 0.2  # before another request, if the broker refuses one
SLOW_SYNC = 0.005  # seconds
LATE_SECONDS = 5.0  # wait for the stream before a warning, doubled each time
FINAL = ("authorization", "certificate", SECOND_CONNECTION)  # waiting does not help
log = logging.getLogger("bestarm.federation")


class Taken(Unreachable):
    """Another process is connected with this key."""


class Connection(Nats):
    """A connection that sends at once, and gets the answers to all its messages on one inbox.

    nats-py leaves sending to a task, which runs after everything else that is ready, and wakes a task for
    each message that it hears. Its ``request`` makes a random name and several futures for each message.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[int, Callable[[Any], None]] = {}  # by subscription: what takes its messages at once
        self.answers = ""  # the inbox
        self.asked = 0
        self.waiting: dict[str, asyncio.Future[Any]] = {}  # by reply subject

    async def listen(self, subject: str, heard: Callable[[Any], None]) -> None:
        """Subscribe. `heard` takes each message as soon as it is read, and must not raise.

        Of the headers it sees a status only.
        """

        async def by_task(message: Any) -> None:  # the subscription's number is not known yet
            heard(message)

        subscription = await cancellable(self.subscribe(subject, cb=by_task))
        self.heard[subscription._id] = heard

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        heard = self.heard.get(sid)
        if heard is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        status = await self._process_headers(headers) if headers and headers.startswith(STATUS_LINE) else None
        heard(self._build_message(sid, subject, reply, data, status))

    async def ask(
        self, subject: str, data: bytes, timeout: float, headers: dict[str, str] | None = None
    ) -> bytes:
        """Return the answer to a message; TimeoutError if there is none in time."""
        if not self.answers:
            answers = self.new_inbox()
            await self.listen(f"{answers}.*", self._answered)
            self.answers = answers
        return await self.answer(self.begin(subject, data, headers), timeout)

    def begin(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> str:
        """Send a message now; ``answer`` takes what this returns, and waits for the answer.

        It needs the inbox that the first ``ask`` makes.
        """
        self.asked += 1
        reply = f"{self.answers}.{self.asked}"
        self.post(subject, data, reply, headers)
        self.push()
        self.waiting[reply] = asyncio.get_running_loop().create_future()
        return reply

    async def answer(self, reply: str, timeout: float) -> bytes:
        """Return the answer to the message that ``begin`` sent; TimeoutError if there is none in time."""
        found = self.waiting[reply]
        timer = asyncio.get_running_loop().call_later(timeout, _end, found)
        try:
            message = await found
        finally:
            timer.cancel()
            del self.waiting[reply]
        if message is None:
            raise nats.errors.TimeoutError
        if message.headers and "Status" in message.headers:
            raise nats.errors.NoRespondersError
        return bytes(message.data)

    def post(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Add a message to those that ``push`` sends."""
        if not self.is_connected:
            raise nats.errors.ConnectionClosedError
        if headers is None:
            command = pub_cmd(subject, reply, data)
        else:
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            command = hpub_cmd(subject, reply, f"NATS/1.0\r\n{lines}\r\n".encode(), data)
        self._pending.append(command)
        self._pending_data_size += len(command)

    def push(self) -> None:
        """Send what is pending in one piece: as a list, each part would be a TLS record of its own."""
        if self._pending and self.is_connected and self._transport is not None:
            pending, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.write(b"".join(pending))

    def _answered(self, message: Any) -> None:
        found = self.waiting.get(message.subject)
        if found is not None and not found.done():
            found.set_result(message)


def _end(waiting: asyncio.Future[Any]) -> None:
    """End the wait for this without a result."""
    if not waiting.done():
        waiting.set_result(None)


async def connect(
    url: str,
    nkey: Nkey,
    ca: Path,
    name: str,
    inbox: str,
    on_back: Callable[[], None] | None = None,
    on_lost: Callable[[], None] = lambda: None,
) -> Connection:
    """Open a connection; ``Unreachable`` if that fails, ``Taken`` if another process uses the key.

    With `on_back` a lost connection is made again, and `on_back` is then called; otherwise it stays closed,
    and `on_lost` is called.
    With tls:// nothing is sent before the TLS handshake, so that nobody in between can downgrade the
    connection.
    """
    nc, last, hopeless = Connection(), ["no answer"], asyncio.Event()

    async def on_error(error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text != last[0]:  # before the first connection, the caller reports it
            log.log(
                logging.WARNING if nc.connected_url or nc.is_reconnecting else logging.INFO,
                "%s: %s",
                url,
                text,
            )
        if not hopeless.is_set():
            last[0] = text
        if any(word in text.lower() for word in FINAL):
            hopeless.set()

    async def on_reconnect() -> None:
        log.info("%s: connected again", url)
        if on_back is not None:
            on_back()

    async def on_closed() -> None:
        on_lost()

    try:
        context = _context(ca.read_text() if ca.exists() else None)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise InputError(f"is not a certificate ({error})", where=str(ca)) from None
    connecting = nc.connect(
        servers=addresses(url),
        name=name,
        nkeys_seed_str=nkey.seed,
        tls=context,
        tls_handshake_first=url.startswith("tls:"),
        inbox_prefix=inbox.encode(),
        error_cb=on_error,
        reconnected_cb=on_reconnect,
        closed_cb=on_closed,
        allow_reconnect=on_back is not None,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.25,  # type: ignore[arg-type]
        connect_timeout=CONNECT_SECONDS / 2,  # type: ignore[arg-type]
        ping_interval=5,  # a silently dead connection is noticed after three pings
        max_outstanding_pings=2,
    )
    attempt, refusal = asyncio.ensure_future(connecting), asyncio.ensure_future(hopeless.wait())
    try:
        await asyncio.wait({attempt, refusal}, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not attempt.done():
            raise TimeoutError
        attempt.result()
    except (TimeoutError, OSError, nats.errors.Error, ssl.SSLError) as error:
        why = str(error) or type(error).__name__
        if isinstance(error, TimeoutError) or hopeless.is_set():
            why = last[0]
        kind = Taken if FINAL[-1] in why.lower() else Unreachable
        raise kind(f"{url}: {_plain(why)}") from None
    finally:
        refusal.cancel()
        if not attempt.done() or attempt.cancelled() or attempt.exception():
            while not attempt.done():  # nats-py can swallow a cancellation
                attempt.cancel()
                await asyncio.wait({attempt}, timeout=0.2)
            await asyncio.gather(attempt, return_exceptions=True)  # so that its error counts as read
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await nc.close()
    return nc


@lru_cache(maxsize=8)
def _context(authorities: str | None) -> ssl.SSLContext:
    """Trust these certificates, or the system's. Connections of one process share it."""
    if authorities is not None and not authorities.strip():
        raise ssl.SSLError("the file is empty")
    return ssl.create_default_context(cadata=authorities)


def _plain(why: str) -> str:
    low = why.lower()
    if "authorization" in low:
        return "the broker refuses this key (it was revoked or cut off, or belongs to another federation)"
    if "certificate" in low:
        what = "the broker's certificate is not the expected one"
        return f"{what}: this folder may belong to another federation or an older init ({why})"
    return "another process is connected with this client's key" if FINAL[-1] in low else why


async def publish(
    nc: Connection,
    subject: str,
    data: bytes,
    identifier: str = "",
    late: Callable[[], None] = lambda: None,
    longest: float = 30.0,
    shortest: float = 2.0,
    begun: str = "",
) -> None:
    """Publish a message and return when the stream has stored it. After a timeout, send it again.

    `late` is called when a connected broker does not store the message for a long time. The first timeout is
    `shortest` seconds (see ``storing_seconds``). `begun` comes from ``Connection.begin``, if that has sent
    the message for the first time.

    Each timeout is longer than the one before, up to `longest` seconds, so as not to add load to a slow
    broker. A broker drops a message whose id it has seen, no matter who used it first. So only the server,
    which alone writes to its stream, sets ids; repeated messages from clients are handled by the server's
    slots.
    """
    headers = {"Nats-Msg-Id": identifier} if identifier else None
    pause, timeout, wait, since = 0.05, shortest, max(LATE_SECONDS, shortest), time.monotonic()
    while True:
        try:
            asking = nc.answer(begun, timeout) if begun else nc.ask(subject, data, timeout, headers)
            begun = ""
            answer = await cancellable(asking)
            if "error" not in (said := json.loads(answer)):
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
            log.warning("the broker does not store %s (%s); still trying", subject, why)
            late()
        log.info("%s: %s; sending again", subject, why)
        await asyncio.sleep(pause)
        pause, timeout = min(2 * pause, 1.0), min(2 * timeout, longest)


def storing_seconds(clients: int) -> float:
    """How long a broker may take to store one message of each client, with a sync of its disk for each.

    A client that sends its message again before that only adds to the load.

    >>> storing_seconds(100), storing_seconds(5000)
    (2.0, 25.0)
    """
    return max(2.0, clients * SLOW_SYNC)


def gather_seconds(missing: int) -> float:
    """How long to wait for messages that share a write, if so many are missing.

    A round waits for all of them anyway, and a write to the journal delays the broker on the same disk.

    >>> gather_seconds(16), gather_seconds(100), gather_seconds(5000)
    (0.005, 0.01, 0.02)
    """
    return max(GATHER_SECONDS, min(LONGEST_GATHER, missing * EACH_SECONDS))


async def request(nc: Connection, subject: str, data: bytes, timeout: float) -> bytes:
    """Return the answer to a request; empty if there is none in time."""
    try:
        return await cancellable(nc.ask(subject, data, timeout))
    except (nats.errors.Error, OSError):
        return b""


async def send(nc: Nats, subject: str, data: bytes) -> None:
    """Send a message that may be lost."""
    with contextlib.suppress(nats.errors.Error, OSError):
        await nc.publish(subject, data)


class Feed:
    """A durable pull consumer: sends requests to `subject` and reads messages as they arrive."""

    def __init__(self, nc: Connection, subject: str, batch: int = 256, seconds: float = PULL_SECONDS) -> None:
        self.nc, self.subject, self.batch, self.seconds = nc, subject, batch, seconds
        self.left, self.until = 0, 0.0  # of the last request
        self.inbox = nc.new_inbox()
        self.open = False
        self.found: list[Any] = []
        self.enough = 1  # messages that end a wait
        self.woken = False
        self.waiting: asyncio.Future[Any] | None = None

    def _arrived(self, message: Any) -> None:
        self.found.append(message)
        if len(self.found) >= self.enough:
            self.wake()

    def wake(self) -> None:
        """Let ``next`` return now."""
        self.woken = True
        if self.waiting is not None:
            _end(self.waiting)

    async def _wait(self, timeout: float | None) -> None:
        """Wait until something arrives or ``wake`` is called. An ``asyncio.timeout`` costs more."""
        loop = asyncio.get_running_loop()
        self.waiting = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, _end, self.waiting)
        try:
            await self.waiting
        finally:
            if timer is not None:
                timer.cancel()
            self.waiting = None

    def again(self) -> None:
        """Request again, because earlier requests may be lost."""
        self.until = 0.0

    async def next(self, timeout: float | None, enough: int = 1) -> list[Any]:
        """Return the messages that are there or arrive; none after `timeout` seconds, or after ``wake``.

        If there are some, but fewer than `enough`, it waits a moment for more: see ``gather_seconds``.
        """
        try:
            if not self.open:
                await self.nc.listen(self.inbox, self._arrived)
                self.open = True
            now = time.monotonic()
            if self.left <= 0 or now >= self.until:
                wish = {"batch": self.batch, "expires": int(self.seconds * 1e9)}
                self.nc.post(self.subject, json.dumps(wish).encode(), self.inbox)
                self.nc.push()
                self.left, self.until = self.batch, now + self.seconds
        except nats.errors.Error:  # disconnected or reconnecting
            await asyncio.sleep(0.1)
        if not self.found and not self.woken:
            await self._wait(timeout)
        enough = min(enough, self.left)  # no more come before another request
        if 0 < len(self.found) < enough:
            self.enough = enough
            try:
                await self._wait(gather_seconds(enough))
            finally:
                self.enough = 1
        self.woken = False
        found, self.found = self.found, []
        messages = [m for m in found if not (m.headers and "Status" in m.headers)]
        if len(messages) < len(found):
            self.left = 0
            if not messages and found[-1].headers["Status"] != EXPIRED:  # no consumer, or no leader
                await asyncio.sleep(REFUSED_SECONDS)
        self.left -= len(messages)
        return messages


def acknowledge(nc: Connection, messages: Iterable[Any], *, later: bool = False) -> None:
    """Tell the broker that these are on disk. If the acknowledgement is lost, they are delivered again.

    With `later` this is sent with the next message.
    """
    with contextlib.suppress(nats.errors.Error):
        for message in messages:
            nc.post(message.reply)
    if not later:
        nc.push()
