"""Fed-Fisher equals its definition on every path, keeps its level, and ends where it can't decide."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

import bestarm as ba
from bestarm.errors import InputError
from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.client import Client
from bestarm.methods.fisher.looks import MAX_LOOK, Looks, price_of_loss
from bestarm.methods.fisher.messages import (
    LookDown,
    LookReport,
    LookStopped,
    LookWire,
    decode_look_down,
    decode_look_report,
    encode_withdrawn,
    look_report_bits,
)
from bestarm.methods.fisher.options import PREFERENCES, Fisher
from bestarm.methods.fisher.server import Server
from bestarm.problem.layout import Group, Layout
from bestarm.problem.problem import Problem
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import PatienceOver, Pulled, Received, Start, Stop
from bestarm.protocol.machine import IllegalEvent
from bestarm.protocol.messages import Final, Withdrawn
from bestarm.protocol.rounds import SERVER
from marking import slow
from methods.fed_sel.test_fed_sel import on_streams
from rates import rate_exceeds


def test_looks_grow_geometrically_and_levels_add_up_to_delta():
    for q, early in ((1.5, 24), (2.0, 14)):
        looks = Looks(Fisher(delta=0.1, q=q), 9)
        assert looks.early == early
        assert [looks.size(r) for r in range(4)] == [math.ceil(32 * q**r) for r in range(4)]
        total = sum(looks.level(r) for r in range(200_000))
        assert 8 * total == pytest.approx(0.1, rel=1e-5)
        assert 8 * total < 0.1
    assert [Looks(Fisher(), 9).bits(r) for r in range(4)] == [8, 8, 9, 9]
    assert Looks(Fisher(), 9).size(-1) == 0


def test_with_epsilon_tests_and_intervals_share_delta():
    looks = Looks(Fisher(delta=0.1, epsilon=0.2), 5)
    tests = 4 * sum(looks.level(r) for r in range(100_000))
    bounds = 2 * 5 * sum(looks.interval_level(r) for r in range(100_000))
    assert 0.0999 < tests + bounds < 0.1


def by_the_book(rewards, delta, n0=32, q=1.5, quiet=0):
    """Section 4 of the theory, written out with SciPy and Python numbers; sharing no code with `src`."""
    arms = sum(r.shape[1] for r in rewards)
    early = math.ceil(14 * math.log(2) / math.log(q))
    race = [set(range(r.shape[1])) for r in rewards]
    active = set(range(len(rewards)))
    look, rounds = 0, 0

    def p(a, b, n):
        return hypergeom.sf(b - 1, 2 * n, a + b, n)

    while True:
        n = math.ceil(n0 * q**look)
        j = look - early
        level = delta * (0.9 / early if j < 0 else 0.1 / ((j + 1) * (j + 2))) / (arms - 1)
        sums = {(i, a): int(rewards[i][:n, a].sum()) for i in active for a in race[i]}
        tops = {}
        for i in active:
            tops[i] = max(sorted(race[i]), key=lambda a, i=i: sums[i, a])
            race[i] -= {a for a in race[i] if a != tops[i] and p(sums[i, a], sums[i, tops[i]], n) <= level}
        if look >= quiet:
            rounds += 1
            b = math.ceil(0.5 * math.log2(n)) + 5
            edges = {}
            for i in active:
                index = min(sums[i, tops[i]] * 2**b // n, 2**b - 1)
                inside = [s for s in range(n + 1) if min(s * 2**b // n, 2**b - 1) == index]
                edges[i] = inside[0], inside[-1]
            leader = max(sorted(active), key=lambda i: edges[i][0])
            mark = edges[leader][0]
            active = {i for i in active if i == leader or p(edges[i][1], mark, n) > level}
            if active == {leader} and len(race[leader]) == 1:
                return leader, tops[leader], rounds, n
            for i in active:
                race[i] -= {a for a in race[i] if p(sums[i, a], mark, n) <= level}
            active = {i for i in active if race[i]}
        look += 1


@settings(max_examples=30)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(32, 1.5, 0), (8, 2.0, 2), (20, 1.3, 1)]),
    st.sampled_from([0.01, 0.3]),
)
def test_fed_fisher_equals_section_4_on_every_path(seed, schedule, delta):
    n0, q, quiet = schedule
    rng = np.random.default_rng(seed)
    rewards = []
    for top in rng.permutation([0.9, 0.6, 0.45])[: int(rng.integers(1, 4))]:
        means = [top, *rng.choice([0.05, 0.2, 0.3], int(rng.integers(1, 3)), replace=False)]
        rewards.append((rng.random((6000, len(means))) < rng.permutation(means)).astype(float))
    leader, arm, rounds, n = by_the_book(rewards, delta, n0, q, quiet)
    record = ba.identify(on_streams(rewards), "fisher", delta=delta, n0=n0, q=q, quiet=quiet, seed=0)
    assert record.verdict.arm == f"g{leader}/a{arm}"
    assert record.rounds == rounds
    assert record.verdict.certificate["server"]["rounds"][-1]["pulls"] == n


@pytest.mark.parametrize("delta", [0.1, *slow(0.01)])
@pytest.mark.parametrize("arms", [2, *slow(10, 100)])
def test_the_best_arm_is_lost_with_probability_at_most_delta(arms, delta):
    """Null: P(the best arm is dropped) ≤ δ where all arms are equal but one, better by 1e-7.

    Exact binomial test at 1e-6 with 20,000 trials. Power: a true rate of 1.15·δ (δ = 0.1) or 1.5·δ
    (δ = 0.01) is found with probability over 0.95. All early looks are made for 2 and 10 arms, half of
    them for 100.
    """
    means = [[0.5] * (arms // 2), [0.5] * (arms - arms // 2)]
    means[0][0] += 1e-7
    rounds = 24 if arms < 100 else 12
    trials = ba.study(
        Problem.bernoulli(means),
        "fisher",
        trials=20_000,
        seed=arms,
        delta=delta,
        max_rounds=rounds,
        workers=1,
    )
    lost = sum(held is False for held in trials["good_event"])
    assert not rate_exceeds(lost, 20_000, delta)
    assert lost > 0  # the check is not vacuous


def test_pulls_rounds_and_bits_stay_within_the_published_figures():
    """Means of 1,000 trials on the paper's instance: pulls at most 5.2, 5.1, 5.0, 5.0 times the limit."""
    for sigma, most in ((1, 5.2), (3, 5.1), (7, 5.0), (15, 5.0)):
        problem = Problem.paper_instance(sigma)
        trials = ba.study(problem, "fisher", trials=1000, seed=2, delta=0.1, workers=1)
        assert trials["pulls_total"].mean() <= most * ba.limit(problem, 0.1).total
        quick = ba.study(problem, "fisher", trials=1000, seed=2, delta=0.1, workers=1, q=2.0, quiet=3)
        assert quick["rounds"].mean() <= 4
        assert quick["bits_up"].mean() <= 85


