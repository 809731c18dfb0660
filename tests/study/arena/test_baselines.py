"""Baselines: a kernel makes the pulls of a plain transcription, counts honestly, keeps δ where proved."""

from __future__ import annotations

import numpy as np
import plain_baselines as plain
import pytest
from scipy.stats import binom

import bestarm as ba
from bestarm.problem.instances import OVERALL
from bestarm.stats.intervals import binomial_interval
from bestarm.stats.limit import kl
from bestarm.study.arena.bandit import Bandit
from bestarm.study.arena.baselines import BASELINES
from bestarm.study.arena.baselines.batched import next_batch
from bestarm.study.arena.baselines.lil_ucb import inner_level
from bestarm.study.arena.baselines.lucb import kl_bound, rate
from bestarm.study.arena.baselines.track_and_stop import Shares

PROVED = [name for name, baseline in BASELINES.items() if baseline.proof]
SEQUENTIAL = ["round-robin", "lucb", "kl-lucb", "lil-ucb", "lil-ucb-heuristic", "track-and-stop", "top-two"]
SMALL = ba.Problem.bernoulli([[0.7, 0.4], [0.3]])
CREW = ba.Problem.from_rewards({"crew": {"a": 0.7, "b": 0.4, "c": 0.3}}, clients=4)
SHARED = ba.Problem.from_rewards(
    {f"s{j}": {"a": 0.7 + x, "b": 0.5 - x} for j, x in enumerate((-0.1, 0, 0.1))}
)


TINY = (0.1, 1e-15, 1e-30, 1e-100)


def run(name, problem, trials=200, delta=0.1, seed=1, question="anywhere", most=10**6):
    baseline = BASELINES[name]
    bandit = Bandit(problem.coined() if baseline.coins else problem, question)
    return baseline.kernel(bandit, delta, np.random.default_rng(seed), trials, most)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *[
            (name, 2)
            for name in ("elimination", "lucb", "kl-lucb", "lil-ucb-heuristic", "round-robin", "tri-bbai")
        ],
        *[
            pytest.param(name, 1, marks=SLOW)
            for name in ("elimination", "lucb", "kl-lucb", "lil-ucb", "lil-ucb-heuristic", "round-robin")
        ],
        *[pytest.param("track-and-stop", seed, marks=SLOW) for seed in (1, 2)],
        *[("tri-bbai", seed) for seed in (1, 3, 4, 5)],
    ],
)
def test_a_kernel_makes_the_pulls_of_a_plain_transcription_on_the_same_rewards(name, seed):
    means = [0.95, 0.3, 0.2] if name == "track-and-stop" else [0.7, 0.5, 0.2, 0.4]
    bandit, rewards = plain.told(means, seed)
    columns = BASELINES[name].kernel(bandit, 0.1, np.random.default_rng(0), 1, 10**6).columns()
    answer, pulls = getattr(plain, name.replace("-", "_"))(rewards, 0.1)
    assert (columns["arm"][0], columns["pulls_total"][0]) == (f"g1/a{answer + 1}", pulls)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_top_two_makes_the_pulls_of_a_plain_transcription_with_the_same_draws(seed):
    bandit, rewards = plain.told([0.7, 0.5, 0.2, 0.4], seed)
    columns = BASELINES["top-two"].kernel(bandit, 0.1, np.random.default_rng(9), 1, 10**6).columns()
    answer, pulls = plain.top_two(rewards, 0.1, np.random.default_rng(9))
    assert (columns["arm"][0], columns["pulls_total"][0]) == (f"g1/a{answer + 1}", pulls)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=SLOW) if n in ("track-and-stop", "top-two", "kl-lucb", "lucb") else n
        for n in PROVED
    ],
)
def test_a_baseline_with_a_proof_is_wrong_no_more_often_than_delta(name):
    """H0: an error has probability at most 0.3; false alarm below 1e-6; 0.45 is found with 99 % power."""
    means = {"a": 0.65, "b": 0.5, "c": 0.5}
    one_site = bool(BASELINES[name].refuse(Bandit(SMALL)))
    sites = {"crew": means} if one_site else {"s1": {"a": 0.65}, "s2": {"b": 0.5, "c": 0.5}}
    problem = ba.Problem.from_rewards(sites, clients=3 if one_site else 1)
    answers = run(name, problem, trials=600, delta=0.3, seed=5).columns()["arm"]
    wrong = int((answers != problem.best).sum())
    assert binomial_interval(wrong, 600, 1 - 2e-6)[0] <= 0.3


