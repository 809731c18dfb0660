"""The machines of questions about several sites: what they do with parts, drops, budgets and open blocks."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.client import Client
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.methods.bet.sites.messages import Wire, decode_down
from bestarm.methods.bet.sites.server import Server
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Drop, PatienceOver, Pull, Pulled, Received, Send, Start
from federations import Coins, Crash, Folds, comparable, driven, in_process
from marking import examples, slow

REGIONS = {
    "US": {"A": 0.3, "B": 0.55, "C": 0.2},
    "EU": {"A": 0.7, "B": 0.8, "C": 0.5},
    "ASIA": {"A": 0.5, "B": 0.6, "C": 0.75},
}
COLUMNS = ("arm", "status", "reason", "good_event", "rounds", "time", "pulls_total", "pulls_phase1",
           "pulls_phase2", "pulls_max", "bits_up", "bits_down")  # fmt: skip


class Game:
    """Machines of one run on fixed coins; a test decides who acts when."""

    def __init__(self, problem, **options):
        self.problem, self.options = problem, Bet(**options)
        layout = problem.layout
        self.server = Server(layout, self.options)
        self.clients = {name: Client(layout, name, self.options) for name in layout.clients}
        self.coins = Coins(problem)
        self.pulls, self.up = {}, {name: [] for name in self.clients}
        self.down, self.heard = [], dict.fromkeys(self.clients, 0)
        self._server(self.server.handle(Start()))
        for name, client in self.clients.items():
            self._client(name, client.handle(Start()))

    def _server(self, actions):
        self.down += [action.payload for action in actions if isinstance(action, Send)]

    def _client(self, name, actions):
        for action in actions:
            if isinstance(action, Pull):
                self.pulls[name] = action if action.arms else None
            elif isinstance(action, Send):
                self.up[name].append(action.payload)

    def play(self, name):
        """Let a client make all its pulls, without hearing anything new."""
        while self.pulls.get(name) is not None:
            pull = self.pulls[name]
            self.pulls[name] = None
            i = self.problem.layout.clients.index(name)
            self._client(name, self.clients[name].handle(self.coins.draw(i, pull, pull.times)))

    def hear(self, name):
        """Deliver all broadcasts to a client."""
        while self.heard[name] < len(self.down):
            data = self.down[self.heard[name]]
            self.heard[name] += 1
            self._client(name, self.clients[name].handle(Received("server", data)))

    def deliver(self, name):
        """Deliver a client's messages to the server."""
        while self.up[name]:
            self._server(self.server.handle(Received(name, self.up[name].pop(0))))

    def turn(self, name):
        self.hear(name)
        self.play(name)
        self.deliver(name)

    def go(self, order=None, turns=200):
        for _ in range(turns):
            for name in order or self.clients:
                self.turn(name)
            if self.server.state == "done":
                return self.server.verdict
        raise AssertionError("no verdict")


def regions(question="overall", clients=1, groups=REGIONS, **keys):
    return ba.Problem.from_rewards(groups, clients=clients).asking(question, **keys)


KINDS = {
    "overall": {},
    "weighted": {"weights": {"US": 5, "EU": 1, "ASIA": 2}},
    "each": {"question": "each"},
    "simultaneous": {"question": "each", "simultaneous": True},
    "both": {"also": "each"},
    "control": {"question": "control", "control": "A"},
}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["coins", "beta", "mixed"]),
    st.sampled_from([{}, {"prefer": "pulls"}, {"allocation": "neyman"}, {"allocation": "equal"},
                     {"max_rounds": 3}, {"n1": 5, "q": 3.0}]),
)  # fmt: skip
def test_the_kernel_agrees_with_the_machines_in_every_column(seed, kind, rewards, options):
    rng = np.random.default_rng(seed)
    sites, number = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    keys = {"question": "overall", **KINDS[kind]}
    names = [f"s{j}" for j in range(sites)]
    if "weights" in keys:
        keys["weights"] = {name: float(w) for name, w in zip(names, rng.uniform(0.2, 3, sites), strict=True)}
    means = np.round(rng.uniform(0.05, 0.95, (sites, number)), 2)

    def reward(mean, k):
        plain = rewards == "coins" or (rewards == "mixed" and k % 2)
        return float(mean) if plain else {"kind": "beta", "a": 8 * float(mean), "b": 8 * (1 - float(mean))}

    arms = ["A", *(f"x{k}" for k in range(1, number))]
    groups = {s: {a: reward(m, j) for a, m in zip(arms, means[j], strict=True)} for j, s in enumerate(names)}
    problem = ba.Problem.from_rewards(groups, clients=rng.integers(1, 3, sites).tolist())
    if keys["question"] == "each" and "allocation" in options:
        options = {}  # refused
    keys = {"delta": 0.1, "max_rounds": 25, **keys, **options}
    trials = ba.study(problem, trials=2, seed=seed % 1000, workers=1, **keys)
    for i in range(2):
        record = trials.record(i)
        verdict, pulls, bits = record.verdict, record.pulls, record.bits
        answer = (verdict.summary, verdict.status, verdict.reason, record.good_event)
        costs = (pulls.total, pulls.phase1, pulls.phase2, pulls.max_per_client, bits.up, bits.down)
        found = (*answer, record.rounds, record.time, *costs)
        assert found == tuple(trials[name][i] for name in COLUMNS)
        assert ba.verify(record).failures == ()


