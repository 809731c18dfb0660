"""Algorithm 1 in batches equals Algorithm 1 pull by pull, on every path and in law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm.methods.fed_sel.elimination import Elimination
from bestarm.stats.radii import radius
from methods.fed_sel.transcription import algorithm_1, alpha_of
from rates import laws_differ

HORIZON = 1500


def run_batched(machine: Elimination, rewards: np.ndarray, parts: np.random.Generator | None = None):
    """Feed a machine from fixed reward streams; `parts` makes some batches partial."""
    ends = np.vstack([np.zeros(rewards.shape[1]), np.cumsum(rewards, axis=0)])
    batches = 0
    while not machine.finished:
        asked = machine.batch()
        assert asked >= 1
        times = asked if parts is None else int(parts.integers(1, asked + 1))
        if machine.epoch + times > len(rewards):
            return batches
        arms = list(machine.arms)
        sums = ends[machine.epoch + times, arms] - ends[machine.epoch, arms]
        machine.absorb(tuple(sums), times)
        batches += 1
    return batches


@st.composite
def reward_streams(draw):
    """Streams with any means, drifting, in 0/1 or in steps of 1/64 (whose sums are exact)."""
    arms = draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pieces = draw(st.integers(1, 3))
    binary = draw(st.booleans())
    parts = []
    for _ in range(pieces):
        means = np.array(
            draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.52, 0.9, 1.0]), min_size=arms, max_size=arms))
        )
        noise = rng.random((HORIZON // pieces, arms))
        parts.append(noise < means if binary else np.round(64 * (0.5 * means + 0.5 * noise)) / 64)
    return np.vstack(parts).astype(float)


@settings(max_examples=150)
@given(
    reward_streams(),
    st.sampled_from([2.0, 2.5, 4.0, 8.0]),
    st.sampled_from([0.01, 0.5, 0.9]),
    st.integers(0, 3),
)
def test_every_elimination_happens_at_its_own_epoch(rewards, c, delta, partial):
    arms = rewards.shape[1]
    expected = algorithm_1(rewards, alpha_of(2, arms, delta), c)
    machine = Elimination(arms, radius("paper", 2, arms, delta), c)
    run_batched(machine, rewards, np.random.default_rng(partial) if partial else None)
    # A batch that would run past the end of the streams is not fed, so the machine may stop earlier.
    known = [e for e in expected.exits if e[1] <= machine.epoch]
    assert [(e.arm, e.epoch) for e in machine.exits] == known
    if machine.finished:
        assert (machine.best, machine.epoch) == (expected.arm, expected.epoch)


@pytest.mark.parametrize("seed", range(8))
def test_rewards_with_all_their_digits(seed):
    """For any float64 rewards, the order of addition may change the last bits of sums but no decision."""
    rng = np.random.default_rng(seed)
    rewards = rng.beta(2, 1 + 2 * np.arange(4), (6000, 4))
    expected = algorithm_1(rewards, alpha_of(2, 4, 0.5), 3.0)
    assert expected.arm is not None
    machine = Elimination(4, radius("paper", 2, 4, 0.5), 3.0)
    batches = run_batched(machine, rewards, rng if seed % 2 else None)
    assert machine.finished
    assert [(e.arm, e.epoch) for e in machine.exits] == expected.exits
    assert batches < expected.epoch / 4


@pytest.mark.slow
def test_a_run_in_batches_has_the_law_of_the_pull_by_pull_run():
    """Null: t̄ and pulls have one law in both (KS at 1e-6, 400 runs each).

    Power: for a bell-shaped law a shift by 0.6 standard deviations is found with probability 0.98.
    """
    means, delta, c = np.array([0.9, 0.6, 0.3]), 0.5, 2.0
    rng = np.random.default_rng(4)
    slow, fast = [], []
    for _ in range(400):
        rewards = (rng.random((3000, 3)) < means).astype(float)
        found = algorithm_1(rewards, alpha_of(2, 3, delta), c)
        slow.append((found.epoch, sum(t for _, t in found.exits)))
        machine = Elimination(3, radius("paper", 2, 3, delta), c)
        while not machine.finished:
            m = machine.batch()
            machine.absorb(tuple(float(rng.binomial(m, means[a])) for a in machine.arms), m)
        fast.append((machine.epoch, machine.pulls - machine.epoch))
    for column in (0, 1):
        assert not laws_differ(np.array(slow)[:, column], np.array(fast)[:, column])
    shifted = np.array(fast)[:, 0] + 0.6 * np.std(np.array(fast)[:, 0])
    assert laws_differ(np.array(slow)[:, 0], shifted)


def test_a_single_arm_is_sampled_until_its_count_is_plausible():
    r = radius("paper", 3, 1, 0.1)
    machine = Elimination(1, r, 8.0)
    assert machine.batch() == int(r.inverse(1 / 8)) == machine.least
    machine.absorb((0.5 * machine.least,), machine.least)
    assert machine.finished


def test_epsilon_ends_phase_1_when_the_radius_is_a_quarter_of_it():
    r = radius("paper", 2, 2, 0.1)
    machine = Elimination(2, r, 8.0, epsilon=0.2)
    while not machine.finished:
        m = machine.batch()
        machine.absorb((0.5 * m, 0.5 * m), m)
    assert machine.epoch == int(r.inverse(0.05))


def test_a_budget_ends_phase_1_before_the_first_epoch_it_cannot_pay_for():
    machine = Elimination(3, radius("paper", 2, 3, 0.1), 8.0, budget=1000)
    while not machine.exhausted:
        m = machine.batch()
        machine.absorb((0.5 * m,) * 3, m)
    assert machine.pulls == 999
    assert machine.batch() == 0
    assert not machine.finished
