"""The kernel of Fed-Bet and its machines make the same decisions on the same rewards."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.bet.kernel import _Trials
from bestarm.methods.bet.options import PREFERENCES
from marking import examples, slow
from methods.bet.hostile import adversary, scrambled, worst
from methods.test_kernels import arms, check_replay, check_trial, means

TABLE = {"kind": "table", "values": [0, 0.2, 1], "weights": [2, 3, 1]}
NARROW = {"kind": "beta", "a": 60, "b": 40}


def problem_of(rows):
    return ba.Problem.from_rewards(
        {f"g{i}": {f"a{j}": m for j, m in enumerate(row)} for i, row in enumerate(rows)}
    )


@st.composite
def problems(draw):
    """One to four clients with coins, with other rewards, or with some of each."""
    coins, other = st.lists(means, min_size=1, max_size=4), st.lists(arms, min_size=1, max_size=3)
    row = draw(st.sampled_from([coins, other, st.one_of(coins, other)]))
    rows = draw(st.lists(row, min_size=1, max_size=4))
    if sum(map(len, rows)) == 1:
        rows.append(draw(st.sampled_from([[0.3], [TABLE, NARROW]])))
    return problem_of(rows)


@st.composite
def option_sets(draw, problem):
    """Random problems contain ties, which only `max_rounds` ends; Beta rewards are drawn one by one."""
    prefer = draw(st.sampled_from(list(PREFERENCES)))
    coins = all(group.binary for group in problem.layout.groups)
    long = 16 if coins or PREFERENCES[prefer][1] < 2 else 6
    return {
        "prefer": prefer,
        "n1": draw(st.sampled_from([1, 2, 16])),
        "delta": draw(st.sampled_from([0.01, 0.3, 0.9])),
        "max_rounds": draw(st.sampled_from([1, 2, 3, long])),
    }


@settings(max_examples=examples(600))
@given(st.data(), problems(), st.integers(0, 2**32))
def test_a_trial_replays_through_the_machines(data, problem, seed):
    check_replay(problem, data.draw(option_sets(problem)), seed, "bet")


@settings(max_examples=examples(200))
@given(st.data(), problems(), st.integers(0, 2**32), st.sampled_from([worst, scrambled]))
def test_a_trial_with_hostile_champions_replays_through_the_machines(data, problem, seed, named):
    with adversary(named):
        check_replay(problem, data.draw(option_sets(problem)), seed, "bet")


@pytest.mark.parametrize("prefer", PREFERENCES)
def test_a_trial_of_the_paper_s_instance_replays(prefer):
    check_replay(ba.Problem.paper_instance(7), {"delta": 0.1, "prefer": prefer}, 3, "bet")


def renamed_trials(monkeypatch):
    """The trials in which a champion is named that is not in; the list grows as the kernel runs."""
    found, rename = [], _Trials._rename

    def counted(self, trial, *facts):
        rename(self, trial, *facts)
        found.append((trial, int(self.naming[trial])))

    monkeypatch.setattr(_Trials, "_rename", counted)
    return found


@pytest.mark.parametrize("hostile", [True, False])
@pytest.mark.parametrize(
    ("rows", "q"),
    [
        ([[0.5]] * 6, 1.15),
        ([[0.5] * 3] * 3, 1.5),
        *slow(([[0.5, 0.5], [0.5]], 1.5), ([[0.5] * 8], 1.5), ([[0.5] * 2] * 6, 3.0)),
        *slow(([[TABLE, NARROW, 0.5]] * 4, 1.15)),
    ],
)
def test_a_trial_in_which_the_named_champion_has_just_left_replays(rows, q, hostile, monkeypatch):
    """With the method's own names it is rare, even where arms are tied and a wealth of 1.001 is enough."""
    renamed = renamed_trials(monkeypatch)
    with adversary() if hostile else contextlib.nullcontext():
        trials = ba.study(
            problem_of(rows),
            "bet",
            trials=60 if hostile else 1500,
            seed=1,
            workers=1,
            delta=0.999,
            n1=1,
            q=q,
            max_rounds=10,
        )
        picked = list(dict.fromkeys(trial for trial, _ in renamed))[:8]
        if hostile:
            assert len(picked) == 8
            assert max(namings for _, namings in renamed) >= 1
        for i in picked:
            check_trial(trials, i)
    if rows == [[0.5]] * 6:
        assert picked  # also without an adversary
        assert max(namings for _, namings in renamed) > 1
