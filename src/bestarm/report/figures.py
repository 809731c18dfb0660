"""The paper's Figures 1 to 5, made anew: each as SVG and PNG, its numbers as CSV, its caption as text.

``make`` writes them to a folder, figure by figure; the files of a figure appear together, whole, or not at
all. A caption says what is shown, how it was made, and what differs from the paper. The paper's sweep over σ
is run once and serves both halves of Figure 4.
"""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm import theory, topology
from bestarm.errors import InputError, nearest, shorten
from bestarm.problem import Problem
from bestarm.protocol import fedsel
from bestarm.protocol.fisher import PREFERENCES
from bestarm.protocol.machine import Transitions
from bestarm.report import machines, plots
from bestarm.simulate import check_seed
from bestarm.study import StudyProgress, study

# The paper's Section 7: σ in [1, 15], 50 trials, δ = 0.1, no quantiser. It does not print its values of H.
SIGMAS = tuple(range(1, 16))
PERIODS = (100, 200, 400, 800, 1600)
DELTA = 0.1
TRIALS = 50
SHOWN = (3, 4, 5, 7, 15)  # values of σ with a line in Figure 4(b)
COLUMNS = ("rounds", "pulls_phase1", "pulls_phase2", "pulls_total", "bits_up", "bits_down")
TARGET = (0.42, 2.62)  # of Figure 2, in a field of 3 by 3 sub-regions
STYLE = {"svg.hashsalt": "bestarm", "font.size": 10, "axes.titlesize": 11, "legend.fontsize": 9}

HALVES = {"4": ("4a", "4b")}

Rows = list[dict[str, Any]]
Watch = Callable[[StudyProgress], None]


@dataclass(frozen=True)
class Drawing:
    """A figure: Matplotlib's object, tables (ending of the file's name -> rows), and what it shows."""

    picture: Any
    tables: Mapping[str, Rows]
    caption: str


@dataclass(frozen=True)
class Made:
    """A figure that has been written: its name, its title and its files."""

    name: str
    title: str
    files: tuple[Path, ...]


class Sweep:
    """The runs behind Figure 4: made when they are first asked for."""

    def __init__(self, trials: int, seed: int, workers: int | None = None, watch: Watch | None = None):
        self.trials, self.seed, self.workers, self.watch = trials, seed, workers, watch

    def _run(self, method: str, vary: Mapping[str, Sequence[Any]], **options: Any) -> Rows:
        done = study(
            Problem.paper_instance, method, trials=self.trials, seed=self.seed, workers=self.workers,
            watch=self.watch, vary={"sigma": SIGMAS, **vary}, delta=DELTA, **options,
        )  # fmt: skip
        return done.summary(limits=False)

    @cached_property
    def fed_sel(self) -> Rows:
        """Without the quantiser, as in the paper's simulation: for each σ and each H."""
        return self._run("fed-sel", {"period": PERIODS}, quantiser=False)

    @cached_property
    def quantised(self) -> Rows:
        """The algorithm as the paper writes it, at the shortest H."""
        return self._run("fed-sel", {"period": PERIODS[:1]}, quantiser=True)

    @cached_property
    def fisher(self) -> Rows:
        """For each σ and each preference."""
        return self._run("fisher", {"prefer": list(PREFERENCES)})


def make(
    out: str | Path,
    *,
    only: Sequence[str] | None = None,
    trials: int = TRIALS,
    seed: int = 1,
    workers: int | None = None,
    watch: Watch | None = None,
) -> Iterator[Made]:
    """Write the figures to the folder `out`, all of them or those named in `only`, one by one.

    What is wrong with the arguments or the folder is said at once; then each figure is made when the next
    one is asked for. Files of the same names are replaced.
    """
    named = list(FIGURES) if only is None else [n for name in only for n in HALVES.get(name, (name,))]
    names = list(dict.fromkeys(named))
    if not names:
        raise InputError("no figure is named", expected=f"one of: {', '.join(FIGURES)}")
    for name in names:
        if name not in FIGURES:
            raise InputError(f"there is no figure {shorten(name)}", fix=nearest(str(name), FIGURES))
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise InputError(f"trials = {trials!r} can't be used", expected="a whole number of at least 1")
    sweep = Sweep(trials, check_seed(seed), workers, watch)
    plots.check_format(Path("figure.svg"))
    folder = Path(out)
    with _scratch(folder):
        pass  # it can be written to
    return _make(folder, names, sweep)


