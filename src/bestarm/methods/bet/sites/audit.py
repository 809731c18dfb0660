"""The audit of Fed-Bet for questions about several sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.methods.bet.audit import repeat
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.client import Client
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import BETTER, WITHIN, WORSE, ControlRace, Race, races_of
from bestarm.methods.bet.sites.server import Server
from bestarm.problem.layout import Layout
from bestarm.problem.truth import relation
from bestarm.protocol.decisions import Floats, Mask

CLAIMED = {"better": BETTER, "worse": WORSE, "within": WITHIN, None: -1}


def true_values(course: Course, means: Sequence[Sequence[float]], race: Race) -> Floats:
    """The true value of each option in a race, from the means by group and arm."""
    cells = np.zeros((course.clients, course.number))
    for i, place in enumerate(course.cells.place):
        cells[i, list(place)] = means[int(course.cells.site[i])]
    return np.asarray((race.weights * cells)[race.clients].sum(axis=0))


def may_leave(race: Race, values: Floats) -> Mask:
    """The options that may leave a race for the best without an error: all but the best one."""
    offered = race.inside[0]
    top = offered & (values == values[offered].max())
    return np.asarray(~top) if top.sum() == 1 else np.ones_like(top)


def right_claims(race: ControlRace, values: Floats) -> list[int]:
    """The right claim about each option; −1 where no claim is right."""
    return [CLAIMED[relation(float(gap), race.margin)] for gap in values - values[race.control]]


def good_event(
    layout: Layout, options: Bet, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether no best option ever left, and no claim about a control is false.

    None if a client was dropped, or if ties leave nothing that could go wrong.
    """
    server = certificate["server"]
    if any(row[0] == "drop" for row in server["events"]):
        return None
    course = Course(layout, options)
    honest = np.array(["attack" not in certificate["local"].get(name, {}) for name in layout.clients])
    races = races_of(course.cells, course.question, options, honest, 1)
    tied, good = True, True
    for r, race in enumerate(races):
        values, gone = true_values(course, means, race), [e for e in server["exits"] if e["race"] == r]
        if isinstance(race, ControlRace):
            right, tied = right_claims(race, values), False
            good &= all(e["claim"] == right[e["option"]] for e in gone)
        else:
            allowed = may_leave(race, values)
            tied &= bool(allowed.all())
            good &= all(allowed[e["option"]] for e in gone)
    return None if tied else good


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Repeat a client with its rewards and the server's broadcasts, and compare all that it says."""
    return repeat(Client(server.layout, name, server.options), part, server)
