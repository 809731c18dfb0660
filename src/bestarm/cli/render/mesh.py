"""A mesh on the terminal: the demo's live table, a peer's progress line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.markup import escape
from rich.table import Table

from bestarm.cli.terminal import err, out, safe

Status = dict[str, Any]  # of a peer, the contents of ``status.json``

NEWS_SECONDS = 10.0  # between a peer's lines without a terminal


@contextmanager
def mesh_table(quiet: bool) -> Iterator[Callable[[dict[str, Status]], None]]:
    """On a terminal, a live table of what each peer knows about each arm-set."""
    if quiet or not out.is_terminal:
        yield lambda found: None
        return
    from rich.live import Live

    with Live(console=out, refresh_per_second=4) as live:
        yield lambda found: live.update(_knowledge(found))


def _knowledge(found: Mapping[str, Status]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    sets = list(next(iter(found.values()))["knows"]) if found else []
    for title in ("peer", "state", "pulls", *sets, "verdict", "accuses"):
        table.add_column(title, justify="right" if title == "pulls" else "left")
    for name, status in found.items():
        known = [status["knows"][group] or "·" for group in sets]
        end = (status["arm"] or "undecided") if status["decided"] else "·"
        row = (name, status["state"], f"{status['pulls']:,}", *known, end, ", ".join(status["suspects"]))
        table.add_row(*map(escape, row))
    return table


def missing(status: Status) -> str:
    """The neighbours that a peer waits for or cannot reach; empty if there are none."""
    parts = ("waits for", status["waits_for"]), ("can't reach", status["unreachable"])
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)


@contextmanager
def peer_line(quiet: bool) -> Iterator[Callable[[Status], None] | None]:
    """What a peer does, in one line; on a pipe, a new line when other neighbours are missing."""
    if quiet:
        yield None
        return
    if not err.is_terminal:
        last: list[Any] = [-math.inf, ""]  # when, and what

        def word(s: Status) -> None:
            text = missing(s)
            if text != last[1] and time.monotonic() - last[0] > NEWS_SECONDS:
                last[:] = [time.monotonic(), text]
                err.print(safe(f"{s['name']}: {text or 'all neighbours are connected'}"), soft_wrap=True)

        yield word
        return
    with err.status("starting") as status:

        def line(s: Status) -> None:
            known = sum(arm is not None for arm in s["knows"].values())
            end = f"verdict {s['arm'] or 'undecided'}, serving its neighbours" if s["decided"] else s["state"]
            text = f"{s['name']}: {end}, {s['pulls']:,} pulls, knows {known}/{len(s['knows'])} arm-sets"
            status.update(safe(text))

        yield line
