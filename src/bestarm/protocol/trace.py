"""A run as its certificate shows it: each group's arm over time, and which arms were dropped and why.

``Method.trace`` turns the certificate of a method into a ``Trace``, so that reports, figures and the terminal
show every method in the same way. All numbers are in [0, 1]. The certificate may belong to a run that is
still in progress, and it may be forged: this module does not check names and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bestarm.protocol.options import Common
from bestarm.stats.intervals import clopper_pearson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Row = dict[str, Any]

ILLUSTRATIVE = 0.025  # the level of each end of an illustrative 95 % interval


@dataclass(frozen=True)
class Certificate:
    """A certificate, with the facts that are needed to read it.

    Parameters
    ----------
    options : Common
        The method's options.
    arms : tuple of int
        The number of arms of each group.
    clients : tuple of tuple of str
        The names of each group's clients.
    server : mapping
        The server's part; for peers it has no rounds.
    local : mapping
        The clients' parts by name, as far as known.
    """

    options: Common
    arms: tuple[int, ...]
    clients: tuple[tuple[str, ...], ...]
    server: Mapping[str, Any]
    local: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class View:
    """One group in one round: the pulls of its arm, its mean and its interval. Peers have no rounds."""

    group: int
    round: int | None
    pulls: int
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Line:
    """One group's arm over time. `out`: the round in which the server dropped the group; `withdrew`: the
    first round in which it was missing without having been dropped."""

    group: int
    arm: int | None
    views: tuple[View, ...]
    out: int | None = None
    withdrew: int | None = None


@dataclass(frozen=True)
class LostTest:
    """The arm lost an exact test: its p-value was at most the level."""

    p: float
    level: float


@dataclass(frozen=True)
class FarBehind:
    """The mean of the arm was at least `bound` below the best mean."""

    bound: float


@dataclass(frozen=True)
class Apart:
    """The interval of the arm ended at `end`, at or below `best`, the largest lower bound."""

    end: float
    best: float


@dataclass(frozen=True)
class Wealth:
    """The bets against the arm had won: the logarithm of their wealth reached the limit, ln(1/δ)."""

    log_wealth: float
    limit: float


Why = LostTest | FarBehind | Apart | Wealth


@dataclass(frozen=True)
class Bet:
    """A block of bets against an arm, on a champion, and the logarithm of the wealth after it.

    `begin` and `end` are the pulls, before and after the block, of an arm that was never the champion.
    """

    group: int
    arm: int
    champion: tuple[int, int]
    begin: int
    end: int
    log_wealth: float


@dataclass(frozen=True)
class Wealths:
    """All bets in the order of blocks. An arm leaves when the logarithm of its wealth reaches the limit."""

    limit: float
    bets: tuple[Bet, ...]


@dataclass(frozen=True)
class Exit:
    """A dropped arm, or a dropped group.

    Parameters
    ----------
    group : int
        The group.
    arm : int or None
        The arm; None for the whole group.
    clients : int or None
        How many clients of the group dropped it; None if the server did.
    pulls : tuple of two int
        The fewest and the most pulls of the arm at that time.
    round : int or None
        The server's round.
    mean : float
        The mean of the arm at that time.
    rival : tuple of (int, int or None), or None
        The group and the arm that beat it, as far as known.
    rival_mean : float or None
        The mean of the rival at that time.
    why : Why or None
        Why it was dropped.
    """

    group: int
    arm: int | None
    clients: int | None
    pulls: tuple[int, int]
    round: int | None
    mean: float
    rival: tuple[int, int | None] | None
    rival_mean: float | None
    why: Why | None


class Trace(Protocol):
    """A certificate in a form that can be displayed."""

    def lines(self) -> list[Line]:
        """Each group's arm over time, in the order in which the groups appear."""

    def exits(self) -> list[Exit]:
        """The arms and groups that were dropped."""

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """For each arm, the sum of a client's rewards by number of pulls, as far as known."""

    def dropped(self, client: str) -> set[int]:
        """The arms of a client's group that the client or the server has dropped."""

    def interval(self, group: Ints, counts: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """The intervals of arms of these groups with these counts and sums, clipped to [0, 1]."""

    def drawable(self, group: int, counts: Floats) -> NDArray[np.bool_]:
        """Whether the interval after these numbers of pulls is narrow enough to draw."""

    def wealths(self) -> Wealths | None:
        """The bets against each arm; None for a method without bets."""


@dataclass(frozen=True)
class RoundTrace:
    """The trace of a server that records count, mean, lower and upper of each active group in each round.

    The row of a round has "round", "group", "count", "mean", "lower", "upper" and "out" (the groups that were
    dropped). It may also have "arm" and "threshold" (the largest lower bound). This is the default trace.
    """

    certificate: Certificate

    def views(self, row: Mapping[str, Any]) -> list[View]:
        """The view of each group in one round."""
        if "mean" not in row:
            return []
        columns = (row["group"], row["count"], row["mean"], row["lower"], row["upper"])
        return [View(j, row["round"], *values) for j, *values in zip(*columns, strict=True)]

    def lines(self) -> list[Line]:
        """Each group's arm as the server saw it, round by round."""
        rounds = self.certificate.server["rounds"]
        by_group: dict[int, list[View]] = {}
        for row in rounds:
            for view in self.views(row):
                by_group.setdefault(view.group, []).append(view)
        arms = {j: arm for row in rounds for j, arm in zip(row["group"], row.get("arm", []), strict=False)}
        arms = arms or dict(enumerate(self.certificate.server.get("arms") or []))
        fell = {j: row["round"] for row in rounds for j in row["out"]}
        final = max((row["round"] for row in rounds), default=0)
        found = []
        for j, views in by_group.items():
            arm, after = arms.get(j), (views[-1].round or 0) + 1
            missing = after if j not in fell and after <= final else None
            named = None if arm is None or arm < 0 else arm
            found.append(Line(j, named, tuple(views), out=fell.get(j), withdrew=missing))
        return found

    def exits(self) -> list[Exit]:
        """The groups that the server dropped."""
        return list(self.server_exits())

    def server_exits(self) -> Iterator[Exit]:
        """Each group that was dropped, with the end of its interval and the threshold that beat it."""
        for row in self.certificate.server["rounds"]:
            seen = {view.group: view for view in self.views(row)}
            for j in row["out"]:
                view = seen[j]
                why = Apart(min(view.upper, 1.0), row["threshold"]) if "threshold" in row else None
                yield Exit(j, None, None, (view.pulls, view.pulls), row["round"], view.mean, None, None, why)

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """Empty: the format of the client's part is unknown."""
        return {}

    def dropped(self, client: str) -> set[int]:
        """Empty: the format of the client's part is unknown."""
        return set()

    def interval(self, group: Ints, counts: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """An exact 95 % interval, for illustration only."""
        return clopper_pearson(sums, counts, ILLUSTRATIVE)

    def drawable(self, group: int, counts: Floats) -> NDArray[np.bool_]:
        """True for all counts."""
        return np.ones(len(counts), dtype=bool)

    def wealths(self) -> Wealths | None:
        """None: the method makes no bets."""
        return None


def rows(columns: Mapping[str, Sequence[object]]) -> list[Row]:
    """The columns of a certificate as rows.

    >>> rows({"arm": [1, 2], "epoch": [10, 20]})
    [{'arm': 1, 'epoch': 10}, {'arm': 2, 'epoch': 20}]
    """
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def local_exits(certificate: Certificate) -> Iterator[tuple[int, int, list[tuple[str, Row]]]]:
    """The arms that clients dropped: group, arm, and the clients that dropped it with their rows."""
    for j, clients in enumerate(certificate.clients):
        seen: dict[int, list[tuple[str, Row]]] = {}
        for client in clients:
            for row in rows(certificate.local.get(client, {}).get("exits", {})):
                seen.setdefault(row["arm"], []).append((client, row))
        for arm, found in seen.items():
            yield j, arm, found