def test_the_test_above_can_fail():
    """A rule that names a random option among three is found out, with a false alarm of 1e-6."""
    wrong = int(binom.ppf(0.001, 600, 2 / 3))
    assert binomial_interval(wrong, 600, 1 - 2e-6)[0] > 0.3


@pytest.mark.parametrize("name", list(BASELINES))
def test_every_baseline_finds_the_best_option_and_repeats_itself(name):
    problem = SMALL if not BASELINES[name].refuse(Bandit(SMALL)) else CREW
    first, second = (run(name, problem, trials=30, seed=3).columns() for _ in range(2))
    assert (first["status"] == "identified").all()
    assert (first["arm"] == problem.best).mean() > 0.8
    for column, values in first.items():
        assert (values == second[column]).all(), column
    for cost in ("rounds", "time", "pulls_total", "pulls_max", "bits_up", "bits_down"):
        assert (first[cost] > 0).all(), cost
    assert (first["time"] >= first["pulls_max"]).all(), "a client makes one pull per step"
    assert (first["pulls_max"] <= first["pulls_total"]).all()


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_central_baseline_pays_a_message_for_every_pull(name):
    columns = run(name, SMALL, trials=20).columns()
    assert (columns["bits_up"] == columns["pulls_total"]).all(), "a bit up per 0/1 reward"
    assert (columns["bits_down"] == 2 * (columns["pulls_total"] + 1)).all(), (
        "two bits name one of three options"
    )
    stars = ba.Problem.from_rewards({"s": {"a": {"kind": "beta", "a": 8, "b": 2}, "b": 0.2}})
    paid = run(name, stars, trials=3).columns()
    each = 1 if BASELINES[name].coins else 64
    assert (paid["bits_up"] == each * paid["pulls_total"]).all()


@pytest.mark.parametrize("name", [name for name, b in BASELINES.items() if OVERALL in b.questions])
def test_the_answer_to_overall_is_the_option_with_the_best_average(name):
    columns = run(name, SHARED, trials=25, question=OVERALL).columns()
    assert set(columns["arm"]) == {"a"}
    assert (columns["pulls_max"] * 3 >= columns["pulls_total"]).all()


@pytest.mark.parametrize("name", list(BASELINES))
def test_a_run_that_would_make_too_many_pulls_ends_undecided(name):
    hard = {"a": 0.501, "b": 0.5}
    problem = ba.Problem.from_rewards({"crew": hard}, clients=2)
    columns = run(name, problem, trials=5, delta=1e-6, most=2000).columns()
    assert (columns["status"] == "undecided").all()
    assert (columns["pulls_total"] <= 2000).all()
    assert set(columns["arm"]) == {None}
    assert set(columns["reason"]) == {"budget"}


def test_pulls_of_an_overall_question_are_spread_over_the_sites_at_random():
    """H0: each site has a third of the pulls; false alarm below 1e-6."""
    bandit = Bandit(SHARED, OVERALL)
    sums, load = bandit.batch(np.random.default_rng(1), np.full((1, 2), 30_000))
    span = binom.interval(1 - 1e-7, 60_000, 1 / 3)
    assert all(span[0] <= pulls <= span[1] for pulls in load[0])
    span = binom.interval(1 - 1e-7, 30_000, 0.7)
    assert span[0] <= sums[0, 0] <= span[1]


def test_the_sites_of_pulls_follow_from_their_rewards():
    sure = ba.Problem.from_rewards({"s1": {"a": 1.0, "b": 0.0}, "s2": {"a": 0.0, "b": 1.0}})
    bandit, rng = Bandit(sure, OVERALL), np.random.default_rng(1)
    load = bandit.sites_of(rng, np.array([[10, 6]]), np.array([[7.0, 2.0]]))
    assert load.tolist() == [[7 + 4, 3 + 2]], "only the first site pays for a, only the second for b"
    assert Bandit(SMALL).sites_of(rng, np.array([[5, 4, 3]]), np.zeros((1, 3))).tolist() == [[9, 3]]


@pytest.mark.parametrize("name", [name for name, b in BASELINES.items() if OVERALL in b.questions])
def test_an_option_may_pay_always_or_never_at_every_site(name):
    sure = ba.Problem.from_rewards({f"s{j}": {"always": 1.0, "never": 0.0, "half": 0.5} for j in range(3)})
    columns = run(name, sure, trials=10, question=OVERALL).columns()
    assert set(columns["arm"]) == {"always"}
    assert (columns["pulls_max"] * 3 >= columns["pulls_total"]).all()


