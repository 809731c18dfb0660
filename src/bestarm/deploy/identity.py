"""Identities: Ed25519 keys, and the roster of clients that may send messages.

The roster maps each public key to a client and its group.

Requires the package ``cryptography``, which ``bestarm[federation]`` and ``bestarm[mesh]`` install. It is
imported when a key is first used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm.errors import InputError
from bestarm.problem.layout import MAX_NAME
from bestarm.util.disk_errors import write_error
from bestarm.util.files import write, write_new
from bestarm.util.text import nearest, shorten

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


KEY_BYTES = 32
SIGNATURE_BYTES = 64
ROSTER_SCHEMA = 2
SHARE = 16  # signatures that are worth another thread


def crypto() -> Any:
    """Import the package for keys and signatures; InputError if it is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError(
            'keys and signatures need the package "cryptography"',
            fix='Install it with: pip install "bestarm[federation]" (or "bestarm[mesh]")',
        ) from None
    return ed25519


class NotAKey(InputError):
    """A file does not contain a private key: it is damaged, or another kind of file."""


class Key:
    """A private key, used only to ``sign``. Its repr shows only the public key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self._sign = _signer(private)
        self.public: bytes = private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"Key(public={self.public.hex()})"

    @staticmethod
    def generate() -> Key:
        """A new key, from the system's randomness."""
        return Key(crypto().Ed25519PrivateKey.generate())

    @staticmethod
    def from_seed(seed: bytes) -> Key:
        """The key with these 32 secret bytes."""
        if len(seed) != KEY_BYTES:
            raise InputError(f"the secret is {len(seed)} bytes long", expected=f"{KEY_BYTES} bytes")
        return Key(crypto().Ed25519PrivateKey.from_private_bytes(seed))

    @staticmethod
    def create(path: str | Path, *, sync: bool = True) -> Key:
        """Write a new key to a new PEM file that only its owner can read. Never overwrites a file.

        Without `sync` the caller makes sure that the file survives a power failure.
        """
        path, key = Path(path), Key.generate()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, path) from None
        write_new(path, key._pem(), 0o600, sync=sync)
        return key

    @staticmethod
    def load(path: str | Path) -> Key:
        """Load a key from a file: PEM without a password, or its 32 secret bytes as 64 hexadecimal digits."""
        data = read_secret(path)
        if re.fullmatch(rb"[0-9a-fA-F]{64}", data.strip()):
            return Key.from_seed(bytes.fromhex(data.strip().decode()))
        return Key(_from_pem(data, str(path)))

    def sign(self, data: bytes) -> bytes:
        """Return a signature of 64 bytes."""
        return self._sign(data)

    def _pem(self) -> bytes:
        from cryptography.hazmat.primitives import serialization as form

        return self._private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def read_secret(path: str | Path) -> bytes:
    """Read a private key file. InputError unless only its owner can read it."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            data = file.read(1 << 16)
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
    if os.name == "posix" and mode & 0o077:
        raise InputError(
            f"other users can read this private key (its mode is {mode:03o})",
            where=str(path),
            expected="a file that only its owner can read",
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
        raise NotAKey(
            "this is not an Ed25519 key",
            where=where,
            expected="a PEM file without a password, or 64 hexadecimal digits",
        )
    return key


@lru_cache(maxsize=4096)
def _public(key: bytes) -> Any:
    return crypto().Ed25519PublicKey.from_public_bytes(key)


@lru_cache(maxsize=1)
def _sodium() -> Any:
    """libsodium, which signs and checks in half the time of OpenSSL; None if it is not installed."""
    try:
        from nacl import bindings
    except ImportError:
        return None
    return bindings


def _signer(private: Ed25519PrivateKey) -> Callable[[bytes], bytes]:
    """Sign with this key. Every library makes the same signature (RFC 8032)."""
    sodium = _sodium()
    if sodium is None:
        return private.sign
    _, secret = sodium.crypto_sign_seed_keypair(private.private_bytes_raw())
    return lambda data: bytes(sodium.crypto_sign(data, secret)[:SIGNATURE_BYTES])


def verified(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the owner of this public key signed this data.

    OpenSSL decides. It accepts whatever libsodium accepts, and a few signatures with keys of small order that
    libsodium refuses; so what libsodium accepts is not checked again.
    """
    sodium = _sodium()
    if sodium is not None and len(signature) == SIGNATURE_BYTES:
        with contextlib.suppress(Exception):  # any refusal
            sodium.crypto_sign_open(signature + data, public)
            return True
    return _verified(public, signature, data)


