"""A federation on the terminal: the server's live table, a client's progress line, notes to the operator."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from bestarm.cli.render.card import MOST_ROWS
from bestarm.cli.terminal import err, safe
from bestarm.deploy.waits import said
from bestarm.records.describe import broken_by_data
from bestarm.util.text import counted, listed

if TYPE_CHECKING:
    from bestarm.deploy.federation.client import Progress
    from bestarm.deploy.federation.desk import Desk, Note
    from bestarm.deploy.federation.server import Status

LINE_SECONDS, NEWS_SECONDS = 60.0, 5.0  # between a client's lines without a terminal; if it has a new message
CONNECTING_SECONDS = 10.0  # what a client may take to connect before it counts as offline
LONGEST_LINE_SECONDS = 3600.0  # the pause doubles up to this while nothing changes


def told(note: Note) -> str:
    """What a client told the operator, when, and whether it has continued since."""
    since = "; it has sent messages since" if note.later else ""
    return f"{note.client} said (in round {note.round}{since}): {note.text}"


@contextmanager
def server_table(quiet: bool) -> Iterator[Callable[[Status], None] | None]:
    """A live table on a terminal; on a pipe, a line whenever the server waits for something else."""
    if quiet:
        yield None
        return
    if not err.is_terminal:
        said: list[str] = []

        def line(status: Status) -> None:
            text = _waiting(status)
            if said[-1:] != [text]:
                said[:] = [text]
                err.print(safe(text), soft_wrap=True)

        yield line
        return
    from rich.live import Live

    with Live(console=err, refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(status_table(status))


def _waiting(status: Status) -> str:
    desk = status.desk
    if desk.done:
        return "the run is over; telling the clients"
    limited = status.left is not None and status.left < math.inf
    left = f" (for {status.left:.0f} s)" if limited and err.is_terminal else ""
    holds = said(desk.paces.waits(desk.machine))
    text = f"round {desk.machine.round}: waiting for {listed(desk.waiting_for(), 8)}{left}"
    return f"{text}; {holds}" if holds else text


def status_table(status: Status) -> Group:
    """Where a run is: a row per group, refused messages and the last notes of clients."""
    desk, m = status.desk, status.desk.machine
    layout, missing, suspects = desk.setup.layout, set(desk.waiting_for()), desk.suspects()
    title = [_waiting(status), f"{m.bits_up:,} bits up, {m.bits_down:,} bits down"]
    if not status.connected:
        title[-1] += ", no connection to the broker"
    if status.attendance:
        title.append(status.attendance)
    table = Table(box=None)
    for column in ("group", "reported", "last heard", "suspects"):
        table.add_column(column)
    for j, group in list(enumerate(layout.groups))[:MOST_ROWS]:
        here = sum(client not in missing and desk.next[client] > 0 for client in group.clients)
        bad = ", ".join(client for client in group.clients if client in suspects)
        heard = _heard(desk, j) if m.active[j] else "out"
        row = (group.name, f"{here}/{len(group.clients)}", heard, bad)
        table.add_row(*map(escape, row), style=None if m.active[j] else "dim")
    refused = Counter[str]()
    for (who, _), n in desk.refused.items():
        refused[who] += n
    title += [f"nothing is promised: {why}"] if (why := broken_by_data(desk.warnings)) else []
    below = [told(note) for note in desk.notes if not (note.later or note.routine)][-3:]
    if refused:
        below.append("messages refused: " + ", ".join(f"{who}: {n}" for who, n in refused.most_common(3)))
    return Group(*map(safe, title), table, *map(safe, below))


def _heard(desk: Desk, j: int) -> str:
    """What the last round said of a group: in the method's words, or an interval."""
    last = desk.machine.history[-1] if desk.machine.history else {"group": []}
    if j not in last["group"]:
        return ""
    k = last["group"].index(j)
    text = desk.setup.room.row_text(last, k, desk.setup.layout.groups[j].arms)
    if text:
        return text
    span = desk.setup.scale.user_interval(last["lower"][k], last["upper"][k])
    return "{:.4g} to {:.4g}".format(*span)


@contextmanager
def client_line(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """What a client does, in one line; on a pipe a new line now and then, and at each new message."""
    if quiet:
        yield None
    elif err.is_terminal:
        still = _Still()
        with err.status("starting") as status:
            yield lambda p: status.update(_client_text(p, *still.seconds(p)))
    else:
        yield _Lines().show


class _Still:
    """Measures for how long nothing has changed at a client, and for how long it has been offline."""

    def __init__(self) -> None:
        self.since = self.lost = 0.0
        self.last: Progress | None = None

    def seconds(self, p: Progress) -> tuple[float, float]:
        """The seconds since the client's progress was another one, and since it was last online."""
        now, last = time.monotonic(), self.last
        if last is None or p.online or last.online:
            self.lost = now
        told = last and (last.online, last.state, last.messages, last.pulls)
        if told != (p.online, p.state, p.messages, p.pulls):
            self.since = now
        self.last = p
        return now - self.since, now - self.lost


class _Lines:
    """Prints a client's progress as lines, with growing pauses while nothing changes."""

    def __init__(self) -> None:
        self.still, self.pause = _Still(), LINE_SECONDS
        self.when = -math.inf
        self.last: Progress | None = None

    def show(self, p: Progress) -> None:
        """Print a line if it is time for one."""
        now, (still, lost) = time.monotonic(), self.still.seconds(p)
        known = self.last
        fresh = known is None or (p.state, p.messages) != (known.state, known.messages)
        same = known is not None and (p.online, p.pulls) == (known.online, known.pulls) and not fresh
        pause = NEWS_SECONDS if fresh else self.pause if same else LINE_SECONDS
        if now - self.when > pause or known is None or p.online != known.online:
            self.pause = min(2 * self.pause, LONGEST_LINE_SECONDS) if same else LINE_SECONDS
            self.when, self.last = now, p
            err.print(_client_text(p, still, lost), soft_wrap=True)


def _client_text(p: Progress, still: float, lost: float) -> str:
    """The line of a client at which nothing has changed for `still` seconds, offline for `lost` seconds."""
    left = f", about {p.left:.0f} s to its next message" if p.left else ""
    speed = f", {p.speed:,.0f}/s" if p.speed else ""
    waits = p.state == "reported"
    state = "waits for the server" if waits else p.state
    since = f" for {_duration(still)}" if still >= LINE_SECONDS and (waits or not p.online) else ""
    end = ""
    if not p.online:
        what = "check that the server runs and that this computer can reach it" if since else ""
        end = f" (offline{since}: {what or 'it reports when the network is back'})"
        if lost < CONNECTING_SECONDS:
            end = " (connecting)"
    elif since:
        end = f" (no news{since}: other clients may be slow; if this continues, ask the server's operator)"
    return safe(
        f"{p.client}: {state}, {counted(p.messages, 'message')}, {counted(p.pulls, 'pull')}{speed}{left}{end}"
    )


def _duration(seconds: float) -> str:
    """A duration in words.

    >>> _duration(130), _duration(7300)
    ('2 minutes', '2 hours')
    """
    minutes = int(seconds // 60)
    return counted(minutes, "minute") if minutes < 120 else counted(minutes // 60, "hour")
