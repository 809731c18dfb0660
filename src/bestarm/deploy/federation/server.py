"""The process of a federation server: moves bytes between broker and desk, and handles timeouts.

All decisions are made by the machine in the ``Desk``, none by the ``Server``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy.federation import metrics as pages
from bestarm.deploy.federation.attendance import Attendance
from bestarm.deploy.federation.broker import Broker, Complaints, Unreachable, fetch
from bestarm.deploy.federation.certificates import CertificateWatch
from bestarm.deploy.federation.desk import KIND, Desk
from bestarm.deploy.federation.farewell import Farewell
from bestarm.deploy.federation.files import JOURNAL, RECORD, ROSTER, SETUP, Federation
from bestarm.deploy.federation.health import Health, Patience, Restarts
from bestarm.deploy.federation.key_changes import log_changes
from bestarm.deploy.federation.keys import CA, Nkey, demand_replicas, demand_url
from bestarm.deploy.federation.last_words import collect, wait_for_summaries
from bestarm.deploy.federation.publishing import Publisher
from bestarm.deploy.federation.reception import Reception
from bestarm.deploy.federation.renewal import prepare, server_keys, succeed
from bestarm.deploy.federation.streams import Streams, demand_sync
from bestarm.deploy.identity import Roster
from bestarm.deploy.logs import fields
from bestarm.deploy.process import together
from bestarm.errors import InputError
from bestarm.protocol.rounds import SERVER
from bestarm.records.describe import broken_by_data
from bestarm.records.record import Record
from bestarm.util.journal import Journal

ATTEMPTS = 3  # to connect to the broker

PATIENCE = 60.0  # seconds, if clients may lie: without a limit, f silent liars could block the run

ADVICE = (
    ". Check the disks of your NATS servers; in a cluster, most of them must run. "
    "A server that ran out of space must be restarted after there is space again"
)

CLOSE_SECONDS = 2.0  # time limit for closing the connection

log = logging.getLogger("bestarm.federation")


@dataclass(frozen=True)
class Status:
    """The state of a run, for a display."""

    desk: Desk
    connected: bool
    left: float | None  # seconds of patience left
    published: int
    attendance: str = ""  # who is connected, while clients are missing


class Server:
    """Runs a desk: moves messages from the broker to the journal, and from the journal to the broker.

    Parameters
    ----------
    folder : str or Path
        The folder that ``files.init`` created.
    port : int, optional
        The port of the embedded broker, if not the one that ``files.init`` was told.
    url : str, optional
        A NATS server to use instead of the embedded broker or the one that the folder names.
    monitor : str, optional
        The monitoring page of that NATS server.
    patience : float, optional
        Seconds that a round waits for its clients; ``math.inf`` waits for ever. The default is 60 where
        `byzantine` is above 0, else for ever.
    metrics : int, optional
        The port of the monitoring pages.
    replicas : int, optional
        How many servers of a NATS cluster keep each message, if not as many as ``files.init`` was told.
    linger : float
        After the verdict, seconds to wait for the next client that gets it.
    watch : callable, optional
        Called with a ``Status`` several times per second.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        port: int | None = None,
        url: str | None = None,
        monitor: str | None = None,
        patience: float | None = None,
        metrics: int | None = None,
        replicas: int | None = None,
        linger: float = 10.0,
        watch: Callable[[Status], None] | None = None,
    ) -> None:
        self.folder, self.metrics = Path(folder), metrics
        self.linger, self.watch = linger, watch
        if patience is not None and not patience > 0:
            raise InputError(f"patience = {patience}", expected="a positive number of seconds")
        if not linger >= 0:
            raise InputError(f"linger = {linger}", expected="a number of seconds")
        self.federation = Federation.load(self.folder)
        setup = self.federation.setup
        self.patience = PATIENCE if patience is None and setup.options.byzantine else patience
        self.certificates = CertificateWatch(self.folder)
        embedded = url is None and (self.folder / "broker" / "broker.key").exists()
        if port is not None and not embedded:
            raise InputError("there is no embedded broker whose port could be chosen", where=str(folder))
        self.broker = Broker(self.folder, self.federation, port) if embedded else None
        self.url = self.broker.own if self.broker else url or setup.url
        demand_url(self.url)
        copies = self.federation.replicas if replicas is None else replicas
        demand_replicas(copies, cluster=not embedded)
        self.monitor = monitor
        self.desk = self._open()
        self.federation = prepare(self.folder)  # only now is this the only server of the folder
        self.nkey = Nkey.load(self.folder / "server.nk")
        self.streams = Streams(self.url, setup, copies)
        self.reception = Reception(self.desk, self.streams, self._seated)
        self.complaints = Complaints()
        self.publisher = Publisher(
            self.desk, self._slot_of, lambda: self.reception.open, self.streams.lost.set
        )
        self.health = Health(self._stores, "" if self.broker else ADVICE)
        self.restarts = Restarts(self.broker, self.health) if self.broker else None
        self.waiting = Patience(self.health)
        self.attendance = Attendance(
            self.folder, self.desk, lambda: self.federation, self._page, self.complaints.violations,
            reload_by_hand=self.broker is None,
        )  # fmt: skip
        self.told_missing = -1  # the last round with a warning about missing clients
        self.seen: tuple[int, ...] = ()  # the version of federation.json in use
        self.configured: tuple[int, ...] = ()  # the version when the broker was started
        self.unread = 0  # consecutive failures to read it
        self.feed: Any = None
        informed = self.reception.greetings.informed
        self.farewell = Farewell(self.folder, self.desk, self.streams, self._slot_of, informed)
        self.nc: Any = None
        self.ready = False  # the streams exist

    def _open(self) -> Desk:
        """Restore the desk from its journal, or create a new journal."""
        path, setup, keys = self.folder / JOURNAL, self.federation.setup, server_keys(self.folder)
        if not path.exists():
            desk = Desk.create(path, setup, Roster.load(self.folder / ROSTER), keys[0])
        else:
            desk = Desk(Journal.open(path, KIND), *keys)
        if desk.setup.run != setup.run or desk.failures:
            why = desk.failures[0] if desk.failures else "it belongs to another run"
            desk.journal.close()
            raise InputError(f"the journal cannot be resumed: {why}", where=str(path))
        known = len(desk.changes)
        succeed(self.folder, desk)
        log_changes(desk.changes[known:])
        return desk

    @property
    def online(self) -> bool:
        """Whether the server is connected to the broker."""
        return self.nc is not None and bool(self.nc.is_connected)

    async def run(self) -> Record:
        """Run until the verdict, and return the record; a cancelled server resumes when it is run again."""
        async with contextlib.AsyncExitStack() as leaving:  # every step is taken, even if one is interrupted
            leaving.callback(self.desk.journal.close)
            if self.broker:
                leaving.callback(self.broker.stop)
            leaving.push_async_callback(self._disconnect)
            if self.metrics is not None:
                shown = await pages.serve(self.metrics, self._metrics, self._trouble)
                leaving.callback(shown.close)
            self.configured = _version(self.folder / SETUP)
            if self.broker:
                self.broker.start()
            # Keep the broker alive from the start: it may die before we are connected.
            helpers = (
                self._keep(),
                self._return(),
                self.publisher.run(),
                self.reception.run(),
                self.health.watch(),
                self.attendance.run(),
            )
            await together(self._work(), beside=helpers)
            return Record.load(self.folder / RECORD)

    async def _disconnect(self) -> None:
        if self.nc is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.nc.close()

    async def _work(self) -> None:
        await self._connect()
        await self._serve()
        late = collect(self.desk, self.feed, self.nc, self.streams, self.attendance)
        await together(self._end(), beside=[late])

    async def _end(self) -> None:
        """Wait until clients have the verdict and have sent their summaries; save the record with these."""
        await self.farewell.run(self.linger)
        if await wait_for_summaries(self.desk, self.farewell.unheard, self.linger):
            await self._save()

    async def _save(self) -> None:
        record = await asyncio.to_thread(self.desk.record)  # it replays the journal
        record.save(self.folder / RECORD)

    async def _connect(self) -> None:
        from bestarm.deploy.federation import wire

        def back() -> None:
            if self.feed is not None:
                self.feed.again()
            self.streams.lost.set()
            self.health.hear("the server was disconnected")

        ca = self.folder / "broker" / CA
        for attempt in range(ATTEMPTS, 0, -1):  # the broker may die at this moment; it is started again
            try:
                self.nc = await wire.connect(self.url, self.nkey, ca, "server", "_INBOX_server", back)
                break
            except Unreachable as error:
                if attempt == 1 or "certificate" in str(error):
                    raise
        self.streams.nc = self.nc
        self.feed = wire.Feed(self.nc, f"$JS.API.CONSUMER.MSG.NEXT.UP.{SERVER}")
        if not self.broker:  # the embedded broker was checked when it started
            await demand_sync(self.url, self.monitor)
        await self._resume()
        await self.reception.listen(self.nc)
        self.ready = True
        self.publisher.nc = self.nc
        self.health.wanted.set()

    async def _serve(self) -> None:
        """Pass messages to the desk until the verdict is published."""
        from bestarm.deploy.federation import wire

        while not self.desk.done:
            # Messages that come together share a write, but the last one of a round does not wait.
            messages = await self.feed.next(0.1, len(self.desk.waiting_for()))
            if messages:
                self.streams.stored("UP")
                known, warned = len(self.desk.notes), len(self.desk.shared)
                new = [m for m in messages if m.subject not in self.streams.probes]
                self.attendance.count([m.subject for m in new], self.desk.take([m.data for m in new]))
                wire.acknowledge(self.nc, messages)
                for note in self.desk.notes[known:]:
                    about = fields(event="note", client=note.client, round=note.round)
                    level = logging.INFO if note.routine else logging.WARNING
                    log.log(level, "%s says: %s", note.client, note.text, extra=about)
                for warning in self.desk.shared[warned:]:
                    what = "nothing is promised: " if broken_by_data([warning]) else ""
                    log.warning("%sgroup %s: %s", what, warning["group"], warning["text"])
            if self.nc.is_closed:
                raise Unreachable(f"{self.url}: {self.nc.last_error or 'the connection was closed'}")
            self._patience()
            self.publisher.outgoing.set()
        await self._save()
        while self.publisher.pending:
            self.publisher.outgoing.set()
            await asyncio.sleep(0.02)

    async def _return(self) -> None:
        """Check what the broker still has: after a restart it may have lost its store."""
        pause = 1.0
        while True:
            await self.streams.lost.wait()
            self.streams.lost.clear()
            try:
                await self._resume()
                self.feed.again()
                self.health.wanted.set()
                pause = 1.0
            except Unreachable as error:
                log.warning("%s; trying again", error)
                self.streams.lost.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)

    async def _resume(self) -> None:
        """Create missing streams, and find out which broadcasts they have.

        If messages from clients were lost, all clients are asked to send them again.
        """
        streams = self.streams
        await streams.make(list(self.federation.slots))
        newest = await streams.newest()
        known = newest is not None and self.reception.greetings.demand_known(newest, own=True)
        self.publisher.published = (
            newest.sequence + 1 if newest and known and "DOWN" not in streams.fresh else 0
        )
        if "UP" in streams.fresh and len(self.desk.journal):
            self.publisher.renewed.update(self.desk.setup.layout.clients)
        streams.fresh.clear()

    def _seated(self, slot: str) -> str | None:
        seat = self.federation.slots.get(slot)
        return seat.client if seat and not seat.revoked and not seat.blocked else None

    def _page(self, path: str) -> bytes | None:
        """A monitoring page of the broker; None if there is none."""
        if self.broker:
            return self.broker.page(path)
        with contextlib.suppress(OSError, ValueError):
            return fetch(self.monitor.rstrip("/") + path) if self.monitor else None
        return None

    def _slot_of(self, client: str) -> str | None:
        return self.federation.slot_of(client)

    async def _stores(self) -> str:
        """Why the broker stores nothing now; empty if it stores messages."""
        if not self.online:
            return "no connection to the broker"
        if not self.ready:
            return "the broker's streams are not ready"
        trouble = await self.streams.trouble(("DOWN",) if self.desk.done else ("UP", "DOWN"))
        return trouble or ("the broker does not store a broadcast" if self.publisher.stuck else "")

    def time_left(self) -> float | None:
        """Seconds until this round times out, or None without a limit.

        The clock does not run while the machine is not waiting, or while messages can't be sent or stored.
        """
        if self.patience is None or self.desk.done:
            return None
        return self.waiting.left(self.desk.machine, self.patience, not self.publisher.pending)

    def _patience(self) -> None:
        if self.patience is not None and self.time_left() == 0.0 and self.waiting.over(self.patience):
            # The machine decides what follows, even if a round times out repeatedly.
            number = self.desk.machine.round
            self.waiting.restart(self.desk.machine)
            self.desk.patience_over()
            if not self.desk.done and self.desk.machine.round == number != self.told_missing:
                self.told_missing = number
                log.warning(
                    "round %d still needs some of %s; to continue without a missing client: "
                    "bestarm federation drop %s CLIENT",
                    number, ", ".join(self.desk.waiting_for()), self.folder,
                )  # fmt: skip

    async def _keep(self) -> None:
        """Periodically restart a dead broker, apply the operator's orders, and show the status."""
        while True:
            if self.broker:
                texts = self.broker.complaints()
                refused = await asyncio.to_thread(self.broker.second_connections, texts) if texts else {}
                for text in texts:
                    self.complaints.hear(text, self.federation, refused)
                    if self.restarts:
                        self.restarts.hear(text)
                if not self.broker.alive():
                    log.warning("the broker has ended; restarting it")
                    self.broker.start()
                elif self.restarts and self.ready:
                    await self.restarts.check()
            self._orders()
            self.certificates.check()
            left = self.time_left()
            if self.watch:
                words = self.attendance.words()
                self.watch(Status(self.desk, self.online, left, self.publisher.published, words))
            await asyncio.sleep(0.2)

    def _orders(self) -> None:
        try:
            changed = _version(self.folder / SETUP)
            if changed == self.seen:
                return
            federation, roster = Federation.load(self.folder), Roster.load(self.folder / ROSTER)
        except (OSError, InputError) as error:  # perhaps half written: try again
            self.unread += 1
            if self.unread == 2:
                log.warning("%s; until this is fixed, the previous version stays in use", error)
            return
        self.federation, self.seen, self.unread = federation, changed, 0
        old = {client: member.key for client, member in self.desk.slots.roster.current.items()}
        self.publisher.renewed |= {c for c, member in roster.current.items() if old.get(c) != member.key}
        known = len(self.desk.changes)
        self.desk.set_roster(roster)
        succeed(self.folder, self.desk)
        log_changes(self.desk.changes[known:])
        if self.broker and changed != self.configured:  # a reload may refuse a client that is logging in
            self.broker.reload()
        self.certificates.log_renewed()
        self.attendance.apply(federation)
        for client in self.federation.dropped:
            if client not in self.desk.dropped:
                log.warning("the run continues without %s", client, extra=fields(event="drop", client=client))
            self.desk.drop(client)
        self.publisher.outgoing.set()

    def _metrics(self) -> str:
        stores, more = not self.health.trouble, self.certificates.metrics() | self.attendance.metrics()
        return pages.metrics_of(self.desk, self.complaints.count, self.online, stores, more)

    def _trouble(self) -> str:
        """The current problem, for ``/healthz``; empty if there is none."""
        return self.health.trouble if self.online else "no connection to the broker"


def _version(path: Path) -> tuple[int, int]:
    """A version of a file that changes whenever the file is replaced."""
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_ino
