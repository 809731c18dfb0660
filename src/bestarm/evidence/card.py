"""The answer card of recorded data: best, ahead by, risk, cost, next step, on the user's scale.

It has the same structs as that of a run (``records.card``), so terminal and pages show both alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bestarm.evidence.describe import (
    assumptions,
    headline,
    kind_of_tests,
    mean_name,
    next_steps,
    promise,
    ranked,
    remedies,
    shows_percent,
)
from bestarm.evidence.more_rows import rows_said
from bestarm.evidence.record import Evidence, Lead, Option
from bestarm.records.card import AnswerCard, CardCosts, LeadFacts, OptionFacts
from bestarm.records.figures import ahead_said, costs_said, lead_places, lead_said
from bestarm.records.ranking import relative_lead

# The winner's curse, on average, as a share of half the width of the interval: at most, in measured data sets
# of which most named an option, and of which one in four did (``python -m benchmarks coverage``).
USUAL, RARE = 0.2, 0.45
CURSE = (
    "The mean of an option that wins tends to be a little too good: on average by less than half of the ± of "
    "its interval. The intervals hold nevertheless."
)
OPEN = "The mean of the option that leads tends to be a little too good. The intervals hold nevertheless."


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The answer card in words: the answer, how far it is ahead, the risk, the cost, and what to do next."""

    headline: str
    ahead: list[str]
    risk: str
    cost: str
    next: list[str]


def evidence_card(evidence: Evidence) -> AnswerCard:
    """The answer card of a record of evidence.

    Parameters
    ----------
    evidence : Evidence
        The record.

    Returns
    -------
    AnswerCard

    Examples
    --------
    >>> import bestarm as ba
    >>> rows = {"option": "courier", "site": "city", "reward": "minutes late", "question": "anywhere"}
    >>> found = ba.evidence("examples/deliveries.csv", **rows, bounds=(0, 60), goal="min")
    >>> card = evidence_card(found)
    >>> card.tone, card.lead.option, card.costs.rows
    ('amber', 'south/Cem', 200)
    """
    settings, stands = evidence.settings, evidence.promise == "stands"
    each = settings.question == "each"
    facts = [(option, _facts(option, stands)) for option in ranked(evidence)]
    by_name = {(option.site, option.name): fact for option, fact in facts}
    leads = [_lead(lead, by_name[lead.site, lead.over], evidence) for lead in evidence.leads]
    best = None if each else evidence.best.get("")
    return AnswerCard(
        tone="bad" if not stands else "good" if evidence.status == "identified" else "amber",
        headline=headline(evidence),
        best=best,
        answers=(),
        options=() if each else tuple(fact for _, fact in facts),
        sites=tuple(fact for _, fact in facts if fact.best) if each else (),
        site_leads=tuple(leads) if each else (),
        cells=tuple(fact for _, fact in facts) if each else (),
        lead=None if each else next(iter(leads), None),
        lifts=tuple(_lifts(evidence, by_name)),
        risk=risk(evidence),
        assumptions=tuple(assumptions(evidence)) if stands else (),
        alpha=settings.alpha if stands else None,
        alarms=(),
        right=None,
        truth="",
        trims=(),
        percent=is_percent(evidence),
        mean=mean_name(settings),
        kept="",
        costs=CardCosts(pulls=None, rounds=None, bits=None, after=0, time=None, rows=counted_rows(evidence)),
        method=kind_of_tests(evidence),
        delta=settings.delta,
        seed=settings.seed,
        curse="" if not stands else CURSE if any(evidence.best.values()) else OPEN,
        unit=settings.unit,
        name=evidence.source,
        date=evidence.date,
    )


def counted_rows(evidence: Evidence) -> int:
    """The rows that the answer rests on: for looks at any time, those of closed blocks."""
    return evidence.rows if evidence.blocks is None else sum(evidence.blocks.used)


def risk(evidence: Evidence) -> str:
    """The promise about the answer, and about all intervals together."""
    settings, text = evidence.settings, promise(evidence)
    if evidence.promise == "withdrawn":
        return text
    if settings.question == "each" and not settings.simultaneous:
        return (
            f"{text} The probability that any interval of a right or open answer misses is at most "
            f"{settings.alpha:g}."
        )
    several = settings.question in ("control", "each")
    if several or evidence.status == "identified":
        what, most = "an answer" if several else "it", min(1.0, settings.delta + settings.alpha)
        return f"{text} The probability that {what} is wrong or any interval here misses is at most {most:g}."
    return f"{text} The probability that any interval here misses is at most {settings.alpha:g}."


def steps(evidence: Evidence) -> list[str]:
    """What to do next, one sentence each; at least one."""
    if evidence.promise == "withdrawn":
        return ["Do not act on this answer.", *remedies(evidence)]
    if evidence.status == "identified":
        return ["Verify the record, then publish it with its report."]
    return [*filter(None, [rows_said(evidence)]), *next_steps(evidence)]


def in_words(evidence: Evidence) -> Words:
    """The answer card as sentences."""
    card = evidence_card(evidence)
    return Words(
        headline=card.headline,
        ahead=ahead_said(card),
        risk=card.risk,
        cost=costs_said(card.costs),
        next=steps(evidence),
    )


def is_percent(evidence: Evidence) -> bool:
    """Whether means are written in per cent: those of 0/1 rewards, and of a table that has percentages."""
    return shows_percent(evidence.settings)


def lead_cells(card: AnswerCard) -> dict[str, tuple[str, str]]:
    """The lead of each option over the control, and its interval, for a table; empty for other questions."""
    found, places = {}, lead_places(card)
    for lead in card.lifts:
        size, _, interval = lead_said(lead, card.percent, card.unit, places).partition(f" over {lead.over}")
        found[lead.option] = (size, interval.strip(" ()"))
    return found


def _facts(option: Option, stands: bool) -> OptionFacts:
    return OptionFacts(
        name=f"{option.site}/{option.name}" if option.site else option.name,
        mean=option.mean,
        interval=option.interval if stands else None,
        pulls=option.rows,
        best=option.status == "best",
    )


def _lead(lead: Lead, rival: OptionFacts, evidence: Evidence) -> LeadFacts:
    ends = lead.interval if evidence.promise == "stands" else None
    named = evidence.best[lead.site] is not None
    return LeadFacts(
        option=f"{lead.site}/{lead.option}" if lead.site else lead.option,
        over=lead.over,
        kind="runner-up",
        value=lead.value,
        interval=ends,
        relative=relative_lead(ends, lead.value, rival) if named else None,
        others=sum(option.site == lead.site for option in evidence.options) - 1,
    )


def _lifts(evidence: Evidence, facts: dict[tuple[str, str], OptionFacts]) -> Iterator[LeadFacts]:
    """The leads over the control; positive is better."""
    control, sign = evidence.settings.control, -1.0 if evidence.settings.goal == "min" else 1.0
    for option in ranked(evidence):
        if control is None or option.gap is None or option.gap_interval is None:
            continue
        low, high = sorted((sign * option.gap_interval[0], sign * option.gap_interval[1]))
        ends = (low, high) if evidence.promise == "stands" else None
        yield LeadFacts(
            option=option.name,
            over=control,
            kind="control",
            value=sign * option.gap,
            interval=ends,
            relative=relative_lead(ends, sign * option.gap, facts["", control]),
        )
