"""Reward models: what a pull of an arm pays, as *sums of m draws*.

Rewards lie in [0, 1] (problem.py maps other scales there). The primitive is ``sums(rng, times, start)``:
for each entry of `times`, the sum of that many further draws, exact in law; in O(1) for Bernoulli arms,
O(values) for tables, O(m) otherwise. A model holds no state and no generator: `start` says how many draws
of this arm were made before (only a recording that is played once needs it).

To add a model, write a small frozen class with the members of ``RewardModel``, give it a row in ``KINDS``
if scenario files may name it, and list an example in ``tests/test_rewards.py``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError, shorten

Floats = NDArray[np.float64]
CHUNK = 1 << 16


class RewardModel(Protocol):
    """One arm's rewards."""

    @property
    def mean(self) -> float | None:
        """The true mean, or None where nobody knows it (a user's function)."""

    @property
    def binary(self) -> bool:
        """Whether every reward is 0 or 1, so that sums are integers."""

    @property
    def limit(self) -> int | None:
        """How many draws there are; None for no end."""

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        """For each entry m of `times`, the sum of m draws."""

    def spec(self) -> dict[str, Any] | None:
        """What a record needs to build this model again; None where it can't be written down."""


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """1 with probability `p`, else 0; the sum is one binomial draw.

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

    def spec(self) -> dict[str, Any]:
        return {"kind": "bernoulli", "mean": self.p}


@dataclass(frozen=True)
class Table:
    """Draws with replacement from recorded `values` with `weights`; the sum is one multinomial draw."""

    values: tuple[float, ...]
    weights: tuple[float, ...]
    limit: None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.weights):
            raise InputError("a table needs as many weights as values, and at least one")
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

    def spec(self) -> dict[str, Any]:
        return {"kind": "table", "values": list(self.values), "weights": list(self.weights)}


@dataclass(frozen=True)
class Recording:
    """Recorded `values`, each played once, in their order; after the last one the arm has nothing left."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        Table(self.values, (1.0,) * len(self.values))  # the same demands

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
        # Summed anew each time: differences of running sums could leave [0, m] by rounding.
        times = np.asarray(times, dtype=np.int64)
        sums = [float(self._values[start : start + m].sum()) for m in times.ravel().tolist()]
        return np.asarray(sums).reshape(times.shape)

    @cached_property
    def _values(self) -> Floats:
        return np.asarray(self.values, dtype=np.float64)

    def spec(self) -> dict[str, Any]:
        return {"kind": "recording", "values": list(self.values)}


