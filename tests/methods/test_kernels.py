"""A kernel and the machines make the same decisions on the same rewards, and a kernel's trials have the
law of the machines' runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.kernel import Ahead
from bestarm.methods.fed_sel.messages import Refinement, Report, exhausted_bits, refinement_bits, report_bits
from bestarm.methods.fisher.messages import (
    LookDown,
    LookReport,
    LookStopped,
    LookWire,
    encode_withdrawn,
    look_down_bits,
    look_report_bits,
    look_stopped_bits,
    withdrawn_bits,
)
from bestarm.methods.fisher.pooled.messages import PoolDown, Sums, encode_sums, pool_down_bits, sums_bits
from bestarm.protocol.messages import Final, Onward, Wire, final_bits, onward_bits
from bestarm.protocol.registry import METHODS, method_for
from marking import examples, slow_but
from methods.fed_sel.reference import REFERENCE, TRIALS
from rates import laws_differ

means = st.sampled_from([0.0, 0.05, 0.2, 0.45, 0.5, 0.7, 0.9, 1.0])
ratings = {"kind": "table", "values": [0, 0.5, 1], "weights": [1, 2, 1]}
arms = st.one_of(means, st.just(ratings), st.just({"kind": "beta", "a": 3, "b": 2}))


@st.composite
def problems(draw):
    binary = draw(st.booleans())
    groups = draw(
        st.lists(st.lists(means if binary else arms, min_size=1, max_size=4), min_size=1, max_size=4)
    )
    if sum(map(len, groups)) == 1:
        groups.append([0.3])
    return ba.Problem.from_rewards(
        {f"g{i}": {f"a{j}": m for j, m in enumerate(row)} for i, row in enumerate(groups)}
    )


@st.composite
def option_sets(draw):
    return {
        "delta": draw(st.sampled_from([0.01, 0.3])),
        "c": draw(st.sampled_from([2.0, 3.0, 8.0])),
        "period": draw(st.sampled_from([1, 50, 700])),
        "period_growth": draw(st.sampled_from([1.0, 1.3])),
        "radius": draw(st.sampled_from(["paper", "sharp"])),
        "quantiser": draw(st.booleans()),
        "intersect": draw(st.booleans()),
        "epsilon": draw(st.sampled_from([0.0, 0.2])),
        "max_rounds": draw(st.sampled_from([None, 1, 4])),
        "budget": draw(st.integers(5, 20_000)),  # random problems contain ties, which only a budget ends
    }


@settings(max_examples=examples(60))
@given(problems(), option_sets(), st.integers(0, 2**32))
def test_a_fed_sel_trial_replays_through_the_machines(problem, options, seed):
    check_replay(problem, options, seed)


@st.composite
def fisher_options(draw):
    return {
        "delta": draw(st.sampled_from([0.01, 0.3])),
        "n0": draw(st.sampled_from([1, 8, 32])),
        "q": draw(st.sampled_from([1.3, 1.5, 3.0])),
        "quiet": draw(st.integers(0, 3)),
        "epsilon": draw(st.sampled_from([0.0, 0.2])),
        "max_rounds": draw(st.sampled_from([1, 4, 16])),
        "budget": draw(st.sampled_from([None, 40, 900, 20_000])),
    }


@settings(max_examples=examples(60))
@given(problems(), fisher_options(), st.integers(0, 2**32))
def test_a_fed_fisher_trial_replays_through_the_machines(problem, options, seed):
    check_replay(problem, options, seed, "fisher")


def check_replay(problem, options, seed, method="fed-sel"):
    trials = ba.study(problem, method, trials=6, seed=seed, workers=1, **options)
    for i in range(0, 6, 2):
        check_trial(trials, i)


def check_trial(trials, i):
    """The machines' record of a trial passes its audit and has the columns of the kernel."""
    record = trials.record(i)
    assert ba.verify(record).failures == ()
    told = {
        "status": record.verdict.status, "arm": record.verdict.arm, "reason": record.verdict.reason,
        "good_event": record.good_event, "rounds": record.rounds, "time": record.time,
        "pulls_total": record.pulls.total, "pulls_phase1": record.pulls.phase1,
        "pulls_phase2": record.pulls.phase2, "pulls_max": record.pulls.max_per_client,
        "bits_up": record.bits.up, "bits_down": record.bits.down,
    }  # fmt: skip
    assert told == {name: trials[name][i] for name in told}


