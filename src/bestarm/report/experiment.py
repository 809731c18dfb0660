"""The page of a live experiment: who leads, arrivals per hour, each site's pace, the expected end.

It needs no script: the browser asks for it again every few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bestarm.deploy.experiment.alarms import TEXT
from bestarm.deploy.experiment.settings import Settings
from bestarm.deploy.experiment.status import SiteStatus, Status
from bestarm.records.figures import difference_said, gap_said, option_said, two_digits
from bestarm.records.questions import intent
from bestarm.report.markup import Html, clean, name, table, tag
from bestarm.report.page.answer import entry
from bestarm.report.page.parts import MOST_ROWS, Section, code, figure, filled, style
from bestarm.report.svg.arrivals import arrivals
from bestarm.stats.alarms import FALSE_ALARMS, Alarm
from bestarm.util.text import counted

AGAIN = 5  # seconds until a browser asks for the page again

KINDS = {"identified": "yes", "undecided": "no"}


def page_of(status: Status, alarms: Sequence[Alarm], settings: Settings | None = None) -> str:
    """The page, which asks for itself again after some seconds; `settings` say what is promised."""
    parts = [
        tag("section", tag("h2", title), body, id=key) if title else body
        for key, title, body in sections_of(status, alarms, settings)
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="refresh", content=str(AGAIN)),
        tag("title", f"bestarm: {clean(headline(status), 80)}"),
        tag("style", Html(style())),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *parts)), lang='en')}\n"


def sections_of(status: Status, alarms: Sequence[Alarm], settings: Settings | None = None) -> list[Section]:
    """The sections of the page, which ``bestarm watch`` shows too."""
    made = [
        ("top", "", _card(status, alarms, settings)),
        ("arrivals", "Arrivals", _arrivals(status)),
        ("sites", "Sites", _sites(status)),
    ]
    return filled(made)


def _card(status: Status, alarms: Sequence[Alarm], settings: Settings | None) -> Html:
    """The answer card: the same shape before and after the verdict."""
    warned = [tag("li", f"{clean(alarm.cell, 120)}: {TEXT[alarm.kind]}.") for alarm in alarms]
    running = status.state == "running"
    labels = [clean(status.experiment, 80)] if status.experiment else []
    labels.append(f"a live experiment at {counted(len(status.sites), 'site')}")
    if status.began is not None:
        labels.append(f"since {clock(status.began)}")
    if settings is not None:
        labels += [f"asked: {settings.asked}", f"δ = {settings.delta:g}"]
        if not running:  # until then it would tell the next assignments
            labels.append(f"seed {settings.seed}")
    rows = [*_leader(status, settings), _risk(status, settings), _so_far(status), _end(status)]
    rest = f"Still assigned: {', '.join(map(clean, status.options))}." if running and status.options else ""
    if status.note:
        rest = f"{rest} {status.note[0].upper()}{status.note[1:]}.".lstrip()
    return tag(
        "div",
        tag("p", " · ".join(labels), class_="labels"),
        tag("ul", *warned, class_="alarms") if warned else None,
        tag("h1", clean(headline(status), 300), id="verdict"),
        tag("dl", *[row for row in rows if row], class_="answers"),
        tag("p", clean(rest, 600), class_="note") if rest else None,
        _next(status, settings),
        class_=f"verdict card {KINDS.get(status.state, '')}".rstrip(),
    )


def _leader(status: Status, settings: Settings | None) -> list[Html]:
    if status.state == "identified":
        return _numbers(status, settings)  # the headline says which
    if status.state != "running":
        leads = [entry("Leads", name(status.leader, 60), "not shown to be the best")] if status.leader else []
        return [*leads, *_numbers(status, settings)]
    if status.leader is None:
        by_site = settings is not None and settings.question.get("question") == "each"
        nobody = [entry("Leads", "nobody yet", "not every option has a reward that counts")]
        return [] if by_site else nobody
    found = [entry("Leads", name(status.leader, 60), "the highest mean so far")]
    if status.lead is not None:
        apart = gap_said(status.lead, status.percent, "" if settings is None else settings.unit)
        found.append(entry("Lead so far", apart, "over the next option", "Not a result yet."))
    return found


def _numbers(status: Status, settings: Settings | None) -> list[Html]:
    """The mean of what was named and how far it is ahead, with intervals that hold at the verdict."""
    unit = "" if settings is None else settings.unit
    means = [
        f"{clean(row.name, 60)}: {option_said(row, status.percent, unit)}"
        for row in status.estimates[:MOST_ROWS]
        if row.pulls or row.mean is not None
    ]
    leads = [
        f"{clean(lead.option, 60)}: {clean(difference_said(lead, status.percent, unit), 120)}"
        for lead in status.leads[:MOST_ROWS]
    ]
    title = "Ahead by" if all(lead.kind == "runner-up" for lead in status.leads) else "Compared"
    if status.state != "identified" and title == "Ahead by":
        title = "Lead"
    found = [entry(title, leads[0], *leads[1:])] if leads else []
    return [*found, *([entry("Means", means[0], *means[1:])] if means else [])]


def _risk(status: Status, settings: Settings | None) -> Html | None:
    if settings is None:
        return None
    said = status.risk or intent(settings.problem().to_dict(), settings.delta)
    return entry("Risk", f"δ = {settings.delta:g}", said)


def _so_far(status: Status) -> Html:
    open_ = sum(site.open for site in status.sites)
    late = sum(site.late for site in status.sites)
    notes = [f"{counted(status.told, 'reward')}, {open_:,} open, {late:,} late"]
    notes.append(f"{counted(status.blocks, 'block')} that count{'s' * (status.blocks == 1)}")
    title = "Cost so far" if status.state == "running" else "Cost"
    return entry(title, counted(status.assigned, "assignment"), *notes)


def _end(status: Status) -> Html:
    if status.state != "running":
        ended = "" if status.ends is None else clock(status.ends)
        return entry("Ended", ended or "yes")
    if status.more is None:
        return entry("Expected end", "not known yet", "No option is far enough ahead for a guess.")
    more = f"about {counted(two_digits(status.more), 'more assignment')}, a guess"
    if status.seconds is None or status.ends is None:
        return entry("Expected end", "no arrivals", more)
    return entry("Expected end", f"in {duration(status.seconds)}", clock(status.ends), more)


def _next(status: Status, settings: Settings | None) -> Html | None:
    """What holds up the experiment, if anything does; after it, the commands for its record."""
    if status.state != "running":
        steps = [tag("li", code(f"bestarm {command} FOLDER")) for command in ("verify", "report")]
        said = [
            tag("p", "Check the answer, and get the whole report, with the experiment's folder:"),
            tag("ul", *steps),
        ]
        return tag("div", tag("h2", "Next step"), *said, class_="next")
    said = [
        tag(
            "p",
            clean(
                f"{wait.text}: {wait.rewards:,} reward{'s wait' if wait.rewards != 1 else ' waits'} for it.",
                300,
            ),
        )
        for wait in status.waits
    ]
    if status.waits and settings is not None and settings.deadline is not None:
        until = f"A reward that has not come {duration(settings.deadline)} after its assignment counts as"
        said.append(tag("p", f"{until} {settings.missing:g}.", class_="note"))
    if not said:
        said = [tag("p", "Nothing holds things up. The page shows the newest numbers every few seconds.")]
    return tag(
        "div", tag("h2", "What holds things up" if status.waits else "Next step"), *said, class_="next"
    )


def _arrivals(status: Status) -> Html | None:
    caption = "Assignments in each of the last hours, by site. The last bar is the present hour, so far."
    return figure(partial(arrivals, [(site.site, site.hours) for site in status.sites], status.time), caption)


COLUMNS = (
    "site", "state", "per hour", "assigned", "rewards", "open", "oldest open", "missing", "late",
    "not counted", "leader",
)  # fmt: skip


def _sites(status: Status) -> Html:
    rows = [_row(status, site) for site in status.sites[:MOST_ROWS]]
    marks: list[dict[str, Any]] = [
        {"class_": "slow" if _slow(status, site) else None} for site in status.sites[:MOST_ROWS]
    ]
    kept = table(
        list(COLUMNS),
        rows,
        numbers=set(range(2, 10)),
        caption="Every site, its pace, and what is open",
        marks=marks,
    )
    rate = tag(
        "p",
        "Per hour: the pace of assignments in the last hour, or since the start. Missing: rewards that did "
        "not come by their deadline. Late rewards came after it and do not count. If the assumptions hold, "
        f"the probability of any alarm in the whole run is at most {FALSE_ALARMS:g}.",
        class_="note",
    )
    return tag("div", kept, rate)


def _slow(status: Status, site: SiteStatus) -> bool:
    return site.holds_up and bool(status.hold_up)  # a site of a federation does not know what waits


def _row(status: Status, site: SiteStatus) -> list[Any]:
    state = "holds things up" if _slow(status, site) else site.answer or "runs"
    if status.state != "running":
        state = site.answer or "ended"
    elif site.dropped:
        state = "dropped"
    elif not site.assigned:
        state = "no arrivals yet"
    return [
        name(site.site, 60),
        tag("strong", state) if _slow(status, site) else clean(state, 80),
        f"{site.per_hour:,.0f}",
        f"{site.assigned:,}",
        f"{site.told:,}",
        f"{site.open:,}",
        "–" if site.oldest is None else duration(site.oldest),
        f"{site.filled:,}",
        f"{site.late:,}",
        f"{site.unplanned + site.after:,}",
        name(site.leader, 60),
    ]


def headline(status: Status) -> str:
    """The state of an experiment in a few words."""
    if status.state == "running":
        return "The experiment is running"
    return f"The answer is: {status.answer}" if status.answer else "The experiment ended undecided"


def summary(status: Status) -> list[str]:
    """The facts of an experiment, a sentence each."""
    lines = [
        f"{counted(status.assigned, 'assignment')}, {counted(status.told, 'reward')}, "
        f"{counted(status.blocks, 'block')} that count{'s' * (status.blocks == 1)}"
    ]
    if status.asked:
        whose = f"experiment {status.experiment}, " if status.experiment else ""
        lines.insert(0, f"{whose}asked: {status.asked}")
    if status.leader is not None and status.lead is not None and status.told and status.state == "running":
        lines.append(f"{status.leader} leads by {gap_said(status.lead, status.percent)} (illustrative only)")
    tried = [row for row in status.estimates if row.pulls or row.mean is not None]
    rows = [(row.name, option_said(row, status.percent)) for row in tried[:MOST_ROWS]]
    rows += [
        (lead.option, "ahead by " * (lead.kind == "runner-up") + difference_said(lead, status.percent))
        for lead in status.leads[:MOST_ROWS]
    ]
    lines += [f"{option}: {said}" for option, said in rows]
    if status.options:
        lines.append(f"still assigned: {', '.join(status.options)}")
    if status.more is not None:
        when = "" if status.seconds is None else f", about {duration(status.seconds)}"
        lines.append(
            f"the verdict needs about {two_digits(status.more):,} more assignments{when} (an estimate)"
        )
    lines += [text for text in (status.hold_up, status.note) if text]
    return lines


def duration(seconds: float) -> str:
    """A time in one unit.

    >>> duration(7300.0), duration(45.0)
    ('2 hours', '45 seconds')
    """
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def clock(seconds: float) -> str:
    """A time of the clock.

    >>> clock(0.0)
    '1970-01-01 00:00 UTC'
    """
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
