"""The audit of Fed-Bet for groups of several clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bestarm.methods.bet.audit import repeat
from bestarm.methods.bet.groups.client import Client
from bestarm.methods.bet.groups.server import Server
from bestarm.methods.bet.options import Bet
from bestarm.problem.layout import Layout


def good_event(
    layout: Layout, options: Bet, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether the best arm never left; None if it is not unique, or if a client was dropped."""
    flat = [mean for row in means for mean in row]
    server = certificate["server"]
    if flat.count(max(flat)) > 1 or any(row[0] == "drop" for row in server["events"]):
        return None
    return flat.index(max(flat)) not in [row["arm"] for row in server["exits"]]


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Repeat a client with its rewards and the server's broadcasts, and compare all that it says."""
    return repeat(Client(server.layout, name, server.options), part, server)
