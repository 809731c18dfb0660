"""Making the folder of a client: its keys, and a few kilobytes that say which run it belongs to.

Instead of the layout and the roster it has their digests (see ``setup`` and ``identity.Roster.pin``). So it
does not grow with the number of clients, and a site still notices if the keys of other clients are exchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bestarm.deploy.federation.keys import CA, Nkey
from bestarm.deploy.federation.setup import LAYOUT, Setup
from bestarm.deploy.folder_names import same_folder, unused
from bestarm.deploy.identity import Key, Member, Roster
from bestarm.errors import InputError
from bestarm.util.files import as_json, read, write_new

CLIENT = "client.json"
SCHEMA = 2  # of federation.json and client.json


class ClientFolders:
    """Makes folders in ``clients/`` of a server's folder.

    Parameters
    ----------
    folder : Path
        The server's folder.
    setup : Setup
        The setup of the run.
    sync : bool
        Whether each file is synced; otherwise the caller syncs them all.
    """

    def __init__(self, folder: Path, setup: Setup, *, sync: bool = True) -> None:
        self.folder, self.setup, self.sync = folder / "clients", setup, sync
        ca = folder / "broker" / CA
        self.ca = ca.read_bytes() if ca.exists() else None
        # A folder with a revoked key may exist; the copy at the site stays untouched.
        self.taken = {same_folder(p.name) for p in self.folder.iterdir()} if self.folder.exists() else set()

    def create(self, client: str, slot: str) -> tuple[Path, Member, str]:
        """Create a folder with new keys; return it, the entry in the roster and the public nkey."""
        place = self.folder / unused(client, slot, self.taken)
        self.taken.add(same_folder(place.name))
        try:
            place.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise InputError(f"can't be made: {error.strerror}", where=str(place)) from None
        key = Key.create(place / "client.key", sync=self.sync)
        nkey = Nkey.create(place / "client.nk", sync=self.sync)
        layout = self.setup.layout
        return place, Member(client, layout.groups[layout.group_of[client]].name, key.public), nkey.public

    def fill(self, place: Path, client: str, slot: str, pin: dict[str, Any]) -> None:
        """Write the public files of a client; `pin` is what ``pin_of`` returned."""
        layout = self.setup.layout
        group = layout.groups[layout.group_of[client]]
        plain = {
            "schema": SCHEMA, "client": client, "group": group.name, "arms": group.arms, "slot": slot,
            "setup": self.setup.to_brief(), "roster": pin,
        }  # fmt: skip
        write_new(place / CLIENT, as_json(plain), sync=self.sync)
        if self.ca is not None:
            write_new(place / CA, self.ca, sync=self.sync)
        if self.setup.small:
            write_new(place / LAYOUT, self.setup.layout_file, sync=self.sync)


def pin_of(roster: Roster) -> dict[str, Any]:
    """The digest of a roster's keys, as ``client.json`` has it."""
    return {"additions": roster.additions, "sha256": roster.pin(roster.additions)}


def is_of_run(path: Path, setup: Setup) -> bool:
    """Whether this ``client.json`` is about the run with this setup."""
    plain = read(path, "Use another copy of it", SCHEMA)
    return plain.get("setup") in (setup.to_brief(), setup.to_dict())  # schema 1 has the whole setup


def kept_keys(path: Path, roster: Roster) -> set[tuple[str, bytes]] | None:
    """The (client, key) pairs that a site vouches for, by its ``client.json`` or a copy of the roster.

    Parameters
    ----------
    path : Path
        A client's ``client.json``, or a roster that was kept.
    roster : Roster
        The newest roster of the server, which has all keys.

    Returns
    -------
    set or None
        None if the server's keys are not those that the client was told of.
    """
    if path.name != CLIENT:
        return {(m.client, m.key) for m in Roster.load(path).members}
    pin = read(path, "Use another copy of it", SCHEMA).get("roster")
    if pin is None:  # schema 1 has a copy of the roster instead
        return kept_keys(path.with_name("roster.json"), roster)
    try:
        additions, digest = int(pin["additions"]), str(pin["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"can't be used ({error!r})", where=str(path)) from None
    if roster.pin(additions) != digest:
        return None
    return {(m.client, m.key) for m in roster.members if m.added <= additions}
