"""The server of Fed-Bet for questions about several sites.

It announces blocks, waits for all their parts, closes them in order, and lets the ledger decide. A block is
never void: a missing part is waited for, or the operator drops its client, which changes the question.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from bestarm.methods.bet.blocks import MAX_PULLS
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.answers import answers_of, end_of, status_of
from bestarm.methods.bet.sites.course import Course, fitting
from bestarm.methods.bet.sites.decisions import Block, ControlRace, Stand, values
from bestarm.methods.bet.sites.estimates import with_estimates
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.methods.bet.sites.messages import Part, Plan, Wire, block_of, decode
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.decisions import Ints
from bestarm.protocol.events import Action, Event, Start
from bestarm.protocol.messages import Stopped
from bestarm.protocol.rounds import DROPPED, RoundServer
from bestarm.protocol.verdict import Reason

OTHERS = f"{DROPPED}: the answer is about the other sites"


@dataclass
class OpenBlock:
    """A block that is announced: what every client has to pull in it, and the parts that have come."""

    n: int
    step: int
    pulls: Ints  # (clients, options)
    stands: list[Stand | None] = field(default_factory=list)
    parts: dict[int, Part] = field(default_factory=dict)
    references: list[int | None] = field(default_factory=list)  # the arm of each client, see Course

    def waits_for(self, i: int) -> bool:
        return bool(self.pulls[i].any()) and i not in self.parts


class Server(RoundServer):
    """The server of Fed-Bet for the questions "overall", "each" and "control"."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.course = Course(layout, options)
        self.own_wire = Wire(self.course)
        super().__init__(layout, self.own_wire)
        self.options = options
        self.index = {name: i for i, name in enumerate(layout.clients)}
        self.binary = [layout.groups[layout.group_of[name]].binary for name in layout.clients]
        self.present = np.ones(len(layout.clients), dtype=bool)
        self.ledger = Ledger(self.course, self.present)
        self.closed: list[tuple[Block, list[Stand | None], int]] = []
        first = OpenBlock(0, self.course.n1, self.course.first(), references=self.course.references(()))
        self.open: deque[OpenBlock] = deque([first])
        self.announced = self.course.n1  # pulls after all blocks that are announced
        self.supply = np.full(len(layout.clients), MOST_SUPPLY)
        self.exits: list[dict[str, Any]] = []
        self.wealths: list[dict[str, Any]] = []

    # Messages

    def _handle(self, event: Event) -> list[Action]:
        if isinstance(event, Start):
            self._enter("waiting")
            return self._conclude() if self.ledger.over[0] else []
        return super()._handle(event)

    @property
    def ticking(self) -> bool:
        return self.round > 0 or any(block.parts for block in self.open)

    def missing_clients(self) -> list[str]:
        if self.state == "done" or not self.open:
            return []
        oldest = self.open[0]
        return [n for i, n in enumerate(self.layout.clients) if self.present[i] and oldest.waits_for(i)]

    def _expects(self, sender: str, data: bytes) -> bool:
        return sender in self.index

    def _received(self, sender: str, data: bytes) -> list[Action]:
        try:
            return self._take(sender, data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._undecided("votes")

    def _take(self, sender: str, data: bytes) -> list[Action]:
        i = self.index[sender]
        block = next((block for block in self.open if block.waits_for(i)), None)
        if block is None:
            raise Malformed("a part of a block that was not announced, or a second one")
        own = block.pulls[i, list(self.course.cells.place[i])]
        reference = block.references[i]
        message, bits = decode(data, self.own_wire, own, block.n, self.binary[i], reference)
        self.bits_up += bits
        if isinstance(message, Stopped):
            return self._undecided("budget")
        block.parts[i] = message
        if message.supply is not None:
            self.supply[i] = message.supply
        return self._advance()

    def _patience_over(self) -> list[Action]:
        return self._undecided("silence")

    def _waits_on(self, spent: bool) -> bool:
        return not spent

    # Blocks

    def _complete(self, block: OpenBlock) -> bool:
        return not any(block.waits_for(i) for i in np.flatnonzero(self.present).tolist())

    def _advance(self) -> list[Action]:
        """Close the blocks that are complete, in order, and announce the next one if somebody can play it."""
        while self.open and self._complete(self.open[0]):
            self._close(self.open.popleft())
            most = self.options.max_rounds
            if self.ledger.over[0]:
                return self._conclude()
            if most is not None and self.rounds >= most:
                return self._undecided("rounds")
        idle = any(not any(b.waits_for(i) for b in self.open) for i in np.flatnonzero(self.present).tolist())
        if not self.open or (idle and len(self.open) < self.options.open_blocks and self.ledger.n):
            return self._announce()
        return []

    def _close_round(self) -> list[Action]:
        return self._advance()

    def _close(self, block: OpenBlock) -> None:
        """Add a block to the ledger, and a row to the certificate. Its intervals are illustrative only."""
        parts = [block.parts.get(i) if self.present[i] else None for i in range(len(self.present))]
        made = block_of(parts, block.pulls, self.course, block.references)
        self.closed.append((made, block.stands, block.step))
        self._fold(len(self.closed) - 1)
        sums, race = self.ledger.sums, self.ledger.races[0]
        value, error = values(sums, race.weights, race.clients)
        count = sums.count[0].sum(axis=0)
        seen = np.flatnonzero(count)
        self.history.append(
            {
                "round": len(self.history),
                "pulls": block.n + block.step,
                "option": seen.tolist(),
                "count": count[seen].astype(int).tolist(),
                "value": value[0, seen].tolist(),
                "lower": np.clip(value - 2 * error, 0, 1)[0, seen].tolist(),
                "upper": np.clip(value + 2 * error, 0, 1)[0, seen].tolist(),
                "left": [int(race.inside[0].sum()) for race in self.ledger.races],
            }
        )

    def _fold(self, k: int) -> None:
        """Let the ledger decide about closed block k, and note the wealths and what was settled."""
        block, stands, step = self.closed[k]
        before = [race.inside[0].copy() for race in self.ledger.races]
        self.ledger.close(block, stands, step)
        for r, (race, inside, stand) in enumerate(zip(self.ledger.races, before, stands, strict=False)):
            if stand is None:
                continue
            place = {"race": r, "block": k, "champion": int(stand.champion[0])}
            plays = np.flatnonzero(inside & stand.inside[0])
            wealth = race.log_wealth[..., 0, plays].tolist()
            self.wealths.append({**place, "option": plays.tolist(), "log_wealth": wealth})
            for option in np.flatnonzero(inside & ~race.inside[0]).tolist():
                claim = int(race.claim[0, option]) if isinstance(race, ControlRace) else None
                self.exits.append({**place, "option": option, "claim": claim})

    def _announce(self) -> list[Action]:
        """Announce the next block, from the blocks that are closed."""
        n, course = self.announced, self.course
        scale = course.neyman(self.ledger.sums)[0] if self.own_wire.tells_steps else None
        step = course.blocks.step(n)
        if n + step > MAX_PULLS:
            return [] if self.open else self._undecided("budget")
        stands = self.ledger.stands()
        if self.own_wire.finite:
            step = self._cut(step, stands)
            if step == 0:
                return [] if self.open else self._undecided("budget")
        steps = course.steps(step, scale)
        over = [bool(race.over[0]) for race in self.ledger.races]
        told = step if self.own_wire.finite else None
        plan = Plan.of(course, stands, over, told, steps if self.own_wire.tells_steps else None)
        played = plan.stands(course)
        pulls = course.pulls(played, step, steps)[0]
        self.open.append(OpenBlock(n, step, pulls, played, references=course.references(played)))
        self.announced += step
        self.round += 1
        return [self._send(plan), *self._advance()]

    def _cut(self, step: int, stands: list[Stand]) -> int:
        """The largest step that the data allow; champions get fewer pulls if theirs run out."""
        due = sum(block.pulls.max(axis=1) for block in self.open)
        supply = np.where(self.present, self.supply - due, MOST_SUPPLY)
        step = fitting(self.course, step, supply)
        most = int((supply // np.maximum(self.course.steps(step), step)).min()) if step else 1
        for stand in stands:
            stand.ratio = np.minimum(stand.ratio, max(most, 1))
        return step

    # The end

    def _conclude(self) -> list[Action]:
        end = end_of(self.ledger)
        verdict = status_of(answers_of(self.course, end, None, self.ledger))
        return [self._send(end), *self._end(with_estimates(verdict, self.ledger, self.closed))]

    def _undecided(self, reason: Reason) -> list[Action]:
        end = end_of(self.ledger)
        verdict = status_of(answers_of(self.course, end, reason, self.ledger))
        verdict = replace(with_estimates(verdict, self.ledger, self.closed), reason=reason)
        return [self._send(end), *self._end(verdict)]

    def _dropped(self, client: str) -> list[Action]:
        """Fold all closed blocks again without this client: the question is now about the others."""
        i, j = self.index[client], self.layout.group_of[client]
        self.present[i] = False
        own = self.layout.groups[j]
        alone = self.gone.issuperset(own.clients)
        text = OTHERS if alone else f"{client} was {DROPPED}: the others stand for the site"
        self.warnings.append({"group": own.name, "round": self.round, "text": text})
        self.active[j] = self.active[j] and not alone
        self.ledger = Ledger(self.course, self.present.copy())
        self.exits, self.wealths = [], []
        for k in range(len(self.closed)):
            self._fold(k)
        if not self.present.any():
            return self._undecided("silence")
        return self._conclude() if self.closed and self.ledger.over[0] else self._advance()

    def certificate(self) -> dict[str, Any]:
        sums, total = self.ledger.sums, self.ledger.sums.total + self.ledger.rounded / 2
        cells = {"count": sums.count[0].astype(int).tolist(), "total": total[0].tolist()}
        return {
            **super().certificate(),
            "over_all": self.course.question.kind != "each",
            "levels": [race.level for race in self.ledger.races],
            "exits": self.exits,
            "wealth": self.wealths,
            "cells": cells,
        }
