"""The server of a federation as a fold without a network.

The inputs are signed bytes, timeouts and the operator's orders. They are written to the journal atomically,
together with the machine's signed answers; nothing is acknowledged or published before that. The events of
the journal are ``up`` (an accepted envelope), ``note`` and ``alarm`` (a client's messages to the operator,
which the machine does not see), ``pace`` (see ``pace``), ``summary`` (what a client sends after the verdict),
``down`` (an id and the server's own envelope), ``key`` (the same, naming the server's next key), ``mark``
(see ``marks``), ``roster``, ``block`` and ``allow`` (see ``floods``), ``patience``, ``drop``, ``stop``.

Memory does not grow with the number of messages: of each client the desk keeps the last few envelopes, and it
reads its own broadcasts, and what the record needs, from the journal.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from bestarm.deploy.envelope import Envelope, Slot, Slots
from bestarm.deploy.evidence import earlier_evidence
from bestarm.deploy.federation.accounts import longest_message
from bestarm.deploy.federation.alarms import ALARM, Alarms
from bestarm.deploy.federation.floods import ALLOW, BLOCK, CutOffs
from bestarm.deploy.federation.key_changes import changes
from bestarm.deploy.federation.last_words import SUMMARY, Summaries
from bestarm.deploy.federation.marks import append_mark, trusted_events, valid_mark
from bestarm.deploy.federation.pace import PACE, Paces
from bestarm.deploy.federation.setup import Setup
from bestarm.deploy.federation.shared_recordings import SharedRecordings
from bestarm.deploy.identity import Key, Roster
from bestarm.deploy.inbox import Inbox
from bestarm.deploy.outbox import Outbox
from bestarm.deploy.pulling import recordings
from bestarm.errors import InputError
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action, Drop, PatienceOver, Received, Send, Start, Stop
from bestarm.protocol.events import Event as MachineEvent
from bestarm.protocol.machine import ServerMachine
from bestarm.protocol.rounds import SERVER
from bestarm.protocol.summaries import SummaryBook
from bestarm.records.build import conclude_server
from bestarm.records.record import Record
from bestarm.util.journal import PAGE, Event, Journal
from bestarm.util.text import shorten, visible

KIND = "federation-server"

UP, DOWN, HAVE, NOTE, KEY = "up", "down", "have", "note", "key"  # the topics of envelopes

NOTES, NOTE_BYTES = 16, 300  # how many a client may send to the operator, and their length

AHEAD = 8  # how far a client may be ahead of the broadcasts; an honest one answers them

HELD = 64  # how many messages of a client may wait for an earlier one

WINDOW = 8  # handled messages per client that are kept to recognise repeats and equivocation

MARK_EVERY = 2048  # events between two marks: at most so many signatures are checked at a restart

ID_BYTES = 16


class Note(NamedTuple):
    """A client's message to the operator, its round, and whether the client sent messages after it."""

    client: str
    text: str
    round: int
    later: bool

    @property
    def routine(self) -> bool:
        """Whether it only names the recording that the client plays, for a comparison with others."""
        return bool(recordings(self.text))


