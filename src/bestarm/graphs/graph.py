"""Networks of clients, and how many liars they tolerate (the paper's Section 6).

A ``Graph`` says which clients can send to which. A group's reports reach all clients despite f liars around
each client if the graph is strongly r-robust with respect to the group (Definition 2) and r is large enough.
It is strongly r-robust exactly when bootstrap percolation with threshold r from the group reaches every node:
a node joins as soon as r of its in-neighbours have joined. The nodes that never join are a witness: a set in
which no node has r in-neighbours outside the set. A graph is built from edges, a file or a networkx graph;
results are sets of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError
from bestarm.util.text import counted, nearest, shorten

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

Indices = NDArray[np.int64]
Node = int | str
Nodes = Iterable[Node]
Groups = Mapping[str, Nodes] | Sequence[Nodes]
MAX_NODES = 1_000_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An immutable directed graph of nodes 0 … n−1. An edge u → v means that v hears u.

    If a graph has names, all functions take and return sets of names. Build a graph with ``from_edges``,
    ``from_networkx``, ``read`` or a generator.

    Parameters
    ----------
    starts, targets : array of int
        Node u is heard by ``targets[starts[u]:starts[u + 1]]``.
    names : tuple of str, optional
        The names of the nodes.
    positions : array, optional
        Where plots draw the nodes: one row (x, y) per node.

    Examples
    --------
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
        return f"Graph({counted(self.n, 'node')}, {counted(len(self.targets), 'edge')})"

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

        Self-loops and duplicate edges are dropped.

        Parameters
        ----------
        n : int
            The number of nodes.
        edges : array_like or iterable of pairs of int
            The edges (u, v).
        undirected : bool
            Whether each edge also runs from v to u.
        names : sequence of str, optional
            The names of the nodes.
        positions : array_like, optional
            The position (x, y) of each node, for plots.

        Returns
        -------
        Graph

        Raises
        ------
        InputError
            If an edge, a name or a position is invalid.

        Examples
        --------
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
    def from_networkx(graph: nx.Graph) -> Graph:
        """Make a graph from a networkx graph.

        It has names unless the nodes are 0 … n−1. Positions come from the node attribute `pos`, or from `x`
        and `y`, if every node has them.

        Parameters
        ----------
        graph : networkx Graph
            Directed or not.

        Returns
        -------
        Graph
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
        """Read a graph from a file.

        A ``.graphml`` file is GraphML (needs networkx). Any other file is text, with commas or blanks between
        cells and ``#`` before a comment. With two cells per line, the lines are edges "from,to"; a first line
        "from,to" is skipped, and a line with one cell adds a node without edges. With three or more cells,
        the file is a square matrix of 0 and 1, where row u, column v is the edge u → v, below an optional
        line of names. The graph has names unless the nodes are 0 … n−1.

        Parameters
        ----------
        path : str or Path
            The file to read.

        Returns
        -------
        Graph

        Raises
        ------
        InputError
            If the file can't be read; the message names the line.
        """
        from bestarm.graphs.files import _read_graphml, _read_text

        path = Path(path)
        try:
            return _read_graphml(path) if path.suffix.lower() == ".graphml" else _read_text(path)
        except InputError as error:
            raise error.at(str(path)) from None
        except OSError as error:
            raise InputError(f"the file can't be read: {error.strerror}", where=str(path)) from None

    def with_edges(self, edges: Iterable[tuple[Node, Node]]) -> Graph:
        """Add edges, such as those that ``weak_points`` returns.

        Parameters
        ----------
        edges : iterable of pairs
            The new edges (u, v): v hears u.

        Returns
        -------
        Graph
            A new graph.

        Examples
        --------
        >>> from bestarm.graphs.generators import figure3
        >>> figure3()[0].with_edges([("2", "7")])
        Graph(9 nodes, 33 edges)
        """
        more = [(int(numbers(self, [u])[0]), int(numbers(self, [v])[0])) for u, v in edges]
        pairs = np.concatenate([self.edges, np.array(more, dtype=np.int64).reshape(-1, 2)])
        return Graph.from_edges(self.n, pairs, names=self.names, positions=self.positions)

    def plot(self, groups: Groups | None = None, ax: Axes | None = None) -> Axes:
        """Plot the graph and its groups (needs ``bestarm[report]``).

        Parameters
        ----------
        groups : mapping or sequence, optional
            The nodes of each group.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from bestarm.report.network_plot import network

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
        """Name -> node number; empty if the graph has no names."""
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

    def nodes(self, indices: Indices) -> frozenset[Node]:
        """Node numbers as users see them: a set of names if the graph has names."""
        numbers = indices.tolist()
        return frozenset(numbers if self.names is None else [self.names[i] for i in numbers])


def members(graph: Graph, groups: Groups) -> dict[str, Indices]:
    if not isinstance(groups, Mapping):
        groups = {f"g{j}": nodes for j, nodes in enumerate(groups, start=1)}
    if not groups:
        raise InputError("there are no groups", expected="at least one group of nodes")
    return {name: numbers(graph, nodes, f'group "{name}"') for name, nodes in groups.items()}


def numbers(graph: Graph, nodes: Nodes, where: str = "group", empty: bool = False) -> Indices:
    """Convert nodes given by name or number to sorted node numbers."""
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise InputError(f"{shorten(nodes)} is not a set of nodes", where=where, expected="a set of nodes")
    found = nodes if isinstance(nodes, np.ndarray) else list(nodes)
    if len(found) == 0 and not empty:
        raise InputError("the set is empty", where=where, expected="at least one node")
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
        raise InputError(f"{shorten(found)} is not a set of nodes", where=where, expected=expected)
    strange = array[(array < 0) | (array >= graph.n)]
    if strange.size:
        raise InputError(f"there is no node {strange[0]}", where=where, expected=expected)
    mask = np.zeros(graph.n, dtype=bool)
    mask[array] = True
    return np.flatnonzero(mask)


def _check_whole(what: str, value: object, low: int, high: int = MAX_NODES) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(
            f"{what} = {shorten(value)} can't be used", expected=f"a whole number from {low:,} to {high:,}"
        )


def _starts(counts: Indices) -> Indices:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def circle(n: int) -> NDArray[np.float64]:
    angles = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.sin(angles), np.cos(angles)])


def _pairs(edges: object, n: int) -> Indices:
    if isinstance(edges, Iterable) and not isinstance(edges, np.ndarray):
        edges = list(edges)
    try:
        pairs = np.asarray(edges)
    except (TypeError, ValueError):  # pairs of different lengths
        pairs = np.zeros(1)
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(f"{shorten(edges)} are not edges", where="edges", expected="pairs of node numbers")
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
    """Numbers for labels: the labels if they are 0 … n−1, else in order of appearance, with names."""
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
