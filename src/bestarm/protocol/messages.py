"""What is on the wire: typed, bounded, canonical.

``encode`` gives (payload, bits); a decoder gives (message, bits) for what ``encode`` can give, to the
byte, and raises ``Malformed`` for everything else. Both ends share a ``Wire``: the facts that need not be
sent.

Fed-SEL, uplink: a ``Report`` in round 0, then one ``Refinement`` a round, or ``Withdrawn``; downlink:
``Onward`` (who is active), ``Bound`` (only with early stop) and ``Final``. Robust Fed-SEL, uplink: a
``Report``, then ``Reply`` messages that carry their own count, or ``Stopped``; downlink: ``Onward`` and
``Final``. Fed-Fisher, uplink: a ``LookReport`` a look, ``Withdrawn`` or ``LookStopped``; downlink:
``LookDown`` and ``Final``. Pooled Fed-Fisher, uplink: ``Sums`` or ``Stopped``; downlink: ``PoolDown`` and
``Final``. No message names its group: that follows from who sent it. Peers send each other a ``Claim`` about
an arm-set, and a ``Conclusion``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.confidence import MAX_COUNT
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of


@dataclass(frozen=True)
class Wire:
    """What both ends know: arms of each group, which groups pay 0/1, and what may happen in this run.

    `stoppable`: clients may run out of pulls or be beaten in Phase I, so uplink messages say whether they
    did. In the paper's mode they can't, and the flag is not sent.
    """

    arm_counts: tuple[int, ...]
    binary: tuple[bool, ...]
    stoppable: bool = False
    early_stop: bool = False


@dataclass(frozen=True)
class Report:
    """Round 0: the arm that a client found, its sample count t̄ and its mean (as a sum for 0/1 rewards).

    `remaining` is None after a finished Phase I; else it marks the arms that were still in the race.
    """

    arm: int
    count: int
    mean: float
    remaining: tuple[bool, ...] | None = None

    def encode(self, wire: Wire, group: int) -> tuple[bytes, int]:
        w = Writer()
        if wire.stoppable:
            w.fixed(0 if self.remaining is None else 0b10, 1 if self.remaining is None else 2)
        self.write(w, wire, group)
        return w.payload(), w.bits

    def write(self, w: Writer, wire: Wire, group: int) -> None:
        w.fixed(self.arm, width_of(wire.arm_counts[group]))
        w.gamma(self.count)
        _write_mean(w, self.mean, self.count, wire.binary[group])
        if self.remaining is not None:
            w.mask(self.remaining)


@dataclass(frozen=True)
class Withdrawn:
    """Every arm of the client is beaten by what the server sent (Fed-SEL: in round 0, with early stop)."""

    def encode(self, wire: Wire, group: int) -> tuple[bytes, int]:
        w = Writer()
        w.fixed(0b11, 2)
        return w.payload(), w.bits

    def encode_in_look(self, wire: LookWire) -> tuple[bytes, int]:
        """Fed-Fisher: one bit, told from a report by its length; two where a client may also stop."""
        w = Writer()
        w.fixed(0b10 if wire.stoppable else 1, 2 if wire.stoppable else 1)
        return w.payload(), w.bits


def _canonical(data: bytes, encoded: tuple[bytes, int]) -> int:
    """The bits that count, if these bytes are the one encoding of what was read from them."""
    if encoded[0] != data:
        raise Malformed("the message is too long, or its padding is not zeros")
    return encoded[1]


def decode_report(data: bytes, wire: Wire, group: int, least: int) -> tuple[Report | Withdrawn, int]:
    """A round-0 message. A finished Phase I takes at least `least` samples, whatever the rewards."""
    message = _read_report(Reader(data), wire, group, least)
    return message, _canonical(data, message.encode(wire, group))


def _read_report(r: Reader, wire: Wire, group: int, least: int) -> Report | Withdrawn:
    unfinished = wire.stoppable and r.flag()
    if unfinished and r.flag():
        if not wire.early_stop:
            raise Malformed("a withdrawal, which only a run with early_stop allows")
        return Withdrawn()
    return _read_vote(r, wire, group, least, unfinished)


def _read_vote(r: Reader, wire: Wire, group: int, least: int, unfinished: bool = False) -> Report:
    arms = wire.arm_counts[group]
    arm = r.fixed(width_of(arms))
    if arm >= arms:
        raise Malformed(f"arm {arm} of an arm-set of {arms}")
    count = r.gamma(MAX_COUNT)
    if not unfinished and count < least:
        raise Malformed(f"{count} samples, where Phase I takes at least {least}")
    mean = _read_mean(r, count, wire.binary[group])
    remaining = r.mask(arms) if unfinished else None
    if remaining is not None and not remaining[arm]:
        raise Malformed("the leading arm is not among the remaining ones")
    return Report(arm, count, mean, remaining)


@dataclass(frozen=True)
class Refinement:
    """Round k ≥ 1: the bin of the empirical mean (B bits), or the mean itself without the quantiser.

    Both are None if the client can't make the pulls of this round: its last interval stands.
    """

    index: int | None = None
    mean: float | None = None

    def encode(self, wire: Wire, group: int, count: int, bits: int) -> tuple[bytes, int]:
        w = Writer()
        if wire.stoppable:
            w.flag(self.index is None and self.mean is None)
        if self.index is not None:
            w.fixed(self.index, bits)
        elif self.mean is not None:
            _write_mean(w, self.mean, count, wire.binary[group])
        return w.payload(), w.bits


def decode_refinement(
    data: bytes, wire: Wire, group: int, count: int, bits: int, quantiser: bool
) -> tuple[Refinement, int]:
    """A message of a round k ≥ 1, in which the client's sample count is `count`."""
    r = Reader(data)
    if wire.stoppable and r.flag():
        message = Refinement()
    elif quantiser:
        message = Refinement(index=r.fixed(bits))
    else:
        message = Refinement(mean=_read_mean(r, count, wire.binary[group]))
    return message, _canonical(data, message.encode(wire, group, count, bits))


