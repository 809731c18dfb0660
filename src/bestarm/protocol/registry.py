"""The registry of methods, and ``Method``, the interface through which all other code uses a method.

``Method`` contains everything that differs between methods. No other module compares the name of a method
with a string. A package outside bestarm adds a method with ``register_method``, or with an entry point in the
group ``bestarm.methods`` that names a ``Method``.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, cast

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.protocol.crowd import Crowd
from bestarm.protocol.kernel import Kernel
from bestarm.protocol.lies import Lies
from bestarm.protocol.machine import ClientMachine, PeerMachine, ServerMachine
from bestarm.protocol.options import Common, accepts
from bestarm.protocol.planning import PlanFacts
from bestarm.protocol.trace import Certificate, RoundTrace, Trace
from bestarm.util.text import nearest, shorten

GROUP = "bestarm.methods"  # the entry-point group


@dataclass(frozen=True, kw_only=True)
class Method:
    """The description of a method that all other code uses.

    Parameters
    ----------
    name : str
        The name of the method in scenario files, in Python and on the command line.
    title, summary : str
        The display name, and one line about how the method works.
    options : type
        The options class, a frozen dataclass that derives from ``options.Common``.
    client, server : type
        The machines. Without a server, the clients are the peers of a network.
    refuse : callable
        ``refuse(layout, options)`` raises InputError for a layout or options that it does not support.
    pulls_of, good_event, audit_client : callable
        Read the clients' part of a certificate, for records and for ``verify``:
        ``pulls_of(part, arms, options)``, ``good_event(layout, options, means, certificate)``, and
        ``audit_client(part, server, name)`` or, for peers, ``audit_client(part, layout, options, name)``.
    questions : tuple of str
        The questions that the method answers.
    coins : bool
        Whether rewards must be 0/1. Other rewards are then turned into coins with the same mean.
    claims_intervals : callable
        ``claims_intervals(options)``: whether the method claims that the intervals in its certificate contain
        the means.
    epsilon, liars : bool
        Whether the method supports ε > 0, and whether it supports ``byzantine`` > 0.
    local_bests : bool
        Whether each client first finds the best arm of its own group, so that a tie within a group prevents
        the run from ending.
    pools : bool
        Whether it adds up the rewards of the clients of a group, so that no reward may be used twice.
    axis : str
        The horizontal axis of progress plots: "round" or "pulls".
    phases : tuple of two str
        The names of the two counts of pulls.
    kernel : callable or None
        ``kernel(problem, options, liars)`` simulates many runs at once, or is None if only the machines
        can simulate them; `liars` maps the names of clients to the names of their attacks.
    crowd : callable or None
        ``crowd(layout, options)`` plays all clients of an honest run at once, which is faster with thousands
        of them, or is None if only single machines can; see ``protocol.crowd``.
    plan : PlanFacts
        What the method states about its costs before a run.
    next_step : callable
        ``next_step(options, made)``: what the next step needs from an arm with `made` pulls so far, as
        the end of a sentence; empty if the method can always continue.
    lies : Lies or None
        How a lying client alters its messages. If None, only attacks that do not depend on the content of
        messages can be simulated, such as silence or random bytes.
    trace : callable
        ``trace(certificate)`` reads a certificate for reports and figures; see ``protocol.trace``.
    premise : callable
        ``premise(options)``: further assumptions behind the guarantee, in full sentences; empty if there are
        none.
    exchange : callable
        ``exchange(options)``: what peers send each other, "means" or "intervals". It decides how robust their
        network must be; see ``graphs.robustness``. The default is the one that needs more.
    most_reports : callable
        ``most_reports(layout, options)``: how many reports of one peer the others accept, at least. An honest
        peer never sends more.
    peer_bounds : callable
        ``peer_bounds(part, layout, options, peer)``: bounds on the mean of each arm of each group, from an
        honest peer's part of the certificate. All of them hold if the event does that makes the answer right.
        Empty if it has none.
    row_text : callable
        ``row_text(row, place, arms)``: one round of the server's history for the group at `place` in that
        row, in words; `arms` are the names of its arms. Empty if the row's interval says it all.
    interval_promise : callable
        ``interval_promise(options)``: what the method promises about the interval of the winner's mean, as a
        sentence; empty if the guarantee of the verdict includes the interval.
    curse : float or None
        The winner's curse: how much too good the mean of a named option was on average in measured runs, at
        most, as a share of half the width of its interval. None if nobody measured it.
    proof : str
        Where it is proved that an answer is wrong with probability at most δ. If it is empty, records,
        reports, plans and studies say that nothing is promised, and show no limit on pulls.
    rival : bool
        Whether it is there for comparison only: plans, help and lists leave it out unless it is named.
    grouped : Method or None
        The variant of the method for groups of several clients, if it uses other machines.
    asked : Method or None
        The variant of the method for questions other than "anywhere", if it answers them.
    robust : Method or None
        The variant of the method for ``byzantine`` > 0, if it uses other machines.
    ahead : Method or None
        The variant for the question "anywhere" and options for which `goes_ahead` is true, if it uses other
        machines: blocks are announced while parts of earlier ones are still to come.
    goes_ahead : callable
        Whether these options need the variant `ahead`.
    """

    name: str
    title: str
    summary: str
    options: type[Common]
    client: type[ClientMachine]
    server: type[ServerMachine] | None
    refuse: Callable[[Layout, Any], None]  # Any: the method's own options, which callers know as Common
    pulls_of: Callable[[Mapping[str, Any], int, Any], tuple[int, int]]
    good_event: Callable[[Layout, Any, Sequence[Sequence[Any]], Mapping[str, Any]], bool | None]
    audit_client: Callable[..., Iterator[str]]
    questions: tuple[str, ...] = ("anywhere",)
    coins: bool = False
    claims_intervals: Callable[[Common], bool] = field(default=lambda options: True)
    epsilon: bool = True
    liars: bool = False
    local_bests: bool = False
    pools: bool = False
    axis: str = "pulls"
    phases: tuple[str, str] = ("first", "later")
    kernel: Callable[[Problem, Any, Mapping[str, str]], Kernel | None] | None = None
    crowd: Callable[[Layout, Any], Crowd | None] = field(default=lambda layout, options: None)
    plan: PlanFacts = field(default_factory=PlanFacts)
    next_step: Callable[[Any, int], str] = field(default=lambda options, made: "")
    lies: Lies | None = None
    trace: Callable[[Certificate], Trace] = RoundTrace
    premise: Callable[[Any], str] = field(default=lambda options: "")
    interval_promise: Callable[[Any], str] = field(default=lambda options: "")
    exchange: Callable[[Any], str] = field(default=lambda options: "means")
    most_reports: Callable[[Layout, Any], int] = field(default=lambda layout, options: 0)
    peer_bounds: Callable[[Mapping[str, Any], Layout, Any, str], Sequence[Sequence[tuple[float, float]]]] = (
        field(default=lambda part, layout, options, peer: ())
    )
    row_text: Callable[[Mapping[str, Any], int, Sequence[str]], str] = lambda row, place, arms: ""
    curse: float | None = None
    proof: str = ""
    rival: bool = False
    grouped: Method | None = None
    asked: Method | None = None
    robust: Method | None = None
    ahead: Method | None = None
    goes_ahead: Callable[[Any], bool] = field(default=lambda options: False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[^\s,:]+", self.name):
            raise InputError(
                f"name = {shorten(self.name)} can't be used",
                where="Method",
                expected="a word without commas and colons, which separate names on the command line",
            )
        for hook in HOOKS:
            if not callable(getattr(self, hook)):
                raise InputError(
                    f"{hook} = {shorten(getattr(self, hook))} can't be called",
                    where=f'method "{self.name}"',
                    expected="a function or a class",
                    fix=f"See {hook} in the reference of Method",
                )

    @property
    def unproved(self) -> str:
        """Why nothing is promised about its answers; empty if there is a proof."""
        return "" if self.proof else f"no error probability is proved for the method {self.title}"

    @property
    def included(self) -> bool:
        """Whether it comes with bestarm, which then answers for its proof."""
        return INCLUDED.get(self.name) is self

    @property
    def installed(self) -> bool:
        """Whether every process knows it by its name, because it is part of an installed package."""
        return self.included or INSTALLED.get(self.name) is self

    @property
    def peers(self) -> bool:
        """Whether the clients are peers of a network without a server."""
        return self.server is None

    @property
    def peer(self) -> type[PeerMachine]:
        """The machine of a client, if clients are peers of a network."""
        assert self.server is None
        return cast("type[PeerMachine]", self.client)

    def variant(self, question: str, several: bool, options: Common | None) -> Method:
        """The variant for a question, for groups of several clients or not, and for options (liars)."""
        if question != "anywhere":
            return self.asked or self
        if self.ahead and options is not None and self.goes_ahead(options):
            return self.ahead
        if self.robust and options is not None and options.byzantine > 0:
            return self.robust
        return self.grouped if several and self.grouped else self

    def __reduce__(self) -> tuple[Callable[[str, str], Method], tuple[str, str]]:
        """Pickle by name: a copy in another process is the method registered there."""
        known = method_named(self.name)
        return _copy, (self.name, next((v for v in VARIANTS if getattr(known, v) is self), ""))


HOOKS = (  # fields of a method that must be callable
    "options", "client", "refuse", "pulls_of", "good_event", "audit_client", "claims_intervals", "crowd",
    "next_step", "trace", "premise", "interval_promise", "exchange", "most_reports", "peer_bounds",
    "row_text", "goes_ahead",
)  # fmt: skip
VARIANTS = ("grouped", "robust", "asked", "ahead")  # fields of a method that hold a variant of it
METHODS: dict[str, Method] = {}
INCLUDED: dict[str, Method] = {}  # those of METHODS that come with bestarm
INSTALLED: dict[str, Method] = {}  # those that an installed package declares


def include_method(method: Method) -> None:
    """Register a method of bestarm itself."""
    INCLUDED[method.name] = register_method(method)


def register_method(method: Method) -> Method:
    """Register a method, so that every command and function can use it.

    Parameters
    ----------
    method : Method
        The method to add.

    Returns
    -------
    Method
        The same method.

    Raises
    ------
    InputError
        If another method already has the same name.
    """
    if METHODS.get(method.name, method) is not method:
        raise InputError(
            f'there is already a method "{method.name}"',
            expected="a unique name",
            fix="Choose another name. An installed package registers its method by itself",
        )
    METHODS[method.name] = method
    return method


def load_entry_points() -> None:
    """Register the methods that installed packages declare in the entry-point group.

    A method that cannot be loaded is skipped with a warning, so that the others still work.
    """
    for point in entry_points(group=GROUP):
        try:
            found = point.load()
            if not isinstance(found, Method):
                raise InputError(f"expected a bestarm Method, got {shorten(found)}")
            INSTALLED[found.name] = register_method(found)
        except Exception as error:
            text = f"the method {point.name} ({point.value}) is left out: {type(error).__name__}: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def method_named(name: object) -> Method:
    """The method with this name; raises InputError if there is none."""
    if not isinstance(name, str) or name not in METHODS:
        hint = nearest(str(name), METHODS)
        end = "" if hint.endswith("?") else "."
        raise InputError(
            f'method "{name}" is unknown',
            fix=f"{hint}{end} Baselines such as lucb run in the arena only: bestarm arena --list",
        )
    return METHODS[name]


def _copy(name: str, variant: str) -> Method:
    """The registered method, or a variant of it."""
    found = method_named(name)
    return cast(Method, getattr(found, variant)) if variant else found


def options_for(method: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a scenario that are options of this method; the rest belong to other methods.

    So does a value that only other methods accept: `prefer` has different words in different methods.
    """
    own, every = method_named(method), METHODS.values()
    return {
        key: value
        for key, value in keys.items()
        if key in own.options.__dataclass_fields__
        and (accepts(own.options, key, value) or not any(accepts(m.options, key, value) for m in every))
    }


