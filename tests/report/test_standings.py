"""The ranking of options, their one mean and interval, their colours, and what the pages say about them."""

from __future__ import annotations

import functools
import itertools
import math
import re

import pytest
from test_report import Page

import bestarm as ba
from bestarm.cli.render.record import show
from bestarm.deploy.federation import files
from bestarm.records.figures import ahead_said, lead_places, mean_places, number_of, said, span
from bestarm.report import facts as collect
from bestarm.report import follow, page
from bestarm.report.colours import COLOURS, colour, dash, roster
from bestarm.report.numbers import number
from bestarm.report.page.parts import command
from bestarm.report.standings import site_standings, standings, states
from bestarm.report.svg import intervals
from federations import Coins, Folds

PAPER = ba.Problem.paper_instance(5)
HOSPITALS = "examples/hospitals.toml"
RUNS = {
    "bet": lambda: ba.identify(PAPER, "bet", delta=0.1, seed=7),
    "fed-sel": lambda: ba.identify(PAPER, "fed-sel", delta=0.1, seed=7, period=20_000),
    "fisher": lambda: ba.identify(PAPER, "fisher", delta=0.1, seed=7),
    "p2p": lambda: ba.identify(ba.load("examples/robots.toml")),
    "liars": lambda: ba.identify(ba.load("examples/fake-reviews.toml")),
    "overall": lambda: ba.identify(ba.load(HOSPITALS)),
    "undecided": lambda: ba.identify(PAPER, seed=7, budget=300),
    "least": lambda: ba.identify(
        ba.Problem.from_rewards({"a": {"x": 10, "y": 30}, "b": {"z": 20}}, bounds=(0, 50), goal="min"),
        "fisher",
        seed=1,
    ),
}


@functools.cache
def record_of(kind):
    return RUNS[kind]()


@functools.cache
def facts_of(kind):
    return collect.of_record(record_of(kind), quick=kind != "bet")


@pytest.mark.parametrize("kind", RUNS)
def test_every_option_is_ranked_once_by_its_mean_with_the_winner_first(kind):
    facts = facts_of(kind)
    ranked = standings(facts)
    assert sorted(one.name for one in ranked) == sorted(roster(record_of(kind).problem))
    arm = facts.verdict.arm or next((a.option for a in facts.verdict.answers), None)
    if facts.verdict.status == "identified":
        assert ranked[0].name == arm
        assert [one.state for one in ranked].count("won") == 1
    else:
        assert "won" not in {one.state for one in ranked}
        assert {one.name for one in ranked if one.state == "in"} == set(facts.undecided.left)
    sign = -1 if facts.scale.goal == "min" else 1
    means = [sign * one.mean for one in ranked[1:] if one.mean is not None]
    assert means == sorted(means, reverse=True)
    for one, other in itertools.pairwise(ranked):
        assert one.lead == pytest.approx(sign * (one.mean - other.mean))
    for one in ranked:
        if one.lower is not None:
            low, high = sorted((one.lower, one.upper))
            assert low - 1e-9 <= one.mean <= high + 1e-9


@pytest.mark.parametrize("kind", ["p2p", "bet", "fed-sel", "overall"])
def test_the_winner_has_the_mean_and_the_interval_of_the_card_and_no_other_is_printed(kind):
    facts = facts_of(kind)
    first = standings(facts)[0]
    told = next(option for option in facts.card.options if option.name == first.name)
    interval = told.interval
    assert first.mean == told.mean
    assert (first.lower, first.upper) == interval
    sections = {key: body for key, _, body in page.sections(facts)}
    shown = span(interval, facts.card.percent)
    assert shown in Page(sections["leaderboard"]).text
    line = next(line for line in facts.lines if line.name == first.name)
    ends = line.lower[-1], line.upper[-1]
    if ends != interval:
        for other in (span(ends, facts.card.percent), f"{number(ends[0])} to {number(ends[1])}"):
            assert other == shown or all(other not in body for body in sections.values())


