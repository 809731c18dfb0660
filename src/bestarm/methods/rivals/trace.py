"""Read the certificate of a rival; see ``protocol.trace``.

For a question about all sites an option stands where other traces have a group, as with Fed-Bet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from bestarm.methods.rivals.options import Rival
from bestarm.protocol.trace import Exit, FarBehind, Line, RoundTrace, Row, View


@dataclass(frozen=True)
class Trace(RoundTrace):
    """The options over time, with their averages and half a margin around them."""

    @property
    def _over_all(self) -> bool:
        return bool(self.certificate.server.get("over_all"))

    @property
    def _rows(self) -> list[Row]:
        rows: list[Row] = self.certificate.server["rounds"]
        return rows

    def _view(self, row: Row, option: int) -> View:
        value, half = row["value"][row["option"].index(option)], row["margin"] / 2.0
        place = option if self._over_all else 0
        low, high = max(value - half, 0.0), min(value + half, 1.0)
        return View(place, row["round"], row["count"], value, low, high)

    def lines(self) -> list[Line]:
        """Each option over time; in one group, the option that led last."""
        rows = self._rows
        if not rows:
            return []
        if not self._over_all:
            last = rows[-1]
            first = last["option"][int(np.argmax(last["value"]))]
            return [Line(0, first, tuple(self._view(row, first) for row in rows))]
        out = {option: row["round"] for row in rows for option in row["out"]}
        return [
            Line(k, None, tuple(self._view(r, k) for r in rows if k in r["option"]), out=out.get(k))
            for k in rows[0]["option"]
        ]

    def exits(self) -> list[Exit]:
        """The options that were too far behind."""
        found = []
        for row in self._rows:
            first = row["option"][int(np.argmax(row["value"]))]
            best = self._view(row, first)
            for option in row["out"]:
                seen, n, over_all = self._view(row, option), row["count"], self._over_all
                found.append(
                    Exit(
                        group=option if over_all else 0,
                        arm=0 if over_all else option,
                        clients=None,
                        pulls=(n, n),
                        round=row["round"],
                        mean=seen.mean,
                        rival=(first, 0) if over_all else (0, first),
                        rival_mean=best.mean,
                        why=FarBehind(row["margin"]),
                    )
                )
        return found

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """Sums from the client's messages, in one group, where options are its arms."""
        if self._over_all:
            return {}
        found: dict[int, dict[int, float]] = {}
        part: dict[str, Any] = dict(self.certificate.local.get(client, {}))
        options = cast(Rival, self.certificate.options)
        players = sum(map(len, self.certificate.clients))
        rounds = options.schedule(players, self.certificate.arms[0])
        for row, (n, _) in zip(part.get("sent", ()), rounds, strict=False):
            for arm, total in zip(row["options"], row["sums"], strict=True):
                found.setdefault(arm, {})[n] = total
        return found

    def dropped(self, client: str) -> set[int]:
        """The arms that the server dropped, in one group."""
        return set() if self._over_all else {option for row in self._rows for option in row["out"]}
