"""Strong robustness of a network, and how many liars it tolerates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph, Groups, Indices, Node, Nodes, _check_whole, members, numbers
from bestarm.util.text import nearest, shorten

# To tolerate f, a client needs 3f+1 informed in-neighbours (the paper's protocol) or 2f+1 (intervals).
SHARES = {"means": 3, "intervals": 2}


def strong_robustness(graph: Graph, group: Nodes) -> tuple[float, frozenset[Node]]:
    """The largest r for which the graph is strongly r-robust w.r.t. the group, and a witness against r + 1.

    Parameters
    ----------
    graph : Graph
        The network.
    group : iterable of nodes
        Node numbers, or names if the graph has names.

    Returns
    -------
    r : float
        Infinite if the group is all nodes.
    witness : frozenset of nodes
        The largest set outside the group in which no node has r + 1 in-neighbours outside the set; every
        other such set is a subset of it. Empty if r is infinite.

    Notes
    -----
    The algorithm is one pass: percolate with a threshold that is too high; whenever no node joins, lower the
    threshold to the largest number of joined in-neighbours of any remaining node, and continue. Each edge is
    followed once, in waves of array operations, so the time is linear in nodes plus edges (a long thin
    network has many small waves of about ten microseconds each).

    Examples
    --------
    >>> from bestarm.graphs.generators import figure3
    >>> graph, groups = figure3()
    >>> r, witness = strong_robustness(graph, groups["C1"])
    >>> r, sorted(witness)
    (1, ['6', '7', '8', '9'])
    """
    r, witness = _robustness(graph, numbers(graph, group))
    return r, graph.nodes(witness)


def is_strongly_robust(graph: Graph, group: Nodes, r: int) -> bool:
    """Whether every non-empty set outside the group has a node with r in-neighbours outside the set.

    Parameters
    ----------
    graph : Graph
        The network.
    group : iterable of nodes
        Node numbers, or names if the graph has names.
    r : int
        The number of in-neighbours.

    Returns
    -------
    bool
        Whether the graph is strongly r-robust w.r.t. the group.

    Examples
    --------
    >>> from bestarm.graphs.generators import complete
    >>> is_strongly_robust(complete(5), {0, 1, 2}, 3), is_strongly_robust(complete(5), {0, 1, 2}, 4)
    (True, False)
    """
    _check_whole("r", r, 0)
    return _percolates(graph, numbers(graph, group), r)


def tolerance(graph: Graph, groups: Groups, exchange: str = "means") -> int:
    """The largest f for which the theorem holds on this graph, with at most f liars around any honest client.

    Parameters
    ----------
    graph : Graph
        The network.
    groups : mapping of names to nodes, or sequence of iterables of nodes
        The clients that share an arm-set.
    exchange : {"means", "intervals"}
        What peers send each other; the paper's protocol exchanges means.

    Returns
    -------
    int
        The largest f, or −1 if some clients cannot learn about some group even if all are honest.

    Notes
    -----
    Let r* be the smallest strong robustness over the groups. Then f is ⌊(r*−1)/3⌋ for the paper's protocol,
    which exchanges means, and ⌊(r*−1)/2⌋ for the exchange of intervals. r* never exceeds the size of the
    smallest group (other than a group of all nodes), so each group needs enough clients.

    A group of all nodes sets no limit, because each client pulls its arms itself. If all groups are of that
    kind, each honest client decides alone and no liar can mislead it, so f is n − 1.

    Examples
    --------
    >>> from bestarm.graphs.generators import complete, figure3
    >>> tolerance(complete(12), [range(4), range(4, 12)])
    1
    >>> tolerance(complete(12), [range(5), range(5, 12)], exchange="intervals")
    2
    >>> tolerance(*figure3())
    0
    """
    share = _share(exchange)
    weakest = min(_robustness(graph, nodes)[0] for nodes in members(graph, groups).values())
    return graph.n - 1 if math.isinf(weakest) else (int(weakest) - 1) // share


def weak_points(graph: Graph, groups: Groups, exchange: str = "means") -> list[tuple[Node, Node]]:
    """Edges (from, to) that raise the tolerance by one if they are added.

    Parameters
    ----------
    graph : Graph
        The network.
    groups : mapping of names to nodes, or sequence of iterables of nodes
        The clients that share an arm-set.
    exchange : {"means", "intervals"}
        What peers send each other.

    Returns
    -------
    list of pairs of nodes
        All of these edges are needed, but a different list may be shorter.

    Raises
    ------
    InputError
        If no edges can help, because a group has fewer than r clients.

    Notes
    -----
    The algorithm is greedy: wherever percolation stops, the node that lacks the fewest in-neighbours gets
    them. At the end, edges that the others make redundant are removed. Testing each edge takes one
    percolation, so this is for networks of up to a few thousand nodes.

    Examples
    --------
    >>> weak_points(Graph.from_edges(3, [(0, 1)]), [{0}])
    [(1, 2)]
    """
    share = _share(exchange)
    f = tolerance(graph, groups, exchange) + 1
    r = share * f + 1
    bounded = {name: nodes for name, nodes in members(graph, groups).items() if len(nodes) < graph.n}
    if not bounded:
        raise InputError("every group contains all clients: each client decides alone, and no edge matters")
    for name, nodes in bounded.items():
        if len(nodes) < r:
            raise InputError(
                f"no edges can help: {len(nodes)} clients are too few to tolerate f = {f}",
                where=f'group "{name}"',
                expected=f"at least {share}f + 1 = {r}",
                fix=f"Add {r - len(nodes)} to the group",
            )
    added: list[tuple[int, int]] = []
    for nodes in bounded.values():
        added += _missing_edges(_joined(graph, added), nodes, r)
    for edge in list(added):
        rest = [other for other in added if other != edge]
        smaller = _joined(graph, rest)
        if all(_percolates(smaller, nodes, r) for nodes in bounded.values()):
            added = rest
    names = graph.names or range(graph.n)
    return [(names[u], names[v]) for u, v in added]


def is_local(graph: Graph, liars: Nodes, f: int) -> bool:
    """Whether every honest node hears at most f liars (the paper's f-local model).

    >>> from bestarm.graphs.generators import complete
    >>> is_local(complete(4), {0}, 1), is_local(complete(4), {0, 1}, 1)
    (True, False)
    """
    _check_whole("f", f, 0)
    lying = numbers(graph, liars, "liars", empty=True)
    heard = np.bincount(graph.heard_by(lying), minlength=graph.n)
    heard[lying] = 0
    return int(heard.max()) <= f


def place_liars(graph: Graph, groups: Groups, f: int, seed: int | None = None) -> frozenset[Node]:
    """A random f-local set of liars that can't be enlarged; every group keeps an honest client.

    For f = 0 the set is empty, even if there are nodes that no other node hears.
    """
    order = np.random.default_rng(seed).permutation(graph.n)
    return graph.nodes(_infest(graph, order, f, list(members(graph, groups).values())))


def worst_cut(graph: Graph, groups: Groups, f: int) -> frozenset[Node]:
    """An f-local set of liars in the worst place: between the weakest group and its witness set.

    All that the witness set can learn about the group passes through the nodes outside the set that it hears.
    Of these, the nodes that are heard by most of the set become liars first, until no more can be added.

    >>> from bestarm.graphs.generators import figure3
    >>> sorted(worst_cut(*figure3(), f=1))
    ['5']
    """
    found = [_robustness(graph, nodes) for nodes in members(graph, groups).values()]
    dark = np.zeros(graph.n, dtype=np.int64)
    dark[min(found, key=lambda pair: pair[0])[1]] = 1
    sources, targets = graph.edges.T
    reach = np.bincount(sources, weights=dark[targets], minlength=graph.n) * (1 - dark)
    order = np.argsort(-reach, kind="stable")
    return graph.nodes(_infest(graph, order[reach[order] > 0], f, []))


def _spread(graph: Graph, inside: NDArray[np.bool_], counts: Indices, wave: Indices, r: int) -> None:
    """Bootstrap percolation with threshold r, in place: `wave` joins, then every node that follows.

    `inside` says which nodes have joined, `counts` how many in-neighbours of each node have.
    """
    inside[wave] = True
    while wave.size:
        reached = graph.heard_by(wave)
        if 16 * len(reached) > graph.n:  # a large wave: look at all nodes, without sorting
            counts += np.bincount(reached, minlength=graph.n)
            wave = np.flatnonzero((counts >= r) & ~inside)
        else:
            np.add.at(counts, reached, 1)
            wave = np.unique(reached[(counts[reached] >= r) & ~inside[reached]])
        inside[wave] = True


def _robustness(graph: Graph, group: Indices) -> tuple[float, Indices]:
    inside, counts = np.zeros(graph.n, dtype=bool), np.zeros(graph.n, dtype=np.int64)
    inside[group] = True
    outside = witness = np.flatnonzero(~inside)
    if not outside.size:
        return math.inf, outside
    # A single node is a set too, so r* is at most its in-degree. This also bounds how often r is lowered.
    r, wave = int(graph.in_degrees[outside].min()) + 1, group
    while True:
        _spread(graph, inside, counts, wave, r)
        outside = outside[~inside[outside]]
        if not outside.size:
            return r, witness
        best = counts[outside]
        r, witness, wave = int(best.max()), outside, outside[best == best.max()]
        if r == 0:
            return 0, witness


def _percolates(graph: Graph, group: Indices, r: int) -> bool:
    inside = np.zeros(graph.n, dtype=bool)
    _spread(graph, inside, np.zeros(graph.n, dtype=np.int64), group, r)
    return r == 0 or bool(inside.all())


def _missing_edges(graph: Graph, group: Indices, r: int) -> list[tuple[int, int]]:
    """Edges with which percolation from the group, of at least r nodes, reaches every node."""
    inside, counts = np.zeros(graph.n, dtype=bool), np.zeros(graph.n, dtype=np.int64)
    load = np.diff(graph.starts).copy()
    added: list[tuple[int, int]] = []
    wave = group
    while True:
        _spread(graph, inside, counts, wave, r)
        outside = np.flatnonzero(~inside)
        if not outside.size:
            return added
        # Of the nodes that lack the fewest, take the one that most nodes hear; use the least loaded sources.
        target = int(outside[np.lexsort((-load[outside], -counts[outside]))[0]])
        free = np.setdiff1d(np.flatnonzero(inside), graph.in_neighbours(target))
        sources = free[np.argsort(load[free], kind="stable")[: r - counts[target]]]
        load[sources] += 1
        added += [(source, target) for source in sources.tolist()]
        wave = np.array([target])


def _joined(graph: Graph, edges: list[tuple[int, int]]) -> Graph:
    pairs = np.concatenate([graph.edges, np.array(edges, dtype=np.int64).reshape(-1, 2)])
    return Graph.from_edges(graph.n, pairs)


def _infest(graph: Graph, order: Indices, f: int, groups: Sequence[Indices]) -> Indices:
    """Make nodes liars in this order, if the set stays f-local and each group keeps an honest node."""
    _check_whole("f", f, 0)
    liar, heard = np.zeros(graph.n, dtype=bool), np.zeros(graph.n, dtype=np.int64)
    honest = [set(nodes.tolist()) for nodes in groups]
    growing = f > 0
    while growing:  # new liars no longer count as hearers, so try again
        growing = False
        for u in order[~liar[order]].tolist():
            targets = graph.targets[graph.starts[u] : graph.starts[u + 1]]
            if np.all(liar[targets] | (heard[targets] < f)) and {u} not in honest:
                liar[u] = growing = True
                heard[targets] += 1
                for nodes in honest:
                    nodes.discard(u)
    return np.flatnonzero(liar)


def _share(exchange: str) -> int:
    if exchange not in SHARES:
        raise InputError(f"exchange = {shorten(exchange)} is unknown", fix=nearest(str(exchange), SHARES))
    return SHARES[exchange]
