"""After the verdict: the summaries of the clients, as the desk accepts them and as the server collects them.

A summary is an envelope of its own topic, with number 0. It is the only message that counts after the
verdict, and no verdict depends on it. The server waits for it within limits and ends without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation.setup import Setup
from bestarm.protocol.machine import ServerMachine
from bestarm.protocol.summaries import SummaryBook, longest_summary

if TYPE_CHECKING:
    from bestarm.deploy.federation.attendance import Attendance
    from bestarm.deploy.federation.desk import Desk
    from bestarm.deploy.federation.streams import Streams

SUMMARY = "summary"  # the topic

SUMMARY_SECONDS = 5.0  # how long the server waits for the next summary at most


class Summaries:
    """The summaries of a run; `book` is None before the verdict, and where clients keep theirs."""

    def __init__(self, setup: Setup, machine: ServerMachine) -> None:
        self.setup, self.machine = setup, machine
        self._book: SummaryBook | None = None

    @property
    def book(self) -> SummaryBook | None:
        """What was accepted and refused so far."""
        if self._book is None and self.machine.state == "done" and self.setup.options.summaries:
            refuses = {row["client"] for row in self.machine.faulty} | self.machine.gone
            self._book = SummaryBook(self.setup.layout, self.setup.room.coins, refuses)
        return self._book

    def expects(self, envelope: Envelope) -> bool:
        """Whether this can be the one summary of a client, as far as its number and its length show."""
        group = self.setup.layout.group_of.get(envelope.source)
        arms = 0 if group is None else self.setup.layout.arm_counts[group]
        fits = envelope.sequence == 0 and len(envelope.content) <= longest_summary(arms)
        return self.book is not None and fits

    def take(self, envelope: Envelope) -> None:
        """Take a summary whose signature is valid."""
        if self.book is not None:
            self.book.take(envelope.source, envelope.content)


async def collect(desk: Desk, feed: Any, nc: Any, streams: Streams, attendance: Attendance) -> None:
    """Pass what clients send after the verdict to the desk, until this is cancelled."""
    from bestarm.deploy.federation import wire

    while desk.summaries is not None and not nc.is_closed:
        messages = await feed.next(0.1)
        if messages:
            new = [m for m in messages if m.subject not in streams.probes]
            attendance.count([m.subject for m in new], desk.take([m.data for m in new]))
            wire.acknowledge(nc, messages)
        await asyncio.sleep(0)


async def wait_for_summaries(desk: Desk, unheard: list[str], linger: float) -> bool:
    """Wait until the clients that have the verdict have sent theirs; return whether there are any.

    A client that sends none delays the end by a few seconds at most.
    """
    book = desk.summaries
    if book is None:
        return False
    wanted = {client for client in desk.next if client not in unheard and client not in book.refuses}
    seconds = min(max(1.0, linger), SUMMARY_SECONDS)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds) as limit:
            while missing := len(wanted - book.accepted.keys()):
                await asyncio.sleep(0.05)
                if len(wanted - book.accepted.keys()) < missing:
                    limit.reschedule(asyncio.get_running_loop().time() + seconds)
    return bool(book.accepted or book.refused)
