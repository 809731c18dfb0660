"""Matplotlib pictures of a record, a problem or a network. Each function gives back axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm import theory
from bestarm.errors import InputError, nearest, visible
from bestarm.problem import Problem
from bestarm.record import Record, View, fallen, views
from bestarm.rewards import Scale
from bestarm.study import NUMBERS, Trials
from bestarm.topology import Graph, Groups, Nodes, circle, members, numbers
from bestarm.words import mean_of

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "os^DvPX"
MOST_GROUPS = 12
MOST_LABELS = 60


def pyplot() -> Any:
    """Matplotlib's pyplot, without a window; InputError if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise InputError(
            "plots need Matplotlib, which is not installed",
            fix='Install it with: pip install "bestarm[report]"',
        ) from None
    import matplotlib.pyplot as plt

    if not matplotlib.is_interactive() and matplotlib.get_backend().lower() not in ("agg", "inline"):
        plt.switch_backend("agg")
    return plt


def plain(name: object) -> str:
    """A name as Matplotlib shows it letter by letter: a dollar sign would begin a formula."""
    return visible(str(name)).replace("$", r"\$")


def intervals(record: Record, ax: Any = None, x: str | None = None) -> Any:
    """Each group's arm with its interval until the group falls, against the `round` or the `pulls` of it."""
    plt = pyplot()
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    x = x or ("round" if record.method == "fed-sel" else "pulls")
    scale = Scale(**record.problem["scale"])
    lines: dict[int, list[View]] = {}
    for view in views(record):
        lines.setdefault(view.group, []).append(view)
    fell = fallen(record)
    if not lines:
        ax.text(0.5, 0.5, "no round was completed", ha="center", transform=ax.transAxes)
    last = max((getattr(view, x) for line in lines.values() for view in line), default=0)
    shown = sorted(lines, key=lambda j: -lines[j][-1].upper)[:MOST_GROUPS]
    for place, j in enumerate(shown):
        colour = COLOURS[place % len(COLOURS)]
        at = [getattr(view, x) for view in lines[j]]
        mean, lower, upper = (
            [scale.user(getattr(v, k)) for v in lines[j]] for k in ("mean", "lower", "upper")
        )
        name = " " + plain(record.problem["groups"][j]["name"])  # a leading underscore would hide the entry
        name += f", out in round {fell[j]}" if j in fell else ", stays"
        if len(at) == 1:  # one report: a point with its interval, beside the others of its round
            where = [at[0] + (place - (len(shown) - 1) / 2) * max(last, 1) * 0.012]
            span = [[abs(mean[0] - lower[0])], [abs(upper[0] - mean[0])]]
            ax.errorbar(where, mean, yerr=span, fmt="o", color=colour, capsize=4, label=name)
        else:
            ax.fill_between(at, lower, upper, color=colour, alpha=0.22, linewidth=0)
            ax.plot(at, mean, color=colour, label=name)
            if j in fell:
                ax.plot(at[-1], mean[-1], "x", color=colour, markersize=9, markeredgewidth=2)
    if x == "round":
        ax.set_xlabel("round (round 0: the first reports)")
    else:
        ax.set_xlabel("pulls of the group's arm")
        ax.set_xscale("log")
    band = "its interval" if record.method == "fed-sel" else "95 % for the eye"
    ax.set_ylabel(f"{plain(mean_of(record.problem))}, with {band}")
    verdict = record.verdict
    arm = plain(verdict.arm or "")
    ax.set_title(
        f"{record.method}: {arm} is the best arm" if arm else f"{record.method}: undecided, {verdict.reason}"
    )
    if shown:
        ax.legend(frameon=False)
    if len(lines) > len(shown):
        rest = f"{len(lines) - len(shown)} further groups not drawn"
        ax.text(0.99, 0.01, rest, ha="right", transform=ax.transAxes)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def trials(found: Trials, x: str | None = None, y: str = "pulls_total", ax: Any = None) -> Any:
    """Means of `y` with 95 % intervals against the varied key `x`; other varied keys give a line each."""
    plt = pyplot()
    if y not in NUMBERS:
        raise InputError(f'y = "{y}" can\'t be drawn', fix=nearest(y, NUMBERS))
    if not found.varied:
        raise InputError("nothing was varied in this study", fix="Give study(…, vary={key: values})")
    x = found.varied[0] if x is None else x
    if x not in found.varied:
        raise InputError(f'x = "{x}" was not varied', fix=nearest(x, found.varied))
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    lines: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for row in found.summary(limits=False):
        name = ", ".join(f"{key} = {row[key]}" for key in found.varied if key != x)
        lines.setdefault(name, []).append((row[x], row[y]))
    numeric = all(type(at) in (int, float) for line in lines.values() for at, _ in line)
    for place, (name, line) in enumerate(lines.items()):
        line = sorted(line, key=lambda point: point[0]) if numeric else line
        at = [value if numeric else plain(value) for value, _ in line]
        mean = [cell["mean"] for _, cell in line]
        half = [(span[1] - span[0]) / 2 if (span := cell["mean_interval"]) else 0.0 for _, cell in line]
        style = {
            "marker": MARKERS[place % len(MARKERS)],
            "color": COLOURS[place % len(COLOURS)],
            "capsize": 3,
        }
        join = "-" if numeric else ""
        ax.errorbar(at, mean, yerr=half, linestyle=join, label=plain(name) if name else None, **style)
    low = min(cell["mean"] for line in lines.values() for _, cell in line)
    if low > 0 and max(cell["mean"] for line in lines.values() for _, cell in line) / low > 20:
        ax.set_yscale("log")
    ax.set_xlabel(plain(x))
    ax.set_ylabel(f"mean {y}, with 95 % intervals")
    if any(lines):
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def network(graph: Graph, groups: Groups | None = None, witness: Nodes | None = None, ax: Any = None) -> Any:
    """A graph, its groups told apart by colour and shape, the nodes of a witness set ringed.

    Arrows are edges that go one way only. Nodes stand where the graph says; without positions networkx
    lays them out if it is installed, else they stand in a circle.
    """
    plt = pyplot()
    from matplotlib.collections import LineCollection

    by_group = members(graph, groups) if groups else {}
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 5.5), layout="constrained")
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
        ax.scatter(*places[alone].T, s=size, color="#999999", marker=".", label=label, zorder=2)
    for place, (name, nodes) in enumerate(by_group.items()):
        ax.scatter(
            *places[nodes].T,
            s=size,
            color=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            label=" " + plain(name),
            zorder=3,
        )
    if witness is not None:
        cut = places[numbers(graph, witness, "witness", empty=True)]
        ring = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.6}
        ax.scatter(*cut.T, s=3 * size, label=" witness", zorder=4, **ring)
    if graph.n <= MOST_LABELS:
        for i, (x, y) in enumerate(places):
            text = plain(graph.names[i]) if graph.names else str(i)
            away = (9, 8) if witness is None else (12, 10)
            ax.annotate(text, (x, y), xytext=away, textcoords="offset points", fontsize=9, zorder=5)
    ax.set_aspect("equal")
    ax.margins(0.12)
    ax.set_axis_off()
    if groups or witness is not None:
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), labelspacing=1.2)
    return ax


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


