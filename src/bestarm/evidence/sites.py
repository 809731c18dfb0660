"""The mean of each option at each site, for questions that average over sites."""

from __future__ import annotations

import numpy as np

from bestarm.evidence.conclude import scale_of
from bestarm.evidence.contests import Floats
from bestarm.evidence.describe import ranked
from bestarm.evidence.record import Evidence
from bestarm.records.questions import OptionRow, OptionTable

AT_EACH_SITE = "At each site, without an interval or promise"


def means_by_site(evidence: Evidence) -> OptionTable | None:
    """Options by site, the best one over all sites first; None where there is nothing to average over.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = means_by_site(ba.evidence("examples/hospitals.csv"))
    >>> found.sites[0], found.rows[0].name, round(found.rows[0].means[0], 3), found.rows[0].pulls
    ('east', 'B', 0.736, 1400)
    """
    settings = evidence.settings
    if len(settings.weights) < 2:
        return None
    sites, names, count, total = _sums(evidence)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    sign = -1.0 if settings.goal == "min" else 1.0
    places = {name: a for a, name in enumerate(names)}
    rows = [(option.name, places[option.name]) for option in ranked(evidence)]
    none = (None,) * len(sites)
    return OptionTable(
        sites=tuple(sites),
        weights=tuple(settings.weights.values()),
        weighted=False,
        rows=tuple(
            OptionRow(
                name=name,
                value=None,
                means=tuple(None if np.isnan(x) else float(x) for x in mean[a]),
                pulls=int(count[a].sum()),
                result="",
                at=tuple(int(n) for n in count[a]),
                left=none,
            )
            for name, a in rows
        ),
        bests=tuple(_best(names, sign * column) for column in mean.T),
    )


def _sums(evidence: Evidence) -> tuple[list[str], list[str], Floats, Floats]:
    """The sites, the options, and the number and the sum of the rewards of each option at each site."""
    if evidence.blocks is None:
        counts = evidence.looks[-1].counts
        shape = len(counts.options), len(counts.sites)
        count, total = np.zeros(shape), np.zeros(shape)
        place = np.array(counts.option), np.array(counts.site)
        np.add.at(count, place, counts.count)
        np.add.at(total, place, np.array(counts.value) * counts.count)
        return counts.sites, counts.options, count, total
    blocks = evidence.blocks
    shape = len(blocks.options), len(blocks.sites)
    count, total = np.zeros(shape), np.zeros(shape)
    for block in blocks.sums_of(0):
        count, total = count + block.count, total + block.total
    zero, one = scale_of(evidence.settings).ends
    return blocks.sites, blocks.options, count, zero * count + (one - zero) * total


def _best(names: list[str], means: Floats) -> str | None:
    return None if np.isnan(means).all() else names[int(np.nanargmax(means))]
