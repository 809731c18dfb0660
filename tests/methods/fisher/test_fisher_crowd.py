"""A crowd plays all clients of Fed-Fisher at once: its record is that of single machines, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.simulate.crowd_run import LEAST_CLIENTS
from bestarm.simulate.identify import crowd_of
from crowds import KINDS, both, problem_of
from marking import examples


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    st.integers(2, 7),
    st.sampled_from([2, 4, 12]),
    st.sampled_from([(0, 1, 1.2), (2, 4, 1.5), (3, 20, 2.0)]),  # quiet looks, n0, q
    st.sampled_from([0.0, 0.1]),
)
def test_a_crowd_gives_the_record_of_single_machines(seed, kinds, groups, rounds, looks, epsilon):
    quiet, n0, q = looks
    options = ba.Fisher(delta=0.1, max_rounds=rounds, quiet=quiet, n0=n0, q=q, epsilon=epsilon)
    machines, crowd = both(problem_of(seed, kinds, groups), "fisher", options, seed)
    assert crowd == machines
    assert crowd.digest == machines.digest


def test_many_groups_run_as_a_crowd_and_the_record_verifies(monkeypatch):
    means = np.random.default_rng(5).uniform(0.1, 0.5, (LEAST_CLIENTS, 2)).tolist()
    monkeypatch.setattr("bestarm.simulate.identify.Run", None)  # no single machines
    record = ba.identify(ba.Problem.bernoulli([[0.9, 0.2], *means]), "fisher", seed=4)
    monkeypatch.undo()
    assert record.verdict.arm == "g1/a1"
    assert ba.verify(record, replay=True).failures == ()


@pytest.mark.parametrize(("clients", "options"), [(1, {"budget": 1000}), (3, {})])
def test_there_is_no_crowd_with_a_budget_or_several_clients_per_group(clients, options):
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.5, 0.1]], clients=clients)
    assert crowd_of(problem, "fisher", ba.Fisher(**options), least=1) is None
