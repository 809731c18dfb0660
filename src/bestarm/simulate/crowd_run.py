"""One run of a server and thousands of clients, which are played by a crowd: the record is that of ``Run``.

Clients pull in parallel, one pull per time step. Every message of the server is heard by all of them, either
when all outstanding pulls are done or at the moment at which they were asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bestarm.problem.problem import Problem
from bestarm.protocol import events
from bestarm.protocol.crowd import Crowd, Said
from bestarm.protocol.machine import ServerMachine
from bestarm.protocol.options import Common, on_unit_scale
from bestarm.protocol.registry import method_for
from bestarm.records.build import conclude
from bestarm.records.record import Record
from bestarm.simulate.draw import Source
from bestarm.simulate.run import Progress, Steps, book_for, tallies_of, unused

LEAST_CLIENTS = 50  # with fewer, single machines are as fast


@dataclass(frozen=True)
class _Member:
    """A client of a crowd, for the record."""

    crowd: Crowd
    number: int
    name: str

    def local(self) -> dict[str, Any]:
        """The client's part of the certificate."""
        return self.crowd.local(self.number)


class CrowdRun(Steps):
    """One run: a server, a crowd, a source of rewards, and the messages between them."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        options: Common,
        seed: int | None,
        source: Source,
        crowd: Crowd,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        self.problem, self.method, self.options, self.seed = problem, method, options, seed
        self.watch, self.source, self.crowd = watch, source, crowd
        layout = problem.layout
        self.unit = on_unit_scale(options, problem.scale)
        room = method_for(method, layout, options)
        assert room.server is not None
        self.server: ServerMachine = room.server(layout, self.unit)
        self.names = layout.clients
        self.mail: deque[tuple[int, int, bytes]] = deque()  # (when, client, payload)
        self.spoken = [False] * len(self.names)
        self.now = self.total = 0
        self.left = unused(problem)
        self.tallies = tallies_of(layout, room.coins)
        self.coins = room.coins

    def record(self) -> Record:
        """The record so far."""
        members = [_Member(self.crowd, i, name) for i, name in enumerate(self.names)]
        book = None
        if self.over and self.options.summaries:
            book = book_for(self.problem.layout, self.coins, self.server)
            for name, tally in zip(self.names, self.tallies, strict=True):
                book.take(name, tally.summary().encode()[0])
        return conclude(
            self.problem, self.method, self.options, self.unit, self.seed, self.server, members,
            time=self.now, summaries=book,
        )  # fmt: skip

    def begin(self) -> None:
        self.server.handle(events.Start())
        arms = [range(len(models)) for models in self.problem.rewards]
        finite = [tuple(left.get(a) for a in arms[i]) if left else () for i, left in enumerate(self.left)]
        self._say(self.crowd.start(finite))

    @property
    def over(self) -> bool:
        return self.server.state == "done"

    def step(self) -> None:
        """Deliver a message to the server, or let all clients pull if none is in transit."""
        if not self.mail:
            self._pull()
            return
        self.now, client, payload = self.mail.popleft()
        self.spoken[client] = True
        for action in self.server.handle(events.Received(self.names[client], payload)):
            if isinstance(action, events.Send):
                self._say(self.crowd.heard(action.payload))

    def progress(self) -> Progress:
        return Progress(self.total, sum(self.spoken), len(self.names), self.server.rounds)

    def stop(self, reason: str) -> None:
        self.server.handle(events.Stop(reason))

    def _say(self, said: Said) -> None:
        self.mail.extend((self.now, client, payload) for client, payload in said)

    def _pull(self) -> None:
        """Carry out all outstanding pulls; each client's message leaves when its last pull is done."""
        ends: dict[int, int] = {}
        said: Said = []
        while self.crowd.pulls:
            rewards = {}
            for i, pull in self.crowd.pulls.items():
                ends[i] = ends.get(i, self.now) + self._lasts(i, pull)
                pulled = self._draw(i, pull, pull.times)
                assert pulled is not None
                assert pulled.times == pull.times, "a crowd asks for what there is"
                self.tallies[i].add(pull, pulled)
                rewards[i] = pulled
            said += self.crowd.took(rewards)
        assert said, "nobody pulls and nobody speaks"
        self.mail.extend(sorted(((ends[i], i, payload) for i, payload in said), key=lambda mail: mail[:2]))
