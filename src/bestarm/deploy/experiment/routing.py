"""Which option the subjects of a site get after a verdict."""

from __future__ import annotations

from bestarm.problem.layout import Layout
from bestarm.protocol.verdict import Verdict


def winner_at(layout: Layout, site: int, verdict: Verdict | None) -> int | None:
    """The place of the winner among the options of a site; None if the verdict names none for this site.

    With a control, it is the best of those that are better, or the control itself.
    """
    arms, name = layout.groups[site].arms, layout.groups[site].name
    if verdict is None:
        return None
    for answer in verdict.answers:
        if answer.answer == "best" and answer.site in (None, name) and answer.option in arms:
            return arms.index(str(answer.option))
    for named in (verdict.arm, (verdict.arm or "").removeprefix(f"{name}/")):
        if named in arms:
            return arms.index(str(named))
    control = layout.question.control
    if control is None:
        return None
    better = [a for a in verdict.answers if a.answer == "better" and a.option in arms]
    if better:
        return arms.index(str(max(better, key=lambda a: a.value or 0.0).option))
    return arms.index(control.split("/")[-1]) if control.split("/")[-1] in arms else 0
