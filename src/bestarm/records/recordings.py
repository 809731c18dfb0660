"""Recorded rewards that were played in order: did they drift, or resemble their neighbours?

The tests are those of ``stats.alarms``, over all rewards of each arm of each client, played or not. If one of
them raises an alarm, the rewards are not independent draws, and nothing is promised about the run. Rewards in
a random order need no test, and pairs of one subject are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bestarm.stats.alarms import ALL, REASONS, Alarm, alarms, check
from bestarm.util.text import counted

CLAUSES = tuple(reason.split("{cell}")[-1] for reason in REASONS.values())  # by which a warning is recognised
EVERYWHERE = "all"  # the group of a warning about all arms together
REMEDY = (
    "Use rows of a period in which nothing changed, and one row per independent unit: per patient, session "
    "or day, not per minute. If the order of the rows means nothing, put them in a random order."
)


def withdrawals(problem: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Warnings about a problem with recorded rewards, as a record stores it: why nothing is promised.

    >>> ordered = {"kind": "recording", "values": [0.0] * 60 + [1.0] * 60}
    >>> group = {"name": "g", "clients": ["g"], "arms": ["a"], "rewards": [[ordered]]}
    >>> [warning["text"].partition(" (")[0] for warning in withdrawals({"finite": True, "groups": [group]})]
    ['the rewards of g/a change over time: the second half of the rows differs from the first', \
'neighbouring rows of g/a are more alike than independent rows would be']
    """
    if not problem["finite"] or problem.get("paired"):
        return []
    queues, names, groups = {}, {}, {}
    for j, group in enumerate(problem["groups"]):
        for i, (client, row) in enumerate(zip(group["clients"], group.get("rewards") or (), strict=False)):
            for a, (arm, spec) in enumerate(zip(group["arms"], row, strict=True)):
                if spec is not None and spec["kind"] == "recording" and "counts" not in spec:
                    place = (j, i * len(group["arms"]) + a)
                    whose = f" of {client}" if len(group["clients"]) > 1 else ""
                    queues[place] = np.asarray(spec["values"], dtype=np.float64)
                    names[place] = f"{group['name']}/{arm}{whose}"
                    groups[names[place]] = group["name"]
    if not queues:
        return []
    found = alarms(check(queues, names, 1.0))
    return [_warning(alarm, EVERYWHERE if alarm.cell == ALL else groups[alarm.cell]) for alarm in found]


def _warning(alarm: Alarm, group: str) -> dict[str, Any]:
    return {"group": group, "round": 0, "text": alarm.reason}


def withdrawn(warnings: Iterable[Mapping[str, Any]]) -> str:
    """The first warning that takes the promise back, and how many more there are; empty if there is none."""
    found = [w["text"] for w in warnings if is_withdrawal(w)]
    more = f" ({counted(len(found) - 1, 'more alarm')})" if found[1:] else ""
    return f"{found[0]}{more}" if found else ""


def is_withdrawal(warning: Mapping[str, Any]) -> bool:
    """Whether a warning of a record is one of ``withdrawals``."""
    return any(text in warning["text"] for text in CLAUSES)


def remedy_for(risk: str) -> str:
    """What to do about a risk that says that the promise was taken back; empty if it does not."""
    return REMEDY if is_withdrawal({"text": risk}) else ""
