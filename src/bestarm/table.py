"""Rewards from a CSV file: a problem from its columns, and a scenario to begin with.

What is wrong with a file is told with its line, and with how many more lines are like it.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bestarm.errors import InputError, nearest, shorten, visible
from bestarm.problem import Data, Group, Layout, Problem
from bestarm.rewards import Recording, RewardModel, Scale, tabulate

DATA_KEYS = (
    "csv", "group", "arm", "client", "clients", "reward", "count", "successes", "trials", "where",
    "min_count", "bounds", "replace", "missing",
)  # fmt: skip
NAMES, NUMBERS = ("group", "arm", "client"), ("reward", "count", "successes", "trials")  # keys of columns
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})  # what stands where a number is missing
HOLD = "Declare bounds = [low, high] that hold every reward, also those to come"
SKIP = 'missing = "skip" in [data] leaves out rows without a number'


def problem_from_csv(path: str, data: Mapping[str, Any]) -> Problem:
    """The problem of a CSV file; see ``Problem.from_csv``. `goal` may stand among the keys."""
    keys = {key: value for key, value in data.items() if key != "goal"}
    return data_problem({"csv": str(path), **keys}, Path(), data.get("goal", "max"), {})


@dataclass(frozen=True)
class _Row:
    line: int
    cells: Mapping[str, str]


@contextlib.contextmanager
def _reading(path: Path, where: str) -> Iterator[Any]:
    """A CSV file, open; whatever keeps it from being read is said with its place."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"this is not a text file (byte {error.start})", where=where) from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", where=where) from None
    except csv.Error as error:
        raise InputError(f"can't be read: {error}", where=where) from None


def _table(file: Any, where: str) -> tuple[list[str], Iterator[_Row]]:
    """The names of a CSV file's columns, and its rows."""
    reader = csv.reader(file)
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise InputError("the file is empty", where=where, expected="a first line with column names")
    if len(set(header)) < len(header):
        raise InputError("a column name stands twice", where=f"{where}, line 1")

    def rows() -> Iterator[_Row]:
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise InputError(
                    f"{len(cells)} cells",
                    where=f"{where}, line {reader.line_num}",
                    expected=f"{len(header)}, as in the first line",
                )
            yield _Row(reader.line_num, dict(zip(header, cells, strict=True)))

    return header, rows()


def _demand_commas(header: Sequence[str], where: str) -> None:
    """InputError if the first line is one cell that another sign separates."""
    for sign, name in ((";", '";"'), ("\t", "tabs"), ("|", '"|"')):
        if len(header) == 1 and sign in header[0]:
            raise InputError(
                f"this looks separated by {name}",
                where=f"{where}, line 1",
                expected="commas between columns, and a point in numbers such as 3.5",
                fix="Save it that way",
            )


def data_problem(data: Mapping[str, Any], folder: Path, goal: str, counts: Mapping[str, Any]) -> Problem:
    """The problem of a scenario's [data]; `counts` are the clients of groups that say so."""
    for key in data:
        if key not in DATA_KEYS:
            raise InputError(
                f'key "{key}" = {shorten(data[key])} is unknown', where="[data]", fix=nearest(key, DATA_KEYS)
            )
    for key in ("csv", "group", "arm"):
        if not isinstance(data.get(key), str):
            what = f'key "{key}" is missing' if key not in data else f"{key} = {shorten(data[key])}"
            expected = "the path of a CSV file" if key == "csv" else "the name of a column"
            raise InputError(what, where="[data]", expected=expected)
    _check_columns_given(data)
    where = f"[data] {data['csv']}"
    reader = _Data(data, goal, where)
    reader.read(folder / data["csv"])
    return reader.problem(counts)


def _check_columns_given(data: Mapping[str, Any]) -> None:
    by_reward, by_trials = "reward" in data, "successes" in data or "trials" in data
    if by_reward == by_trials or ("successes" in data) != ("trials" in data):
        raise InputError(
            "it is not clear which columns hold the rewards",
            where="[data]",
            expected="either reward (with count, if rows are repeated), or successes and trials",
        )
    if by_trials and "count" in data:
        raise InputError("count goes with reward; trials is the count of successes", where="[data]")
    for key in ("client", "reward", "count", "successes", "trials"):
        if key in data and not isinstance(data[key], str):
            raise InputError(f"{key} = {shorten(data[key])}", where="[data]", expected="the name of a column")
    if "client" in data and "clients" in data:
        raise InputError("client names a column, clients a number", where="[data]", expected="one of the two")
    if not isinstance(data.get("where", {}), Mapping):
        raise InputError(f"where = {shorten(data['where'])}", where="[data]", expected="{ column = value }")
    if not isinstance(data.get("replace", True), bool):
        raise InputError(f"replace = {shorten(data['replace'])}", where="[data]", expected="true or false")
    if data.get("replace", True) is False and ("count" in data or by_trials):
        raise InputError(
            "replace = false plays single rewards in their order",
            where="[data]",
            fix="Leave out count, successes, trials",
        )
    if data.get("missing", "error") not in ("error", "skip"):
        raise InputError(
            f"missing = {shorten(data['missing'])}", where="[data]", expected='"error" or "skip"'
        )
    least = data.get("min_count", 1)
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise InputError(
            f"min_count = {shorten(least)}", where="[data]", expected="a whole number of at least 1"
        )


