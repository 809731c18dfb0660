"""The handshake of a client and the server: on each connection both say what they have, before anything else.

A client's *hello* says how many messages it has signed and how many broadcasts it has heard. As proof it
contains the newest of these, and the statements that named new keys of the server: a journal from before such
a statement does not know the key that signed the newest broadcast. The server's *answer* says which message
it expects next, and brings broadcasts that the client lacks. Both are signed; neither is stored. A journal
that was restored from an older backup, and a folder that was copied, show here, before a second message with
the same number is sent:

- The server has more messages of a client than the client itself: the client ends (``demand_newest``).
- Two processes say hello in turn with one client's key: the operator is warned (``Greetings``). A single
  broker refuses the second connection, but a cluster does not.
- A client has a broadcast that the server lacks: the server ends (``Greetings.demand_known``).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation.accounts import longest_hello
from bestarm.deploy.federation.desk import DOWN, KEY, NOTE, NOTES, UP, Desk
from bestarm.deploy.federation.site import NO_SESSION, SESSION_BYTES, Site
from bestarm.errors import InputError
from bestarm.protocol.codec import Malformed
from bestarm.protocol.rounds import SERVER
from bestarm.util.text import counted

HELLO = "hello"  # the topic of both messages

NONCE_BYTES = 16  # the number of the process, and random bytes

MOST_SESSIONS = 8  # of a client that are remembered

MOST_MISSING = 1 << 16  # bytes of broadcasts in one answer

ANSWER = struct.Struct(">32sII32s")  # digest of the hello, notes, broadcasts, digest of the last message

UNKNOWN = bytes(32)  # instead of a digest

log = logging.getLogger("bestarm.federation")


def digest(data: bytes) -> bytes:
    """The SHA-256 of these bytes."""
    return hashlib.sha256(data).digest()


class OlderJournal(InputError):
    """The server has messages of this client that the client's journal lacks."""


@dataclass(frozen=True)
class Answer:
    """What the server has: the number of the next message and of the notes, and how many broadcasts."""

    due: int
    notes: int
    broadcasts: int
    last: bytes  # digest of the last message that it handled


def greet(site: Site, heard: int | None = None) -> bytes:
    """The hello of a client: different bytes each time, so that an answer belongs to one hello.

    `heard` is the number of broadcasts to state, if not that of the journal.
    """
    setup, place = site.place.setup, site.place
    nonce = site.session + secrets.token_bytes(NONCE_BYTES - SESSION_BYTES)
    content = nonce + struct.pack(">I", site.heard if heard is None else heard)
    proof = _proof(site, longest_hello(setup) - 512)
    return Envelope.sign(place.key, setup.run, place.client, HELLO, len(site.ups), content + proof).encode()


def newest_broadcast(site: Site) -> bytes:
    """The broadcast with the highest number in a client's journal; empty if there is none."""
    found = [event.body for kind in (DOWN, KEY) if (event := site.journal.last(kind)) is not None]
    return max(found, key=lambda data: Envelope.decode(data).sequence, default=b"")


def _proof(site: Site, most: int) -> bytes:
    """The newest broadcast and the newest statements about keys, as many as fit into so many bytes."""
    newest = newest_broadcast(site)
    statements = [data for data in site.statements if data != newest]
    while statements:
        if len(proof := _framed([*statements, newest])) <= most:
            return proof
        del statements[0]
    return newest if len(newest) <= most else b""


