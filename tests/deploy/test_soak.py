"""A campaign of 500 random events: kills, stops, pauses, partitions, full disks and restored journals.

Each run is a federation or a mesh of real processes, to which 25 events happen before it may end. A failure
shows its seed, all events and all logs; the same seed gives the same plan of events:
``pytest -n 0 -m soak 'tests/deploy/test_soak.py::test_a_run_survives_random_events[7]'``.

The null hypothesis of the verdicts: each run is wrong with probability at most δ = 1e-6, so that a single
wrong verdict in 20 runs fails the campaign, with a false alarm in at most 2 of 100,000 campaigns.
"""

from __future__ import annotations

import json
import socket
import time

import pytest
import soak_network
from soak_arms import lost_batches
from soak_campaign import EVENTS, JOURNAL, Campaign, plan
from test_mesh import same_as_in_process

import bestarm as ba
import federations
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files as federation_files
from bestarm.deploy.federation.site import Site
from bestarm.deploy.federation.verification import verify as verify_federation
from bestarm.deploy.mesh import files as mesh_files
from bestarm.deploy.mesh.verification import verify as verify_mesh
from bestarm.deploy.pulling import MOST_TURNS
from bestarm.graphs.generators import complete
from bestarm.simulate.network import Network
from bestarm.util.journal import Journal
from helpers import CLI

DELTA = 1e-6
RUNS, EVENTS_PER_RUN = 20, 25
LATE = 10.0  # seconds after which a client that has no verdict needs the server again


class Federation(Campaign):
    """A server, its broker, and clients that reach the broker through links."""

    best = "west/a"
    case = None
    refusal = ("restored from an older backup", "Restore the newest")

    def make(self):
        self.server = self.folder / "f"
        self.names = ["server", *self.case.problem.layout.clients]
        setup = federation_files.init(self.case, self.server, port=0).setup
        port = int(setup.url.rpartition(":")[2])
        self.ports = {name: self.network.link(name, port) for name in self.names[1:]}

    def place(self, name):
        return self.server if name == "server" else self.server / "clients" / name

    def command(self, name):
        words = [*CLI, name if name == "server" else "client", str(self.place(name)), "--json"]
        if name == "server":
            return [*words, "--linger", "300", "--patience", "600"]
        return [*words, "--nats", f"tls://localhost:{self.ports[name]}"]

    def means(self, name):
        problem = self.case.problem
        j = problem.layout.group_of.get(name)
        return None if j is None else dict(zip(problem.layout.groups[j].arms, problem.means[j], strict=True))

    def links(self, name):
        return [name]

    def split(self, part):
        return self.names[1:]  # the broker's computer is cut off

    def targets(self, kind):
        if kind in soak_network.STATES:
            return self.names[1:]
        return self.names if kind in ("newest", "older") else [*self.names, "broker"]

    def pid(self, target):
        if target != "broker":
            return super().pid(target)
        pids = [int(p.stem.rpartition("_")[2]) for p in (self.server / "broker").glob("*.ports")]
        return next((pid for pid in self.left() if pid in pids), None)

    def messages(self, name):
        return self.kinds(name)["down" if name == "server" else "up"]

    def known(self, name):
        if name == "server":
            return max(self.kinds(client)["down"] for client in self.names[1:])
        with Journal.open(self.server / JOURNAL, write=False) as journal:
            return sum(e.kind == "up" and Envelope.decode(e.body).source == name for e in journal.events())

    def supervise(self):
        super().supervise()
        since = self.finished.get("server", float("inf"))
        if time.monotonic() > since + LATE and len(self.finished) < len(self.names):
            self.start("server")  # it delivers the verdict to those that do not have it

    def check(self):
        found = verify_federation(self.server)
        self.demand(found.ok, f"verify: {found.failures}")
        self.demand(found.record.verdict.arm == self.best, f"wrong verdict: {found.record.verdict}")
        self.demand(not found.suspects, f"honest clients are accused: {found.suspects}")
        self.demand(not found.evidence, f"honest clients are accused: {found.evidence}")
        for name in self.names[1:]:
            site = Site.open(federation_files.Place.load(self.place(name)))
            federations.check_pulls(site)
            self.demand(site.verdict.arm == self.best, f"{name} has another verdict: {site.verdict}")
            site.journal.close()


class FedFisher(Federation):
    case = federations.scenario(
        "fisher",
        {"west": {"a": 0.6, "b": 0.3}, "east": {"c": 0.4, "d": 0.2}},
        3,
        byzantine=1,
        delta=DELTA,
        n0=8,
        q=1.05,  # some 80 looks
        quiet=0,
    )
    pause = 0.06


class RobustFedSel(Federation):
    case = federations.scenario(
        "robust-fed-sel",
        {"west": {"a": 0.9, "b": 0.05}, "east": {"c": 0.8, "d": 0.05}},
        3,
        byzantine=1,
        delta=DELTA,
        period=300,  # some 230 rounds
    )
    pause = 0.001


class FedBet(Federation):
    case = federations.scenario(
        "bet",
        {"west": {"a": 0.6, "b": 0.3}, "east": {"c": 0.4, "d": 0.2}},
        3,
        byzantine=1,
        delta=DELTA,
        n1=8,
        q=1.05,
    )
    pause = 0.03
    turns = MOST_TURNS


