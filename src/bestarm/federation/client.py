"""A client of a federation: its journal, its machine, its rewards, and the driver between them.

``Site`` is a fold without a network. Its journal holds ``asked`` (a batch of pulls, before it is made),
``rewards`` (what came of it), ``down`` (a broadcast), ``up`` (the client's own envelope, before it is first
sent), ``sent`` (how many of those the broker has), ``note`` (a signed word to the server's operator) and
``stop``. What happens goes to the journal in one piece with what the machine says to it; nothing is sent or
acknowledged before. Pulls that are paid for are never lost: what the machine can't use now is kept for later.
``Client`` pulls while there is something to pull, with or without a network, and sends what is to be sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.federation.broker import Unreachable
from bestarm.federation.files import JOURNAL, Place
from bestarm.federation.server import DOWN, HAVE, NOTE, NOTE_BYTES, NOTES, UP
from bestarm.identity import Envelope
from bestarm.journal import Event, Journal
from bestarm.protocol import METHODS
from bestarm.protocol.codec import Malformed
from bestarm.protocol.machine import Received, Start
from bestarm.protocol.rounds import SERVER, one_arm
from bestarm.protocol.verdict import Verdict
from bestarm.pulling import Puller, Pulls
from bestarm.sources import Source, SourceFailed

KIND = "federation-client"
REFUSALS = 4  # a broker that starts or reloads may turn away a good key once
TELL_SECONDS = 5.0  # that a client which ends with an error takes to say so
STALE_SECONDS = 60.0  # without a connection, then a new one is made
GAP_SECONDS = 30.0  # that a client with a connection waits for a broadcast when it has later ones
HELD = 1000  # broadcasts that may come before the one that is due
log = logging.getLogger("bestarm.federation")


class Site(Pulls):
    """A client's machine and what happened to it, in the order of the journal."""

    def __init__(self, place: Place, journal: Journal, machine: Any = None, *, speak: bool = True) -> None:
        self.place, self.journal, setup = place, journal, place.setup
        self.machine: Any = machine or setup.room.client(setup.layout, place.client, setup.unit)
        super().__init__(setup.layout.groups[setup.layout.group_of[place.client]])
        self.signed = 0  # of what the machine said, how much is signed
        self.ups: list[bytes] = []  # signed, and on the disk: what may go out
        self.sent = self.noted = 0  # of those, how many the broker has; what the journal knows of it
        self.notes: list[bytes] = []
        self.renewed = False  # whether the journal has words of an older key
        self.heard = 0
        self.held: dict[int, Envelope] = {}
        self.refused = 0
        self.unwritten: list[tuple[str, bytes]] = []  # events that took place and are not on the disk yet
        self._act(self.machine.handle(Start()))
        for event in journal.events():
            self.replay(event)
        if self.renewed:  # a new key says all of it again: what the old one said may have been refused
            self.sent = 0
        if speak:
            self._speak()
            self.write()

    @staticmethod
    def open(place: Place, machine: Any = None) -> Site:
        """The site as its folder's journal has it; a new journal, if there is none."""
        path = place.folder / JOURNAL
        if not path.exists():
            header = {"run": place.setup.run.hex(), "client": place.client}
            return Site(place, Journal.create(path, KIND, header), machine)
        journal = Journal.open(path, KIND)
        if journal.header.get("run") != place.setup.run.hex() or journal.header.get("client") != place.client:
            journal.close()
            raise InputError("this is the journal of another run or client", where=str(path))
        return Site(place, journal, machine)

    @property
    def over(self) -> bool:
        return self.verdict is not None or one_arm(self.place.setup.layout)

    @property
    def stoppable(self) -> bool:
        return bool(self.machine.wire.stoppable)

    def received(self, data: bytes, *, later: bool = False) -> None:
        """Bytes from the broker: only what the server signed counts, once and in order.

        With `later` they are on the disk after the next ``write``.
        """
        self._take(data)
        if not later:
            self.write()

    def _take(self, data: bytes) -> None:
        setup = self.place.setup
        try:
            envelope = Envelope.decode(data)
        except Malformed:
            envelope = None
        if envelope is None or envelope.run != setup.run or envelope.source != SERVER:
            self.refused += 1
            return
        number, down = envelope.round, envelope.arm_set == DOWN
        if down and (number < self.heard or number in self.held):
            return  # once more
        fresh = down and number < self.heard + HELD
        if not (fresh or envelope.arm_set == HAVE) or not envelope.signed_with(setup.server):
            self.refused += 1
        elif fresh:  # once it is on the disk it may be acknowledged, even if it is early
            self._append(DOWN, data)
            self._hear(envelope)
            self._speak()
        elif envelope.content == self.place.client.encode() and number < self.sent:
            self.sent = number  # the server lacks these
            if number < self.noted:  # an old word that comes again and again fills no disk
                self.noted = number
                self._append("sent", str(number).encode())

    def stop(self, reason: str) -> None:
        """There are no more rewards."""
        self._append("stop", reason.encode())
        self._end(reason)
        self._speak()
        self.write()

    def note(self, text: str) -> None:
        """A word to the server's operator; the last one is not said twice in a row."""
        content = text.encode()[:NOTE_BYTES].decode(errors="ignore").encode()
        number = len(self.notes)
        if number < NOTES and (not number or Envelope.decode(self.notes[-1]).content != content):
            self._append(NOTE, self._signed(NOTE, number, content))
            self.write()

    def _signed(self, kind: str, number: int, content: bytes) -> bytes:
        place = self.place
        return Envelope.sign(place.key, place.setup.run, place.client, kind, number, content).encode()

    def _append(self, kind: str, body: bytes) -> None:
        self.unwritten.append((kind, body))

    def write(self) -> None:
        """All that happened goes to the disk in one piece; then it may be acknowledged, or go out."""
        if not self.unwritten:
            return
        if self.sent > self.noted:
            self.unwritten.insert(0, ("sent", str(self.sent).encode()))
            self.noted = self.sent
        self.journal.append_many(self.unwritten)
        self.ups += [body for kind, body in self.unwritten if kind == UP]
        self.notes += [body for kind, body in self.unwritten if kind == NOTE]
        self.unwritten = []

    def _hear(self, envelope: Envelope) -> None:
        """Hand over what is due: each broadcast once and in order."""
        self.held[envelope.round] = envelope
        while self.heard in self.held:
            due = self.held.pop(self.heard)
            self.heard += 1
            self._act(self.machine.handle(Received(SERVER, due.content)))

    def _speak(self) -> None:
        """Sign what the machine has said since: these bytes go out, now and ever, once they are written."""
        for number in range(self.signed, len(self.said)):
            self._append(UP, self._signed(UP, number, self.said[number]))
        self.signed = len(self.said)

    def replay(self, event: Event) -> None:
        """An event of the journal takes place again. Nothing is written or said."""
        body = event.body
        if event.kind not in ("sent", NOTE):
            self._replay_pulls(event)
        match event.kind:
            case "down":
                self._hear(Envelope.decode(body))
            case "up":
                number = len(self.ups)
                if number >= len(self.said) or Envelope.decode(body).content != self.said[number]:
                    raise InputError(
                        f"message {number} is not what the rewards before it lead to",
                        where=str(self.journal.path),
                        fix="Go on with the version of bestarm that wrote it",
                    )
                data = self._signed(UP, number, self.said[number])
                self.renewed |= data != body
                self.ups.append(data)
                self.signed += 1
            case "note":
                self.notes.append(self._signed(NOTE, len(self.notes), Envelope.decode(body).content))
            case "sent":
                self.sent = self.noted = int(body)
            case "stop":
                self._end(body.decode())