def unpacked(method: str | Common | None, keys: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The name of a method and its keys, from a name and keywords or from an options object."""
    if not isinstance(method, Common):
        return method, dict(keys)
    for name, known in METHODS.items():
        if known.options is type(method):
            return name, {**dataclasses.asdict(method), **keys}
    raise InputError(f"no method has the options {method!r}", expected=f"one of: {', '.join(METHODS)}")


def method_for(name: str, layout: Layout, options: Common | None = None) -> Method:
    """The variant of a method for a layout and its question, and for options."""
    several = any(len(group.clients) > 1 for group in layout.groups)
    return method_named(name).variant(layout.question.kind, several, options)


def demand_answers(name: str, layout: Layout) -> None:
    """Raise InputError unless the method answers the question of a layout."""
    kind = layout.question.kind
    if layout.paired and kind == "anywhere":
        raise InputError(
            'pair does not belong to question = "anywhere", which compares options of different sites',
            expected='question = "overall", "each" or "control"',
            fix='Add question = "overall", or leave out pair',
        )
    if kind not in method_named(name).questions:
        able = [m.name for m in METHODS.values() if kind in m.questions and not m.rival]
        raise InputError(
            f'method "{name}" does not answer question = "{kind}"',
            expected=f"one of: {', '.join(able)}",
            fix=f'Use method = "{able[0]}"' if able else "",
        )
