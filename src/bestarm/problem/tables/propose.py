"""Proposes what the columns of a table are, from their names and contents.

Dates, row numbers and columns in which nearly every row differs are never taken for sites or options. Where
several readings are about as plausible, all of them are returned, and it is for the user to choose.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.csv_file import demand_columns
from bestarm.problem.tables.batches import Table
from bestarm.problem.tables.columns import Columns
from bestarm.problem.tables.profile import (
    DATES,
    EMPTY,
    NUMBER,
    TEXT,
    Profile,
    looks_like_average,
    profiles,
    words_of,
)
from bestarm.problem.tables.ratings import looks_like_rating, rating_in
from bestarm.problem.tables.sources import open_table

# Words of column names, without a plural s.
WORDS = {
    "option": "option variant arm treatment version banner campaign model courier drug carrier airline "
    "package headline product method sensor relay choice condition offer price plan layout design place "
    "restaurant driver seller team player algorithm",
    "site": "site region country hospital city store shop market location clinic center centre school "
    "airport story plant branch state platform warehouse town village district county zone continent field "
    "lab office",
    "successes": "click clicked success conversion converted purchase win won good recovered cured event "
    "response hit sold bought accepted ontime opened passed healed solved",
    "trials": "impression shown view trial visit visitor flight patient total attempt sent exposure session "
    "user all tested tries try delivered offered treated asked",
    "count": "count n hour frequency freq weight times number quantity occurrence",
    "reward": "reward revenue rating score value sale outcome result correct latency rtt minute late profit "
    "income amount spend gain yield accuracy loss error delay duration click clicked converted success price "
    "cost survived good purchased bought paid",
    "less": "latency rtt ping late lateness delay delayed duration loss error cost wait downtime failure "
    "failed defect complaint churn bounce mortality died death dead expense refund fault incident accident "
    "crash outage breakdown waste cancellation cancelled unsubscribe dropout infection relapse readmission "
    "complication injury leak emission bounced ms millisecond load loading churned refunded",
}  # fmt: skip
NAMED = {role: frozenset(words.split()) for role, words in WORDS.items()}
NAMED["dull"] = frozenset(["year", "month", "day", "week", "age", "zip", "code", "id", "lat", "lon"])
NAMED["dull"] |= {"timestamp", "date", "epoch"}
COUNTS = frozenset(["count", "n", "freq", "frequency"])  # that can't be much else
CLOSE = 2  # readings whose scores differ by no more than this are about as plausible
MOST_SHOWN = 6  # readings in an error
OR = {  # what else a user may do who is asked for a column
    "reward": ", or give --successes and --trials if columns count results",
    "count": ", or name all other columns and no count: each row is then one reward",
}


@dataclass(frozen=True)
class Reading:
    """One way to read a table: which column is what, and the reasons for it.

    `score` says how plausible it is; only differences matter.
    """

    columns: Columns
    reasons: tuple[str, ...] = ()
    score: float = 0.0

    @property
    def site_named(self) -> bool:
        """Whether the name of the site's column says that it names sites."""
        return bool(words_of(self.columns.site or "") & NAMED["site"])

    def __str__(self) -> str:
        """The columns as keys, such as ``site = "city", option = "courier", reward = "minutes late"``."""
        return self.as_keys()

    def as_keys(self, **words: str) -> str:
        """The same with other words for some keys, such as ``site="group"``."""
        keys = ("site", "option", "reward", "count", "successes", "trials", "ratings", "time")
        found = ((words.get(key, key), getattr(self.columns, key)) for key in keys)
        return ", ".join(f"{key} = {_quoted(name)}" for key, name in found if name)


def propose(
    source: object,
    *,
    sql: str | None = None,
    database: str | None = None,
    given: Mapping[str, str | None] | None = None,
    ratings: Sequence[str] = (),
) -> list[Reading]:
    """Every plausible reading of a table, best first.

    Parameters
    ----------
    source, sql, database
        The table; see ``read_rows``.
    given : mapping, optional
        What the user said already: columns by the names of ``Columns``.
    ratings : sequence of str
        Columns that count ratings, if the user said so.

    Returns
    -------
    list of Reading
        Readings that are about as plausible as the best one. One reading: nothing needs to be guessed.

    Raises
    ------
    InputError
        If no column looks like the option, or none like the rewards.

    Examples
    --------
    >>> for reading in propose("examples/deliveries.csv"):
    ...     print(reading)
    site = "city", option = "courier", reward = "minutes late"
    """
    table = open_table(source, sql=sql, database=database)
    found, _ = profiles(table)
    return readings(table, found, given or {}, ratings)


