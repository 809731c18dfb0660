"""Read the certificate of Fed-Bet for groups of several clients; see ``protocol.trace``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from bestarm.methods.bet import trace as bet
from bestarm.protocol.trace import Exit, Line, RoundTrace, Row, Wealth


@dataclass(frozen=True)
class Trace(bet.Trace):
    """The server keeps all wealths and lets arms leave. Only what came after the last restart counts."""

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """The group and the arm behind each of the server's arm numbers."""
        return [(j, arm) for j, count in enumerate(self.certificate.arms) for arm in range(count)]

    def latest(self, name: str) -> list[Row]:
        """The rows of the server's part that came after the last restart."""
        server = self.certificate.server
        epoch = max((row["epoch"] for row in server["rounds"]), default=0)
        return [row for row in server.get(name, ()) if row["epoch"] == epoch]

    def lines(self) -> list[Line]:
        """The last top arm of each group, as the server saw it."""
        rounds = self.latest("rounds")
        latest = replace(self.certificate, server={"rounds": rounds})
        whole = RoundTrace.lines(replace(self, certificate=latest))
        tops = {
            (row["round"], j): arm for row in rounds for j, arm in zip(row["group"], row["arm"], strict=True)
        }
        return [
            replace(line, views=tuple(v for v in line.views if tops[v.round or 0, v.group] == line.arm))
            for line in whole
        ]

    def exits(self) -> list[Exit]:
        """The arms whose wealth reached 1/δ."""
        limit = math.log(1 / self.certificate.options.delta)
        return [
            Exit(
                *self.places[row["arm"]],
                clients=None,
                pulls=(row["count"], row["count"]),
                round=row["round"],
                mean=row["mean"],
                rival=self.places[row["champion"]],
                rival_mean=row["champion_mean"],
                why=Wealth(row["log_wealth"], limit),
            )
            for row in self.latest("exits")
        ]

    def dropped(self, client: str) -> set[int]:
        """The arms of the client's group that have left."""
        places = (self.places[row["arm"]] for row in self.latest("exits"))
        return {arm for j, arm in places if client in self.certificate.clients[j]}

    def wealth_rows(self) -> Iterator[tuple[int, Row]]:
        """The group and the row of each arm and block, as the server keeps them; pulls are per client."""
        pulls = {row["block"]: row["pulls"] for row in self.latest("rounds")}
        for row in self.latest("wealth"):
            champion = self.places[row["champion"]]
            for at, log_wealth in zip(row["arm"], row["log_wealth"], strict=True):
                j, arm = self.places[at]
                own = {"champion": champion, "pulls": pulls[row["block"]]}
                yield j, {**row, **own, "arm": [arm], "log_wealth": [log_wealth]}
