"""Writes a scenario for a table, with a proposal for its columns."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.scale import Scale
from bestarm.problem.tables.batches import Table
from bestarm.problem.tables.fold import Fold, Request
from bestarm.problem.tables.profile import Profile, profiles
from bestarm.problem.tables.propose import Reading, less_is_better, readings
from bestarm.problem.tables.ratings import ratings_of
from bestarm.problem.tables.read import read_table
from bestarm.problem.tables.sources import open_table
from bestarm.util.text import counted, shorten, visible

HEAD = """\
# A scenario for {file}, written by bestarm. Read the lines marked CHECK: they are guesses.
# Check it with:  bestarm check {target}
# Run it with:    bestarm run {target}
#
# The table has {rows}. Its columns:
{columns}
# Its first rows:
{sample}
{ways}
{question}delta = 0.05            # the answer may be wrong with at most this probability
goal = {goal}            # {check}"max": the highest mean is best; "min": the lowest
{unit}            # what rewards are measured in, for reports

[data]
{key} = {path}
"""

# The keys of [data], the roles of columns that they stand for, and what they mean.
KEYS = {
    "group": ("site", "this column names the site, such as a city or a shop"),
    "arm": ("option", "this column names what is compared, such as a courier or a banner"),
    "reward": ("reward", "this column contains the numbers whose mean is compared"),
    "count": ("count", "how many rows of the same reward a row stands for"),
    "successes": ("successes", "how many of the trials were a success"),
    "trials": ("trials", "how many trials there were"),
    "ratings": ("ratings", "these columns count one rating each; the number in a name is the rating"),
}
ROWS = """\
rows = "once"
#   CHECK: "once": each row is played once, in order, and the verdict is about where the rows came from;
#   "resample": a simulation that draws from these rows again and again, and is about this table alone.
"""
QUESTION = """\
question = "overall"    # CHECK: which option is best on average over the sites? All have the same options.
#                         "each": the best at each site; "anywhere": the best option of any site
"""
MOST_COLUMNS = 8  # of the sample


@dataclass(frozen=True)
class Proposal:
    """What the columns of a table may be: `readings`, best first, with its columns and first rows."""

    table: Table
    profiles: Sequence[Profile]
    sample: Sequence[Sequence[str]]
    readings: Sequence[Reading]


Keys = Mapping[str, str | tuple[str, ...]]  # columns by keys of [data]; several for ratings


def propose_for(path: Path, given: Mapping[str, str], ratings: Sequence[str] = ()) -> Proposal:
    """Propose the columns of a table; `given` are those that the user named, by keys of [data]."""
    table = open_table(path)
    found, sample = profiles(table)
    roles = {KEYS[key][0]: name for key, name in given.items() if name}
    return Proposal(table, found, sample, readings(table, found, roles, ratings))


def keys_of(reading: Reading) -> Keys:
    """A reading as keys of [data]."""
    found = {key: getattr(reading.columns, role) for key, (role, _) in KEYS.items()}
    return {key: name for key, name in found.items() if name}


def as_toml(keys: Keys) -> str:
    """Keys of [data] in one line."""
    return ", ".join(f"{key} = {_value(name)}" for key, name in keys.items())


def scenario_for(proposal: Proposal, path: Path, target: Path, goal: str = "", unit: str = "") -> str:
    """The text of a scenario for a table, to be written to `target`.

    Where readings differ, a key says ``CHECK`` and lists the columns; so does the goal, where a column is
    named as if less were better. Such a scenario is refused until the user has chosen.
    """
    if goal not in ("", "max", "min"):
        raise InputError(f"goal = {shorten(goal)}", expected="max or min")
    Scale(unit=unit)  # raises if it is invalid
    table, best = proposal.table, keys_of(proposal.readings[0])
    fold = _read(table, best)
    try:
        relative = os.path.relpath(path, target.parent)
    except ValueError:  # on another drive
        relative = str(path.resolve())
    text = HEAD.format(
        file=visible(path.name), target=visible(str(target)), rows=counted(fold.rows, "row"),
        columns="\n".join(f"#   {visible(p.name)}: {p}" for p in proposal.profiles),
        sample="\n".join(f"#   {line}" for line in sample_lines(proposal)),
        ways="".join(f"# {line}\n" for line in ways(proposal.readings)),
        goal=_quoted(goal or ("CHECK: max or min" if _less_may_be_better(proposal) else "max")),
        question=QUESTION if len(proposal.readings) == 1 and _share_options(fold) else "",
        check="" if goal else "CHECK: ", key="csv" if path.suffix.lower() == ".csv" else "table",
        path=_quoted(Path(relative).as_posix()), unit=f"unit = {_quoted(unit)}" if unit else '# unit = "ms"',
    )  # fmt: skip
    choices = [keys_of(reading) for reading in proposal.readings]
    for key, (_, meaning) in KEYS.items():
        names = list(dict.fromkeys(choice.get(key) for choice in choices))
        if names != [None]:
            text += f"{key} = {_value(_choice(names))}\n#   CHECK: {meaning}\n"
    if "reward" in best or "ratings" in best:
        low, high = _outwards(*fold.range)
        text += (
            f"bounds = [{low}, {high}]\n#   CHECK: rewards in this table range from {fold.range[0]:g} to "
            f"{fold.range[1]:g}, rounded outwards here. The bounds must\n#   contain all rewards, including "
            "future ones. Narrow bounds save pulls.\n"
        )
    if fold.skipped:
        text += (
            f'# missing = "skip"\n#   CHECK: {fold.skipped:,} of {fold.rows:,} rows lack a name or a number, '
            "an error without this line. With it they\n#   are left out, and the answer is about the other "
            "rows only: orders that have a revenue,\n#   say, and not all visitors.\n"
        )
    return text + ROWS


def _less_may_be_better(proposal: Proposal) -> bool:
    """Whether a column of the rewards is named as if less were better."""
    found = (reading.columns.reward or reading.columns.successes for reading in proposal.readings)
    return any(less_is_better(name) for name in found if name)


def _share_options(fold: Fold) -> bool:
    """Whether there are several sites, and each has rows of every option."""
    codes = fold.entries().codes
    if len(codes) < 2:
        return False
    sites, options = (len(np.unique(code)) for code in codes)
    return sites > 1 and len(np.unique(codes, axis=1).T) == sites * options


def ways(found: Sequence[Reading]) -> list[str]:
    """The readings as lines, if there are several."""
    if len(found) == 1:
        return []
    listed = [f"  ({k}) {visible(as_toml(keys_of(one)))}" for k, one in enumerate(found, start=1)]
    return [f"It can be read in {len(found)} ways, and you have to choose:", *listed]


def sample_lines(proposal: Proposal) -> list[str]:
    """The first rows as lines, with the names of the columns."""
    rows = [[visible(profile.name) for profile in proposal.profiles], *proposal.sample]
    more = [" | …"] if len(rows[0]) > MOST_COLUMNS else []
    return ["".join([" | ".join(cell[:20] for cell in row[:MOST_COLUMNS]), *more]) for row in rows]


def _read(table: Table, keys: Keys) -> Fold:
    """Read all of the table, for the range of its rewards and the number of gaps."""
    names = tuple(str(keys[key]) for key in ("group", "arm") if key in keys)
    numbers = {key: str(name) for key, name in keys.items() if key not in ("group", "arm", "ratings")}
    ratings = ratings_of(keys["ratings"]) if "ratings" in keys else {}
    return read_table(table, Request(names, numbers, missing="skip", ratings=ratings))


def _value(name: str | tuple[str, ...]) -> str:
    """A column, or several, in TOML."""
    return _quoted(name) if isinstance(name, str) else "[" + ", ".join(map(_quoted, name)) + "]"


def _choice(names: Sequence[str | tuple[str, ...] | None]) -> str | tuple[str, ...]:
    """The name of a column, or what to choose from.

    >>> _choice(["city"]), _choice(["carrier", "airline"]), _choice(["city", None])
    ('city', 'CHECK: carrier or airline', 'CHECK: city, or leave this line out')
    """
    known = [name for name in names if name is not None]
    if len(names) == 1:
        return known[0]
    texts = [name if isinstance(name, str) else ", ".join(name) for name in known]
    return f"CHECK: {' or '.join(texts)}" + (", or leave this line out" if None in names else "")


def _outwards(low: float, high: float) -> tuple[str, str]:
    """Bounds that contain these numbers, rounded outwards, as text.

    >>> _outwards(-5.8, 90.2), _outwards(0, 1), _outwards(3, 3), _outwards(0.25, 0.77)
    (('-10', '100'), ('0', '1'), ('3', '4'), ('0.2', '0.8'))
    """
    span = (high - low) or abs(low) or 1.0
    if math.isfinite(span) and span > 1e-300:
        step = 10.0 ** math.floor(math.log10(span))
        below, above = math.floor(low / step) * step, math.ceil(high / step) * step
        if below == above:
            above += step
        for found in ((f"{below:.12g}", f"{above:.12g}"), (repr(below), repr(above))):
            if float(found[0]) <= low <= high <= float(found[1]) < math.inf and found[0] != found[1]:
                return found
    raise InputError(
        f"bounds for rewards from {low} to {high} can't be chosen automatically",
        fix="Write the scenario by hand, with your own bounds",
    )


def _quoted(text: str) -> str:
    """A text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
