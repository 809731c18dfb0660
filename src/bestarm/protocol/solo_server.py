"""A server that trusts the one client of each group and waits for all of them."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action
from bestarm.protocol.messages import Arms
from bestarm.protocol.rounds import Downlink, RoundServer
from bestarm.util.text import shorten


class SoloServer(RoundServer):
    """A server that trusts the one client of each group and waits for all of them.

    Parameters
    ----------
    layout : Layout
        The groups, their arms and their clients.
    wire : Arms
        What both ends know without a message, for the codec.
    """

    def __init__(self, layout: Layout, wire: Arms) -> None:
        super().__init__(layout, wire)
        self.waiting = np.ones(len(layout.groups), dtype=bool)
        self.missing = len(layout.groups)

    @property
    def ticking(self) -> bool:
        return self.round > 0 or not self.waiting.all()

    def missing_clients(self) -> list[str]:
        if self.state == "done":
            return []
        return [self.layout.groups[j].clients[0] for j in np.flatnonzero(self.waiting)]

    def _received(self, sender: str, data: bytes) -> list[Action]:
        j = self.layout.group_of[sender]
        try:
            actions = self._take(j, data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._undecided("votes")
        self.waiting[j] = False
        self.missing -= 1
        return self._listed(actions, "_take") + self._close_if_complete()

    def _close_if_complete(self) -> list[Action]:
        if self.missing:
            return []
        if self.gone and not self.active.any():  # all other groups have lost to one that was dropped
            return self._undecided("silence")
        return self._listed(self._close_round(), "_close_round")

    def _listed(self, actions: list[Action], hook: str) -> list[Action]:
        """The actions; InputError if a method outside bestarm returned something else."""
        if isinstance(actions, list):
            return actions
        raise InputError(
            f"{hook} returned {shorten(actions)}",
            where=f'server "{type(self).__name__}"',
            expected="a list of actions, empty if there is nothing to do",
        )

    def _expects(self, sender: str, data: bytes) -> bool:
        return sender in self.layout.group_of and bool(self.waiting[self.layout.group_of[sender]])

    def _patience_over(self) -> list[Action]:
        return self._undecided("silence")

    def _waits_on(self, spent: bool) -> bool:
        return not spent

    def _dropped(self, client: str) -> list[Action]:
        j = self.layout.group_of[client]
        if not self.active[j]:
            return []
        self._leave_out(j)
        if self.waiting[j]:
            self.waiting[j] = False
            self.missing -= 1
        return self._close_if_complete()

    def _next_round(self, waiting: decisions.Mask, message: Downlink) -> list[Action]:
        self.round += 1
        self.waiting = waiting
        self.missing = int(waiting.sum())
        return [self._send(message)]

    @abstractmethod
    def _take(self, j: int, data: bytes) -> list[Action]:
        """Process a message of group j, or raise Malformed."""
