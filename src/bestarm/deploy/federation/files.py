"""The folders of a federation: what ``init`` creates, what goes to each site, and who may connect.

In the server's folder: ``federation.json`` (the public setup, and the slots), ``layout.json``,
``roster.json`` (key → client → group), ``server.key``, ``broker/`` (certificates, accounts, the broker's
store) and ``clients/NAME/``, the folder to hand to each site. A *slot* is a broker account for one client;
spare ones are created in advance, because a running broker accepts new keys but no new accounts.

Files are changed atomically, the roster before ``federation.json``: the running server watches the latter
and applies changes. Commands that change these files wait for each other. Files of older versions are read,
and written in the new format by the next command or start of the server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bestarm.deploy.envelope import RUN_BYTES
from bestarm.deploy.federation import certificates
from bestarm.deploy.federation.accounts import ACCOUNTS, accounts
from bestarm.deploy.federation.client_folders import CLIENT, SCHEMA, ClientFolders, pin_of
from bestarm.deploy.federation.keys import (
    CA,
    Nkey,
    authorities,
    bracketed,
    demand_host,
    demand_replicas,
    demand_url,
)
from bestarm.deploy.federation.setup import LAYOUT, Setup
from bestarm.deploy.identity import Key, Roster
from bestarm.deploy.process import demand_packages, free_port
from bestarm.deploy.terms import without_means
from bestarm.errors import InputError
from bestarm.protocol.registry import method_named
from bestarm.simulate.identify import prepare
from bestarm.simulate.setup import Scenario
from bestarm.util.dates import today
from bestarm.util.disk_errors import disk_error, write_error
from bestarm.util.files import as_json, read, sync_all, write
from bestarm.util.text import listed, nearest

PORT = 4222
SETUP, ROSTER, JOURNAL, RECORD = "federation.json", "roster.json", "journal.db", "record.json"
MOST_SPARE = 10_000


@dataclass(frozen=True)
class Seat:
    """A slot in use: its client, the public nkey that the client connects with, and whether it is revoked.

    `folder` is the name of the folder in ``clients/`` that was made for it (empty before schema 2).
    """

    client: str
    nkey: str
    revoked: bool = False
    folder: str = ""
    blocked: bool = False  # cut off by the server until the operator allows it again


@dataclass(frozen=True)
class Federation:
    """``federation.json``: the setup, the server's own nkey, the slots, the dropped clients.

    `replicas` is the number of nodes of the operator's NATS cluster that keep each message. `retired` is a
    former nkey of the server, which the broker accepts until the server is started with the new one.
    """

    setup: Setup
    nkey: str
    slots: dict[str, Seat | None]
    dropped: list[str] = field(default_factory=list)
    replicas: int = 1
    retired: str = ""

    @cached_property
    def _slot_of(self) -> dict[str, str]:
        return {seat.client: slot for slot, seat in self.slots.items() if seat and not seat.revoked}

    def slot_of(self, client: str) -> str | None:
        """The slot that a client connects to: its newest, because slots are assigned in order."""
        return self._slot_of.get(client)

    @cached_property
    def _whose(self) -> dict[str, Seat]:
        return {seat.nkey: seat for seat in self.slots.values() if seat}

    def whose(self, nkey: str) -> Seat | None:
        """The client that owns this public nkey."""
        return self._whose.get(nkey)

    def folders(self) -> dict[str, str]:
        """Client -> the folder in ``clients/`` that was made for its present key."""
        return {seat.client: seat.folder for seat in self.slots.values() if seat and not seat.revoked}

    @staticmethod
    def load(folder: Path) -> Federation:
        """Read the folder of a server, of this version or an older one."""
        plain = read(folder / SETUP, "bestarm federation init creates it", SCHEMA)
        try:
            slots = {name: Seat(**seat) if seat else None for name, seat in plain["slots"].items()}
            return Federation(
                Setup.from_brief(plain["setup"], folder), plain["nkey"], slots, list(plain["dropped"]),
                int(plain.get("replicas", 1)), str(plain.get("retired", "")),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"can't be used ({error!r})", where=str(folder / SETUP)) from None

    def save(self, folder: Path) -> None:
        """Write ``federation.json`` and what follows from it: the layout and the broker's accounts."""
        if not (folder / LAYOUT).exists():
            write(folder / LAYOUT, self.setup.layout_file)
        slots = {name: dataclasses.asdict(seat) if seat else None for name, seat in self.slots.items()}
        write(folder / ACCOUNTS, accounts(self))
        plain = {"schema": SCHEMA, "setup": self.setup.to_brief(), "nkey": self.nkey}
        more = {
            "slots": slots, "dropped": self.dropped, "replicas": self.replicas, "retired": self.retired,
        }  # fmt: skip
        write(folder / SETUP, as_json({**plain, **more}))