@pytest.mark.parametrize("method", ["fed-sel", "fisher"])
def test_on_another_scale_epsilon_is_the_user_s_in_study_and_record(method):
    problem = ba.Problem.from_rewards({"g": {"a": 60, "b": 50}, "h": {"c": 30}}, bounds=(0, 100))
    unit = ba.Problem.from_rewards({"g": {"a": 0.6, "b": 0.5}, "h": {"c": 0.3}})
    wide = ba.study(problem, method, trials=5, seed=1, epsilon=20, delta=0.1, workers=1)
    narrow = ba.study(unit, method, trials=5, seed=1, epsilon=0.2, delta=0.1, workers=1)
    assert wide["pulls_total"].tolist() == narrow["pulls_total"].tolist()
    assert wide.record(2).pulls.total == wide["pulls_total"][2]


@pytest.mark.parametrize(
    ("means", "options"),
    [
        ([[1.0], [1.0]], {"q": 1000.0}),
        ([[0.5, 0.5], [0.5]], {"q": 1000.0, "n0": 1}),
        ([[0.9, 0.9], [0.3]], {"quiet": 30, "q": 2.0}),
        ([[0.9, 0.9], [0.3]], {"quiet": 30, "q": 2.0, "max_rounds": 1}),
        ([[0.9, 0.2], [0.6, 0.5], [0.1]], {}),
    ],
)
def test_a_fed_fisher_trial_replays_up_to_the_largest_count(means, options):
    check_replay(ba.Problem.bernoulli(means), {"delta": 0.1, **options}, seed=3, method="fisher")


@pytest.mark.parametrize(
    ("means", "options"),
    [
        ([[0.5], [0.5]], {"period_growth": 2.0}),
        ([[0.5, 0.1], [0.5, 0.1], [0.2]], {"period_growth": 3.0, "quantiser": False}),
        ([[0.9, 0.2], [0.3]], {"c": 1e4}),
        ([[0.9, 0.2], [0.6, 0.5], [0.1]], {}),
        ([[0.95, 0.9, 0.2], [0.85]], {"radius": "sharp", "c": 3.0}),
    ],
)
def test_a_fed_sel_trial_without_a_budget_replays_up_to_the_largest_count(means, options):
    check_replay(ba.Problem.bernoulli(means), {"delta": 0.1, **options}, seed=3)


def test_a_group_that_is_named_without_the_largest_lower_bound_is_the_same_in_both():
    """Fifty arms use up the budget; the other group continues, and its narrow interval lies inside."""
    problem = ba.Problem.bernoulli([[0.6, *[0.0] * 49], [0.55]])
    options = {"epsilon": 0.3, "budget": 120_000, "period": 20_000, "radius": "sharp", "delta": 0.1}
    trials = ba.study(problem, "fed-sel", trials=6, seed=3, workers=1, **options)
    last = trials.record(0).verdict.certificate["server"]["rounds"][-1]
    assert trials["arm"][0] == "g1/a1"
    assert last["lower"][0] < last["lower"][1]
    check_replay(problem, options, seed=3)


def test_a_trial_of_the_paper_s_instance_replays_through_the_machines():
    trials = ba.study(ba.Problem.paper_instance(7), "fed-sel", trials=40, seed=3, delta=0.1, workers=1)
    for i in (0, 17, 39):
        record = trials.record(i)
        assert (record.rounds, record.pulls.total, record.bits.up, record.bits.down) == (
            trials["rounds"][i], trials["pulls_total"][i], trials["bits_up"][i], trials["bits_down"][i],
        )  # fmt: skip


@pytest.mark.slow
def test_trials_have_the_law_of_runs():
    """Null: one law (KS at 1e-6, 2,000 trials against 250 runs).

    Power: for a bell-shaped law a shift of half a standard deviation is found with probability 0.9.
    """
    problem = ba.Problem.bernoulli([[0.95, 0.6, 0.2], [0.7, 0.4]])
    options = {"delta": 0.3, "c": 2.0, "period": 20, "radius": "sharp"}
    trials = ba.study(problem, "fed-sel", trials=2000, seed=1, workers=1, **options)
    runs = [ba.identify(problem, "fed-sel", seed=s, **options) for s in range(250)]
    single = {
        "pulls_phase1": np.array([r.pulls.phase1 for r in runs]),
        "rounds": np.array([r.rounds for r in runs]),
        "pulls_max": np.array([r.pulls.max_per_client for r in runs]),
    }
    for name, values in single.items():
        assert not laws_differ(trials[name], values)
        assert laws_differ(trials[name], values + 0.5 * values.std())


@pytest.mark.parametrize("sigma", slow_but([1, 3], REFERENCE))
def test_two_thousand_trials_agree_with_the_reference(sigma):
    """Null: same means as 2,000 trials of other code; 5 standard errors are passed with probability 6e-7."""
    trials = ba.study(ba.Problem.paper_instance(sigma), "fed-sel", trials=2000, seed=11, delta=0.1, workers=1)
    assert trials["correct"].all()
    names = ("rounds", "pulls_phase1", "pulls_phase2")
    for name, (mean, sd) in zip(names, REFERENCE[sigma], strict=True):
        assert abs(trials[name].mean() - mean) <= 5 * sd * np.sqrt(1 / 2000 + 1 / TRIALS), name


