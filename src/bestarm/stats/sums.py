"""The sums of rewards from which all bets and intervals are computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = int | slice | NDArray[np.int64] | NDArray[np.bool_] | None


@dataclass(frozen=True)
class Sums:
    """The number of rewards, their sum, the sum of their squares, the smallest and the largest one.

    Each is an array of the same shape, one value per arm or cell.
    """

    count: Floats
    total: Floats
    squares: Floats
    least: Floats
    most: Floats

    @staticmethod
    def none(shape: tuple[int, ...] | int) -> Sums:
        """No rewards."""
        zeros = (np.zeros(shape) for _ in range(4))
        return Sums(next(zeros), next(zeros), next(zeros), np.ones(shape), next(zeros))

    def plus(self, other: Sums) -> Sums:
        """These rewards and others."""
        return Sums(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
        )

    def at(self, place: Index | tuple[Index, ...]) -> Sums:
        """The rewards of some of the arms; `place` is an index of the arrays."""
        return Sums(*(np.asarray(part[place]) for part in self.parts))

    def mirrored(self) -> Sums:
        """The sums of 1 − x for these rewards x."""
        squares = self.count - 2 * self.total + self.squares
        return Sums(self.count, self.count - self.total, squares, 1.0 - self.most, 1.0 - self.least)

    @property
    def parts(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """All five numbers, in the order of the class."""
        return self.count, self.total, self.squares, self.least, self.most