def test_intervals_that_are_not_promised_do_not_stand_beside_the_promised_one_of_the_winner():
    record = ba.identify(ba.load(HOSPITALS), summaries=False)  # as of an experiment: nobody sends any
    winner, *others = standings(collect.of_record(record, quick=True))
    assert (winner.lower, winner.upper) == record.verdict.interval
    assert all(one.mean is not None and one.lower is one.upper is None for one in others)
    text = Page(page.page(collect.of_record(record, quick=True))).text
    assert f"{100 * others[0].mean:.1f} %" in text  # as the winner's mean is written


def test_without_summaries_the_leaderboard_knows_what_the_card_knows():
    for method, keys in (("bet", {}), ("fed-sel", {"period": 20_000})):
        record = ba.identify(PAPER, method, delta=0.1, seed=7, summaries=False, **keys)
        facts = collect.of_record(record)
        winner, *others = standings(facts)
        assert (winner.mean, winner.name) == (record.verdict.mean, record.verdict.arm)
        assert all(one.mean is one.lower is one.pulls is one.lead is None for one in others)
        sections = {key: Page(body).text for key, _, body in page.sections(facts)}
        assert "they sent no summaries" in sections["leaderboard"]


@pytest.mark.parametrize(("kind", "bands"), [("fed-sel", 2), ("fisher", 0), ("liars", 0), ("p2p", 0)])
def test_a_race_has_bands_that_the_method_claims_and_ends_at_the_intervals_of_the_card(
    kind, bands, monkeypatch
):
    drawn, facts = [], facts_of(kind)
    monkeypatch.setattr(intervals, "chart", lambda curves, frame: drawn.append((curves, frame)) or "")
    intervals.race(facts, 900)
    ((curves, frame),) = drawn
    told = {option.name: option for option in facts.card.options}
    assert sum(len(curve.lower) > 1 for curve in curves) == bands
    for curve in curves:
        end = (curve.lower[-1], curve.upper[-1]) if curve.lower else curve.end
        assert (curve.value[-1], end) == (told[curve.name].mean, told[curve.name].interval)
        assert frame.span[0] <= end[0] <= end[1] <= frame.span[1]


@pytest.mark.parametrize("kind", ["liars", "p2p"])
def test_pulls_that_liars_claim_are_told_apart_from_the_cost(kind):
    facts = facts_of(kind)
    sections = {key: Page(body).text for key, _, body in page.sections(facts)}
    assert sum(one.pulls for one in standings(facts)) > facts.costs.pulls
    assert (
        "Pulls include those that liars claim; the cost counts honest clients only."
        in sections["leaderboard"]
    )
    assert "pulls of the honest clients" in sections["costs"]


def test_when_an_option_left_has_pulls_only_as_those_of_a_client():
    assert {one.left for one in standings(facts_of("liars")) if one.left} == {"round 2", "round 5"}
    told = [one.left for one in standings(facts_of("p2p")) if one.left]
    assert told
    assert all(re.fullmatch(r"[\d,]+ to [\d,]+ pulls per client", text) for text in told)


def test_an_answer_about_a_control_is_drawn_and_explained_by_the_bets_that_settled_it():
    record = ba.identify(ba.load(HOSPITALS), question="control", control="A", margin=0.04)
    facts = collect.of_record(record, quick=True)
    why = {one.name: one.why for one in standings(facts)}
    for bet in facts.wealths.bets:
        if bet.name == "A":
            continue
        *before, last = bet.log_wealth
        # The largest wealth of all tests together had passed the limit long before.
        assert max(before) < facts.wealths.limit <= last
        reached = number(float(f"{math.exp(last):.3g}"))  # three digits
        assert (
            why[bet.name]
            == f"the bets on this answer reached {reached} times their start, at least the level 160"
        )


def test_whoever_left_says_when_and_why():
    for kind in ("bet", "fed-sel", "fisher", "liars"):
        for one in standings(facts_of(kind)):
            assert (one.state == "won") == (one.left == "")
            assert (one.state == "won") == (one.why == "")