def test_the_order_in_which_parts_arrive_changes_nothing_if_one_block_is_open():
    orders = [None, ["ASIA-1", "EU-1", "US-1"], ["EU-1", "EU-1", "US-1", "ASIA-1"]]
    verdicts = {str(Game(regions(), delta=0.1).go(order).answers) for order in orders}
    assert len(verdicts) == 1


def test_a_block_is_closed_only_when_all_its_parts_are_in():
    game = Game(regions(), delta=0.1)
    for _ in range(20):
        game.turn("US-1")
        game.turn("EU-1")
    assert game.server.rounds == 0
    assert game.server.missing_clients() == ["ASIA-1"]
    game.turn("ASIA-1")
    assert game.server.rounds == 1


def test_with_several_open_blocks_fast_sites_play_ahead_and_blocks_close_in_order():
    game = Game(regions(), delta=0.1, open_blocks=3)
    game.turn("US-1")
    game.turn("EU-1")
    game.turn("ASIA-1")  # no block is announced before the first pulls are in
    for _ in range(10):
        game.turn("US-1")
        game.turn("EU-1")
    assert game.server.rounds == 1
    assert len(game.server.open) == 3
    assert len(game.clients["US-1"].sent) == 4
    game.turn("ASIA-1")  # plays all three blocks, in order
    assert len(game.clients["ASIA-1"].sent) == 4
    assert game.server.rounds == 4
    assert game.go().summary == "B"


def test_a_record_with_several_open_blocks_verifies():
    groups = {"US": {"A": 0.3, "B": 0.36}, "EU": {"A": 0.7, "B": 0.73}, "ASIA": {"A": 0.5, "B": 0.53}}
    problem = regions(groups=groups, weights={"US": 8, "EU": 1, "ASIA": 1})  # US is slow
    record = ba.identify(problem, seed=4, open_blocks=4)
    assert record.rounds > 5
    assert ba.verify(record, replay=True).failures == ()


def test_bets_use_only_blocks_that_were_closed_before():
    """The same first blocks give the same wealths, whatever comes later and whenever it arrives."""
    slow, fast = Game(regions(), delta=0.001, open_blocks=3), Game(regions(), delta=0.001, open_blocks=3)
    for name in slow.clients:
        slow.turn(name)
        fast.turn(name)
    for _ in range(6):
        fast.turn("US-1")  # plays ahead
    fast.go()
    slow.go(["US-1", "EU-1", "ASIA-1"])
    both = [{(row["block"], row["race"]): row for row in game.server.wealths} for game in (slow, fast)]
    assert both[0][1, 0] == both[1][1, 0]  # block 1 was announced from the first pulls in both


