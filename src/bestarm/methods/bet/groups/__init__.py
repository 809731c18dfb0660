"""Fed-Bet for groups of several honest clients.

Every client of a group makes the same number of pulls in every block and sends the sums of every arm that is
in. The server adds them up, keeps the wealths and lets arms leave. So the mean of an arm is the average over
the clients of its group, which may differ: bets inside one client would be about that client only.
"""

from __future__ import annotations

from bestarm.methods.bet.groups.audit import audit_client, good_event
from bestarm.methods.bet.groups.client import Client
from bestarm.methods.bet.groups.kernel import kernel_for
from bestarm.methods.bet.groups.server import Server
from bestarm.methods.bet.groups.trace import Trace

__all__ = ["Client", "Server", "Trace", "audit_client", "good_event", "kernel_for"]
