"""Plans: predictions agree with fresh runs, advice is measured, and schedules keep to their budget."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from scipy.stats import betabinom

import bestarm as ba
from bestarm.methods.bet.blocks import Blocks
from bestarm.protocol.planning import PlanFacts
from bestarm.protocol.registry import METHODS
from bestarm.simulate.network import Network
from bestarm.study.forecast import Range
from marking import slow, slow_but
from rates import rate_exceeds

EASY = [[0.9, 0.3], [0.5, 0.2]]
COLUMNS = {
    "pulls": "pulls_total",
    "longest": "pulls_max",
    "rounds": "rounds",
    "time": "time",
    "bits_up": "bits_up",
    "bits_down": "bits_down",
}
SCENARIOS = {
    "the paper's": ba.Problem.paper_instance(1),
    "unequal arm-sets": ba.Problem.bernoulli([[0.9, 0.5], [0.8, 0.3, 0.2]]),
    "eight groups": ba.Problem.bernoulli([[0.7, 0.4, 0.3], *[[0.5 - 0.02 * i, 0.2] for i in range(7)]]),
    "beta rewards": ba.Problem.from_rewards(
        {
            "a": {"x": {"kind": "beta", "a": 9, "b": 1}, "y": {"kind": "beta", "a": 1, "b": 4}},
            "b": {"z": {"kind": "beta", "a": 4, "b": 3}, "w": 0.05},
        }
    ),
    "lowest of ratings": ba.Problem.from_rewards(
        {"a": {"x": 1.0, "y": 2.5}, "b": {"z": 2.0}, "c": {"u": 3.0, "v": 4.0, "w": 3.5}},
        bounds=(0, 5),
        goal="min",
    ),
}


def fresh(problem, row, trials, seed=12, **keys):
    return ba.study(problem, row.method, trials=trials, seed=seed, workers=1, **{**row.options, **keys})


@pytest.mark.parametrize(
    ("name", "methods"),
    [("lowest of ratings", ["fisher", "bet"]), *slow(*((name, None) for name in SCENARIOS))],
)
def test_stated_ranges_cover_fresh_runs(name, methods):
    """The ranges of 2,000 planned runs, against 2,000 fresh ones.

    A range that is stated as 90 % (to a whole percent) holds 85 to 95 % of them. A cost with few values may
    have no such range; the one it has is stated with another share, and holds that ± 5 %. Null: the share
    inside is the stated one. The number inside is then beta-binomial, and a check fails by chance with
    probability at most 10⁻⁶; a share that is off by 10 points fails with more than 0.999.
    """
    planned, new = 2000, 2000
    law = betabinom(new, round(0.9 * planned), round(0.1 * planned))
    assert law.cdf(0.85 * new - 1) + law.sf(0.95 * new) <= 1e-6
    assert betabinom(new, round(0.8 * planned), round(0.2 * planned)).cdf(0.85 * new - 1) > 0.999
    problem = SCENARIOS[name]
    found = ba.plan(problem, delta=0.1, trials=planned, seed=11, quick=True, workers=1, methods=methods)
    assert len(found.methods) == (7 if methods else 8)
    ninety = set()
    for row in found.methods:
        runs = fresh(problem, row, new, delta=0.1)
        for field, column in COLUMNS.items():
            stated = getattr(row.cost, field)
            covered = ((runs[column] >= stated.low) & (runs[column] <= stated.high)).mean()
            assert stated.share >= 0.9
            assert abs(covered - stated.share) <= 0.05, (row.name, field)
            if round(stated.share, 2) == 0.9:
                ninety.add((row.name, field))
                assert 0.85 <= covered <= 0.95, (row.name, field)
    assert (found.methods[0].name, "pulls") in ninety


def test_a_range_is_closed_and_states_its_share():
    found = Range.of(np.array([9] * 8 + [5] * 89 + [1] * 3))  # 5 alone is too few; 1 to 5 is the next
    assert (found.median, found.low, found.high, found.share) == (5, 1, 5, 91 / 101)
    always = Range.of(np.full(999, 3))
    assert (always.low, always.high, always.share) == (3, 3, 0.998)
    even = Range.of(np.arange(1000))
    assert (even.low, even.high) == (49, 950)
    assert even.share == 901 / 1001


@pytest.mark.slow
def test_a_plan_contains_bounds_and_limit_and_is_reproducible_by_seed():
    problem = ba.Problem.bernoulli(EASY)
    found = ba.plan(problem, delta=0.1, trials=200, seed=3, quick=True, period=50)
    again = ba.plan(problem, delta=0.1, trials=200, seed=3, quick=True, period=50)
    assert found.to_dict() == again.to_dict()
    assert found.limit.total == ba.limit(problem, 0.1).total
    row = found["fed-sel"]
    assert row.bounds.rounds == ba.bounds(problem, 0.1, period=50).rounds
    assert row.cost.pulls.high <= row.bounds.pulls_most
    assert found["fisher (pulls)"].bounds is None
    assert found["fisher (rounds)"].cost.rounds.mean < found["fisher (pulls)"].cost.rounds.mean
    for one in found.methods:
        assert one.cost.pulls.mean >= found.limit.total
        assert one.cost.decided == 1
    with pytest.raises(ba.InputError, match="not in the plan"):
        found["fisher"]


@pytest.mark.parametrize(
    "keys", [{"max_rounds": 2}, {"epsilon": 0.05}, {"methods": ["fed-sel"], "max_rounds": 10**6}]
)
def test_a_plan_shows_no_limit_where_runs_may_end_undecided_or_near_the_best(keys):
    found = ba.plan(ba.Problem.bernoulli(EASY), delta=0.1, trials=20, seed=3, quick=True, **keys)
    assert found.limit is None
    assert found.methods[0].name in found.no_limit
    assert found.to_dict()["limit"] is None
    assert found.to_dict()["no_limit"] == found.no_limit


@pytest.mark.parametrize("method", ["fisher", *slow("fed-sel")])
def test_the_budget_found_is_enough_and_four_fifths_of_it_are_not(method):
    problem = ba.Problem.bernoulli([[0.9, 0.4], [0.7, 0.2]])
    found = ba.plan(problem, delta=0.1, seed=4, methods=[method], workers=1)
    row = found.methods[0]
    assert row.enough.decided >= 0.95
    trials = 2000 if method == "fed-sel" else 20_000
    for budget, enough in ((row.enough.budget, True), (int(0.8 * row.enough.budget), False)):
        runs = fresh(problem, row, trials, delta=0.1, budget=budget)
        undecided = int((runs["status"] != "identified").sum())
        # The check was made on 1,000 runs, so the true rate may be a little under 95 %.
        assert rate_exceeds(undecided, trials, 0.07 if enough else 0.05) != enough


def test_a_hopeless_client_needs_no_long_budget():
    """Phase I of {0.3, 0.25} is long, but a client that runs out of pulls is still beaten."""
    problem = ba.Problem.bernoulli([[0.9, 0.4], [0.3, 0.25]])
    row = ba.plan(problem, delta=0.1, trials=300, seed=1, methods=["fed-sel"], workers=1)["fed-sel"]
    assert row.enough.budget < 0.1 * row.cost.longest.median


@pytest.mark.slow
def test_advice_agrees_with_fresh_measurements():
    problem = ba.Problem.bernoulli([[0.9, 0.4], [0.8, 0.6, 0.3]])
    methods = ["fed-sel", "fisher"]
    found = ba.plan(problem, delta=0.1, trials=400, seed=5, budget=400, workers=1, methods=methods)
    advice = {
        key: next(text for text in found.advice if key in text)
        for key in ("period", "sharp", "epsilon", "At your budget", "fisher (rounds) takes")
    }
    numbers = re.match(
        r"sigma = 5: .* to 200, fed-sel takes ([\d.]+) rounds instead of ([\d.]+)", advice["period"]
    )
    for said, period in zip(numbers.groups(), (200, 100), strict=True):
        runs = ba.study(problem, "fed-sel", trials=400, seed=99, delta=0.1, period=period, workers=1)
        assert float(said) == pytest.approx(runs["rounds"].mean(), rel=0.05)
    pulls = [
        ba.study(problem, "fed-sel", trials=400, seed=99, delta=0.1, radius=r, workers=1)[
            "pulls_total"
        ].mean()
        for r in ("sharp", "paper")
    ]
    said = int(re.search(r"(\d+) % fewer pulls", advice["sharp"])[1])
    assert said == pytest.approx(100 * (1 - pulls[0] / pulls[1]), abs=2)
    epsilon, saved = re.match(
        r"epsilon = ([\d.]+) would save (\d+) % of the pulls", advice["epsilon"]
    ).groups()
    pulls = [
        ba.study(problem, "fisher", trials=2000, seed=99, delta=0.1, epsilon=e, workers=1)[
            "pulls_total"
        ].mean()
        for e in (float(epsilon), 0.0)
    ]
    assert float(saved) == pytest.approx(100 * (1 - pulls[0] / pulls[1]), abs=8)
    assert "so this is not decidable; fisher" in advice["At your budget"]
    assert f"needs {min(r.enough.budget for r in found.methods):,} for 95 %" in advice["At your budget"]
    assert all(row.at_budget.decided < 0.5 for row in found.methods)
    enough = ba.plan(problem, delta=0.1, trials=100, seed=5, budget=10**6, methods=["fisher"], workers=1)
    assert any("it is enough" in text for text in enough.advice)


def test_one_round_is_advised_where_it_is_certain():
    problem = ba.Problem.bernoulli([[0.9, 0.6], [0.5, 0.2]])
    found = ba.plan(problem, delta=0.1, trials=100, seed=1, workers=1, methods=["fed-sel", "fisher"])
    assert any("fed-sel needs one round" in text for text in found.advice)
    assert not any("period" in text for text in found.advice)


def test_a_method_that_never_ends_is_reported_and_not_run():
    problem = ba.Problem.bernoulli([[0.9, 0.9], [0.3, 0.2]])
    tied = ba.plan(problem, delta=0.1, trials=50, seed=1, workers=1, methods=["fed-sel", "fisher"])
    assert all(row.cost is None and row.enough is None and "tied" in row.why_not for row in tied.methods)
    assert tied.limit is None
    assert any("epsilon = 0.01 would let it end" in text for text in tied.advice)
    json.dumps(tied.to_dict(), allow_nan=False)
    # A tie inside a losing group does not matter to Fed-Fisher.
    local = ba.Problem.bernoulli([[0.9, 0.4], [0.3, 0.3]])
    found = ba.plan(local, delta=0.1, trials=50, seed=1, quick=True, workers=1, budget=300)
    assert found["fed-sel"].cost is None
    assert found["fed-sel"].at_budget.decided == 0
    assert found["fisher (pulls)"].cost.decided == 1
    near = ba.Problem.bernoulli([[0.6], [0.5999, 0.1]])
    found = ba.plan(near, delta=0.1, trials=50, seed=1, quick=True, workers=1, methods=["fed-sel"])
    assert "too many to simulate" in found["fed-sel"].why_not
    close = ba.Problem.bernoulli([[0.6, 0.59999], [0.1, 0.05]])
    found = ba.plan(close, delta=0.1, trials=50, seed=1, quick=True, workers=1, methods=["fed-sel"])
    assert "pulls of one client" in found["fed-sel"].why_not
    with pytest.raises(ba.InputError, match="unknown"):
        ba.plan(ba.Problem.from_rewards({"g": {"a": lambda rng: 0.0, "b": 0.1}}), delta=0.1)


def test_a_scenario_s_options_are_the_defaults():
    options = {"delta": 0.2, "period": 10, "budget": 900, "n0": 64, "q": 2.0, "quiet": 1}
    scenario = ba.Scenario(ba.Problem.bernoulli(EASY), "fisher", 8, options)
    found = ba.plan(scenario, trials=50, quick=True, workers=1)
    assert (found.delta, found.seed, found.budget) == (0.2, 8, 900)
    names = ["fed-sel", "fisher (pulls)", *(f"bet ({prefer})" for prefer in ("balanced", "pulls", "rounds"))]
    assert [row.name for row in found.methods] == names  # n0, q and quiet are set
    assert found["fed-sel"].bounds.period == 10
    assert found["fisher (pulls)"].at_budget.budget == 900
    assert scenario.options == options
    assert ba.plan(scenario, trials=50, quick=True, workers=1, delta=0.1, budget=500).budget == 500


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"delta": 2.0}, "delta"),
        ({"budget": 0}, "budget"),
        ({"methods": []}, "methods"),
        ({"methods": ["fishr"]}, "Did you mean"),
        ({"methods": ["fisher"], "period": 10}, "period"),
        ({"trials": 0}, "trials"),
        ({"seed": -1}, "seed"),
    ],
)
def test_invalid_input_of_a_plan_is_refused(keys, message):
    with pytest.raises(ba.InputError, match=message):
        ba.plan(ba.Problem.bernoulli(EASY), **{"delta": 0.1, "trials": 10, **keys})


@pytest.mark.slow
def test_a_plan_from_guessed_gaps_states_what_it_assumed():
    gaps = {"north": [0, 0.2], "south": [0.3]}
    found = ba.plan(gaps, delta=0.1, trials=100, seed=1, quick=True, workers=1)
    assert "0/1 rewards were assumed, with 0.5 as the mean" in found.assumption
    same = ba.plan(ba.problem_from_gaps(gaps), delta=0.1, trials=100, seed=1, quick=True, workers=1)
    assert same.assumption == ""
    assert same["fisher (pulls)"].cost == found["fisher (pulls)"].cost
    # The variance is largest at 0.5: the same gaps elsewhere are cheaper.
    other = ba.plan(
        ba.problem_from_gaps(gaps, best=0.95), delta=0.1, trials=400, seed=1, quick=True, workers=1
    )
    assert other["fisher (pulls)"].cost.pulls.mean < found["fisher (pulls)"].cost.pulls.mean


@pytest.mark.parametrize(
    ("gaps", "best", "message"),
    [
        ({}, 0.5, "does not describe gaps"),
        ({"a": [0.1]}, 0.5, "0 of the gaps are 0"),
        ({"a": [0, 0.1], "b": [0]}, 0.5, "2 of the gaps"),
        ({"a": [0, 0.6]}, 0.5, "from 0 to 0.5"),
        ({"a": [0, -0.1]}, 0.5, "can't be used"),
        ({"a": 0.1}, 0.5, "not a list of gaps"),
        ({"a": [0, 0.1]}, 1.5, "best = 1.5"),
    ],
)
def test_invalid_gaps_are_refused(gaps, best, message):
    with pytest.raises(ba.InputError, match=message):
        ba.problem_from_gaps(gaps, best)


@pytest.mark.slow
def test_a_schedule_decides_in_two_rounds_where_the_default_does_not():
    problem = ba.Problem.paper_instance(3)
    found = ba.schedule(problem, max_rounds=2, delta=0.1, trials=400, seed=1, workers=1)
    default = ba.study(problem, "fisher", trials=400, seed=1, delta=0.1, max_rounds=2, workers=1)
    assert (default["status"] == "identified").mean() < 0.05
    assert found.probability > 0.95
    trials = 2000
    runs = ba.study(
        problem, found.method, trials=trials, seed=77, delta=0.1, max_rounds=2, workers=1, **found.options
    )
    assert runs["rounds"].max() <= 2
    undecided = int((runs["status"] != "identified").sum())
    assert not rate_exceeds(undecided, trials, 1 - found.interval[0])
    wrong = int(((runs["status"] == "identified") & (runs["correct"] == False)).sum())  # noqa: E712
    assert not rate_exceeds(wrong, trials, 0.1)
    assert "heuristic" in found.note
    assert f"best of {found.tried} schedules" in found.note
    assert "at most delta" in found.note


@pytest.mark.parametrize("methods", slow_but([["fisher"]], [["fisher"], None]))
def test_a_schedule_keeps_to_bits_and_to_pulls(methods):
    problem = ba.Problem.bernoulli([[0.9, 0.5], [0.7, 0.3]])
    keys = {"max_bits": 60, "delta": 0.1, "seed": 1, "methods": methods, "workers": 1}
    found = ba.schedule(problem, trials=400, budget=2000, **keys)
    assert found.probability > 0.9
    runs = ba.study(
        problem, found.method, trials=1000, seed=7, delta=0.1, budget=2000, workers=1, **found.options
    )
    assert runs["pulls_max"].max() <= 2000
    fits = (runs["status"] == "identified") & (runs["bits_up"] + runs["bits_down"] <= 60)
    assert not rate_exceeds(int((~fits).sum()), 1000, 1 - found.interval[0])
    poor = ba.schedule(problem, trials=100, budget=40, **keys)
    assert poor.probability < 0.2


def test_fed_sel_s_schedule_trades_pulls_for_rounds():
    """σ = 7 takes some 700 rounds at the default period; with a longer first period, 2 are enough."""
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.8, 0.7]])
    found = ba.schedule(problem, max_rounds=2, delta=0.1, trials=100, seed=1, methods=["fed-sel"], workers=1)
    plain = ba.study(problem, "fed-sel", trials=100, seed=1, delta=0.1, max_rounds=2, workers=1)
    assert (plain["status"] == "identified").mean() < 0.5
    assert found.method == "fed-sel"
    assert found.probability > 0.95
    assert found.options["period"] > 100


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "no communication budget"),
        ({"max_bits": 0}, "max_bits"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"max_rounds": 3, "perod": 5}, "perod"),
    ],
)
def test_invalid_input_of_a_schedule_is_refused(keys, message):
    with pytest.raises(ba.InputError, match=message):
        ba.schedule(ba.Problem.bernoulli(EASY), delta=0.1, trials=10, seed=1, **keys)
    tied = ba.Problem.bernoulli([[0.9, 0.9]])
    with pytest.raises(ba.InputError, match="never end"):
        ba.schedule(tied, delta=0.1, trials=10, seed=1, max_rounds=3)


@pytest.mark.slow
def test_every_method_that_can_serve_the_problem_is_planned():
    groups = {"a": {"x": 0.95, "y": 0.1}, "b": {"z": 0.5, "w": 0.05}}
    problem = ba.Problem.from_rewards(groups, clients=3)
    edges = [(a, b) for a in range(6) for b in range(6) if a != b]
    network = Network(ba.Graph.from_edges(6, edges))
    liars = [ba.Adversary("b", "promote", ("b-2",))]
    scenario = ba.Scenario(problem, None, 3, {"byzantine": 1, "exchange": "intervals"}, liars, network)
    found = ba.plan(scenario, trials=60, budget=40_000, workers=1)
    assert {row.method for row in found.methods} == {"robust-fed-sel", "fisher", "bet", "p2p"}
    assert list(found.left_out) == ["fed-sel"]
    for row in found.methods:
        assert row.trials == (60 if row.method == "bet" else 50)  # only Fed-Bet has a kernel for this attack
        assert row.cost.decided == row.at_budget.decided == 1
        assert row.enough.decided >= 0.95
        # The range holds 90 % of the runs. Where costs grow block by block, 95 % may need one block more.
        most = 1.05 if row.method != "bet" else 1.05 * Blocks(ba.Bet(**row.options)).q
        assert row.enough.budget <= most * row.cost.longest.high
    assert found["p2p"].cost.bits_up.mean > 0
    runs = fresh(scenario, found["robust-fed-sel"], 50)
    assert found["robust-fed-sel"].cost.pulls.mean == pytest.approx(runs["pulls_total"].mean(), rel=0.1)


def test_recorded_rewards_are_planned_with_their_own_means():
    rows = {kind: {"kind": kind, "values": [0, 0, 1, 1, 1]} for kind in ("recording", "table")}
    found = {
        kind: ba.plan(
            ba.Problem.from_rewards({"a": {"x": arm}, "b": {"y": 0.1}}),
            methods=["fisher"], trials=20, seed=1, quick=True, workers=1,
        )
        for kind, arm in rows.items()
    }  # fmt: skip
    assert found["recording"].methods == found["table"].methods
    assert "no recording runs out" in found["recording"].assumption
    assert found["table"].assumption == ""
    unknown = ba.Problem.from_rewards({"a": {"x": lambda rng: rng.random()}, "b": {"y": 0.1}})
    with pytest.raises(ba.InputError, match="--gaps"):
        ba.plan(unknown, trials=2)


def test_a_method_without_epsilon_is_not_advised_to_use_it():
    tied = ba.Problem.bernoulli([[0.9, 0.9], [0.3, 0.2]], clients=3)
    found = ba.plan(tied, delta=0.1, trials=10, seed=1, methods=["robust-fed-sel"], workers=1)
    assert found["robust-fed-sel"].cost is None
    assert not any("epsilon = " in text for text in found.advice)


def test_a_method_without_plan_facts_is_planned_too(monkeypatch):
    plain = dataclasses.replace(METHODS["fisher"], plan=PlanFacts())
    monkeypatch.setitem(METHODS, "fisher", plain)
    problem = ba.Problem.bernoulli(EASY)
    found = ba.plan(problem, delta=0.1, trials=300, seed=1, workers=1, methods=["fisher"])
    row = found["fisher"]  # without variants
    assert row.cost.decided == 1
    assert row.enough.decided >= 0.95
    assert row.bounds is None
    with pytest.raises(ba.InputError, match="no method can be tried"):
        ba.schedule(problem, max_rounds=3, delta=0.1, trials=10, seed=1, methods=["fisher"])


def test_robust_fed_sel_is_omitted_where_it_equals_fed_sel():
    found = ba.plan(ba.Problem.bernoulli(EASY), delta=0.1, trials=5, seed=1, quick=True, workers=1)
    assert found.left_out["robust-fed-sel"] == "with one client per group it is fed-sel."
