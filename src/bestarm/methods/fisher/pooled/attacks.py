"""How a liar alters the messages of pooled Fed-Fisher."""

from __future__ import annotations

from bestarm.methods.fisher.pooled.client import Client
from bestarm.methods.fisher.pooled.messages import Sums, decode_sums, encode_sums
from bestarm.protocol.lies import Liar, Lies


def alter(liar: Liar, payload: bytes) -> bytes | None:
    """Sums with the liar's answers.

    A vote for another arm swaps its sum with that of the leading arm. Messages contain no counts, so a lie
    about the count is a report for a look that has not begun.
    """
    machine: Client = liar.machine
    first, reported = machine.looks.quiet, machine.reported

    def asked(look: int) -> tuple[int, int]:
        return len(reported[first + look]), machine.looks.size(first + look)

    message, _ = decode_sums(payload, machine.wire, asked, max(reported, default=first) - first)
    if not isinstance(message, Sums):
        return None
    arms, (_, n) = reported[first + message.look], asked(message.look)
    said = dict(zip(arms, message.sums, strict=True))
    top = max(arms, key=lambda arm: said[arm])
    other = liar.arm(top)
    if other in said:
        said[top], said[other] = said[other], said[top]
    said = {arm: round(liar.mean(arm, total / n) * n) for arm, total in said.items()}
    late = int(liar.count(n) != n)
    totals = tuple(min(max(said[arm], 0), n) for arm in arms)
    return encode_sums(Sums(message.look + late, totals), machine.wire, n)[0]


def observed(machine: Client, arm: int) -> float | None:
    """The empirical mean that a client has of an arm."""
    return float(machine.sums[arm]) / machine.count if machine.count else None


def early(machine: Client) -> bytes:
    """A report for the first look, sent before any pull: every arm always pays."""
    n = machine.looks.size(machine.looks.quiet)
    return encode_sums(Sums(0, (n,) * len(machine.arms)), machine.wire, n)[0]


LIES = Lies(
    claims=lambda options: frozenset({"arm", "mean", "count"}),
    alter=alter,
    observed=observed,
    early=early,
)
