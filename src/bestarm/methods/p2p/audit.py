"""The audit of a peer: checks of its part of a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bestarm.methods import fed_sel
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.p2p.options import PeerToPeer
from bestarm.problem.layout import Layout
from bestarm.stats.radii import radius


def audit_client(part: Mapping[str, Any], layout: Layout, options: PeerToPeer, name: str) -> Iterator[str]:
    """Check an honest peer's eliminations and its own counts."""
    j = layout.group_of[name]
    r = radius("paper", len(layout.clients), layout.arm_counts[j], options.delta)
    yield from fed_sel.audit_exits(part, r, layout.arm_counts[j], options.c)
    counts, sums = np.asarray(part["sent"]["count"]), np.asarray(part["sent"]["sum"], dtype=np.float64)
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that are impossible for its number of rewards"
    if "view" in part and len(counts):
        own = fed_sel_decisions.interval(sums / counts, r.alpha(counts))
        ends = float(own[0].max()), float(own[1].min())
        if (part["view"]["lower"][j], part["view"]["upper"][j]) != ends:
            yield "has other bounds on its own arm than its rewards give"
    pulls = sum(fed_sel.pulls_of(part, layout.arm_counts[j], options))
    if options.budget is not None and pulls > options.budget:
        yield "made more pulls than its budget allows"
