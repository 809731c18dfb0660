"""The live page in a real Chromium. `make test-browser` runs it; see docs/watch.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from test_report_in_browser import CONTRAST, DRAWN, HOSTILE

import bestarm as ba
from bestarm.federation import files
from federations import CASES, Coins, Folds
from lives import SECONDS, serving
from test_federation import Processes
from test_kept import Slow
from test_mesh import Folds as MeshFolds
from test_mesh import make, small

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(chromium):
    """Opens a live page; at the end nothing must have been said on the console or popped up, and nothing
    fetched from elsewhere. What a lost connection makes the browser say is `expected`."""
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
    """Let it run until a round was completed."""
    while folds.desk.machine.rounds < 1:
        folds.turn()
    assert not folds.desk.done


def hears(page, text):
    page.locator("#state").filter(has_text=text).wait_for()


def test_it_follows_a_running_federation_to_its_verdict_and_through_a_restart_of_the_server(visit, tmp_path):
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
        for name in real.names[:2]:  # the run can't be over before the third is here
            real.start(name)
        page.locator("#costs td", has_text="bits up").wait_for()
        before = int(page.locator("#slider").get_attribute("max"))
        real.kill("server")  # and it is started again
        real.start(real.names[2])
        page.locator("#intervals svg").first.wait_for()  # a round was completed
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        hears(page, "It is over")
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


def test_it_comes_back_by_itself_when_the_page_s_own_server_was_away(visit, folds):
    with serving(folds.folder) as url:
        page = visit(url, lost=True)
        hears(page, "Live.")
    hears(page, "Connection lost, trying again.")
    folds.go()
    with serving(folds.folder, port=int(url.rstrip("/").rpartition(":")[2])):
        hears(page, "It is over")
        page.get_by_role("heading", name="west/a is the best arm").wait_for()
        page.goto("about:blank")


def test_the_slider_goes_back_by_keyboard_and_live_returns(visit, folds):
    with serving(folds.folder) as url:
        page = visit(url)
        folds.go()
        hears(page, "It is over")
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
        hears(page, "It is over")
        page.get_by_role("heading", name="west/a is the best arm").wait_for()


def test_looking_back_stays_while_the_run_goes_on(visit, folds):
    with serving(folds.folder) as url:
        begin(folds)
        page = visit(url)
        hears(page, "Live.")
        page.locator("#slider").focus()
        page.keyboard.press("Home")
        hears(page, "Looking back")
        folds.go()
        page.locator("#place", has_text=f"event 0 of {len(folds.desk.journal)}").wait_for()
        assert page.get_by_role("heading", name="Not decided yet").is_visible()
        page.locator("#live").click()
        page.get_by_role("heading", name="west/a is the best arm").wait_for()


def test_what_is_open_focused_and_scrolled_stays_so_when_news_come(visit, folds):
    begin(folds)
    with serving(folds.folder) as url:
        page = visit(url)
        hears(page, "Live.")
        table = page.locator("#costs details")
        table.locator("summary").click()
        table.locator("summary").focus()
        top = "document.querySelector('#costs summary').getBoundingClientRect().top"
        before = page.evaluate(top)
        assert page.evaluate("scrollY") > 0
        bits = page.locator("#costs td").nth(3).inner_text()
        folds.go()
        hears(page, "It is over")
        assert page.locator("#costs td").nth(3).inner_text() != bits  # the section was replaced
        assert table.evaluate("details => details.open")
        assert page.evaluate("document.activeElement === document.querySelector('#costs summary')")
        assert page.evaluate("document.querySelector('#costs').getBoundingClientRect().top") < 800
        assert abs(page.evaluate(top) - before) < 400


@pytest.mark.parametrize("width", [1000, 360])
def test_nothing_sticks_out(visit, folds, tmp_path, width):
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
            hears(page, "It is over")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            drawn = page.evaluate(DRAWN)
            assert drawn
            for picture in drawn:
                assert picture["marks"] > 0, picture
                assert picture["out"] == 0, picture
                assert picture["words"] == [], picture
            page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_its_ground(visit, folds, scheme):
    folds.go()
    with serving(folds.folder) as url:
        page = visit(url, color_scheme=scheme)
        hears(page, "It is over")
        assert all(ratio >= 4.5 for _, ratio in page.evaluate(CONTRAST))
        page.goto("about:blank")


def test_hostile_names_are_shown_as_text(visit, tmp_path):
    groups = {name: {"<b>bold<∕b>": 0.9 - 0.2 * (k > 0), "b": 0.1} for k, name in enumerate(HOSTILE)}
    case = ba.scenario.Scenario(ba.Problem.from_rewards(groups), "fisher", None, {"delta": 0.1})
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
            hears(page, "It is over")
            assert page.evaluate("document.querySelectorAll('img, b, iframe').length") == 0
            assert page.evaluate("document.querySelectorAll('script').length") == 1
            assert HOSTILE[0] in page.locator("body").inner_text()
            width = page.viewport_size["width"]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert HOSTILE[3] in pages[0].locator("body").inner_text()
        for page in pages:
            page.goto("about:blank")


def test_the_token_of_the_address_lets_in_and_disappears_from_it(visit, folds):
    with serving(folds.folder, host="0.0.0.0") as printed:
        at = printed.partition("?")[0].rstrip("/").rpartition(":")[2]
        url = f"http://127.0.0.1:{at}/?{printed.partition('?')[2]}"
        page = visit(url)
        hears(page, "Live.")
        assert "token" not in page.url
        folds.go()
        hears(page, "It is over")
        page.goto("about:blank")


def test_it_follows_a_run_in_process_to_its_verdict_and_looks_back(visit, tmp_path):
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
        hears(page, "It is over")
        assert page.locator("#arms svg").count() > 0
        page.locator("#slider").focus()
        page.keyboard.press("Home")
        page.get_by_text("Not decided yet").wait_for()
        page.goto("about:blank")
