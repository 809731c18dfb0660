"""What the peer-to-peer method states for plans."""

from __future__ import annotations

from bestarm.methods.p2p.options import PeerToPeer
from bestarm.protocol.planning import PlanFacts


def no_limit(options: PeerToPeer) -> str:
    """Why the information limit does not apply: means give no guarantee that covers every problem."""
    if options.exchange == "means":
        return 'exchange = "means" is correct only if groups differ enough from each other'
    return ""


FACTS = PlanFacts(no_limit=no_limit)
