"""The interface of a crowd: all clients of one run at once, as arrays.

With thousands of clients, a run spends its time in calls of thousands of small machines. A method may offer a
crowd that makes the same decisions, draws the same batches and sends the same bytes as one machine per client
would; the server's machine is the same. The record of the run is the same, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bestarm.protocol.decisions import Ints
from bestarm.stats.sums import Sums

Said = list[tuple[int, bytes]]  # messages to the server, in order: the number of the client, and the payload


class Crowd(Protocol):
    """All clients of a run with a server. Clients are numbered as in the layout.

    Outstanding are `times[i]` rounds of pulls of client i, in each of which arm a is pulled `shares[i, a]`
    times; arms that a client does not have get none. All of them are carried out before the next message of
    the server is heard, unless it is heard at the moment at which they were asked for; then they are dropped.
    """

    times: Ints
    shares: Ints

    def start(self, supply: Sequence[tuple[int | None, ...]]) -> Said:
        """The run starts. `supply` is, for each client, how many rewards its arms have, if that is known."""

    def took(self, rewards: Sums) -> Said:
        """All outstanding pulls were carried out; more of them may follow."""

    def heard(self, data: bytes) -> Said:
        """All clients hear a message of the server."""

    def local(self) -> list[dict[str, Any]]:
        """Each client's part of the certificate, as plain values."""
