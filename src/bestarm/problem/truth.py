"""The right answer to a question, where the true means are known: for simulations and their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.question import Cells

if TYPE_CHECKING:
    from bestarm.problem.problem import Problem

BETTER, WORSE, WITHIN = "better", "worse", "within"


def values_of(problem: Problem) -> tuple[Cells, NDArray[np.float64]]:
    """The options of a question, and their values in [0, 1]; not a number if a mean is unknown."""
    layout = problem.layout
    cells = Cells.of(layout)
    weights = cells.weights(layout.question.weights, np.ones(len(layout.clients), dtype=bool))
    means = np.zeros(weights.shape)
    for i, (row, models) in enumerate(zip(cells.place, problem.rewards, strict=True)):
        means[i, list(row)] = [np.nan if model.mean is None else model.mean for model in models]
    return cells, np.asarray((weights * means).sum(axis=0))


def relation(gap: float, margin: float) -> str | None:
    """How an option compares with the control; None where no claim is right, because it is at the margin."""
    if gap > margin:
        return BETTER
    if gap < -margin:
        return WORSE
    return WITHIN if abs(gap) < margin else None


def truth(problem: Problem, margin: float = 0.0) -> str | None:
    """The right answer as ``Verdict.summary`` words it; None if it is unknown or not unique.

    `margin` is that of a comparison with a control, in [0, 1].
    """
    if problem.layout.question.kind == "anywhere":
        names, means = _arms(problem)
        return _top(names, means)
    parts = list(_parts(problem, margin))
    return None if any(part is None for part in parts) else ", ".join(map(str, parts))


def _parts(problem: Problem, margin: float) -> Iterator[str | None]:
    layout = problem.layout
    question = layout.question
    if question.kind != "each":
        cells, values = values_of(problem)
        if question.control is not None:
            control = cells.options.index(question.control)
            for k, name in enumerate(cells.options):
                if k != control:
                    found = relation(float(values[k] - values[control]), margin)
                    yield None if found is None else f"{name}: {found}"
            return
        yield _top(cells.options, values.tolist())
    if question.by_site:
        for group, row in zip(layout.groups, problem.means, strict=True):
            best = _top(group.arms, [float("nan") if mean is None else mean for mean in row])
            yield None if best is None else f"{group.name}: {best}"


def _top(names: Sequence[str], values: Sequence[float]) -> str | None:
    """The name of the largest value, if it is unique."""
    if any(value != value for value in values):
        return None
    best = [name for name, value in zip(names, values, strict=True) if value == max(values)]
    return best[0] if len(best) == 1 else None


def _arms(problem: Problem) -> tuple[list[str], list[float]]:
    """The full names of all arms, and their means; not a number if a mean is unknown."""
    names = [problem.layout.arm(j, a) for j, row in enumerate(problem.means) for a in range(len(row))]
    return names, [float("nan") if mean is None else mean for row in problem.means for mean in row]


def _ties_anywhere(problem: Problem, local: bool) -> list[str]:
    names, means = _arms(problem)
    if any(mean != mean for mean in means):
        return []
    found, top = [], max(means)
    best = [name for name, mean in zip(names, means, strict=True) if mean == top]
    if len(best) > 1:
        found.append(f"the best arms are tied: {', '.join(best)}")
    for group, row in zip(problem.layout.groups, problem.means, strict=True):
        own = max(mean for mean in row if mean is not None)
        tied = [arm for arm, mean in zip(group.arms, row, strict=True) if mean == own]
        if local and own < top and len(tied) > 1:
            found.append(f'the best arms of group "{group.name}" are tied: {", ".join(tied)}')
    return found


def ties_of(problem: Problem, local: bool = True) -> list[str]:
    """The ties that a run can never decide, in words; empty if means are unknown.

    `local`: for the question "anywhere", ties for the best arm of a group count, too.
    """
    layout, question = problem.layout, problem.layout.question
    if question.kind == "anywhere":
        return _ties_anywhere(problem, local)
    found = []
    if question.kind != "each":
        cells, values = values_of(problem)
        if np.isnan(values).any():
            return []
        if question.control is not None:
            control = values[cells.options.index(question.control)]
            tied = [
                n
                for n, v in zip(cells.options, values, strict=True)
                if v == control and n != question.control
            ]
            if tied:
                found.append(f"as good as the control {question.control}: {', '.join(tied)}")
        else:
            best = [n for n, v in zip(cells.options, values, strict=True) if v == values.max()]
            if len(best) > 1:
                found.append(f"the best options are tied: {', '.join(best)}")
    if question.by_site:
        for group, row in zip(layout.groups, problem.means, strict=True):
            top = [
                n
                for n, mean in zip(group.arms, row, strict=True)
                if mean is not None and mean == max(m or 0.0 for m in row)
            ]
            if len(top) > 1 and None not in row:
                found.append(f'the best options of site "{group.name}" are tied: {", ".join(top)}')
    return found