@dataclass(frozen=True)
class Beta:
    """Beta(a, b) rewards, optionally on a part [low, high] of [0, 1]."""

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
        return np.clip(total, 0.0, np.asarray(times, dtype=np.float64))  # rounding may pass the end

    def spec(self) -> dict[str, Any]:
        return {"kind": "beta", "a": self.a, "b": self.b, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Function:
    """A user's function: ``f(rng)`` gives one reward, or with ``batch=True`` ``f(rng, m)`` gives m of them.

    `low` becomes 0 and `high` 1 (they may be the other way round); rewards must lie `within`.

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
        """m single rewards, checked and brought to [0, 1]."""
        raw = self.f(rng, m) if self.batch else [self.f(rng) for _ in range(m)]
        drawn = np.asarray(raw, dtype=np.float64)
        if drawn.shape != (m,):
            raise InputError(
                f"a reward function gave {drawn.shape} rewards", expected=f"{m} numbers in a flat sequence"
            )
        low, high = self.within or sorted((self.low, self.high))
        wrong = ~((drawn >= low) & (drawn <= high))
        if wrong.any():
            raise InputError(
                f"a reward function gave {drawn[wrong][0]}",
                expected=f"rewards in [{low}, {high}]",
                fix="Declare bounds = (low, high) if rewards live on another scale",
            )
        unit = np.asarray((drawn - self.low) / (self.high - self.low))
        if self.binary and not np.isin(unit, (0.0, 1.0)).all():
            raise InputError("a reward function that was declared binary gave another value than 0 or 1")
        return unit

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return _summed(times, lambda m: self.draw(rng, m))

    def spec(self) -> None:
        return None


@dataclass(frozen=True)
class Unknown:
    """An arm of which this process has no rewards: they come from a site, or from a journal."""

    mean: float | None = None
    binary: bool = False
    limit: None = field(default=None, init=False, repr=False)

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        raise AssertionError("nothing is drawn here")

    def spec(self) -> None:
        return None


@dataclass(frozen=True)
class Coined:
    """Another model's rewards X, each turned into a coin that shows 1 with probability X.

    The mean stays, rewards become 0/1, and sums stay exact in law: where rewards are independent draws of a
    known law, so are the coins, and their sum is binomial.
    """

    model: RewardModel
    binary: bool = field(default=True, init=False, repr=False)

    @property
    def mean(self) -> float | None:
        return self.model.mean

    @property
    def limit(self) -> int | None:
        return self.model.limit

    @property
    def p(self) -> float | None:
        """The probability of a 1 where coins are independent, so that sums are binomial; else None."""
        return self.model.mean if isinstance(self.model, Table | Beta) else None

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        if self.p is not None:
            return Bernoulli(self.p).sums(rng, times)
        times = np.asarray(times, dtype=np.int64)
        totals = np.zeros(times.shape)
        for place, m in np.ndenumerate(times):
            for first in range(0, int(m), CHUNK):
                rewards = self._rewards(rng, min(CHUNK, int(m) - first), start + first)
                totals[place] += float((rng.random(len(rewards)) < rewards).sum())
        return totals

    def _rewards(self, rng: np.random.Generator, m: int, start: int) -> Floats:
        if isinstance(self.model, Function):
            return self.model.draw(rng, m)
        return np.asarray([float(self.model.sums(rng, 1, start + i)) for i in range(m)])

    def spec(self) -> dict[str, Any] | None:
        return self.model.spec()


def coined(model: RewardModel) -> RewardModel:
    """The model itself if its rewards are 0/1, else its coins.

    >>> coined(Bernoulli(0.3)), coined(Table((0.0, 0.5), (1.0, 1.0))).mean
    (Bernoulli(p=0.3), 0.25)
    """
    return model if model.binary else Coined(model)


def _summed(times: ArrayLike, draw: Callable[[int], Floats]) -> Floats:
    """For each entry of `times` the sum of that many draws, in pieces that fit in memory."""
    times = np.asarray(times, dtype=np.int64)
    totals = np.zeros(times.shape)
    for place, m in np.ndenumerate(times):
        pieces = [CHUNK] * (int(m) // CHUNK) + [int(m) % CHUNK] * bool(m % CHUNK)
        totals[place] = sum(float(draw(piece).sum()) for piece in pieces)
    return totals


def tabulate(values: Sequence[float], weights: Sequence[float] | None = None) -> Bernoulli | Table:
    """A model for draws with replacement from recorded rewards; equal values are put together.

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


def stream(seed: int, client: int, arm: int, *part: int) -> np.random.Generator:
    """The generator of one client's draws of one arm (or a `part` of them): a leaf of the run's seed tree."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(client, arm, *part))))


@dataclass(frozen=True)
class Scale:
    """The user's rewards in [low, high], and which end is the better one.

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
        """An interval of means in the user's scale, cut to what is possible there."""
        a, b = sorted((self.user(min(max(lower, 0.0), 1.0)), self.user(min(max(upper, 0.0), 1.0))))
        return a, b


UNIT = Scale()


def _number(where: str, value: object) -> float:
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # a whole number with hundreds of digits
            number = float(value)
    if not math.isfinite(number):
        raise InputError(f"{shorten(value)} is not a finite number", where=where)
    return number


def _numbers(where: str, value: object) -> list[float]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise InputError(f"{value!r} is not a list of numbers", where=where)
    return [_number(f"{where}[{i}]", v) for i, v in enumerate(value)]


def _inside(where: str, value: float, bounds: tuple[float, float], what: str) -> float:
    if not bounds[0] <= value <= bounds[1]:
        raise InputError(
            f"{what} {value:g} is outside [{bounds[0]:g}, {bounds[1]:g}]",
            where=where,
            expected=f"a {what} between {bounds[0]:g} and {bounds[1]:g}",
            fix="Declare bounds = [low, high] if rewards live on another scale",
        )
    return value


def _bernoulli(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    mean = _inside("mean", _number("mean", keys["mean"]), bounds, "mean")
    if bounds == (scale.low, scale.high):
        return Bernoulli(scale.unit(mean))
    # A group whose bounds are narrower than the common scale: two values, neither need be 0 or 1.
    share = (mean - bounds[0]) / (bounds[1] - bounds[0])
    return tabulate([scale.unit(b) for b in bounds], [1.0 - share, share])


def _beta(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    a, b = _number("a", keys["a"]), _number("b", keys["b"])
    low = _inside("low", _number("low", keys.get("low", bounds[0])), bounds, "low end")
    high = _inside("high", _number("high", keys.get("high", bounds[1])), bounds, "high end")
    if not low < high:
        raise InputError(f"beta on [{low:g}, {high:g}]", expected="low < high")
    ends = scale.unit(low), scale.unit(high)
    return Beta(a, b, *ends) if scale.goal == "max" else Beta(b, a, ends[1], ends[0])


def _table(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    values = [_inside("values", v, bounds, "reward") for v in _numbers("values", keys["values"])]
    weights = _numbers("weights", keys["weights"]) if "weights" in keys else [1.0] * len(values)
    if len(weights) != len(values):
        raise InputError(f"{len(weights)} weights for {len(values)} values", where="weights")
    return tabulate([scale.unit(v) for v in values], weights)


def _recording(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    values = [_inside("values", v, bounds, "reward") for v in _numbers("values", keys["values"])]
    return Recording(tuple(scale.unit(v) for v in values))


Builder = Callable[[Mapping[str, Any], tuple[float, float], Scale], RewardModel]

# kind -> (keys it needs, keys it may have, builder): what a scenario's arm table or a record may name.
KINDS: dict[str, tuple[frozenset[str], frozenset[str], Builder]] = {
    "bernoulli": (frozenset({"mean"}), frozenset(), _bernoulli),
    "beta": (frozenset({"a", "b"}), frozenset({"low", "high"}), _beta),
    "table": (frozenset({"values"}), frozenset({"weights"}), _table),
    "recording": (frozenset({"values"}), frozenset(), _recording),
}


def from_spec(spec: Mapping[str, Any]) -> RewardModel:
    """The model whose ``spec()`` this is, exactly; it is on [0, 1] already."""
    match spec:
        case {"kind": "bernoulli", "mean": mean}:
            return Bernoulli(mean)
        case {"kind": "table", "values": values, "weights": weights}:
            return Table(tuple(values), tuple(weights))
        case {"kind": "recording", "values": values}:
            return Recording(tuple(values))
        case {"kind": "beta", "a": a, "b": b, "low": low, "high": high}:
            return Beta(a, b, low, high)
    raise InputError(f"{shorten(spec)} describes no rewards")


def build(arm: object, bounds: tuple[float, float] = (0.0, 1.0), scale: Scale | None = None) -> RewardModel:
    """The model that a mean, a table of keys, or a function describes, mapped to [0, 1].

    `bounds` are the group's own, `scale` is the one that all groups share.

    >>> build(0.3)
    Bernoulli(p=0.3)
    >>> build({"kind": "table", "values": [1, 5], "weights": [1, 3]}, (1, 5), Scale(1, 5))
    Bernoulli(p=0.75)
    """
    scale = scale or Scale(*bounds)
    if isinstance(arm, Unknown):  # two values of a narrower range need be neither 0 nor 1
        return Unknown(arm.mean, arm.binary and bounds == (scale.low, scale.high))
    if hasattr(arm, "sums"):
        if scale != UNIT:
            raise InputError("a reward model of one's own pays in [0, 1]", fix="Leave out bounds and goal")
        return cast(RewardModel, arm)
    if callable(arm):
        return Function(arm, low=scale.ends[0], high=scale.ends[1], within=bounds)
    if not isinstance(arm, Mapping):
        if isinstance(arm, bool) or not isinstance(arm, Real):
            raise InputError(
                f"{shorten(arm)} describes no arm", expected='a mean, or a table such as { kind = "beta", … }'
            )
        arm = {"kind": "bernoulli", "mean": arm}
    kind = arm.get("kind", "bernoulli")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"kind = {shorten(kind)} is unknown", expected=" or ".join(f'"{k}"' for k in KINDS))
    needed, optional, builder = KINDS[kind]
    for key in needed - arm.keys():
        raise InputError(f'key "{key}" is missing', expected=f"{', '.join(sorted(needed))} for a {kind} arm")
    for key in arm.keys() - needed - optional - {"kind"}:
        known = ", ".join(sorted(needed | optional))
        raise InputError(f'key "{key}" is unknown', expected=f"{known} for a {kind} arm")
    return builder(arm, bounds, scale)
