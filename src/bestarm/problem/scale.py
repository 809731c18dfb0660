"""The user's scale of rewards, and which end is the better one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bestarm.errors import InputError


@dataclass(frozen=True)
class Scale:
    """The user's scale of rewards, [low, high], and which end is better.

    >>> ms = Scale(0.0, 200.0, goal="min")
    >>> ms.unit(50.0), ms.user(0.75), ms.user_interval(0.5, 0.75)
    (0.75, 50.0, (50.0, 100.0))
    """

    low: float = 0.0
    high: float = 1.0
    goal: str = "max"

    def __post_init__(self) -> None:
        if self.goal not in ("max", "min"):
            raise InputError(f'goal = "{self.goal}" is unknown', expected='"max" or "min"')
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InputError(f"bounds = [{self.low}, {self.high}]", expected="[low, high] with low < high")

    @property
    def ends(self) -> tuple[float, float]:
        """The user's values that become 0 and 1."""
        return (self.low, self.high) if self.goal == "max" else (self.high, self.low)

    def unit(self, x: float) -> float:
        zero, one = self.ends
        return (x - zero) / (one - zero)

    def user(self, y: float) -> float:
        zero, one = self.ends
        return zero + y * (one - zero)

    def user_interval(self, lower: float, upper: float) -> tuple[float, float]:
        """An interval of means on the user's scale, clipped to [low, high]."""
        a, b = sorted((self.user(min(max(lower, 0.0), 1.0)), self.user(min(max(upper, 0.0), 1.0))))
        return a, b


UNIT = Scale()
