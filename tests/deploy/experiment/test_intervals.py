"""The intervals of a live experiment hold at the verdict: only what counted is used, and all of it."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

import bestarm as ba
from bestarm.deploy.experiment.audit import audit
from bestarm.deploy.experiment.experiment import Request
from bestarm.records.answer import answer_card
from bestarm.report.experiment import page_of, summary
from rates import rate_exceeds

DELTA, ALPHA = 0.05, 0.05
SITES = {"us": {"A": 0.35, "B": 0.65}, "eu": {"A": 0.5, "B": 0.75}}
DEADLINE, SLOW, QUICK = 100.0, 60.0, 10.0  # seconds; successes are slow


def lived(seed, question="overall", journal=None, **keys):
    """An experiment whose successes arrive late, some of them after their deadline, until its verdict."""
    rng, now = np.random.default_rng([seed, 5]), 0.0
    experiment = ba.Experiment(
        ["A", "B"], list(SITES), question, delta=DELTA, deadline=DEADLINE, missing=0.0, binary=True,
        seed=seed, clock=lambda: now, journal=journal, **keys,
    )  # fmt: skip
    due = []
    while experiment.verdict is None:
        now += 5.0
        told = []
        while due and due[0][0] <= now:
            told.append(heapq.heappop(due)[1:])
        ask = Request(site="us" if rng.random() < 0.7 else "eu", times=4)
        experiment.run([Request(rewards=told), ask])
        for given in ask.assigned:
            reward = float(rng.random() < SITES[ask.site][given.option])
            delay = rng.exponential(SLOW if reward else QUICK)
            heapq.heappush(due, (now + delay, given.token, reward))
    return experiment


def true_values():
    """What counts: a success within the deadline. Ticks are 5 seconds apart, so a bound on each side."""
    # A reward is told at the first tick after it came, and counts if that tick is before the deadline.
    counts = 1.0 - np.exp(-(DEADLINE - 5.0) / SLOW), 1.0 - np.exp(-DEADLINE / SLOW)
    return {site: {o: (counts[0] * p, counts[1] * p) for o, p in row.items()} for site, row in SITES.items()}


def inside(value, ends):
    """Whether an interval holds some value of a range."""
    return ends[0] <= value[1] and value[0] <= ends[1]


def card_misses(card):
    cells = true_values()
    value = {o: tuple(np.mean([cells[s][o][k] for s in SITES]) for k in (0, 1)) for o in "AB"}
    if card.best is not None and card.best != "B":
        return True
    off = any(not inside(value[row.name], row.interval) for row in card.options)
    lead = value["B"][0] - value["A"][1], value["B"][1] - value["A"][0]
    return off or not inside(lead, card.lead.interval)


@pytest.mark.parametrize("runs", [40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_all_intervals_hold_at_the_verdict_although_successes_come_late(runs):
    """Null: P(wrong, or any interval misses) ≤ δ + α = 0.1, at a false-alarm rate of 1e-6.

    Power: of 1,000 runs a rate of 0.16 is found with probability 0.83; of 40, a rate of 0.5 with 0.92.
    """
    missed = 0
    for seed in range(runs):
        card = answer_card(lived(seed).record())
        assert all(row.interval for row in card.options)
        missed += card_misses(card)
    assert not rate_exceeds(missed, runs, DELTA + ALPHA)


@pytest.mark.parametrize("question", ["overall", "each", "anywhere"])
def test_the_summaries_are_what_counted_and_nothing_else(question, tmp_path):
    """Open rewards, late ones and those after the verdict are in no sum; the audit adds up anew."""
    with lived(3, question, tmp_path / "e.db") as experiment:
        record, sites = experiment.record(), experiment.status.sites
    found = audit(tmp_path / "e.db")
    counted = {name: sum(summary.count) for name, summary in record.summaries.items()}
    assert not found.failures
    assert sum(counted.values()) == found.counted == record.pulls.total
    told = {site.site: site.counted + site.filled for site in sites}
    assert all(n <= told[name] for name, n in counted.items())
    assert sum(counted.values()) < sum(told.values()) or question == "each"  # a block was still open
    assert found.filled > 0
    assert ba.verify(record).ok


def test_the_winner_s_interval_is_no_wider_than_that_of_its_cells():
    """Few visitors: the bets of two or three blocks alone say next to nothing about the winner."""
    card = answer_card(lived(1).record())
    best, other = card.options
    assert best.best
    assert best.interval[1] - best.interval[0] < 0.75
    assert card.lead.interval[1] <= best.interval[1] - other.interval[0] + 1e-9


def test_page_and_status_show_the_numbers_of_the_card():
    experiment = lived(2)
    card, status = answer_card(experiment.record()), experiment.status
    assert status.estimates == card.options
    assert status.leads == (card.lead,)
    assert status.risk == card.risk
    text = page_of(status, [], experiment.settings)
    assert "Ahead by" in text
    assert "any interval here misses" in text
    assert any(line.startswith("B: ahead by ") for line in summary(status))


def test_before_the_verdict_there_are_no_intervals():
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1)
    experiment.tell(experiment.ask().token, 1.0)
    assert experiment.record().summaries is None
    assert (experiment.status.estimates, experiment.status.leads, experiment.status.risk) == ((), (), "")
    assert "Ahead by" not in page_of(experiment.status, [], experiment.settings)


def test_without_summaries_only_the_named_option_has_numbers():
    record = lived(2, summaries=False).record()
    assert record.summaries is None
    assert [row.name for row in answer_card(record).options] == ["B"]
