"""Facts, pages and plots agree on what a method claims and on the axis of its progress."""

from __future__ import annotations

import ast
import functools

import pytest
from test_report import Page

import bestarm as ba
from bestarm.protocol.registry import METHODS
from bestarm.records.views import trace_of
from bestarm.report import facts as collect
from bestarm.report import page
from bestarm.report.words import ILLUSTRATIVE

PAPER = ba.Problem.paper_instance(5)
TWINS = ba.Problem.bernoulli([[0.9, 0.3], [0.6, 0.2]], clients=4)

# name -> (how it is run, whether its intervals are claimed, what it is drawn against)
CASES = {
    "fed-sel": (lambda: ba.identify(PAPER, "fed-sel", delta=0.1, seed=7, period=20_000), True, "round"),
    "robust-fed-sel": (lambda: ba.identify(TWINS, "robust-fed-sel", seed=7, byzantine=1), True, "round"),
    "fisher": (lambda: ba.identify(PAPER, "fisher", delta=0.1, seed=7), False, "pulls"),
    "fisher, epsilon": (
        lambda: ba.identify(PAPER, "fisher", delta=0.1, seed=7, epsilon=0.1), True, "pulls"
    ),
    "pooled": (lambda: ba.identify(TWINS, "fisher", seed=7, byzantine=1), False, "pulls"),
    "pooled, epsilon": (
        lambda: ba.identify(TWINS, "fisher", seed=7, byzantine=1, epsilon=0.1), True, "pulls"
    ),
    "p2p": (lambda: ba.identify(ba.load("examples/robots.toml")), True, "pulls"),
}  # fmt: skip


@functools.cache
def run(case):
    return CASES[case][0]()


@pytest.mark.parametrize("case", CASES)
def test_facts_pages_and_plots_agree_on_what_is_claimed(case):
    record, (_, claimed, axis) = run(case), CASES[case]
    facts = collect.of_record(record, quick=True)
    assert facts.method.claims_intervals == claimed
    sections = {key: Page(body).text for key, _, body in page.sections(facts)}
    assert not any(ILLUSTRATIVE in text for text in sections.values())
    ax = record.plot()
    assert (ILLUSTRATIVE in ax.get_ylabel()) == (not claimed)
    assert facts.method.axis == axis
    assert ax.get_xlabel().startswith(axis)
    assert facts.method.summary in sections["top"]


@pytest.mark.parametrize("case", CASES)
def test_the_mean_and_the_claimed_interval_of_the_winner_are_those_of_the_verdict(case):
    record = run(case)
    facts = collect.of_record(record, quick=True)
    line = next(line for line in facts.lines if line.name == record.verdict.arm)
    assert line.fate == "in"
    if record.verdict.mean is not None:
        assert line.mean[-1] == record.verdict.mean
    if record.verdict.interval is not None and record.peers is None:
        low, high = record.verdict.interval
        assert (line.lower[-1], line.upper[-1]) == pytest.approx((max(low, 0.0), min(high, 1.0)))


@pytest.mark.parametrize("case", CASES)
def test_a_plot_shows_the_options_that_the_facts_have(case):
    record = run(case)
    facts = collect.of_record(record, quick=True)
    labels = {text.get_text().strip().split(" (")[0] for text in record.plot().get_legend().get_texts()}
    assert labels == set(facts.roster)


@pytest.mark.parametrize("case", CASES)
def test_a_trace_is_on_the_unit_interval_and_says_why_each_arm_was_dropped(case):
    trace = trace_of(run(case))
    for line in trace.lines():
        for view in line.views:
            assert max(view.lower, 0.0) <= view.mean <= min(view.upper, 1.0)
            assert view.pulls > 0
    for exit_ in trace.exits():
        assert exit_.why is not None
        assert 0.0 <= exit_.mean <= 1.0
        assert exit_.pulls[0] <= exit_.pulls[1]


def test_only_the_paper_s_figures_name_a_method_in_the_report(root):
    names = set(METHODS)
    for path in (root / "src/bestarm/report").rglob("*.py"):
        if path.parent.name == "figures":  # they are about two methods
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Constant) and node.value in names), f"{path}:{node.lineno}"
