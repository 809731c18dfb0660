"""The answers to a question about several sites in words, and the table of options by site.

For the terminal and the pages. All numbers are on the user's scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from bestarm.problem.layout import Group
from bestarm.problem.problem import Problem
from bestarm.problem.question import KINDS, Cells, Question, lead_said, shared_options
from bestarm.problem.scale import Scale
from bestarm.protocol.rounds import OTHER_SITES
from bestarm.protocol.summaries import Summary
from bestarm.protocol.trace import Wealth
from bestarm.protocol.verdict import REASONS, Answer, Verdict
from bestarm.records.describe import are_shares, unit_of, why_undecided
from bestarm.records.figures import gap_said, said, span
from bestarm.records.pulls import pulls_of_cells
from bestarm.records.record import Record
from bestarm.util.text import counted, listed

MOST_SENTENCES = 6  # answers of a headline; more are counted


class OptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An option: its value over all sites, its mean at each site, its pulls, and what became of it.

    `at` are its pulls at each site, and `left` is the round in which it left a site's own race, because of
    the bets in `why`.
    """

    name: str
    value: float | None
    means: tuple[float | None, ...]
    pulls: int
    result: str
    at: tuple[int, ...]
    left: tuple[int | None, ...]
    why: tuple[Wealth | None, ...] = ()


class OptionTable(msgspec.Struct, frozen=True, kw_only=True):
    """Options by site, the best value first. `bests` is the option with the best mean at each site.

    `weighted` says whether the options have a value over all sites.
    """

    sites: tuple[str, ...]
    weights: tuple[float, ...]
    weighted: bool
    rows: tuple[OptionRow, ...]
    bests: tuple[str | None, ...]

    @property
    def first(self) -> str:
        """The option with the best value."""
        return self.rows[0].name

    @property
    def dissenters(self) -> tuple[tuple[str, str], ...]:
        """The sites at which another option has the best mean, and that option."""
        pairs = zip(self.sites, self.bests, strict=True)
        return tuple((site, best) for site, best in pairs if best is not None and best != self.first)


def asked_silently(groups: Sequence[Group]) -> str:
    """What is asked by default of sites that share option names, and how to ask something else.

    Empty if they share none.
    """
    shared = shared_options(groups)
    if not shared:
        return ""
    some = ", ".join(shared[:3]) + ", …" * (len(shared) > 3)
    return (
        f"Asked: {KINDS['anywhere']} The sites share option names ({some}). To ask {KINDS['overall'][:-1]}, "
        'use --question overall, or question = "overall" in the file; --question each asks for the best at '
        "each site, --question control for a comparison with one option."
    )


def question_of(problem: Mapping[str, Any]) -> Question:
    """The question of a record's problem."""
    return Question.from_dict(problem.get("question"))


