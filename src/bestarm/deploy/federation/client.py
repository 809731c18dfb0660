"""The process of a federation client: connects its source of rewards, its site and the broker.

``Client`` pulls whenever its machine wants rewards, with or without a network, and sends its messages. If it
resumes a journal with messages, it first waits a while for the server, which may know of a newer journal. All
decisions are made by the machine in the ``Site``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation.alarms import ALARM_SECONDS, words_of
from bestarm.deploy.federation.alarms import send as send_alarm
from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.desk import NOTE_BYTES
from bestarm.deploy.federation.files import Place
from bestarm.deploy.federation.hello import (
    HELLO,
    OlderJournal,
    demand_newest,
    greet,
    read_answer,
    split_answer,
)
from bestarm.deploy.federation.pace import LOOK_SECONDS, Teller
from bestarm.deploy.federation.refusals import REFUSED, advice
from bestarm.deploy.federation.site import Site
from bestarm.deploy.process import checkpoint, together
from bestarm.deploy.pulling import Puller
from bestarm.deploy.sources import Source
from bestarm.errors import InputError
from bestarm.protocol.verdict import Verdict

REFUSALS = 4  # a broker that starts or reloads may refuse a valid key once

FIRST_ANSWER_SECONDS = 10.0  # a resumed client waits this long for the server before it pulls

COPY_SECONDS = 90.0  # how long a new process waits while another is connected with its key

LONGEST_PAUSE = 3.0  # between two attempts to connect

HELLO_SECONDS = 2.0  # wait for the answer to a hello

LACK_SECONDS, IDLE_SECONDS = 5.0, 30.0  # before another hello: broadcasts are missing, or nothing happens

LONGEST_IDLE = 300.0

PULL_SECONDS = 60.0  # a request to the broker stays open: all idle clients together must cost little

SILENCE_SECONDS = 20.0  # without an answer, before a warning

CLOSE_SECONDS = 2.0  # time limit for closing the connection

SUMMARY_SECONDS = 10.0  # time limit for sending the summary after the verdict

log = logging.getLogger("bestarm.federation")


@dataclass(frozen=True)
class Progress:
    """Progress of a client: pulls, messages, pulls per second, time to its next message, connection."""

    client: str
    state: str
    pulls: int
    messages: int
    speed: float
    left: float | None
    online: bool


class Client:
    """Runs a site: moves rewards to its journal, and messages between the journal and the broker.

    Parameters
    ----------
    folder : str or Path
        The client's folder.
    source : callable
        Makes the source of rewards for a site.
    url : str, optional
        The address of the broker, if not the one in the folder.
    watch : callable, optional
        Called with a ``Progress`` twice per second.
    site : type
        The fold that it runs.
    """

    def __init__(
        self,
        folder: str | Path,
        source: Callable[[Site], Source],
        *,
        url: str | None = None,
        watch: Callable[[Progress], None] | None = None,
        site: type[Site] = Site,
    ) -> None:
        self.place = Place.load(Path(folder))
        self.site = site.open(self.place)
        try:
            self.source = source(self.site)
        except BaseException:
            self.site.journal.close()
            raise
        self.resumed = len(self.site.ups)  # messages of earlier processes: until greeted, it sends no others
        self.url, self.watch = url or self.place.setup.url, watch
        self.outgoing = asyncio.Event()
        self.puller = Puller(
            self.site, self.source, self.place.setup.scale, coins=self.place.setup.room.coins,
            end="budget", after=self._speak,
        )  # fmt: skip
        self.nc: Any = None
        self.feed: Any = None
        self.unacknowledged: list[Any] = []  # messages from the broker that may not be on disk yet
        self.tried = 0  # messages that were sent at least once
        self.begun = ""  # for the answer to the newest one, if ``_sending`` does not wait for it yet
        self.broken = False  # sending has failed; a new connection is needed
        self.greeted = asyncio.Event()  # the server has answered on this connection
        self.sessions = 0  # connections on which it has answered
        self.told = 0  # notes that the broker has

    async def run(self) -> Verdict | None:
        """Run until the server's verdict; a cancelled client resumes when it is run again."""
        site = self.site
        site.warn(self.place.client)
        async with contextlib.AsyncExitStack() as leaving:  # both steps are taken, even if one is interrupted
            leaving.callback(site.journal.close)
            leaving.push_async_callback(self.source.close)
            pacing = [self._pacing()] if self.source.whole else []  # its subjects arrive at a pace
            await together(self._pulling(), self._network(), beside=[self._watching(), *pacing])
            if site.verdict is not None:
                await self.source.decided(site.verdict)
            return site.verdict

    async def _pulling(self) -> None:
        try:
            if self.site.ups:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                        await self.greeted.wait()
            await self.puller.run()
        except Exception as error:
            await self._tell(error)
            raise

    async def _tell(self, error: Exception) -> None:
        """Tell the server's operator why this client ends: now if it can be reached, else at the next run."""
        text = words_of(error)
        with contextlib.suppress(TimeoutError, Unreachable):
            async with asyncio.timeout(ALARM_SECONDS):
                while self.nc is None or not self.nc.is_connected:
                    await asyncio.sleep(0.02)
                await send_alarm(self.nc, self.place, text)
                return
        with contextlib.suppress(InputError, OSError):
            self.site.note(text)

    async def _network(self) -> None:
        """Connect, receive and send until the verdict arrives; reconnect after failures."""
        try:
            while not self.site.over:
                checkpoint()
                await self._connect()
                try:
                    await together(self._listening(), beside=[self._greeting(), self._sending()])
                except OlderJournal:
                    raise  # nothing more is signed; the server knows
                except InputError as error:
                    await self._tell(error)
                    raise
                finally:
                    await self._disconnect()
            self.greeted.set()  # the verdict may arrive without an answer
        finally:
            self.puller.changed.set()

    async def _connect(self) -> None:
        """Connect to the broker, with retries; ``Unreachable`` if it refuses for good."""
        from bestarm.deploy.federation import wire

        place, pause, refusals, trouble, taken = self.place, 0.2, 0, "", 0.0
        while True:
            try:
                self.nc = await wire.connect(
                    self.url, place.nkey, place.folder / "ca.pem", place.client, f"_INBOX_{place.slot}",
                    on_lost=self._wake,
                )  # fmt: skip
                break
            except Unreachable as error:
                refusals += REFUSED in str(error)
                if refusals >= REFUSALS or "certificate" in str(error):
                    raise Unreachable(f"{error}. {advice(str(error), place.client)}") from None
                if isinstance(error, wire.Taken):
                    taken = taken or time.monotonic()
                    self._demand_no_copy(taken)
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("%s; trying again %s", error, self._limit(error))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # not all clients at once
                pause = min(LONGEST_PAUSE, 2 * pause)
        self.feed = wire.Feed(self.nc, f"{place.setup.subject}.next.{place.slot}", seconds=PULL_SECONDS)
        self.broken, self.begun = False, ""
        self.unacknowledged.clear()
        self.greeted.clear()

    def _limit(self, error: Unreachable) -> str:
        """How long it tries to connect after this error, in words."""
        from bestarm.deploy.federation import wire

        if REFUSED in str(error):
            return f"until the key was refused {REFUSALS} times"
        if isinstance(error, wire.Taken) and not self.sessions:
            return f"for {COPY_SECONDS:g} s, because this may be an old connection of this client"
        return "until it succeeds"

    def _demand_no_copy(self, since: float) -> None:
        """Raise if another process stays connected; an old connection of this client ends after a while."""
        if self.sessions or time.monotonic() < since + COPY_SECONDS:
            return
        raise InputError(
            "another process is connected with this client's key",
            where=str(self.place.folder),
            expected="one process and one folder per client",
            fix="If this folder is a copy of one that is in use, delete it; otherwise stop the other process",
        )

    async def _greeting(self) -> None:
        """Say hello until the server answers, and again when something seems to be missing."""
        pause = IDLE_SECONDS
        while True:
            known, broadcasts = self.site.heard, await self._greet()
            if known < self.site.heard < broadcasts:
                continue  # one answer did not bring all that was missing
            since, before = time.monotonic(), self._progress()
            while True:
                await asyncio.sleep(min(LACK_SECONDS, IDLE_SECONDS))
                self._wake()  # so that a lost connection is noticed, whatever nats-py says
                now = time.monotonic()
                if self._progress() != before:
                    since, before, pause = now, self._progress(), IDLE_SECONDS
                lacks = self.site.heard < broadcasts or self.site.inbox.gaps()
                if now > since + (LACK_SECONDS if lacks else pause):
                    pause = min(2 * pause, LONGEST_IDLE)
                    break

    def _progress(self) -> tuple[int, int, int]:
        site = self.site
        return site.heard, len(site.ups), site.pulls

    @property
    def _hello(self) -> str:
        """The subject of its hellos."""
        return f"{self.place.setup.subject}.{HELLO}.{self.place.slot}"

    @property
    def _up(self) -> str:
        """The subject of its messages."""
        return f"{self.place.setup.subject}.up.{self.place.slot}"

    async def _greet(self) -> int:
        """Say hello until the server answers; return how many broadcasts it has.

        What the client sends from now on follows the last message that the server has.
        """
        from bestarm.deploy.federation import wire

        site, pause, since, warned = self.site, 0.1, time.monotonic(), False
        while True:
            hello = greet(site)
            parts = split_answer(await wire.request(self.nc, self._hello, hello, HELLO_SECONDS))
            for data in parts[1:]:
                site.received(data, later=True)
            site.write()
            self.puller.changed.set()
            if site.over:
                self._wake()
            answer = read_answer(site, hello, parts[0]) if parts else None
            if answer is not None:
                break
            if not warned and time.monotonic() > since + SILENCE_SECONDS:
                warned = True
                log.warning("%s: connected, but the server does not answer; trying again", self.url)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)
        demand_newest(site, answer, None if self.sessions else self.resumed)
        site.resend(answer.due)
        self.told = answer.notes
        if not self.greeted.is_set():
            self.sessions += 1
            self.greeted.set()
        self.outgoing.set()
        return answer.broadcasts

    async def _listening(self) -> None:
        """Pass messages to the site until the verdict arrives or a new connection is needed.

        Then a last hello says that the verdict is here: the broker may not know it, because the verdict came
        with an answer, or because older messages were delivered to an earlier process and not acknowledged.
        """
        from bestarm.deploy.federation import wire

        while not self.site.over:
            if self.broken or not self.nc.is_connected:
                return
            messages = await self.feed.next(None)
            for message in messages:
                self.site.received(message.data, later=True)
            if messages:
                self.unacknowledged += messages
                self.puller.changed.set()
                await asyncio.sleep(0)  # so that a batch asked for now shares the write
                self._acknowledge()
                if self.site.sent < len(self.site.ups):
                    self.outgoing.set()
        await self._summarise()
        with contextlib.suppress(Exception):  # the verdict is here; if this is lost, the server lingers
            async with asyncio.timeout(CLOSE_SECONDS):
                await wire.send(self.nc, self._hello, greet(self.site))
                await self.nc.flush()

    def _acknowledge(self, *, later: bool = False) -> None:
        """Tell the broker what is on disk, with the next message if `later`."""
        from bestarm.deploy.federation import wire

        self.site.write()
        if self.unacknowledged:
            wire.acknowledge(self.nc, self.unacknowledged, later=later)
            self.unacknowledged.clear()

    async def _summarise(self) -> None:
        """Send the summary, if the broker takes it in time: the verdict does not depend on it."""
        from bestarm.deploy.federation import wire

        patient = wire.storing_seconds(len(self.place.setup.layout.clients))
        try:
            async with asyncio.timeout(SUMMARY_SECONDS):
                for data in self.site.summaries:
                    await wire.publish(self.nc, self._up, data, shortest=patient)
        except Exception as error:  # a failing connection can raise anything
            log.info("%s: the summary was not sent: %s", self.url, error or type(error).__name__)

    def _wake(self) -> None:
        """Let ``_listening`` see that something has changed."""
        if self.feed is not None:
            self.feed.wake()

    async def _disconnect(self) -> None:
        nc, self.nc = self.nc, None
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await nc.close()

    def _speak(self) -> None:
        """Send the message that follows from a batch at once; ``_sending`` waits until it is stored.

        If older messages or notes wait too, ``_sending`` sends them in order.
        """
        site, number = self.site, self.site.sent
        alone = self.tried == number == len(site.ups) - 1 and self.told == len(site.notes)
        if alone and self.greeted.is_set() and self.nc is not None and self.nc.is_connected:
            self._acknowledge(later=True)
            self.begun, self.tried = self.nc.begin(self._up, site.ups[number]), number + 1
        self.outgoing.set()

    async def _sending(self) -> None:
        """Send notes and messages as they become available."""
        try:
            await self.greeted.wait()
            while True:
                self.outgoing.clear()
                await self._send_all()
                await self.outgoing.wait()
        except Exception as error:  # a failing connection can raise anything
            log.info("%s: %s; reconnecting", self.url, error)
            self.broken = True
            self._wake()

    async def _send_all(self) -> None:
        from bestarm.deploy.federation import wire

        site, subject = self.site, self._up
        patient = wire.storing_seconds(len(self.place.setup.layout.clients))
        while self.told < len(site.notes):
            number = self.told
            await wire.publish(self.nc, subject, site.notes[number], shortest=patient)
            if self.told == number:
                self.told += 1
        while site.sent < len(site.ups):
            number = site.sent
            begun, self.begun, self.tried = self.begun, "", number + 1
            await wire.publish(self.nc, subject, site.ups[number], shortest=patient, begun=begun)
            if site.sent == number:  # the server may have asked for earlier ones meanwhile
                site.sent += 1

    async def _pacing(self) -> None:
        """Tell the server the pace of subjects that arrive, and its operator what speaks against them."""
        teller, said = Teller(), {Envelope.decode(data).content for data in self.site.notes}
        while not self.site.over:
            await asyncio.sleep(LOOK_SECONDS)
            for text in self.source.remarks():
                if text.encode()[:NOTE_BYTES] not in said:
                    said.add(text.encode()[:NOTE_BYTES])
                    self.site.note(text)
                    self.outgoing.set()
            standing, heard = self.source.standing(), self.site.heard
            online = self.nc is not None and self.nc.is_connected and self.greeted.is_set()
            if standing is not None and online and teller.due(standing, heard, time.monotonic()):
                try:
                    await teller.send(self.nc, self.place, standing, heard)
                except Exception as error:  # a failing connection can raise anything
                    log.info("%s: the pace was not sent: %s", self.url, error or type(error).__name__)

    async def _watching(self) -> None:
        while self.watch:
            pull, speed = self.site.pull, self.puller.speed
            left = pull.times * pull.width / speed if pull and speed else None
            online = self.nc is not None and self.nc.is_connected
            site, state = self.site, str(self.site.machine.state)
            speed = speed if pull else 0.0
            self.watch(Progress(self.place.client, state, site.pulls, len(site.ups), speed, left, online))
            await asyncio.sleep(0.5)