def _framed(parts: Iterable[bytes]) -> bytes:
    """Each part after its length in 4 bytes."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def _proven(proof: bytes) -> list[Envelope]:
    """The broadcasts of a proof, which is one alone or several framed; may raise ``Malformed``."""
    try:
        return [Envelope.decode(proof)] if proof else []
    except Malformed:
        parts = split_answer(proof)
        if not parts:
            raise
        return [Envelope.decode(part) for part in parts]


def split_answer(data: bytes) -> list[bytes]:
    """The parts of an answer: the signed answer itself, then broadcasts. Empty if it is malformed."""
    parts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return parts if at == len(data) else []


def follow(site: Site, heard: int, server: bytes, broadcasts: Iterable[bytes]) -> tuple[int, bytes]:
    """Follow the server's keys through broadcasts that a client lacks, without changing the site.

    Parameters
    ----------
    site : Site
        The client.
    heard : int
        The number of the first broadcast that is missing.
    server : bytes
        The key that signs it.
    broadcasts : iterable of bytes
        Those that came with an answer.

    Returns
    -------
    tuple of int and bytes
        The number of the next broadcast, and the key that signs it.
    """
    for data in broadcasts:
        try:
            envelope = Envelope.decode(data)
        except Malformed:
            break
        expected = (site.place.setup.run, SERVER, envelope.topic, heard)
        if envelope.slot != expected or envelope.topic not in (DOWN, KEY) or not envelope.signed_with(server):
            break
        heard += 1
        if envelope.topic == KEY:
            server = envelope.content
    return heard, server


def read_answer(site: Site, hello: bytes, data: bytes, server: bytes | None = None) -> Answer | None:
    """Read the signed part of an answer; None unless the server signed it as an answer to this hello.

    `server` is the server's key, if not the one that the site knows.
    """
    try:
        envelope = Envelope.decode(data)
        answered, notes, broadcasts, last = ANSWER.unpack(envelope.content)
    except (Malformed, struct.error):
        return None
    slot = (site.place.setup.run, SERVER, HELLO, envelope.sequence)
    if envelope.slot != slot or answered != digest(hello) or not envelope.signed_with(server or site.server):
        return None
    return Answer(envelope.sequence, notes, broadcasts, last)


def demand_newest(site: Site, answer: Answer, own: int | None = None) -> None:
    """Raise ``OlderJournal`` if the client has signed messages that are not in its journal.

    Parameters
    ----------
    site : Site
        The client.
    answer : Answer
        What the server has of it.
    own : int, optional
        How many messages the client had when it could have sent one for the last time, if not all of them:
        an older journal may have grown since, because some messages follow from broadcasts without a pull.

    Raises
    ------
    OlderJournal
        If the server has more messages than the client, or another last message.
    """
    own, due = len(site.ups) if own is None else own, answer.due
    found = [("message", due, own), ("note", answer.notes, len(site.notes))]
    if lacks := [each for each in found if each[1] > each[2]]:
        there = " and ".join(counted(theirs, noun) for noun, theirs, _ in lacks)
        here = " and ".join(counted(mine, noun) if mine else f"no {noun}s" for noun, _, mine in lacks)
        what = f"the server has {there} of this client, but its journal has {here}"
    elif due and digest(Envelope.decode(site.ups[due - 1]).content) != answer.last != UNKNOWN:
        what = f"message {due - 1} of this client at the server differs from the one in its journal"
    else:
        return
    raise OlderJournal(
        f"{what}: the folder was restored from an older backup, or is a copy that ran elsewhere",
        where=str(site.place.folder),
        expected="the newest journal of this client. Nothing was sent",
        fix="Restore the newest journal.db, with its -wal file. If it is lost, the server's operator can "
        f"continue without this client: bestarm federation drop DIR {site.place.client}",
    )


class Greetings:
    """The server's part: checks each hello, and answers it.

    Parameters
    ----------
    desk : Desk
        What the server has.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.longest = longest_hello(desk.setup)
        self.told: set[str] = set()  # clients with an older journal, of which the operator was told
        self.informed: set[str] = set()  # clients that have all broadcasts of a finished run
        self.shared: set[str] = set()  # clients whose key two processes use
        self._last: dict[str, bytes] = {}  # the last hello of each client
        self._sessions: dict[str, list[bytes]] = {}  # of each client, in the order of their last hellos

    def answer(self, client: str, data: bytes, publish: Callable[[], bool]) -> bytes | None:
        """Answer the hello of a client; None, and a refusal is counted, if it is false.

        Parameters
        ----------
        client : str
            The client whose account sent it, according to the broker.
        data : bytes
            The hello.
        publish : callable
            Called after the hello was checked: whether the answer may contain broadcasts.

        Returns
        -------
        bytes or None
            The signed answer, and broadcasts that the client lacks, each after its length in 4 bytes.

        Raises
        ------
        InputError
            If the hello proves that the server's journal is not the newest.
        """
        hello = self._checked(client, data)
        if hello is None:
            if not self.desk.refused[client, HELLO]:
                log.warning(
                    "%s: a false hello was refused; if this continues, renew its key or drop it", client
                )
            self.desk.refused[client, HELLO] += 1
            return None
        self._last[client] = hello.signature
        self._tell(client, hello.sequence)
        self._attend(client, hello.content[:SESSION_BYTES])
        heard = struct.unpack_from(">I", hello.content, NONCE_BYTES)[0]
        if self.desk.done and heard >= len(self.desk.broadcasts):
            self.informed.add(client)
        parts = [self._signed_answer(client, data), *(self._missing(heard) if publish() else ())]
        return _framed(parts)

    def _missing(self, heard: int) -> Iterator[bytes]:
        """Broadcasts from this number on, as many as fit into an answer."""
        size = 0
        for number in range(heard, len(self.desk.broadcasts)):
            data = self.desk.broadcasts[number]
            size += len(data)
            if size > MOST_MISSING:
                return
            yield data

    def _checked(self, client: str, data: bytes) -> Envelope | None:
        """The hello, if this client signed it and its proof consists of broadcasts of this server."""
        run, member = self.desk.setup.run, self.desk.slots.roster.current.get(client)
        if len(data) > self.longest or member is None:
            return None
        try:
            hello = Envelope.decode(data)
            if hello.slot != (run, client, HELLO, hello.sequence) or len(hello.content) < NONCE_BYTES + 4:
                return None
            if hello.signature == self._last.get(client) or not hello.signed_with(member.key):
                return None
            known = [self.demand_known(each) for each in _proven(hello.content[NONCE_BYTES + 4 :])]
            return hello if all(known) else None
        except Malformed:
            return None

    def demand_known(self, envelope: Envelope, *, own: bool = False) -> bool:
        """Whether this is a broadcast of this server; InputError if it is, but the journal lacks it.

        With `own` it comes from where only the server can write: its key may be newer than the journal.
        """
        desk, number = self.desk, envelope.sequence
        if envelope.run != desk.setup.run or envelope.source != SERVER or envelope.topic not in (DOWN, KEY):
            return False
        count = len(desk.broadcasts)
        if number < count and desk.broadcasts[number] == envelope.encode():
            return True
        if not own and not envelope.signed_with(desk.server):  # a key is replaced because it may have leaked
            return False
        what = f"this journal has {count} broadcasts, but this server has sent at least {number + 1}"
        if number < count:
            what = f"broadcast {number} in this journal differs from the one that was sent"
        raise InputError(
            f"{what}: the journal was restored from an older backup",
            where=str(desk.journal.path),
            expected="the newest journal of this run. Nothing new was sent",
            fix="Restore the newest copy of journal.db, with its -wal file. If there is none, this run can't "
            "be resumed: start a new one with bestarm federation init",
        )

    def _tell(self, client: str, own: int) -> None:
        """Tell the operator of a client whose journal is older than what it has sent."""
        due = self.desk.next[client]
        if own >= due:
            self.told.discard(client)
        elif client not in self.told:
            self.told.add(client)
            log.warning(
                "%s connected with %d of its %d messages: its folder was restored from an older backup, or "
                "is a copy. It was told so and ends; restore its newest journal, or drop it",
                client, own, due,
            )  # fmt: skip

    def _attend(self, client: str, session: bytes) -> None:
        """Warn if a process speaks after one that began later: both run. A restarted one stays silent."""
        sessions = self._sessions.setdefault(client, [])
        if session == NO_SESSION or session in sessions[-1:]:
            return
        if session in sessions:
            sessions.remove(session)
            if client not in self.shared:
                log.warning(
                    "two processes use the key of %s: one of them runs in a copy of its folder. Stop it and "
                    "delete the copy, before the original lacks messages and ends",
                    client,
                )
            self.shared.add(client)
        sessions.append(session)
        del sessions[:-MOST_SESSIONS]

    def _signed_answer(self, client: str, hello: bytes) -> bytes:
        desk, due = self.desk, self.desk.next[client]
        assert desk.outbox.key is not None
        run, accepted = desk.setup.run, desk.slots.accepted
        notes = max((n + 1 for n in range(NOTES) if (run, client, NOTE, n) in accepted), default=0)
        last = accepted.get((run, client, UP, due - 1))
        content = ANSWER.pack(
            digest(hello), notes, len(desk.broadcasts), UNKNOWN if last is None else digest(last.content)
        )
        return Envelope.sign(desk.outbox.key, run, SERVER, HELLO, due, content).encode()