def _make(folder: Path, names: Sequence[str], sweep: Sweep) -> Iterator[Made]:
    for name in names:
        title, draw = FIGURES[name]
        with plots.pyplot().rc_context(STYLE):
            drawing = draw(sweep)
            try:
                files = _write(folder, f"figure-{name}", drawing, f"Figure {_printed(name)}. {title}.")
            finally:
                plots.pyplot().close(drawing.picture)
        yield Made(name, title, files)


def _printed(name: str) -> str:
    return name if name.isdigit() else f"{name[:-1]}({name[-1]})"


class _scratch:  # noqa: N801
    """A hidden folder inside `folder`, which is made if need be; InputError if that can't be."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / f".figures.{os.getpid()}"

    def __enter__(self) -> Path:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except OSError as error:
            raise InputError(f"can't be written to: {error.strerror}", where=str(self.folder)) from None
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _write(folder: Path, stem: str, drawing: Drawing, heading: str) -> tuple[Path, ...]:
    """All files of a figure into a scratch folder, and only then to their places."""
    with _scratch(folder) as scratch:
        try:
            for ending, facts in {"svg": {"Date": None}, "png": {"Software": None}}.items():
                drawing.picture.savefig(scratch / f"{stem}.{ending}", dpi=200, metadata=facts)
            for suffix, rows in drawing.tables.items():
                with (scratch / f"{stem}{suffix}.csv").open("w", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)
            text = f"{heading}\n\n{drawing.caption}\n"
            (scratch / f"{stem}.txt").write_text(text, encoding="utf-8")
            made = sorted(path.name for path in scratch.iterdir())
            for name in made:
                (scratch / name).replace(folder / name)
        except OSError as error:
            raise InputError(f"can't be written to: {error.strerror}", where=str(folder)) from None
    return tuple(folder / name for name in made)


def protocol(client: Transitions, server: Transitions) -> Drawing:
    """Figure 1: both machines, drawn from their tables, and what passes between them."""
    plt = plots.pyplot()
    picture, ax = plt.subplots(figsize=(10.5, 7.6), layout="constrained")
    phases = {"exploring": "Phase I", "sampling": "Phase II"}
    lower = machines.draw(client, ax, plots.COLOURS[0], title="client", notes=phases)
    depth = min(y for _, y in machines.places(server).values())
    above = lower[3] + 4.3 - depth
    upper = machines.draw(server, ax, plots.COLOURS[1], title="server", shift=(machines.STEP, above))
    middle = (max(lower[0], upper[0]) + min(lower[1], upper[1])) / 2
    messages = (
        (
            -0.5,
            lower[3],
            upper[2],
            "right",
            "up: arm, mean and count\n(round 0); then the bin\nof the new mean",
        ),
        (0.5, upper[2], lower[3], "left", "down, to all: which groups\nare active, or the end\nand the arm"),
    )
    for side, begin, end, align, words in messages:
        arrow = {"arrowstyle": "-|>", "linestyle": "--", "linewidth": 1.4, "color": "black"}
        ax.annotate("", (middle + side, end), (middle + side, begin), arrowprops=arrow)
        ax.text(middle + 1.3 * side, (begin + end) / 2, words, ha=align, va="center", fontsize=9)
    ax.set_aspect("equal")
    ax.set_xlim(min(lower[0], upper[0]) - 0.2, max(lower[1], upper[1]) + 0.2)
    ax.set_ylim(lower[2] - 0.2, upper[3] + 0.2)
    ax.set_axis_off()
    rows = [
        {"machine": name, "state": a, "next": b, "events": " ".join(events)}
        for name, table in (("client", client), ("server", server))
        for (a, b), events in machines.arrows(table).items()
    ]
    caption = (
        "The machines of Fed-SEL, drawn from the tables that the program obeys: every state and every "
        "event that may lead from one to the next (a loop leaves the state as it is). Pulled: rewards "
        "came. Received: a message came. PatienceOver: the driver waits no longer. Stop: no more pulls "
        "can be had. From the paper's Figure 1 it differs as follows. The server broadcasts which "
        "groups are active and an explicit stop, not a threshold that each client compares with: a "
        "rounding error could deadlock the two ends (erratum 21). The sample count travels with the "
        "first report (erratum 10), and that report's mean travels exactly (erratum 9b). A client may "
        "end early, and the server may give up."
    )
    return Drawing(picture, {"": rows}, caption)


def field() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and means of Figure 2's 27 sensors, three to each of 3 by 3 sub-regions, row by row."""
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


