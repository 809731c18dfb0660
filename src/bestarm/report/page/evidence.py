"""The sections of the page of what recorded data show."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from bestarm.evidence.card import evidence_card, is_percent, steps
from bestarm.evidence.describe import (
    IF_INDEPENDENT,
    compared_briefly,
    evalue_said,
    mean_name,
    method,
    no_lead,
    ranked,
    remedies,
    status_of,
)
from bestarm.evidence.record import Evidence, Option
from bestarm.evidence.sites import AT_EACH_SITE, means_by_site
from bestarm.records.card import AnswerCard, LeadFacts
from bestarm.records.figures import (
    compared_said,
    gap_said,
    lead_places,
    mean_places,
    rough,
    said,
    span,
)
from bestarm.report.colours import colour
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.numbers import number, short
from bestarm.report.page.answer import evidence_answer
from bestarm.report.page.options import means_at_sites
from bestarm.report.page.parts import MOST_ROWS, Section, code, figure, filled, fold, in_two, made_by, prose
from bestarm.report.standings import State
from bestarm.report.svg.base import CHARACTER, PHONE, Axis, cut, path, svg, words
from bestarm.report.svg.base import MOST_ROWS as MOST_DRAWN
from bestarm.report.svg.chart import WON, dot
from bestarm.util.text import counted
from bestarm.version import __version__

UNSAVED = "evidence.json"  # what a record is called that was written to no file


def evidence_sections(
    evidence: Evidence, attached: Html | None, file_name: str | None = None
) -> list[Section]:
    """The page of a record of evidence; `attached` is a link to it, and `file_name` is where it was saved."""
    drawn = figure(partial(_forest, evidence), f"{_caption(evidence)}{_cut(evidence)}")
    made = [
        ("alarms", "What was withdrawn", _alarms(evidence)),
        ("intervals", "Means" if evidence.promise == "withdrawn" else "Means and intervals", drawn),
        ("options", "Each option", _options(evidence)),
        ("sites", "Each option at each site", _by_site(evidence)),
        ("notes", "Notes", _notes(evidence)),
        ("reproduce", "Check it", _reproduce(evidence, attached)),
    ]
    return [("top", "", _top(evidence, file_name)), *filled(made)]


def _top(evidence: Evidence, file_name: str | None) -> Html:
    told = steps(evidence)
    if file_name is None:
        told = [*told, f"The record was not saved: download it under “Check it” as {UNSAVED}, and check it."]
    command = f"bestarm verify {shlex.quote(file_name or UNSAVED)}"
    box = evidence_answer(evidence_card(evidence), told, command)
    return join(box, tag("p", clean(method(evidence), 600), class_="note"))


def _options(evidence: Evidence) -> Html:
    fisher, gaps = evidence.test == "exact", evidence.settings.question == "control"
    sites = evidence.settings.question == "each"
    head = ["option", "rows", "mean", "interval", "against the control" if gaps else "lead", "e-value"]
    head = [*(["site"] if sites else []), *head, *(["p-value"] if fisher else []), "status"]
    rows: list[list[Any]] = []
    card = evidence_card(evidence)
    place, lifts = _places(evidence), {lead.option: lead for lead in card.lifts}
    every = ranked(evidence)
    shown = every[:MOST_ROWS]
    for option, after in zip(shown, [*every[1:], None], strict=False):
        mark = dot(place[option.name], won=option.status == "best")
        cells: list[Any] = [name(option.site, 40)] if sites else []
        cells.append(tag("span", mark, name(option.name, 80), class_="option"))
        cells += [number(option.rows), *_mean(option, card)]
        if gaps:
            lift = lifts.get(option.name)
            cells.append("–" if lift is None else _against(lift, card))
        else:
            cells.append(_lead(option, after, card))
        cells.append(evalue_said(option.evalue) if option.tests else "–")
        if fisher:
            cells.append(number(_pvalue(option), 3))
        rows.append([*cells, status_of(evidence, option)])
    first = 1 + sites
    counts = {first, first + 1, first + 2, first + 3, first + 4, *({first + 5} if fisher else ())}
    marks: list[dict[str, Any]] = [
        {"data_option": place[option.name], "class_": _weight(option)} for option in shown
    ]

    def made(some: slice, caption: str) -> Html:
        return table(head, rows[some], numbers=counts, caption=caption, marks=marks[some])

    against = f"“{no_lead(evidence)}”" if gaps else "“this is the best option”"
    lead = "" if gaps else " Lead: how far an option is ahead of the next one."
    note = (
        f"The e-value is the evidence against {against}: for independent rows and if that is true, it is at "
        f"least x with probability at most 1/x.{lead} {_caption(evidence)}"
    )
    return join(in_two(len(every), made), tag("p", note, class_="note"))


def _by_site(evidence: Evidence) -> Html | None:
    """The means at each site, for questions that average over sites."""
    found = means_by_site(evidence)
    if found is None:
        return None
    words: dict[str | None, State] = {"won": "won", "lost": "out"}
    state: dict[str, State] = {o.name: words.get(_weight(o), "in") for o in evidence.options}
    note = f"{AT_EACH_SITE}: the mean of each option there. The best mean of a site is in bold."
    return means_at_sites(found, is_percent(evidence), _places(evidence), state, note)


def _places(evidence: Evidence) -> dict[str, int]:
    """The place of each option, which fixes its colour."""
    return {name: k for k, name in enumerate(dict.fromkeys(option.name for option in evidence.options))}


def _weight(option: Option) -> str | None:
    if option.status == "best":
        return "won"
    return "lost" if option.status in ("out", "worse") else None


def _lead(option: Option, after: Option | None, card: AnswerCard) -> str:
    """How far an option is ahead of the next one at the same site; of the first one as the card says it."""
    if after is None or after.site != option.site or option.mean is None or after.mean is None:
        return "–"
    own = f"{option.site}/{option.name}" if option.site else option.name
    leads = {lead.option: lead.value for lead in (*card.site_leads, *([card.lead] if card.lead else []))}
    gap = leads.get(own, option.mean - after.mean)
    return gap_said(gap, card.percent, card.unit, lead_places(card))


def _against(lead: LeadFacts, card: AnswerCard) -> str:
    main, ends = compared_said(lead, card.percent, card.unit, lead_places(card))
    main = main.removesuffix(f" than {lead.over}").removesuffix(f" as {lead.over}")
    return f"{main} ({ends})" if ends else main


def _mean(option: Option, card: AnswerCard) -> tuple[str, str]:
    """The mean of an option with the decimals of its column, and the interval, if the promise stands."""
    places = mean_places(card)
    if card.alpha is None:
        return rough(option.mean, card.percent), "–"
    mean = "–" if option.mean is None else said(option.mean, option.interval, card.percent, places=places)
    return mean, span(option.interval, card.percent)


def _pvalue(option: Option) -> float | None:
    found = [test.pvalue for test in option.tests if test.pvalue is not None]
    return min(found, default=None)


def _caption(evidence: Evidence) -> str:
    if evidence.promise == "withdrawn":
        return "No intervals are shown: they would be for independent rows."
    return (
        "The intervals and leads are those of the answer above; they hold all together, as it says "
        f"(α = {evidence.settings.alpha:g})."
    )


def _cut(evidence: Evidence) -> str:
    """What the picture leaves out."""
    count = sum(option.mean is not None for option in evidence.options)
    return f" The first {MOST_DRAWN} of {count:,} options are drawn." if count > MOST_DRAWN else ""


def _became(evidence: Evidence, option: Option) -> str:
    """What became of an option, in few letters."""
    if evidence.settings.question == "control":
        return compared_briefly(evidence.settings, option.status)
    return status_of(evidence, option)


def _forest(evidence: Evidence, width: int) -> Html | None:
    """Means and intervals, one row per option."""
    shown = [option for option in ranked(evidence) if option.mean is not None][:MOST_DRAWN]
    if not shown:
        return None
    narrow, card = width < PHONE, evidence_card(evidence)
    names = [f"{o.name} at {o.site}" if o.site else o.name for o in shown]
    places = _places(evidence)
    step, left = (44, 10) if narrow else (26, min(220, 24 + CHARACTER * max(map(len, names))))
    stands = evidence.promise != "withdrawn"
    ends = [end for option in shown for end in option.interval]  # also of means whose interval is not drawn
    x = Axis(min(ends), max(ends), left, width - (14 if narrow else 150))
    height = 12 + step * len(shown) + 62
    parts = []
    for value in x.ticks(4 if narrow else 6):
        parts.append(path([(x(value), 8), (x(value), height - 58)], class_="grid"))
        told = f"{short(100 * value)} %" if card.percent else short(value)
        parts.append(words(max(x(value), 16), height - 42, told, "middle", class_="tick"))
    unit = f" ({evidence.settings.unit})" if evidence.settings.unit else ""
    title = clean(f"{mean_name(evidence.settings)}{unit}", 50)
    parts.append(words((x.begin + x.end) / 2, height - 20, title, "middle", class_="tick"))
    for k, (option, label) in enumerate(zip(shown, names, strict=True)):
        y = 12 + step * k + (30 if narrow else 14)
        if narrow:
            parts.append(words(left, y - 14, cut(label, width - 130), class_="name"))
            parts.append(words(width - 6, y - 14, _became(evidence, option), "end", class_="tick"))
        else:
            parts.append(words(left - 12, y + 4, cut(label, left - 16), "end", class_="name"))
            parts.append(words(width - 140, y + 4, _became(evidence, option), class_="tick"))
        low, high = option.interval
        told = f"{label}: {', '.join(_mean(option, card))}; {_became(evidence, option)}"
        mark = path([(x(low), y), (x(high), y)], class_="whisker") if stands else None
        at = x(option.mean or 0.0)
        shape = tag("circle", cx=at, cy=y, r=5)
        if option.status == "best":
            shape = tag("path", d=WON, transform=f"translate({at:g} {y:g})", class_="star")
        weight = _weight(option)
        kind = f"c{colour(places[option.name])} line{f' {weight}' if weight else ''}"
        parts.append(tag("g", tag("title", told), mark, shape, class_=kind, data_tip=told))
    ends_told = "; ".join(
        f"{clean(n, 40)} {_mean(o, card)[0]}" for n, o in zip(names[:8], shown, strict=False)
    )
    return svg(width, height, f"Means of {counted(len(shown), 'option')}: {ends_told}", *parts)


def _alarms(evidence: Evidence) -> Html | None:
    if not evidence.alarms:
        return None
    listed = [tag("li", clean(f"{alarm.reason}.", 600)) for alarm in evidence.alarms[:MOST_ROWS]]
    return join(
        tag("p", IF_INDEPENDENT, class_="bad"),
        tag("ul", *listed),
        *[tag("p", prose(text)) for text in remedies(evidence)],
    )


def _notes(evidence: Evidence) -> Html | None:
    return (
        tag("ul", *[tag("li", prose(clean(note, 600))) for note in evidence.notes])
        if evidence.notes
        else None
    )


def _reproduce(evidence: Evidence, attached: Html | None) -> Html:
    settings = evidence.settings
    rows = [[key, str(getattr(settings, key))] for key in settings.__struct_fields__ if key != "weights"]
    rows += [
        [f"weight of {site}", number(share)] for site, share in list(settings.weights.items())[:MOST_ROWS]
    ]
    what = tag("p", "Every number here follows from the counts in the record: ", code("bestarm verify FILE"))
    made = {"bestarm": __version__, "record": evidence.version}
    return join(
        what,
        attached,
        fold("All settings", table(["setting", "value"], rows, caption="Every setting")),
        tag("p", made_by(made), class_="note"),
    )
