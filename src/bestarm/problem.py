"""Who may pull what.

``Layout`` is what every participant may know: groups, their arms, their clients. ``Problem`` adds the
reward models, which only a simulator may know: no machine of ``protocol`` ever sees one. Here names are
checked and rewards of any scale are brought to [0, 1], with 1 the better end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from bestarm.errors import InputError, nearest, shorten
from bestarm.rewards import UNIT, RewardModel, Scale, Unknown, build, coined, from_spec

MAX_NAME = 200
MAX_CLIENTS = 1_000_000


@dataclass(frozen=True)
class Group:
    """An arm-set and the clients that can pull it. `binary`: every reward of every arm is 0 or 1."""

    name: str
    arms: tuple[str, ...]
    clients: tuple[str, ...]
    binary: bool = True

    def __post_init__(self) -> None:
        if not self.arms:
            raise InputError(
                "the group has no arms", where=f'group "{self.name}"', expected="at least one arm"
            )
        if not self.clients:
            raise InputError(
                "the group has no clients", where=f'group "{self.name}"', expected="at least one client"
            )
        _check_names("arm", self.arms, f'group "{self.name}"')


@dataclass(frozen=True)
class Layout:
    """The groups, as every participant knows them. `finite`: a client's rewards may run out."""

    groups: tuple[Group, ...]
    finite: bool = False

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError("there are no groups", expected="at least one group with at least one arm")
        _check_names("group", [g.name for g in self.groups], "")
        _check_names("client", self.clients, "")

    @cached_property
    def clients(self) -> tuple[str, ...]:
        return tuple(client for group in self.groups for client in group.clients)

    @cached_property
    def group_of(self) -> dict[str, int]:
        """Client name -> index of its group."""
        return {client: j for j, group in enumerate(self.groups) for client in group.clients}

    @cached_property
    def arm_counts(self) -> tuple[int, ...]:
        return tuple(len(group.arms) for group in self.groups)

    def arm(self, group: int, arm: int) -> str:
        """An arm's full name.

        >>> Layout((Group("west", ("s1", "s2"), ("w",)),)).arm(0, 1)
        'west/s2'
        """
        return f"{self.groups[group].name}/{self.groups[group].arms[arm]}"


