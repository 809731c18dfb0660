"""Reward models: what a pull of an arm pays, as *sums of m draws*.

Rewards lie in [0, 1] (problem.py maps other scales there). The primitive is ``sums(rng, times, start)``:
for each entry of `times`, the sum of that many further draws, exact in law; in O(1) for Bernoulli arms,
O(values) for tables, O(m) otherwise. ``moments`` is the same with the squares and the extremes of the draws
(see moments.py). A model has no state and no generator: `start` is the number of earlier draws of this arm
(only a recording, which is played once, needs it).

To add a model, write a small frozen class with the members of ``RewardModel``, give it a row in ``KINDS``
(reward_specs.py) if scenario files may name it, and list an example in ``tests/problem/test_rewards.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from bestarm.errors import InputError, RewardError
from bestarm.problem.moments import CHUNK, Floats, of_counts, of_draws, of_ones, of_values
from bestarm.util.text import shorten


class RewardModel(Protocol):
    """One arm's rewards."""

    @property
    def mean(self) -> float | None:
        """The true mean, or None if it is unknown (a user's function)."""

    @property
    def binary(self) -> bool:
        """Whether every reward is 0 or 1, so that sums are integers."""

    @property
    def limit(self) -> int | None:
        """The number of draws available; None if unlimited."""

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        """For each entry m of `times`, the sum of m draws."""

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        """For each entry m of `times`, (sum, sum of squares, least, most) of m draws, as a last axis.

        For m = 0 they are 0, 0, 1, 0.
        """

    def spec(self) -> dict[str, Any] | None:
        """What a record needs to rebuild this model; None if it can't be stored."""


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Rewards of 1 with probability `p`, else 0; the sum is one binomial draw.

    Parameters
    ----------
    p : float
        The mean, in [0, 1].

    Examples
    --------
    >>> float(Bernoulli(0.5).sums(np.random.default_rng(1), 10**9))
    499990526.0
    """

    p: float
    binary: bool = field(default=True, init=False, repr=False)
    limit: None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise InputError(f"mean {self.p} is outside the range of rewards", expected="a mean in [0, 1]")

    @property
    def mean(self) -> float:
        return self.p

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return np.asarray(rng.binomial(np.asarray(times, dtype=np.int64), self.p), dtype=np.float64)

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return of_ones(self.sums(rng, times), times)

    def spec(self) -> dict[str, Any]:
        return {"kind": "bernoulli", "mean": self.p}


@dataclass(frozen=True)
class Table:
    """Draws with replacement from recorded `values` with `weights`; the sum is one multinomial draw.

    Parameters
    ----------
    values : tuple of float
        The rewards, in [0, 1].
    weights : tuple of float
        Their weights; they are normalised.
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]
    limit: None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.weights):
            raise InputError("a table needs at least one value, and as many weights as values")
        if not all(0 <= w <= 2.0**50 for w in self.weights) or not sum(self.weights) > 0:
            raise InputError("a table's weights must be finite (at most 2^50), not negative, and not all 0")
        for value in self.values:
            if not 0.0 <= value <= 1.0:
                raise InputError(f"reward {value} is outside the range", expected="rewards in [0, 1]")

    @property
    def probabilities(self) -> Floats:
        weights = np.asarray(self.weights, dtype=np.float64)
        return np.asarray(weights / weights.sum())

    @property
    def mean(self) -> float:
        return math.fsum(v * w for v, w in zip(self.values, self.weights, strict=True)) / math.fsum(
            self.weights
        )

    @property
    def binary(self) -> bool:
        return set(self.values) <= {0.0, 1.0}

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        counts = rng.multinomial(np.asarray(times), self.probabilities)
        return np.asarray(counts @ np.asarray(self.values, dtype=np.float64))

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return of_counts(rng.multinomial(np.asarray(times), self.probabilities), self.values)

    def spec(self) -> dict[str, Any]:
        return {"kind": "table", "values": list(self.values), "weights": list(self.weights)}


