"""What the live page adds to a report, in a real Chromium: stable colours, leader, forecast, life signs."""

from __future__ import annotations

import pytest
from test_live_in_browser import begin, caught_up, folds, hears, visit  # noqa: F401
from test_page_in_browser import COLOURS, FAINT
from test_run_journal import Slow

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.util.journal import Journal
from federations import CASES
from lives import serving

pytestmark = pytest.mark.browser


def journal_of(tmp_path, scenario, **keys):
    """The whole journal of a run, and an empty one that is filled event by event."""
    ba.identify(scenario, journal=tmp_path / "whole.db", **keys)
    with Journal.open(tmp_path / "whole.db", write=False) as journal:
        return Journal.create(tmp_path / "run.db", journal.kind, journal.header), list(journal.events())


def write(journal, events):
    """Append events in one commit."""
    journal.append_many((event.kind, event.body) for event in events)


@pytest.mark.parametrize("method", ["bet", "fed-sel", "fisher"])
def test_no_option_changes_its_colour_while_the_page_follows_a_run(visit, tmp_path, method):  # noqa: F811
    part, events = journal_of(tmp_path, ba.load("examples/target-detection.toml"), method=method, seed=7)
    seen = {}
    with part, serving(tmp_path / "run.db") as url:
        page = visit(url)
        for stop in (1, 3, 6, len(events) // 2, len(events) - 1, len(events)):
            write(part, events[len(part) : stop])
            caught_up(page, len(part))
            for option, colours in page.evaluate(COLOURS).items():
                seen.setdefault(option, set()).update(colours)
        hears(page, "Finished")
        page.locator("#slider").focus()
        page.keyboard.press("PageDown")  # an earlier moment has the same colours
        hears(page, "Looking back")
        page.locator("#place", has_text="event ").wait_for()
        for option, colours in page.evaluate(COLOURS).items():
            seen.setdefault(option, set()).update(colours)
        page.goto("about:blank")
    assert len(seen) == 9
    assert all(len(colours) == 1 for colours in seen.values()), seen


def test_the_leader_its_lead_and_a_forecast_are_shown_until_the_verdict(visit, tmp_path):  # noqa: F811
    part, events = journal_of(tmp_path, ba.load("examples/target-detection.toml"), method="fed-sel", seed=7)
    with part, serving(tmp_path / "run.db") as url:
        page = visit(url)
        write(part, events[: len(events) // 2])
        hears(page, "Live.")
        card = page.locator("#top .card")
        card.get_by_text("west/s1").first.wait_for()
        card.get_by_text("after 566 to 596 rounds").wait_for()  # once similar runs have been simulated
        shown = card.inner_text()
        for said in (
            "Leads",
            "Lead so far",
            "over centre/s4",
            "Not a result yet",
            "Cost so far",
            "Next step",
        ):
            assert said in shown
        assert "will be wrong with probability at most 0.1" in shown
        titles = card.locator("dt").all_inner_texts()
        write(part, events[len(events) // 2 :])
        hears(page, "Finished")
        titles = set(card.locator("dt").all_inner_texts()) | set(titles)
        assert titles >= {"Best", "Ahead by", "Risk", "Cost", "Leads", "Lead so far", "Similar runs end"}
        assert "Not a result yet" not in card.inner_text()
        page.goto("about:blank")


def test_the_last_sign_of_life_of_each_client_is_shown(visit, folds):  # noqa: F811
    with serving(folds.folder) as url:
        page = visit(url)
        hears(page, "Live.")
        row = page.locator("#clients tr", has_text="west-1")
        assert "none yet" in row.inner_text()
        while "up" not in {event.kind for event in folds.desk.journal.events()}:
            for name in ("west-1", "server"):
                folds.step(name)
        row.locator("time", has_text="ago").wait_for()
        assert "awaited" in page.locator("#clients tr", has_text="east-1").inner_text()
        assert "none yet" in page.locator("#clients tr", has_text="east-1").inner_text()
        folds.go()
        hears(page, "Finished")
        assert page.locator("#clients").count() == 0
        page.goto("about:blank")


def test_faults_stand_at_the_top_while_the_run_goes_on(visit, tmp_path):  # noqa: F811
    liars = [ba.Adversary("g2", "not-a-number", 1)]
    twins = ba.Problem.bernoulli([[0.9, 0.3], [0.85, 0.2]], clients=4)
    keys = {"method": "robust-fed-sel", "seed": 7, "byzantine": 1, "adversaries": liars}
    part, events = journal_of(tmp_path, twins, **keys)
    with part, serving(tmp_path / "run.db") as url:
        page = visit(url)
        write(part, events[:-1])
        page.locator("#alarms").wait_for()
        assert page.evaluate("document.querySelector('main').firstElementChild.id") == "alarms"
        assert "is proven faulty" in page.locator("#alarms").inner_text()
        assert page.evaluate(FAINT) == []
        page.goto("about:blank")


def test_a_page_that_waits_says_who_takes_part_and_how_to_start(visit, tmp_path):  # noqa: F811
    files.init(CASES["fed-sel"], tmp_path / "f", port=0)
    for width in (1280, 360):
        with serving(tmp_path / "f") as url:
            page = visit(url, width)
            hears(page, "Waiting")
            assert page.locator("h1").inner_text() == "Waiting: the server has not started."
            assert "bestarm server" in page.locator("#top pre").inner_text()
            assert "will be wrong with probability at most" in page.locator("#top .card").inner_text()
            assert page.locator("#clients tbody tr").count() == 3
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.goto("about:blank")
    with serving(tmp_path / "run.db") as url:
        page = visit(url)
        hears(page, "Waiting")
        assert "bestarm run SCENARIO.toml --journal" in page.locator("#top pre").inner_text()
        page.goto("about:blank")


def test_a_link_to_a_moment_opens_the_page_there(visit, folds):  # noqa: F811
    folds.go()
    with serving(folds.folder) as url:
        page = visit(url)
        page.goto("about:blank")
        page.goto(f"{url}#at=3")
        hears(page, "Looking back")
        page.locator("#place", has_text="event 3 of ").wait_for()
        page.get_by_role("heading", name="Not decided yet").wait_for()
        page.locator("#slider").focus()
        page.keyboard.press("ArrowRight")
        page.locator("#place", has_text="event 4 of ").wait_for()
        assert page.url.endswith("#at=4")
        page.locator("#live").click()
        hears(page, "Finished")
        assert "#" not in page.url
        page.goto("about:blank")


def test_what_a_reader_chose_stays_when_a_section_is_replaced(visit, folds):  # noqa: F811
    begin(folds)
    with serving(folds.folder) as url:
        page = visit(url)
        hears(page, "Live.")
        page.locator("#leaderboard th", has_text="option").locator("button").click()
        page.locator("#intervals .key:visible, #leaderboard tr[data-option]").first.hover()
        folds.go()
        hears(page, "Finished")
        head = page.locator("#leaderboard th", has_text="option")
        assert head.get_attribute("aria-sort") == "ascending"
        shown = page.locator("#leaderboard tbody tr td:nth-child(2)").all_inner_texts()
        assert shown == sorted(shown)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        page.locator("#slider").focus()
        page.keyboard.press("Home")
        hears(page, "Looking back")
        page.locator("#live").click()
        hears(page, "Finished")
        head.locator("button").click()  # it still works after looking back
        assert head.get_attribute("aria-sort") is None
        page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_of_a_live_page_has_enough_contrast(visit, tmp_path, scheme):  # noqa: F811
    slow = Slow(tmp_path / "run.db")
    with serving(slow.path) as url:
        page = visit(url, color_scheme=scheme)
        hears(page, "Waiting")
        assert page.evaluate(FAINT) == []
        slow.worker.start()
        try:
            hears(page, "Live.")
            assert page.evaluate(FAINT) == []
        finally:
            slow.finish()
        hears(page, "Finished")
        assert page.evaluate(FAINT) == []
        page.goto("about:blank")
