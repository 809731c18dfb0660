"""Fed-Bet for groups of 2f + 1 or more clients, up to f of which lie.

The server publishes the bets of a block before any client pulls it, and every client sends the sums of every
arm that is in. For each stake the server adds up each client's logarithms of wealth over all blocks, takes
the middle G − 2f of each group, and mixes the stakes with weights that never change. An arm leaves when that
wealth reaches 1/δ, times the number of choices of clients: C(G − f, f) for its own group, and for each group
that gave a champion against it, once. Missing rewards are filled against leaving, and replaced when they
come. Champions are named by the medians of the clients' means.

The proof is Theorem 4 in docs/bet-proofs.md. The liars must be fixed before the data are drawn, and the
honest clients of a group must have the same means.
"""

from __future__ import annotations

from bestarm.methods.bet.robust.attacks import LIES
from bestarm.methods.bet.robust.audit import audit_client
from bestarm.methods.bet.robust.client import Client
from bestarm.methods.bet.robust.kernel import kernel_for
from bestarm.methods.bet.robust.server import Server

__all__ = ["LIES", "Client", "Server", "audit_client", "kernel_for"]
