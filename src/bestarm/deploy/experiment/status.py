"""What a live experiment looks like now: who leads, what each site has done, and who holds things up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from bestarm.deploy.experiment.assignments import Assignments, Tally
from bestarm.deploy.experiment.engine import Engine
from bestarm.deploy.waits import Wait, said
from bestarm.protocol.events import Ahead
from bestarm.protocol.machine import SiteServer
from bestarm.protocol.registry import method_for
from bestarm.protocol.trace import Certificate
from bestarm.protocol.verdict import Verdict
from bestarm.records.build import on_user_scale
from bestarm.records.card import AnswerCard, LeadFacts, OptionFacts

HOURS = 48  # of arrivals that a status shows
LEAST = 0.5  # a logarithm of wealth below this says nothing about the end
ONE_BLOCK = (
    "one block is open at a time: with epsilon, the evidence that an option is close enough belongs to the "
    "champion of the last block. Subjects who come in between get what leads at their site, and do not count"
)


class SiteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One site.

    Attributes
    ----------
    site : str
        Its name.
    assigned, told : int
        Assignments and rewards so far.
    counted, filled : int
        Rewards that count, and those that did not come in time and count as `missing`.
    late, unplanned, after : int
        Rewards after their deadline; assignments outside the plan, and after the verdict. They do not count.
    open : int
        Assignments of the plan whose reward is still to come.
    per_hour : float
        Assignments per hour, in the last hour.
    hours : tuple of int
        Assignments in each of the last hours of the clock, up to 48, the present one last.
    quiet : float
        Seconds since the last assignment; since the experiment began, if there is none.
    oldest : float or None
        The age of the oldest open assignment, in seconds.
    leader : str
        The option with the largest mean at this site.
    awaited : bool
        Whether the oldest block is incomplete without this site.
    holds_up : bool
        Whether rewards of other sites wait for it.
    dropped : bool
        Whether the site was dropped. Its subjects get the option that leads there, and do not count.
    answer : str or None
        The site's own answer, where each site has one and this one is known.
    """

    site: str
    assigned: int
    told: int
    counted: int
    filled: int
    late: int
    unplanned: int
    after: int
    open: int
    per_hour: float
    hours: tuple[int, ...]
    quiet: float
    oldest: float | None
    leader: str
    awaited: bool
    holds_up: bool
    dropped: bool = False
    answer: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment at one moment.

    Attributes
    ----------
    time, began : float or None
        Now, and the time of the first assignment, in seconds since 1970; None if there is no assignment.
    state : {"running", "identified", "undecided"}
        Whether there is a verdict, and which.
    answer : str or None
        The answer in words.
    blocks : int
        Blocks that count.
    assigned, told : int
        Assignments and rewards so far, at all sites.
    options : tuple of str
        The options that are still assigned.
    leader : str or None
        The option with the largest value so far; None where each site has its own answer, and before a
        reward of each option counts.
    lead : float or None
        Its lead over the next one, on the scale of the rewards: illustrative only while the experiment runs,
        and afterwards the same as in `leads`.
    waiting : int
        Rewards that can't be used yet, because blocks before them, or their own, are incomplete.
    hold_up : str
        Which sites the others wait for, and what that costs; empty if nobody waits.
    waits : tuple of Wait
        The same as numbers, a row for each site that is waited for.
    more : int or None
        A guess at how many more assignments the verdict needs; None if there is no basis for one.
    seconds : float or None
        A guess at the seconds until then.
    ends : float or None
        The time of the verdict if there is one; else a guess at it.
    note : str
        What else to know: which sites were dropped, and why sites have to wait for each other; else empty.
    sites : tuple of SiteStatus
        The sites.
    estimates : tuple of OptionFacts
        After the verdict: the mean of each option, with its interval, as the answer card shows it. Where
        each site has its own answer, also that of each option at each site, as `site/option`.
    leads : tuple of LeadFacts
        After the verdict: how far options are ahead, with intervals.
    risk : str
        After the verdict: how probable it is that the answer is wrong, or that any of these intervals misses.
    percent : bool
        Whether means are shares of successes.
    experiment : str
        The name of the experiment.
    asked : str
        The question in words.
    """

    time: float
    began: float | None
    state: str
    answer: str | None
    blocks: int
    assigned: int
    told: int
    options: tuple[str, ...]
    leader: str | None
    lead: float | None
    waiting: int
    hold_up: str
    waits: tuple[Wait, ...]
    more: int | None
    seconds: float | None
    ends: float | None
    note: str
    sites: tuple[SiteStatus, ...]
    estimates: tuple[OptionFacts, ...] = ()
    leads: tuple[LeadFacts, ...] = ()
    risk: str = ""
    percent: bool = False
    experiment: str = ""
    asked: str = ""


def status_of(engine: Engine, now: float) -> Status:
    """The status of an experiment."""
    now = max(now, engine.now)
    verdict, layout = engine.verdict, engine.problem.layout
    slow = set() if engine.over else set(engine.server.missing_clients())
    sites = tuple(_site(engine, i, now, group.name in slow) for i, group in enumerate(layout.groups))
    waiting = _waiting(engine)
    waits = _waits(engine, sites, waiting)
    late = {wait.site for wait in waits}
    sites = tuple(msgspec.structs.replace(site, holds_up=site.site in late) for site in sites)
    playing = {
        layout.groups[i].arms[arm]: None
        for i, lane in enumerate(engine.lanes)
        for arm in (lane.last.arms if lane.last is not None and not engine.ended(i) else ())
    }
    more, seconds = (None, None) if engine.over else _outlook(engine, sites)
    card, scale = engine.card, engine.problem.scale
    leader, lead = _leader(engine, card)
    binary = all(group.binary for group in layout.groups)
    return Status(
        time=now,
        began=_known(engine.began),
        state="running" if verdict is None else verdict.status,
        answer=None if verdict is None else on_user_scale(verdict, engine.problem.scale).summary,
        blocks=engine.server.rounds,
        assigned=len(engine.time),
        told=sum(site.told for site in sites),
        options=tuple(playing),
        leader=leader,
        lead=lead,
        waiting=waiting,
        hold_up=said(waits),
        waits=waits,
        more=more,
        seconds=seconds,
        ends=_known(engine.decided) if seconds is None else now + seconds,
        note=_note(engine, sites),
        sites=sites,
        percent=binary and (scale.low, scale.high) == (0.0, 1.0) and not scale.unit,
        experiment=engine.settings.name,
        asked=engine.settings.asked,
        **({} if card is None else _numbers(card)),
    )


def _note(engine: Engine, sites: Sequence[SiteStatus]) -> str:
    """What else to know about an experiment."""
    gone = [site.site for site in sites if site.dropped]
    found = [f"dropped: {', '.join(gone)}; the question is about the other sites"] if gone else []
    if not engine.over and (engine.server.state, Ahead) not in engine.server.transitions:
        found.append(ONE_BLOCK)
    return "; ".join(found)


def _numbers(card: AnswerCard) -> dict[str, Any]:
    """What the answer card says in numbers."""
    leads = (*([card.lead] if card.lead else []), *card.lifts, *card.site_leads)
    return {
        "estimates": (*card.options, *(card.cells or card.sites)), "leads": leads, "risk": card.risk,
    }  # fmt: skip


def _known(time: float) -> float | None:
    return None if math.isnan(time) else time


def site_status(assignments: Assignments, now: float, verdict: Verdict | None) -> Status:
    """The status of one site of a federation, which does not decide; `verdict`: the federation's."""
    now = max(now, assignments.now)
    waits = any(not batch.complete for batch in assignments.lanes[0].batches)
    site = _site(assignments, 0, now, awaited=waits and not assignments.over)
    site = msgspec.structs.replace(site, holds_up=site.awaited)
    return Status(
        time=now, began=_known(assignments.began), state="running" if verdict is None else verdict.status,
        answer=None if verdict is None else verdict.summary, blocks=0,
        assigned=site.assigned, told=site.told,
        options=assignments.problem.layout.groups[0].arms, leader=site.leader, lead=None, waiting=0,
        hold_up="", waits=(), more=None, seconds=None, ends=_known(assignments.decided),
        note="", sites=(site,), experiment=assignments.settings.name,
    )  # fmt: skip


