"""Small federations for tests: their scenarios, their rewards, and folds with a broker but no network."""

from __future__ import annotations

import contextlib
import functools
import json

import msgspec
import numpy as np

import bestarm as ba
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files
from bestarm.deploy.federation.desk import Desk
from bestarm.deploy.federation.site import Site
from bestarm.deploy.identity import Key, Roster
from bestarm.problem.moments import of_values
from bestarm.protocol.events import Drop, PatienceOver, Pull, Pulled, Received, Send, Start, Stop
from bestarm.simulate.identify import prepare
from bestarm.simulate.run import Run
from bestarm.util.journal import Journal

SOLO = {"west": {"a": 0.95, "b": 0.02}, "east": {"c": 0.8, "d": 0.02}, "mid": {"e": 0.6, "f": 0.01}}
SERVER = "server"


def scenario(method, groups=None, clients=1, **options):
    problem = ba.Problem.from_rewards(groups or SOLO, clients=clients)
    return ba.Scenario(problem, method, None, options)


CASES = {
    "fed-sel": scenario("fed-sel", period=3000, delta=0.1),
    "fisher": scenario("fisher", delta=0.1),
    "bet": scenario("bet", delta=0.1),
    "robust-fed-sel": scenario("robust-fed-sel", clients=3, byzantine=1, period=3000, delta=0.1),
    "pooled": scenario("fisher", clients=3, byzantine=1, delta=0.1),
    "bet, liars": scenario("bet", clients=3, byzantine=1, delta=0.1),
}


@functools.cache
def drawn(mean, *seed):
    return (np.random.default_rng(seed).random(300_000) < mean) * 1.0


class Coins:
    """Each client's arms pay the same rewards in the same order in every run."""

    def __init__(self, problem, seed=0):
        self.problem, self.seed = problem, seed
        self.made = {}

    def rewards(self, client, arm, start, times):
        mean = self.problem.rewards[client][arm].p
        return drawn(mean, self.seed, client, arm)[start : start + times].tolist()

    def draw(self, client, pull, times):
        rows = []
        for arm, share in zip(pull.arms, pull.each, strict=True):
            start, n = self.made.get((client, arm), 0), times * share
            rewards = self.rewards(client, arm, start, n)
            rows.append(of_values(np.array(rewards)).tolist() if pull.moments else [sum(rewards)])
            self.made[client, arm] = start + n
        return Pulled.of(rows, times)


UNLIKE = ("digest", "evidence", "time", "name", "date")


def comparable(record):
    """The part of a record that does not depend on the order of clients within a round, or on a clock."""
    plain = record.public().to_dict()
    plain["verdict"]["certificate"]["server"]["events"].sort()
    return {key: value for key, value in plain.items() if key not in UNLIKE}


def in_process(case, coins):
    """The record of the simulator, on these rewards."""
    _, method, options = prepare(case, None, {})
    run = Run(case.problem, method, options, None, coins)
    run.go()
    return run.record()


class Crash(BaseException):
    """A process dies."""


