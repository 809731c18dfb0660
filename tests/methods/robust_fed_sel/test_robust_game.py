"""Hypothesis as the adversary: it controls f clients of each group and the order and loss of all messages.

Rewards are scripted so that the good event holds: after t pulls an arm of mean μ has paid ⌊μt + ½⌋. Then, in
every state: the winning group is active, a verdict is right, robust bounds hold the mean and lie in the hull
of honest ones; and with fair delivery the run ends. Patience may end any number of times while every honest
client that has reported has answered this round.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bestarm import Problem
from bestarm.methods import bet, fisher
from bestarm.methods import robust_fed_sel as robust
from bestarm.methods.bet import robust as bet_liars
from bestarm.methods.bet.levels import Report as Tally
from bestarm.methods.bet.robust.messages import Part, encode
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.messages import Report
from bestarm.methods.fisher import pooled
from bestarm.methods.fisher.pooled.messages import Sums, encode_sums
from bestarm.methods.robust_fed_sel import decisions as robust_decisions
from bestarm.methods.robust_fed_sel.messages import Reply, encode_grouped
from bestarm.protocol.events import PatienceOver, Pull, Pulled, Received, Send, Start
from marking import examples, slow

MEANS = [[0.9, 0.1], [0.7, 0.2]]


class Game(RuleBasedStateMachine):
    """One run. Subclasses choose the rules."""

    family = method = robust
    times, keys = 2, {"rules": "tight", "period": 6000, "budget": 10**9}
    stop = b"\xc0"
    ordered = False  # whether a client's later messages are blocked once one of them is lost

    @initialize(f=st.integers(1, 2), data=st.data())
    def begin(self, f, data):
        self.f = f
        self.problem = Problem.bernoulli(MEANS, clients=self.times * f + 1)
        layout = self.problem.layout
        options = self.family.METHOD.options(delta=0.1, byzantine=f, **self.keys)
        self.server = self.method.Server(layout, options)
        self.liars = [
            name for group in layout.groups for name in data.draw(st.permutations(group.clients))[:f]
        ]
        self.honest = {
            name: self.method.Client(layout, name, options)
            for name in layout.clients
            if name not in self.liars
        }
        self.up = {name: deque() for name in self.honest}
        self.down = {name: deque() for name in self.honest}
        self.pulls = dict.fromkeys(self.honest)
        self.paid = {name: {} for name in self.honest}
        self.lost, self.cut = False, set()
        self.server.handle(Start())
        for name, client in self.honest.items():
            self._client(name, client.handle(Start()))

    def _client(self, name, actions):
        for action in actions:
            if isinstance(action, Pull):
                self.pulls[name] = action if action.arms else None
            elif isinstance(action, Send):
                self.up[name].append(action.payload)

    def _server(self, actions):
        for action in actions:
            if isinstance(action, Send):
                for queue in self.down.values():
                    queue.append(action.payload)

    def _work(self, name):
        """Pull until the client has a message to send or is idle."""
        before = len(self.up[name])
        while self.pulls[name] is not None and len(self.up[name]) == before:
            pull, self.pulls[name] = self.pulls[name], None
            means = MEANS[self.problem.layout.group_of[name]]
            sums = []
            for arm, share in zip(pull.arms, pull.each, strict=True):
                made, paid = self.paid[name].get(arm, (0, 0))
                made += pull.times * share
                total = int(means[arm] * made + 0.5)
                self.paid[name][arm] = (made, total)
                sums.append(float(total - paid))
            self._client(name, self.honest[name].handle(Pulled(tuple(sums), pull.times)))

    @rule(data=st.data())
    def work(self, data):
        self._work(data.draw(st.sampled_from(sorted(self.honest))))

    @rule(data=st.data())
    def deliver_up(self, data):
        self._deliver_up(data.draw(st.sampled_from(sorted(self.honest))))

    def _deliver_up(self, name):
        if name in self.cut:
            self.up[name].clear()
        if self.up[name]:
            self._server(self.server.handle(Received(name, self.up[name].popleft())))

    @rule(data=st.data())
    def deliver_down(self, data):
        self._deliver_down(data.draw(st.sampled_from(sorted(self.honest))))

    def _deliver_down(self, name):
        if self.down[name]:
            self._client(name, self.honest[name].handle(Received("server", self.down[name].popleft())))

    @rule(data=st.data())
    def lose(self, data):
        name = data.draw(st.sampled_from(sorted(self.honest)))
        if self.up[name]:
            self.up[name].popleft()
            self.lost = True
            if self.ordered:
                self.cut.add(name)

    @rule()
    def run_out_of_patience(self):
        server = self.server
        here = [server.index[name] for name in self.honest if name not in self.cut]
        reported = server.first_tick[here] >= 0
        if server.ticking and not self.lost and (server.replied[here] | ~reported).all():
            self._server(server.handle(PatienceOver(server.round)))

    @rule(data=st.data())
    def everybody_works(self, data):
        for name in data.draw(st.permutations(sorted(self.honest))):
            self._deliver_down(name)
            self._work(name)
            self._deliver_up(name)

    @rule(data=st.data(), noise=st.binary(max_size=16))
    def lie_with_noise(self, data, noise):
        self._server(self.server.handle(Received(data.draw(st.sampled_from(self.liars)), noise)))

    @rule(data=st.data(), mean=st.floats(0, 1), arm=st.integers(0, 1), count=st.integers(1, 2**50))
    def lie_in_form(self, data, mean, arm, count):
        """A message in the form of an honest one, with content that the liar chooses."""
        name = data.draw(st.sampled_from(self.liars))
        self._server(self.server.handle(Received(name, self._lie(data, name, mean, arm, count))))

    def _lie(self, data, name, mean, arm, count):
        server, j = self.server, self.problem.layout.group_of[name]
        i = server.index[name]
        if server.vote[i] < 0:
            count = max(count, server.least[j])
            return encode_grouped(Report(arm, count, mean), server.own_wire, j)[0]
        told = server.told[i]
        if server.most and data.draw(st.booleans()):
            count = min(max(count, told[-1][0] + 1), told[0][0] + server.most)
        bits = int(fed_sel_decisions.precision(server.radii[j].alpha(count)))
        return encode_grouped(
            Reply(count, int(fed_sel_decisions.bin_index(mean, bits))), server.own_wire, j, bits
        )[0]

    @rule(data=st.data())
    def lie_that_it_has_stopped(self, data):
        name = data.draw(st.sampled_from(self.liars))
        self._server(self.server.handle(Received(name, self.stop)))

    @rule(data=st.data())
    def a_stranger_speaks(self, data):
        self._server(self.server.handle(Received("stranger", data.draw(st.binary(max_size=8)))))

    @invariant()
    def honest_clients_are_not_accused(self):
        if hasattr(self, "server"):
            assert {fault["client"] for fault in self.server.faulty} <= set(self.liars)

    @invariant()
    def the_winning_group_stays(self):
        if hasattr(self, "server"):
            assert self.server.active[0]

    @invariant()
    def a_verdict_is_right(self):
        if hasattr(self, "server") and self.server.verdict is not None:
            assert self.server.verdict.arm == "g1/a1"

    @invariant()
    def robust_bounds_hold_the_mean(self):
        if not hasattr(self, "server") or self.method is not robust:
            return
        server = self.server
        for j in np.flatnonzero(server.arm >= 0):
            assert server.arm[j] == 0
            mine = server.members[j]
            members, faults = server._trust(int(j))
            lower, upper = server.client_lower[mine], server.client_upper[mine]
            low, high = robust_decisions.trim(lower, upper, members, faults)
            assert low <= MEANS[j][0] <= high
            names = self.problem.layout.groups[j].clients
            honest = members & np.array([name in self.honest for name in names])
            if honest.sum() > faults:
                assert lower[honest].min() <= low <= lower[honest].max()
                assert upper[honest].min() <= high <= upper[honest].max()

    def teardown(self):
        """Fair delivery from here on: every sent message arrives, and patience ends in every round."""
        if not hasattr(self, "server"):
            return
        for _ in range(400):
            if self.server.state == "done":
                break
            before = self._stage()
            for name in self.honest:
                while self.down[name]:
                    self._deliver_down(name)
                self._work(name)
                while self.up[name]:
                    self._deliver_up(name)
            if self._stage() == before:
                if self.server.ticks > 3:
                    break
                self._server(self.server.handle(PatienceOver(self.server.round)))
        if self.server.state != "done":
            assert self.lost  # only a lost message can keep it from the answer
        elif self.server.verdict.reason == "silence":
            assert self.lost
        else:
            assert self.server.verdict.arm == "g1/a1"

    def _stage(self):
        return (
            self.server.state,
            self.server.round,
            len(self.server.events),
            sum(map(len, self.down.values())),
        )


class PaperGame(Game):
    times, keys = 3, {"rules": "paper", "period": 6000, "budget": 10**9}


class PooledGame(Game):
    family, method = fisher, pooled
    keys: ClassVar = {"n0": 16, "budget": 10**9}
    stop, ordered = b"\x80", True

    def _lie(self, data, name, mean, arm, count):
        server, j = self.server, self.problem.layout.group_of[name]
        look = data.draw(st.integers(server.looks.quiet, server.look))
        n = server.looks.size(look)
        arms = int(server.asked[look][server.own[j]].sum())
        sums = tuple(data.draw(st.integers(0, n)) for _ in range(arms))
        return encode_sums(Sums(look - server.looks.quiet, sums), server.own_wire, n)[0]

    @invariant()
    def the_best_arm_stays(self):
        if hasattr(self, "server"):
            assert self.server.race[0]


class BetGame(Game):
    family, method = bet, bet_liars
    keys: ClassVar = {"budget": 10**9}
    stop, ordered = b"\x80", True

    def _lie(self, data, name, mean, arm, count):
        server, j = self.server, self.problem.layout.group_of[name]
        number = data.draw(st.integers(0, server.number))
        block = server.played[number]
        counts = [n for n in block.pulls(j).tolist() if n]
        sums = [data.draw(st.integers(0, n)) for n in counts]
        reports = (
            Tally.of(n, block.n, total, total, 0.0, True) for n, total in zip(counts, sums, strict=True)
        )
        return encode(Part(number, tuple(reports)), server.own_wire)[0]

    @invariant()
    def the_best_arm_stays(self):
        if hasattr(self, "server"):
            assert self.server.inside[0]


SETTINGS = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestTight = Game.TestCase
TestTight.settings = SETTINGS
TestPaper = PaperGame.TestCase
TestPaper.settings = SETTINGS
TestPooled = PooledGame.TestCase
TestPooled.settings = SETTINGS
TestBet = BetGame.TestCase
TestBet.settings = SETTINGS


@pytest.mark.parametrize(
    ("family", "method", "keys"),
    [*slow((robust, robust, {"rules": "tight"}), (fisher, pooled, {})), (bet, bet_liars, {})],
)
def test_random_bytes_never_raise_out_of_the_server(family, method, keys):
    """A hundred thousand malformed messages, sent in every state."""
    rng = np.random.default_rng(3)
    problem = Problem.bernoulli(MEANS, clients=5)
    options = family.METHOD.options(delta=0.1, byzantine=2, **keys)
    taken = 0
    for _ in range(2_000):
        server = method.Server(problem.layout, options)
        server.handle(Start())
        for _ in range(50):
            name = problem.layout.clients[rng.integers(len(problem.layout.clients))]
            server.handle(Received(name, rng.bytes(rng.integers(0, 12))))
            taken += 1
        assert server.verdict is None or server.verdict.status == "undecided"
        assert len(server.faulty) + server.ignored > 0
    assert taken == 100_000
