"""The server's reception: hears the hellos of clients over the network and answers them.

After a restart the server holds new broadcasts back until the clients that took part before have said hello,
or a short time has passed: if its journal is older than what it has sent, one of them can prove it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.desk import Desk
from bestarm.deploy.federation.hello import HELLO, Greetings
from bestarm.deploy.federation.streams import Streams
from bestarm.deploy.process import cancellable

WAIT_SECONDS = 15.0  # for the clients that took part, after a restart

MOST_NAMED = 10  # clients in a warning

PAUSE = 0.02  # between two batches of hellos: a flood costs one signature check per client and batch

OLD_SECONDS = 2.0  # a hello without an answer is forgotten; the client says it again

log = logging.getLogger("bestarm.federation")


class Reception:
    """Answers the hellos of clients.

    Parameters
    ----------
    desk : Desk
        What the server has.
    streams : Streams
        The mailboxes: a hello is answered after the messages that its client sent before.
    seated : callable
        Returns the client in a slot, or None if nobody may use the slot.
    """

    def __init__(
        self,
        desk: Desk,
        streams: Streams,
        seated: Callable[[str], str | None],
    ) -> None:
        self.desk, self.streams, self.seated = desk, streams, seated
        self.greetings = Greetings(desk)
        self.awaited = set() if desk.done else {c for c in desk.next if c not in desk.dropped}
        self.until = float("inf")  # when the wait for them ends
        self._heard: dict[str, tuple[float, Any]] = {}  # by slot: the last hello, and when it came
        self._there = asyncio.Event()
        self._nc: Any = None

    @property
    def open(self) -> bool:
        """Whether broadcasts may be published: no awaited client can prove an older journal any more."""
        if self.awaited and time.monotonic() > self.until:
            more = " …" if len(self.awaited) > MOST_NAMED else ""
            missing = ", ".join(sorted(self.awaited)[:MOST_NAMED])
            log.warning("continuing without a hello from %s%s", missing, more)
            self.awaited = set()
        return not self.awaited

    async def listen(self, nc: Any) -> None:
        """Hear hellos on this connection, also after it was lost and made again."""
        self._nc, self.until = nc, time.monotonic() + WAIT_SECONDS
        await cancellable(nc.subscribe(f"{self.desk.setup.subject}.{HELLO}.*", cb=self._hear))

    async def _hear(self, message: Any) -> None:
        self._heard[message.subject.rpartition(".")[2]] = (time.monotonic(), message)
        self._there.set()

    async def run(self) -> None:
        """Answer hellos for ever; InputError if one proves that the server's journal is not the newest."""
        while True:
            await self._there.wait()
            self._there.clear()
            batch, self._heard = self._heard, {}
            try:
                busy = set() if self.desk.done else await self.streams.unread()
            except Unreachable as error:
                log.info("%s", error)
                continue
            for slot, (since, message) in batch.items():
                if slot not in busy:
                    await self._answer(slot, message)
                elif time.monotonic() < since + OLD_SECONDS:  # the server has not read its messages yet
                    self._heard.setdefault(slot, (since, message))
                    self._there.set()
            await asyncio.sleep(PAUSE)

    async def _answer(self, slot: str, message: Any) -> None:
        import nats.errors

        client = self.seated(slot)
        if client is None:
            return
        answer = self.greetings.answer(client, message.data, lambda: self._welcome(client))
        if answer is not None and message.reply:
            with contextlib.suppress(nats.errors.Error):  # the client says hello again
                await cancellable(self._nc.publish(message.reply, answer))
        await asyncio.sleep(0)

    def _welcome(self, client: str) -> bool:
        self.awaited.discard(client)
        return self.open
