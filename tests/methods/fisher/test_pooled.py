"""Pooled Fed-Fisher: trimming, filling, levels, late replies, looks, and its error rate in studies."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm import Adversary, InputError, Problem
from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.fisher.pooled.client import Client
from bestarm.methods.fisher.pooled.messages import PoolDown, Sums, encode_sums
from bestarm.methods.fisher.pooled.server import Pool, Server
from bestarm.protocol.events import PatienceOver, Pull, Pulled, Received, Send, Start
from bestarm.stats.fisher_exact import fisher_pvalue
from marking import examples, slow
from rates import rate_exceeds


def made(clients=3, f=1, means=((0.9, 0.1), (0.6, 0.2)), **keys):
    problem = Problem.bernoulli([list(row) for row in means], clients=clients)
    server = Server(problem.layout, Fisher(delta=0.1, byzantine=f, **keys))
    server.handle(Start())
    return server


def say(server, name, *sums, look=0):
    n = server.looks.size(look + server.looks.quiet)
    data, _ = encode_sums(Sums(look, tuple(sums)), server.own_wire, n)
    return server.handle(Received(name, data))


@given(st.integers(1, 3), st.data())
def test_the_pooled_sums_are_bounded_by_those_of_honest_clients(f, data):
    """Whatever f clients send or omit, the trimmed sum lies between two h-subsets of G − f honest ones."""
    size, n = 2 * f + data.draw(st.integers(1, 4)), 20
    honest = data.draw(st.lists(st.integers(0, n), min_size=size - f, max_size=size - f))
    lies = data.draw(st.lists(st.integers(0, n), min_size=f, max_size=f))
    known = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))[:, None]
    sums = np.array(honest + lies)[:, None]
    low, high = fisher_decisions.pool(sums, known, n, f)
    kept = size - 2 * f
    assert low[0] <= sum(sorted(honest)[-kept:])
    assert high[0] >= sum(sorted(honest)[:kept])
    if known.all():
        assert low[0] == high[0] == sum(sorted(honest + lies)[f : size - f])


def test_levels_pay_for_the_subsets():
    server = made(clients=[5, 7], f=2)
    x = server.looks.level(0)
    ways = comb(3, 2), comb(5, 2)
    expected = [[x / (a * b) for b in ways] for a in ways]
    np.testing.assert_allclose(server.pool.level(0), expected, rtol=1e-12)
    assert server.pool.coins(0).tolist() == [32, 3 * 32]


def test_an_elimination_is_a_p_value_that_can_be_recomputed():
    problem = Problem.bernoulli([[0.9, 0.3], [0.7, 0.2]], clients=[4, 6])
    record = ba.identify(problem, "fisher", delta=0.1, seed=2, byzantine=1)
    exits = record.verdict.certificate["server"]["exits"]
    assert len(exits) == 3
    for row in exits:
        a, b, n, m = (row[key] for key in ("sum", "rival_sum", "coins", "rival_coins"))
        exact = sum(
            Fraction(comb(m, k) * comb(n, a + b - k), comb(n + m, a + b)) for k in range(b, min(m, a + b) + 1)
        )
        assert float(exact) == pytest.approx(np.exp(row["log_p"]), rel=1e-9)
        assert row["log_p"] <= row["log_level"]
    assert ba.verify(record, replay=True).ok


def test_missing_sums_are_filled_against_rejection():
    """The replies of two of three clients would drop the arm; while the third is missing it stays."""
    server = made(clients=2, f=0, n0=16)
    say(server, "g1-1", 16, 0)
    low, high = server._pooled(0)
    assert (low[:2].tolist(), high[:2].tolist()) == ([16, 0], [32, 16])
    coins, level = server.pool.coins(0), server.pool.level(0)
    so_far = np.array([16, 0, 16, 16])
    lost = fisher_decisions.pooled_losers(so_far, so_far, server.race, server.pool.group, coins // 2, level)
    assert lost.tolist() == [False, True, False, False]
    server._test(0)
    assert server.race.all()


def test_a_look_continues_after_g_minus_f_replies_once_patience_is_over():
    server = made()
    for name in ("g1-1", "g1-2", "g2-1"):
        say(server, name, 20, 18)
    server.handle(PatienceOver(0))
    assert server.round == 0
    actions = say(server, "g2-2", 20, 18)
    assert server.round == 1
    assert any(isinstance(action, Send) for action in actions)


def test_a_late_reply_is_used_at_its_own_look():
    server = made(clients=[3, 3], means=((0.9, 0.1), (0.6, 0.2)), n0=64)
    for name, sums in (("g1-1", (64, 30)), ("g1-2", (34, 30)), ("g2-1", (34, 30)), ("g2-2", (34, 30))):
        say(server, name, *sums)
    server.handle(PatienceOver(0))
    assert server.race.all()
    say(server, "g1-3", 64, 30)  # of look 0: now the middle of the first arm's sums is 64
    assert server.race.tolist() == [True, False, False, False]
    assert server.verdict.arm == "g1/a1"
    assert {row["look"] for row in server.exits} == {0}
    assert server.verdict.mean == 1.0  # of look 0: at look 1 nothing is known


def test_sums_must_be_consistent_from_look_to_look():
    server = made()
    for j in (1, 2):
        for k in (1, 2, 3):
            say(server, f"g{j}-{k}", 20, 18)
    step = server.looks.size(1) - server.looks.size(0)
    say(server, "g1-1", 19, 18, look=1)
    say(server, "g1-2", 20 + step + 1, 18, look=1)
    say(server, "g1-3", 20 + step, 18, look=1)
    assert [fault["client"] for fault in server.faulty] == ["g1-1", "g1-2"]


@pytest.mark.parametrize("sums", [(33, 0), (1,), (1, 2, 3), ()])
def test_impossible_sums_are_proof_of_a_fault(sums):
    server = made()
    say(server, "g1-1", *sums)
    assert server.faulty[0]["client"] == "g1-1"
    assert not server.sums.get(0, np.array([-1])).max() >= 0


def test_no_client_drops_an_arm_and_all_report_the_requested_sums():
    problem = Problem.bernoulli([[0.9, 0.3, 0.2], [0.7, 0.2]], clients=3)
    record = ba.identify(problem, "fisher", delta=0.1, seed=2, byzantine=1)
    local = record.verdict.certificate["local"]
    for group in problem.layout.groups:
        sent = [local[name]["sent"] for name in group.clients]
        assert sent[0]["arms"] == sent[1]["arms"] == sent[2]["arms"]
        assert sent[0]["arms"][0] == tuple(range(len(group.arms)))


def test_groups_that_are_too_small_are_refused():
    with pytest.raises(InputError, match="at least 5 clients per group"):
        ba.identify(Problem.bernoulli([[0.9, 0.1]] * 2, clients=4), "fisher", byzantine=2)


def test_epsilon_in_pooled_mode_ends_a_tie_within_epsilon():
    """Null: the answer is more than ε from the best with probability over δ = 0.1. Here it never is."""
    problem = Problem.bernoulli([[0.7, 0.3], [0.7, 0.2]], clients=5)
    liars = [Adversary(g, "extreme") for g in ("g1", "g2")]
    for seed in range(5):
        record = ba.identify(
            problem, "fisher", delta=0.1, seed=seed, byzantine=1, epsilon=0.1, adversaries=liars
        )
        assert record.verdict.arm in ("g1/a1", "g2/a1")
        low, high = record.verdict.interval
        assert low <= 0.7 <= high


def test_a_budget_ends_undecided():
    problem = Problem.bernoulli([[0.7, 0.3], [0.69, 0.2]], clients=3)
    record = ba.identify(problem, "fisher", delta=0.1, seed=1, byzantine=1, budget=500)
    assert record.verdict.reason == "budget"
    assert record.pulls.max_per_client <= 500
    assert ba.verify(record, replay=True).ok


def test_quiet_looks_are_pulled_in_one_batch():
    problem = Problem.bernoulli([[0.9, 0.3], [0.7, 0.2]], clients=3)
    record = ba.identify(problem, "fisher", delta=0.1, seed=1, byzantine=1, quiet=2)
    first = record.verdict.certificate["server"]["rounds"][0]
    assert (first["look"], first["pulls"]) == (2, 72)
    assert record.pulls.phase1 == 6 * 2 * 48


@settings(max_examples=examples(60))
@given(
    st.lists(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
)
def test_the_kernel_and_the_machines_agree_in_every_column(means, f, more, quiet, lied):
    groups = len(means)
    problem = Problem.bernoulli(means, clients=[2 * f + 2 + (more if j == 0 else 0) for j in range(groups)])
    liars = [Adversary(f"g{j + 1}", "extreme", f) for j in range(groups)] if lied and f else []
    trials = ba.study(
        problem, "fisher", trials=3, seed=7, delta=0.2, byzantine=f, n0=8, q=2.0, quiet=quiet,
        max_rounds=5, adversaries=liars, workers=1,
    )  # fmt: skip
    for i in range(3):
        record = trials.record(i)
        row = {key: trials[key][i] for key in trials.columns}
        assert record.verdict.status == row["status"]
        assert record.verdict.arm == row["arm"]
        assert record.verdict.reason == row["reason"]
        assert record.rounds == row["rounds"]
        assert record.pulls.total == row["pulls_total"]
        assert record.pulls.phase1 == row["pulls_phase1"]
        assert record.pulls.max_per_client == row["pulls_max"]
        assert (record.bits.up, record.bits.down) == (row["bits_up"], row["bits_down"])
        assert record.good_event == row["good_event"]
        assert ba.verify(record).ok


@pytest.mark.parametrize(
    ("means", "size", "f"),
    [
        ([[0.5, 0.5], [0.502, 0.5]], 3, 1),
        *slow(([[0.5] * 5, [0.502, *[0.5] * 4]], 4, 1), ([[0.5], [0.502]], 10, 3)),
    ],
)
def test_the_error_rate_is_at_most_delta_under_the_extreme_liar(means, size, f):
    """Null: wrong more often than δ. 20,000 trials; false alarm 1e-6 where the rate is exactly δ = 0.1.

    Power: a rate of 0.115 is found with probability 0.98 (exact binomial). Undecided trials (12 looks) are
    not errors.
    """
    problem = Problem.bernoulli(means, clients=size)
    liars = [Adversary(g, "extreme", f) for g in ("g1", "g2")]
    trials = ba.study(
        problem, "fisher", trials=20_000, seed=11, delta=0.1, byzantine=f, n0=16, q=2.0, max_rounds=12,
        adversaries=liars,
    )  # fmt: skip
    wrong = (trials["status"] == "identified") & (trials["correct"] == False)  # noqa: E712
    assert not rate_exceeds(int(wrong.sum()), 20_000, 0.1)
    assert not wrong[trials["good_event"] == True].any()  # noqa: E712
    lost = trials["good_event"] == False  # noqa: E712
    assert not rate_exceeds(int(lost.sum()), 20_000, 0.1)


def test_without_the_price_of_subsets_the_extreme_liar_breaks_delta(monkeypatch):
    """Shows that the test above can fail.

    With 15 clients and f = 7 the test rests on one client of 15, which the liars choose. Without the price of
    choosing (6,435² ways) the best arm is lost far more often than δ.
    """
    monkeypatch.setattr(Pool, "level", lambda self, look: self.looks.level(look) + 0 * self.price)
    problem = Problem.bernoulli([[0.5], [0.502]], clients=15)
    liars = [Adversary(g, "extreme", 7) for g in ("g1", "g2")]
    trials = ba.study(
        problem, "fisher", trials=1_000, seed=11, delta=0.1, byzantine=7, n0=16, q=2.0, max_rounds=12,
        adversaries=liars, workers=1,
    )  # fmt: skip
    wrong = (trials["status"] == "identified") & (trials["correct"] == False)  # noqa: E712
    assert rate_exceeds(int(wrong.sum()), 1_000, 0.1)


def test_more_honest_clients_save_pulls_per_client():
    """The paper's instance at σ = 3, n₀ = 8, q = 2: largest pulls per client, against earlier figures."""
    means = [list(row) for row in Problem.paper_instance(3).means]
    seen = {(1, 0): 1714, (10, 0): 173, (10, 1): 405, (10, 2): 619, (30, 3): 275}
    for (size, f), expected in seen.items():
        trials = ba.study(
            Problem.bernoulli(means, clients=size), "fisher", trials=1000, seed=3, delta=0.1, n0=8, q=2.0,
            byzantine=f, workers=1,
        )  # fmt: skip
        assert trials["pulls_max"].mean() == pytest.approx(expected, rel=0.15)
        assert trials["correct"].all()


