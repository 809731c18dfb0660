"""Matplotlib pictures of a record, a problem or a network. Each function returns axes."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.protocol.registry import method_named
from bestarm.records.answer import answer_card
from bestarm.records.card import OptionFacts
from bestarm.records.record import Record
from bestarm.records.views import trace_of
from bestarm.report.colours import COLOURS, colour, dash, places
from bestarm.report.facts import LineFacts, RunFacts, drawable_facts
from bestarm.report.standings import Standing, standings, states
from bestarm.report.words import fate_of, interval_label
from bestarm.stats.heterogeneity import heterogeneity as indices_of
from bestarm.study.trials import Trials
from bestarm.util.disk_errors import write_error
from bestarm.util.text import cut_middle, nearest, short_names, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^DvPX"
MOST_GROUPS = 12
MOST_BANDS = 4  # of a plot; more would hide each other
MOST_SITES = 40  # of a plot of the means at each site
MOST_LETTERS = 30  # of a name in a legend
TITLE_LETTERS = 66  # of a line of a title
BEFORE = -1  # on an axis of rounds: out at its site, before the first report


def pyplot() -> ModuleType:
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


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """These axes, or those of a new figure of this size."""
    if ax is None:
        pyplot()  # checks that Matplotlib is installed, and opens no window
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def plain(name: object) -> str:
    """Escape a name for Matplotlib: a dollar sign would start a formula."""
    return visible(str(name)).replace("$", r"\$")


def short(facts: RunFacts, name: str) -> str:
    """The name of an option for a legend or an axis, short enough to leave room for the picture."""
    return plain(short_names(facts.roster, MOST_LETTERS).get(name, name))


def set_title(record: Record, ax: Axes) -> None:
    """The method and the answer, with the words of the answer card, in lines that fit the axes."""
    text = f"{method_named(record.method).title}: {answer_card(record).headline.removesuffix('.')}"
    inches = ax.get_position().width * ax.figure.figure.get_figwidth()
    width = min(TITLE_LETTERS, max(20, int(11 * inches)))
    lines = textwrap.wrap(visible(text), width, max_lines=3, placeholder=" …", break_on_hyphens=False)
    ax.set_title("\n".join(plain(line) for line in lines))


def set_pulls(ax: Axes, values: Collection[int]) -> None:
    """A logarithmic axis of pulls, with ticks at some of these values; 0 has no place on it."""
    ax.set_xscale("log")
    known = [value for value in values if value > 0]
    if known:
        spread = np.geomspace(min(known), max(known), 7)
        ticks = sorted({min(known, key=lambda value: abs(value - at)) for at in spread})
        ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
        ax.set_xticks([], minor=True)
        if len(ticks) == 1:
            ax.set_xlim(ticks[0] / 2, ticks[0] * 2)


def say_hidden(ax: Axes, number: int, what: str, y: float) -> None:
    """Say how many groups or arms are left out, if there are any."""
    if number:
        ax.text(0.99, y, f"{number} further {what} not drawn", ha="right", transform=ax.transAxes)


def race(record: Record, ax: Axes | None = None) -> Axes:
    """Draw the race: the wealth of the bets for a method that bets, the intervals for the others."""
    if trace_of(record).wealths() is None:
        return intervals(record, ax)
    from bestarm.report.wealth_plot import wealth

    return wealth(record, ax)


def intervals(record: Record, ax: Axes | None = None, x: str | None = None) -> Axes:
    """Draw each option that the server knew, with its interval, until it is dropped.

    An option that the server did not follow is a point at the pulls that it ended with. An option has the
    same colour as on pages; the winner is drawn thick, options that are out are faded. For a question that
    each site answers for itself, the means at the sites are drawn.

    Parameters
    ----------
    record : Record
        The run.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.
    x : str, optional
        "round" or "pulls"; by default the unit in which the method measures progress.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.
    """
    own, facts = ax is None, drawable_facts(record)
    ax = axes_of(ax, 9, 4.5)
    set_title(record, ax)
    ax.spines[["top", "right"]].set_visible(False)
    x = x or facts.method.axis
    if not facts.lines:
        if facts.options_by_site:
            _draw_sites(facts, ax)
        else:
            _draw_means(facts, [row for row in answer_card(record).options if row.mean is not None], ax)
        return ax
    sign = 1 if facts.scale.goal == "min" else -1
    last = {"won": 0, "in": 1, "out": 2}
    state = states(facts)
    ranked = sorted(facts.lines, key=lambda line: (last[state.get(line.name, "in")], sign * line.mean[-1]))
    shown = ranked[:MOST_GROUPS]
    _draw_lines(facts, shown, ax, x)
    rest = _without_line(record, facts, x)[: MOST_GROUPS - len(shown)]
    _draw_points(facts, rest, ax)
    if x == "round":
        _set_rounds(ax, max(line.round[-1] for line in shown), any(point.at < 0 for point in rest))
    else:
        ax.set_xlabel("pulls of the option")
        ends = [int(point.at) for point in rest]
        set_pulls(ax, {*ends, *(pulls for line in shown for pulls in line.pulls)})
    ax.set_ylabel(f"{plain(facts.mean)}{interval_label(facts.method.claims_intervals)}")
    set_legend(ax, own, len(facts.roster) - len(shown) - len(rest))
    return ax


class _Point(NamedTuple):
    """An option that has no line: where it stands on the axis, and its numbers."""

    at: float
    row: Standing


def _without_line(record: Record, facts: RunFacts, x: str) -> list[_Point]:
    """The options that the server did not follow, as far as their means are known, the best one first."""
    lines = {line.name for line in facts.lines}
    rounds = {exit_.name: exit_.round for exit_ in reversed(facts.exits)}
    last = max((line.round[-1] for line in facts.lines if line.round), default=0)
    found = []
    for row in standings(replace(facts, card=answer_card(record))):
        if row.name in lines or row.mean is None or not row.pulls:
            continue
        left = rounds.get(row.name, None if method_named(record.method).local_bests else last)
        at = row.pulls if x == "pulls" else BEFORE if left is None else left
        found.append(_Point(at, row))
    return found


def _draw_points(facts: RunFacts, points: Sequence[_Point], ax: Axes) -> None:
    """Options without a line, each as a point, with its interval if the method claims one."""
    early = [row for at, row in points if at == BEFORE]
    for at, row in points:
        assert row.mean is not None
        place = at + 0.8 * ((early.index(row) + 0.5) / len(early) - 0.5) if at == BEFORE else at
        look, ends = option_line(facts, row.name), None
        if facts.method.claims_intervals and row.lower is not None and row.upper is not None:
            ends = [[abs(row.mean - row.lower)], [abs(row.upper - row.mean)]]
        tint = {"color": look["color"], "alpha": look["alpha"]}
        label = f" {short(facts, row.name)} ({row.became})"
        ax.errorbar([place], [row.mean], yerr=ends, fmt="x", capsize=4, label=label, **tint)


def _set_rounds(ax: Axes, last: int, before: bool) -> None:
    """An axis of rounds, with a place for options that were out before the first one."""
    ax.set_xlabel("round (round 0: the first reports)")
    ax.locator_params(axis="x", integer=True)
    if before:
        ax.set_xlim(BEFORE - 0.6, last + 0.5)
        ticks = sorted({0, last, *(int(at) for at in ax.get_xticks() if 0 <= at <= last)})
        ax.set_xticks([BEFORE, *ticks], ["at its site", *(f"{at}" for at in ticks)])
    elif last == 0:
        ax.set(xlim=(-0.5, 0.5), xticks=[0])


def set_legend(ax: Axes, beside: bool, hidden: int) -> None:
    """The legend, beside a picture of its own, with a note about options that are left out."""
    if hidden:
        ax.plot([], [], " ", label=f"{hidden:,} further options not drawn")
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if beside else {"loc": "best"}
    ax.legend(frameon=False, fontsize=9, **place)


def _draw_means(facts: RunFacts, rows: Sequence[OptionFacts], ax: Axes) -> None:
    """The means at the end of a run that completed no round, as far as its clients have told them."""
    shown = rows[:MOST_GROUPS]
    if not shown:
        ax.text(0.5, 0.5, "no round was completed", ha="center", transform=ax.transAxes)
        ax.set(xticks=[], yticks=[])
        return
    for at, row in enumerate(shown):
        assert row.mean is not None
        low, high = row.interval or (row.mean, row.mean)
        look = option_line(facts, row.name)
        span = [[abs(row.mean - low)], [abs(high - row.mean)]]
        ax.errorbar([at], [row.mean], yerr=span, fmt="o", capsize=4, color=look["color"])
    ax.set_xticks(range(len(shown)), [short(facts, row.name) for row in shown], rotation=30, ha="right")
    ax.set_ylabel(plain(facts.mean))
    hidden = len(rows) - len(shown)
    ax.set_xlabel(
        f"no round was completed; {hidden:,} further options not drawn"
        if hidden
        else "no round was completed"
    )


def _draw_sites(facts: RunFacts, ax: Axes) -> None:
    """The mean of each option at each site; a star marks the answer of a site."""
    found = facts.options_by_site
    assert found is not None
    place = places(facts.roster)
    answers = facts.verdict.answers if facts.verdict else ()
    best = {(answer.site, answer.option) for answer in answers if answer.answer == "best"}
    sites = found.sites[:MOST_SITES]
    names = [plain(cut_middle(site, MOST_LETTERS)) for site in sites]
    crowded = sum(len(name) + 2 for name in names) > TITLE_LETTERS
    for row in sorted(found.rows, key=lambda row: place[row.name]):
        shift = (place[row.name] - (len(found.rows) - 1) / 2) * 0.6 / max(len(found.rows), 1)
        at = [(j + shift, mean, site) for j, (site, mean) in enumerate(zip(sites, row.means, strict=False))]
        tint = COLOURS[colour(place[row.name])]
        known = [(where, mean) for where, mean, _ in at if mean is not None]
        ax.plot(
            [w for w, _ in known], [m for _, m in known], "o", color=tint, label=f" {short(facts, row.name)}"
        )
        for where, mean, site in at:
            if mean is not None and (site, row.name) in best:
                ax.plot(where, mean, "*", color=tint, markersize=10 if crowded else 16)
    ax.plot([], [], "k*", markersize=11, label="best at the site")
    ax.set_xticks(range(len(sites)), names, rotation=90 if crowded else 0)
    ax.set_xlabel("site" if sites == found.sites else f"the first {len(sites)} of {len(found.sites):,} sites")
    ax.set_ylabel(plain(facts.mean))
    set_legend(ax, True, 0)


def option_line(facts: RunFacts, name: str) -> dict[str, Any]:
    """How Matplotlib draws the line of an option: colour, dashes, weight and fading."""
    place, state = places(facts.roster).get(name, 0), states(facts).get(name, "in")
    found = dash(place)
    style: Any = (0, tuple(float(part) for part in found.split())) if found and state != "won" else "-"
    return {
        "color": COLOURS[colour(place)],
        "linestyle": style,
        "linewidth": {"won": 3.0, "in": 1.8, "out": 1.2}[state],
        "alpha": 0.6 if state == "out" else 1.0,
        "zorder": {"won": 4, "in": 3, "out": 2}[state],
    }


def _draw_lines(facts: RunFacts, lines: Sequence[LineFacts], ax: Axes, x: str) -> None:
    """Each line as a band, or (a single report) as a point with its interval."""
    last = max(getattr(line, x)[-1] for line in lines)
    for rank, line in enumerate(lines):
        look, at = option_line(facts, line.name), getattr(line, x)
        name = f" {short(facts, line.name)} ({fate_of(facts, line)})"  # " _x" is not hidden
        if len(at) == 1:  # beside the others of its round
            aside = rank - (len(lines) - 1) / 2
            where = [at[0] * 1.04**aside if x == "pulls" else at[0] + aside * max(last, 1) * 0.012]
            span = [[abs(line.mean[0] - line.lower[0])], [abs(line.upper[0] - line.mean[0])]]
            tint = {"color": look["color"], "alpha": look["alpha"]}
            ax.errorbar(where, line.mean, yerr=span, fmt="o", capsize=4, label=name, **tint)
            continue
        if rank < MOST_BANDS:
            shade = 0.22 if look["alpha"] == 1.0 else 0.1
            ax.fill_between(at, line.lower, line.upper, color=look["color"], alpha=shade, linewidth=0)
        ax.plot(at, line.mean, label=name, **look)
        if line.fate == "out":
            ax.plot(at[-1], line.mean[-1], "x", color=look["color"], markersize=9, markeredgewidth=2)


COST_WORDS = {
    "pulls_total": "pulls",
    "pulls_phase1": "pulls in the first phase",
    "pulls_phase2": "pulls in the second phase",
    "pulls_max": "pulls of the busiest client",
    "time": "time steps",
    "bits_up": "bits up",
    "bits_down": "bits down",
}
KEY_WORDS = {"sigma": "σ", "delta": "δ", "epsilon": "ε"}


def trials(found: Trials, x: str | None = None, y: str = "pulls_total", ax: Axes | None = None) -> Axes:
    """Means of `y` with 95 % intervals against the varied key `x`; one line per value of the others."""
    if y not in found.costs:
        raise InputError(f'y = "{y}" can\'t be drawn', fix=nearest(y, found.costs))
    if not found.varied:
        raise InputError("nothing was varied in this study", fix="Give study(…, vary={key: values})")
    x = found.varied[0] if x is None else x
    if x not in found.varied:
        raise InputError(f'x = "{x}" was not varied', fix=nearest(x, found.varied))
    ax = axes_of(ax, 7, 4.5)
    lines: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for row in found.summary(limits=False):
        others = [key for key in found.varied if key != x]
        name = ", ".join(
            str(row[key]) if key == "method" else f"{KEY_WORDS.get(key, key)} = {row[key]}" for key in others
        )
        lines.setdefault(name, []).append((row[x], row[y]))
    numeric = all(type(at) in (int, float) for line in lines.values() for at, _ in line)
    for place, (name, line) in enumerate(lines.items()):
        line = sorted(line, key=lambda point: point[0]) if numeric else line
        at = [value if numeric else plain(value) for value, _ in line]
        mean = [cell["mean"] for _, cell in line]
        half = [(span[1] - span[0]) / 2 if (span := cell["mean_interval"]) else 0.0 for _, cell in line]
        ax.errorbar(
            at,
            mean,
            yerr=half,
            linestyle="-" if numeric else "",
            label=plain(name) if name else None,
            marker=MARKERS[place % len(MARKERS)],
            color=COLOURS[place % len(COLOURS)],
            capsize=3,
        )
    low = min(cell["mean"] for line in lines.values() for _, cell in line)
    if low > 0 and max(cell["mean"] for line in lines.values() for _, cell in line) / low > 20:
        ax.set_yscale("log")
    ax.set_xlabel(plain(KEY_WORDS.get(x, x)))
    ax.set_ylabel(f"mean {COST_WORDS.get(y, y)}, with 95 % intervals")
    if any(lines):
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def heterogeneity(problem: Problem, ax: Axes | None = None, bar: bool = True) -> Axes:
    """Draw σ_ij of the groups with the best arms: row i, column j. The colour changes at 1.

    Blue (σ below 1): finding a group's own best arm takes more pulls than telling the two groups apart.
    """
    found = indices_of(problem)
    ax = axes_of(ax, 6, 5)
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
    say_hidden(ax, len(found.groups) - len(shown), "groups", -0.2)
    return ax


def check_format(path: Path) -> None:
    """Raise InputError unless a picture can be saved with this file extension; needs Matplotlib."""
    pyplot()
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(
            f'"{path.suffix}" is not an image format', where=str(path), expected=".png, .svg or .pdf"
        )


def save(ax: Axes, path: str) -> None:
    """Write the figure of these axes; the extension chooses the format (.png, .svg, .pdf)."""
    picture = ax.figure.figure  # of a subfigure, the whole one
    try:
        # No date and no random ids: the same record gives the same file.
        with pyplot().rc_context({"svg.hashsalt": "bestarm"}):
            is_svg = str(path).endswith(".svg")
            picture.savefig(path, dpi=150, metadata={"Date": None} if is_svg else None)
    except OSError as error:
        raise write_error(error, Path(path), "the picture can't be written") from None
    except ValueError as error:
        raise InputError(f"the picture can't be written: {error}", where=str(path)) from None
    finally:
        pyplot().close(picture)
