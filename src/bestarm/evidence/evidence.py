"""``evidence``: what the rows of a table show about its options, each row counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.evidence.any_time import race
from bestarm.evidence.arrivals import digest_of, queues_of
from bestarm.evidence.conclude import claims_of, conclude, level_of, look_once, scale_of
from bestarm.evidence.contests import Contest, contests_of, pair_name, with_rivals
from bestarm.evidence.looks import (
    demand_look_left,
    demand_same,
    demand_same_names,
    demand_same_past,
    previous,
)
from bestarm.evidence.notes import later_rows
from bestarm.evidence.once import Watch
from bestarm.evidence.record import Blocks, Counts, Evidence, Look, Settings
from bestarm.evidence.settings import check_given, goal_of, settings_of, table_name
from bestarm.problem.counted import Rows
from bestarm.problem.tables import Columns, read_rows
from bestarm.problem.tables.cells import PERCENT
from bestarm.problem.tables.copies import copies_said
from bestarm.problem.tables.grid import grid_step, too_many
from bestarm.problem.tables.profile import looks_like_average
from bestarm.problem.tables.propose import only_reading, propose
from bestarm.problem.tables.ratings import ratings_of
from bestarm.problem.tables.sources import open_table
from bestarm.stats.alarms import Check, check
from bestarm.util.dates import today


def evidence(
    source: object = None,
    *,
    option: str | None = None,
    site: str | None = None,
    reward: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    count: str | None = None,
    ratings: Sequence[str] = (),
    time: str | None = None,
    question: str | None = None,
    goal: str | None = None,
    bounds: tuple[float, float] | None = None,
    unit: str = "",
    delta: float = 0.05,
    alpha: float = 0.05,
    weights: str | Mapping[str, float] = "equal",
    control: str | None = None,
    margin: float = 0.0,
    simultaneous: bool = False,
    look: str = "once",
    looks: int = 1,
    order: str | None = None,
    record: str | Path | None = None,
    seed: int = 0,
    where: Mapping[str, object] | None = None,
    missing: str = "error",
    sql: str | None = None,
    database: str | None = None,
    reading: Callable[[int], None] | None = None,
    watch: Watch | None = None,
) -> Evidence:
    """What recorded data show about options: all rows, each counted once.

    The verdict is wrong with probability at most `delta` if the rows of each option at each site are
    independent draws from a distribution that does not change, and how many there are was not decided by
    looking at rewards. Where rows have an order, that is checked, and the promise is withdrawn if it fails.

    Parameters
    ----------
    source : path or frame
        The table: see ``bestarm.problem.tables.read_rows``. None with `sql`.
    option, site : str
        The columns that name what is compared and where it was tried; `site` = "" says that there is one
        site. Columns that are not given are proposed from their names and contents, and it is an error if
        more than one reading is plausible. With `option` and the numbers given, only a column with a name
        such as "region" or "hospital" is taken for the site.
    reward, successes, trials, count : str, optional
        The columns of numbers: `reward`, or `reward` with the `count` of rows that it stands for, or
        `successes` of `trials`.
    ratings : sequence of str
        Instead of these, columns that count one rating each, such as "1 star" to "5 stars". Their names give
        the ratings, and the lowest and the highest of them are the bounds.
    time : str, optional
        The column that says when a row was recorded.
    question : {"anywhere", "overall", "each", "control"}, optional
        Which option of which site is best; which is best on average over the sites; which is best at each
        site; or which options are better or worse than `control`. By default ``overall`` if all sites offer
        the same options, and otherwise ``anywhere``.
    goal : {"max", "min"}, optional
        Whether more is better, or less. By default more, unless the column of the rewards has a name such as
        "latency" or "deaths": then it must be given.
    bounds : tuple of two float, optional
        The range that every reward must lie in, known without the data. Without it, rewards are 0 or 1.
    unit : str
        What rewards are measured in, such as "ms"; it is shown beside means.
    delta : float
        The probability of a wrong verdict that you accept.
    alpha : float
        The probability that any of the intervals misses, in addition to `delta`.
    weights : {"equal", "rows"} or mapping
        How much each site counts, for ``overall`` and ``control``.
    control : str, optional
        The option that others are compared with.
    margin : float
        For ``control``: a lead up to this, in the unit of the rewards, does not matter.
    simultaneous : bool
        For ``each``: all sites are right together with probability at least 1 − delta, not each of them.
    look : {"once", "any-time"}
        Test all rows once, in any order; or by arrival, and again whenever rows were added.
    looks : int
        For ``once``: how many looks at growing data will be made, at times that do not depend on results.
    order : {"file", "none"}, optional
        Whether the order of the rows is the order of arrival. By default it is, for single rows of a CSV
        file or a frame. Rows with an order are checked for drift and dependence.
    record : path, optional
        A record of earlier looks, which this look is checked against. It is not written: see ``save``.
    seed : int
        Fixes the random orders of rows.
    where, missing, sql, database
        See ``bestarm.problem.tables.read_rows``.
    reading : callable, optional
        Called with the number of rows that were read so far.
    watch : callable, optional
        Called with the number of random orders that are done, and of how many.

    Returns
    -------
    Evidence

    Raises
    ------
    InputError
        If the table can't be read, or a look is not allowed.

    Examples
    --------
    >>> found = evidence("examples/deliveries.csv", option="courier", site="city", reward="minutes late",
    ...                  bounds=(0, 60), goal="min", question="anywhere")
    >>> found.status, found.rows
    ('undecided', 200)

    References
    ----------
    The page "Evidence" of the documentation has the proofs.
    """
    named = {
        "option": option,
        "site": site,
        "reward": reward,
        "successes": successes,
        "trials": trials,
        "count": count,
        "time": time,
    }
    columns, guessed = _columns(source, named, tuple(ratings), sql, database)
    if columns.ratings and bounds is None:
        levels = ratings_of(columns.ratings).values()
        bounds = (min(levels), max(levels))
    chosen = _order(source, columns, order, look, sql, database)
    given = {
        "question": question,
        "goal": goal_of(goal, columns),
        "bounds": bounds,
        "unit": unit,
        "delta": delta,
        "alpha": alpha,
        "weights": weights,
        "control": control,
        "margin": margin,
        "simultaneous": simultaneous,
        "look": look,
        "looks": looks,
        "order": chosen,
        "seed": seed,
        "columns": columns.plain,
    }
    check_given(given)
    if look == "any-time" and weights == "rows" and record is None:
        raise InputError(
            "weights by rows are frozen at the first look, which needs a record",
            fix="Add --record FILE, or give the weights",
        )
    rows = read_rows(
        source,
        columns,
        ordered=chosen is not None,
        sql=sql,
        database=database,
        where=where,
        missing=missing,
        bounds=None if columns.trials else bounds,
        progress=reading,
    )
    _demand_single_rewards(columns, rows)
    rows = replace(
        rows,
        notes=(*guessed, *_copies(source, columns, sql, database), *rows.notes),
        sites=rows.sites if columns.site else ("",),
    )
    path = None if record is None else Path(record)
    before = previous(path)
    name = table_name(source, sql)
    if (question or (before.settings.question if before else "")) == "each":
        rows = with_rivals(rows)
    settings = settings_of(name, rows, before.settings if before else None, given)
    if before is not None and path is not None:
        demand_same(before, settings, path)
    table = Recorded(name, rows, _on_grid(rows.counted(), settings), settings)
    return table.at_any_time(before, path) if look == "any-time" else table.once(before, path, watch)


@dataclass(frozen=True)
class Recorded:
    """A table that was read: its name, its rows (in order, if they have one) and counts, and the settings."""

    name: str
    rows: Rows
    counts: Rows
    settings: Settings

    @cached_property
    def contests(self) -> tuple[Contest, ...]:
        """The contests of the question."""
        settings = self.settings
        return contests_of(self.counts, settings.question, settings.weights, scale_of(settings))

    @cached_property
    def checks(self) -> list[Check]:
        """The tests for drift and dependence, where rows have an order."""
        if self.settings.order is None:
            return []
        rows, scale = self.rows, scale_of(self.settings)
        queues = queues_of(rows, self.settings.seed)
        names = {place: pair_name(rows, *place) for place in queues}
        return check(queues, names, scale.high - scale.low)

    def once(self, before: Evidence | None, path: Path | None, watch: Watch | None) -> Evidence:
        """All rows in one look, added to the looks of a record if there is one."""
        counts, made = Counts.of(self.counts), list(before.looks) if before else []
        if before is not None and path is not None:
            first = made[0].counts
            demand_same_names(first.sites, first.options, counts, path)
            if made[-1].counts == counts:
                return before  # the same look again
            demand_look_left(before, counts, path)
        made.append(look_once(counts, self.contests, self.settings, watch))
        return self._conclude(made, None, ())

    def at_any_time(self, before: Evidence | None, path: Path | None) -> Evidence:
        """The rows by arrival, as far as blocks are complete."""
        blocks = self._blocks(before.blocks if before else None, path)
        found = self._conclude([], blocks, ())
        contrary = later_rows(self.contests, found)
        return self._conclude([], blocks, contrary) if contrary else found

    def _conclude(self, looks: list[Look], blocks: Blocks | None, notes: Iterable[str]) -> Evidence:
        said = (*self.counts.notes, *notes)
        total = self.rows.total
        found = conclude(self.settings, self.name, self.contests, looks, blocks, self.checks, said, total)
        return msgspec.structs.replace(found, date=today()).sealed()

    def _blocks(self, before: Blocks | None, path: Path | None) -> Blocks:
        rows, settings = self.rows, self.settings
        queues = queues_of(rows, settings.seed, hold_last=True)
        if before is not None and path is not None:
            demand_same_names(before.sites, before.options, Counts.of(self.counts), path)
            demand_same_past(before, queues, path)
        zero, one = scale_of(settings).ends
        used: dict[tuple[int, int], int] = {}
        sums = []
        for contest in self.contests:
            cells = [(queues.get(place, np.zeros(0)) - zero) / (one - zero) for place in contest.place]
            wide = len(contest.sites)
            lanes = [cells[a : a + wide] for a in range(0, len(cells), wide)]
            level = level_of(contest, settings, len(self.contests))
            closed = race(lanes, contest.weights, claims_of(contest, settings), level).blocks
            sums.append([[part.tolist() for part in block.parts] for block in closed])
            taken = sum((block.count for block in closed), np.zeros(contest.shape))
            used |= dict(zip(contest.place, taken.astype(int).ravel().tolist(), strict=True))
        places = sorted(used)
        return Blocks(
            sites=list(rows.sites),
            options=list(rows.options),
            cells=places,
            used=[used[place] for place in places],
            digest=digest_of({place: queues.get(place, np.zeros(0)) for place in places}, used),
            waiting=rows.total - sum(used.values()),
            sums=sums,
        )


def _columns(
    source: object,
    named: Mapping[str, str | None],
    ratings: tuple[str, ...],
    sql: str | None,
    database: str | None,
) -> tuple[Columns, tuple[str, ...]]:
    """Which column is what, and a note on what was not given but found."""
    given = {key: name for key, name in named.items() if name is not None and (name, key) != ("", "site")}
    said = named["reward"] or named["successes"] or named["trials"] or ratings
    if said and "option" in given and named["site"] is not None:
        return Columns(**given, ratings=ratings), ()
    found = propose(source, sql=sql, database=database, given=named, ratings=ratings)
    if said and "option" in given:  # then only a column that is called a site may be one
        found = [reading for reading in found if reading.columns.site is None or reading.site_named]
        if not found or found[0].columns.site is None:
            return Columns(**given, ratings=ratings), ()
    reading = only_reading(found, table_name(source, sql))
    hint = "" if reading.columns.site is None or named["site"] else "; --site none leaves sites out"
    return reading.columns, (f"the table was read with {reading}{hint}",)


def _copies(source: object, columns: Columns, sql: str | None, database: str | None) -> tuple[str, ...]:
    """A note on rows that repeat another one exactly, in tables of single rewards that have an order."""
    if columns.count or columns.trials or columns.ratings:
        return ()
    table = open_table(source, sql=sql, database=database)
    note = "" if table.unordered else copies_said(table)
    return (note,) if note else ()


def _demand_single_rewards(columns: Columns, rows: Rows) -> None:
    """InputError where averages or shares stand beside how many tries they are of."""
    coins = bool(((rows.value == 0.0) | (rows.value == 1.0)).all())
    if columns.count is None or columns.reward is None or coins:
        return
    if looks_like_average(columns.reward, PERCENT if rows.percent else ""):
        raise InputError(
            f'column "{columns.reward}" looks like averages or shares of "{columns.count}" tries each. '
            "Nothing can be promised about them: how much single tries differ is not in the table",
            expected="the result of each try, or of how many tries it was how often",
            fix=f"If it holds shares, give --successes and --trials; to count each row as one reward, leave "
            f'out --count; if each try gave exactly that number, give the column "{columns.reward}" another '
            "name",
        )


def _on_grid(rows: Rows, settings: Settings) -> Rows:
    """Very many distinct values rounded down to the grid that readers of large tables use."""
    if rows.width or settings.bounds is None or not too_many(rows.value):
        return rows
    step = grid_step(*settings.bounds)
    return replace(rows, value=np.floor(rows.value / step) * step, width=step).counted()


def _order(
    source: object, columns: Columns, order: str | None, look: str, sql: str | None, database: str | None
) -> str | None:
    """What puts rows in order: the column of the time, "file", or None."""
    if order not in (None, "file", "none"):
        raise InputError(f'order = "{order}" is unknown', expected='"file" or "none"')
    if columns.time is not None:
        return None if order == "none" else columns.time
    single = columns.count is None and columns.trials is None and not columns.ratings
    if look == "any-time" and (not single or order == "none"):
        raise InputError(
            "looks at any time need the order of arrival",
            expected="the column of the time" if not single else 'the column of the time, or order = "file"',
            fix="Name it with --time COLUMN",
        )
    if order == "none" or not single:
        return None
    if order is None and look == "once" and open_table(source, sql=sql, database=database).unordered:
        return None
    return "file"
