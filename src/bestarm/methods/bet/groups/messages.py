"""The messages of Fed-Bet for groups of several clients.

Uplink: a ``Part`` for each block, ``Stopped``, and an empty message that confirms a restart. The messages of
a client arrive in order, so what it sent before that confirmation is out of date. Downlink: ``Down``,
``Restart`` and ``Final``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm.methods.bet.downlink import RATIO_BITS
from bestarm.methods.bet.levels import LEAST_BITS, BetWire, Report, report_precision
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.decisions import Ints
from bestarm.protocol.messages import Final, Stopped, canonical, read_final
from bestarm.stats.sums import Sums

CONFIRMED = b""  # the answer to ``Restart``


@dataclass(frozen=True)
class Down:
    """The arms that are in, for all groups in order, and the champion of the next block.

    `ratio`: the pulls of each of the champion's clients per pull of a rival's client. `step`: the pulls of
    each rival, if rewards may run out.
    """

    inside: tuple[bool, ...]
    group: int
    arm: int
    ratio: int
    step: int | None = None

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        w.flag(False)
        w.mask(self.inside)
        w.fixed(self.group, width_of(len(wire.arm_counts)))
        w.fixed(self.arm, width_of(wire.arm_counts[self.group]))
        w.fixed(self.ratio - 1, RATIO_BITS)
        if self.step is not None:
            w.gamma(self.step)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Restart:
    """A client was dropped: the others begin again with fresh pulls."""

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        w.flag(True)
        return w.payload(), w.bits


def decode_down(data: bytes, wire: BetWire) -> Down | Restart | Final:
    """Decode a message of the server."""
    r = Reader(data)
    message: Down | Restart | Final
    if r.flag():
        message = read_final(r, wire.arm_counts)
    elif r.flag():
        message = Restart()
    else:
        inside, counts = r.mask(sum(wire.arm_counts)), wire.arm_counts
        group = r.fixed(width_of(len(counts)))
        if group >= len(counts):
            raise Malformed(f"group {group} of {len(counts)}")
        arm = r.fixed(width_of(counts[group]))
        if arm >= counts[group] or not inside[sum(counts[:group]) + arm]:
            raise Malformed(f"arm {arm} of group {group}, which is not in")
        ratio = r.fixed(RATIO_BITS) + 1
        message = Down(inside, group, arm, ratio, r.gamma(MOST_SUPPLY) if wire.finite else None)
    canonical(data, message.encode(wire))
    return message


@dataclass(frozen=True)
class Block:
    """A block as all participants know it: what each client has to pull, and how it reports the rewards.

    `n`: the pulls of each client before it, of an arm that was never the champion. `step`: the pulls of each
    rival in it. `last`: the message that began it; None before the first pulls.
    """

    wire: BetWire
    n: int
    step: int
    last: Down | None = None

    def pulls(self, group: int) -> Ints:
        """The pulls that each client of a group makes of each of its arms."""
        arms = self.wire.arm_counts[group]
        if self.last is None:
            return np.full(arms, self.step)
        before = sum(self.wire.arm_counts[:group])
        pulls = np.where(self.last.inside[before : before + arms], self.step, 0)
        if self.last.group == group:
            pulls[self.last.arm] *= self.last.ratio
        return pulls

    def is_champion(self, group: int, arm: int) -> bool:
        return self.last is not None and (self.last.group, self.last.arm) == (group, arm)


@dataclass(frozen=True)
class Part:
    """A client's rewards in a block: a report of each arm of its group that is in.

    The sums of a champion and of 0/1 rewards are those of the rewards x, all others those of 1 − x: in both
    cases the wealth of a bet can only decrease when they are rounded. `supply`: the fewest rewards that one
    of these arms still has, if they may run out.
    """

    reports: tuple[Report, ...]
    supply: int | None = None

    @staticmethod
    def of(fresh: Sums, block: Block, group: int, supply: Ints) -> Part:
        binary, reports = block.wire.binary[group], []
        for arm in np.flatnonzero(block.pulls(group)).tolist():
            count, total, squares, least, most = (float(part[arm]) for part in fresh.parts)
            if not binary and not block.is_champion(group, arm):
                total, squares, least = count - total, count - 2 * total + squares, 1.0 - most
            reports.append(Report.of(int(count), block.n, total, squares, least, binary))
        left = int(supply[block.pulls(group) > 0].min()) if block.wire.finite else None
        return Part(tuple(reports), left)


def sums_of(report: Report, mirrored: bool) -> tuple[float, float, float, float, float]:
    """The rewards of a report, in the order of ``Sums``. `mirrored`: it has the sums of 1 − x."""
    total, squares, least = report.sums
    if not mirrored:
        return report.count, total, squares, least, 1.0
    return report.count, report.count - total, report.count - 2 * total + squares, 0.0, 1.0 - least


def encode(message: Part | Stopped, wire: BetWire) -> tuple[bytes, int]:
    """Encode a client's message."""
    w = Writer()
    if wire.stoppable:
        w.flag(isinstance(message, Stopped))
    if isinstance(message, Part):
        for report in message.reports:
            report.write(w)
        if message.supply is not None:
            w.gamma(message.supply + 1)
    return w.payload(), w.bits


def decode(data: bytes, block: Block, group: int) -> tuple[Part | Stopped, int]:
    """Decode a client's message; the second value is its size in bits."""
    r, wire = Reader(data), block.wire
    message: Part | Stopped
    if wire.stoppable and r.flag():
        message = Stopped()
    else:
        counts = [n for n in block.pulls(group).tolist() if n]
        reports = tuple(Report.read(r, n, block.n, wire.binary[group]) for n in counts)
        message = Part(reports, r.gamma(MOST_SUPPLY + 1) - 1 if wire.finite else None)
    return message, canonical(data, encode(message, wire))


def part_bits(wire: BetWire, pulls: Ints, n: int) -> Ints:
    """The size in bits of each group's part of a block that begins after n pulls.

    The last axes of `pulls` are group and arm, as in the padded table of arms. Rewards do not run out.
    """
    exact = np.ceil(np.log2(pulls + 1.0)).astype(np.int64)
    size = np.where(np.array(wire.binary)[:, None], exact, 2 * report_precision(n) + LEAST_BITS)
    return np.asarray(np.where(pulls > 0, size, 0).sum(axis=-1))


def down_bits(wire: BetWire) -> Ints:
    """The size in bits of ``Down`` with a champion of each group."""
    inside = (True,) * sum(wire.arm_counts)
    return np.array([Down(inside, j, 0, 1).encode(wire)[1] for j in range(len(wire.arm_counts))])