class Folds:
    """Server and clients as processes, and a broker that keeps what is not acknowledged; no network.

    A process that dies (``Crash``) is opened again from its journal; the others don't notice. Without `rng`
    all take turns; with one, steps come in any order, messages overtake each other and arrive twice.
    """

    def __init__(self, folder, coins, rng=None, batch=10**9):
        self.folder, self.coins, self.rng, self.batch = folder, coins, rng, batch
        self.setup = files.Federation.load(folder).setup
        self.names = self.setup.layout.clients
        self.working = self.names  # the others are silent
        self.key = Key.load(folder / "server.key")
        places = [files.Place.load(path) for path in (folder / "clients").iterdir()]
        self.places = {place.client: place for place in places}
        self.desk, self.sites = None, dict.fromkeys(self.names)
        self.up, self.down, self.seen = [], [], {name: set() for name in self.names}
        self.paid = dict.fromkeys(self.names, 0)
        for name in (SERVER, *self.names):
            self.alive(name)

    def alive(self, name):
        """The process of this name; opened again if it has died."""
        with self.mortal(name):
            if name == SERVER and self.desk is None:
                path = self.folder / files.JOURNAL
                if path.exists():
                    self.desk = Desk(Journal.open(path), self.key)
                else:
                    roster = Roster.load(self.folder / files.ROSTER)
                    self.desk = Desk.create(path, self.setup, roster, self.key)
                assert not self.desk.failures
            elif name != SERVER and self.sites[name] is None:
                self.sites[name] = Site.open(self.places[name])
        return self.desk if name == SERVER else self.sites[name]

    @contextlib.contextmanager
    def mortal(self, name):
        try:
            yield
        except Crash:
            if name == SERVER:
                self.desk = None
            else:
                self.sites[name] = None

    def close(self):
        for one in (self.desk, *self.sites.values()):
            if one is not None:
                one.journal.close()

    def few(self, things):
        """Messages that arrive now: all of them, or a random part."""
        if self.rng is None or len(things) == 0:
            return list(things)
        return self.rng.sample(list(things), self.rng.randint(0, len(things)))

    def step(self, name, instant=False):
        """Let one process act. With `instant`, a client pulls only when no message is on its way."""
        with self.mortal(name):
            one = self.alive(name)
            if one is not None:
                self.serve(one) if name == SERVER else self.work(name, one, instant)

    def serve(self, desk):
        self.publish(desk)
        batch = self.few(range(len(self.up)))
        desk.take([self.up[k] for k in batch])
        again = self.rng is not None and self.rng.random() < 0.2  # the acknowledgement was lost
        self.up = [data for k, data in enumerate(self.up) if again or k not in batch]
        self.publish(desk)

    def publish(self, desk):
        self.down += desk.broadcasts[len(self.down) :]

    def work(self, name, site, instant=False):
        for k in self.few([k for k in range(len(self.down)) if k not in self.seen[name]]):
            site.received(self.down[k])
            self.seen[name].add(k)
        while site.sent < len(site.ups):
            self.up.append(site.ups[site.sent])
            site.sent += 1
        late = self.up or any(len(self.seen[other]) < len(self.down) for other in self.working)
        if site.pull is not None and not (instant and late):
            pull, i = site.pull, self.names.index(name)
            most = self.batch if self.rng is None else self.rng.choice([1, 50, self.batch])
            times = min(pull.times, most)
            site.ask(pull, times)
            got = {}
            for arm, share in zip(pull.arms, pull.each, strict=True):
                need = max(0, times * share - len(site.kept[arm]))
                got[arm] = self.coins.rewards(i, arm, site.made[site.group.arms[arm]], need)
            site.rewards(got)

    def turn(self):
        everyone = [SERVER, *self.working]
        for name in everyone if self.rng is None else self.rng.choices(everyone, k=len(everyone)):
            self.step(name, instant=self.rng is None)  # as in the simulator, where messages take no time

    @property
    def over(self):
        sites = [self.sites[name] for name in self.working]
        return self.desk is not None and self.desk.done and all(site and site.over for site in sites)

    def go(self, turns=5000):
        for _ in range(turns):
            if self.over:
                return self.summarise()
            self.turn()
        raise AssertionError(f"no verdict: waits for {self.desk.waiting_for()}")

    def summarise(self):
        """The record of a run that is over, with what clients send after the verdict."""
        sites = [self.alive(name) for name in self.working]
        for _ in range(2):  # the server may die
            with self.mortal(SERVER):
                self.alive(SERVER).take([data for site in sites for data in site.summaries])
        return self.desk.record()

    def check_pulls(self):
        """Every pull in a client's journal counts once, or waits to be used."""
        for site in self.sites.values():
            check_pulls(site)


def check_pulls(site):
    own = site.machine
    counted = own.pulls if isinstance(own.pulls, int) else sum(own.pulls)
    assert site.pulls == counted + sum(map(len, site.kept))


def driven(case, coins, folds):
    """The record of bare machines that receive and pull in the order of a federation's journals.

    Only the order comes from the journals: the machines make all messages, and `coins` all rewards.
    """
    _, method, options = prepare(case, None, {})
    run = Run(case.problem, method, options, None, coins)
    downs, said, pulls = [], {}, {}
    orders = {name: iter(list(site.journal.events())) for name, site in folds.sites.items()}
    got, heard = {name: set() for name in said}, {}

    def hear(actions):
        downs.extend(action.payload for action in actions if isinstance(action, Send))

    def speak(name, actions):
        for action in actions:
            if isinstance(action, Send):
                said[name].append(action.payload)
            elif isinstance(action, Pull):
                pulls[name] = action

    def go_on(name):
        client, event = run.clients[run.index[name]], next(orders[name])
        if event.kind == "rewards" and (times := json.loads(event.body)["times"]):
            pull, pulled = pulls[name], coins.draw(run.index[name], pulls[name], times)
            run.tallies[run.index[name]].add(pull, pulled)
            speak(name, client.handle(pulled))
        elif event.kind == "down":
            got[name].add(Envelope.decode(event.body).sequence)
            while heard[name] in got[name]:
                speak(name, client.handle(Received(SERVER, downs[heard[name]])))
                heard[name] += 1

    hear(run.server.handle(Start()))
    for client in run.clients:
        said[client.name], got[client.name], heard[client.name] = [], set(), 0
        speak(client.name, client.handle(Start()))
    due, here = dict.fromkeys(said, 0), {name: set() for name in said}
    for event in folds.desk.journal.events():
        match event.kind:
            case "up":
                envelope = Envelope.decode(event.body)
                name = envelope.source
                here[name].add(envelope.sequence)
                while due[name] in here[name]:
                    while len(said[name]) <= due[name]:
                        go_on(name)
                    hear(run.server.handle(Received(name, said[name][due[name]])))
                    due[name] += 1
            case "patience":
                hear(run.server.handle(PatienceOver(int(event.body))))
            case "drop":
                hear(run.server.handle(Drop(event.body.decode())))
            case "stop":
                hear(run.server.handle(Stop(event.body.decode())))
    for name in said:  # what clients did after their last message is in their summaries
        with contextlib.suppress(StopIteration):
            while True:
                go_on(name)
    setup = folds.desk.setup
    labels = {"time": None, "name": setup.name, "date": setup.date}  # the clock did not run
    return msgspec.structs.replace(run.record(), **labels).sealed()
