"""Read the certificate of a network of peers; see ``protocol.trace``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm.methods.fed_sel import trace as fed_sel
from bestarm.protocol.trace import Line, View


@dataclass(frozen=True)
class Trace(fed_sel.Trace):
    """Successive elimination inside each peer. There is no server, so there are no rounds."""

    def lines(self) -> list[Line]:
        """Each group's arm as its first honest client reported it."""
        found = []
        for j, clients in enumerate(self.certificate.clients):
            parts = (self.certificate.local.get(client, {}) for client in clients)
            part = next((part for part in parts if "sent" in part), None)
            if part is None or not part["sent"]["count"]:
                continue
            counts = np.asarray(part["sent"]["count"], dtype=np.float64)
            sums = np.asarray(part["sent"]["sum"], dtype=np.float64)
            columns = (
                counts.astype(np.int64),
                sums / counts,
                *self.interval(np.full(len(counts), j), counts, sums),
            )
            rows = zip(*(column.tolist() for column in columns), strict=True)
            found.append(Line(j, part["arm"], tuple(View(j, None, *values) for values in rows)))
        return found
