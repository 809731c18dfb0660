"""Plots of records: every method, undecided runs and hundreds of groups, with readable legends and axes."""

from __future__ import annotations

import itertools
import re

import pytest

import bestarm as ba

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from bestarm.report import plots
from bestarm.report.colours import COLOURS, colour, roster

PAPER = ba.Problem.paper_instance(5)
TWINS = ba.Problem.bernoulli([[0.9, 0.3], [0.6, 0.2]], clients=4)
HOSPITALS = "examples/hospitals.toml"
MANY = {f"site{j}": {"a": 0.95 if j == 7 else 0.5, "b": 0.2} for j in range(200)}
RUNS = {
    "bet": lambda: ba.identify(PAPER, "bet", delta=0.1, seed=7),
    "fed-sel": lambda: ba.identify(PAPER, "fed-sel", delta=0.1, seed=7, period=20_000),
    "one round": lambda: ba.identify(TWINS, "robust-fed-sel", seed=7, byzantine=1),
    "fisher": lambda: ba.identify(PAPER, "fisher", delta=0.1, seed=7),
    "undecided": lambda: ba.identify(PAPER, "fisher", seed=7, budget=500),
    "undecided bets": lambda: ba.identify(PAPER, seed=7, budget=300),
    "p2p": lambda: ba.identify(ba.load("examples/robots.toml")),
    "overall": lambda: ba.identify(ba.load(HOSPITALS)),
    "each": lambda: ba.identify(ba.load(HOSPITALS), question="each"),
    "control": lambda: ba.identify(ba.load(HOSPITALS), question="control", control="A", margin=0.04),
    "hundreds": lambda: ba.identify(ba.Problem.bernoulli(MANY), "fisher", seed=1),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_plot_has_a_legend_beside_it_and_whole_rounds(kind):
    record = RUNS[kind]()
    ax = record.plot()
    figure = ax.figure
    figure.canvas.draw()
    legend, frame = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.x0 >= frame.x1 - 1  # it covers nothing
    assert legend.x1 <= figure.bbox.x1 + 1
    if ax.get_xlabel().startswith("round"):
        shown = [tick.get_text() for tick in ax.get_xticklabels() if tick.get_text()]
        assert shown
        assert all("." not in text for text in shown)
    said = [text.get_text().strip() for text in ax.get_legend().get_texts()]
    if record.verdict.arm and kind != "each":
        assert f"{record.verdict.arm} (winner)" in said
    if kind == "hundreds":
        assert "388 further options not drawn" in said
    if kind == "control":
        assert "A (control)" in said
        assert any(text.startswith("B (better") for text in said)


def legend(ax):
    return [text.get_text().strip() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("kind", ["fed-sel", "fisher", "p2p", "one round"])
def test_options_that_the_server_did_not_follow_are_drawn_as_points(kind):
    record = RUNS[kind]()
    assert {text.partition(" (")[0] for text in legend(record.plot())} == set(roster(record.problem))


def test_bets_on_the_first_pulls_are_drawn_from_where_a_logarithmic_axis_begins():
    rows = {"US": {"A": 0.9, "B": 0.2}, "EU": {"A": 0.8, "B": 0.3}}
    ax = ba.identify(ba.Problem.from_rewards(rows), question="overall", seed=1).plot()
    assert all(x > 0 for line in ax.lines[:-2] for x in line.get_xdata()[:1])
    assert ax.get_title() == "Fed-Bet: A is the best option overall, on average over 2 sites"


def test_the_title_of_a_run_that_was_fooled_promises_nothing():
    rows = {f"s{j}": {"A": 0.2, "B": 0.4, "C": 0.3} for j in range(5)}
    liars = [ba.Adversary(site, "extreme") for site in ("s3", "s4")]
    record = ba.identify(ba.Problem.from_rewards(rows), question="overall", adversaries=liars, seed=1)
    assert record.plot().get_title().startswith("Fed-Bet: No safe answer: 2 sites lie")


def test_long_names_leave_room_for_the_picture():
    rows = {
        f"regional-hospital-of-district-{j:03}": {"a-long-option": 0.9 - 0.4 * (j > 0)} for j in range(30)
    }
    ax = ba.identify(ba.Problem.bernoulli(rows), "fisher", seed=1).plot()
    ax.figure.canvas.draw()
    assert ax.get_window_extent().width > 0.5 * ax.figure.bbox.width
    title = ax.title.get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= ax.figure.bbox.x1
    named = [text for text in legend(ax) if "not drawn" not in text]
    assert len(set(named)) == len(named) == 12


def test_options_with_equal_pulls_stand_in_the_middle_of_the_axis():
    ax = ba.identify(TWINS, "fisher", seed=7).plot()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["128"]
    assert ax.get_xlim() == (64, 256)


@pytest.mark.parametrize("draw", [plots.race, plots.intervals])
def test_an_option_has_the_colour_of_the_pages(draw):
    record = RUNS["bet"]()
    names = roster(record.problem)
    ax = draw(record)
    handles, labels = ax.get_legend_handles_labels()
    found = {label.strip().split(" (")[0]: handle for handle, label in zip(handles, labels, strict=True)}
    seen = 0
    for place, name in enumerate(names):
        if name in found:
            handle = found[name]
            line = handle if hasattr(handle, "get_color") else handle[0]
            assert to_hex(line.get_color()) == COLOURS[colour(place)]
            seen += 1
    assert seen > 1


def test_a_run_without_a_round_says_so():
    ax = ba.identify(PAPER, "fisher", seed=7, budget=5).plot()
    assert [text.get_text() for text in ax.texts] == ["no round was completed"]


def test_objects_have_short_reprs():
    scenario = ba.load(HOSPITALS)
    assert repr(PAPER) == "Problem(3 groups, 9 arms, 3 clients)"
    assert repr(scenario.problem) == "Problem(4 groups, 12 arms, 4 clients, question overall)"
    assert len(repr(scenario)) < 120
    small = ba.Problem.bernoulli([[0.9, 0.2], [0.3, 0.1]])
    found = ba.plan(small, methods=["fisher"], trials=20, seed=1, workers=1, quick=True)
    assert repr(found).startswith("Plan(fisher")
    assert len(repr(found)) < 120


def test_peers_that_found_nothing_are_drawn_with_the_means_that_they_told():
    record = ba.identify(ba.load("examples/robots.toml"), budget=500)
    ax = record.plot()
    ax.figure.canvas.draw()
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert shown[0] == "east/valve-1"
    assert len(shown) == 7
    assert "no round was completed" in ax.get_xlabel()


def test_the_names_of_many_sites_do_not_collide_and_those_left_out_are_counted():
    rates = {f"hospital {j}": {"A": 0.9, "B": 0.1} for j in range(45)}
    ax = ba.identify(ba.Problem.from_rewards(rates), question="each", seed=1).plot()
    ax.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert len(boxes) == 40
    assert all(one.x1 <= two.x0 + 1 for one, two in itertools.pairwise(boxes))
    assert ax.get_xlabel() == "the first 40 of 45 sites"


def test_wealth_beyond_the_picture_is_said_to_be():
    labels = [text.get_text() for text in RUNS["bet"]().plot().get_legend().get_texts()]
    assert any(re.fullmatch(r"more than [\d,]+ is drawn at the top", label) for label in labels)
