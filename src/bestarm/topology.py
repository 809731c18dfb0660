"""Networks of clients, and how many liars they bear (the paper's Section 6).

A ``Graph`` says who can send to whom. A group's reports reach everybody, whatever f liars around each client
do, where the graph is strongly r-robust with respect to the group (Definition 2) and r is large enough. That
is so exactly when bootstrap percolation with threshold r from the group reaches every node: a node joins as
soon as r of its in-neighbours have joined. What never joins is a witness: a set in which nobody has r
in-neighbours outside of it. Graphs come in as edges, files or networkx graphs; sets of nodes go out.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError, nearest, shorten

Indices = NDArray[np.int64]
Node = int | str
Nodes = Iterable[Node]
Groups = Mapping[str, Nodes] | Sequence[Nodes]

# What an f costs: a client needs 3f+1 in-neighbours that know (the paper's protocol) or 2f+1 (intervals).
SHARES = {"means": 3, "intervals": 2}
MAX_NODES = 1_000_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes 0 … n−1, which may have names and positions, and edges u → v: "v hears u". Immutable.

    Node u is heard by ``targets[starts[u]:starts[u + 1]]``. Where a graph has names, sets of nodes are sets
    of names, on the way in and on the way out. Build one with ``from_edges``, ``from_networkx``, ``read`` or
    a generator.

    >>> Graph.from_edges(3, [(0, 1), (1, 2), (1, 2), (2, 2)])
    Graph(3 nodes, 2 edges)
    """

    starts: Indices
    targets: Indices
    names: tuple[str, ...] | None = None
    positions: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for array in (self.starts, self.targets, self.positions):
            if array is not None:
                array.setflags(write=False)

    def __repr__(self) -> str:
        return f"Graph({self.n:,} nodes, {len(self.targets):,} edges)"

    @staticmethod
    def from_edges(
        n: int,
        edges: ArrayLike | Iterable[tuple[int, int]],
        *,
        undirected: bool = False,
        names: Sequence[str] | None = None,
        positions: ArrayLike | None = None,
    ) -> Graph:
        """A graph of n nodes from pairs (u, v) of node numbers: v hears u, and u hears v if `undirected`.

        Self-loops and double edges don't count and are dropped.

        >>> Graph.from_edges(3, [(0, 1), (1, 2)], undirected=True).edges.tolist()
        [[0, 1], [1, 0], [1, 2], [2, 1]]
        """
        _check_whole("n", n, 1)
        pairs = _pairs(edges, n)
        if undirected:
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
        keys = pairs[:, 0] * n + pairs[:, 1]
        keys = keys[pairs[:, 0] != pairs[:, 1]]
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])] if keys.size else keys
        sources, targets = np.divmod(keys, n)
        return Graph(_starts(np.bincount(sources, minlength=n)), targets, *_labels(n, names, positions))

    @staticmethod
    def from_networkx(graph: Any) -> Graph:
        """A graph from networkx, directed or not. Nodes that are not just 0 … n−1 give it names.

        Positions come from the node attributes `x` and `y`, or from `pos`, where every node has them.
        """
        labels = [str(node) for node in graph.nodes]
        index, names = _numbered(labels)
        if len(index) < len(labels):
            twice = next(label for i, label in enumerate(labels) if label in labels[:i])
            raise InputError(f'two nodes are both called "{twice}"', expected="each name once")
        by_number = sorted(graph.nodes, key=lambda node: index[str(node)])
        places = [_place(graph.nodes[node]) for node in by_number]
        return Graph.from_edges(
            len(index),
            [(index[str(u)], index[str(v)]) for u, v in graph.edges()],
            undirected=not graph.is_directed(),
            names=names,
            positions=None if None in places else np.array(places),
        )

    @staticmethod
    def read(path: str | Path) -> Graph:
        """A graph from a file.

        ``.graphml``: GraphML (needs networkx). Anything else is text, with commas or blanks between cells
        and ``#`` before a comment. Two cells a line are edges "from,to" (a first line "from,to" is skipped,
        a line with one cell is a node without edges of its own). Three and more are a square matrix of 0 and
        1, row u column v for u → v, below an optional line of names. Nodes that are not just 0 … n−1 give
        the graph names.
        """
        path = Path(path)
        try:
            return _read_graphml(path) if path.suffix.lower() == ".graphml" else _read_text(path)
        except InputError as error:
            raise error.at(str(path)) from None
        except OSError as error:
            raise InputError(f"the file can't be read: {error.strerror}", where=str(path)) from None

    def with_edges(self, edges: Iterable[tuple[Node, Node]]) -> Graph:
        """This graph and some more edges, such as ``weak_points`` names.

        >>> figure3()[0].with_edges([("2", "7")])
        Graph(9 nodes, 33 edges)
        """
        more = [(int(numbers(self, [u])[0]), int(numbers(self, [v])[0])) for u, v in edges]
        pairs = np.concatenate([self.edges, np.array(more, dtype=np.int64).reshape(-1, 2)])
        return Graph.from_edges(self.n, pairs, names=self.names, positions=self.positions)

    def plot(self, groups: Groups | None = None, ax: Any = None) -> Any:
        """Draw the graph, with groups told apart (needs ``bestarm[report]``); gives Matplotlib axes."""
        from bestarm.report.plots import network

        return network(self, groups, ax=ax)

    def _repr_html_(self) -> str:
        from bestarm.report.page import graph_fragment

        return graph_fragment(self)

    @property
    def n(self) -> int:
        return len(self.starts) - 1

    @property
    def edges(self) -> Indices:
        """All edges (u, v) as node numbers, sorted."""
        return np.column_stack([np.repeat(np.arange(self.n), np.diff(self.starts)), self.targets])

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Name -> node number; empty without names."""
        return {name: i for i, name in enumerate(self.names or ())}

    @cached_property
    def in_degrees(self) -> Indices:
        return np.bincount(self.targets, minlength=self.n)

    @cached_property
    def _incoming(self) -> tuple[Indices, Indices]:
        sources, targets = self.edges.T
        return _starts(self.in_degrees), sources[np.argsort(targets, kind="stable")]

    def in_neighbours(self, node: int) -> Indices:
        """The numbers of the nodes that this node hears."""
        starts, sources = self._incoming
        return sources[starts[node] : starts[node + 1]]

    def heard_by(self, nodes: Indices) -> Indices:
        """The out-neighbours of all these nodes, one after the other."""
        begins = self.starts[nodes]
        counts = self.starts[nodes + 1] - begins
        ends = np.cumsum(counts)
        places: Indices = np.repeat(begins - ends + counts, counts)
        places += np.arange(len(places))
        return np.take(self.targets, places)

    def nodes(self, indices: Indices) -> frozenset[Any]:
        """Node numbers as users see them: a set of names where the graph has them."""
        numbers = indices.tolist()
        return frozenset(numbers if self.names is None else [self.names[i] for i in numbers])


def strong_robustness(graph: Graph, group: Nodes) -> tuple[float, frozenset[Any]]:
    """The largest r for which the graph is strongly r-robust w.r.t. the group, and what stops r + 1.

    The witness is the largest set without the group in which nobody has r + 1 in-neighbours outside of it;
    every other such set is part of it. If the group is everyone, r is infinite and the witness empty.

    One pass: percolate with a threshold that is too high, lower it to what the best node outside has each
    time that nothing moves, go on. Each edge is followed once, in waves of array operations, so time grows
    with nodes and edges (in a long thin network there are many small waves, some ten microseconds each).

    >>> graph, groups = figure3()
    >>> r, witness = strong_robustness(graph, groups["C1"])
    >>> r, sorted(witness)
    (1, ['6', '7', '8', '9'])
    """
    r, witness = _robustness(graph, numbers(graph, group))
    return r, graph.nodes(witness)


def is_strongly_robust(graph: Graph, group: Nodes, r: int) -> bool:
    """Whether every non-empty set without the group has a node with r in-neighbours outside the set.

    >>> is_strongly_robust(complete(5), {0, 1, 2}, 3), is_strongly_robust(complete(5), {0, 1, 2}, 4)
    (True, False)
    """
    _check_whole("r", r, 0)
    return _percolates(graph, numbers(graph, group), r)


def tolerance(graph: Graph, groups: Groups, exchange: str = "means") -> int:
    """The largest f for which the theorem holds on this graph, with at most f liars around any honest client.

    With r* the smallest strong robustness over the groups it is ⌊(r*−1)/3⌋ for the paper's protocol, which
    exchanges means, and ⌊(r*−1)/2⌋ for the exchange of intervals. It is −1 where r* = 0: some clients can't
    learn about some group even if all are honest. As r* never exceeds the size of the smallest group (that
    isn't everyone), enough clients a group are part of the condition.

    A group that is everyone sets no limit: each client knows its arms at first hand. If all groups are
    such, each honest client decides alone and no liar can mislead it, so f is n − 1, all the others.

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


def weak_points(graph: Graph, groups: Groups, exchange: str = "means") -> list[tuple[Any, Any]]:
    """Edges (from, to) that lift the tolerance by one, if they are added.

    Greedy: wherever percolation stops, the node that lacks fewest in-neighbours is given them. At the end
    each edge without which the rest would do is taken out, so none of the list can be spared; another list
    may still be shorter. Each edge tried costs a percolation, so this is for networks of some thousands of
    nodes. InputError where no edges can help, as a group of fewer than r clients has too few sources.

    >>> weak_points(Graph.from_edges(3, [(0, 1)]), [{0}])
    [(1, 2)]
    """
    share = _share(exchange)
    f = tolerance(graph, groups, exchange) + 1
    r = share * f + 1
    bounded = {name: nodes for name, nodes in members(graph, groups).items() if len(nodes) < graph.n}
    if not bounded:
        raise InputError("every group is everyone: each client decides alone, and no edge matters")
    for name, nodes in bounded.items():
        if len(nodes) < r:
            raise InputError(
                f"no edges can help: {len(nodes)} clients are too few to bear f = {f}",
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

    >>> is_local(complete(4), {0}, 1), is_local(complete(4), {0, 1}, 1)
    (True, False)
    """
    _check_whole("f", f, 0)
    lying = numbers(graph, liars, "liars", empty=True)
    heard = np.bincount(graph.heard_by(lying), minlength=graph.n)
    heard[lying] = 0
    return int(heard.max()) <= f


def place_liars(graph: Graph, groups: Groups, f: int, seed: int | None = None) -> frozenset[Any]:
    """A random f-local set of liars to which nobody can be added; every group keeps an honest client.

    For f = 0 it is empty: nobody lies, even where nobody would hear it.
    """
    order = np.random.default_rng(seed).permutation(graph.n)
    return graph.nodes(_infest(graph, order, f, list(members(graph, groups).values())))


def worst_cut(graph: Graph, groups: Groups, f: int) -> frozenset[Any]:
    """An f-local set of liars where it hurts: between the weakest group and its witness set.

    All that the witness set can learn about the group passes through the nodes outside of it that it hears.
    Those that most of it hears lie first, until no further one may.

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


def complete(n: int) -> Graph:
    """Everyone hears everyone else: strongly r-robust w.r.t. any r clients that aren't everyone."""
    _check_whole("n", n, 1)
    return Graph.from_edges(n, np.argwhere(~np.eye(n, dtype=bool)))


def circulant(n: int, k: int, *, undirected: bool = False) -> Graph:
    """A ring in which each node hears the k nodes before it, and the k after it too if `undirected`.

    It is strongly k-robust w.r.t. any k nodes in a row.

    >>> circulant(5, 2).in_neighbours(0).tolist()
    [3, 4]
    """
    _check_whole("n", n, 2)
    _check_whole("k", k, 1, n - 1)
    nodes = np.repeat(np.arange(n), k)
    edges = np.column_stack([nodes, (nodes + np.tile(np.arange(1, k + 1), n)) % n])
    return Graph.from_edges(n, edges, undirected=undirected, positions=circle(n))


def geometric(n: int, radius: float, seed: int | None = None) -> Graph:
    """Robots in a field: n random places in the unit square; those within `radius` hear each other."""
    from scipy.spatial import cKDTree

    _check_whole("n", n, 1)
    if not radius >= 0:
        raise InputError(f"radius = {shorten(radius)} can't be used", expected="a distance, 0 or more")
    positions = np.random.default_rng(seed).random((n, 2))
    pairs = cKDTree(positions).query_pairs(radius, output_type="ndarray")
    return Graph.from_edges(n, pairs, undirected=True, positions=positions)


def preferential(n: int, m: int, seed: int | None = None) -> Graph:
    """Barabási and Albert's network: m + 1 nodes that all hear each other, then n − m − 1 newcomers.

    Each newcomer and m different older nodes hear each other, drawn in proportion to their edges. It is
    strongly m-robust w.r.t. the first m + 1 nodes.
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

    Clique c is the nodes c·size … (c+1)·size − 1, its parent is clique ⌊(c−1)/2⌋. With two cliques or more
    the graph is strongly `links`-robust w.r.t. every clique, and no more.

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


def _spread(graph: Graph, inside: NDArray[np.bool_], counts: Indices, wave: Indices, r: int) -> None:
    """Bootstrap percolation with threshold r, in place: `wave` joins, and all that follows from it.

    `inside` says who has joined, `counts` how many in-neighbours of each node have.
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
    # A node alone is a set too, so r* is at most its in-degree. This also bounds how often r is lowered.
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
    """Edges with which percolation from the group, of at least r nodes, reaches everyone."""
    inside, counts = np.zeros(graph.n, dtype=bool), np.zeros(graph.n, dtype=np.int64)
    load = np.diff(graph.starts).copy()
    added: list[tuple[int, int]] = []
    wave = group
    while True:
        _spread(graph, inside, counts, wave, r)
        outside = np.flatnonzero(~inside)
        if not outside.size:
            return added
        # Among those that lack fewest, the one that most nodes hear; its new sources have most to spare.
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
    """Let nodes lie in this order, where the set stays f-local and no group loses its last honest node."""
    _check_whole("f", f, 0)
    liar, heard = np.zeros(graph.n, dtype=bool), np.zeros(graph.n, dtype=np.int64)
    honest = [set(nodes.tolist()) for nodes in groups]
    growing = f > 0
    while growing:  # who becomes a liar need not be protected any more: look again
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


def members(graph: Graph, groups: Groups) -> dict[str, Indices]:
    if not isinstance(groups, Mapping):
        groups = {f"g{j}": nodes for j, nodes in enumerate(groups, start=1)}
    if not groups:
        raise InputError("there are no groups", expected="at least one group of nodes")
    return {name: numbers(graph, nodes, f'group "{name}"') for name, nodes in groups.items()}


def numbers(graph: Graph, nodes: Nodes, where: str = "group", empty: bool = False) -> Indices:
    """Nodes as users write them, as sorted node numbers."""
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise InputError(f"{shorten(nodes)} is no set of nodes", where=where, expected="a set of nodes")
    found = nodes if isinstance(nodes, np.ndarray) else list(nodes)
    if len(found) == 0 and not empty:
        raise InputError("there is nobody in it", where=where, expected="at least one node")
    if graph.names is not None:
        for name in found:
            if not isinstance(name, str) or name not in graph.number_of:
                raise InputError(
                    f"there is no node {shorten(name)}", where=where, fix=nearest(str(name), graph.names)
                )
        found = [graph.number_of[str(name)] for name in found]
    array = np.asarray(found if len(found) else np.zeros(0, dtype=np.int64))
    expected = f"node numbers from 0 to {graph.n - 1}"
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{shorten(found)} is no set of nodes", where=where, expected=expected)
    strange = array[(array < 0) | (array >= graph.n)]
    if strange.size:
        raise InputError(f"there is no node {strange[0]}", where=where, expected=expected)
    mask = np.zeros(graph.n, dtype=bool)
    mask[array] = True
    return np.flatnonzero(mask)


def _check_whole(what: str, value: Any, low: int, high: int = MAX_NODES) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(
            f"{what} = {shorten(value)} can't be used", expected=f"a whole number from {low:,} to {high:,}"
        )


def _starts(counts: Indices) -> Indices:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def circle(n: int) -> NDArray[np.float64]:
    angles = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.sin(angles), np.cos(angles)])


