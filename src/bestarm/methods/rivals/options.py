"""The options of the rivals: those of every method. Each has a class of its own, which names its schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bestarm.methods.rivals.schedules import Schedule, collaborative, fed_elim, fpe_heuristic, fpe_theory
from bestarm.protocol.options import Common


@dataclass(frozen=True, kw_only=True)
class Rival(Common):
    """Options of a rival; `schedule` gives its rounds, and `proved` says whether δ is proved for it."""

    schedule: ClassVar[Schedule]
    proved: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class FedElim(Rival):
    """Options of `fed-elim`: those of every method."""

    schedule: ClassVar[Schedule] = staticmethod(fed_elim)


@dataclass(frozen=True, kw_only=True)
class Collaborative(Rival):
    """Options of `collaborative`: those of every method."""

    schedule: ClassVar[Schedule] = staticmethod(collaborative)


@dataclass(frozen=True, kw_only=True)
class Fpe(Rival):
    """Options of `fpe`: those of every method."""

    schedule: ClassVar[Schedule] = staticmethod(fpe_theory)


@dataclass(frozen=True, kw_only=True)
class FpeHeuristic(Rival):
    """Options of `fpe-heuristic`: those of every method."""

    schedule: ClassVar[Schedule] = staticmethod(fpe_heuristic)
    proved: ClassVar[bool] = False
