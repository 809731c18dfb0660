"""The numbers in Fed-Bet's messages: how finely they are rounded, and in which direction.

A standing only steers bets. A report enters the wealths, so its sum is rounded down, its squares up and its
smallest reward down (Lemma 2). Rounding becomes finer as pulls grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.decisions import Floats, Ints
from bestarm.stats import betting
from bestarm.stats.sums import Sums

LEAST_BITS = 8
SUMMARY_BITS = 24


def half_log2(n: int) -> int:
    """⌈½·log₂ n⌉: the bits of a mean at the resolution of its standard error.

    >>> [half_log2(n) for n in (1, 16, 17, 10**6)]
    [0, 2, 3, 10]
    """
    return ((n - 1).bit_length() + 1) // 2


def standing_precision(n: int, binary: bool) -> int:
    """The bits of a mean in a standing after n pulls. Other rewards may vary much less than coins."""
    return min(half_log2(n) + 3, width_of(n + 1)) if binary else half_log2(n) + 9


def report_precision(n: int) -> int:
    """The bits of a mean in the report of a block that begins after n pulls, unless rewards are 0/1."""
    return max(14, half_log2(n) + 9)


@dataclass(frozen=True)
class BetWire:
    """What both ends know: the arms of each group, and which groups have 0/1 rewards.

    `stoppable`: pulls or data may run out. `covers`: ε > 0, so arms may rest. `finite`: clients tell how many
    rewards their arms still have, and the server cuts blocks to what there is. `fills`: a block may be closed
    without a client, so messages say which block they belong to.
    """

    arm_counts: tuple[int, ...]
    binary: tuple[bool, ...]
    stoppable: bool = False
    covers: bool = False
    finite: bool = False
    fills: bool = False

    @property
    def tells_count(self) -> bool:
        """Whether an arm may have fewer rewards than the blocks that it played."""
        return self.fills or self.finite


def floor_level(share: ArrayLike, bits: int) -> Ints:
    """A share of 1 as a level, rounded down; 1 itself becomes the largest level."""
    return np.minimum(np.floor(np.asarray(share) * 2.0**bits), 2.0**bits - 1).astype(np.int64)


def ceil_level(share: ArrayLike, bits: int) -> Ints:
    """A share of 1 as a level, rounded up, less one: what is read back is never smaller, and never 0."""
    return (np.clip(np.ceil(np.asarray(share) * 2.0**bits), 1.0, 2.0**bits) - 1).astype(np.int64)


def floored(level: ArrayLike, bits: int) -> Floats:
    """The share that ``floor_level`` stands for."""
    return np.asarray(np.ldexp(np.asarray(level, dtype=np.float64), -bits))


def ceiled(level: ArrayLike, bits: int) -> Floats:
    """The share that ``ceil_level`` stands for."""
    return floored(np.asarray(level) + 1, bits)


@dataclass(frozen=True)
class Standing:
    """An arm of the sender, its mean rounded down and, unless rewards are 0/1, its second moment rounded up.

    Both are levels of 2^-bits.
    """

    arm: int
    bits: int
    mean: int
    second: int | None

    @staticmethod
    def of(arm: int, mean: float, second: float, n: int, binary: bool) -> Standing:
        bits = standing_precision(n, binary)
        rounded = None if binary else int(ceil_level(second, bits))
        return Standing(arm, bits, int(floor_level(mean, bits)), rounded)

    @property
    def moments(self) -> tuple[float, float]:
        """The mean and the second moment that it stands for; for 0/1 rewards they are the same."""
        mean = math.ldexp(self.mean, -self.bits)
        return mean, mean if self.second is None else math.ldexp(self.second + 1, -self.bits)

    def write(self, w: Writer, wire: BetWire, group: int) -> None:
        w.fixed(self.arm, width_of(wire.arm_counts[group]))
        w.fixed(self.mean, self.bits)
        if self.second is not None:
            w.fixed(self.second, self.bits)

    @staticmethod
    def read(r: Reader, wire: BetWire, group: int, n: int) -> Standing:
        arm, bits = r.fixed(width_of(wire.arm_counts[group])), standing_precision(n, wire.binary[group])
        if arm >= wire.arm_counts[group]:
            raise Malformed(f"arm {arm} of an arm-set of {wire.arm_counts[group]}")
        return Standing(arm, bits, r.fixed(bits), None if wire.binary[group] else r.fixed(bits))


@dataclass(frozen=True)
class Report:
    """The champion's rewards in a block of `count` pulls: the exact sum of 0/1 rewards, else three levels."""

    count: int
    bits: int
    levels: tuple[int, ...]

    @staticmethod
    def of(count: int, n: int, total: float, squares: float, least: float, binary: bool) -> Report:
        bits = report_precision(n)
        if binary:
            return Report(count, bits, (int(total),))
        pulls = max(count, 1)
        mean, second = floor_level(total / pulls, bits), ceil_level(squares / pulls, bits)
        return Report(count, bits, (int(mean), int(second), int(floor_level(least, LEAST_BITS))))

    @property
    def sums(self) -> tuple[float, float, float]:
        """The sum rounded down, the sum of squares rounded up, and the smallest reward rounded down."""
        if len(self.levels) == 1:
            return float(self.levels[0]), float(self.levels[0]), 0.0
        mean, second, least = self.levels
        total, squares = floored(mean, self.bits), ceiled(second, self.bits)
        return self.count * float(total), self.count * float(squares), float(floored(least, LEAST_BITS))

    def write(self, w: Writer) -> None:
        widths = _report_widths(self.count, self.bits, len(self.levels) == 1)
        for level, width in zip(self.levels, widths, strict=True):
            w.fixed(level, width)

    @staticmethod
    def filled(count: int, n: int, binary: bool) -> Report:
        """The report of a champion whose client was silent: all its rewards count as 0."""
        return Report.of(count, n, 0.0, 0.0, 0.0, binary)

    @staticmethod
    def read(r: Reader, count: int, n: int, binary: bool) -> Report:
        bits = report_precision(n)
        levels = tuple(r.fixed(width) for width in _report_widths(count, bits, binary))
        if binary and levels[0] > count:
            raise Malformed(f"a sum of {levels[0]}, which {count} coins can't have")
        return Report(count, bits, levels)


