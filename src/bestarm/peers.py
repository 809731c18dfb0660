"""Peers in process: an event-driven network with delays, loss, crashes and liars, all seeded.

It draws rewards, moves payloads along the edges of a graph, and decides nothing. One pull takes a client one
time-step. A message along an edge takes `delay` steps, give or take a half; one that is lost is sent again
after three delays, and those of one edge stay in order. A peer that crashes is gone for a while; it comes
back from the log of its events, so that nothing that it said is unsaid. Peers get a tick at times that
double, and whenever nothing else happens.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from bestarm.adversary import Adversary, Attack, recruit
from bestarm.network import Network
from bestarm.problem import Problem
from bestarm.protocol.machine import (
    ALL,
    Action,
    Decided,
    Event,
    PatienceOver,
    Pull,
    Pulled,
    Received,
    Send,
    Start,
    Stop,
)
from bestarm.protocol.peer import SPENT, Peer
from bestarm.record import Record, conclude_peers
from bestarm.rewards import stream
from bestarm.simulate import Progress, Source, Steps, on_unit_scale

FIRST_TICK = 1000


class NetworkRun(Steps):
    """One run of all peers."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        options: Any,
        seed: int,
        source: Source,
        network: Network,
        watch: Callable[[Progress], None] | None = None,
        adversaries: Sequence[Adversary] = (),
        peer: type[Peer] = Peer,
    ) -> None:
        self.problem, self.method, self.options, self.seed = problem, method, options, seed
        self.source, self.network, self.watch = source, network, watch
        self.unit = on_unit_scale(options, problem.scale)
        layout = problem.layout
        self.index = {name: i for i, name in enumerate(layout.clients)}
        place = network.nodes(layout)
        client_at = {k: c for c, k in place.items()}
        self.hears = [
            [client_at[int(u)] for u in network.graph.in_neighbours(place[c])] for c in layout.clients
        ]
        self.heard_by: list[list[int]] = [[] for _ in layout.clients]
        for v, names in enumerate(self.hears):
            for name in names:
                self.heard_by[self.index[name]].append(v)
        self.make: Callable[[int], Any] = lambda i: peer(layout, layout.clients[i], self.unit, self.hears[i])
        self.peers: list[Any] = [self.make(i) for i in range(len(layout.clients))]
        self.adversaries = [*adversaries, *network.liars(layout, options.byzantine, seed)]
        recruit(problem, self.unit, self.peers, self.adversaries, seed)
        self.honest = [i for i, p in enumerate(self.peers) if not isinstance(p, Attack)]
        self.rng = stream(seed, len(self.peers), 2**31)
        self.pulls: list[Pull | None] = [None] * len(self.peers)
        self.since = [0.0] * len(self.peers)
        self.ticket = [0] * len(self.peers)
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.last: dict[tuple[int, int], float] = {}  # when an edge's last message comes
        self.log: list[list[Event]] = [[] for _ in self.peers]
        # Not begun, or crashed: what waits for it.
        self.away: dict[int, list[Callable[[], None]]] = {i: [] for i in range(len(self.peers))}
        self.now = 0.0
        self.total = self.bits = self.bytes = self.messages = 0

    def record(self) -> Record:
        return conclude_peers(self, [a.to_dict(self.problem.layout) for a in self.adversaries])

    def begin(self) -> None:
        for i in range(len(self.peers)):
            self._at(self.rng.uniform(0, self.network.start) if self.network.start else 0.0, self._starter(i))
        for i in self.rng.permutation(self.honest)[: self.network.crashes]:
            self._crash_later(int(i))
        if self.unit.exchange == "intervals":
            self._at(FIRST_TICK, self._ticker(1))

    @property
    def over(self) -> bool:
        return all(
            self.peers[i].verdict is not None and self.pulls[i] is None and i not in self.away
            for i in self.honest
        )

    def step(self) -> None:
        if self.queue:
            self.now, _, action = heapq.heappop(self.queue)
            action()
        elif not self._flush():
            self._give_up()

    def progress(self) -> Progress:
        decided = sum(self.peers[i].verdict is not None for i in self.honest)
        return Progress(self.total, decided, len(self.honest), 0)

    def stop(self, reason: str) -> None:
        """The operator ends it: also for peers that have not begun, or are away."""
        for i in self.honest:
            self._do(i, self.peers[i].handle(Stop(reason)))

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (time, next(self.order), action))

    def _starter(self, i: int) -> Callable[[], None]:
        def start() -> None:
            waiting = self.away.pop(i)
            self._tell(i, Start())
            for action in waiting:
                action()

        return start

    def _ticker(self, k: int) -> Callable[[], None]:
        def tick() -> None:
            for i in range(len(self.peers)):
                if i not in self.away:
                    self._tell(i, PatienceOver(k))
            if self.away or any(self.pulls[i] is not None for i in self.honest):
                self._at(FIRST_TICK * 2.0**k, self._ticker(k + 1))

        return tick

    def _flush(self) -> bool:
        """Nothing is under way: those that hold something back say it now."""
        held = [i for i, p in enumerate(self.peers) if (p.held if isinstance(p, Attack) else p.pending)]
        for i in held:
            self._tell(i, PatienceOver(0))
        return bool(held) and bool(self.queue)

    def _give_up(self) -> None:
        """Nothing can come any more."""
        out_of_pulls = any(self.peers[i].spent for i in self.honest)
        for i in self.honest:
            if self.peers[i].verdict is None:
                self._tell(i, Stop("budget" if out_of_pulls else "silence"))

    def _crash_later(self, i: int) -> None:
        down = float(self.rng.uniform(1, 20 * FIRST_TICK))
        back = down + float(self.rng.uniform(1, 10 * FIRST_TICK))

        def crash() -> None:
            if i not in self.away:
                self.away[i] = []
                self._at(back, restart)

        def restart() -> None:
            self.peers[i] = self.make(i)
            pull: Pull | None = None
            for event in self.log[i]:
                for action in self.peers[i].handle(event):
                    if isinstance(action, Pull):
                        pull = action if action.arms else None
            waiting = self.away.pop(i)
            if pull is not None:
                self._pull(i, pull)  # it was asked for, and not answered: it is asked for again
            for action in waiting:
                action()

        self._at(down, crash)

    def _tell(self, i: int, event: Event) -> None:
        """Hand an event to a peer, and do what it says."""
        if i in self.away:
            self.away[i].append(lambda: self._tell(i, event))
            return
        if self.network.crashes:
            self.log[i].append(event)
        self._do(i, self.peers[i].handle(event))

    def _do(self, i: int, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Pull):
                self._pull(i, action)
            elif isinstance(action, Send):
                self._send(i, action)
            else:
                assert isinstance(action, Decided)

    def _pull(self, i: int, pull: Pull) -> None:
        self.ticket[i] += 1
        self.pulls[i] = pull if pull.arms else None
        self.since[i] = self.now
        if pull.arms:
            ticket = self.ticket[i]

            def done() -> None:
                if ticket == self.ticket[i] and i not in self.away:
                    self._finish(i, pull.times)

            self._at(self.now + pull.times * len(pull.arms), done)

    def _finish(self, i: int, times: int) -> None:
        pull = self.pulls[i]
        assert pull is not None
        self.pulls[i] = None
        sums, given = self.source.draw(i, pull.arms, times)
        if given:
            self.total += given * len(pull.arms)
            self._tell(i, Pulled(sums, given))
        if given < times:
            self._tell(i, Stop(SPENT))

    def _send(self, i: int, send: Send) -> None:
        name = self.peers[i].name
        for v in self.heard_by[i]:
            if send.to in (ALL, self.peers[v].name):
                self.bits += send.bits
                self.bytes += len(send.payload)
                self.messages += 1
                self._at(self._arrival(i, v), self._delivery(name, v, send.payload))

    def _arrival(self, u: int, v: int) -> float:
        delay, time = self.network.delay, self.now
        if delay:
            time += delay * self.rng.uniform(0.5, 1.5)
        if self.network.loss:
            time += 3.0 * max(delay, 1.0) * (self.rng.geometric(1.0 - self.network.loss) - 1)
        self.last[u, v] = max(time, self.last.get((u, v), 0.0))
        return self.last[u, v]

    def _delivery(self, sender: str, v: int, payload: bytes) -> Callable[[], None]:
        def deliver() -> None:
            pull = self.pulls[v]
            if pull is not None and v not in self.away and self.peers[v].state == "sampling":
                made = int(self.now - self.since[v])  # what is paid for counts before what is new
                if 0 < made < pull.times:
                    self._finish(v, made)
            self._tell(v, Received(sender, payload))

        return deliver
