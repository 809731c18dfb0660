"""The client of Fed-Fisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import MAX_LOOK, looks_of, wire_of
from bestarm.methods.fisher.messages import (
    LookDown,
    LookReport,
    LookStopped,
    decode_look_down,
    encode_withdrawn,
)
from bestarm.methods.fisher.options import Fisher
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.events import Action, Pull, Send
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.machine import IllegalEvent, demand_sums
from bestarm.protocol.messages import Final
from bestarm.protocol.rounds import SERVER


@dataclass(frozen=True)
class Exit:
    """An arm that a client dropped: the look, the sum of the arm, and the rival's sum that beat it."""

    arm: int
    look: int
    sum: int
    rival: int


def demand_coins(name: str, sums: tuple[float, ...], times: int, arms: int, most: int) -> None:
    """Raise IllegalEvent unless these are sums of coins for the requested arms and number of pulls."""
    demand_sums(name, sums, times, arms, most)
    if not all(float(s).is_integer() for s in sums):
        raise IllegalEvent(f"{name}: the sum of {times} coins must be a whole number in [0, {times}]")


class Client(LookClient[LookDown]):
    """One client. It knows the layout, its own group and the options, but no true mean."""

    def __init__(self, layout: Layout, name: str, options: Fisher) -> None:
        super().__init__(layout, name)
        self.options = options
        self.wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        arms = layout.arm_counts[self.group]
        self.sums = np.zeros(arms, dtype=np.int64)
        self.active = np.ones(arms, dtype=bool)
        self.look = 0
        self.count = 0  # pulls of each active arm
        self.pulls = 0
        self.quiet_pulls = 0
        self.last: LookReport | None = None
        self.exits: list[Exit] = []
        self.sent: list[tuple[int, int, int]] = []  # (look, arm, sum) behind each report

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return self.wire.stoppable

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: each arm that it dropped and each report, with its sums."""
        return {
            "look": self.look,
            "count": self.count,
            "exits": {c: [getattr(e, c) for e in self.exits] for c in ("arm", "look", "sum", "rival")},
            "sent": {c: [s[i] for s in self.sent] for i, c in enumerate(("look", "arm", "sum"))},
        }

    @property
    def arms(self) -> tuple[int, ...]:
        return tuple(int(a) for a in np.flatnonzero(self.active))

    def _pull(self) -> list[Action]:
        """Pull every active arm up to the size of this look."""
        needed = self.looks.size(self.look) - self.count
        cost = needed * len(self.arms)
        too_dear = fisher_decisions.too_dear(self.pulls, cost, self.options.budget)
        if self.looks.size(self.look) > MAX_LOOK or too_dear:
            return self._stop()
        if needed == 0:  # two looks have the same size because n₀ is tiny
            return self._at_look()
        self._enter("pulling")
        return [Pull(self.arms, needed)]

    def _stop(self) -> list[Action]:
        self._enter("reported")
        self.spent = True
        if not self.wire.stoppable:
            return [Pull((), 0)]
        return [Pull((), 0), Send(SERVER, *LookStopped().encode(self.wire))]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        most = self.looks.size(self.look) - self.count
        demand_coins(self.name, sums, times, len(self.arms), most)
        self.sums[self.active] += np.asarray(sums, dtype=np.int64)
        self.count += times
        self.pulls += times * len(sums)
        if self.look < self.looks.quiet:
            self.quiet_pulls += times * len(sums)
        if times < most:
            return [Pull(self.arms, most - times)]
        return self._at_look()

    def _at_look(self) -> list[Action]:
        top = int(decisions.best_arm(self.sums.astype(np.float64), self.active))
        self._drop_losers(int(self.sums[top]), keep=top)
        if self.look < self.looks.quiet:
            self.look += 1
            return self._pull()
        self._enter("reported")
        n, bits = self.looks.size(self.look), self.looks.bits(self.look)
        report = LookReport(
            arm=top,
            single=len(self.arms) == 1,
            index=int(fisher_decisions.look_bin(self.sums[top], n, bits)),
            bits=bits,
        )
        payload = report.encode(self.wire, self.group, self.last)
        self.last = report
        self.sent.append((self.look, top, int(self.sums[top])))
        return [Send(SERVER, *payload)]

    def _drop_losers(self, rival: int, keep: int | None = None) -> None:
        """Drop the active arms that lose to a rival's sum at this look."""
        n, level = self.looks.size(self.look), self.looks.level(self.look)
        lost = self.active & fisher_decisions.loses(self.sums, rival, n, level)
        if keep is not None:
            lost[keep] = False
        for arm in np.flatnonzero(lost):
            self.exits.append(Exit(int(arm), self.look, int(self.sums[arm]), rival))
        self.active = self.active & ~lost

    def _decode(self, data: bytes) -> LookDown | Final:
        return decode_look_down(data, self.wire, self.looks.bits(self.look))

    def _answer(self, message: LookDown) -> list[Action]:
        if self.state != "reported":
            return []
        if not message.is_active(self.group):
            self._enter("done")
            return []
        # The leader's bin and the client's own sums belong to the same look.
        lower, _ = fisher_decisions.bin_edges(
            message.index, self.looks.size(self.look), self.looks.bits(self.look)
        )
        self._drop_losers(int(lower))
        self.look += 1
        if not self.active.any():
            self._enter("done")
            return [Send(SERVER, *encode_withdrawn(self.wire))]
        return self._stop() if self.spent else self._pull()
