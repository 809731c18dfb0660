"""Fed-Bet for groups of several honest clients: pooling, rounding, restarts, kernel and error rate."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm import InputError, Problem
from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.groups.client import Client
from bestarm.methods.bet.groups.messages import (
    CONFIRMED,
    Block,
    Down,
    Part,
    Restart,
    decode,
    decode_down,
    down_bits,
    encode,
    part_bits,
    sums_of,
)
from bestarm.methods.bet.groups.server import Server
from bestarm.methods.bet.levels import Report
from bestarm.methods.bet.options import PREFERENCES, Bet
from bestarm.problem.layout import Group, Layout
from bestarm.problem.moments import of_values
from bestarm.problem.rewards import Bernoulli
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Drop, PatienceOver, Pull, Pulled, Received, Send, Start, Stop
from bestarm.protocol.messages import Stopped
from bestarm.records.views import trace_of
from bestarm.stats import betting
from bestarm.stats.sums import Sums
from marking import examples
from methods.test_kernels import check_trial
from rates import rate_exceeds

RATINGS = {"kind": "table", "values": [0, 0.25, 0.5, 0.75, 1], "weights": [1, 2, 3, 2, 1]}
BETA = {"kind": "beta", "a": 6, "b": 2}


def differing(groups):
    """A problem with 0/1 rewards from {group: [[mean of each arm] of each client]}."""
    made = [
        Group(name, tuple("abcdef"[: len(rows[0])]), tuple(f"{name}-{k + 1}" for k in range(len(rows))))
        for name, rows in groups.items()
    ]
    rewards = tuple(tuple(map(Bernoulli, row)) for rows in groups.values() for row in rows)
    return Problem(Layout(tuple(made)), rewards)


class Game:
    """Machines whose messages travel in any order between clients, but in order for each of them."""

    def __init__(self, problem, rng, **options):
        self.problem, self.rng = problem, rng
        self.options = Bet(delta=0.1, **options)
        layout = problem.layout
        self.server = Server(layout, self.options)
        self.clients = {name: Client(layout, name, self.options) for name in layout.clients}
        self.up = {name: [] for name in self.clients}
        self.down = {name: [] for name in self.clients}
        self.pull = dict.fromkeys(self.clients)
        self.hear(self.server.handle(Start()))
        for name, client in self.clients.items():
            self.act(name, client.handle(Start()))

    def hear(self, actions):
        for action in actions:
            if isinstance(action, Send):
                for box in self.down.values():
                    box.append(action.payload)

    def act(self, name, actions):
        for action in actions:
            if isinstance(action, Pull):
                self.pull[name] = action if action.arms else None
            elif isinstance(action, Send):
                self.up[name].append(action.payload)

    def rewards(self, name, pull, times):
        models = self.problem.rewards[self.problem.layout.clients.index(name)]
        rows = []
        for arm, share in zip(pull.arms, pull.each, strict=True):
            row = models[arm].moments(self.rng, np.array([times * share]))[0]
            rows.append(row.tolist() if pull.moments else row[:1].tolist())
        return Pulled.of(rows, times)

    def step(self, name):
        """Let one client do something, if it can: hear, pull a part of what is asked for, or speak."""
        client, can = self.clients[name], []
        can += ["hear"] * bool(self.down[name]) + ["pull"] * bool(self.pull[name])
        can += ["speak"] * bool(self.up[name])
        match self.rng.choice(can) if can else None:
            case "hear":
                self.act(name, client.handle(Received("server", self.down[name].pop(0))))
            case "pull":
                pull, self.pull[name] = self.pull[name], None
                times = int(self.rng.integers(1, pull.times, endpoint=True))
                self.act(name, client.handle(self.rewards(name, pull, times)))
            case "speak":
                self.hear(self.server.handle(Received(name, self.up[name].pop(0))))
        return bool(can)

    def play(self, turns=10_000, without=()):
        """Let clients act in random order until the server is done or nobody can act."""
        names = [name for name in self.clients if name not in without]
        for _ in range(turns):
            if self.server.state == "done":
                return
            moved = [self.step(name) for name in self.rng.permutation(names)]
            if not any(moved):
                return
        raise AssertionError("the game does not end")


def naive_wealths(problem, options, wealths, parts):
    """The wealths of a run on 0/1 rewards, from its batches, as products over single rewards."""
    layout = problem.layout
    sizes = [len(group.clients) for group in layout.groups]
    places = [(j, arm) for j, arms in enumerate(layout.arm_counts) for arm in range(arms)]
    ones, pulls = np.zeros((2, len(wealths) + 1, len(places)))
    for name, part in parts.items():
        for block, row in enumerate(part["batches"]):
            for arm, each, total in zip(row["arms"], row["each"], row["sums"], strict=True):
                place = places.index((layout.group_of[name], arm))
                ones[block, place] += total
                pulls[block, place] += row["times"] * each
    logs, found, n = np.zeros(len(places)), [], Blocks(options).n1
    for block, row in enumerate(wealths, start=1):
        b = row["champion"]
        for a in row["arm"]:
            before = [Sums(*(np.asarray(float(x)) for x in (pulls[:block, i].sum(), s, s, 0.0, 1.0)))
                      for i in (b, a) for s in [ones[:block, i].sum()]]  # fmt: skip
            ratio = pulls[block, b] / pulls[block, a]
            bets = bet_decisions.bets(*before, ratio, n * max(sizes))
            factor = 0.0
            for stake, weight in zip(bets.stakes, bets.weights, strict=True):
                up, down = stake * (1 - bets.centre), -stake * bets.centre
                log = ones[block, b] * math.log1p(up) + (pulls[block, b] - ones[block, b]) * math.log1p(down)
                log += ones[block, a] * math.log1p(-ratio * up)
                log += (pulls[block, a] - ones[block, a]) * math.log1p(-ratio * down)
                factor += weight * math.exp(log)
            logs[a] += math.log(factor)
        found.append([logs[a] for a in row["arm"]])
        n += Blocks(options).step(n)
    return found


FAIR = differing({"one": [[0.9, 0.4], [0.5, 0.6]], "two": [[0.4], [0.5], [0.3]], "three": [[0.2, 0.1]]})


@settings(max_examples=examples(100))
@given(st.integers(0, 10**6), st.sampled_from(sorted(PREFERENCES)))
def test_in_any_order_of_messages_the_wealths_are_those_of_the_pooled_rewards(seed, prefer):
    game = Game(FAIR, np.random.default_rng(seed), prefer=prefer, max_rounds=12)
    game.play()
    server = game.server
    assert server.state == "done"
    assert not server.faulty
    parts = {name: client.local() for name, client in game.clients.items()}
    told = [row["log_wealth"] for row in server.certificate()["wealth"]]
    expected = naive_wealths(FAIR, game.options, server.wealths, parts)
    for row, other in zip(told, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-9, abs=1e-9)
    for exit_ in server.exits:
        assert exit_["log_wealth"] >= math.log(10)
    for group in FAIR.layout.groups:  # equal shares in every block
        shares = {
            tuple((row["heard"], *row["arms"], *row["each"], row["times"]) for row in parts[name]["batches"])
            for name in group.clients
        }
        assert len(shares) == 1


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), st.sampled_from([BETA, RATINGS, 0.7]), st.sampled_from([None, 60, 300]))
def test_a_record_of_any_rewards_verifies(seed, reward, budget):
    groups = {"one": {"a": reward, "b": 0.5}, "two": {"c": {"kind": "beta", "a": 2, "b": 3}}}
    problem = Problem.from_rewards(groups, clients=[2, 3])
    record = ba.identify(problem, "bet", seed=seed, budget=budget, max_rounds=8)
    assert ba.verify(record, replay=True).failures == ()
    if record.verdict.arm:
        low, high = record.verdict.interval
        assert low <= record.verdict.mean <= high
    else:
        assert record.verdict.reason in ("budget", "rounds")
        assert record.verdict.candidates
    assert max(sum(part["pulls"]) for part in record.verdict.certificate["local"].values()) <= (
        budget or math.inf
    )


def test_a_record_with_another_reward_does_not_verify():
    record = ba.identify(FAIR, "bet", seed=1)
    local = {**record.verdict.certificate["local"]}
    batches = [dict(row) for row in local["one-1"]["batches"]]
    batches[1]["sums"] = [total - 1 for total in batches[1]["sums"]]
    local["one-1"] = {**local["one-1"], "batches": batches}
    certificate = {**record.verdict.certificate, "local": local}
    verdict = msgspec.structs.replace(record.verdict, certificate=certificate)
    forged = msgspec.structs.replace(record, verdict=verdict).sealed()
    assert ba.verify(forged).failures == ("client one-1 sent messages that do not follow from its rewards",)


def test_the_mean_of_an_arm_is_the_average_over_the_clients_of_its_group():
    """In the second client the best arm is by far the worst: a bet inside it would throw the arm out."""
    problem = differing({"one": [[0.99, 0.5], [0.31, 0.5]], "two": [[0.4], [0.4]]})
    assert problem.best == "one/a"
    trials = ba.study(problem, "bet", trials=300, seed=4, delta=0.05, workers=1)
    assert not rate_exceeds(int((trials["correct"] == False).sum()), 300, 0.05)  # noqa: E712
    assert (trials["status"] == "identified").all()
    record = trials.record(0)
    low, high = record.verdict.interval
    assert low < 0.65 < high


TIED = differing({"one": [[0.502]], "two": [[0.5]] * 6})


def lost(problem, **keys):
    """In how many of 2,000 trials the best arm ever left."""
    trials = ba.study(problem, "bet", trials=2000, seed=11, delta=0.1, workers=1, **keys)
    return int((trials["good_event"] == False).sum())  # noqa: E712


@pytest.mark.parametrize("problem", [
    TIED,
    differing({"one": [[0.9], [0.104]], "two": [[0.1], [0.5], [0.9]]}),
    differing({"one": [[0.502, 0.5], [0.502, 0.5]], "two": [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]]}),
])  # fmt: skip
@pytest.mark.parametrize(("prefer", "rounds"), [("pulls", 25), ("rounds", 9)])
def test_the_best_arm_leaves_with_probability_at_most_delta(problem, prefer, rounds):
    """Null: it leaves with probability at most δ = 0.1. False alarm 1e-6 at δ (2,000 trials, exact binomial).

    Power: a rate of 0.15 is found with probability 0.98; the next test shows such a rate.
    """
    assert not rate_exceeds(lost(problem, prefer=prefer, max_rounds=rounds), 2000, 0.1)


def test_with_the_ratio_of_single_clients_the_best_arm_leaves_too_often(monkeypatch):
    """The stakes of both sides are equal only if the ratio counts the clients of both groups."""
    pooled = bet_decisions.pooled_ratio
    monkeypatch.setattr(bet_decisions, "pooled_ratio", lambda c, b, a: pooled(c, 1, np.ones(np.shape(a))))
    assert rate_exceeds(lost(TIED, prefer="balanced", max_rounds=12), 2000, 0.1)


# Rounding

samples = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(st.lists(samples, min_size=2, max_size=2), st.integers(0, 10**5), st.booleans(), st.floats(0.1, 8))
def test_rounding_never_increases_a_wealth(rows, n, champion, ratio):
    """Each side's logarithm, from what is read, is at most the true one."""
    wire = wire_of(Problem.from_rewards({"g": {"a": BETA}, "h": {"b": BETA}}).layout, Bet())
    x = np.array(rows[0])
    down = Down((True, True), 0 if champion else 1, 0, 1)
    block = Block(wire, n, len(x), down)
    fresh = Sums(np.array([float(len(x))]), *of_values(x)[:, None])
    part = Part.of(fresh, block, 0, np.array([0]))
    read, _ = decode(encode(part, wire)[0], block, 0)
    assert read == part
    told = Sums(*(np.asarray(v) for v in sums_of(part.reports[0], mirrored=not champion)))
    centre = float(np.clip(np.mean(rows[1]), betting.MARGIN, 1 - betting.MARGIN))
    stake = 0.9 * min(1 / centre, 1 / (ratio * (1 - centre)))
    if champion:
        found = betting.least_log_wealth(*told.parts[:4], stake, centre)
        true = np.log1p(stake * (x - centre)).sum()
    else:
        y, count = 1 - x, told.count
        found = betting.least_log_wealth(
            count, count - told.total, count - 2 * told.total + told.squares, 1 - told.most,
            ratio * stake, 1 - centre,
        )  # fmt: skip
        true = np.log1p(ratio * stake * (y - (1 - centre))).sum()
    assert found <= true + 1e-9 * len(x)


