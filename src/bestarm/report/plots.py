"""Matplotlib pictures of a record. Each function takes a record and gives back axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.record import Record
from bestarm.rewards import Scale

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_GROUPS = 12


def _pyplot() -> Any:
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


def intervals(record: Record, ax: Any = None) -> Any:
    """Each group's interval for its best arm, round by round, until it falls."""
    plt = _pyplot()
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    scale = Scale(**record.problem["scale"])
    groups = record.problem["groups"]
    rows = record.verdict.certificate["server"]["rounds"]
    if not rows:
        ax.text(0.5, 0.5, "no round was completed", ha="center", transform=ax.transAxes)
    lines: dict[int, list[tuple[int, float, float, float]]] = {}
    for row in rows:
        for j, mean, lower, upper in zip(row["group"], row["mean"], row["lower"], row["upper"], strict=True):
            lines.setdefault(j, []).append((row["round"], mean, lower, upper))
    fell = {j: row["round"] for row in rows for j in row["out"]}
    last = max((row["round"] for row in rows), default=0)
    shown = sorted(lines, key=lambda j: -lines[j][-1][3])[:MOST_GROUPS]
    for place, j in enumerate(shown):
        colour = COLOURS[place % len(COLOURS)]
        k = [point[0] for point in lines[j]]
        mean, lower, upper = ([scale.user(point[i]) for point in lines[j]] for i in (1, 2, 3))
        # A dollar sign would begin a formula, and a leading underscore hide the entry from the legend.
        name = " " + groups[j]["name"].replace("$", r"\$")
        name += f", out in round {fell[j]}" if j in fell else ", stays"
        if len(k) == 1:  # one report: a point with its interval, beside the others of its round
            x = [k[0] + (place - (len(shown) - 1) / 2) * max(last, 1) * 0.012]
            span = [[abs(mean[0] - lower[0])], [abs(upper[0] - mean[0])]]
            ax.errorbar(x, mean, yerr=span, fmt="o", color=colour, capsize=4, label=name)
        else:
            ax.fill_between(k, lower, upper, color=colour, alpha=0.22, linewidth=0)
            ax.plot(k, mean, color=colour, label=name)
            if j in fell:
                ax.plot(k[-1], mean[-1], "x", color=colour, markersize=9, markeredgewidth=2)
    ax.set_xlabel("round (round 0: the reports of Phase I)")
    ax.set_ylabel("mean reward of the group's arm, with its interval")
    verdict = record.verdict
    arm = (verdict.arm or "").replace("$", r"\$")
    ax.set_title(f"{arm} is the best arm" if arm else f"undecided: {verdict.reason}")
    if shown:
        ax.legend(frameon=False)
    if len(lines) > len(shown):
        ax.text(
            0.99,
            0.01,
            f"{len(lines) - len(shown)} further groups not drawn",
            ha="right",
            transform=ax.transAxes,
        )
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def check_format(path: Path) -> None:
    """InputError unless a picture can be made with this file's ending; needs Matplotlib."""
    _pyplot()
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f'"{path.suffix}" names no picture', where=str(path), expected=".png, .svg or .pdf")


def save(ax: Any, path: str) -> None:
    """Write the figure of these axes; the ending names the format (.png, .svg, .pdf)."""
    try:
        # No date and no random ids: the same record gives the same file.
        with _pyplot().rc_context({"svg.hashsalt": "bestarm"}):
            is_svg = str(path).endswith(".svg")
            ax.figure.savefig(path, dpi=150, metadata={"Date": None} if is_svg else None)
    except (OSError, ValueError) as error:
        raise InputError(f"the picture can't be written: {error}", where=str(path)) from None
    finally:
        _pyplot().close(ax.figure)
