"""A network's robustness on the terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from bestarm.cli.render.card import MOST_ROWS, say_long
from bestarm.cli.terminal import out, safe
from bestarm.util.text import counted, listed

MOST_NAMES = 12  # nodes or edges in a sentence


def show_network(facts: dict[str, Any], r: float, exchange: str) -> None:
    """Print how many liars a network tolerates, its weakest group, and the edges that would help.

    Parameters
    ----------
    facts : dict
        What the command prints with --json.
    r : float
        Of the weakest group: how many outside clients some set hears at most.
    exchange : str
        The exchange that the added edges are for.
    """
    out.print(f"{counted(facts['nodes'], 'node')}, {counted(facts['edges'], 'edge')}")
    for kind, f in facts["tolerance"].items():
        text = (
            "[bold]cannot run at all[/]: some reports never reach every client"
            if f < 0
            else f"tolerates [bold]{counted(f, 'liar')} around each client[/]"
        )
        out.print(f'exchange = "{kind}": {text}')
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("group", "strongly r-robust"):
        table.add_column(title)
    ranked = sorted(facts["robustness"].items(), key=lambda at: math.inf if at[1] is None else at[1])
    for name, value in ranked[:MOST_ROWS]:
        table.add_row(safe(name), "any r" if value is None else f"r = {value:g}")
    out.print(table)
    if facts["witness"]:
        names = listed([str(node) for node in facts["witness"]], MOST_NAMES)
        text = f"Weakest: group {facts['weakest']}. No node in this set hears more than {r:g} clients "
        say_long(f"{text}outside it: {names}")
    if facts["add"]:
        edges = ", ".join(f"{u}→{v}" for u, v in facts["add"][:MOST_NAMES])
        rest = " …" if len(facts["add"]) > MOST_NAMES else ""
        more = counted(len(facts["add"]), "edge")
        text = f"To tolerate one more liar (exchange {exchange}), add {more}: {edges}{rest}"
        say_long(text)
        out.print("Found by a greedy search: fewer edges may be enough.", style="dim")
    elif facts["remedy"]:
        say_long(facts["remedy"])
