"""The server of a federation: its journal, its machine, and the driver between them and the broker.

``Desk`` is a fold without a network: signed bytes, patience and the operator's word come in, and go to the
journal in one piece with what the machine says to them, signed; nobody acknowledges or publishes it before.
Its journal holds ``up`` (an envelope that was accepted), ``note`` (a client's word to the operator, which no
machine hears), ``down`` (an id and the server's own envelope), ``roster``, ``patience``, ``drop`` and
``stop``. ``Server`` moves the bytes and keeps the clock; it decides nothing. ``verify`` folds a journal again
and checks every signature and every conclusion.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import logging
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bestarm import audit
from bestarm.deploy import read
from bestarm.errors import InputError, shorten, visible
from bestarm.federation.broker import Broker, Unreachable, fetch, syncs
from bestarm.federation.files import (
    CA,
    CLIENT,
    JOURNAL,
    RECORD,
    ROSTER,
    SETUP,
    Federation,
    Nkey,
    Setup,
    demand_url,
    longest_message,
)
from bestarm.identity import Envelope, Evidence, Key, Roster, Slots, crypto
from bestarm.journal import Event, Journal
from bestarm.protocol.codec import Malformed
from bestarm.protocol.machine import Action, Drop, PatienceOver, Received, Send, Start, Stop
from bestarm.protocol.rounds import SERVER, GroupServer
from bestarm.record import SCHEMA, Bits, Record, on_user_scale
from bestarm.version import __version__

KIND = "federation-server"
UP, DOWN, HAVE, NOTE = "up", "down", "have", "note"  # what an envelope's arm-set says: what it is for
NOTES, NOTE_BYTES = 16, 300  # that a client may write to the operator, and how long one is
AHEAD = 8  # messages that a client may be ahead of the broadcasts; an honest one answers them
ID_BYTES = 16
QUEUE = 64  # messages of one client that the broker keeps until the server has them
SECOND = 1_000_000_000
ATTEMPTS = 3  # to connect to the broker
LONGEST_PAUSE = 300.0  # between two words to a client with a gap
REPEAT_SECONDS, MOST_SHOWN = 60.0, 20  # a complaint of the broker is shown once a minute, and not too many
log = logging.getLogger("bestarm.federation")


class Note(NamedTuple):
    """A client's word to the operator: the round in which it came, and if messages of it came later."""

    client: str
    text: str
    round: int
    later: bool


