"""Figure 2: heterogeneity on a field of sensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bestarm.methods.fed_sel import theorem
from bestarm.problem.problem import Problem
from bestarm.report import plots
from bestarm.report.colours import COLOURS
from bestarm.report.figures.sweep import DELTA, Drawing, Rows, Sweep
from bestarm.stats import heterogeneity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

TARGET = (0.42, 2.62)  # in a field of 3 by 3 sub-regions


def field() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and means of Figure 2's 27 sensors, three in each of 3 by 3 sub-regions, row by row."""
    corner = np.array([(x, 2 - y) for y in range(3) for x in range(3)], dtype=np.float64)
    inside = np.array([(0.28, 0.70), (0.37, 0.36), (0.68, 0.56)])
    places = (corner[:, None] + inside).reshape(-1, 2)
    places += np.random.default_rng(5).uniform(-0.05, 0.05, places.shape)
    distance = np.hypot(*(places - np.array(TARGET)).T)
    return places, np.round(0.95 * np.exp(-distance / 1.6), 4)


def divisions() -> dict[str, NDArray[np.int64]]:
    """Two ways to divide the sensors among nine clients: the client of each sensor, from 0."""
    _, means = field()
    turns = np.empty(len(means), dtype=np.int64)
    turns[np.argsort(-means, kind="stable")] = np.arange(len(means)) % 9
    return {"by sub-region": np.repeat(np.arange(9), 3), "dealt in turns": turns}


def _divided(clients: NDArray[np.int64]) -> Problem:
    _, means = field()
    return Problem.from_rewards(
        {
            f"{j + 1}": {f"s{i + 1}": float(means[i]) for i in np.flatnonzero(clients == j)}
            for j in range(clients.max() + 1)
        }
    )


def _draw_field(ax: Axes, clients: NDArray[np.int64], lines: bool) -> PathCollection:
    """Draw the sensors, each with the number of its client, and the target; return the coloured dots."""
    places, means = field()
    dots = ax.scatter(
        places[:, 0],
        places[:, 1],
        s=190,
        c=means,
        cmap="cividis",
        vmin=0,
        vmax=1,
        edgecolors="black",
        zorder=3,
    )
    for (x, y), mean, client in zip(places, means, clients, strict=True):
        colour = "white" if mean < 0.5 else "black"
        ax.text(x, y, str(client + 1), ha="center", va="center", fontsize=8, color=colour, zorder=4)
    ax.scatter(*TARGET, s=110, marker="^", color=COLOURS[1], edgecolors="black", zorder=5)
    ax.annotate("target", TARGET, xytext=(9, 5), textcoords="offset points", zorder=5)
    if lines:
        for line in (1, 2):
            ax.axhline(line, color="#999999", linewidth=1)
            ax.axvline(line, color="#999999", linewidth=1)
    ax.set(xlim=(0, 3), ylim=(0, 3), xticks=[], yticks=[], aspect="equal")
    return dots


def sensors(_: Sweep) -> Drawing:
    """Figure 2: one field of sensors, divided so that clients differ, and so that they are alike."""
    plt = plots.pyplot()
    picture, axes = plt.subplots(
        2, 2, figsize=(10.2, 9.4), layout="constrained", gridspec_kw={"height_ratios": [1, 0.98]}
    )
    indices: Rows = []
    words = []
    dots = None
    for column, (name, clients) in enumerate(divisions().items()):
        problem = _divided(clients)
        found, promised = heterogeneity.heterogeneity(problem), theorem.bounds(problem, DELTA)
        ax, below = axes[0][column], axes[1][column]
        dots = _draw_field(ax, clients, lines=name == "by sub-region")
        rounds = "one round" if promised.one_round else f"at most {promised.rounds:,.0f} rounds"
        kind = "heterogeneous" if found.largest <= 1 else "homogeneous"
        ax.set_title(f"{name}: {kind}\nσ with client {found.best + 1} up to {found.largest:.2g}; {rounds}")
        plots.heterogeneity(problem, below, bar=column == 1)
        below.set_title("")
        below.set(xlabel="client j", ylabel="client i")
        words.append(
            f"{name}, the largest σ between the best client and another is {found.largest:.2g}, and "
            f"Theorem 1 as corrected promises {rounds} (H = 100, δ = {DELTA})"
        )
        for i in range(9):
            indices.extend(
                {"division": name, "i": i + 1, "j": j + 1, "sigma": float(found.matrix[i, j])}
                for j in range(9)
                if i != j
            )
    picture.colorbar(dots, ax=axes[0][1], label="mean of a sensor", shrink=0.8)
    caption = (
        "Heterogeneity on a field of 27 sensors. The closer a sensor is to the target, the higher its "
        "mean (its colour); the number in it is its client. Both halves show the same sensors with the "
        f"same means. Left, divided {words[0]}. Right, {words[1]}. Below, σ_ij of client i (row) against "
        "client j (column), clients in the order of their best arms; small σ, blue, is heterogeneous. "
        "From the paper's Figure 2 it differs as follows. The paper's has one division and no numbers; "
        "positions and means are ours. Only indices with the best client matter for the number of "
        "rounds: two losing clients may well be alike (red, left)."
    )
    return Drawing(picture, {"": _table(), "-sigma": indices}, caption)


def _table() -> Rows:
    """Position, mean and clients of each sensor."""
    (places, means), split = field(), divisions()
    return [
        {
            "sensor": f"s{i + 1}", "x": round(float(places[i, 0]), 4), "y": round(float(places[i, 1]), 4),
            "mean": float(means[i]), **{key: int(clients[i]) + 1 for key, clients in split.items()},
        }
        for i in range(len(means))
    ]  # fmt: skip
