"""One node of a mesh as a fold without a network: signed reports in, signed reports out.

The journal holds ``asked`` and ``rewards`` (pulls, see ``pulling``), ``said`` (an own report, before it is
first sent), ``heard`` (an in-neighbour's report, before it counts), ``tick``, ``stop``, ``evidence`` and
``receipt`` (a neighbour needs nobody any more, or was told that this one does not). A
report is an envelope whose arm-set names what it is about ("" for a verdict) and whose round numbers what its
source said of that. It counts by its signature, whichever way it came: nodes pass their in-neighbours'
reports on by one hop, so that who tells two neighbours two stories is found out. Evidence goes to everybody.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy import SCHEMA, as_json, read, write
from bestarm.errors import InputError
from bestarm.identity import Envelope, Evidence, Roster, Slot, Slots
from bestarm.journal import Event, Journal
from bestarm.mesh.files import JOURNAL, ROSTER, Place, terms_from_dict, terms_to_dict
from bestarm.protocol.codec import Malformed
from bestarm.protocol.machine import PatienceOver, Received, Start
from bestarm.protocol.messages import Claim, decode_claim
from bestarm.protocol.peer import Peer
from bestarm.protocol.verdict import Verdict
from bestarm.pulling import Pulls

KIND = "mesh-peer"
REPORT, EVIDENCE = b"r", b"e"  # the first byte of a message
TICK = 0.25  # seconds from tick to tick, at first
VERDICT = ""  # the arm-set of an announced verdict
MAX_REPORT = 2048  # bytes; honest ones fit with the longest names, and what is passed on fits everywhere
MAX_SLOTS = 2000  # reports of one source, if no honest one can need more


def most_reports(groups: int, tighten: float) -> int:
    """How many reports of one source are taken: what an honest one may say in a year, and MAX_SLOTS.

    With N arm-sets there are 16N + 150 ticks, and for each set N + 1 reports as groups fall, and one whenever
    its width has shrunk by `tighten`: from 1 to 2⁻⁴⁸.
    """
    shrinks = math.ceil(48 * math.log(2) / -math.log(tighten))
    return max(MAX_SLOTS, groups * (17 * groups + 152 + shrinks))


class Node(Pulls):
    """A peer's machine and what happened to it, in the order of the journal."""

    def __init__(self, place: Place, journal: Journal, machine: Any = None, *, speak: bool = True) -> None:
        setup = place.setup
        super().__init__(setup.layout.groups[setup.layout.group_of[place.name]])
        self.place, self.journal = place, journal
        self.machine = machine or Peer(setup.layout, place.name, setup.unit, place.hears)
        self.slots = Slots(
            place.roster, setup.run, most_reports(len(setup.layout.groups), setup.unit.tighten)
        )
        self.labels = {group.name for group in setup.layout.groups} | {VERDICT}
        self.next: Counter[tuple[str, str]] = Counter()  # the number of a source's report that is due
        self.refused: Counter[tuple[str, str]] = Counter()  # (from whom, why)
        self.own: list[Envelope] = []  # what the machine said, signed
        self.mine: dict[Slot, Envelope] = {}  # the same, by slot
        self.careful = True  # stops when it hears what it does not know to have said
        self.outbox: list[tuple[str, bytes]] = []  # all that goes to who hears it: (source, message)
        self.evidence: dict[str, Evidence] = {}  # the first against each source
        self.receipts: set[str] = set()  # "from NAME", "to NAME"
        self.ticks = 0
        self.failures: list[str] = []
        self._act(self.machine.handle(Start()))
        for event in journal.events():
            self.replay(event)
        if speak:
            self._speak()

    @staticmethod
    def open(place: Place, machine: Any = None) -> Node:
        """The node as its folder's journal has it; a new journal, if there is none."""
        path = place.folder / JOURNAL
        header = {"setup": terms_to_dict(place.setup), "name": place.name, "hears": list(place.hears)}
        if not path.exists():
            return Node(place, Journal.create(path, KIND, header), machine)
        journal = Journal.open(path, KIND)
        if not _belongs(journal, place):
            journal.close()
            raise InputError(
                "this is the journal of another run or node",
                where=str(path),
                fix="Move it away to begin anew; a mesh that was made again from other terms is another run",
            )
        node = Node(place, journal, machine)
        if node.failures:
            journal.close()
            raise InputError(f"the journal can't be gone on with: {node.failures[0]}", where=str(path))
        return node

    @property
    def over(self) -> bool:
        """It has its verdict and samples no more; it may still have something to pass on."""
        return self.verdict is not None and bool(self.machine.state == "resting")

    @property
    def done(self) -> bool:
        """It needs nobody any more, and has told all that it knows."""
        return self.over and not self.machine.pending

    @property
    def patience(self) -> float:
        """Seconds from one tick to the next: they grow by an eighth, and anew with what it has found out."""
        machine = self.machine
        found = int((machine.arms >= 0).sum() + (~machine.standing).sum()) + (self.verdict is not None)
        return TICK * 1.125 ** min(max(0, self.ticks - 8 * found), 500)

    def waits_for(self, connected: Container[str]) -> list[str]:
        """In-neighbours that are not there, or have yet to speak of an arm-set that this node needs."""
        if self.verdict is not None:
            return []
        machine = self.machine
        unknown = machine.arms < 0
        unknown[machine.group] = False
        silent = (machine.votes[:, unknown] < 0).any(axis=1) & ~machine.out
        return [name for name, i in machine.neighbours.items() if silent[i] or name not in connected]

    def take(self, batch: Sequence[tuple[str, bytes]]) -> None:
        """Messages from in-neighbours. When this returns, those that count are on the disk and were heard."""
        kept = [event for sender, data in batch if (event := self._weigh(sender, data))]
        if kept:
            self.journal.append_many(kept)
            for kind, body in kept:
                self._learn(kind, body)
            self._speak()

    def _weigh(self, sender: str, data: bytes) -> tuple[str, bytes] | None:
        """What the journal is to hold of a message, if anything."""
        kind, body = data[:1], data[1:]
        try:
            if kind == EVIDENCE:
                return self._weigh_evidence(sender, Evidence.decode(body))
            if kind != REPORT or len(body) > MAX_REPORT:
                raise Malformed("a message of no kind, or too long")
            envelope = Envelope.decode(body)
        except Malformed:
            self._refuse(sender, "malformed")
            return None
        source = envelope.source
        if source == self.place.name:
            self._recall(sender, envelope)
            return None
        if source in self.evidence:
            return None  # an honest node passes on what it heard, not knowing that it is a liar's
        if envelope.slot not in self.slots.accepted:
            if self._faulty(source):
                return None  # another story for an old slot is still evidence
            # Those of one source come in their order; a gap is filled when it sends all of them again.
            if envelope.round != self.next[source, envelope.arm_set]:
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
        self.next[source, envelope.arm_set] += 1
        return ("heard", body) if source in self.machine.neighbours else None

    def _recall(self, sender: str, envelope: Envelope) -> None:
        """Its own report comes back: is it in the journal? Nobody else can have signed it."""
        place, first = self.place, self.mine.get(envelope.slot)
        if first is not None and first.body == envelope.body:
            return
        if envelope.run != place.setup.run or not envelope.signed_with(place.key.public):
            self._refuse(sender, "own")
        elif self.careful:
            raise InputError(
                f"the journal is older than what this node has said: {sender} holds its report number "
                f'{envelope.round} on "{envelope.arm_set}", which is not there',
                where=str(place.folder / JOURNAL),
                fix="Put the newest journal back, or begin a new run with bestarm mesh init --new-run",
            )

    def _weigh_evidence(self, sender: str, evidence: Evidence) -> tuple[str, bytes] | None:
        source, both = evidence.first.source, (evidence.first, evidence.second)
        if source in self.evidence:
            return None
        if any(len(envelope.encode()) > MAX_REPORT for envelope in both):
            raise Malformed("a report that is too long")
        if evidence.first.run != self.place.setup.run or not evidence.verify(self.place.roster):
            self._refuse(sender, "evidence")
            return None
        self.evidence[source] = evidence
        return "evidence", evidence.encode()

    def _faulty(self, source: str) -> bool:
        """Whether the machine has found it out: it does not listen to it any more."""
        return any(fault["client"] == source for fault in self.machine.faulty)

    def _labelled(self, envelope: Envelope) -> bool:
        """Whether it is about what it says it is. What can't be read at all is the machine's to judge."""
        try:
            return self._label(envelope.content) == envelope.arm_set
        except Malformed:
            return envelope.arm_set in self.labels

    def _label(self, content: bytes) -> str:
        setup = self.place.setup
        message = decode_claim(content, setup.layout.arm_counts, setup.unit.exchange)
        return setup.layout.groups[message.group].name if isinstance(message, Claim) else VERDICT

    def _refuse(self, sender: str, reason: str) -> None:
        self.refused[sender, reason] += 1

    def _learn(self, kind: str, body: bytes) -> None:
        """An event that the journal holds takes effect, and is passed on."""
        if kind == "evidence":
            self.outbox.append(("", EVIDENCE + body))
            return
        envelope = Envelope.decode(body)
        if not self._faulty(envelope.source):
            self.outbox.append((envelope.source, REPORT + body))
        self._act(self.machine.handle(Received(envelope.source, envelope.content)))

    def tick(self) -> None:
        """Time has passed: what the machine holds back is told."""
        self._append("tick", str(self.ticks).encode())
        self._tick()
        self._speak()

    def stop(self, reason: str) -> None:
        """There are no more rewards."""
        self._append("stop", reason.encode())
        self._end(reason)
        self._speak()

    def receipt(self, text: str) -> None:
        """A neighbour has said that it needs nobody any more ("from NAME"), or was told so ("to NAME")."""
        if text not in self.receipts:
            self._append("receipt", text.encode())
            self.receipts.add(text)

    def _tick(self) -> None:
        self.ticks += 1
        self._act(self.machine.handle(PatienceOver(self.ticks)))

    def _append(self, kind: str, body: bytes) -> None:
        self.journal.append(kind, body)

    def _speak(self) -> None:
        """Sign what the machine has said since, and journal it: these bytes go out, now and ever."""
        place, fresh = self.place, []
        for content in self.said[len(self.own) :]:
            label = self._label(content)
            number = self.next[place.name, label]
            self.next[place.name, label] += 1
            fresh.append(Envelope.sign(place.key, place.setup.run, place.name, label, number, content))
        if fresh:
            self.journal.append_many([("said", envelope.encode()) for envelope in fresh])
            for envelope in fresh:
                self._say(envelope)

    def _say(self, envelope: Envelope) -> None:
        self.own.append(envelope)
        self.mine[envelope.slot] = envelope
        self.outbox.append((self.place.name, REPORT + envelope.encode()))

    def replay(self, event: Event) -> None:
        """An event of the journal takes place again. Nothing is written or said."""
        body = event.body
        self._replay_pulls(event)
        match event.kind:
            case "heard":
                source = Envelope.decode(body).source
                offer = self.slots.offer(body)
                if offer.outcome != "accepted" or source not in self.machine.neighbours:
                    self.failures.append(f"event {event.seq}: a report that is {offer.reason or 'no such'}")
                    return
                assert offer.envelope is not None
                self.next[source, offer.envelope.arm_set] += 1
                self._learn("heard", body)
            case "said":
                self._check_said(event.seq, Envelope.decode(body))
            case "evidence":
                evidence = Evidence.decode(body)
                if not evidence.verify(self.place.roster):
                    self.failures.append(f"event {event.seq}: evidence that does not hold")
                self.evidence[evidence.first.source] = evidence
                self._learn("evidence", body)
            case "receipt":
                self.receipts.add(body.decode())
            case "tick":
                self._tick()
            case "stop":
                self._end(body.decode())

    def _check_said(self, seq: int, envelope: Envelope) -> None:
        number, place = len(self.own), self.place
        due = (place.setup.run, place.name, envelope.arm_set, self.next[place.name, envelope.arm_set])
        if number >= len(self.said) or envelope.content != self.said[number] or envelope.slot != due:
            self.failures.append(f"event {seq}: an own report that does not follow from what came before it")
        elif (own := place.roster.current.get(place.name)) is None or not envelope.signed_with(own.key):
            self.failures.append(f"event {seq}: an own report that its key did not sign")
        self.next[place.name, envelope.arm_set] += 1
        self._say(envelope)

    def suspects(self) -> dict[str, str]:
        """Who is proven faulty, and why: by evidence that anyone can check, or before this node alone."""
        found = {
            source: f"signed two different reports number {e.first.round} on "
            + (f'arm-set "{e.first.arm_set}"' if e.first.arm_set else "the verdict")
            for source, e in self.evidence.items()
        }
        for fault in self.machine.faulty:
            found.setdefault(fault["client"], fault["reason"])
        return found


