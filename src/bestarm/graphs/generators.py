"""Generators for well-known families of networks."""

from __future__ import annotations

import numpy as np

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph, _check_whole, circle
from bestarm.util.text import shorten


def complete(n: int) -> Graph:
    """Every node hears every other: strongly r-robust w.r.t. any r nodes that are not all nodes."""
    _check_whole("n", n, 1)
    return Graph.from_edges(n, np.argwhere(~np.eye(n, dtype=bool)))


def circulant(n: int, k: int, *, undirected: bool = False) -> Graph:
    """A ring in which each node hears the k nodes before it, and also the k after it if `undirected`.

    It is strongly k-robust w.r.t. any k consecutive nodes.

    >>> circulant(5, 2).in_neighbours(0).tolist()
    [3, 4]
    """
    _check_whole("n", n, 2)
    _check_whole("k", k, 1, n - 1)
    nodes = np.repeat(np.arange(n), k)
    edges = np.column_stack([nodes, (nodes + np.tile(np.arange(1, k + 1), n)) % n])
    return Graph.from_edges(n, edges, undirected=undirected, positions=circle(n))


def geometric(n: int, radius: float, seed: int | None = None) -> Graph:
    """n nodes at random positions in the unit square; nodes within `radius` hear each other."""
    from scipy.spatial import cKDTree

    _check_whole("n", n, 1)
    if not radius >= 0:
        raise InputError(f"radius = {shorten(radius)} can't be used", expected="a distance, 0 or more")
    positions = np.random.default_rng(seed).random((n, 2))
    pairs = cKDTree(positions).query_pairs(radius, output_type="ndarray")
    return Graph.from_edges(n, pairs, undirected=True, positions=positions)


def preferential(n: int, m: int, seed: int | None = None) -> Graph:
    """A Barabási–Albert network: m + 1 nodes that all hear each other, then n − m − 1 new nodes.

    Each new node and m distinct older nodes hear each other; the older nodes are drawn in proportion to their
    number of edges. The network is strongly m-robust w.r.t. the first m + 1 nodes.
    """
    _check_whole("m", m, 1)
    _check_whole("n", n, m + 1)
    rng = np.random.default_rng(seed)
    edges = [(u, v) for v in range(m + 1) for u in range(v)]
    ends = [node for edge in edges for node in edge]  # each node as often as it has edges
    for new in range(m + 1, n):
        chosen: set[int] = set()
        while len(chosen) < m:
            chosen.add(ends[rng.integers(len(ends))])
        edges += [(old, new) for old in sorted(chosen)]
        ends += [*sorted(chosen), *[new] * m]
    return Graph.from_edges(n, edges, undirected=True)


def clique_tree(cliques: int, size: int, links: int) -> Graph:
    """A binary tree of cliques; each client and `links` clients of every neighbouring clique hear each other.

    Clique c consists of the nodes c·size … (c+1)·size − 1; its parent is clique ⌊(c−1)/2⌋. With two cliques
    or more, the graph is strongly `links`-robust w.r.t. every clique, and not more robust.

    >>> from bestarm.graphs.robustness import strong_robustness
    >>> strong_robustness(clique_tree(3, size=4, links=2), range(4))[0]
    2
    """
    _check_whole("cliques", cliques, 1)
    _check_whole("size", size, 1)
    _check_whole("links", links, 0, size)
    inner = [(c * size + i, c * size + j) for c in range(cliques) for j in range(size) for i in range(j)]
    outer = [
        (c * size + i, (c - 1) // 2 * size + (i + step) % size)
        for c in range(1, cliques)
        for i in range(size)
        for step in range(links)
    ]
    return Graph.from_edges(cliques * size, inner + outer, undirected=True)


def figure3() -> tuple[Graph, dict[str, frozenset[str]]]:
    """The network of the paper's Figure 3 and its three groups. Client 5 is the bottleneck.

    >>> figure3()
    (Graph(9 nodes, 32 edges), {'C1': ..., 'C2': frozenset({'5'}), 'C3': ...})
    """
    cliques = [(u, v) for c in (1, 6) for u in range(c, c + 4) for v in range(u + 1, c + 4)]
    edges = [*cliques, (2, 5), (3, 5), (7, 5), (8, 5)]
    places = [(-6, 3), (-4, 1.5), (-4, -1.5), (-6, -3), (0, 0), (6, -3), (4, -1.5), (4, 1.5), (6, 3)]
    graph = Graph.from_edges(
        9,
        [(u - 1, v - 1) for u, v in edges],
        undirected=True,
        names=[str(i) for i in range(1, 10)],
        positions=places,
    )
    return graph, {"C1": frozenset("1234"), "C2": frozenset("5"), "C3": frozenset("6789")}
