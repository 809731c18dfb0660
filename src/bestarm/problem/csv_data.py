"""Makes a problem from the columns of a CSV file, as given in the [data] table of a scenario.

An error names the first invalid line, and how many more there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.problem.csv_file import Row, finite_number, open_csv
from bestarm.problem.data import Data
from bestarm.problem.layout import Group, Layout
from bestarm.problem.pairs import aligned
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Recording, RewardModel, tabulate
from bestarm.problem.scale import Scale
from bestarm.util.text import nearest, shorten

DATA_KEYS = (
    "csv", "group", "arm", "client", "clients", "reward", "count", "successes", "trials", "where",
    "min_count", "bounds", "replace", "missing", "pair",
)  # fmt: skip
NAMES, NUMBERS = (
    ("group", "arm", "client", "pair"),
    ("reward", "count", "successes", "trials"),
)  # keys of columns
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})  # cells that mean a missing number
HOLD = "Declare bounds = [low, high] that contain every reward, including future ones"
SKIP = 'missing = "skip" in [data] leaves out rows without a number'


def problem_from_csv(path: str, data: Mapping[str, Any]) -> Problem:
    """The problem of a CSV file; see ``Problem.from_csv``. `goal` may be among the keys."""
    keys = {key: value for key, value in data.items() if key != "goal"}
    return data_problem({"csv": str(path), **keys}, Path(), data.get("goal", "max"), {})


def data_problem(data: Mapping[str, Any], folder: Path, goal: str, counts: Mapping[str, Any]) -> Problem:
    """The problem of a scenario's [data]; `counts` are the numbers of clients of groups that set one."""
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
            "it is not clear which columns contain the rewards",
            where="[data]",
            expected="either reward (with count, if rows are repeated), or successes and trials",
        )
    if by_trials and "count" in data:
        raise InputError("count goes with reward; trials is the count of successes", where="[data]")
    for key in ("client", "pair", "reward", "count", "successes", "trials"):
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
            "replace = false plays single rewards in order",
            where="[data]",
            fix="Leave out count, successes, trials",
        )
    if "pair" in data and data.get("replace", True):
        raise InputError(
            f"pair = {shorten(data['pair'])} compares the rows of one subject, each of which is played once",
            where="[data]",
            fix="Add replace = false",
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
        self.subjects: dict[tuple[str, str, str], list[str]] = {}  # of each row, if a column names them
        self.range = (math.inf, -math.inf)  # of all rewards, including those out of bounds
        self.skipped = 0

    def read(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(
                "there is no such file", where=self.where, fix="The path is relative to the scenario file"
            )
        first, wrong = None, 0
        with open_csv(path, self.where) as file:
            wanted = [self.data[key] for key in (*NAMES, *NUMBERS) if key in self.data]
            file.demand(*wanted, *self.data.get("where", {}))
            for row in file:
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
        """The first error, with the number of other invalid lines."""
        what, fix = first.what, first.fix
        if more:
            what += f" ({more:,} more line{'s' * (more > 1)} can't be used either)"
        if fix == HOLD:
            low, high = (f"{x:g}" for x in self.range)
            fix = f"In this file they range from {low} to {high}. {HOLD}"
        return InputError(what, where=first.where, expected=first.expected, fix=fix)

    def _lacks(self, row: Row) -> bool:
        """Whether a name or a number is missing."""
        names, numbers = (
            [row.cells[self.data[k]].strip() for k in keys if k in self.data] for keys in (NAMES, NUMBERS)
        )
        return not all(names) or any(text.lower() in MISSING for text in numbers)

    def _wanted(self, row: Row) -> bool:
        for column, value in self.data.get("where", {}).items():
            options = value if isinstance(value, list) else [value]
            if not any(_matches(row.cells[column].strip(), option) for option in options):
                return False
        return True

    def _take(self, row: Row) -> None:
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
            if "pair" in self.data:
                self.subjects.setdefault((group, client, arm), []).append(self._name(row, "pair"))
        else:
            good, trials = self._count(row, "successes"), self._count(row, "trials")
            if good > trials:
                raise InputError(
                    f"{good:g} successes of {trials:g} trials", where=f"{self.where}, line {row.line}"
                )
            values.append((self.scale.unit(self.scale.high), good))
            values.append((self.scale.unit(self.scale.low), trials - good))

    def _name(self, row: Row, key: str) -> str:
        text = row.cells[self.data[key]].strip()
        if not text:
            raise InputError(f'column "{self.data[key]}" is empty', where=f"{self.where}, line {row.line}")
        return text.replace("/", "∕")  # full names are group/arm, so a slash becomes a division slash

    def _number(self, row: Row, key: str) -> float:
        text = row.cells[self.data[key]].strip()
        value = finite_number(text)
        if value is None:
            raise InputError(
                f'column "{self.data[key]}" holds {shorten(text)}',
                where=f"{self.where}, line {row.line}",
                expected="a finite number",
                fix=SKIP if text.lower() in MISSING else "",
            )
        return value

    def _count(self, row: Row, key: str) -> float:
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
        if "pair" in self.data:
            self._align(least)
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
        pair = self.data.get("pair", "")
        data = Data(name, column, rows_used, counted, replace, self.skipped, weighted, pair)
        layout = Layout(tuple(groups), finite=not replace, paired="pair" in self.data)
        return Problem(layout, tuple(rewards), self.scale, data)

    def _align(self, least: int) -> None:
        """Put the rewards of all arms of a client in the same order of subjects; leave out rare arms."""
        scores: dict[str, dict[str, dict[str, list[tuple[str, float]]]]] = {}
        for group, by_client in self.heap.items():
            sizes: dict[str, int] = {}
            for table in by_client.values():
                for arm, values in table.items():
                    sizes[arm] = sizes.get(arm, 0) + len(values)
            arms = [arm for arm, size in sizes.items() if size >= least]
            scores[group] = {
                client: {
                    arm: [
                        (subject, value)
                        for subject, (value, _) in zip(
                            self.subjects.get((group, client, arm), ()), table.get(arm, ()), strict=True
                        )
                    ]
                    for arm in arms
                }
                for client, table in by_client.items()
            }
        try:
            found = aligned(scores)
        except InputError as error:
            raise error.at(self.where) from None
        self.heap = {
            group: {
                client: {arm: [(value, 1.0) for value in values] for arm, values in table.items()}
                for client, table in by_client.items()
            }
            for group, by_client in found.items()
        }


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
