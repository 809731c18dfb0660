"""The bounds of honest peers hold on the good event, whatever liars send, and the card shows them."""

from __future__ import annotations

import msgspec
import pytest

import bestarm as ba
from bestarm.graphs.generators import circulant, complete
from bestarm.methods.p2p.bounds import bounds_of
from bestarm.problem.problem import Problem
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.records.answer import answer_card

MEANS = [[0.95, 0.7], [0.6, 0.4], [0.45, 0.2]]
PROBLEM = ba.Problem.bernoulli(MEANS, clients=5)
TRUTH = {f"g{j + 1}/a{a + 1}": mean for j, row in enumerate(MEANS) for a, mean in enumerate(row)}
LIARS = [ba.Adversary("g2", "extreme", 1)]


def run(seed=3, exchange="intervals", adversaries=LIARS, graph=None, **keys):
    network = ba.Network(complete(15) if graph is None else graph, delay=20, **keys)
    return ba.identify(
        PROBLEM, "p2p", network=network, byzantine=1, exchange=exchange, delta=0.1, seed=seed,
        adversaries=adversaries,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attack", "seed"),
    [(a, s) for a in ("extreme", "promote", "bury", "random-bytes") for s in (1, 2)]
    + [pytest.param("extreme", s, marks=pytest.mark.slow) for s in range(3, 30)],
)
def test_every_bound_of_every_honest_peer_holds_on_the_good_event(attack, seed):
    """No chance is involved: on the good event a single bound that misses refutes the proof."""
    record = run(seed, adversaries=(), graph=circulant(15, 4), placement="worst", attack=attack)
    layout, _ = Problem.layout_from_dict(record.problem)
    options = make(METHODS["p2p"].options, {**record.options, "delta": record.delta})
    assert record.good_event
    assert record.adversaries
    seen = 0
    for name in record.peers:
        part = record.verdict.certificate["local"][name]
        for row, means in zip(bounds_of(part, layout, options, name), MEANS, strict=False):
            for (low, high), mean in zip(row, means, strict=True):
                assert low <= mean <= high
                seen += 1
    assert seen >= 6  # peers that only adopted a verdict may have no bounds
    card = answer_card(record)
    assert all(row.interval[0] <= TRUTH[row.name] <= row.interval[1] for row in card.options)
    assert card.lead.interval[0] <= 0.25 <= card.lead.interval[1]


def test_the_card_of_a_run_with_liars_shows_the_bounds_at_no_cost_beyond_delta():
    record = run()
    card = answer_card(record)
    assert len(card.options) == 6
    assert all(row.interval for row in card.options)
    (best,) = [row for row in card.options if row.best]
    assert best.interval == record.verdict.interval
    assert card.lead.over == "g1/a2"
    assert 0.0 < card.lead.interval[0] < card.lead.interval[1] < 0.5
    assert card.risk.endswith("any interval here misses is at most 0.1.")
    assert all(row.interval[0] <= row.mean <= row.interval[1] for row in card.options)
    assert ba.verify(record, replay=True).ok


def test_means_alone_give_no_intervals():
    card = answer_card(run(exchange="means", adversaries=[]))
    assert card.best == "g1/a1"
    assert all(row.interval is None for row in card.options)
    assert card.lead.interval is None


def test_a_peer_that_claims_other_bounds_on_its_own_arm_is_noticed():
    record = run()
    certificate = msgspec.json.decode(msgspec.json.encode(record.verdict.certificate))
    certificate["local"]["g1-1"]["view"]["lower"][0] = 0.94
    verdict = msgspec.structs.replace(record.verdict, certificate=certificate)
    found = ba.verify(msgspec.structs.replace(record, verdict=verdict).sealed())
    assert any("other bounds on its own arm" in failure for failure in found.failures)
