"""Makes a problem from the columns of a table, as given in the [data] table of a scenario.

An error names the first invalid line, and how many more there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError, RewardError
from bestarm.problem.counted_recording import CountedRecording
from bestarm.problem.data import Data
from bestarm.problem.layout import Group, Layout
from bestarm.problem.pairs import aligned
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Recording, RewardModel, tabulate
from bestarm.problem.scale import Scale
from bestarm.problem.tables.columns import check_rewards
from bestarm.problem.tables.entries import Entries, cells_of
from bestarm.problem.tables.fold import Fold, Request
from bestarm.problem.tables.names import settled
from bestarm.problem.tables.propose import MOST_SHOWN, propose
from bestarm.problem.tables.ratings import ratings_of
from bestarm.problem.tables.read import ALL, read_table
from bestarm.problem.tables.sources import open_table
from bestarm.util.text import nearest, shorten

DATA_KEYS = (
    "csv", "table", "group", "arm", "client", "clients", "reward", "count", "successes", "trials", "ratings",
    "where", "min_count", "bounds", "rows", "missing", "pair",
)  # fmt: skip
NUMBERS = ("reward", "count", "successes", "trials")  # keys of columns
ROWS = ("once", "resample")
MOST_ONCE = 10**7  # rewards that are played one by one


def problem_from_csv(path: str, data: Mapping[str, Any]) -> Problem:
    """The problem of a CSV file; see ``Problem.from_csv``. `goal` and `unit` may be among the keys."""
    keys = {key: value for key, value in data.items() if key not in ("goal", "unit")}
    found = data_problem({"csv": str(path), **keys}, Path(), data.get("goal", "max"), {})
    return replace(found, scale=replace(found.scale, unit=data.get("unit", "")))


def data_problem(data: Mapping[str, Any], folder: Path, goal: str, counts: Mapping[str, Any]) -> Problem:
    """The problem of a scenario's [data]; `counts` are the numbers of clients of groups that set one."""
    if "replace" in data:
        new = "resample" if data["replace"] is True else "once"
        raise InputError(
            f'key "replace" = {shorten(data["replace"])} is now called rows',
            where="[data]",
            fix=f'Write rows = "{new}" instead; "once" is the default',
        )
    for key in data:
        if key not in DATA_KEYS:
            raise InputError(
                f'key "{key}" = {shorten(data[key])} is unknown', where="[data]", fix=nearest(key, DATA_KEYS)
            )
    if ("csv" in data) == ("table" in data):
        what = 'key "csv" is missing' if "csv" not in data else "csv and table both name a file"
        expected = "csv, the path of a CSV file, or table, the path of another table such as Parquet"
        raise InputError(what, where="[data]", expected=expected)
    for key in ("group", "arm", "client", *NUMBERS, "ratings"):
        if str(data.get(key, "")).startswith("CHECK"):
            what, expected = f"{key} = {shorten(data[key])} is not decided", "the name of one column"
            raise _with_readings(what, expected, data, folder)
    for key in ("csv" if "csv" in data else "table", "arm"):
        if not isinstance(data.get(key), str):
            what = f'key "{key}" is missing' if key not in data else f"{key} = {shorten(data[key])}"
            expected = "the path of a file" if key in ("csv", "table") else "the name of a column"
            if what == 'key "arm" is missing':
                raise _with_readings(what, expected, data, folder)
            raise InputError(what, where="[data]", expected=expected)
    if not any(key in data for key in (*NUMBERS, "ratings")):
        expected = "reward (with count, if rows are repeated), or successes and trials, or ratings"
        raise _with_readings("no key says which columns contain the rewards", expected, data, folder)
    _check_values(data)
    return _Data(data, goal).problem(folder, counts)


def _with_readings(what: str, expected: str, data: Mapping[str, Any], folder: Path) -> RewardError:
    """An error that says how the table can be read, unless rewards are private."""
    plain = InputError(what, where="[data]", expected=expected)
    return RewardError(what, where="[data]", expected=expected, fix=_readings(data, folder), plain=plain)


def _readings(data: Mapping[str, Any], folder: Path) -> str:
    """How the table of [data] can be read, for an error; empty if that can't be found out."""
    given = {role: data.get(key) for key, role in {"group": "site", "arm": "option"}.items()}
    said = {role: name for role, name in given.items() if name and not str(name).startswith("CHECK")}
    try:
        found = propose(folder / str(data.get("csv") or data["table"]), given=said)
    except InputError:
        return ""
    ways = [reading.as_keys(site="group", option="arm") for reading in found[:MOST_SHOWN]]
    more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    listed = "; ".join(f"({k}) {way}" for k, way in enumerate(ways, start=1))
    return f"The table can be read with: {listed if len(ways) > 1 else ways[0]}{more}"


