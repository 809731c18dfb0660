"""What all clients of Fed-Bet share: they pull in blocks, know what their arms still hold, and may stop."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from bestarm.methods.bet.batches import as_pairs, as_sums, note_batch, spread
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.problem.layout import Layout
from bestarm.protocol.decisions import Ints
from bestarm.protocol.events import Action, Event, Pull, Pulled, Send, Supply
from bestarm.protocol.machine import demand_rewards
from bestarm.protocol.served_client import Message, ServedClient
from bestarm.stats.sums import Sums


class BlockClient(ServedClient[Message]):
    """The base class of a client of Fed-Bet, for single clients and for groups."""

    fresh: Sums  # the rewards of the open block
    met: Sums  # in a paired layout, how its arms compare with the one of `reference`
    asked: Pull | None  # the outstanding pull

    def __init__(self, layout: Layout, name: str, options: Bet) -> None:
        super().__init__(layout, name)
        self.options, self.blocks, self.wire = options, Blocks(options), wire_of(layout, options)
        self.arms = layout.arm_counts[self.group]
        self.binary = layout.groups[self.group].binary
        self.pulls = self.first_pulls = 0
        self.told_supply: list[int | None] = []
        self.reference: int | None = None  # in a paired layout, the arm that others are compared with
        self.supply = np.full(self.arms, MOST_SUPPLY)  # rewards that each arm still has
        self.heard = 0  # messages of the server
        self.lack = ""  # why it makes no more pulls, in words
        self.batches: list[dict[str, Any]] = []

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: its pulls, and its rewards by block."""
        return {
            "pulls": [self.first_pulls, self.pulls - self.first_pulls],
            "supply": self.told_supply,
            "batches": self.batches,
        }

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return self.wire.stoppable

    @property
    @abstractmethod
    def _first(self) -> bool:
        """Whether these are the pulls before the first bets."""

    @property
    def _block(self) -> dict[str, int]:
        """What the certificate says about the block of a batch, if messages do not tell it."""
        return {}

    @abstractmethod
    def _stopped(self) -> Send:
        """The message that the client makes no more pulls."""

    def _handle(self, event: Event) -> list[Action]:
        if not isinstance(event, Supply):
            return super()._handle(event)
        self.supply = np.array([MOST_SUPPLY if n is None else min(n, MOST_SUPPLY) for n in event.left])
        self.told_supply = list(event.left)
        return []

    def _ask(self, missing: Ints) -> list[Action]:
        """Make these pulls, spread over the block, or stop if the budget or the data do not allow it."""
        budget = self.options.budget
        dear = budget is not None and self.pulls + int(missing.sum()) > budget
        if self.spent or dear or (missing > self.supply).any():
            self.lack = self.lack or self._lack(missing)
            return self._stop()
        self.asked = spread(missing, moments=not self.binary, against=self.reference)
        self._enter("pulling")
        return [self.asked]

    def _lack(self, missing: Ints) -> str:
        """What these pulls are too many for; empty if the source has said that it has no more rewards."""
        if self.spent:
            return ""
        names, budget = self.layout.groups[self.group].arms, self.options.budget
        for name, need, left in zip(names, missing.tolist(), self.supply.tolist(), strict=True):
            if need > left:
                return f"the next block needs {need:,} more rewards of {name}, and {left:,} are left"
        if budget is None:
            return ""
        need, left = int(missing.sum()), budget - self.pulls
        return f"the next block needs {need:,} more pulls, and {left:,} of the budget of {budget:,} are left"

    def _took(self, event: Pulled) -> list[Action]:
        assert self.asked is not None
        demand_rewards(self.name, self.asked, event)
        new = as_sums(self.arms, self.asked, event)
        self.fresh = self.fresh.plus(new)
        made = int(new.count.sum())
        used = new.count.astype(np.int64)
        if self.asked.against is not None:
            self.met = self.met.plus(as_pairs(self.arms, self.asked, event))
            used[:] = event.times  # a subject is used up for all arms
        self.supply -= used
        self.pulls += made
        self.first_pulls += made * self._first
        note_batch(self.batches, self.heard, self.asked, event, **self._block)
        return self._pull()

    def _stop(self) -> list[Action]:
        self._enter("reported")
        self.spent = True
        self.batches.append({"heard": self.heard, "stop": True})
        return [Pull((), 0), self._stopped()] if self.stoppable else [Pull((), 0)]