def sensors(_: Sweep) -> Drawing:
    """Figure 2: one field of sensors, divided so that clients differ, and so that they are alike."""
    plt = plots.pyplot()
    places, means = field()
    picture, axes = plt.subplots(
        2, 2, figsize=(10.2, 9.4), layout="constrained", gridspec_kw={"height_ratios": [1, 0.98]}
    )
    indices: Rows = []
    words = []
    dots = None
    for column, (name, clients) in enumerate(divisions().items()):
        problem = _divided(clients)
        found, promised = theory.heterogeneity(problem), theory.bounds(problem, DELTA)
        ax, below = axes[0][column], axes[1][column]
        dots = ax.scatter(
            *places.T, s=190, c=means, cmap="cividis", vmin=0, vmax=1, edgecolors="black", zorder=3
        )
        for (x, y), mean, client in zip(places, means, clients, strict=True):
            colour = "white" if mean < 0.5 else "black"
            ax.text(x, y, str(client + 1), ha="center", va="center", fontsize=8, color=colour, zorder=4)
        ax.scatter(*TARGET, s=110, marker="^", color=plots.COLOURS[1], edgecolors="black", zorder=5)
        ax.annotate("target", TARGET, xytext=(9, 5), textcoords="offset points", zorder=5)
        if name == "by sub-region":
            for line in (1, 2):
                ax.axhline(line, color="#999999", linewidth=1)
                ax.axvline(line, color="#999999", linewidth=1)
        ax.set(xlim=(0, 3), ylim=(0, 3), xticks=[], yticks=[], aspect="equal")
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
    split = divisions()
    table = [
        {
            "sensor": f"s{i + 1}", "x": round(float(places[i, 0]), 4), "y": round(float(places[i, 1]), 4),
            "mean": float(means[i]), **{key: int(clients[i]) + 1 for key, clients in split.items()},
        }
        for i in range(len(means))
    ]  # fmt: skip
    caption = (
        "Heterogeneity on a field of 27 sensors. The closer a sensor is to the target, the higher its "
        "mean (its colour); the number in it is its client. Both halves show the same sensors with the "
        f"same means. Left, divided {words[0]}. Right, {words[1]}. Below, σ_ij of client i (row) against "
        "client j (column), clients in the order of their best arms; small σ, blue, is heterogeneous. "
        "From the paper's Figure 2 it differs as follows. The paper's has one division and no numbers; "
        "positions and means are ours. Only indices with the best client matter for the number of "
        "rounds: two losing clients may well be alike (red, left)."
    )
    return Drawing(picture, {"": table, "-sigma": indices}, caption)


