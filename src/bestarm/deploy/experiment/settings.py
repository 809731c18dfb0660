"""The settings of a live experiment, as its journal stores them: options, sites, question, deadline …"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem.layout import Group, Layout
from bestarm.problem.problem import Problem
from bestarm.problem.question import KEYS
from bestarm.problem.question import KINDS as QUESTIONS
from bestarm.problem.rewards import Unknown
from bestarm.problem.scale import Scale
from bestarm.protocol.options import Common
from bestarm.simulate.identify import DEFAULT_METHOD, prepare
from bestarm.util.durations import in_seconds
from bestarm.util.seeds import check_seed
from bestarm.util.text import shorten

AFTER = ("winner", "stop")
OPEN_BLOCKS = 64  # as many as there may be: nobody has to wait for rewards that are still to come
ONE_SITE = "site"  # the name of the only site, if none is given


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an experiment. They never change.

    Parameters
    ----------
    arms : tuple of (str, tuple of str)
        The sites, and the options of each, in order.
    question : dict
        The keys of the question, as scenario files have them.
    delta : float
        The probability of a wrong answer is at most this.
    options : dict
        Further options of the method.
    bounds : tuple of two float
        The smallest and the largest possible reward.
    goal : {"max", "min"}
        Whether higher or lower rewards are better.
    unit : str
        What rewards are measured in, such as "ms".
    binary : bool
        Whether every reward is one of the two bounds.
    deadline : float or None
        Seconds after which a missing reward counts as `missing`; None to wait for ever.
    missing : float or None
        What a reward counts as that did not come in time.
    after : {"winner", "stop"}
        What `ask` does after the verdict.
    seed : int
        The seed of the random order of assignments.
    key : str
        The secret that tokens and notices are signed with.
    name : str
        A label.
    """

    arms: tuple[tuple[str, tuple[str, ...]], ...]
    question: dict[str, Any]
    delta: float
    options: dict[str, Any]
    bounds: tuple[float, float]
    goal: str
    binary: bool
    deadline: float | None
    missing: float | None
    after: str
    seed: int
    key: str
    unit: str = ""
    name: str = ""

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        """The options of each site."""
        return dict(self.arms)

    @property
    def asked(self) -> str:
        """The question in words, with the weights of the sites if they differ."""
        layout = self.problem().layout
        text, weights = QUESTIONS[layout.question.kind], layout.question.weights
        if layout.question.kind != "each" and layout.question.by_site:
            text = f"{text.removesuffix('?')}, and {QUESTIONS['each']}"
        if len(set(weights)) < 2:
            return text
        shares = (f"{group.name} {weight:.2g}" for group, weight in zip(layout.groups, weights, strict=True))
        return f"{text} (weights: {', '.join(shares)})"

    def problem(self) -> Problem:
        """The problem, whose rewards come from outside."""
        groups = tuple(Group(name, arms, (name,), self.binary) for name, arms in self.arms)
        rewards = tuple((Unknown(binary=self.binary),) * len(arms) for _, arms in self.arms)
        found = Problem(Layout(groups), rewards, Scale(*self.bounds, goal=self.goal, unit=self.unit))
        return found.asking(**self.question)

    def prepared(self) -> tuple[Problem, str, Common]:
        """The problem, the method and its options, all checked."""
        keys = {**self.options, "delta": self.delta}
        return prepare(self.problem(), DEFAULT_METHOD, keys)

    def differences(self, other: Settings) -> list[str]:
        """The names of the settings that differ, apart from the secret and the label."""
        names = [field for field in self.__struct_fields__ if field not in ("key", "name")]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