@given(st.data())
def test_p_never_increases_as_replies_arrive(data):
    """A look may be tested again because filling raises the arm's sum and lowers its rival's."""
    f, size, n = 1, 4, 30
    sums = np.array(data.draw(st.lists(st.integers(0, n), min_size=2 * size, max_size=2 * size)))
    sums = sums.reshape(size, 2)
    known = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    more = known | np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    p = []
    for here in (known, more):
        low, high = fisher_decisions.pool(sums, here[:, None], n, f)
        p.append(fisher_pvalue(high[0], low[1], 2 * n))
    assert p[1] <= p[0] * (1 + 1e-12)


def test_a_convicted_client_s_reply_does_not_count_as_one():
    server = made(clients=5, f=2)
    for name in ("g1-1", "g1-2", "g1-3", "g2-1", "g2-2", "g2-3"):
        say(server, name, 20, 18)
    server.handle(Received("g1-3", b"\xff"))
    server.handle(PatienceOver(0))
    assert server.round == 0  # two replies of g1 are left, and it takes three
    say(server, "g1-4", 20, 18)
    assert server.round == 1


def test_nothing_may_follow_a_stop():
    server = made(budget=10**6)
    server.handle(Received("g1-1", b"\x80"))
    say(server, "g1-1", 20, 18)
    assert server.faulty[0]["client"] == "g1-1"


