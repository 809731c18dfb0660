"""The schedule of looks (sizes, levels and bins), which both ends compute."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb, log

import numpy as np

from bestarm.errors import InputError
from bestarm.methods.fisher.messages import LookWire
from bestarm.methods.fisher.options import PREFERENCES, Fisher
from bestarm.problem.layout import Layout
from bestarm.protocol.rounds import refuse_epsilon, refuse_small_groups

MAX_LOOK = 2**36  # pulls of one arm: sums times bins stay below 2⁶³


def refuse(layout: Layout, options: Fisher) -> None:
    """Raise InputError for a layout or options that Fed-Fisher does not support."""
    refuse_epsilon(options)
    refuse_small_groups(layout, options, 2, "fisher")
    looks = looks_of(layout, options)
    if looks.size(looks.quiet) > MAX_LOOK:
        raise InputError(
            f"quiet = {looks.quiet} is too large: the first look that is not local would take more than 2^36 "
            "pulls of each arm",
            fix="Lower quiet, n0 or q",
        )
    for group in layout.groups:
        size = len(group.clients)
        if log(comb(size - options.byzantine, options.byzantine)) > 300:
            raise InputError(
                f'group "{group.name}" has too many subsets of {options.byzantine} liars among {size} '
                "clients: no test could reach the required level",
                fix="Lower byzantine, or split the group",
            )


class Looks:
    """The schedule of looks (sizes, levels and bins), for K arms in total."""

    def __init__(self, options: Fisher, arms: int) -> None:
        n0, q, quiet = PREFERENCES[options.prefer]
        self.n0 = n0 if options.n0 is None else options.n0
        self.q = Fraction(q if options.q is None else options.q).limit_denominator(10**6)
        self.quiet = quiet if options.quiet is None else options.quiet
        self.arms = arms
        # With ε, half of δ is reserved for the intervals.
        self.delta = options.delta / 2.0 if options.epsilon > 0 else options.delta
        self.early = int(np.ceil(14.0 * np.log(2.0) / np.log(float(self.q))))
        self._sizes: list[int] = []

    def size(self, r: int) -> int:
        """n_r = ⌈n₀·qʳ⌉, in integer arithmetic; look −1 is before the first look."""
        while len(self._sizes) <= r and self._sizes[-1:] != [MAX_LOOK + 1]:
            self._sizes.append(min(-int(-self.n0 * self.q ** len(self._sizes) // 1), MAX_LOOK + 1))
        return 0 if r < 0 else self._sizes[min(r, len(self._sizes) - 1)]

    def is_last(self, r: int) -> bool:
        """Whether the look after this one would exceed the largest count."""
        return self.size(r + 1) > MAX_LOOK

    def share(self, r: int) -> float:
        """s_r: 0.9 in equal parts over the early looks, then 0.1/((j+1)(j+2)). The shares sum to 1."""
        j = r - self.early
        return 0.9 / self.early if j < 0 else 0.1 / ((j + 1) * (j + 2))

    def level(self, r: int) -> float:
        """x_r, the level of each test at look r: a union over looks and the K−1 rivals of the best arm."""
        return self.delta * self.share(r) / (self.arms - 1)

    def interval_level(self, r: int) -> float:
        """The level of each one-sided bound at look r: a union over looks, K arms and two sides."""
        return self.delta * self.share(r) / (2 * self.arms)

    def bits(self, r: int) -> int:
        """b = ⌈½·log₂ n_r⌉ + 5: the mean is sent as a bin of width 2^−b."""
        return ((self.size(r) - 1).bit_length() + 1) // 2 + 5


def looks_of(layout: Layout, options: Fisher) -> Looks:
    """The schedule of a run."""
    return Looks(options, sum(layout.arm_counts))


def next_look(options: Fisher, made: int) -> str:
    """The pulls that the next look takes of an arm with `made` pulls, as the end of a sentence.

    >>> next_look(Fisher(), 50)
    ', and the next look takes 72'
    """
    sizes = map(Looks(options, 2).size, itertools.count())
    return f", and the next look takes {next(size for size in sizes if size > made):,}"


def price_of_loss(looks: Looks, options: Fisher) -> str:
    """The proved error probability if arms have lost to a group that is left out later.

    δ covers only the tests of the best arm. To judge all pairs of arms correctly, it must cover K(K−1)/2
    tests instead of K−1. The intervals with ε > 0 hold for all arms anyway.
    """
    error = looks.arms / 2.0 * looks.delta + (options.delta - looks.delta)
    proved = f"at most {error:.3g}" if error < 1.0 else "unknown"
    return f"; the probability of an error is then {proved}, instead of delta = {options.delta:g}"


def wire_of(layout: Layout, options: Fisher) -> LookWire:
    """The facts that both ends know without a message."""
    return LookWire(layout.arm_counts, stoppable=options.budget is not None or layout.finite)
