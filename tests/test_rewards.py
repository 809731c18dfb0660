"""Every reward model keeps one contract: sums of m draws, exact in law, seeded, inside [0, m]."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.errors import InputError
from bestarm.rewards import (
    Bernoulli,
    Beta,
    Function,
    Recording,
    Scale,
    Table,
    build,
    from_spec,
    stream,
    tabulate,
)
from stats import FALSE_ALARM, laws_differ

MODELS = {
    "bernoulli": Bernoulli(0.3),
    "always": Bernoulli(1.0),
    "never": Bernoulli(0.0),
    "table": Table((0.0, 0.25, 1.0), (3.0, 2.0, 5.0)),
    "unsorted table": Table((1.0, 0.0, 0.5), (1.0, 1.0, 2.0)),
    "table of 0 and 1": Table((0.0, 1.0), (1.0, 3.0)),
    "beta": Beta(2.0, 5.0),
    "beta on a part": Beta(0.5, 0.5, 0.25, 0.5),
    "function": Function(lambda rng: rng.random(), mean=0.5),
    "batch function": Function(lambda rng, m: rng.random(m) < 0.2, mean=0.2, binary=True, batch=True),
    "function on another scale": Function(lambda rng: rng.uniform(10, 30), mean=0.5, low=10, high=30),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


@every_model
def test_the_same_stream_gives_the_same_sums(model):
    a = [float(model.sums(stream(5, 1, 2), m)) for m in (1, 3, 1000)]
    b = [float(model.sums(stream(5, 1, 2), m)) for m in (1, 3, 1000)]
    assert a == b


@every_model
def test_sums_lie_between_nothing_and_everything(model):
    times = np.array([0, 1, 2, 7, 70_000])
    sums = model.sums(np.random.default_rng(1), times)
    assert sums.shape == times.shape
    assert sums[0] == 0
    assert ((sums >= 0) & (sums <= times)).all()
    if model.binary:
        assert (sums == np.floor(sums)).all()


@every_model
def test_a_batch_has_the_law_of_single_draws(model):
    """Null: a batch's sum and the sum of single draws have one law (KS, 1e-6, n = 3000 each).

    Power: for a bell-shaped law a shift by a quarter of a standard deviation is found in 0.99 of cases.
    """
    m, n = 6, 3000
    rng = np.random.default_rng(2)
    batched = model.sums(rng, np.full(n, m))
    single = model.sums(rng, np.ones((n, m), dtype=np.int64)).sum(axis=1)
    assert not laws_differ(batched, single)


@every_model
def test_the_mean_is_the_mean(model):
    """Null: sums/m average to `mean`; Hoeffding's inequality at 1e-6."""
    m = 200_000
    off = abs(float(model.sums(np.random.default_rng(3), m)) / m - model.mean)
    assert off <= np.sqrt(np.log(2 / FALSE_ALARM) / (2 * m))


@every_model
def test_what_a_record_keeps_of_it_builds_it_again(model):
    spec = model.spec()
    if isinstance(model, Function):
        assert spec is None
    else:
        assert from_spec(spec) == model


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_recording_is_played_once_in_order(times):
    model = Recording((0.5, 0.25, 1.0, 0.0, 0.0, 1.0))
    rng = np.random.default_rng(0)
    assert float(model.sums(rng, times, 1)) == sum((0.25, 1.0, 0.0, 0.0, 1.0)[:times])
    assert model.limit == 6
    assert model.mean is None


@pytest.mark.parametrize("seed", range(20))
def test_a_recording_s_sums_stay_in_range_and_can_be_split(seed):
    rng = np.random.default_rng(seed)
    model = Recording(tuple(rng.choice([0.0, 1.0, 0.1, 1 / 3, rng.random()], 400).tolist()))
    for start in range(0, 390, 7):
        parts = model.sums(rng, np.array([1, 5, 10]), start)
        assert ((parts >= 0) & (parts <= [1, 5, 10])).all()
    assert from_spec(model.spec()) == model


