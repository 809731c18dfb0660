"""The interface of a crowd: all clients of one run at once, as arrays.

With thousands of clients, a run spends its time in calls of thousands of small machines. A method may offer a
crowd that makes the same decisions, draws the same batches and sends the same bytes as one machine per client
would; the server's machine is the same. The record of the run is the same, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bestarm.protocol.events import Pull, Pulled

Said = list[tuple[int, bytes]]  # messages to the server, in order: the number of the client, and the payload


class Crowd(Protocol):
    """All clients of a run with a server. Clients are numbered as in the layout.

    `pulls` are the outstanding pulls by client. All of them are carried out before the next message of the
    server is heard, unless it is heard at the moment at which they were asked for; then they are dropped.
    """

    pulls: dict[int, Pull]

    def start(self, supply: Sequence[tuple[int | None, ...]]) -> Said:
        """The run starts. `supply` is, for each client, how many rewards its arms have, if that is known."""

    def took(self, rewards: Mapping[int, Pulled]) -> Said:
        """All outstanding pulls were carried out; more of them may follow."""

    def heard(self, data: bytes) -> Said:
        """All clients hear a message of the server."""

    def local(self, client: int) -> dict[str, Any]:
        """The client's part of the certificate, as plain values."""