def _pairs(edges: Any, n: int) -> Indices:
    try:
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    except (TypeError, ValueError):  # not iterable, or pairs of different lengths
        pairs = np.zeros(1)
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(f"{shorten(edges)} are no edges", where="edges", expected="pairs of node numbers")
    strange = pairs[((pairs < 0) | (pairs >= n)).any(axis=1)]
    if strange.size:
        raise InputError(
            f"there is no edge {tuple(strange[0].tolist())}",
            where="edges",
            expected=f"pairs of node numbers from 0 to {n - 1}",
        )
    return pairs.astype(np.int64)


def _labels(
    n: int, names: Sequence[str] | None, positions: ArrayLike | None
) -> tuple[tuple[str, ...] | None, NDArray[np.float64] | None]:
    if names is not None:
        if len(names) != n or not all(isinstance(name, str) and name for name in names):
            raise InputError(f"{shorten(names)} can't be used", where="names", expected=f"{n} names")
        if len(set(names)) < n:
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InputError(f'node name "{twice}" is used twice', where="names", expected="each name once")
        names = tuple(names)
    if positions is None:
        return names, None
    try:
        places = np.array(positions, dtype=np.float64)
    except (TypeError, ValueError):
        places = np.zeros(0)
    if places.shape != (n, 2) or not np.isfinite(places).all():
        raise InputError(
            f"{shorten(positions)} can't be used", where="positions", expected=f"{n} pairs (x, y)"
        )
    return names, places