def test_fed_fisher_needs_hundreds_of_times_fewer_pulls_than_fed_sel():
    close = Problem.bernoulli([[0.9, 0.1], [0.895, 0.1]])
    fisher = ba.study(close, "fisher", trials=200, seed=1, delta=0.1, workers=1)["pulls_total"].mean()
    paper = ba.study(close, "fed-sel", trials=2, seed=1, delta=0.1, workers=1, period=10**5)[
        "pulls_total"
    ].mean()
    assert paper / fisher > 200


def test_fisher_is_the_default_where_clients_may_lie():
    assert ba.identify(Problem.paper_instance(3), seed=1).method == "bet"
    several = Problem.bernoulli(Problem.paper_instance(3).means, clients=3)
    assert ba.identify(several, seed=1, byzantine=1).method == "fisher"


def test_without_epsilon_fisher_states_a_mean_and_no_interval():
    record = ba.identify(Problem.paper_instance(3), "fisher", seed=1)
    assert record.verdict.arm == "g1/a1"
    assert record.verdict.interval is None  # the spent δ pays only for losing the best arm
    assert record.verdict.mean == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("prefer", PREFERENCES)
def test_each_preference_gives_a_sound_record(prefer):
    record = ba.identify(Problem.paper_instance(3), "fisher", seed=1, delta=0.1, prefer=prefer)
    assert record.verdict.arm == "g1/a1"
    assert ba.verify(record, replay=True).failures == ()
    n0, q, quiet = PREFERENCES[prefer]
    same = ba.identify(Problem.paper_instance(3), "fisher", seed=1, delta=0.1, n0=n0, q=q, quiet=quiet)
    assert same.pulls == record.pulls


def test_each_preference_saves_what_it_names():
    cost = {
        prefer: ba.study(
            Problem.paper_instance(3), "fisher", trials=300, seed=1, delta=0.1, workers=1, prefer=prefer
        )
        for prefer in PREFERENCES
    }
    for name, column in (("pulls", "pulls_total"), ("rounds", "rounds")):
        assert cost[name][column].mean() == min(c[column].mean() for c in cost.values())
    assert cost["bits"]["bits_up"].mean() < cost["pulls"]["bits_up"].mean() / 2


