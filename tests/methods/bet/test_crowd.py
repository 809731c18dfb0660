"""A crowd plays all clients at once: its record is the one that single machines give, byte for byte."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hostile import adversary
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.methods.bet.downlink import Renamed
from bestarm.simulate.crowd_run import LEAST_CLIENTS
from bestarm.simulate.identify import crowd_of, identify, run_of
from crowds import KINDS, both, problem_of
from marking import examples


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    st.integers(2, 7),
    st.sampled_from([2, 4, 12]),
    st.sampled_from(["balanced", "pulls", "bits"]),
)
def test_a_crowd_gives_the_record_of_single_machines(seed, kinds, groups, rounds, prefer):
    options = ba.Bet(delta=0.1, max_rounds=rounds, prefer=prefer)
    machines, crowd = both(problem_of(seed, kinds, groups), "bet", options, seed)
    assert crowd == machines
    assert crowd.digest == machines.digest


@pytest.mark.parametrize("rows", [[[0.5]] * 6, [[0.5] * 3] * 3, [[0.5, 0.5], [0.5]]])
def test_a_crowd_follows_the_second_naming_of_a_block(rows, monkeypatch):
    """A hostile rule names champions that have just left."""
    heard, encode = [], Renamed.encode
    monkeypatch.setattr(Renamed, "encode", lambda self, wire: (heard.append(self), encode(self, wire))[1])
    options = ba.Bet(delta=0.999, n1=1, q=1.5, max_rounds=10)
    with adversary():
        for seed in range(12):
            machines, crowd = both(ba.Problem.bernoulli(rows), "bet", options, seed)
            assert crowd == machines
    assert heard


def test_thousands_of_groups_run_as_a_crowd_and_the_record_verifies(monkeypatch):
    means = np.random.default_rng(5).uniform(0.1, 0.5, (LEAST_CLIENTS, 2)).tolist()
    problem = ba.Problem.bernoulli([[0.9, 0.2], *means])
    monkeypatch.setattr("bestarm.simulate.identify.Run", None)  # no single machines
    before = gc.get_threshold()
    record = identify(problem, "bet", seed=4)
    assert gc.get_threshold() == before
    assert record.verdict.arm == "g1/a1"
    monkeypatch.undo()
    assert ba.verify(record, replay=True).failures == ()
    assert run_record(problem, record.seed) == record


def run_record(problem, seed):
    run = run_of(problem, "bet", ba.Bet(), seed)
    run.go()
    return run.record()


@pytest.mark.parametrize("options", [{"epsilon": 0.1}, {"budget": 1000}, {"silence": "fill"}])
def test_there_is_no_crowd_for_what_only_single_machines_follow(options):
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.5, 0.1]])
    assert crowd_of(problem, "bet", ba.Bet(**options), least=1) is None


def test_a_crowd_tells_its_progress_and_can_be_interrupted():
    seen = []
    means = np.random.default_rng(5).uniform(0.1, 0.5, (LEAST_CLIENTS, 2)).tolist()

    def watch(progress):
        seen.append(progress)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        identify(ba.Problem.bernoulli([[0.9, 0.2], *means]), "bet", seed=4, watch=watch)
    assert seen[0].reported == 51
    assert stopped.value.record.interrupted
    assert stopped.value.record.verdict.status == "undecided"
