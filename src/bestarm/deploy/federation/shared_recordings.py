"""Clients of one group that play the same recording: rewards that would count twice where they are pooled."""

from __future__ import annotations

from typing import Any

from bestarm.deploy.federation.setup import Setup
from bestarm.deploy.pulling import recordings
from bestarm.records.build import SHARED


class SharedRecordings:
    """The recordings that clients have named in their notes, and the warnings that follow."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.first: dict[tuple[int, str], str] = {}  # (group, recording) -> the first client to play it
        self.warnings: list[dict[str, Any]] = []

    def compare(self, source: str, note: str, number: int) -> None:
        """Warn in this round if another client of the group plays a recording that the note names."""
        if not self.setup.room.pools:
            return
        j = self.setup.layout.group_of[source]
        for recording in recordings(note):
            first = self.first.setdefault((j, recording), source)
            text = f"{first} and {source} {SHARED}"
            if first != source and all(text != warning["text"] for warning in self.warnings):
                name = self.setup.layout.groups[j].name
                self.warnings.append({"group": name, "round": number, "text": text})