class Desk:
    """The server's machine and all its events, in the order of the journal.

    Parameters
    ----------
    journal : Journal
        The server's journal.
    *keys : Key
        The server's private keys: the one that the journal names as the current one signs broadcasts. With
        keys, signatures before the last valid mark are not checked again. Without keys, all are checked,
        nothing is written and nothing is forgotten.
    checked : bool
        Whether this process has checked all signatures of the journal.

    Raises
    ------
    InputError
        If none of the keys is the current one.
    """

    def __init__(self, journal: Journal, *keys: Key, checked: bool = False) -> None:
        self.journal = journal
        self.setup = Setup.from_dict(journal.header["setup"])
        roster = Roster.decode(journal.header["roster"].encode())
        self.slots = Slots(roster, self.setup.run)
        self.inbox = Inbox[str, bytes]()  # by client
        self.outbox = Outbox(journal, self.setup.run, SERVER, None)
        self.servers = [self.setup.server]  # the server's public keys, in their order
        self.early: set[str] = set()  # clients with a valid message that was refused because it was early
        self.longest = longest_message(self.setup)
        assert self.setup.room.server is not None
        self.machine: ServerMachine = self.setup.room.server(self.setup.layout, self.setup.unit)
        self.bits: Counter[str] = Counter()  # sent by each client, as counted by the machine
        self.refused: Counter[tuple[str, str]] = Counter()  # (claimed sender, reason)
        self._said: deque[bytes] = deque()  # messages of the machine that are not signed yet
        self.dropped: list[str] = []
        self._notes: list[tuple[str, str, int, int]] = []  # client, text, round, number of its next message
        self._alarms = Alarms(self.slots, self.inbox.next)
        self.paces = Paces(self.slots, self.setup.layout)
        self._recordings = SharedRecordings(self.setup)
        self.shared = self._recordings.warnings  # about recordings that several clients play
        self.changes: list[str] = []  # changes of keys, and of who may connect
        self.cut_offs = CutOffs(self.setup.layout, self.changes)
        self.failures: list[str] = []
        self._summaries = Summaries(self.setup, self.machine)
        self._act(self.machine.handle(Start()))
        trusted = trusted_events(journal, self.setup.run, [key.public for key in keys])
        self._trusted = len(journal) if checked else trusted
        self._marked = 0  # the number of events when the last mark was written
        for event in journal.events():
            self.replay(event)
            if keys and event.seq % PAGE == 0:
                self.machine.forget()
        if keys:
            self.outbox.key = self._current(keys)
            self._speak()

    def _current(self, keys: Sequence[Key]) -> Key:
        """The key that the journal names."""
        for key in keys:
            if key.public == self.server:
                return key
        raise InputError(
            f"the server's key is not {self.server.hex()[:16]}, which the journal names",
            where=str(self.journal.path.parent),
            fix="Restore the newest journal.db with its -wal file, and the server.key that belongs to it",
        )

    @staticmethod
    def create(path: Path, setup: Setup, roster: Roster, key: Key) -> Desk:
        """Create a desk with a new journal."""
        header = {"setup": setup.to_dict(), "roster": roster.encode().decode()}
        return Desk(Journal.create(path, KIND, header), key)

    @property
    def done(self) -> bool:
        """Whether there is a verdict."""
        return self.machine.state == "done"

    @property
    def server(self) -> bytes:
        """The public key that signs broadcasts now."""
        return self.servers[-1]

    @property
    def next(self) -> Counter[str]:
        """For each client, the number of its next message: how many were handled."""
        return self.inbox.next

    @property
    def broadcasts(self) -> Sequence[bytes]:
        """Broadcasts that may be published: signed and on disk."""
        return self.outbox.of(DOWN)

    def id_of(self, number: int) -> str:
        """The id of a broadcast, for the broker."""
        return self.outbox.of(DOWN).body(number)[:ID_BYTES].hex()

    def gaps(self) -> set[str]:
        """Clients that must send earlier messages (again) before their later ones can be handled."""
        return self.inbox.gaps() | self.early

    def take(self, batch: Sequence[bytes]) -> list[bool]:
        """Take messages from anyone, and return which were accepted: these are on disk and were handled."""
        accepted, done = [], self.done
        read = [self._read(data) for data in batch]
        messages = [each for each in read if isinstance(each, Envelope) and each.topic == UP]
        valid = self.slots.signed([each for each in messages if not self._too_much(each)])
        for data, each in zip(batch, read, strict=True):  # one after the other, as in a replay
            summary = isinstance(each, Envelope) and each.topic == SUMMARY
            envelope = None if done and not summary else self._offer(each, valid)
            accepted.append(envelope is not None)
            if envelope is not None:
                self.outbox.append(envelope.topic, data)  # each envelope has exactly one encoding
                self._hear(envelope)
        self._speak()
        return accepted

    def _read(self, data: bytes) -> Envelope | str:
        """Decode a message; a word if it can't be one."""
        if len(data) > self.longest:
            return "long"
        try:
            return Envelope.decode(data)
        except Malformed:
            return "malformed"

    def _offer(self, message: Envelope | str, valid: Set[Slot]) -> Envelope | None:
        """Return the message if it is accepted. Refusals are counted, by name if the sender is a client."""
        source, reason = "?", message if isinstance(message, str) else ""
        if isinstance(message, Envelope):
            source = message.source if message.source in self.setup.layout.group_of else "?"
            reason = self._too_much(message)
            if reason == "early" and source not in self.early and self._signed(message):
                self.early.add(source)
            if not reason:
                offer = self._box(message.topic).offer(message, signed=message.slot in valid)
                if offer.outcome != "refused":
                    return None if offer.outcome == "repeat" else message
                reason = offer.reason
        self.refused[source, reason] += 1
        return None

    def _too_much(self, envelope: Envelope) -> str:
        """Why no honest client would send this now; empty if one might."""
        if envelope.run != self.setup.run:
            return ""  # the slots refuse it
        if envelope.topic == UP:
            most = min(len(self.broadcasts) + AHEAD, self.next[envelope.source] + HELD)
            return "early" if envelope.sequence >= most else ""
        if envelope.topic == NOTE:
            return "note" if envelope.sequence >= NOTES or len(envelope.content) > NOTE_BYTES else ""
        if envelope.topic == SUMMARY:
            return "" if self._summaries.expects(envelope) else "summary"
        return "" if envelope.topic in (ALARM, PACE) else "kind"

    @property
    def summaries(self) -> SummaryBook | None:
        """What clients sent after the verdict; None before it, or if they keep it at the site."""
        return self._summaries.book

    def _box(self, topic: str) -> Slots | Alarms | Paces:
        """What accepts or refuses the messages of a topic."""
        if topic == PACE:
            return self.paces
        return self._alarms if topic == ALARM else self.slots

    def _signed(self, envelope: Envelope) -> bool:
        member = self.slots.roster.current.get(envelope.source)
        return member is not None and envelope.signed_with(member.key)

    def _hear(self, envelope: Envelope) -> None:
        """Pass messages that are next in order to the machine."""
        if envelope.topic == PACE:
            said = len(self.broadcasts) + len(self._said)
            for event in self.paces.take(envelope, said, set(self.dropped)):
                if (self.machine.state, type(event)) in self.machine.transitions:
                    self._act(self.machine.handle(event))
            return
        if envelope.topic != ALARM and self.slots.accepted[envelope.slot] != envelope:
            return  # a different message came first; the evidence is kept
        source = envelope.source
        if envelope.topic == SUMMARY:
            self._summaries.take(envelope)
            return
        if envelope.topic in (NOTE, ALARM):
            text = envelope.content.decode(errors="replace")
            self._notes.append((source, visible(text), self.machine.round, self.next[source]))
            self._recordings.compare(source, text, self.machine.round)
            return
        for content in self.inbox.take(source, envelope.sequence, envelope.content):
            before = self.machine.bits_up
            self._act(self.machine.handle(Received(source, content)))
            self.bits[source] += self.machine.bits_up - before
            self.early.discard(source)
        self.slots.forget(source, UP, self.next[source] - WINDOW)

    def patience_over(self) -> None:
        """Record that the round has waited long enough."""
        number = self.machine.round
        self._order("patience", str(number).encode(), PatienceOver(number))

    def stop(self, reason: str) -> None:
        """End the run, by order of the operator or after a timeout."""
        self._order("stop", reason.encode(), Stop(reason))

    def drop(self, client: str) -> None:
        """Continue without this client, by order of the operator."""
        if client not in self.dropped:
            self.dropped.append(client)
            self._order("drop", client.encode(), Drop(client))

    def _order(self, kind: str, body: bytes, event: MachineEvent) -> None:
        if not self.done:
            self.outbox.append(kind, body)
            self._act(self.machine.handle(event))
            self._speak()

    def set_roster(self, roster: Roster) -> None:
        """Use a new roster after keys were added or revoked."""
        if roster != self.slots.roster:
            seq = self.journal.append("roster", roster.encode())
            self._renew(seq, roster)

    def _renew(self, seq: int, roster: Roster) -> None:
        self.changes += [f"event {seq}: {text}" for text in changes(self.slots.roster, roster)]
        self.slots.roster = roster

    def _act(self, actions: list[Action]) -> None:
        self._said += [action.payload for action in actions if isinstance(action, Send)]

    def _speak(self) -> None:
        """Write pending events and the machine's signed answers, each with an id, to the journal."""
        while self.outbox.key is not None and self._said:
            self.outbox.say(DOWN, DOWN, self._said.popleft(), prefix=secrets.token_bytes(ID_BYTES))
        self.outbox.write()
        if self.outbox.key is not None:
            self.machine.forget()
            if len(self.journal) - self._marked >= MARK_EVERY:
                self._mark(self.outbox.key)

    def _mark(self, key: Key) -> None:
        append_mark(self.journal, self.setup.run, key)
        self._marked = len(self.journal)

    def succeed(self, key: Key) -> None:
        """Sign broadcasts with a new key from now on, and tell the clients in the order of the broadcasts.

        The statement that names the new key is signed with the old one and is in the journal when this
        returns. Nothing happens if the key is the current one already.
        """
        if key.public != self.server:
            self.outbox.say(KEY, KEY, key.public, prefix=secrets.token_bytes(ID_BYTES), stream=DOWN)
            self.outbox.write()
            self._succeed(len(self.journal) - 1, key.public)
            self.outbox.key = key
            self._mark(key)

    def _succeed(self, seq: int, public: bytes) -> None:
        old, new = self.server.hex()[:16], public.hex()[:16]
        self.servers.append(public)
        self.changes.append(f"event {seq}: the server's key {old} was replaced by {new}")

    def replay(self, event: Event) -> None:
        """Apply an event of the journal again. Nothing is written or sent."""
        body = event.body
        match event.kind:
            case "up" | "note" | "alarm" | "pace" | "summary":
                if event.kind == SUMMARY and self.summaries is None:
                    self.failures.append(f"event {event.seq}: a summary that nobody asked for")
                self._replay_message(event)
            case "down" | "key":
                self._replay_down(event)
            case "mark":
                self._marked = event.seq + 1
                if event.seq >= self._trusted and not valid_mark(
                    self.journal, self.setup.run, event, self.server
                ):
                    self.failures.append(f"event {event.seq}: a mark that the server's key did not sign")
            case "roster":
                self._renew(event.seq, Roster.decode(body))
            case kind if kind in (BLOCK, ALLOW):
                self.cut_offs.hear(event.seq, kind, body, self.machine.round)
            case "patience":
                self._act(self.machine.handle(PatienceOver(int(body))))
            case "stop":
                self._act(self.machine.handle(Stop(body.decode())))
            case "drop":
                self.dropped.append(body.decode())
                self._act(self.machine.handle(Drop(body.decode())))
            case _:
                self.failures.append(f"event {event.seq}: {shorten(event.kind)} is not an event of a server")

    def _replay_message(self, event: Event) -> None:
        offer = self._box(event.kind).offer(event.body, signed=event.seq < self._trusted)
        envelope = offer.envelope
        if envelope is None or envelope.topic != event.kind:
            self.failures.append(f"event {event.seq}: a message that is {offer.reason or 'of another kind'}")
        elif offer.outcome in ("accepted", "equivocation"):
            self._hear(envelope)
        elif offer.reason in ("old", "closed") and (
            found := earlier_evidence(self.journal.path, event.seq, envelope, self.slots.roster)
        ):
            self.slots.evidence[envelope.slot] = found
        else:
            self.failures.append(f"event {event.seq}: a message that is {offer.reason or 'repeated'}")

    def _replay_down(self, event: Event) -> None:
        """Check a broadcast: its number, its signature, and that it follows from what the server heard."""
        number, seq = len(self.broadcasts), event.seq
        self.outbox.restore(DOWN, seq, ID_BYTES)
        try:
            envelope = Envelope.decode(event.body[ID_BYTES:])
        except Malformed as error:
            self.failures.append(f"event {seq}: {error}")
            return
        signed = seq < self._trusted or envelope.signed_with(self.server)
        if envelope.slot != (self.setup.run, SERVER, event.kind, number) or not signed:
            self.failures.append(f"event {seq}: a broadcast that the server's key did not sign")
        if event.kind == KEY:
            self._succeed(seq, envelope.content)
        elif not self._said or envelope.content != self._said.popleft():
            self.failures.append(f"event {seq}: a broadcast that does not follow from what the server heard")

    def have(self, client: str) -> bytes:
        """A signed message that tells one client which of its messages is expected next."""
        assert self.outbox.key is not None
        key, run = self.outbox.key, self.setup.run
        return Envelope.sign(key, run, SERVER, HAVE, self.next[client], client.encode()).encode()

    def waiting_for(self) -> list[str]:
        """The clients whose messages are missing in this round."""
        return self.machine.missing_clients()

    @property
    def notes(self) -> list[Note]:
        """Messages from clients to the operator."""
        return [Note(who, text, number, self.next[who] > due) for who, text, number, due in self._notes]

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """The machine's warnings, and those that it can't know: shared recordings, clients cut off."""
        return [*self.machine.warnings, *self.shared, *self.cut_offs.warnings]

    def suspects(self) -> dict[str, str]:
        """Clients that are proven faulty, with the reason."""
        found = {row["client"]: f"round {row['round']}: {row['reason']}" for row in self.machine.faulty}
        for evidence in self.slots.evidence.values():
            first = evidence.first
            text = f"signed two different messages number {first.sequence}"
            found.setdefault(first.source, f"{text} (a liar, or two processes use its folder)")
        return found

    def record(self) -> Record:
        """The record of this run, as far as the server knows it."""
        if self.outbox.key is not None:
            with Journal.open(self.journal.path, KIND, write=False) as journal:
                return Desk(journal, checked=True).record()
        evidence = [evidence.to_dict() for evidence in self.slots.evidence.values()]
        return conclude_server(
            self.setup, self.machine, warnings=self.warnings, evidence=evidence, summaries=self.summaries
        )
