"""FedElim, FPE and collaborative exploration: their formulas, their promise, and what they refuse.

The shared suite (tests/methods/test_every_method.py) runs them as it runs every method.
"""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.rivals import METHODS, schedules
from bestarm.methods.rivals.audit import uplinks
from bestarm.methods.rivals.course import Course
from bestarm.methods.rivals.messages import End, Rest, RivalWire, Sums
from bestarm.protocol.codec import Malformed
from bestarm.protocol.messages import Stopped
from bestarm.protocol.registry import method_named
from bestarm.records.describe import nothing_promised
from rates import rate_exceeds

NAMES = [method.name for method in METHODS]
PROVED = [method.name for method in METHODS if method.proof]
CREW = ba.Problem.from_rewards({"crew": {"a": 0.7, "b": 0.4, "c": 0.3}}, clients=4)
SITES = {f"s{j}": {"a": 0.5 + x, "b": 0.7 - x, "c": 0.1} for j, x in enumerate((0.3, 0.2, -0.1))}
RATED = {
    f"s{j}": {"a": ba.Beta(6 + j, 2), "b": ba.Beta(3, 3)} for j in range(3)
}  # a is better by 0.25 to 0.3

every_rival = pytest.mark.parametrize("name", NAMES)


def test_fed_elim_s_radius_is_that_of_its_authors_code():
    """α_g = √(2·ln(8Kn²/δ)/(Mn)) at σ = 1, rounds at powers of two; here σ = ½."""
    for r, (n, margin) in enumerate(islice(schedules.fed_elim(3, 4, 0.01), 12)):
        assert n == 2**r
        assert margin / 2 == pytest.approx(0.5 * np.sqrt(2 * np.log(8 * 4 * n**2 / 0.01) / (3 * n)))


def test_collaborative_exploration_s_rounds_are_those_of_its_transcription():
    for r, (n, margin) in enumerate(islice(schedules.collaborative(3, 4, 0.01), 12), start=1):
        time = 2 / (3 * (2**-r) ** 2) * np.log(4 * 4 * r**2 / 0.01)
        assert (n, margin) == (int(np.ceil(time)), 2**-r)


def test_schedules_keep_the_union_bounds_of_their_proofs():
    """Each margin makes Hoeffding's bounds add up to δ; FPE reaches the half-width Δ of its round."""
    players, options, delta = 7, 4, 0.1
    for schedule, rounds in ((schedules.fed_elim, 30), (schedules.collaborative, 15)):
        pairs = list(islice(schedule(players, options, delta), rounds))
        missed = sum(2 * np.exp(-2 * players * n * (margin / 2) ** 2) for n, margin in pairs) * options
        assert missed <= delta
    for theory in (True, False):
        pairs = list(islice(schedules.fpe(players, options, delta, theory=theory), 8))
        assert all(margin <= 2 * 2.0**-r for r, (_, margin) in enumerate(pairs))
        assert all(a[0] <= b[0] for a, b in pairwise(pairs))


def test_fpe_s_threshold_is_that_of_its_authors_code():
    """β = 2·(M·C(ln(KM/δ)/M) + 2·M·ln(4 + ln n)), and n is the least with σ²β(n)/(MΔ²) ≤ n."""
    base = schedules.mixture(5, 3, 0.1)
    before = 1
    for r, (n, margin) in enumerate(islice(schedules.fpe(5, 3, 0.1, theory=True), 6)):
        beta = [2 * (base + 2 * 5 * np.log(4 + np.log(k))) for k in (n, n - 1)]
        assert n >= 0.25 * 4**r * beta[0] / 5
        assert n == before or n - 1 < 0.25 * 4**r * beta[1] / 5
        assert margin == pytest.approx(2 * 0.5 * np.sqrt(beta[0] / (5 * n)))
        before = n


@every_rival
def test_the_average_over_sites_decides_and_not_the_best_cell(name):
    problem = ba.Problem.from_rewards(SITES).asking("overall")
    found = ba.study(problem, name, trials=20, seed=1, delta=0.1, workers=1)
    assert found["correct"].all()
    assert problem.best == "a"
    record = ba.identify(problem, name, delta=0.1, seed=2)
    assert record.verdict.arm == "a"
    assert record.verdict.answers[0].value == pytest.approx(0.633, abs=0.1)


