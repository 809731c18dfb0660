"""The client of Robust Fed-SEL."""

from __future__ import annotations

from bestarm.methods import fed_sel
from bestarm.methods.fed_sel.messages import Bound, Refinement, Report
from bestarm.methods.robust_fed_sel.messages import Reply, encode_grouped
from bestarm.methods.robust_fed_sel.options import RobustFedSel, wire_of
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Pull
from bestarm.protocol.messages import Onward, Stopped


class Client(fed_sel.Client):
    """A client of Fed-SEL with other messages, and with other behaviour when it is late."""

    options: RobustFedSel

    def __init__(self, layout: Layout, name: str, options: RobustFedSel) -> None:
        super().__init__(layout, name, options)
        self.wire = wire_of(layout, options)
        self.stopped = False  # has sent ``Stopped``
        self.behind = False  # a new round began while it was pulling for the previous one

    def _encode(self, message: Report | Refinement, bits: int = 0) -> tuple[bytes, int]:
        words: Report | Reply | Stopped
        if isinstance(message, Report):
            self.stopped = message.remaining is not None
            words = Stopped() if self.stopped else message  # an unfinished client has no arm to vote for
        elif message.index is None and message.mean is None:
            words = Stopped()
        else:
            words = Reply(self.count, message.index, message.mean)
        return encode_grouped(words, self.wire, self.group, bits)

    def _refine(self) -> list[Action]:
        actions = super()._refine()
        if self.behind:
            self.behind = False
            actions += self._sample()
        return actions

    def _answer(self, message: Onward | Bound) -> list[Action]:
        assert isinstance(message, Onward)  # the only other message of a run without early stop
        self.round += 1
        if not message.is_active(self.group) or (self.state == "exploring" and self.options.rules == "paper"):
            self._enter("done")
            return [Pull((), 0)]
        if self.state == "sampling":
            self.behind = True
        if self.state != "reported":
            return []
        return self._exhausted() if self.spent else self._sample()

    def _exhausted(self) -> list[Action]:
        actions = super()._exhausted()
        actions, self.stopped = actions[: 1 if self.stopped else 2], True
        return actions
