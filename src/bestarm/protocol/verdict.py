"""What a run concludes: an arm, or an honest "undecided" with what is left and why."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["identified", "undecided"]
Reason = Literal[
    "budget", "rounds", "time", "tie", "silence", "votes", "discord", "contradiction", "interrupted"
]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`identified` with an arm, or `undecided` with candidates and a reason.

    `mean` and `interval` belong to the arm; `gap` bounds by how much the leading candidate can fall short
    of the best arm (on the good event). `certificate` holds a `server` part, rebuilt from what crossed the
    wire, and a `local` part from the clients; the server never learns of arms that lost locally.
    """

    status: Status
    arm: str | None = None
    mean: float | None = None
    interval: tuple[float, float] | None = None
    reason: Reason | None = None
    candidates: tuple[str, ...] = ()
    gap: float | None = None
    certificate: dict[str, Any] = {}


REASONS: dict[str, str] = {
    "budget": "the pulls that were allowed, or the data, are used up",
    "rounds": "the rounds that were allowed are used up",
    "time": "the time that was allowed is over",
    "tie": "the votes of a group's clients are tied",
    "silence": "reports did not come, or too few",
    "votes": "clients sent what no honest client can send, or dissent: more than may lie",
    "discord": "honest clients have different answers",
    "contradiction": "intervals contradict each other, which honest and stable rewards do "
    "with probability at most delta",
    "interrupted": "the run was interrupted",
}
