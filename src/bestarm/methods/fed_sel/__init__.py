"""Fed-SEL (Algorithm 2): the client and the server as machines without I/O.

Phase I: each client runs Algorithm 1 on its arm-set and reports its arm, mean and sample count (round 0).
Phase II: in each round k the server computes the intervals r̃ ∓ 2α(t̄+kH) from the decoded means, drops every
group whose upper bound is at most the largest lower bound, and broadcasts which groups are active. An active
client pulls its arm H more times and sends the bin of its new mean. With the default options this is exactly
the paper's algorithm; errata 4, 9b, 13, 16 and 21 are handled as described in docs/errata.md.

The number of rounds includes the Phase I reports: R = k*+1, and an active client makes H(R−1) pulls in
Phase II.
"""

from __future__ import annotations

from bestarm.methods.fed_sel.attacks import LIES
from bestarm.methods.fed_sel.audit import audit_client, audit_exits, good_event, pulls_of
from bestarm.methods.fed_sel.client import EXIT_COLUMNS, Client
from bestarm.methods.fed_sel.kernel import kernel_for
from bestarm.methods.fed_sel.options import FedSel, may_stop, refuse, refuse_budget, wire_of
from bestarm.methods.fed_sel.plan import FACTS
from bestarm.methods.fed_sel.server import Server
from bestarm.methods.fed_sel.trace import Trace
from bestarm.protocol.registry import Method

METHOD = Method(
    name="fed-sel",
    title="Fed-SEL",
    summary="Fed-SEL (local successive elimination, then rounds with the server)",
    proof="proved: docs, Fed-SEL, What it promises",
    options=FedSel,
    client=Client,
    server=Server,
    refuse=refuse,
    pulls_of=pulls_of,
    good_event=good_event,
    audit_client=audit_client,
    local_bests=True,
    axis="round",
    phases=("Phase I", "Phase II"),
    trace=Trace,
    kernel=kernel_for,
    curse=0.17,
    plan=FACTS,
    lies=LIES,
)

__all__ = [
    "EXIT_COLUMNS",
    "METHOD",
    "Client",
    "FedSel",
    "Server",
    "Trace",
    "audit_client",
    "audit_exits",
    "good_event",
    "may_stop",
    "pulls_of",
    "refuse",
    "refuse_budget",
    "wire_of",
]
