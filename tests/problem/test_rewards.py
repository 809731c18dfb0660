"""Every reward model keeps one contract: sums of m draws, exact in law, seeded, inside [0, m]."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.errors import InputError
from bestarm.problem.coins import Coined
from bestarm.problem.moments import CHUNK, of_draws, of_values
from bestarm.problem.reward_specs import build, from_spec
from bestarm.problem.rewards import Bernoulli, Beta, Function, Recording, Table, Unknown, tabulate
from bestarm.problem.scale import Scale
from bestarm.util.seeds import stream
from rates import FALSE_ALARM, laws_differ

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
COINS = {
    "coins of a table": Coined(Table((0.0, 0.25, 1.0), (3.0, 2.0, 5.0))),
    "coins of a function": Coined(Function(lambda rng, m: rng.random(m), mean=0.5, batch=True)),
}
every_model_and_coins = pytest.mark.parametrize(
    "model", (MODELS | COINS).values(), ids=(MODELS | COINS).keys()
)


@every_model
def test_the_same_stream_gives_the_same_sums(model):
    a = [float(model.sums(stream(5, 1, 2), m)) for m in (1, 3, 1000)]
    b = [float(model.sums(stream(5, 1, 2), m)) for m in (1, 3, 1000)]
    assert a == b


@every_model
def test_the_sum_of_m_draws_is_between_0_and_m(model):
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


@every_model_and_coins
def test_moments_fit_together(model):
    times = np.array([[0, 1, 2], [7, CHUNK + 5, 3 * CHUNK]])
    found = model.moments(np.random.default_rng(1), times)
    assert found.shape == (2, 3, 4)
    assert found[0, 0].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert model.moments(np.random.default_rng(1), 0).tolist() == [0.0, 0.0, 1.0, 0.0]
    n = times.ravel()[1:]
    sums, squares, least, most = found.reshape(6, 4)[1:].T
    assert ((least >= 0) & (least <= most) & (most <= 1)).all()
    assert ((n * least <= sums) & (sums <= n * most)).all()
    assert (squares <= sums).all()
    assert (sums**2 <= n * squares * (1 + 1e-12)).all()
    assert sums[0] == least[0] == most[0]  # one draw
    if model.binary:
        assert (squares == sums).all()
        assert np.isin(found[..., 2:], (0.0, 1.0)).all()


@every_model_and_coins
def test_the_moments_of_m_draws_are_those_of_single_draws(model):
    """Null: sum, squares, least and most have the law of single draws (KS, 1e-6, n = 3000 each).

    Power: see the test above, for each of them.
    """
    m, n = 6, 3000
    rng = np.random.default_rng(4)
    found = model.moments(rng, np.full(n, m))
    x = model.sums(rng, np.ones((n, m), dtype=np.int64))
    for column, single in enumerate([x.sum(1), (x * x).sum(1), x.min(1), x.max(1)]):
        # Sums of the same rewards in another order are equal only up to rounding.
        assert not laws_differ(found[:, column].round(9), single.round(9))


def test_draws_are_dealt_to_the_entries_in_order_also_across_pieces():
    rng = np.random.default_rng(8)
    times = np.array([3, 0, CHUNK, 5, 2 * CHUNK - 4, 1, 0])
    values, given = rng.random(times.sum()), []

    def draw(m):
        given.append(m)
        first = sum(given[:-1])
        return values[first : first + m]

    found = of_draws(times, draw)
    parts = np.split(values, np.cumsum(times)[:-1])
    np.testing.assert_allclose(found, [of_values(part) for part in parts], rtol=1e-12)
    assert max(given) <= CHUNK
    assert sum(given) == times.sum()


@every_model
def test_a_reward_model_is_rebuilt_from_its_record(model):
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


def test_the_moments_of_a_recording_are_exact():
    model = Recording((0.5, 0.25, 1.0, 0.0, 0.0, 0.75))
    found = model.moments(np.random.default_rng(0), [0, 1, 2, 4], 1)
    assert found.tolist() == [
        [0, 0, 1, 0],
        [0.25, 0.0625, 0.25, 0.25],
        [1.25, 1.0625, 0.25, 1.0],
        [1.25, 1.0625, 0, 1],
    ]


def test_rewards_that_are_not_here_have_no_moments():
    with pytest.raises(AssertionError, match="nothing is drawn"):
        Unknown().moments(np.random.default_rng(0), 1)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e-160, 1.0])
def test_the_moments_of_equal_rewards_fit_together_despite_rounding(value):
    n = 100_003
    for model in (
        Table((value,), (1.0,)),
        Recording((value,) * n),
        Function(lambda rng, m: [value] * m, batch=True),
    ):
        total, squares, least, most = model.moments(np.random.default_rng(0), n).tolist()
        assert (total, least, most) == (n * value, value, value)
        assert squares == pytest.approx(n * value**2, rel=1e-9)


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


def test_a_very_large_batch_costs_one_draw():
    assert abs(float(Bernoulli(0.5).sums(stream(1, 0, 0), 10**15)) / 10**15 - 0.5) < 1e-6


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (1.4, "outside"),
        (float("nan"), "not a finite number"),
        ("high", "does not describe an arm"),
        (True, "does not describe an arm"),
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
def test_an_invalid_description_of_an_arm_is_refused(reward, message):
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


def test_goal_min_mirrors_rewards_and_back():
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


def test_equal_values_are_merged():
    assert tabulate([0.5, 0.5, 0.0], [1, 2, 3]) == Table((0.0, 0.5), (3.0, 3.0))