@given(st.integers(1, 50), st.integers(0, 10**6), st.sampled_from([(0.5, 0.5), (8, 2), (30, 1)]))
def test_the_interval_contains_the_one_of_the_unrounded_rewards(blocks, seed, shape):
    """Whatever the roles of an arm in its blocks were."""
    rng = np.random.default_rng(seed)
    problem = Problem.from_rewards({"g": {"a": BETA}, "h": {"b": BETA}}, clients=2)
    server = Server(problem.layout, Bet())
    values = []
    for _ in range(min(blocks, 5)):
        champion, x = rng.random() < 0.5, rng.beta(*shape, size=20)
        report = (
            Report.of(20, 0, x.sum(), (x**2).sum(), x.min(), False)
            if champion
            else Report.of(20, 0, (1 - x).sum(), ((1 - x) ** 2).sum(), 1 - x.max(), False)
        )
        told = Sums(*(np.array([v, 0.0]) for v in sums_of(report, mirrored=not champion)))
        server.sums = server.sums.plus(told)
        (server.below if champion else server.above)[0] += 20 * 2.0**-14
        values.extend(x)
    x = np.array(values)
    low, high = server._intervals(np.array([0]), 0.05)
    inner = betting.interval(len(x), x.sum(), (x**2).sum(), x.min(), x.max(), 0.05)
    assert low[0] <= inner[0] + 1e-9
    assert high[0] >= inner[1] - 1e-9
    assert abs(server._means(np.array([0]))[0] - x.mean()) <= 2.0**-14


