"""How a liar alters the messages of Robust Fed-SEL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bestarm.methods.fed_sel import attacks as fed_sel_attacks
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.messages import Report
from bestarm.methods.robust_fed_sel import decisions as robust_decisions
from bestarm.methods.robust_fed_sel.client import Client
from bestarm.methods.robust_fed_sel.messages import Reply, decode_grouped, encode_grouped
from bestarm.protocol.lies import Liar, Lies


def alter(liar: Liar, payload: bytes) -> bytes | None:
    """A message of Robust Fed-SEL with the liar's answers."""
    machine: Client = liar.machine

    def precision(count: int) -> int:
        return fed_sel_attacks.precision(machine, count)

    facts = machine.wire, machine.group
    message, _ = decode_grouped(payload, *facts, 1, precision if machine.options.quantiser else None)
    if isinstance(message, Report):
        return encode_grouped(fed_sel_attacks.lie_in_report(liar, message), *facts)[0]
    if not isinstance(message, Reply):
        return None
    count = liar.count(message.count)
    bits = precision(count)
    if message.index is not None:
        index = fed_sel_attacks.lie_in_bin(liar, message.index, precision(message.count), bits)
        reply = Reply(count, index=index)
    else:
        assert message.mean is not None  # a reply has one of the two
        reply = Reply(count, mean=liar.mean(machine.arm, message.mean))
    return encode_grouped(reply, *facts, bits)[0]


def statistic(machine: Any, means: Sequence[float], byzantine: int) -> float:
    """Twice the centre of the trimmed bounds that these means give."""
    alpha = float(machine.radius.alpha(max(machine.count, 1)))
    bounds = fed_sel_decisions.interval(np.array(means), np.full(len(means), alpha))
    lower, upper = robust_decisions.trim(*bounds, np.ones(len(means), dtype=bool), byzantine)
    return float(lower + upper)


LIES = Lies(
    claims=lambda options: frozenset({"arm", "mean", "count"}),
    alter=alter,
    early=lambda machine: encode_grouped(fed_sel_attacks.first_report(machine), machine.wire, machine.group)[
        0
    ],
    least=fed_sel_attacks.least,
    reals=fed_sel_attacks.reals,
    statistic=statistic,
)
