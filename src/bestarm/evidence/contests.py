"""Options that compete, as cells of recorded rewards on [0, 1]: what a question asks of a table.

A cell is an option at a site. ``anywhere`` makes every pair of site and option an option of its own, with one
cell; ``overall`` gives each option one cell per site; ``each`` is one contest per site; ``control`` compares
every option with one of them. Names are in the order of a table's reader, which sorts them, so that the order
of the rows changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.problem.counted import Rows
from bestarm.problem.scale import Scale
from bestarm.stats.sums import Sums
from bestarm.util.text import counted, listed, nearest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
QUESTIONS = ("anywhere", "overall", "each", "control")
MOST_NAMED = 5  # sites in a note
MOST_ROWS = 10**9 - 1  # of a cell: the limit of NumPy's hypergeometric draws


@dataclass(frozen=True)
class Contest:
    """Options with the same cells, of which one is to be found the best, or each is compared with a control.

    `values` and `counts` hold the distinct rewards of each cell and how often they occurred, by option and
    then by site; `place` says which site and option of the table a cell is. A reward lies between its value
    and its value + `grid`.
    """

    site: str  # of the question "each", else empty
    options: tuple[str, ...]
    sites: tuple[str, ...]
    weights: Floats
    place: tuple[tuple[int, int], ...]
    values: tuple[Floats, ...]
    counts: tuple[Ints, ...]
    grid: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """How many options and sites there are."""
        return len(self.options), len(self.sites)

    @property
    def rows(self) -> Ints:
        """The number of rewards of each cell, by option and site."""
        return np.array([count.sum() for count in self.counts], dtype=np.int64).reshape(self.shape)

    @cached_property
    def sums(self) -> Sums:
        """The sums of each cell, by option and site; on a grid, those of the lower ends."""
        cells = [(c, v @ c, v**2 @ c, v[0], v[-1]) for v, c in zip(self.values, self.counts, strict=True)]
        parts = np.array([(c.sum(), *rest) for c, *rest in cells], dtype=np.float64).T
        return Sums(*(part.reshape(self.shape) for part in parts))

    @property
    def single(self) -> bool:
        """Whether every option has one cell."""
        return len(self.sites) == 1


def shared(rows: Rows) -> bool:
    """Whether every site offers every option."""
    pairs = set(zip(rows.site.tolist(), rows.option.tolist(), strict=True))
    return len(pairs) == len(rows.sites) * len(rows.options)


def default_question(rows: Rows) -> str:
    """``overall`` if all sites offer the same options, else ``anywhere``."""
    return "overall" if shared(rows) else "anywhere"


def with_rivals(rows: Rows) -> Rows:
    """The rows of sites that have two options or more, with a note on the others; all rows if none has.

    >>> site, option, one = np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1, 1, 1])
    >>> rows = Rows(("s", "t"), ("a", "b"), site, option, one / 1.0, one)
    >>> found = with_rivals(rows)
    >>> found.sites, found.notes
    (('s',), ('left out, as it has only one option: t',))
    """
    used = rows.count > 0
    pairs = np.unique(np.column_stack([rows.site[used], rows.option[used]]), axis=0)
    options = np.bincount(pairs[:, 0], minlength=len(rows.sites))
    if not (options > 1).any() or (options > 1).all():
        return rows
    left = [rows.sites[s] for s in np.flatnonzero(options < 2)]
    names = listed(left[:MOST_NAMED]) if len(left) <= MOST_NAMED else ", ".join(left[:MOST_NAMED])
    more = f" and {len(left) - MOST_NAMED:,} more" if len(left) > MOST_NAMED else ""
    verb = "it has" if len(left) == 1 else "they have"
    keep, place = (options > 1)[rows.site], np.cumsum(options > 1) - 1
    return replace(
        rows,
        sites=tuple(name for name, n in zip(rows.sites, options, strict=True) if n > 1),
        site=place[rows.site[keep]],
        option=rows.option[keep],
        value=rows.value[keep],
        count=rows.count[keep],
        batch=None if rows.batch is None else rows.batch[keep],
        notes=(*rows.notes, f"left out, as {verb} only one option: {names}{more}"),
    )


def contests_of(rows: Rows, question: str, weights: Mapping[str, float], scale: Scale) -> tuple[Contest, ...]:
    """The contests of a question.

    Parameters
    ----------
    rows : Rows
        Recorded rewards, counted.
    question : str
        One of QUESTIONS.
    weights : mapping
        The weight of each site, for ``overall`` and ``control``; they sum to 1.
    scale : Scale
        The range of the rewards, and which end is better.

    Returns
    -------
    tuple of Contest
    """
    step = rows.width / (scale.high - scale.low)
    cells = _cells(rows, scale, step)
    if question == "each":
        return tuple(_at_site(rows, cells, site, step) for site in range(len(rows.sites)))
    if question == "overall" or (question == "control" and shared(rows)):
        _demand_all(rows, cells, question)
        places = [(s, a) for a in range(len(rows.options)) for s in range(len(rows.sites))]
        share = np.array([weights[name] for name in rows.sites])
        return (_contest("", rows.options, rows.sites, share, places, cells, step),)
    pairs = sorted(cells)
    names = tuple(pair_name(rows, s, a) for s, a in pairs)
    return (_contest("", names, ("",), np.ones(1), pairs, cells, step),)


Cells = dict[tuple[int, int], tuple[Floats, Ints]]  # (site, option) -> values and counts


def pair_name(rows: Rows, site: int, option: int) -> str:
    """The full name of an option at a site; without sites, that of the option."""
    return f"{rows.sites[site]}/{rows.options[option]}" if rows.sites[site] else rows.options[option]


def _cells(rows: Rows, scale: Scale, step: float) -> Cells:
    """The values on [0, 1] and the counts of each cell."""
    zero, one = scale.ends
    unit = (rows.value - zero) / (one - zero)
    if one < zero:  # what was rounded down is now rounded up
        unit = unit - step
    found: Cells = {}
    cell = rows.site * len(rows.options) + rows.option
    bounds = np.flatnonzero(np.diff(cell, prepend=-1, append=-1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        order = slice(first, last) if one > zero else slice(last - 1, first - 1 if first else None, -1)
        keep = rows.count[order] > 0
        if keep.any():
            place = (int(rows.site[first]), int(rows.option[first]))
            found[place] = np.clip(unit[order][keep], 0.0, 1.0), rows.count[order][keep]
            if found[place][1].sum() > MOST_ROWS:
                raise InputError(
                    f"{pair_name(rows, *place)} has more than {MOST_ROWS:,} rows",
                    fix="Count a random part of them",
                )
    return found


def _at_site(rows: Rows, cells: Cells, site: int, step: float) -> Contest:
    """The contest of the options that one site offers."""
    here = [place for place in sorted(cells) if place[0] == site]
    names = tuple(rows.options[a] for _, a in here)
    return _contest(rows.sites[site], names, (rows.sites[site],), np.ones(1), here, cells, step)


def _contest(
    site: str,
    options: tuple[str, ...],
    sites: tuple[str, ...],
    weights: Floats,
    places: list[tuple[int, int]],
    cells: Cells,
    step: float,
) -> Contest:
    if len(options) < 2:
        where = f'site "{site}"' if site else ""
        raise InputError(
            f"there is only {counted(len(options), 'option')}", where=where, expected="two or more"
        )
    values, counts = zip(*(cells[place] for place in places), strict=True)
    return Contest(site, options, sites, weights, tuple(places), values, counts, step)


def _demand_all(rows: Rows, cells: Cells, question: str) -> None:
    """InputError unless every option has a row at every site."""
    missing = [
        (s, a) for s in range(len(rows.sites)) for a in range(len(rows.options)) if (s, a) not in cells
    ]
    if missing:
        site, option = missing[0]
        more = f" ({len(missing) - 1:,} more pairs are missing, too)" if len(missing) > 1 else ""
        raise InputError(
            f'option "{rows.options[option]}" has no row at site "{rows.sites[site]}"{more}',
            expected=f"every option at every site for the question {question}",
            fix="Leave the site or the option out, or ask --question anywhere or each",
        )


def weights_of(rows: Rows, weights: str | Mapping[str, float]) -> dict[str, float]:
    """The weight of each site: equal, by the number of rows, or given by name; they sum to 1.

    Parameters
    ----------
    rows : Rows
        Recorded rewards.
    weights : str or mapping
        "equal", "rows", or a number for each site.

    Returns
    -------
    dict

    Raises
    ------
    InputError
        If a site has no weight, or a weight is not above 0.
    """
    if isinstance(weights, str):
        if weights not in ("equal", "rows"):
            raise InputError(
                f'weights = "{weights}" is unknown', expected='"equal", "rows", or a number for each site'
            )
        counts = np.array([1.0] * len(rows.sites))
        if weights == "rows":
            counts = np.zeros(len(rows.sites))
            np.add.at(counts, rows.site, rows.count)
        return dict(zip(rows.sites, (counts / counts.sum()).tolist(), strict=True))
    for name in weights:
        if rows.sites == ("",):
            raise InputError("there are no sites to weight", fix="Name their column: --site COLUMN")
        if name not in rows.sites:
            raise InputError(f'there is no site "{name}" to weight', fix=nearest(name, rows.sites))
    for name in rows.sites:
        if not weights.get(name, 0.0) > 0 or not np.isfinite(weights[name]):
            raise InputError(
                f'site "{name}" has no weight above 0',
                expected="a number above 0 for each site",
                fix="Leave out the rows of a site that should not count",
            )
    total = sum(weights[name] for name in rows.sites)
    return {name: weights[name] / total for name in rows.sites}
