"""The client of pooled Fed-Fisher."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.client import demand_coins
from bestarm.methods.fisher.looks import MAX_LOOK, looks_of, wire_of
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.fisher.pooled.messages import PoolDown, Sums, decode_pool_down, encode_sums
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Pull, Send
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.messages import Final, Stopped
from bestarm.protocol.rounds import SERVER


class Client(LookClient[PoolDown]):
    """One client: it pulls the requested arms and sends the sums."""

    def __init__(self, layout: Layout, name: str, options: Fisher) -> None:
        super().__init__(layout, name)
        self.options = options
        self.wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        before = sum(layout.arm_counts[: self.group])
        self.own = slice(before, before + layout.arm_counts[self.group])
        self.sums = np.zeros(layout.arm_counts[self.group], dtype=np.int64)
        self.arms = tuple(range(len(self.sums)))  # the arms to pull for this look
        self.look = self.newest = self.looks.quiet
        self.asked = {self.look: self.arms}  # the arms of each look that is not reported yet
        self.reported: dict[int, tuple[int, ...]] = {}  # the arms of each reported look
        self.count = 0
        self.pulls = 0
        self.stopped = False  # has sent ``Stopped``
        self.sent: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []  # (look, arms, sums)

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return self.wire.stoppable

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: what it sent, look by look, and its pulls."""
        return {
            "count": self.count,
            "pulls": self.pulls,
            "sent": {c: [plain[k] for plain in self.sent] for k, c in enumerate(COLUMNS)},
        }

    def _pull(self) -> list[Action]:
        """Pull the remaining arms up to the size of this look."""
        if self.spent:
            return self._stop()
        self.arms = self.asked[self.newest]
        size = self.looks.size(self.look)
        cost = (size - self.count) * len(self.arms)
        if size > MAX_LOOK or fisher_decisions.too_dear(self.pulls, cost, self.options.budget):
            return self._stop()
        if cost == 0:  # two looks have the same size because n₀ is tiny
            return self._report()
        self._enter("pulling")
        return [Pull(self.arms, size - self.count)]

    def _stop(self) -> list[Action]:
        self._enter("reported")
        self.spent = True
        if not self.wire.stoppable or self.stopped:
            return [Pull((), 0)]
        self.stopped = True
        return [Pull((), 0), Send(SERVER, *encode_sums(Stopped(), self.wire))]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        most = self.looks.size(self.look) - self.count
        demand_coins(self.name, sums, times, len(self.arms), most)
        self.sums[list(self.arms)] += np.asarray(sums, dtype=np.int64)
        self.count += times
        self.pulls += times * len(sums)
        return [Pull(self.arms, most - times)] if times < most else self._report()

    def _report(self) -> list[Action]:
        self._enter("reported")
        sums = [int(total) for total in self.sums]
        arms = self.reported[self.look] = self.asked.pop(self.look)
        message = Sums(self.look - self.looks.quiet, tuple(sums[a] for a in arms))
        self.sent.append((self.look, self.arms, tuple(sums[a] for a in self.arms)))
        actions: list[Action] = [Send(SERVER, *encode_sums(message, self.wire, self.looks.size(self.look)))]
        if self.newest > self.look:  # other looks have begun in the meantime
            self.look += 1
            return actions + self._pull()
        return actions

    def _decode(self, data: bytes) -> PoolDown | Final:
        return decode_pool_down(data, self.wire)

    def _answer(self, message: PoolDown) -> list[Action]:
        self.newest += 1
        self.asked[self.newest] = tuple(int(a) for a in np.flatnonzero(message.active[self.own]))
        if not self.asked[self.newest]:
            self._enter("done")
            return [Pull((), 0)]
        if self.state != "reported":
            return []
        self.look = self.newest
        return self._pull()


COLUMNS = ("look", "arms", "sums")