class Desk:
    """The server's machine and what was said to it, in the order of the journal."""

    def __init__(self, journal: Journal, key: Key | None = None) -> None:
        self.journal, self.key = journal, key
        self.setup = Setup.from_dict(journal.header["setup"])
        roster = Roster.decode(journal.header["roster"].encode())
        self.slots = Slots(roster, self.setup.run)
        self.longest = longest_message(self.setup)
        assert self.setup.room.server is not None
        self.machine: Any = self.setup.room.server(self.setup.layout, self.setup.unit)
        self.next: Counter[str] = Counter()  # the number of each client's message that is due
        self.bits: Counter[str] = Counter()  # that each client sent, as the machine counts them
        self.held: dict[str, dict[int, bytes]] = {}  # those that came before it
        self.refused: Counter[tuple[str, str]] = Counter()  # (who it is said to be from, why)
        self.said: list[bytes] = []
        self.downs: list[tuple[str, bytes]] = []
        self.dropped: list[str] = []
        self._notes: list[tuple[str, str, int, int]] = []  # client, text, round, its message that was due
        self.changes: list[str] = []  # of keys
        self.failures: list[str] = []
        self.unwritten: list[tuple[str, bytes]] = []  # events that took place and are not on the disk yet
        self._act(self.machine.handle(Start()))
        for event in journal.events():
            self.replay(event)
        self._speak()

    @staticmethod
    def create(path: Path, setup: Setup, roster: Roster, key: Key) -> Desk:
        header = {"setup": setup.to_dict(), "roster": roster.encode().decode()}
        return Desk(Journal.create(path, KIND, header), key)

    @property
    def done(self) -> bool:
        return bool(self.machine.state == "done")

    def take(self, batch: Sequence[bytes]) -> None:
        """Messages from anyone. When this returns, those that count are on the disk and have been heard."""
        kept = [] if self.done else [envelope for data in batch if (envelope := self._offer(data))]
        for envelope in kept:
            self.unwritten.append((envelope.arm_set, envelope.encode()))
            self._hear(envelope)
        self._speak()

    def _offer(self, data: bytes) -> Envelope | None:
        """The message, if it counts. One that doesn't is counted, under a name only if it is a client's."""
        source, reason = "?", "long"
        if len(data) <= self.longest:
            try:
                envelope = Envelope.decode(data)
                source = envelope.source if envelope.source in self.setup.layout.group_of else "?"
                reason = self._too_much(envelope)
            except Malformed:
                reason = "malformed"
        if not reason:
            offer = self.slots.offer(envelope)
            if offer.outcome != "refused":
                return None if offer.outcome == "repeat" else envelope
            reason = offer.reason
        self.refused[source, reason] += 1
        return None

    def _too_much(self, envelope: Envelope) -> str:
        """Why no honest client says this now; empty if one might."""
        if envelope.run != self.setup.run:
            return ""  # the slots say so
        if envelope.arm_set == UP:
            return "early" if envelope.round >= len(self.downs) + AHEAD else ""
        if envelope.arm_set == NOTE:
            return "note" if envelope.round >= NOTES or len(envelope.content) > NOTE_BYTES else ""
        return "kind"

    def _hear(self, envelope: Envelope) -> None:
        """Hand over what is due: each source's messages once and in order."""
        if self.slots.accepted[envelope.slot] != envelope:
            return  # it said something else first; the evidence is kept
        source = envelope.source
        if envelope.arm_set == NOTE:
            text = envelope.content.decode(errors="replace")
            self._notes.append((source, visible(text), self.machine.round, self.next[source]))
            return
        held = self.held.setdefault(source, {})
        held[envelope.round] = envelope.content
        while self.next[source] in held:
            content = held.pop(self.next[source])
            self.next[source] += 1
            before = self.machine.bits_up
            self._act(self.machine.handle(Received(source, content)))
            self.bits[source] += self.machine.bits_up - before

    def patience_over(self) -> None:
        """The round has waited long enough."""
        number = self.machine.round
        self._note("patience", str(number).encode(), PatienceOver(number))

    def stop(self, reason: str) -> None:
        """The operator, or the clock, ends it."""
        self._note("stop", reason.encode(), Stop(reason))

    def drop(self, client: str) -> None:
        """The operator's word: on without this client."""
        if client not in self.dropped:
            self.dropped.append(client)
            self._note("drop", client.encode(), Drop(client))

    def set_roster(self, roster: Roster) -> None:
        """Keys were added or revoked."""
        if roster != self.slots.roster:
            seq = self.journal.append("roster", roster.encode())
            self._renew(seq, roster)

    def _renew(self, seq: int, roster: Roster) -> None:
        self.changes += [f"event {seq}: {text}" for text in changes(self.slots.roster, roster)]
        self.slots.roster = roster

    def _note(self, kind: str, body: bytes, event: Any) -> None:
        if not self.done:
            self.unwritten.append((kind, body))
            self._act(self.machine.handle(event))
            self._speak()

    def _act(self, actions: list[Action]) -> None:
        self.said += [action.payload for action in actions if isinstance(action, Send)]

    def _speak(self) -> None:
        """Journal what happened, with what the machine said to it, signed and under an id."""
        fresh = []
        for number in range(len(self.downs), len(self.said) if self.key else 0):
            assert self.key is not None
            envelope = Envelope.sign(self.key, self.setup.run, SERVER, DOWN, number, self.said[number])
            fresh.append((secrets.token_bytes(ID_BYTES), envelope.encode()))
        events = self.unwritten + [(DOWN, identifier + data) for identifier, data in fresh]
        if events:
            self.journal.append_many(events)
            self.unwritten = []
            self.downs += [(identifier.hex(), data) for identifier, data in fresh]

    def replay(self, event: Event) -> None:
        """An event of the journal takes place again. Nothing is written or said."""
        body = event.body
        match event.kind:
            case "up" | "note":
                offer = self.slots.offer(body)
                own = offer.envelope is not None and offer.envelope.arm_set == event.kind
                if offer.outcome not in ("accepted", "equivocation") or not own or offer.envelope is None:
                    self.failures.append(f"event {event.seq}: a message that is {offer.reason or 'repeated'}")
                else:
                    self._hear(offer.envelope)
            case "down":
                self._check_down(event.seq, body[ID_BYTES:])
                self.downs.append((body[:ID_BYTES].hex(), body[ID_BYTES:]))
            case "roster":
                self._renew(event.seq, Roster.decode(body))
            case "patience":
                self._act(self.machine.handle(PatienceOver(int(body))))
            case "stop":
                self._act(self.machine.handle(Stop(body.decode())))
            case "drop":
                self.dropped.append(body.decode())
                self._act(self.machine.handle(Drop(body.decode())))
            case _:
                self.failures.append(
                    f"event {event.seq}: {shorten(event.kind)}, which a server does not have"
                )

    def _check_down(self, seq: int, data: bytes) -> None:
        number = len(self.downs)
        try:
            envelope = Envelope.decode(data)
        except Malformed as error:
            self.failures.append(f"event {seq}: {error}")
            return
        slot = (self.setup.run, SERVER, DOWN, number)
        if envelope.slot != slot or not envelope.signed_with(self.setup.server):
            self.failures.append(f"event {seq}: a broadcast that the server's key did not sign")
        if number >= len(self.said) or envelope.content != self.said[number]:
            self.failures.append(f"event {seq}: a broadcast that does not follow from what the server heard")

    def have(self, client: str) -> bytes:
        """A signed word to one client: which of its messages is due."""
        assert self.key is not None
        content = client.encode()
        return Envelope.sign(self.key, self.setup.run, SERVER, HAVE, self.next[client], content).encode()

    def waiting_for(self) -> list[str]:
        """The clients whose message this round is missing."""
        m, layout = self.machine, self.setup.layout
        if self.done:
            return []
        if isinstance(m, GroupServer):
            idle = m.out | m.spent | m.replied
            return [c for i, c in enumerate(layout.clients) if m.active[m.group[i]] and not idle[i]]
        return [group.clients[0] for j, group in enumerate(layout.groups) if m.waiting[j]]

    @property
    def notes(self) -> list[Note]:
        """What clients told the operator."""
        return [Note(who, text, number, self.next[who] > due) for who, text, number, due in self._notes]

    def suspects(self) -> dict[str, str]:
        """Who is proven faulty, and why."""
        found = {
            fault["client"]: f"round {fault['round']}: {fault['reason']}" for fault in self.machine.faulty
        }
        for evidence in self.slots.evidence.values():
            first = evidence.first
            text = (
                f"signed two different messages number {first.round} (a liar, or its folder is in use twice)"
            )
            found.setdefault(first.source, text)
        return found

    def record(self) -> Record:
        """What this run leaves behind, as far as a server knows it."""
        m, setup = self.machine, self.setup
        verdict = msgspec.structs.replace(
            on_user_scale(m.verdict, setup.scale),
            certificate={"server": m.certificate(), "local": None},
        )
        return Record(
            schema=SCHEMA,
            version=__version__,
            method=setup.method,
            delta=setup.options.delta,
            seed=None,
            options={k: v for k, v in dataclasses.asdict(setup.options).items() if k != "delta"},
            problem=setup.problem,
            verdict=verdict,
            rounds=m.rounds,
            pulls=None,
            bits=Bits(m.bits_up, m.bits_down),
            wire_bytes=m.bytes,
            proven_faulty=m.faulty,
            warnings=m.warnings,
            good_event=None,
            interrupted=m.verdict.reason == "interrupted",
        ).sealed()