def heterogeneity(problem: Problem, ax: Any = None, bar: bool = True) -> Any:
    """σ_ij of the groups with the best arms: row i, column j. At 1 the colour turns.

    Blue (σ below 1): what a group's own gap demands is more than what telling it from the other group does.
    """
    plt = pyplot()
    found = theory.heterogeneity(problem)
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    shown = np.argsort(found.global_gaps, kind="stable")[:MOST_GROUPS]
    matrix = found.matrix[np.ix_(shown, shown)]
    with np.errstate(divide="ignore"):
        shade = np.clip(np.log2(matrix), -4.0, 4.0)  # the diagonal is nan and stays white
    picture = ax.imshow(shade, cmap="RdBu_r", vmin=-4.0, vmax=4.0)
    names = [plain(found.groups[j]) for j in shown]
    ax.set_xticks(range(len(shown)), names, rotation=45 if len(shown) > 4 else 0)
    ax.set_yticks(range(len(shown)), names)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            if i != j:
                text = "∞" if np.isinf(value) else f"{value:.{3 if len(shown) < 7 else 2}g}"
                colour = "white" if abs(shade[i, j]) > 2.5 else "black"
                size = 10 if len(shown) < 7 else 8
                ax.text(j, i, text, ha="center", va="center", color=colour, fontsize=size)
    if bar:
        scale = ax.figure.colorbar(picture, ax=ax, shrink=0.8)
        scale.set_ticks([-4, -2, 0, 2, 4], labels=["≤ 1/16", "1/4", "1", "4", "≥ 16"])
    ax.set_ylabel("group i")
    ax.set_xlabel("group j")
    ax.set_title("σ of group i against group j (small: heterogeneous)")
    if len(found.groups) > len(shown):
        rest = f"{len(found.groups) - len(shown)} further groups not drawn"
        ax.text(0.99, -0.2, rest, ha="right", transform=ax.transAxes)
    return ax


def side_by_side(records: Sequence[Record], path: str) -> None:
    """Save one picture with the intervals of several records, on one scale of rewards."""
    plt = pyplot()
    _, axes = plt.subplots(
        1, len(records), figsize=(6.5 * len(records), 4.5), sharey=True, squeeze=False, layout="constrained"
    )
    for record, ax in zip(records, axes[0], strict=True):
        intervals(record, ax)
    save(axes[0][0], path)


def check_format(path: Path) -> None:
    """InputError unless a picture can be made with this file's ending; needs Matplotlib."""
    pyplot()
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f'"{path.suffix}" names no picture', where=str(path), expected=".png, .svg or .pdf")


def save(ax: Any, path: str) -> None:
    """Write the figure of these axes; the ending names the format (.png, .svg, .pdf)."""
    try:
        # No date and no random ids: the same record gives the same file.
        with pyplot().rc_context({"svg.hashsalt": "bestarm"}):
            is_svg = str(path).endswith(".svg")
            ax.figure.savefig(path, dpi=150, metadata={"Date": None} if is_svg else None)
    except (OSError, ValueError) as error:
        raise InputError(f"the picture can't be written: {error}", where=str(path)) from None
    finally:
        pyplot().close(ax.figure)
