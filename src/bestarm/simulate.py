"""The in-process driver: all machines of one run, on a clock of one pull a time-step and client.

It draws rewards, moves payloads without delay, and decides nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import secrets
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bestarm.adversary import Adversary, Attack, recruit
from bestarm.errors import InputError, nearest
from bestarm.network import Network
from bestarm.problem import Problem
from bestarm.protocol import METHODS, method_for
from bestarm.protocol.machine import ALL, Action, PatienceOver, Pull, Pulled, Received, Send, Start, Stop
from bestarm.protocol.options import make
from bestarm.protocol.rounds import GroupServer
from bestarm.record import Record, conclude
from bestarm.rewards import Scale, stream
from bestarm.scenario import Scenario
from bestarm.topology import Graph

if TYPE_CHECKING:
    from bestarm.peers import NetworkRun

DEFAULT_METHOD = "fisher"

# Each client's batches, in order: (arms, times, sums).
Script = Mapping[int, Sequence[tuple[tuple[int, ...], int, tuple[float, ...]]]]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `record` is what there was by then, marked as interrupted.

    `rereading` if it was still taking from its journal what it had drawn before.
    """

    def __init__(self, record: Record, journal: str | Path | None = None, rereading: bool = False) -> None:
        super().__init__(f"interrupted; the same call goes on from {journal}" if journal else "interrupted")
        self.record, self.rereading = record, rereading


@dataclass(frozen=True)
class Progress:
    """Where a run is: pulls so far, clients that have reported, clients in all, rounds completed."""

    pulls: int
    reported: int
    clients: int
    rounds: int


def identify(
    problem: Problem | Scenario,
    method: str | None = None,
    *,
    delta: float | None = None,
    seed: int | None = None,
    adversaries: Sequence[Adversary] | None = None,
    network: Network | Graph | None = None,
    force: bool = False,
    watch: Callable[[Progress], None] | None = None,
    journal: str | Path | None = None,
    **options: Any,
) -> Record:
    """Run a method on a problem, in process and seeded, and give back its record.

    `options` are the method's (see ``bestarm run --help``); what a scenario sets is the default here.
    Without a seed one is drawn; it is in the record. `adversaries` are clients that lie (by default those of
    a scenario). `network` is for peers (``method="p2p"``); one that can't bear `byzantine` liars is refused
    unless you `force` it. `watch` is called now and then with the progress. `journal` names a file for what
    is drawn: ``bestarm watch`` follows it, and a run that was stopped goes on from there when it is started
    again.

    >>> import bestarm as ba
    >>> problem = ba.Problem.bernoulli([[.9, .2], [.6, .1]])
    >>> record = ba.identify(problem, method="fed-sel", delta=0.1, seed=7)
    >>> record.verdict.arm, record.rounds
    ('g1/a1', 1)
    """
    keys = {**options, **({} if delta is None else {"delta": delta})}
    if isinstance(problem, Scenario):
        seed = problem.seed if seed is None else seed
        adversaries = problem.adversaries if adversaries is None else adversaries
        network = problem.network if network is None else network
    problem, method, chosen = prepare(problem, method, keys)
    problem.demand_rewards()
    if journal is not None and seed is None:
        from bestarm.kept import seed_of

        seed = seed_of(Path(journal))
    seed = check_seed(seed)
    network = check_network(problem, method, chosen, network, force, adversaries or ())
    run = run_of(problem, method, chosen, seed, network, watch, adversaries or ())
    with contextlib.ExitStack() as stack:
        if journal is not None:
            from bestarm.kept import keep

            stack.enter_context(keep(run, Path(journal)))
        try:
            with _patient_interrupt() as run.interrupted:
                run.go()
        except KeyboardInterrupt:
            run.stop("interrupted")
            raise Interrupted(run.record(), journal, bool(getattr(run.source, "before", ()))) from None
    return run.record()


