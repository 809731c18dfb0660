"""Signed envelopes, the slots they fill, and evidence that a source signed two different ones.

The input is bytes from anyone; each envelope is accepted once, or refused. An ``Envelope`` names its run,
source, topic and sequence, which together are its slot, and is signed over ``DOMAIN ‖ body``. ``Slots`` is a
fold without I/O or a clock: the same offers in the same order give the same state. Two different signed
envelopes from one source for one slot are ``Evidence`` that anyone with the roster can check.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from bestarm.deploy.identity import SIGNATURE_BYTES, Key, Roster, _is_name, verified, verified_all
from bestarm.protocol.codec import Malformed

DOMAIN = b"bestarm envelope 1\n"
RUN_BYTES = 16
MAX_SEQUENCE = 2**32 - 1
MAX_CONTENT = 1 << 20
MANY = 32  # envelopes whose signatures are worth checking together
MOST_EVIDENCE = 16  # pieces against one source: one is enough
Slot = tuple[bytes, str, str, int]  # run, source, topic, sequence


@dataclass(frozen=True)
class Envelope:
    """Signed message number `sequence` from `source` on a `topic` of one run.

    The topic may be empty; it names an arm-set or a kind of message, and each has its own sequence. On the
    wire: run, length and text of source, length and text of topic (2 + n bytes each), sequence (4 bytes),
    length and bytes of content (4 + n), signature (64). Every field is bounded, and each envelope has
    exactly one encoding. Creating an envelope with a field out of bounds raises ``Malformed``.
    """

    run: bytes
    source: str
    topic: str
    sequence: int
    content: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.run, bytes) or len(self.run) != RUN_BYTES:
            raise Malformed(f"a run id must be {RUN_BYTES} bytes long")
        if not _is_name(self.source) or not _is_name(self.topic) or not self.source:
            raise Malformed("the source or topic is not a valid name")
        if not isinstance(self.sequence, int) or not 0 <= self.sequence <= MAX_SEQUENCE:
            raise Malformed("the sequence number is out of range")
        if not isinstance(self.content, bytes) or len(self.content) > MAX_CONTENT:
            raise Malformed(f"the content must be at most {MAX_CONTENT} bytes long")
        if not isinstance(self.signature, bytes) or len(self.signature) != SIGNATURE_BYTES:
            raise Malformed(f"a signature must be {SIGNATURE_BYTES} bytes long")

    @staticmethod
    def sign(key: Key, run: bytes, source: str, topic: str, sequence: int, content: bytes) -> Envelope:
        """Return an envelope signed with this key."""
        envelope = Envelope(run, source, topic, sequence, content, bytes(SIGNATURE_BYTES))
        object.__setattr__(envelope, "signature", key.sign(DOMAIN + envelope.body))  # it is not in use yet
        return envelope

    @property
    def slot(self) -> Slot:
        return self.run, self.source, self.topic, self.sequence

    @cached_property
    def body(self) -> bytes:
        """Everything but the signature, as sent on the wire."""
        source, topic = self.source.encode(), self.topic.encode()
        return b"".join(
            (
                self.run,
                struct.pack(">H", len(source)),
                source,
                struct.pack(">H", len(topic)),
                topic,
                struct.pack(">II", self.sequence, len(self.content)),
                self.content,
            )
        )

    def encode(self) -> bytes:
        return self.body + self.signature

    @staticmethod
    def decode(data: bytes) -> Envelope:
        """Decode an envelope; raise ``Malformed`` for any other bytes. The signature is not checked."""
        try:
            source, at = _text(data, RUN_BYTES)
            topic, at = _text(data, at)
            sequence, size = struct.unpack_from(">II", data, at)
            end = at + 8 + size
            body, content, signature = data[:end], data[at + 8 : end], data[end:]
            envelope = Envelope(data[:RUN_BYTES], source, topic, sequence, content, signature)
        except Malformed:
            raise
        except (struct.error, UnicodeDecodeError, TypeError, AttributeError):
            raise Malformed("this is not an envelope") from None
        if len(content) != size:
            raise Malformed("the envelope is too long or too short")
        envelope.__dict__["body"] = body  # each envelope has exactly one encoding
        return envelope

    def signed_with(self, public: bytes) -> bool:
        """Whether the owner of this public key signed the envelope."""
        return verified(public, self.signature, DOMAIN + self.body)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size


@dataclass(frozen=True)
class Evidence:
    """Two signed envelopes from one source for one slot with different contents."""

    first: Envelope
    second: Envelope

    def verify(self, roster: Roster) -> bool:
        """Whether this proves that the source lied: one of its keys, revoked or not, signed both.

        Two signatures over the same body prove nothing.
        """
        if self.first.slot != self.second.slot or self.first.body == self.second.body:
            return False
        keys = [m.key for m in roster.members if m.client == self.first.source]
        return any(self.first.signed_with(key) and self.second.signed_with(key) for key in keys)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a record: the accused source, the slot, and the two signed envelopes as hex."""
        first = self.first
        return {
            "accused": first.source,
            "topic": first.topic,
            "sequence": first.sequence,
            "first": first.encode().hex(),
            "second": self.second.encode().hex(),
        }

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Evidence:
        """Read what ``to_dict`` returned; ``Malformed`` for anything else. Call ``verify`` to check it."""
        try:
            both = [Envelope.decode(bytes.fromhex(plain[key])) for key in ("first", "second")]
        except (KeyError, TypeError, ValueError):
            raise Malformed("this is not evidence") from None
        evidence = Evidence(*both)
        if evidence.to_dict() != dict(plain):
            raise Malformed("the evidence does not match its own description")
        return evidence

    def encode(self) -> bytes:
        """Encode as the length of the first envelope (4 bytes), then both envelopes."""
        first = self.first.encode()
        return struct.pack(">I", len(first)) + first + self.second.encode()

    @staticmethod
    def decode(data: bytes) -> Evidence:
        """Read what ``encode`` returned; ``Malformed`` for anything else. Call ``verify`` to check it."""
        if not isinstance(data, bytes) or len(data) < 4:
            raise Malformed("this is not evidence")
        end = 4 + int.from_bytes(data[:4], "big")
        return Evidence(Envelope.decode(data[4:end]), Envelope.decode(data[end:]))


