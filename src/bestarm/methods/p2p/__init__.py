"""Peer to peer (Algorithm 4) and a variant without its assumption: one machine for each client of a network.

``exchange = "means"`` is the paper's protocol. A peer runs Algorithm 1 on its own arm-set and sends its arm
and mean to its out-neighbours. For every other arm-set it uses the first 2f+1 in-neighbours that report: it
takes the majority vote and the trimmed mean, and sends them to its own out-neighbours. When it knows all
arm-sets, the arm with the largest mean is its answer. On the good event the answer is correct if the network
is strongly (3f+1)-robust and all heterogeneity indices with the best group are at most 1. The means do not
show whether the indices are.

``exchange = "intervals"`` does not need this premise, and needs only a strongly (2f+1)-robust network:

1. A peer accepts an arm of an arm-set on f+1 equal votes. Its bounds are the (f+1)-th smallest upper bound
   and the (f+1)-th largest lower bound of the in-neighbours that vote for the arm, intersected over time. The
   peer sends an interval at once if it has shrunk by the factor `tighten` since it was last sent, and sends
   everything new when a group is dropped. Other changes wait for the next tick of the driver.
2. A peer samples until its group is beaten, or is the only one left, *in its own view*. Adopting a verdict
   stops neither its sampling nor its relaying.
3. A peer whose group is the only one left in its view announces the verdict. Other peers adopt and relay it
   when f+1 in-neighbours announce the same verdict.
"""

from __future__ import annotations

from bestarm.methods import fed_sel
from bestarm.methods.p2p.attacks import LIES
from bestarm.methods.p2p.audit import audit_client
from bestarm.methods.p2p.bounds import bounds_of
from bestarm.methods.p2p.options import EXCHANGES, PeerToPeer, most_reports, refuse
from bestarm.methods.p2p.peer import STEP, Peer
from bestarm.methods.p2p.plan import FACTS
from bestarm.methods.p2p.trace import Trace
from bestarm.protocol.registry import Method

PREMISE = (
    "The verdict also relies on an assumption that means alone cannot verify: the two best arms of the best "
    "arm-set, and of each other one, are at most as far apart as the best arms of the two sets (σ ≤ 1; a "
    "single arm counts as a gap of (c−2)/c). "
    'exchange = "intervals" does not need this assumption.'
)

METHOD = Method(
    name="p2p",
    title="Peer to peer",
    summary="peer to peer (no server)",
    options=PeerToPeer,
    client=Peer,
    server=None,
    refuse=refuse,
    pulls_of=fed_sel.pulls_of,
    good_event=fed_sel.good_event,
    audit_client=audit_client,
    epsilon=False,
    liars=True,
    local_bests=True,
    phases=("Phase I", "Phase II"),
    trace=Trace,
    premise=lambda options: PREMISE if options.exchange == "means" else "",
    exchange=lambda options: options.exchange,
    most_reports=most_reports,
    peer_bounds=bounds_of,
    curse=0.02,
    plan=FACTS,
    proof="proved: docs, Peer to peer: proofs",
    lies=LIES,
)

__all__ = [
    "EXCHANGES",
    "METHOD",
    "STEP",
    "Peer",
    "PeerToPeer",
    "audit_client",
    "refuse",
]
