"""Clients that play the same recording: rewards that count twice, or that belong to another site.

Where the rewards of a group's clients are pooled, any equal recording is a copy. Clients of different groups
may have the same few rows by chance: there, only recordings that are too long for that are compared.
"""

from __future__ import annotations

from typing import Any

from bestarm.deploy.federation.setup import Setup
from bestarm.deploy.pulling import recordings, telling
from bestarm.records.build import COPIED, FOREIGN, SHARED


class SharedRecordings:
    """The recordings that clients have named in their notes, and the warnings that follow."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.first: dict[tuple[int, str], str] = {}  # (group, recording) -> the first client to play it
        self.warnings: list[dict[str, Any]] = []

    def compare(self, source: str, note: str, number: int) -> None:
        """Warn in this round if another client plays a recording that the note names."""
        j, pools, warned = self.setup.layout.group_of[source], self.setup.room.pools, set[str]()
        for recording in recordings(note):
            own = self.first.setdefault((j, recording), source)
            whose = [(own, SHARED if pools else COPIED)]
            if recording in telling(note):
                others = (name for (k, what), name in self.first.items() if what == recording and k != j)
                whose += [(name, FOREIGN) for name in others]
            for first, why in whose:
                if first != source and first not in warned:
                    warned.add(first)
                    group = self.setup.layout.groups[j].name
                    text = f"{first} and {source} {why}"
                    self.warnings.append({"group": group, "round": number, "text": text})
