"""Checks the parts of a problem's description: clients, bounds, and each client's reward models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bestarm.errors import InputError
from bestarm.problem.coins import Coined
from bestarm.problem.copies import copies
from bestarm.problem.counted_recording import CountedRecording
from bestarm.problem.layout import MAX_CLIENTS, Group
from bestarm.problem.privacy import Private
from bestarm.problem.reward_specs import build, from_spec
from bestarm.problem.rewards import Recording, RewardModel
from bestarm.problem.scale import Scale
from bestarm.util.text import shorten


def models_of(reward: Any, clients: int, bounds: tuple[float, float], scale: Scale) -> list[RewardModel]:
    """The model that all clients of a group share, or one per client if a recording has a list for each."""
    values = reward.get("values") if isinstance(reward, Mapping) else None
    lists = isinstance(values, list | tuple) and any(isinstance(part, list | tuple) for part in values)
    if values is None or not lists or reward.get("kind") != "recording":
        return [build(reward, bounds, scale)]
    if len(values) != clients:
        raise InputError(
            f"{len(values)} lists of values for {clients} client{'s' * (clients > 1)}",
            where="values",
            expected="one list of values per client",
        )
    models: list[RewardModel] = []
    first: dict[int, int] = {}  # [rewards] * 3 is one list that three clients would share
    for i, part in enumerate(values):
        try:
            same = first.setdefault(id(part), i) if isinstance(part, list) else i
            models.append(build({**reward, "values": part}, bounds, scale) if same == i else models[same])
        except InputError as error:
            raise error.at(f"client {i + 1}") from None
    return models


def demand_own_recordings(group: Group, models: Sequence[Sequence[RewardModel]]) -> None:
    """InputError if clients of a group share a recording: each reward would count several times.

    A recording that is another client's up to its end counts as shared, too. Equal values that may be equal
    by chance, such as [0, 1, 1], are shared only if they are one object.
    """
    for arm, column in zip(group.arms, zip(*models, strict=True), strict=True):
        whole = [m.model if isinstance(m, Coined | Private) else m for m in column if m.limit is not None]
        if len(whole) < 2:
            continue
        times = max(Counter(map(id, whole)).values())
        times = max(times, copies([m.values for m in whole if isinstance(m, Recording | CountedRecording)]))
        if times > 1:
            raise InputError(
                f"{times} clients share one recording, so each of its rewards would count {times} times",
                where=f'group "{group.name}", arm "{arm}"',
                expected="one recording per client",
                fix="Give one list of values per client, values = [[…], […]], or leave the group one client",
            )


def models_from_specs(group: str, specs: Sequence[Mapping[str, Any] | None]) -> tuple[RewardModel, ...]:
    if any(spec is None for spec in specs):
        raise InputError(
            "the rewards came from a user's function, which a record can't contain", where=f'group "{group}"'
        )
    return tuple(from_spec(spec) for spec in specs if spec is not None)


def average(means: Sequence[float | None]) -> float | None:
    known = [m for m in means if m is not None]
    if len(known) < len(means):
        return None
    return known[0] if len(set(known)) == 1 else sum(known) / len(known)


def client_counts(groups: Mapping[str, Any], clients: Any) -> list[Any]:
    """How many clients each group has, or their names."""
    if isinstance(clients, Mapping):
        counts = [clients.get(name, 1) for name in groups]
    elif isinstance(clients, Sequence):
        counts = list(clients)
    else:
        counts = [clients] * len(groups)
    if len(counts) != len(groups):
        raise InputError(f"{len(counts)} numbers of clients for {len(groups)} groups", where="clients")
    return counts


def client_names(group: str, count: Any) -> tuple[str, ...]:
    if isinstance(count, Sequence) and not isinstance(count, str):
        return tuple(count)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_CLIENTS:
        raise InputError(
            f"clients = {shorten(count)}",
            where=f'group "{group}"',
            expected=f"a whole number from 1 to {MAX_CLIENTS:,}",
        )
    return tuple(f"{group}-{i}" for i in range(1, count + 1))


def check_bounds(pair: Any, where: str) -> None:
    numbers = (
        isinstance(pair, Sequence)
        and len(pair) == 2
        and all(isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e300 for x in pair)
    )
    if not numbers:
        raise InputError(f"{shorten(pair)} can't be used", where=where, expected="[low, high], two numbers")
    try:
        Scale(float(pair[0]), float(pair[1]))
    except InputError as error:
        raise error.at(where) from None
