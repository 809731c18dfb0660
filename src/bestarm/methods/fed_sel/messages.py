"""The messages of Fed-SEL.

Uplink: a ``Report`` in round 0, then one ``Refinement`` per round, or ``Withdrawn``; downlink: ``Onward``
(the active groups), ``Bound`` (only with early stop) and ``Final``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import Final, Onward, Wire, Withdrawn, canonical, read_final
from bestarm.stats.radii import MAX_COUNT


@dataclass(frozen=True)
class Report:
    """Round 0: the arm that a client found, its sample count t̄ and its mean (as a sum for 0/1 rewards).

    `remaining` is None if Phase I is finished; otherwise it marks the arms that are still active.
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


def decode_report(data: bytes, wire: Wire, group: int, least: int) -> tuple[Report | Withdrawn, int]:
    """Decode a round-0 message. A finished Phase I has at least `least` samples, whatever the rewards."""
    message = _read_report(Reader(data), wire, group, least)
    return message, canonical(data, message.encode(wire, group))


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

    Both are None if the client can't make the pulls of this round: its last interval remains valid.
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
    """Decode a message of a round k ≥ 1, in which the client's sample count is `count`."""
    r = Reader(data)
    if wire.stoppable and r.flag():
        message = Refinement()
    elif quantiser:
        message = Refinement(index=r.fixed(bits))
    else:
        message = Refinement(mean=_read_mean(r, count, wire.binary[group]))
    return message, canonical(data, message.encode(wire, group, count, bits))


def _write_mean(w: Writer, mean: float, count: int, binary: bool) -> None:
    """Write a mean exactly: as the integer sum in ⌈log₂(count+1)⌉ bits for 0/1 rewards, else as a float64."""
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
class Bound:
    """The best lower bound so far, for clients that are still in Phase I."""

    value: float

    def encode(self, wire: Wire) -> tuple[bytes, int]:
        w = Writer()
        w.fixed(0b01, 2)
        w.real(self.value)
        return w.payload(), w.bits


def decode_downlink(data: bytes, wire: Wire) -> Onward | Bound | Final:
    """Decode a message from the server."""
    message = _read_downlink(Reader(data), wire)
    canonical(data, message.encode(wire))
    return message


def _read_downlink(r: Reader, wire: Wire) -> Onward | Bound | Final:
    if r.flag():
        return read_final(r, wire.arm_counts)
    if wire.early_stop and r.flag():
        value = r.real()
        if not math.isfinite(value):
            raise Malformed(f"a bound of {value}")
        return Bound(value)
    return Onward(r.fixed(len(wire.arm_counts)), len(wire.arm_counts))


def _bit_length(n: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(np.frexp(np.asarray(n, dtype=np.float64))[1], dtype=np.int64)


def report_bits(wire: Wire, count: ArrayLike, unfinished: ArrayLike) -> NDArray[np.int64]:
    """The sizes in bits of round-0 reports, without encoding them; the last axis is the group."""
    arms = np.array([width_of(n) for n in wire.arm_counts])
    mean = np.where(np.asarray(wire.binary), _bit_length(count), 64)
    bits = arms + 2 * _bit_length(count) - 1 + mean + int(wire.stoppable)
    return np.asarray(bits + np.asarray(unfinished) * (1 + np.asarray(wire.arm_counts)))


def refinement_bits(wire: Wire, count: ArrayLike, precision: ArrayLike, quantiser: bool) -> NDArray[np.int64]:
    """The sizes in bits of refinements, without encoding them; the last axis is the group."""
    mean = np.where(np.asarray(wire.binary), _bit_length(count), 64)
    return np.asarray((np.asarray(precision) if quantiser else mean) + int(wire.stoppable), dtype=np.int64)


def exhausted_bits(wire: Wire) -> int:
    """The size in bits of a refinement from a client that can't make the pulls of a round.

    If clients can't run out of pulls, there is no such message, and the size is 0.
    """
    return Refinement().encode(wire, 0, 1, 1)[1] if wire.stoppable else 0