def test_explicit_options_override_a_preference():
    record = ba.identify(Problem.paper_instance(3), "fisher", seed=1, prefer="rounds", quiet=0)
    assert record.verdict.certificate["server"]["rounds"][0]["look"] == 0


def test_quiet_looks_count_as_phase_1():
    record = ba.identify(Problem.paper_instance(3), "fisher", seed=1, delta=0.1, q=2.0, quiet=3)
    assert record.pulls.phase1 > 0
    assert record.pulls.phase1 + record.pulls.phase2 == record.pulls.total
    assert ba.identify(Problem.paper_instance(3), "fisher", seed=1, delta=0.1).pulls.phase1 == 0


def test_rewards_that_are_not_0_or_1_become_coins():
    problem = Problem.from_rewards(
        {
            "g": {"a": {"kind": "beta", "a": 8, "b": 2}, "b": {"kind": "table", "values": [0.2, 0.6]}},
            "h": {"c": lambda rng: 0.5 * rng.random(), "d": {"kind": "beta", "a": 1, "b": 3}},
        }
    )
    record = ba.identify(problem, "fisher", seed=1, delta=0.1)
    assert record.verdict.arm == "g/a"
    assert ba.verify(record).failures == ()
    known = Problem.from_rewards({"g": {"a": {"kind": "beta", "a": 8, "b": 2}, "b": 0.5}})
    assert ba.verify(ba.identify(known, "fisher", seed=1), replay=True).failures == ()


def test_local_ties_do_no_harm_in_a_losing_group():
    record = ba.identify(Problem.bernoulli([[0.9, 0.1], [0.3, 0.3, 0.3]]), "fisher", seed=1)
    assert record.verdict.arm == "g1/a1"


def test_restaurants_with_a_local_tie_end(data):
    keys = {"group": "city", "arm": "place", "reward": "reward", "min_count": 5, "rows": "resample"}
    problem = Problem.from_csv(str(data / "restaurants_mx.csv"), **keys)
    assert problem.ties()
    record = ba.identify(problem, "fisher", seed=1, delta=0.1)
    assert record.verdict.arm == problem.best


def test_epsilon_ends_ties_with_an_arm_that_is_good_enough():
    """P(the arm is more than ε below the best) ≤ δ: exact binomial test at 1e-6 with 3,000 trials."""
    problem = Problem.bernoulli([[0.6, 0.6, 0.45], [0.6, 0.58], [0.2]])
    trials = ba.study(problem, "fisher", trials=3000, seed=3, delta=0.1, epsilon=0.1, workers=1)
    assert (trials["status"] == "identified").all()
    assert not rate_exceeds(int((trials["correct"] == False).sum()), 3000, 0.1)  # noqa: E712
    record = ba.identify(problem, "fisher", seed=3, delta=0.1, epsilon=0.1)
    low, high = record.verdict.interval
    assert low < 0.6 < high
    assert high - low < 0.2
    assert ba.verify(record, replay=True).failures == ()


def test_a_tie_at_the_top_ends_at_a_cap_with_both_candidates():
    problem = Problem.bernoulli([[0.9, 0.1], [0.9, 0.2]])
    for cap, reason in (({"max_rounds": 9}, "rounds"), ({"budget": 3000}, "budget")):
        record = ba.identify(problem, "fisher", seed=1, delta=0.1, **cap)
        assert (record.verdict.status, record.verdict.reason) == ("undecided", reason)
        assert record.verdict.candidates == ("g1/a1", "g2/a1")
        assert record.verdict.gap is None  # no δ was reserved for such a statement
        assert ba.verify(record, replay=True).failures == ()
    with_epsilon = ba.identify(problem, "fisher", seed=1, delta=0.1, epsilon=0.01, max_rounds=9)
    assert 0.01 < with_epsilon.verdict.gap < 0.3
    assert with_epsilon.pulls.max_per_client < 10**5


def test_data_that_run_out_end_in_undecided():
    rows = {
        "a": {"kind": "recording", "values": [1, 0] * 50},
        "b": {"kind": "recording", "values": [0.5] * 80},
    }
    record = ba.identify(Problem.from_rewards({"g": rows, "h": {"c": 0.5}}), "fisher", seed=1)
    assert record.verdict.reason == "budget"
    assert record.pulls.by_client["g-1"] == 160
    assert ba.verify(record, replay=True).failures == ()


def test_one_arm_in_all_and_one_group():
    assert ba.identify(Problem.bernoulli([[0.3]]), "fisher").pulls.total == 0
    assert ba.identify(Problem.bernoulli([[0.9, 0.2]]), "fisher", seed=1).verdict.arm == "g1/a1"


