"""Robust Fed-SEL: votes, suspects, trimming, silence, late clients; one rule at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bestarm as ba
from bestarm import InputError, Problem
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.messages import Report, decode_downlink
from bestarm.methods.robust_fed_sel import decisions as robust_decisions
from bestarm.methods.robust_fed_sel.client import Client
from bestarm.methods.robust_fed_sel.messages import Reply, encode_grouped
from bestarm.methods.robust_fed_sel.options import RobustFedSel
from bestarm.methods.robust_fed_sel.server import Server
from bestarm.protocol.events import ALL, PatienceOver, Pull, Pulled, Received, Send, Start, Stop
from bestarm.protocol.messages import Onward


def made(f=1, clients=3, rules="tight", means=((0.9, 0.1), (0.6, 0.2)), **keys):
    problem = Problem.bernoulli([list(row) for row in means], clients=clients)
    options = RobustFedSel(delta=0.1, byzantine=f, rules=rules, **keys)
    server = Server(problem.layout, options)
    server.handle(Start())
    return problem, options, server


def report(server, name, arm=0, mean=0.9, count=50_000):
    data, _ = encode_grouped(
        Report(arm, count, round(mean * count) / count), server.wire, server.layout.group_of[name]
    )
    return server.handle(Received(name, data))


def reply(server, name, mean, count):
    j = server.layout.group_of[name]
    bits = int(fed_sel_decisions.precision(server.radii[j].alpha(count)))
    message = Reply(count, index=int(fed_sel_decisions.bin_index(mean, bits)))
    return server.handle(Received(name, encode_grouped(message, server.wire, j, bits)[0]))


def sent(actions):
    return [action for action in actions if isinstance(action, Send)]


def test_an_arm_is_elected_by_f_plus_one_votes():
    _, _, server = made()
    report(server, "g1-1", arm=1)
    report(server, "g1-2", arm=0)
    assert server.arm.tolist() == [-1, -1]
    report(server, "g1-3", arm=0)
    assert server.arm.tolist() == [0, -1]


def test_the_paper_s_vote_is_the_majority_of_the_first_2f_plus_1():
    _, _, server = made(clients=4, rules="paper")
    for name, arm in (("g1-1", 1), ("g1-2", 0)):
        report(server, name, arm=arm)
    assert server.arm[0] == -1
    report(server, "g1-3", arm=0)
    assert server.arm[0] == 0
    report(server, "g1-4", arm=1)  # too late to count, even as a dissenter
    members, faults = server._trust(0)
    assert members.tolist() == [False, True, True, False]
    assert faults == 0


def test_a_tied_vote_is_undecided():
    _, _, server = made(f=2, clients=7, rules="paper", means=([0.9, 0.1, 0.2], [0.6, 0.2]))
    for name, arm in zip(("g1-1", "g1-2", "g1-3", "g1-4", "g1-5"), (0, 0, 1, 1, 2), strict=True):
        report(server, name, arm=arm)
    assert server.verdict.reason == "tie"


def test_votes_of_all_clients_without_an_election_are_a_tie():
    _, _, server = made(means=([0.9, 0.1, 0.2], [0.6, 0.2]))
    for k in range(3):
        report(server, f"g1-{k + 1}", arm=k)
    assert server.verdict.reason == "tie"


def test_suspects_are_a_union_not_a_sum():
    """A dissenter that is then proven faulty counts once."""
    _, _, server = made(f=2, clients=5)
    for name, arm in (("g1-1", 1), ("g1-2", 0), ("g1-3", 0), ("g1-4", 0)):
        report(server, name, arm=arm)
    assert server._trust(0)[1] == 1
    server.handle(Received("g1-1", b"\xff"))
    assert server.out[0]
    assert server._trust(0)[1] == 1


def test_a_proven_liar_is_removed_with_its_stale_interval():
    _, _, server = made()
    for k in (1, 2, 3):
        report(server, f"g1-{k}")
    assert server._trust(0)[0].tolist() == [True, True, True]
    server.handle(Received("g1-2", b""))
    members, faults = server._trust(0)
    assert (members.tolist(), faults) == ([True, False, True], 0)


def test_a_second_different_vote_is_proof_of_fault_and_a_repeated_one_is_not():
    _, _, server = made()
    report(server, "g1-1", arm=0)
    report(server, "g1-1", arm=0)
    assert (server.faulty, server.ignored) == ([], 1)
    report(server, "g1-1", arm=1)
    assert server.faulty == [{"client": "g1-1", "round": 0, "reason": "a second vote"}]


def test_more_suspects_than_f_are_undecided():
    _, _, server = made(f=1, clients=4)
    for name, arm in (("g1-1", 0), ("g1-2", 0), ("g1-3", 1), ("g1-4", 1)):
        report(server, name, arm=arm)
    assert server.verdict.reason == "votes"
    assert server.warnings[0]["group"] == "g1"


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.3)), min_size=3, max_size=9),
    st.integers(0, 3),
    st.data(),
)
def test_trimmed_bounds_are_on_the_safe_side_of_an_honest_one(honest, f, data):
    """The hull lemma, by counting alone: for any claims of f liars; validation excludes NaN."""
    liars = data.draw(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), max_size=f))
    intervals = [(x - w, x + w) for x, w in honest] + [(min(p), max(p)) for p in liars]
    lower, upper = np.array(intervals).T
    low, high = robust_decisions.trim(lower, upper, np.ones(len(lower), dtype=bool), f)
    if len(intervals) < f + 1:
        assert (low, high) == (-np.inf, np.inf)
        return
    assert low <= max(x - w for x, w in honest)
    assert high >= min(x + w for x, w in honest)
    if len(honest) > f:  # then the bounds lie in the hull of the honest ones
        assert low >= min(x - w for x, w in honest)
        assert high <= max(x + w for x, w in honest)


def test_trimming_with_a_negative_fault_count_gives_no_bounds():
    low, high = robust_decisions.trim(np.zeros(3), np.ones(3), np.ones(3, dtype=bool), -1)
    assert (low, high) == (-np.inf, np.inf)


def test_a_round_waits_for_all_until_patience_is_over_and_then_for_enough():
    _, _, server = made()
    for name in ("g1-1", "g1-2", "g2-1"):
        assert not sent(report(server, name, mean=0.9 if name < "g2" else 0.85))
    assert not sent(server.handle(PatienceOver(0)))  # g2 has one reply of the two it needs
    assert sent(report(server, "g2-2", mean=0.85))
    assert server.round == 1
    assert server.patient


def test_patience_does_not_count_before_an_honest_client_can_have_reported():
    """One liar that reports at once does not start the clock, however often the driver signals a timeout."""
    _, _, server = made()
    report(server, "g1-1", mean=0.9)
    report(server, "g2-1", mean=0.85)
    assert not server.ticking
    for _ in range(5):
        server.handle(PatienceOver(0))
    report(server, "g1-2", mean=0.9)
    assert server.ticking
    for name in ("g1-3", "g2-2", "g2-3"):
        assert server.state == "waiting"
        report(server, name, mean=0.9 if name < "g2" else 0.85)
    assert server.round == 1


def test_no_patience_ends_a_run_whose_honest_clients_are_still_exploring():
    """g2-3 has never reported: its time has not started, and two of three could still answer."""
    _, _, server = made()
    for name in ("g1-1", "g1-2", "g1-3", "g2-1"):
        report(server, name, mean=0.9 if name < "g2" else 0.85)
    for _ in range(20):
        server.handle(PatienceOver(0))
    assert server.state == "waiting"
    assert sent(report(server, "g2-2", mean=0.85))
    assert server.round == 1


def reported(**keys):
    """A server of two groups of three whose members have all reported: round 1 has begun."""
    _, _, server = made(**keys)
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    assert server.round == 1
    return server


def test_liars_that_fall_silent_cost_time_but_not_the_verdict():
    """With f = 1 member of a group silent, every round lasts until patience is over and then continues."""
    server = reported(period=1_000)
    for name, mean in (("g1-1", 0.9), ("g1-2", 0.9), ("g2-1", 0.85), ("g2-2", 0.85)):
        reply(server, name, mean, 51_000)
    assert server.round == 1
    server.handle(PatienceOver(1))
    assert server.round == 2


def test_a_run_ends_when_more_than_f_members_that_reported_fall_silent():
    server = reported()
    server.handle(PatienceOver(1))
    assert server.state == "waiting"
    server.handle(PatienceOver(1))
    assert server.verdict.reason == "silence"
    assert server.verdict.candidates


def test_a_member_s_time_begins_with_its_own_first_report():
    """f = 2 of five: in round 1 three members of g1 are silent, one of which has only just reported."""
    _, _, server = made(f=2, clients=5)
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    server.handle(PatienceOver(0))
    assert server.round == 1
    for k in (1, 2, 3):
        reply(server, f"g2-{k}", 0.85, 50_100)
    reply(server, "g1-1", 0.9, 50_100)
    for k in (4, 5):
        report(server, f"g2-{k}", mean=0.85)
    server.handle(PatienceOver(1))
    report(server, "g1-4", mean=0.9)
    server.handle(PatienceOver(1))
    server.handle(PatienceOver(1))
    assert server.state == "waiting"  # g1-2 and g1-3 are silent, and may be the liars
    reply(server, "g1-5", 0.9, 50_100)  # it has no vote, so it is not counted
    assert server.state == "waiting"


def test_patience_of_an_earlier_round_is_ignored():
    _, _, server = made()
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    assert server.round == 1
    server.handle(PatienceOver(0))
    assert server.patient


def test_the_silent_keep_their_last_interval():
    _, _, server = made(period=1_000)
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    before = server.client_lower.copy(), server.client_upper.copy()
    for name in ("g1-1", "g1-2"):
        reply(server, name, 0.9, 51_000)
    for k in (1, 2, 3):
        reply(server, f"g2-{k}", 0.85, 51_000)
    server.handle(PatienceOver(1))
    assert server.round == 2
    assert (server.client_lower[2], server.client_upper[2]) == (before[0][2], before[1][2])
    assert (len(server.told[0]), len(server.told[2])) == (2, 1)


def test_a_late_voter_for_the_elected_arm_is_admitted():
    _, _, server = made()
    for name in ("g1-1", "g1-2", "g2-1", "g2-2"):
        report(server, name, mean=0.9 if name < "g2" else 0.85)
    server.handle(PatienceOver(0))
    assert server.round == 1
    report(server, "g1-3", mean=0.9)
    assert server._trust(0)[0].tolist() == [True, True, True]
    reply(server, "g1-3", 0.9, 50_100)  # it has received round 1
    assert not server.faulty


@pytest.mark.parametrize(
    ("count", "ok"), [(50_100, True), (50_001, True), (50_000, False), (49_900, False), (50_101, False)]
)
def test_a_count_must_grow_by_no_more_than_the_rounds_asked_for(count, ok):
    _, _, server = made()
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    reply(server, "g1-1", 0.9, count)
    assert (not server.faulty) == ok


def test_no_stop_while_a_group_has_no_elected_arm():
    """Group 1 beats no group, because nothing is known about group 2."""
    _, _, server = made()
    for k in (1, 2, 3):
        report(server, f"g1-{k}")
    report(server, "g2-1", mean=0.01)
    server.handle(PatienceOver(0))
    assert server.state == "waiting"
    assert server.round == 0


def test_strangers_and_fallen_groups_are_ignored_and_counted():
    _, _, server = made(means=((0.9, 0.1), (0.6, 0.2), (0.89, 0.1)))
    for j, mean in ((1, 0.9), (2, 0.2), (3, 0.89)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    assert server.active.tolist() == [True, False, True]
    server.handle(Received("nobody", b"\x00"))
    reply(server, "g2-1", 0.2, 50_100)
    assert server.ignored == 2
    assert not server.faulty


def test_a_warning_names_clients_of_one_group_that_see_different_rewards():
    problem = Problem.from_rewards(
        {"g1": {"a": 0.9, "b": 0.1}, "g2": {"a": 0.5, "b": 0.1}}, clients={"g1": 5, "g2": 5}
    )
    rewards = list(problem.rewards)
    for i, mean in enumerate((0.9, 0.3, 0.5, 0.7, 0.6)):
        rewards[i] = (ba.Bernoulli(mean), ba.Bernoulli(0.05))
    mixed = Problem(problem.layout, tuple(rewards))
    for method in ("robust-fed-sel", "fisher"):
        alike = ba.identify(problem, method, delta=0.1, seed=1, byzantine=1)
        assert alike.warnings == []
        record = (
            ba.identify(mixed, method, delta=0.1, seed=1, byzantine=1, n0=512)
            if method == "fisher"
            else (ba.identify(mixed, method, delta=0.1, seed=1, byzantine=1))
        )
        assert any("disagree more than chance allows" in w["text"] for w in record.warnings), method


def test_late_clients_continue_under_tight_rules_and_deactivate_under_paper_rules():
    for rules, state in (("tight", "exploring"), ("paper", "done")):
        problem, options, _ = made(rules=rules, clients=4)
        client = Client(problem.layout, "g1-1", options)
        client.handle(Start())
        payload, _ = Onward.of(np.array([True, True])).encode(client.wire)
        client.handle(Received("server", payload))
        assert client.state == state


def test_a_client_that_is_behind_answers_and_continues():
    problem, options, _ = made(period=10)
    client = Client(problem.layout, "g1-1", options)
    actions = client.handle(Start())
    total = {0: 0, 1: 0}
    while not sent(actions):
        pull = next(a for a in actions if isinstance(a, Pull))
        sums = tuple(float(pull.times) if arm == 0 else 0.0 for arm in pull.arms)
        total[0] += pull.times
        actions = client.handle(Pulled(sums, pull.times))
    onward, _ = Onward.of(np.array([True, True])).encode(client.wire)
    assert client.handle(Received("server", onward)) == [Pull((0,), 10)]
    assert client.handle(Received("server", onward)) == []  # it is pulling for round 1
    actions = client.handle(Pulled((10.0,), 10))
    assert [type(a) for a in actions] == [Send, Pull]
    assert client.round == 2


def test_a_client_out_of_pulls_says_so_once():
    problem, options, _ = made(budget=10)
    client = Client(problem.layout, "g1-1", options)
    actions = client.handle(Start())
    while not sent(actions):
        pull = next(a for a in actions if isinstance(a, Pull))
        actions = client.handle(Pulled((0.0,) * len(pull.arms), pull.times))
    assert sent(actions)[0].payload == b"\xc0"
    onward, _ = Onward.of(np.array([True, True])).encode(client.wire)
    assert not sent(client.handle(Received("server", onward)))


def test_a_budget_ends_undecided_with_the_gap():
    problem = Problem.bernoulli([[0.9, 0.1], [0.89, 0.1]], clients=3)
    record = ba.identify(problem, "robust-fed-sel", delta=0.1, seed=1, byzantine=1, budget=20_000)
    assert (record.verdict.status, record.verdict.reason) == ("undecided", "budget")
    assert 0.01 <= record.verdict.gap <= 1
    assert record.pulls.max_per_client <= 20_000
    assert ba.verify(record, replay=True).ok


def test_liars_can_t_end_a_run_by_claiming_to_be_out_of_budget():
    """f clients that say they have stopped are treated as silent, and the run continues."""
    _, _, server = made(budget=10**6)
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2):
            report(server, f"g{j}-{k}", mean=mean)
        server.handle(Received(f"g{j}-3", b"\xc0"))
    assert server.round == 1


@pytest.mark.parametrize("rules", ["tight", "paper"])
@pytest.mark.parametrize("f", [0, 1, 2])
def test_groups_that_are_too_small_are_refused_with_the_size_needed(rules, f):
    need = (2 if rules == "tight" else 3) * f + 1
    if need > 1:
        with pytest.raises(InputError, match=f"at least {need} clients per group"):
            ba.identify(
                Problem.bernoulli([[0.9, 0.1]] * 2, clients=need - 1),
                "robust-fed-sel",
                rules=rules,
                byzantine=f,
            )
    problem = Problem.bernoulli([[0.9, 0.1], [0.5, 0.1]], clients=need)
    assert ba.identify(problem, "robust-fed-sel", rules=rules, byzantine=f, seed=1).verdict.arm == "g1/a1"


@pytest.mark.parametrize("keys", [{"epsilon": 0.01}, {"early_stop": True}])
def test_epsilon_and_early_stop_are_refused_with_a_hint(keys):
    with pytest.raises(InputError, match="fisher"):
        ba.identify(Problem.bernoulli([[0.9, 0.1]] * 2, clients=3), "robust-fed-sel", byzantine=1, **keys)


def test_d_k_is_one_bit_per_group():
    _, _, server = made(means=((0.9, 0.1), (0.6, 0.2), (0.89, 0.1)))
    for j, mean in ((1, 0.9), (2, 0.2)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    report(server, "g3-1", mean=0.89)
    report(server, "g3-2", mean=0.89)
    (message,) = sent(report(server, "g3-3", mean=0.89))
    assert (message.to, message.bits) == (ALL, 4)  # the end flag (not set) and d_k
    onward = decode_downlink(message.payload, server.own_wire)
    assert [onward.is_active(j) for j in range(3)] == [True, False, True]


def test_the_driver_may_stop_a_server():
    _, _, server = made()
    server.handle(Stop("time"))
    assert server.verdict.reason == "time"


@pytest.mark.parametrize("rules", ["tight", "paper"])
def test_every_round_follows_from_the_reports_by_algorithm_3(rules):
    """Lines 2 to 8 of Algorithm 3, recomputed from a run's honest messages, give its bounds and exits."""
    f, clients = 1, 4
    problem = Problem.bernoulli([[0.9, 0.3], [0.8, 0.2], [0.4, 0.3]], clients=clients)
    record = ba.identify(
        problem, "robust-fed-sel", rules=rules, delta=0.1, seed=3, byzantine=f, period=3000, quantiser=False
    )
    local = record.verdict.certificate["local"]
    rows = record.verdict.certificate["server"]["rounds"]
    assert len(rows) > 3
    k_of = 4 * len(problem.layout.clients) * 2 / 0.1
    order = [e[1] for e in record.verdict.certificate["server"]["events"] if e[0] == "received"]
    seen = [name for i, name in enumerate(order) if name not in order[:i]]

    def alpha(t):
        return np.sqrt(np.log(k_of * t * t) / t)

    active = [0, 1, 2]
    for row in rows:
        lower, upper = {}, {}
        for j in active:
            names = [name for name in seen if problem.layout.group_of[name] == j]
            names = names[: 2 * f + 1] if rules == "paper" else names
            pairs = [
                (local[n]["sent"]["count"][: row["round"] + 1], local[n]["sent"]["sum"][: row["round"] + 1])
                for n in names
            ]
            bounds = []
            for counts, sums in pairs:
                both = [
                    (s / t - 2 * alpha(t), s / t + 2 * alpha(t)) for t, s in zip(counts, sums, strict=True)
                ]
                both = both if rules == "tight" else both[-1:]
                bounds.append((max(b[0] for b in both), min(b[1] for b in both)))
            lower[j] = sorted((b[0] for b in bounds), reverse=True)[f]
            upper[j] = sorted(b[1] for b in bounds)[f]
        assert row["group"] == active
        np.testing.assert_allclose(row["lower"], [lower[j] for j in active], rtol=1e-12)
        np.testing.assert_allclose(row["upper"], [upper[j] for j in active], rtol=1e-12)
        top = max(lower.values())
        active = [j for j in active if top < upper[j]]
    assert active == [0]


