"""The algorithms, without I/O: one implementation of each for simulator, federation, mesh and audit.

To add a method, write its machines in a file of their own and give it a row in ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bestarm.problem import Layout
from bestarm.protocol import fedsel, fisher, peer, pooled, robust


@dataclass(frozen=True)
class Method:
    """A method: its options, its machines, the check that it can serve a layout, and what an audit needs.

    `pulls_of`, `good_event` and `audit_client` read the clients' part of a certificate. `coins`: rewards
    must be 0/1, so others are turned into coins. `grouped` has the machines for groups of several
    clients, where those are others. Without a server the clients are peers of a network.
    """

    options: type[Any]
    client: type[Any]
    server: type[Any] | None
    refuse: Callable[[Any, Any], None]
    pulls_of: Callable[..., tuple[int, int]]
    good_event: Callable[..., bool | None]
    audit_client: Callable[..., Iterator[str]]
    coins: bool = False
    grouped: Method | None = None


METHODS: dict[str, Method] = {
    "fed-sel": Method(
        fedsel.Options,
        fedsel.Client,
        fedsel.Server,
        fedsel.refuse,
        fedsel.pulls_of,
        fedsel.good_event,
        fedsel.audit_client,
    ),
    "robust-fed-sel": Method(
        robust.Options,
        robust.Client,
        robust.Server,
        robust.refuse,
        fedsel.pulls_of,
        fedsel.good_event,
        robust.audit_client,
    ),
    "fisher": Method(
        fisher.Options,
        fisher.Client,
        fisher.Server,
        fisher.refuse,
        fisher.pulls_of,
        fisher.good_event,
        fisher.audit_client,
        coins=True,
        grouped=Method(
            fisher.Options,
            pooled.Client,
            pooled.Server,
            fisher.refuse,
            pooled.pulls_of,
            pooled.good_event,
            pooled.audit_client,
            coins=True,
        ),
    ),
    "p2p": Method(
        peer.Options,
        peer.Peer,
        None,
        peer.refuse,
        fedsel.pulls_of,
        fedsel.good_event,
        peer.audit_client,
    ),
}


def method_for(name: str, layout: Layout) -> Method:
    """A method as it serves a layout."""
    method = METHODS[name]
    several = any(len(group.clients) > 1 for group in layout.groups)
    return method.grouped if several and method.grouped else method
