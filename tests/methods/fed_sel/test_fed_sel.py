"""Fed-SEL equals Algorithm 2 on every path, and reports why it can't decide."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.errors import InputError
from bestarm.methods import fed_sel
from bestarm.methods import robust_fed_sel as robust
from bestarm.methods.fed_sel.client import Client
from bestarm.methods.fed_sel.messages import Bound, Report
from bestarm.methods.fed_sel.options import FedSel
from bestarm.methods.fed_sel.server import Server
from bestarm.problem.layout import Group, Layout
from bestarm.problem.problem import Problem
from bestarm.protocol.events import PatienceOver, Pull, Pulled, Received, Send, Start, Stop
from bestarm.protocol.machine import IllegalEvent
from bestarm.protocol.messages import Wire
from bestarm.protocol.rounds import SERVER
from bestarm.records.describe import leading
from bestarm.stats.radii import radius
from marking import examples
from methods.fed_sel.transcription import algorithm_2


@dataclass(frozen=True)
class Stream:
    """A test's reward model that pays from a fixed stream."""

    ends: np.ndarray
    binary: bool = True
    mean: float | None = None
    limit: None = field(default=None)

    def sums(self, rng, times, start=0):
        return np.asarray(self.ends[start + times] - self.ends[start])

    def spec(self):
        return None


def on_streams(rewards: list[np.ndarray], binary: bool = True) -> Problem:
    groups = tuple(
        Group(f"g{i}", tuple(f"a{a}" for a in range(r.shape[1])), (f"c{i}",), binary)
        for i, r in enumerate(rewards)
    )
    models = tuple(
        tuple(Stream(np.concatenate([[0.0], np.cumsum(r[:, a])]), binary) for a in range(r.shape[1]))
        for r in rewards
    )
    return Problem(Layout(groups), models)


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32), st.sampled_from([10, 64, 100]), st.booleans())
def test_with_the_defaults_fed_sel_equals_algorithm_2_on_every_path(seed, period, binary):
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(1, 4))
    rewards = []
    tops = rng.permutation([0.95, 0.65, 0.35])[:clients]  # no two clients have the same best mean
    for top in tops:
        means = rng.permutation([top, *rng.choice([0.02, 0.1, 0.15], int(rng.integers(1, 3)), replace=False)])
        noise = rng.random((60_000, len(means)))
        rewards.append((noise < means).astype(float) if binary else np.round(64 * (means + noise) / 2) / 64)
    expected = algorithm_2(rewards, delta=0.2, c=4.0, period=period)
    record = ba.identify(on_streams(rewards, binary), "fed-sel", delta=0.2, c=4.0, period=period, seed=0)
    assert record.verdict.arm == f"g{expected.client}/a{expected.arm}"
    assert record.rounds == expected.rounds
    told: list[list[float]] = [[] for _ in rewards]
    for row in record.verdict.certificate["server"]["rounds"]:
        for j, mean in zip(row["group"], row["mean"], strict=True):
            told[j].append(mean)
    assert told == expected.means
    assert record.pulls.phase2 == sum(period * (len(m) - 1) for m in told)


def test_bits_are_those_of_the_encoding():
    """Round 0: arm, Elias-γ and sum; then B_i(k) per round; downlink: one active bit per group and a flag."""
    problem = Problem.paper_instance(7)
    record = ba.identify(problem, "fed-sel", delta=0.1, period=2000, seed=3)
    r = radius("paper", 3, 3, 0.1)
    expected = 0
    for row in record.verdict.certificate["server"]["rounds"]:
        for n in row["count"]:
            if row["round"] == 0:
                expected += 2 + (2 * (n.bit_length() - 1) + 1) + int(n).bit_length()
            else:
                expected += max(1, int(np.ceil(np.log2(1 / r.alpha(n)))))
    assert record.rounds > 5
    assert record.bits.up == expected
    assert record.bits.down == (record.rounds - 1) * (1 + 3) + (1 + 1 + 2 + 2)


def test_the_public_record_contains_no_seed_true_mean_or_eliminated_arm():
    record = ba.identify(Problem.paper_instance(1), "fed-sel", delta=0.1, seed=1)
    public = record.public().to_dict()
    assert public["seed"] is None
    assert public["pulls"] is None
    assert public["verdict"]["certificate"]["local"] is None
    assert all("rewards" not in group for group in public["problem"]["groups"])


