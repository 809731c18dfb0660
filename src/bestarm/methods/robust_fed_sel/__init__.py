"""Robust Fed-SEL (Algorithm 3): groups of several clients with up to f liars each.

The tight rules (the default) need 2f+1 clients per group, and the paper's rules need 3f+1.

- *Vote.* Tight: the first arm with f+1 valid votes, at least one of them honest, becomes the group's arm.
  Paper: the arm with the majority among the first 2f+1 reports, C′.
- *Trim.* f_j = f − |proven faulty ∪ dissenters|. These clients are excluded, with their intervals. Of the
  remaining members (the voters for the group's arm) at most f_j lie. U is the (f_j+1)-th smallest upper
  bound, and L is the (f_j+1)-th largest lower bound. A client whose own intervals have no point in common
  counts as a dissenter: on the good event it lies.
- *Silence.* A missing member keeps its last valid interval. A round closes as soon as all members have
  replied, or, once the driver's patience is over, after |C_j| − f replies of members (paper: |C̄_j| − f_j).
- *Late.* Tight: a late reporter that voted for the group's arm is admitted. Paper: it deactivates.

Every reply includes its own sample count, so a late or stale reply is interpreted with the right radius. A
lie about the count is harmless. Runs end under eventual delivery; because intervals may be stale, there is no
bound on pulls.
"""

from __future__ import annotations

from bestarm.methods import fed_sel
from bestarm.methods.robust_fed_sel.attacks import LIES
from bestarm.methods.robust_fed_sel.audit import audit_client
from bestarm.methods.robust_fed_sel.client import Client
from bestarm.methods.robust_fed_sel.options import NEEDS, RobustFedSel, refuse, wire_of
from bestarm.methods.robust_fed_sel.plan import FACTS
from bestarm.methods.robust_fed_sel.server import Server
from bestarm.protocol.registry import Method

METHOD = Method(
    name="robust-fed-sel",
    title="Robust Fed-SEL",
    summary="Robust Fed-SEL (votes and trimmed means: some clients may lie)",
    proof="proved: docs, Liars, What is promised",
    options=RobustFedSel,
    client=Client,
    server=Server,
    refuse=refuse,
    pulls_of=fed_sel.pulls_of,
    good_event=fed_sel.good_event,
    audit_client=audit_client,
    epsilon=False,
    liars=True,
    local_bests=True,
    axis="round",
    phases=("Phase I", "Phase II"),
    trace=fed_sel.Trace,
    curse=0.12,
    plan=FACTS,
    lies=LIES,
)

__all__ = ["METHOD", "NEEDS", "Client", "RobustFedSel", "Server", "audit_client", "refuse", "wire_of"]
