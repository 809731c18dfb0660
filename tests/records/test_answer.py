"""The answer card: its headline matches the promise, and every option has one interval."""

from __future__ import annotations

import re
from itertools import combinations

import msgspec
import numpy as np
import pytest
from benchmarks.coverage import ALPHA, DELTA, by_kernel

import bestarm as ba
from bestarm.protocol.summaries import Summary
from bestarm.records.answer import answer_card
from bestarm.records.card import KEPT, OptionFacts
from bestarm.records.estimates import ArmEstimate, estimates, shares, weighted
from bestarm.records.figures import (
    ahead_said,
    compared_said,
    decimals,
    lead_said,
    next_steps,
    option_said,
    said,
    span,
)
from bestarm.records.ranking import relative_lead

EASY = ba.Problem.bernoulli([[0.9, 0.2], [0.6, 0.1]])
LIARS = ba.Problem.bernoulli([[0.9, 0.3], [0.6, 0.2]], clients=3)


def test_the_card_names_the_best_its_lead_its_risk_its_cost_and_a_next_step():
    record = ba.identify(EASY, seed=3, delta=0.1)
    card = answer_card(record)
    assert card.tone == "good"
    assert card.best == "g1/a1"
    assert [row.name for row in card.options][:2] == ["g1/a1", "g2/a1"]
    assert len({row.name for row in card.options}) == len(card.options) == 4
    assert all(row.interval[0] <= row.mean <= row.interval[1] for row in card.options)
    assert card.lead.over == "g2/a1"
    assert 0.0 <= card.lead.interval[0] <= card.lead.value <= card.lead.interval[1]
    assert "0.1" in card.risk
    assert f"{0.1 + card.alpha:g}" in card.risk
    assert card.costs.pulls == record.pulls.total
    assert card.right is True
    assert next_steps(card, None)


def test_a_run_with_too_many_liars_says_that_there_is_no_safe_answer_and_shows_no_interval():
    adversaries = [ba.Adversary("g1", "bury", 1)]
    record = ba.identify(LIARS, "fisher", seed=1, adversaries=adversaries, summaries=True)
    card = answer_card(record)
    assert card.headline.startswith("No safe answer: ")
    assert card.tone == "bad"
    assert card.alpha is None
    assert all(row.interval is None for row in card.options)
    assert any("Lied and not caught" in text or "Proven faulty" in text for text in card.alarms)
    assert "Do not act" in next_steps(card, None)[0]


def test_a_wrong_answer_of_a_simulation_is_never_green():
    record = ba.identify(EASY, seed=3)
    wrong = msgspec.structs.replace(record, verdict=msgspec.structs.replace(record.verdict, arm="g2/a1"))
    card = answer_card(wrong)
    assert (card.right, card.tone) == (False, "bad")
    assert "The best option is g1/a1" in card.truth


def test_an_undecided_run_is_amber_and_says_what_would_help():
    record = ba.identify(EASY, seed=3, budget=80)
    card = answer_card(record)
    assert card.tone == "amber"
    assert card.best is None
    assert card.headline.startswith("Undecided")
    assert next_steps(card, None, "What helps: more data.") == ["What helps: more data."]


def test_without_summaries_the_numbers_stay_at_the_site():
    card = answer_card(ba.identify(EASY, seed=3, summaries=False))
    assert card.kept == KEPT
    assert [row.name for row in card.options] == ["g1/a1"]
    assert card.lead is None


def test_where_the_true_means_are_unknown_nothing_is_called_a_simulation():
    card = answer_card(ba.identify(EASY, seed=3).public())
    assert card.right is None
    assert card.truth == ""


def test_trimmed_claims_move_the_plain_mean_and_not_the_robust_one():
    adversaries = [ba.Adversary("g1", "bury", 1), ba.Adversary("g2", "promote", 1)]
    record = ba.identify(LIARS, "fisher", seed=1, byzantine=1, adversaries=adversaries)
    card = answer_card(record)
    assert card.best == "g1/a1"
    first = card.trims[0]
    assert first.option == "g1/a1"
    assert abs(first.robust - first.true) < abs(first.plain - first.true)
    assert [claim.kept for claim in first.claims if claim.liar] == [False]
    truth = {"g1/a1": 0.9, "g1/a2": 0.3, "g2/a1": 0.6, "g2/a2": 0.2}
    assert all(row.interval[0] <= truth[row.name] <= row.interval[1] for row in card.options)


def test_the_robust_mean_of_peers_lies_within_the_claims_that_were_kept():
    (row,) = answer_card(ba.identify(ba.load("examples/robots.toml"))).trims
    kept = [claim.mean for claim in row.claims if claim.kept]
    assert row.robust == pytest.approx(sum(kept) / len(kept))


