"""Read the certificate of pooled Fed-Fisher; see ``protocol.trace``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from bestarm.methods.fisher import trace as fisher
from bestarm.protocol.trace import Exit, LostTest, rows


@dataclass(frozen=True)
class Trace(fisher.Trace):
    """Clients drop nothing; the server tests the arms of all groups on pooled coins."""

    def level(self, group: int, look: int) -> float:
        """The level of each end of an interval: with ε > 0 also a union over the subsets of clients."""
        clients, liars = len(self.certificate.clients[group]), self.certificate.options.byzantine
        ways = comb(clients - liars, liars) if self.certificate.options.epsilon > 0 else 1
        return super().level(group, look) / ways

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """The group and the arm behind each of the server's arm numbers."""
        return [(j, arm) for j, count in enumerate(self.certificate.arms) for arm in range(count)]

    def exits(self) -> list[Exit]:
        """Arms that the server dropped."""
        found = []
        for row in self.certificate.server.get("exits", []):
            (j, arm), rival = self.places[row["arm"]], self.places[row["rival"]]
            found.append(
                Exit(
                    group=j,
                    arm=arm,
                    clients=None,
                    pulls=(row["coins"], row["coins"]),
                    round=row["round"],
                    mean=row["sum"] / row["coins"],
                    rival=rival,
                    rival_mean=row["rival_sum"] / row["rival_coins"],
                    why=LostTest(float(np.exp(row["log_p"])), float(np.exp(row["log_level"]))),
                )
            )
        return found

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """Sums from the client's messages, for all arms that were in the race."""
        found: dict[int, dict[int, float]] = {}
        for row in rows(self.certificate.local.get(client, {}).get("sent", {})):
            for arm, total in zip(row["arms"], row["sums"], strict=True):
                found.setdefault(arm, {})[self.looks.size(row["look"])] = total
        return found

    def dropped(self, client: str) -> set[int]:
        """The arms of the client's group that the server dropped."""
        return {
            exit_.arm
            for exit_ in self.exits()
            if client in self.certificate.clients[exit_.group] and exit_.arm is not None
        }