def _site(engine: Assignments, i: int, now: float, awaited: bool) -> SiteStatus:
    tally, group = engine.tallies[i], engine.problem.layout.groups[i]
    means = engine.means(i)
    oldest = next((k for k in engine.batch if engine.site[k] == i), None)  # in the order of assignment
    return SiteStatus(
        site=group.name,
        assigned=tally.assigned,
        told=tally.told,
        counted=tally.counted,
        filled=tally.filled,
        late=tally.late,
        unplanned=tally.unplanned,
        after=tally.after,
        open=tally.open,
        per_hour=tally.pace(now, engine.began),
        hours=_hours(tally, now, engine.began),
        quiet=0.0 if math.isnan(engine.began) else now - (tally.last if tally.assigned else engine.began),
        oldest=None if oldest is None or engine.ended(i) else now - engine.time[oldest],
        leader=group.arms[max(range(len(means)), key=means.__getitem__)],
        awaited=awaited,
        holds_up=False,  # whether others wait for it, a status knows
        dropped=engine.dropped_site(i),
        answer=group.arms[engine.settled[i]] if isinstance(engine, Engine) and i in engine.settled else None,
    )


def _leader(engine: Engine, card: AnswerCard | None) -> tuple[str | None, float | None]:
    """The option with the largest value, and its lead; none before every option has a reward at its sites."""
    if card is not None and card.lead is not None:
        return card.lead.option, card.lead.value
    layout, values = engine.problem.layout, dict[str, float]()
    groups = [(i, group) for i, group in enumerate(layout.groups) if i not in engine.dropped]
    unknown = any(not engine.lanes[i].counts.get(a) for i, group in groups for a in range(len(group.arms)))
    if layout.question.kind == "each" or unknown:
        return None, None
    weights = layout.question.weights
    total = math.fsum(weights[i] for i, _ in groups) if weights else 1.0
    for i, group in groups:
        lane = engine.lanes[i]
        for a, arm in enumerate(group.arms):
            mean = lane.totals[a] / lane.counts[a]
            if weights:
                values[arm] = values.get(arm, 0.0) + weights[i] / total * mean
            else:
                values[f"{group.name}/{arm}"] = mean
    first, *rest = sorted(values, key=values.__getitem__, reverse=True)
    lead = values[first] - values[rest[0]] if rest else 0.0
    return first, lead * engine.problem.scale.width


