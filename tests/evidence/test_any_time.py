"""Looks at any time: the result depends on the sequence of rows only; best options are rarely ruled out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm.evidence.any_time import Lanes, quotas, race, replay
from bestarm.evidence.arrivals import digest_of, queues_of
from bestarm.evidence.once import Claims
from bestarm.problem.counted import Rows
from evidence.recorded import coins, stars
from rates import rate_exceeds, rate_is_below

DELTA = 0.05


def campaign(sets, means, weights, blocks, seed):
    """Which options were ever ruled out, in many tables that are looked at after every block."""
    rng = np.random.default_rng(seed)
    lanes = Lanes(sets, len(means), np.array(weights), Claims.best(len(means)), DELTA)
    for _ in range(blocks):
        lanes.close(coins(lanes.due, np.array(means), rng))
    return lanes.rejected


@pytest.mark.parametrize(
    ("sets", "means", "weights", "blocks"),
    [
        (4000, [[0.5], [0.5]], [1.0], 35),
        pytest.param(20_000, [[0.5], [0.5]], [1.0], 40, marks=pytest.mark.slow),
        pytest.param(20_000, [[0.9, 0.1], [0.1, 0.9]], [0.5, 0.5], 28, marks=pytest.mark.slow),
        pytest.param(2000, [[0.3, 0.6]] * 5, [0.7, 0.3], 28, marks=pytest.mark.slow),
    ],
)
def test_tied_options_are_ever_ruled_out_with_probability_at_most_delta(sets, means, weights, blocks):
    """All looks at closed blocks together, so those after every tenth of the rows are among them."""
    rejected = campaign(sets, means, weights, blocks, 31)
    assert all(rate_is_below(int(n), sets, DELTA) for n in rejected.sum(axis=0))


def test_ratings_that_are_tied_keep_the_promise_at_any_time():
    rng, sets = np.random.default_rng(32), 1500
    lanes = Lanes(sets, 3, np.ones(1), Claims.best(3), DELTA)
    for _ in range(25):
        lanes.close(stars(lanes.due, np.array([0.1, 0.1, 0.2, 0.3, 0.3]), rng))
    assert not any(rate_exceeds(int(n), sets, DELTA) for n in lanes.rejected.sum(axis=0))


def test_several_tables_at_once_are_raced_like_one():
    rng = np.random.default_rng(33)
    rows = [[[(rng.random(700) < p).astype(float)] for p in (0.6, 0.5, 0.4)] for _ in range(5)]
    for queues in rows:
        one = race(queues, np.ones(1), Claims.best(3), DELTA)
        again = replay(one.blocks, np.ones(1), Claims.best(3), DELTA)
        assert again is not None
        assert again.rejected == one.rejected
        assert again.log_wealth == pytest.approx(one.log_wealth, rel=1e-12)
    lanes = Lanes(5, 3, np.ones(1), Claims.best(3), DELTA)
    ones = [race(queues, np.ones(1), Claims.best(3), DELTA) for queues in rows]
    first = [one.blocks[:4] for one in ones]
    for k in range(4):
        lanes.close(
            type(first[0][0])(*(np.stack(part) for part in zip(*(b[k].parts for b in first), strict=True)))
        )
    short = [replay(blocks, np.ones(1), Claims.best(3), DELTA) for blocks in first]
    assert lanes.log_wealth == pytest.approx(np.array([one.log_wealth for one in short]), rel=1e-12)


def test_the_result_depends_on_the_rows_and_not_on_when_anybody_looked():
    rng = np.random.default_rng(34)
    queues = [[(rng.random(900) < p).astype(float)] for p in (0.55, 0.5)]
    whole = race(queues, np.ones(1), Claims.best(2), DELTA)
    for part in (0.1, 0.35, 0.7):
        early = race([[q[: int(900 * part)]] for (q,) in queues], np.ones(1), Claims.best(2), DELTA)
        for a, b in zip(early.blocks, whole.blocks, strict=False):
            assert all((x == y).all() for x, y in zip(a.parts, b.parts, strict=True))


def test_rows_of_an_open_block_change_nothing():
    sizes = [int(quotas(np.ones(1), k)[0]) for k in range(6)]
    closed = sum(sizes[:5])
    rng = np.random.default_rng(35)
    base = [(rng.random(closed) < p).astype(float) for p in (0.7, 0.4)]
    wins = np.ones(sizes[5] - 1)
    for more in (np.empty(0), wins, 1 - wins):
        found = race([[np.concatenate([base[0], more])], [base[1]]], np.ones(1), Claims.best(2), DELTA)
        assert len(found.blocks) == 5


def test_a_block_waits_for_its_slowest_cell_and_the_surplus_is_carried_over():
    quick, slow = np.tile([1.0, 0.0], 500), np.tile([1.0, 0.0], 20)
    found = race([[quick], [slow]], np.ones(1), Claims.best(2), DELTA)
    taken = sum(block.count[:, 0] for block in found.blocks)
    assert taken[0] == taken[1] <= len(slow)
    total = sum(block.total[0, 0] for block in found.blocks)
    assert total == quick[: int(taken[0])].sum()


def test_quotas_follow_the_weights_and_are_at_least_one():
    assert quotas(np.array([0.97, 0.01, 0.02]), 0).tolist() == [18, 1, 1]
    for k in range(20):
        assert quotas(np.array([0.999, 0.001]), k).min() == 1


def test_blocks_of_other_sizes_are_refused():
    rng = np.random.default_rng(36)
    queues = [[(rng.random(100) < 0.5).astype(float)] for _ in range(2)]
    found = race(queues, np.ones(1), Claims.best(2), DELTA)
    assert replay(found.blocks[1:], np.ones(1), Claims.best(2), DELTA) is None


def test_an_option_that_is_settled_against_the_control_waits_for_no_more_rows():
    rng = np.random.default_rng(37)
    queues = [[(rng.random(n) < p).astype(float)] for n, p in ((3000, 0.5), (400, 0.95), (3000, 0.53))]
    claims = Claims.control(3, 0, 0.0)
    found = race(queues, np.ones(1), claims, DELTA / 4)
    assert found.rejected[0]
    taken = sum(block.count[:, 0] for block in found.blocks)
    assert taken[1] < 400 < taken[2] == taken[0]


def ordered(values, count=None, batch=None):
    n = len(values)
    zeros = np.zeros(n, dtype=np.int64)
    count = np.ones(n, dtype=np.int64) if count is None else np.array(count)
    return Rows(("",), ("a",), zeros, zeros, np.array(values, dtype=float), count, batch=batch)


def test_rows_that_arrive_together_are_put_in_a_random_order():
    """Successes come before failures in a table of counts; a block that cuts a batch must not see that."""
    batch = np.repeat(np.arange(500), 2)
    rows = ordered(np.tile([1.0, 0.0], 500), np.tile([5, 5], 500), batch)
    queue = queues_of(rows, 1)[0, 0].reshape(500, 10)
    assert (queue.sum(axis=1) == 5).all()
    first = queue[:, 0].mean()
    assert abs(first - 0.5) < 5 * math.sqrt(0.25 / 500)


def test_later_rows_do_not_change_the_order_of_earlier_ones():
    rng = np.random.default_rng(38)
    batch = np.sort(rng.integers(0, 40, 200))
    values = rng.random(200)
    whole = queues_of(ordered(values, batch=batch), 5)[0, 0]
    cut = int(np.searchsorted(batch, 30))
    part = queues_of(ordered(values[:cut], batch=batch[:cut]), 5)[0, 0]
    assert (part == whole[:cut]).all()
    held = queues_of(ordered(values, batch=batch), 5, hold_last=True)[0, 0]
    assert len(held) == np.searchsorted(batch, batch[-1])
    assert digest_of({(0, 0): part}, {(0, 0): 20}) == digest_of({(0, 0): whole}, {(0, 0): 20})
    assert digest_of({(0, 0): part}, {(0, 0): 20}) != digest_of({(0, 0): part[::-1]}, {(0, 0): 20})
