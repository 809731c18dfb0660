"""Read the certificate of Fed-Fisher; see ``protocol.trace``.

With ε > 0 the intervals are those for which the method reserves half of δ. Without ε the method claims no
interval; exact 95 % intervals are shown for illustration only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bestarm.methods.fisher.looks import Looks
from bestarm.protocol.trace import (
    ILLUSTRATIVE,
    Exit,
    Floats,
    Ints,
    LostTest,
    RoundTrace,
    Row,
    View,
    local_exits,
    rows,
)
from bestarm.stats.fisher_exact import fisher_pvalue
from bestarm.stats.intervals import clopper_pearson


@dataclass(frozen=True)
class Trace(RoundTrace):
    """Exact tests at looks: inside each client, and between the groups at the server."""

    @cached_property
    def looks(self) -> Looks:
        """The schedule of the run."""
        return Looks(self.certificate.options, sum(self.certificate.arms))  # type: ignore[arg-type]

    def level(self, group: int, look: int) -> float:
        """The level of each end of an interval at a look."""
        return self.looks.interval_level(look) if self.certificate.options.epsilon > 0 else ILLUSTRATIVE

    def views(self, row: Mapping[str, Any]) -> list[View]:
        """The view of each group: its sum is between two edges, and the mean is in the middle."""
        low, high = np.asarray(row["lower"]), np.asarray(row["upper"])
        coins = np.asarray(row.get("coins", [row["pulls"]] * len(low)))
        level = [self.level(j, row["look"]) for j in row["group"]]
        below, above = clopper_pearson(low, coins, level)[0], clopper_pearson(high, coins, level)[1]
        columns = (coins, (low + high) / (2 * coins), below, above)
        values = zip(row["group"], *(column.tolist() for column in columns), strict=True)
        return [View(j, row["round"], *rest) for j, *rest in values]

    def exits(self) -> list[Exit]:
        """Arms that clients dropped, and groups that the server dropped."""
        inside = [self._exit(j, arm, by) for j, arm, by in local_exits(self.certificate)]
        return [*inside, *self.server_exits()]

    def _exit(self, j: int, arm: int, by: list[tuple[str, Row]]) -> Exit:
        client, first = by[0]
        n, counts = self.looks.size(first["look"]), sorted(self.looks.size(row["look"]) for _, row in by)
        p = float(fisher_pvalue(first["sum"], first["rival"], n))
        return Exit(
            group=j,
            arm=arm,
            clients=len(by),
            pulls=(counts[0], counts[-1]),
            round=None,
            mean=first["sum"] / n,
            rival=self._rival(j, client, first),
            rival_mean=first["rival"] / n,
            why=LostTest(p, self.looks.level(first["look"])),
        )

    def _rival(self, j: int, client: str, row: Row) -> tuple[int, int | None] | None:
        """What beat an arm inside its client: the client's own best arm, or the leader of all groups.

        None is a leader that a client alone does not know.
        """
        reports = [
            sent for sent in rows(self.certificate.local[client]["sent"]) if sent["look"] == row["look"]
        ]
        for sent in reports:
            if sent["sum"] == row["rival"] and sent["arm"] != row["arm"]:
                return j, sent["arm"]
        for line in self.certificate.server["rounds"]:
            if line["look"] == row["look"]:
                leader = line["leader"]
                return leader, line["arm"][line["group"].index(leader)]
        return None if reports else (j, None)  # a look that was not reported has no leader of all groups

    def server_exits(self) -> Iterator[Exit]:
        """Each group that was dropped, with its p-value against the leader."""
        for row in self.certificate.server["rounds"]:
            seen = {view.group: view for view in self.views(row)}
            for k, j in enumerate(row["out"]):
                log_p = row["log_p"][k] if k < len(row["log_p"]) else 0.0
                yield Exit(
                    group=j,
                    arm=None,
                    clients=None,
                    pulls=(seen[j].pulls, seen[j].pulls),
                    round=row["round"],
                    mean=seen[j].mean,
                    rival=(row["leader"], None),
                    rival_mean=seen[row["leader"]].mean,
                    why=LostTest(float(np.exp(log_p)), row["level"]),
                )

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """Sums from the arms that the client dropped and from its messages."""
        part = self.certificate.local.get(client, {})
        found: dict[int, dict[int, float]] = {}
        for row in rows(part.get("exits", {})):
            found.setdefault(row["arm"], {})[self.looks.size(row["look"])] = row["sum"]
        for row in rows(part.get("sent", {})):
            found.setdefault(row["arm"], {})[self.looks.size(row["look"])] = row["sum"]
        return found

    def dropped(self, client: str) -> set[int]:
        """The arms that the client dropped."""
        return set(self.certificate.local.get(client, {}).get("exits", {}).get("arm", ()))

    def interval(self, group: Ints, counts: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """An exact interval at the level of the look with this number of pulls."""
        level = [self.level(int(j), self._look(n)) for j, n in zip(group, counts, strict=True)]
        return clopper_pearson(sums, counts, level)

    def _look(self, count: float) -> int:
        look = 0
        while self.looks.size(look) < count:
            look += 1
        return look


def row_text(row: Mapping[str, Any], place: int, arms: Sequence[str]) -> str:
    """The successes of a group's best arm at a look, in words.

    >>> row = {"look": 3, "group": [0, 2], "arm": [1, 0], "lower": [5, 2], "upper": [7, 3], "pulls": 10}
    >>> row_text({**row, "leader": 0}, 0, ("a", "b"))
    'look 3: b, 5 to 7 of 10 (leads)'
    """
    coins = row["coins"][place] if "coins" in row else row["pulls"]
    leads = " (leads)" if row.get("leader") == row["group"][place] else ""
    span = f"{row['lower'][place]} to {row['upper'][place]} of {coins}"
    return f"look {row['look']}: {arms[row['arm'][place]]}, {span}{leads}"
