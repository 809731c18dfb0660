"""One run of a server and thousands of clients, which are played by a crowd: the record is that of ``Run``.

Clients pull in parallel, one pull per time step. Every message of the server is heard by all of them, either
when all outstanding pulls are done or at the moment at which they were asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bestarm.problem.problem import Problem
from bestarm.protocol import events
from bestarm.protocol.crowd import Crowd, Said
from bestarm.protocol.machine import ServerMachine
from bestarm.protocol.options import Common, on_unit_scale
from bestarm.protocol.registry import method_for
from bestarm.protocol.summaries import Summary
from bestarm.records.build import conclude
from bestarm.records.record import Record
from bestarm.simulate.draw import Drawn
from bestarm.simulate.run import Progress, Steps, book_for, unused
from bestarm.stats.sums import Sums

LEAST_CLIENTS = 50  # with fewer, single machines are as fast


@dataclass(frozen=True)
class _Member:
    """A client of a crowd, for the record."""

    name: str
    part: dict[str, Any]

    def local(self) -> dict[str, Any]:
        """The client's part of the certificate."""
        return self.part


class CrowdRun(Steps):
    """One run: a server, a crowd, a source of rewards, and the messages between them."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        options: Common,
        seed: int | None,
        source: Drawn,
        crowd: Crowd,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        self.problem, self.method, self.options, self.seed = problem, method, options, seed
        self.watch, self.source, self.drawn, self.crowd = watch, source, source, crowd
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
        self.coins = room.coins
        groups = [layout.groups[layout.group_of[name]] for name in self.names]
        self.rich = np.array([not (room.coins or group.binary) for group in groups])
        self.arms = [len(group.arms) for group in groups]
        self.taken = Sums.none((len(self.arms), max(self.arms)))

    def record(self) -> Record:
        """The record so far."""
        parts = zip(self.names, self.crowd.local(), strict=True)
        members = [_Member(name, part) for name, part in parts]
        book = None
        if self.over and self.options.summaries:
            book = book_for(self.problem.layout, self.coins, self.server)
            for name, summary in zip(self.names, self._summaries(), strict=True):
                book.take(name, summary)
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
        ends = np.full(len(self.names), self.now)
        said: Said = []
        while self.crowd.times.any():
            asked = self.crowd.times[:, None] * self.crowd.shares
            ends += asked.sum(axis=1)
            rewards = self.drawn.draw_all(asked, self.rich)
            self.total += int(asked.sum())
            self.taken = self.taken.plus(rewards)
            said += self.crowd.took(rewards)
        assert said, "nobody pulls and nobody speaks"
        when = ends.tolist()
        self.mail.extend(sorted(((when[i], i, payload) for i, payload in said), key=lambda mail: mail[:2]))

    def _summaries(self) -> Iterator[bytes]:
        """What each client sends after the verdict; many send the same."""
        encoded: dict[tuple[tuple[float, ...], ...], bytes] = {}
        count, total, squares, _, _ = (part.tolist() for part in self.taken.parts)
        for i, arms in enumerate(self.arms):
            sums = tuple(total[i][:arms])
            rows = tuple(map(int, count[i][:arms])), sums, tuple(map(min, squares[i][:arms], sums))
            if rows not in encoded:
                encoded[rows] = Summary(*rows).encode()[0]
            yield encoded[rows]