def _check_values(data: Mapping[str, Any]) -> None:
    """Raise InputError if a key of [data] has a value that makes no sense."""
    try:
        check_rewards([key for key in (*NUMBERS, "ratings") if key in data])
        ratings = data.get("ratings", ["1", "2"])
        if not isinstance(ratings, list) or not all(isinstance(name, str) for name in ratings):
            expected = "a list of the columns that count one rating each"
            raise InputError(f"ratings = {shorten(ratings)}", expected=expected)
        ratings_of(ratings)
    except InputError as error:
        raise error.at("[data]") from None
    for key in ("group", "client", "pair", *NUMBERS):
        if key in data and not isinstance(data[key], str):
            raise InputError(f"{key} = {shorten(data[key])}", where="[data]", expected="the name of a column")
    if "client" in data and "clients" in data:
        raise InputError("client names a column, clients a number", where="[data]", expected="one of the two")
    if not isinstance(data.get("where", {}), Mapping):
        raise InputError(f"where = {shorten(data['where'])}", where="[data]", expected="{ column = value }")
    for key, known in (("rows", ROWS), ("missing", ("error", "skip"))):
        if data.get(key, known[0]) not in known:
            raise InputError(
                f"{key} = {shorten(data[key])}", where="[data]", expected=f'"{known[0]}" or "{known[1]}"'
            )
    if "pair" in data and (data.get("rows", "once") != "once" or "reward" not in data or "count" in data):
        raise InputError(
            f"pair = {shorten(data['pair'])} compares the rows of one subject, each of which is played once",
            where="[data]",
            fix='Use rows = "once", with a reward in each row',
        )
    least = data.get("min_count", 1)
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise InputError(
            f"min_count = {shorten(least)}", where="[data]", expected="a whole number of at least 1"
        )


@dataclass(frozen=True)
class _Counted:
    """Rewards in [0, 1], and how often each occurred."""

    value: NDArray[np.float64]
    count: NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.count.sum())


_Heap = dict[str, dict[str, dict[str, _Counted]]]  # by group, client and arm


