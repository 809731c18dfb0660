"""Numbers of the answer card as text: rounded to their interval, in the user's unit or in per cent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bestarm.records.build import SAME
from bestarm.records.card import AnswerCard, CardCosts, Interval, LeadFacts, OptionFacts, Outlook
from bestarm.records.recordings import remedy_for
from bestarm.util.text import counted

MANY = 100  # runs that can tell what 95 % of them need
UNPROVED = "no error probability is proved"  # how such a risk is recognised, see ``Method.unproved``
DIGITS = 2  # significant digits of an interval's width


def decimals(interval: Interval | None, scale: float = 1.0) -> int | None:
    """How many decimals a number deserves whose interval is this wide; None without an interval.

    Negative for intervals of thousands and more, which have one digit more than others.

    >>> decimals((0.8123, 0.8777)), decimals((12.0, 480.0)), decimals((0.5, 0.5)), decimals((3e4, 9e4))
    (3, 0, 4, -2)
    """
    if interval is None:
        return None
    width = scale * (interval[1] - interval[0])
    if not width > 0:
        return 4
    places = DIGITS - 1 - math.floor(math.log10(width))
    return min(6, places) if places >= 0 else places + 1


def places_of(rows: Iterable[tuple[float | None, Interval | None]], percent: bool) -> int | None:
    """How many decimals all means of one column have: as many as any of them deserves by its interval.

    Means that are not written in per cent keep at least three digits, however wide their intervals are. None
    if no mean has an interval.

    >>> places_of([(0.509, (0.43, 0.59)), (0.508, (0.505, 0.511))], True), places_of([(4.63, (0, 24))], False)
    (2, 2)
    """
    known = [(mean, ends) for mean, ends in rows if mean is not None and ends is not None]
    if not known:
        return None
    scale = 100.0 if percent else 1.0
    spread = [ends for _, ends in known if ends[1] > ends[0]] or [ends for _, ends in known]
    found = max(decimals(ends, scale) or 0 for ends in spread)
    return found if percent else max(found, _three_digits([mean for mean, _ in known]))


def _three_digits(values: Sequence[float]) -> int:
    """The decimals that show three digits of the largest value, and that leave the smallest one readable."""
    sizes = [math.floor(math.log10(abs(value))) for value in values if value]
    return min(6, max(2 - max(sizes), min(0, 2 - min(sizes)))) if sizes else 0


def mean_places(card: AnswerCard) -> int | None:
    """How many decimals the means of a card have, in its sentences and in tables."""
    rows = card.options or card.cells or card.sites
    return places_of(((row.mean, row.interval) for row in rows), card.percent)


def lead_places(card: AnswerCard) -> int | None:
    """How many decimals the leads of a card have: as many as its means, or as their intervals deserve."""
    leads = [*([card.lead] if card.lead else []), *card.lifts, *card.site_leads]
    scale = 100.0 if card.percent else 1.0
    found = [mean_places(card)]
    found += [decimals(lead.interval, scale) for lead in leads if _is_wide(lead.interval)]
    return max((places for places in found if places is not None), default=None)


def _is_wide(interval: Interval | None) -> bool:
    return interval is not None and interval[1] > interval[0]


def _number(value: float, places: int | None) -> str:
    """A number with this many decimals, or four digits; never "-0"."""
    if places is None:
        text = f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    else:
        text = f"{round(value, places):,.{max(places, 0)}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _in_unit(text: str, percent: bool, unit: str) -> str:
    if percent:
        return f"{text} %"
    return f"{text} {unit}" if unit else text


def said(
    value: float, interval: Interval | None, percent: bool, unit: str = "", places: int | None = None
) -> str:
    """A number with these decimals, or rounded to its interval, in per cent or in a unit.

    >>> said(0.84617, (0.8123, 0.8777), True), said(0.84617, (0.8123, 0.8777), False), said(0.5, None, False)
    ('84.6 %', '0.846', '0.5')
    >>> said(123.4, (98.0, 151.0), False, "ms"), said(3888888.9, (2925271.0, 4549324.0), False, "€")
    ('123 ms', '3,890,000 €')
    """
    scale = 100.0 if percent else 1.0
    if places is None:
        places = places_of([(value, interval)], percent)
    return _in_unit(_number(scale * value, places), percent, unit)


def rough(value: float | None, percent: bool) -> str:
    """A mean whose interval is not shown, with three digits; a dash if there is none.

    >>> rough(0.68461, True), rough(153.82, False), rough(4.298, False), rough(99.97, False)
    ('68.5 %', '154', '4.30', '100')
    """
    if value is None:
        return "–"
    if percent:
        return f"{_number(100 * value, 1)} %"
    few = abs(value) >= 99.95 or value == int(value)
    return _number(value, 0) if few else f"{value:#.3g}"


def span(interval: Interval, percent: bool, unit: str = "") -> str:
    """An interval in words.

    >>> span((0.8123, 0.8777), True), span((98.0, 151.0), False, "ms")
    ('81.2 to 87.8 %', '98 to 151 ms')
    """
    scale = 100.0 if percent else 1.0
    low, high = (_number(scale * end, decimals(interval, scale)) for end in interval)
    return _in_unit(f"{low} to {high}", percent, unit)


def option_said(row: OptionFacts, percent: bool, unit: str = "", places: int | None = None) -> str:
    """The mean of an option and its interval."""
    if row.mean is None:
        return "not known" if row.pulls else "no pulls"
    if row.interval is None:
        text = rough(row.mean, percent)
        return text if percent else _in_unit(text, percent, unit)
    return f"{said(row.mean, row.interval, percent, unit, places)} ({span(row.interval, percent, unit)})"


def number_of(lead: LeadFacts, percent: bool, places: int | None = None) -> str:
    """The size of a lead, with these decimals or rounded to its interval."""
    if lead.interval is None:
        return rough_gap(lead.value, percent)
    scale = 100.0 if percent else 1.0
    return _number(scale * lead.value, decimals(lead.interval, scale) if places is None else places)


def lead_said(lead: LeadFacts, percent: bool, unit: str = "", places: int | None = None) -> str:
    """A lead with its interval, in the unit of the rewards or in percentage points.

    >>> found = LeadFacts(option="B", over="A", kind="control", value=0.08, interval=(0.047, 0.112))
    >>> lead_said(found, True)
    '8.0 points over A (4.7 to 11.2)'
    >>> found = LeadFacts(option="B", over="A", kind="runner-up", value=8.0, interval=(0.0, 11.0), others=2)
    >>> lead_said(found, False, "ms")
    '8 ms over A (0 to 11 over all others)'
    """
    scale, unit = (100.0, " points") if percent else (1.0, f" {unit}" if unit else "")
    size = number_of(lead, percent, places)
    if percent and size in ("1", "-1"):
        unit = " point"
    text = f"{size}{unit} over {lead.over}"
    if lead.interval:
        low, high = (_number(scale * end, decimals(lead.interval, scale)) for end in lead.interval)
        text += f" ({low} to {high}{' over all others' * (lead.others > 1)})"
    return text


def compared_said(
    lead: LeadFacts, percent: bool, unit: str = "", places: int | None = None
) -> tuple[str, str]:
    """A comparison with a control: how much better or worse an option is, and the interval.

    >>> found = LeadFacts(option="B", over="A", kind="control", value=-0.08, interval=(-0.27, 0.1))
    >>> compared_said(found, True)
    ('8 points worse than A', '27 worse to 10 better')
    """
    scale, unit = (100.0, " points") if percent else (1.0, f" {unit}" if unit else "")
    own = decimals(lead.interval, scale)
    size = _number(scale * abs(lead.value), own if places is None else places)
    if percent and size == "1":
        unit = " point"
    main = f"{size}{unit} {'better' if lead.value > 0 else 'worse'} than {lead.over}"
    if not size.strip("0.,"):
        main = f"about as good as {lead.over}"
    return main, "" if lead.interval is None else _from_to(lead.interval, scale, own)


def _from_to(ends: Interval, scale: float, places: int | None, unit: str = "") -> str:
    """An interval of a difference whose direction is clear, or else is named at both ends."""
    low, high = (_number(scale * abs(end), places) for end in ends)
    if ends[0] >= 0:
        return f"{low} to {high}{unit}"
    return f"{high} to {low}{unit}" if ends[1] <= 0 else f"{low}{unit} worse to {high}{unit} better"


def lift_said(lead: LeadFacts) -> str:
    """A lead in per cent of the other option's mean; empty if that is not known."""
    if lead.relative is None:
        return ""
    value, ends = lead.relative
    places = decimals(ends)
    if lead.kind == "control":
        return f"{_number(abs(value), places)} % of {lead.over}'s mean ({_from_to(ends, 1.0, places, ' %')})"
    low, high = (_number(end, places) for end in ends)
    return f"{_number(value, places)} % of {lead.over}'s mean ({low} to {high} %)"


