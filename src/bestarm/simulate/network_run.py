"""A simulated network of peers in one process, with delays, loss, crashes and liars, all seeded.

The driver draws rewards and delivers messages along the edges of a graph; the peers make all decisions. A
pull takes one time step. A message takes 50 % to 150 % of `delay` steps. A lost message is sent again after
three delays, and the messages of one edge stay in order. A peer that crashes is offline for a while and is
then rebuilt from the log of its events, so it never contradicts its earlier messages. Peers get a tick at
times that double, and whenever nothing else happens. After the last verdict each peer sends a summary, which
the others relay, so that it takes every edge once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

from bestarm.problem.problem import Problem
from bestarm.protocol import events
from bestarm.protocol.machine import PeerMachine
from bestarm.protocol.options import Common, on_unit_scale
from bestarm.protocol.registry import method_for
from bestarm.protocol.summaries import SummaryBook
from bestarm.records.build import conclude_peers
from bestarm.records.record import Record
from bestarm.simulate.adversary import Adversary, recruit
from bestarm.simulate.draw import Source
from bestarm.simulate.lying_client import Attack
from bestarm.simulate.network import Network
from bestarm.simulate.run import Progress, Steps, send_summaries, tallies_of, unused
from bestarm.util.seeds import stream

FIRST_TICK = 1000


class NetworkRun(Steps):
    """One run of all peers."""

    def __init__(
        self,
        problem: Problem,
        method: str,
        options: Common,
        seed: int,
        source: Source,
        network: Network,
        watch: Callable[[Progress], None] | None = None,
        adversaries: Sequence[Adversary] = (),
        peer: type[PeerMachine] | None = None,
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
        room = method_for(method, layout, options)
        made = peer or room.peer
        self.make: Callable[[int], PeerMachine] = lambda i: made(
            layout, layout.clients[i], self.unit, self.hears[i]
        )
        self.peers: list[PeerMachine] = [self.make(i) for i in range(len(layout.clients))]
        self.adversaries = [*adversaries, *network.liars(layout, options.byzantine, seed)]
        recruit(room, problem, self.unit, self.peers, self.adversaries, seed)
        self.honest = [i for i, p in enumerate(self.peers) if not isinstance(p, Attack)]
        self.rng = stream(seed, len(self.peers), 2**31)
        self.pulls: list[events.Pull | None] = [None] * len(self.peers)
        self.since = [0.0] * len(self.peers)
        self.ticket = [0] * len(self.peers)
        self.queue: list[tuple[float, int, Callable[[], None], Callable[[], bool]]] = []
        self.order = itertools.count()
        self.last: dict[tuple[int, int], float] = {}  # when an edge's last message arrives
        self.log: list[list[events.Event]] = [[] for _ in self.peers]
        # Peers that have not started or have crashed, with the actions that wait for them.
        self.away: dict[int, list[Callable[[], None]]] = {i: [] for i in range(len(self.peers))}
        self.now = 0.0
        self.decided = 0.0  # when the last honest peer decided
        self.total = self.bits = self.bytes = self.messages = 0
        self.left = unused(problem)
        self.coins = room.coins
        self.tallies = tallies_of(layout, room.coins)
        self._summaries: SummaryBook | None = None

    @property
    def summaries(self) -> SummaryBook | None:
        """What peers sent after the last verdict; None before it, or if they keep it at the site."""
        ended = all(self.peers[i].verdict is not None and self.pulls[i] is None for i in self.honest)
        if self._summaries is None and ended and self.options.summaries:
            faulty = {fault["client"] for i in self.honest for fault in self.peers[i].faulty}
            book = self._summaries = SummaryBook(self.problem.layout, self.coins, faulty)
            send_summaries(self.peers, self.tallies, book)
        return self._summaries

    def record(self) -> Record:
        return conclude_peers(self, [a.to_dict(self.problem.layout) for a in self.adversaries])

    def begin(self) -> None:
        for i in range(len(self.peers)):
            self._at(self.rng.uniform(0, self.network.start) if self.network.start else 0.0, self._starter(i))
        for i in self.rng.permutation(self.honest)[: self.network.crashes]:
            self._crash_later(int(i))
        if any(peer.ticking for peer in self.peers):
            self._at(FIRST_TICK, self._ticker(1))

    @property
    def over(self) -> bool:
        return all(
            self.peers[i].verdict is not None and self.pulls[i] is None and i not in self.away
            for i in self.honest
        )

    def step(self) -> None:
        if self.queue:
            time, _, action, due = heapq.heappop(self.queue)
            if due():
                self.now = time
                action()
        elif not self._flush():
            self._give_up()

    def progress(self) -> Progress:
        decided = sum(self.peers[i].verdict is not None for i in self.honest)
        return Progress(self.total, decided, len(self.honest), 0)

    def stop(self, reason: str) -> None:
        """End the run for all honest peers, also those that have not started or are offline."""
        for i in self.honest:
            self._do(i, self.peers[i].handle(events.Stop(reason)))

    def _at(self, time: float, action: Callable[[], None], due: Callable[[], bool] = lambda: True) -> None:
        """Carry out an action at this time, if it is still `due` then."""
        heapq.heappush(self.queue, (time, next(self.order), action, due))

    def _starter(self, i: int) -> Callable[[], None]:
        def start() -> None:
            waiting = self.away.pop(i)
            self._tell(i, events.Start())
            for action in waiting:
                action()

        return start

    def _ticker(self, k: int) -> Callable[[], None]:
        def tick() -> None:
            for i in range(len(self.peers)):
                if i not in self.away:
                    self._tell(i, events.PatienceOver(k))
            if self.away or any(self.pulls[i] is not None for i in self.honest):
                self._at(FIRST_TICK * 2.0**k, self._ticker(k + 1))

        return tick

    def _flush(self) -> bool:
        """Nothing is in transit: let the peers that hold back messages send them."""
        held = [i for i, p in enumerate(self.peers) if (p.held if isinstance(p, Attack) else p.pending)]
        for i in held:
            self._tell(i, events.PatienceOver(0))
        return bool(held) and bool(self.queue)

    def _give_up(self) -> None:
        """Nothing more will happen: tell the peers, so that those without a verdict end."""
        quiet = events.Quiet(spent=any(self.peers[i].spent for i in self.honest))
        for i in self.honest:
            self._tell(i, quiet)

    def _crash_later(self, i: int) -> None:
        down = float(self.rng.uniform(1, 20 * FIRST_TICK))
        back = down + float(self.rng.uniform(1, 10 * FIRST_TICK))

        def crash() -> None:
            if i not in self.away:
                self.away[i] = []
                self._at(back, restart)

        def restart() -> None:
            self.peers[i] = self.make(i)
            pull: events.Pull | None = None
            for event in self.log[i]:
                for action in self.peers[i].handle(event):
                    if isinstance(action, events.Pull):
                        pull = action if action.arms else None
            waiting = self.away.pop(i)
            if pull is not None:
                self._pull(i, pull)  # it was requested but not answered, so request it again
            for later in waiting:
                later()

        self._at(down, crash)

    def _tell(self, i: int, event: events.Event) -> None:
        """Pass an event to a peer, and carry out its actions."""
        if i in self.away:
            self.away[i].append(lambda: self._tell(i, event))
            return
        if self.network.crashes:
            self.log[i].append(event)
        self._do(i, self.peers[i].handle(event))

    def _do(self, i: int, actions: list[events.Action]) -> None:
        for action in actions:
            if isinstance(action, events.Pull):
                self._pull(i, action)
            elif isinstance(action, events.Send):
                self._send(i, action)
            elif not isinstance(self.peers[i], Attack):
                assert isinstance(action, events.Decided)
                self.decided = self.now

    def _pull(self, i: int, pull: events.Pull) -> None:
        self.ticket[i] += 1
        self.pulls[i] = pull if pull.arms else None
        self.since[i] = self.now
        if pull.arms:
            ticket = self.ticket[i]

            def due() -> bool:
                return ticket == self.ticket[i] and i not in self.away

            self._at(self.now + self._lasts(i, pull), lambda: self._finish(i, pull.times), due)

    def _finish(self, i: int, times: int) -> None:
        pull = self.pulls[i]
        assert pull is not None
        self.pulls[i] = None
        pulled = self._draw(i, pull, times)
        if pulled is not None:
            self.tallies[i].add(pull, pulled)
            self._tell(i, pulled)
        if pulled is None or pulled.times < times:
            self._tell(i, events.Stop(events.SPENT))

    def _send(self, i: int, send: events.Send) -> None:
        name = self.peers[i].name
        for v in self.heard_by[i]:
            if send.to in (events.ALL, self.peers[v].name):
                self.bits += send.bits
                self.bytes += len(send.payload)
                self.messages += 1
                self._at(self._arrival(i, v), self._delivery(name, v, send.payload))

    def _arrival(self, u: int, v: int) -> float:
        """When a message that is sent now arrives: never before an earlier one of the same edge.

        Peers treat an older claim that arrives late as a lie. The queue also keeps the order of equal times.
        """
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
                made = int((self.now - self.since[v]) // pull.width)  # these count before the message
                if 0 < made < pull.times:
                    self._finish(v, made)
            self._tell(v, events.Received(sender, payload))

        return deliver
