"""Sources of rewards carry out a pull as often as asked: with shares, with moments, and from a script."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.problem.rewards import Beta, Function, Recording
from bestarm.protocol.events import Pull, Pulled
from bestarm.protocol.kernel import Arms, remember
from bestarm.simulate.draw import Drawn, Scripted

VALUES = tuple((k % 8) / 8 for k in range(20))
PROBLEM = ba.Problem.from_rewards({"g": {"a": 0.5, "b": Beta(2.0, 3.0), "c": Recording(VALUES)}})
RICH = Pull((2, 0, 1), 4, shares=(3, 1, 2), moments=True)


def test_each_arm_is_drawn_as_often_as_its_share_says():
    drawn = Drawn(PROBLEM, 5)
    pulled = drawn.draw(0, RICH, 4)
    assert drawn.made == {(0, 2): 12, (0, 0): 4, (0, 1): 8}
    assert pulled.times == 4
    first = VALUES[:12]
    assert pulled.sums[0] == sum(first)
    assert pulled.squares[0] == sum(x * x for x in first)
    assert (pulled.least[0], pulled.most[0]) == (min(first), max(first))
    assert pulled.sums[1] == pulled.squares[1]


def test_shares_and_moments_do_not_change_what_is_drawn():
    whole, rich = Drawn(PROBLEM, 5), Drawn(PROBLEM, 5)
    sums = [whole.draw(0, Pull((a,), n), n).sums[0] for a, n in ((2, 12), (0, 4), (1, 8))]
    assert rich.draw(0, RICH, 4).sums == pytest.approx(sums)
    assert Drawn(PROBLEM, 5).draw(0, Pull((0, 2), 4, shares=(1, 3)), 4) == Pulled((sums[1], sums[0]), 4)


def test_a_recording_bounds_the_rounds_by_its_share():
    drawn = Drawn(PROBLEM, 5)
    assert drawn.draw(0, Pull((0, 2), 9, shares=(1, 3)), 9).times == 6  # 20 rewards: 2 are left
    assert drawn.draw(0, Pull((0, 2), 3, shares=(1, 3)), 3) is None
    assert drawn.made == {(0, 0): 6, (0, 2): 18}
    assert drawn.draw(0, Pull((0, 2), 3), 3).times == 2


def test_rewards_of_an_earlier_process_are_recognised_and_skipped():
    calls = []
    own = Function(lambda rng: calls.append(1) or rng.random())
    problem = ba.Problem.from_rewards({"g": {"a": 0.5, "b": own, "c": Recording(VALUES)}})
    before = Drawn(problem, 5)
    batches = [before.draw(0, RICH, 2) for _ in range(2)]
    after = before.draw(0, Pull((0, 2), 1), 1)
    del calls[:]
    drawn = Drawn(problem, 5)
    assert all(drawn.agrees(0, RICH, pulled) for pulled in [*batches, None])
    assert not calls
    assert drawn.made == {(0, 0): 4, (0, 1): 8, (0, 2): 12}
    assert drawn.draw(0, Pull((0, 2), 1), 1) == after
    for field in ("sums", "squares", "least", "most"):
        forged = {**vars(batches[0]), field: (0.125, *getattr(batches[0], field)[1:])}
        assert not Drawn(problem, 5).agrees(0, RICH, Pulled(**forged))


def test_a_script_gives_batches_with_shares_or_moments_as_a_whole():
    rng, arms = np.random.default_rng(3), np.array([0, 2])
    moments = Arms(PROBLEM.coined()).moments(rng, np.array([0]), np.array([[2, 0, 6]]))[0, arms]
    script = {}
    remember(script, 0, arms, 2, moments[:, 0], shares=(1, 3), moments=moments)
    remember(script, 0, arms, 2, np.array([1.0, 4.0]), shares=np.array([1, 3]))
    remember(script, 0, arms, 2, np.array([1.0, 2.0]))
    remember(script, 0, arms, 2, np.array([1.0, 0.0]))
    pull, shared = Pull((0, 2), 2, (1, 3), moments=True), Pull((0, 2), 2, (1, 3))
    source = Scripted(script)
    for other in (shared, Pull((0, 2), 2), Pull((0, 2), 2, (1, 2), moments=True)):
        with pytest.raises(AssertionError, match="not in the script"):
            source.draw(0, other, 2)
    with pytest.raises(AssertionError, match="not in the script"):
        source.draw(0, pull, 1)  # in parts
    assert source.draw(0, pull, 2) == Pulled.of(moments.tolist(), 2)
    with pytest.raises(AssertionError, match="not in the script"):
        source.draw(0, shared, 1)
    assert source.draw(0, shared, 2) == Pulled((1.0, 4.0), 2)
    first, second = source.draw(0, Pull((0, 2), 3), 3), source.draw(0, Pull((0, 2), 1), 1)
    assert np.add(first.sums, second.sums).tolist() == [2.0, 2.0]
    with pytest.raises(AssertionError, match="not in the script"):
        source.draw(0, Pull((0, 2), 1), 1)


def test_a_kernel_draws_moments_of_all_kinds_of_arms():
    problem = ba.Problem.from_rewards(
        {"g": {"a": 0.5, "b": Beta(2.0, 3.0)}, "h": {"c": {"kind": "table", "values": [0.25, 0.75]}}}
    )
    clients, times = np.array([0, 1, 0]), np.array([[5, 7], [9, 0], [0, 3]])
    found = Arms(problem).moments(np.random.default_rng(0), clients, times)
    assert found.shape == (3, 2, 4)
    n = times[times > 0]
    sums, squares, least, most = found[times > 0].T
    assert (found[times == 0] == [0.0, 0.0, 1.0, 0.0]).all()
    assert ((n * least <= sums) & (sums <= n * most) & (sums**2 <= n * squares * (1 + 1e-9))).all()
    assert found[0, 0, 0] == found[0, 0, 1]
    assert found[1, 0, 2:].tolist() == [0.25, 0.75]
    assert 0 < found[2, 1, 2] < found[2, 1, 3] < 1