def test_one_arm_in_all_is_identified_with_no_pull():
    record = ba.identify(Problem.bernoulli([[0.3]]), "fed-sel", seed=1)
    assert record.verdict.arm == "g1/a1"
    assert (record.pulls.total, record.rounds, record.bits.up) == (0, 0, 0)
    assert ba.verify(record, replay=True)


def test_groups_with_one_arm_work():
    record = ba.identify(Problem.bernoulli([[0.9], [0.2], [0.5, 0.1]]), "fed-sel", delta=0.1, seed=1)
    assert record.verdict.arm == "g1/a1"
    assert record.pulls.by_client["g1-1"] >= radius("paper", 3, 1, 0.1).inverse(1 / 8)
    assert ba.verify(record, replay=True)


def test_one_group_needs_one_round():
    record = ba.identify(Problem.bernoulli([[0.9, 0.1]]), "fed-sel", seed=1)
    assert (record.verdict.arm, record.rounds) == ("g1/a1", 1)


@pytest.mark.parametrize(
    "option", [{"quantiser": False}, {"radius": "sharp"}, {"intersect": True}, {"period_growth": 1.3}]
)
def test_each_option_gives_a_sound_record(option):
    record = ba.identify(Problem.paper_instance(7), "fed-sel", delta=0.1, seed=5, **option)
    assert record.verdict.arm == "g1/a1"
    assert ba.verify(record, replay=True)


def test_a_growing_period_saves_rounds():
    plain = ba.identify(Problem.paper_instance(15), "fed-sel", delta=0.1, seed=5)
    growing = ba.identify(Problem.paper_instance(15), "fed-sel", delta=0.1, seed=5, period_growth=1.1)
    assert growing.rounds < plain.rounds / 5


def test_the_sharp_radius_halves_the_pulls():
    plain = ba.identify(Problem.paper_instance(1), "fed-sel", delta=0.1, seed=5)
    sharp = ba.identify(Problem.paper_instance(1), "fed-sel", delta=0.1, seed=5, radius="sharp")
    assert 0.4 < sharp.pulls.total / plain.pulls.total < 0.55


