"""The table of options by site: means, the value over all sites, and which sites disagree."""

from __future__ import annotations

from typing import Any

from bestarm.records.figures import rough
from bestarm.records.questions import OptionTable
from bestarm.report.colours import places
from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.numbers import number
from bestarm.report.page.parts import MOST_ROWS
from bestarm.report.standings import states
from bestarm.report.svg.chart import dot


def options_by_site(facts: RunFacts, found: OptionTable) -> Html:
    """Options as rows, sites as columns. The best mean of a site is bold; sites that disagree are marked."""
    dissent, place, state = dict(found.dissenters), places(facts.roster), states(facts)
    head: list[Any] = [
        "option",
        *(["value"] if found.weighted else []),
        *(_site(site, dissent if found.weighted else {}) for site in found.sites),
        "pulls",
        *(["result"] if found.weighted else []),
    ]
    answers, percent = facts.verdict.answers if facts.verdict else (), bool(facts.card and facts.card.percent)
    named = {(answer.site, answer.option) for answer in answers if answer.answer == "best"}
    rows: list[list[Any]] = []
    for row in found.rows[:MOST_ROWS]:
        value = [rough(row.value, percent)] if found.weighted else []
        means = [
            _mean(rough(mean, percent), best == row.name, (site, row.name) in named)
            for site, mean, best in zip(found.sites, row.means, found.bests, strict=True)
        ]
        option = tag("span", dot(place.get(row.name, 0)), name(row.name, 80), class_="option")
        rows.append([option, *value, *means, number(row.pulls), *([row.result] if found.weighted else [])])
    marks: list[dict[str, Any]] = [
        {
            "data_option": place.get(row.name, 0),
            "class_": {"won": "won", "out": "lost"}.get(state.get(row.name, "in")),
        }
        for row in found.rows[:MOST_ROWS]
    ]
    if found.weighted and len(set(found.weights)) > 1:
        weights = [number(weight, 3) for weight in found.weights]
        rows.append([tag("em", "weight of the site"), "", *weights, "", ""])
    last = len(head) - found.weighted
    shown = table(head, rows, numbers=set(range(1, last)), caption=_caption(found), marks=marks)
    more = len(found.rows) - MOST_ROWS
    cut = tag("p", f"{more:,} further options are in the record.", class_="note") if more > 0 else None
    return join(_dissent(found), shown, cut, tag("p", _note(found), class_="note"))


def _mean(mean: str, best: bool, answer: bool) -> Html | str:
    """A mean at a site: bold if it is the best there, with a star if the run named it."""
    if not best and not answer:
        return mean
    return tag("strong", "★ " if answer else None, mean, class_="best" if best else None)


def _site(site: str, dissent: dict[str, str]) -> Html:
    if site not in dissent:
        return name(site, 60)
    return join(name(site, 60), tag("span", "disagrees", class_="flag"))


def _caption(found: OptionTable) -> str:
    return "Options over all sites, and at each site" if found.weighted else "Options at each site"


def _note(found: OptionTable) -> str:
    if not found.weighted:
        return "The mean of each option at each site; the best of a site is in bold. A star marks an answer."
    average = "average" if len(set(found.weights)) <= 1 else "weighted average"
    return (
        f"The value of an option is its {average} over all sites. Beside it, its mean at each site; the best "
        "mean of a site is in bold. A mean alone proves nothing about a single site."
    )


def _dissent(found: OptionTable) -> Html | None:
    if not found.weighted:
        return None
    known = [best for best in found.bests if best is not None]
    if not found.dissenters:
        agree = ["All sites agree: ", name(found.first, 60), " has the best mean everywhere."]
        return tag("p", *agree) if len(known) == len(found.sites) else None
    parts = [
        [", " if k else None, name(site, 60), " (", name(best, 60), ")"]
        for k, (site, best) in enumerate(found.dissenters)
    ]
    verb = "disagrees" if len(found.dissenters) == 1 else "disagree"
    count = f"{len(found.dissenters)} of {len(found.sites)} sites {verb}"
    return tag("p", f"{count}: another option has the best mean at ", *parts, ".")
