"""The page of a live experiment in a real Chromium: readable without script, in both themes, on a phone."""

from __future__ import annotations

import pytest
from test_page_in_browser import FAINT

import bestarm as ba
from bestarm.report.experiment import page_of
from lives import SECONDS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of an experiment at three sites, one of which holds the others up."""
    now = 1_760_000_000.0
    made = ba.Experiment(["A", "B"], ["Oslo", "Lima", "Kyoto"], binary=True, seed=1, clock=lambda: now)
    for hour in range(30):
        now += 3600.0
        for site, times in (("Oslo", 40), ("Lima", 12), ("Kyoto", 1)):
            for k, own in enumerate(made.ask_many(site, times)):
                if site != "Kyoto" or hour < 20:
                    made.tell(own.token, float((k + hour) % 10 < (7 if own.option == "B" else 4)))
    target = tmp_path_factory.mktemp("experiment") / "page.html"
    target.write_text(page_of(made.status, made.alarms, made.settings), encoding="utf-8")
    return target.as_uri()


@pytest.fixture
def visit(chromium, address):
    contexts = []

    def go(width, scheme):
        context = chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.goto(address)
        return page

    yield go
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_fits_and_its_text_has_enough_contrast(visit, width, scheme):
    page = visit(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(FAINT) == []
    assert page.locator("script").count() == 0


def test_the_page_shows_leader_pace_and_who_holds_things_up(visit):
    page = visit(1280, "light")
    titles = page.locator(".card dt").all_inner_texts()
    assert titles == ["Leads", "Lead so far", "Risk", "Cost so far", "Expected end"]
    assert "Kyoto" in page.locator(".card .next").inner_text()
    assert page.locator("tr.slow").count() == 1
    assert "holds things up" in page.locator("tr.slow").inner_text()
    bars = page.locator("#arrivals .wide svg rect.fill")
    assert bars.count() >= 60, "thirty hours, and a part of each for a site"
    assert page.locator("#arrivals .narrow").is_hidden()