@dataclass(frozen=True)
class Finding:
    """What the verification of a node's folder found."""

    failures: tuple[str, ...]
    verdict: Verdict | None
    suspects: dict[str, str]
    evidence: tuple[Evidence, ...]
    events: int

    @property
    def ok(self) -> bool:
        return not self.failures


def _belongs(journal: Journal, place: Place) -> bool:
    """Whether it is this node's, in this run."""
    header = journal.header
    same = header.get("name") == place.name and header.get("hears") == list(place.hears)
    return same and terms_from_dict(header["setup"]) == place.setup


def verify(folder: Path, roster: Path | None = None) -> Finding:
    """Fold a node's journal again: every signature, every own report, the verdict, and all evidence.

    By this roster, or by the one in the folder. No private key is needed.
    """
    place = Place.load(folder, secret=False)
    if roster is not None:
        place = dataclasses.replace(place, roster=Roster.load(roster))
    with Journal.open(folder / JOURNAL, KIND, write=False) as journal:
        events = journal.verify()
        try:
            if not _belongs(journal, place):
                raise ValueError("it belongs to another run or node")
            node = Node(place, journal, speak=False)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            return Finding((f"the journal can't be read as a run: {error}",), None, {}, (), events)
    return Finding(tuple(node.failures), node.verdict, node.suspects(), tuple(node.evidence.values()), events)


def save_evidence(path: Path, evidence: Evidence) -> None:
    """A file that anyone with the roster can check."""
    plain = {"schema": SCHEMA, "accused": evidence.first.source, "evidence": evidence.encode().hex()}
    write(path, as_json(plain))


def verify_evidence(path: Path, roster: Path | None = None) -> tuple[str, bool]:
    """Who is accused by this file, and whether it proves it; by this roster, or the one next to it."""
    plain = read(path, "Name a file that bestarm peer wrote")
    try:
        evidence = Evidence.decode(bytes.fromhex(plain["evidence"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"this is no evidence ({error})", where=str(path)) from None
    return evidence.first.source, evidence.verify(Roster.load(roster or path.parent / ROSTER))


def is_evidence(path: Path) -> bool:
    """Whether ``save_evidence`` wrote this file, whatever its name is."""
    try:
        with path.open("rb") as file:
            plain = json.loads(file.read(8 * MAX_REPORT))  # two reports, in hexadecimal digits
    except (OSError, ValueError):
        return False
    return isinstance(plain, dict) and {"accused", "evidence"} <= plain.keys()
