"""The answers of a question, from the state of its races or from the message that ends the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import BETTER, OPEN, WITHIN, WORSE, BestRace, ControlRace
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.methods.bet.sites.messages import End
from bestarm.protocol.verdict import Answer, Claim, Reason, Verdict

CLAIMS: dict[int, Claim] = {OPEN: "open", BETTER: "better", WORSE: "worse", WITHIN: "within"}
DROPPED = "dropped"  # the reason of a site that the operator dropped


def end_of(ledger: Ledger, place: int = 0) -> End:
    """The message that ends a run in this state."""
    course, winners, claims = ledger.course, list[int | None](), tuple[int, ...]()
    for race, own in zip(ledger.races, course.offered, strict=True):
        winner = -1
        if isinstance(race, BestRace):
            winner = int(race.winner[place])
        elif isinstance(race, ControlRace):
            claims = tuple(race.claim[place].tolist())
        winners.append(None if winner < 0 else int(np.flatnonzero(own == winner)[0]))
    return End(tuple(winners), claims)


def answers_of(
    course: Course, end: End, reason: Reason | None = None, ledger: Ledger | None = None
) -> tuple[Answer, ...]:
    """The answers of a run. A client, which has no ledger, knows no candidates of answers that are open."""
    names, found = course.cells.options, list[Answer]()
    if end.claims:
        control = course.question.control
        for name, claim in zip(names, end.claims, strict=True):
            if name != control:
                answer = Answer(site=None, option=name, answer=CLAIMS[claim])
                found.append(answer if claim != OPEN else replace(answer, reason=reason))
        return tuple(found)
    for r, (winner, own, j) in enumerate(zip(end.winners, course.offered, course.sites, strict=True)):
        site = None if j is None else course.layout.groups[j].name
        if winner is not None:
            found.append(Answer(site=site, option=names[own[winner]], answer="best"))
            continue
        left: Sequence[int] = ()
        why: str | None = reason
        if ledger is not None:
            race = ledger.races[r]
            assert isinstance(race, BestRace)
            left = np.flatnonzero(race.inside[0]).tolist()
            why = DROPPED if not len(race.clients) else reason
        candidates = tuple(names[k] for k in left)
        found.append(Answer(site=site, option=None, answer="open", reason=why, candidates=candidates))
    return tuple(found)


def status_of(answers: Sequence[Answer]) -> Verdict:
    """The verdict with these answers, without estimates."""
    open_ones = [a for a in answers if not a.decided and a.reason != DROPPED]
    if open_ones or not any(a.decided for a in answers):
        names = tuple(
            name if a.site is None else f"{a.site}/{name}"
            for a in open_ones
            for name in (a.candidates or ((a.option,) if a.option else ()))
        )
        return Verdict(status="undecided", candidates=names, answers=tuple(answers))
    best = [a for a in answers if a.answer == "best"]
    arm = best[0].option if best and (len(answers) == 1 or best[0].site is None) else None
    return Verdict(status="identified", arm=arm, answers=tuple(answers))


def verdict_for_client(course: Course, end: End) -> Verdict:
    """The verdict as a client knows it from the last message."""
    return worded(course, status_of(answers_of(course, end)))


def worded(course: Course, verdict: Verdict) -> Verdict:
    """The verdict as the question has it: the answer to "anywhere" is an arm, and there are no others."""
    return replace(verdict, answers=()) if course.question.kind == "anywhere" else verdict