WIRES = [LookWire((3, 1, 5)), LookWire((3, 1, 5), stoppable=True)]
reports = st.builds(
    LookReport, arm=st.just(0), single=st.booleans(), index=st.integers(0, 255), bits=st.just(8)
)


@given(st.sampled_from(WIRES), st.integers(0, 2), st.none() | reports, st.integers(8, 14), st.data())
def test_look_reports_round_trip(wire, group, last, bits, data):
    arm = data.draw(st.integers(0, wire.arm_counts[group] - 1))
    report = LookReport(arm, data.draw(st.booleans()), data.draw(st.integers(0, 2**bits - 1)), bits)
    payload, size = report.encode(wire, group, last)
    assert len(payload) == -(-size // 8)
    assert decode_look_report(payload, wire, group, last, bits) == (report, size)
    sizes = look_report_bits(
        wire,
        [report.index] * 3,
        bits,
        [last is not None and arm != last.arm] * 3,
        None if last is None else [last.index] * 3,
        8,
    )
    assert sizes[group] == size


@given(
    st.sampled_from(WIRES), st.integers(0, 2), st.none() | reports, st.integers(8, 14), st.binary(max_size=6)
)
def test_any_bytes_are_a_look_message_in_its_one_encoding_or_malformed(wire, group, last, bits, data):
    try:
        message, _ = decode_look_report(data, wire, group, last, bits)
    except Malformed:
        return
    if isinstance(message, LookReport):
        assert message.encode(wire, group, last)[0] == data
        assert 0 <= message.arm < wire.arm_counts[group]
        assert 0 <= message.index < 2**bits


@pytest.mark.parametrize("wire", WIRES)
def test_short_messages_and_downlinks_round_trip(wire):
    last = LookReport(0, False, 17, 8)
    gone, size = encode_withdrawn(wire)
    assert decode_look_report(gone, wire, 0, last, 9) == (Withdrawn(), size)
    assert size == (2 if wire.stoppable else 1)
    if wire.stoppable:
        payload, bits = LookStopped().encode(wire)
        assert decode_look_report(payload, wire, 0, None, 9) == (LookStopped(), bits)
    for message in (LookDown.of(np.array([True, False, True]), 300, 9), Final(2, 4), Final(None, None)):
        assert decode_look_down(message.encode(wire)[0], wire, 9) == message


@given(st.integers(1, 2**36), st.integers(5, 23), st.data())
def test_a_bin_s_edges_are_the_sums_that_fall_into_it(n, bits, data):
    total = data.draw(st.integers(0, n))
    index = int(fisher_decisions.look_bin(total, n, bits))
    lower, upper = (int(x) for x in fisher_decisions.bin_edges(index, n, bits))
    assert 0 <= lower <= total <= upper <= n
    assert (
        int(fisher_decisions.look_bin(lower, n, bits))
        == int(fisher_decisions.look_bin(upper, n, bits))
        == index
    )
    if lower > 0:
        assert int(fisher_decisions.look_bin(lower - 1, n, bits)) < index
    if upper < n:
        assert int(fisher_decisions.look_bin(upper + 1, n, bits)) > index


LAYOUT = Layout((Group("g1", ("a", "b"), ("c1",)), Group("g2", ("a",), ("c2",))))


@given(st.lists(st.tuples(st.sampled_from(["c1", "c2", "nobody"]), st.binary(max_size=6)), max_size=8))
def test_no_message_raises_out_of_the_server(messages):
    server = Server(LAYOUT, Fisher())
    server.handle(Start())
    for sender, data in messages:
        server.handle(Received(sender, data))
    if server.faulty:
        assert server.verdict.reason == "votes"


def test_a_bin_without_an_integer_sum_proves_a_fault():
    server = Server(LAYOUT, Fisher())
    server.handle(Start())
    empty = next(
        i
        for i in range(256)
        if fisher_decisions.bin_edges(i, 32, 8)[0] > fisher_decisions.bin_edges(i, 32, 8)[1]
    )
    server.handle(Received("c1", LookReport(0, False, empty, 8).encode(server.own_wire, 0, None)[0]))
    assert "holds no sum" in server.faulty[0]["reason"]


def test_silence_is_undecided():
    server = Server(LAYOUT, Fisher())
    server.handle(Start())
    server.handle(PatienceOver(0))
    assert server.verdict.reason == "silence"
    assert server.verdict.candidates == ("g1/a", "g1/b", "g2/a")


def test_an_illegal_event_raises_and_nothing_has_happened():
    client = Client(LAYOUT, "c1", Fisher())
    with pytest.raises(IllegalEvent):
        client.handle(Pulled((1.0, 1.0), 1))
    client.handle(Start())
    for bad in (Pulled((1.0,), 1), Pulled((0.0, 0.0), 33), Pulled((0.5, 0.0), 1), Pulled((2.0, 0.0), 1)):
        with pytest.raises(IllegalEvent):
            client.handle(bad)
    assert (client.count, client.pulls) == (0, 0)


def test_a_client_stopped_after_its_report_says_so_when_its_next_message_is_due():
    client = Client(LAYOUT, "c1", Fisher(budget=10**6))
    client.handle(Start())
    client.handle(Pulled((20.0, 18.0), 32))
    assert client.handle(Stop("budget")) == []
    down = LookDown.of(np.array([True, True]), 150, 8).encode(client.wire)[0]
    (_, send) = client.handle(Received(SERVER, down))
    assert send.payload == LookStopped().encode(client.wire)[0]


@given(st.lists(st.binary(max_size=6), max_size=6))
def test_no_message_raises_out_of_the_client(messages):
    client = Client(LAYOUT, "c1", Fisher())
    client.handle(Start())
    client.handle(Pulled((20.0, 18.0), 32))
    for data in messages:
        client.handle(Received(SERVER, data))
    assert client.state in ("reported", "pulling", "done")


def test_the_leader_can_t_withdraw():
    server = Server(LAYOUT, Fisher())
    server.handle(Start())
    for name, group, total in (("c1", 0, 30), ("c2", 1, 22)):
        report = LookReport(0, group == 1, int(fisher_decisions.look_bin(total, 32, 8)), 8)
        server.handle(Received(name, report.encode(server.own_wire, group, None)[0]))
    assert server.leader == 0
    server.handle(Received("c1", b"\x80"))
    assert "by the leader" in server.faulty[0]["reason"]


def test_the_declared_mean_of_a_function_does_not_affect_its_draws():
    liar = ba.Function(lambda rng: 0.2 * rng.random(), mean=0.9)
    problem = Problem.from_rewards({"g": {"a": liar, "b": 0.5}})
    assert ba.identify(problem, "fisher", seed=1).verdict.arm == "g/b"
    assert set(ba.study(problem, "fisher", trials=3, seed=1, workers=1)["arm"]) == {"g/b"}


def test_partial_pulls_add_up():
    client = Client(LAYOUT, "c1", Fisher())
    client.handle(Start())
    for _ in range(31):
        (pull,) = client.handle(Pulled((1.0, 0.0), 1))
    actions = client.handle(Pulled((1.0, 0.0), 1))
    assert pull.times == 1
    assert client.state == "reported"
    assert len(actions) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 1.0}, "q = 1.0"),
        ({"n0": 0}, "n0 = 0"),
        ({"quiet": -1}, "quiet = -1"),
        ({"quiet": 60}, "quiet = 60 is too large"),
        ({"prefer": "speed"}, "prefer = 'speed'"),
        ({"period": 5}, "period"),
        ({"byzantine": 1}, "at least 3 clients per group"),
        ({"epsilon": 1.0}, "as wide as the range"),
    ],
)
def test_invalid_options_are_refused_before_the_run(options, message):
    with pytest.raises(InputError, match=message):
        ba.identify(Problem.bernoulli([[0.5, 0.1]]), "fisher", **options)


@pytest.mark.parametrize(
    ("arms", "options", "said"),
    [
        (5, {"delta": 0.1}, "at most 0.25"),  # K·δ/2
        (5, {"delta": 0.1, "epsilon": 0.2}, "at most 0.175"),  # K·δ/4 + δ/2
        (2, {"delta": 0.1}, "at most 0.1"),  # one pair: δ itself
        (40, {"delta": 0.1}, "unknown"),
    ],
)
def test_the_price_of_a_loss_is_a_union_over_pairs(arms, options, said):
    chosen = Fisher(**options)
    assert f"the probability of an error is then {said}" in price_of_loss(Looks(chosen, arms), chosen)


def test_fed_fisher_stops_at_the_largest_count():
    record = ba.identify(Problem.bernoulli([[1.0], [1.0]]), "fisher", seed=1, q=1000.0)
    assert record.verdict.reason == "budget"
    assert record.pulls.max_per_client <= MAX_LOOK
    assert record.verdict.certificate["server"]["events"][-1][0] == "received"  # and not a stop by the driver
    assert ba.verify(record, replay=True).failures == ()
