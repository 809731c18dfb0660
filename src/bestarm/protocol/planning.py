"""What a method states about its costs before a run.

``PlanFacts`` is the part of ``Method`` that ``study.plan``, ``study.schedule`` and ``study.scaling`` use.
Each method defines it in its own folder (``methods/<method>/plan.py``). The defaults suit a method about
which nothing special is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.protocol.options import Common

Keys = dict[str, Any]  # options of a method that differ from the defaults


class RunBounds(Protocol):
    """What a theorem proves about the costs of a run; infinity where it proves nothing."""

    @property
    def rounds(self) -> float: ...

    @property
    def one_round(self) -> bool: ...

    @property
    def pulls_least(self) -> float: ...

    @property
    def pulls_most(self) -> float: ...

    @property
    def longest_most(self) -> float: ...

    def rows(self) -> list[dict[str, Any]]:
        """A table: one row per group."""
        ...


class Averages(NamedTuple):
    """Mean costs of simulated runs."""

    pulls: float
    rounds: float


class Scaling(NamedTuple):
    """How one cost of a method depends on one parameter. `basis` is "proved" or "measured"."""

    method: str
    parameter: str
    formula: str
    meaning: str
    basis: str


Measure = Callable[[Mapping[str, Any]], Averages]


def _as_it_is(layout: Layout, options: Common) -> Iterator[tuple[str, Keys]]:
    yield "", {}


def _none() -> Iterable[Keys]:
    return ()


def _no_advice(problem: Problem, options: Common, now: Averages, measure: Measure) -> Iterator[str]:
    return iter(())


def _no_bounds(problem: Problem, options: Common) -> RunBounds | None:
    return None


def _silent(*_: object) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """What a method states for plans. Hooks that return text return "" if they do not apply.

    Parameters
    ----------
    periodic : bool
        Whether rounds have a length fixed in advance, so that a hard problem takes very many of them and a
        simulation has to cap `max_rounds`.
    budget_is_longest : bool
        Whether a run reaches a decision exactly if no client needs more pulls than its budget. Otherwise a
        run may decide even though a client has run out of pulls.
    scheduled : bool
        Whether ``schedule`` tries the method when no methods are named.
    variants : callable
        ``variants(layout, options)`` yields (label, keys) for each choice of options worth a row in a plan.
    schedules : callable
        ``schedules()`` yields the options that ``schedule`` tries, from few pulls to many.
    advice : callable
        ``advice(problem, options, now, measure)`` yields sentences about alternatives; `now` are the costs
        with these options, and ``measure(keys)`` returns the costs with other options.
    left_out : callable
        ``left_out(layout)`` says why a plan omits the method although it supports the layout.
    too_long : callable
        ``too_long(problem, options, most_rounds)`` says why runs are too long to simulate.
    no_limit : callable
        ``no_limit(options)`` says why the information limit does not apply to runs with these options.
    bounds : callable
        ``bounds(problem, options)`` returns the proved bounds on such runs, or None.
    scaling : tuple of Scaling
        How the costs of the method scale.
    """

    periodic: bool = False
    budget_is_longest: bool = False
    scheduled: bool = False
    variants: Callable[[Layout, Any], Iterator[tuple[str, Keys]]] = _as_it_is
    schedules: Callable[[], Iterable[Keys]] = _none
    advice: Callable[[Problem, Any, Averages, Measure], Iterator[str]] = _no_advice
    left_out: Callable[[Layout], str] = _silent
    too_long: Callable[[Problem, Any, float], str] = _silent
    no_limit: Callable[[Any], str] = _silent
    bounds: Callable[[Problem, Any], RunBounds | None] = _no_bounds
    scaling: tuple[Scaling, ...] = ()


def change(new: float, old: float, what: str) -> str:
    """How much more or less `new` is than `old`, in words.

    >>> [change(new, 100, "pulls") for new in (102, 53, 100.01, 700)]
    ['2 % more pulls', '47 % fewer pulls', 'about as many pulls', '7.0 times as many pulls']
    """
    ratio = new / old if old else np.inf
    if abs(ratio - 1.0) < 0.005:
        return f"about as many {what}"
    if ratio >= 2.0:
        return f"{ratio:,.{0 if ratio >= 10.0 else 1}f} times as many {what}"
    return f"{percent(abs(ratio - 1.0))} {'more' if ratio > 1.0 else 'fewer'} {what}"


def percent(share: float) -> str:
    """A share as a whole percentage.

    >>> percent(0.947)
    '95 %'
    """
    return f"{100.0 * share:.0f} %"
