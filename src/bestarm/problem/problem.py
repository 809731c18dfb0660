"""Problems: which clients can pull which arms, and what the arms pay.

``Layout`` is what every participant knows: groups, their arms, their clients. ``Problem`` adds the reward
models, which only a simulator knows: no machine of ``protocol`` ever sees one. This module checks names and
maps rewards of any scale to [0, 1], where 1 is the better end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.coins import coined
from bestarm.problem.data import Data
from bestarm.problem.layout import Group, Layout
from bestarm.problem.pairs import demand_aligned
from bestarm.problem.parts import (
    average,
    check_bounds,
    client_counts,
    client_names,
    demand_own_recordings,
    models_from_specs,
    models_of,
)
from bestarm.problem.privacy import check_privacy, private, without_pairs
from bestarm.problem.question import ANYWHERE, Question, make_question
from bestarm.problem.rewards import RewardModel, Unknown
from bestarm.problem.scale import UNIT, Scale
from bestarm.problem.truth import ties_of, truth
from bestarm.util.text import counted, nearest, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def target(problem: Problem) -> tuple[int, int]:
    """The group and index of the arm that liars attack: the best one, or the first of several."""
    flat = [
        (-(0.5 if mean is None else mean), j, arm)
        for j, row in enumerate(problem.means)
        for arm, mean in enumerate(row)
    ]
    return min(flat)[1:]


@dataclass(frozen=True)
class Problem:
    """A layout with reward models, one per client and arm, and the user's scale.

    Rewards that run out, such as a recording, belong to one client: if two clients of a group shared them,
    each reward would count twice. Build a problem with ``bernoulli``, ``from_rewards`` or ``from_csv``.

    Parameters
    ----------
    layout : Layout
        The groups, their arms and their clients.
    rewards : tuple of tuple
        The reward model of each arm, by client.
    scale : Scale
        The user's bounds and direction; rewards in the models are in [0, 1].
    data : Data, optional
        The file that the rewards come from.

    Examples
    --------
    >>> problem = Problem.bernoulli([[.9, .85, .1], [.85, .8, .3], [.7, .6, .5]])
    >>> problem.best, problem.layout.clients
    ('g1/a1', ('g1-1', 'g2-1', 'g3-1'))
    """

    layout: Layout
    rewards: tuple[tuple[RewardModel, ...], ...]
    scale: Scale = UNIT
    data: Data | None = field(default=None, compare=False)  # two files may hold the same problem

    def __post_init__(self) -> None:
        rows = {id(row): row for row in self.rewards}.values()  # large groups share one row
        if any(model.limit is not None for row in rows for model in row):
            for group, models in zip(self.layout.groups, self._by_group(), strict=True):
                demand_own_recordings(group, models)
            if not self.layout.finite:  # a kernel would reuse them
                raise InputError(
                    "there are rewards that run out, but the layout is not finite",
                    expected="Layout(groups, finite=True)",
                )
        if self.layout.paired and not any(isinstance(m, Unknown) for row in rows for m in row):
            demand_aligned(self.layout.clients, self.rewards)

    @staticmethod
    def from_rewards(
        groups: Mapping[str, Mapping[str, Any]],
        *,
        clients: int | Sequence[int] | Mapping[str, int | Sequence[str]] = 1,
        bounds: tuple[float, float] | Mapping[str, tuple[float, float]] = (0.0, 1.0),
        goal: str = "max",
        unit: str = "",
    ) -> Problem:
        """Make a problem from ``{group: {arm: reward}}``.

        Parameters
        ----------
        groups : mapping
            A reward is a mean (for 0/1 rewards), a table of keys such as
            ``{"kind": "beta", "a": 2, "b": 5}``, a function ``f(rng)`` that returns one reward, or a reward
            model. A recording belongs to one client: in a group of several, give one list of values per
            client.
        clients : int, sequence of int, or mapping
            The number of clients of each group, or their names by group.
        bounds : pair of float, or mapping of pairs
            The smallest and the largest possible reward, for all groups or by group. Groups are compared on
            the smallest scale that contains all bounds.
        goal : {"max", "min"}
            Whether higher or lower rewards are better.
        unit : str
            What rewards are measured in, such as "ms"; it is shown beside means.

        Returns
        -------
        Problem

        Raises
        ------
        InputError
            If a description is invalid; the message names the group and the arm.

        Examples
        --------
        >>> Problem.from_rewards({"north": {"a": lambda rng: rng.random(), "b": 0.4}}).layout.groups[0].arms
        ('a', 'b')
        >>> own = {"kind": "recording", "values": [[0, 1, 1], [1, 0, 1]]}
        >>> Problem.from_rewards({"north": {"a": own, "b": 0.4}}, clients=2).rewards[1][0]
        Recording(values=(1.0, 0.0, 1.0))
        """
        if not isinstance(groups, Mapping):
            raise InputError(f"{groups!r} does not describe groups", expected="{group: {arm: reward}}")
        for what, by_name in (("clients", clients), ("bounds", bounds)):
            for name in by_name if isinstance(by_name, Mapping) else ():
                if name not in groups:
                    raise InputError(f'there is no group "{name}"', where=what, fix=nearest(name, groups))
        counts = client_counts(groups, clients)
        own = [bounds.get(name, (0.0, 1.0)) if isinstance(bounds, Mapping) else bounds for name in groups]
        for name, pair in zip(groups, own, strict=True):
            check_bounds(pair, f'group "{name}": bounds')
        if not groups:
            Layout(())  # raises
        scale = Scale(min(b[0] for b in own), max(b[1] for b in own), goal, unit=unit)
        made, models = [], []
        for (name, arms), count, pair in zip(groups.items(), counts, own, strict=True):
            where = f'group "{name}"'
            if not isinstance(arms, Mapping):
                raise InputError(f"{arms!r} does not describe arms", where=where, expected="{arm: reward}")
            members, columns = client_names(name, count), []
            for arm, reward in arms.items():
                try:
                    columns.append(models_of(reward, len(members), (float(pair[0]), float(pair[1])), scale))
                except InputError as error:
                    raise error.at(f'{where}, arm "{arm}"') from None
            binary = all(model.binary for column in columns for model in column)
            made.append(Group(name, tuple(arms), members, binary))
            if all(len(column) == 1 for column in columns):
                models.extend([tuple(column[0] for column in columns)] * len(members))
            else:
                full = (column * (len(members) // len(column)) for column in columns)
                models.extend(zip(*full, strict=True))
        finite = any(m.limit is not None for row in models for m in row)
        return Problem(Layout(tuple(made), finite), tuple(models), scale)

    @staticmethod
    def bernoulli(
        means: Sequence[Sequence[float]] | Mapping[str, Mapping[str, float]],
        *,
        clients: int | Sequence[int] = 1,
    ) -> Problem:
        """Make a problem with 0/1 rewards.

        Parameters
        ----------
        means : sequence of sequences of float, or mapping of mappings
            The means by group and arm. In a list, groups are called g1, g2, … and arms a1, a2, …
        clients : int or sequence of int
            The number of clients of each group.

        Returns
        -------
        Problem

        Examples
        --------
        >>> Problem.bernoulli([[0.9, 0.5], [0.7]]).best
        'g1/a1'
        """
        if not isinstance(means, Mapping):
            means = means.tolist() if isinstance(means, np.ndarray) else means
            if not isinstance(means, Sequence) or not all(isinstance(row, Sequence) for row in means):
                raise InputError(
                    f"{shorten(means)} does not describe groups",
                    expected="a list of lists of means, one list per group",
                )
            means = {
                f"g{i}": {f"a{j}": m for j, m in enumerate(row, start=1)}
                for i, row in enumerate(means, start=1)
            }
        return Problem.from_rewards(means, clients=clients)

    @staticmethod
    def from_csv(path: str, **data: object) -> Problem:
        """Make a problem from a CSV file.

        Parameters
        ----------
        path : str
            The file to read.
        **data
            The keys of a scenario's ``[data]`` table: `group`, `arm`, `reward`, `bounds`, …, and `goal` and
            `unit`.

        Returns
        -------
        Problem

        Raises
        ------
        InputError
            If the file is invalid; the message names the line and the column.
        """
        from bestarm.problem.csv_data import problem_from_csv

        return problem_from_csv(path, data)

    @staticmethod
    def paper_instance(sigma: float = 5.0) -> Problem:
        """Make the instance of the paper's Section 7; the gap in the best client's arm-set is 0.05·σ.

        Parameters
        ----------
        sigma : float
            A number from 0 to 18.

        Returns
        -------
        Problem

        Examples
        --------
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
            tuple(average([model.mean for model in arm]) for arm in zip(*rows, strict=True))
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
        return replace(self, layout=replace(self.layout, groups=groups), rewards=rewards)

    def asking(self, question: str = "anywhere", **keys: object) -> Problem:
        """This problem with another question.

        Parameters
        ----------
        question : {"anywhere", "overall", "each", "control"}
            Which option of which site is best; which is best on average over all sites; which is best at
            each site; which are better than the control.
        **keys
            `weights` ("equal", "rows" or a number for each site), `control`, `simultaneous`, `also` and
            `missing_options`; see ``Question``.

        Returns
        -------
        Problem

        Raises
        ------
        InputError
            If a key does not belong to the question, or the sites do not share their options.

        Examples
        --------
        >>> regions = Problem.from_rewards({"US": {"A": 0.3, "B": 0.4}, "EU": {"A": 0.7, "B": 0.5}})
        >>> regions.best, regions.asking("overall").best, regions.asking("each").best
        ('EU/A', 'A', 'US: B, EU: A')
        """
        rows = [sum(model.limit or 0 for row in models for model in row) for models in self._by_group()]
        known = rows if self.layout.finite and all(rows) else None
        made = make_question(self.layout.groups, {"question": question, **keys}, known)
        return replace(self, layout=replace(self.layout, question=made))

    def private(self, epsilon: float) -> Problem:
        """This problem with every reward replaced by a random answer, so that no pull tells much about it.

        Parameters
        ----------
        epsilon : float
            The privacy of each pull: whatever the reward was, the probability of an answer differs by a
            factor of at most e^ε. A person who is pulled k times has k·ε.

        Returns
        -------
        Problem
            Its means, intervals and ε on the user's scale keep their meaning.

        Raises
        ------
        InputError
            If `epsilon` cannot be used, or if the problem is private already or compares pairs.

        Examples
        --------
        >>> Problem.bernoulli([[0.9, 0.2], [0.6]]).private(2.0).best
        'g1/a1'
        """
        epsilon = check_privacy(epsilon)
        if self.scale.privacy is not None:
            raise InputError(
                f"the problem has privacy = {self.scale.privacy:g} already",
                expected="one ε for the whole problem: different ones could change the order of arms",
            )
        if self.layout.paired:
            raise without_pairs()
        groups = tuple(replace(group, binary=True) for group in self.layout.groups)
        made: dict[int, tuple[RewardModel, ...]] = {}  # large groups share one row
        for row in self.rewards:
            if id(row) not in made:
                made[id(row)] = tuple(private(model, epsilon, self.data is not None) for model in row)
        return replace(
            self,
            layout=replace(self.layout, groups=groups),
            rewards=tuple(made[id(row)] for row in self.rewards),
            scale=replace(self.scale, privacy=epsilon),
        )

    @property
    def hides_rewards(self) -> bool:
        """Whether real rewards become random answers: they are recorded, or those of a user's function."""
        models = {id(model): model for row in self.rewards for model in row}.values()
        return self.scale.privacy is not None and any(model.spec() is None for model in models)

    @cached_property
    def best(self) -> str | None:
        """The right answer; None if a mean is unknown or the answer isn't unique.

        It is the full name of the best arm, or what the question asks for: see ``truth``.
        """
        return truth(self)

    def ties(self, local: bool = True) -> list[str]:
        """Describe the ties that an exact comparison can never decide.

        Parameters
        ----------
        local : bool
            Whether ties for the best arm of a group count, too, as for a method that needs to find it.

        Returns
        -------
        list of str
            One description per tie.
        """
        return ties_of(self, local)

    def demand_rewards(self) -> None:
        """InputError if there are arms without reward models, which can't be simulated."""
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

    def plot_heterogeneity(self, ax: Axes | None = None) -> Axes:
        """Plot the indices σ_ij of the groups (needs ``bestarm[report]``).

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from bestarm.report.plots import heterogeneity

        return heterogeneity(self, ax)

    def __repr__(self) -> str:
        layout, asked = self.layout, self.layout.question.kind
        arms, clients = sum(len(group.arms) for group in layout.groups), len(layout.clients)
        question = "" if asked == "anywhere" else f", question {asked}"
        groups = counted(len(layout.groups), "group")
        return f"Problem({groups}, {counted(arms, 'arm')}, {counted(clients, 'client')}{question})"

    def _repr_html_(self) -> str:
        from bestarm.report.page import problem_fragment

        return problem_fragment(self)

    def to_dict(self) -> dict[str, Any]:
        """The problem as a record stores it, in [0, 1]; models that can't be stored are null."""
        groups = []
        for group, models in zip(self.layout.groups, self._by_group(), strict=True):
            finite = any(model.limit is not None for row in models for model in row)
            shared = not finite and all(row == models[0] for row in models)
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
        scale = self.scale.to_dict()
        data = {} if self.data is None else {"data": asdict(self.data)}
        asked = self.layout.question
        question = {} if asked == ANYWHERE else {"question": asked.to_dict()}
        ends = {"finite": self.layout.finite, **({"paired": True} if self.layout.paired else {})}
        return {"scale": scale, **ends, "groups": groups, **question, **data}

    @staticmethod
    def layout_from_dict(data: Mapping[str, Any]) -> tuple[Layout, Scale]:
        """The layout and the scale of ``to_dict``'s result."""
        groups = tuple(
            Group(g["name"], tuple(g["arms"]), tuple(g["clients"]), g["binary"]) for g in data["groups"]
        )
        question = Question.from_dict(data.get("question"))
        layout = Layout(groups, data["finite"], question, data.get("paired", False))
        return layout, Scale(**data["scale"])

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Problem:
        """The problem of ``to_dict``'s result; InputError if a model could not be stored."""
        layout, scale = Problem.layout_from_dict(data)
        rewards: list[tuple[RewardModel, ...]] = []
        for group in data["groups"]:
            rows = [models_from_specs(group["name"], row) for row in group["rewards"]]
            rewards.extend(rows * len(group["clients"]) if len(rows) == 1 else rows)
        if scale.privacy is not None:
            rewards = [tuple(private(model, scale.privacy, data=False) for model in row) for row in rewards]
        return Problem(layout, tuple(rewards), scale, Data.from_dict(data))
