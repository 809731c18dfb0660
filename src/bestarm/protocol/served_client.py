"""The client of a server: when it starts, what it does with the server's messages, and how the run ends.

This is the counterpart of ``RoundServer``. A method's client adds its table of states, how it handles rewards
and messages, and what it sends when it stops pulling. ``LookClient`` has a table for methods that work in
looks.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action, Event, Pulled, Received, Start, Stop
from bestarm.protocol.machine import StateMachine
from bestarm.protocol.messages import Final
from bestarm.protocol.rounds import SERVER, one_arm, the_end

Message = TypeVar("Message")  # what the server may send, apart from ``Final``


class ServedClient(StateMachine, Generic[Message]):
    """The base class of the client of a server.

    Parameters
    ----------
    layout : Layout
        The groups, their arms and their clients.
    name : str
        The client's name.
    """

    def __init__(self, layout: Layout, name: str) -> None:
        super().__init__()
        self.layout, self.name = layout, name
        self.group = layout.group_of[name]
        self.spent = False  # makes no more pulls
        self.ignored = 0  # messages that could not be decoded

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return True

    def _handle(self, event: Event) -> list[Action]:
        match event:
            case Start():
                if one_arm(self.layout):
                    self._enter("done")
                    return []
                return self._pull()
            case Pulled():
                return self._took(event)
            case Received(sender, data) if sender == SERVER:
                return self._received(data)
            case Stop():
                if (self.state, Pulled) in self.transitions:  # it is pulling
                    return self._stop()
                self.spent = True
        return []

    def _received(self, data: bytes) -> list[Action]:
        """Ignore what can't be decoded, end the run at ``Final``, and pass on every other message."""
        try:
            message = self._decode(data)
        except Malformed:
            self.ignored += 1
            return []
        if isinstance(message, Final):
            self._enter("done")
            return the_end(self.layout, message)
        return self._answer(message)

    @abstractmethod
    def _pull(self) -> list[Action]:
        """Begin to pull."""

    def _took(self, event: Pulled) -> list[Action]:
        """Process rewards; a method that asks for shares or moments overrides this."""
        return self._pulled(event.sums, event.times)

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        """Process rewards: `times` pulls of each requested arm, and their sums."""
        raise NotImplementedError

    @abstractmethod
    def _decode(self, data: bytes) -> Message | Final:
        """Decode a message from the server. May raise ``Malformed``."""

    @abstractmethod
    def _answer(self, message: Message) -> list[Action]:
        """Process a message from the server that does not end the run."""

    @abstractmethod
    def _stop(self) -> list[Action]:
        """Stop pulling, because there are no more rewards or the next pulls cost too much."""
