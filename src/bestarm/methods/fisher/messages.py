"""The messages of Fed-Fisher.

Uplink: a ``LookReport`` per look, ``Withdrawn`` or ``LookStopped``; downlink: ``LookDown`` and ``Final``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import Final, Onward, Withdrawn, canonical, read_final

STEP_BITS = 7  # the bin relative to the last one; the largest code is an escape
ESCAPE = (1 << STEP_BITS) - 1
MIDDLE = ESCAPE // 2


@dataclass(frozen=True)
class LookWire:
    """What both ends know. `stoppable`: a client's pulls or data may run out."""

    arm_counts: tuple[int, ...]
    stoppable: bool = False


@dataclass(frozen=True)
class LookReport:
    """The report of a look: the top arm, whether it is the only one left, and the bin of its mean."""

    arm: int
    single: bool
    index: int
    bits: int

    def encode(self, wire: LookWire, group: int, last: LookReport | None) -> tuple[bytes, int]:
        """Encode the difference to `last`, the client's previous report."""
        w = Writer()
        if wire.stoppable:
            w.flag(False)
        w.flag(self.single)
        if last is not None:
            w.flag(self.arm == last.arm)
        if last is None or self.arm != last.arm:
            w.fixed(self.arm, width_of(wire.arm_counts[group]))
        step = None if last is None else self.index - last.moved_to(self.bits) + MIDDLE
        if step is not None and 0 <= step < ESCAPE:
            w.fixed(step, STEP_BITS)
        else:
            if last is not None:
                w.fixed(ESCAPE, STEP_BITS)
            w.fixed(self.index, self.bits)
        return w.payload(), w.bits

    def moved_to(self, bits: int) -> int:
        """This bin's centre, among 2^bits bins."""
        return ((2 * self.index + 1) << (bits - self.bits)) >> 1


def encode_withdrawn(wire: LookWire) -> tuple[bytes, int]:
    """Encode ``Withdrawn``: one bit, recognised by its length; two bits if clients may also stop."""
    w = Writer()
    w.fixed(0b10 if wire.stoppable else 1, 2 if wire.stoppable else 1)
    return w.payload(), w.bits


@dataclass(frozen=True)
class LookStopped:
    """The client can't make the pulls of this look."""

    def encode(self, wire: LookWire) -> tuple[bytes, int]:
        w = Writer()
        w.fixed(0b11, 2)
        return w.payload(), w.bits


def decode_look_report(
    data: bytes, wire: LookWire, group: int, last: LookReport | None, bits: int
) -> tuple[LookReport | Withdrawn | LookStopped, int]:
    """Decode a client's message at a look whose means are sent in 2^bits bins."""
    r = Reader(data)
    message: LookReport | Withdrawn | LookStopped
    # A report that follows another takes at least nine bits, so one byte can only be a withdrawal.
    if r.flag() if wire.stoppable else (last is not None and len(data) == 1):
        message = LookStopped() if wire.stoppable and r.flag() else Withdrawn()
        encoded = encode_withdrawn(wire) if isinstance(message, Withdrawn) else message.encode(wire)
        return message, canonical(data, encoded)
    single = r.flag()
    if last is not None and r.flag():
        arm = last.arm
    else:
        arm = r.fixed(width_of(wire.arm_counts[group]))
        if arm >= wire.arm_counts[group]:
            raise Malformed(f"arm {arm} of an arm-set of {wire.arm_counts[group]}")
    step = ESCAPE if last is None else r.fixed(STEP_BITS)
    index = r.fixed(bits) if step == ESCAPE or last is None else last.moved_to(bits) + step - MIDDLE
    if not 0 <= index < 1 << bits:
        raise Malformed(f"bin {index} of {1 << bits}")
    message = LookReport(arm, single, index, bits)
    return message, canonical(data, message.encode(wire, group, last))


@dataclass(frozen=True)
class LookDown:
    """The active groups (group 0 first), and the leader's bin at this look."""

    active: int
    groups: int
    index: int
    bits: int

    @staticmethod
    def of(active: NDArray[np.bool_], index: int, bits: int) -> LookDown:
        return LookDown(Onward.of(active).bits, len(active), index, bits)

    def is_active(self, group: int) -> bool:
        return bool(self.active >> (self.groups - 1 - group) & 1)

    def encode(self, wire: LookWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        w.fixed(self.active, self.groups)
        w.fixed(self.index, self.bits)
        return w.payload(), w.bits


def decode_look_down(data: bytes, wire: LookWire, bits: int) -> LookDown | Final:
    """Decode the server's message at a look whose means are sent in 2^bits bins."""
    r = Reader(data)
    message: LookDown | Final
    if r.flag():
        message = read_final(r, wire.arm_counts)
    else:
        groups = len(wire.arm_counts)
        message = LookDown(r.fixed(groups), groups, r.fixed(bits), bits)
    canonical(data, message.encode(wire))
    return message


def look_report_bits(
    wire: LookWire, index: ArrayLike, bits: int, changed: ArrayLike, last: ArrayLike | None, last_bits: int
) -> NDArray[np.int64]:
    """The sizes in bits of look reports, without encoding them; the last axis is the group."""
    arms = np.array([width_of(n) for n in wire.arm_counts])
    if last is None:
        return np.asarray(int(wire.stoppable) + 1 + arms + bits + 0 * np.asarray(index))
    moved = ((2 * np.asarray(last) + 1) << (bits - last_bits)) >> 1
    step = np.asarray(index) - moved + MIDDLE
    far = (step < 0) | (step >= ESCAPE)
    return np.asarray(int(wire.stoppable) + 2 + np.asarray(changed) * arms + STEP_BITS + far * bits)


def look_stopped_bits(wire: LookWire) -> int:
    """The size in bits of ``LookStopped``; 0 if clients can't run out of pulls."""
    return LookStopped().encode(wire)[1] if wire.stoppable else 0


def withdrawn_bits(wire: LookWire) -> int:
    """The size in bits of a withdrawal."""
    return encode_withdrawn(wire)[1]


def look_down_bits(wire: LookWire, bits: int) -> int:
    """The size in bits of ``LookDown`` at a look whose means are sent in 2^bits bins."""
    return LookDown(0, len(wire.arm_counts), 0, bits).encode(wire)[1]
