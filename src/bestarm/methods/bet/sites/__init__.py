"""Fed-Bet for questions about several sites: the best option overall, at each site, or against a control.

The server keeps all wealths, from the sums of every option at every client. It bets on contrasts: weighted
differences between two options over all sites, whatever the sites are like. The theorem and its proof are in
docs/questions-proofs.md.
"""

from __future__ import annotations

from bestarm.methods.bet.sites.attacks import LIES
from bestarm.methods.bet.sites.audit import audit_client, good_event
from bestarm.methods.bet.sites.client import Client
from bestarm.methods.bet.sites.kernel import kernel_for
from bestarm.methods.bet.sites.server import Server
from bestarm.methods.bet.sites.trace import ArmTrace, Trace

QUESTIONS = ("overall", "each", "control")

__all__ = [
    "LIES", "QUESTIONS", "ArmTrace", "Client", "Server", "Trace", "audit_client", "good_event", "kernel_for",
]  # fmt: skip
