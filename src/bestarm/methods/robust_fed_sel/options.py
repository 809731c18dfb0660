"""Options of Robust Fed-SEL."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.errors import InputError
from bestarm.methods import fed_sel
from bestarm.problem.layout import Layout
from bestarm.protocol.messages import Wire
from bestarm.protocol.options import choice, option
from bestarm.protocol.rounds import refuse_small_groups

NEEDS = {"tight": 2, "paper": 3}  # clients per group: this times f, plus one


@dataclass(frozen=True, kw_only=True)
class RobustFedSel(fed_sel.FedSel):
    """Options of `robust-fed-sel`, in addition to those of `fed-sel`.

    Parameters
    ----------
    rules : {"tight", "paper"}
        How the server votes and trims. "tight" tolerates f liars among 2f+1 clients, "paper" among 3f+1.

    Raises
    ------
    InputError
        If an option has an invalid value.
    """

    rules: str = option(
        "tight",
        'vote and trim: "tight" tolerates f liars among 2f+1 clients, "paper" among 3f+1',
        choice(*NEEDS),
        " or ".join(f'"{r}"' for r in NEEDS),
    )


def refuse(layout: Layout, options: RobustFedSel) -> None:
    """Raise InputError for a layout or options that Robust Fed-SEL does not support."""
    for key in ("epsilon", "early_stop"):
        if getattr(options, key):
            raise InputError(
                f"{key} = {getattr(options, key)} can't be used with robust-fed-sel: honest clients of a "
                "group might then report different arms",
                fix='Leave it out, or use method = "fisher", which tolerates liars and supports epsilon',
            )
    refuse_small_groups(layout, options, NEEDS[options.rules], f'rules = "{options.rules}"')
    fed_sel.refuse_budget(layout, options)


def wire_of(layout: Layout, options: RobustFedSel) -> Wire:
    """The facts that both ends know without a message."""
    binary = tuple(group.binary for group in layout.groups)
    return Wire(layout.arm_counts, binary, stoppable=fed_sel.may_stop(layout, options))