@pytest.mark.parametrize("kind", ["anywhere", "overall", "each"])
def test_the_interval_of_a_lead_is_said_to_be_about_all_others(kind):
    cells = {"s": {"A": 0.8, "B": 0.4, "C": 0.3}, "t": {"A": 0.9, "B": 0.4, "C": 0.2}}
    card = answer_card(ba.identify(ba.Problem.from_rewards(cells), seed=1, question=kind))
    leads = card.site_leads if kind == "each" else (card.lead,)
    for lead in leads:
        assert lead.others == (5 if kind == "anywhere" else 2)
        assert lead_said(lead, card.percent).endswith(" over all others)")


def test_the_interval_of_a_lead_over_the_only_other_option_is_about_that_one():
    card = answer_card(ba.identify(ba.Problem.bernoulli([[0.9], [0.4]]), seed=1))
    assert card.lead.others == 1
    assert "over all" not in lead_said(card.lead, card.percent)


@pytest.mark.parametrize("lie", [0.0, 1.0])
def test_f_liars_cannot_push_an_interval_off_the_mean_that_the_others_have(lie):
    """Whatever one of three clients claims, the ends stay between those of the honest clients."""
    rng = np.random.default_rng(7)
    honest = rng.binomial(400, 0.5, size=2).astype(float)
    rows = {f"g1-{k + 1}": Summary((400,), (s,), (s,)) for k, s in enumerate(honest)}
    rows["g1-3"] = Summary((400,), (400 * lie,), (400 * lie,))
    layout = ba.Problem.bernoulli([[0.5]], clients=3).layout
    (found,) = estimates(layout, rows, 0.05, liars=1)
    assert found.interval[0] <= 0.5 <= found.interval[1]
    assert min(honest) / 400 <= found.mean <= max(honest) / 400
    assert found.plain != pytest.approx(found.mean)


def test_a_missing_summary_leaves_a_mean_unknown_and_widens_a_robust_interval():
    layout = ba.Problem.bernoulli([[0.5]], clients=4).layout
    rows = {f"g1-{k}": Summary((400,), (190.0 + 5 * k,), (190.0 + 5 * k,)) for k in (1, 2, 3)}
    assert estimates(layout, rows, 0.05)[0].mean is None
    full = estimates(layout, {**rows, "g1-4": rows["g1-1"]}, 0.05, liars=1)[0].interval
    part = estimates(layout, rows, 0.05, liars=1)[0].interval
    assert part[0] <= full[0] <= full[1] <= part[1]


def test_numbers_are_rounded_to_their_interval_and_shares_are_in_per_cent():
    assert decimals((0.8123, 0.8777)) == 3
    assert said(0.84617, (0.8123, 0.8777), percent=True) == "84.6 %"
    assert span((12.0, 480.0), percent=False) == "12 to 480"
    assert said(-0.0001, (-0.034, 0.034), percent=True) == "0.0 %"
    card = answer_card(ba.identify(EASY, seed=3))
    assert option_said(card.options[0], card.percent).count("%") == 2
    assert " points over g2/a1 (" in lead_said(card.lead, card.percent)


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("bet", {}),
        ("bet", {"epsilon": 0.05}),
        ("fed-sel", {}),
        ("fisher", {"epsilon": 0.05}),
        ("bet", {"summaries": False}),
    ],
)
def test_the_named_option_has_one_interval_in_the_record_and_on_the_card(method, keys):
    record = ba.identify(EASY, method, seed=3, delta=0.1, **keys)
    (best,) = [row for row in answer_card(record).options if row.best]
    assert record.verdict.interval is not None
    assert (best.mean, best.interval) == (record.verdict.mean, record.verdict.interval)


def test_the_shares_of_a_named_and_of_an_unnamed_run_add_up_to_alpha():
    """Whatever the outcome, an arm that is not the best one has at most α/(2(K − 1)), and a* at most α/2."""
    level, named = shares(0.05, 5, fixed=True, stated=False)
    assert 4 * level + named == pytest.approx(0.05)
    assert level <= named
    assert shares(0.05, 5, fixed=False, stated=True)[0] * 5 == pytest.approx(0.025)
    assert shares(0.05, 1, fixed=True, stated=False) == (0.05, 0.05)