def test_a_tie_at_the_top_ends_at_its_budget_with_both_candidates():
    problem = Problem.bernoulli([[0.9, 0.1], [0.9, 0.2]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, budget=20_000)
    assert record.verdict.status == "undecided"
    assert record.verdict.reason == "budget"
    assert record.verdict.candidates == ("g1/a1", "g2/a1")
    assert 0 < record.verdict.gap < 0.2
    assert record.pulls.max_per_client <= 20_000
    assert ba.verify(record, replay=True)


def test_a_local_tie_in_a_hopeless_client_does_not_stop_the_others():
    """{.3, .3} never ends Phase I by itself (erratum 18); its budget lets the others continue."""
    problem = Problem.bernoulli([[0.95, 0.1], [0.3, 0.3]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, budget=60_000)
    assert record.verdict.arm == "g1/a1"
    assert ba.verify(record, replay=True)


def test_a_local_tie_at_the_top_is_undecided_among_the_tied():
    problem = Problem.bernoulli([[0.9, 0.9, 0.1], [0.3, 0.1]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, budget=60_000)
    assert record.verdict.reason == "budget"
    assert record.verdict.candidates == ("g1/a1", "g1/a2")
    assert record.verdict.gap is not None
    assert ba.verify(record, replay=True)


def test_early_stop_ends_a_hopeless_tie_without_a_budget():
    problem = Problem.bernoulli([[0.95, 0.1], [0.3, 0.3]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, early_stop=True)
    assert record.verdict.arm == "g1/a1"
    assert record.rounds == 1
    assert ba.verify(record, replay=True)


def test_early_stop_waits_for_one_pull_and_not_for_a_batch():
    """The beaten client stops at the first epoch at which the bound beats it, not at the end of its batch."""
    problem = Problem.bernoulli([[1.0, 0.0], [0.0, 0.0]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, early_stop=True)
    winner, loser = record.pulls.by_client.values()
    assert winner <= loser <= winner + 2


def test_epsilon_ends_a_tie_with_an_arm_that_is_good_enough():
    problem = Problem.bernoulli([[0.7, 0.7], [0.7, 0.2]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, epsilon=0.1)
    assert record.verdict.arm in ("g1/a1", "g1/a2", "g2/a1")
    assert ba.verify(record, replay=True)


def test_epsilon_names_an_arm_within_epsilon():
    """On the good event the answer is within ε; here every trial must be, with δ = 0.01 and 20 trials."""
    problem = Problem.bernoulli([[0.62, 0.6, 0.2], [0.65, 0.64], [0.3, 0.1]])
    means = {"g1/a1": 0.62, "g1/a2": 0.6, "g2/a1": 0.65, "g2/a2": 0.64}
    for seed in range(20):
        record = ba.identify(problem, "fed-sel", delta=0.01, seed=seed, epsilon=0.1, radius="sharp")
        assert means[record.verdict.arm] >= 0.65 - 0.1


def test_rounds_can_run_out():
    record = ba.identify(Problem.paper_instance(15), "fed-sel", delta=0.1, seed=1, max_rounds=10)
    assert record.verdict.reason == "rounds"
    assert record.rounds == 10
    assert record.verdict.candidates == ("g1/a1", "g2/a1")
    assert 0.05 < record.verdict.gap < 0.5
    assert ba.verify(record, replay=True)


def test_data_that_run_out_end_in_undecided():
    rows = {
        "a": {"kind": "recording", "values": [1, 0] * 50},
        "b": {"kind": "recording", "values": [0, 1] * 40},
    }
    record = ba.identify(Problem.from_rewards({"g": rows}), "fed-sel", seed=1)
    assert record.verdict.reason == "budget"
    assert record.verdict.candidates == ("g/a", "g/b")
    assert record.pulls.total == 160
    assert record.good_event is None
    assert ba.verify(record, replay=True)


def test_the_same_seed_gives_the_same_record_and_another_one_does_not():
    first, second, other = (ba.identify(Problem.paper_instance(3), "fed-sel", seed=s) for s in (4, 4, 5))
    assert first == second
    assert first.pulls != other.pulls


def test_a_drawn_seed_is_in_the_record_and_replays():
    record = ba.identify(Problem.bernoulli([[0.9, 0.1], [0.5, 0.2]]), "fed-sel")
    assert ba.verify(record, replay=True)


def test_epsilon_is_in_units_of_the_rewards():
    """On a scale of 0 to 100, ε = 30 must act as ε = 0.3 on [0, 1], and ε = 0.3 as next to nothing."""
    wide = Problem.from_rewards({"x": {"a": 49.0}, "y": {"b": 50.0}}, bounds=(0.0, 100.0))
    narrow = Problem.bernoulli({"x": {"a": 0.49}, "y": {"b": 0.50}})
    same = ba.identify(narrow, "fed-sel", seed=1, epsilon=0.3)
    coarse = ba.identify(wide, "fed-sel", seed=1, epsilon=30.0)
    fine = ba.identify(wide, "fed-sel", seed=1, epsilon=0.3, max_rounds=3)
    assert coarse.pulls.total == same.pulls.total
    assert coarse.options["epsilon"] == 30.0
    assert fine.verdict.reason == "rounds"
    assert ba.verify(coarse, replay=True)
    with pytest.raises(InputError, match="as wide as the range"):
        ba.identify(wide, "fed-sel", epsilon=100)


def test_a_group_that_ran_out_of_data_does_not_keep_the_others_going_forever():
    """Its interval no longer shrinks; once the others lie inside it, no decision is possible."""
    rng = np.random.default_rng(1)
    coins = {"a": rng.random(300) < 0.7, "b": rng.random(300) < 0.2}
    rows = {
        name: {"kind": "recording", "values": tossed.astype(float).tolist()} for name, tossed in coins.items()
    }
    for best, epsilon in ((0.7, 0.0), (0.8, 0.0), (0.7, 0.05)):
        problem = Problem.from_rewards({"site": rows, "lab": {"c": best, "d": 0.1}})
        record = ba.identify(problem, "fed-sel", seed=1, epsilon=epsilon, radius="sharp")
        assert record.verdict.reason == "budget"
        assert {"site/a", "lab/c"} <= set(record.verdict.candidates)
        assert ba.verify(record, replay=True)


def test_a_beaten_client_withdraws_at_the_first_epoch_that_allows_it():
    """Batches must not run past the epoch at which the pull-by-pull client would withdraw."""
    rng = np.random.default_rng(3)
    ends = np.concatenate([np.zeros((1, 2)), np.cumsum(rng.random((9000, 2)) < 0.3, axis=0)])
    layout = Layout((Group("g1", ("a", "b"), ("c1",)), Group("g2", ("a", "b"), ("c2",))))
    alpha = radius("paper", 2, 2, 0.1).alpha
    t = np.arange(100, 9000)
    expected = int(t[np.argmax(ends[t].max(axis=1) / t + 2 * alpha(t) <= 0.5)])
    client = Client(layout, "c1", FedSel(delta=0.1, early_stop=True))
    (pull,) = client.handle(Start())
    bound, _ = Bound(0.5).encode(client.wire)
    told = False
    while client.state == "exploring":
        t0 = client.phase1.epoch
        times = pull.times if told else min(pull.times, 100 - t0)
        actions = client.handle(Pulled(tuple(ends[t0 + times] - ends[t0]), times))
        if not told and client.phase1.epoch == 100:
            told, _ = True, client.handle(Received(SERVER, bound))
            actions = [client._ask(client.phase1.arms, client._until_beaten())]
        pull = next((a for a in actions if isinstance(a, Pull) and a.arms), pull)
    assert client.phase1.epoch == expected


def test_a_single_arm_that_is_alone_is_identified_even_if_its_budget_ended_early():
    record = ba.identify(Problem.bernoulli([[0.99], [0.01]]), "fed-sel", delta=0.1, seed=1, budget=1000)
    assert record.verdict.arm == "g1/a1"
    assert ba.verify(record, replay=True)


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 1e-100, "max_rounds": 2},
        {"c": 2.0, "period": 2**40},
        {"period_growth": 1e5, "max_rounds": 50},
        {"epsilon": 0.9},
        {"budget": 2},
        {"max_rounds": 1},
    ],
)
def test_extreme_options_end_in_a_sound_record(options):
    record = ba.identify(
        Problem.bernoulli([[0.8, 0.1], [0.8, 0.3]]), "fed-sel", **{"seed": 1, "delta": 0.1, **options}
    )
    assert ba.verify(record, replay=True).failures == ()
    assert record.verdict.reason in (None, "rounds", "budget")


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("fed-sel", {"period": 2000, "c": 3.0, "radius": "sharp"}),
        ("fed-sel", {"period": 2000, "c": 3.0, "radius": "sharp", "intersect": True, "quantiser": False}),
        ("robust-fed-sel", {"period": 2000, "c": 3.0, "radius": "sharp"}),
        ("fisher", {"epsilon": 0.02}),
    ],
)
def test_on_the_good_event_interval_and_gap_are_true(method, keys):
    """Checks verdicts after one round or look (wide gap) and at the end (narrow interval).

    The good event of Fed-Fisher in a record is that the best arm was not lost. Its intervals use the
    other δ/2, so at δ = 1e-6 none of these runs may err.
    """
    problem = Problem.bernoulli([[0.9, 0.5], [0.8, 0.3], [0.7]])
    means = {"g1/a1": 0.9, "g1/a2": 0.5, "g2/a1": 0.8, "g2/a2": 0.3, "g3/a1": 0.7}
    gaps = ends = 0
    for seed in range(8):
        for cap in (1, 3, 10**6):
            record = ba.identify(problem, method, delta=1e-6, seed=seed, max_rounds=cap, **keys)
            assert record.good_event
            if record.verdict.interval is not None:
                low, high = record.verdict.interval
                assert low <= means[record.verdict.arm] <= high
                ends += 1
            elif record.verdict.gap is not None:
                assert means[leading(record)] >= 0.9 - record.verdict.gap
                gaps += 1
    assert gaps >= 8
    assert ends >= 8


def left_to_themselves(client, server, layout, options):
    """A server and clients whose best arms pay the same, without a driver that ends an idle run."""
    server = server(layout, options)
    clients = {name: client(layout, name, options) for name in layout.clients}
    server.handle(Start())
    todo = deque((name, action) for name in clients for action in clients[name].handle(Start()))
    while todo:
        name, action = todo.popleft()
        match action:
            case Pull(arms, times) if arms:
                # The first arm of a group is the better one, by far.
                sums = tuple(((times + 1) // 2 if arm == 0 else 0) for arm in arms)
                todo.extend((name, a) for a in clients[name].handle(Pulled(sums, times)))
            case Send(to, data) if to == SERVER:
                todo.extend((SERVER, a) for a in server.handle(Received(name, data)))
            case Send(to, data):
                for other in clients:
                    todo.extend((other, a) for a in clients[other].handle(Received(SERVER, data)))
    return server


@pytest.mark.parametrize("growth", [2.0, 1e5])
@pytest.mark.parametrize("quantiser", [True, False])
@pytest.mark.parametrize("room", [fed_sel, robust])
def test_a_period_that_outgrows_all_counts_ends_undecided_and_no_client_falls_silent(room, growth, quantiser):
    layout = Problem.bernoulli([[0.5, 0.0], [0.5, 0.0], [0.5]]).layout
    options = room.METHOD.options(delta=0.1, period_growth=growth, quantiser=quantiser)
    server = left_to_themselves(room.Client, room.Server, layout, options)
    assert server.state == "done"
    assert (server.verdict.status, server.verdict.reason) == ("undecided", "budget")
    assert server.verdict.candidates == ("g1/a1", "g2/a1", "g3/a1")


@pytest.mark.parametrize("method", ["fed-sel", "robust-fed-sel"])
def test_a_tie_with_a_growing_period_ends_in_a_sound_record(method):
    tie = Problem.bernoulli([[0.5, 0.1], [0.5, 0.1]])
    record = ba.identify(tie, method, delta=0.1, seed=1, period_growth=1e5)
    assert (record.verdict.status, record.verdict.reason) == ("undecided", "budget")
    assert record.verdict.candidates == ("g1/a1", "g2/a1")
    assert record.verdict.certificate["server"]["events"][-1][0] == "received"  # and not a stop by the driver
    assert ba.verify(record, replay=True).failures == ()


def test_a_growing_period_costs_one_bit_per_message_and_the_paper_s_mode_none():
    """On a problem of one round every client sends one message; the period changes no other bit of it."""
    keys = {"delta": 0.1, "seed": 5}
    paper, growing = (
        ba.identify(Problem.paper_instance(1), "fed-sel", **keys, **more)
        for more in ({}, {"period_growth": 2.0})
    )
    assert paper.rounds == growing.rounds == 1
    assert growing.bits.up == paper.bits.up + 3


LAYOUT = Layout((Group("g1", ("a", "b"), ("c1",)), Group("g2", ("a",), ("c2",))))
WIRE = Wire(LAYOUT.arm_counts, (True, True))


def started_server(**keys) -> Server:
    server = Server(LAYOUT, FedSel(**keys))
    server.handle(Start())
    return server


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\x00", bytes(1000)])
def test_a_malformed_message_is_counted_and_ends_in_undecided(data):
    server = started_server()
    actions = server.handle(Received("c1", data))
    assert server.faulty[0]["client"] == "c1"
    assert server.faulty[0]["reason"]
    assert server.verdict.reason == "votes"
    assert any(isinstance(a, Send) for a in actions)
    assert server.handle(Received("c2", data)) == []


@given(st.lists(st.tuples(st.sampled_from(["c1", "c2", "nobody"]), st.binary(max_size=12)), max_size=8))
def test_no_message_raises_out_of_the_server(messages):
    server = started_server()
    for sender, data in messages:
        server.handle(Received(sender, data))
    assert server.ignored + len(server.faulty) >= sum(s == "nobody" for s, _ in messages) * (
        server.state != "done"
    )


def test_a_stranger_and_a_repeated_report_are_ignored_and_counted():
    server = started_server()
    payload, _ = Report(0, server.least[0], 1.0).encode(WIRE, 0)
    server.handle(Received("nobody", payload))
    server.handle(Received("c1", payload))
    server.handle(Received("c1", payload))
    assert server.ignored == 2
    assert server.verdict is None


def test_silence_is_undecided_with_all_remaining_candidates():
    server = started_server()
    payload, _ = Report(0, server.least[0], 1.0).encode(WIRE, 0)
    server.handle(Received("c1", payload))
    assert server.handle(PatienceOver(7)) == []
    server.handle(PatienceOver(0))
    assert server.verdict.reason == "silence"
    assert server.verdict.candidates == ("g1/a", "g2/a")


def test_contradicting_intervals_are_undecided():
    """Under the running intersection a client whose mean jumps contradicts itself, off the good event."""
    server = started_server(intersect=True, quantiser=False, c=2.0, period=10**6)
    server.handle(Received("c1", Report(0, 10**6, 0.1).encode(WIRE, 0)[0]))
    server.handle(Received("c2", Report(0, 10**6, 0.1).encode(WIRE, 1)[0]))
    exact = lambda mean: round(mean * 2 * 10**6).to_bytes(3, "big")  # noqa: E731
    shifted = int.from_bytes(exact(0.9), "big") << 3
    server.handle(Received("c1", shifted.to_bytes(3, "big")))
    server.handle(Received("c2", (int.from_bytes(exact(0.1), "big") << 3).to_bytes(3, "big")))
    assert server.faulty == []
    assert server.verdict.reason == "contradiction"


def test_an_illegal_event_raises_and_nothing_has_happened():
    client = Client(LAYOUT, "c1", FedSel())
    for event in (Pulled((1.0, 1.0), 1), Received(SERVER, b"\x80"), PatienceOver(0)):
        with pytest.raises(IllegalEvent):
            client.handle(event)
    assert client.state == "new"
    (pull,) = client.handle(Start())
    assert isinstance(pull, Pull)
    for bad in (
        Pulled((1.0,), 1),
        Pulled((0.0, 0.0), pull.times + 1),
        Pulled((0.0, 0.0), 0),
        Pulled((2.0, 0.0), 1),
        Pulled((float("nan"), 0.0), 1),
    ):
        with pytest.raises(IllegalEvent):
            client.handle(bad)
    assert (client.phase1.epoch, client.pulls) == (0, (0, 0))


def test_a_client_ignores_messages_that_the_server_can_t_have_sent():
    client = Client(LAYOUT, "c1", FedSel())
    client.handle(Start())
    assert client.handle(Received(SERVER, b"\x00" * 9)) == []
    assert client.ignored == 1
    assert client.handle(Received("c2", b"\x80")) == []


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (Problem.bernoulli([[0.1, 0.2]], clients=3), {}, "3 clients"),
        (Problem.bernoulli([[0.1, 0.2]]), {"byzantine": 1}, "trusts every client"),
        (Problem.bernoulli([[0.1, 0.2, 0.3]]), {"budget": 2}, "budget = 2"),
        (Problem.bernoulli([[0.1, 0.2]]), {"c": 1.5}, "c = 1.5"),
        (Problem.bernoulli([[0.1, 0.2]]), {"delta": 1.0}, "delta = 1.0"),
        (Problem.bernoulli([[0.1, 0.2]]), {"delta": float("nan")}, "delta = nan"),
        (Problem.bernoulli([[0.1, 0.2]]), {"period": 0}, "period = 0"),
        (Problem.bernoulli([[0.1, 0.2]]), {"period": 2.5}, "period = 2.5"),
        (Problem.bernoulli([[0.1, 0.2]]), {"quantiser": 1}, "quantiser = 1"),
        (Problem.bernoulli([[0.1, 0.2]]), {"perod": 3}, 'Did you mean "period"'),
        (Problem.bernoulli([[0.1, 0.2]]), {"seed": -1}, "seed = -1"),
        (Problem.bernoulli([[0.1, 0.2]]), {"method": "fedsel"}, 'Did you mean "fed-sel"'),
    ],
)
def test_invalid_options_are_refused_before_the_run(problem, options, message):
    with pytest.raises(InputError, match=message):
        ba.identify(problem, **{"method": "fed-sel", **options})


def test_ctrl_c_leaves_a_record_marked_interrupted():
    pulls = 0

    def impatient(rng):
        nonlocal pulls
        pulls += 1
        if pulls > 500:
            raise KeyboardInterrupt
        return rng.random()

    problem = Problem.from_rewards({"g": {"a": impatient, "b": 0.4}, "h": {"c": 0.2}})
    with pytest.raises(ba.Interrupted) as stopped:
        ba.identify(problem, "fed-sel", seed=1)
    record = stopped.value.record
    assert record.interrupted
    assert record.verdict.reason == "interrupted"
    assert "g/a" in record.verdict.candidates
    assert ba.verify(record)


def test_a_stopped_server_says_why():
    server = started_server()
    server.handle(Stop("time"))
    assert server.verdict.reason == "time"