def test_a_colour_follows_from_the_problem_alone():
    names = roster(record_of("bet").problem)
    assert len({colour(k) for k in range(len(COLOURS))}) == len(COLOURS)
    assert len({(colour(k), dash(k)) for k in range(7 * len(COLOURS))}) == 7 * len(COLOURS)
    assert facts_of("bet").roster == names
    assert collect.of_record(record_of("bet").public(), quick=True).roster == names


def test_a_thousand_options_are_not_cut_silently():
    groups = {f"g{j}": {f"a{k}": 0.9 if j == k == 0 else 0.3 for k in range(6)} for j in range(200)}
    facts = collect.of_record(ba.identify(ba.Problem.from_rewards(groups), "bet", seed=1), quick=True)
    made = {key: Page(body).text for key, _, body in page.sections(facts)}
    assert "The first 20 of 1,200 options" in made["leaderboard"]
    assert "The other 1,180 options (the first 980 of them; all are in the record)" in made["leaderboard"]
    assert "further options, which left earlier, are not drawn" in made["intervals"]


def test_a_finished_run_calls_no_option_but_undecided_ones_not_ruled_out():
    assert set(states(facts_of("p2p")).values()) == {"won", "out"}
    assert "not ruled out" not in page.page(facts_of("p2p"))
    assert "not ruled out" in page.page(facts_of("undecided"))


def test_large_indices_have_no_exponent():
    assert number(163.7, 2) == "164"
    assert [number(x, 2) for x in (99.96, 9.96, 0.012, 1e-7)] == ["100", "10", "0.012", "1e-07"]


def test_the_words_of_a_command_stay_together():
    assert Page(command("bestarm run x.toml --seed 7")).text == "bestarm run x.toml --seed 7"
    assert command("a --b").count("<span>") == 2


def test_a_client_names_what_beat_its_arms(tmp_path):
    """An arm that falls to the bin of the leader was beaten by it, not by an arm of its own group."""
    close = {"west": {"a": 0.95, "b": 0.05}, "east": {"c": 0.62, "d": 0.6}}
    case = ba.Scenario(ba.Problem.from_rewards(close), "fisher", None, {"delta": 0.1})
    files.init(case, tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(case.problem))
    folds.go()
    folds.close()
    rivals = {}
    for name in ("west-1", "east-1"):
        source = follow.Journalled(folds.places[name].folder)
        source.catch_up()
        rivals |= {exit_.name: exit_.rival for exit_ in source.facts().exits}
        source.close()
    assert rivals["west/b"] == "west/a"
    assert rivals["east/d"] == "the leader of all groups"


def test_each_site_has_its_own_leaderboard_with_the_intervals_of_the_card():
    record = ba.identify(ba.load(HOSPITALS), question="each")
    facts = collect.of_record(record, quick=True)
    cells = {cell.name: cell for cell in facts.card.cells}
    sites = site_standings(facts)
    assert [rows[0].name for rows in sites] == [f"{a.site}/{a.option}" for a in record.verdict.answers]
    for rows in sites:
        assert [one.state for one in rows] == ["won", "out", "out"]
        assert rows[0].mean > rows[1].mean > rows[2].mean
        assert all((one.lower, one.upper) == cells[one.name].interval for one in rows)
        assert all(one.left.startswith("round ") for one in rows[1:])
        assert all(
            re.search(r"reached [\d,.]+ times their start, at least the level 20$", one.why)
            for one in rows[1:]
        )
    board = {key: str(body) for key, _, body in page.sections(facts)}["leaderboard"]
    assert board.count("</tr>") == 13
    assert "All 12 options" in board


