"""Recorded rewards that a table counts: each is played once, in a random order that is fixed in advance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError
from bestarm.problem.moments import Floats, of_values
from bestarm.problem.rewards import Table

MOST_REMEMBERED = 2**16  # rewards of an arm, up to which orders are remembered


@dataclass(frozen=True)
class CountedRecording:
    """Distinct recorded values and how often each occurred; every reward is played once.

    Any order that does not depend on the rewards is as good as another. Only the counts are kept in a record,
    so that millions of rewards do not fill it.

    Parameters
    ----------
    distinct : tuple of float
        The distinct rewards, in [0, 1].
    counts : tuple of int
        How often each occurred.
    order : int
        It fixes the random order, together with the number of rewards.

    Examples
    --------
    >>> arm = CountedRecording((0.0, 1.0), (2, 3))
    >>> arm.limit, sorted(arm.values)
    (5, [0.0, 0.0, 1.0, 1.0, 1.0])
    """

    distinct: tuple[float, ...]
    counts: tuple[int, ...]
    order: int = 0

    def __post_init__(self) -> None:
        Table(self.distinct, self.counts)  # checks them
        if any(isinstance(n, bool) or int(n) != n for n in self.counts):
            raise InputError("counts of rewards must be whole numbers")
        if len(set(self.distinct)) < len(self.distinct):
            raise InputError("a reward occurs twice among the distinct ones", expected="each of them once")

    @property
    def mean(self) -> None:
        """Unknown: a recording is a sample."""
        return None

    @property
    def binary(self) -> bool:
        return set(self.distinct) <= {0.0, 1.0}

    @property
    def limit(self) -> int:
        return sum(self.counts)

    @property
    def values(self) -> tuple[float, ...]:
        """All rewards in the order in which they are played."""
        return tuple(self._played(0, self.limit).tolist())

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        if isinstance(times, int):  # of a single run, which draws thousands of arms one by one
            return np.asarray(np.add.reduce(self._played(start, times)))
        times = np.asarray(times, dtype=np.int64)
        sums = [float(self._played(start, m).sum()) for m in times.ravel().tolist()]
        return np.asarray(sums).reshape(times.shape)

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        times = np.asarray(times, dtype=np.int64)
        found = [of_values(self._played(start, m)) for m in times.ravel().tolist()]
        return np.asarray(found).reshape(*times.shape, 4)

    def _played(self, start: int, times: int) -> Floats:
        return np.asarray(self._distinct[self._codes[start : start + times]])

    @cached_property
    def _distinct(self) -> Floats:
        return np.asarray(self.distinct, dtype=np.float64)

    @cached_property
    def _codes(self) -> NDArray[np.unsignedinteger[Any]]:
        """For each reward in the order of play, which value it has."""
        kind = np.min_scalar_type(len(self.distinct) - 1)
        codes = np.repeat(np.arange(len(self.distinct), dtype=kind), self.counts)
        if len(codes) > MOST_REMEMBERED:
            _generator(self.order, len(codes)).shuffle(codes)
            return codes
        return np.asarray(codes[_permutation(self.order, len(codes))])

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "recording",
            "values": list(self.distinct),
            "counts": list(self.counts),
            "order": self.order,
        }


def _generator(order: int, size: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([order, size]))


@lru_cache(maxsize=64)
def _permutation(order: int, size: int) -> NDArray[np.int32]:
    """The order of play of so many rewards, which is the same for all arms that have as many."""
    places = np.arange(size, dtype=np.int32)
    _generator(order, size).shuffle(places)
    return places


def rewards_in(spec: dict[str, Any] | None) -> int | None:
    """How many rewards a recording holds, from its ``spec``; None if that is not of a recording.

    >>> counted = CountedRecording((1.0,), (7,))
    >>> rewards_in({"kind": "recording", "values": [0.0, 1.0]}), rewards_in(counted.spec())
    (2, 7)
    """
    if not spec or spec["kind"] != "recording":
        return None
    return sum(spec["counts"]) if "counts" in spec else len(spec["values"])