def network(_: Sweep) -> Drawing:
    """Figure 3: three groups, and what a lie of client 5 would cut off."""
    plt = plots.pyplot()
    graph, groups = topology.figure3()
    rows: Rows = []
    found = {}
    for name, group in groups.items():
        r, witness = found[name] = topology.strong_robustness(graph, group)
        rows.append({"group": name, "clients": " ".join(sorted(group)), "strong_robustness": int(r)})
        rows[-1] |= {"witness": " ".join(sorted(witness))}
    cut = topology.worst_cut(graph, groups, 1)
    picture, ax = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
    plots.network(graph, groups, witness=found["C1"][1], ax=ax)
    weak = np.array([graph.positions[graph.names.index(node)] for node in sorted(cut)])  # type: ignore[index,union-attr]
    ax.scatter(*weak.T, s=330, marker="s", facecolors="none", edgecolors=plots.COLOURS[6], linestyle=":",
               linewidths=1.8, label=" bottleneck", zorder=4)  # fmt: skip
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), labelspacing=1.3)
    edges = [{"from": graph.names[u], "to": graph.names[v]} for u, v in graph.edges]  # type: ignore[index]
    names = ", ".join(f"{row['group']} {row['strong_robustness']}" for row in rows)
    bears = topology.tolerance(graph, groups)
    caption = (
        "The network of the paper's Figure 3 with its weakness marked. Ringed: a witness set for group "
        "C1, in which nobody hears more than one client outside of it; all that it can learn about C1 "
        f"passes through client {', '.join(sorted(cut))} (dotted square), the worst place for a liar. "
        f"Strong robustness by group: {names}; so the network bears f = {bears} liars around a client. "
        "C2 has one client, so no edges alone can help: with f = 1 the paper's protocol needs at least "
        "four clients a group (3f + 1), the exchange of intervals three (2f + 1). From the paper's "
        "figure it differs in that robustness and witness are computed."
    )
    return Drawing(picture, {"": rows, "-edges": edges}, caption)


def rounds(sweep: Sweep) -> Drawing:
    """Figure 4(a): rounds against σ for several H, and the same sweep for Fed-Fisher beside it."""
    plt = plots.pyplot()
    picture, (left, right) = plt.subplots(
        1, 2, figsize=(10.5, 4.4), sharey=True, layout="constrained", gridspec_kw={"width_ratios": [1.35, 1]}
    )
    for place, period in enumerate(PERIODS):
        line = [row for row in sweep.fed_sel if row["period"] == period]
        _line(left, "sigma", line, "rounds", place, f"H = {period:,}")
    _line(left, "sigma", sweep.quantised, "rounds", 6, f"H = {PERIODS[0]}, quantised", linestyle="--")
    for place, prefer in enumerate(PREFERENCES):
        line = [row for row in sweep.fisher if row["prefer"] == prefer]
        _line(right, "sigma", line, "rounds", place, f'prefer = "{prefer}"')
    left.set_yscale("log")
    left.set_ylim(bottom=0.8)
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.set_ylabel("rounds (the Phase I reports are one)")
    for ax, name in ((left, "Fed-SEL"), (right, "Fed-Fisher: it has no period")):
        ax.set_title(name)
        ax.set_xlabel("σ (small: heterogeneous)")
        ax.set_xticks(SIGMAS[::2])
        ax.legend(frameon=False, loc="lower right" if ax is left else "upper right")
        ax.spines[["top", "right"]].set_visible(False)
    table = [
        *_table("fed-sel", sweep.fed_sel, quantiser=False),
        *_table("fed-sel", sweep.quantised, quantiser=True),
        *_table("fisher", sweep.fisher),
    ]

    def mean(rows: Rows, column: str, **keys: Any) -> float:
        return float(next(r for r in rows if keys.items() <= r.items())[column]["mean"])

    last, first = SIGMAS[-1], PERIODS[0]
    few = [s for s in SIGMAS if mean(sweep.fed_sel, "rounds", sigma=s, period=first) <= 1.0]
    alone = f" One round was enough in all runs at σ = {', '.join(map(str, few))}." if few else ""
    less = mean(sweep.fed_sel, "pulls_total", sigma=last, period=first)
    less /= mean(sweep.fisher, "pulls_total", sigma=last, prefer="pulls")
    caption = (
        f"Rounds against heterogeneity on the paper's instance, δ = {DELTA}: means of {sweep.trials} "
        "trials for each point, bands are Student's 95 % intervals of the mean. Left: Fed-SEL without "
        "the quantiser, as in the paper's simulation, for five periods H, and dashed as Algorithm 2 is "
        f"written, with it.{alone} At σ = {last} it took "
        f"{mean(sweep.fed_sel, 'rounds', sigma=last, period=first):.0f} rounds at H = {first}, "
        f"{mean(sweep.quantised, 'rounds', sigma=last):.0f} with the quantiser, and "
        f"{mean(sweep.fed_sel, 'rounds', sigma=last, period=2 * first):.0f} at H = {2 * first}: doubling "
        "H halves the rounds. Right: the same sweep for Fed-Fisher, whose rounds hardly depend on σ "
        f"and which makes {less:,.0f} times fewer pulls at σ = {last}; but nothing beats one round. What "
        "differs from the paper: its text says that rounds decrease as σ increases. That is inverted: "
        "they increase, as Theorem 1 has it, because a small σ is more heterogeneous (erratum 22). The "
        "Phase I reports are round 0 and are counted as a round (erratum 4). The paper's simulation had "
        "the quantiser off. It does not print its values of H; these are ours."
    )
    return Drawing(picture, {"": table}, caption)


