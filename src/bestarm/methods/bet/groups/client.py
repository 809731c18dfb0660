"""The client of Fed-Bet in a group of several: it pulls what the server asks for and sends the sums."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm.methods.bet.block_client import BlockClient
from bestarm.methods.bet.groups.messages import CONFIRMED, Block, Down, Part, Restart, decode_down, encode
from bestarm.methods.bet.options import Bet
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Pull, Received, Send, Supply
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.machine import Transitions
from bestarm.protocol.messages import Final, Stopped
from bestarm.protocol.rounds import SERVER
from bestarm.stats.sums import Sums


class Client(BlockClient[Down | Restart]):
    """One client of a group. It knows the layout, its own group and the options, but no true mean."""

    transitions: ClassVar[Transitions] = {
        **LookClient.transitions,
        **{(state, Supply): frozenset({state}) for state in ("new", "pulling", "reported", "done")},
        ("pulling", Received): frozenset({"pulling", "reported", "done"}),
    }

    def __init__(self, layout: Layout, name: str, options: Bet) -> None:
        super().__init__(layout, name, options)
        self.sent: list[Part | Stopped] = []
        self._begin()

    def _begin(self) -> None:
        """The state before the first pulls, also after a restart."""
        self.block = Block(self.wire, 0, self.blocks.n1)
        self.fresh = Sums.none(self.arms)  # the rewards of this block
        self.asked = None

    def _pull(self) -> list[Action]:
        """Make the pulls of this block that are still missing, or send its part if none is."""
        missing = self.block.pulls(self.group) - self.fresh.count.astype(np.int64)
        if not missing.any():
            self._enter("reported")
            return [self._say(Part.of(self.fresh, self.block, self.group, self.supply))]
        return self._ask(missing)

    @property
    def _first(self) -> bool:
        return self.block.last is None

    def _stopped(self) -> Send:
        return self._say(Stopped())

    def _say(self, message: Part | Stopped) -> Send:
        self.sent.append(message)
        return Send(SERVER, *encode(message, self.wire))

    def _decode(self, data: bytes) -> Down | Restart | Final:
        return decode_down(data, self.wire)

    def _answer(self, message: Down | Restart) -> list[Action]:
        self.heard += 1
        if isinstance(message, Restart):
            self._begin()
            return [Pull((), 0), Send(SERVER, CONFIRMED, 0), *self._pull()]
        n = self.block.n + self.block.step
        step = self.blocks.step(n) if message.step is None else message.step
        self.block = Block(self.wire, n, step, message)
        self.fresh = Sums.none(self.arms)
        if not self.block.pulls(self.group).any():  # its arms have left; after a restart they are back
            self._enter("reported")
            return [Pull((), 0)]
        return self._pull()
