"""What the server sends: the broadcasts of its desk, and requests to clients for missing messages."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

from bestarm.deploy.federation.desk import ID_BYTES, Desk

LONGEST_PAUSE = 300.0  # between two messages to a client with a gap

ANSWER_SECONDS = 4.0  # the longest wait for the broker before a message is sent again


class Publisher:
    """Publishes the broadcasts of a desk until the broker has stored them.

    Parameters
    ----------
    desk : Desk
        Where the broadcasts come from.
    slot_of : callable
        Returns the slot of a client, or None if it has none.
    may : callable
        Whether broadcasts may be published now.
    late : callable
        Called when a connected broker does not store a message for a long time.
    """

    def __init__(
        self,
        desk: Desk,
        slot_of: Callable[[str], str | None],
        may: Callable[[], bool],
        late: Callable[[], None],
    ) -> None:
        self.desk, self.slot_of, self.may, self.late = desk, slot_of, may, late
        self.nc: Any = None  # None until the streams exist
        self.published = 0  # broadcasts that the broker has stored
        self.stuck = False  # the broker does not store what is published
        self.renewed: set[str] = set()  # clients to tell which message is expected next
        self.asked: dict[str, tuple[float, float]] = {}  # when each was last asked; the next pause
        self.outgoing = asyncio.Event()  # there may be something to publish

    @property
    def pending(self) -> bool:
        """Whether there are broadcasts that the broker has not stored yet."""
        return self.published < len(self.desk.broadcasts)

    async def run(self) -> None:
        """Publish whatever there is, for ever."""
        while True:
            await self.outgoing.wait()
            self.outgoing.clear()
            if self.nc is not None:
                await self._broadcast()
                await self._ask_for_gaps()

    async def _broadcast(self) -> None:
        desk = self.desk
        while self.may() and self.pending:
            number = self.published
            await self.send(f"{desk.setup.subject}.all", desk.broadcasts[number], desk.id_of(number))
            if self.published == number:  # the broker may have lost some meanwhile
                self.published += 1

    async def send(self, subject: str, data: bytes, identifier: str) -> None:
        """Publish one message, and return when the broker has stored it."""
        from bestarm.deploy.federation import wire

        await wire.publish(self.nc, subject, data, identifier, self._late, ANSWER_SECONDS)
        self.stuck = False

    def _late(self) -> None:
        self.stuck = True
        self.late()

    def gaps(self, now: float) -> set[str]:
        """Clients to ask for missing earlier messages: less and less often, because they may be gone."""
        found = self.desk.gaps() - set(self.desk.dropped)
        self.asked = {c: asked for c, asked in self.asked.items() if c in found}
        due = {c for c in found if c not in self.asked or now >= self.asked[c][0] + self.asked[c][1]}
        for c in due:
            self.asked[c] = (now, min(2 * self.asked[c][1], LONGEST_PAUSE) if c in self.asked else 1.0)
        return due

    async def _ask_for_gaps(self) -> None:
        if self.desk.done:
            return  # later messages do not count; clients with the verdict may have left
        for client in sorted(self.gaps(time.monotonic()) | self.renewed):
            self.renewed.discard(client)
            await self._tell_due(client)

    async def _tell_due(self, client: str) -> None:
        slot = self.slot_of(client)
        if slot is not None:
            subject = f"{self.desk.setup.subject}.down.{slot}"
            await self.send(subject, self.desk.have(client), secrets.token_hex(ID_BYTES))
