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
from bestarm.evidence.alarms import FALSE_ALARMS, Alarm
from bestarm.records.questions import intent
from bestarm.report.markup import Html, clean, name, table, tag
from bestarm.report.page.answer import entry
from bestarm.report.page.parts import MOST_ROWS, figure, style
from bestarm.report.svg.arrivals import arrivals
from bestarm.util.text import counted

AGAIN = 5  # seconds until a browser asks for the page again

KINDS = {"identified": "yes", "undecided": "no"}


def page_of(status: Status, alarms: Sequence[Alarm], settings: Settings | None = None) -> str:
    """The page, which asks for itself again after some seconds; `settings` say what is promised."""
    parts = [
        _card(status, alarms, settings),
        _section("arrivals", "Arrivals", _arrivals(status)),
        _section("sites", "Sites", _sites(status)),
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


def _section(key: str, title: str, body: Html | None) -> Html | None:
    return None if body is None else tag("section", tag("h2", title), body, id=key)


def _card(status: Status, alarms: Sequence[Alarm], settings: Settings | None) -> Html:
    """The answer card: the same shape before and after the verdict."""
    warned = [tag("li", f"{clean(alarm.cell, 120)}: {TEXT[alarm.kind]}.") for alarm in alarms]
    running = status.state == "running"
    labels = [f"a live experiment at {counted(len(status.sites), 'site')}"]
    if status.began is not None:
        labels.append(f"since {clock(status.began)}")
    if settings is not None:
        labels += [f"δ = {settings.delta:g}", f"seed {settings.seed}"]
    rows = [*_leader(status), _risk(settings), _so_far(status), _end(status)]
    rest = f"Still assigned: {', '.join(map(clean, status.options))}." if running and status.options else ""
    return tag(
        "div",
        tag("p", " · ".join(labels), class_="labels"),
        tag("ul", *warned, class_="alarms") if warned else None,
        tag("h1", clean(headline(status), 300), id="verdict"),
        tag("dl", *[row for row in rows if row], class_="answers"),
        tag("p", clean(rest, 600), class_="note") if rest else None,
        _next(status),
        class_=f"verdict card {KINDS.get(status.state, '')}".rstrip(),
    )


def _leader(status: Status) -> list[Html]:
    if status.leader is None:
        return []
    if status.state != "running":
        return [entry("Leads", name(status.leader, 60))]
    found = [entry("Leads", name(status.leader, 60), "the highest mean so far")]
    if status.lead is not None:
        found.append(entry("Lead so far", f"{status.lead:.3g}", "over the next option", "Not a result yet."))
    return found


def _risk(settings: Settings | None) -> Html | None:
    if settings is None:
        return None
    return entry("Risk", f"δ = {settings.delta:g}", intent(settings.problem().to_dict(), settings.delta))


def _so_far(status: Status) -> Html:
    open_ = sum(site.open for site in status.sites)
    late = sum(site.late for site in status.sites)
    notes = [f"{counted(status.told, 'reward')}, {open_:,} open, {late:,} late"]
    notes.append(f"{counted(status.blocks, 'block')} that count{'s' * (status.blocks == 1)}")
    return entry("Cost so far", counted(status.assigned, "assignment"), *notes)


def _end(status: Status) -> Html:
    if status.state != "running":
        ended = "" if status.ends is None else clock(status.ends)
        return entry("Ended", ended or "yes")
    if status.more is None:
        return entry("Expected end", "not known yet", "No option is far enough ahead for a guess.")
    more = f"{counted(status.more, 'more assignment')}, a guess"
    if status.seconds is None or status.ends is None:
        return entry("Expected end", "no arrivals", more)
    return entry("Expected end", f"in {duration(status.seconds)}", clock(status.ends), more)


def _next(status: Status) -> Html | None:
    """What keeps the experiment from going on, if anything does."""
    if status.state != "running":
        return None
    said = [
        tag("p", clean(f"{wait.text}: {wait.rewards:,} rewards wait for it.", 300)) for wait in status.waits
    ]
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
        "Per hour: assignments in the last hour. Missing: rewards that did not come by their deadline. Late "
        "rewards came after it and do not count. If the assumptions hold, the probability of any alarm in "
        f"the whole run is at most {FALSE_ALARMS:g}.",
        class_="note",
    )
    return tag("div", kept, rate)


def _slow(status: Status, site: SiteStatus) -> bool:
    return site.holds_up and bool(status.hold_up)


def _row(status: Status, site: SiteStatus) -> list[Any]:
    state = "holds things up" if _slow(status, site) else site.answer or "runs"
    if status.state != "running":
        state = site.answer or "ended"
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
    lines = [f"{status.assigned:,} assignments, {status.told:,} rewards, {status.blocks:,} blocks that count"]
    if status.leader is not None and status.lead is not None and status.state == "running":
        lines.append(f"{status.leader} leads by {status.lead:.3g} (illustrative only)")
    if status.options:
        lines.append(f"still assigned: {', '.join(status.options)}")
    if status.more is not None:
        when = "" if status.seconds is None else f", about {duration(status.seconds)}"
        lines.append(f"the verdict needs about {status.more:,} more assignments{when} (a guess)")
    if status.hold_up:
        lines.append(status.hold_up)
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