def test_the_average_over_honest_sites_lies_between_those_without_any_f_sites():
    rng = np.random.default_rng(2)
    for _ in range(50):
        values, weights = rng.random(6), rng.random(6) + 0.1
        cells = [ArmEstimate(j, 0, v, (v, v), 10) for j, v in enumerate(values)]
        _, (low, high) = weighted(list(zip(weights, cells, strict=True)), liars=2)
        kept = [[j for j in range(6) if j not in out] for k in range(3) for out in combinations(range(6), k)]
        found = [np.average(values[some], weights=weights[some]) for some in kept]
        assert (low, high) == pytest.approx((min(found), max(found)))


def test_the_winner_s_curse_has_a_figure_or_a_reason():
    said_by = answer_card(ba.identify(EASY, seed=3)).curse
    assert "measured runs of Fed-Bet, on average by at most 7 % of the ± of its interval (here" in said_by
    assert "of the option that leads" in answer_card(ba.identify(EASY, seed=3, budget=80)).curse
    rival = ba.Problem.from_rewards({s: {"A": 0.9, "B": 0.1} for s in ("x", "y")})
    assert "not measured" in answer_card(ba.identify(rival, "fed-elim", seed=3, question="overall")).curse
    broken = ba.identify(LIARS, "fisher", seed=1, adversaries=[ba.Adversary("g1", "bury", 1)], summaries=True)
    assert answer_card(broken).curse == ""


def test_means_are_shown_in_the_user_s_unit():
    problem = ba.Problem.from_rewards(
        {"eu": {"a": {"kind": "beta", "a": 2, "b": 6}}, "us": {"c": {"kind": "beta", "a": 6, "b": 2}}},
        bounds=(0, 200), goal="min", unit="ms",
    )  # fmt: skip
    record = ba.identify(problem, seed=1)
    card = answer_card(record)
    assert record.problem["scale"]["unit"] == "ms"
    assert card.unit == "ms"
    assert not card.percent
    assert option_said(card.options[0], card.percent, card.unit).endswith(" ms)")
    assert " ms over us/c (" in lead_said(card.lead, card.percent, card.unit)
    assert " ms)" in card.truth
    assert ba.verify(record, replay=True).ok
    assert "unit" not in ba.identify(EASY, seed=1).problem["scale"]


@pytest.mark.parametrize("unit", ["x" * 21, "a\nb", 3])
def test_a_unit_is_a_short_text(unit):
    with pytest.raises(ba.InputError, match="unit = "):
        ba.Problem.from_rewards({"g": {"a": 0.5}}, unit=unit)


