"""The table of options by site: means, the value over all sites, and which sites disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from bestarm.records.figures import mean_places, rough, said
from bestarm.records.questions import OptionRow, OptionTable
from bestarm.report.colours import places
from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, join, name, table, tag, unbroken
from bestarm.report.numbers import number
from bestarm.report.page.parts import MOST_ROWS
from bestarm.report.standings import State, named, states, winners
from bestarm.report.svg.chart import dot
from bestarm.util.text import counted


def options_by_site(facts: RunFacts, found: OptionTable) -> Html:
    """Options as rows, sites as columns. The best mean of a site is bold; sites that disagree are marked."""
    dissent, state = dict(found.dissenters), states(facts)
    head: list[Any] = [
        "option",
        *(["value"] if found.weighted else []),
        *(_site(site, dissent if found.weighted else {}) for site in found.sites),
        "pulls",
        *(["result"] if found.weighted else []),
    ]
    answers = facts.verdict.answers if facts.verdict else ()
    stars = {(answer.site, answer.option) for answer in answers if answer.answer == "best"}
    ranked, place = _ranked(facts, found), places(facts.roster)
    rows, marks = _rows(found, ranked, facts.percent, place, state, stars)
    if found.weighted:
        for row, cells in zip(ranked, rows, strict=False):
            cells.insert(1, _value(facts, row))
            cells.append(named(facts) if row.name in winners(facts) else row.result)
    blank = [""] * found.weighted
    if found.weighted and len(set(filter(None, found.weights))) > 1:
        weights = [number(weight, 3) if weight else "–" for weight in found.weights]
        rows.append([tag("em", "weight of the site"), "", *weights, "", ""])
    at = [sum(row.at[j] for row in found.rows) for j in range(len(found.sites))]
    rows.append([tag("em", "pulls at the site"), *blank, *map(number, at), number(sum(at)), *blank])
    last = len(head) - found.weighted
    shown = table(head, rows, numbers=set(range(1, last)), caption=_caption(found), marks=marks)
    return join(_dissent(found), shown, _cut(found), tag("p", _note(facts, found), class_="note"))


def means_at_sites(
    found: OptionTable, percent: bool, place: Mapping[str, int], state: Mapping[str, State], note: str
) -> Html:
    """The same for recorded rows: the plain mean of each option at each site."""
    head = ["option", *(name(site, 60) for site in found.sites), "rows"]
    rows, marks = _rows(found, found.rows, percent, place, state)
    shown = table(head, rows, numbers=set(range(1, len(head))), caption=_caption(found), marks=marks)
    return join(shown, _cut(found), tag("p", note, class_="note"))


def _rows(
    found: OptionTable,
    ranked: Sequence[OptionRow],
    percent: bool,
    place: Mapping[str, int],
    state: Mapping[str, State],
    stars: Set[tuple[str | None, str | None]] = frozenset(),
) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """The option, its mean at each site and how often it was tried, and the marks of each row."""
    rows: list[list[Any]] = []
    marks: list[dict[str, Any]] = []
    for row in ranked[:MOST_ROWS]:
        means = [
            _mean(rough(mean, percent), best == row.name, (site, row.name) in stars)
            for site, mean, best in zip(found.sites, row.means, found.bests, strict=True)
        ]
        at, became = place.get(row.name, 0), state.get(row.name, "in")
        option = tag("span", dot(at, won=became == "won"), name(row.name, 80), class_="option")
        rows.append([option, *means, number(row.pulls)])
        marks.append({"data_option": at, "class_": {"won": "won", "out": "lost"}.get(became)})
    return rows, marks


def _cut(found: OptionTable) -> Html | None:
    more = len(found.rows) - MOST_ROWS
    return tag("p", f"{more:,} further options are in the record.", class_="note") if more > 0 else None


def _ranked(facts: RunFacts, found: OptionTable) -> list[OptionRow]:
    """The options in the order of the answer card, which may trim, once there is one."""
    ranks = {option.name: k for k, option in enumerate(facts.card.options)} if facts.card else {}
    return sorted(found.rows, key=lambda row: ranks.get(row.name, len(ranks)))


def _value(facts: RunFacts, row: OptionRow) -> str:
    """The value of an option over all sites: that of the answer card, once there is one."""
    places = mean_places(facts.card) if facts.card else None
    for option in facts.card.options if facts.card else ():
        if option.name == row.name and option.mean is not None and option.interval is not None:
            return said(option.mean, option.interval, facts.percent, places=places)
        if option.name == row.name and option.mean is not None:
            return rough(option.mean, facts.percent)
    return rough(row.value, facts.percent)


def _mean(mean: str, best: bool, answer: bool) -> Html | str:
    """A mean at a site: bold if it is the best there, with a star if the run named it."""
    if not best and not answer:
        return mean
    return tag("strong", unbroken("★ ") if answer else None, unbroken(mean), class_="best" if best else None)


def _site(site: str, dissent: dict[str, str]) -> Html:
    if site not in dissent:
        return name(site, 60)
    return join(name(site, 60), tag("span", "disagrees", class_="flag"))


def _caption(found: OptionTable) -> str:
    return "Options over all sites, and at each site" if found.weighted else "Options at each site"


def _note(facts: RunFacts, found: OptionTable) -> str:
    if not found.weighted:
        return "The mean of each option at each site; the best of a site is in bold. A star marks an answer."
    average = "average" if len(set(filter(None, found.weights))) <= 1 else "weighted average"
    f = facts.options.get("byzantine") or 0
    ends = "the highest and the lowest" if f == 1 else f"the {f} highest and the {f} lowest"
    rest = f", without {ends}, because {counted(f, 'site')} may lie" if f else ""
    return (
        f"The value of an option is its {average} over all sites{rest}. Beside it, its mean at each site; "
        "the best mean of a site is in bold. A mean alone proves nothing about a single site. Means at sites "
        "are those of closed blocks; pulls also count a last block that was not closed."
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
