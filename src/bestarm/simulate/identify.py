"""``identify`` runs a method on a problem in this process, with checked options and a seed.

The drivers (``run.py``, ``network_run.py``) draw rewards and deliver messages; the machines decide.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.protocol.crowd import Crowd
from bestarm.protocol.options import Common, make, on_unit_scale
from bestarm.protocol.registry import (
    METHODS,
    demand_answers,
    method_for,
    method_named,
    options_for,
    unpacked,
)
from bestarm.records.record import Record
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.crowd_run import LEAST_CLIENTS, CrowdRun
from bestarm.simulate.draw import Drawn
from bestarm.simulate.network import Network
from bestarm.simulate.run import Progress, Run
from bestarm.simulate.setup import Scenario, with_question
from bestarm.util.seeds import check_seed

if TYPE_CHECKING:
    from bestarm.simulate.network_run import NetworkRun


DEFAULT_METHOD = "bet"
DEFAULT_WITH_LIARS = "fisher"  # if rewards are 0/1; for others the default method needs fewer pulls


def default_method(options: Mapping[str, Any], layout: Layout, liars: bool = False) -> str:
    """The method if none is named: the default, or another one for groups with ε or for liars.

    >>> coins = Problem.bernoulli([[0.9], [0.2]], clients=3).layout
    >>> [default_method(options, coins) for options in ({}, {"byzantine": 1}, {"epsilon": 0.1})]
    ['bet', 'fisher', 'fisher']
    >>> beta = {"kind": "beta", "a": 9, "b": 1}
    >>> times = Problem.from_rewards({"g": {"a": beta, "b": 0.2}}, clients=3).layout
    >>> default_method({"byzantine": 1}, times)
    'bet'
    """
    if layout.question.kind != "anywhere":
        return DEFAULT_METHOD
    if len(layout.clients) > len(layout.groups) and options.get("epsilon"):
        return DEFAULT_WITH_LIARS
    if options.get("byzantine"):
        return DEFAULT_WITH_LIARS if all(group.binary for group in layout.groups) else DEFAULT_METHOD
    return DEFAULT_WITH_LIARS if liars else DEFAULT_METHOD


class Interrupted(KeyboardInterrupt):
    """Raised on Ctrl-C during a run.

    Attributes
    ----------
    record : Record
        The record of the run so far, marked as interrupted.
    rereading : bool
        Whether the run was still replaying rewards from its journal.
    """

    def __init__(self, record: Record, journal: str | Path | None = None, rereading: bool = False) -> None:
        super().__init__(f"interrupted; the same call resumes from {journal}" if journal else "interrupted")
        self.record, self.rereading = record, rereading


def identify(
    problem: Problem | Scenario,
    method: str | Common | None = None,
    *,
    delta: float | None = None,
    seed: int | None = None,
    adversaries: Sequence[Adversary] | None = None,
    network: Network | Graph | None = None,
    force: bool = False,
    watch: Callable[[Progress], None] | None = None,
    journal: str | Path | None = None,
    name: str = "",
    **options: object,
) -> Record:
    """Simulate a run of a method on a problem, in this process.

    Parameters
    ----------
    problem : Problem or Scenario
        The values in a scenario are the defaults for the parameters below.
    method : str or options object, optional
        A method's name, or its options, such as ``ba.Fisher(prefer="rounds")``. By default "bet",
        or "fisher" if `byzantine` is above 0 and rewards are 0/1.
    delta : float, optional
        The probability of a wrong answer is at most this.
    seed : int, optional
        The seed. By default a random one is chosen. The record contains it, unless rewards are real and
        private: with the seed, anyone could undo the random answers.
    adversaries : sequence of Adversary, optional
        Clients that lie.
    network : Network or Graph, optional
        The network, for methods without a server.
    force : bool
        Run even if the network is too weak for `byzantine` liars. The record then carries no guarantee.
    watch : callable, optional
        Called from time to time with the ``Progress``.
    journal : str or Path, optional
        A file that records the rewards that are drawn. ``bestarm watch`` follows it, and a run that was
        stopped resumes from it when you start it again.
    name : str
        A label for the record, which reports show with the day of the run. Without it the record has neither,
        so the same seed gives the same digest on any day.
    **options
        What is asked (`question`, `weights`, `control`, …; see ``Problem.asking``), and the method's
        options; ``ba.Bet``, ``ba.Fisher``, ``ba.FedSel``, ``ba.RobustFedSel`` and
        ``ba.PeerToPeer`` document them.

    Returns
    -------
    Record
        The verdict, its certificate and the costs of the run.

    Raises
    ------
    InputError
        If an argument is invalid; the message says what, where and how to fix it.
    Interrupted
        On Ctrl-C, with the record so far.

    Examples
    --------
    >>> import bestarm as ba
    >>> problem = ba.Problem.bernoulli([[.9, .2], [.6, .1]])
    >>> record = ba.identify(problem, method="fed-sel", delta=0.1, seed=7)
    >>> record.verdict.arm, record.rounds
    ('g1/a1', 1)
    >>> ba.identify(problem, ba.FedSel(delta=0.1), seed=7).pulls == record.pulls
    True
    """
    keys = {**options, **({} if delta is None else {"delta": delta})}
    if isinstance(problem, Scenario):
        seed = problem.seed if seed is None else seed
        adversaries = problem.adversaries if adversaries is None else adversaries
        network = problem.network if network is None else network
    problem, method, chosen = prepare(problem, method, keys, liars=bool(adversaries))
    problem.demand_rewards()
    if journal is not None and seed is None:
        from bestarm.simulate.run_journal import seed_of

        seed = seed_of(Path(journal))
    seed = check_seed(seed)
    network = check_network(problem, method, chosen, network, force, adversaries or ())
    crowd = None if journal is not None else crowd_of(problem, method, chosen, adversaries or ())
    run: Run | NetworkRun | CrowdRun
    with contextlib.ExitStack() as stack:
        stack.enter_context(_rare_collections())
        if crowd is not None:
            source = Drawn(as_pulled(problem, method), seed)
            run = CrowdRun(problem, method, chosen, seed, source, crowd, watch)
        else:
            run = single = run_of(problem, method, chosen, seed, network, watch, adversaries or ())
            if journal is not None:
                from bestarm.simulate.run_journal import keep

                stack.enter_context(keep(single, Path(journal)))
        try:
            with _patient_interrupt() as run.interrupted:
                run.go()
        except KeyboardInterrupt:
            run.stop("interrupted")
            found = run.record().labelled(name)
            raise Interrupted(found, journal, bool(getattr(run.source, "before", ()))) from None
        return run.record().labelled(name)


def prepare(
    problem: Problem | Scenario, method: str | Common | None, keys: Mapping[str, Any], liars: bool = False
) -> tuple[Problem, str, Common]:
    """Check and return the problem, the method's name and its options; a scenario's keys are the defaults."""
    method, keys = unpacked(method, keys)
    problem, keys = with_question(problem, keys)
    if isinstance(problem, Scenario):
        found = {**problem.options, **keys}
        liars = liars or bool(problem.adversaries)
        method = method or problem.method or default_method(found, problem.problem.layout, liars)
        keys = {**options_for(method, problem.options), **keys}
        problem = problem.problem
    if not isinstance(problem, Problem):
        raise InputError(
            f"expected a Problem or a Scenario, got a {type(problem).__name__}",
            fix="Make one with Problem.bernoulli(…), or load a scenario file",
        )
    method = method or default_method(keys, problem.layout, liars)
    demand_answers(method, problem.layout)
    options = make(method_named(method).options, keys, where=f"method {method}")
    method_named(method).refuse(problem.layout, on_unit_scale(options, problem.scale))
    return problem, method, options


def as_pulled(problem: Problem, method: str) -> Problem:
    """The problem as a method's clients see it: rewards become coins if the method needs 0/1 rewards."""
    return problem.coined() if METHODS[method].coins else problem


