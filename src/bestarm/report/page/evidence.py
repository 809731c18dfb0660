"""The sections of the page of what recorded data show."""

from __future__ import annotations

import shlex
from functools import partial

from bestarm.evidence.card import evidence_card, is_percent, lead_cells, steps
from bestarm.evidence.describe import IF_INDEPENDENT, STATUS, mean_name, method, ranked, remedies
from bestarm.evidence.record import Evidence, Option
from bestarm.records.figures import said, span
from bestarm.report.colours import colour
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.numbers import number, short
from bestarm.report.page.answer import evidence_answer
from bestarm.report.page.parts import MOST_ROWS, Section, code, figure, filled, fold, made_by, prose
from bestarm.report.svg.base import CHARACTER, PHONE, Axis, cut, path, svg, words
from bestarm.report.svg.base import MOST_ROWS as MOST_DRAWN
from bestarm.util.text import counted
from bestarm.version import __version__


def evidence_sections(
    evidence: Evidence, attached: Html | None, file_name: str = "evidence.json"
) -> list[Section]:
    """The page of a record of evidence; `attached` is a link to it, and `file_name` its name."""
    drawn = figure(partial(_forest, evidence), _caption(evidence))
    made = [
        ("alarms", "What was withdrawn", _alarms(evidence)),
        ("intervals", "Means and intervals", drawn),
        ("options", "Each option", _options(evidence)),
        ("notes", "Notes", _notes(evidence)),
        ("reproduce", "Check it", _reproduce(evidence, attached)),
    ]
    return [("top", "", _top(evidence, file_name)), *filled(made)]


def _top(evidence: Evidence, file_name: str) -> Html:
    command = f"bestarm verify {shlex.quote(file_name)}"
    box = evidence_answer(evidence_card(evidence), steps(evidence), command)
    return join(box, tag("p", clean(method(evidence), 600), class_="note"))


def _options(evidence: Evidence) -> Html:
    fisher, gaps = evidence.test == "exact", evidence.settings.question == "control"
    sites = evidence.settings.question == "each"
    head = ["option", "rows", "mean", "interval", "e-value", "status"]
    head = [
        *(["site"] if sites else []),
        *head,
        *(["p-value"] if fisher else []),
        *(["lead"] if gaps else []),
    ]
    rows, leads = [], lead_cells(evidence_card(evidence))
    for option in ranked(evidence)[:MOST_ROWS]:
        cells: list[object] = [name(option.site, 40)] if sites else []
        cells += [name(option.name, 80), number(option.rows), *_mean(option, is_percent(evidence))]
        cells += [f"{option.evalue:.3g}" if option.tests else "–", STATUS[option.status]]
        if fisher:
            cells.append(number(_pvalue(option), 3))
        if gaps:
            lead, ends = leads.get(option.name, ("–", ""))
            cells.append(f"{lead} ({ends})" if ends else lead)
        rows.append(cells)
    made = table(head, rows, numbers=frozenset({1, 2, 4} if not sites else {2, 3, 5}), caption="Every option")
    against = "the first claim about it" if gaps else "“this is the best option”"
    note = (
        f"The e-value is the evidence against {against}: for independent rows and if that is true, it is at "
        f"least x with probability at most 1/x. {_caption(evidence)}"
    )
    return join(made, tag("p", note, class_="note"))


def _mean(option: Option, percent: bool) -> tuple[str, str]:
    """The mean of an option, rounded to its interval, and the interval."""
    mean = "–" if option.mean is None else said(option.mean, option.interval, percent)
    return mean, span(option.interval, percent)


def _pvalue(option: Option) -> float | None:
    found = [test.pvalue for test in option.tests if test.pvalue is not None]
    return min(found, default=None)


def _caption(evidence: Evidence) -> str:
    if evidence.promise == "withdrawn":
        return "The intervals are for independent rows, so nothing is promised about them here."
    return (
        "The intervals and leads are those of the answer above; they hold all together, as it says "
        f"(α = {evidence.settings.alpha:g})."
    )


def _forest(evidence: Evidence, width: int) -> Html | None:
    """Means and intervals, one row per option."""
    shown = [option for option in ranked(evidence) if option.mean is not None][:MOST_DRAWN]
    if not shown:
        return None
    narrow, percent = width < PHONE, is_percent(evidence)
    names = [f"{o.name} at {o.site}" if o.site else o.name for o in shown]
    places = {name: k for k, name in enumerate(dict.fromkeys(o.name for o in evidence.options))}
    step, left = (44, 10) if narrow else (26, min(220, 24 + CHARACTER * max(map(len, names))))
    ends = [end for option in shown for end in option.interval]
    x = Axis(min(ends), max(ends), left, width - (14 if narrow else 150))
    height = 12 + step * len(shown) + 62
    parts = []
    for value in x.ticks(4 if narrow else 6):
        parts.append(path([(x(value), 8), (x(value), height - 58)], class_="grid"))
        told = f"{short(100 * value)} %" if percent else short(value)
        parts.append(words(max(x(value), 16), height - 42, told, "middle", class_="tick"))
    unit = f" ({evidence.settings.unit})" if evidence.settings.unit else ""
    title = clean(f"{mean_name(evidence.settings)}{unit}", 50)
    parts.append(words((x.begin + x.end) / 2, height - 20, title, "middle", class_="tick"))
    for k, (option, label) in enumerate(zip(shown, names, strict=True)):
        y = 12 + step * k + (30 if narrow else 14)
        if narrow:
            parts.append(words(left, y - 14, cut(label, width - 130), class_="name"))
            parts.append(words(width - 6, y - 14, STATUS[option.status], "end", class_="tick"))
        else:
            parts.append(words(left - 12, y + 4, cut(label, left - 16), "end", class_="name"))
            parts.append(words(width - 140, y + 4, STATUS[option.status], class_="tick"))
        low, high = option.interval
        told = f"{label}: {', '.join(_mean(option, percent))}; {STATUS[option.status]}"
        mark = path([(x(low), y), (x(high), y)], class_="whisker")
        dot = tag("circle", cx=x(option.mean or 0.0), cy=y, r=5)
        lost = " lost" if option.status in ("out", "worse") else ""
        kind = f"c{colour(places.get(option.name, 0))} line{lost}"
        parts.append(tag("g", tag("title", told), mark, dot, class_=kind, data_tip=told))
    ends_told = "; ".join(
        f"{clean(n, 40)} {_mean(o, percent)[0]}" for n, o in zip(names[:8], shown, strict=False)
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