def ahead_said(card: AnswerCard) -> list[str]:
    """How far options are ahead, one sentence each: at each site, in all, or over a control."""
    leads = {lead.option: lead for lead in card.site_leads}
    found, places = list[str](), mean_places(card)
    if card.lead is not None:
        named = any(row.best for row in card.options)
        whose = f"{card.lead.option} is ahead overall by" if card.sites else "Ahead by"
        first = whose if named else f"{card.lead.option} leads by"
        told = f"{first} {_with_lift(card, card.lead)}."
        found.append(f"Behind {behind_said(card, card.lead)}." if card.lead.value < 0 else told)
    for row in card.sites:
        lead = leads.pop(row.name, None)
        ahead = f"; ahead by {_with_lift(card, lead)}" if lead else ""
        found.append(f"{row.name}: about {option_said(row, card.percent, card.unit, places)}{ahead}.")
    found += [f"{lead.option} leads by {_with_lift(card, lead)}; this is open." for lead in leads.values()]
    return [*found, *(f"{lift.option}: {_with_lift(card, lift)}." for lift in card.lifts)]


def behind_said(card: AnswerCard, lead: LeadFacts) -> str:
    """How far a named option is behind another one, whose mean is better."""
    return f"{lead.over} by {gap_said(lead.value, card.percent, card.unit)}"