@dataclass(frozen=True)
class Progress:
    """Where a client is: pulls, messages, pulls a second, seconds to its next message, if it is online."""

    client: str
    state: str
    pulls: int
    messages: int
    speed: float
    left: float | None
    online: bool


class Client:
    """Drives a site: from its source of rewards to the journal, and between the journal and the broker."""

    def __init__(
        self,
        folder: str | Path,
        source: Callable[[Site], Source],
        *,
        url: str | None = None,
        watch: Callable[[Progress], None] | None = None,
        machine: Callable[[Place], Any] | None = None,
    ) -> None:
        self.place = Place.load(Path(folder))
        self.site = Site.open(self.place, machine(self.place) if machine else None)
        try:
            self.source = source(self.site)
        except BaseException:
            self.site.journal.close()
            raise
        self.url, self.watch = url or self.place.setup.url, watch
        self.outgoing = asyncio.Event()
        self.puller = Puller(
            self.site, self.source, self.place.setup.scale, coins=METHODS[self.place.setup.method].coins,
            end="budget", after=self.outgoing.set,
        )  # fmt: skip
        self.nc: Any = None
        self.told = 0  # notes that the broker has
        self.gap = (-1, 0.0)  # the broadcast that is missing, and since when

    async def run(self) -> Verdict | None:
        """Go on until the server's verdict; a cancelled one goes on when it is run again."""
        site, tasks = self.site, []
        site.warn(self.place.client)
        try:
            tasks = [asyncio.create_task(self.puller.run()), asyncio.create_task(self._network())]
            if self.watch:
                tasks.append(asyncio.create_task(self._watching()))
            done, _ = await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            return site.verdict
        except (InputError, SourceFailed) as error:
            await self._tell(str(error))
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.source.close()
            site.journal.close()

    async def _tell(self, text: str) -> None:
        """Let the server's operator know, if the network is there; else when it is run again."""
        with contextlib.suppress(InputError, TimeoutError):
            self.site.note(text)
            self.outgoing.set()
            async with asyncio.timeout(TELL_SECONDS if self.nc is not None else 0.5):
                while self.told < len(self.site.notes):
                    await asyncio.sleep(0.02)

    async def _network(self) -> None:
        from bestarm.federation import wire

        feeds: list[Any] = []
        pause, refusals, sender, trouble, seen = 0.2, 0, None, "", 0.0

        def back() -> None:
            """Say the last word again: a broker that lost it, or the server, then asks for what it lacks."""
            for feed in feeds:
                feed.again()
            self.site.sent = min(self.site.sent, max(0, len(self.site.ups) - 1))
            self.told = 0
            self.outgoing.set()

        try:
            while not self.site.over:
                if self.nc is None:
                    try:
                        self.nc = await wire.connect(
                            self.url, self.place.nkey, self.place.folder / "ca.pem", self.place.client,
                            f"_INBOX_{self.place.slot}", back,
                        )  # fmt: skip
                    except Unreachable as error:
                        refusals += "refuses" in str(error)
                        if refusals >= REFUSALS or "certificate" in str(error):
                            raise
                        if str(error) != trouble:
                            trouble = str(error)
                            log.warning("%s; it is tried again and again", error)
                        await asyncio.sleep(pause)
                        pause = min(10.0, 2 * pause)
                        continue
                    pause, refusals, trouble, seen = 0.2, 0, "", time.monotonic()
                    feeds[:] = [wire.Feed(self.nc, f"{self.place.setup.subject}.next.{self.place.slot}")]
                    back()
                    sender = asyncio.create_task(self._sending())
                refused = (
                    not self.nc.is_connected and "authorization" in str(self.nc.last_error or "").lower()
                )
                if self.nc.is_connected:
                    seen = time.monotonic()
                    self._demand_no_gap(seen)
                stale = time.monotonic() - seen > STALE_SECONDS
                if refused or stale or self.nc.is_closed or (sender is not None and sender.done()):
                    await self._disconnect(sender)
                    sender = None
                    continue
                messages = await feeds[0].next(0.5)
                for message in messages:
                    self.site.received(message.data, later=True)
                if messages:
                    self.puller.changed.set()
                    await asyncio.sleep(0)  # a batch that is asked for now is written together with them
                    self.site.write()
                    await wire.acknowledge(messages)
                    self.outgoing.set()
            with contextlib.suppress(Exception):  # the verdict is here; that it was heard may be lost
                await asyncio.wait_for(self.nc.flush(), 2)
        finally:
            self.puller.changed.set()
            await self._disconnect(sender)

    def _demand_no_gap(self, now: float) -> None:
        """Two processes with one key share one mailbox: each gets a part of what the server says."""
        site = self.site
        if not site.held or site.heard != self.gap[0]:
            self.gap = (site.heard, now)
        elif now - self.gap[1] > GAP_SECONDS:
            raise InputError(
                f"broadcast {site.heard} is missing, though later ones came",
                where=str(self.place.folder),
                expected="one process with this client's keys",
                fix="Is another process using a copy of this folder?",
            )

    async def _disconnect(self, sender: asyncio.Task[None] | None) -> None:
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
        if self.nc is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.nc.close(), 2)
            self.nc = None

    async def _sending(self) -> None:
        from bestarm.federation import wire

        site, subject = self.site, f"{self.place.setup.subject}.up.{self.place.slot}"
        while True:
            self.outgoing.clear()
            while self.told < len(site.notes):
                number = self.told
                await wire.publish(self.nc, subject, site.notes[number])
                if self.told == number:
                    self.told += 1
            while site.sent < len(site.ups):
                number = site.sent
                await wire.publish(self.nc, subject, site.ups[number])
                if site.sent == number:  # the server may have asked for earlier ones meanwhile
                    site.sent += 1
            await self.outgoing.wait()

    async def _watching(self) -> None:
        while self.watch:
            pull, speed = self.site.pull, self.puller.speed
            left = pull.times * len(pull.arms) / speed if pull and speed else None
            online = self.nc is not None and self.nc.is_connected
            site, state = self.site, str(self.site.machine.state)
            speed = speed if pull else 0.0
            self.watch(Progress(self.place.client, state, site.pulls, len(site.ups), speed, left, online))
            await asyncio.sleep(0.5)