def cells_of(body):
    """The texts of a table's rows."""
    rows = re.findall(r"<tr[^>]*>(<td.*?)</tr>", body)
    return [[Page(cell).text for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_an_option_has_one_value_on_a_page_also_where_sites_may_lie():
    rows = {f"s{j}": {"A": 0.2 + 0.02 * j, "B": 0.7 + 0.02 * j, "C": 0.3} for j in range(7)}
    keys = {"question": "overall", "byzantine": 1, "adversaries": [ba.Adversary("s6", "extreme")]}
    facts = collect.of_record(ba.identify(ba.Problem.from_rewards(rows), seed=1, **keys), quick=True)
    made = {key: str(body) for key, _, body in page.sections(facts)}
    first = {row[1]: row[2] for row in cells_of(made["leaderboard"])}
    second = {row[0]: row[1] for row in cells_of(made["options"]) if row[0] != "pulls at the site"}
    assert first.keys() == {"A", "B", "C"}
    assert first == second
    assert "without the highest and the lowest, because 1 site may lie" in made["options"]


def test_reasons_are_in_per_cent_where_means_are():
    board = str({key: body for key, _, body in page.sections(facts_of("fed-sel"))}["leaderboard"])
    assert re.search(r"[\d.]+ points behind the best, at least c·α = [\d.]+<", board)
    assert "its interval lay below that of the best one" in board  # without a second interval


def test_wealth_beyond_the_race_is_drawn_at_its_edge_and_told_as_it_is():
    facts = facts_of("bet")
    highest = max(max(bet.log_wealth) for bet in facts.wealths.bets)
    assert highest > intervals.HIGHEST * facts.wealths.limit
    board = {key: str(body) for key, _, body in page.sections(facts)}
    assert "Wealth beyond the top is drawn at the edge" in board["intervals"]
    assert f"{number(float(f'{math.exp(highest):.3g}'))} times its start" in board["intervals"]


def test_pictures_of_shares_are_in_per_cent_as_tables_are():
    panels = "".join(map(str, intervals.inside(facts_of("bet"), 430)))
    assert re.findall(r">(\d+ %)</text>", panels)
    assert not re.findall(r">0\.\d+</text>", panels)
    assert "%" not in "".join(map(str, intervals.inside(facts_of("liars"), 430)))


@pytest.mark.parametrize(
    ("question", "keys", "answer"),
    [
        ("each", {}, "A is the best option at s0. A is the best option at s1."),
        ("overall", {}, "A is the best option overall, on average over 2 sites."),
        ("control", {"control": "A"}, "B is worse than A."),
    ],
)
def test_a_client_says_the_answers_to_a_question_about_several_sites(tmp_path, question, keys, answer):
    rates = {f"s{j}": {"A": 0.9, "B": 0.1} for j in range(2)}
    problem = ba.Problem.from_rewards(rates).asking(question=question, **keys)
    files.init(ba.Scenario(problem, "bet"), tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(problem))
    folds.go()
    folds.close()
    parsed = Page(page.read(tmp_path / "f" / "clients" / "s0-1"))
    text = " ".join(parsed.text.split())
    assert answer in text
    promised = {"each": "The answer of each site is", "overall": "This is", "control": "All answers that are"}
    assert promised[question] in text
    assert "None" not in text
    assert "names a wrong arm" not in text


@pytest.mark.parametrize("kind", ["bet", "overall", "undecided", "least"])
def test_all_means_have_the_same_decimals_and_a_lead_is_the_same_number_everywhere(kind, capsys):
    record, facts = record_of(kind), facts_of(kind)
    card, places = facts.card, mean_places(facts.card)
    show(record)
    printed = capsys.readouterr().out
    sections = {key: Page(body).text for key, _, body in page.sections(facts)}
    for row in card.options:
        if row.interval is not None:
            mean = said(row.mean, row.interval, card.percent, places=places)
            assert mean in printed
            assert mean in sections["leaderboard"]
    if card.lead is not None:
        lead = number_of(card.lead, card.percent, lead_places(card))
        assert all(lead in text for text in (printed, *ahead_said(card)))
        assert lead in sections["leaderboard"]
        assert lead in sections["top"]
