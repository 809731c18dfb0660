"""Fed-Fisher: merged phases, synchronised geometric looks, exact tests.

At look r every active client pulls each of its active arms up to n_r = ⌈n₀·qʳ⌉ times and drops the arms that
lose to its own top arm in a one-sided Fisher exact test at level x_r = δ·s_r/(K−1). It then sends the bin of
its top arm's mean. The server picks the leader (largest lower edge), drops every client whose upper edge
loses to that lower edge, and broadcasts the leader's bin. Clients test their own exact sums against it. All
comparisons are between counts of the same look. The first `quiet` looks are local.

The method works on 0/1 rewards; other rewards are turned into coins (``rewards.coined``). With ε > 0, half of
δ is reserved for exact intervals at the looks, which are fixed in advance. Without ε the method claims no
interval.
"""

from __future__ import annotations

import dataclasses

from bestarm.methods.fisher import pooled
from bestarm.methods.fisher.audit import audit_client, good_event, pulls_of
from bestarm.methods.fisher.client import Client, Exit
from bestarm.methods.fisher.crowd import crowd_for
from bestarm.methods.fisher.kernel import kernel_for
from bestarm.methods.fisher.looks import MAX_LOOK, Looks, looks_of, next_look, price_of_loss, refuse, wire_of
from bestarm.methods.fisher.options import PREFERENCES, Fisher
from bestarm.methods.fisher.plan import FACTS
from bestarm.methods.fisher.server import Server
from bestarm.methods.fisher.trace import Trace, row_text
from bestarm.protocol.registry import Method

METHOD = Method(
    name="fisher",
    title="Fed-Fisher",
    summary="Fed-Fisher (exact tests at geometrically spaced looks)",
    proof="proved: docs, Fed-Fisher, What it promises",
    options=Fisher,
    client=Client,
    server=Server,
    refuse=refuse,
    pulls_of=pulls_of,
    good_event=good_event,
    audit_client=audit_client,
    coins=True,
    claims_intervals=lambda options: options.epsilon > 0,
    curse=0.07,
    liars=True,
    phases=("quiet looks", "later looks"),
    trace=Trace,
    kernel=kernel_for,
    crowd=crowd_for,
    plan=FACTS,
    next_step=next_look,
    row_text=row_text,
)
METHOD = dataclasses.replace(
    METHOD,
    grouped=dataclasses.replace(
        METHOD,
        client=pooled.Client,
        server=pooled.Server,
        pulls_of=pooled.pulls_of,
        good_event=pooled.good_event,
        audit_client=pooled.audit_client,
        pools=True,
        trace=pooled.Trace,
        kernel=pooled.kernel_for,
        crowd=lambda layout, options: None,
        lies=pooled.LIES,
    ),
)

__all__ = [
    "MAX_LOOK",
    "METHOD",
    "PREFERENCES",
    "Client",
    "Exit",
    "Fisher",
    "Looks",
    "Server",
    "audit_client",
    "good_event",
    "looks_of",
    "price_of_loss",
    "pulls_of",
    "refuse",
    "wire_of",
]
