"""The documentation in a real Chromium: every page on a phone, search, copy buttons, dark pictures, paper."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from docs import check_html, gallery

from lives import SECONDS

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = ROOT / "docs" / "_build" / "html"  # that of `make docs`: Sphinx makes only what has changed
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):  # the tests' output is for failures
        pass

    def do_GET(self):
        if self.path == "/favicon.ico":  # a browser asks for it if a drawing is opened by itself
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@pytest.fixture(scope="session")
def site():
    """The address of the built documentation."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(BUILT)]
    subprocess.run(command, check=True, cwd=ROOT)
    assert check_html.check(BUILT) == []
    handler = functools.partial(Quiet, directory=str(BUILT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def visit(chromium, site):
    """Opens pages, and checks that they logged no error and asked no other host for anything."""
    said: list[str] = []
    contexts = []

    def go(name, width=1280, **keys):
        context = chromium.new_context(viewport={"width": width, "height": 800}, **keys)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("console", lambda m: said.append(f"{page.url}: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
        page.on("request", lambda r: None if r.url.startswith((site, "data:")) else said.append(r.url))
        page.on("response", lambda r: said.append(f"{r.status} {r.url}") if r.status >= 400 else None)
        page.goto(site + name)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


def pages() -> list[str]:
    return sorted(path.relative_to(BUILT).as_posix() for path in BUILT.rglob("*.html"))


def test_no_page_scrolls_sideways_on_a_phone_or_loads_anything_from_elsewhere(visit, site):
    page = visit("index.html", width=360)
    wide = {}
    for name in pages():
        page.goto(site + name)
        wide[name] = page.evaluate(WIDER)
    assert len(wide) > 60
    assert {name: by for name, by in wide.items() if by > 0} == {}


@pytest.mark.parametrize("width", [768, 1280])
def test_the_home_page_fits_wider_screens(visit, width):
    assert visit("index.html", width=width).evaluate(WIDER) <= 0


def test_a_button_copies_a_block_and_output_has_none(visit):
    page = visit("start.html", permissions=["clipboard-read", "clipboard-write"])
    block = page.locator(".highlight-sh").filter(has_text="bestarm verify")
    block.get_by_role("button").click()
    block.get_by_role("button", name="Copy").filter(has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == "bestarm verify record.json --replay"
    assert page.locator(".highlight-text").count() > 0
    assert page.locator(".highlight-text button").count() == 0


def test_a_drawing_opens_by_itself(visit):
    page = visit("start.html", width=360)
    page.get_by_title("Open this picture").first.click()
    page.wait_for_url(re.compile(r"/_images/mine\.svg$"))


def test_the_search_finds_a_page_by_its_words(visit):
    page = visit("index.html")
    page.get_by_placeholder("Search").fill("Ville supermartingale")
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    results.first.wait_for()
    found = [address.partition("?")[0] for address in results.evaluate_all("all => all.map(a => a.pathname)")]
    assert "/bet-proofs.html" in found


def test_the_search_says_so_if_nothing_matches(visit):
    page = visit("search.html?q=xyzzyplugh")
    page.locator("#search-results").get_by_text(re.compile("did not match any documents")).wait_for()


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_pictures_follow_the_scheme_of_the_reader(visit, scheme, dark):
    page = visit("index.html", color_scheme=scheme)
    drawing = page.locator("img[src$='.svg']").first
    assert ("invert" in drawing.evaluate("img => getComputedStyle(img).filter")) is dark
    assert shown(page) == {scheme}
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 3 * 64) is dark


def test_pictures_follow_the_button_for_the_theme(visit):
    page = visit("index.html", color_scheme="light")
    toggle = page.locator(".content-icon-container .theme-toggle")
    for _ in range(3):  # automatic, light and dark, in the theme's own order
        toggle.click()
        theme = page.evaluate("document.body.dataset.theme")
        assert shown(page) == {"light" if theme == "auto" else theme}
    page = visit("gallery.html", color_scheme="dark")
    assert shown(page) == {"dark"}
    assert page.locator("img.only-dark").count() == 2 * len(gallery.SCREENS)


def shown(page) -> set[str]:
    """Which of the pictures that have a light and a dark version are visible."""
    return {
        scheme
        for scheme in ("light", "dark")
        if page.locator(f"img.only-{scheme}").evaluate_all(
            "all => all.some(img => getComputedStyle(img).display != 'none')"
        )
    }


def test_the_privacy_sheet_fits_one_page_of_paper(visit):
    paper = visit("privacy-sheet.html").pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) == 1
