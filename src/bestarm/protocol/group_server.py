"""A server for groups in which some clients may lie, fall silent or be late."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action
from bestarm.protocol.messages import Arms
from bestarm.protocol.rounds import DROPPED, Downlink, RoundServer
from bestarm.protocol.verdict import Reason

FIRST_REPORT = 100  # patience timeouts before a first report is overdue: exploring may take long
DISAGREE = "its clients disagree more than chance allows: they may see different rewards"


class GroupServer(RoundServer):
    """A server for groups in each of which up to f clients may lie, fall silent or be late.

    A message that no honest client can send proves its sender faulty, and the server then excludes that
    client. An exact repeat of the last message proves nothing, since a network may repeat messages. A round
    is closed when each active group has all replies that are still expected, or, once the driver's patience
    is over, as many as honest clients are sure to send.

    Patience starts to count once f + 1 members of a group have reported, at least one of which is honest. It
    may end several times in one round. A member has *had its time* in a round when patience has ended twice
    since the round began and since its own first report. Where clients may lie, a member that has never
    reported has had its time when patience has ended ``FIRST_REPORT`` times. The run ends with "silence" only
    if G − f members of a group have had their time and more than f of them are silent or proven faulty. So f
    liars cannot end the run, as long as every honest client sends its first report within that time and
    answers each later round within the patience.

    A client that was dropped counts as silent: its earlier messages remain valid, and it is still one of the
    members of which f may lie. A group with too few other members is left out.

    Parameters
    ----------
    layout : Layout
        The groups, their arms and their clients.
    wire : Arms
        What both ends know without a message, for the codec.
    byzantine : int
        f, the largest number of liars in each group.
    """

    def __init__(self, layout: Layout, wire: Arms, byzantine: int) -> None:
        super().__init__(layout, wire)
        self.f = byzantine
        self.index: Mapping[str, int] = {name: i for i, name in enumerate(layout.clients)}
        sizes = np.array([len(group.clients) for group in layout.groups])
        self.sizes, ends = sizes, np.cumsum(sizes)
        self.members = [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]
        self.group = np.repeat(np.arange(len(sizes)), sizes)
        clients = len(layout.clients)
        self.out = np.zeros(clients, dtype=bool)  # proven faulty
        self.spent = np.zeros(clients, dtype=bool)  # makes no more pulls
        self.absent = np.zeros(clients, dtype=bool)  # dropped: spent, and sends nothing more
        self.replied = np.zeros(clients, dtype=bool)  # in this round
        self.patient = True
        self.ticks = 0  # how often patience has ended in this round
        self.first_tick = np.full(
            clients, -1
        )  # `ticks` + 1 at the first report; 1 if that was in an earlier round, -1 before it
        self.ready = np.zeros(len(sizes), dtype=bool)
        self.warned: set[tuple[int, str]] = set()
        self.latest: list[bytes | None] = [None] * clients

    def _expects(self, sender: str, data: bytes) -> bool:
        i = self.index.get(sender)
        return (
            i is not None and not self.out[i] and bool(self.active[self.group[i]]) and data != self.latest[i]
        )

    def _received(self, sender: str, data: bytes) -> list[Action]:
        i = self.index[sender]
        j, self.latest[i] = int(self.group[i]), data
        try:
            self._take(i, data)
        except Malformed as error:
            self._convict(sender, data, error)
            self.out[i] = True
        if self.first_tick[i] < 0:
            self.first_tick[i] = self.ticks + 1
        return self._advance([j])

    @property
    def ticking(self) -> bool:
        reported = self.first_tick >= 0
        return self.round > 0 or any(reported[mine].sum() > self.f for mine in self.members)

    def missing_clients(self) -> list[str]:
        if self.state == "done":
            return []
        idle = self.out | self.spent | self.replied | ~self.active[self.group]
        return [self.layout.clients[i] for i in np.flatnonzero(~idle)]

    def _patience_over(self) -> list[Action]:
        self.patient = False
        self.ticks += 1
        if any(self._is_silent(int(j)) for j in np.flatnonzero(self.active & ~self.ready)):
            return self._undecided("silence")
        return self._advance(np.flatnonzero(self.active))

    def _waits_on(self, spent: bool) -> bool:
        return self.patient

    def _is_silent(self, j: int) -> bool:
        """Whether more than f members of group j are overdue in this round or proven faulty."""
        mine = self.members[j]
        first = self.first_tick[mine]
        first = np.where(first < 0, FIRST_REPORT - 1 if self.f else 1, first)
        timed = self.out[mine] | (self.ticks > first)
        missing = self.out[mine] | (timed & ~self.replied[mine] & ~self.spent[mine])
        return bool(timed.sum() >= self.sizes[j] - self.f and missing.sum() > self.f)

    def _dropped(self, client: str) -> list[Action]:
        i = self.index[client]
        j = int(self.group[i])
        self.spent[i] = self.absent[i] = True
        if not self.active[j]:
            return []
        borne = ", and counts as silent" if self._stuck(j) is None else ""
        self._warn(j, f"{client} was {DROPPED}{borne}")
        return self._advance([j])

    def _advance(self, changed: Any) -> list[Action]:
        """Check these groups again, then end the run, close the round or keep waiting."""
        if self.state == "done":
            return []
        for j in changed:
            reason = self._stuck(int(j))
            if reason and reason != "votes" and self.absent[self.members[j]].any():
                self._leave_out(int(j))
                rest = [k for k in changed if self.active[k]]
                return self._advance(rest) if self.active.any() else self._undecided("silence")
            if reason:
                return self._undecided(reason)
            self.ready[j] = self._is_ready(int(j))
        return self._close_round() if self.ready[self.active].all() else []

    def _next_round(self, message: Downlink) -> list[Action]:
        self.round += 1
        self.replied[:] = False
        self.ready[:] = False
        self.patient = True
        self.ticks, self.first_tick = 0, np.minimum(self.first_tick, 1)
        actions: list[Action] = [self._send(message)]
        # If no more replies are expected, the round closes immediately.
        return actions + self._advance(np.flatnonzero(self.active))

    def _warn(self, j: int, text: str) -> None:
        if (j, text) not in self.warned:
            self.warned.add((j, text))
            name = self.layout.groups[j].name
            self.warnings.append({"group": name, "round": self.round, "text": text})

    @abstractmethod
    def _take(self, i: int, data: bytes) -> None:
        """Process a message of client i, or raise Malformed and change nothing."""

    def _is_ready(self, j: int) -> bool:
        """Whether group j has all replies that this round needs."""
        mine = self.members[j]
        here = self.replied[mine] & ~self.out[mine]
        if (here | self.out[mine] | self.spent[mine]).all():
            return True
        return not self.patient and bool(here.sum() >= self.sizes[j] - self.f)

    def _stuck(self, j: int) -> Reason | None:
        """The reason why group j can never get the replies that a round needs, or None."""
        mine = self.members[j]
        if self.out[mine].sum() > self.f:
            self._warn(j, f"{self.out[mine].sum()} clients are proven faulty, more than byzantine = {self.f}")
            return "votes"
        if (self.out[mine] | self.spent[mine]).sum() <= self.f:
            return None
        return "silence" if self.absent[mine].any() else "budget"
