"""Pictures of explanations and tutorials.

``python docs/pictures.py`` writes docs/images/how-*.svg.
What is drawn is computed by the project itself (radii, tests, trimming, runs), with fixed seeds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Polygon

import bestarm as ba
from bestarm.graphs.generators import circulant
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fisher.looks import Looks
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.robust_fed_sel import decisions as robust_decisions
from bestarm.protocol import decisions
from bestarm.report import plots, wealth_plot
from bestarm.report.colours import COLOURS

plt = plots.pyplot()

FOLDER = Path(__file__).resolve().parent / "images"
EXAMPLES = FOLDER.parent.parent / "examples"
HOSPITALS, TARGET = EXAMPLES / "hospitals.csv", EXAMPLES / "target-detection.toml"
STYLE = {"svg.hashsalt": "bestarm", "svg.fonttype": "none", "font.size": 10, "axes.titlesize": 11}
BLUE, RED, GREEN = COLOURS[:3]
GREY = "#777777"


def _axes(size: tuple[float, float] = (8, 3.6)) -> Any:
    _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _blank(size: tuple[float, float], width: float, height: float) -> Any:
    _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return ax


def _box(ax: Any, x: float, y: float, text: str, w: float = 2.2, h: float = 0.8, colour: str = BLUE) -> None:
    shape = FancyBboxPatch(
        (x - w / 2, y - h / 2),
        w,
        h,
        boxstyle="round,pad=0,rounding_size=0.15",
        facecolor="white",
        edgecolor=colour,
    )
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center")


def _arrow(
    ax: Any, begin: tuple[float, float], end: tuple[float, float], text: str = "", side: float = 0.12
) -> None:
    ax.add_patch(
        FancyArrowPatch(
            begin, end, arrowstyle="-|>", mutation_scale=11, color="#444444", shrinkA=0, shrinkB=0
        )
    )
    if text:
        ax.text(
            (begin[0] + end[0]) / 2 + side,
            (begin[1] + end[1]) / 2,
            text,
            va="center",
            fontsize=9,
            color="#444444",
        )


def idea() -> Any:
    """Three sites with arms of their own, and a server that hears a few bits."""
    ax = _blank((8, 3.4), 12, 5)
    means = {"west": (0.9, 0.65, 0.1), "centre": (0.85, 0.8, 0.3), "east": (0.7, 0.6, 0.5)}
    _box(ax, 6, 4.4, "server: which group's arm is best?", 5.2, 0.7, GREEN)
    for x, (name, arms) in zip((2, 6, 10), means.items(), strict=True):
        _box(ax, x, 1.35, "", 3.2, 2.3)
        ax.text(x, 2.25, f"client of {name}", ha="center", va="center")
        for k, mean in enumerate(arms):
            left = x - 0.9 + 0.7 * k
            ax.add_patch(plt.Rectangle((left, 0.35), 0.4, 1.6 * mean, color=BLUE if k == 0 else "#b8cfe3"))
        _arrow(ax, (x - 0.15, 2.55), (6 + (x - 6) * 0.45 - 0.15, 4.0))
        _arrow(ax, (6 + (x - 6) * 0.45 + 0.15, 4.0), (x + 0.15, 2.55))
    ax.text(
        2.5,
        3.55,
        "up: its best arm,\na mean of a few bits",
        ha="right",
        va="center",
        fontsize=9,
        color="#444444",
    )
    ax.text(9.6, 3.55, "down: who is\nstill in the race", va="center", fontsize=9, color="#444444")
    return ax


def elimination() -> Any:
    """Algorithm 1: an arm leaves when its empirical mean is c·α(t) behind the best one."""
    ax = _axes()
    rng = np.random.default_rng(3)
    means, c, many = (0.9, 0.65, 0.1), 8.0, 120_000
    times = np.arange(1, many + 1)
    sums = np.cumsum(rng.random((3, many)) < np.array(means)[:, None], axis=1)
    alpha = ba.radius("paper", clients=3, arms=3, delta=0.1).alpha(times)
    shown = np.unique(np.geomspace(1, many, 220).astype(int)) - 1
    best = sums.max(axis=0) / times
    for arm, colour in ((1, BLUE), (2, GREEN)):
        behind = best - sums[arm] / times
        leaves = int(np.argmax(behind >= c * alpha))
        path = shown[shown <= leaves]
        ax.plot(
            times[path], behind[path], color=colour, label=f"mean {means[arm]}: dropped at t = {leaves + 1:,}"
        )
        ax.plot(times[leaves], behind[leaves], "x", color=colour, markersize=9, markeredgewidth=2)
    ax.plot(times[shown], c * alpha[shown], color="black", linestyle="--", label="boundary 8·α(t)")
    ax.set(
        xscale="log", ylim=(0, 1.6), xlabel="epoch t (each active arm once)", ylabel="behind the best mean"
    )
    ax.set_title("Phase I of one client: arms with means 0.9, 0.65 and 0.1")
    ax.legend(frameon=False)
    return ax


def rounds() -> Any:
    """Phase II of Fed-SEL: intervals shrink until one group is left."""
    ax = _axes((8, 3.8))
    means = {"west": {"a": 0.9, "b": 0.3}, "centre": {"c": 0.8, "d": 0.2}, "east": {"e": 0.6, "f": 0.1}}
    problem = ba.Problem.bernoulli(means)
    record = ba.identify(problem, "fed-sel", delta=0.1, c=4, period=400, seed=2)
    return plots.intervals(record, ax)


def quantiser() -> Any:
    """The bins that are sent halve as the radius shrinks."""
    ax = _axes((8, 3.2))
    radius = ba.radius("paper", clients=3, arms=3, delta=0.1)
    mean = 0.71
    for row, count in enumerate((200, 1_000, 5_000, 25_000)):
        alpha = float(radius.alpha(count))
        bits = int(fed_sel_decisions.precision(alpha))
        index = int(fed_sel_decisions.bin_index(mean, bits))
        for k in range(2**bits + 1):
            ax.plot([k / 2**bits] * 2, [-row - 0.3, -row + 0.3], color="#aaaaaa", linewidth=0.7)
        ax.barh(-row, 2.0**-bits, left=index / 2**bits, height=0.6, color="#b8cfe3")
        ax.plot(decisions.bin_centre(index, bits), -row, "o", color=BLUE)
        ax.text(1.02, -row, f"{count:,} samples: α = {alpha:.3f}, B = {bits} bits", va="center", fontsize=9)
    ax.axvline(mean, color=RED, linewidth=1)
    ax.text(mean, 0.42, "empirical mean", color=RED, ha="center", va="bottom", fontsize=9)
    ax.set(xlim=(0, 1.55), ylim=(-3.5, 0.8), xticks=np.linspace(0, 1, 6), yticks=[])
    ax.spines[["left"]].set_visible(False)
    ax.set_xlabel("mean reward; the bin that is sent, and its centre")
    return ax


def fisher() -> Any:
    """Fisher's test at looks: p-values fall, levels hardly do."""
    ax = _axes()
    rng = np.random.default_rng(5)
    looks = Looks(Fisher(delta=0.1), arms=9)
    best = rng.random(20_000) < 0.9
    numbers = np.arange(16)
    pulls = np.array([looks.size(int(r)) for r in numbers])
    levels = np.array([looks.level(int(r)) for r in numbers])
    for mean, colour in ((0.85, BLUE), (0.7, GREEN)):
        rival = rng.random(20_000) < mean
        sums = np.array([[rival[:n].sum(), best[:n].sum()] for n in pulls])
        p = np.asarray(ba.fisher_pvalue(sums[:, 0], sums[:, 1], pulls))
        out = int(np.argmax(p <= levels))
        ax.plot(
            numbers[: out + 1],
            p[: out + 1],
            "o-",
            color=colour,
            markersize=4,
            label=f"mean {mean} against 0.9",
        )
        ax.plot(numbers[out], p[out], "x", color=colour, markersize=10, markeredgewidth=2)
    ax.plot(numbers, levels, "k--", label="level x_r = δ·s_r/(K − 1)")
    ax.set(yscale="log", xlabel="look r", ylabel="p-value", ylim=(1e-7, 2))
    ax.set_xticks(numbers[::3], [f"{r}\n{n:,} pulls" for r, n in zip(numbers[::3], pulls[::3], strict=True)])
    ax.legend(frameon=False)
    return ax


