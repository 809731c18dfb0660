"""Read the certificate of Fed-Bet; see ``protocol.trace``.

Fed-Bet decides by wealth and claims no interval for arms during a run; the intervals here are illustrative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.protocol.trace import (
    Bet,
    Exit,
    Floats,
    Ints,
    Line,
    RoundTrace,
    Row,
    View,
    Wealth,
    Wealths,
    local_exits,
)
from bestarm.stats import betting


@dataclass(frozen=True)
class Trace(RoundTrace):
    """Champions and standings as the server saw them, and the wealth of the arms in each client."""

    def views(self, row: Mapping[str, Any]) -> list[View]:
        """The view of each arm that a round told about, with an illustrative interval."""
        if "second" not in row:
            return super().views(row)
        count, mean, second = (np.asarray(row[c], dtype=np.float64) for c in ("count", "mean", "second"))
        low, high = betting.intervals(count, count * mean, count * second, 0 * mean, 0 * mean + 1, 0.05)
        columns = (row["group"], row["count"], row["mean"], low.tolist(), high.tolist())
        return [View(j, row["round"], *values) for j, *values in zip(*columns, strict=True)]

    def lines(self) -> list[Line]:
        """Each group's arm as the server saw it, and when the last of its arms had left."""
        rounds = self.certificate.server["rounds"]
        seen: dict[int, list[tuple[int, View]]] = {}
        for row in rounds:
            for arm, view in zip(row["arm"], self.views(row), strict=True):
                seen.setdefault(view.group, []).append((arm, view))
        left = {
            j: row["round"] for row in reversed(rounds) for j, there in enumerate(row["there"]) if not there
        }
        found = []
        for j, views in sorted(seen.items()):
            arm = views[-1][0]
            found.append(Line(j, arm, tuple(view for a, view in views if a == arm), withdrew=left.get(j)))
        return found

    @property
    def limit(self) -> float:
        """The logarithm of the wealth at which an arm leaves."""
        options = self.certificate.options
        return math.log(bet_decisions.exit_wealth(options.delta, options.epsilon))

    def exits(self) -> list[Exit]:
        """The arms whose wealth reached 1/δ."""
        return [
            self._exit(j, arm, client, row)
            for j, arm, by in local_exits(self.certificate)
            for client, row in by[:1]
        ]

    def _exit(self, j: int, arm: int, client: str, row: Row) -> Exit:
        sums = self.sums(client)[arm]
        pulls = max(sums)
        group, rival = row["champion"]
        return Exit(
            group=j,
            arm=arm,
            clients=1,
            pulls=(pulls, pulls),
            round=None,
            mean=sums[pulls] / pulls,
            rival=(group, rival),
            rival_mean=None,
            why=Wealth(row["log_wealth"], self.limit),
        )

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """The sums of the client's rewards by number of pulls, batch by batch."""
        found: dict[int, dict[int, float]] = {}
        for arm, pulls, total in self._running(client):
            found.setdefault(arm, {})[pulls] = total
        return found

    def _running(self, client: str) -> Iterator[tuple[int, int, float]]:
        made: dict[int, tuple[int, float]] = {}
        for row in self.certificate.local.get(client, {}).get("batches", ()):
            columns = (row.get(name, ()) for name in ("arms", "each", "sums"))
            for arm, each, total in zip(*columns, strict=True):
                count, before = made.get(arm, (0, 0.0))
                made[arm] = count + each * row["times"], before + total
                yield arm, *made[arm]

    def dropped(self, client: str) -> set[int]:
        """The arms that left."""
        return set(self.certificate.local.get(client, {}).get("exits", {}).get("arm", ()))

    def interval(self, group: Ints, counts: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """A 95 % interval that holds at any time, from the sums alone."""
        return betting.intervals(counts, sums, sums, 0 * sums, 0 * sums + 1, 0.05)

    def wealths(self) -> Wealths | None:
        """The bets in each client since the last restart; None if the clients' parts are unknown."""
        rows = [(j, row) for j, row in self.wealth_rows() if row["arm"]]
        epoch = max((row["epoch"] for _, row in rows), default=0)
        rows = [(j, row) for j, row in rows if row["epoch"] == epoch]
        ends = sorted({row["pulls"] for _, row in rows})
        first = [row["pulls"] for row in self.certificate.server["rounds"] if row["block"] == 0]
        begin = dict(zip(ends, [*first[-1:], *ends], strict=False))
        bets = [
            Bet(j, arm, tuple(row["champion"]), begin[row["pulls"]], row["pulls"], log_wealth)
            for j, row in sorted(rows, key=lambda place: place[1]["block"])
            for arm, log_wealth in zip(row["arm"], row["log_wealth"], strict=True)
        ]
        return Wealths(self.limit, tuple(bets)) if bets else None

    def wealth_rows(self) -> Iterator[tuple[int, Row]]:
        """The group and the row of each block, as the clients keep them."""
        for j, clients in enumerate(self.certificate.clients):
            for row in self.certificate.local.get(clients[0], {}).get("wealth", ()):
                yield j, row
