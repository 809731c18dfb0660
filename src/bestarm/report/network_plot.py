"""Matplotlib picture of a network: a colour and a shape per group, and names beside the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bestarm.graphs.graph import Graph, Groups, Nodes, circle, members, numbers
from bestarm.report import plots
from bestarm.report.colours import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]

MOST_LABELS = 60  # nodes with names
FONT = 9.0  # points


def network(
    graph: Graph, groups: Groups | None = None, witness: Nodes | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a graph with a colour and shape per group, and rings around the nodes of a witness set.

    Arrows are one-way edges. Nodes are drawn at the graph's positions; without positions, networkx lays them
    out if it is installed, otherwise they are drawn in a circle.
    """
    by_group = members(graph, groups) if groups else {}
    ax = plots.axes_of(ax, 8, 5.5)
    from matplotlib.collections import LineCollection

    places = _layout(graph)
    edges = graph.edges
    lines = np.unique(np.sort(edges, axis=1), axis=0)
    ax.add_collection(LineCollection(list(places[lines]), colors="#999999", linewidths=0.8, zorder=1))
    both = {(v, u) for u, v in edges.tolist()}
    one_way = np.array([edge for edge in edges.tolist() if tuple(edge) not in both])
    if one_way.size:
        begin, end = places[one_way[:, 0]], places[one_way[:, 1]]
        ax.quiver(
            *begin.T, *(0.6 * (end - begin)).T,
            angles="xy", scale_units="xy", scale=1, width=0.003, color="#777777", zorder=1,
        )  # fmt: skip
    size = 130 if graph.n <= MOST_LABELS else 40
    alone = np.setdiff1d(np.arange(graph.n), np.concatenate([[], *by_group.values()]).astype(np.int64))
    if alone.size:
        label = " in no group" if groups else None
        ax.scatter(
            places[alone, 0], places[alone, 1], s=size, color="#999999", marker=".", label=label, zorder=2
        )
    for place, (name, nodes) in enumerate(by_group.items()):
        ax.scatter(
            places[nodes, 0],
            places[nodes, 1],
            s=size,
            color=COLOURS[place % len(COLOURS)],
            marker=plots.MARKERS[place % len(plots.MARKERS)],
            label=" " + plots.plain(name),
            zorder=3,
        )
    if witness is not None:
        cut = places[numbers(graph, witness, "witness", empty=True)]
        ax.scatter(
            cut[:, 0], cut[:, 1], s=3 * size, label=" witness", zorder=4,
            facecolors="none", edgecolors="black", linewidths=1.6,
        )  # fmt: skip
    ax.set_aspect("equal")
    ax.margins(0.12)
    ax.set_axis_off()
    if graph.n <= MOST_LABELS:
        _label(graph, places, ax, 9.0 if witness is None else 13.0)
    if groups or witness is not None:
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), labelspacing=1.2)
    return ax


def _label(graph: Graph, places: NDArray[np.float64], ax: Axes, away: float) -> None:
    """Names beside their nodes, where they cover neither a node nor another name; `away` is in points."""
    ax.apply_aspect()
    spots = ax.transData.transform(places) * 72.0 / ax.figure.dpi  # in points
    taken = [(x - 6.0, y - 6.0, x + 6.0, y + 6.0) for x, y in spots]
    for i, (x, y) in enumerate(spots):
        text = plots.plain(graph.names[i]) if graph.names else f"node {i}"
        wide, high = 0.6 * FONT * len(text), 0.8 * FONT
        ways = [
            (dx, dy)
            for dx in (away, -away - wide, -wide / 2)
            for dy in (-high / 2, away, -away - high)
            if dx != -wide / 2 or dy != -high / 2
        ]
        boxes = {(dx, dy): (x + dx, y + dy, x + dx + wide, y + dy + high) for dx, dy in ways}
        free = [way for way, box in boxes.items() if not any(_overlap(box, other) for other in taken)]
        dx, dy = (free or ways)[0]
        taken.append(boxes[dx, dy])
        ax.annotate(
            text, places[i], xytext=(dx, dy), textcoords="offset points", fontsize=FONT, zorder=5,
            annotation_clip=False,
        )  # fmt: skip


def _overlap(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _layout(graph: Graph) -> NDArray[np.float64]:
    if graph.positions is not None:
        return graph.positions
    try:
        import networkx as nx
    except ImportError:
        return circle(graph.n)
    drawn = nx.Graph(graph.edges.tolist())
    drawn.add_nodes_from(range(graph.n))
    places = nx.spring_layout(drawn, seed=0)
    return np.array([places[i] for i in range(graph.n)])