@dataclass(frozen=True)
class Place:
    """A client's folder: its name, its keys, and the certificate that the broker must present."""

    folder: Path
    setup: Setup
    client: str
    slot: str
    key: Key
    nkey: Nkey

    @staticmethod
    def load(folder: Path) -> Place:
        """Read a client's folder, of this version or an older one."""
        fix = "Name the folder that bestarm federation init made for this client"
        plain = read(folder / CLIENT, fix, SCHEMA)
        try:
            setup, client = Setup.from_brief(plain["setup"], folder), str(plain["client"])
            if client not in setup.layout.group_of:
                raise ValueError(f"{client} is not a client of the layout")
            slot = str(plain["slot"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"can't be used ({error!r})", where=str(folder / CLIENT)) from None
        return Place(
            folder, setup, client, slot, Key.load(folder / "client.key"), Nkey.load(folder / "client.nk")
        )


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
    replicas: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> Federation:
    """Create a federation's folder: keys, certificates, the broker's accounts, and a folder for each client.

    Parameters
    ----------
    scenario : Scenario
        The clients, their arms, and the method with its options.
    folder : Path
        A new or empty folder.
    method : str, optional
        The method, if not the scenario's.
    host, port : str and int
        The address of the embedded broker, as clients see it; port 0 is a free one.
    spare : int
        The number of slots for keys that are added later.
    url : str, optional
        An existing NATS server, instead of an embedded broker.
    ca : Path, optional
        With `url`: the authority that its certificate is checked against (the system's by default).
    replicas : int
        With `url`: how many nodes of a NATS cluster keep each message.
    watch : callable, optional
        Called with the number of steps that are done, and the number of all.

    Returns
    -------
    Federation
        What ``federation.json`` contains.

    Raises
    ------
    InputError
        If the scenario has no server, an argument is invalid, or the folder can't be made.
    """
    demand_packages("federation")
    problem, method, options = prepare(scenario, method, {})
    if method_named(method).peers:
        raise InputError(f'method "{method}" has no server', fix='Use "bestarm mesh init" for peers')
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "the folder is not empty" if folder.is_dir() else "this is a file"
        raise InputError(what, where=str(folder), expected="a new or empty folder")
    _demand_broker(host, port, spare, url, ca, replicas)
    public = without_means(problem)
    trusted = authorities(ca)
    with _new(folder):
        if url is None:
            certificates.create(folder / "broker", host)
        elif trusted:
            write(folder / "broker" / CA, trusted)
        setup = Setup(
            run=secrets.token_bytes(RUN_BYTES),
            method=method,
            keys=dataclasses.asdict(options),
            problem=public,
            server=Key.create(folder / "server.key").public,
            url=url or f"tls://{bracketed(host)}:{port or free_port()}",
            name=scenario.name,
            date=today(),
        )
        names = problem.layout.clients
        slots = [f"s{k:0{len(str(len(names) + spare))}}" for k in range(1, len(names) + spare + 1)]
        seats = _seats(folder, setup, dict(zip(names, slots, strict=False)), watch)
        nkey = Nkey.create(folder / "server.nk").public
        federation = Federation(setup, nkey, dict.fromkeys(slots) | seats, replicas=replicas)
        federation.save(folder)
        sync_all(folder)
    return federation


def _demand_broker(
    host: str, port: int, spare: int, url: str | None, ca: Path | None, replicas: int
) -> None:  # fmt: skip
    """InputError for an address or options that no broker can have."""
    if not 0 <= port < 65536:
        raise InputError(f"{port} is not a port", expected="--port 1 to 65535, or 0 for a free one")
    if not 0 <= spare <= MOST_SPARE:
        raise InputError(f"{spare} spare slots are not possible", expected=f"--spare 0 to {MOST_SPARE}")
    demand_host(host)
    demand_replicas(replicas, cluster=url is not None)
    if url is not None:
        demand_url(url)
    elif ca is not None:
        raise InputError("--ca is only for an existing NATS server", fix="Give --nats as well")


def _seats(
    folder: Path, setup: Setup, slots: Mapping[str, str], watch: Callable[[int, int], None] | None
) -> dict[str, Seat]:
    """Create the first roster and the folder of each client; return slot -> seat. Nothing is synced."""
    made = ClientFolders(folder, setup, sync=False)
    seats: dict[str, Seat] = {}
    members = []
    for done, (client, slot) in enumerate(slots.items()):
        place, member, nkey = made.create(client, slot)
        members.append(member)
        seats[slot] = Seat(client, nkey, folder=place.name)
        if watch:
            watch(done, 2 * len(slots))
    roster = Roster(tuple(members))
    roster.save(folder / ROSTER)
    pin = pin_of(roster)
    for done, (slot, seat) in enumerate(seats.items(), len(slots)):
        made.fill(made.folder / seat.folder, seat.client, slot, pin)
        if watch:
            watch(done, 2 * len(slots))
    return seats


@contextlib.contextmanager
def _new(folder: Path) -> Iterator[None]:
    """Create a folder (or use an empty one). If filling it fails, it is removed again."""
    mode = folder.stat().st_mode if folder.exists() else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # it contains all keys until they are handed out
        (folder / "broker").mkdir(mode=0o700)
    except OSError as error:
        raise write_error(error, folder, "can't be made") from None
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for made in folder.iterdir():
                shutil.rmtree(made) if made.is_dir() else made.unlink()
            folder.rmdir() if mode is None else folder.chmod(mode)
        raise


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder: only one command at a time loads, changes and saves it."""
    try:
        file = (folder / ".lock").open("ab")
    except OSError as error:
        if found := disk_error(error, folder, "can't be changed"):
            raise found from None
        fix = "Name the folder that bestarm federation init made"
        raise InputError(f"can't be used: {error.strerror}", where=str(folder), fix=fix) from None
    with file:
        if sys.platform != "win32":  # no file locks there; the operator must take care
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_client(folder: Path, client: str) -> Path:
    """Create a key and a folder for a client of the layout that has no key. Other clients are not affected.

    A client that took part before resumes from the journal of its old folder: move it to the new one.
    """
    with alone(folder):
        federation, roster = Federation.load(folder), Roster.load(folder / ROSTER)
        client = _client_of(federation, client)
        if client in roster.current:
            command = shlex.join(["bestarm", "federation", "revoke", str(folder), client])
            fix = f"To replace it, first run: {command}"
            raise InputError(f'client "{client}" already has a key', fix=fix)
        free = [slot for slot, seat in federation.slots.items() if seat is None]
        if not free:
            raise InputError(
                "there is no free slot",
                where=str(folder),
                fix="Give bestarm federation init a larger --spare",
            )
        made, slot = ClientFolders(folder, federation.setup), free[0]
        place, member, nkey = made.create(client, slot)
        member = dataclasses.replace(member, added=roster.additions + 1)
        roster = Roster((*roster.members, member))
        made.fill(place, client, slot, pin_of(roster))
        roster.save(folder / ROSTER)
        slots = {**federation.slots, slot: Seat(client, nkey, folder=place.name)}
        dataclasses.replace(federation, slots=slots).save(folder)
    return place


def revoke(folder: Path, client: str) -> str:
    """Revoke a client's key: the broker and the server refuse it from now on. Safe to repeat.

    Returns the name of the client; that of a site with one client does as well.
    """
    with alone(folder):
        federation, roster = Federation.load(folder), Roster.load(folder / ROSTER)
        client = _client_of(federation, client)
        if client in roster.current:
            roster.revoke(client).save(folder / ROSTER)
        slots = {
            slot: dataclasses.replace(seat, revoked=True) if seat and seat.client == client else seat
            for slot, seat in federation.slots.items()
        }
        dataclasses.replace(federation, slots=slots).save(folder)
    return client


def block(folder: Path, slot: str) -> None:
    """Make the broker refuse the key in this slot until ``allow``: its client floods the broker."""
    with alone(folder):
        _set_blocked(folder, Federation.load(folder), {slot}, True)


def allow(folder: Path, client: str) -> str:
    """Let a client connect again that the server has cut off; returns its name."""
    with alone(folder):
        federation = Federation.load(folder)
        client = _client_of(federation, client)
        found = {slot for slot, seat in federation.slots.items() if seat and seat.client == client}
        if not any((seat := federation.slots[slot]) and seat.blocked for slot in found):
            raise InputError(f'client "{client}" is not cut off', where=str(folder))
        _set_blocked(folder, federation, found, False)
    return client


def _set_blocked(folder: Path, federation: Federation, slots: set[str], blocked: bool) -> None:
    changed = {
        slot: dataclasses.replace(seat, blocked=blocked) if seat and slot in slots else seat
        for slot, seat in federation.slots.items()
    }
    dataclasses.replace(federation, slots=changed).save(folder)


def drop(folder: Path, client: str) -> str:
    """Order the server to continue without this client; the certificate shows it. Returns its name."""
    with alone(folder):
        federation = Federation.load(folder)
        client = _client_of(federation, client)
        if client in federation.dropped:
            raise InputError(f'client "{client}" is already dropped', where=str(folder))
        dataclasses.replace(federation, dropped=[*federation.dropped, client]).save(folder)
    return client


def _client_of(federation: Federation, name: str) -> str:
    """The client of this name, or the only client of the site of this name."""
    layout = federation.setup.layout
    if name in layout.group_of:
        return name
    own = next((group.clients for group in layout.groups if group.name == name), ())
    if len(own) == 1:
        return own[0]
    raise InputError(
        f'site "{name}" has {len(own):,} clients' if own else f'there is no client "{name}"',
        expected="one client" if own else "a client of the scenario (the set of clients is fixed)",
        fix=f"Name one of them: {listed(own)}" if own else nearest(name, layout.group_of),
    )