def _with_lift(card: AnswerCard, lead: LeadFacts) -> str:
    lift = lift_said(lead)
    return difference_said(lead, card.percent, card.unit, lead_places(card)) + (
        f", which is {lift}" if lift else ""
    )


def difference_said(lead: LeadFacts, percent: bool, unit: str = "", places: int | None = None) -> str:
    """A lead over a runner-up, or a comparison with a control, with its interval."""
    if lead.kind == "runner-up":
        return lead_said(lead, percent, unit, places)
    main, ends = compared_said(lead, percent, unit, places)
    return f"{main} ({ends})" if ends else main


def costs_said(costs: CardCosts) -> str:
    """What the run cost, in one line."""
    if costs.visitors is not None:
        return _visitors_said(costs, costs.visitors)
    parts = []
    if costs.rows is not None:
        parts.append(f"{counted(costs.rows, 'row')}, each counted once")
    if costs.pulls is not None:
        parts.append(counted(costs.pulls, "pull"))
    if costs.rounds is not None:
        parts.append(counted(costs.rounds, "round"))
    after = f" and {costs.after:,} after the verdict" if costs.after else ""
    if costs.bits is not None:
        parts.append(f"{costs.bits:,} bits{after}")
    if costs.time is not None:
        parts.append(counted(costs.time, "time step"))
    return ", ".join(parts)


def _visitors_said(costs: CardCosts, visitors: int) -> str:
    """What a live experiment cost: its visitors, and the rewards that count."""
    count = costs.pulls or 0
    filled = f" ({costs.filled:,} of them filled in as missing)" if costs.filled else ""
    rewards = f"{counted(count, 'reward')} that count{'s' * (count == 1)}{filled}"
    parts = [counted(visitors, "visitor"), rewards]
    return ", ".join([*parts, *([] if costs.rounds is None else [counted(costs.rounds, "round")])])


