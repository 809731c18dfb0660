"""The schedule of blocks, and what Fed-Bet refuses."""

from __future__ import annotations

from fractions import Fraction

from bestarm.errors import InputError
from bestarm.methods.bet.levels import BetWire
from bestarm.methods.bet.options import PREFERENCES, Bet
from bestarm.problem.layout import Layout
from bestarm.protocol.rounds import refuse_epsilon

MAX_PULLS = 2**36  # pulls of one arm: the run ends before it would need more


class Blocks:
    """How many pulls each block adds. `n` is the pulls of an arm that has never been the champion."""

    def __init__(self, options: Bet) -> None:
        n1, q = PREFERENCES[options.prefer]
        self.n1 = n1 if options.n1 is None else options.n1
        self.q = Fraction(q if options.q is None else options.q).limit_denominator(10**6)

    def step(self, n: int) -> int:
        """d = ⌈q·n⌉ − n: the pulls of each rival in the block that begins after n pulls.

        >>> blocks = Blocks(Bet(n1=24, q=1.5))
        >>> blocks.step(24), blocks.step(36), blocks.step(54)
        (12, 18, 27)
        """
        return -int(-self.q * n // 1) - n

    def is_last(self, n: int) -> bool:
        """Whether another block after n pulls would need too many of them."""
        return n + self.step(n) > MAX_PULLS


def refuse(layout: Layout, options: Bet) -> None:
    """Raise InputError for a layout or options that Fed-Bet does not support."""
    refuse_epsilon(options)
    if options.byzantine:
        raise InputError(
            f"bet trusts all clients, so it can't tolerate byzantine = {options.byzantine} liars",
            expected="byzantine = 0",
            fix='Use method = "fisher", which tolerates f liars among 2f + 1 clients of a group',
        )
    several = any(len(group.clients) > 1 for group in layout.groups)
    if several and options.silence != "wait":
        raise InputError(
            f'bet does not support silence = "{options.silence}" with several clients per group',
            expected='silence = "wait"',
            fix="Leave it out, or give each group one client",
        )
    if several and options.epsilon > 0:
        raise InputError(
            f"bet does not support epsilon = {options.epsilon} with several clients per group",
            expected="epsilon = 0",
            fix='Use method = "fisher", or give each group one client',
        )


def wire_of(layout: Layout, options: Bet) -> BetWire:
    """The facts that both ends know without a message."""
    stoppable = options.budget is not None or layout.finite
    return BetWire(
        layout.arm_counts,
        layout.binary,
        stoppable,
        covers=options.epsilon > 0,
        finite=layout.finite,
        fills=options.silence == "fill",
    )