def wealth() -> Any:
    """Fed-Bet: every arm's wealth, and who is the champion."""
    means = {
        "west": {"s1": 0.9, "s2": 0.65, "s3": 0.1},
        "centre": {"s4": 0.85, "s5": 0.8, "s6": 0.3},
        "east": {"s7": 0.7, "s8": 0.6, "s9": 0.5},
    }
    record = ba.identify(ba.Problem.bernoulli(means), "bet", delta=0.1, seed=13)
    return wealth_plot.wealth(record)


def home() -> Any:
    """The picture of the home page: a run of the default method."""
    return wealth_plot.wealth(ba.identify(ba.load(TARGET), "bet", seed=7))


def gamblers() -> Any:
    """The money of gamblers who bet against the best option, and against a worse one."""
    _, panels = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
    rng, many, tries, stake = np.random.default_rng(0), 4000, 1500, 0.25
    for ax, option, colour in zip(panels, (0.7, 0.5), (BLUE, RED), strict=True):
        won = (rng.random((many, tries)) < 0.7).astype(float) - (rng.random((many, tries)) < option)
        money = np.cumprod(1 + stake * won, axis=1)
        shown = np.unique(np.geomspace(1, tries, 90).astype(int)) - 1
        ax.plot(shown + 1, np.clip(money[:30, shown], 1e-3, 1e3).T, color=colour, linewidth=0.6, alpha=0.6)
        ax.axhline(20, color="black", linestyle="--", linewidth=1)
        ax.spines[["top", "right"]].set_visible(False)
        reached = (money.max(axis=1) >= 20).mean()
        ax.set_title(
            f"{'the best option' if option == 0.7 else 'a worse option'}: {reached:.1%} ever reach 20"
        )
        ax.set(yscale="log", ylim=(1e-3, 1e3), xlim=(0, tries if option == 0.7 else 400), xlabel="tries")
    panels[0].set_ylabel("money of a gambler (log scale)")
    return panels[0]


