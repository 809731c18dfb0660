"""The settings of a look, checked, before the data say anything about rewards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.evidence.contests import QUESTIONS, default_question, pair_name, shared, weights_of
from bestarm.evidence.once import ORDERS
from bestarm.evidence.record import Settings
from bestarm.problem.counted import Rows
from bestarm.problem.scale import Scale
from bestarm.problem.tables.columns import Columns
from bestarm.problem.tables.propose import less_is_better
from bestarm.util.seeds import check_seed
from bestarm.util.text import nearest

LOOKS = ("once", "any-time")
WHY_BOUNDS = (
    "The promise needs a range that every reward lies in, known without these data: the largest reward seen "
    "is itself a matter of chance"
)


def goal_of(goal: str | None, columns: Columns) -> str:
    """Whether more is better, or less; InputError if that is not given and the column's name says less."""
    if goal is not None:
        return goal
    name = columns.reward or columns.successes
    if name is not None and less_is_better(name):
        raise InputError(
            f'it is not clear whether more of "{name}" is better, or less',
            expected="goal max or min, since the name sounds as if less were better",
            fix="Add --goal min (or --goal max)",
        )
    return "max"


def check_given(given: Mapping[str, Any]) -> None:
    """InputError for settings that are wrong whatever the table holds."""
    if given["question"] is not None:
        _choice("question", given["question"], QUESTIONS)
    _choice("look", given["look"], LOOKS)
    if not (isinstance(given["delta"], float) and 0 < given["delta"] < 1):
        raise InputError(f"delta = {given['delta']} is not a probability", expected="a number in (0, 1)")
    if not (isinstance(given["alpha"], float) and 0 < given["alpha"] < 1):
        raise InputError(f"alpha = {given['alpha']} is not a probability", expected="a number in (0, 1)")
    if isinstance(given["looks"], bool) or given["looks"] < 1:
        raise InputError(f"looks = {given['looks']}", expected="a whole number of at least 1")
    if given["looks"] > 1 and given["look"] != "once":
        raise InputError("looks at any time need not be counted", fix="Leave out looks")
    if "trials" in given["columns"] and given["bounds"] is not None:
        raise InputError("successes of trials are 0/1 rewards", fix="Leave out bounds")
    low, high = given["bounds"] or (0.0, 1.0)
    Scale(low, high, given["goal"], unit=given["unit"])
    check_seed(given["seed"])


def settings_of(table: str, rows: Rows, before: Settings | None, given: Mapping[str, Any]) -> Settings:
    """The settings that a user gave, with what follows from the names in the table.

    Weights by rows are those of `before`, the settings of the first look, if there are any.
    """
    question = given["question"] or (before.question if before else default_question(rows))
    if given["simultaneous"] and question != "each":
        raise InputError("simultaneous is about the question each", fix="Leave it out")
    weights = _weights(rows, given["weights"], question, before)
    _check_rewards(table, rows, given["bounds"], given["columns"])
    _check_control(rows, question, given["control"], given["margin"], given["bounds"])
    return Settings(
        question=question,
        look=given["look"],
        looks=given["looks"],
        delta=given["delta"],
        alpha=given["alpha"],
        goal=given["goal"],
        bounds=None if given["bounds"] is None else (float(given["bounds"][0]), float(given["bounds"][1])),
        weights=weights,
        weighted=given["weights"] if isinstance(given["weights"], str) else "given",
        control=given["control"],
        margin=float(given["margin"]),
        simultaneous=given["simultaneous"],
        seed=given["seed"],
        orders=ORDERS,
        order=given["order"],
        columns=given["columns"],
        unit=given["unit"],
        percent=rows.percent,
    )


def _choice(key: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f'{key} = "{value}" is unknown', expected=", ".join(known))


def _weights(
    rows: Rows, weights: str | Mapping[str, float], question: str, before: Settings | None
) -> dict[str, float]:
    """The weight of each site, frozen at the first look."""
    if question not in ("overall", "control"):
        if weights != "equal":
            raise InputError("weights are about the questions overall and control", fix="Leave them out")
        return {}
    if question == "control" and not shared(rows):
        return {}
    if weights == "rows" and before is not None and set(before.weights) == set(rows.sites):
        return before.weights
    return weights_of(rows, weights)


def _check_rewards(
    table: str, rows: Rows, bounds: tuple[float, float] | None, columns: Mapping[str, str]
) -> None:
    """InputError if there are no bounds, and a reward is not 0 or 1."""
    if bounds is None:
        other = rows.value[(rows.value != 0.0) & (rows.value != 1.0)]
        if len(other):
            low, high = (_written(float(value), rows) for value in (rows.value.min(), rows.value.max()))
            shares = ", as shares: --bounds 0 1 means 0 to 100%" if rows.percent else ""
            raise InputError(
                f'column "{columns["reward"]}" holds {_written(float(other[0]), rows)}, not 0 or 1, and no '
                "bounds are given",
                where=table,
                fix=f"Give bounds = (low, high) (--bounds LOW HIGH){shares}. "
                f"Here rewards range from {low} to {high}. {WHY_BOUNDS}",
            )


def _written(value: float, rows: Rows) -> str:
    """A reward as the table has it."""
    return f"{100 * value:g}%" if rows.percent else f"{value:g}"


def _check_control(
    rows: Rows, question: str, control: str | None, margin: float, bounds: tuple[float, float] | None
) -> None:
    """InputError unless there is such a control where one is asked for, and the margin fits the rewards."""
    if (question == "control") != (control is not None):
        what = "names no control" if control is None else "has no control"
        raise InputError(
            f"the question {question} {what}",
            expected="an option to compare with for the question control, and for no other",
            fix="Use --question control --control OPTION",
        )
    if not margin >= 0 or (margin > 0 and question != "control"):
        raise InputError(
            f"margin = {margin:g}", expected="at least 0, and above 0 only for the question control"
        )
    if control is None:
        return
    low, high = bounds or (0.0, 1.0)
    if margin >= high - low:
        raise InputError(
            f"margin = {margin:g} is as large as the range of the rewards, {low:g} to {high:g}",
            expected="a smaller difference"
            + ("; rewards are 0 or 1, so one percentage point is 0.01" if bounds is None else ""),
        )
    names = list(rows.options)
    if not shared(rows):
        pairs = sorted(set(zip(rows.site.tolist(), rows.option.tolist(), strict=True)))
        names = [pair_name(rows, *place) for place in pairs]
    if control not in names:
        raise InputError(f'there is no option "{control}" to compare with', fix=nearest(control, names))


def table_name(source: object, sql: str | None) -> str:
    """What a record calls its table."""
    if sql is not None:
        return "a query"
    return Path(source).name if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"