def _waiting(engine: Engine) -> int:
    """The rewards that are in, and in no block that is closed."""
    if engine.over:
        return 0
    arrived = sum(tally.counted + tally.filled for tally in engine.tallies)
    closed: list[int] = engine.server.history[-1].get("count", []) if engine.server.history else []
    return max(0, arrived - sum(closed))


def _waits(engine: Engine, sites: tuple[SiteStatus, ...], waiting: int) -> tuple[Wait, ...]:
    """Which sites the oldest block waits for, and what that costs."""
    slow, found = {site.site: site for site in sites if site.awaited}, list[Wait]()
    for site in slow.values() if waiting else ():
        server = engine.server
        others = server.together(site.site) if isinstance(server, SiteServer) else list(engine.index)
        if all(name in slow for name in others):  # nobody has to wait for it
            continue
        batches = engine.lanes[engine.index[site.site]].batches
        left = batches[0].size - batches[0].given if batches else 0
        found.append(
            Wait(
                site=site.site,
                to_assign=left,
                to_come=batches[0].given - batches[0].told if batches else 0,
                seconds=left * 3600.0 / site.per_hour if site.per_hour else None,
                rewards=waiting,
            )
        )
    return tuple(found)


def _hours(tally: Tally, now: float, began: float) -> tuple[int, ...]:
    """The assignments in each of the last hours since the experiment began."""
    if math.isnan(began):
        return ()
    last = int(now // 3600)
    first = max(int(began // 3600), last - HOURS + 1)
    return tuple(tally.hours.get(hour, 0) for hour in range(first, last + 1))


def _outlook(engine: Engine, sites: tuple[SiteStatus, ...]) -> tuple[int | None, float | None]:
    """A guess at the assignments and the seconds until the verdict.

    The logarithm of the wealth that is furthest from its limit grows in proportion to pulls. Where sites have
    answers of their own, the verdict comes with the last one.
    """
    server, more, seconds = engine.server, 0, 0.0
    sites = tuple(site for site in sites if not site.dropped)
    if isinstance(server, SiteServer):
        parts = {tuple(server.together(site.site)) for site in sites if site.answer is None}
        found = [(part, server.progress(part[0])) for part in parts]
    else:
        found = [(tuple(engine.index), _furthest(engine))]
    for part, progress in found:
        own = [site for site in sites if site.site in part]
        if progress is None or progress[0] <= LEAST:
            return None, None
        counted = sum(site.counted + site.filled for site in own)
        left = max(0, math.ceil(counted * (progress[1] / progress[0] - 1.0)))
        pace = math.fsum(site.per_hour for site in own) / 3600.0
        more, seconds = more + left, max(seconds, left / pace if pace > 0 else math.inf)
    return more, seconds if seconds < math.inf else None


def _furthest(engine: Engine) -> tuple[float, float] | None:
    """The logarithm of the wealth that is furthest from its limit, and the limit, where clients keep them."""
    layout = engine.problem.layout
    room = method_for(engine.method, layout, engine.options)
    local = {client.name: client.local() for client in engine.clients}
    arms, clients = layout.arm_counts, tuple(group.clients for group in layout.groups)
    trace = room.trace(Certificate(engine.unit, arms, clients, engine.server.certificate(), local))
    found = trace.wealths()
    if found is None or not found.bets:
        return None
    last = {(bet.group, bet.arm): bet.log_wealth for bet in found.bets}
    last.pop(found.bets[-1].champion, None)
    least = min((wealth for wealth in last.values() if wealth < found.limit), default=found.limit)
    return least, found.limit
