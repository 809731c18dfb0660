"""The options of the methods, each declared once with its help text and its check.

A method's options are a frozen dataclass whose fields are created by ``option``. Scenario files, Python
keywords and the command line all use ``make``, so they share the same checks and error messages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

from bestarm.errors import InputError
from bestarm.problem.scale import Scale
from bestarm.util.text import nearest

AnyOptions = TypeVar("AnyOptions", bound="Common")


def on_unit_scale(options: AnyOptions, scale: Scale) -> AnyOptions:
    """A method's options in the form that its machines use: see ``Common.rescaled``."""
    return options.rescaled(scale)


T = TypeVar("T")
Check = Callable[[object], bool]


def option(
    default: T, help: str, check: Check, expected: str, unset: str = "no limit", *, scaled: bool = False
) -> T:
    """A field of an options class.

    Parameters
    ----------
    default : object
        The value if none is given.
    help : str
        The meaning, for the command line and the docs.
    check : callable
        ``check(value)`` says whether a value is valid.
    expected : str
        What a valid value is, for errors.
    unset : str
        What a default of None means.
    scaled : bool
        Whether the value is in units of the rewards.

    Returns
    -------
    object
        A field of a dataclass, typed as its default.
    """
    shown = unset if default is None else str(default)
    facts = {"help": help, "check": check, "expected": expected, "shown": shown, "scaled": scaled}
    return dataclasses.field(default=default, metadata=facts)


def number(at_least: float = -math.inf, below: float = math.inf, above: float = -math.inf) -> Check:
    """Check for a number in [at_least, below) that is greater than `above`; by default any finite one."""

    def check(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return at_least <= value < below and value > above

    return check


def whole(at_least: int, at_most: int = 2**50, *, optional: bool = False) -> Check:
    """Check for a whole number in [at_least, at_most]; with `optional`, None is allowed too."""

    def check(value: object) -> bool:
        if value is None:
            return optional
        return isinstance(value, int) and not isinstance(value, bool) and at_least <= value <= at_most

    return check


def switch(value: object) -> bool:
    """Check for True or False."""
    return isinstance(value, bool)


def choice(*names: str) -> Check:
    """Check for one of these words."""
    return lambda value: isinstance(value, str) and value in names


def make(options: type[T], keys: Mapping[str, Any], where: str = "") -> T:
    """The options with these keys set. An InputError names the key, its value and what was expected."""
    fields = {f.name: f for f in dataclasses.fields(options)}  # type: ignore[arg-type]
    values = {}
    for key, value in keys.items():
        if key not in fields:
            raise unknown_key(key, fields, where)
        field = fields[key]
        _check(key, value, field, where)
        # Accept an int where a float is expected, but store a float, so that records are uniform.
        values[key] = float(value) if isinstance(field.default, float) else value
    return options(**values)


def unknown_key(key: str, known: Iterable[str], where: str = "") -> InputError:
    """The error for an option that no method has; privacy is a property of the problem."""
    private = "Privacy belongs to the problem: problem.private(…), or privacy = … at the top of a scenario"
    fix = private if key == "privacy" else nearest(key, known)
    return InputError(f'key "{key}" is unknown', where=where, fix=fix)


def accepts(options: type[Common], key: str, value: object) -> bool:
    """Whether a method with these options has this key and can use this value."""
    field = options.__dataclass_fields__.get(key)
    return field is not None and bool(field.metadata["check"](value))


def _check(key: str, value: object, field: dataclasses.Field[Any], where: str) -> None:
    if not field.metadata["check"](value):
        raise InputError(f"{key} = {value!r} can't be used", where=where, expected=field.metadata["expected"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every method has.

    The options of each method derive from this class. ``ba.identify(problem, ba.Fisher(prefer="rounds"))`` is
    the same as ``ba.identify(problem, "fisher", prefer="rounds")``.

    Parameters
    ----------
    delta : float
        The largest probability of a wrong answer.
    epsilon : float
        How far the answer may be from the best arm, in units of the rewards.
    byzantine : int
        The largest number of liars in each group.
    budget : int, optional
        The largest number of pulls that one client may make.
    max_rounds : int, optional
        The largest number of rounds.
    summaries : bool
        Whether each client sends, after the verdict, the pulls and the sums of the rewards of all its arms.

    Raises
    ------
    InputError
        If an option has an invalid value. The error names the option and the expected values.
    """

    delta: float = option(
        0.05,
        "largest probability of a wrong answer",
        number(1e-100, below=1.0),
        "a number in (0, 1), ends excluded",
    )
    epsilon: float = option(
        0.0,
        "how far the answer may be from the best arm, in units of the rewards",
        number(0.0),
        "at least 0",
        scaled=True,
    )
    byzantine: int = option(0, "liars in each group", whole(0), "a whole number of at least 0")
    budget: int | None = option(
        None, "pulls that one client may make", whole(1, optional=True), "a whole number of at least 1"
    )
    max_rounds: int | None = option(
        None, "rounds that the run may take", whole(1, optional=True), "a whole number of at least 1"
    )
    summaries: bool = option(
        True, "whether clients send the sums of all their arms after the verdict", switch, "true or false"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name), field, "")

    def rescaled(self, scale: Scale) -> Self:
        """These options for rewards in [0, 1]: those in units of the rewards are divided by their range."""
        scaled = [field.name for field in dataclasses.fields(self) if field.metadata.get("scaled")]
        return dataclasses.replace(self, **{name: getattr(self, name) / scale.width for name in scaled})