Outcome = Literal["accepted", "repeat", "equivocation", "refused"]


@dataclass(frozen=True)
class Offer:
    """The result of offering some bytes. `reason` says in one word why they were refused."""

    outcome: Outcome
    envelope: Envelope | None = None
    reason: str = ""
    evidence: Evidence | None = None


class Slots:
    """The first envelope accepted for each slot of one run.

    ``offer`` looks up the slot before it checks a signature, so repeats are cheap:

    - an empty slot takes the first envelope signed with its source's current key: "accepted";
    - the same bytes again: "repeat", which is harmless;
    - a different body for a filled slot, signed with the same key: "equivocation". The first envelope stays;
      both are stored in ``evidence``, once per slot, and the slot is closed. After MOST_EVIDENCE of them all
      filled slots of the source are closed;
    - anything else: "refused", and counted in ``refused`` by its reason: "malformed", "run" (another run),
      "source" (unknown or revoked), "signature" (not valid, or a second one for the same body), "closed",
      "old" (its slot was forgotten), "full" (the source has used up its `most` slots).

    Refusals only change the counts, so a journal of everything else replays to the same slots.
    Set ``roster`` to a newer one when a client is added or revoked; accepted envelopes stay accepted.
    Call ``forget`` to keep only the newest slots of a source.

    Parameters
    ----------
    roster : Roster
        Whose envelopes are accepted, and their keys.
    run : bytes
        The run's id.
    most : int, optional
        How many slots one source may fill; by default any number.
    """

    def __init__(self, roster: Roster, run: bytes, most: int | None = None) -> None:
        self.roster, self.run, self.most = roster, run, most
        self.accepted: dict[Slot, Envelope] = {}
        self.evidence: dict[Slot, Evidence] = {}
        self.refused: Counter[str] = Counter()
        self.used: Counter[str] = Counter()  # slots that each source has filled
        self.signers: dict[str, set[bytes]] = {}  # the keys that signed the accepted envelopes of each source
        self._keys: dict[Slot, bytes] = {}  # the key that signed each accepted envelope
        self._proven: Counter[str] = Counter()  # pieces of evidence against each source
        self._floor: Counter[tuple[str, str]] = Counter()  # by source and topic: older slots were forgotten

    def forget(self, source: str, topic: str, below: int) -> None:
        """Forget the envelopes of a source on a topic with numbers below this one; refuse them as "old"."""
        for number in range(self._floor[source, topic], below):
            slot = self.run, source, topic, number
            self.accepted.pop(slot, None)
            self._keys.pop(slot, None)
        self._floor[source, topic] = max(below, self._floor[source, topic])

    def signed(self, envelopes: Sequence[Envelope]) -> set[Slot]:
        """The empty slots for which all of these envelopes are signed with the current key of their source.

        In a large batch, signatures are checked on all processors. A small batch gives the empty set:
        ``offer`` checks each envelope anyway.
        """
        current = self.roster.current
        rows = [
            e for e in envelopes if e.run == self.run and e.source in current and e.slot not in self.accepted
        ]
        if len(rows) < MANY:
            return set()
        found = verified_all([(current[e.source].key, e.signature, DOMAIN + e.body) for e in rows])
        wrong = {e.slot for e, valid in zip(rows, found, strict=True) if not valid}
        return {e.slot for e in rows} - wrong

    def offer(self, data: bytes | Envelope, *, signed: bool = False) -> Offer:
        """Accept or refuse these bytes (or this decoded envelope).

        Parameters
        ----------
        data : bytes or Envelope
            What came from anyone.
        signed : bool
            Whether its signature is known to be valid, so that it need not be checked again.

        Returns
        -------
        Offer
            What became of it.
        """
        try:
            envelope = data if isinstance(data, Envelope) else Envelope.decode(data)
        except Malformed:
            return self._refuse("malformed", None)
        slot = envelope.slot
        if envelope.run != self.run:
            return self._refuse("run", envelope)
        first = self.accepted.get(slot)
        if first == envelope:
            return Offer("repeat", first)
        if slot in self.evidence or (first is not None and self._proven[envelope.source] >= MOST_EVIDENCE):
            return self._refuse("closed", envelope)
        if envelope.sequence < self._floor[envelope.source, envelope.topic]:
            return self._refuse("old", envelope)
        if first is not None and first.body == envelope.body:
            return self._refuse("signature", envelope)
        member = self.roster.current.get(envelope.source)
        if member is None:
            return self._refuse("source", envelope)
        if first is None and self.most is not None and self.used[envelope.source] >= self.most:
            return self._refuse("full", envelope)
        key = member.key if first is None else self._keys[slot]
        if not signed and not envelope.signed_with(key):
            return self._refuse("signature", envelope)
        if first is not None:
            self.evidence[slot] = Evidence(first, envelope)
            self._proven[envelope.source] += 1
            return Offer("equivocation", envelope, evidence=self.evidence[slot])
        self.accepted[slot], self._keys[slot] = envelope, key
        self.signers.setdefault(envelope.source, set()).add(key)
        self.used[envelope.source] += 1
        return Offer("accepted", envelope)

    def _refuse(self, reason: str, envelope: Envelope | None) -> Offer:
        self.refused[reason] += 1
        return Offer("refused", envelope, reason)
