"""The client of a rival: it brings every option that is left to n_r pulls, and sends the sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.rivals import decisions
from bestarm.methods.rivals.answers import verdict_for_client
from bestarm.methods.rivals.course import Course
from bestarm.methods.rivals.messages import End, Rest, RivalWire, Sums
from bestarm.methods.rivals.options import Rival
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Decided, Pull, Send
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.machine import IllegalEvent, demand_sums
from bestarm.protocol.messages import Final, Stopped
from bestarm.protocol.rounds import SERVER


class Client(LookClient[Rest | End]):
    """One player."""

    def __init__(self, layout: Layout, name: str, options: Rival) -> None:
        super().__init__(layout, name)
        self.options, self.course = options, Course(layout, options)
        self.wire = RivalWire(self.course)
        i = layout.clients.index(name)
        self.place, self.binary = np.array(self.course.place[i]), self.course.binary[i]
        self.inside = np.ones(self.course.number, dtype=bool)
        self.sums = np.zeros(self.course.number)
        self.count = 0  # pulls of each option that is in
        self.pulls = self.first_pulls = 0
        self.sent: list[dict[str, Any]] = []  # the options and sums of each round

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return self.course.stoppable

    @property
    def arms(self) -> tuple[int, ...]:
        """The arms that are pulled now."""
        return tuple(np.flatnonzero(self.inside[self.place]).tolist())

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: its pulls, and what it sent."""
        return {
            "count": self.count,
            "pulls": [self.first_pulls, self.pulls - self.first_pulls],
            "sent": self.sent,
        }

    def _pull(self) -> list[Action]:
        missing, arms = self.course.size(len(self.sent)) - self.count, self.arms
        if self.spent or decisions.too_dear(self.pulls, missing * len(arms), self.options.budget):
            return self._stop()
        if missing == 0:  # two rounds of FPE may have the same size
            return self._report()
        self._enter("pulling")
        return [Pull(arms, missing)]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        arms = self.arms
        most = self.course.size(len(self.sent)) - self.count
        demand_sums(self.name, sums, times, len(arms), most)
        if self.binary and any(not float(value).is_integer() for value in sums):
            raise IllegalEvent(f"{self.name}: sums of 0/1 rewards must be whole numbers")
        self.sums[self.place[list(arms)]] += sums
        self.count += times
        made = times * len(arms)
        self.pulls += made
        self.first_pulls += made * (not self.sent)
        return self._pull()

    def _report(self) -> list[Action]:
        self._enter("reported")
        options = np.flatnonzero(self.inside).tolist()
        sums = tuple(self.sums[options].tolist())
        n = self.course.size(len(self.sent))
        self.sent.append({"options": options, "sums": list(sums)})
        return [Send(SERVER, *self.wire.encode(Sums(sums), n, self.binary))]

    def _stop(self) -> list[Action]:
        self._enter("reported")
        self.spent = True
        if not self.stoppable:
            return [Pull((), 0)]
        return [Pull((), 0), Send(SERVER, *self.wire.encode(Stopped(), 0, self.binary))]

    def _decode(self, data: bytes) -> Rest | End | Final:
        return self.wire.decode_down(data, int(self.inside.sum()))

    def _answer(self, message: Rest | End) -> list[Action]:
        if isinstance(message, End):
            self._enter("done")
            return [Pull((), 0), Decided(verdict_for_client(self.course, message.option))]
        self.inside[np.flatnonzero(self.inside)] = message.kept
        return self._pull()
