"""Outgoing messages and the journal: sign once, write to the journal, resend the same bytes.

Events and the messages that follow from them are written to the journal in one atomic write. Only then may
a message be sent and an event be acknowledged. After a lost acknowledgement or a restart the same bytes are
sent again: a different signed message for the same topic and sequence would be evidence of equivocation.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import overload

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.identity import Key
from bestarm.util.journal import Journal

RECENT = 16  # messages per stream that are kept in memory


class Messages(Sequence[bytes]):
    """The signed messages of one stream. All but the newest are read from the journal when they are needed.

    In the journal a message follows a prefix of `skip` bytes. With a key `again` the messages are signed
    again when they are read, because an older key signed them; a key always makes the same signature.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal, self.skip = journal, 0
        self.again: Key | None = None
        self._seqs = array("Q")  # where they are in the journal
        self._recent: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._seqs)

    @overload
    def __getitem__(self, number: int) -> bytes: ...

    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...

    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return [self[k] for k in range(*number.indices(len(self)))]
        data = self.body(number)[self.skip :]
        if self.again is not None:
            old = Envelope.decode(data)
            place = old.run, old.source, old.topic, old.sequence
            data = Envelope.sign(self.again, *place, old.content).encode()
        return data

    def body(self, number: int) -> bytes:
        """The event of this message in the journal: its prefix and the message."""
        number = range(len(self))[number]
        recent = self._recent.get(number)
        return self.journal.read(self._seqs[number]).body if recent is None else recent

    def add(self, seq: int, skip: int, body: bytes | None = None) -> None:
        """Add a message that is event number `seq` of the journal; with its `body` it stays in memory."""
        number, self.skip = len(self), skip
        self._seqs.append(seq)
        if body is not None:
            self._recent[number] = body
            self._recent.pop(number - RECENT, None)


class Outbox:
    """The signed messages of one party, by topic, and the events that are not on disk yet.

    Parameters
    ----------
    journal : Journal
        Where ``write`` writes.
    run : bytes
        The run's id.
    source : str
        The party that sends the messages.
    key : Key or None
        The signing key. Without one, messages can only be restored from the journal.
    """

    def __init__(self, journal: Journal, run: bytes, source: str, key: Key | None) -> None:
        self.journal, self.run, self.source, self.key = journal, run, source, key
        self._streams: dict[str, Messages] = {}  # by stream: may be sent
        self.signed: Counter[str] = Counter()  # by stream: number signed, the next sequence
        self.unwritten: list[tuple[str, bytes]] = []  # events that are not on disk yet
        self._drafts: list[tuple[int, str, int, Envelope]] = []  # messages among them: place, stream, prefix

    def of(self, stream: str) -> Messages:
        """The messages of a stream that may be sent."""
        if stream not in self._streams:
            self._streams[stream] = Messages(self.journal)
        return self._streams[stream]

    def append(self, kind: str, body: bytes) -> None:
        """Add an event; it is on disk after the next ``write``."""
        self.unwritten.append((kind, body))

    def say(
        self, kind: str, topic: str, content: bytes, prefix: bytes = b"", stream: str | None = None
    ) -> Envelope:
        """Sign the next message on a topic; it may be sent after the next ``write``.

        Parameters
        ----------
        kind : str
            The kind of the event in the journal.
        topic : str
            The topic of the message.
        content : bytes
            Its content.
        prefix : bytes
            What precedes the message in the journal.
        stream : str, optional
            The stream that it is numbered in: its topic, unless several topics share one order.

        Returns
        -------
        Envelope
            The signed message.
        """
        assert self.key is not None, "an outbox without a key cannot sign messages"
        stream = topic if stream is None else stream
        envelope = Envelope.sign(self.key, self.run, self.source, topic, self.signed[stream], content)
        self.signed[stream] += 1
        self._drafts.append((len(self.unwritten), stream, len(prefix), envelope))
        self.append(kind, prefix + envelope.encode())
        return envelope

    def write(self) -> list[Envelope]:
        """Write all pending events atomically and return the messages that may now be sent."""
        if not self.unwritten:
            return []
        seqs = self.journal.append_many(self.unwritten)
        written, self.unwritten = self.unwritten, []
        drafts, self._drafts = self._drafts, []
        for place, stream, skip, _ in drafts:
            self.of(stream).add(seqs[place], skip, written[place][1])
        return [envelope for *_, envelope in drafts]

    def restore(self, stream: str, seq: int, skip: int = 0) -> None:
        """Restore a message from event number `seq` of the journal, after `skip` bytes."""
        self.signed[stream] += 1
        self.of(stream).add(seq, skip)

    def sign_again(self) -> None:
        """Sign the restored messages again with the current key, which is newer than the journal."""
        for messages in self._streams.values():
            messages.again = self.key

    def knows(self, envelope: Envelope) -> bool:
        """Whether this message has the same content as the one sent for its topic and sequence."""
        said = self.of(envelope.topic)
        known = envelope.sequence < len(said)
        return known and Envelope.decode(said[envelope.sequence]).body == envelope.body