# Messages


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 10**6), st.data())
def test_sizes_without_encoding_are_those_of_the_encoding(counts, n, data):
    binary = [data.draw(st.booleans()) for _ in counts]
    names = iter(range(100))
    groups = tuple(
        Group(f"g{j}", tuple("abcd"[:arms]), (f"c{next(names)}", f"c{next(names)}"), binary=coins)
        for j, (arms, coins) in enumerate(zip(counts, binary, strict=True))
    )
    wire = wire_of(Layout(groups), Bet())
    inside = tuple(data.draw(st.lists(st.booleans(), min_size=sum(counts), max_size=sum(counts))))
    champion = data.draw(st.sampled_from([(j, arm) for j, k in enumerate(counts) for arm in range(k)]))
    starts = np.cumsum([0, *counts])
    inside = tuple(there or k == starts[champion[0]] + champion[1] for k, there in enumerate(inside))
    down = Down(inside, *champion, data.draw(st.integers(1, 16)))
    payload, bits = down.encode(wire)
    assert bits == down_bits(wire)[champion[0]]
    assert decode_down(payload, wire) == down
    block = Block(wire, n, data.draw(st.integers(1, 10**6)), down)
    pulls = np.zeros((len(counts), max(counts)), dtype=np.int64)
    for j, arms in enumerate(counts):
        pulls[j, :arms] = block.pulls(j)
    for j, size in enumerate(part_bits(wire, pulls, n)):
        fresh = Sums(*(pulls[j].astype(float) * share for share in (1.0, 0.5, 0.4)), *np.full((2, 4), 0.5))
        part = Part.of(fresh, block, j, pulls[j])
        assert encode(part, wire)[1] == size
        assert decode(encode(part, wire)[0], block, j) == (part, size)


