"""The live page in a real Chromium. `make test-browser` runs it; see docs/watch.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from test_mesh import Folds as MeshFolds
from test_mesh import make, small
from test_report_in_browser import CONTRAST, DRAWN, HOSTILE
from test_run_journal import Slow

import bestarm as ba
from bestarm.deploy.federation import files
from federations import CASES, Coins, Folds
from helpers import Processes
from lives import SECONDS, serving

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(chromium):
    """Opens a live page and checks that it logged and popped up nothing, and fetched nothing from elsewhere.

    The messages that the browser logs for a lost connection are in `expected`.
    """
    said, contexts, expected = [], [], []

    def go(url, width=1000, lost=False, **keys):
        context = chromium.new_context(viewport={"width": width, "height": 800}, **keys)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("console", lambda message: (expected if lost else said).append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: None if r.url.startswith(url.partition("?")[0]) else said.append(r.url))
        page.goto(url)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []
    assert all("ERR_" in text for text in expected)


@pytest.fixture
def folds(tmp_path):
    files.init(CASES["fed-sel"], tmp_path / "f", port=0)
    made = Folds(tmp_path / "f", Coins(CASES["fed-sel"].problem), batch=1000)
    yield made
    made.close()


def begin(folds):
    """Run the federation until a round is complete."""
    while folds.desk.machine.rounds < 1:
        folds.turn()
    assert not folds.desk.done


def caught_up(page, events):
    """Wait until the page shows all these events: before the first one there is no moment to go back to."""
    page.locator("#place", has_text=f"{events:,} events").wait_for()


def hears(page, text):
    page.locator("#state").filter(has_text=text).wait_for()


def test_the_page_follows_a_federation_through_a_server_restart_to_its_verdict(visit, tmp_path):
    case = CASES["fed-sel"]
    real = Processes(tmp_path / "f", case)
    command = [sys.executable, "-m", "bestarm.cli", "watch", str(tmp_path / "f"), "--json"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        page = visit(json.loads(watcher.stdout.readline())["url"])
        hears(page, "Waiting")
        real.start("server")
        page.get_by_text("Not decided yet").wait_for()
        hears(page, "Live.")
        for name in real.names[:2]:  # the run cannot end before the third client joins
            real.start(name)
        page.locator("#costs td", has_text="bits up").wait_for()
        before = int(page.locator("#slider").get_attribute("max"))
        real.kill("server")  # and is restarted
        real.start(real.names[2])
        page.locator("#intervals svg").first.wait_for()  # a round is complete
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        hears(page, "Finished")
        assert page.title() == "bestarm: west/a"
        assert int(page.locator("#slider").get_attribute("max")) > before
        assert page.locator("#live").get_attribute("aria-pressed") == "true"
        page.goto("about:blank")
        real.wait()
    finally:
        real.end()
        watcher.terminate()
        assert watcher.wait(SECONDS) == 130
        watcher.stdout.close()


def test_the_page_reconnects_by_itself_when_its_server_returns(visit, folds):
    with serving(folds.folder) as url:
        page = visit(url, lost=True)
        hears(page, "Live.")
    hears(page, "Connection lost, trying again.")
    folds.go()
    with serving(folds.folder, port=int(url.rstrip("/").rpartition(":")[2])):
        hears(page, "Finished")
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        page.goto("about:blank")


def test_the_slider_goes_back_by_keyboard_and_live_returns(visit, folds):
    with serving(folds.folder) as url:
        page = visit(url)
        folds.go()
        hears(page, "Finished")
        slider = page.locator("#slider")
        slider.focus()
        page.keyboard.press("Home")
        page.get_by_role("heading", name="Not decided yet").wait_for()
        hears(page, "Looking back")
        assert page.locator("#place").inner_text().startswith("event 0 of ")
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        page.locator("#place", has_text="event 3 of ").wait_for()
        assert page.evaluate("document.activeElement.id") == "slider"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # on "Live"
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        slider.focus()
        page.keyboard.press("ArrowLeft")
        hears(page, "Looking back")
        page.keyboard.press("End")  # the newest moment is live again
        hears(page, "Finished")
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        page.goto("about:blank")


def test_an_earlier_moment_stays_shown_while_the_run_continues(visit, folds):
    with serving(folds.folder) as url:
        begin(folds)
        page = visit(url)
        hears(page, "Live.")
        caught_up(page, len(folds.desk.journal))
        page.locator("#slider").focus()
        page.keyboard.press("Home")
        hears(page, "Looking back")
        folds.go()
        page.locator("#place", has_text=f"event 0 of {len(folds.desk.journal)}").wait_for()
        assert page.get_by_role("heading", name="Not decided yet").is_visible()
        page.locator("#live").click()
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        page.goto("about:blank")  # otherwise it notices that its server ends


def test_updates_keep_open_sections_focus_and_scroll_position(visit, folds):
    begin(folds)
    with serving(folds.folder) as url:
        page = visit(url)
        hears(page, "Live.")
        caught_up(page, len(folds.desk.journal))
        table = page.locator("#costs details")
        table.locator("summary").click()
        table.locator("summary").focus()
        top = "document.querySelector('#costs summary').getBoundingClientRect().top"
        before = page.evaluate(top)
        assert page.evaluate("scrollY") > 0
        bits = page.locator("#costs td").nth(3).inner_text()
        folds.go()
        hears(page, "Finished")
        assert page.locator("#costs td").nth(3).inner_text() != bits  # the section was replaced
        assert table.evaluate("details => details.open")
        assert page.evaluate("document.activeElement === document.querySelector('#costs summary')")
        assert page.evaluate("document.querySelector('#costs').getBoundingClientRect().top") < 800
        assert abs(page.evaluate(top) - before) < 400
        page.goto("about:blank")


@pytest.mark.parametrize("width", [1000, 360])
def test_nothing_overflows(visit, folds, tmp_path, width):
    folds.go()
    case = small()
    make(case, tmp_path / "m")
    mesh = MeshFolds(tmp_path / "m", case)
    mesh.open()
    mesh.go()
    mesh.close()
    for place in (folds.folder, folds.places["west-1"].folder, mesh.places[0].folder):
        with serving(place) as url:
            page = visit(url, width)
            hears(page, "Finished")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            drawn = page.evaluate(DRAWN)
            assert drawn
            for picture in drawn:
                assert picture["marks"] > 0, picture
                assert picture["out"] == 0, picture
                assert picture["words"] == [], picture
            page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(visit, folds, scheme):
    folds.go()
    with serving(folds.folder) as url:
        page = visit(url, color_scheme=scheme)
        hears(page, "Finished")
        assert all(ratio >= 4.5 for _, ratio in page.evaluate(CONTRAST))
        page.goto("about:blank")


def test_hostile_names_are_shown_as_text(visit, tmp_path):
    groups = {name: {"<b>bold<∕b>": 0.9 - 0.2 * (k > 0), "b": 0.1} for k, name in enumerate(HOSTILE)}
    case = ba.Scenario(ba.Problem.from_rewards(groups), "fisher", None, {"delta": 0.1})
    files.init(case, tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(case.problem))
    first = folds.names[0]
    with serving(tmp_path / "f") as url, serving(folds.places[first].folder) as other:
        pages = [visit(url), visit(url, 360), visit(other, 360)]
        folds.sites[first].note("<img src=x onerror=alert(1)>")
        folds.desk.take(folds.sites[first].notes)
        folds.go()
        folds.close()
        for page in pages:
            hears(page, "Finished")
            assert page.evaluate("document.querySelectorAll('img, b, iframe').length") == 0
            assert page.evaluate("document.querySelectorAll('script').length") == 2
            assert HOSTILE[0] in page.locator("body").inner_text()
            width = page.viewport_size["width"]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert HOSTILE[3] in pages[0].locator("body").inner_text()
        for page in pages:
            page.goto("about:blank")


def test_the_token_in_the_url_grants_access_and_is_then_removed_from_it(visit, folds):
    with serving(folds.folder, host="0.0.0.0") as printed:
        at = printed.partition("?")[0].rstrip("/").rpartition(":")[2]
        url = f"http://127.0.0.1:{at}/?{printed.partition('?')[2]}"
        page = visit(url)
        hears(page, "Live.")
        assert "token" not in page.url
        folds.go()
        hears(page, "Finished")
        page.goto("about:blank")


def test_the_page_follows_a_run_in_process_and_shows_earlier_moments(visit, tmp_path):
    slow = Slow(tmp_path / "run.db")
    with serving(slow.path) as url:
        page = visit(url)
        hears(page, "Waiting")
        slow.worker.start()
        try:
            page.get_by_text("Not decided yet").wait_for()
            hears(page, "Live.")
        finally:
            slow.finish()
        page.get_by_role("heading", name="attic/new is the best arm").wait_for()
        hears(page, "Finished")
        assert page.locator("#arms svg").count() > 0
        page.locator("#slider").focus()
        page.keyboard.press("Home")
        page.get_by_text("Not decided yet").wait_for()
        page.goto("about:blank")
