"""Who takes part in an arena: registered methods, with options if you like, and baselines.

An entrant is named as on the command line: ``fisher``, ``bet:prefer=pulls``, ``lucb``. A registered method
runs through its kernel or its machines, exactly as in a study; a baseline has a kernel only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.instances import ANYWHERE, Instance
from bestarm.problem.problem import Problem
from bestarm.protocol.kernel import Columns
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS, Method
from bestarm.simulate.identify import prepare
from bestarm.study.arena.bandit import Bandit, Outcome
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines import BASELINES, known
from bestarm.study.cells import COLUMNS, Cell, Runnable, blocks_of, stream_of
from bestarm.util.seeds import stream
from bestarm.util.text import counted, nearest, shorten

NEVER_ENDS = "would never end: "


@dataclass(frozen=True)
class BaselineCell:
    """The trials of one baseline on one instance."""

    keys: dict[str, Any]
    baseline: Baseline
    problem: Problem
    question: str
    right: tuple[str, ...]
    delta: float
    most: int

    def blocks(self, trials: int) -> list[tuple[int, int]]:
        """(first trial, number of trials) of each block."""
        return blocks_of(trials, self.problem)

    def run(self, seed: int, block: int, size: int) -> Columns:
        """The columns of one block of trials. A pure function of its arguments."""
        rng = stream(seed, stream_of(self.keys), block)
        bandit = Bandit(self.problem, self.question)
        if bandit.k == 1:
            outcome = _only_option(bandit, size)
        else:
            outcome = self.baseline.kernel(bandit, self.delta, rng, size, self.most)
        where = f'baseline "{self.baseline.name}"'
        if not isinstance(outcome, Outcome):
            raise InputError(
                f"the kernel returned {shorten(outcome)}",
                where=where,
                expected="an Outcome, such as pulls.outcome",
            )
        if (done := int((~outcome.missing).sum())) != size:
            raise InputError(
                f"the kernel was asked for {counted(size, 'trial')}, and recorded {done}",
                where=where,
                expected="a result of every trial, from pulls.stop or Outcome.put (answer −1: undecided)",
            )
        columns = outcome.columns()
        columns["correct"] = np.array([arm in self.right for arm in columns["arm"]], dtype=object)
        return {name: columns[name] for name in COLUMNS}

    def identity(self) -> list[Any]:
        """Everything that must agree for a block of an earlier arena to be reused."""
        return [self.keys, self.baseline.name, self.problem.to_dict(), self.question, self.delta, self.most]


def _only_option(bandit: Bandit, trials: int) -> Outcome:
    """The answer without a pull, if there is only one option."""
    outcome, load = Outcome(bandit, trials), np.zeros((trials, len(bandit.clients)), dtype=np.int64)
    outcome.put(np.arange(trials), np.zeros(trials, dtype=np.int64), 0, 0, load, 0, 0)
    return outcome


@dataclass(frozen=True)
class Entrant:
    """A method or a baseline that takes part.

    Parameters
    ----------
    label : str
        The name on the command line, with options.
    title, proof, source : str
        The name for readers; what is proved about the error probability, empty if nothing is stated; and
        where the method comes from.
    headline : bool
        Whether it belongs in headline tables.
    method : Method or None
        The registered method, if it is one.
    baseline : Baseline or None
        The baseline, if it is one.
    options : dict
        The options of the registered method.
    """

    label: str
    title: str
    proof: str = ""
    source: str = ""
    headline: bool = True
    method: Method | None = None
    baseline: Baseline | None = None
    options: dict[str, object] = field(default_factory=dict)

    def cell(self, instance: Instance, delta: float, most: int) -> Runnable:
        """What to run on an instance; InputError with the reason if the entrant can't."""
        keys = {"method": self.label, "instance": instance.name, "delta": delta}
        questions = self.baseline.questions if self.baseline else self.method.questions if self.method else ()
        if instance.question not in questions:
            raise InputError(f'does not answer the question "{instance.question}"')
        if self.baseline:
            return _baseline_cell(self.baseline, keys, instance, delta, most)
        assert self.method is not None
        return _method_cell(self.method, keys, instance, {**self.options, "delta": delta})

    @property
    def has_name(self) -> bool:
        """Whether its label names it on the command line: not if only this process knows it."""
        if self.baseline:
            return known().get(self.label) is self.baseline
        return bool(self.method and self.method.installed)

    @property
    def included(self) -> bool:
        """Whether it comes with bestarm, which then answers for its proof."""
        if self.baseline:
            return BASELINES.get(self.label) is self.baseline
        return bool(self.method and self.method.included)


