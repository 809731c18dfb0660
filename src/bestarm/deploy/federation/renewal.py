"""Renewing the server's keys and the broker's certificate while a federation exists.

The commands write the new files; a running server notices that ``federation.json`` was replaced. The key
that signs broadcasts changes without a restart: a statement signed with the old key names the new one, in the
order of the broadcasts, so that every client follows. The nkey, with which the server logs in to the broker,
changes when the server is started again. A crash at any point leaves a folder that works.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bestarm.deploy.federation import certificates
from bestarm.deploy.federation.accounts import ACCOUNTS, accounts
from bestarm.deploy.federation.files import SETUP, Federation, alone
from bestarm.deploy.federation.keys import CA, Nkey, demand_host
from bestarm.deploy.identity import Key, NotAKey
from bestarm.util.files import read, sync_folder, write

if TYPE_CHECKING:
    from bestarm.deploy.federation.desk import Desk

KEY, NKEY = "server.key", "server.nk"
NEXT_KEY, NEXT_NKEY = "server.key.next", "server.nk.next"

K = TypeVar("K", Key, Nkey)

log = logging.getLogger("bestarm.federation")


def renew_certificate(
    folder: Path, hosts: Iterable[str] = (), *, authority: bool = False
) -> dict[str, datetime.datetime]:
    """Give the embedded broker a new certificate from the authority that clients know; they stay connected.

    Parameters
    ----------
    folder : Path
        The server's folder.
    hosts : iterable of str
        More names or addresses of the broker, as clients see it.
    authority : bool
        Whether the authority is renewed first. Then each site needs the new ``ca.pem`` before the old one
        ends; until then both are valid.

    Returns
    -------
    dict of str to datetime
        When the "certificate" and the "authority" end.

    Raises
    ------
    InputError
        If the broker is not embedded, or the authority has ended.
    """
    hosts = list(hosts)
    for host in hosts:
        demand_host(host)
    with alone(folder):
        federation = Federation.load(folder)
        broker = folder / "broker"
        if authority:
            certificates.renew_authority(broker)
            for old in folder.glob(f"clients/*/{CA}"):
                write(old, (broker / CA).read_bytes())
        certificates.renew(broker, hosts)
        federation.save(folder)  # the running server reloads the broker when this file changes
    return certificates.ends(broker)


def renew_server_key(folder: Path) -> tuple[str, str]:
    """Make new keys for the server: the one that signs broadcasts, and its nkey. Safe to repeat.

    Parameters
    ----------
    folder : Path
        The server's folder.

    Returns
    -------
    tuple of two str
        The new public key in hexadecimal digits, and the new public nkey.
    """
    with alone(folder):
        federation = Federation.load(folder)
        key = _pending(folder / NEXT_KEY, Key.load) or Key.create(folder / NEXT_KEY)
        nkey = _pending(folder / NEXT_NKEY, Nkey.load) or Nkey.create(folder / NEXT_NKEY)
        if nkey.public != federation.nkey:
            old = federation.retired or federation.nkey  # in use until the server is started again
            federation = dataclasses.replace(federation, nkey=nkey.public, retired=old)
        federation.save(folder)
    return key.public.hex(), nkey.public


def prepare(folder: Path) -> Federation:
    """Read a server's folder at the start of the server, and bring it up to date.

    A folder of an older version is written in the new format, a new nkey replaces the old one, and a renewal
    of the certificate that was interrupted is repeated.

    Parameters
    ----------
    folder : Path
        The server's folder.

    Returns
    -------
    Federation
        What ``federation.json`` contains.
    """
    with alone(folder):
        federation = Federation.load(folder)
        pending = folder / NEXT_NKEY
        if Nkey.load(folder / NKEY).public == federation.nkey:
            _pending(pending, Nkey.load)  # removes a damaged one, which is not needed
        elif pending.exists() and Nkey.load(pending).public == federation.nkey:
            _adopt(pending, folder / NKEY)
        if federation.retired:
            federation = dataclasses.replace(federation, retired="")
        if _outdated(folder, federation):
            federation.save(folder)
        broker = folder / "broker"
        if (broker / certificates.CA_KEY).exists() and not certificates.fits(broker):
            certificates.renew(broker)
    return federation


def _outdated(folder: Path, federation: Federation) -> bool:
    from bestarm.deploy.federation.client_folders import SCHEMA

    plain = read(folder / SETUP, "", SCHEMA)
    path = folder / ACCOUNTS
    same = path.exists() and path.read_bytes() == accounts(federation)
    return plain["schema"] != SCHEMA or bool(plain.get("retired")) or not same


def server_keys(folder: Path) -> list[Key]:
    """The server's private key, and the one that shall replace it, if there is one."""
    keys, pending = [Key.load(folder / KEY)], folder / NEXT_KEY
    with contextlib.suppress(NotAKey):  # the desk raises if the journal names it; otherwise see ``succeed``
        if pending.exists():
            keys.append(Key.load(pending))
    return keys


def succeed(folder: Path, desk: Desk) -> None:
    """Let a new key of the server, if there is one, sign from now on; the journal has the statement first.

    A damaged file is removed, with a warning: the desk has the key that the journal names.

    Parameters
    ----------
    folder : Path
        The server's folder.
    desk : Desk
        The server's fold.
    """
    pending = folder / NEXT_KEY
    if pending.exists() and not desk.done:
        with alone(folder):  # the command may be writing it
            key = _pending(pending, Key.load)
            if key is not None:
                desk.succeed(key)
                _adopt(pending, folder / KEY)


def _pending(path: Path, load: Callable[[Path], K]) -> K | None:
    """The new key in this file, if there is one. A file without a key is removed, with a warning."""
    try:
        return load(path) if path.exists() else None
    except NotAKey as error:
        path.unlink()
        log.warning("%s The file was left by a renewal that failed, and is removed.", error)
        return None


def _adopt(pending: Path, path: Path) -> None:
    pending.replace(path)
    sync_folder(path.parent)
