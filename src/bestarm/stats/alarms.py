"""Alarms: do rewards drift, or resemble their neighbours more than independent rows would?

Both tests are exact in this sense: if the rows of a cell are exchangeable (independent draws from one
distribution are), then each of the differences d that they add up is as likely to be d as −d, independently
of the others given their sizes. By Hoeffding's inequality for random signs,

    P(Σd ≥ z·√Σd²) ≤ exp(−z²/2),

whatever the rewards are. Where all d but zeros have the same size, as with 0/1 rewards, their signs are fair
coins, and the p-value is the exact one of the sign test. *Drift* pairs each row of the first half of a cell
with one of the second half, and d is the difference of the two. *Dependence* takes two pairs of neighbours
(u₁, u₂) and (v₁, v₂) that are far apart: d = (u₁ − v₁)(u₂ − v₂) changes its sign if u₂ and v₂ change places,
and is positive on average if neighbours are alike. Of the false-alarm rate, half is shared by the tests of
the single cells and half by the two tests of all cells together (a union bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Place = tuple[int, int]
FALSE_ALARMS = 0.01  # per table, all tests together
ALL = "all cells together"
MOST_COINS = 2.0**52  # no table has more; a forged record may
REASONS = {
    "drift": "the rewards of {cell} change over time: the second half of the rows differs from the first",
    "dependence": "neighbouring rows of {cell} are more alike than independent rows would be",
}


class Check(msgspec.Struct, frozen=True):
    """One test: its kind, its cell, and Σd and Σd², from which its p-value follows.

    `size` is that of all d but zeros, and 0 if they differ in size.
    """

    kind: str  # "drift" or "dependence"; in live experiments also "missing"
    cell: str
    total: float
    squares: float
    size: float = 0.0

    @staticmethod
    def of(kind: str, cell: str, differences: Floats) -> Check:
        """The test with these differences d.

        >>> check = Check.of("dependence", "a", np.array([1.0, 0.0, 1.0, 1.0, -1.0]))
        >>> check.size, check.pvalue
        (1.0, 0.3125)
        """
        sizes = np.abs(differences[differences != 0.0])
        alike = len(sizes) > 0 and bool((sizes == sizes[0]).all())
        size = float(sizes[0]) if alike else 0.0
        return Check(kind, cell, float(differences.sum()), float(differences @ differences), size)

    @staticmethod
    def joined(kind: str, cells: Sequence[Check]) -> Check:
        """The test of all cells together."""
        sizes = {each.size for each in cells if each.squares > 0}
        total, squares = math.fsum(c.total for c in cells), math.fsum(c.squares for c in cells)
        return Check(kind, ALL, total, squares, sizes.pop() if len(sizes) == 1 else 0.0)

    @property
    def pvalue(self) -> float:
        """At most this probability if rows are independent: drift has two directions, dependence one."""
        if self.squares <= 0:
            return 1.0
        sides = 1.0 if self.kind == "dependence" else 2.0
        toward = self.total if self.kind == "dependence" else abs(self.total)
        if self.size > 0:
            coins, lead = self.squares / self.size / self.size, toward / self.size
            if max(coins, abs(lead)) < MOST_COINS:
                return min(1.0, sides * _heads(round(coins), round((coins + lead) / 2)))
        ahead = max(toward, 0.0)
        return min(1.0, sides * math.exp(-ahead * ahead / (2 * self.squares)))


def _heads(coins: int, least: int) -> float:
    """The probability that so many fair coins show heads at least so often."""
    from scipy.special import betainc

    if least <= 0 or least > coins:  # a forged record may ask for more heads than coins
        return float(least <= 0)
    return float(betainc(least, coins - least + 1, 0.5))


class Alarm(msgspec.Struct, frozen=True):
    """An assumption that does not hold: which one, in which cell, and the p-value with its level."""

    kind: str
    cell: str
    pvalue: float
    level: float

    @property
    def reason(self) -> str:
        """The alarm as a clause."""
        text = REASONS[self.kind].format(cell="the options" if self.cell == ALL else self.cell)
        return f"{text} (p = {self.pvalue:.2g}, alarm at {self.level:.2g})"


def drift(values: Floats) -> Floats:
    """Differences between the rows of the second half and those of the first, one for each pair."""
    half = values.shape[-1] // 2
    return np.asarray(values[..., values.shape[-1] - half :] - values[..., :half])


def dependence(values: Floats) -> Floats:
    """(u₁ − v₁)(u₂ − v₂) for pairs of neighbours u in the first half of the rows and v in the second."""
    rows = values.shape[-1] // 4 * 4
    pairs = values[..., :rows].reshape(*values.shape[:-1], rows // 2, 2)
    first, second = pairs[..., : rows // 4, :], pairs[..., rows // 4 :, :]
    return np.asarray((first - second).prod(axis=-1))


def check(queues: Mapping[Place, Floats], names: Mapping[Place, str], scale: float) -> list[Check]:
    """Both tests of each cell, and of all cells together.

    Parameters
    ----------
    queues : mapping
        The rewards of each cell in order of arrival.
    names : mapping
        The name of each cell.
    scale : float
        The width of the rewards' range, so that sums are about rewards in [0, 1].

    Returns
    -------
    list of Check
    """
    made: list[Check] = []
    for kind, differences in (("drift", drift), ("dependence", dependence)):
        places = sorted(queues)
        cells = [Check.of(kind, names[place], differences(queues[place] / scale)) for place in places]
        made += [*cells, Check.joined(kind, cells)] if len(cells) > 1 else cells
    return made


def alarms(checks: Sequence[Check]) -> list[Alarm]:
    """The tests that raise an alarm; at most FALSE_ALARMS of tables of independent rows have any."""
    single = [each for each in checks if each.cell != ALL]
    joint = [each for each in checks if each.cell == ALL]
    share = FALSE_ALARMS / 2 if joint else FALSE_ALARMS
    return [*_raised(joint, share), *_raised(single, share)]


def _raised(checks: Sequence[Check], rate: float) -> Iterable[Alarm]:
    for each in checks:
        level = rate / len(checks)
        if each.pvalue <= level:
            yield Alarm(each.kind, each.cell, each.pvalue, level)