class _Data:
    """Collects (value, weight) by group, client and arm while it reads a file once."""

    def __init__(self, data: Mapping[str, Any], goal: str, where: str) -> None:
        self.data, self.where = data, where
        bounds = data.get("bounds", (0.0, 1.0))
        if not isinstance(bounds, Sequence) or len(bounds) != 2 or not all(_is_number(b) for b in bounds):
            raise InputError(
                f"bounds = {shorten(bounds)}", where="[data]", expected="[low, high], two numbers"
            )
        try:
            self.scale = Scale(float(bounds[0]), float(bounds[1]), goal)
        except InputError as error:
            raise error.at("[data]") from None
        # group -> client -> arm -> [(unit value, weight)]; the client is "" where no column names it
        self.heap: dict[str, dict[str, dict[str, list[tuple[float, float]]]]] = {}
        self.range = (math.inf, -math.inf)  # of all rewards, also those out of bounds
        self.skipped = 0

    def read(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(
                "there is no such file", where=self.where, fix="The path is relative to the scenario's"
            )
        first, wrong = None, 0
        with _reading(path, self.where) as file:
            for row in self._rows(file):
                if not self._wanted(row):
                    continue
                if self.data.get("missing") == "skip" and self._lacks(row):
                    self.skipped += 1
                    continue
                try:
                    self._take(row)
                except InputError as error:
                    first, wrong = first or error, wrong + 1
        if first is not None:
            raise self._summary(first, wrong - 1)
        if not self.heap:
            raise InputError(
                "no row is left", where=self.where, fix="Check where, and that the file has rows"
            )

    def _summary(self, first: InputError, more: int) -> InputError:
        """The first error, with what else there is of its kind."""
        what, fix = first.what, first.fix
        if more:
            what += f" ({more:,} more line{'s' * (more > 1)} can't be used either)"
        if fix == HOLD:
            low, high = (f"{x:g}" for x in self.range)
            fix = f"In this file they run from {low} to {high}. {HOLD}"
        return InputError(what, where=first.where, expected=first.expected, fix=fix)

    def _rows(self, file: Any) -> Iterator[_Row]:
        header, rows = _table(file, self.where)
        wanted = [self.data[k] for k in (*NAMES, *NUMBERS) if k in self.data]
        for column in [*wanted, *self.data.get("where", {})]:
            if column not in header:
                _demand_commas(header, self.where)
                raise InputError(
                    f'there is no column "{column}"',
                    where=f"{self.where}, line 1",
                    fix=nearest(column, header),
                )
        yield from rows

    def _lacks(self, row: _Row) -> bool:
        """Whether a name or a number is missing."""
        names, numbers = (
            [row.cells[self.data[k]].strip() for k in keys if k in self.data] for keys in (NAMES, NUMBERS)
        )
        return not all(names) or any(text.lower() in MISSING for text in numbers)

    def _wanted(self, row: _Row) -> bool:
        for column, value in self.data.get("where", {}).items():
            options = value if isinstance(value, list) else [value]
            if not any(_matches(row.cells[column].strip(), option) for option in options):
                return False
        return True

    def _take(self, row: _Row) -> None:
        group, arm = self._name(row, "group"), self._name(row, "arm")
        client = self._name(row, "client") if "client" in self.data else ""
        values = self.heap.setdefault(group, {}).setdefault(client, {}).setdefault(arm, [])
        if "reward" in self.data:
            reward = self._number(row, "reward")
            self.range = min(self.range[0], reward), max(self.range[1], reward)
            if not self.scale.low <= reward <= self.scale.high:
                raise InputError(
                    f"{self.data['reward']} = {reward:g} not in [{self.scale.low:g}, {self.scale.high:g}]",
                    where=f"{self.where}, line {row.line}",
                    fix=HOLD,
                )
            weight = self._count(row, "count") if "count" in self.data else 1.0
            values.append((self.scale.unit(reward), weight))
        else:
            good, trials = self._count(row, "successes"), self._count(row, "trials")
            if good > trials:
                raise InputError(
                    f"{good:g} successes of {trials:g} trials", where=f"{self.where}, line {row.line}"
                )
            values.append((self.scale.unit(self.scale.high), good))
            values.append((self.scale.unit(self.scale.low), trials - good))

    def _name(self, row: _Row, key: str) -> str:
        text = row.cells[self.data[key]].strip()
        if not text:
            raise InputError(f'column "{self.data[key]}" is empty', where=f"{self.where}, line {row.line}")
        return text.replace("/", "∕")  # full names are group/arm, so a slash becomes a division slash

    def _number(self, row: _Row, key: str) -> float:
        text = row.cells[self.data[key]].strip()
        try:
            value = math.nan if "_" in text else float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(
                f'column "{self.data[key]}" holds {shorten(text)}',
                where=f"{self.where}, line {row.line}",
                expected="a finite number",
                fix=SKIP if text.lower() in MISSING else "",
            )
        return value

    def _count(self, row: _Row, key: str) -> float:
        value = self._number(row, key)
        if not (0 <= value <= 2**50 and value.is_integer()):
            raise InputError(
                f'column "{self.data[key]}" holds a count of {value:g}',
                where=f"{self.where}, line {row.line}",
                expected="a whole number of at least 0",
            )
        return value

    def problem(self, counts: Mapping[str, Any]) -> Problem:
        least, replace = self.data.get("min_count", 1), self.data.get("replace", True)
        for name in counts:
            if name not in self.heap:
                raise InputError(
                    f'[[group]] "{name}" is not in the data', where=self.where, fix=nearest(name, self.heap)
                )
        groups: list[Group] = []
        rewards: list[tuple[RewardModel, ...]] = []
        used = counted = 0
        for name, by_client in self.heap.items():
            arms = list(dict.fromkeys(arm for table in by_client.values() for arm in table))
            totals = {a: sum(w for t in by_client.values() for _, w in t.get(a, [])) for a in arms}
            arms = [arm for arm in arms if totals[arm] >= least]
            if not arms:
                continue  # every arm has too few rewards
            rows = []
            for client, table in by_client.items():
                if missing := [arm for arm in arms if not sum(w for _, w in table.get(arm, []))]:
                    raise InputError(
                        f'client "{client}" of group "{name}" has no reward of arm "{missing[0]}"',
                        where=self.where,
                        expected="every client of a group to have rewards of all its arms",
                    )
                rows.append(tuple(_model(table[arm], replace) for arm in arms))
            if "client" in self.data:
                clients = tuple(by_client)
            else:
                count = counts.get(name, self.data.get("clients", 1))
                made = Problem.from_rewards({name: dict.fromkeys(arms, 0.5)}, clients={name: count})
                clients = made.layout.clients
                if len(clients) > 1 and not replace:
                    raise InputError(
                        f'group "{name}" has {len(clients)} clients, and each row is played once',
                        where=self.where,
                        expected="a column that says whose row it is",
                        fix='Add client = "COLUMN" to [data], or leave out clients',
                    )
                rows = rows * len(clients)
            groups.append(Group(name, tuple(arms), clients, all(m.binary for row in rows for m in row)))
            rewards.extend(rows)
            used += sum(len(table[arm]) for table in by_client.values() for arm in arms)
            counted += int(sum(totals[arm] for arm in arms))
        if not groups:
            raise InputError(f"no arm has {least} rewards", where=self.where, fix="Lower min_count")
        column = self.data.get("reward") or f"{self.data['successes']} / {self.data['trials']}"
        rows_used = used if "reward" in self.data else used // 2  # a row of counts has two values
        name = Path(self.data["csv"]).name
        weighted = any(key in self.data for key in NUMBERS[1:])
        data = Data(name, column, rows_used, counted, replace, self.skipped, weighted)
        return Problem(Layout(tuple(groups), finite=not replace), tuple(rewards), self.scale, data)


def _model(values: Sequence[tuple[float, float]], replace: bool) -> RewardModel:
    if replace:
        return tabulate([v for v, _ in values], [w for _, w in values])
    return Recording(tuple(v for v, _ in values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _matches(cell: str, value: object) -> bool:
    if _is_number(value):
        try:
            return float(cell) == value
        except ValueError:
            return False
    return cell == (str(value).lower() if isinstance(value, bool) else str(value))


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
#   CHECK: this column holds the numbers whose mean counts
bounds = [{low}, {high}]
#   CHECK: in this file they run from {least:g} to {most:g}, rounded outwards here. Bounds must hold for all
#   rewards, also those to come. Narrow ones save pulls.
{missing}replace = true
#   CHECK: true: pulls draw from these rows with replacement, and the verdict is about this file;
#   false: each row is played once, in order, and the verdict is about where the rows came from.
"""


@dataclass
class _Column:
    """What is found in one column of a CSV file."""

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
        with contextlib.suppress(ValueError):
            value = math.nan if "_" in text else float(text)
            if math.isfinite(value):
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

    Columns that are not named are guessed: group and arm are the first two that hold text, the reward is the
    last one that holds numbers.
    """
    where = str(path)
    if goal not in ("", "max", "min"):
        raise InputError(f"goal = {shorten(goal)}", expected="max or min")
    with _reading(path, where) as file:
        header, rows = _table(file, where)
        _demand_commas(header, where)
        columns = {name: _Column(name) for name in header}
        for row in rows:
            for name, text in row.cells.items():
                columns[name].take(text.strip())
    for name in filter(None, (group, arm, reward)):
        if name not in columns:
            raise InputError(f'there is no column "{name}"', where=where, fix=nearest(name, columns))
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
            f'column "{reward}" holds {shorten(next(iter(rewards.values), ""))}',
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
    """Bounds that hold these numbers, rounded outwards, as text.

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
        f"rewards from {low} to {high} can't be given bounds by themselves",
        fix="Write the scenario by hand, with bounds of your own",
    )


def _quoted(text: str) -> str:
    """A text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
