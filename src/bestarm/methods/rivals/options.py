"""The options of the rivals: those of every method. Each has a class of its own, which has its schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bestarm.methods.rivals import schedules
from bestarm.protocol.options import Common


@dataclass(frozen=True, kw_only=True)
class Rival(Common, ABC):
    """Options of a rival; `proved` says whether an error probability of at most δ is proved for it."""

    proved: ClassVar[bool] = True

    @abstractmethod
    def schedule(self, players: int, options: int) -> Iterator[tuple[int, float]]:
        """n_r and the margin of each round."""


@dataclass(frozen=True, kw_only=True)
class FedElim(Rival):
    """Options of `fed-elim`: those of every method."""

    def schedule(self, players: int, options: int) -> Iterator[tuple[int, float]]:
        return schedules.fed_elim(players, options, self.delta)


@dataclass(frozen=True, kw_only=True)
class Collaborative(Rival):
    """Options of `collaborative`: those of every method."""

    def schedule(self, players: int, options: int) -> Iterator[tuple[int, float]]:
        return schedules.collaborative(players, options, self.delta)


@dataclass(frozen=True, kw_only=True)
class Fpe(Rival):
    """Options of `fpe`: those of every method."""

    def schedule(self, players: int, options: int) -> Iterator[tuple[int, float]]:
        return schedules.fpe(players, options, self.delta, theory=self.proved)


@dataclass(frozen=True, kw_only=True)
class FpeHeuristic(Fpe):
    """Options of `fpe-heuristic`: those of every method."""

    proved: ClassVar[bool] = False
