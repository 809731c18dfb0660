"""The result of a run: an arm, or "undecided" with the remaining candidates and the reason."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["identified", "undecided"]
Claim = Literal["best", "better", "worse", "within", "open"]
Reason = Literal[
    "budget", "rounds", "time", "tie", "silence", "votes", "discord", "contradiction", "interrupted"
]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a question that has several, or is asked of the options of all sites.

    Parameters
    ----------
    site : str or None
        The site that it is about; None if it is about all sites.
    option : str or None
        The option: the best one, or the one that is compared with the control. None if no best was found.
    answer : {"best", "better", "worse", "within", "open"}
        What was found out; "open" if nothing was.
    reason : str or None
        Why it is open; one of the keys of ``REASONS``, or "dropped".
    candidates : tuple of str
        The options that may still be the best, if that is open.
    value : float or None
        The estimated value of the option, or its lead over the control.
    interval : tuple of two float, or None
        An interval for it.
    over : str or None
        The runner-up: the other option that is closest to the best one.
    lead : float or None
        How far the best option is ahead of the runner-up; positive, whatever the goal.
    lead_interval : tuple of two float, or None
        An interval for its lead over the best of the others.
    """

    site: str | None
    option: str | None
    answer: Claim
    reason: str | None = None
    candidates: tuple[str, ...] = ()
    value: float | None = None
    interval: tuple[float, float] | None = None
    over: str | None = None
    lead: float | None = None
    lead_interval: tuple[float, float] | None = None

    @property
    def decided(self) -> bool:
        """Whether there is an answer."""
        return self.answer != "open"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`identified` with an arm, or `undecided` with candidates and a reason.

    Parameters
    ----------
    status : {"identified", "undecided"}
        Whether the run identified an arm.
    arm : str or None
        The identified arm.
    mean : float or None
        The estimated mean of the arm.
    interval : tuple of two float, or None
        An interval for the mean of the arm.
    reason : str or None
        Why the run is undecided; one of the keys of ``REASONS``.
    candidates : tuple of str
        The arms that may still be the best one, if undecided.
    gap : float or None
        An upper bound on how far the leading candidate is below the best arm (on the good event).
    answers : tuple of Answer
        The answers to a question other than "anywhere".
    certificate : dict
        A `server` part, rebuilt from the messages on the wire, and a `local` part from the clients. The
        server never learns about arms that lost locally.
    """

    status: Status
    arm: str | None = None
    mean: float | None = None
    interval: tuple[float, float] | None = None
    reason: Reason | None = None
    candidates: tuple[str, ...] = ()
    gap: float | None = None
    answers: tuple[Answer, ...] = ()
    certificate: dict[str, Any] = {}

    @property
    def summary(self) -> str | None:
        """The answer in a few words, such as "B" or "US: B, EU: A"; None if it is undecided."""
        if self.status == "undecided" or not self.answers:
            return self.arm
        return ", ".join(_in_words(answer) for answer in self.answers)

    @property
    def parts(self) -> str:
        """All answers in a few words, the open ones last, such as "A: better, B: open"."""
        return ", ".join(_in_words(answer) for answer in sorted(self.answers, key=lambda a: not a.decided))

    def __repr__(self) -> str:
        if self.status == "identified":
            mean = "" if self.mean is None else f", mean {self.mean:.4g}"
            return f"Verdict(identified: {self.summary}{mean})"
        shown = ", ".join(self.candidates[:3]) + ", …" * (len(self.candidates) > 3)
        return f"Verdict(undecided, {self.reason}: {shown or 'no candidates'})"


def _in_words(answer: Answer) -> str:
    if answer.answer != "best":
        return f"{answer.option}: {answer.answer}"
    best = answer.option or "open"
    if answer.site is not None:
        return f"{answer.site}: {best}"
    return best if answer.option else f"overall: {best}"


REASONS: dict[str, str] = {
    "budget": "the allowed pulls, or the data, are too few for the next step",
    "rounds": "the allowed number of rounds is used up",
    "time": "the time limit was reached",
    "tie": "the votes of a group's clients are tied",
    "silence": "too few clients reported in time",
    "votes": "more clients are proven faulty or dissent than byzantine allows",
    "discord": "honest clients reached different answers",
    "contradiction": "intervals contradict each other, which happens with probability at most delta "
    "if all clients are honest and rewards are stable",
    "interrupted": "the run was interrupted",
}