def _numbered(labels: Sequence[str]) -> tuple[dict[str, int], list[str] | None]:
    """Numbers for labels: their own if they are just 0 … n−1, else in order of appearance, with names."""
    found = list(dict.fromkeys(labels))
    if set(found) == {str(i) for i in range(len(found))}:
        return {label: int(label) for label in found}, None
    return {label: i for i, label in enumerate(found)}, found


def _place(attributes: Mapping[str, Any]) -> tuple[float, float] | None:
    try:
        x, y = attributes["pos"] if "pos" in attributes else (attributes["x"], attributes["y"])
        return float(x), float(y)
    except (KeyError, TypeError, ValueError):
        return None


def _read_graphml(path: Path) -> Graph:
    try:
        import networkx as nx
    except ImportError:
        raise InputError(
            "GraphML needs networkx, which is not installed",
            fix='Install it with: pip install "bestarm[network]"',
        ) from None
    try:
        return Graph.from_networkx(nx.read_graphml(path))
    except (nx.NetworkXException, SyntaxError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"this is no GraphML: {error}") from None


def _read_text(path: Path) -> Graph:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("this is no text", expected="UTF-8, or a file that ends in .graphml") from None
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        if text:
            try:
                cells = next(csv.reader([text])) if "," in text else text.split()
            except csv.Error as error:
                raise InputError(f"this can't be read: {error}", where=f"line {number}") from None
            rows.append((number, [cell.strip() for cell in cells]))
    if not rows:
        raise InputError("the file holds no edges", expected="lines from,to or a matrix of 0 and 1")
    return _edge_list(rows) if max(len(cells) for _, cells in rows[:2]) <= 2 else _matrix(rows)