def readings(
    table: Table, found: Sequence[Profile], given: Mapping[str, str | None], ratings: Sequence[str] = ()
) -> list[Reading]:
    """The plausible readings of a table whose columns are profiled."""
    said = {key: name for key, name in given.items() if name is not None and (name or key == "site")}
    demand_columns(table.header, [*filter(None, said.values()), *ratings], table.name)
    by_name = {profile.name: profile for profile in found}
    made = [
        _reading(names, rewards, said, by_name)
        for names in _names(found, said)
        for rewards in ([{"ratings": tuple(ratings)}] if ratings else _rewards(found, said))
        if not {n for n in names if n} & _used(rewards)
    ]
    if not made:
        _refuse(table, found, said)
    made.sort(key=lambda reading: -reading.score)
    return [reading for reading in made if reading.score >= made[0].score - CLOSE]


def less_is_better(column: str) -> bool:
    """Whether the name of a column sounds as if less of it were better.

    >>> less_is_better("rtt_ms"), less_is_better("deaths"), less_is_better("revenue")
    (True, True, False)
    """
    return bool(words_of(column) & NAMED["less"])


def only_reading(found: Sequence[Reading], where: str) -> Reading:
    """The only reading; InputError that lists them if there are several."""
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"({k}) {reading}" for k, reading in enumerate(found[:MOST_SHOWN], start=1))
    more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    raise InputError(
        f"this table can be read in {len(found)} ways: {listed}{more}",
        where=where,
        fix=f"Name the column of the {_in_doubt(found)}",
    )


def _in_doubt(found: Sequence[Reading]) -> str:
    """The first role on which readings differ, with a flag that names its column."""
    given = [reading.columns.plain for reading in found]
    for role in ("option", "site", "reward", "successes", "trials", "count", "ratings"):
        names = list(dict.fromkeys(columns.get(role) for columns in given))
        if len(names) > 1:
            name = next(name for name in names if name is not None)
            if role == "ratings":
                return role
            return f"{role}, such as --{role} {shlex.quote(name)}{OR.get(role, '')}"
    return "rewards"


_Rewards = Mapping[str, str | tuple[str, ...]]  # columns by role; several for ratings


def _used(rewards: _Rewards) -> set[str]:
    """All columns that give the rewards."""
    return {name for names in rewards.values() for name in ([names] if isinstance(names, str) else names)}


def _quoted(names: str | Sequence[str]) -> str:
    return f'"{names}"' if isinstance(names, str) else "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _names(found: Sequence[Profile], given: Mapping[str, str]) -> Iterator[tuple[str | None, str]]:
    """Pairs of a site, which may be None, and an option."""
    taken = {name for key, name in given.items() if key not in ("site", "option")}
    free = [profile.name for profile in found if profile.name not in taken]
    able = [p.name for p in found if p.name in free and _may_name(p)]
    sites = [given["site"] or None] if "site" in given else [None, *able]
    options = [given["option"]] if "option" in given else able
    for site, option in itertools.product(sites, options):
        if site != option:
            yield site, option


def _may_name(profile: Profile) -> bool:
    """Whether a column may name sites or options."""
    if profile.holds in (DATES, EMPTY) or profile.counts_rows or profile.nearly_unique:
        return False
    if profile.holds == TEXT:
        return True
    named = bool(profile.words & (NAMED["option"] | NAMED["site"]))
    return named and (profile.holds != NUMBER or profile.whole)


def _rewards(found: Sequence[Profile], given: Mapping[str, str]) -> Iterator[_Rewards]:
    """Ways in which columns may give the rewards, by role."""
    said = {key: name for key, name in given.items() if key in ("reward", "count", "successes", "trials")}
    taken = {name for key, name in given.items() if key not in said}
    able = [p for p in found if p.name not in taken and _may_count(p)]
    by_name = {p.name: p for p in found}
    rated = [p for p in found if p.name not in taken and looks_like_rating(p.name)]
    wide = [p.name for p in rated if p.whole]  # all of them or none: a part would give another answer
    if len({rating_in(name) for name in wide}) == len(rated) >= 3 and not said:
        yield {"ratings": tuple(sorted(wide, key=lambda name: rating_in(name) or 0.0))}
        if all(any(c.isalpha() or c in "★☆⭐" for c in name) for name in wide):
            able = [p for p in able if p.name not in wide]  # nothing else has such names
    if not {"reward", "count"} & said.keys():
        counts = [p for p in able if p.whole and p.name not in wide]
        goods = [by_name[said["successes"]]] if "successes" in said else counts
        alls = [by_name[said["trials"]]] if "trials" in said else counts
        for good, trials in itertools.product(goods, alls):
            if good is not trials and (len(said) == 2 or _add_up(good, trials)):
                yield {"successes": good.name, "trials": trials.name}
    if not {"successes", "trials"} & said.keys():
        rewards = [said["reward"]] if "reward" in said else [p.name for p in able]
        times = [p.name for p in able if p.whole and p.words & NAMED["count"]]
        for reward in rewards:
            if "count" not in said:
                yield {"reward": reward}
            for count in [said["count"]] if "count" in said else times:
                if count != reward:
                    yield {"reward": reward, "count": count}


