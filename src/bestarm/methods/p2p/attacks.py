"""How a liar alters the messages between peers."""

from __future__ import annotations

from typing import Any

from bestarm.methods.p2p.messages import Claim, Conclusion, decode_claim
from bestarm.methods.p2p.peer import Peer
from bestarm.methods.robust_fed_sel.attacks import statistic
from bestarm.protocol.lies import Liar, Lies

PULLS = 1000  # stands in for the honest count behind an interval, which is not sent


def claims(options: Any) -> frozenset[str]:
    """The claims in messages: means have no counts, and only intervals come with a final verdict."""
    if options.exchange == "means":
        return frozenset({"arm", "mean"})
    return frozenset({"arm", "mean", "count", "interval", "verdict"})


def alter(liar: Liar, payload: bytes) -> bytes:
    """A claim or a verdict with the liar's answers.

    Intervals are sent without counts. A count that is too small becomes an interval whose bounds are swapped,
    and a count that is too large becomes an interval of almost no width.
    """
    machine: Peer = liar.machine
    facts = machine.layout.arm_counts, machine.options.exchange
    message = decode_claim(payload, *facts)
    liar.subject = message.group
    if isinstance(message, Conclusion):
        return Conclusion(*liar.verdict(message.group, message.arm)).encode(*facts)[0]
    arm = liar.arm(message.arm)
    if machine.options.exchange == "means":
        return Claim(message.group, arm, mean=liar.mean(arm, message.mean)).encode(*facts)[0]
    low, high = _bounds(liar, message, arm)
    return Claim(message.group, arm, lower=low, upper=high).encode(*facts)[0]


def _bounds(liar: Liar, claim: Claim, arm: int) -> tuple[float, float]:
    """The bounds that the liar claims, clipped to the range that a message allows."""
    centre, half = (claim.lower + claim.upper) / 2.0, (claim.upper - claim.lower) / 2.0
    seen = min(max(centre, 0.0), 1.0)
    said, count = liar.mean(arm, seen), liar.count(PULLS)
    low, high = claim.lower, claim.upper
    if (said, count, arm) != (seen, PULLS, claim.arm):
        half = -half if count < PULLS else 1e-9 if count > PULLS else half
        low, high = said - half, said + half
    low, high = liar.interval(low, high)
    return min(max(low, -1.0), 2.0), min(max(high, -1.0), 2.0)


def early(machine: Peer) -> bytes:
    """A claim, sent before any pull, that the first arm of its own group always pays."""
    claim = Claim(machine.group, 0, mean=1.0, lower=0.99, upper=1.0)
    return claim.encode(machine.layout.arm_counts, machine.options.exchange)[0]


def forge(machine: Peer, best: tuple[int, int]) -> list[bytes]:
    """Claims about every group, and a verdict, all against the best arm."""
    counts, exchange = machine.layout.arm_counts, machine.options.exchange
    said = []
    for j, arms in enumerate(counts):
        arm = (best[1] + 1) % arms if j == best[0] else 0
        high = float(j != best[0])
        claim = Claim(j, arm, mean=high, lower=0.98 * high, upper=0.98 * high + 0.02)
        said.append(claim.encode(counts, exchange)[0])
    if exchange == "intervals":
        said.append(Conclusion((best[0] + 1) % len(counts), 0).encode(counts, exchange)[0])
    return said


def tell(machine: Peer, place: int, payload: bytes) -> bytes:
    """A different claim, or a different verdict, for each neighbour."""
    counts, exchange = machine.layout.arm_counts, machine.options.exchange
    message = decode_claim(payload, counts, exchange)
    if isinstance(message, Conclusion):
        return Conclusion(place % len(counts), 0).encode(counts, exchange)[0]
    value = (place % 5) / 4.0
    claim = Claim(message.group, place % counts[message.group], mean=value, lower=value, upper=value)
    return claim.encode(counts, exchange)[0]


LIES = Lies(
    claims=claims,
    alter=alter,
    early=early,
    forge=forge,
    tell=tell,
    reals=lambda machine: True,
    statistic=statistic,
)
