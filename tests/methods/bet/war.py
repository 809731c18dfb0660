"""Runs of machines among liars in which messages come late, in any order or not at all.

The rewards of honest clients are fixed by a seed, so a test knows them although the server does not. A liar
is a client that makes its rewards up, or that sends nonsense.
"""

from __future__ import annotations

import random

import numpy as np

from bestarm.problem.moments import of_values
from bestarm.protocol.events import Drop, PatienceOver, Pull, Pulled, Received, Send, Start
from bestarm.protocol.rounds import SERVER

REWARDS = {
    "coins": lambda rng, mean, n: (rng.random(n) < mean) * 1.0,
    "ratings": lambda rng, mean, n: rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], n),
    "beta": lambda rng, mean, n: rng.beta(0.3 * mean + 0.01, 0.3 * (1 - mean) + 0.01, n),
    "alike": lambda rng, mean, n: np.full(n, mean),
}


class War:
    """A server and its clients; each step is one event, chosen by `rng`.

    `due(client)` are the pulls of a client's open block, by arm.
    """

    def __init__(self, problem, rewards, rng: random.Random, liars, server, client, options, due):
        self.layout, self.rewards, self.rng, self.liars, self.due = problem.layout, rewards, rng, liars, due
        self.names = self.layout.clients
        self.group = [self.layout.group_of[name] for name in self.names]
        self.honest = [i for i in range(len(self.names)) if i not in liars]
        self.seed, self.drawn = rng.randrange(2**32), {}
        self.mean = [[rng.random() for _ in group.arms] for group in self.layout.groups]
        self.pulls, self.up = [None] * len(self.names), [[] for _ in self.names]
        self.down, self.heard, self.gone = [], [0] * len(self.names), set()
        self.options, self.server = options, server(self.layout, options)
        self.clients = [client(self.layout, name, options) for name in self.names]
        self.serve(Start())
        for i, machine in enumerate(self.clients):
            self.act(i, machine.handle(Start()))

    def of(self, i, part, arm, n):
        """The rewards of a client's arm in one of its parts, whether they were drawn already or not."""
        key = (i, part, arm)
        if key not in self.drawn:
            mean = self.mean[self.group[i]][arm]
            if i in self.liars:
                count = round(n * self.rng.choice([0.0, 1.0, self.rng.random()]))
                self.drawn[key] = (np.arange(n) < count) * 1.0
            else:
                rng = np.random.default_rng([self.seed, *key])
                self.drawn[key] = REWARDS[self.rewards](rng, mean, n)
        assert len(self.drawn[key]) == n
        return self.drawn[key]

    def serve(self, event):
        self.down += [action.payload for action in self.server.handle(event) if isinstance(action, Send)]

    def act(self, i, actions):
        for action in actions:
            if isinstance(action, Send):
                self.up[i].append(action.payload)
            elif isinstance(action, Pull):
                self.pulls[i] = action if action.arms else None

    def pull(self, i):
        """Make all pulls of a client that are due, or some of them."""
        machine, pull = self.clients[i], self.pulls[i]
        times, rows = self.rng.choice([pull.times, -(-pull.times // 2)]), []
        for arm, share in zip(pull.arms, pull.each, strict=True):
            made = int(machine.fresh.count[arm])
            all_ = self.of(i, len(machine.sent), arm, int(self.due(machine)[arm]))
            moments = of_values(all_[made : made + times * share])
            rows.append(moments.tolist() if pull.moments else [float(moments[0])])
        self.pulls[i] = None
        self.act(i, machine.handle(Pulled.of(rows, times)))

    def step(self, patience=0.1, drop=0.0, nonsense=0.002):
        """One event; True if it was one of the server's.

        Patience ends when few clients are missing: where many are, it soon ends the run.
        """
        i, luck = self.rng.randrange(len(self.names)), self.rng.random()
        if luck < patience:
            few = 0 < len(self.server.missing_clients()) <= self.options.byzantine
            if not few and self.rng.random() > 0.002:
                return False
            self.serve(PatienceOver(self.server.round))
            return True
        if luck < patience + drop and i not in self.gone:
            self.gone.add(i)
            self.serve(Drop(self.names[i]))
            return True
        if i in self.gone:
            return False
        if i in self.liars and luck < patience + drop + nonsense:
            self.serve(Received(self.names[i], self.rng.randbytes(self.rng.randrange(30))))
            return True
        does = self.rng.choice(["pull", "say", "hear"])
        if does == "pull" and self.pulls[i] is not None:
            self.pull(i)
        elif does == "say" and self.up[i]:
            self.serve(Received(self.names[i], self.up[i].pop(0)))
            return True
        elif does == "hear" and self.heard[i] < len(self.down) and self.clients[i].state != "done":
            data, self.heard[i] = self.down[self.heard[i]], self.heard[i] + 1
            self.act(i, self.clients[i].handle(Received(SERVER, data)))
        return False