@every_rival
def test_rewards_that_are_not_coins_and_other_scales_agree_with_the_machines(name):
    for problem in (
        ba.Problem.from_rewards(RATED).asking("overall"),
        ba.Problem.from_rewards({"g": {"a": 60, "b": 20}}, clients=3, bounds=(0, 100)),
    ):
        trials = ba.study(problem, name, trials=6, seed=3, delta=0.1, workers=1)
        for i in (0, 5):
            record = trials.record(i)
            assert ba.verify(record).failures == ()
            assert record.pulls.total == trials["pulls_total"][i]
            assert (record.bits.up, record.bits.down) == (trials["bits_up"][i], trials["bits_down"][i])
            assert record.good_event == trials["good_event"][i]
        assert trials["correct"].all()


@every_rival
def test_budgets_and_recordings_end_undecided_in_sound_records(name):
    tied = ba.Problem.from_rewards({"g": {"a": 0.5, "b": 0.5}}, clients=3)
    for keys, reason in (({"budget": 100}, "budget"), ({"max_rounds": 2}, "rounds")):
        record = ba.identify(tied, name, delta=0.1, seed=1, **keys)
        assert (record.verdict.status, record.verdict.reason) == ("undecided", reason)
        assert record.verdict.candidates == ("g/a", "g/b")
        assert ba.verify(record, replay=True).failures == ()
    recording = {"kind": "recording", "values": [0, 1, 1, 0, 1]}
    short = ba.Problem.from_rewards({"g": {"a": recording, "b": recording}})
    record = ba.identify(short, name, delta=0.1, seed=1)
    assert record.verdict.reason == "budget"
    assert ba.verify(record).failures == ()


@every_rival
def test_a_tie_ends_in_the_kernel_as_with_the_machines(name):
    tied = ba.Problem.from_rewards({"g": {"a": 0.5, "b": 0.5}}, clients=3)
    trials = ba.study(tied, name, trials=4, seed=1, delta=0.1, workers=1, max_rounds=4)
    assert set(trials["reason"]) <= {"rounds", None}
    assert trials.record(1).bits.down == trials["bits_down"][1]


@pytest.mark.parametrize("name", PROVED)
@pytest.mark.parametrize("shape", ["crew", "sites"])
def test_the_error_rate_is_at_most_delta(name, shape):
    """Null: the best option is lost with probability at most δ = 0.3; false-alarm rate 1e-6, 4,000 trials.

    Power: a schedule with margins a fifth as wide is found out by the next test, with half the trials.
    """
    rows = {"crew": {"a": 0.52, "b": 0.48, "c": 0.48}}
    problem = ba.Problem.from_rewards(rows, clients=3)
    if shape == "sites":
        rows = {f"s{j}": {"a": 0.52 + x, "b": 0.48 - x, "c": 0.48} for j, x in enumerate((0.2, 0.0, -0.2))}
        problem = ba.Problem.from_rewards(rows).asking("overall")
    found = ba.study(problem, name, trials=4000, seed=5, delta=0.3, workers=1)
    assert not rate_exceeds(int((found["good_event"] == False).sum()), 4000, 0.3)  # noqa: E712
    assert not rate_exceeds(int((found["correct"] == False).sum()), 4000, 0.3)  # noqa: E712


def test_margins_that_are_too_small_would_be_noticed(monkeypatch):
    """The check above can fail: FedElim with a fifth of its margin is wrong more often than δ."""
    whole = schedules.fed_elim

    def narrow(players, options, delta):
        return ((n, margin / 5) for n, margin in whole(players, options, delta))

    monkeypatch.setattr(schedules, "fed_elim", narrow)
    problem = ba.Problem.from_rewards({"crew": {"a": 0.52, "b": 0.48, "c": 0.48}}, clients=3)
    found = ba.study(problem, "fed-elim", trials=2000, seed=5, delta=0.3, workers=1)
    assert rate_exceeds(int((found["correct"] == False).sum()), 2000, 0.3)  # noqa: E712


def test_nothing_is_promised_where_nothing_is_proved(tmp_path):
    record = ba.identify(CREW, "fpe-heuristic", delta=0.1, seed=1)
    assert "no error probability is proved" in nothing_promised(record)
    assert record.verdict.interval is None
    text = record.report(tmp_path / "r.html", quick=True).read_text("utf-8")
    assert "Nothing is promised: no error probability is proved" in text
    proved = ba.identify(CREW, "fpe", delta=0.1, seed=1)
    assert nothing_promised(proved) == ""
    low, high = proved.verdict.interval
    assert low <= proved.verdict.mean <= high


