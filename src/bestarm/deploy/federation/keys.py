"""Keys and addresses of a federation's broker."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import shlex
import ssl
import unicodedata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bestarm.deploy.identity import NotAKey
from bestarm.errors import InputError
from bestarm.util.files import write_new
from bestarm.util.text import shorten

CA = "ca.pem"

MOST_REPLICAS = 5  # that JetStream allows


class Nkey:
    """The key that identifies a user to NATS, in the file format of NATS. It is not the signing key.

    A broker chooses the bytes that a user signs to log in, so this key must never sign a client's messages.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        try:
            self.public = str(_nkeys().from_seed(bytearray(seed.encode())).public_key.decode())
        except (ValueError, _nkeys().NkeysError):
            raise NotAKey(
                "this is not an nkey", expected="the seed of a user, which begins with SU"
            ) from None
        if not self.public.startswith("U"):
            raise NotAKey("this is not a user's nkey", expected="a seed that begins with SU")

    def __repr__(self) -> str:
        return f"Nkey(public={self.public})"

    @staticmethod
    def generate() -> Nkey:
        """A new key, from the system's randomness."""
        nkeys = _nkeys()
        return Nkey(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode())

    @staticmethod
    def create(path: Path, *, sync: bool = True) -> Nkey:
        """Write a new key to a new file that only its owner can read."""
        nkey = Nkey.generate()
        write_new(path, f"{nkey.seed}\n".encode(), 0o600, sync=sync)
        return nkey

    @staticmethod
    def load(path: Path) -> Nkey:
        """Load the key from a file."""
        try:
            if os.name == "posix" and path.stat().st_mode & 0o077:
                raise InputError(
                    "other users can read this private key", fix=f"Run: chmod 600 {shlex.quote(str(path))}"
                )
            return Nkey(path.read_text("utf-8", errors="replace").strip())
        except OSError as error:
            raise InputError(f"can't be read: {error}", where=str(path)) from None
        except InputError as error:
            raise error.at(str(path)) from None


def _nkeys() -> Any:
    try:
        import nkeys
    except ImportError:
        raise InputError(
            'a federation needs the package "nkeys"', fix='Install it with: pip install "bestarm[federation]"'
        ) from None
    return nkeys


def demand_host(host: str) -> None:
    """Raise InputError unless this is an IP address or a host name in ASCII."""
    with contextlib.suppress(ValueError):
        if "%" not in host:
            ipaddress.ip_address(host)
            return
    if _is_name(host):
        return
    if not host.isascii() and host.isprintable() and _is_name(encoded := ascii_name(host)):
        raise InputError(
            f"{shorten(host)} is not in ASCII",
            expected="the ASCII form of the name (xn--…), as certificates have it",
            fix=f"Use {encoded}",
        )
    raise InputError(
        f"{shorten(host)} is not a host",
        expected="a name or an IP address, without a port (that is --port)",
    )


def _is_name(host: str) -> bool:
    label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    return len(host) <= 253 and bool(re.fullmatch(rf"({label}\.)*(?!\d+$){label}", host))


def ascii_name(host: str) -> str:
    """The ASCII form of an international host name; labels that are in ASCII stay as they are.

    >>> ascii_name("Münster.example")
    'xn--mnster-3ya.example'
    """
    labels = unicodedata.normalize("NFC", host).split(".")
    return ".".join(x if x.isascii() else "xn--" + x.lower().encode("punycode").decode() for x in labels)


def addresses(url: str) -> list[str]:
    """The addresses in a list that is separated by commas.

    >>> addresses("tls://a:4222, tls://b:4222")
    ['tls://a:4222', 'tls://b:4222']
    """
    return [address.strip() for address in url.split(",")]


def demand_url(url: str) -> None:
    """Raise InputError unless this is the address of a NATS server, or a list of those of a cluster."""
    schemes = set()
    for address in addresses(url):
        try:
            parts = urlsplit(address)
            good = parts.scheme in ("tls", "nats") and bool(parts.hostname) and parts.port != 0
            schemes.add(parts.scheme)
        except ValueError:
            good = False
        if not good:
            raise InputError(
                f'"{address}" is not an address',
                expected="tls://HOST:PORT, or nats:// without TLS; of a cluster several, with commas",
            )
    if len(schemes) > 1:
        raise InputError(f"{url}: only some of these use TLS", expected="tls:// for all of them, or nats://")


def demand_replicas(replicas: int, cluster: bool) -> None:
    """InputError for a number of replicas that the broker can't have."""
    if not 1 <= replicas <= MOST_REPLICAS:
        raise InputError(
            f"replicas = {replicas}", expected=f"1 to {MOST_REPLICAS}, the servers that keep each message"
        )
    if replicas > 1 and not cluster:
        raise InputError(
            f"replicas = {replicas}: the embedded broker is a single server",
            expected="a NATS cluster for more than one",
            fix="Give --nats the addresses of a cluster",
        )


def authorities(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        data = path.read_bytes()
        ssl.create_default_context(cadata=data.decode("ascii"))
    except (OSError, ValueError) as error:
        raise InputError(f"can't be used as a certificate: {error}", where=str(path)) from None
    return data


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