def made(clients=2, means=((0.9, 0.1), (0.6,)), **keys):
    problem = Problem.bernoulli([list(row) for row in means], clients=clients)
    server = Server(problem.layout, Bet(delta=0.1, n1=10, q=2.0, **keys))
    server.handle(Start())
    return server


def say(server, name, *sums):
    """Send these sums of 0/1 rewards for the open block."""
    block, j = server.block, server.layout.group_of[name]
    counts = [int(n) for n in block.pulls(j) if n]
    reports = (Report.of(n, block.n, s, s, 0.0, True) for n, s in zip(counts, sums, strict=True))
    return server.handle(Received(name, encode(Part(tuple(reports)), server.own_wire)[0]))


def test_a_block_is_closed_by_the_parts_of_all_clients():
    server = made()
    for name, sums in (("g1-1", (9, 1)), ("g2-1", (5,)), ("g1-2", (8, 2))):
        assert say(server, name, *sums) == []
    assert server.missing_clients() == ["g2-2"]
    (sent,) = say(server, "g2-2", 6)
    assert decode_down(sent.payload, server.own_wire) == Down((True, True, True), 0, 0, 1)
    assert server.sums.total.tolist() == [17, 3, 11]
    assert server.bets.ratio.tolist() == [1, 1]
    assert server.missing_clients() == ["g1-1", "g1-2", "g2-1", "g2-2"]


