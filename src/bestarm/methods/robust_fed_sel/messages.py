"""The messages of Robust Fed-SEL.

Uplink: a ``Report``, then ``Reply`` messages that carry their own count, or ``Stopped``; downlink: ``Onward``
and ``Final``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bestarm.methods.fed_sel.messages import Report, _read_mean, _read_vote, _write_mean
from bestarm.protocol.codec import Malformed, Reader, Writer
from bestarm.protocol.messages import Stopped, Wire, canonical
from bestarm.stats.radii import MAX_COUNT


@dataclass(frozen=True)
class Reply:
    """The reply in a round k ≥ 1: a sample count, with the bin of the mean or the mean itself."""

    count: int
    index: int | None = None
    mean: float | None = None


def encode_grouped(
    message: Report | Reply | Stopped, wire: Wire, group: int, bits: int = 0
) -> tuple[bytes, int]:
    """Encode a message: 0 and a reply, 10 and a report, or 11 for a stop. `bits` is the size of the bin."""
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
    """Decode a message. ``precision(count)`` is the number of bits of a bin; if None, means are exact."""
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
    return message, canonical(data, encode_grouped(message, wire, group, bits))
