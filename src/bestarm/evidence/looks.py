"""Repeated looks: what a record allows to be added to it, and why not.

Looks *once*: with N looks declared at the first, at times that do not depend on results, the evidence against
a claim is Σ E_l/N over the looks l made so far. Its mean is at most 1 if the claim is true, however the looks
overlap, and it only grows with l, so by Markov's inequality it ever reaches 1/level with probability at most
`level`. Without such a declaration a second look is refused. Looks at *any time* may be repeated as rows are
added: the rows that were already counted must be the same.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from bestarm.errors import InputError
from bestarm.evidence.arrivals import Queues, digest_of
from bestarm.evidence.record import Blocks, Counts, Evidence, Settings
from bestarm.util.text import counted

FRESH = "To ask another question of the same data, decide before the first look, and keep one record"


def previous(path: Path | None) -> Evidence | None:
    """The record of earlier looks, if there is one."""
    return Evidence.load(path) if path is not None and path.exists() else None


def demand_same(before: Evidence, now: Settings, path: Path) -> None:
    """InputError if a setting was changed after the first look."""
    for key in msgspec.structs.fields(Settings):
        old, new = getattr(before.settings, key.name), getattr(now, key.name)
        if old != new:
            nothing = "none" if key.name == "order" else "not given"
            old, new = (nothing if value is None else _shown(value) for value in (old, new))
            raise InputError(
                f"{key.name} was {old} at the first look, and is {new} now",
                where=str(path),
                expected="the same settings at every look: they were fixed before the data were read",
                fix=FRESH,
            )


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def demand_same_names(sites: list[str], options: list[str], now: Counts, path: Path) -> None:
    """InputError if there are other sites or options than at the first look."""
    for kind, old, new in (("site", sites, now.sites), ("option", options, now.options)):
        changed = sorted(set(old) ^ set(new))
        if changed:
            what = "is new" if changed[0] in new else "is missing"
            raise InputError(
                f'{kind} "{changed[0]}" {what}',
                where=str(path),
                expected=f"the {kind}s of the first look",
                fix="Leave its rows out, or start a new record with fresh rows",
            )


def demand_look_left(before: Evidence, now: Counts, path: Path) -> None:
    """InputError if all looks that were declared have been made."""
    made, declared = len(before.looks), before.settings.looks
    if made >= declared:
        last = before.looks[-1].counts
        rows = counted(last.total, "row")
        used = f"{counted(made, 'look')} of {declared} declared made, the last at {rows}"
        again = now.width != last.width or now.contains(last)
        raise InputError(
            f"the data contain rows that were already used: {used}"
            if again
            else f"all looks of this record are used up: {used}, not all of which are in these data",
            where=str(path),
            expected="each row to be tested once: a second test of the same rows is a second chance to err",
            fix="Declare --looks N at the first look, or use --look any-time, which may be repeated"
            + ("" if again else ". Rows none of which were looked at before need a record of their own"),
        )


def demand_same_past(before: Blocks, queues: Queues, path: Path) -> None:
    """InputError if rows that were already counted have changed."""
    used = dict(zip(before.cells, before.used, strict=True))
    for place, number in used.items():
        have = len(queues.get(place, ()))
        if have < number:
            name = f"{before.options[place[1]]} at {before.sites[place[0]]}".removesuffix(" at ")
            raise InputError(
                f"{name} has {counted(have, 'row')}, and {number:,} were already counted",
                where=str(path),
                expected="every row that was counted at an earlier look, in the same order",
            )
    if digest_of(queues, used) != before.digest:
        raise InputError(
            "rows that were already counted have changed, or others have come before them",
            where=str(path),
            expected="new rows after those of earlier looks, by the order of arrival",
            fix="Restore the table, or start a new record with rows that were never looked at",
        )
