"""The client of Fed-Bet among liars: it plays every block in full, in order, and sends the sums.

A client that is behind plays the blocks that it has missed, also for arms that have left in the meantime: a
block that is cut or skipped for a reason that depends on rewards would break the guarantee.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from bestarm.methods.bet.block_client import BlockClient
from bestarm.methods.bet.groups.messages import Block
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.robust.blocks import robust_wire
from bestarm.methods.bet.robust.messages import Down, Part, decode_down, encode
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Pull, Received, Send, Supply
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.machine import Transitions
from bestarm.protocol.messages import Final, Stopped
from bestarm.protocol.rounds import SERVER
from bestarm.stats.sums import Sums


class Client(BlockClient[Down]):
    """One client of a group. It knows the layout, its own group and the options, but no true mean."""

    transitions: ClassVar[Transitions] = {
        **LookClient.transitions,
        **{(state, Supply): frozenset({state}) for state in ("new", "pulling", "reported", "done")},
        ("pulling", Received): frozenset({"pulling", "reported", "done"}),
    }

    def __init__(self, layout: Layout, name: str, options: Bet) -> None:
        super().__init__(layout, name, options)
        self.wire = robust_wire(layout, options)
        self.number = 0
        self.block = Block(self.wire, 0, self.blocks.n1)
        self.told = [self.block]  # all blocks that have begun
        self.ahead: deque[Block] = deque()  # those that it has not begun
        self.fresh = Sums.none(self.arms)  # the rewards of this block
        self.whole = Sums.none(self.arms)  # and of all blocks
        self.asked = None
        self.sent: list[Part | Stopped] = []
        self.over = False  # has stopped for good

    def _pull(self) -> list[Action]:
        """Make the pulls of this block that are still missing, or send its part if none is."""
        missing = self.block.pulls(self.group) - self.fresh.count.astype(np.int64)
        if missing.any():
            return self._ask(missing)
        self._enter("reported")
        part = self._say(Part.of(self.number, self.fresh, self.block, self.group))
        self.whole = self.whole.plus(self.fresh)
        return [part, *self._next()] if self.ahead else [part]

    def _next(self) -> list[Action]:
        """Begin the next block."""
        self.block, self.number = self.ahead.popleft(), self.number + 1
        self.fresh = Sums.none(self.arms)
        return self._pull()

    @property
    def _first(self) -> bool:
        return self.block.last is None

    def _stopped(self) -> Send:
        return self._say(Stopped())

    def _stop(self) -> list[Action]:
        self.over = True
        return super()._stop()

    def _say(self, message: Part | Stopped) -> Send:
        self.sent.append(message)
        return Send(SERVER, *encode(message, self.wire))

    def _decode(self, data: bytes) -> Down | Final:
        return decode_down(data, self.wire)

    def _answer(self, message: Down) -> list[Action]:
        self.heard += 1
        n = self.told[-1].n + self.told[-1].step
        self.told.append(Block(self.wire, n, self.blocks.step(n), message))
        self.ahead.append(self.told[-1])
        if not self.told[-1].pulls(self.group).any():  # all its arms have left, for good
            self._enter("reported")
            self.ahead.clear()
            return [Pull((), 0)]
        return [] if self.state == "pulling" or self.over else self._next()