def test_the_rate_of_kl_lucb_is_summable_and_below_that_of_its_paper():
    n = np.arange(1.0, 1e6)
    spent = np.exp(-rate(n, 10, 0.1)).sum() + 1e-2 / 11 * 10 * 1e6**-0.1  # the tail, by an integral
    assert spent <= 0.1 / 10
    paper = np.log(405.5 * 10 * n**1.1 / 0.1)
    assert (rate(n, 10, 0.1) < paper + np.log(paper)).all(), "an arm has at most t pulls in round t"


def test_kl_bounds_are_roots_of_kl_and_right_at_the_ends():
    rng = np.random.default_rng(2)
    mean, level = rng.random(2000), 3 * rng.random(2000) ** 2 + 1e-6
    for upper in (True, False):
        q = kl_bound(mean, level, upper)
        inside = (q > 1e-6) & (q < 1 - 1e-6)
        assert np.allclose(kl(mean, q)[inside], level[inside], rtol=1e-6)
        assert ((q >= mean) if upper else (q <= mean)).all()
    assert kl_bound(np.array([1.0]), np.array([0.3]), True)[0] == 1.0
    assert kl_bound(np.array([0.0]), np.array([0.3]), False)[0] == 0.0


def test_optimal_shares_agree_with_those_of_the_limit():
    rng = np.random.default_rng(3)
    for arms in (2, 3, 9):
        means = rng.random((6, arms)).round(3)
        means = means[[len(set(row)) == arms for row in means.tolist()]]
        found = Shares(len(means), arms).solve(means, means.argmax(axis=1), np.arange(len(means)))
        for row, shares in zip(means, found, strict=True):
            known = ba.limit(ba.Problem.bernoulli([np.clip(row, 1e-9, 1 - 1e-9).tolist()]), 0.1).shares
            assert np.allclose(shares, list(known.values()), atol=1e-5)


def test_shares_that_follow_the_means_equal_shares_from_scratch():
    rng, shares = np.random.default_rng(4), Shares(30, 5)
    means = rng.random((30, 5))
    for _ in range(20):
        means = np.clip(means + rng.normal(0, 0.02, means.shape), 0.0, 1.0)
        best = means.argmax(axis=1)
        followed = shares.solve(means, best, np.arange(30))
        assert np.allclose(followed, Shares(30, 5).solve(means, best, np.arange(30)), atol=2e-5)


def test_a_further_batch_at_least_doubles_and_at_most_quadruples_the_pulls():
    n, sums = np.full((2, 3), 32), np.array([[30.0, 5.0, 4.0], [16.0, 16.0, 16.0]])
    batch = next_batch(n, sums, np.array([9.0, 9.0]))
    total = 96 + batch.sum(axis=1)
    assert (total >= 2 * 96).all()
    assert (total <= 4 * 96 + 2 * 96).all(), "pulls beyond an option's share are not taken back"
    assert (n + batch >= np.sqrt(2 * 96)).all()


@pytest.mark.parametrize("delta", [0.1, 1e-15, 1e-30, 1e-100])
def test_the_inner_level_of_lil_ucb_solves_the_equation_of_its_paper(delta):
    c = 2.01 / 0.01 * (1 / np.log(1.01)) ** 1.01
    inner = inner_level(delta, 0.01)
    assert 4 * np.sqrt(c * inner) + 4 * c * inner == pytest.approx(delta, rel=1e-9, abs=0)


@pytest.mark.parametrize("name", ["lil-ucb", "lil-ucb-heuristic"])
def test_lil_ucb_pulls_more_for_a_smaller_delta_even_if_it_is_tiny(name):
    pulls = [run(name, SMALL, trials=3, delta=delta).columns()["pulls_total"].min() for delta in TINY]
    assert pulls == sorted(pulls)
    assert pulls[-1] > 10 * pulls[0]


def test_tri_bbai_makes_three_batches_if_its_test_passes_and_four_if_not():
    easy = ba.Problem.bernoulli([[0.95, 0.1, 0.1]])
    rounds = run("tri-bbai", easy, trials=50).columns()["rounds"]
    assert set(rounds) <= {3, 4}
    assert (rounds == 3).mean() > 0.5
    hard = ba.Problem.bernoulli([[0.51, 0.5, 0.5]])
    assert (run("tri-bbai", hard, trials=50).columns()["rounds"] == 4).mean() > 0.5


def test_a_variant_of_ours_is_not_in_headline_tables():
    assert {name for name, b in BASELINES.items() if not b.headline} == {"batched"}
