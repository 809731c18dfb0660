"""One peer of a mesh as a fold without a network: signed reports in, signed reports out.

The events of the journal: ``asked`` and ``rewards`` (see ``pull_ledger``), ``said`` (an own report, before
it is first sent), ``heard`` (an in-neighbour's report, before it counts), ``tick``, ``stop``, ``evidence``,
``summary`` (what a node says about all its arms once it is over, its own or another's; no decision uses it),
``receipt`` (a neighbour no longer needs anyone, or was told that this node does not). A report is an envelope
whose topic is its arm-set ("" for a verdict); its sequence numbers the reports of its source on that topic.
It is authenticated by its signature, no matter who delivers it: peers forward the reports of their
in-neighbours by one hop, so that a source that sends conflicting reports is detected. Evidence and summaries
go to all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from bestarm.deploy.envelope import Envelope, Evidence, Slots
from bestarm.deploy.inbox import Inbox
from bestarm.deploy.mesh.files import JOURNAL, Place, terms_from_dict, terms_to_dict
from bestarm.deploy.outbox import Outbox
from bestarm.deploy.pull_ledger import Pulls
from bestarm.errors import InputError
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import PatienceOver, Received, Start
from bestarm.protocol.machine import PeerMachine
from bestarm.protocol.summaries import SummaryBook
from bestarm.records.build import conclude_peer
from bestarm.records.record import Bits, Record
from bestarm.util.journal import Event, Journal

KIND = "mesh-peer"

SUMMARISED = "summary"  # the kind of a summary's event

REPORT, EVIDENCE = b"r", b"e"  # the first byte of a message

TICK = 0.25  # seconds between ticks at first

VERDICT = ""  # the topic of an announced verdict

SUMMARY = "/summary"  # the topic of a summary, which no arm-set can be named

MAX_REPORT = 2048  # bytes; honest reports fit even with the longest names

MAX_SUMMARY = 1 << 15  # bytes, with its envelope: enough for a thousand arms

MAX_SLOTS = 2000  # reports of one source, unless an honest one can need more


class Node(Pulls):
    """A peer's machine and all its events, in the order of the journal."""

    def __init__(self, place: Place, journal: Journal, *, speak: bool = True) -> None:
        setup = place.setup
        group = setup.layout.groups[setup.layout.group_of[place.name]]
        super().__init__(group, Outbox(journal, setup.run, place.name, place.key if speak else None))
        self.place, self.journal = place, journal
        self.machine: PeerMachine = setup.room.peer(setup.layout, place.name, setup.unit, place.hears)
        most = max(MAX_SLOTS, setup.room.most_reports(setup.layout, setup.unit) + 1)  # and a summary
        self.slots = Slots(place.roster, setup.run, most)
        self.topics = {group.name for group in setup.layout.groups} | {VERDICT}
        self.inbox = Inbox[tuple[str, str], Envelope]()  # by source and topic
        self.refused: Counter[tuple[str, str]] = Counter()  # (sender, reason)
        self.own: list[Envelope] = []  # messages of the machine: signed and on disk
        self.careful = True  # stop on an own report that the journal lacks
        self.outgoing: list[tuple[str, bytes]] = []  # for all neighbours that hear it: (source, message)
        self.summaries: dict[str, bytes] = {}  # by source, its own included
        self.evidence: dict[str, Evidence] = {}  # the first evidence against each source
        self.receipts: set[str] = set()  # "from NAME", "to NAME"
        self.ticks = 0
        self.failures: list[str] = []
        self._act(self.machine.handle(Start()))
        for event in journal.events():
            self.replay(event)
        if speak:
            self._speak()

    @staticmethod
    def open(place: Place) -> Node:
        """Restore the node from its folder's journal, or create a new journal."""
        path = place.folder / JOURNAL
        header = {"setup": terms_to_dict(place.setup), "name": place.name, "hears": list(place.hears)}
        if not path.exists():
            return Node(place, Journal.create(path, KIND, header))
        journal = Journal.open(path, KIND)
        if not belongs(journal, place):
            journal.close()
            raise InputError(
                "this is the journal of another run or node",
                where=str(path),
                fix="Move it away to start over; a mesh created again with other terms is a new run",
            )
        node = Node(place, journal)
        if node.failures:
            journal.close()
            raise InputError(f"the journal cannot be resumed: {node.failures[0]}", where=str(path))
        return node

    @property
    def over(self) -> bool:
        """Whether it has its verdict and no longer samples; it may still have messages to pass on."""
        return self.verdict is not None and bool(self.machine.state == "resting")

    @property
    def done(self) -> bool:
        """Whether it needs no other node any more and has sent everything it knows."""
        return self.over and not self.machine.pending

    @property
    def patience(self) -> float:
        """Seconds to the next tick: grows by an eighth per tick, and drops as the machine settles."""
        return TICK * 1.125 ** min(max(0, self.ticks - 8 * self.machine.settled), 500)

    def waits_for(self, connected: Container[str]) -> list[str]:
        """In-neighbours that are not connected or have not reported on an arm-set that this node needs."""
        if self.verdict is not None:
            return []
        silent = set(self.machine.missing_neighbours())
        return [name for name in self.machine.neighbours if name in silent or name not in connected]

    def take(self, batch: Sequence[tuple[str, bytes]]) -> None:
        """Take messages from in-neighbours. On return, accepted ones are on disk and have been handled."""
        kept = [event for sender, data in batch if (event := self._weigh(sender, data))]
        if kept:
            for kind, body in kept:
                self.outbox.append(kind, body)
            self.write()  # before anything is passed on
            for kind, body in kept:
                self._learn(kind, body)
            self._speak()
            self.write()

    def _weigh(self, sender: str, data: bytes) -> tuple[str, bytes] | None:
        """The journal event for a message, or None."""
        kind, body = data[:1], data[1:]
        try:
            if kind == EVIDENCE:
                return self._weigh_evidence(sender, Evidence.decode(body))
            if kind != REPORT or len(body) > MAX_SUMMARY:
                raise Malformed("a message of unknown kind, or too long")
            envelope = Envelope.decode(body)
            if envelope.topic != SUMMARY and len(body) > MAX_REPORT:
                raise Malformed("a report is too long")
        except Malformed:
            self._refuse(sender, "malformed")
            return None
        source = envelope.source
        if source == self.place.name:
            self._recall(sender, envelope)
            return None
        if source in self.evidence:
            return None  # not the sender's fault: it may not know yet that the source lies
        if envelope.slot not in self.slots.accepted:
            if self._faulty(source):
                return None  # a conflicting report for an old slot would still be evidence
            # Early reports are not kept: the gap is filled when the source sends all reports again.
            if self.inbox.ahead((source, envelope.topic), envelope.sequence):
                self._refuse(sender, "early")
                return None
            if not self._labelled(envelope):
                self._refuse(sender, "label")
                return None
        offer = self.slots.offer(body)
        if offer.outcome == "refused":
            self._refuse(sender, offer.reason)
            return None
        if offer.evidence is not None:
            self.evidence[source] = offer.evidence
            return "evidence", offer.evidence.encode()
        if offer.outcome != "accepted":
            return None
        self.inbox.take((source, envelope.topic), envelope.sequence, envelope)
        if envelope.topic == SUMMARY:
            return SUMMARISED, body
        return ("heard", body) if source in self.machine.neighbours else None

    def _recall(self, sender: str, envelope: Envelope) -> None:
        """Check that an own report that comes back is in the journal: nobody else can have signed it."""
        place = self.place
        if self.outbox.knows(envelope):
            return
        if envelope.run != place.setup.run or not envelope.signed_with(place.key.public):
            self._refuse(sender, "own")
        elif self.careful:
            raise InputError(
                f"the journal is older than the reports of this node: {sender} has its report number "
                f'{envelope.sequence} on "{envelope.topic}", which is missing here',
                where=str(place.folder / JOURNAL),
                fix="Restore the newest journal, or start a new run with bestarm mesh init --new-run",
            )

    def _weigh_evidence(self, sender: str, evidence: Evidence) -> tuple[str, bytes] | None:
        source, both = evidence.first.source, (evidence.first, evidence.second)
        if source in self.evidence:
            return None
        most = MAX_SUMMARY if evidence.first.topic == SUMMARY else MAX_REPORT
        if any(len(envelope.encode()) > most for envelope in both):
            raise Malformed("a report is too long")
        if evidence.first.run != self.place.setup.run or not evidence.verify(self.place.roster):
            self._refuse(sender, "evidence")
            return None
        self.evidence[source] = evidence
        return "evidence", evidence.encode()

    def _faulty(self, source: str) -> bool:
        """Whether the machine has found this source faulty and ignores it."""
        return any(fault["client"] == source for fault in self.machine.faulty)

    def _labelled(self, envelope: Envelope) -> bool:
        """Whether the topic matches the content. The machine judges content that can't be decoded."""
        if envelope.topic == SUMMARY:
            return self.place.setup.options.summaries and envelope.sequence == 0
        try:
            return self.machine.topic_of(envelope.content) == envelope.topic
        except Malformed:
            return envelope.topic in self.topics

    def _refuse(self, sender: str, reason: str) -> None:
        self.refused[sender, reason] += 1

    def _learn(self, kind: str, body: bytes) -> None:
        """Apply an event that is in the journal, and pass it on."""
        if kind == "evidence":
            self.outgoing.append(("", EVIDENCE + body))
            return
        envelope = Envelope.decode(body)
        if kind == SUMMARISED:
            self.summaries[envelope.source] = envelope.content
            self.outgoing.append((envelope.source, REPORT + body))
            return
        if not self._faulty(envelope.source):
            self.outgoing.append((envelope.source, REPORT + body))
        self._act(self.machine.handle(Received(envelope.source, envelope.content)))

    def tick(self) -> None:
        """Tell the machine that time has passed, so that it sends what it held back."""
        self.outbox.append("tick", str(self.ticks).encode())
        self._tick()
        self._speak()
        self.write()

    def receipt(self, text: str) -> None:
        """Record that a neighbour needs no one any more ("from NAME"), or was told so ("to NAME")."""
        if text not in self.receipts:
            self.outbox.append("receipt", text.encode())
            self.write()
            self.receipts.add(text)

    def _tick(self) -> None:
        self.ticks += 1
        self._act(self.machine.handle(PatienceOver(self.ticks)))

    def _speak(self) -> None:
        signed = self.outbox.signed
        for send in self.said[signed.total() - signed[SUMMARY] :]:
            self.outbox.say("said", self.machine.topic_of(send.payload), send.payload)
        content = self.tally.summary().encode()[0] if self.over and not signed[SUMMARY] else b""
        if content and self.place.setup.options.summaries and len(content) <= MAX_SUMMARY - MAX_REPORT:
            self.outbox.say(SUMMARISED, SUMMARY, content)

    def write(self) -> None:
        """Write all pending events atomically; then new messages may be sent."""
        for envelope in self.outbox.write():
            self._say(envelope)

    def _say(self, envelope: Envelope) -> None:
        if envelope.topic == SUMMARY:
            self.summaries[envelope.source] = envelope.content
        else:
            self.own.append(envelope)
        self.outgoing.append((self.place.name, REPORT + envelope.encode()))

    def replay(self, event: Event) -> None:
        """Apply an event of the journal again. Nothing is written or sent."""
        body = event.body
        self._replay_pulls(event)
        match event.kind:
            case "heard":
                source = Envelope.decode(body).source
                offer = self.slots.offer(body)
                if offer.outcome != "accepted" or source not in self.machine.neighbours:
                    self.failures.append(f"event {event.seq}: a report that is {offer.reason or 'not valid'}")
                    return
                assert offer.envelope is not None
                self.inbox.take((source, offer.envelope.topic), offer.envelope.sequence, offer.envelope)
                self._learn("heard", body)
            case "said":
                self._check_said(event.seq, Envelope.decode(body))
            case "summary":
                self._check_summary(event.seq, body)
            case "evidence":
                evidence = Evidence.decode(body)
                if not evidence.verify(self.place.roster):
                    self.failures.append(f"event {event.seq}: evidence that is not valid")
                self.evidence[evidence.first.source] = evidence
                self._learn("evidence", body)
            case "receipt":
                self.receipts.add(body.decode())
            case "tick":
                self._tick()
            case "stop":
                self._end(body.decode())

    def _check_said(self, seq: int, envelope: Envelope) -> None:
        number, place, topic = len(self.own), self.place, envelope.topic
        due = (place.setup.run, place.name, topic, self.outbox.signed[topic])
        follows = number < len(self.said) and envelope.content == self.said[number].payload
        if not follows or envelope.slot != due:
            self.failures.append(f"event {seq}: an own report that does not follow from what came before it")
        elif (own := place.roster.current.get(place.name)) is None or not envelope.signed_with(own.key):
            self.failures.append(f"event {seq}: an own report that its key did not sign")
        self.outbox.restore(topic, seq)
        self._say(envelope)

    def _check_summary(self, seq: int, body: bytes) -> None:
        """Check a summary: its own follows from its rewards, another's has a valid signature."""
        envelope = Envelope.decode(body)
        if envelope.source == self.place.name:
            own = self.place.roster.current.get(self.place.name)
            due = self.over and envelope.content == self.tally.summary().encode()[0]
            if not due or own is None or not envelope.signed_with(own.key):
                self.failures.append(f"event {seq}: an own summary that does not follow from the rewards")
            self.outbox.restore(SUMMARY, seq)
            self._say(envelope)
            return
        offer = self.slots.offer(body)
        if offer.outcome != "accepted":
            self.failures.append(f"event {seq}: a summary that is {offer.reason or 'not valid'}")
            return
        self.inbox.take((envelope.source, SUMMARY), envelope.sequence, envelope)
        self._learn(SUMMARISED, body)

    @property
    def unheard(self) -> set[str]:
        """Nodes whose summary is still to come, as far as this node can know."""
        if not self.place.setup.options.summaries:
            return set()
        return set(self.place.setup.layout.clients) - self.summaries.keys() - self.suspects().keys()

    def _book(self) -> SummaryBook | None:
        """The summaries that have arrived; None before the verdict, and where nodes keep theirs."""
        setup = self.place.setup
        if self.verdict is None or not setup.options.summaries:
            return None
        book = SummaryBook(setup.layout, setup.room.coins, self.suspects())
        for source, content in self.summaries.items():
            book.take(source, content)
        return book

    def suspects(self) -> dict[str, str]:
        """Clients proven faulty, and why: by evidence that anyone can check, or only to this node."""
        found = {
            source: f"signed two different reports number {e.first.sequence} on {_subject(e.first.topic)}"
            for source, e in self.evidence.items()
        }
        for fault in self.machine.faulty:
            found.setdefault(fault["client"], fault["reason"])
        return found

    def record(self) -> Record:
        """The record of this peer: its own part of the run."""
        heard_by, book = len(self.place.heard), self._book()
        bits, after = sum(send.bits for send in self.said), 0 if book is None else book.bits
        return conclude_peer(
            self.place.setup, self.machine,
            bits=Bits(heard_by * bits, 0, heard_by * after),
            wire_bytes=heard_by * sum(len(send.payload) for send in self.said),
            evidence=[evidence.to_dict() for evidence in self.evidence.values()],
            summaries=book,
        )  # fmt: skip


def _subject(topic: str) -> str:
    """What a report is about, in words."""
    return {VERDICT: "the verdict", SUMMARY: "all its arms"}.get(topic, f'arm-set "{topic}"')


def belongs(journal: Journal, place: Place) -> bool:
    """Whether the journal belongs to this node and this run."""
    header = journal.header
    same = header.get("name") == place.name and header.get("hears") == list(place.hears)
    return same and terms_from_dict(header["setup"]) == place.setup
