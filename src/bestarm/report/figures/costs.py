"""Figure 4: rounds against heterogeneity, and Phase II pulls against the period."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.fisher.options import PREFERENCES
from bestarm.report import plots
from bestarm.report.colours import COLOURS
from bestarm.report.figures.sweep import DELTA, PERIODS, SIGMAS, Drawing, Rows, Sweep

SHOWN = (3, 4, 5, 7, 15)  # values of σ with a line in Figure 4(b)

COLUMNS = ("rounds", "pulls_phase1", "pulls_phase2", "pulls_total", "bits_up", "bits_down")


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
    return Drawing(picture, {"": table}, _rounds_caption(sweep))


def _rounds_caption(sweep: Sweep) -> str:
    """The caption of Figure 4(a), with the means of this sweep."""

    def mean(rows: Rows, column: str, **keys: Any) -> float:
        return float(next(r for r in rows if keys.items() <= r.items())[column]["mean"])

    last, first = SIGMAS[-1], PERIODS[0]
    few = [s for s in SIGMAS if mean(sweep.fed_sel, "rounds", sigma=s, period=first) <= 1.0]
    alone = f" One round was enough in all runs at σ = {', '.join(map(str, few))}." if few else ""
    less = mean(sweep.fed_sel, "pulls_total", sigma=last, period=first)
    less /= mean(sweep.fisher, "pulls_total", sigma=last, prefer="pulls")
    return (
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
    colour, marker = COLOURS[place], plots.MARKERS[place]
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
