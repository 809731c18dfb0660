"""The picture of wealths shows every arm, who leaves and who is the champion."""

from __future__ import annotations

import itertools
import math
import re

import pytest

import bestarm as ba

pytest.importorskip("matplotlib")

from bestarm.records.views import trace_of
from bestarm.report import plots, wealth_plot

PAPER = ba.Problem.paper_instance(5)


def labels(ax):
    return [text.get_text().strip() for text in ax.get_legend().get_texts()]


def test_every_arm_has_a_line_and_those_that_leave_end_at_the_limit(tmp_path):
    record = ba.identify(PAPER, "bet", delta=0.1, seed=13)
    ax = wealth_plot.wealth(record)
    said = labels(ax)
    assert said[0] == f"{record.verdict.arm} (winner)"
    assert sum("out after" in text for text in said) == 8
    assert "an arm is ruled out (×) at 10" in said
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert len(crosses) == 8
    assert all(line.get_ydata()[0] >= 10 for line in crosses)
    plots.save(ax, str(tmp_path / "wealth.png"))
    assert (tmp_path / "wealth.png").stat().st_size > 1000


def test_blocks_follow_each_other_and_a_champion_rests():
    found = trace_of(ba.identify(PAPER, "bet", delta=0.1, seed=13)).wealths()
    assert math.isclose(found.limit, math.log(10))
    blocks = sorted({(bet.begin, bet.end) for bet in found.bets})
    assert blocks[0] == (24, 36)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(blocks))
    assert len({bet.champion for bet in found.bets}) > 1
    assert all(bet.champion != (bet.group, bet.arm) for bet in found.bets)


def test_groups_of_several_clients_are_drawn_from_the_server_s_wealths():
    problem = ba.Problem.bernoulli({"w": {"a": 0.9, "b": 0.2}, "e": {"c": 0.6, "d": 0.1}}, clients=2)
    said = labels(wealth_plot.wealth(ba.identify(problem, "bet", delta=0.1, seed=1)))
    assert said[0] == "w/a (winner)"
    assert sum("out after" in text for text in said) == 3


def test_an_undecided_run_shows_the_arms_that_are_left():
    ax = wealth_plot.wealth(ba.identify(PAPER, "bet", delta=0.1, seed=13, max_rounds=5))
    assert ax.get_title().startswith("Fed-Bet: Undecided: ")
    assert sum(text.endswith("(not ruled out)") for text in labels(ax)) > 1


def test_only_the_arms_that_stay_longest_are_drawn():
    problem = ba.Problem.bernoulli({"a": {f"arm{k}": 0.9 if k == 0 else 0.5 for k in range(30)}})
    ax = wealth_plot.wealth(ba.identify(problem, delta=0.1, seed=1))
    assert sum(bool(re.match(r"a/arm\d+ \(", text)) for text in labels(ax)) == wealth_plot.MOST_ARMS
    assert "12 further options not drawn" in labels(ax)


@pytest.mark.parametrize("method", ["fed-sel", "fisher"])
def test_a_run_without_bets_is_refused(method):
    with pytest.raises(ba.InputError, match="no wealths"):
        wealth_plot.wealth(ba.identify(PAPER, method, delta=0.1, seed=1))


def test_an_answer_that_nothing_is_promised_about_is_no_winner():
    rows = {f"s{j}": {"A": 0.2, "B": 0.4, "C": 0.3} for j in range(5)}
    liars = [ba.Adversary(site, "extreme") for site in ("s3", "s4")]
    record = ba.identify(ba.Problem.from_rewards(rows), question="overall", adversaries=liars, seed=1)
    ax = wealth_plot.wealth(record)
    assert labels(ax)[0] == f"{record.verdict.answers[0].option} (named, unsafe)"
    assert ax.get_xlabel() == "pulls of each rival at a site"