@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(1, 30))
def test_a_quiet_batch_contains_no_elimination(seed, arms, times):
    """Checked at every epoch of the real path; nothing is claimed about batches that are not quiet."""
    rng = np.random.default_rng(seed)
    path = rng.random((times, arms)) < rng.random(arms)
    sums = rng.integers(0, 12, arms).astype(float)
    active = np.ones(arms, dtype=bool)
    if arms > 2:
        active[rng.integers(0, arms)] = rng.random() < 0.5
    boundary = float(rng.integers(1, 25))
    if active.sum() < 2 or not fed_sel_decisions.eliminate(sums, active, boundary)[active].all():
        return
    if fed_sel_decisions.quiet(sums, active, boundary, times, path.sum(axis=0).astype(float)):
        for j in range(1, times):
            assert fed_sel_decisions.eliminate(sums + path[:j].sum(axis=0), active, boundary)[active].all()


def test_sums_drawn_in_parts_have_the_law_of_plain_draws():
    """Null: totals over 40 epochs are binomial, although each call may return a different part of them.

    KS at 1e-6 with 4,000 rows; the same check fails for sums that forget the remainder and draw it afresh.
    """
    rng = np.random.default_rng(5)
    rows, p = 4000, np.array([0.9, 0.4])

    def totals(forget: bool) -> np.ndarray:
        ahead = Ahead(rows, 2)
        sums, epoch = np.zeros((rows, 2)), np.zeros(rows, dtype=np.int64)
        active = np.ones((rows, 2), dtype=bool)
        while (epoch < 40).any():
            left = np.maximum(40 - epoch, 0)
            safe, far = np.minimum(left, 4), np.minimum(left, 40)
            gap = sums.max(axis=1) - sums.min(axis=1)
            times, drawn = ahead.draw(
                rng, np.broadcast_to(p, sums.shape), sums, active & (left > 0)[:, None], gap + 9.0, safe, far
            )
            if forget:
                ahead = Ahead(rows, 2)
            sums, epoch = sums + drawn, epoch + times
        return sums[:, 0] - sums[:, 1]

    plain = rng.binomial(40, 0.9, rows) - rng.binomial(40, 0.4, rows)
    assert not laws_differ(totals(forget=False), plain)
    assert laws_differ(totals(forget=True), plain)


@given(st.integers(1, 2**50), st.booleans(), st.booleans(), st.integers(1, 20))
def test_sizes_without_encoding_are_those_of_the_encoding(count, binary, stoppable, precision):
    wire = Wire((3, 7), (binary, binary), stoppable)
    for unfinished in (False, True) if stoppable else (False,):
        sizes = report_bits(wire, [count, count], unfinished)
        for group in (0, 1):
            remaining = (True,) * wire.arm_counts[group] if unfinished else None
            assert sizes[group] == Report(0, count, 1.0, remaining).encode(wire, group)[1]
    for quantiser in (False, True):
        message = Refinement(index=0) if quantiser else Refinement(mean=1.0)
        size = refinement_bits(wire, [count, count], [precision] * 2, quantiser)
        assert size[0] == message.encode(wire, 0, count, precision)[1]


wires = st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.booleans()).map(
    lambda pair: LookWire(tuple(pair[0]), pair[1])
)


@given(wires, st.booleans(), st.data())
def test_the_server_s_messages_have_the_size_of_their_encoding(wire, early_stop, data):
    groups = len(wire.arm_counts)
    active = data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups))
    sizes = final_bits(wire)
    assert sizes[-1] == Final(None, None).encode(wire)[1]
    for group, arms in enumerate(wire.arm_counts):
        assert {Final(group, arm).encode(wire)[1] for arm in range(arms)} == {sizes[group]}
    round_wire = Wire(wire.arm_counts, (True,) * groups, wire.stoppable, early_stop)
    assert onward_bits(round_wire) == Onward.of(active).encode(round_wire)[1]
    assert final_bits(round_wire).tolist() == sizes.tolist()
    bits = data.draw(st.integers(1, 20))
    index = data.draw(st.integers(0, 2**bits - 1))
    assert look_down_bits(wire, bits) == LookDown.of(np.array(active), index, bits).encode(wire)[1]
    race = data.draw(st.lists(st.booleans(), min_size=sum(wire.arm_counts), max_size=sum(wire.arm_counts)))
    assert pool_down_bits(wire) == PoolDown(tuple(race)).encode(wire)[1]


