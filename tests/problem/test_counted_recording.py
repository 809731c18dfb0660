"""Counted recordings play every reward once, in an order that does not depend on the rewards."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import bestarm as ba
from bestarm.problem.counted_recording import CountedRecording
from bestarm.problem.reward_specs import build, from_spec
from bestarm.problem.scale import Scale

STARS = CountedRecording((0.0, 0.25, 1.0), (30, 0, 50), 2)


def test_every_reward_is_played_as_often_as_it_was_counted():
    assert STARS.limit == 80
    assert Counter(STARS.values) == {0.0: 30, 1.0: 50}
    rng = np.random.default_rng(1)
    assert float(STARS.sums(rng, 80)) == 50.0
    parts = [float(STARS.sums(rng, 20, start)) for start in (0, 20, 40, 60)]
    assert sum(parts) == 50.0
    assert parts == [sum(STARS.values[start : start + 20]) for start in (0, 20, 40, 60)]
    assert STARS.moments(rng, 80).tolist() == [50.0, 50.0, 0.0, 1.0]


def test_the_order_depends_on_its_number_and_the_number_of_rewards_alone():
    same = CountedRecording((0.0, 0.5, 1.0), (30, 0, 50), 2)
    assert same.values == STARS.values
    assert CountedRecording((0.0, 0.25, 1.0), (30, 0, 50), 3).values != STARS.values


def test_a_record_holds_counts_and_not_rows():
    arms = {
        "a": CountedRecording((0.0, 1.0), (100_000, 900_000)),
        "b": CountedRecording((0.0, 1.0), (900, 100)),
    }
    problem = ba.Problem.from_rewards({"g": arms})
    record = ba.identify(problem, seed=1)
    assert record.verdict.arm == "g/a"
    assert ba.verify(record, replay=True).failures == ()
    assert record.problem["groups"][0]["rewards"][0][0]["counts"] == [100_000, 900_000]
    assert from_spec(arms["a"].spec()) == arms["a"]


def test_scenario_files_may_count_values():
    arm = {"kind": "recording", "values": [1, 5], "counts": [3, 4]}
    assert build(arm, (1, 5), Scale(1, 5)) == CountedRecording((0.0, 1.0), (3, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": [1]},
        {"counts": [1.5, 2]},
        {"counts": [-1, 2]},
        {"order": 1},
        {"counts": [1, 2], "order": 0.5},
    ],
)
def test_counts_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ba.InputError):
        build({"kind": "recording", "values": [0, 1], **wrong})


def test_two_clients_can_t_play_the_same_counts():
    one = CountedRecording((0.0, 1.0), (500, 500))
    with pytest.raises(ba.InputError, match="share one recording"):
        ba.Problem.from_rewards({"g": {"a": one, "b": 0.1}}, clients=2)
