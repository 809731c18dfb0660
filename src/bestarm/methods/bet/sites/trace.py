"""Read the certificate of a question about several sites; see ``protocol.trace``.

Lines, exits and wealths are about the options of the race over all sites: an option stands where other traces
have a group. The sites' own races have none; pages show them as a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bestarm.methods.bet import trace as bet
from bestarm.methods.bet.sites.course import log_limit
from bestarm.methods.bet.sites.decisions import by_claim
from bestarm.protocol.trace import Bet, Exit, Line, Row, View, Wealth, Wealths


@dataclass(frozen=True)
class Trace(bet.Trace):
    """The options over time, as the server saw them."""

    @cached_property
    def pulls(self) -> dict[int, int]:
        """The pulls after each block, of a cell that was never the champion's."""
        return {row["round"]: row["pulls"] for row in self.certificate.server["rounds"]}

    @property
    def limit(self) -> float:
        """The logarithm of the wealth at which an option leaves the first race."""
        server = self.certificate.server
        return log_limit(server.get("levels", [self.certificate.options.delta])[0])

    def _over_all(self, name: str) -> list[Row]:
        """The rows about the race over all sites; none if each site has its own."""
        server = self.certificate.server
        return [row for row in server.get(name, ()) if row["race"] == 0] if server.get("over_all") else []

    def views(self, row: Row) -> list[View]:  # type: ignore[override]
        """The view of each option in a round, with an illustrative interval."""
        columns = (row[name] for name in ("option", "count", "value", "lower", "upper"))
        return [View(j, row["round"], *values) for j, *values in zip(*columns, strict=True)]

    def lines(self) -> list[Line]:
        """Each option over time."""
        server = self.certificate.server
        if not server.get("over_all"):
            return []
        out = {row["option"]: row["block"] for row in self._over_all("exits")}
        seen: dict[int, list[View]] = {}
        for row in server["rounds"]:
            for view in self.views(row):
                if view.round is not None and view.round <= out.get(view.group, view.round):
                    seen.setdefault(view.group, []).append(view)
        return [Line(j, None, tuple(views), out=out.get(j)) for j, views in sorted(seen.items())]

    def exits(self) -> list[Exit]:
        """The options whose wealth reached its limit."""
        wealth = {(row["block"], option): log_wealth for row, option, log_wealth in self._decisive()}
        rounds, found = self.certificate.server["rounds"], list[Exit]()
        for row in self._over_all("exits"):
            k, option, champion = row["block"], row["option"], row["champion"]
            seen = {view.group: view for view in self.views(rounds[k])}
            pulls = seen[option].pulls
            found.append(
                Exit(
                    option,
                    0,
                    clients=None,
                    pulls=(pulls, pulls),
                    round=k,
                    mean=seen[option].mean,
                    rival=(champion, 0),
                    rival_mean=seen[champion].mean,
                    why=Wealth(wealth[k, option], self.limit),
                )
            )
        return found

    def dropped(self, client: str) -> set[int]:
        return set()

    def _decisive(self) -> Iterator[tuple[Row, int, float]]:
        """The wealth of each option after each block, with the row of the block.

        About a control there are several claims: it is that of the answer, or while the option is open, of
        the claim that is furthest by now.
        """
        rows = self._over_all("wealth")
        found = [
            (row, option, _by_claim(row["log_wealth"], k))
            for row in rows
            for k, option in enumerate(row["option"])
        ]
        last = {option: int(np.argmax(claims)) for _, option, claims in found}
        settled = {e["option"]: e["claim"] - 1 for e in self._over_all("exits") if e["claim"] is not None}
        for row, option, claims in found:
            yield row, option, claims[settled.get(option, last[option])]

    def wealths(self) -> Wealths | None:
        """The bets against each option, or on the answer about it, see ``_decisive``."""
        begin = {k: self.pulls.get(k - 1, 0) for k in self.pulls}
        bets = [
            Bet(option, 0, (row["champion"], 0), begin[row["block"]], self.pulls[row["block"]], log_wealth)
            for row, option, log_wealth in self._decisive()
            if option != row["champion"]
        ]
        return Wealths(self.limit, tuple(bets)) if bets else None


@dataclass(frozen=True)
class ArmTrace(Trace):
    """The trace of the question "anywhere": each option is an arm of one group."""

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """The group and the arm of each option."""
        return [(j, arm) for j, count in enumerate(self.certificate.arms) for arm in range(count)]

    def lines(self) -> list[Line]:
        """The arm of each group that was pulled most, and among these the best one."""
        best: dict[int, Line] = {}
        for line in super().lines():
            j, arm = self.places[line.group]
            own = replace(line, group=j, arm=arm, views=tuple(replace(v, group=j) for v in line.views))
            if j not in best or _last(own) > _last(best[j]):
                best[j] = own
        return [best[j] for j in sorted(best)]

    def exits(self) -> list[Exit]:
        return [
            replace(exit, group=j, arm=arm, rival=self.places[exit.rival[0]] if exit.rival else None)
            for exit in super().exits()
            for j, arm in [self.places[exit.group]]
        ]

    def dropped(self, client: str) -> set[int]:
        """The arms of the client's group that have left."""
        places = (self.places[row["option"]] for row in self._over_all("exits"))
        return {arm for j, arm in places if client in self.certificate.clients[j]}

    def wealths(self) -> Wealths | None:
        found = super().wealths()
        if found is None:
            return None
        bets = (
            replace(bet, group=j, arm=arm, champion=self.places[bet.champion[0]])
            for bet in found.bets
            for j, arm in [self.places[bet.group]]
        )
        return replace(found, bets=tuple(bets))


def _last(line: Line) -> tuple[int, float]:
    return line.views[-1].pulls, line.views[-1].mean


def _by_claim(log_wealth: list[Any], k: int) -> list[float]:
    """The wealth of each claim about the k-th option of a row; there is one claim if nothing is compared."""
    if not isinstance(log_wealth[0], list):
        return [log_wealth[k]]
    found: list[float] = by_claim(np.asarray(log_wealth)[:, k]).tolist()
    return found
