"""Fed-SEL ends when clients run out of pulls or data, and gives up only if no arm can be named.

The rule and its proof are in docs/fed-sel-proofs.md under "Running out".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.problem.problem import Problem
from bestarm.protocol import decisions
from marking import examples

ROUNDS = 40  # widths halve: after this many, two random numbers are separated except in one case in 10¹⁰


@dataclass
class Race:
    """Groups with known means. A busy group's interval halves every round and always contains the mean."""

    mean: np.ndarray
    resolved: np.ndarray
    until: np.ndarray  # the round in which a group runs out of pulls
    width: np.ndarray
    rng: np.random.Generator
    round: int = 0

    @staticmethod
    def draw(seed: int) -> Race:
        rng = np.random.default_rng(seed)
        groups = int(rng.integers(1, 6))
        until = rng.choice([0, 0, 3, 8, 10**9], groups)
        resolved = (until > 0) | (rng.random(groups) < 0.5)
        return Race(rng.random(groups), resolved, until, rng.uniform(0.05, 1.5, groups), rng)

    def __post_init__(self) -> None:
        self.lower, self.upper = np.zeros(len(self.mean)), np.zeros(len(self.mean))
        self._look(np.ones(len(self.mean), dtype=bool))

    @property
    def spent(self) -> np.ndarray:
        return self.round >= self.until

    def _look(self, who: np.ndarray) -> None:
        below = self.rng.uniform(0.1, 0.9, len(self.mean)) * self.width
        self.lower = np.where(who, self.mean - below, self.lower)
        self.upper = np.where(who, self.mean - below + self.width, self.upper)

    def go_on(self) -> None:
        self.round += 1
        self.width = np.where(self.spent, self.width, self.width / 2.0)
        self._look(~self.spent)

    def nameable(self, active: np.ndarray, epsilon: float) -> list[int]:
        """The rule as stated: resolved, and no other reaches more than ε/2 above its lower bound."""
        there = np.flatnonzero(active)
        return [
            int(j)
            for j in there
            if self.resolved[j] and all(self.upper[g] <= self.lower[j] + epsilon / 2 for g in there if g != j)
        ]

    def close(self, active: np.ndarray, epsilon: float) -> tuple[np.ndarray, int, int]:
        stay, code, first = fed_sel_decisions.close_round(
            self.lower, self.upper, active, self.resolved, self.spent, epsilon=epsilon
        )
        return stay, int(code), int(first)


races = st.integers(0, 2**32).map(Race.draw)
epsilons = st.sampled_from([0.0, 0.0, 0.02, 0.2, 0.6])


@settings(max_examples=examples(1500))
@given(races, epsilons)
def test_every_race_ends_and_gives_up_only_where_no_arm_can_ever_be_named(race, epsilon):
    active = np.ones(len(race.mean), dtype=bool)
    for _ in range(ROUNDS):
        active, code, first = race.close(active, epsilon)
        assert (code == decisions.IDENTIFIED) == bool(race.nameable(active, epsilon))
        if code != decisions.GO_ON:
            break
        race.go_on()
    if code == decisions.IDENTIFIED:
        assert first == max(race.nameable(active, epsilon), key=lambda j: race.lower[j])
        assert race.mean[active].max() <= race.mean[first] + epsilon / 2
        assert epsilon or race.mean[first] == race.mean.max()
        return
    assert code == decisions.BUDGET
    while race.round < ROUNDS:  # had it continued, no arm would have been named
        race.go_on()
        active, _, _ = race.close(active, epsilon)
        assert race.nameable(active, epsilon) == []


def recording(p: float, rows: int, seed: int = 0) -> dict[str, object]:
    tossed = np.random.default_rng(seed).permutation(np.arange(rows) < p * rows)
    return {"kind": "recording", "values": tossed.astype(float).tolist()}


