"""What is on the wire in Fed-SEL: typed, bounded, canonical.

``encode`` gives (payload, bits); a decoder gives (message, bits) for what ``encode`` can give, to the
byte, and raises ``Malformed`` for everything else. Both ends share a ``Wire``: the facts that need not be
sent.

Uplink: a ``Report`` in round 0, then one ``Refinement`` a round, or ``Withdrawn``. Downlink: ``Onward``
(who is active), ``Bound`` (only with early stop) and ``Final``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
        w.fixed(self.arm, width_of(wire.arm_counts[group]))
        w.gamma(self.count)
        _write_mean(w, self.mean, self.count, wire.binary[group])
        if self.remaining is not None:
            w.mask(self.remaining)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Withdrawn:
    """Round 0 with early stop: every arm of the client is beaten by the bound that the server sent."""

    def encode(self, wire: Wire, group: int) -> tuple[bytes, int]:
        w = Writer()
        w.fixed(0b11, 2)
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
            raise Malformed("a withdrawal, which this run does not have")
        return Withdrawn()
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

    def encode(self, wire: Wire) -> tuple[bytes, int]:
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


def _read_downlink(r: Reader, wire: Wire) -> Onward | Bound | Final:
    if r.flag():
        group = arm = None
        if r.flag():
            group = r.fixed(width_of(len(wire.arm_counts)))
            if group >= len(wire.arm_counts):
                raise Malformed(f"group {group} of {len(wire.arm_counts)}")
            arm = r.fixed(width_of(wire.arm_counts[group]))
            if arm >= wire.arm_counts[group]:
                raise Malformed(f"arm {arm} of an arm-set of {wire.arm_counts[group]}")
        return Final(group, arm)
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