def _verified(public: bytes, signature: bytes, data: bytes) -> bool:
    crypto()
    from cryptography.exceptions import InvalidSignature

    try:
        _public(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def verified_all(checks: Sequence[tuple[bytes, bytes, bytes]]) -> list[bool]:
    """Whether each of these is signed: a public key, a signature and data; see ``verified``.

    The libraries work outside Python's lock, so a large batch uses all processors.
    """
    workers = min(os.cpu_count() or 1, len(checks) // SHARE)
    if workers < 2:
        return [verified(*check) for check in checks]
    shares = [checks[k::workers] for k in range(workers)]
    found = [False] * len(checks)
    for k, part in enumerate(_pool().map(lambda share: [verified(*check) for check in share], shares)):
        found[k::workers] = part
    return found


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="signatures")


@dataclass(frozen=True)
class Member:
    """One entry of the roster: a public key, its client, and the group of the client."""

    client: str
    group: str
    key: bytes
    revoked: bool = False
    added: int = 0  # 0 for a key of the first roster, k for the k-th key that was added later

    def __post_init__(self) -> None:
        for what, name in (("client", self.client), ("group", self.group)):
            if not _is_name(name) or not name or "/" in name or name == "*":
                raise InputError(
                    f"{what} name {shorten(name)} can't be used",
                    expected=f'1 to {MAX_NAME} printable characters, without "/", and not "*"',
                )
        if not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES:
            raise InputError(
                f"{shorten(self.key)} is not a public key",
                where=f'client "{self.client}"',
                expected=f"{KEY_BYTES} bytes",
            )
        if not isinstance(self.revoked, bool):
            raise InputError(f"revoked = {shorten(self.revoked)}", expected="true or false")
        if type(self.added) is not int or self.added < 0:
            raise InputError(f"added = {shorten(self.added)}", expected="a number of additions")


@dataclass(frozen=True)
class Roster:
    """Public key → client → group. Immutable: ``add`` and ``revoke`` return a new roster.

    A client has at most one key that is not revoked. A key appears once, and stays in the roster when it is
    revoked, so that it can't be added again and old evidence can still be checked. A client that lost its
    key gets another after the old one is revoked.
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
                raise InputError(
                    f"the key {member.key.hex()} appears twice", where=where, expected="distinct keys"
                )
            if groups.setdefault(member.client, member.group) != member.group:
                raise InputError(
                    f'is in group "{groups[member.client]}" and in "{member.group}"',
                    where=where,
                    expected="one group",
                )
            if not member.revoked and current.setdefault(member.client, member) is not member:
                raise InputError(
                    "is already in the roster", where=where, fix="Revoke its old key to give it another"
                )
            keys.add(member.key)

    @cached_property
    def current(self) -> dict[str, Member]:
        """Client -> its entry, for keys that are not revoked."""
        return {m.client: m for m in self.members if not m.revoked}

    def add(self, client: str, group: str, key: bytes) -> Roster:
        """Return a roster with this client and its public key added."""
        return Roster((*self.members, Member(client, group, key)))

    @property
    def additions(self) -> int:
        """How many keys were added after the first roster."""
        return max((m.added for m in self.members), default=0)

    def pin(self, additions: int) -> str:
        """SHA-256 of all keys up to this addition, revoked or not, in place of a copy of the roster."""
        rows = sorted((m.client, m.group, m.key.hex()) for m in self.members if m.added <= additions)
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def revoke(self, client: str) -> Roster:
        """Return a roster in which the client's key is revoked; its messages are refused from now on."""
        if client not in self.current:
            raise InputError(
                f'there is no client "{client}" to revoke',
                fix=nearest(client, self.current) if self.current else "The roster has no clients",
            )
        own = self.current[client]
        return Roster(tuple(replace(m, revoked=True) if m is own else m for m in self.members))

    def encode(self) -> bytes:
        """The canonical JSON text of this roster."""
        rows: list[dict[str, Any]] = [
            {"client": m.client, "group": m.group, "key": m.key.hex(), "revoked": m.revoked}
            | ({"added": m.added} if m.added else {})
            for m in self.members
        ]
        # Without additions the text is that of schema 1, so that digests of older rosters stay the same.
        plain = {"schema": ROSTER_SCHEMA if self.additions else 1, "clients": rows}
        return (json.dumps(plain, ensure_ascii=False, indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of ``encode()``."""
        return hashlib.sha256(self.encode()).hexdigest()

    @staticmethod
    def decode(data: bytes) -> Roster:
        """Read a roster, with entries in any order. InputError for anything else."""
        try:
            plain = json.loads(data)
            if not isinstance(plain, dict) or set(plain) != {"schema", "clients"}:
                raise ValueError("it has other keys than schema and clients")
            if plain["schema"] not in range(1, ROSTER_SCHEMA + 1):
                raise ValueError(f"its schema is {shorten(plain['schema'])}, not 1 to {ROSTER_SCHEMA}")
            rows = [Member(**{**row, "key": bytes.fromhex(row["key"])}) for row in plain["clients"]]
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"this is not a roster ({error})", fix="Name the roster.json of the federation or the mesh"
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
        """Write the JSON text atomically."""
        write(Path(path), self.encode())


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and (not name or name.isprintable())