def test_a_second_different_part_is_proof_of_a_fault_and_a_repeated_one_is_not():
    server = made()
    say(server, "g1-1", 9, 1)
    say(server, "g1-1", 9, 1)
    assert (server.state, server.faulty) == ("waiting", [])
    say(server, "g1-1", 9, 2)
    assert server.verdict.reason == "votes"
    assert [fault["client"] for fault in server.faulty] == ["g1-1"]


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x00" * 9])
def test_a_part_that_no_client_can_send_is_proof_of_a_fault(data):
    server = made()
    server.handle(Received("g1-1", data))
    assert [fault["client"] for fault in server.faulty] == ["g1-1"]
    assert server.verdict.reason == "votes"


def test_a_champion_that_is_not_in_is_refused():
    wire = made().own_wire
    with pytest.raises(Malformed, match="not in"):
        decode_down(Down((False, True, True), 0, 0, 1).encode(wire)[0], wire)


def test_a_client_that_stays_silent_ends_the_run_undecided_once_patience_is_over():
    server = made()
    say(server, "g1-1", 9, 1)
    server.handle(PatienceOver(0))
    assert server.verdict.reason == "silence"
    assert server.verdict.candidates == ("g1/a1", "g1/a2", "g2/a1")


def test_a_client_without_pulls_for_the_block_ends_the_run():
    game = Game(FAIR, np.random.default_rng(2), budget=30, n1=10, q=2.0)
    game.play()
    assert game.server.verdict.reason == "budget"
    assert all(client.pulls <= 30 for client in game.clients.values())
    server = made(budget=1000)
    server.handle(Received("g2-1", encode(Stopped(), server.own_wire)[0]))
    assert server.verdict.candidates == ("g1/a1", "g1/a2", "g2/a1")


def test_an_operator_s_stop_of_a_client_is_told():
    client = Client(made().layout, "g1-1", Bet(budget=10**6))
    client.handle(Start())
    pull, send = client.handle(Stop("budget"))
    assert pull.arms == ()
    assert send.payload == encode(Stopped(), client.wire)[0]