def test_a_client_that_contradicts_itself_is_excluded_but_not_proven_faulty():
    _, _, server = made(period=100_000)
    for j, mean in ((1, 0.9), (2, 0.85)):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=mean)
    reply(server, "g1-1", 0.2, 150_000)
    assert server.faulty == []
    assert server._trust(0)[0].tolist() == [False, True, True]
    assert server._trust(0)[1] == 0
    assert "contradict" in server.warnings[0]["text"]


def test_one_reply_fewer_than_the_honest_clients_is_not_enough():
    """|C_j| − f replies let a round continue after patience is over, and |C_j| − f − 1 do not."""
    _, _, server = made(f=2, clients=5)
    for j in (1, 2):
        for k in (1, 2, 3, 4, 5):
            report(server, f"g{j}-{k}", mean=0.9 if j == 1 else 0.85)
    for j in (1, 2):
        for k in (1, 2):
            reply(server, f"g{j}-{k}", 0.9 if j == 1 else 0.85, 50_100)
    reply(server, "g1-3", 0.9, 50_100)
    server.handle(PatienceOver(1))
    assert server.round == 1
    reply(server, "g2-3", 0.85, 50_100)
    assert server.round == 2


def test_the_paper_s_rules_do_not_hang_on_a_silent_member():
    _, _, server = made(clients=4, rules="paper")
    for j in (1, 2):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=0.9 if j == 1 else 0.85)
    assert server.round == 1
    for j in (1, 2):
        reply(server, f"g{j}-1", 0.9 if j == 1 else 0.85, 50_100)
    server.handle(PatienceOver(1))
    assert server.round == 1  # |C̄| − f_j = 2 replies are needed
    for j in (1, 2):
        reply(server, f"g{j}-2", 0.9 if j == 1 else 0.85, 50_100)
    assert server.round == 2