def test_a_late_look_is_tested_at_its_own_level():
    """The sums would pass at the level of the newest look, but not at the level of their own look."""
    server = made(clients=1, f=0, means=((0.9, 0.1), (0.6, 0.2)), n0=64)
    looks = [server.looks.level(0), server.looks.level(server.looks.early + 3)]
    assert looks[1] < looks[0] / 5
    seen = []
    for look in (0, server.looks.early + 3):
        level = server.pool.level(look)
        a = next(a for a in range(64) if not fisher_decisions.loses(a, 50, 64, level[0, 0]))
        seen.append(a)
    assert seen[0] > seen[1]
    server.look, server.history = server.looks.early + 3, [{"look": server.looks.early + 2}]
    server.asked[server.look] = server.race.copy()
    server.sums[0] = np.full((2, 4), -1, dtype=np.int64)
    server.sums[0][0] = [50, seen[0] - 1, -1, -1]
    server._test(0)
    assert server.race.tolist() == [True, False, True, True]


def test_the_epsilon_statement_pays_for_subsets_and_fills_against_itself():
    server = made(clients=5, f=1, epsilon=0.2)
    pool = server.pool
    np.testing.assert_allclose(pool.interval_level(0), [server.looks.interval_level(0) / 4] * 2)
    low, high = np.array([60, 10, 50, 10]), np.array([90, 40, 80, 40])
    first, short = pool.shortfall(0, low, high, np.ones(4, dtype=bool))
    from bestarm.stats.intervals import clopper_pearson

    level, coins = server.looks.interval_level(0) / 4, 3 * 32
    assert first == 0
    assert short == pytest.approx(
        float(clopper_pearson(80, coins, level)[1] - clopper_pearson(60, coins, level)[0])
    )


