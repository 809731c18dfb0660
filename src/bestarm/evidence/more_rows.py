"""How many rows would decide recorded data if their means and variances stayed as they are: an estimate.

A lead of Δ is shown at the level δ about when Δ² = 2·ln(1/δ)·V, where V is the variance of the estimated lead
(the bound of a tuned stake; Fisher's exact test needs fewer rows). V falls in proportion to the rows.
"""

from __future__ import annotations

import numpy as np

from bestarm.evidence.conclude import level_of, scale_of
from bestarm.evidence.contests import Contest, contests_of
from bestarm.evidence.record import Evidence
from bestarm.records.figures import two_digits

MOST = 1e9  # rows; beyond that a number would say nothing


def rows_said(evidence: Evidence) -> str:
    """The estimate in a sentence; empty if there is none: looks at any time, or means that are alike."""
    if not evidence.looks or evidence.status == "identified":
        return ""
    settings = evidence.settings
    rows = evidence.looks[-1].counts.rows()
    contests = contests_of(rows, settings.question, settings.weights, scale_of(settings))
    open_sites = {option.site for option in evidence.options if option.status in ("in", "open")}
    times = [
        _times(contest, level_of(contest, settings, len(contests)) / settings.looks, evidence)
        for contest in contests
        if contest.site in open_sites
    ]
    most = max(times, default=np.inf)
    if most <= 1.0 or most * evidence.rows > MOST:
        return ""
    needed = two_digits(int(np.ceil(most * evidence.rows)))
    return (
        f"About {needed:,} rows in all would decide this if the means "
        f"stay as they are (an estimate: {most:.2g} times as many of each option as now)."
    )


def _times(contest: Contest, level: float, evidence: Evidence) -> float:
    """How many times the rows of a contest are needed for all leads that are open."""
    sums, settings = contest.sums, evidence.settings
    mean = sums.total / sums.count
    spread = np.maximum(sums.squares / sums.count - mean**2, 0.0) / sums.count
    value, noise = mean @ contest.weights, spread @ contest.weights**2
    status = {option.name: option.status for option in evidence.options if option.site == contest.site}
    first, margin, left = int(np.argmax(value)), 0.0, "in"
    if settings.control is not None:
        low, high = settings.bounds or (0.0, 1.0)
        first, margin, left = contest.options.index(settings.control), settings.margin / (high - low), "open"
    rivals = [k for k, name in enumerate(contest.options) if status.get(name) == left and k != first]
    lead = np.abs(np.abs(value[first] - value[rivals]) - margin)
    with np.errstate(divide="ignore"):
        return float(np.max(2 * np.log(1 / level) * (noise[first] + noise[rivals]) / lead**2, initial=0.0))