def phase2(sweep: Sweep) -> Drawing:
    """Figure 4(b): Phase II pulls against H, for some values of σ."""
    plt = plots.pyplot()
    picture, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for place, sigma in enumerate(SHOWN):
        line = [row for row in sweep.fed_sel if row["sigma"] == sigma]
        _line(ax, "period", line, "pulls_phase2", place, f"σ = {sigma}")
    ax.set(
        xscale="log", yscale="log", xlabel="H, pulls between two rounds", ylabel="Phase II pulls, all clients"
    )
    ax.set_xticks(PERIODS, [f"{period:,}" for period in PERIODS])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter("{x:,.0f}")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    ax.spines[["top", "right"]].set_visible(False)
    ends = [
        next(r["pulls_phase2"]["mean"] for r in sweep.fed_sel if (r["sigma"], r["period"]) == (15, period))
        for period in (PERIODS[0], PERIODS[-1])
    ]
    caption = (
        "Phase II pulls of all clients together against the period H on the paper's instance, δ = "
        f"{DELTA}, without the quantiser: means of {sweep.trials} trials, bands are Student's 95 % "
        f"intervals of the mean. At σ = 15 they were {ends[0]:,.0f} with H = {PERIODS[0]} and "
        f"{ends[1]:,.0f} with H = {PERIODS[-1]:,}: sixteen times fewer rounds for about as many pulls. "
        "Where Phase II is short (σ = 3), runs differ widely, and a long period is a large part of it; "
        "at σ = 1 there is no Phase II. What differs from the paper: an active client makes H(R − 1) "
        "pulls in R rounds, not H·R, as the Phase I reports are round 0 (erratum 4). The paper does not "
        "print its values of H or the σ of this figure; these are ours."
    )
    return Drawing(picture, {"": _table("fed-sel", sweep.fed_sel, quantiser=False)}, caption)


def _line(ax: Any, x: str, rows: Rows, column: str, place: int, label: str, linestyle: str = "-") -> None:
    """A line through means with its band; an interval's end below 0 is cut, for the logarithmic axis."""
    at, cells = [row[x] for row in rows], [row[column] for row in rows]
    colour, marker = plots.COLOURS[place], plots.MARKERS[place]
    mean = np.array([cell["mean"] for cell in cells])
    shown = np.where(mean > 0, mean, np.nan)
    ax.plot(
        at, shown, marker=marker, markersize=4, color=colour, linestyle=linestyle, linewidth=1.4, label=label
    )
    if all(cell["mean_interval"] for cell in cells):
        low, high = np.array([cell["mean_interval"] for cell in cells]).T
        ax.fill_between(at, np.maximum(low, 0.05 * mean), high, color=colour, alpha=0.25, linewidth=0)


def _table(method: str, rows: Rows, **fixed: Any) -> Rows:
    """Summary rows as plain columns: mean and both ends of its 95 % interval for each cost."""
    table = []
    for row in rows:
        plain: dict[str, Any] = {
            "method": method, "sigma": row["sigma"], "period": row.get("period"), "prefer": row.get("prefer"),
            "quantiser": fixed.get("quantiser"), "trials": row["trials"], "errors": row["errors"],
        }  # fmt: skip
        for name in COLUMNS:
            low, high = row[name]["mean_interval"] or (None, None)
            plain |= {f"{name}_mean": row[name]["mean"], f"{name}_low": low, f"{name}_high": high}
        table.append(plain)
    return table


