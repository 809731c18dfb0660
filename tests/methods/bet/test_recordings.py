"""Fed-Bet on recordings: blocks are cut in advance to what all arms that are in still hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.bet.blocks import Blocks
from bestarm.methods.bet.options import Bet
from marking import examples


def recording(rng, mean, rows, coins):
    values = rng.random(rows) < mean if coins else rng.beta(8 * mean, 8 * (1 - mean), rows)
    return ba.Recording(tuple(values.astype(float).tolist()))


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.2]))
def test_no_block_asks_for_a_row_that_is_not_there(seed, coins, epsilon):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 300, 4)
    means = rng.choice([0.2, 0.5, 0.8], 4)
    arms = [recording(rng, mean, int(n), coins) for mean, n in zip(means, rows, strict=True)]
    problem = ba.Problem.from_rewards({"g": {"a": arms[0], "b": arms[1]}, "h": {"c": arms[2], "d": arms[3]}})
    record = ba.identify(problem, "bet", seed=seed, delta=0.1, n1=8, epsilon=epsilon)
    assert ba.verify(record, replay=True).failures == ()
    if record.verdict.status == "undecided":
        assert record.verdict.reason == "budget"
        assert record.verdict.candidates
    for part in record.verdict.certificate["local"].values():
        assert not [row for row in part["batches"] if "stop" in row]  # cut in advance


def test_a_block_is_cut_to_the_rows_of_the_shortest_recording_and_goes_on_when_that_arm_has_left():
    rng = np.random.default_rng(3)
    short, long = recording(rng, 0.1, 30, True), recording(rng, 0.9, 2000, True)
    other = recording(rng, 0.8, 2000, True)
    problem = ba.Problem.from_rewards({"g": {"long": long, "short": short}, "h": {"other": other}})
    record = ba.identify(problem, "bet", seed=1, delta=0.1)
    rows = record.verdict.certificate["server"]["rounds"]
    sizes = np.diff([row["pulls"] for row in rows if row["block"] > 0 or row["pulls"]])
    plain = Blocks(Bet()).step(24)
    assert 6 in sizes.tolist()  # 24 of 30 rows were played before
    assert plain > 6
    assert record.verdict.arm == "g/long"
    assert max(sizes) > 30  # blocks grow again


def test_a_tie_on_recordings_ends_with_all_arms_and_no_row_unplayed():
    rng = np.random.default_rng(1)
    problem = ba.Problem.from_rewards(
        {"g": {"a": recording(rng, 0.5, 200, True)}, "h": {"b": recording(rng, 0.5, 200, True)}}
    )
    record = ba.identify(problem, "bet", seed=1, delta=0.01)
    assert record.verdict.status == "undecided"
    assert set(record.verdict.candidates) == {"g/a", "h/b"}
    assert record.pulls.total == 400