def prepare(
    problem: Problem | Scenario, method: str | None, keys: Mapping[str, Any]
) -> tuple[Problem, str, Any]:
    """The problem, the method's name and its options, checked; a scenario's own keys are the defaults."""
    if isinstance(problem, Scenario):
        method = method or problem.method or DEFAULT_METHOD
        keys = {**options_for(method, problem.options), **keys}
        problem = problem.problem
    if not isinstance(problem, Problem):
        raise InputError(
            f"a {type(problem).__name__} is no problem",
            expected="a Problem (Problem.bernoulli(…)) or a Scenario",
        )
    method = method or DEFAULT_METHOD
    options = make(_method(method).options, keys, where=f"method {method}")
    _method(method).refuse(problem.layout, on_unit_scale(options, problem.scale))
    return problem, method, options


def as_pulled(problem: Problem, method: str) -> Problem:
    """The problem as a method's clients pull it: with coins, where the method needs 0/1 rewards."""
    return problem.coined() if METHODS[method].coins else problem


def on_unit_scale(options: Any, scale: Scale) -> Any:
    """A method's options with those that are in units of the rewards brought to [0, 1]."""
    return dataclasses.replace(options, epsilon=options.epsilon / (scale.high - scale.low))


def check_network(
    problem: Problem,
    method: str,
    options: Any,
    network: Network | Graph | None,
    force: bool = False,
    adversaries: Sequence[Adversary] = (),
) -> Network | None:
    """The network of a run of peers; InputError if there is none, or if it can't bear the liars."""
    if METHODS[method].server is not None:
        return None
    if network is None:
        raise InputError(
            f'method "{method}" needs a network',
            expected="[network] in the scenario, or network=… (a Graph or a Network)",
        )
    network = Network(network) if isinstance(network, Graph) else network
    network.nodes(problem.layout)  # checks them
    try:
        network.refuse(problem.layout, options, adversaries)
    except InputError as error:
        if not force:
            raise
        network = dataclasses.replace(network, broken=str(error))
    return network


def run_of(
    problem: Problem,
    method: str,
    options: Any,
    seed: int,
    network: Network | None = None,
    watch: Callable[[Progress], None] | None = None,
    adversaries: Sequence[Adversary] = (),
) -> Run | NetworkRun:
    """A run, ready to go: of a server and its clients, or of the peers of a network."""
    source = Drawn(as_pulled(problem, method), seed)
    if network is None:
        return Run(problem, method, options, seed, source, watch, adversaries)
    from bestarm.peers import NetworkRun

    return NetworkRun(problem, method, options, seed, source, network, watch, adversaries)


def check_seed(seed: int | None) -> int:
    """The seed, or a fresh one; InputError if it is no whole number of at least 0."""
    if seed is None:
        return secrets.randbits(53)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed = {seed!r} can't be used", expected="a whole number of at least 0")
    return seed


def _method(name: str) -> Any:
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(f'method "{name}" is unknown', fix=nearest(str(name), METHODS))
    return METHODS[name]