def test_a_recording_within_epsilon_is_named_although_another_lower_bound_is_larger():
    """Bernoulli(.3) soon has the larger lower bound, but can't reach more than ε/2 above the recording's."""
    problem = Problem.from_rewards({"site": {"a": recording(0.5, 800)}, "lab": {"b": 0.3}})
    record = ba.identify(problem, "fed-sel", seed=1, epsilon=0.4, period=10**6, max_rounds=50)
    assert record.verdict.arm == "site/a"
    assert record.rounds == 2
    last = record.verdict.certificate["server"]["rounds"][-1]
    assert last["lower"][1] > last["lower"][0]
    assert ba.verify(record, replay=True)


@pytest.mark.parametrize("best", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_a_site_that_ran_out_with_several_arms_left_does_not_keep_the_run_going_forever(best, epsilon):
    """The site can't be named: it is beaten, beats the others, or no decision is possible."""
    rows = {"a": recording(0.5, 800), "b": recording(0.5, 800, seed=1)}
    problem = Problem.from_rewards({"site": rows, "lab": {"c": best}})
    record = ba.identify(problem, "fed-sel", seed=1, epsilon=epsilon, period=10**6, max_rounds=50)
    expected = "lab/c" if best == 0.9 else None
    assert (record.verdict.arm, record.verdict.reason) == (expected, None if expected else "budget")
    assert ba.verify(record, replay=True)


def test_an_idle_group_blocked_by_two_others_for_different_reasons_ends_the_run():
    """Busy .5 is within ε/2 of the first group's lower bound; the second group, also idle, is not."""
    lower, upper = np.array([0.45, 0.10, 0.4999]), np.array([0.90, 0.80, 0.5001])
    spent, everyone = np.array([True, True, False]), np.ones(3, dtype=bool)
    for second in (True, False):
        resolved = np.array([True, second, True])
        stay, code, _ = fed_sel_decisions.close_round(lower, upper, everyone, resolved, spent, epsilon=0.2)
        assert stay.all()
        assert code == decisions.BUDGET


def sites(rng: np.random.Generator) -> Problem:
    """Sites with recordings of any length beside sites that can pull forever."""
    groups = {}
    for g in range(int(rng.integers(2, 4))):
        finite, rows = rng.random() < 0.6, int(rng.choice([1, 300, 800, 1500, 5000]))
        means = rng.uniform(0.05, 0.95, rng.integers(1, 3)).tolist()
        groups[f"g{g}"] = {
            f"a{a}": recording(mean, rows, seed=a) if finite else mean for a, mean in enumerate(means)
        }
    return Problem.from_rewards(groups)


@settings(max_examples=examples(120))
@given(st.integers(0, 2**32))
def test_every_run_ends_in_26_rounds_of_periods_that_double(seed):
    """By then radii are below 10⁻⁵, and no count has reached the maximum of 2⁵⁰."""
    rng = np.random.default_rng(seed)
    problem, epsilon, intersect = sites(rng), float(rng.choice([0.0, 0.1, 0.4, 0.4])), rng.random() < 0.5
    options = {
        "epsilon": epsilon, "c": float(rng.choice([2, 8])), "intersect": bool(intersect), "delta": 0.01,
        "budget": [None, None, None, 20_000, 10**8][rng.integers(5)],
    }  # fmt: skip
    record = ba.identify(
        problem, "fed-sel", seed=seed, period=10**5, period_growth=2.0, max_rounds=27, **options
    )
    assert record.verdict.reason in (None, "budget")
    assert record.rounds <= 26
    if record.good_event and record.verdict.arm:
        means = {f"{g}/{a}": m for g, row in problem_means(problem).items() for a, m in row.items()}
        assert means[record.verdict.arm] >= max(means.values()) - epsilon


def problem_means(problem):
    return {
        group.name: dict(zip(group.arms, means, strict=True))
        for group, means in zip(problem.layout.groups, problem.means, strict=True)
    }
