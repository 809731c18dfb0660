"""The folders of a federation: what ``init`` makes, what goes to each site, and who may connect.

In the server's folder: ``federation.json`` (what all know, and the slots), ``roster.json`` (key → client →
group), ``server.key``, ``broker/`` (certificates, accounts, the broker's store) and ``clients/NAME/``, the
folder to hand to each site. A *slot* is an account of the broker with room for one client; spare ones are
made in advance, since a broker takes a new key at run time but no new account.

A file that changes is written whole or not at all, the roster before ``federation.json``: the running
server looks at the latter and takes up what is new. Commands that change them wait for each other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import ipaddress
import itertools
import os
import re
import secrets
import shutil
import ssl
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bestarm.deploy import SCHEMA, Terms, as_json, demand_packages, free_port, read, without_means, write
from bestarm.errors import InputError, nearest, shorten
from bestarm.identity import RUN_BYTES, Key, Member, Roster
from bestarm.protocol import METHODS
from bestarm.scenario import Scenario
from bestarm.simulate import prepare

PORT = 4222
SETUP, ROSTER, JOURNAL, RECORD = "federation.json", "roster.json", "journal.db", "record.json"
CLIENT, CA = "client.json", "ca.pem"
CONNECTIONS, SUBSCRIPTIONS = 4, 20  # that one client may have


@dataclass(frozen=True)
class Setup(Terms):
    """What all parties know of a run: the method, the layout, the server's key, and where the broker is."""

    server: bytes
    url: str

    @property
    def subject(self) -> str:
        """What every subject of this run begins with."""
        return f"ba.{self.run.hex()}"

    def to_dict(self) -> dict[str, Any]:
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**facts, "run": self.run.hex(), "server": self.server.hex()}

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Setup:
        facts = {f.name: plain[f.name] for f in dataclasses.fields(Setup)}
        for key in ("run", "server"):
            facts[key] = bytes.fromhex(facts[key])
        setup = Setup(**facts)
        if len(setup.run) != RUN_BYTES:
            raise ValueError("its run is no run's id")
        assert setup.room.server is not None
        setup.room.refuse(setup.layout, setup.unit)
        return setup


@dataclass(frozen=True)
class Seat:
    """A slot that is taken: by which client, the public nkey that it connects with, and whether it may."""

    client: str
    nkey: str
    revoked: bool = False


