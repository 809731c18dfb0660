"""The tables of docs/compare.md and other pages come from data that are kept and can be made again."""

from __future__ import annotations

import pytest
from docs import compare

import bestarm as ba
from bestarm.study.arena.entrants import entrant, everyone
from bestarm.study.arena.run import HEADLINE

KEPT = ba.Arena.load(compare.DATA)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in compare.PAGES])
def test_the_tables_of_a_page_are_current(path):
    text = path.read_text("utf-8")
    assert "<!-- table: " in text
    assert compare.page(text) == text, "run: python docs/compare.py"


def test_a_changed_number_would_be_noticed():
    text = compare.PAGES[0].read_text("utf-8")
    broken = text.replace("| Fed-Bet | proved |", "| Fed-Bet | guessed |")
    assert broken != text
    assert compare.page(broken) == text


CELLS = [
    ("fisher", "zipf"), ("batched", "zipf"), ("fpe", "crew"), ("fed-elim", "site-effects-20"),
    ("collaborative", "crew"), ("bet", "site-effects-20"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "instance"), CELLS)
def test_a_cell_of_the_kept_run_can_be_made_again(method, instance):
    found = ba.arena([method], [instance], delta=KEPT.delta, trials=KEPT.trials, seed=KEPT.seed, workers=1)
    assert found.scores == (KEPT.score(method, instance),)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        "bet",
        "top-two",
        "top-two-practice",
        "track-and-stop",
        "track-and-stop-practice",
        "lucb",
        "kl-lucb",
        "lil-ucb",
        "elimination",
        "round-robin",
        "tri-bbai",
    ],
)
def test_more_cells_of_the_kept_run_can_be_made_again(method):
    found = ba.arena([method], ["zipf"], delta=KEPT.delta, trials=KEPT.trials, seed=KEPT.seed, workers=1)
    assert found.scores == (KEPT.score(method, "zipf"),)


ROWS = {(row["baseline"], row["instance"]): row for row in compare.kept("baselines") if "baseline" in row}
CHEAP = ("batched", "fed-elim", "fpe", "collaborative")


def test_every_baseline_with_a_proof_was_shown_to_keep_delta_on_an_instance_of_its_own():
    proved = {who.label for who in everyone() if who.proof and (who.baseline or who.method.rival)}
    assert {baseline for baseline, _ in ROWS} == proved
    assert {instance for baseline, instance in ROWS if baseline == "kl-lucb"} >= {"kl-lucb-b2"}
    for row in ROWS.values():
        assert row["trials"] >= 10_000
        assert row["keeps δ"] == "yes"


@pytest.mark.parametrize(("name", "instance"), [key for key in ROWS if key[0] in CHEAP])
def test_a_measured_error_rate_can_be_measured_again(name, instance):
    row = ROWS[name, instance]
    (score,) = ba.arena([name], [instance], delta=0.1, trials=row["trials"], seed=2, workers=1).scores
    found = (score.errors, score.undecided, score.error[1], score.keeps)
    assert found == (row["wrong"], row["undecided"], row["most"], row["keeps δ"])


def test_the_kept_run_says_of_every_method_what_the_code_says():
    for entry in KEPT.entries:
        who = entrant(entry.label)
        told = (who.title, who.proof, who.source, who.headline)
        assert told == (entry.title, entry.proof, entry.source, entry.headline)


def test_the_kept_run_has_every_baseline_and_every_headline_instance():
    assert tuple(ground.name for ground in KEPT.grounds) == HEADLINE
    run = {entry.label for entry in KEPT.entries}
    missing = {one.label for one in everyone() if one.baseline or (one.method and one.method.rival)} - run
    assert not missing
