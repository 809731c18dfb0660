"""From counts to e-values, statuses and a verdict: pure functions of a record's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm.errors import InputError
from bestarm.evidence.any_time import replay
from bestarm.evidence.contests import Contest, Floats
from bestarm.evidence.estimates import Estimates
from bestarm.evidence.notes import notes_of
from bestarm.evidence.once import MOST_FOR_FISHER, Claims, Watch, log_evalues, log_mean, pvalues
from bestarm.evidence.record import (
    LARGEST,
    SCHEMA,
    Blocks,
    Counts,
    Evidence,
    Lead,
    Look,
    Option,
    Settings,
    Test,
)
from bestarm.problem.scale import Scale
from bestarm.stats.alarms import Check, alarms
from bestarm.stats.sums import Sums
from bestarm.version import __version__

BEST = "it is the best"


@dataclass(frozen=True)
class Finding:
    """The evidence against each claim of a contest, all looks together."""

    log_evalues: Floats
    pvalues: Floats | None


def claims_of(contest: Contest, settings: Settings) -> Claims:
    """The statements that a question disputes."""
    if settings.question != "control":
        return Claims.best(len(contest.options))
    control = contest.options.index(settings.control or "")
    return Claims.control(len(contest.options), control, _margin(settings))


def _margin(settings: Settings) -> float:
    """The margin on [0, 1]."""
    width = 1.0 if settings.bounds is None else settings.bounds[1] - settings.bounds[0]
    return settings.margin / width


def level_of(contest: Contest, settings: Settings, contests: int) -> float:
    """The level at which a claim is rejected."""
    if settings.question == "control":  # two directions, or four claims with a margin, for each option
        return settings.delta / ((4 if settings.margin > 0 else 2) * (len(contest.options) - 1))
    return settings.delta / contests if settings.simultaneous else settings.delta


def uses_fisher(contest: Contest, settings: Settings) -> bool:
    """Whether Fisher's tests decide: the layout and the settings say so, never the rewards."""
    coins = settings.bounds is None and settings.look == "once" and contest.single
    return coins and settings.margin == 0 and len(contest.options) <= MOST_FOR_FISHER


def combine(findings: Sequence[Finding], looks: int) -> Finding:
    """The evidence of several looks: Σ E/looks, and the smallest p-value times the number of looks.

    Looks that are declared and not made yet count as 0, which is the worst that they can be.
    """
    shift = math.log(len(findings) / looks)
    logs = log_mean(np.array([finding.log_evalues for finding in findings])) + shift
    found = [finding.pvalues for finding in findings if finding.pvalues is not None]
    return Finding(logs, np.minimum(1.0, looks * np.min(found, axis=0)) if found else None)


