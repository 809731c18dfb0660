"""Figure 5: Lambert's W and the bounds of Lemma 5."""

from __future__ import annotations

import numpy as np

from bestarm.methods.fed_sel import theorem
from bestarm.report import plots
from bestarm.report.colours import COLOURS
from bestarm.report.figures.sweep import Drawing, Sweep


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
        (upper_x, upper_w, COLOURS[0], "-", "$W_0$"),
        (lower_x, lower_w, COLOURS[1], "--", "$W_{-1}$"),
    ):
        left.plot([turn, *xs], [-1.0, *ws], color=colour, linestyle=style, label=name)
    left.plot(turn, -1, "o", color="black", markersize=5)
    left.annotate("(−1/e, −1)", (turn, -1), xytext=(10, -4), textcoords="offset points", va="top")
    left.set_title("the two branches")
    x = -np.geomspace(np.exp(-2.0), 1e-6, 150)
    x[0] = -np.exp(-2.0)
    found = theorem.lambert_bounds(x)
    right.plot(-x, found.upper, color=COLOURS[2], linestyle="-.", label="U(x): γ = 1/4")
    right.plot(-x, found.exact, color=COLOURS[1], linestyle="--", label="$W_{-1}(x)$")
    right.plot(-x, found.lower, color=COLOURS[3], label="L(x): γ = 4")
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