def test_blocks_take_no_more_than_recordings_hold():
    """The second client of the first group has fewest rewards; no reward of a block is wasted."""
    rng = np.random.default_rng(1)

    def rows(*lengths):
        return {"kind": "recording", "values": [(rng.random(n) < 0.5).astype(int).tolist() for n in lengths]}

    groups = {"one": {"a": rows(200, 60), "b": rows(200, 300)}, "two": {"c": rows(500, 500)}}
    problem = Problem.from_rewards(groups, clients=2)
    record = ba.identify(problem, "bet", seed=3, delta=1e-6, n1=16, q=1.5)
    assert ba.verify(record, replay=True).failures == ()
    assert record.verdict.reason == "budget"
    batches = record.verdict.certificate["local"]["one-2"]["batches"]
    used = sum(row["times"] * row["each"][row["arms"].index(0)] for row in batches)
    assert used == 60
    last = record.verdict.certificate["server"]["rounds"][-1]
    assert last["pulls"] <= 60


# Drops


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), st.data())
def test_after_a_drop_only_fresh_rewards_of_the_others_count(seed, data):
    game = Game(FAIR, np.random.default_rng(seed), max_rounds=14)
    doomed = data.draw(st.lists(st.sampled_from(FAIR.layout.clients), min_size=1, max_size=3, unique=True))
    alive = data.draw(st.booleans())  # whether they go on after they were dropped
    for name in doomed:
        for _ in range(data.draw(st.integers(0, 60))):
            game.step(str(game.rng.choice(FAIR.layout.clients)))
        if game.server.state == "done":
            return
        game.hear(game.server.handle(Drop(name)))
    game.play(without=() if alive else doomed)
    server = game.server
    assert server.state == "done"
    assert not server.faulty
    assert server.epoch == len(doomed)
    fresh, made = np.zeros((2, 5))
    for name, client in game.clients.items():
        if name in doomed:
            continue
        said = [decode_down(payload, server.own_wire) for payload in server.said]
        start = max(k for k, message in enumerate(said, start=1) if isinstance(message, Restart))
        for row in client.local()["batches"]:
            if row["heard"] >= start:
                at = server.own[client.group].start + np.array(row["arms"])
                fresh[at] += row["sums"]
                made[at] += row["times"] * np.array(row["each"])
    if server.verdict.arm is not None:
        assert server.sums.total.tolist() == fresh.tolist()
        assert server.sums.count.tolist() == made.tolist()
    groups = {arm.split("/")[0] for arm in server.verdict.candidates or [server.verdict.arm] if arm}
    assert not groups & {g.name for g in FAIR.layout.groups if set(g.clients) <= set(doomed)}


def test_what_a_client_sent_before_it_heard_of_a_restart_does_not_count():
    server = made(clients=3)
    say(server, "g1-1", 9, 1)
    (sent,) = server.handle(Drop("g2-3"))
    assert server.sizes.tolist() == [3, 2]
    say(server, "g1-2", 10, 10)  # of the time before the restart
    assert server.parts == {}
    client = Client(server.layout, "g1-2", server.options)
    client.handle(Start())
    _, confirmed, pull = client.handle(Received("server", sent.payload))
    assert (confirmed.payload, confirmed.bits) == (CONFIRMED, 0)
    assert pull == Pull((0, 1), 10)
    server.handle(Received("g1-2", CONFIRMED))
    say(server, "g1-2", 3, 4)
    assert list(server.parts) == ["g1-2"]
    assert "begin again" in server.warnings[0]["text"]


def test_a_group_without_clients_is_left_out_and_its_arms_are_no_candidates():
    server = made()
    server.handle(Drop("g1-1"))
    server.handle(Drop("g1-2"))
    assert server.active.tolist() == [False, True]
    for name in ("g2-1", "g2-2"):
        for _ in range(2):
            server.handle(Received(name, CONFIRMED))
        say(server, name, 5)
    assert server.verdict.arm == "g2/a1"
    assert server.verdict.mean == 0.5
    server = made()
    for name in server.layout.clients:
        server.handle(Drop(name))
    assert server.verdict.candidates == ()


# The kernel