def test_a_dropped_site_changes_the_target_and_the_stored_parts_decide():
    """US alone prefers A so much that it decides; without US, B is the best and comes back."""
    groups = {"US": {"A": 0.95, "B": 0.05}, "EU": {"A": 0.45, "B": 0.55}, "ASIA": {"A": 0.4, "B": 0.6}}
    game = Game(regions(groups=groups), delta=1e-6, max_rounds=60)
    for _ in range(3):
        for name in game.clients:
            game.turn(name)
    before = game.server.ledger.races[0].log_wealth[0].copy()
    assert before[1] > 1  # B is losing
    game._server(game.server.handle(Drop("US-1")))
    after = game.server.ledger.races[0].log_wealth[0]
    assert after[1] < before[1]
    verdict = game.go(["EU-1", "ASIA-1"])
    assert verdict.arm == "B"
    assert "other sites" in game.server.warnings[0]["text"]
    # The wealths are those of a ledger that has never heard of US.
    course = Course(game.problem.layout, game.options)
    again = Ledger(course, np.array([False, True, True]))
    for block, stands, step, *_ in game.server.closed:
        again.close(block, stands, step)
    assert np.array_equal(again.races[0].log_wealth, game.server.ledger.races[0].log_wealth)


def test_a_site_that_was_dropped_has_no_answer_of_its_own():
    game = Game(regions("each"), delta=0.1)
    game.turn("US-1")
    game._server(game.server.handle(Drop("ASIA-1")))
    verdict = game.go(["US-1", "EU-1"])
    assert verdict.status == "identified"
    assert [(a.site, a.option, a.reason) for a in verdict.answers] == [
        ("US", "B", None),
        ("EU", "B", None),
        ("ASIA", None, "dropped"),
    ]


def test_dropping_one_of_two_clients_keeps_their_site():
    game = Game(regions(clients=2), delta=0.1)
    game._server(game.server.handle(Drop("US-2")))
    verdict = game.go([name for name in game.clients if name != "US-2"])
    assert verdict.arm == "B"
    assert "stand for the site" in game.server.warnings[0]["text"]


def test_silence_and_dropping_everybody_end_undecided_with_all_options():
    game = Game(regions(), delta=0.1)
    game.turn("US-1")
    game._server(game.server.handle(PatienceOver(0)))
    assert (game.server.verdict.status, game.server.verdict.reason) == ("undecided", "silence")
    assert game.server.verdict.candidates == ("A", "B", "C")
    game = Game(regions(), delta=0.1)
    for name in game.clients:
        game._server(game.server.handle(Drop(name)))
    assert game.server.verdict.reason == "silence"


def test_a_second_part_or_one_that_nobody_asked_for_is_proof_of_a_fault():
    game = Game(regions(), delta=0.1)
    game.hear("US-1")
    game.play("US-1")
    part = game.up["US-1"][0]
    game.deliver("US-1")
    game._server(game.server.handle(Received("US-1", part)))
    assert game.server.faulty[0]["client"] == "US-1"
    assert game.server.verdict.reason == "votes"


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=40), st.integers(0, 1))
def test_random_bytes_never_raise_out_of_the_machines(data, rounds):
    game = Game(regions("control", control="A"), delta=0.1, margin=0.1)
    for _ in range(rounds):
        for name in game.clients:
            game.turn(name)
    game.clients["US-1"].handle(Received("server", data))
    game.server.handle(Received("US-1", data))
    game.server.handle(Received("nobody", data))


@given(st.binary(max_size=12))
def test_a_message_of_the_server_has_one_encoding(data):
    wire = Wire(Course(regions(also="each").layout, Bet()))
    try:
        message = decode_down(data, wire)
    except Malformed:
        return
    assert message.encode(wire)[0] == data


def test_a_budget_ends_undecided_with_the_options_that_are_in():
    record = ba.identify(regions(), seed=2, delta=0.01, budget=60)
    assert (record.verdict.status, record.verdict.reason) == ("undecided", "budget")
    assert "B" in record.verdict.candidates
    assert record.pulls.max_per_client <= 60
    (answer,) = record.verdict.answers
    assert (answer.option, answer.answer, answer.candidates) == (None, "open", record.verdict.candidates)


def test_recorded_rewards_are_used_up_block_by_block_and_none_twice():
    rng = np.random.default_rng(3)
    rows = {"US": (0.4, 0.45, 300), "EU": (0.6, 0.62, 120)}
    groups = {
        site: {arm: {"kind": "recording", "values": (rng.random(n) < p).astype(float).tolist()}
               for arm, p in (("A", a), ("B", b))}
        for site, (a, b, n) in rows.items()
    }  # fmt: skip
    record = ba.identify(ba.Problem.from_rewards(groups), seed=1, question="overall", weights="rows")
    assert (record.verdict.status, record.verdict.reason) == ("undecided", "budget")
    assert all(pulls <= 2 * rows[name[:2]][2] for name, pulls in record.pulls.by_client.items())
    assert record.pulls.by_client["EU-1"] >= 200
    assert ba.verify(record, replay=True).ok