def test_fed_elim_can_be_charged_for_its_uplinks():
    record = ba.identify(CREW, "fed-elim", delta=0.1, seed=1)
    server = record.verdict.certificate["server"]
    sent = [row["options"] for part in record.verdict.certificate["local"].values() for row in part["sent"]]
    assert uplinks(server, 4) == sum(map(len, sent)) > 0


@every_rival
def test_sites_that_do_not_share_options_or_count_unequally_are_refused(name):
    for problem, text in (
        (ba.Problem.bernoulli([[0.7, 0.4], [0.3]]), "same options"),
        (ba.Problem.from_rewards(SITES).asking("overall", weights={"s0": 2, "s1": 1, "s2": 1}), "average"),
        (ba.Problem.from_rewards(SITES, clients=[1, 2, 1]).asking("overall"), "average"),
        (ba.Problem.from_rewards(SITES).asking("each"), "does not answer"),
    ):
        with pytest.raises(ba.InputError, match=text):
            ba.identify(problem, name)
    for key in ({"epsilon": 0.1}, {"byzantine": 1}):
        with pytest.raises(ba.InputError):
            ba.identify(CREW, name, **key)


def test_plans_leave_rivals_out_unless_they_are_named():
    planned = ba.plan(CREW, delta=0.1, trials=4, seed=1, workers=1, quick=True)
    assert not any(method_named(row.method).rival for row in planned.methods)


@every_rival
def test_a_rival_is_for_comparison_and_planned_if_it_is_named(name):
    assert method_named(name).rival
    named = ba.plan(CREW, delta=0.1, trials=4, seed=1, workers=1, quick=True, methods=[name])
    assert [row.method for row in named.methods] == [name]


courses = st.builds(
    lambda clients, binary, budget: Course(
        ba.Problem.from_rewards(
            {"g": {"a": 0.5 if binary else ba.Beta(2, 2), "b": 0.5, "c": 0.5}}, clients=clients
        ).layout,
        method_named("fed-elim").options(budget=budget),
    ),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([None, 10]),
)


@given(courses, st.integers(1, 2**40), st.data())
def test_messages_round_trip(course, n, data):
    wire, binary = RivalWire(course), course.binary[0]
    number = st.integers(0, n).map(float) if binary else st.floats(0, n)
    sums = Sums(tuple(data.draw(st.lists(number, min_size=2, max_size=2))))
    payload, bits = wire.encode(sums, n, binary)
    assert wire.decode(payload, 2, n, binary) == (sums, bits)
    if course.stoppable:
        payload, bits = wire.encode(Stopped(), n, binary)
        assert wire.decode(payload, 2, n, binary) == (Stopped(), bits)
    for down in (Rest((True, False, True)), End(2), End(None)):
        payload, _ = wire.encode_down(down)
        assert wire.decode_down(payload, 3) == down


@given(courses, st.binary(max_size=40))
def test_any_bytes_are_a_message_in_its_one_encoding_or_malformed(course, data):
    wire, binary = RivalWire(course), course.binary[0]
    try:
        message, bits = wire.decode(data, 3, 1000, binary)
    except Malformed:
        pass
    else:
        assert wire.encode(message, 1000, binary) == (data, bits)
    try:
        down = wire.decode_down(data, 3)
    except Malformed:
        return
    assert wire.encode_down(down)[0] == data


def test_sums_that_can_t_follow_the_last_ones_convict_their_sender():
    from bestarm.protocol.events import Received, Start

    method = method_named("fed-elim")
    server = method.server(CREW.layout, method.options(delta=0.1))
    server.handle(Start())
    for name in CREW.layout.clients:
        server.handle(Received(name, server.own_wire.encode(Sums((1.0, 1.0, 1.0)), 1, True)[0]))
    assert server.round == 1
    worse = server.own_wire.encode(Sums((0.0, 2.0, 2.0)), 2, True)[0]
    server.handle(Received(CREW.layout.clients[0], worse))
    assert server.verdict.reason == "votes"
    assert server.faulty[0]["client"] == CREW.layout.clients[0]