def lambert(_: Sweep) -> Drawing:
    """Figure 5: both branches of Lambert's W, and Lemma 5's bounds on the lower one."""
    from scipy.special import lambertw

    plt = plots.pyplot()
    picture, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    turn = -np.exp(-1.0)
    upper_x = np.concatenate([turn + np.geomspace(1e-4, 0.3, 100), np.linspace(turn + 0.31, 1.5, 60)])
    lower_x = np.concatenate([turn + np.geomspace(1e-4, 0.3, 100), -np.geomspace(-turn - 0.301, 1e-3, 100)])
    upper_w, lower_w = np.real(lambertw(upper_x, 0)), np.real(lambertw(lower_x, -1))
    for xs, ws, colour, style, name in (
        (upper_x, upper_w, plots.COLOURS[0], "-", "$W_0$"),
        (lower_x, lower_w, plots.COLOURS[1], "--", "$W_{-1}$"),
    ):
        left.plot([turn, *xs], [-1.0, *ws], color=colour, linestyle=style, label=name)
    left.plot(turn, -1, "o", color="black", markersize=5)
    left.annotate("(−1/e, −1)", (turn, -1), xytext=(10, -4), textcoords="offset points", va="top")
    left.set_title("the two branches")
    x = -np.geomspace(np.exp(-2.0), 1e-6, 150)
    x[0] = -np.exp(-2.0)
    found = theory.lambert_bounds(x)
    right.plot(-x, found.upper, color=plots.COLOURS[2], linestyle="-.", label="U(x): γ = 1/4")
    right.plot(-x, found.exact, color=plots.COLOURS[1], linestyle="--", label="$W_{-1}(x)$")
    right.plot(-x, found.lower, color=plots.COLOURS[3], label="L(x): γ = 4")
    right.fill_between(-x, found.lower, found.upper, color="#999999", alpha=0.15, linewidth=0)
    right.set_xscale("log")
    right.invert_xaxis()
    right.set_title("Lemma 5: log(−x) − γ·log(−log(−x))")
    left.set(xlabel="x", ylabel="W(x)")
    right.set_xlabel("−x, from 1/e² towards 0")
    for ax in (left, right):
        ax.legend(frameon=False, loc="lower right" if ax is left else "lower left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    branches = [
        {"branch": branch, "x": float(a), "w": float(w)}
        for branch, xs, ws in ((0, upper_x, upper_w), (-1, lower_x, lower_w))
        for a, w in zip(xs, ws, strict=True)
    ]
    columns = {"x": x, "lower": found.lower, "exact": found.exact, "upper": found.upper}
    columns |= {"coefficient": found.coefficient}
    rows = [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]
    caption = (
        "Left: the two branches of Lambert's W, which solves W·exp(W) = x. Right: the bounds of Lemma 5 "
        "on the lower branch for x in [−1/e², 0), the axis logarithmic so that x → 0 can be seen. What "
        "differs from the paper: the bounds are true but loose (erratum 9). With the exact W₋₁ the "
        f"coefficient γ lies between {found.coefficient.min():.2f} and {found.coefficient.max():.2f} "
        "here, where the lemma has 4 and 1/4; all other numbers of this package take W₋₁ exactly."
    )
    return Drawing(picture, {"": rows, "-branches": branches}, caption)


def _protocol(_: Sweep) -> Drawing:
    return protocol(fedsel.Client.transitions, fedsel.Server.transitions)


# Quick ones first: what was finished before an interrupt stays.
FIGURES: dict[str, tuple[str, Callable[[Sweep], Drawing]]] = {
    "1": ("The protocol of Fed-SEL", _protocol),
    "2": ("Heterogeneity on a field of sensors", sensors),
    "3": ("A network and its weakness", network),
    "5": ("Lambert's W and the bounds of Lemma 5", lambert),
    "4a": ("Rounds against heterogeneity", rounds),
    "4b": ("Phase II pulls against the period", phase2),
}