def labels(name: str, date: str, method: str, delta: float, seed: int | None) -> str:
    """Name, date, method, δ and seed of a run."""
    parts = [name, date, f"method {method}", f"δ = {delta:g}", "" if seed is None else f"seed {seed}"]
    return " · ".join(part for part in parts if part)


def next_steps(card: AnswerCard, outlook: Outlook | None, helps: str = "") -> list[str]:
    """What to do next, one sentence each; at least one.

    Parameters
    ----------
    card : AnswerCard
        The run.
    outlook : Outlook or None
        What simulated runs like it tell, if they were made.
    helps : str
        What would help an undecided run, in words.
    """
    found: list[str] = []
    if card.tone == "bad" and UNPROVED in card.risk:
        found.append(
            "Do not act on this answer alone: a method with a proof, such as bet, promises that it is rarely "
            "wrong."
        )
    elif card.tone == "bad" and (remedy := remedy_for(card.risk)):
        found += ["Do not act on this answer.", remedy]
    elif card.tone == "bad" and card.risk.startswith("Nothing is promised"):
        cure = "remove the cause above, or raise byzantine"
        if SAME in card.risk:
            cure = "give each client the file of its own site"
        found.append(f"Do not act on this answer: {cure}, and run again.")
    elif card.tone == "amber":
        found += _undecided(outlook, helps)
    else:
        found.append("Verify the record, then publish it with its report.")
    if outlook is not None and outlook.cheaper and outlook.less:
        much = f"{100 * outlook.less:.0f} % fewer pulls"
        if outlook.less > 0.9:
            much = f"1/{two_digits(round(1 / (1 - outlook.less))):,} of the pulls"
        runs = counted(outlook.trials, "simulated run")
        found.append(f"{outlook.cheaper} needs about {much} on such runs ({runs}).")
    return found


def _undecided(outlook: Outlook | None, helps: str) -> list[str]:
    found = []
    if outlook is not None and outlook.enough:
        guess = " with these estimates as means" if outlook.guessed else ""
        which = "95 % of such runs" if outlook.trials >= MANY else f"all of {outlook.trials} simulated runs"
        found.append(f"About {two_digits(outlook.enough):,} pulls decide {which}{guess}.")
    if outlook is not None and outlook.saved and outlook.epsilon:
        found.append(f"ε = {outlook.epsilon:g} saves {100 * outlook.saved:.0f} % of them.")
    if outlook is not None and outlook.why_not:
        found.append(f"No number of pulls is forecast: {outlook.why_not}.")
    return [*found, *([helps] if helps else [])] or ["Run it again with a larger budget or more data."]


def two_digits(n: int) -> int:
    """A number rounded up to two digits.

    >>> two_digits(3127), two_digits(87)
    (3200, 87)
    """
    size = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // size) * size


def gap_said(gap: float, percent: bool, unit: str = "", places: int | None = None) -> str:
    """The size of a difference of means, with these decimals or with two digits.

    >>> gap_said(-0.0123, True), gap_said(0.01, True), gap_said(0.5, False, "ms")
    ('1.2 points', '1 point', '0.5 ms')
    """
    if percent:
        size = rough_gap(abs(gap), percent, places)
        return f"{size} point{'s' * (size != '1')}"
    return f"{rough_gap(abs(gap), percent, places)} {unit}".rstrip()


def rough_gap(gap: float, percent: bool, places: int | None = None) -> str:
    """A difference of means whose interval is not shown, without its unit: with these decimals or two digits.

    >>> rough_gap(0.2889, False), rough_gap(-0.0421, True), rough_gap(1234.5, False)
    ('0.29', '-4.2', '1,234')
    """
    gap = 100 * gap if percent else gap
    if places is not None:
        return _number(gap, places)
    return f"{gap:,.0f}" if abs(gap) >= 10 else f"{gap:.2g}"
