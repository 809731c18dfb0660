"""Incoming messages, put in order: each message of a stream is delivered once and in sequence.

A network may repeat and reorder messages. Each sender numbers its messages on a topic from 0; these form one
*stream*. The inbox does not check signatures: see ``envelope.Slots``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Stream = TypeVar("Stream", bound=Hashable)
Message = TypeVar("Message")


class Inbox(Generic[Stream, Message]):
    """Messages of several streams, each delivered once and in order.

    >>> inbox = Inbox[str, bytes]()
    >>> inbox.take("anna", 1, b"second")
    []
    >>> inbox.take("anna", 0, b"first")
    [b'first', b'second']
    >>> inbox.knows("anna", 1), inbox.next["anna"]
    (True, 2)
    """

    def __init__(self) -> None:
        self.next: Counter[Stream] = Counter()  # the number of the next message expected in each stream
        self.held: dict[Stream, dict[int, Message]] = {}  # messages that arrived early

    def knows(self, stream: Stream, number: int) -> bool:
        """Whether a message with this number has arrived before."""
        return number < self.next[stream] or number in self.held.get(stream, ())

    def ahead(self, stream: Stream, number: int) -> int:
        """How many messages of the stream are missing before this one is next."""
        return number - self.next[stream]

    def take(self, stream: Stream, number: int, message: Message) -> list[Message]:
        """Take a message and return the messages to deliver now: none if it is early or known."""
        self.put(stream, number, message)
        return list(self.due(stream))

    def put(self, stream: Stream, number: int, message: Message) -> None:
        """Take a message, unless it is known; ``due`` delivers it."""
        if not self.knows(stream, number):
            self.held.setdefault(stream, {})[number] = message

    def due(self, stream: Stream) -> Iterator[Message]:
        """Deliver the next messages of a stream, one at a time, as long as they are there."""
        while self.next[stream] in (held := self.held.get(stream, {})):
            message = held.pop(self.next[stream])
            if not held:
                del self.held[stream]
            self.next[stream] += 1
            yield message

    def drop(self, stream: Stream, number: int) -> None:
        """Forget a message that arrived early, so that another can take its place."""
        held = self.held.get(stream, {})
        held.pop(number, None)
        if not held:
            self.held.pop(stream, None)

    def gaps(self) -> set[Stream]:
        """The streams in which a message waits for an earlier one."""
        return set(self.held)
