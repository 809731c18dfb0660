"""How many pulls each client made, as far as a record shows it.

The record of a run in process has them. That of a federation has the clients' summaries, and for questions
about several sites the pulls in closed blocks. Both count pulls of a last block that was not closed; only a
client without a summary, such as one that was dropped, counts with its closed blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.question import Cells
from bestarm.protocol.decisions import Ints
from bestarm.protocol.summaries import Summary
from bestarm.records.record import Record


def known_pulls(record: Record) -> dict[str, int]:
    """The pulls of each client; empty if the record does not show those of all."""
    if record.pulls is not None:
        return record.pulls.by_client
    layout, _ = Problem.layout_from_dict(record.problem)
    cells, summaries = record.verdict.certificate["server"].get("cells"), record.summaries or {}
    if cells is not None and layout.question.kind != "anywhere":
        made = pulls_of_cells(layout, cells, summaries)
        return dict(zip(layout.clients, made.sum(axis=1).tolist(), strict=True))
    if any(client not in summaries for client in layout.clients):
        return {}
    return {client: sum(summaries[client].count) for client in layout.clients}


def pulls_of_cells(layout: Layout, cells: Mapping[str, Any], summaries: Mapping[str, Summary] | None) -> Ints:
    """The pulls of each option at each client: (clients, options); `cells` has those in closed blocks."""
    found, places = np.array(cells["count"], dtype=np.int64), Cells.of(layout).place
    for i, client in enumerate(layout.clients):
        if summaries and client in summaries:
            told = summaries[client].count
            found[i, list(places[i])] = np.maximum(found[i, list(places[i])], told)
    return found