def tests_of(finding: Finding, settings: Settings, level: float) -> list[Test]:
    """Each claim of a contest with its evidence."""
    number = len(finding.log_evalues)
    names = [BEST] * number
    if settings.question == "control":
        kinds = ["not better", "not worse", "better", "worse"][: 4 if settings.margin > 0 else 2]
        names = [kind for kind in kinds for _ in range(number // len(kinds))]
    found = []
    for k, log in enumerate(finding.log_evalues.tolist()):
        p = None if finding.pvalues is None else float(finding.pvalues[k])
        evalue = min(math.exp(min(log, 700.0)), LARGEST)
        rejected = log >= math.log(1 / level) if p is None else p <= level
        found.append(Test(names[k], level, evalue, p, rejected))
    return found


def options_of(
    estimates: Estimates, tests: Sequence[Test], statuses: Sequence[str], control: int, *, stands: bool
) -> list[Option]:
    """Every option of a contest; `control` is the option that others are compared with, or −1.

    `stands` says whether the promise does.
    """
    contest, scale = estimates.contest, scale_of(estimates.settings)
    means, ends, rows = estimates.means, estimates.ends, estimates.sums.count.sum(axis=-1)
    margin = _margin(estimates.settings)
    gaps = estimates.gaps(control) if control >= 0 else None
    found = []
    for a, name in enumerate(contest.options):
        gap = span = None
        if gaps is not None and a != control:
            low, high = float(gaps[0][a]), float(gaps[1][a])
            if stands:  # else what was found may be wrong more often
                low, high = claimed(low, high, statuses[a], margin)
            sign = (1.0 if scale.goal == "max" else -1.0) * (scale.high - scale.low)
            least, most = sorted((sign * low, sign * high))
            gap, span = _number(sign * min(max(means[a] - means[control], low), high)), (least, most)
        found.append(
            Option(
                name,
                contest.site,
                int(rows[a]),
                _number(scale.user(float(means[a]))),
                scale.user_interval(float(ends[0][a]), float(ends[1][a])),
                statuses[a],
                _own(tests, a, control, len(contest.options)),
                gap,
                span,
            )
        )
    return found


def claimed(low: float, high: float, status: str, margin: float) -> tuple[float, float]:
    """The part of the interval of a lead over the control that agrees with what was found about it.

    >>> claimed(-0.01, 0.2, "better", 0.0), claimed(-0.03, 0.01, "within", 0.02)
    ((0.0, 0.2), (-0.02, 0.01))
    """
    least = {"better": margin, "within": -margin}.get(status, -1.0)
    most = {"worse": -margin, "within": margin}.get(status, 1.0)
    return min(max(low, least), most), max(min(high, most), least)


def lead_of(estimates: Estimates, *, stands: bool) -> Lead | None:
    """How far the first option of a contest is ahead of the others."""
    found, contest, scale = estimates.lead(stands=stands), estimates.contest, scale_of(estimates.settings)
    if found is None:
        return None
    width = scale.high - scale.low
    names = contest.options[found.option], contest.options[found.over]
    return Lead(contest.site, *names, width * found.value, (width * found.low, width * found.high))


def _number(x: float) -> float | None:
    return None if math.isnan(x) else float(x)


def scale_of(settings: Settings) -> Scale:
    """The scale of the rewards."""
    low, high = settings.bounds or (0.0, 1.0)
    return Scale(low, high, settings.goal, unit=settings.unit)


def _own(tests: Sequence[Test], option: int, control: int, options: int) -> list[Test]:
    """The tests of one option: for a control, one of each kind."""
    if control < 0:
        return [tests[option]]
    if option == control:
        return []
    place = option - (option > control)
    return list(tests[place :: options - 1])


def statuses_of(tests: Sequence[Test], options: int, control: int) -> list[str]:
    """What was found about each option."""
    found = []
    for a in range(options):
        own = _own(tests, a, control, options)
        found.append(_status(own, tests) if control < 0 else "control" if a == control else _compared(own))
    return found


def _status(own: Sequence[Test], tests: Sequence[Test]) -> str:
    if own[0].rejected:
        return "out"
    return "best" if sum(not test.rejected for test in tests) == 1 else "in"


def _compared(own: Sequence[Test]) -> str:
    """Better or worse than the control, within the margin, or open; contradictions leave it open."""
    rejected = [test.rejected for test in own]
    if rejected[0] != rejected[1]:
        return "better" if rejected[0] else "worse"
    return "within" if len(rejected) == 4 and not rejected[0] and all(rejected[2:]) else "open"


def best_of(options: Sequence[Option]) -> dict[str, str | None]:
    """The best option of each contest, or None."""
    found: dict[str, str | None] = {}
    for option in options:
        found.setdefault(option.site, None)
        if option.status == "best":
            found[option.site] = option.name
    return found


def look_once(
    counts: Counts, contests: tuple[Contest, ...], settings: Settings, watch: Watch | None = None
) -> Look:
    """The e-values, and p-values where Fisher's test decides, of one look at the rewards."""
    logs: list[list[float]] = []
    tails: list[list[float] | None] = []
    for k, contest in enumerate(contests):
        claims = claims_of(contest, settings)
        level = level_of(contest, settings, len(contests)) / settings.looks

        def told(done: int, of: int, k: int = k) -> None:
            if watch is not None:
                watch(k * of + done, of * len(contests))

        found = log_evalues(contest, claims, level, settings.seed, settings.orders, told)
        logs.append(found.tolist())
        tails.append(pvalues(contest.sums, claims).tolist() if uses_fisher(contest, settings) else None)
    return Look(counts=counts, log_evalues=logs, pvalues=tails)


def conclude(
    settings: Settings,
    source: str,
    contests: tuple[Contest, ...],
    looks: list[Look],
    blocks: Blocks | None,
    checks: list[Check],
    notes: tuple[str, ...],
    rows: int,
) -> Evidence:
    """Every conclusion of a record from its numbers."""
    options, leads, fisher = [], [], False
    sums: list[Sums] = []
    raised = alarms(checks)
    for k, contest in enumerate(contests):
        level = level_of(contest, settings, len(contests))
        if blocks is None:
            finding = combine([_finding(each, k) for each in looks], settings.looks)
            found, closed = contest.sums, None
        else:
            finding, found, closed = _raced(blocks, k, contest, settings, level)
        fisher |= finding.pvalues is not None
        sums.append(found)
        tests = tests_of(finding, settings, level)
        control = contest.options.index(settings.control) if settings.control in contest.options else -1
        statuses = statuses_of(tests, len(contest.options), control)
        named = statuses.index("best") if "best" in statuses else None
        estimates = Estimates(contest, settings, len(contests), found, closed, named)
        options += options_of(estimates, tests, statuses, control, stands=not raised)
        if control < 0 and (lead := lead_of(estimates, stands=not raised)) is not None:
            leads.append(lead)
    best = best_of(options)
    done = all(best.values())
    if settings.question == "control":
        best, done = {}, not any(option.status == "open" for option in options)
    return Evidence(
        kind="evidence",
        schema=SCHEMA,
        version=__version__,
        source=source,
        settings=settings,
        test="exact" if fisher else "e-value",
        status="identified" if done else "undecided",
        best=best,
        promise="withdrawn" if raised else "stands",
        options=options,
        leads=leads,
        rows=rows,
        alarms=raised,
        checks=checks,
        notes=[*notes, *notes_of(contests, sums, options, settings, fisher)],
        looks=looks,
        blocks=blocks,
    ).sealed()


def _finding(look: Look, contest: int) -> Finding:
    p = look.pvalues[contest]
    return Finding(np.array(look.log_evalues[contest]), None if p is None else np.array(p))


def _raced(
    blocks: Blocks, k: int, contest: Contest, settings: Settings, level: float
) -> tuple[Finding, Sums, Sequence[Sums]]:
    """The wealths of a contest, its sums, and its blocks."""
    closed = blocks.sums_of(k)
    found = replay(closed, contest.weights, claims_of(contest, settings), level)
    if found is None:
        raise InputError("the blocks do not have the sizes that follow from earlier blocks")
    total = Sums.none(contest.shape)
    for block in closed:
        total = total.plus(block)
    return Finding(found.log_wealth, None), total, closed
