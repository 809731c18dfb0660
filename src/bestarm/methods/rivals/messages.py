"""The messages of the rivals: sums upwards, the options that are left downwards.

Both ends know the round and the options that are in, so a message holds nothing else. Sums of 0/1 rewards
take ⌈log₂(n + 1)⌉ bits, others 64.
"""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.methods.rivals.course import Course
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import Stopped, canonical


@dataclass(frozen=True)
class Sums:
    """A client's sum of each option that is in, in the order of the options, since the run began."""

    sums: tuple[float, ...]


@dataclass(frozen=True)
class Rest:
    """Which of the options that were in are left."""

    kept: tuple[bool, ...]


@dataclass(frozen=True)
class End:
    """The end of the run, with the winning option; None if it is undecided."""

    option: int | None


@dataclass(frozen=True)
class RivalWire:
    """What both ends know about messages."""

    course: Course

    @property
    def arm_counts(self) -> tuple[int, ...]:
        """The number of arms of each group."""
        return self.course.layout.arm_counts

    def encode(self, message: Sums | Stopped, n: int, binary: bool) -> tuple[bytes, int]:
        """A client's message about n pulls of each option."""
        w = Writer()
        if self.course.stoppable:
            w.flag(isinstance(message, Stopped))
        if isinstance(message, Sums):
            for total in message.sums:
                if binary:
                    w.fixed(int(total), width_of(n + 1))
                else:
                    w.real(total)
        return w.payload(), w.bits

    def decode(self, data: bytes, options: int, n: int, binary: bool) -> tuple[Sums | Stopped, int]:
        """A client's message about n pulls of each of this many options, and its size in bits."""
        r = Reader(data)
        message: Sums | Stopped
        if self.course.stoppable and r.flag():
            message = Stopped()
        else:
            read = (float(r.fixed(width_of(n + 1))) if binary else r.real() for _ in range(options))
            message = Sums(tuple(read))
            if not all(0.0 <= total <= n for total in message.sums):
                raise Malformed(f"a sum that {n} rewards can't have")
        return message, canonical(data, self.encode(message, n, binary))

    def encode_down(self, message: Rest | End) -> tuple[bytes, int]:
        """A message of the server."""
        w = Writer()
        w.flag(isinstance(message, End))
        if isinstance(message, Rest):
            w.mask(message.kept)
        else:
            w.flag(message.option is not None)
            if message.option is not None:
                w.fixed(message.option, width_of(self.course.number))
        return w.payload(), w.bits

    def decode_down(self, data: bytes, options: int) -> Rest | End:
        """A message of the server to a client for which this many options are in."""
        r = Reader(data)
        message: Rest | End
        if not r.flag():
            message = Rest(r.mask(options))
            if not any(message.kept):
                raise Malformed("no option is left")
        else:
            message = End(r.fixed(width_of(self.course.number)) if r.flag() else None)
            if message.option is not None and message.option >= self.course.number:
                raise Malformed(f"option {message.option} of {self.course.number}")
        canonical(data, self.encode_down(message))
        return message
