"""Changes of keys in words, for the record and for the server's log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bestarm.deploy.identity import Roster
from bestarm.deploy.logs import fields

log = logging.getLogger("bestarm.federation")


def changes(old: Roster, new: Roster) -> list[str]:
    """Describe the changes of keys between two rosters."""
    before, after = ({m.key: m for m in roster.members} for roster in (old, new))
    found = [f"{m.client} lost its key {k.hex()[:16]}" for k, m in before.items() if k not in after]
    for key, m in after.items():
        was = before.get(key)
        if was is None:
            found.append(f"{m.client} was given the key {key.hex()[:16]}")
        elif was != m:
            how = "revoked" if m.revoked else "reinstated"
            found.append(f"the key {key.hex()[:16]} of {m.client} was {how}")
    return found


def log_changes(texts: Sequence[str]) -> None:
    """Log changes that were added to ``Desk.changes``, without the numbers of their events."""
    for text in texts:
        log.warning("%s", text.partition(": ")[2], extra=fields(event="key"))
