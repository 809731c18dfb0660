"""A study's summary on the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from bestarm.cli.render.numbers import short, times
from bestarm.cli.terminal import out, safe
from bestarm.stats.limit import limited
from bestarm.study.trials import Trials
from bestarm.util.text import counted

COSTS = {
    "rounds": "rounds", "time": "time", "pulls_total": "pulls", "pulls_max": "longest", "bits_up": "bits up",
}  # fmt: skip


def show_study(done: Trials) -> None:
    """Print one row for each combination of the varied keys, and what the columns mean."""
    rows = done.summary()
    limits = any(row["limit"] for row in rows)
    coins = any(row["limit"]["coins"] for row in rows if row["limit"])
    # A pipe gets the table whole; a narrow terminal wraps cells and cuts none.
    out.print(_table(done, rows, limits), width=None if out.is_terminal else 200)
    out.print(
        f"Means of {counted(done.trials, 'trial')} ± 95 %. time: in steps; each client makes one pull per "
        + "step. longest: pulls of the busiest client. "
        + (f"×limit: pulls divided by the smallest possible mean of {limited(coins)}. " if limits else "")
        + "wrong: wrong answers, and the upper end of the exact 95 % interval of their rate. "
        + f"Seed {done.seed}.",
        style="dim",
    )
    unproved = dict.fromkeys(row["unproved"] for row in rows if row["unproved"])
    for why in unproved:
        out.print(f"Nothing is promised: {safe(why)}.", style="yellow", soft_wrap=True)
    for why in dict.fromkeys(row["no_limit"] for row in rows if row["no_limit"] not in ("", *unproved)):
        out.print(f"No limit{' in some rows' if limits else ''}: {safe(why)}.", style="dim", soft_wrap=True)


def _table(done: Trials, rows: list[dict[str, Any]], limits: bool) -> Table:
    undecided = any(row["undecided"] for row in rows)
    titles = [*done.varied, *COSTS.values(), *["×limit"] * limits, "wrong", *["undecided"] * undecided]
    table = Table(box=None, header_style="dim", pad_edge=False, collapse_padding=True)
    for title in titles:
        table.add_column(title, justify="right", overflow="fold")
    for row in rows:
        cells = [safe(str(row[key])) for key in done.varied] + [_plus_minus(row[name]) for name in COSTS]
        if limits:
            bound = row["limit"]
            some = bound and bound["total"]
            cells.append(times(row["pulls_total"]["mean"] / bound["total"]) if some else "–")
        cells.append(f"{row['errors']} ≤{row['error_rate_interval'][1]:.2g}" if "errors" in row else "–")
        if undecided:
            cells.append(str(row["undecided"]))
        table.add_row(*cells)
    return table


def _plus_minus(cell: dict[str, Any]) -> str:
    """A mean with half the width of its 95 % interval."""
    if cell["mean_interval"] is None:
        return short(cell["mean"])
    half = (cell["mean_interval"][1] - cell["mean_interval"][0]) / 2
    return f"{short(cell['mean'])} ±{short(float(f'{half:.2g}'))}"
