"""One run of a server and its clients. In each time step, each client makes one pull."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.protocol import events
from bestarm.protocol.machine import ClientMachine, ServerMachine
from bestarm.protocol.options import Common, on_unit_scale
from bestarm.protocol.registry import method_for
from bestarm.protocol.summaries import SummaryBook, Tally
from bestarm.records.build import conclude
from bestarm.records.record import Record
from bestarm.simulate.adversary import Adversary, recruit
from bestarm.simulate.draw import Source
from bestarm.simulate.lying_client import Attack
from bestarm.util.text import shorten


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes
    ----------
    pulls : int
        Pulls so far.
    reported : int
        Clients that have reported; in a network, honest peers that have decided.
    clients : int
        Clients in total; in a network, honest peers.
    rounds : int
        Rounds completed; always 0 in a network.
    """

    pulls: int
    reported: int
    clients: int
    rounds: int


class Steps(ABC):
    """The main loop of runs in process: step by step until the run is over or interrupted."""

    watch: Callable[[Progress], None] | None
    source: Source
    left: list[dict[int, int]]  # the unused rewards of each client's recordings, by arm
    total: int
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
        """Whether the run is over."""

    @abstractmethod
    def step(self) -> None:
        """Process the next event and all its immediate consequences."""

    @abstractmethod
    def progress(self) -> Progress:
        """The progress so far."""

    def _lasts(self, i: int, pull: events.Pull) -> int:
        """The time steps of a pull of client i, which ends early if a recording runs out."""
        left, each = self.left[i], zip(pull.arms, pull.each, strict=True)
        return min([pull.times, *(left[a] // share for a, share in each if a in left)]) * pull.width

    def _draw(self, i: int, pull: events.Pull, times: int) -> events.Pulled | None:
        """Carry out a pull `times` times, or as often as there are rewards."""
        pulled = self.source.draw(i, pull, times)
        if pulled is not None:
            self.total += pulled.times * pull.width
            each = dict(zip(pull.arms, pull.each, strict=True))
            if pull.against is not None:  # a subject is used up for all arms
                each = dict.fromkeys(self.left[i], 1)
            for a, share in each.items():
                if a in self.left[i]:
                    self.left[i][a] -= share * pulled.times
        return pulled


def unused(problem: Problem) -> list[dict[int, int]]:
    """The number of rewards in each client's recordings, by arm; other arms are left out."""
    return [
        {a: model.limit for a, model in enumerate(models) if model.limit is not None}
        for models in problem.rewards
    ]


def tallies_of(layout: Layout, coins: bool) -> list[Tally]:
    """An empty tally for each client; `coins`: the method turns all rewards into 0/1."""
    groups = [layout.groups[layout.group_of[client]] for client in layout.clients]
    return [Tally(len(group.arms), coins or group.binary) for group in groups]


def book_for(layout: Layout, coins: bool, server: ServerMachine) -> SummaryBook:
    """An empty book of summaries for the server of a finished run."""
    return SummaryBook(layout, coins, {fault["client"] for fault in server.faulty} | server.gone)


def send_summaries(clients: Sequence[ClientMachine], tallies: Sequence[Tally], book: SummaryBook) -> None:
    """Put into the book what each client sends after the verdict; a liar's summary is its own claim."""
    for client, tally in zip(clients, tallies, strict=True):
        own = tally.summary()
        for data in client.summary(own) if isinstance(client, Attack) else [own.encode()[0]]:
            book.take(client.name, data)


class Run(Steps):
    """One run: machines, a source of rewards, and the messages between them."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        options: Common,
        seed: int | None,
        source: Source,
        watch: Callable[[Progress], None] | None = None,
        adversaries: Sequence[Adversary] = (),
    ) -> None:
        self.problem, self.method, self.options, self.seed = problem, method, options, seed
        self.watch = watch
        layout = problem.layout
        self.unit = on_unit_scale(options, problem.scale)
        room = method_for(method, layout, options)
        assert room.server is not None
        self.server: ServerMachine = room.server(layout, self.unit)
        self.clients: list[ClientMachine] = [room.client(layout, name, self.unit) for name in layout.clients]
        self.adversaries = adversaries
        recruit(room, problem, self.unit, self.clients, adversaries, seed or 0)
        self.index = {name: i for i, name in enumerate(layout.clients)}
        self.source = source
        self.pulls: list[events.Pull | None] = [None] * len(self.clients)  # outstanding
        self.since = [0] * len(self.clients)  # when the outstanding pull began
        self.ticket = [0] * len(self.clients)  # a replaced pull's place in the queue is void
        self.queue: list[tuple[int, int, int]] = []  # (time, client, ticket)
        self.mail: deque[tuple[str | int, bytes]] = (
            deque()
        )  # (sender of an uplink | receiver of a downlink, data)
        self.now = 0
        self.total = 0
        self.left = unused(problem)
        self.coins = room.coins
        self.tallies = tallies_of(layout, room.coins)
        self._summaries: SummaryBook | None = None

    @property
    def summaries(self) -> SummaryBook | None:
        """What clients sent after the verdict; None before it, or if they keep it at the site."""
        if self._summaries is None and self.over and self.options.summaries:
            book = self._summaries = book_for(self.problem.layout, self.coins, self.server)
            send_summaries(self.clients, self.tallies, book)
        return self._summaries

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
            time=self.now,
            summaries=self.summaries,
        )

    def begin(self) -> None:
        self._server(self.server.handle(events.Start()))
        for i, client in enumerate(self.clients):
            if self.left[i] and (client.state, events.Supply) in client.transitions:
                arms = range(len(self.problem.rewards[i]))
                client.handle(events.Supply(tuple(self.left[i].get(a) for a in arms)))
            self._client(i, client.handle(events.Start()))
        self._pump()

    @property
    def over(self) -> bool:
        return self.server.state == "done"

    def step(self) -> None:
        if not self.queue:
            self._idle()
            return
        time, i, ticket = heapq.heappop(self.queue)
        pull = self.pulls[i]
        if ticket == self.ticket[i] and pull is not None:
            self.now = time
            self._finish(i, pull.times)
            self._pump()

    def progress(self) -> Progress:
        reported = sum(bool(client.sent) for client in self.clients)
        return Progress(self.total, reported, len(self.clients), self.server.rounds)

    def _idle(self) -> None:
        """No client pulls and a message is missing: let waiting liars send theirs, else tell the server."""
        held = [i for i, client in enumerate(self.clients) if isinstance(client, Attack) and client.held]
        for i in held:
            self._client(i, self.clients[i].handle(events.PatienceOver(self.server.round)))
        if not held:
            self._server(self.server.handle(events.Quiet(spent=any(client.spent for client in self.clients))))
        self._pump()

    def stop(self, reason: str) -> None:
        self._server(self.server.handle(events.Stop(reason)))

    def _finish(self, i: int, times: int) -> None:
        """Carry out a client's outstanding pull `times` times, or as often as there are rewards."""
        pull = self.pulls[i]
        assert pull is not None
        self.pulls[i] = None
        pulled = self._draw(i, pull, times)
        if pulled is not None:
            self.tallies[i].add(pull, pulled)
            self._client(i, self.clients[i].handle(pulled))
        if pulled is None or pulled.times < times:
            self._client(i, self.clients[i].handle(events.Stop("budget")))

    def _pump(self) -> None:
        """Deliver all messages in order, until none is in transit."""
        while self.mail:
            to, data = self.mail.popleft()
            if isinstance(to, str):
                self._server(self.server.handle(events.Received(to, data)))
            else:
                self._deliver(to, data)

    def _deliver(self, i: int, data: bytes) -> None:
        """Deliver a message to a client; if it is pulling, it finishes the current epoch first."""
        pull = self.pulls[i]
        if pull is not None and self.now > self.since[i]:
            epochs = -(-(self.now - self.since[i]) // pull.width)
            self._finish(i, min(epochs, pull.times))
        self._client(i, self.clients[i].handle(events.Received("server", data)))

    def _client(self, i: int, actions: list[events.Action]) -> None:
        for action in self._listed(actions, "client"):
            match action:
                case events.Pull(arms) as pull:
                    self.ticket[i] += 1
                    self.pulls[i] = pull if arms else None
                    self.since[i] = self.now
                    if arms:
                        heapq.heappush(self.queue, (self.now + self._lasts(i, pull), i, self.ticket[i]))
                case events.Send(_, payload, _):
                    self.mail.append((self.clients[i].name, payload))

    def _listed(self, actions: list[events.Action], who: str) -> list[events.Action]:
        """The actions; InputError if a method's machine returned something else."""
        if isinstance(actions, list):
            return actions
        raise InputError(
            f"its {who} returned {shorten(actions)}",
            where=f'method "{self.method}"',
            expected="a list of actions, empty if there is nothing to do",
            fix=f"Return a list from every method of the {who} that handles an event",
        )

    def _server(self, actions: list[events.Action]) -> None:
        for action in self._listed(actions, "server"):
            if isinstance(action, events.Send):
                everyone = range(len(self.clients))
                self.mail.extend(
                    (i, action.payload) for i in everyone if action.to in (events.ALL, self.clients[i].name)
                )
