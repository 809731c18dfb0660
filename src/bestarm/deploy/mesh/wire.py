"""gRPC between neighbours, with mutual TLS: raw bytes, one client-streaming call per directed edge.

A sender is identified by its whole certificate, which must be one of the pinned ones. ``Gate`` is the server:
one live stream per sender (a new one ends the old), bounded messages at a bounded rate, and a receipt when
the node no longer needs any reports. ``Line`` sends a node's whole outbox to one neighbour, from the start
on every new stream, then new messages as they come. The neighbour's own reports are sent back to it first,
the newest at the beginning; before a node has heard its own from a neighbour, it tells that one nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from bestarm.deploy.mesh.certificates import HOST, fingerprint
from bestarm.deploy.mesh.files import Neighbour, Place
from bestarm.deploy.mesh.node import MAX_REPORT, MAX_SUMMARY
from bestarm.deploy.process import checkpoint
from bestarm.errors import InputError
from bestarm.version import __version__

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # otherwise every refused connection prints a line on stderr


try:
    import grpc
    import grpc.aio
except ImportError:
    raise InputError(
        'a mesh needs the package "grpcio"', fix='Install it with: pip install "bestarm[mesh]"'
    ) from None


SERVICE = "bestarm.Mesh"
MAX_WORD = 1 + 4 + 2 * MAX_SUMMARY  # bytes: evidence is two reports
MAX_MESSAGE = 1 << 17  # bytes: pending words are sent together
TOGETHER = 1 << 14  # bytes: a message with this many waits for no further words
RATE, BURST = 500.0, 2000.0  # reports per sender: per second, and at once; a long one counts as several
RETRY = 0.2  # seconds

BOTH = [
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", 1 << 20),
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

SERVER = [
    *BOTH,
    ("grpc.so_reuseport", 0),  # otherwise a second process silently shares the port
    ("grpc.http2.min_ping_interval_without_data_ms", 4000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 4000),
    ("grpc.max_concurrent_streams", 8),
]

CLIENT = [
    *BOTH,
    ("grpc.enable_http_proxy", 0),  # otherwise a proxy variable diverts even loopback
    ("grpc.ssl_target_name_override", HOST),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
]


def pack(words: Sequence[bytes]) -> bytes:
    """Pack words into one message: the length of each word (4 bytes), then the word."""
    return b"".join(len(word).to_bytes(4, "big") + word for word in words)


def unpack(data: bytes) -> list[bytes]:
    """The words of a message; b"", which is not a word, replaces a rest that can't be read."""
    words: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if len(data) < at + 4 or end > len(data) or end > at + 4 + MAX_WORD:
            return [*words, b""]
        words.append(data[at + 4 : end])
        at = end
    return words


class Bucket:
    """A rate limit: ``take`` returns how long to wait before reading more."""

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self.rate, self.burst, self.left, self.at = rate, burst, burst, time.monotonic()

    def take(self, words: int) -> float:
        now = time.monotonic()
        self.left = min(self.burst, self.left + (now - self.at) * self.rate) - words
        self.at = now
        return max(0.0, -self.left / self.rate)


