"""Fed-Bet: the best arm by betting.

Every arm carries the wealth of a gambler who bets against the statement "this arm is the best". In blocks,
the champion makes c pulls for each pull of a rival, and the rivals' wealths are multiplied by factors whose
mean is at most 1 if they are at least as good as the champion. An arm leaves when its wealth reaches 1/δ.
Nothing is assumed about the distribution of rewards. The proofs are in docs/bet-proofs.md.
"""

from __future__ import annotations

import dataclasses

from bestarm.methods.bet import groups, robust, sites
from bestarm.methods.bet.audit import audit_client, good_event, pulls_of
from bestarm.methods.bet.blocks import refuse
from bestarm.methods.bet.client import Client
from bestarm.methods.bet.crowd import crowd_for
from bestarm.methods.bet.kernel import kernel_for
from bestarm.methods.bet.options import PREFERENCES, Bet
from bestarm.methods.bet.plan import FACTS
from bestarm.methods.bet.server import Server
from bestarm.methods.bet.trace import Trace
from bestarm.protocol.registry import Method


def interval_promise(options: Bet) -> str:
    """What is promised about the interval of the winner's mean."""
    return (
        "The answer is wrong, or any interval of the report misses, with probability at most "
        f"{options.delta + options.alpha:g}, if means do not change."
    )


METHOD = Method(
    name="bet",
    title="Fed-Bet",
    summary="Fed-Bet (bets against every arm, in blocks of pulls)",
    proof="proved: docs, Fed-Bet: proofs, Theorem 1",
    options=Bet,
    client=Client,
    server=Server,
    refuse=refuse,
    questions=("anywhere", *sites.QUESTIONS),
    pulls_of=pulls_of,
    good_event=good_event,
    audit_client=audit_client,
    claims_intervals=lambda options: False,
    interval_promise=interval_promise,
    curse=0.07,
    liars=True,
    phases=("first pulls", "blocks"),
    kernel=kernel_for,
    crowd=crowd_for,
    plan=FACTS,
    trace=Trace,
)
_GROUPED = dataclasses.replace(
    METHOD,
    client=groups.Client,
    server=groups.Server,
    good_event=groups.good_event,
    audit_client=groups.audit_client,
    epsilon=False,
    pools=True,
    kernel=groups.kernel_for,
    crowd=lambda layout, options: None,
    trace=groups.Trace,
)
_ROBUST = dataclasses.replace(
    _GROUPED,
    client=robust.Client,
    server=robust.Server,
    audit_client=robust.audit_client,
    kernel=robust.kernel_for,
    lies=robust.LIES,
)
_ASKED = dataclasses.replace(
    _GROUPED,
    client=sites.Client,
    server=sites.Server,
    good_event=sites.good_event,
    audit_client=sites.audit_client,
    kernel=sites.kernel_for,
    lies=sites.LIES,
    trace=sites.Trace,
)
_AHEAD = dataclasses.replace(_ASKED, trace=sites.ArmTrace)  # "anywhere" with several open blocks
METHOD = dataclasses.replace(
    METHOD,
    grouped=_GROUPED,
    robust=_ROBUST,
    asked=_ASKED,
    ahead=_AHEAD,
    goes_ahead=lambda options: options.open_blocks > 1,
)

__all__ = ["METHOD", "PREFERENCES", "Bet", "Client", "Server"]
