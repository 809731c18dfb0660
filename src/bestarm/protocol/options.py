"""Options of the methods: declared once, with their help and their check.

A method's options are a frozen dataclass whose fields are made by ``option``. Scenario files, Python
keywords and the command line all go through ``make``, so that each gets the same checks and messages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bestarm.errors import InputError, nearest

T = TypeVar("T")
Check = Callable[[Any], bool]


def option(default: Any, help: str, check: Check, expected: str, unset: str = "no limit") -> Any:
    """A field of an options class; `unset` says in words what a default of None means."""
    shown = unset if default is None else str(default)
    facts = {"help": help, "check": check, "expected": expected, "shown": shown}
    return dataclasses.field(default=default, metadata=facts)


def number(at_least: float = -math.inf, below: float = math.inf, above: float = -math.inf) -> Check:
    """A number in [at_least, below), greater than `above`; by default any finite one."""

    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return at_least <= value < below and value > above

    return check


def whole(at_least: int, at_most: int = 2**50, *, optional: bool = False) -> Check:
    """A whole number in [at_least, at_most]; with `optional` also None."""

    def check(value: Any) -> bool:
        if value is None:
            return optional
        return isinstance(value, int) and not isinstance(value, bool) and at_least <= value <= at_most

    return check


def switch(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool)


def choice(*names: str) -> Check:
    """One of these words."""
    return lambda value: isinstance(value, str) and value in names


def make(options: type[T], keys: Mapping[str, Any], where: str = "") -> T:
    """The options with these keys set; InputError names the key, its value and what was expected."""
    fields = {f.name: f for f in dataclasses.fields(options)}  # type: ignore[arg-type]
    values = {}
    for key, value in keys.items():
        if key not in fields:
            raise InputError(f'key "{key}" is unknown', where=where, fix=nearest(key, fields))
        field = fields[key]
        if not field.metadata["check"](value):
            raise InputError(
                f"{key} = {value!r} can't be used", where=where, expected=field.metadata["expected"]
            )
        # A whole number is welcome where a real one is meant; records then always hold a real one.
        values[key] = float(value) if isinstance(field.default, float) else value
    return options(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every method has."""

    delta: float = option(
        0.05, "failure probability", number(1e-100, below=1.0), "a number in (0, 1), ends excluded"
    )
    epsilon: float = option(
        0.0, "how far from the best the answer may be, in units of the rewards", number(0.0), "at least 0"
    )
    byzantine: int = option(0, "liars in each group", whole(0), "a whole number of at least 0")
    budget: int | None = option(
        None, "pulls that one client may make", whole(1, optional=True), "a whole number of at least 1"
    )
    max_rounds: int | None = option(
        None, "rounds that the run may take", whole(1, optional=True), "a whole number of at least 1"
    )