def _write_mean(w: Writer, mean: float, count: int, binary: bool) -> None:
    """Exactly: the integer sum in ⌈log₂(count+1)⌉ bits for 0/1 rewards, else a float64."""
    if binary:
        w.fixed(round(mean * count), width_of(count + 1))
    else:
        w.real(mean)


def _read_mean(r: Reader, count: int, binary: bool) -> float:
    if binary:
        total = r.fixed(width_of(count + 1))
        if total > count:
            raise Malformed(f"a sum of {total} from {count} rewards")
        return total / count
    mean = r.real()
    if not (math.isfinite(mean) and 0.0 <= mean <= 1.0) or math.copysign(1.0, mean) < 0:
        raise Malformed(f"a mean of {mean}")
    return mean


@dataclass(frozen=True)
class Reply:
    """Robust Fed-SEL, rounds k ≥ 1: a sample count with the bin of the mean, or the mean itself."""

    count: int
    index: int | None = None
    mean: float | None = None


@dataclass(frozen=True)
class Stopped:
    """The client makes no more pulls."""


def encode_grouped(
    message: Report | Reply | Stopped, wire: Wire, group: int, bits: int = 0
) -> tuple[bytes, int]:
    """A message of Robust Fed-SEL: 0 and a reply, 10 and a report, or 11. `bits` are those of the bin."""
    w = Writer()
    match message:
        case Reply(count, index, mean):
            w.flag(False)
            w.gamma(count)
            if index is not None:
                w.fixed(index, bits)
            elif mean is not None:
                _write_mean(w, mean, count, wire.binary[group])
        case Report():
            w.fixed(0b10, 2)
            message.write(w, wire, group)
        case Stopped():
            w.fixed(0b11, 2)
    return w.payload(), w.bits


