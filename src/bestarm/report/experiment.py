"""The page of a live experiment: arrivals, open assignments, late rewards, the leader, the expected end."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm.deploy.experiment.alarms import TEXT
from bestarm.deploy.experiment.status import Status
from bestarm.evidence.alarms import Alarm
from bestarm.report.markup import Html, tag

AGAIN = 5  # seconds until a browser asks for the page again
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #123; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .6rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } thead { border-bottom: 2px solid #357; }
.alarm { border-left: 4px solid #b33; padding-left: .8rem; } .slow { background: #fff3d6; }
@media (prefers-color-scheme: dark) {
  body { background: #111a22; color: #dde6ee; } .slow { background: #443a1c; }
}
"""
COLUMNS = (
    "site", "assigned", "per hour", "rewards", "open", "oldest open", "missing", "late",
    "not counted", "leader",
)  # fmt: skip


def page_of(status: Status, alarms: Sequence[Alarm]) -> str:
    """The page, which asks for itself again after some seconds."""
    rows = [
        tag(
            "tr",
            *(tag("td", value) for value in (
                site.site, f"{site.assigned:,}", f"{site.per_hour:,.0f}", f"{site.told:,}", f"{site.open:,}",
                "" if site.oldest is None else duration(site.oldest), f"{site.filled:,}", f"{site.late:,}",
                f"{site.unplanned + site.after:,}", site.leader,
            )),
            class_="slow" if site.holds_up and status.hold_up else None,
        )
        for site in status.sites
    ]  # fmt: skip
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in COLUMNS)))
    facts = [tag("li", line) for line in summary(status)]
    warnings = [tag("p", f"{alarm.cell}: {TEXT[alarm.kind]}.", class_="alarm") for alarm in alarms]
    body = tag(
        "body",
        tag("h1", headline(status)),
        tag("ul", *facts),
        *warnings,
        tag("table", head, tag("tbody", *rows)),
        tag("p", "If the assumptions hold, the probability of any alarm in the whole run is at most 0.01."),
    )
    again = tag("meta", http_equiv="refresh", content=str(AGAIN))
    head = tag("head", tag("meta", charset="utf-8"), again, tag("title", "bestarm experiment"),
               tag("style", Html(STYLE)))  # fmt: skip
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def headline(status: Status) -> str:
    """The state of an experiment in a few words."""
    if status.state == "running":
        return "The experiment is running"
    return f"The answer is: {status.answer}" if status.answer else "The experiment ended undecided"


def summary(status: Status) -> list[str]:
    """The facts of an experiment, a sentence each."""
    lines = [f"{status.assigned:,} assignments, {status.told:,} rewards, {status.blocks:,} blocks that count"]
    if status.leader is not None and status.state == "running":
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
    for size, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
