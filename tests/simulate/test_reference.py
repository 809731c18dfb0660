"""Fed-SEL on the paper's instance agrees with reference runs by other code (methods/fed_sel/reference.py)."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.stats.radii import radius
from marking import slow_but
from methods.fed_sel.reference import REFERENCE, TRIALS, Stream, fed_sel
from methods.fed_sel.transcription import algorithm_1, algorithm_2, alpha_of


@pytest.mark.parametrize("seed", range(6))
def test_the_reference_is_algorithm_2_pull_by_pull(seed):
    rng = np.random.default_rng(seed)
    rewards = [
        (rng.random((40_000, 1 + len(rest))) < [top, *rest]).astype(float)
        for top, rest in zip(
            rng.permutation([0.95, 0.65, 0.35]), ([0.1], [0.05, 0.15], [0.02, 0.1]), strict=True
        )
    ]
    expected = algorithm_2(rewards, delta=0.2, c=4.0, period=64)
    local = [algorithm_1(r, alpha_of(3, r.shape[1], 0.2), 4.0) for r in rewards]
    assert fed_sel([Stream(r) for r in rewards], delta=0.2, c=4.0, period=64) == (
        expected.client,
        expected.rounds,
        sum(found.epoch + sum(epoch for _, epoch in found.exits) for found in local),
        sum(64 * (len(means) - 1) for means in expected.means),
    )


@pytest.mark.parametrize("sigma", slow_but([1], REFERENCE))
def test_means_agree_with_the_reference(sigma):
    """Null: same means; the bound of 5 standard errors is passed by chance with probability 6e-7."""
    trials = 40 if sigma == 3 else 20
    problem = ba.Problem.paper_instance(sigma)
    records = [ba.identify(problem, "fed-sel", delta=0.1, seed=1000 + i) for i in range(trials)]
    assert all(record.verdict.arm == "g1/a1" for record in records)
    found = np.array([[r.rounds, r.pulls.phase1, r.pulls.phase2] for r in records], dtype=float)
    for column, (mean, sd) in zip(found.T, REFERENCE[sigma], strict=True):
        assert abs(column.mean() - mean) <= 5 * sd * np.sqrt(1 / trials + 1 / TRIALS)


@pytest.mark.slow
def test_doubling_the_period_halves_the_rounds_of_phase_2():
    problem = ba.Problem.paper_instance(15)
    rounds = {
        period: np.mean(
            [ba.identify(problem, "fed-sel", delta=0.1, period=period, seed=s).rounds for s in range(4)]
        )
        for period in (100, 200, 400)
    }
    for period in (100, 200):
        assert 0.45 <= (rounds[2 * period] - 1) / (rounds[period] - 1) <= 0.55


@pytest.mark.parametrize("seed", range(30))
def test_corollary_1_one_round_on_the_good_event_where_all_indices_are_at_most_1(seed):
    """Random problems with σ_i1 ≤ 1 and σ_1i ≤ 1 for all i, of different arm counts."""
    rng = np.random.default_rng(seed)
    best = rng.uniform(0.75, 0.95)
    means = [[best]]
    gaps = []
    for _ in range(int(rng.integers(1, 4))):
        gap = rng.uniform(0.25, 0.5)
        gaps.append(gap)
        top = best - gap
        inner = rng.uniform(0.5, 1.0) * min(gap, top)
        means.append([top, *(top - inner - rng.random(int(rng.integers(1, 3))) * (top - inner))])
    means[0].append(best - rng.uniform(0.5, 1.0) * min(gaps))
    record = ba.identify(ba.Problem.bernoulli(means), "fed-sel", delta=0.1, seed=seed)
    assert record.good_event
    assert record.rounds == 1
    assert record.verdict.arm == "g1/a1"


def test_phase_1_ends_where_the_corrected_lemma_3_says():
    """On the good event α(t̄) ≤ Δ*/(c−2); the paper's own step α(t̄) ≤ Δ*/8 is false about half the time."""
    r = radius("paper", 3, 3, 0.1)
    printed = 0
    for seed in range(12):
        record = ba.identify(ba.Problem.paper_instance(1), "fed-sel", delta=0.1, seed=seed)
        assert record.good_event
        gaps = (0.05, 0.05, 0.1)
        for count, gap in zip(record.verdict.certificate["server"]["rounds"][0]["count"], gaps, strict=True):
            assert gap / 10 <= r.alpha(count - 1)
            assert r.alpha(count) <= gap / 6 * (1 + 1e-12)
            printed += bool(r.alpha(count) <= gap / 8)
    assert 0 < printed < 36


def test_a_run_at_sigma_1_takes_at_most_1500_batches():
    from bestarm.methods import fed_sel
    from bestarm.protocol.events import Pulled

    batches = 0
    original = fed_sel.Client.handle

    def counting(self, event):
        nonlocal batches
        batches += isinstance(event, Pulled)
        return original(self, event)

    fed_sel.Client.handle = counting
    try:
        record = ba.identify(ba.Problem.paper_instance(1), "fed-sel", delta=0.1, seed=2)
    finally:
        fed_sel.Client.handle = original
    assert record.pulls.total > 3_000_000
    assert 100 < batches <= 1500