def _report_widths(count: int, bits: int, binary: bool) -> tuple[int, ...]:
    """The bits of each number of a report."""
    return (width_of(count + 1),) if binary else (bits, bits, LEAST_BITS)


def summary_levels(sums: Sums, binary: bool) -> tuple[int, ...]:
    """The numbers of the champion in a summary: sum and smallest rounded down, squares and largest up."""
    if binary:
        return (int(sums.total),)
    count = np.maximum(sums.count, 1)  # no rewards: its first block was empty, because the data had run out
    return (
        int(floor_level(sums.total / count, SUMMARY_BITS)),
        int(ceil_level(sums.squares / count, SUMMARY_BITS)),
        int(floor_level(sums.least, LEAST_BITS)),
        int(ceil_level(sums.most, LEAST_BITS)),
    )


def summary_interval(levels: tuple[int, ...], count: int, alpha: float) -> tuple[float, tuple[float, float]]:
    """The mean that the numbers of an arm stand for, and the interval that contains it."""
    if len(levels) == 1:
        total = squares = float(levels[0])
        least, most, rounded = 0.0, 1.0, 0.0
    else:
        total = count * float(floored(levels[0], SUMMARY_BITS))
        squares = count * float(ceiled(levels[1], SUMMARY_BITS))
        least, most = float(floored(levels[2], LEAST_BITS)), float(ceiled(levels[3], LEAST_BITS))
        rounded = count * 2.0**-SUMMARY_BITS
    ends = betting.interval(count, total, squares, least, most, alpha, rounded=rounded)
    return (total + rounded / 2) / count, ends
