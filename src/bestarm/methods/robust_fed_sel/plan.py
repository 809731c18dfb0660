"""What Robust Fed-SEL states for plans."""

from __future__ import annotations

from bestarm.methods.fed_sel.plan import schedules
from bestarm.problem.layout import Layout
from bestarm.protocol.planning import PlanFacts, Scaling

SCALING = (
    Scaling(
        "robust-fed-sel",
        "byzantine",
        "ln(|C|/δ), |C| = the clients of all groups",
        "without liars a client makes about as many pulls as with fed-sel, however many clients there are",
        "measured",
    ),
)


def left_out(layout: Layout) -> str:
    """With one client per group there are no votes and nothing to trim."""
    return "with one client per group it is fed-sel" if len(layout.clients) == len(layout.groups) else ""


FACTS = PlanFacts(periodic=True, schedules=schedules, left_out=left_out, scaling=SCALING)