def option_table(
    problem: Mapping[str, Any],
    verdict: Verdict | None,
    certificate: Mapping[str, Any],
    summaries: Mapping[str, Summary] | None = None,
) -> OptionTable | None:
    """The table of a run, which may still be in progress; None for the question "anywhere".

    Parameters
    ----------
    problem : mapping
        The problem, as in a record.
    verdict : Verdict or None
        The verdict, if there is one.
    certificate : mapping
        The parts of the server and of the clients.
    summaries : mapping, optional
        What clients sent after the verdict: with it, pulls of a block that was not closed count too.

    Returns
    -------
    OptionTable or None
    """
    if "question" not in problem or "cells" not in certificate["server"]:
        return None
    layout, scale = Problem.layout_from_dict(problem)
    if layout.question.kind == "anywhere":
        return None
    cells = Cells.of(layout)
    count = np.asarray(certificate["server"]["cells"]["count"], dtype=np.float64)
    total = np.asarray(certificate["server"]["cells"]["total"], dtype=np.float64)
    made = pulls_of_cells(layout, certificate["server"]["cells"], summaries)
    gone = {row[1] for row in certificate["server"]["events"] if row[0] == "drop"}
    present = np.array([name not in gone for name in layout.clients])
    there = [bool(present[cells.site == j].any()) for j in range(len(layout.groups))]
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    sites = range(len(layout.groups))
    by_site = np.array([_average(mean[present & (cells.site == j)]) for j in sites])
    weighted = layout.question.kind != "each"
    weights = cells.weights(layout.question.weights or (1.0,) * len(sites), present)
    value = np.where(weights > 0, weights * mean, 0.0).sum(axis=0)
    value[weights.sum(axis=0) == 0] = np.nan
    over_all = int(bool(certificate["server"].get("over_all")))
    left = {(row["option"], row["race"] - over_all): row["block"] for row in certificate["server"]["exits"]}
    bets = _last_bets(certificate["server"])
    rows = [
        OptionRow(
            name=name,
            value=_user(value[k], scale.user) if weighted else None,
            means=tuple(_user(x, scale.user) for x in by_site[:, k]),
            pulls=int(made[:, k].sum()),
            result=_result(name, layout.question, verdict, certificate, k),
            at=tuple(int(made[cells.site == j, k].sum()) for j in sites),
            left=tuple(left.get((k, j)) for j in sites),
            why=tuple(bets.get((k, j + over_all)) if (k, j) in left else None for j in sites),
        )
        for k, name in enumerate(cells.options)
    ]
    order = np.argsort(-np.nan_to_num(value, nan=-1.0), kind="stable") if weighted else range(len(rows))
    return OptionTable(
        sites=tuple(group.name for group in layout.groups),
        weights=tuple(_rescaled(layout.question.weights, there)),
        weighted=weighted,
        rows=tuple(rows[k] for k in order),
        bests=tuple(_best(cells.options, by_site[j]) for j in sites),
    )


def _rescaled(weights: Sequence[float], there: Sequence[bool]) -> Iterator[float]:
    """The weights of the sites that were not dropped, in proportion; 0 for the others."""
    total = math.fsum(w for w, stays in zip(weights, there, strict=False) if stays)
    return (w / total if stays and total else 0.0 for w, stays in zip(weights, there, strict=False))


def _last_bets(server: Mapping[str, Any]) -> dict[tuple[int, int], Wealth]:
    """The bets against each option in each race that asks for the best one, after their last block."""
    levels = server.get("levels", ())
    return {
        (option, row["race"]): Wealth(log_wealth, -math.log(levels[row["race"]]))
        for row in server.get("wealth", ())  # of a method that bets
        if row["race"] < len(levels)
        for option, log_wealth in zip(row["option"], row["log_wealth"], strict=False)
        if not isinstance(log_wealth, list)
    }


def _average(rows: Any) -> Any:
    """The mean over the clients of a site; not a number where there is none."""
    return rows.mean(axis=0) if len(rows) else np.full(rows.shape[1], np.nan)


def _user(value: float, convert: Any) -> float | None:
    return None if np.isnan(value) else float(convert(float(value)))


def _best(names: Sequence[str], means: Any) -> str | None:
    return None if np.isnan(means).all() else names[int(np.nanargmax(means))]