def test_groups_with_too_many_subsets_are_refused():
    with pytest.raises(InputError, match="no test could reach"):
        ba.identify(Problem.bernoulli([[0.5, 0.4]], clients=2000), "fisher", byzantine=700)


def slow_in_turns(seed, epsilon=0.0, means=((0.9, 0.1), (0.6, 0.2))):
    """A run in which each look hears two extreme liars and one honest client of five in time.

    The others report what they missed one and two looks later: everything is delivered. Returns the server.
    """
    rng = np.random.default_rng(seed)
    problem = Problem.bernoulli([list(row) for row in means], clients=5)
    layout, options = problem.layout, Fisher(delta=0.1, byzantine=2, q=2.0, epsilon=epsilon)
    server = Server(layout, options)
    honest = {name: Client(layout, name, options) for name in layout.clients if int(name[-1]) > 2}
    mail = {name: [Start()] for name in honest}

    def broadcast(actions):
        for action in actions:
            if isinstance(action, Send):
                for inbox in mail.values():
                    inbox.append(Received("server", action.payload))

    pulls = dict.fromkeys(honest)

    def act(name, actions):
        for action in actions:
            if isinstance(action, Pull):
                pulls[name] = action if action.arms else None
            elif isinstance(action, Send):
                broadcast(server.handle(Received(name, action.payload)))

    def serve(name):
        """Deliver everything sent to a client while it pulls; then complete its pulls."""
        client, waiting = honest[name], mail[name]
        mail[name] = []
        for event in waiting:
            act(name, client.handle(event))
        while pulls[name] is not None:
            pull, pulls[name] = pulls[name], None
            sums = rng.binomial(pull.times, [means[client.group][a] for a in pull.arms])
            act(name, client.handle(Pulled(tuple(sums.astype(float).tolist()), pull.times)))

    broadcast(server.handle(Start()))
    for turn in range(60):
        if server.state == "done":
            break
        look = server.look
        for j, group in enumerate(layout.groups):
            arms = np.flatnonzero(server.race[server.own[j]])
            sums = [0 if (j, a) == (0, 0) else server.looks.size(look) for a in arms]
            for name in group.clients[:2]:
                if server.active[j]:
                    broadcast(say(server, name, *sums, look=look) if server.look == look else [])
            serve(group.clients[2 + turn % 3])
        broadcast(server.handle(PatienceOver(server.round)) if server.state != "done" else [])
    return server