class _Data:
    """Reads a table and makes reward models of each client's arms."""

    def __init__(self, data: Mapping[str, Any], goal: str) -> None:
        self.data, self.path = data, str(data.get("csv") or data["table"])
        self.where, self.once = f"[data] {self.path}", data.get("rows", "once") == "once"
        self.ratings = ratings_of(data["ratings"]) if "ratings" in data else {}
        levels = self.ratings.values() or (0.0, 1.0)
        bounds = data.get("bounds", (min(levels), max(levels)))
        if not isinstance(bounds, Sequence) or len(bounds) != 2 or not all(_is_number(b) for b in bounds):
            raise InputError(
                f"bounds = {shorten(bounds)}", where="[data]", expected="[low, high], two numbers"
            )
        try:
            self.scale = Scale(float(bounds[0]), float(bounds[1]), goal)
        except InputError as error:
            raise error.at("[data]") from None
        self.keys = tuple(key for key in ("group", "client", "arm", "pair") if key in data)
        self.weighted = any(key in data for key in (*NUMBERS[1:], "ratings"))
        self.unordered = False
        self.notes: list[str] = []

    def problem(self, folder: Path, counts: Mapping[str, Any]) -> Problem:
        """Read the table and make the problem."""
        data, scale = self.data, self.scale
        if not (folder / self.path).is_file():
            raise InputError(
                "there is no such file", where=self.where, fix="The path is relative to the scenario file"
            )
        table = open_table(folder / self.path, name=self.where)
        bounds = (scale.low, scale.high)
        request = Request(
            tuple(data[key] for key in self.keys), {key: data[key] for key in NUMBERS if key in data},
            where=data.get("where", {}), missing=data.get("missing", "error"), bounds=bounds,
            ordered=not table.unordered, failure_success=bounds, ratings=self.ratings,
        )  # fmt: skip
        fold = read_table(table, request)
        self.unordered = not request.ordered
        heap = self._heap(fold.entries(), fold.all_names())
        for name in counts:
            if name not in heap:
                raise InputError(
                    f'[[group]] "{name}" is not in the data', where=self.where, fix=nearest(name, heap)
                )
        return self._build(heap, counts, fold)

    def _heap(self, entries: Entries, raw: Sequence[Sequence[str]]) -> _Heap:
        """The rewards by group, client and arm; the client is "" where no column names it.

        They are in the order of the table, or sorted if it has none.
        """
        names = []
        for key, found in zip(self.keys, raw, strict=True):
            texts, notes = settled(found, self.data[key])
            names.append(texts)
            self.notes += notes
        values = (entries.value - self.scale.ends[0]) / (self.scale.ends[1] - self.scale.ends[0])
        order = np.argsort(cells_of(entries.codes), kind="stable")
        codes = entries.codes[:, order]
        changes = np.flatnonzero((codes[:, 1:] != codes[:, :-1]).any(axis=0)) + 1
        cells = []
        for piece in np.split(order, changes):
            place = [texts[k] for texts, k in zip(names, entries.codes[:, piece[0]], strict=True)]
            place = place if "group" in self.data else [ALL, *place]
            cells.append((place, int(piece[0]), _Counted(values[piece], entries.count[piece])))
        if "pair" in self.data:
            return self._aligned([(place, first, counted.value) for place, first, counted in cells])
        heap: _Heap = {}
        in_order = (lambda cell: cell[0]) if self.unordered else (lambda cell: cell[1])
        for place, _, counted in sorted(cells, key=in_order):
            heap.setdefault(place[0], {}).setdefault("".join(place[1:-1]), {})[place[-1]] = counted
        return heap

    def _aligned(self, cells: list[tuple[list[str], int, NDArray[np.float64]]]) -> _Heap:
        """The rewards of all arms of a client in the same order of subjects, without rare arms."""
        sizes: dict[tuple[str, str], int] = {}
        for place, _, values in cells:
            sizes[place[0], place[-2]] = sizes.get((place[0], place[-2]), 0) + len(values)
        scores: dict[str, dict[str, dict[str, list[tuple[str, float]]]]] = {}
        for place, _, values in sorted(cells, key=lambda cell: cell[1]):
            group, client, arm, subject = place[0], "".join(place[1:-2]), place[-2], place[-1]
            if sizes[group, arm] >= self.data.get("min_count", 1):
                own = scores.setdefault(group, {}).setdefault(client, {}).setdefault(arm, [])
                own.extend((subject, float(value)) for value in values)
        try:
            found = aligned(scores)
        except InputError as error:
            raise error.at(self.where) from None

        def counted(values: list[float]) -> _Counted:
            return _Counted(np.array(values), np.ones(len(values), dtype=np.int64))

        return {
            group: {
                client: {arm: counted(values) for arm, values in table.items()}
                for client, table in by_client.items()
            }
            for group, by_client in found.items()
        }

    def _build(self, heap: _Heap, counts: Mapping[str, Any], fold: Fold) -> Problem:
        groups: list[Group] = []
        rewards: list[tuple[RewardModel, ...]] = []
        counted = 0
        least = self.data.get("min_count", 1)
        for name, by_client in heap.items():
            arms = list(dict.fromkeys(arm for table in by_client.values() for arm in table))
            totals = {a: sum(t[a].total for t in by_client.values() if a in t) for a in arms}
            arms = [arm for arm in arms if totals[arm] >= least]
            if not arms:
                continue  # every arm has too few rewards
            rows = []
            for client, table in by_client.items():
                if missing := [arm for arm in arms if arm not in table]:
                    raise InputError(
                        f'client "{client}" of group "{name}" has no reward of arm "{missing[0]}"',
                        where=self.where,
                        expected="every client of a group to have rewards of all its arms",
                    )
                rows.append(tuple(self._model(table[arm], a) for a, arm in enumerate(arms)))
            clients = tuple(by_client) if "client" in self.data else self._clients(name, arms, counts)
            if "client" not in self.data:
                rows = rows * len(clients)
            groups.append(Group(name, tuple(arms), clients, all(m.binary for row in rows for m in row)))
            rewards.extend(rows)
            counted += sum(totals[arm] for arm in arms)
        if not groups:
            raise InputError(f"no arm has {least} rewards", where=self.where, fix="Lower min_count")
        column = f"the ratings ({', '.join(self.ratings)})"
        if not self.ratings:
            column = self.data.get("reward") or f"{self.data['successes']} / {self.data['trials']}"
        pair = self.data.get("pair", "")
        data = Data(
            Path(self.path).name, column, fold.used if self.weighted else counted, counted,
            not self.once, fold.skipped, self.weighted, self.weighted or self.unordered,
            tuple(self.notes), pair,
        )  # fmt: skip
        layout = Layout(tuple(groups), finite=self.once, paired=bool(pair))
        return Problem(layout, tuple(rewards), self.scale, data)

    def _clients(self, name: str, arms: Sequence[str], counts: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of a group's clients, where no column gives them."""
        count = counts.get(name, self.data.get("clients", 1))
        made = Problem.from_rewards({name: dict.fromkeys(arms, 0.5)}, clients={name: count})
        if len(made.layout.clients) > 1 and self.once:
            raise InputError(
                f'group "{name}" has {len(made.layout.clients)} clients, and each row is played once',
                where=self.where,
                expected="a column that says whose row it is",
                fix='Add client = "COLUMN" to [data], leave out clients, or simulate with rows = "resample"',
            )
        return made.layout.clients

    def _model(self, counted: _Counted, place: int) -> RewardModel:
        if not self.once:
            return tabulate(counted.value.tolist(), counted.count.tolist())
        if counted.total > MOST_ONCE:
            raise InputError(
                f"{counted.total:,} rewards of one arm are too many to be played one by one",
                where=self.where,
                expected=f"at most {MOST_ONCE:,}",
                fix='Simulate with rows = "resample"',
            )
        if self.weighted or self.unordered:  # any order that doesn't depend on the rewards is as good
            distinct, code = np.unique(counted.value, return_inverse=True)
            counts = np.bincount(code, weights=counted.count).astype(np.int64)
            return CountedRecording(tuple(distinct.tolist()), tuple(counts.tolist()), place)
        return Recording(tuple(np.repeat(counted.value, counted.count).tolist()))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
