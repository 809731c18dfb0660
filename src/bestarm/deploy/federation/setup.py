"""The setup of a federation: what server and clients know about a run.

The layout (all groups, arms and clients) is one file, ``layout.json``, in the server's folder. Other files
name it by its SHA-256, so that the folder of a client stays small however many clients there are. A small
layout is also copied to the folder of each client; a large one is handed out once per site, next to the
client's folder or in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from bestarm.deploy.envelope import RUN_BYTES
from bestarm.deploy.terms import LABELS, Terms, labels_of
from bestarm.errors import InputError

LAYOUT = "layout.json"
SMALL_LAYOUT = 1 << 14  # bytes of a layout that is copied to the folder of each client


@dataclass(frozen=True)
class Setup(Terms):
    """What all parties know about a run: method, layout, server's key and broker's address."""

    server: bytes
    url: str

    @property
    def subject(self) -> str:
        """The prefix of every subject of this run."""
        return f"ba.{self.run.hex()}"

    @cached_property
    def layout_file(self) -> bytes:
        """The content of ``layout.json``: the same bytes for the same layout."""
        return msgspec.json.encode({"schema": 1, **self.problem}, order="sorted") + b"\n"

    @property
    def small(self) -> bool:
        """Whether the folder of each client has a copy of the layout."""
        return len(self.layout_file) <= SMALL_LAYOUT

    @cached_property
    def layout_digest(self) -> str:
        """The SHA-256 of ``layout.json``."""
        return hashlib.sha256(self.layout_file).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The whole setup, as the header of the server's journal has it."""
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in LABELS}
        return {**facts, **self.labels, "run": self.run.hex(), "server": self.server.hex()}

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Setup:
        """Read what ``to_dict`` returned; ValueError, KeyError or TypeError if it is not a setup."""
        facts = {f.name: plain[f.name] for f in dataclasses.fields(Setup) if f.name not in LABELS}
        for key in ("run", "server"):
            facts[key] = bytes.fromhex(facts[key])
        setup = Setup(**facts | labels_of(plain))
        if len(setup.run) != RUN_BYTES:
            raise ValueError("its run is not a run id")
        assert setup.room.server is not None
        setup.room.refuse(setup.layout, setup.unit)
        return setup

    def to_brief(self) -> dict[str, Any]:
        """The setup with the digest of its layout instead of the layout, as files have it."""
        plain = self.to_dict()
        del plain["problem"]
        return {**plain, "layout": self.layout_digest}

    @staticmethod
    def from_brief(plain: Mapping[str, Any], folder: Path) -> Setup:
        """Read what ``to_brief`` returned, with the layout in this folder or one of the two above it."""
        if "problem" in plain:  # schema 1 has the layout in every file
            return Setup.from_dict(plain)
        problem = _layout(folder, str(plain["layout"]))
        return Setup.from_dict({**plain, "problem": problem})


def _layout(folder: Path, digest: str) -> dict[str, Any]:
    """The layout with this SHA-256, from the nearest file."""
    for place in (folder, *folder.resolve().parents[:2]):
        try:
            data = (place / LAYOUT).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            found: dict[str, Any] = msgspec.json.decode(data)
            del found["schema"]
            return found
    raise InputError(
        f"there is no {LAYOUT} of this federation (SHA-256 {digest[:16]}…)",
        where=str(folder),
        fix=f"Copy {LAYOUT} from the server's folder to this folder or the one that contains it",
    )
