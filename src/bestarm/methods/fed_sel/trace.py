"""Read the certificates of Fed-SEL, of Robust Fed-SEL and, in part, of peers; see ``protocol.trace``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm.protocol.trace import Exit, FarBehind, Floats, Ints, RoundTrace, Row, local_exits, rows
from bestarm.stats.radii import radius


@dataclass(frozen=True)
class Trace(RoundTrace):
    """Rounds of intervals at the server; inside a client, successive elimination by the radius α."""

    def alpha(self, group: int, counts: Floats) -> Floats:
        """α for an arm of a group after these numbers of pulls."""
        told = self.certificate
        name, clients = getattr(told.options, "radius", "paper"), sum(map(len, told.clients))
        return np.asarray(radius(name, clients, told.arms[group], told.options.delta).alpha(counts))

    def exits(self) -> list[Exit]:
        """Arms that clients dropped in Phase I, and groups that the server dropped in Phase II."""
        inside = [self._exit(j, arm, [row for _, row in by]) for j, arm, by in local_exits(self.certificate)]
        return [*inside, *self.server_exits()]

    def _exit(self, j: int, arm: int, found: list[Row]) -> Exit:
        first, counts = found[0], sorted(row["epoch"] for row in found)
        n = first["epoch"]
        bound = float(self.certificate.options.c * self.alpha(j, np.asarray(n)))  # type: ignore[attr-defined]
        return Exit(
            group=j,
            arm=arm,
            clients=len(found),
            pulls=(counts[0], counts[-1]),
            round=None,
            mean=first["sum"] / n,
            rival=(j, first["top"]),
            rival_mean=first["top_sum"] / n,
            why=FarBehind(bound),
        )

    def sums(self, client: str) -> dict[int, dict[int, float]]:
        """Sums from the eliminations of Phase I and from the messages of the client."""
        part = self.certificate.local.get(client, {})
        found: dict[int, dict[int, float]] = {}
        for row in rows(part.get("exits", {})):
            found.setdefault(row["arm"], {})[row["epoch"]] = row["sum"]
            found.setdefault(row["top"], {})[row["epoch"]] = row["top_sum"]
        for row in rows(part.get("sent", {})):
            found.setdefault(part["arm"], {})[row["count"]] = row["sum"]
        return found

    def dropped(self, client: str) -> set[int]:
        """The arms that the client eliminated in Phase I."""
        return set(self.certificate.local.get(client, {}).get("exits", {}).get("arm", ()))

    def interval(self, group: Ints, counts: Floats, sums: Floats) -> tuple[Floats, Floats]:
        """The mean ± α."""
        mean, half = sums / counts, np.zeros(len(counts))
        for j in np.unique(group):
            half[group == j] = self.alpha(int(j), counts[group == j])
        return np.maximum(mean - half, 0.0), np.minimum(mean + half, 1.0)

    def drawable(self, group: int, counts: Floats) -> NDArray[np.bool_]:
        """Whether α is below 1/2; wider intervals say almost nothing."""
        return np.asarray(self.alpha(group, counts) < 0.5)
