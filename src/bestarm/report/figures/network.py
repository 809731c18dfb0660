"""Figure 3: a network and its weakness."""

from __future__ import annotations

import numpy as np

from bestarm.graphs import generators, robustness
from bestarm.report import network_plot, plots
from bestarm.report.colours import COLOURS
from bestarm.report.figures.sweep import Drawing, Rows, Sweep


def network(_: Sweep) -> Drawing:
    """Figure 3: three groups, and what a lie of client 5 would cut off."""
    plt = plots.pyplot()
    graph, groups = generators.figure3()
    rows: Rows = []
    found = {}
    for name, group in groups.items():
        r, witness = found[name] = robustness.strong_robustness(graph, group)
        rows.append({"group": name, "clients": " ".join(sorted(group)), "strong_robustness": int(r)})
        rows[-1] |= {"witness": " ".join(sorted(map(str, witness)))}
    cut = sorted(map(str, robustness.worst_cut(graph, groups, 1)))
    picture, ax = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
    network_plot.network(graph, groups, witness=found["C1"][1], ax=ax)
    weak = np.array([graph.positions[graph.names.index(node)] for node in cut])  # type: ignore[index,union-attr]
    ax.scatter(*weak.T, s=330, marker="s", facecolors="none", edgecolors=COLOURS[7], linestyle=":",
               linewidths=1.8, label=" bottleneck", zorder=4)  # fmt: skip
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), labelspacing=1.3)
    edges = [{"from": graph.names[u], "to": graph.names[v]} for u, v in graph.edges]  # type: ignore[index]
    names = ", ".join(f"{row['group']} {row['strong_robustness']}" for row in rows)
    tolerated = robustness.tolerance(graph, groups)
    caption = (
        "The network of the paper's Figure 3 with its weakness marked. Ringed: a witness set for group "
        "C1, in which nobody hears more than one client outside of it; all that it can learn about C1 "
        f"passes through client {', '.join(cut)} (dotted square), the worst place for a liar. "
        f"Strong robustness by group: {names}; so the network tolerates f = {tolerated} liars "
        "around a client. "
        "C2 has one client, so no edges alone can help: with f = 1 the paper's protocol needs at least "
        "four clients per group (3f + 1), the exchange of intervals three (2f + 1). From the paper's "
        "figure it differs in that robustness and witness are computed."
    )
    return Drawing(picture, {"": rows, "-edges": edges}, caption)
