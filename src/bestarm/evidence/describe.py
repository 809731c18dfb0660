"""Evidence in words, for the terminal and for pages: the headline, the promise, what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from bestarm.evidence.record import Evidence, Option, Settings
from bestarm.stats.alarms import FALSE_ALARMS
from bestarm.util.text import counted, listed

REMEDIES = {
    "drift": "Ask about a period in which nothing changed, or compare options that were tried at the same "
    "time, such as in a live experiment.",
    "dependence": "Use one row per independent unit: per release, patient, session or day, not per minute. "
    "If the table's order is not the order of arrival, for example because it was sorted, say --order none.",
}
IF_INDEPENDENT = (
    "Statuses, e-values and intervals would hold for independent rows whose distribution does not change. "
    "These are not such rows."
)
STATUS = {
    "best": "best",
    "in": "not ruled out",
    "out": "ruled out",
}


def evalue_said(value: float) -> str:
    """An e-value with three digits, or on which side of the scale it lies.

    >>> [evalue_said(x) for x in (1.07e-05, 0.5, 74.31, 17665.0, 3e9)]
    ['< 0.01', '0.5', '74.3', '17,700', '> 1,000,000']
    """
    if value < 0.01:
        return "< 0.01"
    if value > 1e6:
        return "> 1,000,000"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def headline(evidence: Evidence) -> str:
    """The verdict in one sentence, with what was withdrawn."""
    found = _found(evidence)
    if evidence.promise == "withdrawn":
        return f"No safe answer: the promise is withdrawn. {found}"
    return found


def _found(evidence: Evidence) -> str:
    settings = evidence.settings
    if settings.question == "control":
        words = {status: compared(settings, status) for status in ("better", "worse", "within", "open")}
        names = {status: [o.name for o in ranked(evidence) if o.status == status] for status in words}
        parts = [
            f"{listed(found)} {'is' if len(found) == 1 else 'are'} {words[status]}"
            for status, found in names.items()
            if found
        ]
        return f"Compared with {settings.control}: {'; '.join(parts)}."
    if settings.question == "each":
        named = [f"{name} at {site}" for site, name in evidence.best.items() if name]
        if len(evidence.best) == len(named) > 1 and len(set(evidence.best.values())) == 1:
            only = next(iter(evidence.best.values()))
            return f"{only} is the best option at each of the {len(named):,} sites."
        most = listed(named)
        of = f"{len(named)} of {counted(len(evidence.best), 'site')}"
        return f"The best option is known at {of}{': ' if named else ''}{most}."
    best = evidence.best[""]
    if best is None:
        left = [option.name for option in evidence.options if option.status == "in"]
        if not left:
            return "Undecided: the data speak against every option."
        return f"Undecided: {len(left):,} of {counted(len(evidence.options), 'option')} are not ruled out."
    if evidence.promise == "withdrawn":
        return f"{best} looks best."
    return f"{best} is the best option: {aim(evidence)}."


def status_of(evidence: Evidence, option: Option) -> str:
    """What became of an option, in a few words."""
    if evidence.promise == "withdrawn" and option.status == "best":
        return "looks best"
    if evidence.settings.question == "control":
        return compared(evidence.settings, option.status)
    return STATUS[option.status]


def compared(settings: Settings, status: str) -> str:
    """What was found about an option beside its control, with the margin in the unit of the lead."""
    if not settings.margin:
        return status
    size = margin_said(settings)
    words = {"better": f"better by more than {size}", "worse": f"worse by more than {size}"}
    return {**words, "within": f"within {size}"}.get(status, status)


def compared_briefly(settings: Settings, status: str) -> str:
    """The same in few letters, for a table."""
    if settings.margin and status in ("better", "worse"):
        return f"> {margin_said(settings)} {status}"
    return compared(settings, status)


def margin_said(settings: Settings) -> str:
    """The margin as it was given, in points or in the unit of the rewards.

    >>> import bestarm as ba
    >>> asked = {"option": "treatment", "question": "control", "control": "A"}
    >>> margin_said(ba.evidence("examples/hospitals.csv", **asked, margin=0.01).settings)
    '1 point'
    """
    if shows_percent(settings):
        size = f"{100 * settings.margin:.10g}"
        return f"{size} point{'s' * (size != '1')}"
    return f"{settings.margin:g} {settings.unit}".rstrip()


def no_lead(evidence: Evidence) -> str:
    """The first claim about an option beside its control, which the e-value speaks against."""
    size = f" by more than {margin_said(evidence.settings)}" if evidence.settings.margin else ""
    return f"this option is not better than {evidence.settings.control}{size}"


def shows_percent(settings: Settings) -> bool:
    """Whether means are written in per cent: those of 0/1 rewards, and of a table that has percentages."""
    if settings.unit:
        return settings.percent and settings.unit == "%"
    return settings.percent or settings.bounds is None


def aim(evidence: Evidence) -> str:
    """What "best" means."""
    settings = evidence.settings
    what = mean_name(settings)
    kind = "highest" if settings.goal == "max" else "lowest"
    if len(settings.weights) > 1:
        how = {"equal": "equally weighted", "rows": "weighted by their rows", "given": "as weighted"}
        over = counted(len(settings.weights), "site")
        return f"the {kind} {what} on average over {over}, {how[settings.weighted]}"
    return f"the {kind} {what}"


def ranked(evidence: Evidence) -> list[Option]:
    """Options from the best mean to the worst, site by site."""
    sign = 1.0 if evidence.settings.goal == "min" else -1.0
    return sorted(evidence.options, key=lambda o: (o.site, 0.0 if o.mean is None else sign * o.mean))


def mean_name(settings: Settings) -> str:
    """What is compared: the mean of a column, or the share that two columns count."""
    columns = settings.columns
    if "ratings" in columns:
        return f"mean of the ratings ({columns['ratings']})"
    if "reward" in columns:
        return f"mean of {columns['reward']}"
    return f"share {columns['successes']}/{columns['trials']}"


def kind_of_tests(evidence: Evidence) -> str:
    """How the verdict was reached, in a few words."""
    if evidence.blocks is not None:
        return "bets by arrival"
    return "exact tests" if evidence.test == "exact" else "e-values"


def promise(evidence: Evidence) -> str:
    """The promise, or why there is none, in one sentence."""
    delta = evidence.settings.delta
    if evidence.promise == "withdrawn":
        reasons = "; ".join(dict.fromkeys(alarm.reason for alarm in evidence.alarms[:2]))
        more = f" ({len(evidence.alarms) - 2} more alarms)" if len(evidence.alarms) > 2 else ""
        return f"Nothing is promised, because {reasons}{more}."
    if evidence.settings.question == "control":
        kinds = [compared(evidence.settings, kind) for kind in ("better", "worse", "within")]
        kinds = kinds[: 3 if evidence.settings.margin else 2]
        claims = ", ".join(f"“{kind}”" for kind in kinds[:-1])
        return f"With probability at least {1 - delta:g} every {claims} and “{kinds[-1]}” is right."
    if evidence.settings.question == "each" and not evidence.settings.simultaneous:
        if len(evidence.best) == 1:
            return f"The best option is ruled out with probability at most {delta:g}."
        return (
            f"At each site, the best option is ruled out with probability at most {delta:g}. This does not "
            f"promise that all {len(evidence.best):,} sites are right at once; --simultaneous does."
        )
    if evidence.settings.question == "each":
        return f"At any site at all, the best option is ruled out with probability at most {delta:g}."
    if evidence.status == "identified":
        return f"This is wrong with probability at most {delta:g}."
    return f"The best option is among those not ruled out, except with probability at most {delta:g}."


def remedies(evidence: Evidence) -> list[str]:
    """What to do about alarms."""
    return [REMEDIES[kind] for kind in dict.fromkeys(alarm.kind for alarm in evidence.alarms)]


def next_steps(evidence: Evidence) -> list[str]:
    """What to do after this look."""
    if evidence.promise == "withdrawn" or evidence.status == "identified":
        return []
    left = "open" if evidence.settings.question == "control" else "not ruled out"
    more = f"Collect more rows of the options that are {left}"
    if evidence.settings.look != "once":
        return [f"{more}, and repeat this command."]
    return [f"{more}. To count these rows in a later look, declare it first: --looks N, or --look any-time."]


def assumptions(evidence: Evidence) -> Iterator[str]:
    """What the promise rests on, and what of it was checked."""
    settings = evidence.settings
    yield "The rows of an option at a site are independent draws from a distribution that does not change."
    if settings.look == "once":
        yield (
            "How many rows there are was not decided by looking at rewards: recording that stops when the "
            "result looks good breaks the promise."
        )
    else:
        yield "The order of the rows is the order of arrival, and rows of the past do not change."
    if settings.looks > 1:
        yield f"The times of the {settings.looks} looks do not depend on results."
    bounds = "0 or 1"
    if settings.bounds is not None:
        low, high = settings.bounds
        ends = f"{100 * low:g} and {100 * high:g} %" if settings.percent else f"{low:g} and {high:g}"
        bounds = f"between {ends}"
    yield f"Every reward is {bounds}, including future ones."
    yield "Question, options, level and the way to look were fixed before the data were seen."
    if settings.order is None:
        yield "Drift and dependence were not checked: the rows have no order (name the time with --time)."
    else:
        order = "the order of the table" if settings.order == "file" else f"the order of {settings.order}"
        yield (
            f"Drift and dependence were checked in {order}: {counted(len(evidence.checks), 'test')}, with "
            f"false alarms in at most {FALSE_ALARMS:.0%} of tables. The absence of an alarm proves nothing."
        )


def method(evidence: Evidence) -> str:
    """How the verdict was reached."""
    settings = evidence.settings
    if evidence.blocks is not None:
        used, rest = sum(evidence.blocks.used), evidence.blocks.waiting
        left = "were not needed" if evidence.status == "identified" else "wait for a block to be complete"
        return f"By arrival, at any time: {used:,} rows in closed blocks decide; {rest:,} {left}."
    rows = counted(evidence.rows, "row")
    looks = "" if settings.looks == 1 else f", look {len(evidence.looks)} of {settings.looks}"
    if evidence.test == "exact":
        return f"One look at {rows}, each counted once{looks}: Fisher's exact tests decide."
    return (
        f"One look at {rows}, each counted once{looks}: e-values, averaged over {settings.orders} random "
        f"orders of the rows (seed {settings.seed})."
    )