means = st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.7, 0.95, 1.0])
arms = st.one_of(means, st.just(RATINGS), st.just(BETA))


@st.composite
def problems(draw):
    kind = draw(st.sampled_from([means, arms]))
    rows = draw(st.lists(st.lists(kind, min_size=1, max_size=4), min_size=1, max_size=4))
    if sum(map(len, rows)) == 1:
        rows.append([0.3])
    clients = draw(st.lists(st.integers(1, 4), min_size=len(rows), max_size=len(rows)))
    clients[0] += 1
    groups = {f"g{i}": {f"a{j}": m for j, m in enumerate(row)} for i, row in enumerate(rows)}
    return Problem.from_rewards(groups, clients=clients)


@settings(max_examples=examples(100))
@given(
    problems(),
    st.fixed_dictionaries(
        {
            "delta": st.sampled_from([0.01, 0.3]),
            "prefer": st.sampled_from(sorted(PREFERENCES)),
            "max_rounds": st.sampled_from([1, 3, 9]),
        },
        optional={"n1": st.integers(1, 9), "q": st.sampled_from([1.3, 4.0])},
    ),
    st.integers(0, 2**32),
)
def test_a_trial_replays_through_the_machines(problem, options, seed):
    trials = ba.study(problem, "bet", trials=4, seed=seed, workers=1, **options)
    for i in (0, 3):
        check_trial(trials, i)


@pytest.mark.parametrize("rewards", [[[1.0], [1.0]], [[0.5, 0.5], [0.5]]])
def test_a_trial_replays_up_to_the_largest_count(rewards):
    trials = ba.study(Problem.bernoulli(rewards, clients=2), "bet", trials=2, seed=3, workers=1, q=1000.0)
    assert trials["reason"][1] == trials.record(1).verdict.reason == "budget"
    assert trials["rounds"][1] == trials.record(1).rounds


def test_more_clients_share_the_pulls():
    """The paper's instance at σ = 3: all clients together need hardly more pulls than single ones."""
    rows = [list(row) for row in Problem.paper_instance(3).means]
    pulls = {}
    for clients in (1, 4):
        problem = Problem.bernoulli(rows, clients=clients)
        trials = ba.study(problem, "bet", trials=500, seed=3, delta=0.1, prefer="pulls", workers=1)
        pulls[clients] = trials["pulls_total"].mean()
        assert trials["correct"].mean() > 0.97
    assert pulls[4] < 1.25 * pulls[1]


def test_epsilon_is_refused():
    problem = Problem.bernoulli([[0.9], [0.5]], clients=3)
    with pytest.raises(InputError, match="several clients per group"):
        ba.identify(problem, "bet", epsilon=0.1)


def test_a_trace_shows_who_left_and_to_whom():
    record = ba.identify(FAIR, "bet", seed=1)
    trace = trace_of(record)
    exits = trace.exits()
    assert {(exit_.group, exit_.arm) for exit_ in exits} == {(0, 1), (1, 0), (2, 0), (2, 1)}
    assert {exit_.rival for exit_ in exits} == {(0, 0)}
    assert all(exit_.why.log_wealth >= exit_.why.limit for exit_ in exits)
    assert trace.dropped("one-2") == {1}
    lines = {line.group: line for line in trace.lines()}
    assert lines[0].out is None
    assert lines[0].views[-1].mean == record.verdict.mean
    assert lines[2].out < record.rounds
    assert max(trace.sums("one-1")[0]) == sum(
        row["times"] * each
        for row in record.verdict.certificate["local"]["one-1"]["batches"]
        for arm, each in zip(row["arms"], row["each"], strict=True)
        if arm == 0
    )


def test_filling_and_epsilon_are_refused_with_several_clients_per_group():
    problem = ba.Problem.bernoulli([[0.9], [0.2]], clients=2)
    for options in ({"silence": "fill"}, {"epsilon": 0.1}):
        with pytest.raises(ba.InputError, match="several clients per group"):
            ba.identify(problem, "bet", seed=1, **options)
