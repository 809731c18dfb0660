"""The limit of the question "overall" for two options, against its definition on a grid and known cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import bestarm as ba
from bestarm.errors import InputError
from bestarm.stats.limit import kl
from bestarm.stats.overall_limit import fewest_pulls, least_load

HALF = np.array([0.5, -0.5, 0.5, -0.5])  # the contrast of two sites; cells: best, other, best, other
CASES = [(0.6, 0.4, 0.9, 0.8), (0.3, 0.5, 0.9, 0.4), (0.97, 0.9, 0.5, 0.52), (0.2, 0.1, 0.2, 0.15)]


def evidence(means, pulls):
    """The least Σ n·kl(μ, ν) over all means ν at which the best option is not ahead, by a general solver."""

    def cost(nu):
        return 1e3 * float(pulls @ kl(means, nu)), 1e3 * pulls * (nu - means) / (nu * (1 - nu))

    level = {"type": "ineq", "fun": lambda nu: -HALF @ nu, "jac": lambda nu: -HALF}
    start = means - HALF * (HALF @ means) / (HALF @ HALF)
    found = minimize(
        cost,
        np.clip(start, 0.01, 0.99),
        jac=True,
        method="SLSQP",
        bounds=[(1e-4, 1 - 1e-4)] * 4,
        constraints=[level],
        options={"ftol": 1e-9, "maxiter": 200},
    )
    return found.fun / 1e3


@pytest.mark.parametrize("case", CASES)
def test_no_shares_do_better_and_the_ideal_ones_reach_it(case):
    means = np.array(case)
    total, shares = fewest_pulls(means, HALF)
    assert evidence(means, shares) * total == pytest.approx(1.0, rel=1e-4)
    for other in np.random.default_rng(1).dirichlet(np.ones(4) * 3, 20):
        assert evidence(means, other) * total <= 1.0 + 1e-4


@pytest.mark.parametrize("case", CASES)
def test_no_split_within_clients_does_better_in_parallel_and_one_reaches_it(case):
    means = np.array(case)
    busiest = least_load(means, HALF, np.array([0, 0, 1, 1]))

    def lost(split):
        u, v = np.clip(split, 0.01, 0.99)
        return -evidence(means, np.array([u, 1 - u, v, 1 - v]))

    found = minimize(lost, [0.5, 0.5], method="Nelder-Mead", options={"xatol": 1e-3, "maxfev": 80})
    assert -found.fun * busiest == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("sites", [1, 2, 30])
def test_for_small_gaps_it_is_the_formula_of_neyman(sites):
    rng = np.random.default_rng(sites)
    weights, gap = rng.dirichlet(np.ones(sites)), 1e-4
    other = rng.uniform(0.1, 0.9, sites)
    best = other + gap
    means, contrast = np.concatenate([best, other]), np.concatenate([weights, -weights])
    total, shares = fewest_pulls(means, contrast)
    spread = np.abs(contrast) * np.sqrt(means * (1 - means))
    assert total == pytest.approx(2 * spread.sum() ** 2 / gap**2, rel=1e-3)
    np.testing.assert_allclose(shares, spread / spread.sum(), rtol=1e-2)
    clients = np.concatenate([np.arange(sites)] * 2)
    assert least_load(means, contrast, clients) * sites >= total * (1 - 1e-6)


def test_one_site_is_the_limit_of_two_arms_and_alike_sites_share_it():
    one = ba.Problem.from_rewards({"s": {"a": 0.6, "b": 0.45}})
    usual, overall = ba.limit(one, 0.05), ba.limit(one.asking("overall"), 0.05)
    assert overall.total == pytest.approx(usual.total)
    assert overall.longest == pytest.approx(usual.longest)
    assert overall.shares == pytest.approx(usual.shares)
    three = ba.Problem.from_rewards({f"s{j}": {"a": 0.6, "b": 0.45} for j in range(3)}).asking("overall")
    found = ba.limit(three, 0.05)
    assert found.total == pytest.approx(usual.total)
    assert found.longest == pytest.approx(usual.total / 3)
    several = ba.Problem.from_rewards({"s": {"a": 0.6, "b": 0.45}}, clients=3).asking("overall")
    assert ba.limit(several, 0.05).total == pytest.approx(usual.total)
    assert ba.limit(several, 0.05).shares == pytest.approx(usual.shares)


def test_cells_that_cannot_move_need_no_pulls():
    total, shares = fewest_pulls(np.array([0.0, 0.0, 0.9, 0.5]), HALF)
    assert shares[0] == 0.0
    assert 0 < total < 100
    assert 0 < least_load(np.array([0.0, 0.0, 0.9, 0.5]), HALF, np.array([0, 0, 1, 1])) < total


def test_options_that_some_sites_lack_have_a_limit_too():
    groups = {"US": {"A": 0.3, "B": 0.4}, "EU": {"A": 0.7}, "ASIA": {"B": 0.9}}
    found = ba.limit(ba.Problem.from_rewards(groups).asking("overall", missing_options="average"), 0.05)
    assert set(found.shares) == {"US/A", "US/B", "EU/A", "ASIA/B"}
    assert found.total / 3 <= found.longest <= found.total


def test_a_study_of_two_options_shows_the_limit_and_of_three_says_why_not():
    regions = {"US": {"A": 0.3, "B": 0.6}, "EU": {"A": 0.7, "B": 0.8}}
    trials = ba.study(ba.Problem.from_rewards(regions), question="overall", trials=50, seed=1, delta=0.05)
    (row,) = trials.summary()
    assert row["limit"]["total"] == ba.limit(ba.Problem.from_rewards(regions).asking("overall"), 0.05).total
    assert row["pulls_total"]["mean"] > row["limit"]["total"]
    three = {name: {**arms, "C": 0.1} for name, arms in regions.items()}
    (row,) = ba.study(ba.Problem.from_rewards(three), question="overall", trials=3, seed=1).summary()
    assert row["limit"] is None
    assert "two options, not 3" in row["no_limit"]


@pytest.mark.parametrize(
    ("groups", "keys", "words"),
    [
        ({"s": {"a": 0.5, "b": 0.4, "c": 0.1}}, {"question": "overall"}, "two options"),
        ({"s": {"a": 0.5, "b": 0.4}}, {"question": "each"}, "two options"),
        ({"s": {"a": 0.5, "b": 0.5}}, {"question": "overall"}, "not unique"),
    ],
)
def test_where_there_is_no_limit_the_error_says_why(groups, keys, words):
    with pytest.raises(InputError, match=words):
        ba.limit(ba.Problem.from_rewards(groups).asking(**keys), 0.05)