def _may_count(profile: Profile) -> bool:
    return profile.holds not in (DATES, EMPTY, TEXT) and not profile.counts_rows


def _add_up(good: Profile, trials: Profile) -> bool:
    """Whether two columns may be successes of trials: zeros and ones are single results.

    If both have such names, some rows may have too many successes: reading them names the first one.
    """
    both = ~np.isnan(good.values) & ~np.isnan(trials.values)
    fits = good.values[both] <= trials.values[both]
    if float(np.nanmax(trials.values)) <= 1 or trials.words & NAMED["dull"]:
        return False
    if trials.words & NAMED["trials"]:
        return bool(fits.mean() > 0.5 if good.words & NAMED["successes"] else fits.all())
    several = bool(good.words & NAMED["successes"]) and float(np.nanmax(good.values)) > 1
    return several and bool(fits.all()) and "time" not in trials.words


def _reading(
    names: tuple[str | None, str],
    rewards: _Rewards,
    given: Mapping[str, str],
    found: Mapping[str, Profile],
) -> Reading:
    """A reading with its score: up to 7 for a name that says what it is, up to 2 for contents that fit."""
    reasons, score = [], 0.0
    for role, name in {"site": names[0], "option": names[1], **rewards}.items():
        if name is None:
            score += 1.0
            continue
        if not isinstance(name, str):
            score += 1.5 if all(n.strip().isdecimal() for n in name) else 4.0  # "3" may be anything
            reasons.append(f"{role} = {_quoted(name)}: their names are ratings, and they hold whole numbers")
            continue
        profile = found[name]
        words = profile.words & NAMED[role]
        if given.get(role) == name:
            score += 6.0
            reasons.append(f'{role} = "{name}": as you said')
            continue
        whole = profile.name.strip().lower() in NAMED[role]
        score += 4.0 * bool(words) + 3.0 * whole + _fits(role, profile)
        why = f'"{min(words)}" in its name, and ' if words else ""
        reasons.append(f'{role} = "{name}": {why}it holds {profile}')
    if "trials" in rewards:  # two columns instead of one, both of which must fit
        score -= 1.0
    elif "count" in rewards:
        score -= 1.0 if found[str(rewards["count"])].words & COUNTS else 5.0
        name = str(rewards["reward"])
        if given.get("count") is None and looks_like_average(name, found[name].unit):
            score -= 7.0  # as plausible as the average by itself
    columns = Columns(names[1], names[0], **rewards, time=given.get("time"))  # type: ignore[arg-type]
    return Reading(columns, tuple(reasons), score)


def _fits(role: str, profile: Profile) -> float:
    """How well the contents of a column fit a role."""
    if role in ("site", "option"):
        return 2.0 if profile.holds == TEXT else 0.0
    if role == "reward":
        dull = bool(profile.words & (NAMED["dull"] | NAMED["count"] | NAMED["trials"]))
        constant, gappy = profile.distinct < 2, profile.missing > profile.rows / 2
        return (2.0 if profile.holds != NUMBER else 1.0) - 4.0 * dull - 3.0 * constant - 4.0 * gappy
    return 1.0


def _refuse(table: Table, found: Sequence[Profile], given: Mapping[str, str]) -> None:
    """Raise InputError that says which role no column fits, or that the table has no rows."""
    if not any(profile.rows for profile in found):
        raise InputError("the table has no rows", where=table.name, fix="Name a table that has some")
    role = "option" if not any(True for _ in _names(found, given)) else "rewards"
    flag = "option" if role == "option" else "reward (or successes and trials, or ratings)"
    held = "; ".join(f"{p.name}: {p}" for p in found[:MOST_SHOWN])
    if role == "option" and sum(p.holds == NUMBER for p in found) > 1:
        held += ". If each option has a column of its own, put names into one column and results into another"
    raise InputError(
        f"no column looks like the {role}",
        where=table.name,
        fix=f"Name the column of the {flag}. There are {held}",
    )