@given(wires, st.data())
def test_a_fed_fisher_client_s_messages_have_the_size_of_their_encoding(wire, data):
    last_bits = data.draw(st.integers(1, 12))
    bits = last_bits + data.draw(st.integers(0, 4))
    group = data.draw(st.integers(0, len(wire.arm_counts) - 1))
    before, now = (
        LookReport(
            data.draw(st.integers(0, wire.arm_counts[group] - 1)),
            data.draw(st.booleans()),
            data.draw(st.integers(0, 2**b - 1)),
            b,
        )
        for b in (last_bits, bits)
    )
    every = np.full(len(wire.arm_counts), now.index)
    first = look_report_bits(wire, every, bits, False, None, 0)
    assert first[group] == now.encode(wire, group, None)[1]
    old = np.full(len(wire.arm_counts), before.index)
    later = look_report_bits(wire, every, bits, now.arm != before.arm, old, last_bits)
    assert later[group] == now.encode(wire, group, before)[1]
    assert withdrawn_bits(wire) == encode_withdrawn(wire)[1]
    assert look_stopped_bits(wire) == (LookStopped().encode(wire)[1] if wire.stoppable else 0)


@given(wires, st.integers(0, 40), st.integers(1, 2**36), st.data())
def test_a_pooled_client_s_messages_have_the_size_of_their_encoding(wire, look, n, data):
    sums = tuple(data.draw(st.lists(st.integers(0, n), min_size=1, max_size=9)))
    assert sums_bits(wire, look, len(sums), n) == encode_sums(Sums(look, sums), wire, n)[1]
    assert (
        sums_bits(wire, look, [len(sums)] * 3, n).tolist() == [encode_sums(Sums(look, sums), wire, n)[1]] * 3
    )


def test_a_client_that_is_out_of_pulls_says_so_in_one_bit_or_not_at_all():
    for stoppable in (False, True):
        wire = Wire((3, 7), (True, False), stoppable)
        assert exhausted_bits(wire) == Refinement().encode(wire, 1, 5, 2)[1] == int(stoppable)


pooled_options = st.fixed_dictionaries(
    {
        "delta": st.sampled_from([0.01, 0.3]),
        "n0": st.sampled_from([1, 8, 32]),
        "q": st.sampled_from([1.3, 2.0, 3.0]),
        "quiet": st.integers(0, 3),
        "max_rounds": st.sampled_from([1, 4, 12]),
    }
)


@settings(max_examples=30)
@given(
    st.lists(st.lists(means, min_size=1, max_size=3), min_size=1, max_size=3),
    pooled_options,
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 2**32),
)
@pytest.mark.slow
def test_a_trial_of_pooled_groups_and_liars_replays_through_the_machines(rows, options, faults, lie, seed):
    if sum(map(len, rows)) == 1:
        rows = [*rows, [0.3]]
    problem = ba.Problem.bernoulli(rows, clients=3)
    liars = [ba.Adversary("g1", "extreme", 1)] if faults and lie else []
    check_replay(problem, {**options, "byzantine": faults, "adversaries": liars}, seed, "fisher")


def test_a_method_says_for_which_runs_it_has_a_kernel():
    single, pooled = (
        ba.Problem.bernoulli([[0.9, 0.2], [0.5]]),
        ba.Problem.bernoulli([[0.9], [0.2]], clients=3),
    )

    def has_kernel(problem, method, liars=None, **keys):
        method = method_for(method, problem.layout)
        return bool(method.kernel and method.kernel(problem, method.options(**keys), liars or {}))

    assert has_kernel(single, "fed-sel", budget=100, epsilon=0.1)
    assert has_kernel(single, "fisher", budget=100, epsilon=0.1)
    assert has_kernel(pooled, "fisher", {"g1-1": "extreme"}, byzantine=1)
    assert not has_kernel(single, "fed-sel", early_stop=True)
    assert not has_kernel(single, "fed-sel", {"g1-1": "extreme"})
    assert not has_kernel(pooled, "fisher", {"g1-1": "extreme", "g2-1": "bury"}, byzantine=1)
    assert not has_kernel(pooled, "fisher", budget=100)
    assert not has_kernel(pooled, "fisher", epsilon=0.1)
    assert has_kernel(pooled, "bet")
    assert not has_kernel(pooled, "bet", budget=100)
    for method in METHODS:
        assert not has_kernel(ba.Problem.bernoulli([[0.4]]), method)
        recorded = ba.Problem.from_rewards({"g": {"a": {"kind": "recording", "values": [1, 0]}, "b": 0.1}})
        assert not has_kernel(recorded, method)