def test_a_client_that_has_stopped_is_not_waited_for():
    _, _, server = made(budget=10**6)
    for j in (1, 2):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=0.9 if j == 1 else 0.85)
    for j in (1, 2):
        server.handle(Received(f"g{j}-1", b"\xc0"))
        for k in (2, 3):
            reply(server, f"g{j}-{k}", 0.9 if j == 1 else 0.85, 50_100)
    assert server.round == 2  # without patience running out


@pytest.mark.parametrize("then", ["vote", "reply", "stop"])
def test_nothing_may_follow_a_stop(then):
    _, _, server = made(budget=10**6)
    if then != "vote":
        for j in (1, 2):
            for k in (1, 2, 3):
                report(server, f"g{j}-{k}", mean=0.9 if j == 1 else 0.85)
    server.handle(Received("g1-1", b"\xc0"))
    if then == "vote":
        report(server, "g1-1")
    elif then == "reply":
        reply(server, "g1-1", 0.9, 50_100)
    else:
        server.latest[0] = None  # as if another message had arrived in between
        server.handle(Received("g1-1", b"\xc0"))
    assert [fault["client"] for fault in server.faulty] == ["g1-1"]


def test_a_liar_that_stops_does_not_end_a_run_while_an_honest_client_is_late():
    _, _, server = made(budget=10**7)
    for j in (1, 2):
        report(server, f"g{j}-1", mean=0.9 if j == 1 else 0.85)
        server.handle(Received(f"g{j}-1", b"\xc0"))
        report(server, f"g{j}-2", mean=0.9 if j == 1 else 0.85)
    server.handle(PatienceOver(0))
    assert server.state == "waiting"
    assert server.round == 1