def test_a_margin_can_be_claimed_and_without_one_a_tie_stays_open():
    groups = {"US": {"A": 0.5, "B": 0.5}, "EU": {"A": 0.3, "B": 0.3}}
    problem = ba.Problem.from_rewards(groups)
    keys = {"question": "control", "control": "A", "seed": 4, "delta": 0.1}
    record = ba.identify(problem, margin=0.1, **keys)
    assert record.verdict.summary == "B: within"
    low, high = record.verdict.answers[0].interval
    assert -0.1 <= low <= 0 <= high <= 0.1
    record = ba.identify(problem, max_rounds=12, **keys)
    assert record.verdict.answers[0].answer == "open"
    assert record.verdict.status == "undecided"


def test_leads_and_values_are_in_the_user_s_unit_and_direction():
    groups = {s: {"A": {"kind": "beta", "a": 2, "b": 6}, "B": {"kind": "beta", "a": 6, "b": 2}} for s in "xy"}
    problem = ba.Problem.from_rewards(groups, bounds=(0, 60), goal="min")
    record = ba.identify(problem, question="control", control="A", seed=1)
    (answer,) = record.verdict.answers
    assert answer.answer == "worse"  # B takes longer
    assert answer.value == pytest.approx(30, abs=10)
    assert answer.interval[0] <= answer.value <= answer.interval[1]
    record = ba.identify(problem, question="overall", seed=1)
    assert record.verdict.arm == "A"
    assert record.verdict.mean == pytest.approx(15, abs=8)


def twenty_sites():
    rng = np.random.default_rng(7)
    base = rng.uniform(0.25, 0.6, 20)
    groups = {
        f"s{j:02d}": {"A": float(b), "B": float(b) + 0.15, "C": float(b) - 0.1} for j, b in enumerate(base)
    }
    problem = ba.Problem.from_rewards(groups)
    return lambda **options: ba.Scenario(problem.asking("overall"), "bet", None, {"delta": 0.1, **options})


class Trouble(Folds):
    """One site is slow, one comes late, and one is killed again and again."""

    turns = 0

    def step(self, name, instant=False):
        self.turns += 1
        if name == "s03-1" and self.rng.random() < 0.8:
            return  # slow
        if name == "s07-1" and self.turns < 800:
            return  # late
        if name == "s11-1" and self.rng.random() < 0.2 and self.sites[name] is not None:
            self.sites[name].journal.close()
            with self.mortal(name):
                raise Crash  # killed: it is opened again from its journal
        super().step(name, instant)


@pytest.mark.parametrize("blocks", [3, *slow(1)])
def test_a_federation_with_a_killed_a_slow_and_a_late_site_gives_the_simulator_s_verdict(tmp_path, blocks):
    case = twenty_sites()(open_blocks=blocks)
    files.init(case, tmp_path / "f", port=0)
    folds = Trouble(tmp_path / "f", Coins(case.problem), random.Random(blocks))
    try:
        record = folds.go()
        folds.check_pulls()
        again = driven(case, Coins(case.problem), folds)  # the same rewards and the same arrivals
    finally:
        folds.close()
    assert record.verdict.arm == "B"
    assert comparable(record) == comparable(again)
    if blocks == 1:  # then arrivals do not matter at all
        assert comparable(record) == comparable(in_process(case, Coins(case.problem)))
    assert ba.verify(record).failures == ()


def test_pulls_carry_the_moments_of_rewards_that_are_not_coins():
    problem = ba.Problem.from_rewards({s: {"A": {"kind": "beta", "a": 2, "b": 3}, "B": 0.5} for s in "xy"})
    client = Client(problem.asking("overall").layout, "x-1", Bet())
    (pull,) = client.handle(Start())
    assert pull.moments
    rows = [[0.5 * pull.times, 0.3 * pull.times, 0.2, 0.9]] * 2
    actions = client.handle(Pulled.of(rows, pull.times))
    assert [type(action) for action in actions] == [Send]