class Gate:
    """The server of a node. `deliver` is awaited for each sender and word; `done` allows receipts.

    After the first message of a stream, which has the newest of this node's own reports that the sender
    knows, `deliver` is awaited with the sender and None.
    """

    def __init__(
        self,
        place: Place,
        deliver: Callable[[str, bytes | None], Any],
        done: asyncio.Event,
        address: str | None = None,
    ) -> None:
        self.place, self.deliver, self.done = place, deliver, done
        self.address = address or place.address
        self.pins = {fingerprint(n.certificate): n for n in place.neighbours}
        self.live: dict[str, asyncio.Event] = {}  # set when a new stream replaces this one
        self.rates: dict[str, Bucket] = {}  # per sender, over all its streams
        self.answered: set[str] = set()
        self.turned_away = 0
        self.called = time.monotonic()  # when a stream last began
        self.words: Counter[str] = Counter()
        self.server: Any = None

    async def start(self) -> None:
        key, certificate = self.place.tls
        roots = "".join(n.certificate for n in self.place.neighbours).encode()
        credentials = grpc.ssl_server_credentials([(key, certificate)], roots, require_client_auth=True)
        self.server = grpc.aio.server(options=SERVER)
        methods = {
            "Report": grpc.stream_unary_rpc_method_handler(self._report),
            "Look": grpc.unary_unary_rpc_method_handler(self._look),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            self.server.add_secure_port(self.address, credentials)
        except RuntimeError:
            raise InputError(
                f"can't listen on {self.address}",
                expected="an address of this machine whose port is free",
                fix="Stop the other process, or use --listen",
            ) from None
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(1.0)

    def _who(self, context: Any) -> Neighbour | None:
        found = context.auth_context().get("x509_pem_cert", ())
        try:
            return self.pins.get(fingerprint(next(iter(found))))
        except (StopIteration, ValueError):
            return None

    async def _report(self, _: Any, context: Any) -> bytes:
        sender = self._who(context)
        if sender is None or not sender.hears:
            self.turned_away += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not a neighbour")
        assert sender is not None
        name, replaced = sender.name, asyncio.Event()
        if name in self.live:
            self.live[name].set()
        self.live[name] = replaced
        self.called = time.monotonic()
        rate = self.rates.setdefault(name, Bucket())
        try:
            async with _unless(replaced) as within:
                await within(asyncio.sleep(rate.take(1)))  # a new stream takes over the debt
                recall = True
                while (data := await within(context.read())) is not grpc.aio.EOF:
                    words = unpack(data)
                    wait = rate.take(max(len(words), len(data) // MAX_REPORT, 1))
                    self.words[name] += len(words)
                    for word in (*words, None) if recall else words:
                        await self.deliver(name, word)
                    recall = False
                    await within(asyncio.sleep(wait))
                await within(self.done.wait())
        except Replaced:
            await context.abort(grpc.StatusCode.ABORTED, "another stream took its place")
        finally:
            if self.live.get(name) is replaced:
                del self.live[name]
        self.answered.add(name)
        return b"done"

    async def _look(self, _: bytes, context: Any) -> bytes:
        """For ``mesh check``: the name, run and clock of this node."""
        sender = self._who(context)
        if sender is None:
            self.turned_away += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not a neighbour")
        assert sender is not None
        rate = self.rates.setdefault(sender.name, Bucket())
        if rate.take(0):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much at once")
        rate.take(1)
        facts = {"name": self.place.name, "run": self.place.setup.run.hex(), "time": time.time()}
        return json.dumps({**facts, "version": __version__}).encode()


class Replaced(Exception):
    """A newer stream of the same sender replaced this one."""


@contextlib.asynccontextmanager
async def _unless(event: asyncio.Event) -> AsyncIterator[Callable[[Any], Any]]:
    """Awaits in this context raise ``Replaced`` when the event is set."""
    end = asyncio.ensure_future(event.wait())

    async def within(main: Any) -> Any:
        task = asyncio.ensure_future(main)
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Replaced
            return task.result()
        finally:
            task.cancel()

    try:
        yield within
    finally:
        end.cancel()


def channel_to(neighbour: Neighbour, tls: tuple[bytes, bytes]) -> Any:
    """A channel that trusts only this neighbour's certificate."""
    credentials = grpc.ssl_channel_credentials(neighbour.certificate.encode(), *tls)
    return grpc.aio.secure_channel(neighbour.address, credentials, options=CLIENT)


class Line:
    """Sends a node's outbox to one neighbour that hears it."""

    def __init__(self, place: Place, to: Neighbour, outbox: Sequence[tuple[str, bytes]]) -> None:
        self.place, self.to, self.outbox = place, to, outbox
        self.wake, self.news = asyncio.Event(), asyncio.Event()
        self.ending = False  # the node expects nothing more to send
        self.at = 0  # position of this stream in the outbox
        self.own, self.others = deque[bytes](), deque[bytes]()  # still to be sent
        self.free = not to.hears  # whether the neighbour has sent back this node's own reports
        self.closed = False  # everything was sent; waiting for a receipt
        self.answered = False
        self.channel: Any = None
        self.words = self.messages = self.bytes = 0

    async def run(self) -> None:
        """Run until cancelled. Each new stream starts with the whole outbox."""
        self.channel = channel = channel_to(self.to, self.place.tls)
        try:
            report = channel.stream_unary(f"/{SERVICE}/Report")
            while True:
                checkpoint()
                self.begin()
                call = report(self._messages(), wait_for_ready=True)
                try:
                    await self._answer(call)
                except grpc.RpcError:
                    await asyncio.sleep(RETRY)
                finally:
                    call.cancel()
        finally:
            await channel.close()

    def begin(self) -> None:
        """Start a new stream. The neighbour's own reports go first: its journal may be an old copy."""
        self.at, self.closed = 0, False
        self.own = deque(data for source, data in reversed(self.outbox) if source == self.to.name)
        self.others = deque()

    @property
    def live(self) -> bool:
        """Whether the neighbour is connected."""
        return self.channel is not None and self.channel.get_state() is grpc.ChannelConnectivity.READY

    async def _messages(self) -> AsyncIterator[bytes]:
        own, others, first = self.own, self.others, True
        while own is self.own:  # otherwise a new stream has begun
            self.wake.clear()
            self._sort()
            while own or others or first:
                words: list[bytes] = []
                while (own or others) and sum(map(len, words)) < TOGETHER:
                    words += self.worded((own or others).popleft())
                if words or first:  # the first message is sent even if it is empty
                    first, message = False, pack(words)
                    yield message
                    self.words += len(words)
                    self.messages += 1
                    self.bytes += len(message)
                self._sort()
            if self.ending and self.free:
                self.closed = True
                return
            await self.wake.wait()

    def _sort(self) -> None:
        """Queue own reports and evidence before forwarded ones, so that a flood from others has to wait."""
        if not self.free:
            return
        for source, data in self.outbox[self.at :]:
            if source != self.to.name:
                (self.own if source in ("", self.place.name) else self.others).append(data)
        self.at = len(self.outbox)

    def worded(self, data: bytes) -> Sequence[bytes]:
        """The words to send for an entry of the outbox; an honest node sends the same to all."""
        return (data,)

    def poke(self, ending: bool) -> None:
        """Signal that there is more to send or, with `ending`, that the node expects nothing more."""
        self.ending = ending
        self.wake.set()
        self.news.set()

    async def _answer(self, call: Any) -> None:
        """Wait for the receipt. Return if there is more to send after all, before or after it."""
        receipt = asyncio.ensure_future(_awaited(call))
        try:
            while not (self.closed and self.at < len(self.outbox)):
                news = asyncio.ensure_future(self.news.wait())
                waiting = {news} if self._receipted(receipt) else {news, receipt}
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                self.news.clear()
        finally:
            receipt.cancel()

    def _receipted(self, receipt: asyncio.Future[Any]) -> bool:
        if receipt.done():
            receipt.result()
            self.answered = True
        return receipt.done()


async def _awaited(call: Any) -> Any:
    return await call
