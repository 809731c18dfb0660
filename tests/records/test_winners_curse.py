"""The stated winner's curse agrees with a small run of the benchmark that measured it."""

from __future__ import annotations

import pytest
from benchmarks import winners_curse
from benchmarks.coverage import ALPHA, DELTA, INSTANCES, SEED, by_kernel, by_machines
from scipy.stats import norm

import bestarm as ba
from bestarm.evidence import card as evidence_card
from bestarm.protocol.registry import METHODS
from bestarm.records.answer import answer_card
from rates import FALSE_ALARM, rate_exceeds


def exceeds(row, stated):
    """Null: the mean share of half the width is at most `stated`; normal test at 1e-6.

    It is found, with probability 0.5, if it is 4.8 standard errors above that; `few_enough` says how large.
    """
    return row["of half"] - stated > norm.isf(FALSE_ALARM) * row["give or take"]


def few_enough(row, most):
    """Whether the test has power against a share that is larger by twice `most`."""
    return norm.isf(FALSE_ALARM) * row["give or take"] < most


def held(row):
    failed = row["failed"] / row["runs"] if "failed" in row else row["wrong or missed"]
    return not rate_exceeds(round(failed * row["runs"]), row["runs"], row["promised"])


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("method", ["bet", "fisher"])
def test_fed_bet_and_fed_fisher(method, name):
    row = by_kernel(name, method, INSTANCES[name], 1_000)
    assert not exceeds(row, METHODS[method].curse)
    assert few_enough(row, 0.1)
    assert held(row)


@pytest.mark.parametrize("name", winners_curse.SHARING)
def test_fed_sel(name):
    """Where the mean lies in its bin decides; so the largest of these is nearly the stated figure."""
    row = winners_curse.sharing(name, 300, SEED + 1, DELTA)
    assert not exceeds(row, METHODS["fed-sel"].curse)
    assert few_enough(row, 0.1)
    assert held(row)


def test_the_figure_of_fed_sel_is_not_larger_than_it_has_to_be():
    shares = [winners_curse.sharing(name, 200, SEED + 2, DELTA)["of half"] for name in winners_curse.SHARING]
    assert max(shares) > METHODS["fed-sel"].curse / 2


@pytest.mark.parametrize(
    "name",
    [n if "rounded" not in n else pytest.param(n, marks=pytest.mark.slow) for n in winners_curse.MACHINES],
)
def test_robust_fed_sel_and_peers(name):
    problem, keys = winners_curse.MACHINES[name]
    row = by_machines(name, problem, 30, **keys)
    assert not exceeds(row, METHODS[keys["method"]].curse)
    assert held(row)


@pytest.mark.parametrize("name", winners_curse.RECORDED)
def test_recorded_data(name):
    keys = winners_curse.RECORDED[name][2]
    row = winners_curse.recorded(name, 40 if keys else 300, SEED + 1, DELTA, ALPHA)
    decides = row["decided"] / row["runs"]
    stated = evidence_card.USUAL if decides > 0.5 else evidence_card.RARE
    assert not exceeds(row, stated)
    assert held(row)


def test_the_card_of_peers_states_the_figure():
    peers = ba.Network(ba.Graph.from_edges(4, [(i, j) for i in range(4) for j in range(4) if i != j]))
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.4, 0.1]], clients=2)
    said = answer_card(ba.identify(problem, "p2p", network=peers, exchange="intervals", seed=1)).curse
    assert "measured runs of Peer to peer" in said
