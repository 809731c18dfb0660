"""The machines of one run of Fed-Bet on fixed rewards, with messages and pulls in any order."""

from __future__ import annotations

import numpy as np

from bestarm.methods.bet.client import Client
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.server import Server
from bestarm.problem.layout import Group, Layout
from bestarm.problem.moments import of_values
from bestarm.protocol.events import Event, Pull, Pulled, Received, Send, Start
from bestarm.protocol.rounds import SERVER


def layout_of(counts, binary=True):
    """Groups g0, g1, … of one client each: c0, c1, …"""
    return Layout(
        tuple(
            Group(f"g{j}", tuple(f"a{i}" for i in range(arms)), (f"c{j}",), binary)
            for j, arms in enumerate(counts)
        )
    )


class Streams:
    """The rewards of every arm, in the order of its pulls: the same for every order of messages."""

    def __init__(self, means, seed, length=20_000, draw=None):
        rng = np.random.default_rng(seed)
        draw = draw or (lambda mean: (rng.random(length) < mean).astype(float))
        self.rows = [[draw(mean) for mean in row] for row in means]

    @property
    def counts(self):
        return [len(row) for row in self.rows]

    def of(self, j, arm, start, times):
        rewards = self.rows[j][arm][start : start + times]
        assert len(rewards) == times, "the streams are too short"
        return rewards


class Game:
    """Server and clients. Messages of one sender arrive in order; everything else is up to the test.

    `ups` and `downs` hold the messages in transit, and `log` the events that each machine has received.
    """

    def __init__(self, streams, binary=True, **options):
        self.streams, self.binary = streams, binary
        self.layout, self.options = layout_of(streams.counts, binary), Bet(**options)
        self.server = Server(self.layout, self.options)
        self.names = self.layout.clients
        self.clients = {name: Client(self.layout, name, self.options) for name in self.names}
        self.ups, self.downs = ({name: [] for name in self.names} for _ in range(2))
        self.pulls = dict.fromkeys(self.names)
        self.made = {name: [0] * len(streams.rows[j]) for j, name in enumerate(self.names)}
        self.log = {name: [] for name in (SERVER, *self.names)}
        self.tell(SERVER, Start())
        for name in self.names:
            self.tell(name, Start())

    def tell(self, name: str, event: Event):
        """Pass an event to a machine, and keep what it answers."""
        self.log[name].append(event)
        actions = (self.server if name == SERVER else self.clients[name]).handle(event)
        for action in actions:
            if isinstance(action, Pull):
                self.pulls[name] = action if action.arms else None
            elif isinstance(action, Send) and name == SERVER:
                for queue in self.downs.values():
                    queue.append(action.payload)
            elif isinstance(action, Send):
                self.ups[name].append(action.payload)
        return actions

    def up(self, name):
        """Deliver the next message of a client to the server."""
        return self.tell(SERVER, Received(name, self.ups[name].pop(0)))

    def down(self, name):
        """Deliver the server's next message to a client."""
        return self.tell(name, Received(SERVER, self.downs[name].pop(0)))

    def pull(self, name, times=None):
        """Carry out a client's outstanding pull, or a part of it; the client asks for the rest."""
        pull = self.pulls[name]
        times = pull.times if times is None else min(times, pull.times)
        self.pulls[name] = None
        return self.tell(name, self.rewards(name, pull, times))

    def rewards(self, name, pull, times) -> Pulled:
        j, rows = self.names.index(name), []
        for arm, share in zip(pull.arms, pull.each, strict=True):
            start, n = self.made[name][arm], times * share
            values = self.streams.of(j, arm, start, n)
            rows.append(of_values(values).tolist() if pull.moments else [float(values.sum())])
            self.made[name][arm] = start + n
        return Pulled.of(rows, times)

    @property
    def over(self):
        return self.server.state == "done"

    def moves(self, silent=()):
        """What can happen next: a message arrives, or a client pulls."""
        for name in self.names:
            if name in silent:
                continue
            if self.ups[name]:
                yield self.up, name
            if self.downs[name]:
                yield self.down, name
            elif self.pulls[name]:
                yield self.pull, name

    def step(self, silent=()):
        """In turn: all messages first, then pulls. Returns whether anything happened."""
        found = sorted(self.moves(silent), key=lambda move: move[0] == self.pull)
        for move, name in found[:1]:
            move(name)
        return bool(found)

    def go(self, silent=(), until=lambda game: False):
        """Play until the verdict, until a condition holds, or until nothing can happen without the silent."""
        while not self.over and not until(self) and self.step(silent):
            pass
        return self.server.verdict

    def to_block(self, k):
        """Play until all clients have begun block k; nobody has made its pulls."""
        self.go(until=lambda game: game.server.block == k)
        while any(self.downs.values()):
            self.down(next(name for name in self.names if self.downs[name]))
        assert all(client.block == k for client in self.clients.values() if client.state != "left")

    def shuffle(self, rng, steps=100_000, silent=()):
        """Play in random order, with pulls in parts, until the verdict or for some steps."""
        for _ in range(steps):
            found = list(self.moves(silent))
            if self.over or not found:
                break
            move, name = found[rng.randrange(len(found))]
            move(name, rng.choice([1, 2, 10**9])) if move == self.pull else move(name)
        return self.server.verdict
