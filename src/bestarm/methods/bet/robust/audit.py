"""The audit of Fed-Bet among liars: an honest client's part is repeated by a client machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bestarm.methods.bet.audit import repeat
from bestarm.methods.bet.robust.client import Client
from bestarm.methods.bet.robust.server import Server


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Repeat a client with its rewards and the server's broadcasts, and compare all that it says."""
    if server.out[server.index[name]]:
        yield "is proven faulty, but listed as honest"
    yield from repeat(Client(server.layout, name, server.options), part, server)