def make_settings(
    options: Sequence[str] | Mapping[str, Sequence[str]],
    sites: Sequence[str] | None,
    question: str | None,
    *,
    delta: float,
    bounds: tuple[float, float],
    goal: str,
    unit: str = "",
    binary: bool,
    deadline: float | str | None,
    missing: float | None,
    after: str,
    seed: int | None,
    keys: Mapping[str, Any],
    name: str = "",
) -> Settings:
    """Check the arguments of an experiment; see ``Settings``.

    `keys` are further keys of the question (`weights`, `control`, …) and options of the method.

    Raises
    ------
    InputError
        If an argument is invalid or does not fit the others.
    """
    shared = not isinstance(options, Mapping)
    asked = {"question": question or ("overall" if shared else "anywhere")}
    asked |= {key: value for key, value in keys.items() if key in KEYS and key != "question"}
    chosen = {key: value for key, value in keys.items() if key not in KEYS}
    several = len(sites) > 1 if sites is not None else not shared and len(options) > 1
    if asked["question"] != "anywhere" or not chosen.get("epsilon"):  # see docs/experiments.md
        chosen.setdefault("open_blocks", OPEN_BLOCKS)
    if asked["question"] != "each" and several and chosen.get("open_blocks", 1) != 1:
        chosen.setdefault("allocation", "pace")
    if chosen.get("byzantine"):
        raise InputError(
            "an experiment is one program, in which no site can lie",
            expected="byzantine = 0",
            fix="Start a federation, and serve each client with: bestarm client DIR --serve HOST:PORT",
        )
    if "privacy" in chosen:
        raise InputError(
            "an experiment stores rewards as they are told, so it can't keep them private",
            expected="no privacy",
            fix="Use a federation whose clients pull with --arms, --exec or --http",
        )
    found = Settings(
        arms=tuple(_sites(options, sites).items()),
        question=asked,
        delta=delta,
        options=chosen,
        bounds=_pair(bounds),
        goal=goal,
        unit=unit,
        binary=binary,
        deadline=_deadline(deadline),
        missing=missing,
        after=after,
        seed=check_seed(seed),
        key=secrets.token_hex(16),
        name=name,
    )
    if after not in AFTER:
        raise InputError(f"after = {shorten(after)}", expected='"winner" or "stop"')
    if (deadline is None) != (missing is None):
        raise InputError(
            f"deadline = {deadline} with missing = {missing}",
            expected="both or none: after the deadline a missing reward counts as `missing`",
            fix="For example: deadline=86400, missing=0",
        )
    if missing is not None:
        check_reward(missing, found, "missing")
    found.prepared()
    return found


def check_reward(value: object, settings: Settings, where: str) -> float:
    """A reward as a number; InputError if it is none, or out of bounds."""
    number = float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan
    low, high = settings.bounds
    if settings.binary and number not in (low, high):
        raise InputError(f"a reward of {shorten(value)}", where=where, expected=f"{low:g} or {high:g}")
    if not low <= number <= high:
        raise InputError(f"a reward of {shorten(value)}", where=where, expected=f"from {low:g} to {high:g}")
    return number


def _sites(
    options: Sequence[str] | Mapping[str, Sequence[str]], sites: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """The options of each site, checked for their types only."""
    if isinstance(options, Mapping):
        if sites is not None and list(sites) != list(options):
            raise InputError("sites are not those of options", expected="one of them: leave out sites")
        return {site: _names(own, f'options of site "{site}"') for site, own in options.items()}
    names = _names(options, "options")
    return dict.fromkeys(_names(sites, "sites") if sites is not None else (ONE_SITE,), names)


def _names(names: object, where: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise InputError(f"{shorten(names)} can't be used", where=where, expected="a list of names")
    if len(set(names)) < len(names):
        raise InputError("a name is used twice", where=where, expected="each name once")
    return tuple(names)


def _pair(bounds: object) -> tuple[float, float]:
    if not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise InputError(f"bounds = {shorten(bounds)}", expected="(low, high) with low < high")
    return float(bounds[0]), float(bounds[1])


def _deadline(deadline: object) -> float | None:
    if deadline is None:
        return None
    if isinstance(deadline, str):
        return in_seconds(deadline, "deadline")
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
        raise InputError(
            f"deadline = {shorten(deadline)}", expected='a number of seconds above 0, or a text such as "24h"'
        )
    return float(deadline)
