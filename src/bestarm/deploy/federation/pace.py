"""The pace of clients whose subjects arrive: how each tells it, and what the server makes of it.

A served client tells how many subjects arrive per hour, what is left of its part of the announced blocks, and
whether it has assigned all of them. The server's machine plans the sizes of later blocks by pace, and may
announce the next block to a client that is ahead. Like an alarm, such a message has no number: its sequence
is the time in seconds, and the server takes only newer ones. A lost one does no harm.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec

from bestarm.deploy.envelope import Envelope, Offer, Slots
from bestarm.deploy.sources.base import Standing
from bestarm.deploy.waits import Wait
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Ahead, Pace
from bestarm.protocol.machine import ServerMachine, SiteServer

if TYPE_CHECKING:
    from bestarm.deploy.federation.files import Place
    from bestarm.deploy.federation.wire import Connection

PACE = "pace"  # the topic

PACE_BYTES = 100

MOST_PACES = 10_000  # of one client that the server takes in a run

LOOK_SECONDS = 1.0  # between two looks at the subjects

AGAIN_SECONDS = 600.0  # after which a client that others may wait for tells its standing again

SOON_SECONDS, CHANGE = 60.0, 1.5  # or after a minute, if its pace has changed by this factor


Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What a client tells: subjects per hour, what is left to assign and to come, and the broadcasts heard.

    `ahead`: all that these broadcasts announce is assigned.
    """

    per_hour: Count
    to_assign: Count
    to_come: Count
    heard: Count
    ahead: bool


class Paces:
    """The server's part: accepts or refuses messages about pace, and derives events from them.

    Parameters
    ----------
    slots : Slots
        The run, and the roster with the clients' keys.
    layout : Layout
        The clients.
    """

    def __init__(self, slots: Slots, layout: Layout) -> None:
        self.slots, self.layout = slots, layout
        self.told: dict[str, Told] = {}
        self._count: Counter[str] = Counter()
        self._last: Counter[str] = Counter()  # of each client: the time of the last message
        self._paces: tuple[int, ...] = ()

    def offer(self, data: bytes | Envelope, *, signed: bool = False) -> Offer:
        """Accept or refuse a message, as ``Slots.offer`` does."""
        try:
            found = data if isinstance(data, Envelope) else Envelope.decode(data)
            msgspec.json.decode(found.content, type=Told)
        except (Malformed, msgspec.MsgspecError, UnicodeDecodeError):
            return Offer("refused", None, "malformed")
        source, member = found.source, self.slots.roster.current.get(found.source)
        reason = ""
        if found.run != self.slots.run:
            reason = "run"
        elif member is None:
            reason = "source"
        elif found.sequence <= self._last[source]:
            reason = "old"
        elif self._count[source] >= MOST_PACES or len(found.content) > PACE_BYTES:
            reason = "pace"
        elif not signed and not found.signed_with(member.key):
            reason = "signature"
        if reason:
            return Offer("refused", found, reason)
        self._last[source] = found.sequence
        self._count[source] += 1
        return Offer("accepted", found)

    def take(self, envelope: Envelope, broadcasts: int, gone: set[str]) -> Iterator[Ahead | Pace]:
        """The events that a message means for the machine; `broadcasts`: how many there are."""
        told = self.told[envelope.source] = msgspec.json.decode(envelope.content, type=Told)
        paces = self.known(gone)
        if paces != self._paces:
            self._paces = paces
            yield Pace(paces)
        if told.ahead and told.heard == broadcasts:  # else it has not seen what is announced meanwhile
            yield Ahead(envelope.source, paces)

    def known(self, gone: set[str]) -> tuple[int, ...]:
        """The pace of every client, 0 for those that were dropped; empty until all others have told it."""
        present = [name for name in self.layout.clients if name not in gone]
        if not all(name in self.told for name in present):
            return ()
        return tuple(0 if name in gone else self.told[name].per_hour for name in self.layout.clients)

    def waits(self, machine: ServerMachine) -> list[Wait]:
        """Which clients others wait for, as these have last told, and what that costs."""
        unused = machine.unused() if isinstance(machine, SiteServer) else 0
        found, missing = list[Wait](), set(machine.missing_clients())
        for name in sorted(missing & set(self.told)) if unused else ():
            told = self.told[name]
            if isinstance(machine, SiteServer) and missing.issuperset(machine.together(name)):
                continue  # nobody has to wait for it
            seconds = told.to_assign * 3600.0 / told.per_hour if told.per_hour else None
            found.append(
                Wait(
                    site=name, to_assign=told.to_assign, to_come=told.to_come, seconds=seconds, rewards=unused
                )
            )
        return found


class Teller:
    """The client's part: decides when its standing is worth a message."""

    def __init__(self) -> None:
        self._last: tuple[float, Standing, int] | None = None  # the time, what was told, broadcasts heard
        self._sequence = 0

    def due(self, standing: Standing, heard: int, now: float) -> bool:
        """Whether to tell this now."""
        if self._last is None:
            return standing.per_hour > 0
        before, told, known = self._last
        if standing.ahead:
            return not told.ahead or heard > known
        ratio = max(standing.per_hour, 1.0) / max(told.per_hour, 1.0)
        changed = abs(math.log(ratio)) >= math.log(CHANGE)
        left = standing.to_assign or standing.to_come
        return now >= before + (SOON_SECONDS if changed else AGAIN_SECONDS) and (changed or bool(left))

    async def send(self, nc: Connection, place: Place, standing: Standing, heard: int) -> None:
        """Send a standing; returns when the broker has stored it."""
        from bestarm.deploy.federation import wire

        told = Told(round(standing.per_hour), standing.to_assign, standing.to_come, heard, standing.ahead)
        self._sequence = max(self._sequence + 1, int(time.time()))
        content = msgspec.json.encode(told)
        found = Envelope.sign(place.key, place.setup.run, place.client, PACE, self._sequence, content)
        await wire.publish(nc, f"{place.setup.subject}.up.{place.slot}", found.encode())
        self._last = (time.monotonic(), standing, heard)
