"""Options of Fed-SEL."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.protocol.messages import Wire
from bestarm.protocol.options import Common, choice, number, option, switch, whole
from bestarm.protocol.rounds import refuse_epsilon
from bestarm.stats.radii import RADII


@dataclass(frozen=True, kw_only=True)
class FedSel(Common):
    """Options of `fed-sel`, in addition to those of every method; the defaults are the paper's.

    Parameters
    ----------
    c : float
        The factor in β = cα. An arm is dropped in Phase I when its mean is β behind the best.
    period : int
        H, the number of pulls between two rounds.
    period_growth : float
        The factor by which H grows each round.
    quantiser : bool
        Whether clients send bins instead of exact means.
    radius : str
        The confidence radius α.
    intersect : bool
        Whether the server keeps the running intersection of intervals.
    early_stop : bool
        Whether clients in Phase I are told the best lower bound so far, so that they can withdraw.

    Raises
    ------
    InputError
        If an option has an invalid value.
    """

    c: float = option(
        8.0,
        "β = cα: an arm is dropped in Phase I when it is this far behind",
        number(2.0, below=1e6),
        "at least 2, below a million",
    )
    period: int = option(100, "H: pulls between two rounds", whole(1, 2**40), "a whole number from 1 to 2^40")
    period_growth: float = option(
        1.0, "factor by which H grows each round", number(1.0, below=1e6), "at least 1, below a million"
    )
    quantiser: bool = option(True, "send bins instead of exact means", switch, "true or false")
    radius: str = option(
        "paper", "confidence radius: paper or sharp", choice(*RADII), " or ".join(f'"{r}"' for r in RADII)
    )
    intersect: bool = option(False, "keep the running intersection of intervals", switch, "true or false")
    early_stop: bool = option(False, "tell clients in Phase I when they are beaten", switch, "true or false")


def refuse(layout: Layout, options: FedSel) -> None:
    """Raise InputError for a layout or options that Fed-SEL does not support."""
    refuse_epsilon(options)
    for group in layout.groups:
        if len(group.clients) != 1:
            raise InputError(
                f'group "{group.name}" has {len(group.clients)} clients; fed-sel takes one per group',
                fix='Give the group one client, or use method = "bet", "fisher" or "robust-fed-sel"',
            )
    if options.byzantine:
        raise InputError(
            f"byzantine = {options.byzantine}, but fed-sel trusts every client",
            expected="byzantine = 0",
            fix='Use method = "fisher" for 0/1 rewards, or "bet" for others',
        )
    refuse_budget(layout, options)


def refuse_budget(layout: Layout, options: Common) -> None:
    """Raise InputError for a budget that is too small for one pull of each arm."""
    most = max(layout.arm_counts)
    if options.budget is not None and options.budget < most:
        raise InputError(
            f"budget = {options.budget} is too small for one pull of each arm of every group",
            expected=f"at least {most}",
        )


def may_stop(layout: Layout, options: FedSel) -> bool:
    """Whether a client may have to stop pulling, so that its messages need a flag for it.

    A growing period exceeds 2⁵⁰, the largest count, after few rounds and few pulls. A constant period gets
    there only after that many actual pulls, so the paper's mode does not need the flag.
    """
    return options.budget is not None or layout.finite or options.period_growth > 1.0


def wire_of(layout: Layout, options: FedSel) -> Wire:
    """The facts that both ends know without a message."""
    stoppable = options.early_stop or may_stop(layout, options)
    binary = tuple(group.binary for group in layout.groups)
    return Wire(layout.arm_counts, binary, stoppable, options.early_stop)
