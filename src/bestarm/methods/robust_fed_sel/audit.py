"""The audit of Robust Fed-SEL: checks of the clients' part of a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bestarm.methods import fed_sel
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.robust_fed_sel.server import Server
from bestarm.protocol import decisions


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check one honest client's eliminations, its counts, and its sums against what the server decoded."""
    i = server.index[name]
    j = int(server.group[i])
    r, options, arms, told = server.radii[j], server.options, server.layout.arm_counts[j], server.told[i]
    if server.out[i]:
        yield "is proven faulty, but listed as honest"
    yield from fed_sel.audit_exits(part, r, arms, options.c)
    epoch, count, sent = part["epoch"], part["count"], part["sent"]
    counts, sums = np.asarray(sent["count"]), np.asarray(sent["sum"], dtype=np.float64)
    left = np.ones(arms, dtype=bool)
    left[part["exits"]["arm"]] = False
    if not 0 <= len(counts) - len(told) <= 1:
        yield "sent a different number of messages than the server received"
    if not len(counts):
        if part["arm"] is not None or count != 0:
            yield "claims that it sent nothing, but also that it found an arm"
        return
    least = server.least[j]
    ended = max([least if arms == 1 else 0, *part["exits"]["epoch"]])
    if told and (not fed_sel_decisions.finished(left, epoch, least=least, over=np.inf) or epoch != ended):
        yield "claims that Phase I was finished, but its eliminations do not agree"
    if counts[0] != epoch or not left[part["arm"]]:
        yield "reported an arm or a count that does not match its own part"
    periods = [
        fed_sel_decisions.period(k, options.period, options.period_growth) for k in range(1, server.round + 2)
    ]
    if not (np.diff(counts) > 0).all() or counts[-1] > epoch + sum(periods):
        yield "sent counts that do not match its rounds"
    if not 0 <= count - counts[-1] < max(periods):
        yield "made more pulls than its last round required"
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that are impossible for its number of rewards"
    if options.budget is not None and sum(fed_sel.pulls_of(part, arms, options)) > options.budget:
        yield "made more pulls than its budget allows"
    means = sums / counts
    if options.quantiser:
        bits = fed_sel_decisions.precision(r.alpha(counts))
        means[1:] = decisions.bin_centre(fed_sel_decisions.bin_index(means, bits), bits)[1:]
    if told != list(zip(counts.tolist(), means.tolist(), strict=True))[: len(told)]:
        yield "has sums that do not match what the server received"
    if told and server.vote[i] != part["arm"]:
        yield "voted for an arm that does not match its own part"