def changes(old: Roster, new: Roster) -> list[str]:
    """What happened to which client's key, in words."""
    before, after = ({m.key: m for m in roster.members} for roster in (old, new))
    found = [f"{m.client} lost its key {k.hex()[:16]}" for k, m in before.items() if k not in after]
    for key, m in after.items():
        was = before.get(key)
        if was is None:
            found.append(f"{m.client} was given the key {key.hex()[:16]}")
        elif was != m:
            how = "revoked" if m.revoked else "put back in force"
            found.append(f"the key {key.hex()[:16]} of {m.client} was {how}")
    return found


@dataclass(frozen=True)
class Status:
    """Where a run is, for the eye."""

    desk: Desk
    connected: bool
    left: float | None  # seconds of patience
    published: int


class Server:
    """Drives a desk: from the broker to the journal, from the journal to the broker."""

    def __init__(
        self,
        folder: str | Path,
        *,
        url: str | None = None,
        monitor: str | None = None,
        patience: float | None = None,
        metrics: int | None = None,
        linger: float = 10.0,
        watch: Callable[[Status], None] | None = None,
    ) -> None:
        self.folder, self.patience, self.metrics = Path(folder), patience, metrics
        self.linger, self.watch = linger, watch
        if patience is not None and not patience > 0:
            raise InputError(f"patience = {patience}", expected="a positive number of seconds")
        if not linger >= 0:
            raise InputError(f"linger = {linger}", expected="a number of seconds")
        self.federation = Federation.load(self.folder)
        setup = self.federation.setup
        self.key, self.nkey = Key.load(self.folder / "server.key"), Nkey.load(self.folder / "server.nk")
        embedded = url is None and (self.folder / "broker" / "broker.key").exists()
        self.broker = Broker(self.folder, self.federation) if embedded else None
        self.url = self.broker.own if self.broker else url or setup.url
        demand_url(self.url)
        self.monitor = monitor
        path = self.folder / JOURNAL
        if path.exists():
            self.desk = Desk(Journal.open(path, KIND), self.key)
            if self.desk.setup.run != setup.run or self.desk.failures:
                why = self.desk.failures[0] if self.desk.failures else "it belongs to another run"
                raise InputError(f"the journal can't be gone on with: {why}", where=str(path))
        else:
            self.desk = Desk.create(path, setup, Roster.load(self.folder / ROSTER), self.key)
        self.published = 0
        self.began: tuple[int, float] = (-1, 0.0)  # the round, and since when it waits
        self.seen: tuple[int, ...] = ()  # which federation.json was taken up
        self.configured: tuple[int, ...] = ()  # and which was there when the broker was started
        self.unread = 0  # times in a row that it could not be read
        self.asked: dict[str, tuple[float, float]] = {}  # when a client with a gap was told; the next pause
        self.renewed: set[str] = set()  # clients with a new key, who are to be told
        self.turned_away = 0  # what the broker complained of
        self.shown: dict[str, float] = {}  # when that was last shown
        self.feed: Any = None
        self.lost = asyncio.Event()  # the connection was, and is back; or streams may be gone
        self.outgoing = asyncio.Event()  # there may be something to publish
        self.stuck = False  # the broker does not store what is published
        self.fresh: set[str] = set()  # streams that were made anew
        self.unheard: list[str] = []  # clients that took part, and don't have the verdict yet
        self.nc: Any = None
        self.ready = False  # the mailboxes are there

    @property
    def online(self) -> bool:
        """Whether the broker is there."""
        return self.nc is not None and bool(self.nc.is_connected)

    async def run(self) -> Record:
        """Go on until the verdict, and give the record; a cancelled one goes on when it is run again."""
        tasks: list[asyncio.Task[Any]] = []
        pages: asyncio.Server | None = None
        try:
            pages = await self._pages()
            self.configured = _version(self.folder / SETUP)
            if self.broker:
                self.broker.start()
            # The broker is kept alive from the start on: it may die before we are connected.
            works = (self._serve, self._keep, self._return, self._publishing)
            tasks = [asyncio.create_task(work()) for work in works]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:  # only the first one ends but by an error
                task.result()
            await self._linger()
            if self.unheard:
                log.warning(
                    "the verdict is there, but %s did not hear it: start the server again to tell them",
                    ", ".join(self.unheard),
                )
            return self.desk.record()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if pages is not None:
                pages.close()
            if self.nc is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(self.nc.close(), 2)
            if self.broker:
                self.broker.stop()
            self.desk.journal.close()

    async def _serve(self) -> None:
        """Connect; from the mailbox to the desk, and from the desk to all, until the verdict is out."""
        from bestarm.federation import wire

        def back() -> None:
            if self.feed is not None:
                self.feed.again()
            self.lost.set()

        ca = self.folder / "broker" / CA
        for attempt in range(ATTEMPTS, 0, -1):  # the broker may die just then; it is started again
            try:
                self.nc = await wire.connect(self.url, self.nkey, ca, "server", "_INBOX_server", back)
                break
            except Unreachable as error:
                if attempt == 1 or "certificate" in str(error):
                    raise
        self.feed = wire.Feed(self.nc, f"$JS.API.CONSUMER.MSG.NEXT.UP.{SERVER}")
        await self._demand_sync()
        await self._streams()
        await self._resume()
        self.ready = True
        while not self.desk.done:
            messages = await self.feed.next(0.1)
            if messages:
                known = len(self.desk.notes)
                self.desk.take([message.data for message in messages])
                await wire.acknowledge(messages)
                for note in self.desk.notes[known:]:
                    log.warning("%s says: %s", note.client, note.text)
            if self.nc.is_closed:
                raise Unreachable(f"{self.url}: {self.nc.last_error or 'the connection was closed'}")
            self._patience()
            self.outgoing.set()
        self.desk.record().save(self.folder / RECORD)
        while self.published < len(self.desk.downs):
            self.outgoing.set()
            await asyncio.sleep(0.02)

    async def _publishing(self) -> None:
        """What the desk has said goes out; a broker that stores nothing does not stop the clock."""
        while True:
            await self.outgoing.wait()
            self.outgoing.clear()
            if self.ready:
                await self._publish()
                await self._ask_for_gaps()

    async def _return(self) -> None:
        """A broker that comes back may have lost its store: see what it still has."""
        pause = 1.0
        while True:
            await self.lost.wait()
            self.lost.clear()
            try:
                await self._streams()
                await self._resume()
                self.feed.again()
                pause = 1.0
            except Unreachable as error:
                log.warning("%s; tried again", error)
                self.lost.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)

    async def _demand_sync(self) -> None:
        """By default a broker syncs its store minutes later; a message could be lost that it said it had."""
        if self.broker:
            return  # which was asked when it started
        need = "its configuration needs: jetstream { sync_interval: always }"
        if self.monitor is None:
            log.warning("%s: whether it syncs each message can't be seen (--monitor); %s", self.url, need)
            return
        try:
            page = await asyncio.to_thread(fetch, f"{self.monitor.rstrip('/')}/jsz")
            if not syncs(page):
                log.warning("%s does NOT sync each message: %s", self.url, need)
        except (OSError, ValueError, AttributeError) as error:
            raise InputError(
                f"is no monitoring page of a NATS ({error})", where=self.monitor, expected="http://HOST:PORT"
            ) from None

    async def _api(self, subject: str, wish: dict[str, Any] | None = None) -> dict[str, Any]:
        import nats.errors

        for _ in range(60):
            try:
                data = json.dumps(wish).encode() if wish else b""
                answer = await self.nc.request(f"$JS.API.{subject}", data, timeout=2)
                found: dict[str, Any] = json.loads(answer.data)
                return found
            except nats.errors.Error:  # JetStream may still be reading its store
                await asyncio.sleep(0.25)
        raise Unreachable(f"{self.url}: JetStream gives no answer")

    async def _make(self, subject: str, wish: dict[str, Any]) -> dict[str, Any]:
        found = await self._api(subject, wish)
        if "error" in found:
            raise Unreachable(f"{self.url}: {subject}: {found['error'].get('description')}")
        return found

    async def _streams(self) -> None:
        """See to it that streams and consumers are there."""
        setup = self.desk.setup
        guarded = {"storage": "file", "deny_delete": True, "deny_purge": True, "num_replicas": 1}
        up = {
            "name": "UP", "subjects": [f"{setup.subject}.up.*"], "retention": "workqueue", "discard": "new",
            "discard_new_per_subject": True, "max_msgs_per_subject": QUEUE,
            "max_msg_size": longest_message(setup), **guarded,
        }  # fmt: skip
        both = [f"{setup.subject}.all", f"{setup.subject}.down.*"]
        down = {"name": "DOWN", "subjects": both, "retention": "limits", **guarded}
        for config in (up, down):
            if "error" in await self._api(f"STREAM.INFO.{config['name']}"):
                self.fresh.add(str(config["name"]))
                await self._make(f"STREAM.CREATE.{config['name']}", config)
        # A new consumer is handed at once what an old one had not acknowledged.
        await self._api(f"CONSUMER.DELETE.UP.{SERVER}")
        own = {
            "durable_name": SERVER,
            "ack_policy": "explicit",
            "ack_wait": 30 * SECOND,
            "max_ack_pending": 5000,
        }
        await self._make(f"CONSUMER.DURABLE.CREATE.UP.{SERVER}", {"stream_name": "UP", "config": own})
        slots = list(self.federation.slots)
        for k in range(0, len(slots), 64):
            await asyncio.gather(*(self._consumer(slot) for slot in slots[k : k + 64]))

    async def _consumer(self, slot: str) -> None:
        subject = self.desk.setup.subject
        config = {
            "durable_name": slot, "filter_subjects": [f"{subject}.all", f"{subject}.down.{slot}"],
            "ack_policy": "explicit", "ack_wait": 2 * SECOND, "max_ack_pending": 1000,
        }  # fmt: skip
        wish = {"stream_name": "DOWN", "config": config}
        await self._make(f"CONSUMER.DURABLE.CREATE.DOWN.{slot}", wish)

    async def _resume(self) -> None:
        """Find out which broadcasts the stream has; if what clients say was lost, ask all for what is due.

        A new stream may have got one meanwhile that is not the first: then all go out again.
        """
        found = await self._api("STREAM.MSG.GET.DOWN", {"last_by_subj": f"{self.desk.setup.subject}.all"})
        self.published = 0
        if "message" in found and "DOWN" not in self.fresh:
            self.published = Envelope.decode(base64.b64decode(found["message"]["data"])).round + 1
        if "UP" in self.fresh and len(self.desk.journal):
            self.renewed.update(self.desk.setup.layout.clients)
        self.fresh.clear()

    async def _tell_due(self, client: str) -> None:
        from bestarm.federation import wire

        slot = self.federation.slot_of(client)
        if slot is not None:
            subject = f"{self.desk.setup.subject}.down.{slot}"
            await wire.publish(
                self.nc, subject, self.desk.have(client), secrets.token_hex(ID_BYTES), self._late
            )
            self.stuck = False

    def _late(self) -> None:
        """The broker is there and stores nothing: see whether its streams are."""
        self.stuck = True
        self.lost.set()

    def gaps(self, now: float) -> set[str]:
        """Clients to ask for what is missing before what they said: ever less often, for they may be gone."""
        found = {c for c, held in self.desk.held.items() if held and c not in self.desk.dropped}
        self.asked = {c: asked for c, asked in self.asked.items() if c in found}
        due = {c for c in found if c not in self.asked or now >= self.asked[c][0] + self.asked[c][1]}
        for c in due:
            self.asked[c] = (now, min(2 * self.asked[c][1], LONGEST_PAUSE) if c in self.asked else 1.0)
        return due

    async def _ask_for_gaps(self) -> None:
        if self.desk.done:
            return  # nothing that is said now counts; who has the verdict may have left
        for client in sorted(self.gaps(time.monotonic()) | self.renewed):
            self.renewed.discard(client)
            await self._tell_due(client)

    async def _publish(self) -> None:
        from bestarm.federation import wire

        while self.published < len(self.desk.downs):
            number = self.published
            identifier, data = self.desk.downs[number]
            await wire.publish(self.nc, f"{self.desk.setup.subject}.all", data, identifier, self._late)
            self.stuck = False
            if self.published == number:  # the broker may have lost some meanwhile
                self.published += 1

    def time_left(self) -> float | None:
        """Seconds until the patience with this round is over. Round 0 begins with the first report.

        The clock stands while the server itself is cut off: nobody can be heard then.
        """
        m, now = self.desk.machine, time.monotonic()
        if m.round != self.began[0] or not self.desk.next or not (self.ready and self.online):
            self.began = (m.round, now)
        if self.patience is None or self.desk.done:
            return None
        return max(0.0, self.began[1] + self.patience - now)

    def _patience(self) -> None:
        if self.time_left() == 0.0:  # the same round may wear it out once more: then the run ends
            self.began = (self.desk.machine.round, time.monotonic())
            self.desk.patience_over()

    async def _keep(self) -> None:
        """Now and then: a broker that died is started, the operator's orders are taken up, all is shown."""
        while True:
            if self.broker:
                for text in self.broker.complaints():
                    self._complain(text)
                if not self.broker.alive():
                    log.warning("the broker has ended; it is started again")
                    self.broker.start()
            self._orders()
            left = self.time_left()
            if self.watch:
                self.watch(Status(self.desk, self.online, left, self.published))
            await asyncio.sleep(0.2)

    def _complain(self, text: str) -> None:
        """Show what the broker complains of, with names for keys; the same not more than once a minute."""

        def named(found: re.Match[str]) -> str:
            seat = self.federation.whose(found[1])
            if seat is None:
                return f"unknown key {found[1]}"
            return f"the {'revoked ' if seat.revoked else ''}key of {seat.client}"

        text = re.sub(r":\d+ - [a-z]+:\d+ - ", ": ", text)
        text = re.sub(r'(?:"v[^"]*" - )?(?:Nkey "|"\w+/nkey:)(\w+)"', named, text)
        text = visible(text)  # names are what clients say they are
        self.turned_away += 1
        now, kind = time.monotonic(), text.partition(" - Subject")[0]
        self.shown = {text: at for text, at in self.shown.items() if now - at < REPEAT_SECONDS}
        if kind not in self.shown and len(self.shown) < MOST_SHOWN:
            self.shown[kind] = now
            log.warning("broker: %s", text if len(self.shown) < MOST_SHOWN else "and more: see broker.log")

    def _orders(self) -> None:
        try:
            changed = _version(self.folder / SETUP)
            if changed == self.seen:
                return
            federation, roster = Federation.load(self.folder), Roster.load(self.folder / ROSTER)
        except (OSError, InputError) as error:  # half written? look again
            self.unread += 1
            if self.unread == 2:
                log.warning("%s; until it is mended, what was read last holds", error)
            return
        self.federation, self.seen, self.unread = federation, changed, 0
        old = {client: member.key for client, member in self.desk.slots.roster.current.items()}
        self.renewed |= {c for c, member in roster.current.items() if old.get(c) != member.key}
        self.desk.set_roster(roster)
        if self.broker and changed != self.configured:  # one that reloads may turn away who just then logs in
            self.broker.reload()
        for client in self.federation.dropped:
            self.desk.drop(client)
        self.outgoing.set()

    async def _linger(self) -> None:
        """Stay until the clients that took part have the verdict, but not for ever."""
        missing = {c: slot for c in self.desk.next if (slot := self.federation.slot_of(c))}
        self.unheard = sorted(missing)
        with contextlib.suppress(TimeoutError, Unreachable):
            async with asyncio.timeout(max(1.0, self.linger)):
                while self.unheard:
                    for client in self.unheard:
                        facts = await self._api(f"CONSUMER.INFO.DOWN.{missing[client]}")
                        if not facts.get("num_pending", 1) and not facts.get("num_ack_pending", 1):
                            self.unheard = [c for c in self.unheard if c != client]
                    await asyncio.sleep(0.1)

    async def _pages(self) -> asyncio.Server | None:
        """Health and metrics, for this computer alone."""
        if self.metrics is None:
            return None
        try:
            return await asyncio.start_server(self._page, "127.0.0.1", self.metrics)
        except (OSError, OverflowError) as error:
            why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
            raise InputError(
                f"port {self.metrics} can't be used for the metrics ({why})", fix="Choose another port"
            ) from None

    async def _page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            line = await asyncio.wait_for(reader.readline(), 30)
            path = line.split(b" ")[1] if line.count(b" ") >= 2 else b""
            code, body = "404 Not Found", "see /metrics and /healthz\n"
            if path == b"/metrics":
                code, body = "200 OK", self._metrics()
            elif path == b"/healthz":
                good = self.online and not self.stuck
                code = "200 OK" if good else "503 Service Unavailable"
                trouble = "the broker stores nothing" if self.online else "no connection to the broker"
                body = "ok\n" if good else f"{trouble}\n"
            head = f"HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            length = len(body.encode())
            writer.write(f"{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    def _metrics(self) -> str:
        desk, m = self.desk, self.desk.machine
        facts = {
            "round": m.round,
            "active_groups": int(m.active.sum()),
            "clients": len(desk.setup.layout.clients),
            "clients_missing": len(desk.waiting_for()),
            "clients_suspect": len(desk.suspects()),
            "messages_accepted_total": len(desk.slots.accepted),
            "messages_refused_total": sum(desk.refused.values()),
            "notes_total": len(desk.notes),
            "broker_complaints_total": self.turned_away,
            "broadcasts_total": len(desk.downs),
            "bits_up_total": m.bits_up,
            "bits_down_total": m.bits_down,
            "done": int(desk.done),
            "broker_connected": int(self.online),
        }
        kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in facts}
        return "".join(f"# TYPE bestarm_{k} {kinds[k]}\nbestarm_{k} {v}\n" for k, v in facts.items())