@pytest.mark.parametrize("method", ["bet", "fisher"])
def test_few_stopped_runs_are_wrong_or_have_an_interval_that_misses(method):
    """Null: the rate is at most δ + α = 0.15. More than 100 of 300 have probability below 1e-15 then."""
    row = by_kernel("close", method, ba.Problem.bernoulli([[0.6, 0.5], [0.5]]), 300)
    assert row["wrong or missed"] * 300 <= 100
    assert row["decided"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bet", "fisher"])
def test_intervals_hold_at_the_stopping_time_all_together(method):
    """Null: P(wrong, or any interval misses) ≤ δ + α = 0.15. Of 20,000 runs more than 3,250 have probability
    below 1e-6 then (exact binomial: mean 3,000, sd 50.5). Power: a rate of 0.18 is found with probability
    above 0.99."""
    row = by_kernel("close", method, ba.Problem.bernoulli([[0.6, 0.5], [0.5]]), 20_000)
    assert round(DELTA + ALPHA, 9) == 0.15
    assert row["wrong or missed"] * 20_000 <= 3_250
    assert row["bias"] > 0.0, "the winner's curse"


SITES = {f"s{j}": {"A": 0.2 + 0.02 * j, "B": 0.7 + 0.02 * j, "C": 0.3} for j in range(7)}


def test_an_option_that_is_compared_with_a_control_is_better_worse_or_as_good():
    record = ba.identify(
        ba.Problem.from_rewards({"s1": {"A": 0.3, "B": 0.6}, "s2": {"A": 0.5, "B": 0.8}}),
        question="control", control="B", seed=1,
    )  # fmt: skip
    card = answer_card(record)
    (told,) = ahead_said(card)
    assert re.match(r"A: \d+ points worse than B \(\d+ to \d+\), which is \d+ % of B's mean", told)
    lead = msgspec.structs.replace(card.lifts[0], value=0.0001, interval=(-0.03, 0.031), relative=None)
    assert compared_said(lead, True) == ("about as good as B", "3.0 worse to 3.1 better")


def test_every_option_of_every_site_has_an_interval_where_each_site_has_an_answer():
    record = ba.identify(ba.Problem.from_rewards(SITES), question="each", seed=1)
    card = answer_card(record)
    assert sorted(cell.name for cell in card.cells) == sorted(f"{s}/{o}" for s in SITES for o in "ABC")
    assert all(cell.interval[0] <= cell.mean <= cell.interval[1] for cell in card.cells)
    stated = {row.name: row.interval for row in card.sites}
    assert {cell.name: cell.interval for cell in card.cells if cell.best} == stated


def test_a_headline_has_few_answers_in_full_and_counts_many():
    few = {site: SITES[site] for site in ("s0", "s1")}
    both = answer_card(ba.identify(ba.Problem.from_rewards(few), question="each", seed=1))
    assert both.headline == "B is the best option at s0. B is the best option at s1."
    many = ba.identify(ba.Problem.from_rewards(SITES), question="each", seed=1)
    assert answer_card(many).headline == "B is the best option at each of the 7 sites."
    turned = SITES | {"s0": {"A": 0.9, "B": 0.2, "C": 0.3}, "s1": {"A": 0.9, "B": 0.2, "C": 0.3}}
    differ = ba.Problem.from_rewards(turned)
    found = answer_card(ba.identify(differ, question="each", seed=1))
    assert found.headline == "The best option is known at all 7 sites: B at 5 and A at 2."
    assert len(found.answers) == 7
    over_all = answer_card(ba.identify(differ, question="overall", also=["each"], seed=1))
    assert over_all.headline == f"{over_all.answers[0]} {found.headline}"
    rates = {"A": 0.5, **{f"B{k}": 0.9 for k in range(4)}, **{f"C{k}": 0.1 for k in range(3)}}
    compared = ba.identify(ba.Problem.from_rewards({"s": rates}), question="control", control="A", seed=1)
    assert answer_card(compared).headline == "Of 7 options, 4 better than A and 3 worse."


def test_the_headline_of_an_undecided_run_says_how_many_answers_are_open():
    tied = ba.Problem.from_rewards({"s1": {"A": 0.5, "B": 0.5}, "s2": {"A": 0.5, "B": 0.5}})
    over_all = ba.identify(tied, question="overall", budget=50, seed=1)
    assert answer_card(over_all).headline == "Undecided: the best option overall was not found."
    one = ba.Problem.from_rewards({"s": {"A": 0.5, "B": 0.5, "C": 0.9}})
    compared = ba.identify(one, question="control", control="A", budget=2_000, seed=1)
    assert answer_card(compared).headline == "Undecided: 1 of 2 answers is open."
    assert answer_card(compared).tone == "amber"


def test_numbers_without_an_interval_have_as_many_digits_as_they_deserve():
    card = answer_card(ba.identify(ba.load("examples/fake-reviews.toml"), byzantine=0))
    row = card.options[0]
    assert re.fullmatch(r"\d\.\d\d", option_said(row, card.percent))
    assert re.fullmatch(r"0\.\d\d? over .*", lead_said(card.lead, card.percent))
    lead = msgspec.structs.replace(card.lead, value=-0.0421)
    assert lead_said(lead, True) == f"-4.2 points over {lead.over}"


def test_where_more_sites_lie_than_the_run_tolerates_means_stand_without_intervals():
    liars = [ba.Adversary(site, "extreme") for site in ("s5", "s6")]
    record = ba.identify(ba.Problem.from_rewards(SITES), question="overall", adversaries=liars, seed=1)
    card = answer_card(record)
    assert card.headline.startswith("No safe answer: ")
    assert all(row.mean is not None and row.interval is None for row in card.options)
    cells = [(0.5, ArmEstimate(0, 0, 0.2, (0.1, 0.3), 9)), (0.5, ArmEstimate(1, 0, 0.4, None, 9))]
    value, ends = weighted(cells)
    assert (round(value, 12), ends) == (0.3, None)


def test_a_named_run_is_dated_and_an_unnamed_one_has_the_same_digest_on_any_day():
    plain, named = ba.identify(EASY, seed=3), ba.identify(EASY, seed=3, name="ward 7")
    assert (plain.name, plain.date) == ("", "")
    assert named.name == answer_card(named).name == "ward 7"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", named.date)
    assert msgspec.structs.replace(named, name="", date="").sealed() == plain


def test_a_lead_is_stated_relative_to_the_rival_only_if_that_says_something():
    def rival(low, high):
        return OptionFacts(name="a", mean=(low + high) / 2, interval=(low, high), pulls=9)

    value, ends = relative_lead((0.1, 0.3), 0.2, rival(0.4, 0.6))
    assert (value, *ends) == pytest.approx((40, 100 / 6, 75))
    assert relative_lead((0.0, 0.6), 0.3, rival(0.001, 0.6)) is None, "0 to 60,000 %"
    assert relative_lead((0.0, 0.6), 0.3, rival(0.0, 0.6)) is None
