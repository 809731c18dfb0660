"""Fed-Fisher with robust pooling, for groups of several clients with up to f liars each.

At look r every client of an active group pulls each remaining arm up to n_r times and sends the sums. Clients
never drop arms themselves. For each arm, the server adds up the middle h = G − 2f of a group's G sums, and it
tests arms on h·n_r coins at level x_r/(C(G−f, f)·C(G'−f, f)), with one factor for each group. Missing sums
are replaced by the value that makes rejection least likely: n_r for the arm that may be dropped, and 0 for
its rival. So p only decreases as replies arrive, and a look may be tested again. Once the driver's patience
is over, the server continues with the next look after G − f replies from each group, and it uses late replies
when they arrive.

A client that is behind reports every look, in order, so that eventually all honest sums of each look are
known. The proof that runs end relies on this. It costs no extra pulls: arms that have been dropped in the
meantime are no longer pulled, and the server ignores their sums.

The set of liars must be fixed before the data are drawn. So must K, n₀, q, f and G.
"""

from __future__ import annotations

from bestarm.methods.fisher.pooled.attacks import LIES
from bestarm.methods.fisher.pooled.audit import audit_client, good_event, pulls_of
from bestarm.methods.fisher.pooled.client import COLUMNS, Client
from bestarm.methods.fisher.pooled.kernel import kernel_for
from bestarm.methods.fisher.pooled.server import Pool, Server
from bestarm.methods.fisher.pooled.trace import Trace

__all__ = [
    "COLUMNS",
    "LIES",
    "Client",
    "Pool",
    "Server",
    "Trace",
    "audit_client",
    "good_event",
    "kernel_for",
    "pulls_of",
]
