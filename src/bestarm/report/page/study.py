"""The sections of the page of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from shlex import quote
from typing import Any

from bestarm.report import svg
from bestarm.report.facts import CellFacts, StudyFacts
from bestarm.report.facts.structs import MeanFacts
from bestarm.report.markup import Html, clean, join, name, table, tag, unbroken
from bestarm.report.numbers import plus_minus
from bestarm.report.page.parts import MOST_ROWS, Section, code, command, figure, made_by
from bestarm.report.svg import cell_name, number
from bestarm.util.text import counted

KINDS = {
    "rounds": "rounds",
    "time": "time steps",
    "pulls_total": "pulls",
    "pulls_max": "pulls of the busiest client",
    "bits_up": "bits up",
}
MOST_PROBLEMS = 6  # in the headline


def study_sections(facts: StudyFacts, attached: Html | None) -> list[Section]:
    """The page of a study; `attached` is a link to its rows."""
    return [
        ("top", "", _top(facts)),
        ("table", "The numbers", _table(facts)),
        ("figures", "Side by side", _figures(facts)),
        ("reproduce", "Run it again", _reproduce(facts, attached)),
    ]


def _top(facts: StudyFacts) -> Html:
    cells = facts.cells
    total = sum(cell.trials for cell in cells)
    parts = [tag("h1", f"A study of {counted(total, 'run')}", id="verdict")]
    parts += [tag("p", *said) for said in _fewest(facts.varied, cells)]
    wrong, undecided = sum(cell.errors or 0 for cell in cells), sum(cell.undecided for cell in cells)
    parts.append(tag("p", f"{wrong:,} of {total:,} runs named a wrong arm, {undecided:,} ended undecided."))
    for why in dict.fromkeys(cell.unproved for cell in cells if cell.unproved):
        parts.append(tag("p", f"Nothing is promised: {clean(why, 300)}.", class_="bad"))
    if facts.data:
        parts.append(tag("p", clean(facts.data.said, 400)))
    return tag("div", *parts, class_="verdict yes")


def _fewest(varied: Sequence[str], cells: Sequence[CellFacts]) -> Iterator[list[Any]]:
    """Which combination needs the fewest pulls: of methods, on each problem by itself."""
    others = [key for key in varied if key != "method"] if "method" in varied else []
    problems: dict[str, list[CellFacts]] = {}
    for cell in cells:
        told = ", ".join(f"{key} = {clean(cell.keys[key], 40)}" for key in others)
        problems.setdefault(told, []).append(cell)
    for told, alike in list(problems.items())[:MOST_PROBLEMS]:
        ranked = sorted(alike, key=_pulls)
        best, worst = ranked[0], ranked[-1]
        if best is worst:
            continue
        names = [clean(c.keys["method"], 40) if others else cell_name(c) for c in (best, worst)]
        ratio = f"{number(_pulls(worst) / max(_pulls(best), 1e-9), 3)} times as many"
        where = f" for {told}" if told else ""
        lead = [f"Fewest pulls on average{where}: ", tag("strong", names[0]), f", {number(_pulls(best))}. "]
        yield [*lead, f"The most: {names[1]}, {number(_pulls(worst))} ({ratio}{_doubt(best, worst)})."]


def _doubt(best: CellFacts, worst: CellFacts) -> str:
    """A warning if the intervals of two means overlap."""
    one, two = (cell.costs["pulls_total"].interval for cell in (best, worst))
    if one is None or two is None or one[1] < two[0]:
        return ""
    return "; their intervals overlap, so this may be chance"


def _rates(ends: tuple[float, float]) -> str:
    """An interval of an error rate in per cent."""
    low, high = (f"{100 * end:.2g}" for end in ends)
    return f"{low} to {high} %"


def _pulls(cell: CellFacts) -> float:
    return cell.costs["pulls_total"].mean


def _kinds(facts: StudyFacts) -> dict[str, str]:
    """The costs to show, with their titles."""
    return {key: title for key, title in KINDS.items() if all(key in cell.costs for cell in facts.cells)}


def _table(facts: StudyFacts) -> Html:
    kinds = _kinds(facts)
    limits = any(cell.over_limit is not None for cell in facts.cells)
    head = [*facts.varied, "trials", *kinds.values(), *["pulls / limit"] * limits]
    head += ["wrong (95 %)", "undecided"]
    rows = []
    for cell in facts.cells[:MOST_ROWS]:
        row: list[Any] = [name(value, 60) for value in cell.keys.values()] + [number(cell.trials)]
        for key in kinds:
            cost = cell.costs[key]
            row.append(unbroken(_mean(cost)))
        row += [number(cell.over_limit, 3)] * limits
        span = cell.error_interval
        between = "" if span is None else f" ({_rates(span)})"
        row.append(unbroken(f"{number(cell.errors)}{between}"))
        rows.append([*row, number(cell.undecided)])
    kept = table(
        head, rows, numbers=set(range(len(facts.varied), len(head))), caption="Means of each combination"
    )
    note = "Means ± half the width of their 95 % intervals; the error rate has an exact 95 % interval."
    if "time" in kinds:
        note += " Each client makes one pull per time step."
    if limits:
        note += " The limit is the least mean of any method that keeps δ on every problem with 0/1 rewards."
    for why in dict.fromkeys(cell.no_limit for cell in facts.cells if cell.no_limit):
        note += f" No limit{' in some rows' if limits else ''}: {clean(why, 300)}."
    return join(kept, tag("p", note, class_="note"))


def _mean(cost: MeanFacts) -> str:
    """A mean, rounded to half the width of its interval, which has two digits."""
    if cost.interval is None:
        return number(cost.mean)
    return " ± ".join(plus_minus(cost.mean, cost.interval))


def _figures(facts: StudyFacts) -> Html:
    return join(
        *[
            figure(
                partial(svg.comparison, facts, name=key, title=title), f"Mean {title} with 95 % intervals."
            )
            for key, title in _kinds(facts).items()
        ]
    )


def _reproduce(facts: StudyFacts, attached: Html | None) -> Html:
    if facts.unknown or facts.seed is None:
        again = tag("p", f"The settings are not known: {clean(facts.unknown, 300)}.")
    else:
        values = {key: dict.fromkeys(cell.keys[key] for cell in facts.cells) for key in facts.varied}
        words = ["bestarm study SCENARIO.toml", f"--trials {facts.trials}", f"--seed {facts.seed}"]
        if "method" not in values:
            words += [f"--method {name}" for name in facts.methods]
        if "delta" not in values:
            words += [f"--delta {delta!r}" for delta in facts.deltas]
        words += [
            f"--vary {quote(key + '=' + ','.join(_word(value) for value in several))}"
            for key, several in values.items()
        ]
        again = join(
            tag("p", "With the problem and the other options in SCENARIO.toml:"),
            command(" ".join([*words, "--out FILE.csv"])),
            tag(
                "p",
                "FILE.csv.json, beside the rows, has their problems and all options. With both files, ",
                code('ba.Trials.load("FILE.csv").record(0)'),
                " runs the trial of the first row again.",
            ),
        )
    deltas = ", ".join(f"{delta:g}" for delta in facts.deltas)
    known = f" δ = {deltas}, seed {facts.seed}." if deltas else ""
    return join(again, tag("p", f"{made_by(facts.versions)}{known}"), attached)


def _word(value: object) -> str:
    """A value as ``--vary`` takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