def test_a_run_ends_by_budget_when_all_clients_that_pull_may_be_liars():
    """f_j clients that still pull may all be liars: they can't keep a run going."""
    _, _, server = made(budget=10**7)
    for j in (1, 2):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=0.9 if j == 1 else 0.85)
    for j in (1, 2):
        for k in (1, 2):
            server.handle(Received(f"g{j}-{k}", b"\xc0"))
        reply(server, f"g{j}-3", 0.9 if j == 1 else 0.85, 50_100)
    assert server.verdict.reason == "budget"


def test_honest_clients_out_of_budget_before_a_vote_end_the_run_despite_a_silent_liar():
    _, _, server = made(budget=10**7)
    for name in ("g1-2", "g1-3"):
        server.handle(Received(name, b"\xc0"))
    assert server.verdict.reason == "budget"


def test_a_client_answers_at_most_once_per_round():
    _, _, server = made(period=1000)
    for j in (1, 2):
        for k in (1, 2, 3):
            report(server, f"g{j}-{k}", mean=0.9 if j == 1 else 0.85)
    reply(server, "g1-1", 0.9, 50_001)
    reply(server, "g1-1", 0.9, 50_002)
    assert server.faulty[0]["reason"] == "more replies than there were rounds"


def test_a_flood_is_counted_but_not_stored():
    _, _, server = made()
    for _ in range(100):
        server.handle(Received("nobody", bytes(1000)))
    server.handle(Received("g1-1", bytes(5_000_000)))
    assert server.ignored == 100
    assert server.events == [["ignored", 100, 100_000], ["oversized", "g1-1", 5_000_000]]
    assert server.faulty[0]["client"] == "g1-1"