def trimming() -> Any:
    """Five intervals, two of them lies; the trimmed bounds hold the mean."""
    ax = _axes((8, 3.0))
    lower = np.array([0.58, 0.62, 0.55, 0.93, 0.02])
    upper = np.array([0.74, 0.79, 0.72, 0.97, 0.05])
    low, high = robust_decisions.trim(lower, upper, np.ones(5, dtype=bool), 2)
    ax.axvspan(float(low), float(high), color=GREEN, alpha=0.18, linewidth=0)
    names = ("honest", "honest", "honest", "lies: far too high", "lies: far too low")
    for row, (a, b, name) in enumerate(zip(lower, upper, names, strict=True)):
        ax.plot(
            [a, b], [-row, -row], color=RED if "lies" in name else BLUE, linewidth=5, solid_capstyle="butt"
        )
    ax.axvline(0.66, color="black", linewidth=1)
    ax.text(0.66, 1.05, "true mean", ha="center", va="bottom", fontsize=9)
    ax.set_yticks(range(0, -5, -1), names)
    ax.set(
        xlim=(0, 1),
        ylim=(-4.6, 1.0),
        xlabel="shaded: third-smallest upper and third-largest lower bound (f = 2)",
    )
    return ax


def percolation() -> Any:
    """Who has joined after how many waves, with a threshold of three."""
    ax = _blank((8, 3.7), 14, 6.4)
    for left, neighbours in ((3.3, 2), (10.6, 3)):
        graph = circulant(12, neighbours, undirected=True)
        edges = graph.edges.tolist()
        angle = np.linspace(np.pi / 2, np.pi / 2 - 2 * np.pi, 12, endpoint=False)
        place = np.stack([left + 2.2 * np.cos(angle), 3.4 + 2.2 * np.sin(angle)], axis=1)
        joined, wave = {0, 1, 2, 3}, dict.fromkeys(range(4), 0)
        for turn in range(1, 13):
            voices = [sum(w == v and u in joined for u, w in edges) for v in range(12)]
            heard = [v for v in range(12) if v not in joined and voices[v] >= 3]
            joined |= set(heard)
            wave |= dict.fromkeys(heard, turn)
        for u, v in edges:
            ax.plot(*place[[u, v]].T, color="#cccccc", linewidth=0.8, zorder=1)
        for node in range(12):
            colour = GREEN if node < 4 else BLUE if node in wave else RED
            ax.scatter(*place[node], s=230, color=colour, zorder=2)
            ax.text(
                *place[node],
                str(wave.get(node, "?")),
                color="white",
                ha="center",
                va="center",
                fontsize=9,
                zorder=3,
            )
        r, _ = ba.strong_robustness(graph, range(4))
        verdict = "reaches everyone: it tolerates f = 1" if r >= 3 else "gets stuck: it tolerates no liar"
        words = (
            f"{2 * neighbours} neighbours each: strongly {r}-robust;\nnews with a threshold of 3 {verdict}"
        )
        ax.text(left, 0.3, words, ha="center", fontsize=9)
    return ax


