"""Recorded rewards in the order of arrival: one queue per cell.

Rows that arrived together (a batch) are put in a random order that depends on the seed only: a table may list
them sorted by their reward, or as counts of successes and failures.
"""

from __future__ import annotations

import hashlib

import numpy as np

from bestarm.evidence.contests import Floats, Ints
from bestarm.problem.counted import Rows

Queues = dict[tuple[int, int], Floats]  # (site, option) -> its rewards in order of arrival, user's unit


def queues_of(rows: Rows, seed: int, *, hold_last: bool = False) -> Queues:
    """The rewards of each cell in order of arrival.

    Parameters
    ----------
    rows : Rows
        Rewards in order.
    seed : int
        Fixes the order inside batches. Rows that are added at the end change nothing before them.
    hold_last : bool
        Leave out the last batch, which may still be incomplete.

    Returns
    -------
    dict
        By site and option.
    """
    batch = np.arange(len(rows.value)) if rows.batch is None else rows.batch
    kept = batch < batch[-1] if hold_last and rows.batch is not None and len(batch) else batch >= 0
    cell = rows.site * len(rows.options) + rows.option
    order = np.argsort(cell, kind="stable")
    order = order[kept[order] & (rows.count[order] > 0)]
    found: Queues = {}
    bounds = np.flatnonzero(np.diff(cell[order], prepend=-1, append=-1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        at = order[first:last]
        place = (int(rows.site[at[0]]), int(rows.option[at[0]]))
        values = np.repeat(rows.value[at], rows.count[at])
        if rows.batch is not None:
            values = _mixed(values, np.repeat(batch[at], rows.count[at]), seed, *place)
        found[place] = values
    return found


def _mixed(values: Floats, batch: Ints, seed: int, *place: int) -> Floats:
    """The rewards with batches in order, and in a random order inside each that the table does not affect."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(2, *place))))
    listed = values[np.lexsort((values, batch))]
    return np.asarray(listed[np.lexsort((rng.random(len(batch)), batch))])


def digest_of(queues: Queues, used: dict[tuple[int, int], int]) -> str:
    """SHA-256 over the rows of each cell that were used, in order."""
    found = hashlib.sha256()
    for place in sorted(used):
        found.update(np.array([*place, used[place]], dtype="<i8").tobytes())
        found.update(np.ascontiguousarray(queues[place][: used[place]], dtype="<f8").tobytes())
    return found.hexdigest()
