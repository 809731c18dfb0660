"""The user's scale of rewards, and which end is the better one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bestarm.errors import InputError
from bestarm.util.text import shorten

LONGEST_UNIT = 20  # characters


@dataclass(frozen=True)
class Scale:
    """The user's scale of rewards, [low, high], and which end is better.

    With `privacy` (ε per pull), clients report random answers whose mean is ½ + κ(x − ½), κ = tanh(ε/2), if a
    reward x lies in [0, 1]. That is a scale, too: 0 and 1 then stand for values beyond the bounds. `unit` is
    what rewards are measured in, such as "ms"; it is only shown.

    >>> ms = Scale(0.0, 200.0, goal="min", unit="ms")
    >>> ms.inner(50.0), ms.user(0.75), ms.user_interval(0.5, 0.75)
    (0.75, 50.0, (50.0, 100.0))
    >>> hidden = Scale(privacy=2.0)
    >>> round(hidden.inner(1.0), 4), round(hidden.user(0.6904), 3), hidden.user_interval(0.6, 0.95)[1]
    (0.8808, 0.75, 1.0)
    """

    low: float = 0.0
    high: float = 1.0
    goal: str = "max"
    privacy: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        if self.goal not in ("max", "min"):
            raise InputError(f'goal = "{self.goal}" is unknown', expected='"max" or "min"')
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InputError(f"bounds = [{self.low}, {self.high}]", expected="[low, high] with low < high")
        if not isinstance(self.unit, str) or len(self.unit) > LONGEST_UNIT or not self.unit.isprintable():
            raise InputError(
                f"unit = {shorten(self.unit)}",
                expected=f'at most {LONGEST_UNIT} printable characters, such as "ms"',
            )

    @property
    def slope(self) -> float:
        """κ: how much smaller differences of means are in the answers than in the rewards."""
        return 1.0 if self.privacy is None else math.tanh(self.privacy / 2.0)

    @property
    def width(self) -> float:
        """The distance of the user's values that become 0 and 1."""
        return (self.high - self.low) / self.slope

    @property
    def ends(self) -> tuple[float, float]:
        """The user's values that become 0 and 1."""
        low, high = self.low, self.high
        if self.privacy is not None:
            middle = (low + high) / 2.0
            low, high = middle - self.width / 2.0, middle + self.width / 2.0
        return (low, high) if self.goal == "max" else (high, low)

    def share(self, x: float) -> float:
        """A reward in [low, high] as a number in [0, 1], before it is replaced by a random answer."""
        plain = (x - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, plain if self.goal == "max" else 1.0 - plain))

    def inner(self, x: float) -> float:
        """A value of the user's as a number in [0, 1]; the inverse of ``user``."""
        zero, one = self.ends
        return (x - zero) / (one - zero)

    def user(self, y: float) -> float:
        """A value of the user's. An estimate from random answers may lie beyond the bounds; it is clipped."""
        zero, one = self.ends
        found = zero + y * (one - zero)
        return found if self.privacy is None else min(max(found, self.low), self.high)

    def user_interval(self, lower: float, upper: float) -> tuple[float, float]:
        """An interval of means on the user's scale, clipped to [low, high]."""
        a, b = sorted((self.user(min(max(lower, 0.0), 1.0)), self.user(min(max(upper, 0.0), 1.0))))
        return a, b

    def to_dict(self) -> dict[str, Any]:
        """The keys of the scale in a record; privacy and unit only if there is one."""
        hidden = {} if self.privacy is None else {"privacy": self.privacy}
        unit = {"unit": self.unit} if self.unit else {}
        return {"low": self.low, "high": self.high, "goal": self.goal, **hidden, **unit}


UNIT = Scale()