def test_rounding_does_not_carry_a_beta_sum_out_of_range():
    model = Beta(1e300, 1.0, 0.1, 1.0)
    sums = model.sums(np.random.default_rng(0), np.array([3, 10, 1000, 4097]))
    assert (sums <= [3, 10, 1000, 4097]).all()


def test_streams_of_clients_and_arms_differ():
    first = {float(stream(7, c, a).random()) for c in range(20) for a in range(20)}
    assert len(first) == 400


def test_a_billion_draws_cost_one_draw():
    assert abs(float(Bernoulli(0.5).sums(stream(1, 0, 0), 10**15)) / 10**15 - 0.5) < 1e-6


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (1.4, "outside"),
        (float("nan"), "not a finite number"),
        ("high", "describes no arm"),
        (True, "describes no arm"),
        ({"kind": "gauss"}, "unknown"),
        ({"kind": ["beta"]}, "unknown"),
        (10**400, "not a finite number"),
        ({"kind": "beta", "a": 1}, '"b" is missing'),
        ({"kind": "beta", "a": 1, "b": -1}, "positive"),
        ({"kind": "beta", "a": 1, "b": 1, "sigma": 3}, '"sigma" is unknown'),
        ({"kind": "table", "values": []}, "not a list of numbers"),
        ({"kind": "table", "values": [0.5], "weights": [1, 2]}, "2 weights for 1 values"),
        ({"kind": "table", "values": [0.5], "weights": [-1]}, "not negative"),
        ({"kind": "table", "values": [3]}, "outside"),
        ({"kind": "recording", "values": [0.5, "x"]}, "not a finite number"),
    ],
)
def test_what_describes_no_arm_is_refused(reward, message):
    with pytest.raises(InputError, match=message):
        build(reward)


@pytest.mark.parametrize("bad", [lambda rng: 2.0, lambda rng: float("nan"), lambda rng: -0.1])
def test_a_function_s_reward_outside_the_range_is_refused(bad):
    with pytest.raises(InputError, match="a reward function gave"):
        Function(bad).sums(np.random.default_rng(0), 3)


def test_a_function_that_gives_too_few_rewards_is_refused():
    with pytest.raises(InputError, match="a flat sequence"):
        Function(lambda rng, m: np.zeros(m - 1), batch=True).sums(np.random.default_rng(0), 3)


def test_a_function_declared_binary_must_be():
    with pytest.raises(InputError, match="binary"):
        Function(lambda rng: 0.5, binary=True).sums(np.random.default_rng(0), 1)


def test_a_function_is_held_to_its_own_group_s_bounds():
    problem = ba.Problem.from_rewards(
        {"x": {"a": lambda rng: 3.0}, "y": {"b": 2.0}}, bounds={"x": (0.0, 1.0), "y": (0.0, 5.0)}
    )
    with pytest.raises(InputError, match=r"3\.0.*\[0\.0, 1\.0\]"):
        ba.identify(problem, "fed-sel", seed=1)


def test_goal_min_turns_rewards_round_and_back():
    scale = Scale(0.0, 1000.0, goal="min")
    slow = build({"kind": "table", "values": [100, 300]}, (0.0, 1000.0), scale)
    assert slow.mean == pytest.approx(0.8)
    assert scale.user(slow.mean) == pytest.approx(200.0)
    flipped = build({"kind": "beta", "a": 2, "b": 6}, (0.0, 1000.0), scale)
    assert scale.user(flipped.mean) == pytest.approx(250.0)


def test_groups_with_narrower_bounds_are_compared_on_the_common_scale():
    common = Scale(0.0, 10.0)
    model = build(3.0, (2.0, 4.0), common)
    assert model == Table((0.2, 0.4), (0.5, 0.5))
    assert common.user(model.mean) == pytest.approx(3.0)


def test_equal_values_are_put_together():
    assert tabulate([0.5, 0.5, 0.0], [1, 2, 3]) == Table((0.0, 0.5), (3.0, 3.0))