@dataclass(frozen=True)
class Federation:
    """``federation.json``: the setup, the server's own nkey, the slots, and who was dropped."""

    setup: Setup
    nkey: str
    slots: dict[str, Seat | None]
    dropped: list[str] = field(default_factory=list)

    def slot_of(self, client: str) -> str | None:
        """The slot that a client connects to: the newest, since slots are taken in their order."""
        taken = [s for s, seat in self.slots.items() if seat and not seat.revoked and seat.client == client]
        return taken[-1] if taken else None

    def whose(self, nkey: str) -> Seat | None:
        """Whose public nkey this is."""
        return next((seat for seat in self.slots.values() if seat and seat.nkey == nkey), None)

    @staticmethod
    def load(folder: Path) -> Federation:
        plain = read(folder / SETUP, "bestarm federation init makes it")
        try:
            slots = {name: Seat(**seat) if seat else None for name, seat in plain["slots"].items()}
            return Federation(Setup.from_dict(plain["setup"]), plain["nkey"], slots, list(plain["dropped"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"can't be used ({error!r})", where=str(folder / SETUP)) from None

    def save(self, folder: Path) -> None:
        slots = {name: dataclasses.asdict(seat) if seat else None for name, seat in self.slots.items()}
        write_broker(folder, self)
        plain = {"schema": SCHEMA, "setup": self.setup.to_dict(), "nkey": self.nkey}
        write(folder / SETUP, as_json({**plain, "slots": slots, "dropped": self.dropped}))


@dataclass(frozen=True)
class Place:
    """A client's folder: who it is, its keys, and the certificate that the broker must show."""

    folder: Path
    setup: Setup
    client: str
    slot: str
    key: Key
    nkey: Nkey

    @staticmethod
    def load(folder: Path) -> Place:
        plain = read(folder / CLIENT, "Name the folder that bestarm federation init made for this client")
        try:
            setup, client = Setup.from_dict(plain["setup"]), str(plain["client"])
            if client not in setup.layout.group_of:
                raise ValueError(f"{client} is no client of the layout")
            slot = str(plain["slot"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"can't be used ({error!r})", where=str(folder / CLIENT)) from None
        return Place(
            folder, setup, client, slot, Key.load(folder / "client.key"), Nkey.load(folder / "client.nk")
        )


class Nkey:
    """The key with which NATS knows a user, in a file as NATS writes it. It is another than the signing key.

    A broker chooses what a user signs to log in; it must never be able to choose what a client says.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        try:
            self.public = str(_nkeys().from_seed(bytearray(seed.encode())).public_key.decode())
        except (ValueError, _nkeys().NkeysError):
            raise InputError("this is no nkey", expected="the seed of a user, which begins with SU") from None
        if not self.public.startswith("U"):
            raise InputError("this is no user's nkey", expected="a seed that begins with SU")

    def __repr__(self) -> str:
        return f"Nkey(public={self.public})"

    @staticmethod
    def generate() -> Nkey:
        """A new key, from the system's randomness."""
        nkeys = _nkeys()
        return Nkey(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode())

    @staticmethod
    def create(path: Path) -> Nkey:
        """A new key in a file that only its owner can read."""
        nkey = Nkey.generate()
        write(path, f"{nkey.seed}\n".encode(), 0o600)
        return nkey

    @staticmethod
    def load(path: Path) -> Nkey:
        """The key in a file."""
        try:
            if os.name == "posix" and path.stat().st_mode & 0o077:
                raise InputError("others may read this private key", fix=f"Run: chmod 600 {path}")
            return Nkey(path.read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
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


def init(
    scenario: Scenario,
    folder: Path,
    *,
    method: str | None = None,
    host: str = "localhost",
    port: int = PORT,
    spare: int = 4,
    url: str | None = None,
    ca: Path | None = None,
) -> Federation:
    """Make a federation's folder: keys, certificates, the broker's accounts, and a folder for each client.

    With the `url` of a NATS that exists there is no embedded broker; `ca` is what its certificate is checked
    with (the system's authorities, if there is none).
    """
    demand_packages("federation")
    problem, method, options = prepare(scenario, method, {})
    if METHODS[method].server is None:
        raise InputError(f'method "{method}" has no server', fix='Use "bestarm mesh init" for peers')
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("there is something already", where=str(folder), fix="Choose a new folder")
    if not 0 <= port < 65536 or not 0 <= spare <= 10_000:
        raise InputError(f"port {port}, {spare} spare slots", expected="a port up to 65535, 0 to 10000 slots")
    demand_host(host)
    if url is not None:
        demand_url(url)
    elif ca is not None:
        raise InputError("--ca is for a NATS that exists", fix="Give --nats too")
    authorities = _authorities(ca)
    with _new(folder):
        if url is None:
            certificates(folder / "broker", host)
        elif authorities:
            write(folder / "broker" / CA, authorities)
        setup = Setup(
            run=secrets.token_bytes(RUN_BYTES),
            method=method,
            keys=dataclasses.asdict(options),
            problem=without_means(problem),
            server=Key.create(folder / "server.key").public,
            url=url or f"tls://{_bracketed(host)}:{port or free_port()}",
        )
        names = problem.layout.clients
        slots = [f"s{k:0{len(str(len(names) + spare))}}" for k in range(1, len(names) + spare + 1)]
        federation = Federation(setup, Nkey.create(folder / "server.nk").public, dict.fromkeys(slots))
        members, places = [], []
        for name, slot in zip(names, slots, strict=False):
            federation, member, place = _seat(folder, federation, name, slot)
            members.append(member)
            places.append(place)
        roster = Roster(tuple(members))
        for place in (
            *places,
            folder,
        ):  # a site keeps it, so that nobody can give the clients other keys unseen
            roster.save(place / ROSTER)
        federation.save(folder)
    return federation


@contextlib.contextmanager
def _new(folder: Path) -> Iterator[None]:
    """Make a folder, which is empty if it is there. If what fills it fails, all of it is taken away again."""
    mode = folder.stat().st_mode if folder.exists() else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # it holds the keys of all, until they are handed out
        (folder / "broker").mkdir(mode=0o700)
    except OSError as error:
        raise InputError(f"can't be made: {error.strerror}", where=str(folder)) from None
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for made in folder.iterdir():
                shutil.rmtree(made) if made.is_dir() else made.unlink()
            folder.rmdir() if mode is None else folder.chmod(mode)
        raise


def _seat(folder: Path, federation: Federation, client: str, slot: str) -> tuple[Federation, Member, Path]:
    """Make a client's folder and give it a slot."""
    setup = federation.setup
    name = client if re.fullmatch(r"\w[\w.-]{0,60}", client, re.ASCII) else slot
    more = (f"{name}.{slot}.{k}" for k in itertools.count(2))
    # There may be one of a key that was revoked: what the site has it keeps.
    names = itertools.chain([name, f"{name}.{slot}"], more)
    place = next(path for each in names if not (path := folder / "clients" / each).exists())
    place.mkdir(parents=True, mode=0o700)
    key, nkey = Key.create(place / "client.key"), Nkey.create(place / "client.nk")
    plain = {"schema": SCHEMA, "client": client, "slot": slot, "setup": setup.to_dict()}
    write(place / CLIENT, as_json(plain))
    if (folder / "broker" / CA).exists():
        write(place / CA, (folder / "broker" / CA).read_bytes())
    slots = {**federation.slots, slot: Seat(client, nkey.public)}
    group = setup.layout.groups[setup.layout.group_of[client]].name
    return dataclasses.replace(federation, slots=slots), Member(client, group, key.public), place


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time: each loads, changes and saves."""
    try:
        file = (folder / ".lock").open("ab")
    except OSError as error:
        fix = "Name the folder that bestarm federation init made"
        raise InputError(f"can't be used: {error.strerror}", where=str(folder), fix=fix) from None
    with file:
        if sys.platform != "win32":  # there it is up to the operator
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_client(folder: Path, client: str) -> Path:
    """A new key for a client of the layout that has none: its folder. Nobody else notices.

    A client that was at work before goes on with the journal of its old folder: move it to the new one.
    """
    with _alone(folder):
        federation, roster = Federation.load(folder), Roster.load(folder / ROSTER)
        _demand_client(federation, client)
        if client in roster.current:
            raise InputError(
                f'client "{client}" has a key already', fix=f"bestarm federation revoke {folder} {client}"
            )
        free = [slot for slot, seat in federation.slots.items() if seat is None]
        if not free:
            raise InputError("no slot is free", where=str(folder), fix="init takes --spare for more of them")
        federation, member, place = _seat(folder, federation, client, free[0])
        roster = roster.add(client, member.group, member.key)
        for each in (place, folder):
            roster.save(each / ROSTER)
        federation.save(folder)
    return place


def revoke(folder: Path, client: str) -> None:
    """Take a client's key away: the broker and the server refuse it from now on. Twice does no harm."""
    with _alone(folder):
        federation, roster = Federation.load(folder), Roster.load(folder / ROSTER)
        _demand_client(federation, client)
        if client in roster.current:
            roster.revoke(client).save(folder / ROSTER)
        slots = {
            slot: dataclasses.replace(seat, revoked=True) if seat and seat.client == client else seat
            for slot, seat in federation.slots.items()
        }
        dataclasses.replace(federation, slots=slots).save(folder)


def drop(folder: Path, client: str) -> None:
    """The operator's word that the run goes on without this client; the certificate shows it."""
    with _alone(folder):
        federation = Federation.load(folder)
        _demand_client(federation, client)
        if client in federation.dropped:
            raise InputError(f'client "{client}" was dropped before', where=str(folder))
        dataclasses.replace(federation, dropped=[*federation.dropped, client]).save(folder)


def _demand_client(federation: Federation, client: str) -> None:
    known = federation.setup.layout.group_of
    if client not in known:
        raise InputError(
            f'there is no client "{client}"',
            expected="a client of the scenario: their number is part of what the run promises",
            fix=nearest(client, known),
        )


def account(setup: Setup, slot: str = "") -> str:
    """The name of an account: the run's own, or that of a slot."""
    return f"BA_{setup.run.hex()[:8]}" + (f"_{slot}" if slot else "")


def longest_message(setup: Setup) -> int:
    """Bytes that an honest client's message never exceeds, envelope and headers included."""
    name = max(len(client.encode()) for client in setup.layout.clients)
    return max(1024, 600 + name + 16 * max(setup.layout.arm_counts))


def write_broker(folder: Path, federation: Federation) -> None:
    """``broker/accounts.conf``: one account a slot, each with its own two subjects and nothing else."""
    setup = federation.setup
    subject, owner = setup.subject, account(setup)
    lines = [
        "# Written by bestarm; include it in the configuration of a broker of your own.",
        "accounts {",
        f"  {owner} {{",
        "    jetstream: enabled",
        f"    users: [ {{ nkey: {federation.nkey} }} ]",
        "    exports: [",
        f'      {{ service: "{subject}.up.*" }}',
        '      { service: "$JS.API.CONSUMER.MSG.NEXT.DOWN.*", response: stream }',
        '      { service: "$JS.ACK.DOWN.>" }',
        "    ]",
        "  }",
    ]
    for slot, seat in federation.slots.items():
        pull = f"$JS.API.CONSUMER.MSG.NEXT.DOWN.{slot}"  # by another name: leaf nodes pass no $JS.API on
        own = {f"{subject}.up.{slot}": "", f"{subject}.next.{slot}": pull, f"$JS.ACK.DOWN.{slot}.>": ""}
        publish = ", ".join(f'"{name}"' for name in own)
        rights = f'publish: [ {publish} ], subscribe: [ "_INBOX_{slot}.>" ]'
        user = f"{{ nkey: {seat.nkey}, permissions: {{ {rights} }} }}" if seat and not seat.revoked else ""
        lines += [
            f"  {account(setup, slot)} {{",
            f"    users: [ {user} ]",
            f"    limits: {{ max_conn: {CONNECTIONS}, max_subs: {SUBSCRIPTIONS}, "
            f"max_payload: {longest_message(setup)} }}",
            "    imports: [",
            *(
                f'      {{ service: {{ account: {owner}, subject: "{real or name}" }}, to: "{name}" }}'
                for name, real in own.items()
            ),
            "    ]",
            "  }",
        ]
    write(folder / "broker" / "accounts.conf", ("\n".join([*lines, "}"]) + "\n").encode())


def certificates(folder: Path, host: str) -> None:
    """A CA of this federation's own, and the broker's certificate for `host` and this computer."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def subject(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    def alternative(name: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            pass
        try:
            return x509.DNSName(name)
        except ValueError:
            raise InputError(f'"{name}" is no host name', expected="a name or an IP address") from None

    hosts = [alternative(name) for name in dict.fromkeys([host, "localhost", "127.0.0.1", "::1"])]
    now = datetime.datetime.now(datetime.UTC)
    span = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=3650))
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = subject("bestarm federation CA")

    def builder(name: x509.Name, public: Any) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(public)
        made = made.serial_number(x509.random_serial_number())
        return made.not_valid_before(span[0]).not_valid_after(span[1])

    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    signs = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage)
    own = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        builder(issuer, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(own, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    certificate = (
        builder(subject(host), key.public_key())
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem, nothing = serialization.Encoding.PEM, serialization.NoEncryption()
    for name, private in (("ca.key", ca_key), ("broker.key", key)):
        write(folder / name, private.private_bytes(pem, serialization.PrivateFormat.PKCS8, nothing), 0o600)
    write(folder / CA, ca.public_bytes(pem))
    write(folder / "broker.pem", certificate.public_bytes(pem))


def demand_host(host: str) -> None:
    """InputError if this is neither an IP address nor a host's name."""
    label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    with contextlib.suppress(ValueError):
        if "%" not in host:
            ipaddress.ip_address(host)
            return
    if len(host) > 253 or not re.fullmatch(rf"({label}\.)*(?!\d+$){label}", host):
        raise InputError(
            f"{shorten(host)} is no host", expected="a name or an IP address, without a port (that is --port)"
        )


def demand_url(url: str) -> None:
    """InputError if this is no address of a NATS."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("tls", "nats") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise InputError(f'"{url}" is no address', expected="tls://HOST:PORT, or nats:// without TLS")


def _authorities(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        data = path.read_bytes()
        ssl.create_default_context(cadata=data.decode("ascii"))
    except (OSError, ValueError) as error:
        raise InputError(f"can't be used as a certificate: {error}", where=str(path)) from None
    return data


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
