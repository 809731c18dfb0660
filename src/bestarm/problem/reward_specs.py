"""Builds reward models from descriptions by a user, a scenario file or a record."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, cast

from bestarm.errors import InputError, RewardError
from bestarm.problem.counted_recording import CountedRecording
from bestarm.problem.rewards import (
    Bernoulli,
    Beta,
    Function,
    Recording,
    RewardModel,
    Table,
    Unknown,
    tabulate,
)
from bestarm.problem.scale import UNIT, Scale
from bestarm.util.text import shorten


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
            fix="Declare bounds = [low, high] if rewards are on another scale",
        )
    return value


def _bernoulli(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    mean = _inside("mean", _number("mean", keys["mean"]), bounds, "mean")
    if bounds == (scale.low, scale.high):
        return Bernoulli(scale.inner(mean))
    # The group's bounds are narrower than the common scale, so its two values may not be 0 and 1.
    share = (mean - bounds[0]) / (bounds[1] - bounds[0])
    return tabulate([scale.inner(b) for b in bounds], [1.0 - share, share])


def _beta(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    a, b = _number("a", keys["a"]), _number("b", keys["b"])
    low = _inside("low", _number("low", keys.get("low", bounds[0])), bounds, "low end")
    high = _inside("high", _number("high", keys.get("high", bounds[1])), bounds, "high end")
    if not low < high:
        raise InputError(f"beta on [{low:g}, {high:g}]", expected="low < high")
    ends = scale.inner(low), scale.inner(high)
    return Beta(a, b, *ends) if scale.goal == "max" else Beta(b, a, ends[1], ends[0])


def _table(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    values = [_inside("values", v, bounds, "reward") for v in _numbers("values", keys["values"])]
    weights = _numbers("weights", keys["weights"]) if "weights" in keys else [1.0] * len(values)
    if len(weights) != len(values):
        raise InputError(f"{len(weights)} weights for {len(values)} values", where="weights")
    return tabulate([scale.inner(v) for v in values], weights)


def _recording(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    try:
        return _recorded(keys, bounds, scale)
    except InputError as error:
        raise RewardError(error.what, where=error.where, expected=error.expected, fix=error.fix) from None


def _recorded(keys: Mapping[str, Any], bounds: tuple[float, float], scale: Scale) -> RewardModel:
    values = [_inside("values", v, bounds, "reward") for v in _numbers("values", keys["values"])]
    played = tuple(scale.inner(v) for v in values)
    if "counts" not in keys:
        if "order" in keys:
            raise InputError("order belongs to counts; values alone are played in their own order")
        return Recording(played)
    counts = _numbers("counts", keys["counts"])
    if len(counts) != len(values):
        raise InputError(f"{len(counts)} counts for {len(values)} values", where="counts")
    if any(n < 0 or n != int(n) for n in counts):
        raise InputError(f"counts = {shorten(keys['counts'])}", expected="whole numbers of at least 0")
    order = _number("order", keys.get("order", 0))
    if order < 0 or order != int(order):
        raise InputError(f"order = {shorten(keys['order'])}", expected="a whole number of at least 0")
    return CountedRecording(played, tuple(int(n) for n in counts), int(order))


Builder = Callable[[Mapping[str, Any], tuple[float, float], Scale], RewardModel]

# kind -> (keys it needs, keys it may have, builder): what a scenario's arm table or a record may name.
KINDS: dict[str, tuple[frozenset[str], frozenset[str], Builder]] = {
    "bernoulli": (frozenset({"mean"}), frozenset(), _bernoulli),
    "beta": (frozenset({"a", "b"}), frozenset({"low", "high"}), _beta),
    "table": (frozenset({"values"}), frozenset({"weights"}), _table),
    "recording": (frozenset({"values"}), frozenset({"counts", "order"}), _recording),
}


def from_spec(spec: Mapping[str, Any]) -> RewardModel:
    """The model with exactly this ``spec()``, which is already on [0, 1]."""
    match spec:
        case {"kind": "bernoulli", "mean": mean}:
            return Bernoulli(mean)
        case {"kind": "table", "values": values, "weights": weights}:
            return Table(tuple(values), tuple(weights))
        case {"kind": "recording", "values": values, "counts": counts, "order": order}:
            return CountedRecording(tuple(values), tuple(counts), order)
        case {"kind": "recording", "values": values}:
            return Recording(tuple(values))
        case {"kind": "beta", "a": a, "b": b, "low": low, "high": high}:
            return Beta(a, b, low, high)
    raise InputError(f"{shorten(spec)} does not describe rewards")


def build(arm: object, bounds: tuple[float, float] = (0.0, 1.0), scale: Scale | None = None) -> RewardModel:
    """The model that a mean, a table of keys, or a function describes, mapped to [0, 1].

    `bounds` are those of the group; `scale` is shared by all groups.

    >>> build(0.3)
    Bernoulli(p=0.3)
    >>> build({"kind": "table", "values": [1, 5], "weights": [1, 3]}, (1, 5), Scale(1, 5))
    Bernoulli(p=0.75)
    """
    scale = scale or Scale(*bounds)
    if isinstance(arm, Unknown):  # with narrower bounds, its two values may not be 0 and 1
        return Unknown(arm.mean, arm.binary and bounds == (scale.low, scale.high))
    if hasattr(arm, "sums"):
        if scale != UNIT:
            raise InputError("a custom reward model must pay in [0, 1]", fix="Leave out bounds and goal")
        return cast(RewardModel, arm)
    if callable(arm):
        return Function(arm, low=scale.ends[0], high=scale.ends[1], within=bounds)
    if not isinstance(arm, Mapping):
        if isinstance(arm, bool) or not isinstance(arm, Real):
            raise RewardError(
                f"{shorten(arm)} does not describe an arm",
                expected='a mean, or a table such as { kind = "beta", … }',
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
