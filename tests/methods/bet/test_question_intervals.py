"""The intervals of answers about several sites: one share of α, leads at every site, and sites that lie."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.question_coverage import CASES, MACHINES, by_kernel, by_machines, card_misses

import bestarm as ba
from bestarm.records.answer import answer_card
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Played, Sides, Stacked
from bestarm.stats.sums import Sums
from rates import rate_exceeds

ROWS = {"US": {"A": 0.3, "B": 0.6, "C": 0.4}, "EU": {"A": 0.7, "B": 0.5, "C": 0.2}}
TRIALS, SITES, ALPHA = 1_000, 5, 0.1


def test_each_site_has_a_lead_and_the_answers_share_half_of_alpha():
    record = ba.identify(ba.Problem.from_rewards(ROWS), seed=1, question="each", delta=0.1, alpha=0.04)
    assert [(a.site, a.option, a.over) for a in record.verdict.answers] == [
        ("US", "B", "C"),
        ("EU", "A", "B"),
    ]
    for j, answer in enumerate(record.verdict.answers):
        low, high = answer.lead_interval
        assert 0.0 <= low <= answer.lead <= high
        own = record.summaries[record.problem["groups"][j]["clients"][0]]
        k = "ABC".index(answer.option)
        count, total = own.count[k], own.total[k]
        # α/2 for two answers, and half of a share for the value, half for the lead.
        assert answer.interval == pytest.approx(betting.interval(count, total, total, 0, 1, 0.04 / 8))
    assert ba.verify(record).ok
    assert ba.verify(record, replay=True).ok


def test_the_card_shows_the_leads_of_all_sites_and_states_one_alpha():
    record = ba.identify(ba.Problem.from_rewards(ROWS), seed=1, question="each", delta=0.1)
    card = answer_card(record)
    assert [lead.option for lead in card.site_leads] == ["US/B", "EU/A"]
    assert card.alpha == 0.05
    assert "any interval of a right or open answer misses is at most 0.05" in card.risk
    keys = {"question": "each", "simultaneous": True, "delta": 0.1}
    together = answer_card(ba.identify(ba.Problem.from_rewards(ROWS), seed=1, **keys))
    assert "any interval here misses is at most 0.15" in together.risk


def test_a_site_that_is_open_has_a_lead_that_may_be_negative():
    keys = {"seed": 1, "question": "each", "max_rounds": 2}
    card = answer_card(ba.identify(ba.Problem.from_rewards(ROWS), **keys))
    assert not card.sites
    assert [lead.option.partition("/")[0] for lead in card.site_leads] == ["US", "EU"]
    assert all(lead.interval[0] < 0 < lead.interval[1] for lead in card.site_leads)


@pytest.mark.parametrize("goal", ["max", "min"])
def test_a_lead_is_positive_and_in_the_user_s_unit_whatever_the_goal(goal):
    groups = {s: {"A": {"kind": "beta", "a": 2, "b": 6}, "B": {"kind": "beta", "a": 6, "b": 2}} for s in "xy"}
    problem = ba.Problem.from_rewards(groups, bounds=(0, 60), goal=goal)
    (answer,) = ba.identify(problem, question="overall", seed=1).verdict.answers
    assert answer.option == ("A" if goal == "min" else "B")
    assert answer.lead == pytest.approx(30, abs=12)
    assert 0 <= answer.lead_interval[0] <= 30 <= answer.lead_interval[1] <= 60


# Sites that lie


def blocks_of(rng, means, sizes, lie):
    """Blocks of two options at SITES sites, of which the last one reports `lie` for b and 1 − lie for a."""
    b, a = [], []
    for n in sizes:
        ones = [rng.binomial(n, row, (TRIALS, SITES)).astype(float) for row in means]
        if lie is not None:
            ones[0][:, -1], ones[1][:, -1] = n * lie, n * (1 - lie)
        count = np.full((TRIALS, SITES), float(n))
        up, down = (Sums(count, s, s, 0 * s, 0 * s + 1) for s in ones)
        b.append(up)
        a.append(down)
    return b, a


def stacked(blocks, even):
    """The blocks of a contrast (b, a), or of the value of b if a is None, as ``estimates`` stacks them."""
    sides = [
        Sums(*(np.stack(parts) for parts in zip(*(s.parts for s in side), strict=True))) for side in blocks
    ]
    before = [contrasts.estimate(*(np.cumsum(x, axis=0) - x for x in (s.count, s.total))) for s in sides]
    means = [np.full(s.count.shape, 0.5) for s in sides] if even else before
    played = Played(Sides(*means), Sides(*(s.count for s in sides)), *sides)
    return Stacked(played, np.ones(sides[0].count.shape[:2], dtype=bool))


def missed(rng_seed, lie, f, value):
    """The share of trials whose lower bound exceeds the truth about the honest sites at any of five looks."""
    rng, home = np.random.default_rng(rng_seed), np.arange(SITES)
    means = np.array([[0.7, 0.2, 0.5, 0.6, 0.4], [0.5, 0.3, 0.5, 0.4, 0.4]])
    honest = slice(SITES - 1) if lie is not None else slice(None)
    truth = means[0, honest].mean() - (0.0 if value else means[1, honest].mean())
    b, a = blocks_of(rng, means, (4, 8, 16, 32, 64), lie)
    w = np.full(SITES, 1 / SITES)
    if value:
        a = [Sums.none((TRIALS, SITES)) for _ in b]
    weights, off = Sides(w, 0 * w if value else w), np.zeros(TRIALS, dtype=bool)
    for k in range(1, len(b) + 1):
        found = stacked((b[:k], a[:k]), even=value)
        off |= contrasts.has_won_without([found], weights, ALPHA, truth, home, f)
    return off


@pytest.mark.parametrize("value", [True, False], ids=["value", "lead"])
@pytest.mark.parametrize(
    "lie",
    [1.0, pytest.param(0.0, marks=pytest.mark.slow), pytest.param(None, marks=pytest.mark.slow)],
    ids=["promotes", "buries", "nobody lies"],
)
def test_a_bound_about_the_honest_sites_holds_whatever_one_site_reports(lie, value):
    """Looks after each of five blocks. Null: a bound exceeds the honest truth at any of them with probability
    at most α = 0.1. False-alarm rate 1e-6 (exact binomial test, 1,000 trials); a rate of 0.17 is found with
    probability above 0.9, and the bound that trusts everybody fails in almost all trials."""
    assert not rate_exceeds(int(missed(3, lie, 1, value).sum()), TRIALS, ALPHA)
    if lie == 1.0:
        assert missed(3, lie, 0, value).mean() > 0.9


@pytest.mark.parametrize("attack", ["extreme", "promote", "bury"])
def test_the_intervals_of_a_run_hold_the_honest_average_under_attack(attack):
    problem, keys = MACHINES["overall, one site of seven lies"]
    liars = [ba.Adversary("s6", attack)]
    card = answer_card(ba.identify(problem, "bet", seed=5, **{**keys, "adversaries": liars}))
    cells = [dict(zip("ABC", row, strict=True)) for row in problem.means[:6]]
    values = {option: float(np.mean([row[option] for row in cells])) for option in "ABC"}
    assert all(row.interval for row in card.options)
    assert not card_misses(card, values, {})
    assert "which may differ" in " ".join(card.assumptions)


# Coverage of whole runs


@pytest.mark.parametrize("name", CASES)
def test_few_stopped_runs_of_a_question_are_wrong_or_miss(name):
    """Null: the rate is at most δ + α = 0.15. More than 100 of 300 have probability below 1e-15 then."""
    row = by_kernel(name, 300, 1, 0.1, 0.05)
    assert row["failed"] <= 100
    assert row["decided"] > 270


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_intervals_of_questions_hold_at_the_stopping_time_all_together(name):
    """Null: P(wrong, or any interval misses) ≤ δ + α = 0.15. Of 20,000 runs more than 3,250 have probability
    below 1e-6 then. Power: a rate of 0.18 is found with probability above 0.99."""
    assert by_kernel(name, 20_000, 2, 0.1, 0.05)["failed"] <= 3_250


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_intervals_of_questions_hold_on_the_cards(name):
    """Null: the rate is at most 0.15. More than 40 of 100 have probability below 1e-9 then."""
    assert by_machines(name, 100, 3, 0.1, 0.05)["failed"] <= 40
