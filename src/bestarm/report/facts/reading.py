"""A method's trace as facts: on the user's scale, with names, and reduced to what a picture can show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.problem.scale import Scale
from bestarm.protocol.trace import Apart, Bet, Exit, FarBehind, Floats, Ints, Line, Why
from bestarm.records.views import read_certificate, subject
from bestarm.report.facts.structs import BandFacts, BetFacts, ExitFacts, LineFacts, TraceFacts, WealthFacts

MOST_POINTS = 120  # of one line
MOST_PANELS = 12  # groups whose arms are drawn
Points = Mapping[tuple[str, int, int], Mapping[int, float]]  # (client, group, arm) -> pulls -> their sum


class Reader:
    """A certificate of a finished or unfinished run, ready to be drawn."""

    def __init__(
        self,
        method: str,
        delta: float,
        options: Mapping[str, Any],
        problem: Mapping[str, Any],
        certificate: Mapping[str, Any],
    ) -> None:
        self.trace = read_certificate(method, delta, options, problem, certificate)
        self.problem, self.groups, self.scale = problem, problem["groups"], Scale(**problem["scale"])
        self.asks = "question" in problem
        self.local: Mapping[str, Mapping[str, Any]] = certificate.get("local") or {}

    def arm(self, j: int, a: int) -> str:
        """An arm's full name."""
        return subject(self.problem, j, a)

    def around(self, j: int | Ints, counts: Sequence[int], sums: Sequence[float]) -> BandFacts:
        """Means and intervals after this many pulls, of an arm of group j or of arms of several groups."""
        n, total = np.asarray(counts, dtype=np.float64), np.asarray(sums, dtype=np.float64)
        groups = np.broadcast_to(np.asarray(j, dtype=np.int64), n.shape)
        return self._band(counts, total / n, *self.trace.interval(groups, n, total))

    def _band(self, counts: Iterable[int], mean: Floats, lower: Floats, upper: Floats) -> BandFacts:
        low, high = np.maximum(lower, 0.0), np.minimum(upper, 1.0)
        if self.scale.goal == "min":
            low, high = high, low
        mean_, low_, high_ = (tuple(self.scale.user(x) for x in xs.tolist()) for xs in (mean, low, high))
        return BandFacts(pulls=tuple(counts), mean=mean_, lower=low_, upper=high_)

    def lines(self) -> tuple[LineFacts, ...]:
        """Each group's arm over time."""
        return tuple(self._line(line) for line in self.trace.lines())

    def _line(self, line: Line) -> LineFacts:
        shown = [line.views[k] for k in thin(len(line.views))]
        columns = (np.array([getattr(v, key) for v in shown]) for key in ("mean", "lower", "upper"))
        band = self._band([v.pulls for v in shown], *columns)
        when = line.withdrew if line.out is None else line.out
        return LineFacts(
            group=line.group,
            name=subject(self.problem, line.group, line.arm),
            round=tuple(v.round for v in shown if v.round is not None),
            fate="out" if line.out is not None else "withdrew" if when is not None else "in",
            when=when,
            pulls=band.pulls,
            mean=band.mean,
            lower=band.lower,
            upper=band.upper,
        )

    def exits(self) -> tuple[ExitFacts, ...]:
        """Dropped arms and groups, when and why: arms inside their group, and groups at the server."""
        exits = list(self.trace.exits())
        bands = self._bands(exits)
        return tuple(self._exit(exit_, bands.get(k)) for k, exit_ in enumerate(exits))

    def _bands(self, exits: Sequence[Exit]) -> dict[int, tuple[float, float]]:
        """By its place in the list: the interval of each dropped arm, all of them computed at once."""
        places = [k for k, e in enumerate(exits) if e.arm is not None and not self.asks and e.pulls[1] > 0]
        groups = np.array([exits[k].group for k in places], dtype=np.int64)
        counts = [exits[k].pulls[0] for k in places]
        band = self.around(groups, counts, [exits[k].mean * exits[k].pulls[0] for k in places])
        return dict(zip(places, zip(band.lower, band.upper, strict=True), strict=True))

    def wealths(self) -> WealthFacts | None:
        """The wealth of the bets against each option, block by block; None without bets."""
        found = self.trace.wealths()
        if found is None:
            return None
        by_arm: dict[tuple[int, int], list[Bet]] = {}
        for bet in found.bets:
            by_arm.setdefault(bet.champion, [])
            by_arm.setdefault((bet.group, bet.arm), []).append(bet)
        first = min(bet.begin for bet in found.bets)
        return WealthFacts(
            found.limit,
            tuple(self._bets(arm, bets, first, found.limit) for arm, bets in sorted(by_arm.items())),
        )

    def _bets(self, arm: tuple[int, int], bets: list[Bet], first: int, limit: float) -> BetFacts:
        kept = [bets[k] for k in thin(len(bets))]
        return BetFacts(
            name=self.arm(*arm),
            pulls=(first, *(bet.end for bet in kept)),
            log_wealth=(0.0, *(bet.log_wealth for bet in kept)),
            out=bool(bets) and bets[-1].log_wealth >= limit,
        )

    def _exit(self, exit_: Exit, interval: tuple[float, float] | None) -> ExitFacts:
        j, user = exit_.group, self.scale.user
        whole = f"{subject(self.problem, j)} (the whole group)"
        return ExitFacts(
            name=whole if exit_.arm is None else self.arm(j, exit_.arm),
            group=j,
            clients=exit_.clients,
            of=None if exit_.clients is None else len(self.groups[j]["clients"]),
            pulls=exit_.pulls[0],
            pulls_last=exit_.pulls[1],
            round=exit_.round,
            mean=user(exit_.mean),
            rival=self._rival(exit_),
            rival_mean=None if exit_.rival_mean is None else user(exit_.rival_mean),
            why=self._why(exit_.why),
            lower=None if interval is None else interval[0],
            upper=None if interval is None else interval[1],
        )

    def _rival(self, exit_: Exit) -> str | None:
        if exit_.rival is None:
            return None if exit_.rival_mean is None else "the leader of all groups"
        j, a = exit_.rival
        if a is not None:
            return self.arm(j, a)
        return subject(self.problem, j) if exit_.clients is None else "another arm of the group"

    def _why(self, why: Why | None) -> Why | None:
        """Convert to the user's scale."""
        if isinstance(why, FarBehind):
            return FarBehind(self.scale.width * why.bound)
        if isinstance(why, Apart):
            return Apart(self.scale.user(why.end), self.scale.user(why.best))
        return why

    def leading(self) -> list[int]:
        """The groups that are drawn arm by arm: the winner, and those that came closest."""
        sign = 1 if self.scale.goal == "min" else -1
        lines = sorted(self.lines(), key=lambda line: (line.fate != "in", sign * line.mean[-1]))
        return [line.group for line in lines[:MOST_PANELS]] or list(range(len(self.groups)))[:MOST_PANELS]

    def traces(self) -> tuple[TraceFacts, ...]:
        """Each arm as its group's first honest client saw it, as far as the record shows it."""
        points: dict[tuple[str, int, int], dict[int, float]] = {}
        for j in () if self.asks else self.leading():
            clients = self.groups[j]["clients"]
            client = next((c for c in clients if "sent" in self.local.get(c, {})), None)
            if client is not None:
                points |= {(client, j, a): line for a, line in self.trace.sums(client).items()}
        return self.drawn(points)

    def drawn(self, points: Points) -> tuple[TraceFacts, ...]:
        """Counts and sums, by client, group and arm, as lines."""
        gone = {client: self.trace.dropped(client) for client in {client for client, _, _ in points}}
        found = []
        for (client, j, a), line in points.items():
            counts = sorted(n for n in line if n > 0)
            worth = self.trace.drawable(j, np.asarray(counts, dtype=np.float64))
            counts = [n for n, fits in zip(counts, worth, strict=True) if fits] or counts[-1:]
            counts = [counts[k] for k in thin(len(counts))]
            if not counts:
                continue
            band = self.around(j, counts, [line[n] for n in counts])
            found.append(
                TraceFacts(
                    group=j,
                    arm=self.groups[j]["arms"][a],
                    client=client,
                    out=a in gone[client],
                    pulls=band.pulls,
                    mean=band.mean,
                    lower=band.lower,
                    upper=band.upper,
                )
            )
        return tuple(found)


def thin(count: int) -> list[int]:
    """Indices of at most MOST_POINTS points: the first, the last, and evenly spread ones between."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(k) for k in np.linspace(0, count - 1, MOST_POINTS)})