def _version(path: Path) -> tuple[int, int]:
    """Differs from one file to the next, if each is written whole."""
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_ino


@dataclass(frozen=True)
class Finding:
    """What the verification of a server's folder found: the record as it follows from the journal, if any."""

    failures: tuple[str, ...]
    record: Record | None
    suspects: dict[str, str]
    evidence: tuple[Evidence, ...]
    events: int
    notes: tuple[Note, ...] = ()  # what clients told the operator
    changes: tuple[str, ...] = ()  # of keys, by the operator or by who forged the journal

    @property
    def ok(self) -> bool:
        return not self.failures


def verify(folder: Path, kept: Path | None = None) -> Finding:
    """Fold a server's journal again: every signature, the verdict, the certificate, and who is suspect.

    Whoever has the server's folder can write all of it anew, keys included. `kept` is a roster that was kept
    elsewhere, such as the one in a client's folder: only keys in it may have signed what clients said.
    """
    crypto()  # what is missing here is no fault of the journal
    path = folder / JOURNAL if folder.is_dir() else folder
    with Journal.open(path, KIND, write=False) as journal:
        events = journal.verify()
        try:
            desk = Desk(journal)
        except Exception as error:  # whatever a forged header or event may lead to
            text = visible(f"the journal can't be read as a run: {error!r}")
            return Finding((text,), None, {}, (), events)
    failures = [*desk.failures, *_compare(desk, path.parent / RECORD)]
    if folder.is_dir():
        failures += _compare_folder(desk, folder)
    if kept is not None:
        failures += _compare_kept(desk, kept)
    evidence = tuple(desk.slots.evidence.values())
    everyone = Roster(tuple({m.key: m for m in desk.slots.roster.members}.values()))
    failures += [
        f"the evidence against {e.first.source} does not hold" for e in evidence if not e.verify(everyone)
    ]
    record = desk.record() if desk.done else None
    return Finding(
        tuple(map(visible, failures)), record, desk.suspects(), evidence, events, tuple(desk.notes),
        tuple(desk.changes),
    )  # fmt: skip