def _edge_list(rows: list[tuple[int, list[str]]]) -> Graph:
    if [cell.lower() for cell in rows[0][1]] == ["from", "to"]:
        rows = rows[1:]
    if not rows:
        raise InputError("the file holds no edges", expected="lines from,to")
    for number, cells in rows:
        if len(cells) > 2 or not all(cells):
            raise InputError(
                f"{shorten(','.join(cells))} is no edge", where=f"line {number}", expected="from,to"
            )
    index, names = _numbered([cell for _, cells in rows for cell in cells])
    edges = [(index[cells[0]], index[cells[1]]) for _, cells in rows if len(cells) == 2]
    return Graph.from_edges(len(index), edges, names=names)


def _matrix(rows: list[tuple[int, list[str]]]) -> Graph:
    width = len(rows[0][1])
    index, names = {str(i): i for i in range(width)}, None
    header = list(index)
    if not set(rows[0][1]) <= {"0", "1"}:
        header = rows[0][1]
        if len(set(header)) < width or not all(header):
            raise InputError(
                "a name is missing or used twice", where=f"line {rows[0][0]}", expected="each once"
            )
        index, names = _numbered(header)
        rows = rows[1:]
    if len(rows) != width:
        raise InputError(
            f"{len(rows)} rows and {width} columns",
            expected="a square matrix of 0 and 1, below an optional line of names",
        )
    edges = []
    for source, (number, cells) in zip(header, rows, strict=True):
        if len(cells) != width or not set(cells) <= {"0", "1"}:
            raise InputError(
                f"{shorten(','.join(cells))} is no row of the matrix",
                where=f"line {number}",
                expected=f"{width} cells, each 0 or 1",
            )
        edges += [(index[source], index[target]) for target, c in zip(header, cells, strict=True) if c == "1"]
    return Graph.from_edges(width, edges, names=names)
