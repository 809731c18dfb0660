"""The messages of Fed-Bet among liars.

Uplink: a ``Part`` for each block, with its number, and ``Stopped``. Downlink: ``Down``, which publishes the
centres of the next block's bets, and ``Final``. Stakes follow from the centres, so everything that decides
about an arm is known to all clients before they pull.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm.methods.bet.downlink import RATIO_BITS
from bestarm.methods.bet.groups import messages as groups
from bestarm.methods.bet.groups.messages import Block
from bestarm.methods.bet.levels import BetWire, Report
from bestarm.methods.bet.robust.decisions import CENTRE_BITS
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.decisions import Ints
from bestarm.protocol.messages import Final, Stopped, canonical, read_final
from bestarm.stats.sums import Sums

NO_SUPPLY = np.zeros(0, dtype=np.int64)  # how many rewards are left is not told
SLACK = 2  # levels: rounding, and the last bits of sums, may make honest numbers miss each other by less


@dataclass(frozen=True)
class Down(groups.Down):
    """The arms that are in, the champion of the next block, and the centre of the bet against each rival.

    `centres`: levels of 2⁻¹², for the arms that are in besides the champion, in order.
    """

    centres: tuple[int, ...] = ()

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        w.mask(self.inside)
        w.fixed(self.group, width_of(len(wire.arm_counts)))
        w.fixed(self.arm, width_of(wire.arm_counts[self.group]))
        w.fixed(self.ratio - 1, RATIO_BITS)
        for centre in self.centres:
            w.fixed(centre, CENTRE_BITS)
        return w.payload(), w.bits


def decode_down(data: bytes, wire: BetWire) -> Down | Final:
    """Decode a message of the server."""
    r = Reader(data)
    message: Down | Final
    if r.flag():
        message = read_final(r, wire.arm_counts)
    else:
        inside, counts = r.mask(sum(wire.arm_counts)), wire.arm_counts
        group = r.fixed(width_of(len(counts)))
        if group >= len(counts):
            raise Malformed(f"group {group} of {len(counts)}")
        arm = r.fixed(width_of(counts[group]))
        if arm >= counts[group] or not inside[sum(counts[:group]) + arm]:
            raise Malformed(f"arm {arm} of group {group}, which is not in")
        ratio = r.fixed(RATIO_BITS) + 1
        centres = tuple(r.fixed(CENTRE_BITS) for _ in range(sum(inside) - 1))
        message = Down(inside, group, arm, ratio, centres=centres)
    canonical(data, message.encode(wire))
    return message


@dataclass(frozen=True)
class Part:
    """A client's rewards in a block: a report of each arm of its group that was in when it was announced.

    The sums of a champion and of 0/1 rewards are those of the rewards x, all others those of 1 − x.
    """

    block: int
    reports: tuple[Report, ...]

    @staticmethod
    def of(number: int, fresh: Sums, block: Block, group: int) -> Part:
        return Part(number, groups.Part.of(fresh, block, group, NO_SUPPLY).reports)


def encode(message: Part | Stopped, wire: BetWire) -> tuple[bytes, int]:
    """Encode a client's message."""
    w = Writer()
    if wire.stoppable:
        w.flag(isinstance(message, Stopped))
    if isinstance(message, Part):
        w.gamma(message.block + 1)
        for report in message.reports:
            report.write(w)
    return w.payload(), w.bits


def decode(
    data: bytes, wire: BetWire, group: int, number: int, block: Block | None
) -> tuple[Part | Stopped, int]:
    """Decode a client's message, if the part of this block is due, or None if that has not begun."""
    r = Reader(data)
    if wire.stoppable and r.flag():
        return Stopped(), canonical(data, encode(Stopped(), wire))
    told = r.gamma(number + 2) - 1
    if told != number:
        raise Malformed(f"a part of block {told}, when that of block {number} was due")
    if block is None:
        raise Malformed(f"a part of block {number}, which has not begun")
    counts = [n for n in block.pulls(group).tolist() if n]
    reports = tuple(Report.read(r, n, block.n, wire.binary[group]) for n in counts)
    for report in reports:
        if not feasible(report):
            raise Malformed("sums that no rewards have")
    message = Part(number, reports)
    return message, canonical(data, encode(message, wire))


def feasible(report: Report) -> bool:
    """Whether some rewards in [0, 1] have these sums, as far as rounding allows to say.

    Σx² lies between (Σx)²/n and Σx, and Σx is at least n times the smallest reward.

    >>> [feasible(Report(10, 14, levels)) for levels in ((8192, 4096, 0), (8192, 8192, 128))]
    [True, True]
    >>> [feasible(Report(10, 14, (8192, *others))) for others in ((12000, 0), (2000, 0), (8192, 200))]
    [False, False, False]
    """
    if len(report.levels) == 1:
        return True
    mean, second, least = report.levels
    one = 1 << report.bits
    small, large = (second + 1 + SLACK) * one >= mean * mean, second <= mean + SLACK
    return small and large and least << report.bits <= (mean + SLACK) << 8


def part_bits(wire: BetWire, pulls: Ints, n: int, number: int) -> Ints:
    """The size in bits of each group's part of a block; the last axes of `pulls` are group and arm."""
    head = encode(Part(number, ()), wire)[1]
    return np.where(pulls.any(axis=-1), head + groups.part_bits(wire, pulls, n), 0)


def down_bits(wire: BetWire) -> Ints:
    """The size in bits of ``Down`` with a champion of each group, without the centres."""
    inside = (True,) * sum(wire.arm_counts)
    return np.array([Down(inside, j, 0, 1).encode(wire)[1] for j in range(len(wire.arm_counts))])
