"""A client of a federation as a fold without a network.

The events of its journal are ``supply`` (how many rewards there are), ``asked`` (a batch of pulls, before it
is made), ``rewards`` (its results), ``down`` (a broadcast), ``key`` (a broadcast that names the server's next
key), ``up`` (the client's own envelope, before it is first sent), ``sent`` (how many of those the broker
has), ``note`` (a signed message to the server's operator), ``summary`` (what it sends after the verdict) and
``stop``. Events are written to the journal
atomically with the machine's answers; nothing is sent or acknowledged before that. Rewards that were paid for
are never lost: those that the machine can't use now are kept for later. Messages that were sent are read from
the journal when needed again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Self

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation.desk import DOWN, HAVE, KEY, NOTE, NOTE_BYTES, NOTES, UP
from bestarm.deploy.federation.files import JOURNAL, Place
from bestarm.deploy.federation.last_words import SUMMARY
from bestarm.deploy.inbox import Inbox
from bestarm.deploy.outbox import Outbox
from bestarm.deploy.pull_ledger import Pulls
from bestarm.errors import InputError
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Received, Start
from bestarm.protocol.machine import ClientMachine, LackingClient
from bestarm.protocol.rounds import SERVER, one_arm
from bestarm.util.journal import PAGE, Event, Journal

KIND = "federation-client"

HELD = 1000  # how many broadcasts may arrive early

UNPROVEN = 64  # how many of them are kept until a key that signed them is known

DIGEST_BYTES = 8  # per broadcast: enough to notice a different one

SESSION_BYTES = 8  # of a number that tells the processes of one client apart

NO_SESSION = bytes(SESSION_BYTES)


def _digest(envelope: Envelope) -> bytes:
    return hashlib.blake2b(envelope.body, digest_size=DIGEST_BYTES).digest()


class Site(Pulls):
    """A client's machine and all its events, in the order of the journal."""

    def __init__(self, place: Place, journal: Journal, *, speak: bool = True) -> None:
        self.place, self.journal, setup = place, journal, place.setup
        self.machine: ClientMachine = setup.room.client(setup.layout, place.client, setup.unit)
        group = setup.layout.groups[setup.layout.group_of[place.client]]
        outbox = Outbox(journal, setup.run, place.client, place.key)
        super().__init__(group, outbox, coins=setup.room.coins)
        self.inbox = Inbox[str, Envelope]()  # one stream: the server's broadcasts
        self.servers = [setup.server]  # the server's keys, as of the broadcasts heard so far
        self.statements: list[bytes] = []  # the broadcasts that named them
        self._unproven: dict[int, bytes] = {}  # early broadcasts that another key may have signed
        self._digests = bytearray()  # of the broadcasts heard so far
        self.sent = self.noted = 0  # messages that the broker has, now and according to the journal
        self.renewed = False  # whether the journal has messages signed with an older key
        self.refused = 0
        self.session = secrets.token_bytes(SESSION_BYTES) if speak else NO_SESSION  # for its hellos
        self._act(self.machine.handle(Start()))
        for event in journal.events():
            self.replay(event)
            if speak and event.seq % PAGE == 0:
                self.machine.forget()
        if self.renewed:  # send all again with the new key: the old one may be refused
            self.outbox.sign_again()
            self.sent = 0
        if speak:
            self._speak()
            self.write()

    @classmethod
    def open(cls, place: Place) -> Self:
        """Restore the site from its folder's journal, or create a new journal."""
        path = place.folder / JOURNAL
        if not path.exists():
            header = {"run": place.setup.run.hex(), "client": place.client}
            return cls(place, Journal.create(path, KIND, header))
        journal = Journal.open(path, KIND)
        if journal.header.get("run") != place.setup.run.hex() or journal.header.get("client") != place.client:
            journal.close()
            raise InputError("this is the journal of another run or client", where=str(path))
        return cls(place, journal)

    @property
    def over(self) -> bool:
        return self.verdict is not None or one_arm(self.place.setup.layout)

    @property
    def stoppable(self) -> bool:
        return self.machine.stoppable

    @property
    def compared(self) -> bool:
        return True  # the server does

    @property
    def server(self) -> bytes:
        """The key that signs the server's next broadcast."""
        return self.servers[-1]

    @property
    def heard(self) -> int:
        """How many broadcasts the machine has received."""
        return self.inbox.next[SERVER]

    @property
    def ups(self) -> Sequence[bytes]:
        """Its messages: signed and on disk."""
        return self.outbox.of(UP)

    @property
    def notes(self) -> Sequence[bytes]:
        """Its messages to the server's operator: signed and on disk."""
        return self.outbox.of(NOTE)

    @property
    def summaries(self) -> Sequence[bytes]:
        """Its summary, once there is a verdict: signed and on disk."""
        return self.outbox.of(SUMMARY)

    def received(self, data: bytes, *, later: bool = False) -> None:
        """Take bytes from the broker. Only messages signed by the server count, once and in order.

        With `later` they are on disk only after the next ``write``.
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
        number, down = envelope.sequence, envelope.topic in (DOWN, KEY)
        if down and self.inbox.knows(SERVER, number):
            self._demand_same(envelope)
            return
        ahead = self.inbox.ahead(SERVER, number)
        fresh = down and ahead < HELD
        if not (fresh or envelope.topic == HAVE) or not envelope.signed_with(self.server):
            self.refused += 1
            if fresh and ahead > 0 and len(self._unproven) < UNPROVEN:
                self._unproven[number] = data  # a statement on its way may name the key that signed it
        elif fresh:  # once on disk it may be acknowledged, even if it is early
            self.outbox.append(envelope.topic, data)
            if self._hear(envelope):
                waiting, self._unproven = self._unproven, {}
                for each in waiting.values():
                    self._take(each)
            self._speak()
        elif envelope.content == self.place.client.encode() and number < self.sent:
            self.resend(number)

    def resend(self, number: int) -> None:
        """Send messages from this number on: the server has those before it, and lacks these."""
        self.sent = number
        if number < self.noted:  # do not journal repeated old messages
            self.noted = number
            self.outbox.append("sent", str(number).encode())

    def _demand_same(self, envelope: Envelope) -> None:
        """Raise InputError if the server has signed another broadcast with this number before."""
        number = envelope.sequence
        early = self.inbox.held.get(SERVER, {}).get(number)
        at = number * DIGEST_BYTES
        known = bytes(self._digests[at : at + DIGEST_BYTES]) if early is None else _digest(early)
        if _digest(envelope) == known:
            return
        if not any(map(envelope.signed_with, self.servers)):
            self.refused += 1
            return
        raise InputError(
            f"the server has signed two different broadcasts with number {number}: its journal was restored "
            "from an older backup",
            where=str(self.place.folder),
            expected="one broadcast with each number",
            fix="Tell the server's operator; start this client again when the server has its newest journal",
        )

    def _hear(self, envelope: Envelope) -> bool:
        """Pass broadcasts that are next in order to the machine; return whether the server's key changed."""
        renewed = False
        self.inbox.put(SERVER, envelope.sequence, envelope)
        for due in self.inbox.due(SERVER):
            self._digests += _digest(due)
            if due.topic == KEY:
                self.servers.append(due.content)
                self.statements.append(due.encode())
                renewed = True
                for number, early in list(self.inbox.held.get(SERVER, {}).items()):
                    if not early.signed_with(self.server):  # signed with the old key: it must not follow
                        self.inbox.drop(SERVER, number)
            else:
                self._act(self.machine.handle(Received(SERVER, due.content)))
        return renewed

    def note(self, text: str) -> None:
        """Send a message to the server's operator, unless it repeats the last one."""
        content = text.encode()[:NOTE_BYTES].decode(errors="ignore").encode()
        number = len(self.notes)
        if number < NOTES and (not number or Envelope.decode(self.notes[-1]).content != content):
            self.outbox.say(NOTE, NOTE, content)
            self.write()

    def write(self) -> None:
        """Write all pending events atomically; then they may be acknowledged or sent."""
        if self.outbox.unwritten and self.sent > self.noted:
            self.outbox.append("sent", str(self.sent).encode())
            self.noted = self.sent
        self.outbox.write()

    def _note_lack(self) -> None:
        """Tell the operator once why the machine makes no more pulls."""
        lack = self.machine.lack if isinstance(self.machine, LackingClient) else ""
        if lack and all(Envelope.decode(note).content != lack.encode() for note in self.notes):
            self.note(lack)

    def _speak(self) -> None:
        if self.said:  # before a message that may end the run
            self._note_lack()
        for send in self.said:
            self.outbox.say(UP, UP, send.payload)
        self.said.clear()
        wanted = self.verdict is not None and self.place.setup.options.summaries
        if wanted and not self.outbox.signed[SUMMARY]:
            self.outbox.say(SUMMARY, SUMMARY, self.tally.summary().encode()[0])
        self.machine.forget()

    def replay(self, event: Event) -> None:
        """Apply an event of the journal again. Nothing is written or sent."""
        body = event.body
        if event.kind not in ("sent", NOTE, SUMMARY):
            self._replay_pulls(event)
        match event.kind:
            case "down" | "key":
                self._hear(Envelope.decode(body))
            case "up":
                self._replay_up(event)
            case "note":
                self.outbox.restore(NOTE, event.seq)
            case "summary":
                self.outbox.restore(SUMMARY, event.seq)
            case "sent":
                self.sent = self.noted = int(body)
            case "stop":
                self._end(body.decode())

    def _replay_up(self, event: Event) -> None:
        """Check that a message follows from the rewards before it."""
        number, envelope = len(self.ups), Envelope.decode(event.body)
        if not self.said or envelope.content != self.said.pop(0).payload:
            raise InputError(
                f"message {number} does not follow from the rewards before it",
                where=str(self.journal.path),
                fix="Resume it with the version of bestarm that wrote it",
            )
        if not number:  # the oldest message has the oldest key
            self.renewed = not envelope.signed_with(self.place.key.public)
        self.outbox.restore(UP, event.seq)
