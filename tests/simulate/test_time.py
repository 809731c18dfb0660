"""The time of a run: each client makes one pull per step, and the server waits for the slowest client."""

from __future__ import annotations

import bestarm as ba
from bestarm.graphs.generators import complete

THREE_AND_TWO = {"north": {"a": 0.62, "b": 0.48, "c": 0.30}, "south": {"d": 0.50, "e": 0.29}}


def test_the_time_of_each_round_is_that_of_its_slowest_client():
    """After 32 pulls of each arm, north can't afford the next look, and south makes 16 more of each."""
    problem = ba.Problem.bernoulli(THREE_AND_TWO)
    record = ba.identify(problem, "fisher", seed=7, n0=32, q=1.5, budget=100)
    assert record.pulls.by_client == {"north-1": 3 * 32, "south-1": 2 * 32 + 2 * 16}
    assert record.time == 3 * 32 + 2 * 16
    assert record.public().time == record.time


def test_a_pull_takes_no_time_after_its_recording_has_run_out():
    values = [1, 0] * 50
    recorded = {"kind": "recording", "values": values}
    problem = ba.Problem.from_rewards({"g": {"a": recorded, "b": recorded}})
    for method in ("fisher", "fed-sel"):
        record = ba.identify(problem, method, seed=1)
        assert record.verdict.reason == "budget"
        assert record.time == record.pulls.total == 2 * len(values)


def test_an_abandoned_pull_does_not_advance_the_clock():
    """g2 withdraws in the middle of a long pull; then nothing happens, because g3 is silent."""
    problem = ba.Problem.bernoulli([[0.95, 0.1], [0.3, 0.28], [0.5, 0.1]])
    liar = [ba.Adversary("g3", "silent", 1)]
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=0, early_stop=True, adversaries=liar)
    assert record.verdict.reason == "silence"
    assert record.time == record.pulls.max_per_client


def test_the_time_of_a_network_is_when_its_last_honest_peer_decides():
    problem = ba.Problem.bernoulli([[0.95, 0.02], [0.6, 0.02]], clients=3)
    keys = {"method": "p2p", "exchange": "means", "delta": 0.1, "seed": 2}
    record = ba.identify(problem, network=complete(6), **keys)
    assert record.time == record.pulls.max_per_client
    slow = ba.identify(problem, network=ba.Network(complete(6), delay=1000), **keys)
    assert slow.pulls == record.pulls
    assert record.time + 500 <= slow.time <= record.time + 1500
