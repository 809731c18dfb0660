"""Options of the peer-to-peer method."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bestarm.errors import InputError
from bestarm.methods import fed_sel
from bestarm.problem.layout import Layout
from bestarm.protocol.options import Common, choice, number, option

EXCHANGES = ("means", "intervals")


@dataclass(frozen=True, kw_only=True)
class PeerToPeer(Common):
    """Options of `p2p`, in addition to those of every method.

    Parameters
    ----------
    exchange : {"means", "intervals"}
        What peers send each other. "means" is the paper's protocol.
    c : float
        The factor in β = cα. An arm is dropped in Phase I when its mean is β behind the best.
    tighten : float
        The factor by which the width of an interval must shrink before it is sent again at once.

    Raises
    ------
    InputError
        If an option has an invalid value.
    """

    exchange: str = option(
        "means",
        'what peers send each other: the paper\'s "means", or "intervals"',
        choice(*EXCHANGES),
        " or ".join(f'"{e}"' for e in EXCHANGES),
    )
    c: float = option(
        6.0,
        "β = cα: an arm is dropped in Phase I when it is this far behind",
        number(2.0, below=1e6, above=2.0),
        "above 2, below a million",
    )
    tighten: float = option(
        0.5,
        "an interval is sent at once when its width has shrunk by this factor",
        number(0.0, below=1.0, above=0.0),
        "a number in (0, 1), ends excluded",
    )


def refuse(layout: Layout, options: PeerToPeer) -> None:
    """Raise InputError for unsupported options. The network is checked when the run is set up."""
    if options.epsilon:
        raise InputError(
            f"epsilon = {options.epsilon} can't be used with p2p: honest peers of a group might then report "
            "different arms",
            fix='Leave it out, or use method = "fisher"',
        )
    if options.exchange == "means" and options.c <= 4.0:
        raise InputError(
            f'c = {options.c:g} is too small for exchange = "means"', expected="more than 4 (Theorem 3)"
        )
    if options.max_rounds is not None:
        raise InputError("max_rounds can't be used with p2p, which has no rounds", fix="Use budget")
    fed_sel.refuse_budget(layout, options)


def most_reports(layout: Layout, options: PeerToPeer) -> int:
    """The most reports that an honest peer sends in a year.

    With N arm-sets there are 16N + 150 ticks, and for each set N + 1 reports as groups fall, and one whenever
    its width has shrunk by `tighten`: from 1 to 2⁻⁴⁸.
    """
    groups = len(layout.groups)
    shrinks = math.ceil(48 * math.log(2) / -math.log(options.tighten))
    return groups * (17 * groups + 152 + shrinks)
