"""Notes about a table that do not affect the promise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm.evidence.contests import Contest
from bestarm.evidence.record import Evidence, Option, Settings
from bestarm.evidence.shuffles import BLOCKS
from bestarm.stats import betting
from bestarm.stats.sums import Sums
from bestarm.util.text import counted

FEW = 30
MOST_NAMED = 5


def notes_of(
    contests: Sequence[Contest],
    sums: Sequence[Sums],
    options: Sequence[Option],
    settings: Settings,
    exact: bool,
) -> list[str]:
    """Options with few rows, a winner with one row, too few blocks, sites that disagree: a sentence each."""
    found = []
    few = [option for option in options if option.rows < FEW]
    if few and settings.look == "once":
        names = ", ".join(f"{_name(option)} ({option.rows})" for option in few[:MOST_NAMED])
        more = f" and {len(few) - MOST_NAMED} more" if len(few) > MOST_NAMED else ""
        found.append(f"options with fewer than {FEW} rows: {names}{more}")
    found += [
        f"the winner {_name(one)} has one row" for one in options if one.status == "best" and one.rows == 1
    ]
    for contest, cells in zip(contests, sums, strict=True):
        least = int(cells.count.min())
        if settings.look == "once" and least < BLOCKS and not exact:
            found.append(
                f"an option has only {counted(least, 'row')}{' at a site' * (not contest.single)}: bets are "
                f"made in {counted(least, 'block')} instead of {BLOCKS}, and the e-values of all options are "
                "weak. Leave such options out, for a reason other than their rewards"
            )
        found += _disagreements(contest, cells, settings)
    return found


def later_rows(contests: Sequence[Contest], evidence: Evidence) -> list[str]:
    """For looks at any time: winners that do not lead over all rows of the table."""
    found = []
    for contest in contests:
        best = evidence.best.get(contest.site)
        sums = contest.sums
        worth = (contest.weights * sums.total / sums.count).sum(axis=-1)
        leader = contest.options[int(worth.argmax())]
        if best is not None and leader != best:
            found.append(
                f"{best} was found best before the last rows came; over all rows {leader} has the better "
                "mean, which is a reason to look for drift"
            )
    return found


def _name(option: Option) -> str:
    return f"{option.name} at {option.site}" if option.site else option.name


def _disagreements(contest: Contest, sums: Sums, settings: Settings) -> list[str]:
    """Sites where another option is clearly better than the one that leads on average."""
    if contest.single or (sums.count == 0).any():
        return []
    mean = (contest.weights * sums.total / sums.count).sum(axis=-1)
    leader = int(mean.argmax())
    alpha = settings.delta / sums.count.size
    low, high = betting.intervals(*sums.parts, alpha)
    sites = [contest.sites[s] for s in np.flatnonzero(low.max(axis=0) > high[leader])]
    if not sites:
        return []
    named = ", ".join(sites[:MOST_NAMED]) + (
        f" and {len(sites) - MOST_NAMED} more" * (len(sites) > MOST_NAMED)
    )
    return [f"sites disagree: {contest.options[leader]} leads on average, and is not the best at {named}"]
