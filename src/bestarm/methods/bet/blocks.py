"""The schedule of blocks, and what Fed-Bet refuses."""

from __future__ import annotations

import math
from fractions import Fraction

from bestarm.errors import InputError
from bestarm.methods.bet.levels import BetWire
from bestarm.methods.bet.options import PREFERENCES, Bet, PrivateBet
from bestarm.problem.layout import Layout
from bestarm.protocol.rounds import refuse_epsilon, refuse_small_groups

MAX_PULLS = 2**36  # pulls of one arm: the run ends before it would need more


class Blocks:
    """How many pulls each block adds. `n` is the pulls of an arm that has never been the champion.

    Random answers shrink all gaps by κ, so n of them tell about as much as κ²·n rewards. The first pulls are
    1/κ² times as many, and the stakes reach κ times as far down. Otherwise a private run would pass through
    many blocks in which its bets follow noise.

    >>> from bestarm.problem.scale import Scale
    >>> Blocks(Bet()).n1, Blocks(Bet().rescaled(Scale(privacy=1.0))).n1
    (24, 113)
    """

    def __init__(self, options: Bet) -> None:
        n1, q = PREFERENCES[options.prefer]
        self.slope = options.slope if isinstance(options, PrivateBet) else 1.0
        # Rounded first, so that every participant gets the same number, whatever its tanh is like.
        self.n1 = math.ceil(round(n1 / self.slope**2, 6)) if options.n1 is None else options.n1
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
    if layout.question.kind != "anywhere":
        refuse_question(layout, options)
        return
    if options.open_blocks > 1:
        if options.byzantine:
            raise InputError(
                f"byzantine = {options.byzantine} is not supported with open_blocks = {options.open_blocks}",
                expected='open_blocks = 1, byzantine = 0, or question = "overall"',
            )
        refuse_question(layout, options)
        return
    if options.margin or options.allocation != "weights":
        raise InputError(
            'margin and allocation do not belong to question = "anywhere" with open_blocks = 1',
            fix='Ask another question, such as question = "overall", or leave them out',
        )
    refuse_small_groups(layout, options, 2, "bet")
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


def refuse_question(layout: Layout, options: Bet) -> None:
    """Raise InputError for options that do not fit a question about several sites."""
    kind = layout.question.kind
    if options.byzantine:
        _refuse_lying_sites(layout, options.byzantine)
    if options.epsilon > 0 and kind == "anywhere":
        raise InputError(
            f"epsilon = {options.epsilon:g} is not supported with open_blocks = {options.open_blocks}: "
            "evidence that an arm is close enough belongs to one champion, named when the last block closed",
            expected="open_blocks = 1, or epsilon = 0",
        )
    if options.epsilon > 0:
        raise InputError(
            f'epsilon = {options.epsilon:g} is not supported with question = "{kind}"',
            expected="epsilon = 0",
            fix="Set a budget or max_rounds: an undecided run names the options that are still in",
        )
    if options.silence != "wait":
        raise InputError(
            f'silence = "{options.silence}" is not supported with question = "{kind}"',
            expected='silence = "wait"',
            fix="Leave it out, and drop a site that does not come back",
        )
    if options.allocation != "weights" and kind == "each":
        raise InputError(
            'allocation does not belong to question = "each", where every site pulls for itself',
            expected='question = "overall" or "control"',
        )
    if options.margin and kind != "control":
        raise InputError(f'margin does not belong to question = "{kind}"', expected='question = "control"')
    if options.margin >= 1.0:
        raise InputError(
            "the margin is as wide as the range of the rewards",
            expected="a smaller margin, in the units of the rewards: 0.04 is 4 points of a success rate",
        )
    names = {name for group in layout.groups for name in group.arms}
    if kind not in ("each", "anywhere") and len(names) < 2:
        raise InputError("there is only one option", expected="at least two options to compare")


def _refuse_lying_sites(layout: Layout, faults: int) -> None:
    """Raise InputError if the question does not allow for this many lying sites."""
    question, sites = layout.question, len(layout.groups)
    if question.kind != "overall" or question.also or question.missing_options != "refuse":
        raise InputError(
            f"byzantine = {faults} is supported only for one answer about options that all sites offer",
            expected='question = "overall" without `also` and `missing_options`, or question = "anywhere"',
            fix="Set byzantine = 0, or ask for the best option overall",
        )
    if sites <= 2 * faults:
        raise InputError(
            f"{faults} of {sites} sites may lie, so no lead between the options could ever be trusted",
            expected=f"more than {2 * faults} sites (2f + 1)",
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
