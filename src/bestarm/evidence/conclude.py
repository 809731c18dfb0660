"""From counts to e-values, statuses and a verdict: pure functions of a record's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm.errors import InputError
from bestarm.evidence.alarms import Check, alarms
from bestarm.evidence.any_time import replay
from bestarm.evidence.contests import Contest, Floats
from bestarm.evidence.notes import notes_of
from bestarm.evidence.once import MOST_FOR_FISHER, Claims, Watch, log_evalues, log_mean, pvalues
from bestarm.evidence.record import (
    LARGEST,
    SCHEMA,
    Blocks,
    Counts,
    Evidence,
    Look,
    Option,
    Settings,
    Test,
)
from bestarm.evidence.value_bounds import value_bounds
from bestarm.problem.scale import Scale
from bestarm.stats import betting
from bestarm.stats.sums import Sums
from bestarm.version import __version__

BEST = "it is the best"
Ends = tuple[Floats, Floats]


@dataclass(frozen=True)
class Finding:
    """The evidence against each claim of a contest, all looks together."""

    log_evalues: Floats
    pvalues: Floats | None


def claims_of(contest: Contest, settings: Settings) -> Claims:
    """The statements that a question disputes."""
    if settings.question != "control":
        return Claims.best(len(contest.options))
    width = 1.0 if settings.bounds is None else settings.bounds[1] - settings.bounds[0]
    control = contest.options.index(settings.control or "")
    return Claims.control(len(contest.options), control, settings.margin / width)


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
    contest: Contest, settings: Settings, sums: Sums, tests: Sequence[Test], closed: Sequence[Sums] | None
) -> list[Option]:
    """Every option of a contest; `closed` are the blocks of a look at any time."""
    scale = scale_of(settings)
    means, ends = _means(contest, sums), intervals(contest, sums, settings.delta, closed, settings.looks)
    rows = sums.count.sum(axis=-1)
    control = contest.options.index(settings.control) if settings.control in contest.options else -1
    gaps = None
    if control >= 0:
        gaps = _gaps(contest, sums, settings.delta, closed, settings.looks, control)
    found = []
    for a, name in enumerate(contest.options):
        own = _own(tests, a, control, len(contest.options))
        status = _status(own, tests) if control < 0 else "control" if a == control else _compared(own)
        gap = span = None
        if gaps is not None and a != control:
            sign = (1.0 if scale.goal == "max" else -1.0) * (scale.high - scale.low)
            low, high = sorted((sign * float(gaps[0][a]), sign * float(gaps[1][a])))
            gap, span = _number(sign * (means[a] - means[control])), (low, high)
        found.append(
            Option(
                name,
                contest.site,
                int(rows[a]),
                _number(scale.user(float(means[a]))),
                scale.user_interval(float(ends[0][a]), float(ends[1][a])),
                status,
                own,
                gap,
                span,
            )
        )
    return found


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


def _means(contest: Contest, sums: Sums) -> Floats:
    """Σ w·mean over the sites; NaN without rows."""
    mean = np.where(sums.count > 0, sums.total / np.maximum(sums.count, 1.0), np.nan) + contest.grid / 2
    return np.asarray((contest.weights * mean).sum(axis=-1))


def intervals(
    contest: Contest, sums: Sums, alpha: float, closed: Sequence[Sums] | None, looks: int = 1
) -> Ends:
    """An interval for the value of each option that misses it with probability at most alpha, at all looks.

    With one site it is the betting interval, which holds at any time. With several it is Hoeffding's for the
    weighted mean, at alpha/looks for each of the looks that were declared, and that of bets in the `closed`
    blocks of a look at any time.
    """
    if contest.single:
        upper = np.minimum(sums.most + contest.grid, 1.0)
        squares = sums.squares + 2 * contest.grid * sums.total + sums.count * contest.grid**2
        ends = betting.intervals(
            sums.count, sums.total, squares, sums.least, upper, alpha, rounded=contest.grid * sums.count
        )
        return ends[0][:, 0], ends[1][:, 0]
    if closed is not None:
        return value_bounds(closed, contest.shape, contest.weights, alpha, contest.grid)
    variance = (contest.weights**2 / sums.count).sum(axis=-1)
    radius = np.sqrt(math.log(2 * looks / alpha) / 2 * variance) + contest.grid / 2
    mean = _means(contest, sums)
    return np.maximum(mean - radius, 0.0), np.minimum(mean + radius, 1.0)


def _gaps(
    contest: Contest, sums: Sums, alpha: float, closed: Sequence[Sums] | None, looks: int, control: int
) -> Ends:
    """An interval for the lead of each option over the control: both values at alpha/2."""
    low, high = intervals(contest, sums, alpha / 2, closed, looks)
    return low - high[control], high - low[control]


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
        tails.append(pvalues(contest, claims).tolist() if uses_fisher(contest, settings) else None)
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
    options, fisher = [], False
    sums: list[Sums] = []
    for k, contest in enumerate(contests):
        level = level_of(contest, settings, len(contests))
        if blocks is None:
            finding = combine([_finding(each, k) for each in looks], settings.looks)
            found, closed = contest.sums, None
        else:
            finding, found, closed = _raced(blocks, k, contest, settings, level)
        fisher |= finding.pvalues is not None
        sums.append(found)
        options += options_of(contest, settings, found, tests_of(finding, settings, level), closed)
    best = best_of(options)
    done = all(best.values())
    if settings.question == "control":
        best, done = {}, not any(option.status == "open" for option in options)
    raised = alarms(checks)
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
