"""The answer card at the top of a page: alarms, the answer, lead, risk, cost, and the next step."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from bestarm.records.card import AnswerCard, LeadFacts
from bestarm.records.figures import (
    behind_said,
    compared_said,
    costs_said,
    gap_said,
    labels,
    lead_places,
    lead_said,
    lift_said,
    mean_places,
    next_steps,
    option_said,
    said,
)
from bestarm.report.facts import RunFacts, SiteFacts
from bestarm.report.markup import Html, clean, join, name, tag, unbroken
from bestarm.report.page.parts import figure, fold, names, prose
from bestarm.report.svg.trims import trims

KINDS = {"good": "yes", "amber": "no", "bad": "wrong", "going": ""}
LONG = 600  # characters of a sentence
MOST_CLAIMS = 100  # clients in the picture of what trimming did
MOST_SITES = 12  # sites whose answers stand in the card; the others are in a fold


def answer(facts: RunFacts, card: AnswerCard) -> Html:
    """The answer card of a run that is over."""
    alarms = [tag("li", clean(text, LONG)) for text in card.alarms]
    first: list[Any] = [tag("ul", *alarms, class_="alarms") if alarms else None]
    if facts.checks:
        text = "This run's own record is inconsistent: see “Who can be trusted”."
        first.append(tag("p", text, class_="bad"))
    helps = facts.undecided.helps if facts.undecided else ""
    replay = " --replay" if facts.seed is not None else ""
    command = f"bestarm verify {shlex.quote(facts.file)}{replay}"
    after = [*_open(facts, card), _next(next_steps(card, facts.outlook, helps), command)]
    title = "Cost here" if isinstance(facts, SiteFacts) else "Cost"
    box = card_box(card, first, after, facts.data.said if facts.data else "", title)
    return join(box, _trims(card, facts.method.peers))


def evidence_answer(card: AnswerCard, steps: Sequence[str], command: str) -> Html:
    """The answer card of recorded data; `command` checks their record."""
    return card_box(card, [], [_next(steps, command)])


def card_box(
    card: AnswerCard, first: Sequence[Any], after: Sequence[Any], premise: str = "", title: str = "Cost"
) -> Html:
    """The card with what stands first and last in it.

    `premise` is one more thing that it rests on, `title` says whose cost it has.
    """
    sites, first_of_all = _sites(card), [*_best(card), *_lead(card)]
    first_sites, others = sites[:MOST_SITES], sites[MOST_SITES:MOST_CLAIMS]
    rest = f"The other {len(sites) - MOST_SITES:,} sites"
    if len(sites) > MOST_CLAIMS:
        rest += f" (the first {len(others):,} of them; all are in the record)"
    rows = [_risk(card, premise), _cost(card, title)]
    if not sites:
        first_of_all, rows = [], [*first_of_all, *rows]
    return tag(
        "div",
        tag("p", labels(card.name, card.date, card.method, card.delta, card.seed), class_="labels"),
        *first,
        tag("h1", clean(card.headline, LONG), id="verdict"),
        _truth(card),
        tag("dl", *first_of_all, class_="answers") if first_of_all else None,
        tag("dl", *first_sites, class_="answers") if sites else None,
        fold(rest, tag("dl", *others, class_="answers")) if others else None,
        tag("dl", *rows, class_="answers"),
        *after,
        class_=f"verdict card {KINDS[card.tone]}".rstrip(),
    )


def _truth(card: AnswerCard) -> Html | None:
    """In a simulation, whether the answer was right."""
    kind = {True: "good", False: "bad", None: None}[card.right]
    return tag("p", card.truth, class_=kind) if card.truth else None


def entry(title: str, main: object, *more: object) -> Html:
    notes = [tag("p", _unbroken(one), class_="note") for one in more if one]
    return tag("div", tag("dt", title), tag("dd", tag("p", main, class_="main"), *notes))


def _unbroken(text: object) -> object:
    return unbroken(text) if isinstance(text, str) and not isinstance(text, Html) else text


def _best(card: AnswerCard) -> list[Html]:
    best = next((row for row in card.options if row.best), None)
    if best is None and card.best is None:
        return []
    title = "Best" if card.tone == "good" else "Named"
    title += " overall" if card.sites else ""
    text = None
    if best is not None and best.mean is not None:
        value = option_said(best, card.percent, card.unit, mean_places(card))
        text = f"Its {clean(card.mean)} is about {value}."
    return [entry(title, name(card.best or (best.name if best else ""), 80), text)]


def _sites(card: AnswerCard) -> list[Html]:
    """The best option of each site, or the one that leads, and how far it is ahead."""
    found, leads = [], {lead.option: lead for lead in card.site_leads}
    places = mean_places(card)
    for row in card.sites:
        site, _, option = row.name.partition("/")
        about = f"Its {clean(card.mean)} is about {option_said(row, card.percent, card.unit, places)}."
        lead = leads.pop(row.name, None)
        ahead = lead and f"Ahead by {lead_said(lead, card.percent, card.unit, lead_places(card))}."
        found.append(entry(f"Best at {clean(site, 60)}", name(option, 80), about, ahead))
    for lead in leads.values():
        site, _, option = lead.option.partition("/")
        ahead = f"It leads by {lead_said(lead, card.percent, card.unit, lead_places(card))}."
        found.append(entry(f"Open at {clean(site, 60)}", name(option, 80), ahead))
    return found


def _lead(card: AnswerCard) -> list[Html]:
    found = []
    if card.lead is not None and card.lead.value < 0:
        text = f"The named option is behind {behind_said(card, card.lead)}."
        found.append(entry("Ahead by", "nothing", text))
    elif card.lead is not None:
        title = "Ahead by" if card.best else f"{card.lead.option} leads by"
        main, _, rest = lead_said(card.lead, card.percent, card.unit, lead_places(card)).partition(" over ")
        found.append(entry(title, main, f"over {rest}", _lift(card.lead)))
    elif card.kept and card.best and not card.lifts:
        text = "No client sent a summary, so the server does not know the numbers of the other options."
        found.append(entry("Ahead by", card.kept, text))
    for lead in card.lifts[:MOST_CLAIMS]:
        main, ends = compared_said(lead, card.percent, card.unit, lead_places(card))
        main = main.removesuffix(f" than {lead.over}").removesuffix(f" as {lead.over}")
        main = "about equal" if main == "about as good" else main
        found.append(entry(f"{lead.option} against {lead.over}", main, ends, _lift(lead)))
    return found


def _lift(lead: LeadFacts) -> str:
    lift = lift_said(lead)
    return lift and f"That is {lift}."


def _risk(card: AnswerCard, premise: str) -> Html:
    words = [text for text in (*card.assumptions, card.curse, premise) if text]
    folded = fold("What that rests on", tag("ul", *[tag("li", clean(text, LONG)) for text in words]))
    promised = not card.risk.startswith("Nothing is promised")
    main = f"δ = {card.delta:g}" if promised else "not bounded"
    return entry("Risk", main, clean(card.risk, LONG), folded if words else None)


def _cost(card: AnswerCard, title: str) -> Html:
    main, _, rest = costs_said(card.costs).partition("s, ")
    return entry(title, f"{main}s" if rest else main, rest)


def _open(facts: RunFacts, card: AnswerCard) -> list[Html]:
    """What is left of a run that named nothing."""
    verdict, found = facts.verdict, facts.undecided
    if verdict is None or verdict.status == "identified":
        return []
    if card.answers:
        pairs = zip(card.answers, verdict.answers, strict=True)
        told = [tag("p", clean(text, LONG)) for text, _ in sorted(pairs, key=lambda pair: pair[1].decided)]
        more = fold(f"The other {len(told) - MOST_SITES:,} answers", *told[MOST_SITES:])
        return told if len(told) <= MOST_SITES else [*told[:MOST_SITES], more]
    lines = [tag("p", f"Best would be {clean(facts.aim)}.")] if facts.aim else []
    left = found.left if found else verdict.candidates
    known = ", as far as the server knows" if facts.private is False else ""
    lines.append(tag("p", f"Still in the race{known}: ", names(left, 20, 80) or "no arm", "."))
    if verdict.gap is not None:
        first = name((found and found.first) or "The leading one", 80)
        apart = gap_said(verdict.gap, facts.percent, facts.scale.unit)
        lines.append(tag("p", first, f" is at most {apart} from the best."))
    return lines


def _next(steps: Sequence[str], command: str) -> Html:
    told = [tag("li", prose(clean(text, LONG))) for text in steps]
    words = [[" " if k else None, tag("span", word)] for k, word in enumerate(command.split(" "))]
    check = tag("code", *words)  # a line may end between words, not after a hyphen
    return tag("div", tag("h2", "Next step"), tag("ul", *told, tag("li", check)), class_="next")


def _trims(card: AnswerCard, peers: bool) -> Html | None:
    if not card.trims:
        return None
    if any(len(row.claims) > MOST_CLAIMS for row in card.trims):
        text = [
            f"{clean(row.option, 80)}: plain mean {said(row.plain, None, card.percent, card.unit)}, robust "
            f"{said(row.robust, None, card.percent, card.unit)}; "
            f"{sum(not claim.kept for claim in row.claims):,} of {len(row.claims):,} claims trimmed."
            for row in card.trims
        ]
        return tag("p", "What trimming did. ", " ".join(text))
    liars = any(claim.liar for row in card.trims for claim in row.claims)
    caption = (
        "What trimming did. Each mark is the mean that one client claims: ● kept, × trimmed as one of the "
        "largest or smallest. The dashed line is the plain mean of all claims, the solid line the robust one"
    )
    caption += "; a dashed ring marks a liar" if liars else ""
    caption += ", ▲ the true mean." if any(row.true is not None for row in card.trims) else "."
    if peers and card.alpha is not None:
        caption += " The answer above has the mean that the peer decided with, not that of the claims."
    return figure(partial(trims, card.trims, card.percent), caption)
