"""Who said what: Ed25519 keys, the roster, signed envelopes, and slots that hold what each source said first.

Bytes from anyone come in; what comes out is accepted once, or refused. An ``Envelope`` names its run, source,
arm-set and round, which together are its slot, and is signed over ``DOMAIN ‖ body``. ``Slots`` is a fold: no
I/O, no clock; the same offers in the same order give the same state. Two signed statements of one source
for one slot are ``Evidence`` that anyone with the roster can check.

Needs the package ``cryptography``, which ``bestarm[federation]`` and ``bestarm[mesh]`` bring; it is loaded
when a key is first used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bestarm.deploy import write
from bestarm.errors import InputError, nearest, shorten
from bestarm.problem import MAX_NAME
from bestarm.protocol.codec import Malformed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DOMAIN = b"bestarm envelope 1\n"
RUN_BYTES = 16
KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_ROUND = 2**32 - 1
MAX_CONTENT = 1 << 20
ROSTER_SCHEMA = 1


def crypto() -> Any:
    """The package behind keys and signatures; InputError if it is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError(
            'keys and signatures need the package "cryptography"',
            fix='Install it with: pip install "bestarm[federation]" (or "bestarm[mesh]")',
        ) from None
    return ed25519


class Key:
    """A private key. ``sign`` is all that it is for; it never shows itself."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"Key(public={self.public.hex()})"

    @staticmethod
    def generate() -> Key:
        """A new key, from the system's randomness."""
        return Key(crypto().Ed25519PrivateKey.generate())

    @staticmethod
    def from_seed(seed: bytes) -> Key:
        """The key of these 32 secret bytes."""
        if len(seed) != KEY_BYTES:
            raise InputError(f"a secret of {len(seed)} bytes", expected=f"{KEY_BYTES} bytes")
        return Key(crypto().Ed25519PrivateKey.from_private_bytes(seed))

    @staticmethod
    def create(path: str | Path) -> Key:
        """A new key in a new PEM file that only its owner can read. A file is never overwritten."""
        path, key = Path(path), Key.generate()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key._pem())
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            raise InputError(
                "there is a file already; a key is never overwritten",
                where=str(path),
                fix="Use the key that is there, or move it away",
            ) from None
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror}", where=str(path)) from None
        return key

    @staticmethod
    def load(path: str | Path) -> Key:
        """The key in a file: PEM without a password, or its 32 secret bytes as 64 hexadecimal digits."""
        data = read_secret(path)
        if re.fullmatch(rb"[0-9a-fA-F]{64}", data.strip()):
            return Key.from_seed(bytes.fromhex(data.strip().decode()))
        return Key(_from_pem(data, str(path)))

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._private.sign(data)

    def _pem(self) -> bytes:
        from cryptography.hazmat.primitives import serialization as form

        return self._private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def read_secret(path: str | Path) -> bytes:
    """A file with a private key, which only its owner may read; InputError for any other."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            data = file.read(1 << 16)
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
    if os.name == "posix" and mode & 0o077:
        raise InputError(
            f"others may read this private key (its mode is {mode:03o})",
            where=str(path),
            expected="a file for its owner alone",
            fix=f"Run: chmod 600 {path}",
        )
    return data


def _from_pem(data: bytes, where: str) -> Ed25519PrivateKey:
    crypto()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            "this is no Ed25519 key",
            where=where,
            expected="a PEM file without a password, or 64 hexadecimal digits",
        )
    return key


@lru_cache(maxsize=4096)
def _public(key: bytes) -> Any:
    return crypto().Ed25519PublicKey.from_public_bytes(key)


def verified(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the owner of this public key signed this."""
    crypto()
    from cryptography.exceptions import InvalidSignature

    try:
        _public(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Member:
    """One line of the roster: this key speaks for this client, which is in this group."""

    client: str
    group: str
    key: bytes
    revoked: bool = False

    def __post_init__(self) -> None:
        for what, name in (("client", self.client), ("group", self.group)):
            if not _is_name(name) or not name or "/" in name or name == "*":
                raise InputError(
                    f"{what} name {shorten(name)} can't be used",
                    expected=f'1 to {MAX_NAME} printable characters, without "/", and not "*"',
                )
        if not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES:
            raise InputError(
                f"{shorten(self.key)} is no public key",
                where=f'client "{self.client}"',
                expected=f"{KEY_BYTES} bytes",
            )
        if not isinstance(self.revoked, bool):
            raise InputError(f"revoked = {shorten(self.revoked)}", expected="true or false")


@dataclass(frozen=True)
class Roster:
    """Public key → client → group. A value: ``add`` and ``revoke`` give a new one.

    A client has at most one key that is not revoked; a key stands once, and stays when it is revoked, so
    that it can't come back and old evidence can still be checked. A client that lost its key gets another
    after the old one is revoked.
    """

    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.members, key=lambda m: (m.client, not m.revoked, m.key)))
        object.__setattr__(self, "members", ordered)
        keys: set[bytes] = set()
        current: dict[str, Member] = {}
        groups: dict[str, str] = {}
        for member in ordered:
            where = f'client "{member.client}"'
            if member.key in keys:
                raise InputError(f"the key {member.key.hex()} stands twice", where=where, expected="new keys")
            if groups.setdefault(member.client, member.group) != member.group:
                raise InputError(
                    f'is in group "{groups[member.client]}" and in "{member.group}"',
                    where=where,
                    expected="one group",
                )
            if not member.revoked and current.setdefault(member.client, member) is not member:
                raise InputError(
                    "is in the roster already", where=where, fix="Revoke its old key to give it another"
                )
            keys.add(member.key)

    @cached_property
    def current(self) -> dict[str, Member]:
        """Client -> its line, for those that are not revoked."""
        return {m.client: m for m in self.members if not m.revoked}

    def add(self, client: str, group: str, key: bytes) -> Roster:
        """With this client and its public key."""
        return Roster((*self.members, Member(client, group, key)))

    def revoke(self, client: str) -> Roster:
        """Without the client's key: it is refused from now on."""
        if client not in self.current:
            raise InputError(
                f'there is no client "{client}" to revoke',
                fix=nearest(client, self.current) if self.current else "The roster has no clients",
            )
        own = self.current[client]
        return Roster(tuple(replace(m, revoked=True) if m is own else m for m in self.members))

    def encode(self) -> bytes:
        """The one JSON text of this roster."""
        rows = [
            {"client": m.client, "group": m.group, "key": m.key.hex(), "revoked": m.revoked}
            for m in self.members
        ]
        plain = {"schema": ROSTER_SCHEMA, "clients": rows}
        return (json.dumps(plain, ensure_ascii=False, indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of ``encode()``."""
        return hashlib.sha256(self.encode()).hexdigest()

    @staticmethod
    def decode(data: bytes) -> Roster:
        """Read a roster; its lines may stand in any order. InputError for anything that is none."""
        try:
            plain = json.loads(data)
            if not isinstance(plain, dict) or set(plain) != {"schema", "clients"}:
                raise ValueError("it has other keys than schema and clients")
            if plain["schema"] != ROSTER_SCHEMA:
                raise ValueError(f"its schema is {shorten(plain['schema'])}, not {ROSTER_SCHEMA}")
            rows = [Member(**{**row, "key": bytes.fromhex(row["key"])}) for row in plain["clients"]]
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"this is no roster ({error})", fix="bestarm federation add-client writes one"
            ) from None
        return Roster(tuple(rows))

    @staticmethod
    def load(path: str | Path) -> Roster:
        """Read what ``save`` wrote."""
        try:
            return Roster.decode(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
        except InputError as error:
            raise error.at(str(path)) from None

    def save(self, path: str | Path) -> None:
        """Write the JSON text, whole or not at all."""
        write(Path(path), self.encode())


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and (not name or name.isprintable())


Slot = tuple[bytes, str, str, int]  # run, source, arm-set, round


@dataclass(frozen=True)
class Envelope:
    """What `source` says about `arm_set` in one round of one run, signed.

    `arm_set` may be empty, and may name a kind of message where a source says several things a round. On
    the wire: run, length and text of source, length and text of arm-set (2 + n bytes each), round (4 bytes),
    length and bytes of content (4 + n), signature (64). Every field is bounded, and each envelope has
    exactly one encoding. Making one with a field out of bounds raises ``Malformed``.
    """

    run: bytes
    source: str
    arm_set: str
    round: int
    content: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.run, bytes) or len(self.run) != RUN_BYTES:
            raise Malformed(f"a run's id is {RUN_BYTES} bytes")
        if not _is_name(self.source) or not _is_name(self.arm_set) or not self.source:
            raise Malformed("a source or arm-set that is no name")
        if not isinstance(self.round, int) or not 0 <= self.round <= MAX_ROUND:
            raise Malformed("a round out of range")
        if not isinstance(self.content, bytes) or len(self.content) > MAX_CONTENT:
            raise Malformed(f"the content is at most {MAX_CONTENT} bytes")
        if not isinstance(self.signature, bytes) or len(self.signature) != SIGNATURE_BYTES:
            raise Malformed(f"a signature is {SIGNATURE_BYTES} bytes")

    @staticmethod
    def sign(key: Key, run: bytes, source: str, arm_set: str, round: int, content: bytes) -> Envelope:
        """An envelope, signed with this key."""
        blank = Envelope(run, source, arm_set, round, content, bytes(SIGNATURE_BYTES))
        return replace(blank, signature=key.sign(DOMAIN + blank.body))

    @property
    def slot(self) -> Slot:
        return self.run, self.source, self.arm_set, self.round

    @cached_property
    def body(self) -> bytes:
        """All but the signature, as on the wire."""
        source, arm_set = self.source.encode(), self.arm_set.encode()
        return b"".join(
            (
                self.run,
                struct.pack(">H", len(source)),
                source,
                struct.pack(">H", len(arm_set)),
                arm_set,
                struct.pack(">II", self.round, len(self.content)),
                self.content,
            )
        )

    def encode(self) -> bytes:
        return self.body + self.signature

    @staticmethod
    def decode(data: bytes) -> Envelope:
        """The envelope that encodes to these bytes; ``Malformed`` for all others. No signature is checked."""
        try:
            source, at = _text(data, RUN_BYTES)
            arm_set, at = _text(data, at)
            round, size = struct.unpack_from(">II", data, at)
            content, signature = data[at + 8 : at + 8 + size], data[-SIGNATURE_BYTES:]
            envelope = Envelope(data[:RUN_BYTES], source, arm_set, round, content, signature)
        except Malformed:
            raise
        except (struct.error, UnicodeDecodeError, TypeError, AttributeError):
            raise Malformed("this is no envelope") from None
        if envelope.encode() != data:
            raise Malformed("the envelope is too long or too short")
        return envelope

    def signed_with(self, public: bytes) -> bool:
        """Whether the owner of this public key signed it."""
        return verified(public, self.signature, DOMAIN + self.body)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size


@dataclass(frozen=True)
class Evidence:
    """Two signed envelopes of one source for one slot that say different things."""

    first: Envelope
    second: Envelope

    def verify(self, roster: Roster) -> bool:
        """Whether this proves that its source lied: one key of its, revoked or not, signed both.

        Two signatures of one body prove nothing, and are no evidence.
        """
        if self.first.slot != self.second.slot or self.first.body == self.second.body:
            return False
        keys = [m.key for m in roster.members if m.client == self.first.source]
        return any(self.first.signed_with(key) and self.second.signed_with(key) for key in keys)

    def encode(self) -> bytes:
        """The first one's length (4 bytes), then both."""
        first = self.first.encode()
        return struct.pack(">I", len(first)) + first + self.second.encode()

    @staticmethod
    def decode(data: bytes) -> Evidence:
        """What ``encode`` gave; ``Malformed`` for anything else. Nothing is proven before ``verify``."""
        if not isinstance(data, bytes) or len(data) < 4:
            raise Malformed("this is no evidence")
        end = 4 + int.from_bytes(data[:4], "big")
        return Evidence(Envelope.decode(data[4:end]), Envelope.decode(data[end:]))


Outcome = Literal["accepted", "repeat", "equivocation", "refused"]


@dataclass(frozen=True)
class Offer:
    """What became of some bytes. `reason` says in one word why they were refused."""

    outcome: Outcome
    envelope: Envelope | None = None
    reason: str = ""
    evidence: Evidence | None = None


class Slots:
    """What each source said first, in each slot of one run.

    ``offer`` looks the slot up before it checks a signature, so that repeats cost next to nothing:

    - an empty slot takes the first envelope that its source's current key signed: "accepted";
    - the same bytes again: "repeat", harmless;
    - another body for a taken slot, signed with the same key: "equivocation". The first stays; both are kept
      in ``evidence``, once a slot, and the slot is closed;
    - anything else: "refused", and counted in ``refused`` by its reason: "malformed", "run" (another run),
      "source" (unknown or revoked), "signature" (not valid, or a second one for the same body), "closed",
      "full" (the source has used up its `most` slots).

    Refusals change nothing but the counts, so a journal of what was not refused replays to the same slots.
    Set ``roster`` to a newer one when a client is added or revoked; what was accepted stays.
    """

    def __init__(self, roster: Roster, run: bytes, most: int = 1 << 16) -> None:
        self.roster, self.run, self.most = roster, run, most
        self.accepted: dict[Slot, Envelope] = {}
        self.evidence: dict[Slot, Evidence] = {}
        self.refused: Counter[str] = Counter()
        self.keys: dict[Slot, bytes] = {}  # with which each was signed
        self._used: Counter[str] = Counter()

    def offer(self, data: bytes | Envelope) -> Offer:
        """Take these bytes (or the envelope that they are), or don't."""
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
        if slot in self.evidence:
            return self._refuse("closed", envelope)
        if first is not None and first.body == envelope.body:
            return self._refuse("signature", envelope)
        member = self.roster.current.get(envelope.source)
        if member is None:
            return self._refuse("source", envelope)
        if first is None and self._used[envelope.source] >= self.most:
            return self._refuse("full", envelope)
        key = member.key if first is None else self.keys[slot]
        if not envelope.signed_with(key):
            return self._refuse("signature", envelope)
        if first is not None:
            self.evidence[slot] = Evidence(first, envelope)
            return Offer("equivocation", envelope, evidence=self.evidence[slot])
        self.accepted[slot], self.keys[slot] = envelope, key
        self._used[envelope.source] += 1
        return Offer("accepted", envelope)

    def _refuse(self, reason: str, envelope: Envelope | None) -> Offer:
        self.refused[reason] += 1
        return Offer("refused", envelope, reason)
