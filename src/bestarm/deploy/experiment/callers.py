"""Who may call the HTTP interface: a bearer token for each caller, of which only a hash is stored."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import msgspec

from bestarm.deploy.experiment.clerk import MOST_CALLER
from bestarm.errors import InputError
from bestarm.util.files import as_json, write
from bestarm.util.text import shorten

FILE = "callers.json"
MOST_NAME = MOST_CALLER


class Callers:
    """The callers of an experiment, in a file of its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: dict[str, str] = {}  # hash -> name
        self._version: tuple[int, int] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if another process has changed it."""
        try:
            if not self.path.exists():
                return
            facts = self.path.stat()
            version = (facts.st_mtime_ns, facts.st_ino)
            if version != self._version:
                self._names = msgspec.json.decode(self.path.read_bytes(), type=dict[str, str])
                self._version = version
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"the callers can't be read: {error}", where=str(self.path)) from None

    @property
    def names(self) -> list[str]:
        return list(self._names.values())

    def add(self, name: str) -> str:
        """Add a caller, and return its token, which is shown once and not stored."""
        if not name.strip() or len(name) > MOST_NAME or not name.isprintable() or name in self.names:
            raise InputError(
                f"caller {shorten(name)}",
                where=str(self.path),
                expected="a new name of printable characters",
            )
        token = secrets.token_urlsafe(24)
        self._names[_hash(token)] = name
        write(self.path, as_json(self._names), mode=0o600)
        return token

    def remove(self, name: str) -> None:
        """Remove a caller: its token is worthless from now on."""
        if name not in self.names:
            raise InputError(f"there is no caller {shorten(name)}", where=str(self.path))
        self._names = {token: other for token, other in self._names.items() if other != name}
        write(self.path, as_json(self._names), mode=0o600)

    def who(self, header: str) -> str | None:
        """The name of the caller with this Authorization header; None if it has no right to call."""
        kind, _, token = header.partition(" ")
        return self._names.get(_hash(token.strip())) if kind.lower() == "bearer" else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
