"""Recorded rewards as every reader of tables returns them: counts of values by cell, or rows in order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    """Recorded rewards by site and option, one entry per row or per distinct value.

    The arrays run in parallel. `value` is in the user's unit; `count` says how often it occurred.
    ``counted`` sorts them and merges equal values, so that the order of the rows is lost.

    Parameters
    ----------
    sites, options : tuple of str
        The names.
    site, option : ndarray of int
        For each entry, the position of its site and of its option.
    value : ndarray of float
        The reward.
    count : ndarray of int
        How many rewards the entry stands for.
    width : float
        0 where values are exact. Otherwise they were rounded down to a grid of this step, and each reward is
        in [value, value + width).
    notes : tuple of str
        What a reader should know about the table, such as names that differ only by case.
    batch : ndarray of int or None
        For entries in order: what arrived together, such as rows with the same time, has the same number, and
        numbers never decrease. The order inside a batch means nothing. None: every entry arrived by itself.
    percent : bool
        Whether the table has percentages, which are read as shares: 12% as 0.12.
    """

    sites: tuple[str, ...]
    options: tuple[str, ...]
    site: NDArray[np.int64]
    option: NDArray[np.int64]
    value: NDArray[np.float64]
    count: NDArray[np.int64]
    width: float = 0.0
    notes: tuple[str, ...] = ()
    batch: NDArray[np.int64] | None = None
    percent: bool = False

    @property
    def total(self) -> int:
        """How many rewards there are."""
        return int(self.count.sum())

    def counted(self) -> Rows:
        """The same rewards, sorted by site, option and value, with equal values merged.

        >>> one = np.array([0, 0, 0])
        >>> rows = Rows(("s",), ("a",), one, one, np.array([2.0, 1.0, 2.0]), np.array([1, 1, 3]))
        >>> rows.counted().value.tolist(), rows.counted().count.tolist()
        ([1.0, 2.0], [1, 4])
        """
        from bestarm.problem.tables.entries import Entries, merged  # imports this module

        found = merged(Entries(np.array([self.site, self.option]), self.value, self.count))
        site, option = found.codes
        return replace(self, site=site, option=option, value=found.value, count=found.count, batch=None)