def decode_grouped(
    data: bytes, wire: Wire, group: int, least: int, precision: Callable[[int], int] | None
) -> tuple[Report | Reply | Stopped, int]:
    """A message of Robust Fed-SEL. `precision` gives the bits of a bin for a count; None: means are exact."""
    r = Reader(data)
    message: Report | Reply | Stopped
    bits = 0
    if not r.flag():
        count = r.gamma(MAX_COUNT)
        if precision is not None:
            bits = precision(count)
            message = Reply(count, index=r.fixed(bits))
        else:
            message = Reply(count, mean=_read_mean(r, count, wire.binary[group]))
    elif not r.flag():
        message = _read_vote(r, wire, group, least)
    elif wire.stoppable:
        message = Stopped()
    else:
        raise Malformed("it says that it stops, which only a run with a budget allows")
    return message, _canonical(data, encode_grouped(message, wire, group, bits))


@dataclass(frozen=True)
class Onward:
    """The groups that are still active: one bit each, group 0 first (erratum 21: bits, no threshold)."""

    bits: int
    groups: int

    @staticmethod
    def of(active: Sequence[bool] | NDArray[np.bool_]) -> Onward:
        return Onward(int("".join("1" if a else "0" for a in active), 2), len(active))

    def is_active(self, group: int) -> bool:
        return bool(self.bits >> (self.groups - 1 - group) & 1)

    def encode(self, wire: Wire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        if wire.early_stop:
            w.flag(False)
        w.fixed(self.bits, self.groups)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Bound:
    """The best lower bound so far, for clients that are still in Phase I."""

    value: float

    def encode(self, wire: Wire) -> tuple[bytes, int]:
        w = Writer()
        w.fixed(0b01, 2)
        w.real(self.value)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Final:
    """The end, with the winner's group and arm; both None if undecided."""

    group: int | None
    arm: int | None

    def encode(self, wire: Wire | LookWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(True)
        w.flag(self.group is not None)
        if self.group is not None and self.arm is not None:
            w.fixed(self.group, width_of(len(wire.arm_counts)))
            w.fixed(self.arm, width_of(wire.arm_counts[self.group]))
        return w.payload(), w.bits


def decode_downlink(data: bytes, wire: Wire) -> Onward | Bound | Final:
    """Any message of the server's."""
    message = _read_downlink(Reader(data), wire)
    _canonical(data, message.encode(wire))
    return message


def _read_final(r: Reader, arm_counts: tuple[int, ...]) -> Final:
    group = arm = None
    if r.flag():
        group = r.fixed(width_of(len(arm_counts)))
        if group >= len(arm_counts):
            raise Malformed(f"group {group} of {len(arm_counts)}")
        arm = r.fixed(width_of(arm_counts[group]))
        if arm >= arm_counts[group]:
            raise Malformed(f"arm {arm} of an arm-set of {arm_counts[group]}")
    return Final(group, arm)


def _read_downlink(r: Reader, wire: Wire) -> Onward | Bound | Final:
    if r.flag():
        return _read_final(r, wire.arm_counts)
    if wire.early_stop and r.flag():
        value = r.real()
        if not math.isfinite(value):
            raise Malformed(f"a bound of {value}")
        return Bound(value)
    return Onward(r.fixed(len(wire.arm_counts)), len(wire.arm_counts))


def _bit_length(n: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(np.frexp(np.asarray(n, dtype=np.float64))[1], dtype=np.int64)


def report_bits(wire: Wire, count: ArrayLike, unfinished: ArrayLike) -> NDArray[np.int64]:
    """Bits of round-0 reports, without encoding them; the last axis runs over groups."""
    arms = np.array([width_of(n) for n in wire.arm_counts])
    mean = np.where(np.asarray(wire.binary), _bit_length(count), 64)
    bits = arms + 2 * _bit_length(count) - 1 + mean + int(wire.stoppable)
    return np.asarray(bits + np.asarray(unfinished) * (1 + np.asarray(wire.arm_counts)))


def refinement_bits(wire: Wire, count: ArrayLike, precision: ArrayLike, quantiser: bool) -> NDArray[np.int64]:
    """Bits of refinements, without encoding them; the last axis runs over groups."""
    mean = np.where(np.asarray(wire.binary), _bit_length(count), 64)
    return np.asarray((np.asarray(precision) if quantiser else mean) + int(wire.stoppable), dtype=np.int64)


@dataclass(frozen=True)
class LookWire:
    """What both ends of Fed-Fisher know. `stoppable`: a client's pulls or data may run out."""

    arm_counts: tuple[int, ...]
    stoppable: bool = False


STEP_BITS = 7  # a bin relative to the last one; the largest code is the escape
ESCAPE = (1 << STEP_BITS) - 1
MIDDLE = ESCAPE // 2


@dataclass(frozen=True)
class LookReport:
    """A look: the top arm, whether it is the client's only one, and the bin of its mean (of 2^bits)."""

    arm: int
    single: bool
    index: int
    bits: int

    def encode(self, wire: LookWire, group: int, last: LookReport | None) -> tuple[bytes, int]:
        """`last` is the client's previous report: what has not changed, or little, is not sent again."""
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
    """A client's message at a look whose means travel in 2^bits bins."""
    r = Reader(data)
    message: LookReport | Withdrawn | LookStopped
    # A report that follows another takes at least nine bits, so one byte can only be a withdrawal.
    if r.flag() if wire.stoppable else (last is not None and len(data) == 1):
        message = LookStopped() if wire.stoppable and r.flag() else Withdrawn()
        encoded = message.encode_in_look(wire) if isinstance(message, Withdrawn) else message.encode(wire)
        return message, _canonical(data, encoded)
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
    return message, _canonical(data, message.encode(wire, group, last))


@dataclass(frozen=True)
class LookDown:
    """Who is active (group 0 first), and the leader's bin at this look."""

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
    """The server's message at a look whose means travel in 2^bits bins."""
    r = Reader(data)
    message: LookDown | Final
    if r.flag():
        message = _read_final(r, wire.arm_counts)
    else:
        groups = len(wire.arm_counts)
        message = LookDown(r.fixed(groups), groups, r.fixed(bits), bits)
    _canonical(data, message.encode(wire))
    return message


def look_report_bits(
    wire: LookWire, index: ArrayLike, bits: int, changed: ArrayLike, last: ArrayLike | None, last_bits: int
) -> NDArray[np.int64]:
    """Bits of look reports, without encoding them; the last axis runs over groups."""
    arms = np.array([width_of(n) for n in wire.arm_counts])
    if last is None:
        return np.asarray(int(wire.stoppable) + 1 + arms + bits + 0 * np.asarray(index))
    moved = ((2 * np.asarray(last) + 1) << (bits - last_bits)) >> 1
    step = np.asarray(index) - moved + MIDDLE
    far = (step < 0) | (step >= ESCAPE)
    return np.asarray(int(wire.stoppable) + 2 + np.asarray(changed) * arms + STEP_BITS + far * bits)


@dataclass(frozen=True)
class Sums:
    """Pooled Fed-Fisher: the sums of the arms that were asked for at a look (counted from the first)."""

    look: int
    sums: tuple[int, ...]


def encode_sums(message: Sums | Stopped, wire: LookWire, n: int = 0) -> tuple[bytes, int]:
    """Sums of n coins each, or a stop."""
    w = Writer()
    if wire.stoppable:
        w.flag(isinstance(message, Stopped))
    if isinstance(message, Sums):
        w.gamma(message.look + 1)
        for total in message.sums:
            w.fixed(total, width_of(n + 1))
    return w.payload(), w.bits


def decode_sums(
    data: bytes, wire: LookWire, asked: Callable[[int], tuple[int, int]], last: int
) -> tuple[Sums | Stopped, int]:
    """A message of pooled Fed-Fisher; `asked` gives (arms, n) of a look up to `last`."""
    r = Reader(data)
    if wire.stoppable and r.flag():
        return Stopped(), _canonical(data, encode_sums(Stopped(), wire))
    look = r.gamma(last + 2) - 1
    if look > last:
        raise Malformed(f"look {look}, which has not begun")
    arms, n = asked(look)
    sums = tuple(r.fixed(width_of(n + 1)) for _ in range(arms))
    if any(total > n for total in sums):
        raise Malformed(f"a sum of {max(sums)} from {n} coins")
    message = Sums(look, sums)
    return message, _canonical(data, encode_sums(message, wire, n))


@dataclass(frozen=True)
class PoolDown:
    """Pooled Fed-Fisher: which arms are still in the race, of all groups in order."""

    active: tuple[bool, ...]

    def encode(self, wire: LookWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        w.mask(self.active)
        return w.payload(), w.bits


def decode_pool_down(data: bytes, wire: LookWire) -> PoolDown | Final:
    """The server's message in pooled Fed-Fisher."""
    r = Reader(data)
    message = _read_final(r, wire.arm_counts) if r.flag() else PoolDown(r.mask(sum(wire.arm_counts)))
    _canonical(data, message.encode(wire))
    return message


@dataclass(frozen=True)
class Claim:
    """A peer's word on an arm-set: its best arm, with the mean, or with bounds on the mean."""

    group: int
    arm: int
    mean: float = 0.0
    lower: float = 0.0
    upper: float = 0.0

    def encode(self, arm_counts: tuple[int, ...], exchange: str) -> tuple[bytes, int]:
        w = Writer()
        if exchange == "intervals":
            w.flag(False)
        w.fixed(self.group, width_of(len(arm_counts)))
        w.fixed(self.arm, width_of(arm_counts[self.group]))
        for value in (self.mean,) if exchange == "means" else (self.lower, self.upper):
            w.real(value)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Conclusion:
    """A peer's verdict (only where intervals are exchanged)."""

    group: int
    arm: int

    def encode(self, arm_counts: tuple[int, ...], exchange: str) -> tuple[bytes, int]:
        w = Writer()
        w.flag(True)
        w.fixed(self.group, width_of(len(arm_counts)))
        w.fixed(self.arm, width_of(arm_counts[self.group]))
        return w.payload(), w.bits


def decode_claim(data: bytes, arm_counts: tuple[int, ...], exchange: str) -> Claim | Conclusion:
    """A message between peers."""
    r = Reader(data)
    final = exchange == "intervals" and r.flag()
    group = r.fixed(width_of(len(arm_counts)))
    if group >= len(arm_counts):
        raise Malformed(f"arm-set {group} of {len(arm_counts)}")
    arm = r.fixed(width_of(arm_counts[group]))
    if arm >= arm_counts[group]:
        raise Malformed(f"arm {arm} of an arm-set of {arm_counts[group]}")
    message: Claim | Conclusion
    if final:
        message = Conclusion(group, arm)
    elif exchange == "means":
        message = Claim(group, arm, mean=_bounded(r.real(), 0.0, 1.0))
    else:
        # Radii are at most 1/2 when Phase I ends (c > 2), so honest bounds lie in [−1, 2].
        message = Claim(group, arm, lower=_bounded(r.real(), -1.0, 2.0), upper=_bounded(r.real(), -1.0, 2.0))
    _canonical(data, message.encode(arm_counts, exchange))
    return message


def _bounded(value: float, low: float, high: float) -> float:
    if not (math.isfinite(value) and low <= value <= high) or (value == 0 and math.copysign(1.0, value) < 0):
        raise Malformed(f"a number of {value}")
    return value
