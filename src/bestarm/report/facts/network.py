"""Networks with a position for each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.graphs.graph import circle
from bestarm.report.facts.structs import NetworkFacts

MOST_LAID_OUT = 300  # nodes; a spring layout takes quadratic time

Places = tuple[tuple[float, float], ...]


def network_of(network: Mapping[str, Any], problem: Mapping[str, Any]) -> NetworkFacts:
    """The network of a record."""
    names = network["names"] or [c for g in problem["groups"] for c in g["clients"]]
    group = {c: j for j, g in enumerate(problem["groups"]) for c in g["clients"]}
    pairs = tuple((int(u), int(v)) for u, v in network["edges"])
    groups = tuple(group.get(name, -1) for name in names)
    return NetworkFacts(
        names=tuple(names),
        group=groups,
        edges=pairs,
        places=lay_out(len(names), pairs, groups),
        messages=network.get("messages"),
        delay=network.get("delay"),
        loss=network.get("loss"),
        crashes=network.get("crashes"),
    )


def network_of_graph(
    names: Sequence[str], edges: Sequence[tuple[int, int]], positions: NDArray[np.float64] | None
) -> NetworkFacts:
    """A graph without groups; `positions` are those of its nodes, if it has any."""
    none = (-1,) * len(names)
    places = lay_out(len(names), edges, none) if positions is None else _in_unit_square(positions)
    return NetworkFacts(names=tuple(names), group=none, edges=tuple(edges), places=places)


def _in_unit_square(spots: NDArray[np.float64]) -> Places:
    span = np.ptp(spots, axis=0)
    return tuple((float(x), float(y)) for x, y in (spots - spots.min(axis=0)) / np.where(span > 0, span, 1.0))


def lay_out(n: int, edges: Sequence[tuple[int, int]], group: Sequence[int]) -> Places:
    """Positions in the unit square: a spring layout if networkx is installed, else a circle by group."""
    if n <= MOST_LAID_OUT:
        try:
            import networkx as nx

            graph = nx.Graph(edges)
            graph.add_nodes_from(range(n))
            spots = nx.spring_layout(graph, seed=0)
            return _in_unit_square(np.array([spots[k] for k in range(n)]))
        except ImportError:
            pass
    order = sorted(range(n), key=lambda k: group[k])
    around = circle(n) / 2.0 + 0.5
    at = {node: around[k] for k, node in enumerate(order)}
    return tuple((float(at[k][0]), float(at[k][1])) for k in range(n))
