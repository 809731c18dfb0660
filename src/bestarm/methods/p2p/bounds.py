"""What one honest peer knows about the means of all arms: bounds that hold on the good event, liars or not.

They decide which groups are beaten, so they have no error probability of their own: with probability at least
1 − δ the answer is right and all of them hold (docs/networks-proofs.md, "Intervals, without the premise").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.p2p.options import PeerToPeer
from bestarm.problem.layout import Layout
from bestarm.stats.radii import radius

Ends = tuple[float, float]


def bounds_of(part: Mapping[str, Any], layout: Layout, options: PeerToPeer, name: str) -> list[list[Ends]]:
    """Bounds on the mean of each arm of each group, from a peer's part of the certificate; empty if none.

    An arm-set's best arm has the peer's own bounds. The others are worse, so its upper bound is theirs as
    well. Of its own arm-set the peer also knows the means at which it dropped them.
    """
    view = part.get("view")
    if view is None or None in view["lower"] or None in view["upper"]:
        return []
    found = []
    for arms, best, low, high in zip(
        layout.arm_counts, view["arm"], view["lower"], view["upper"], strict=True
    ):
        low, high = max(low, 0.0), min(high, 1.0)
        found.append([(low if arm == best else 0.0, high) for arm in range(arms)])
    own, exits = layout.group_of[name], part["exits"]
    r = radius("paper", len(layout.clients), layout.arm_counts[own], options.delta)
    for arm, epoch, total in zip(exits["arm"], exits["epoch"], exits["sum"], strict=True):
        low, high = (float(end) for end in fed_sel_decisions.interval(total / epoch, r.alpha(epoch)))
        found[own][arm] = max(low, 0.0), min(high, found[own][arm][1])
    return found
