"""Strong robustness of random digraphs, compared with SciPy's breadth-first search of the same matrix.

Each node hears ten others at random, so that r* is not determined by one isolated node. The group's share of
the nodes determines how the waves spread and how far the threshold falls; the ratio is for the slowest share.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

from bestarm.graphs.generators import circulant
from bestarm.graphs.graph import Graph
from bestarm.graphs.robustness import strong_robustness

DEGREE = 10
SHARES = (0.001, 0.01, 0.1, 0.5)


def seconds(call: Callable[[], object], times: int = 5) -> float:
    """The median of `times` calls."""
    runs = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        runs.append(time.perf_counter() - begun)
    return statistics.median(runs)


def random_digraph(n: int, rng: np.random.Generator) -> Graph:
    hearers = np.repeat(np.arange(n), DEGREE)
    return Graph.from_edges(n, np.column_stack([rng.integers(n, size=n * DEGREE), hearers]))


def measure() -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    for n in (1_000, 10_000, 100_000, 1_000_000):
        begun = time.perf_counter()
        graph = random_digraph(n, rng)
        build = time.perf_counter() - begun
        data = np.ones(len(graph.targets), dtype=np.float64)
        matrix = csr_matrix((data, graph.targets.astype(np.int32), graph.starts.astype(np.int32)), (n, n))
        reached = len(breadth_first_order(matrix, 0, return_predecessors=False))
        search = seconds(lambda matrix=matrix: breadth_first_order(matrix, 0, return_predecessors=False))
        own = {}
        found = {}
        for share in SHARES:
            group = rng.choice(n, max(DEGREE, int(share * n)), replace=False)
            # A graph remembers its in-degrees; each call here pays for them again.
            own[share] = seconds(
                lambda graph=graph, group=group: strong_robustness(Graph(graph.starts, graph.targets), group)
            )
            found[share] = strong_robustness(graph, group)[0]
        slowest = max(own, key=lambda share: own[share])
        rows.append(
            {
                "edges": len(graph.targets),
                "BFS reaches": reached / n,
                "BFS s": search,
                "robustness s": own[slowest],
                "ns an edge": own[slowest] / len(graph.targets) * 1e9,
                "ratio": own[slowest] / search,
                "slowest share": slowest,
                "r* by share": ", ".join(f"{share:g}: {r}" for share, r in found.items()),
                "graph built s": build,
            }
        )
    for n in (1_000, 10_000, 100_000):
        ring = circulant(n, DEGREE)
        spent = seconds(lambda ring=ring: strong_robustness(ring, range(DEGREE)), 3)
        rows.append({"ring, one node a wave: edges": n * DEGREE, "robustness s": spent})
    return rows
