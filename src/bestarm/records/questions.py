"""The answers to a question about several sites in words, and the table of options by site.

For the terminal and the pages. All numbers are on the user's scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from bestarm.problem.layout import Group
from bestarm.problem.problem import Problem
from bestarm.problem.question import KINDS, Cells, Question, shared_options
from bestarm.protocol.verdict import REASONS, Answer, Verdict


class OptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An option: its value over all sites, its mean at each site, its pulls, and what became of it."""

    name: str
    value: float | None
    means: tuple[float | None, ...]
    pulls: int
    result: str


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
    problem: Mapping[str, Any], verdict: Verdict | None, certificate: Mapping[str, Any]
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

    Returns
    -------
    OptionTable or None
    """
    layout, scale = Problem.layout_from_dict(problem)
    if layout.question.kind == "anywhere" or "cells" not in certificate["server"]:
        return None
    cells = Cells.of(layout)
    count = np.asarray(certificate["server"]["cells"]["count"], dtype=np.float64)
    total = np.asarray(certificate["server"]["cells"]["total"], dtype=np.float64)
    gone = {row[1] for row in certificate["server"]["events"] if row[0] == "drop"}
    present = np.array([name not in gone for name in layout.clients])
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    sites = range(len(layout.groups))
    by_site = np.array([_average(mean[present & (cells.site == j)]) for j in sites])
    weighted = layout.question.kind != "each"
    weights = cells.weights(layout.question.weights or (1.0,) * len(sites), present)
    value = np.where(weights > 0, weights * mean, 0.0).sum(axis=0)
    value[weights.sum(axis=0) == 0] = np.nan
    rows = [
        OptionRow(
            name=name,
            value=_user(value[k], scale.user) if weighted else None,
            means=tuple(_user(x, scale.user) for x in by_site[:, k]),
            pulls=int(count[:, k].sum()),
            result=_result(name, layout.question, verdict, certificate, k),
        )
        for k, name in enumerate(cells.options)
    ]
    order = np.argsort(-np.nan_to_num(value, nan=-1.0), kind="stable") if weighted else range(len(rows))
    return OptionTable(
        sites=tuple(group.name for group in layout.groups),
        weights=layout.question.weights,
        weighted=weighted,
        rows=tuple(rows[k] for k in order),
        bests=tuple(_best(cells.options, by_site[j]) for j in sites),
    )


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


def headline(problem: Mapping[str, Any], verdict: Verdict) -> Iterator[str]:
    """The answers, one sentence each."""
    question = question_of(problem)
    names = [group["name"] for group in problem["groups"]]
    for answer in verdict.answers:
        yield _sentence(answer, question, len(names))


def _sentence(answer: Answer, question: Question, sites: int) -> str:
    where = "overall" if answer.site is None else f"at {answer.site}"
    if answer.answer == "best":
        about = f", on the {_average_name(question)} over {sites} sites" if answer.site is None else ""
        return f"{answer.option} is the best option {where}{about}{_number(answer)}."
    if answer.answer in ("better", "worse"):
        return f"{answer.option} is {answer.answer} than {question.control}{_number(answer)}."
    if answer.answer == "within":
        return f"{answer.option} is within the margin of {question.control}{_number(answer)}."
    why = REASONS.get(str(answer.reason), str(answer.reason))
    if answer.option is not None:
        return f"{answer.option} is open: {why}{_number(answer)}."
    left = ", ".join(answer.candidates)
    return f"The best option {where} is open: {why}. Still in: {left or 'no option'}."


def _average_name(question: Question) -> str:
    return "average" if len(set(question.weights)) <= 1 else "weighted average"


def _number(answer: Answer) -> str:
    if answer.value is None:
        return ""
    span = "" if answer.interval is None else ", between {:.4g} and {:.4g}".format(*answer.interval)
    what = "its value is about" if answer.answer == "best" else "its lead is about"
    return f" ({what} {answer.value:.4g}{span})"


def promise(problem: Mapping[str, Any], delta: float, alpha: float) -> Iterator[str]:
    """What is promised about the answers, in one or two sentences."""
    question, sites = question_of(problem), len(problem["groups"])
    if question.kind == "each":
        yield from _each_promise(delta, sites, question.simultaneous)
    elif question.also:
        yield f"The answer for all sites is wrong with probability at most {delta / 2:g}."
        yield from _each_promise(delta / 2, sites, question.simultaneous)
    elif question.kind == "control":
        yield f"All these answers are right together, except with probability at most {delta:g}."
        if alpha:
            yield (
                f"An answer is wrong, or a lead lies outside its interval, with probability at most "
                f"{delta + alpha:g}, if means do not change."
            )
        return
    else:
        yield f"This is wrong with probability at most {delta:g}, however much the sites differ."
    yield f"Each interval misses its value with probability at most {alpha:g} more, if means do not change."


def _each_promise(delta: float, sites: int, simultaneous: bool) -> Iterator[str]:
    if simultaneous:
        yield f"The answers of the sites are all right, except with probability at most {delta:g}."
    else:
        yield (
            f"The answer of each site is wrong with probability at most {delta:g}. "
            f"That all {sites} are right is not promised at that level: simultaneous = true does that."
        )