def simpson() -> Any:
    """Simpson's paradox: the rates of each hospital, and of all patients of a treatment together."""
    ax = _axes((8, 4.0))
    with HOSPITALS.open(encoding="utf-8") as file:
        rows = [
            (r["hospital"], r["treatment"], int(r["patients"]), int(r["recovered"]))
            for r in csv.DictReader(file)
        ]
    sites, treatments = (list(dict.fromkeys(row[k] for row in rows)) for k in (0, 1))
    place = {name: x for x, name in enumerate(treatments)}
    for site, colour in zip(sites, (BLUE, GREEN, GREY, RED), strict=True):
        own = [(place[a], recovered / n, n) for hospital, a, n, recovered in rows if hospital == site]
        x, rate, size = zip(*own, strict=True)
        ax.plot(x, rate, color=colour, linewidth=1, zorder=1)
        ax.scatter(x, rate, s=size, color=colour, alpha=0.75, linewidths=0, zorder=2)
        ax.text(-0.28, rate[0], site, color=colour, ha="right", va="center")
    for name, x in place.items():
        own = [(n, recovered) for _, a, n, recovered in rows if a == name]
        pooled = sum(r for _, r in own) / sum(n for n, _ in own)
        ax.plot([x - 0.22, x + 0.22], [pooled] * 2, color="black", linewidth=3, zorder=3)
        ax.text(x + 0.24, pooled, f"{pooled:.2f}", va="center", fontsize=9)
    ax.set_xticks(list(place.values()), [f"treatment {name}" for name in treatments])
    ax.set(xlim=(-0.7, 2.5), ylim=(0, 1), ylabel="share that recovered")
    ax.set_title("Black: all patients of a treatment together. Circles: by hospital, area = patients")
    return ax


def choice() -> Any:
    """The flow chart of "Which method, when"."""
    ax = _blank((8, 7), 13, 11.4)

    def ask(y: float, text: str, answer: str, box: str, height: float = 1.0) -> None:
        ax.add_patch(
            Polygon(
                [(1.5, y), (4, y + 0.85), (6.5, y), (4, y - 0.85)], facecolor="#fff3d6", edgecolor="#b8860b"
            )
        )
        ax.text(4, y, text, ha="center", va="center", fontsize=9)
        if box:
            _box(ax, 10.3, y, box, 4.6, height)
            _arrow(ax, (6.5, y), (8.0, y))
            ax.text(7.2, y + 0.15, answer, ha="center", fontsize=9)

    ask(10.5, "Are the results\nrecorded already?", "yes", "bestarm evidence")
    ask(8.1, "Is there a server\nthat all sites trust?", "no", 'p2p, exchange = "intervals"')
    ask(
        5.7,
        "May some clients\nlie or break?",
        "yes",
        "byzantine = f, 2f + 1 clients:\nfisher (0/1 rewards) or bet",
    )
    ask(3.0, "What is most\nexpensive?", "", "")
    for top, word in ((10.5, "no"), (8.1, "yes")):
        _arrow(ax, (4, top - 0.85), (4, top - 1.55), word)
    _arrow(ax, (4, 4.85), (4, 3.85), "no")
    ends = (
        (4.2, "rounds", '0/1 rewards: fisher, else bet;\nprefer = "rounds"', BLUE),
        (3.2, "bits", '0/1 rewards: fisher, else bet;\nprefer = "bits"', BLUE),
        (2.2, "tries", 'bet, prefer = "pulls"', BLUE),
        (1.2, "not sure", "bet (the default)", GREEN),
    )
    ax.plot([6.5, 6.7, 6.7, 6.7], [3.0, 3.0, 4.2, 1.2], color="#444444", linewidth=1)
    for y, word, box, colour in ends:
        _box(ax, 10.3, y, box, 4.6, 0.8, colour)
        _arrow(ax, (6.7, y), (8.0, y))
        ax.text(6.8, y + 0.1, word, va="bottom", fontsize=9)
    return ax


PICTURES: dict[str, Callable[[], Any]] = {
    "idea": idea, "elimination": elimination, "rounds": rounds, "quantiser": quantiser, "wealth": wealth,
    "gamblers": gamblers, "home": home,
    "fisher": fisher, "trimming": trimming, "percolation": percolation, "choice": choice,
    "simpson": simpson,
}  # fmt: skip


def make(folder: Path) -> list[Path]:
    """Write every picture to the folder."""
    made = []
    with plt.rc_context(STYLE):
        for name, draw in PICTURES.items():
            made.append(folder / f"how-{name}.svg")
            ax = draw()
            ax.figure.savefig(made[-1], metadata={"Date": None})
            plt.close(ax.figure)
            lines = made[-1].read_text("utf-8").splitlines()  # Matplotlib leaves spaces at their ends
            made[-1].write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return made


if __name__ == "__main__":
    for path in make(FOLDER):
        print(path)