def options_for(method: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a scenario's keys that this method has; the others are for other methods."""
    known = _method(method).options.__dataclass_fields__
    return {key: value for key, value in keys.items() if key in known}


@contextlib.contextmanager
def _patient_interrupt() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question that the run asks between two events; a second one raises."""
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


class Source(Protocol):
    """Where a run's rewards come from."""

    def draw(self, client: int, arms: tuple[int, ...], times: int) -> tuple[tuple[float, ...], int]:
        """Sums of so many rewards of each arm, and how many there were: fewer only if there are no more."""


class Drawn:
    """Rewards from the problem's models, each client and arm with a stream of its own."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.streams: dict[tuple[int, int], np.random.Generator] = {}
        self.made: dict[tuple[int, int], int] = {}

    def draw(self, client: int, arms: tuple[int, ...], times: int) -> tuple[tuple[float, ...], int]:
        models = [self.problem.rewards[client][a] for a in arms]
        made = [self.made.get((client, a), 0) for a in arms]
        left = [m.limit - n for m, n in zip(models, made, strict=True) if m.limit is not None]
        times = min([times, *left])
        if times == 0:
            return (), 0
        sums = []
        for a, model, start in zip(arms, models, made, strict=True):
            if (client, a) not in self.streams:
                self.streams[client, a] = stream(self.seed, client, a)
            sums.append(float(model.sums(self.streams[client, a], times, start)))
            self.made[client, a] = start + times
        return tuple(sums), times

    def agrees(self, client: int, arms: tuple[int, ...], times: int, sums: tuple[float, ...]) -> bool:
        """Whether these sums, of an earlier process, are what comes next; then draws go on after them.

        A user's function is believed and not called again. What it draws from then on comes from a fresh
        stream.
        """
        if times == 0:
            return True
        models = self.problem.rewards[client]
        known = tuple(a for a in arms if models[a].spec() is not None)
        for a in set(arms) - set(known):
            made = self.made[client, a] = self.made.get((client, a), 0) + times
            self.streams[client, a] = stream(self.seed, client, a, made)
        wanted = tuple(total for a, total in zip(arms, sums, strict=True) if a in known)
        return not known or self.draw(client, known, times) == (wanted, times)


class Scripted:
    """Rewards that were drawn before: for each client its batches as (arms, times, sums), in order.

    A batch of 0/1 rewards may be asked for in parts: given its sum, that of a part is hypergeometric.
    """

    def __init__(self, script: Script) -> None:
        self.script = {client: deque(batches) for client, batches in script.items()}
        self.rng = np.random.default_rng(0)  # only splits batches: any choice gives the same decisions

    def draw(self, client: int, arms: tuple[int, ...], times: int) -> tuple[tuple[float, ...], int]:
        batches, needed, total = self.script.get(client, deque()), times, np.zeros(len(arms))
        while needed:
            if not batches or batches[0][0] != arms:
                raise AssertionError(
                    f"client {client} asks for {needed} more pulls of {arms}: not in the script"
                )
            _, length, sums = batches.popleft()
            if length > needed:
                ones = np.asarray(sums, dtype=np.int64)
                part = self.rng.hypergeometric(ones, length - ones, needed)
                batches.appendleft((arms, length - needed, tuple((ones - part).astype(float).tolist())))
                length, sums = needed, tuple(part.astype(float).tolist())
            needed -= length
            total += sums
        return tuple(total.tolist()), times


class Steps(ABC):
    """What all runs in process share: they go step by step until they are over, or are interrupted."""

    watch: Callable[[Progress], None] | None
    source: Source
    interrupted: Callable[[], bool] = staticmethod(lambda: False)
    stepped: Callable[[], None] = staticmethod(lambda: None)

    def go(self) -> None:
        self.begin()
        steps = 0
        while not self.over:
            if self.interrupted():
                raise KeyboardInterrupt
            self.step()
            self.stepped()
            steps += 1
            if self.watch and steps % 64 == 0:
                self.watch(self.progress())

    @abstractmethod
    def begin(self) -> None:
        """Start all machines; nothing is drawn yet."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether there is nothing left to do."""

    @abstractmethod
    def step(self) -> None:
        """What happens next, with all that follows from it at once."""

    @abstractmethod
    def progress(self) -> Progress:
        """Where the run is."""


class Run(Steps):
    """One run: machines, a source of rewards, and the messages between them."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        options: Any,
        seed: int | None,
        source: Source,
        watch: Callable[[Progress], None] | None = None,
        adversaries: Sequence[Adversary] = (),
    ) -> None:
        self.problem, self.method, self.options, self.seed = problem, method, options, seed
        self.watch = watch
        layout = problem.layout
        self.unit = on_unit_scale(options, problem.scale)
        room = method_for(method, layout)
        assert room.server is not None
        self.server = room.server(layout, self.unit)
        self.clients = [room.client(layout, name, self.unit) for name in layout.clients]
        self.adversaries = adversaries
        recruit(problem, self.unit, self.clients, adversaries, seed or 0)
        self.index = {name: i for i, name in enumerate(layout.clients)}
        self.source = source
        self.pulls: list[Pull | None] = [None] * len(self.clients)  # outstanding
        self.since = [0] * len(self.clients)  # when the outstanding pull began
        self.ticket = [0] * len(self.clients)  # a replaced pull's place in the queue is void
        self.queue: list[tuple[int, int, int]] = []  # (time, client, ticket)
        self.mail: deque[tuple[str | int, bytes]] = (
            deque()
        )  # (sender of an uplink | receiver of a downlink, data)
        self.now = 0
        self.total = 0

    def record(self) -> Record:
        return conclude(
            self.problem,
            self.method,
            self.options,
            self.unit,
            self.seed,
            self.server,
            self.clients,
            [adversary.to_dict(self.problem.layout) for adversary in self.adversaries],
        )

    def begin(self) -> None:
        self._server(self.server.handle(Start()))
        for i, client in enumerate(self.clients):
            self._client(i, client.handle(Start()))
        self._pump()

    @property
    def over(self) -> bool:
        return bool(self.server.state == "done")

    def step(self) -> None:
        if not self.queue:
            self._idle()
            return
        self.now, i, ticket = heapq.heappop(self.queue)
        pull = self.pulls[i]
        if ticket == self.ticket[i] and pull is not None:
            self._finish(i, pull.times)
            self._pump()

    def progress(self) -> Progress:
        reported = sum(bool(client.sent) for client in self.clients)
        return Progress(self.total, reported, len(self.clients), self.server.rounds)

    def _idle(self) -> None:
        """Nobody pulls, and something is missing: liars that held back speak, then patience is over."""
        held = [i for i, client in enumerate(self.clients) if isinstance(client, Attack) and client.held]
        for i in held:
            self._client(i, self.clients[i].handle(PatienceOver(self.server.round)))
        if not held:
            out_of_pulls = any(client.spent for client in self.clients)
            waiting = isinstance(self.server, GroupServer) and self.server.patient
            if waiting or not (out_of_pulls or isinstance(self.server, GroupServer)):
                self._server(self.server.handle(PatienceOver(self.server.round)))
            else:  # nothing can come any more
                self._server(self.server.handle(Stop("budget" if out_of_pulls else "silence")))
        self._pump()

    def stop(self, reason: str) -> None:
        self._server(self.server.handle(Stop(reason)))

    def _finish(self, i: int, times: int) -> None:
        """Hand a client `times` rewards of each arm of its outstanding pull, or as many as there are."""
        pull = self.pulls[i]
        assert pull is not None
        self.pulls[i] = None
        sums, given = self.source.draw(i, pull.arms, times)
        if given > 0:
            self.total += given * len(pull.arms)
            self._client(i, self.clients[i].handle(Pulled(sums, given)))
        if given < times:
            self._client(i, self.clients[i].handle(Stop("budget")))

    def _pump(self) -> None:
        """Deliver what was sent, in order, until nothing is under way."""
        while self.mail:
            to, data = self.mail.popleft()
            if isinstance(to, str):
                self._server(self.server.handle(Received(to, data)))
            else:
                self._deliver(to, data)

    def _deliver(self, i: int, data: bytes) -> None:
        """A message comes while a client pulls: the epoch it is in is finished first."""
        pull = self.pulls[i]
        if pull is not None and self.now > self.since[i]:
            epochs = -(-(self.now - self.since[i]) // len(pull.arms))
            self._finish(i, min(epochs, pull.times))
        self._client(i, self.clients[i].handle(Received("server", data)))

    def _client(self, i: int, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Pull(arms, times):
                    self.ticket[i] += 1
                    self.pulls[i] = action if arms else None
                    self.since[i] = self.now
                    if arms:
                        heapq.heappush(self.queue, (self.now + times * len(arms), i, self.ticket[i]))
                case Send(_, payload, _):
                    self.mail.append((self.clients[i].name, payload))

    def _server(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                everyone = range(len(self.clients))
                self.mail.extend(
                    (i, action.payload) for i in everyone if action.to in (ALL, self.clients[i].name)
                )