@dataclass(frozen=True)
class Recording:
    """Recorded `values`, each played once, in order; after the last one the arm has no more rewards.

    Parameters
    ----------
    values : tuple of float
        The rewards, in [0, 1].
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        Table(self.values, (1.0,) * len(self.values))  # checks the values

    @property
    def mean(self) -> None:
        """Unknown: a recording is a sample, and may drift."""
        return None

    @property
    def binary(self) -> bool:
        return set(self.values) <= {0.0, 1.0}

    @property
    def limit(self) -> int:
        return len(self.values)

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        # Summed again each time: differences of running sums could leave [0, m] by rounding.
        times = np.asarray(times, dtype=np.int64)
        sums = [float(self._values[start : start + m].sum()) for m in times.ravel().tolist()]
        return np.asarray(sums).reshape(times.shape)

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        times = np.asarray(times, dtype=np.int64)
        found = [of_values(self._values[start : start + m]) for m in times.ravel().tolist()]
        return np.asarray(found).reshape(*times.shape, 4)

    @cached_property
    def _values(self) -> Floats:
        return np.asarray(self.values, dtype=np.float64)

    def spec(self) -> dict[str, Any]:
        return {"kind": "recording", "values": list(self.values)}


@dataclass(frozen=True)
class Beta:
    """Beta(a, b) rewards, optionally rescaled to a part [low, high] of [0, 1].

    Parameters
    ----------
    a, b : float
        The parameters of the distribution.
    low, high : float
        The range of the rewards.
    """

    a: float
    b: float
    low: float = 0.0
    high: float = 1.0
    binary: bool = field(default=False, init=False, repr=False)
    limit: None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.a > 0 and self.b > 0 and math.isfinite(self.a) and math.isfinite(self.b)):
            raise InputError(f"beta with a = {self.a}, b = {self.b}", expected="two positive finite numbers")
        if not 0.0 <= self.low < self.high <= 1.0:
            raise InputError(f"beta on [{self.low}, {self.high}]", expected="a part of [0, 1]")

    @property
    def mean(self) -> float:
        return self.low + (self.high - self.low) * self.a / (self.a + self.b)

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        draw = _summed(times, lambda m: rng.beta(self.a, self.b, m))
        total = self.low * np.asarray(times) + (self.high - self.low) * draw
        return np.clip(total, 0.0, np.asarray(times, dtype=np.float64))  # rounding may exceed the bounds

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        def draw(m: int) -> Floats:
            rewards = self.low + (self.high - self.low) * rng.beta(self.a, self.b, m)
            return np.clip(rewards, self.low, self.high)

        return of_draws(times, draw)

    def spec(self) -> dict[str, Any]:
        return {"kind": "beta", "a": self.a, "b": self.b, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Function:
    """Rewards from a user's function.

    Parameters
    ----------
    f : callable
        ``f(rng)`` returns one reward, or, with ``batch=True``, ``f(rng, m)`` returns m rewards.
    mean : float, optional
        The true mean, in [0, 1], if it is known.
    binary : bool
        Whether every reward is mapped to 0 or 1.
    batch : bool
        Whether `f` returns several rewards.
    low, high : float
        The rewards that are mapped to 0 and 1; `low` may be the larger one.
    within : pair of float, optional
        The allowed range of rewards; by default from `low` to `high`.

    Examples
    --------
    >>> coin = Function(lambda rng: rng.random() < 0.25, mean=0.25)
    >>> float(coin.sums(np.random.default_rng(1), 8))
    1.0
    """

    f: Callable[..., Any]
    mean: float | None = None
    binary: bool = False
    batch: bool = False
    low: float = 0.0
    high: float = 1.0
    within: tuple[float, float] | None = None
    limit: None = field(default=None, init=False, repr=False)

    def draw(self, rng: np.random.Generator, m: int) -> Floats:
        """m single rewards, checked and mapped to [0, 1]."""
        raw = self.f(rng, m) if self.batch else [self.f(rng) for _ in range(m)]
        try:
            drawn = np.asarray(raw, dtype=np.float64)
        except (TypeError, ValueError):
            raise RewardError(f"a reward function gave {shorten(raw)}", expected="numbers") from None
        if drawn.shape != (m,):
            raise InputError(
                f"a reward function returned an array of shape {drawn.shape}",
                expected=f"{m} numbers in a flat sequence",
            )
        low, high = self.within or sorted((self.low, self.high))
        wrong = ~((drawn >= low) & (drawn <= high))
        if wrong.any():
            raise RewardError(
                f"a reward function gave {drawn[wrong][0]}",
                expected=f"rewards in [{low}, {high}]",
                fix="Declare bounds = (low, high) if rewards are on another scale",
            )
        unit = np.asarray((drawn - self.low) / (self.high - self.low))
        if self.binary and not np.isin(unit, (0.0, 1.0)).all():
            raise InputError("a reward function that was declared binary gave a value other than 0 or 1")
        return unit

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return _summed(times, lambda m: self.draw(rng, m))

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return of_draws(times, lambda m: self.draw(rng, m))

    def spec(self) -> None:
        return None


@dataclass(frozen=True)
class Unknown:
    """An arm whose rewards are not available in this process: they come from a site or a journal."""

    mean: float | None = None
    binary: bool = False
    limit: None = field(default=None, init=False, repr=False)

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        raise AssertionError("nothing is drawn here")

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        raise AssertionError("nothing is drawn here")

    def spec(self) -> None:
        return None


def _summed(times: ArrayLike, draw: Callable[[int], Floats]) -> Floats:
    """For each entry of `times` the sum of that many draws, in pieces that fit in memory."""
    times = np.asarray(times, dtype=np.int64)
    totals = np.zeros(times.shape)
    for place, m in np.ndenumerate(times):
        pieces = [CHUNK] * (int(m) // CHUNK) + [int(m) % CHUNK] * bool(m % CHUNK)
        totals[place] = sum(float(draw(piece).sum()) for piece in pieces)
    return totals


def tabulate(values: Sequence[float], weights: Sequence[float] | None = None) -> Bernoulli | Table:
    """A model for draws with replacement from recorded rewards; equal values are merged.

    >>> tabulate([0, 1, 1, 1])
    Bernoulli(p=0.75)
    >>> tabulate([0.5, 0.25, 0.5])
    Table(values=(0.25, 0.5), weights=(1.0, 2.0))
    """
    heap: dict[float, float] = {}
    for value, weight in zip(values, weights or [1.0] * len(values), strict=True):
        heap[float(value)] = heap.get(float(value), 0.0) + float(weight)
    table = Table(tuple(sorted(heap)), tuple(heap[v] for v in sorted(heap)))
    return Bernoulli(table.mean) if table.binary else table
