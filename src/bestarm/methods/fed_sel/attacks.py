"""How a liar alters the messages of Fed-SEL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.client import Client
from bestarm.methods.fed_sel.messages import Refinement, Report, decode_refinement, decode_report
from bestarm.protocol import decisions
from bestarm.protocol.lies import Liar, Lies


def lie_in_report(liar: Liar, report: Report) -> Report:
    """A report with the liar's arm, count and mean."""
    arm, count = liar.arm(report.arm), liar.count(report.count)
    return Report(arm, count, liar.mean(arm, report.mean), report.remaining)


def lie_in_bin(liar: Liar, index: int, bits: int, new_bits: int) -> int:
    """The bin (of 2^new_bits) of the mean that the liar claims instead of the centre of the honest bin."""
    said = liar.mean(liar.machine.arm, float(decisions.bin_centre(index, bits)))
    return int(fed_sel_decisions.bin_index(min(max(said, 0.0), 1.0), new_bits))


def precision(machine: Client, count: int) -> int:
    """The number of bits of a bin after this many pulls."""
    return int(fed_sel_decisions.precision(machine.radius.alpha(count)))


def alter(liar: Liar, payload: bytes) -> bytes | None:
    """A message of Fed-SEL with the liar's answers; only round 0 has an arm and a count."""
    machine: Client = liar.machine
    wire, group = machine.wire, machine.group
    if liar.turn == 0:
        report, _ = decode_report(payload, wire, group, 1)
        return lie_in_report(liar, report).encode(wire, group)[0] if isinstance(report, Report) else None
    bits = precision(machine, machine.count)
    message, _ = decode_refinement(payload, wire, group, machine.count, bits, machine.options.quantiser)
    if message.index is not None:
        message = Refinement(index=lie_in_bin(liar, message.index, bits, bits))
    elif message.mean is not None:
        message = Refinement(mean=liar.mean(machine.arm, message.mean))
    else:
        return None
    return message.encode(wire, group, machine.count, bits)[0]


def first_report(machine: Client) -> Report:
    """A report, sent before any pull, that the server accepts: the first arm always pays."""
    return Report(0, machine.phase1.least, 1.0)


def least(machine: Client) -> int:
    """The fewest pulls after which Phase I can end."""
    return machine.phase1.least


def reals(machine: Client) -> bool:
    """Rewards other than 0/1 are reported as a floating-point mean."""
    return not machine.layout.groups[machine.group].binary


def statistic(machine: Any, means: Sequence[float], byzantine: int) -> float:
    """Twice the centre of the tightest bounds that these means give."""
    alpha = float(machine.radius.alpha(max(machine.count, 1)))
    lower, upper = fed_sel_decisions.interval(np.array(means), np.full(len(means), alpha))
    return float(lower.max() + upper.min())


LIES = Lies(
    claims=lambda options: frozenset({"arm", "mean", "count"}),
    alter=alter,
    early=lambda machine: first_report(machine).encode(machine.wire, machine.group)[0],
    least=least,
    reals=reals,
    statistic=statistic,
)
