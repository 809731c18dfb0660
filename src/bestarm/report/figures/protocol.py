"""Figure 1: the protocol of Fed-SEL."""

from __future__ import annotations

from bestarm.methods import fed_sel
from bestarm.protocol.machine import Transitions
from bestarm.report import machines, plots
from bestarm.report.colours import COLOURS
from bestarm.report.figures.sweep import Drawing, Sweep


def protocol(client: Transitions, server: Transitions) -> Drawing:
    """Figure 1: both machines, drawn from their tables, and what passes between them."""
    plt = plots.pyplot()
    picture, ax = plt.subplots(figsize=(10.5, 7.6), layout="constrained")
    phases = {"exploring": "Phase I", "sampling": "Phase II"}
    lower = machines.draw(client, ax, COLOURS[0], title="client", notes=phases)
    depth = min(y for _, y in machines.places(server).values())
    above = lower[3] + 4.3 - depth
    upper = machines.draw(server, ax, COLOURS[1], title="server", shift=(machines.STEP, above))
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
        "arrived. Received: a message arrived. PatienceOver: the wait timed out. Stop: no more pulls "
        "are possible. From the paper's Figure 1 it differs as follows. The server broadcasts which "
        "groups are active and an explicit stop, not a threshold that each client compares with: a "
        "rounding error could deadlock the two ends (erratum 21). The sample count travels with the "
        "first report (erratum 10), and that report's mean travels exactly (erratum 9b). A client may "
        "end early, and the server may give up."
    )
    return Drawing(picture, {"": rows}, caption)


def own_protocol(_: Sweep) -> Drawing:
    """Figure 1, from the tables of this package."""
    return protocol(fed_sel.Client.transitions, fed_sel.Server.transitions)