def _baseline_cell(
    baseline: Baseline, keys: dict[str, Any], instance: Instance, delta: float, most: int
) -> BaselineCell:
    problem = instance.problem.coined() if baseline.coins else instance.problem
    if why := baseline.refuse(Bandit(problem, instance.question)):
        raise InputError(why)
    values = instance.values
    right = tuple(name for name, value in values.items() if value == max(values.values()))
    return BaselineCell(keys, baseline, problem, instance.question, right, delta, most)


def _method_cell(
    method: Method, keys: dict[str, Any], instance: Instance, options: dict[str, object]
) -> Cell:
    if method.peers:
        raise InputError("needs a network of peers")
    asked = instance.problem
    if instance.question != ANYWHERE:
        asked = asked.asking(instance.question)
    problem, name, made = prepare(asked, method.name, options)
    if why := method.plan.left_out(problem.layout):
        raise InputError(why)
    if ties := problem.ties(method.local_bests):
        raise InputError(NEVER_ENDS + ties[0])
    return Cell(keys, problem, name, made)


def entrant(given: str | Baseline | Method) -> Entrant:
    """The entrant with this name (``bet:prefer=pulls``), or of this baseline or registered method.

    Raises
    ------
    InputError
        If there is none, or an option can't be used.

    Examples
    --------
    >>> entrant("bet:prefer=pulls").options, entrant("lucb").title
    ({'prefer': 'pulls'}, 'LUCB')
    """
    if isinstance(given, Baseline):
        return Entrant(given.name, given.title, given.proof, given.source, given.headline, baseline=given)
    if isinstance(given, Method):
        return _of_method(given.name, given, {})
    if not isinstance(given, str):
        raise InputError(f"{shorten(given)} is not a method", expected="a name, a Baseline or a Method")
    name, *settings = given.split(":")
    if name in METHODS:
        return _of_method(given, METHODS[name], dict(_setting(text, given) for text in settings))
    if name not in known():
        raise InputError(f'method "{name}" is unknown', fix=nearest(name, [*METHODS, *known()]))
    if settings:
        raise InputError(f'"{given}" can\'t be used', expected=f"{name}: a baseline has no options")
    return entrant(known()[name])


def _of_method(label: str, method: Method, options: dict[str, object]) -> Entrant:
    shown = ", ".join(f"{key} = {value}" for key, value in options.items())
    title = f"{method.title} ({shown})" if shown else method.title
    for key in options:
        if key not in method.options.__dataclass_fields__ or key == "delta":
            settable = [name for name in method.options.__dataclass_fields__ if name != "delta"]
            raise InputError(f'"{label}": key "{key}" can\'t be set', fix=nearest(key, settable))
    make(method.options, options, where=f'"{label}"')
    return Entrant(label, title, method.proof, method.summary, method=method, options=options)


def _setting(text: str, label: str) -> tuple[str, object]:
    """An option, from key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise InputError(f'"{label}" can\'t be read', expected="NAME:KEY=VALUE, such as bet:prefer=pulls")
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if value in words:
        return key.replace("-", "_"), words[value]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return key.replace("-", "_"), kind(value)
    return key.replace("-", "_"), value


def everyone() -> list[Entrant]:
    """All registered methods that have a server, and all baselines."""
    registered = [name for name, method in METHODS.items() if not method.peers]
    return [entrant(name) for name in (*registered, *known())]


def chosen(methods: Sequence[str | Baseline | Method] | None) -> list[Entrant]:
    """The entrants of these names or objects; all if None. InputError if a label comes twice."""
    if methods is None:
        return everyone()
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise InputError(f"methods = {shorten(methods)} can't be used", expected="a list of methods")
    found = [entrant(one) for one in methods]
    labels = [one.label for one in found]
    if twice := [label for k, label in enumerate(labels) if label in labels[:k]]:
        raise InputError(f'method "{twice[0]}" is given twice', expected="each method once")
    return found
