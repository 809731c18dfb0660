"""Visitors of live experiments: when they come, what each option would earn, and how late that is known.

Everything about a visitor is fixed in advance, so that the same visitors can come to several experiments.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Visitor:
    """A visitor: the arrival, the reward of each option, and after how many seconds it is told."""

    number: int
    time: int
    site: str
    rewards: tuple[float, ...]
    told: tuple[int, ...]


def visitors(
    seed: int,
    count: int,
    sites: dict[str, tuple[float, Sequence[float]]],
    *,
    delay: float = 100.0,
    lost: float = 0.0,
    repeats: float = 0.0,
) -> list[Visitor]:
    """Visitors of sites, each of which has arrivals per second and the mean of each option.

    Delays depend on the site and the hour, not on rewards. A share `lost` is never told; `repeats` is the
    mean number of times that a reward is told again, and changes nothing else.
    """
    rng, other = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    names, rates = list(sites), np.array([rate for rate, _ in sites.values()])
    times = np.floor(np.cumsum(rng.exponential(1.0 / rates.sum(), count))).astype(int)
    at = rng.choice(len(names), count, p=rates / rates.sum())
    found = []
    for number, (time, s) in enumerate(zip(times.tolist(), at.tolist(), strict=True)):
        means = np.array(sites[names[s]][1])
        rewards = tuple((rng.random(len(means)) < means).astype(float).tolist())
        mean = delay * (1 + s) * (1.0 + 0.9 * np.sin(time / 500.0))
        first = 1 + int(rng.exponential(mean))
        again = 0 if rng.random() < lost else 1 + int(other.poisson(repeats))
        late = np.cumsum([first, *other.integers(0, 400, size=max(again - 1, 0))])
        found.append(Visitor(number, time, names[s], rewards, tuple(late[:again].tolist())))
    return found


def seconds(people: Sequence[Visitor]) -> Iterator[tuple[int, list[Visitor], list[Visitor]]]:
    """Second by second: who arrives, and whose reward is told (again)."""
    telling: list[tuple[int, int]] = []
    place = 0
    while place < len(people) or telling:
        now = min([*(p.time for p in people[place : place + 1]), *(t for t, _ in telling[:1])])
        arriving = []
        while place < len(people) and people[place].time == now:
            person = people[place]
            arriving.append(person)
            for after in person.told:
                heapq.heappush(telling, (person.time + after, person.number))
            place += 1
        told = []
        while telling and telling[0][0] <= now:
            told.append(people[heapq.heappop(telling)[1]])
        yield now, arriving, told
