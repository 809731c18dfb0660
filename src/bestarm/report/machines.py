"""Draws a state machine from its transition table, and nothing that is not in the table.

States are in columns by their distance from the initial state; final states come last. An arrow is labelled
with the events that cause it; an arrow from a state to itself is drawn as a loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bestarm.protocol.machine import Transitions

BEGIN = "new"
STEP, DROP = 3.5, 2.1  # between columns, and between states of one column
WIDTH, HEIGHT, LINE = 1.5, 0.72, 0.25  # of a state's box, and of a line of a label


def arrows(table: Transitions) -> dict[tuple[str, str], list[str]]:
    """(from, to) -> the names of the events that may lead there.

    >>> from bestarm.protocol.rounds import RoundServer
    >>> arrows(RoundServer.transitions)["waiting", "done"]
    ['Received', 'PatienceOver', 'Quiet', 'Stop', 'Drop']
    """
    found: dict[tuple[str, str], list[str]] = {}
    for (state, event), targets in table.items():
        for target in sorted(targets):
            found.setdefault((state, target), []).append(event.__name__)
    return found


def states(table: Transitions) -> list[str]:
    """All states of a table, in the order in which it names them."""
    ordered = [state for state, _ in table]
    ordered += [target for targets in table.values() for target in sorted(targets)]
    return list(dict.fromkeys(ordered))


def places(table: Transitions) -> dict[str, tuple[float, float]]:
    """The position of each state: x by column, y within the column."""
    names, edges = states(table), list(arrows(table))
    final = [s for s in names if not any(a == s and b != s for a, b in edges)]
    distance = {s: 0 for s in names if s == BEGIN} or {names[0]: 0}
    todo = list(distance)
    for state in todo:
        for a, b in edges:
            if a == state and b not in distance and b not in final:
                distance[b] = distance[a] + 1
                todo.append(b)
    for s in names:  # unreachable states are drawn too
        if s not in distance and s not in final:
            distance[s] = 1
    last = max(distance.values()) + 1
    distance |= {s: last for s in final if s not in distance}
    columns: dict[int, list[str]] = {}
    for s in names:
        columns.setdefault(distance[s], []).append(s)
    return {
        s: (STEP * x, DROP * ((len(column) - 1) / 2 - row))
        for x, column in columns.items()
        for row, s in enumerate(column)
    }


def draw(
    table: Transitions,
    ax: Any,
    colour: str,
    *,
    title: str,
    shift: tuple[float, float] = (0.0, 0.0),
    notes: Mapping[str, str] | None = None,
) -> tuple[float, float, float, float]:
    """Draw the machine in a frame on axes of equal aspect; return left, right, bottom and top.

    `notes` are texts below the names of some states.
    """
    from matplotlib.patches import FancyBboxPatch

    at = {s: (x + shift[0], y + shift[1]) for s, (x, y) in places(table).items()}
    boxes = _draw_states(at, ax, colour, notes or {})
    lowest = _draw_arrows(arrows(table), at, ax, boxes)
    low = min(lowest - 0.5, min(y for _, y in at.values()) - 1.0)
    loops = {a: len(events) for (a, b), events in arrows(table).items() if a == b}
    high = max(y + 1.0 + LINE * loops.get(s, 3) for s, (_, y) in at.items())
    left, right = (f(x for x, _ in at.values()) for f in (min, max))
    left, right = left - WIDTH / 2 - 0.3, right + WIDTH / 2 + 0.3
    frame = FancyBboxPatch(
        (left, low), right - left, high - low, boxstyle="round,pad=0,rounding_size=0.3",
        facecolor=colour, alpha=0.08, edgecolor="none", zorder=0,
    )  # fmt: skip
    ax.add_patch(frame)
    ax.text(left + 0.3, high - 0.2, title, va="top", fontsize=12, fontweight="bold", color=colour, zorder=5)
    return left, right, low, high


def _draw_states(
    at: Mapping[str, tuple[float, float]], ax: Any, colour: str, notes: Mapping[str, str]
) -> dict[str, Any]:
    """Draw a box with its name for each state; return the boxes."""
    from matplotlib.patches import FancyBboxPatch

    boxes = {}
    for s, (x, y) in at.items():
        corner = (x - WIDTH / 2, y - HEIGHT / 2)
        box = FancyBboxPatch(
            corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.25",
            facecolor="white", edgecolor=colour, linewidth=1.6, zorder=3,
        )  # fmt: skip
        boxes[s] = ax.add_patch(box)
        note = notes.get(s, "")
        ax.text(x, y + (0.13 if note else 0), s, ha="center", va="center", fontsize=10, zorder=4)
        if note:
            ax.text(x, y - 0.19, note, ha="center", va="center", fontsize=7.5, color=colour, zorder=4)
    return boxes


def _draw_arrows(
    taken: Mapping[tuple[str, str], list[str]],
    at: Mapping[str, tuple[float, float]],
    ax: Any,
    boxes: Mapping[str, Any],
) -> float:
    """Draw an arrow with its events for each pair of states; return the height of the lowest label."""
    from matplotlib.patches import FancyArrowPatch

    lowest = math.inf
    style: dict[str, Any] = {
        "arrowstyle": "-|>",
        "mutation_scale": 11,
        "color": "#444444",
        "linewidth": 1.0,
        "zorder": 2,
    }
    words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "zorder": 5}
    words |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8}}
    for (a, b), events in taken.items():
        (xa, ya), (xb, yb) = at[a], at[b]
        label = "\n".join(events)
        if a == b:
            ends = (xa + 0.3, ya + HEIGHT / 2), (xa - 0.3, ya + HEIGHT / 2)
            ax.add_patch(
                FancyArrowPatch(*ends, connectionstyle="arc3,rad=1.5", shrinkA=0, shrinkB=0, **style)
            )
            ax.text(xa, ya + HEIGHT / 2 + 0.5, label, ha="center", va="bottom", fontsize=8, zorder=5)
            continue
        dx, dy = xb - xa, yb - ya
        columns = round(abs(dx) / STEP)
        # Straight to the next column, unless there is an arrow back; longer arrows pass below.
        bend = (
            0.0 if columns <= 1 and (b, a) not in taken else 0.3 if columns <= 1 else 0.36 + 0.025 * columns
        )
        curve = FancyArrowPatch(
            (xa, ya), (xb, yb), connectionstyle=f"arc3,rad={bend}",
            patchA=boxes[a], patchB=boxes[b], shrinkA=0, shrinkB=2, **style,
        )  # fmt: skip
        ax.add_patch(curve)
        middle = (ya + yb) / 2 - bend * dx / 2
        lowest = min(lowest, middle)
        ax.text((xa + xb) / 2 + bend * dy / 2, middle, label, **words)
    return lowest
