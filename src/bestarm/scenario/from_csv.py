"""Writes a scenario for a CSV file, with guesses for the columns."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from bestarm.errors import InputError
from bestarm.problem.csv_file import finite_number, open_csv
from bestarm.problem.tables.cells import MISSING
from bestarm.util.text import shorten, visible

DATA_TEMPLATE = """\
# A scenario for {csv}, written by bestarm. Read the lines marked CHECK: they are guesses.
# Check it with:  bestarm check {file}
# Run it with:    bestarm run {file}
#
# The file has {rows:,} rows. Its columns:
{columns}

delta = 0.05            # the answer may be wrong with at most this probability
goal = "{goal}"            # {check}"max": the highest mean is best; "min": the lowest

[data]
csv = {path}
group = {group}
#   CHECK: this column names the site, such as a city or a shop
arm = {arm}
#   CHECK: this column names what is compared, such as a courier or a banner
reward = {reward}
#   CHECK: this column contains the numbers whose mean is compared
bounds = [{low}, {high}]
#   CHECK: rewards in this file range from {least:g} to {most:g}, rounded outwards here. The bounds must
#   contain all rewards, including future ones. Narrow bounds save pulls.
{missing}rows = "once"
#   CHECK: "once": each row is played once, in order, and the verdict is about where the rows came from;
#   "resample": a simulation that draws from these rows again and again, and is about this file alone.
"""


@dataclass
class _Column:
    """Statistics of one column of a CSV file."""

    name: str
    numbers: int = 0
    missing: int = 0
    rows: int = 0
    least: float = math.inf
    most: float = -math.inf
    values: dict[str, None] = field(default_factory=dict)  # the first few, in order

    def take(self, text: str) -> None:
        self.rows += 1
        if text.lower() in MISSING:
            self.missing += 1
            return
        value = finite_number(text)
        if value is not None:
            self.numbers += 1
            self.least, self.most = min(self.least, value), max(self.most, value)
        if len(self.values) < 4:
            self.values[text] = None

    @property
    def numeric(self) -> bool:
        return 0 < self.numbers == self.rows - self.missing

    def __str__(self) -> str:
        found = f"numbers from {self.least:g} to {self.most:g}" if self.numeric else "text: "
        if not self.numeric:
            shown = [visible(value[:30]) for value in list(self.values)[:3]]
            found += ", ".join([*shown, *["…"] * (len(self.values) > 3)])
        gaps = f"; missing: {self.missing:,}" if self.missing else ""
        return f"#   {visible(self.name)}: {found}{gaps}"


def scenario_for_csv(
    path: Path, target: Path, group: str = "", arm: str = "", reward: str = "", goal: str = ""
) -> str:
    """The text of a scenario for a CSV file, to be written to `target`.

    Columns that are not given are guessed: group and arm are the first two with text, and the reward is the
    last one with numbers.
    """
    where = str(path)
    if goal not in ("", "max", "min"):
        raise InputError(f"goal = {shorten(goal)}", expected="max or min")
    with open_csv(path) as file:
        file.demand_commas()
        file.demand(*filter(None, (group, arm, reward)))
        columns = {name: _Column(name) for name in file.header}
        for row in file:
            for name, text in row.cells.items():
                columns[name].take(text.strip())
    texts = [n for n, column in columns.items() if not column.numeric and n not in (group, arm, reward)]
    group = group or (texts.pop(0) if texts else "")
    arm = arm or (texts.pop(0) if texts else "")
    numbers = [n for n, column in columns.items() if column.numeric and n not in (group, arm)]
    reward = reward or (numbers[-1] if numbers else "")
    for key, found in (("group", group), ("arm", arm), ("reward", reward)):
        if not found:
            raise InputError(
                f"no column looks like the {key}", where=where, fix=f"Name it with --{key}-column COLUMN"
            )
    rewards = columns[reward]
    if not rewards.numeric:
        raise InputError(
            f'column "{reward}" contains {shorten(next(iter(rewards.values), ""))}',
            where=where,
            expected="numbers",
        )
    try:
        relative = os.path.relpath(path, target.parent)
    except ValueError:  # on another drive
        relative = str(path.resolve())
    low, high = _outwards(rewards.least, rewards.most)
    gaps = f'# missing = "skip"\n#   CHECK: this leaves out the rows without a number: {rewards.missing:,}\n'
    return DATA_TEMPLATE.format(
        csv=visible(path.name), file=visible(str(target)), columns="\n".join(map(str, columns.values())),
        path=_quoted(Path(relative).as_posix()), group=_quoted(group), arm=_quoted(arm),
        reward=_quoted(reward), rows=rewards.rows, least=rewards.least, most=rewards.most,
        low=low, high=high, missing=gaps if rewards.missing else "",
        goal=goal or "max", check="" if goal else "CHECK: ",
    )  # fmt: skip


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
