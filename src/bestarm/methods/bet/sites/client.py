"""The client of Fed-Bet for questions about several sites: it pulls what the plans say and sends the sums."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from bestarm.methods.bet.batches import spread
from bestarm.methods.bet.block_client import BlockClient
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.answers import verdict_for_client
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.messages import End, Part, Plan, Wire, decode_down, encode
from bestarm.problem.layout import Layout
from bestarm.protocol.decisions import Ints
from bestarm.protocol.events import Action, Decided, Pull, Received, Send, Start, Supply
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.machine import Transitions
from bestarm.protocol.messages import Stopped
from bestarm.protocol.rounds import SERVER
from bestarm.stats.sums import Sums


class Client(BlockClient[Plan | End]):
    """One client of a site. It plays all blocks in the order in which they were announced."""

    transitions: ClassVar[Transitions] = {
        **LookClient.transitions,
        **{(state, Supply): frozenset({state}) for state in ("new", "pulling", "reported", "done")},
        ("new", Start): frozenset({"pulling", "reported", "done"}),
        ("pulling", Received): frozenset({"pulling", "reported", "done"}),
    }

    def __init__(self, layout: Layout, name: str, options: Bet) -> None:
        super().__init__(layout, name, options)
        self.course = Course(layout, options)
        self.own_wire = Wire(self.course)
        self.index = layout.clients.index(name)
        self.sent: list[Part | Stopped] = []
        self.arms_of: list[list[int]] = []  # the arms that each message reports on
        self.announced = self.course.n1  # pulls after all blocks that were announced
        # Blocks that are announced and not begun: pulls before them, their pulls, the reference, as a Pull.
        self.waiting: deque[tuple[int, Ints, int | None, Pull | None]] = deque()
        self.n, self.pulls_due = 0, self._own(self.course.first())
        self.playing = bool(self.pulls_due.any())
        self.reference = self.course.references(())[self.index]
        self.fresh, self.met = Sums.none(self.arms), Sums.none(self.arms)
        self.asked = None

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return self.own_wire.stoppable

    @property
    def upcoming(self) -> tuple[Pull, ...]:
        """The pulls of the blocks that are announced and not begun, in order."""
        return tuple(pull for *_, pull in self.waiting if pull is not None)

    def _own(self, pulls: Ints) -> Ints:
        """The pulls of this client's arms, from those of all cells."""
        return pulls[self.index, list(self.course.cells.place[self.index])]

    def _pull(self) -> list[Action]:
        """Make the pulls of this block that are still missing, or send its part and begin the next one."""
        missing = self.pulls_due - self.fresh.count.astype(np.int64)
        if self.playing and missing.any():
            return self._ask(missing)
        actions: list[Action] = []
        if self.playing:
            met = None if self.reference is None else (self.met, self.reference)
            part = Part.of(self.fresh, self.n, self.own_wire, self.binary, self.supply, met)
            actions.append(self._say(part))
            self.playing = False
        while self.waiting and not self.playing:
            self.n, self.pulls_due, self.reference, _ = self.waiting.popleft()
            self.fresh, self.met = Sums.none(self.arms), Sums.none(self.arms)
            self.playing = bool(self.pulls_due.any())
        if self.playing:
            return [*actions, *self._ask(self.pulls_due)]
        self._enter("reported")
        return actions

    @property
    def _first(self) -> bool:
        return self.n == 0

    @property
    def _block(self) -> dict[str, int]:
        return {"n": self.n}

    def _plays(self, plan: Plan) -> bool:
        """Whether this client has a part in a block: with its own pace, it has none in those of others."""
        races = zip(plan.legs, self.course.members, strict=True)
        return any(leg is not None and self.index in members for leg, members in races)

    def _stopped(self) -> Send:
        return self._say(Stopped())

    def _say(self, message: Part | Stopped) -> Send:
        self.sent.append(message)
        self.arms_of.append(np.flatnonzero(self.fresh.count).tolist())
        return Send(SERVER, *encode(message, self.own_wire))

    def _decode(self, data: bytes) -> Plan | End:
        return decode_down(data, self.own_wire)

    def _answer(self, message: Plan | End) -> list[Action]:
        if isinstance(message, End):
            self._enter("done")
            return [Pull((), 0), Decided(verdict_for_client(self.course, message))]
        self.heard += 1
        if self.course.own_pace and not self._plays(message):
            return []
        step = self.blocks.step(self.announced) if message.step is None else message.step
        steps = self.course.steps(step) if message.steps is None else np.array(message.steps)
        stands = message.stands(self.course)
        pulls = self._own(self.course.pulls(stands, step, steps)[0])
        reference = self.course.references(stands)[self.index]
        pull = spread(pulls, moments=not self.binary, against=reference) if pulls.any() else None
        self.waiting.append((self.announced, pulls, reference, pull))
        self.announced += step
        if self.playing or self.spent:  # it plays blocks in order
            return []
        return self._pull()
