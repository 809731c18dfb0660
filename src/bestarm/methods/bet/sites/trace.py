"""Read the certificate of a question about several sites; see ``protocol.trace``.

Lines, exits and wealths are about the options of the race over all sites: an option stands where other traces
have a group. The sites' own races have none; pages show them as a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bestarm.methods.bet import trace as bet
from bestarm.methods.bet.sites.course import log_limit
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
        wealth = {
            (row["block"], option): log_wealth
            for row in self._over_all("wealth")
            for option, log_wealth in zip(row["option"], _largest(row["log_wealth"]), strict=True)
        }
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

    def wealths(self) -> Wealths | None:
        """The bets against each option; of several tests about a control, the one that is furthest."""
        begin = {k: self.pulls.get(k - 1, 0) for k in self.pulls}
        bets = [
            Bet(option, 0, (row["champion"], 0), begin[row["block"]], self.pulls[row["block"]], log_wealth)
            for row in self._over_all("wealth")
            for option, log_wealth in zip(row["option"], _largest(row["log_wealth"]), strict=True)
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


def _largest(log_wealth: list[float] | list[list[float]]) -> list[float]:
    """The wealth of each option, or of the test that is furthest if there are several."""
    if log_wealth and isinstance(log_wealth[0], list):
        return [max(tests) for tests in zip(*log_wealth, strict=True)]
    return log_wealth  # type: ignore[return-value]