class PeerToPeer(Campaign):
    """Six peers, each of which reaches each other one through a link of its own."""

    best = "north/a"
    case = ba.Scenario(
        ba.Problem.from_rewards({"north": {"a": 0.9, "b": 0.1}, "south": {"c": 0.75, "d": 0.1}}, clients=3),
        "p2p",
        None,
        {"exchange": "intervals", "byzantine": 1, "delta": DELTA, "tighten": 0.9},
        network=Network(complete(6)),
    )
    pause = 0.002
    refusal = ("is older than the reports of this node", "Restore the newest journal")

    def make(self):
        mesh_files.init(*mesh_files.terms_of(self.case, {}), self.folder / "m", port=0)
        self.names = list(self.case.problem.layout.clients)
        for name in self.names:
            path = self.place(name) / mesh_files.PEER
            plain = json.loads(path.read_text())
            for other in plain["neighbours"]:
                port = self.network.link((name, other["name"]), int(other["address"].rpartition(":")[2]))
                other["address"] = f"127.0.0.1:{port}"
            path.write_text(json.dumps(plain))

    def place(self, name):
        return mesh_files.place_of(self.folder / "m", self.case.problem.layout, name)

    def command(self, name):
        return [*CLI, "peer", str(self.place(name)), "--json"]

    means = Federation.means

    def links(self, name):
        return [link for link in self.network.links if name in link]

    def split(self, part):
        first = self.names[: 1 + int(part * (len(self.names) - 1))]
        return [link for link in self.network.links if (link[0] in first) != (link[1] in first)]

    def messages(self, name):
        return self.kinds(name)["said"]

    def known(self, name):
        """Its reports in the journal of the neighbour that has the fewest: whoever it meets can prove it."""
        found = []
        for other in self.names:
            if other == name:
                continue
            with Journal.open(self.place(other) / JOURNAL, write=False) as journal:
                heard = [Envelope.decode(e.body).source for e in journal.events() if e.kind == "heard"]
            found.append(heard.count(name))
        return min(found)

    def check(self):
        for name in self.names:
            found = verify_mesh(self.place(name))
            self.demand(found.ok, f"verify: {name}: {found.failures}")
            self.demand(found.verdict.arm == self.best, f"{name} has a wrong verdict: {found.verdict}")
            self.demand(not found.suspects, f"{name} accuses honest peers: {found.suspects}")
        same_as_in_process(self.folder / "m", self.case, self.names)


KINDS = (FedFisher, RobustFedSel, PeerToPeer, FedBet)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_run_survives_random_events(tmp_path, seed):
    KINDS[seed % len(KINDS)](tmp_path / "run", seed).run(EVENTS_PER_RUN)


def test_the_campaign_has_500_events_of_every_kind():
    kinds = [kind for seed in range(RUNS) for _, kind, _, _ in plan(seed, EVENTS_PER_RUN)]
    assert len(kinds) == 500
    assert min(kinds.count(kind) for kind in EVENTS) >= 10
    assert plan(7, 25) == plan(7, 25)


def test_the_check_of_rewards_finds_batches_that_are_lost_repeated_or_changed():
    calls = [("a", 2, 1), ("b", 2, 0), ("a", 3, 3), ("a", 3, 3), ("b", 3, 1)]
    first, second = ([("a", 2), ("b", 2)], 1), ([("a", 3), ("b", 3)], 4)
    assert lost_batches(calls, [first, second]) == 1
    assert lost_batches(calls, [second]) == 3
    turns = [("a", 1, 1), ("b", 1, 0), ("a", 1, 0), ("b", 1, 1), ("a", 4, 2)]
    assert lost_batches(turns, [([("a", 2), ("b", 2)], 2)]) == 1
    for wrong in ([first, first], [second, first], [first, ([("a", 3), ("b", 3)], 3)]):
        with pytest.raises(AssertionError, match="did not pay"):
            lost_batches(calls, wrong)


@pytest.fixture
def network():
    made = soak_network.LoopbackNetwork()
    yield made
    made.stop()


def test_a_link_can_be_cut_held_up_and_lost_on_one_side(network):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        port = network.link("x", server.getsockname()[1])

        def connected():
            near = socket.create_connection(("127.0.0.1", port), timeout=30)
            far, _ = server.accept()
            far.settimeout(30)
            near.sendall(b"1")
            assert far.recv(9) == b"1"
            return near, far

        near, far = connected()
        network.become(["x"], soak_network.HELD)
        near.sendall(b"2")
        far.settimeout(0.2)
        with pytest.raises(TimeoutError):
            far.recv(9)
        network.become(["x"], soak_network.OPEN)
        far.settimeout(30)
        assert far.recv(9) == b"2"
        network.become(["x"], soak_network.CUT)
        for end in (near, far):
            assert end.recv(9) == b""
            end.close()
        network.become(["x"], soak_network.OPEN)
        near, far = connected()
        network.become(["x"], soak_network.HALF)
        assert near.recv(9) == b""
        far.settimeout(0.2)
        with pytest.raises(TimeoutError):
            far.recv(9)
        near.close()
        far.close()
