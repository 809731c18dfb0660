"""What others wait for: a site whose part of a block is incomplete, in numbers and in words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bestarm.util.text import counted


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A site whose part of the oldest block is not complete, while rewards of that or later blocks are in.

    Attributes
    ----------
    site : str
        Its name.
    to_assign : int
        Assignments of that part which are still to be made.
    to_come : int
        Assignments of that part which are made, and whose reward is still to come.
    seconds : float or None
        How long the assignments will take at the site's present pace; None if nobody arrives there.
    rewards : int
        How many rewards can't be used until then: what waiting costs.
    """

    site: str
    to_assign: int
    to_come: int
    seconds: float | None
    rewards: int

    @property
    def text(self) -> str:
        """The wait in words."""
        if not self.to_assign:
            return f"{self.site} has {counted(self.to_come, 'reward')} to come"
        how_long = "and no arrivals" if self.seconds is None else f"about {_time(self.seconds)}"
        return f"{self.site} has {counted(self.to_assign, 'assignment')} to make, {how_long}"


def said(waits: Sequence[Wait]) -> str:
    """All waits in a sentence; empty if there are none."""
    return f"{waits[0].rewards:,} rewards wait: {'; '.join(wait.text for wait in waits)}" if waits else ""


def _time(seconds: float) -> str:
    for size, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
