"""Matplotlib picture of bets: the wealth against each arm until it reaches its limit and the arm leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bestarm.errors import InputError
from bestarm.protocol.trace import Bet, Wealths
from bestarm.records.record import Record
from bestarm.records.views import trace_of
from bestarm.report import plots
from bestarm.report.facts import RunFacts, drawable_facts
from bestarm.report.standings import named, winners
from bestarm.report.words import against_control

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ARMS = 18


def wealth(record: Record, ax: Axes | None = None) -> Axes:
    """Draw the wealth of the bets against each arm until it reaches 1/δ and the arm leaves.

    An arm has the same colour as on pages. Wealths far outside are drawn at the edge.

    Parameters
    ----------
    record : Record
        A run of a method that bets, with the clients' parts of its certificate.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    InputError
        If the record has no wealths.
    """
    found = trace_of(record).wealths()
    if found is None:
        raise InputError(
            "the record has no wealths to draw",
            expected='a run of method "bet", with the clients\' parts of its certificate',
        )
    facts = drawable_facts(record)
    ax = plots.axes_of(ax, 9, 4.8)
    arms: dict[tuple[int, int], list[Bet]] = {}
    for bet in found.bets:
        arms.setdefault(bet.champion, [])
        arms.setdefault((bet.group, bet.arm), []).append(bet)
    left = {arm: bets[-1].end for arm, bets in arms.items() if bets and bets[-1].log_wealth >= found.limit}
    shown = sorted(arms, key=lambda arm: (-left.get(arm, np.inf), arm))[:MOST_ARMS]  # those that stay longest
    for arm in shown:
        _draw_wealth(facts, ax, arm, found, {bet.end: bet.log_wealth for bet in arms[arm]}, left.get(arm))
    end = float(np.exp(found.limit))
    compared = any(against_control(facts, name) for name in facts.roster)
    leaves, about = "an arm is ruled out", "wealth of the bets against an arm"
    if compared:
        leaves, about = "an answer is settled", "wealth of the bets on the answer"
    ax.axhline(end, color="black", linestyle="--", linewidth=1, label=f"{leaves} (×) at {end:,.6g}")
    ax.plot([], [], color="#999999", linewidth=7, alpha=0.5, label="champion: nobody bets against it")
    if any(bet.log_wealth > _top(found) for bet in found.bets):
        top = float(f"{np.exp(_top(found)):.2g}")
        ax.plot([], [], " ", label=f"more than {top:,.6g} is drawn at the top")
    where = " at a site" if facts.options_by_site else ""
    ax.set(yscale="log", xlabel=f"pulls of each rival{where}", ylabel=about)
    plots.set_pulls(ax, {pulls for bet in found.bets for pulls in (bet.begin, bet.end)})
    ax.yaxis.set_major_formatter("{x:,.10g}")
    plots.set_legend(ax, True, len(arms) - len(shown))
    plots.set_title(record, ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _top(found: Wealths) -> float:
    """The logarithm of the largest wealth that is drawn as it is."""
    return 2 * found.limit + 5


def _draw_wealth(
    facts: RunFacts, ax: Axes, arm: tuple[int, int], found: Wealths, own: dict[int, float], out: int | None
) -> None:
    """The wealth of one arm after its blocks as a rival; it left after `out` pulls."""
    name = facts.roster[arm[0]] if facts.options_by_site else _full_name(facts, *arm)
    decided = facts.verdict is not None and facts.verdict.status == "identified"
    other = "behind the winner" if decided else "not ruled out"
    fate = named(facts) if name in winners(facts) else against_control(facts, name) or other
    look = plots.option_line(facts, name)
    blocks = sorted({(bet.begin, bet.end, bet.champion) for bet in found.bets})
    x, y = [blocks[0][0]], [0.0]
    for begin, end, champion in blocks:
        if out is None or end <= out:
            x.append(end)
            y.append(float(np.clip(own.get(end, y[-1]), -found.limit - 5, _top(found))))
            if champion == arm and begin > 0:
                rest = np.exp(y[-2:])
                ax.plot(
                    [begin, end], rest, color=look["color"], linewidth=7, alpha=0.3, solid_capstyle="butt"
                )
    if x[0] == 0:  # bets on the first pulls: a logarithmic axis has no place for their beginning
        x, y = x[1:], y[1:]
    gone = against_control(facts, name) or "out"
    label = f" {plots.short(facts, name)} ({fate if out is None else f'{gone} after {out:,} pulls'})"
    marker = plots.MARKERS[arm[1] % len(plots.MARKERS)]
    ax.plot(x, np.exp(y), marker=marker, markersize=4, label=label, **look)
    if out is not None:
        ax.plot(x[-1], np.exp(y[-1]), "x", color=look["color"], markersize=10, markeredgewidth=2.2)


def _full_name(facts: RunFacts, group: int, arm: int) -> str:
    return f"{facts.groups[group].name}/{facts.groups[group].arms[arm]}"