def check_network(
    problem: Problem,
    method: str,
    options: Common,
    network: Network | Graph | None,
    force: bool = False,
    adversaries: Sequence[Adversary] = (),
) -> Network | None:
    """The network of a run of peers; InputError if it is missing or does not tolerate the liars."""
    if METHODS[method].server is not None:
        return None
    if network is None:
        raise InputError(
            f'method "{method}" needs a network',
            expected="[network] in the scenario, or network=… (a Graph or a Network)",
        )
    network = Network(network) if isinstance(network, Graph) else network
    network.nodes(problem.layout)  # raises if nodes and clients do not match
    try:
        network.refuse(problem.layout, options.byzantine, METHODS[method].exchange(options), adversaries)
    except InputError as error:
        if not force:
            raise
        network = dataclasses.replace(network, broken=str(error))
    return network


def crowd_of(
    problem: Problem,
    method: str,
    options: Common,
    adversaries: Sequence[Adversary] = (),
    least: int = LEAST_CLIENTS,
) -> Crowd | None:
    """All clients of a run as one, if there are many and the method can do so; the record is the same."""
    layout = problem.layout
    if adversaries or len(layout.clients) < least:
        return None
    return method_for(method, layout, options).crowd(layout, on_unit_scale(options, problem.scale))


def run_of(
    problem: Problem,
    method: str,
    options: Common,
    seed: int,
    network: Network | None = None,
    watch: Callable[[Progress], None] | None = None,
    adversaries: Sequence[Adversary] = (),
) -> Run | NetworkRun:
    """A run that has not started: of a server and its clients, or of the peers of a network."""
    source = Drawn(as_pulled(problem, method), seed)
    if network is None:
        return Run(problem, method, options, seed, source, watch, adversaries)
    from bestarm.simulate.network_run import NetworkRun

    return NetworkRun(problem, method, options, seed, source, network, watch, adversaries)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect cyclic garbage after 100,000 new objects instead of hundreds.

    With thousands of clients a run makes millions of small objects without cycles, most of which stay in the
    record, and looking through them again and again takes as long as the run.
    """
    before = gc.get_threshold()
    if gc.isenabled():
        gc.set_threshold(max(before[0], 100_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _patient_interrupt() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag that the run checks between two events; a second one raises."""
    asked = False

    def on_signal(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
