"""Verifies a record of evidence: derives every conclusion again from the counts or sums in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bestarm.errors import InputError
from bestarm.evidence.conclude import conclude, look_once, scale_of
from bestarm.evidence.contests import Contest, contests_of
from bestarm.evidence.record import SCHEMA, Blocks, Evidence, digest
from bestarm.problem.counted import Rows
from bestarm.records.verify import Verification

OWN = ("version", "date", "digest")  # not derived


def verify(evidence: Evidence) -> Verification:
    """Check a record: its digest, and every number and conclusion, from its counts and its seed.

    Parameters
    ----------
    evidence : Evidence
        The record.

    Returns
    -------
    Verification
    """
    failures = []
    if evidence.schema != SCHEMA:
        return Verification(False, (f"schema {evidence.schema} is unknown",))
    if digest(evidence) != evidence.digest:
        failures.append("the digest does not fit: the file was changed")
    try:
        failures += _differences(evidence)
    except (InputError, ValueError, KeyError, IndexError, TypeError) as error:
        failures.append(f"the record contradicts itself: {error}")
    return Verification(not failures, tuple(failures))


def _differences(evidence: Evidence) -> list[str]:
    settings = evidence.settings
    looks = []
    for look in evidence.looks:
        contests = contests_of(look.counts.rows(), settings.question, settings.weights, scale_of(settings))
        looks.append(look_once(look.counts, contests, settings))
    rows = (
        evidence.looks[-1].counts.rows()
        if evidence.blocks is None
        else _one_each(evidence.blocks, settings.bounds)
    )
    contests = contests_of(rows, settings.question, settings.weights, scale_of(settings))
    total = rows.total if evidence.blocks is None else sum(evidence.blocks.used) + evidence.blocks.waiting
    again = conclude(
        settings, evidence.source, contests, looks, evidence.blocks, evidence.checks, (), total
    ).to_dict()
    if evidence.blocks is not None and _used(evidence.blocks, contests) != evidence.blocks.used:
        return ["the rows that were used are not those of the blocks"]
    said = evidence.to_dict()
    notes = again.pop("notes")
    failures = [
        f"{key} does not follow from the record's own counts"
        for key, value in again.items()
        if key not in OWN and not _agree(value, said[key])
    ]
    if said["notes"][len(said["notes"]) - len(notes) :] != notes:
        failures.append("notes do not follow from the record's own counts")
    return failures


def _used(blocks: Blocks, contests: Sequence[Contest]) -> list[int]:
    """How many rows of each cell the blocks hold."""
    used = dict.fromkeys(blocks.cells, 0)
    for k, contest in enumerate(contests):
        for block in blocks.sums_of(k):
            for place, number in zip(contest.place, block.count.ravel().tolist(), strict=True):
                used[place] += int(number)
    return [used[place] for place in blocks.cells]


def _one_each(blocks: Blocks, bounds: tuple[float, float] | None) -> Rows:
    """A table with one row for each cell: the layout of a look at any time."""
    site, option = np.array(blocks.cells, dtype=np.int64).T
    value = np.full(len(site), 0.0 if bounds is None else bounds[0])
    return Rows(tuple(blocks.sites), tuple(blocks.options), site, option, value, np.ones_like(site))


def _agree(a: Any, b: Any) -> bool:
    """Equal up to the last digits of real numbers."""
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_agree(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    return type(a) is type(b) and bool(a == b)
