"""The audit of an experiment: a second, plain pass over its journal, which counts every reward once."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.engine import Engine, State


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal of an experiment contains.

    Attributes
    ----------
    assigned, told : int
        Assignments, and rewards.
    counted, filled : int
        Rewards that the verdict rests on, and those among them that did not come in time.
    failures : tuple of str
        What does not fit together; empty if all is well.
    """

    assigned: int
    told: int
    counted: int
    filled: int
    failures: tuple[str, ...]


def audit(path: str | Path) -> Audit:
    """Check that every reward is in the journal once, and that what counts is what was told.

    The machines see batches. This pass takes, for every option of a site, its assignments of the plan in
    their order, as many as its machine has counted, and adds up their rewards anew.

    Parameters
    ----------
    path : str or Path
        The journal of an experiment.

    Returns
    -------
    Audit
    """
    failures, told = list[str](), dict[int, float]()
    assigned = 0
    with ledger.open_journal(path, write=False) as journal:
        engine = Engine(ledger.settings_of(journal))
        for entry in ledger.entries(journal):
            ledger.apply(engine, entry)
            if isinstance(entry, ledger.Ask):
                assigned += entry.times
            elif isinstance(entry, ledger.Tell):
                for number, reward in entry.rewards:
                    if number in told:
                        failures.append(f"the reward of assignment {number} is in the journal twice")
                    if number >= assigned:
                        failures.append(f"assignment {number} has a reward before it was made")
                    told[number] = reward
    if assigned != len(engine.time):
        failures.append(f"{assigned} assignments are in the journal, and {len(engine.time)} were made")
    counted, filled = _recount(engine, told, failures)
    return Audit(assigned=assigned, told=len(told), counted=counted, filled=filled, failures=tuple(failures))


def _recount(engine: Engine, told: dict[int, float], failures: list[str]) -> tuple[int, int]:
    """Add up what counts; the numbers of rewards, and of those that were filled in."""
    scale, missing = engine.problem.scale, engine.settings.missing
    used: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], float] = {}
    filled = 0
    for number, state in enumerate(engine.state):
        cell = (engine.site[number], engine.arm[number])
        if state in (State.UNPLANNED, State.AFTER) or used.get(cell, 0) >= engine.lanes[cell[0]].counts.get(
            cell[1], 0
        ):
            continue
        used[cell] = used.get(cell, 0) + 1
        reward = missing if state == State.FILLED else told.get(number)
        filled += state == State.FILLED
        if reward is None:
            failures.append(f"assignment {number} counts without a reward")
        else:
            sums[cell] = sums.get(cell, 0.0) + scale.inner(reward)
    for i, lane in enumerate(engine.lanes):
        for arm, total in lane.totals.items():
            if used.get((i, arm), 0) != lane.counts[arm] or not math.isclose(
                sums.get((i, arm), 0.0), total, rel_tol=1e-9, abs_tol=1e-9
            ):
                group = engine.problem.layout.groups[i]
                failures.append(f"{group.name}/{group.arms[arm]} counts other rewards than were told")
    return sum(used.values()), filled