def test_a_run_ends_although_no_look_has_all_honest_sums_in_time():
    """Clients report every look in order: in the end a look has all its honest sums.

    If a client that is behind skipped to the newest look, no look would ever have them all, and with f = 2
    extreme liars nothing would ever be dropped.
    """
    for seed in range(20):
        server = slow_in_turns(seed)
        assert server.verdict.arm == "g1/a1"
        assert not server.faulty
        assert server.looks.size(server.look) < 10**5


def test_a_tie_within_epsilon_ends_although_no_look_has_all_honest_sums_in_time():
    server = slow_in_turns(1, epsilon=0.2, means=((0.6, 0.1), (0.6, 0.2)))
    assert server.verdict.arm in ("g1/a1", "g2/a1")
    assert not server.faulty


def test_a_client_that_is_behind_reports_each_look_and_pulls_only_the_remainder():
    problem = Problem.bernoulli([[0.9, 0.1, 0.1]], clients=3)
    options = Fisher(delta=0.1, byzantine=1, n0=10, q=2.0)
    client = Client(problem.layout, "g1-1", options)
    (pull,) = client.handle(Start())
    assert (pull.arms, pull.times) == ((0, 1, 2), 10)
    for race in ((True, True, True), (True, True, False)):  # looks 1 and 2 begin meanwhile
        assert client.handle(Received("server", PoolDown(race).encode(client.wire)[0])) == []
    send, pull = client.handle(Pulled((9.0, 1.0, 2.0), 10))
    assert (pull.arms, pull.times) == ((0, 1), 10)
    assert send.payload == encode_sums(Sums(0, (9, 1, 2)), client.wire, 10)[0]
    send, pull = client.handle(Pulled((9.0, 1.0), 10))
    assert (pull.arms, pull.times) == ((0, 1), 20)
    assert send.payload == encode_sums(Sums(1, (18, 2, 2)), client.wire, 20)[0]  # the third is not pulled
    (send,) = client.handle(Pulled((18.0, 2.0), 20))
    assert send.payload == encode_sums(Sums(2, (36, 4)), client.wire, 40)[0]


def test_a_skipped_look_is_proof_of_a_fault():
    server = made()
    for j in (1, 2):
        for k in (1, 2):
            say(server, f"g{j}-{k}", 20, 18)
    server.handle(PatienceOver(0))
    say(server, "g1-3", 20, 18, look=1)
    assert [fault["client"] for fault in server.faulty] == ["g1-3"]


@pytest.mark.parametrize("liars", [3, 5])
def test_the_kernel_handles_ties_and_more_than_f_liars(liars):
    problem = Problem.bernoulli([[0.5, 0.5], [0.1]], clients=5)
    named = [Adversary(g, "extreme", liars) for g in ("g1", "g2")]
    trials = ba.study(
        problem,
        "fisher",
        trials=3,
        seed=7,
        delta=0.1,
        byzantine=2,
        max_rounds=4,
        adversaries=named,
        workers=1,
    )
    assert all(event is None for event in trials["good_event"])
    for i in range(3):
        record = trials.record(i)
        assert (record.rounds, record.bits.up) == (trials["rounds"][i], trials["bits_up"][i])
