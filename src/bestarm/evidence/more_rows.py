"""How many rows would decide recorded data if their means and spreads stayed as they are: an estimate.

The tests of one look are made as if the table had m times as many rows, each block with its share of every
cell, instead of random orders. The smallest m that settles the question is found by halving.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm.evidence.conclude import (
    Finding,
    claims_of,
    combine,
    level_of,
    scale_of,
    statuses_of,
    tests_of,
    uses_fisher,
)
from bestarm.evidence.contests import Contest, contests_of
from bestarm.evidence.notes import FEW
from bestarm.evidence.once import log_wealth, pvalues
from bestarm.evidence.record import Evidence, Settings
from bestarm.evidence.shuffles import block_sizes
from bestarm.records.figures import two_digits
from bestarm.stats.sums import Sums

MOST = 1e9  # rows; beyond that a number would say nothing
MOST_CONTESTS = 20
HALVINGS = 6


def rows_said(evidence: Evidence) -> str:
    """The estimate in a sentence; empty if there is none.

    There is none for looks at any time, for means that are alike, for options with few rows, or for many
    sites with an answer each.
    """
    if not evidence.looks or evidence.status == "identified":
        return ""
    settings = evidence.settings
    rows = evidence.looks[-1].counts.rows()
    contests = contests_of(rows, settings.question, settings.weights, scale_of(settings))
    left = {(option.site, option.name) for option in evidence.options if option.status in ("in", "open")}
    open_contests = [c for c in contests if any((c.site, name) in left for name in c.options)]
    if len(open_contests) > MOST_CONTESTS or any(_few(contest, left) for contest in open_contests):
        return ""
    times = _times(open_contests, len(contests), settings, MOST / evidence.rows)
    if times is None:
        return ""
    if times == 1.0:
        return "A few more rows may decide this if means and spreads stay as they are (an estimate)."
    needed = two_digits(int(np.ceil(times * evidence.rows)))
    many = f"{times:.1f}" if times < 10 else f"{two_digits(round(times)):,}"
    return (
        f"About {needed:,} rows in all, {many} times as many as now, would decide this if means and spreads "
        "stayed as they are (an estimate)."
    )


def _few(contest: Contest, left: set[tuple[str, str]]) -> bool:
    """Whether an option that is open has too few rows for its mean to say much."""
    rows = contest.rows.sum(axis=1)
    return any(rows[k] < FEW for k, name in enumerate(contest.options) if (contest.site, name) in left)


def _times(contests: Sequence[Contest], all_contests: int, settings: Settings, most: float) -> float | None:
    """The smallest m ≥ 1 with which every contest is settled; None if it is above `most`."""

    def settled(times: float) -> bool:
        return all(_settled(contest, all_contests, settings, times) for contest in contests)

    low = high = 1.0
    while not settled(high):
        low, high = high, 2 * high
        if low > most:
            return None
    for _ in range(HALVINGS if high > low else 0):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high


def _settled(contest: Contest, contests: int, settings: Settings, times: float) -> bool:
    """Whether one look would settle a contest whose cells have `times` as many rows."""
    level, claims = level_of(contest, settings, contests), claims_of(contest, settings)
    rows = np.ceil(times * contest.rows).astype(np.int64)
    logs = log_wealth(
        _portions(contest.sums, block_sizes(rows)[None]),
        contest.weights,
        claims,
        level / settings.looks,
        contest.grid,
    )[0, -1]
    tails = pvalues(_portions(contest.sums, rows), claims) if uses_fisher(contest, settings) else None
    finding = combine([Finding(logs, tails)], settings.looks)
    control = -1 if settings.control is None else contest.options.index(settings.control)
    statuses = statuses_of(tests_of(finding, settings, level), len(contest.options), control)
    return "open" not in statuses if control >= 0 else "best" in statuses


def _portions(sums: Sums, rows: np.ndarray) -> Sums:
    """Rows of each cell, with the cell's mean and spread."""
    share = rows / sums.count
    ends = (np.broadcast_to(end, rows.shape) for end in (sums.least, sums.most))
    return Sums(rows.astype(np.float64), share * sums.total, share * sums.squares, *ends)
