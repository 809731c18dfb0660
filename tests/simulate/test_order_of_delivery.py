"""Drivers deliver each sender's messages to a machine once and in order.

Without it an honest sender would look like a liar.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm import Network, Problem
from bestarm.deploy.federation import files
from bestarm.graphs.generators import circulant, complete
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.messages import Report
from bestarm.methods.p2p.peer import Peer
from bestarm.methods.robust_fed_sel.messages import Reply, encode_grouped
from bestarm.methods.robust_fed_sel.options import RobustFedSel
from bestarm.methods.robust_fed_sel.server import Server
from bestarm.protocol.events import PatienceOver, Received, Send, Start
from bestarm.simulate.draw import Drawn
from bestarm.simulate.identify import prepare
from bestarm.simulate.network_run import NetworkRun
from federations import Coins, Folds, scenario
from marking import examples


class Witness(Peer):
    """A peer that records what it receives and sends, also when it is restored from its log."""

    def __init__(self, *args):
        super().__init__(*args)
        self.heard, self.said = {name: [] for name in self.neighbours}, []

    def handle(self, event):
        if isinstance(event, Received):
            self.heard[event.sender].append(event.data)
        actions = super().handle(event)
        self.said += [action.payload for action in actions if isinstance(action, Send)]
        return actions


def played(seed, graph, means, exchange="intervals", **of_network):
    problem = Problem.bernoulli(means, clients=graph.n // len(means))
    options = {"byzantine": 1, "exchange": exchange, "delta": 0.1}
    problem, method, options = prepare(problem, "p2p", options)
    network = Network(graph, **of_network)
    run = NetworkRun(problem, method, options, seed, Drawn(problem, seed), network, peer=Witness)
    run.go()
    return run


def check_order(run):
    """On every edge the received messages are a prefix of the sent ones, in order."""
    said = {peer.name: peer.said for peer in run.peers}
    for peer in run.peers:
        assert peer.faulty == []
        assert peer.ignored == 0
        for sender, heard in peer.heard.items():
            assert heard == said[sender][: len(heard)]
    assert {peer.verdict.arm for peer in run.peers} == {"g1/a1"}


@settings(max_examples=examples(30))
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 50.0, 20_000.0]),
    st.sampled_from([0.0, 0.3, 0.95]),
    st.sampled_from([0.0, 30_000.0]),
    st.integers(0, 9),
    st.sampled_from(["means", "intervals"]),
)
def test_each_edge_keeps_its_order_on_any_network_and_no_honest_peer_is_convicted(
    seed, delay, loss, start, crashes, exchange
):
    graph = complete(12) if exchange == "means" else complete(9)
    run = played(
        seed, graph, [[0.95, 0.7], [0.6, 0.4], [0.45, 0.2]], exchange,
        delay=delay, loss=loss, start=start, crashes=crashes,
    )  # fmt: skip
    check_order(run)


@pytest.mark.parametrize("seed", range(3))
def test_each_edge_keeps_its_order_when_messages_are_lost_many_times(seed):
    """Close means cause many claims. A claim lost k times is 3k delays late, so others would overtake it."""
    means = [[0.6, 0.2], [0.55, 0.2], [0.3]]
    run = played(seed, circulant(15, 5), means, delay=3000, loss=0.95, start=10_000, crashes=6)
    check_order(run)
    assert max(len(peer.said) for peer in run.peers) > 20


def robust_server():
    problem = Problem.bernoulli([[0.9], [0.6]], clients=3)
    server = Server(problem.layout, RobustFedSel(delta=0.1, byzantine=1, period=100))
    server.handle(Start())
    return server


def words(server, name, mean, counts):
    """The messages of an honest client: its report, and a reply in every round."""
    j = server.layout.group_of[name]
    yield encode_grouped(Report(0, counts[0], mean), server.wire, j)[0]
    for count in counts[1:]:
        bits = int(fed_sel_decisions.precision(server.radii[j].alpha(count)))
        reply = Reply(count, index=int(fed_sel_decisions.bin_index(mean, bits)))
        yield encode_grouped(reply, server.wire, j, bits)[0]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_server_treats_an_older_reply_that_arrives_late_as_proof_of_a_fault(swapped):
    """The driver must therefore keep the order. In order, the same messages prove nothing."""
    server = robust_server()
    said = {
        name: list(words(server, name, 0.9 if name[:2] == "g1" else 0.6, (2000, 2100, 2200)))
        for name in server.layout.clients
    }
    slow = "g1-1"
    for name in server.layout.clients:
        server.handle(Received(name, said[name][0]))
    for k in (1, 2):
        for name in server.layout.clients:
            if name != slow:
                server.handle(Received(name, said[name][k]))
        if k == 1:
            server.handle(PatienceOver(1))
    assert server.round == 2
    late = said[slow][1:]
    for data in reversed(late) if swapped else late:
        server.handle(Received(slow, data))
    assert [fault["client"] for fault in server.faulty] == [slow] * swapped


KEYS = {"clients": 3, "byzantine": 1, "delta": 0.1}
CASES = {
    "robust-fed-sel": scenario(
        "robust-fed-sel", {"west": {"a": 0.7}, "east": {"c": 0.5}}, period=500, **KEYS
    ),
    "pooled": scenario("fisher", {"west": {"a": 0.7, "b": 0.3}, "east": {"c": 0.5}}, n0=8, **KEYS),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_a_federation_restores_the_order_that_its_network_lost(tmp_path, name, seed):
    """Messages overtake each other and arrive twice; patience ends while some are in transit."""
    case = CASES[name]
    files.init(case, tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(case.problem, seed), random.Random(seed))
    chance = np.random.default_rng(seed)
    for _ in range(5000):
        folds.turn()
        if folds.over:
            break
        if chance.random() < 0.3 and folds.desk.machine.patient:
            folds.desk.patience_over()
    assert folds.desk.machine.verdict.arm == "west/a"
    assert folds.desk.machine.faulty == []
    folds.close()
