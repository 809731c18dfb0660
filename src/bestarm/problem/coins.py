"""Coins: rewards that are not 0/1, turned into 0/1 rewards with the same mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bestarm.problem.moments import CHUNK, Floats, of_ones
from bestarm.problem.rewards import Bernoulli, Beta, Function, RewardModel, Table


def flips(rng: np.random.Generator, probabilities: ArrayLike) -> Floats:
    """Flip one coin per entry: 1 with that probability, else 0.

    >>> flips(np.random.default_rng(1), [0.0, 0.9, 1.0])
    array([0., 0., 1.])
    """
    p = np.asarray(probabilities, dtype=np.float64)
    return (rng.random(p.shape) < p).astype(np.float64)


@dataclass(frozen=True)
class Flipped(ABC):
    """What models share that turn another model's rewards X into coins.

    Rewards become 0/1, and sums remain exact in law: if rewards are independent draws from a known
    distribution, so are the coins, and their sum is binomial.
    """

    model: RewardModel

    @property
    @abstractmethod
    def p(self) -> float | None:
        """The probability of a 1 if coins are independent, so that sums are binomial; else None."""

    @abstractmethod
    def chances(self, rewards: Floats) -> Floats:
        """The probability of a 1 for each of these rewards."""

    @property
    def limit(self) -> int | None:
        return self.model.limit

    def sums(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        if self.p is not None:
            return Bernoulli(self.p).sums(rng, times)
        times = np.asarray(times, dtype=np.int64)
        totals = np.zeros(times.shape)
        for place, m in np.ndenumerate(times):
            for first in range(0, int(m), CHUNK):
                rewards = self._rewards(rng, min(CHUNK, int(m) - first), start + first)
                totals[place] += float(flips(rng, self.chances(rewards)).sum())
        return totals

    def moments(self, rng: np.random.Generator, times: ArrayLike, start: int = 0) -> Floats:
        return of_ones(self.sums(rng, times, start), times)

    def _rewards(self, rng: np.random.Generator, m: int, start: int) -> Floats:
        if isinstance(self.model, Function):
            return self.model.draw(rng, m)
        return np.asarray([float(self.model.sums(rng, 1, start + i)) for i in range(m)])


@dataclass(frozen=True)
class Coined(Flipped):
    """Another model's rewards X, each turned into a coin that shows 1 with probability X."""

    binary: bool = field(default=True, init=False, repr=False)

    @property
    def mean(self) -> float | None:
        return self.model.mean

    @property
    def p(self) -> float | None:
        return self.model.mean if isinstance(self.model, Table | Beta) else None

    def chances(self, rewards: Floats) -> Floats:
        return rewards

    def spec(self) -> dict[str, Any] | None:
        return self.model.spec()


def coined(model: RewardModel) -> RewardModel:
    """The model itself if its rewards are 0/1, else its coins.

    >>> coined(Bernoulli(0.3)), coined(Table((0.0, 0.5), (1.0, 1.0))).mean
    (Bernoulli(p=0.3), 0.25)
    """
    return model if model.binary else Coined(model)