def _result(
    name: str, question: Question, verdict: Verdict | None, certificate: Mapping[str, Any], option: int
) -> str:
    """What became of an option in the race over all sites."""
    if question.kind == "each":
        return ""
    if name == question.control:
        return "control"
    for answer in verdict.answers if verdict else ():
        if answer.site is None and answer.option == name:
            return "best" if answer.answer == "best" else answer.answer
    if question.kind == "control":
        return "open"
    left = any(e["race"] == 0 and e["option"] == option for e in certificate["server"]["exits"])
    return "ruled out" if left else "still in"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the words about the answers depend on.

    `dropped` are the sites that the operator dropped, `liars` how many sites may lie, `why` is what ended an
    undecided run, as precisely as the record allows.
    """

    problem: dict[str, Any]
    verdict: Verdict
    delta: float
    alpha: float = 0.0
    margin: float = 0.0
    liars: int = 0
    dropped: frozenset[str] = frozenset()
    why: str = ""

    @staticmethod
    def of(record: Record) -> Situation:
        """The situation of a record."""
        return Situation(
            problem=record.problem,
            verdict=record.verdict,
            delta=record.delta,
            alpha=record.options.get("alpha", 0.0),
            margin=record.options.get("margin", 0.0),
            liars=record.options.get("byzantine", 0),
            dropped=frozenset(w["group"] for w in record.warnings if OTHER_SITES in w["text"]),
            why=why_undecided(record) if record.verdict.reason else "",
        )

    @property
    def question(self) -> Question:
        """The question."""
        return question_of(self.problem)

    @property
    def apart(self) -> str:
        """The margin, such as "2 points"."""
        return gap_said(self.margin, are_shares(self.problem), unit_of(self.problem))

    def sites(self, option: str | None) -> int:
        """How many sites the answer about an option is about."""
        groups = [g for g in self.problem["groups"] if g["name"] not in self.dropped]
        if self.question.missing_options == "average":
            groups = [g for g in groups if option in g["arms"]]
        return len(groups)


def headline(found: Situation) -> Iterator[str]:
    """The answers, one sentence each."""
    return (_sentence(answer, found) for answer in found.verdict.answers)


def title(found: Situation) -> str:
    """The answers as a headline: a few in full, of many how many there are of each kind."""
    answers = found.verdict.answers
    missing = [answer for answer in answers if not answer.decided]
    if missing and len(answers) == 1 and missing[0].option is None:
        return "Undecided: the best option overall was not found."
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return f"Undecided: {len(missing):,} of {counted(len(answers), 'answer')} {verb} open."
    if len(answers) <= MOST_SENTENCES:
        return " ".join(headline(found))
    if control := found.question.control:
        more = f" by more than {found.apart}" if found.margin else ""
        words = {"better": f"better than {control}{more}", "worse": "worse", "within": "within the margin"}
        kinds = Counter[str](answer.answer for answer in answers)
        told = [f"{kinds[kind]:,} {text}" for kind, text in words.items() if kinds[kind]]
        return f"Of {len(answers):,} options, {listed(told)}."
    over_all = [_sentence(answer, found) for answer in answers if answer.site is None]
    bests = Counter(str(answer.option) for answer in answers if answer.site is not None)
    told = [f"{name} at {n:,}" for name, n in bests.most_common(MOST_SENTENCES)]
    rest = bests.total() - sum(n for _, n in bests.most_common(MOST_SENTENCES))
    told += [f"others at {rest:,}"] if rest else []
    sites = f"{bests.total():,} sites"
    each = f"The best option is known at all {sites}: {listed(told, len(told))}."
    if len(bests) == 1:
        each = f"{next(iter(bests))} is the best option at each of the {sites}."
    return " ".join([*over_all, each])


def _sentence(answer: Answer, found: Situation) -> str:
    question, where = found.question, "overall" if answer.site is None else f"at {answer.site}"
    if answer.answer == "best":
        about = "" if answer.site is not None else f", {_average_over(answer.option, found)}"
        return f"{answer.option} is the best option {where}{about}{_number(answer, found)}."
    if answer.answer in ("better", "worse"):
        more = f" by more than {found.apart}" if found.margin else ""
        return f"{answer.option} is {answer.answer} than {question.control}{more}{_number(answer, found)}."
    if answer.answer == "within":
        control = f"{found.apart} (the margin) of {question.control}"
        return f"{answer.option} is within {control}{_number(answer, found)}."
    why = "dropped by the operator" if answer.reason == "dropped" else REASONS.get(str(answer.reason), "")
    if answer.reason == found.verdict.reason and found.why:
        why = found.why
    if answer.option is not None:
        return f"{answer.option} is open: {why}{_number(answer, found)}."
    left = f" Still in: {', '.join(answer.candidates)}." if answer.candidates else ""
    return f"The best option {where} is open: {why}.{left}"


def _average_over(option: str | None, found: Situation) -> str:
    question, sites = found.question, found.sites(option)
    noun = "site" if len(set(question.weights)) <= 1 else "weighted site"
    offer = " that offer it" if question.missing_options == "average" else ""
    return f"on average over {'the ' * bool(offer)}{counted(sites, noun)}{offer}"


def _number(answer: Answer, found: Situation) -> str:
    if answer.value is None:
        return ""
    best, problem = answer.answer == "best", found.problem
    percent, unit = best and are_shares(problem), unit_of(problem)
    between = f", {span(answer.interval, percent, unit)}" if answer.interval else ""
    what = "its value is" if best else f"its difference to {found.question.control} is"
    return f" ({what} about {said(answer.value, answer.interval, percent, unit)}{between})"


def promise(found: Situation) -> Iterator[str]:
    """What is promised about the answers, in a few sentences."""
    question, delta = found.question, found.delta
    if question.kind == "control":
        yield from _control_promise(found)
    else:
        if question.kind == "overall":
            yield _overall_promise(found, delta / 2 if question.also else delta)
        if question.by_site:
            yield from _each_promise(found, delta / 2 if question.also else delta)
        if any(answer.interval for answer in found.verdict.answers):
            yield (
                "The probability that any interval of a right answer misses is at most "
                f"{found.alpha:g}, if means do not change."
            )
    if found.dropped:
        yield "All this holds if no site was dropped because of its results."


def _overall_promise(found: Situation, delta: float) -> str:
    first = found.verdict.answers[0]
    some = "1 site lies" if found.liars == 1 else f"up to {found.liars} sites lie"
    lies = f", even if {some}; it is about the honest ones" if found.liars else ""
    differ = "" if found.liars else ", however much the sites differ"
    if first.decided:
        what = "The answer for all sites" if found.question.also else "This"
        return f"{what} is wrong with probability at most {delta:g}{differ}{lies}."
    text = f"The best option is among those still in, except with probability at most {delta:g}{lies}."
    if not found.liars:
        return text
    names = [group["name"] for group in found.problem["groups"]]
    left = [w for name, w in zip(names, found.question.weights, strict=True) if name not in found.dropped]
    question = replace(found.question, weights=tuple(w / math.fsum(left) for w in left))
    return f"{text} {lead_said(question, found.liars, Scale(**found.problem['scale']))}"


def _control_promise(found: Situation) -> Iterator[str]:
    yield f"All answers that are not open are right, except with probability at most {found.delta:g}."
    if found.alpha:
        yield (
            "An answer is wrong, or a difference lies outside its interval, with probability at most "
            f"{found.delta + found.alpha:g}, if means do not change."
        )
    if found.margin:
        yield f"Better and worse mean by more than the margin of {found.apart}."
    elif any(not answer.decided for answer in found.verdict.answers):
        yield NO_MARGIN


def intent(problem: Mapping[str, Any], delta: float, unproved: str = "") -> str:
    """What a run will promise once it has its answer, in one sentence; or why it will promise nothing."""
    if unproved:
        return f"Nothing will be promised: {unproved}."
    question = question_of(problem)
    if question.kind == "control":
        return f"All answers will be right, except with probability at most {delta:g}."
    if question.kind == "each" and question.simultaneous:
        return f"The answers of the sites will all be right, except with probability at most {delta:g}."
    if question.kind == "each":
        return f"The answer of each site will be wrong with probability at most {delta:g}."
    where = " overall" if question.kind == "overall" else ""
    share = delta / 2 if question.also else delta
    return f"The option that it names as the best{where} will be wrong with probability at most {share:g}."


NO_MARGIN = (
    'With margin = 0, "within the margin" is never an answer: an option as good as the control stays open.'
)


def _each_promise(found: Situation, delta: float) -> Iterator[str]:
    sites = len(found.problem["groups"]) - len(found.dropped)
    if found.question.simultaneous:
        yield f"The answers of the sites are all right, except with probability at most {delta:g}."
    elif sites == 1:
        yield f"This is wrong with probability at most {delta:g}."
    else:
        yield (
            f"The answer of each site is wrong with probability at most {delta:g}. "
            f"It does not promise that all {sites} sites are right at once; simultaneous = true does."
        )