def _check_names(kind: str, names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise InputError(
                f"{kind} name {name!r} can't be used",
                where=where,
                expected=f"1 to {MAX_NAME} printable characters",
            )
        if "/" in name or name == "*":
            raise InputError(
                f'{kind} name "{name}" can\'t be used',
                where=where,
                expected='a name without "/" (full names are group/arm) and other than "*"',
            )
        if name in seen:
            raise InputError(f'{kind} name "{name}" is used twice', where=where, expected="each name once")
        seen.add(name)


@dataclass(frozen=True)
class Data:
    """The file that rewards were read from, as whoever reads a verdict must know it.

    `reward` is the column of the rewards, `rows` are those that were used and `skipped` those without a name
    or a number; `rewards` is how many there are in all, which may be more than `rows` where those are
    `counts`.
    """

    csv: str
    reward: str
    rows: int
    rewards: int
    replace: bool
    skipped: int = 0
    counts: bool = False

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Data | None:
        """That of a problem's ``to_dict``, if it has one."""
        try:
            return msgspec.convert(plain.get("data"), Data | None)
        except msgspec.ValidationError as error:
            raise InputError(f"what is said of the data can't be read: {error}") from None

    def __str__(self) -> str:
        """What a verdict from this file is about.

        >>> print(Data("d.csv", "late", 60, 60, replace=False, skipped=1))
        From d.csv: 60 rows, each played once, in their order. 1 row without a name or a number left out.
        """
        text = f"From {self.csv}: {self.rows:,} rows, each played once, in their order."
        if self.replace:
            many = f"{self.rows:,} rows of {self.csv}"
            if self.counts:
                many = f"{self.rewards:,} rewards that {self.csv} counts"
            text = (
                f"Pulls draw from the {many} with replacement: a verdict is about the file, not about where "
                f"its rows came from.{'' if self.counts else ' replace = false plays each row once.'}"
            )
        if self.skipped:
            text += f" {self.skipped:,} row{'s' * (self.skipped > 1)} without a name or a number left out."
        return text


@dataclass(frozen=True)
class Problem:
    """A layout with its reward models (each client's own, arm by arm) and the user's scale.

    `data` says which file they come from, if they do.

    >>> problem = Problem.bernoulli([[.9, .85, .1], [.85, .8, .3], [.7, .6, .5]])
    >>> problem.best, problem.layout.clients
    ('g1/a1', ('g1-1', 'g2-1', 'g3-1'))
    """

    layout: Layout
    rewards: tuple[tuple[RewardModel, ...], ...]
    scale: Scale = UNIT
    data: Data | None = field(default=None, compare=False)  # two files may hold the same problem

    @staticmethod
    def from_rewards(
        groups: Mapping[str, Mapping[str, Any]],
        *,
        clients: int | Sequence[int] | Mapping[str, int | Sequence[str]] = 1,
        bounds: tuple[float, float] | Mapping[str, tuple[float, float]] = (0.0, 1.0),
        goal: str = "max",
    ) -> Problem:
        """A problem from ``{group: {arm: reward}}``.

        A reward is a mean (a 0/1 arm), a table of keys such as ``{"kind": "beta", "a": 2, "b": 5}``, a
        function ``f(rng)`` that gives one reward, or a reward model. `bounds` are those of the rewards,
        for all groups or by group; groups are compared on the scale that holds them all.

        >>> Problem.from_rewards({"north": {"a": lambda rng: rng.random(), "b": 0.4}}).layout.groups[0].arms
        ('a', 'b')
        """
        if not isinstance(groups, Mapping):
            raise InputError(f"{groups!r} describes no groups", expected="{group: {arm: reward}}")
        for what, by_name in (("clients", clients), ("bounds", bounds)):
            for name in by_name if isinstance(by_name, Mapping) else ():
                if name not in groups:
                    raise InputError(f'there is no group "{name}"', where=what, fix=nearest(name, groups))
        if isinstance(clients, Mapping):
            counts: list[Any] = [clients.get(name, 1) for name in groups]
        elif isinstance(clients, Sequence):
            counts = list(clients)
        else:
            counts = [clients] * len(groups)
        if len(counts) != len(groups):
            raise InputError(f"{len(counts)} numbers of clients for {len(groups)} groups", where="clients")
        own = [bounds.get(name, (0.0, 1.0)) if isinstance(bounds, Mapping) else bounds for name in groups]
        for name, pair in zip(groups, own, strict=True):
            _check_bounds(pair, f'group "{name}": bounds')
        if not groups:
            Layout(())  # raises
        scale = Scale(min(b[0] for b in own), max(b[1] for b in own), goal)
        made, models = [], []
        for (name, arms), count, pair in zip(groups.items(), counts, own, strict=True):
            where = f'group "{name}"'
            if not isinstance(arms, Mapping):
                raise InputError(f"{arms!r} describes no arms", where=where, expected="{arm: reward}")
            row = []
            for arm, reward in arms.items():
                try:
                    row.append(build(reward, (float(pair[0]), float(pair[1])), scale))
                except InputError as error:
                    raise error.at(f'{where}, arm "{arm}"') from None
            group = Group(name, tuple(arms), _client_names(name, count), all(m.binary for m in row))
            made.append(group)
            models.extend([tuple(row)] * len(group.clients))
        finite = any(m.limit is not None for row in models for m in row)
        return Problem(Layout(tuple(made), finite), tuple(models), scale)

    @staticmethod
    def bernoulli(
        means: Sequence[Sequence[float]] | Mapping[str, Mapping[str, float]],
        *,
        clients: int | Sequence[int] = 1,
    ) -> Problem:
        """0/1 rewards with these means: a list of lists (groups g1, g2, …, arms a1, a2, …) or a dict."""
        if not isinstance(means, Mapping):
            means = means.tolist() if isinstance(means, np.ndarray) else means
            if not isinstance(means, Sequence) or not all(isinstance(row, Sequence) for row in means):
                raise InputError(
                    f"{shorten(means)} describes no groups", expected="a list of lists of means, one a group"
                )
            means = {
                f"g{i}": {f"a{j}": m for j, m in enumerate(row, start=1)}
                for i, row in enumerate(means, start=1)
            }
        return Problem.from_rewards(means, clients=clients)

    @staticmethod
    def from_csv(path: str, **data: Any) -> Problem:
        """A problem from a CSV file; the keywords are the keys of a scenario's ``[data]`` table."""
        from bestarm.table import problem_from_csv

        return problem_from_csv(path, data)

    @staticmethod
    def paper_instance(sigma: float = 5.0) -> Problem:
        """The instance of the paper's Section 7; the gap in the best client's arm-set is 0.05·σ.

        >>> Problem.paper_instance(5).means
        ((0.9, 0.65, 0.1), (0.85, 0.8, 0.3), (0.7, 0.6, 0.5))
        """
        if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma <= 18:
            raise InputError(f"sigma = {sigma!r} can't be used", expected="a number from 0 to 18")
        second = round(0.9 - 0.05 * sigma, 12)
        return Problem.bernoulli([[0.9, second, 0.1], [0.85, 0.8, 0.3], [0.7, 0.6, 0.5]])

    @cached_property
    def means(self) -> tuple[tuple[float | None, ...], ...]:
        """True means by group and arm, in [0, 1]; an arm's mean is the average over its group's clients."""
        return tuple(
            tuple(_average([model.mean for model in arm]) for arm in zip(*rows, strict=True))
            for rows in self._by_group()
        )

    def _by_group(self) -> list[list[tuple[RewardModel, ...]]]:
        rows: list[list[tuple[RewardModel, ...]]] = [[] for _ in self.layout.groups]
        for client, models in zip(self.layout.clients, self.rewards, strict=True):
            rows[self.layout.group_of[client]].append(models)
        return rows

    def coined(self) -> Problem:
        """This problem with every reward that isn't 0/1 turned into a coin of the same mean."""
        groups = tuple(replace(group, binary=True) for group in self.layout.groups)
        rewards = tuple(tuple(coined(model) for model in row) for row in self.rewards)
        return replace(self, layout=Layout(groups, self.layout.finite), rewards=rewards)

    @cached_property
    def best(self) -> str | None:
        """The full name of the best arm; None if a mean is unknown or the best isn't unique."""
        flat = [
            (mean, self.layout.arm(j, a)) for j, row in enumerate(self.means) for a, mean in enumerate(row)
        ]
        if any(mean is None for mean, _ in flat):
            return None
        top = max(mean for mean, _ in flat if mean is not None)
        names = [name for mean, name in flat if mean == top]
        return names[0] if len(names) == 1 else None

    def ties(self, local: bool = True) -> list[str]:
        """What an exact comparison can never decide, in words; empty if there is no such thing.

        With ``local=False`` only a tie for the best arm of all counts, as for a method that doesn't have to
        find each group's best arm.
        """
        names = [self.layout.arm(j, a) for j, n in enumerate(self.layout.arm_counts) for a in range(n)]
        flat = [mean for row in self.means for mean in row]
        if any(mean is None for mean in flat):
            return []
        top = max(mean for mean in flat if mean is not None)
        found = []
        best = [name for name, mean in zip(names, flat, strict=True) if mean == top]
        if len(best) > 1:
            found.append(f"the best arms are tied: {', '.join(best)}")
        for group, row in zip(self.layout.groups, self.means, strict=True):
            own = max(mean for mean in row if mean is not None)
            tied = [arm for arm, mean in zip(group.arms, row, strict=True) if mean == own]
            if local and own < top and len(tied) > 1:
                found.append(f'the best arms of group "{group.name}" are tied: {", ".join(tied)}')
        return found

    def demand_rewards(self) -> None:
        """InputError if there are arms that are known by name only: nothing can be drawn from them."""
        names = [
            self.layout.arm(j, a)
            for j, (row, *_) in enumerate(self._by_group())
            for a, model in enumerate(row)
            if isinstance(model, Unknown)
        ]
        if names:
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            raise InputError(
                f"these arms have no rewards here: {', '.join(names[:8])}{more}",
                fix="Run a federation (bestarm federation init), or give means: arms = { name = mean }",
            )

    def plot_heterogeneity(self, ax: Any = None) -> Any:
        """Draw the indices σ_ij of the groups (needs ``bestarm[report]``); gives Matplotlib axes."""
        from bestarm.report.plots import heterogeneity

        return heterogeneity(self, ax)

    def _repr_html_(self) -> str:
        from bestarm.report.page import problem_fragment

        return problem_fragment(self)

    def to_dict(self) -> dict[str, Any]:
        """What a record keeps, in [0, 1]; arms whose model can't be written down are null."""
        groups = []
        for group, models in zip(self.layout.groups, self._by_group(), strict=True):
            shared = all(row == models[0] for row in models)
            rows = [[model.spec() for model in row] for row in (models[:1] if shared else models)]
            groups.append(
                {
                    "name": group.name,
                    "clients": list(group.clients),
                    "arms": list(group.arms),
                    "binary": group.binary,
                    "rewards": rows,
                }
            )
        scale = {"low": self.scale.low, "high": self.scale.high, "goal": self.scale.goal}
        data = {} if self.data is None else {"data": asdict(self.data)}
        return {"scale": scale, "finite": self.layout.finite, "groups": groups, **data}

    @staticmethod
    def layout_from_dict(data: Mapping[str, Any]) -> tuple[Layout, Scale]:
        """The layout and the scale of ``to_dict``'s result."""
        groups = tuple(
            Group(g["name"], tuple(g["arms"]), tuple(g["clients"]), g["binary"]) for g in data["groups"]
        )
        return Layout(groups, data["finite"]), Scale(**data["scale"])

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Problem:
        """The problem of ``to_dict``'s result; InputError if a model could not be written down."""
        layout, scale = Problem.layout_from_dict(data)
        rewards: list[tuple[RewardModel, ...]] = []
        for group in data["groups"]:
            rows = [_models(group["name"], row) for row in group["rewards"]]
            rewards.extend(rows * len(group["clients"]) if len(rows) == 1 else rows)
        return Problem(layout, tuple(rewards), scale, Data.from_dict(data))


def _models(group: str, specs: Sequence[Mapping[str, Any] | None]) -> tuple[RewardModel, ...]:
    if any(spec is None for spec in specs):
        raise InputError(
            "the rewards came from a user's function, which a record can't hold", where=f'group "{group}"'
        )
    return tuple(from_spec(spec) for spec in specs if spec is not None)


def _average(means: Sequence[float | None]) -> float | None:
    known = [m for m in means if m is not None]
    if len(known) < len(means):
        return None
    return known[0] if len(set(known)) == 1 else sum(known) / len(known)


def _client_names(group: str, count: Any) -> tuple[str, ...]:
    if isinstance(count, Sequence) and not isinstance(count, str):
        return tuple(count)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_CLIENTS:
        raise InputError(
            f"clients = {shorten(count)}",
            where=f'group "{group}"',
            expected=f"a whole number from 1 to {MAX_CLIENTS:,}",
        )
    return tuple(f"{group}-{i}" for i in range(1, count + 1))


def _check_bounds(pair: Any, where: str) -> None:
    numbers = (
        isinstance(pair, Sequence)
        and len(pair) == 2
        and all(isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e300 for x in pair)
    )
    if not numbers:
        raise InputError(f"{shorten(pair)} can't be used", where=where, expected="[low, high], two numbers")
    try:
        Scale(float(pair[0]), float(pair[1]))
    except InputError as error:
        raise error.at(where) from None
