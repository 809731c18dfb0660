"""The verdicts of the rivals, for the question "anywhere" in one group and for "overall"."""

from __future__ import annotations

from bestarm.methods.rivals.course import Course
from bestarm.protocol.decisions import Mask
from bestarm.protocol.verdict import Answer, Reason, Verdict

Interval = tuple[float, float]


def identified(course: Course, option: int, mean: float | None, interval: Interval | None) -> Verdict:
    """The verdict that names an option."""
    name = course.name(option)
    if not course.over_all:
        return Verdict(status="identified", arm=name, mean=mean, interval=interval)
    answer = Answer(site=None, option=name, answer="best", value=mean, interval=interval)
    return Verdict(status="identified", arm=name, answers=(answer,))


def undecided(course: Course, inside: Mask, reason: Reason) -> Verdict:
    """The verdict of a run that ended with several options."""
    names = tuple(course.name(k) for k in range(course.number) if inside[k])
    answers: tuple[Answer, ...] = ()
    if course.over_all:
        answers = (Answer(site=None, option=None, answer="open", reason=reason, candidates=names),)
    return Verdict(status="undecided", reason=reason, candidates=names, answers=answers)


def verdict_for_client(course: Course, option: int | None) -> Verdict:
    """The verdict as a client knows it from the last message."""
    if option is not None:
        return identified(course, option, None, None)
    answers = (Answer(site=None, option=None, answer="open"),) if course.over_all else ()
    return Verdict(status="undecided", answers=answers)
