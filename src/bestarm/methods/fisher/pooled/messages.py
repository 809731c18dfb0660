"""The messages of pooled Fed-Fisher.

Uplink: ``Sums`` or ``Stopped``; downlink: ``PoolDown`` and ``Final``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.methods.fisher.messages import LookWire
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import Final, Stopped, canonical, read_final


@dataclass(frozen=True)
class Sums:
    """The sums of the requested arms at a look; looks are counted from the first one that is sent."""

    look: int
    sums: tuple[int, ...]


def encode_sums(message: Sums | Stopped, wire: LookWire, n: int = 0) -> tuple[bytes, int]:
    """Encode sums of n coins each, or a stop."""
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
    """Decode a client's message; ``asked(look)`` returns (arms, n) for a look up to `last`."""
    r = Reader(data)
    if wire.stoppable and r.flag():
        return Stopped(), canonical(data, encode_sums(Stopped(), wire))
    look = r.gamma(last + 2) - 1
    if look > last:
        raise Malformed(f"look {look}, which has not begun")
    arms, n = asked(look)
    sums = tuple(r.fixed(width_of(n + 1)) for _ in range(arms))
    if any(total > n for total in sums):
        raise Malformed(f"a sum of {max(sums)} from {n} coins")
    message = Sums(look, sums)
    return message, canonical(data, encode_sums(message, wire, n))


@dataclass(frozen=True)
class PoolDown:
    """Which arms are still in the race, for all groups in order."""

    active: tuple[bool, ...]

    def encode(self, wire: LookWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        w.mask(self.active)
        return w.payload(), w.bits


def decode_pool_down(data: bytes, wire: LookWire) -> PoolDown | Final:
    """Decode the server's message."""
    r = Reader(data)
    message = read_final(r, wire.arm_counts) if r.flag() else PoolDown(r.mask(sum(wire.arm_counts)))
    canonical(data, message.encode(wire))
    return message


def sums_bits(wire: LookWire, look: int, arms: ArrayLike, n: int) -> NDArray[np.int64]:
    """The sizes in bits of ``Sums`` with these numbers of arms and n coins each, at a look."""
    none, one = (encode_sums(Sums(look, sums), wire, n)[1] for sums in ((), (0,)))
    return np.asarray(none + (one - none) * np.asarray(arms), dtype=np.int64)


def pool_down_bits(wire: LookWire) -> int:
    """The size in bits of ``PoolDown``."""
    return PoolDown((True,) * sum(wire.arm_counts)).encode(wire)[1]