def _compare_folder(desk: Desk, folder: Path) -> Iterator[str]:
    """The journal against the files next to it; the roster there may be newer, by what is not heard yet."""
    try:
        federation, roster = Federation.load(folder), Roster.load(folder / ROSTER)
    except InputError as error:
        yield str(error)
        return
    if federation.setup != desk.setup:
        yield f"{SETUP} is about another run than the journal"
    mine = {member.key: member for member in roster.members}
    for member in desk.slots.roster.members:
        now = mine.get(member.key)
        if now is None or now.client != member.client or (member.revoked and not now.revoked):
            key = member.key.hex()[:16]
            yield f"{ROSTER} does not have the key {key} of {member.client} as the journal does"


def _compare_kept(desk: Desk, kept: Path) -> Iterator[str]:
    keys = {(member.client, member.key) for member in Roster.load(kept).members}
    used = {(slot[1], key): None for slot, key in desk.slots.keys.items()}
    for client, key in used:
        if (client, key) not in keys:
            short = key.hex()[:16]
            yield f"what {client} is said to have said is signed with {short}, which {kept} does not have"
    own = kept.with_name(CLIENT)  # in a client's folder
    if own.exists() and read(own, "Use another copy of it").get("setup") != desk.setup.to_dict():
        yield f"{own} is about another run than the journal"


def _compare(desk: Desk, path: Path) -> Iterator[str]:
    if not desk.done:
        if path.exists():
            yield "there is a record, but the journal leads to no verdict yet"
        return
    record = desk.record()
    yield from audit.verify(record).failures
    if not path.exists():
        yield f"there is no {RECORD}, though the run has ended"
        return
    try:
        saved = Record.load(path)
    except InputError as error:
        yield str(error)
        return
    yield from (failure for failure in audit.verify(saved).failures)
    for key, value in record.to_dict().items():
        if key not in ("version", "digest") and saved.to_dict()[key] != value:
            yield f"{RECORD}: {key} does not follow from the journal"
