"""The report in a real Chromium, from disk and offline. `make test-browser` runs it; see docs/report.md."""

from __future__ import annotations

import json

import pytest

import bestarm as ba
from bestarm.report import page as pages
from lives import SECONDS

pytestmark = pytest.mark.browser
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "x" * 190,
    "שלום עולם",
    "{{7*7}}${alert(1)}",
)


def hostile():
    groups = {name: {"<b>bold<∕b>": 0.9 - 0.2 * (k > 0), "b": 0.1} for k, name in enumerate(HOSTILE)}
    return ba.identify(ba.Problem.from_rewards(groups), "fisher", seed=1)


def thousand():
    problem = ba.Problem.bernoulli(
        {f"site{j}": {"a": 0.95 if j == 7 else 0.5, "b": 0.2} for j in range(1000)}
    )
    return ba.identify(problem, "fisher", seed=1)


RECORDS = {
    "fed-sel": lambda: ba.identify(ba.Problem.paper_instance(5), "fed-sel", delta=0.1, seed=7, period=20_000),
    "fisher": lambda: ba.identify(ba.Problem.paper_instance(5), "fisher", delta=0.1, seed=7),
    "reviews": lambda: ba.identify(ba.load("examples/fake-reviews.toml")),
    "robots": lambda: ba.identify(ba.load("examples/robots.toml")),
    "hostile": hostile,
    "thousand": thousand,
}
STUDY = {"sigma": [1, 5, 15], "method": ["fisher"]}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Every kind of report, on disk."""
    made = tmp_path_factory.mktemp("reports")
    for name, run in RECORDS.items():
        record = run()
        record.save(made / f"{name}.json")
        record.report(made / f"{name}.html", quick=name == "thousand")
    study = ba.study(ba.Problem.paper_instance, trials=10, seed=1, delta=0.1, workers=1, vary=STUDY)
    pages.write(pages.of_trials(study), made / "study.html")
    return made


@pytest.fixture
def visit(chromium, folder):
    """Opens a report and checks that it logged, fetched and popped up nothing."""
    said: list[str] = []
    contexts = []

    def go(name, width=1000, **keys):
        context = chromium.new_context(viewport={"width": width, "height": 800}, **keys)
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        target = (folder / f"{name}.html").as_uri()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: said.append(r.url) if r.url.partition("#")[0] != target else None)
        page.goto(target)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


DRAWN = """() => [...document.querySelectorAll('svg:not([aria-hidden])')]
  .filter(s => s.getClientRects().length).map(s => {
  const all = s.getBoundingClientRect();
  const marks = [...s.querySelectorAll('path, circle, rect')].map(m => m.getBoundingClientRect());
  return {label: s.getAttribute('aria-label'), width: all.width, height: all.height,
          scale: all.width / s.viewBox.baseVal.width,
          marks: marks.filter(m => m.width + m.height > 0).length,
          out: marks.filter(m => m.right > all.right + 3 || m.left < all.left - 3).length,
          words: [...s.querySelectorAll('text')].filter(t => {
            const b = t.getBoundingClientRect(); return b.right > all.right + 2 || b.left < all.left - 2;
          }).map(t => t.textContent)};
})"""


@pytest.mark.parametrize("name", [*RECORDS, "study"])
@pytest.mark.parametrize("width", [1000, 360])
def test_every_plot_draws_and_nothing_overflows(visit, name, width):
    page = visit(name, width)
    drawn = page.evaluate(DRAWN)
    assert len(drawn) >= (4 if name == "study" else 3)
    for picture in drawn:
        assert picture["marks"] > 0, picture
        assert picture["out"] == 0, picture
        assert picture["words"] == [], picture
        assert picture["scale"] > 0.85, picture  # text stays readable
        assert picture["label"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


KINDS = "a, summary, .scroll, button, input, .chart, .key"
STOPS = f"[...document.querySelectorAll('{KINDS}')].filter(e => e.checkVisibility())"


def test_every_control_can_be_reached_with_the_keyboard(visit):
    page = visit("fisher")
    seen = []
    for _ in range(page.evaluate(f"{STOPS}.length") + 5):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(f"{STOPS}.indexOf(document.activeElement)"))
    found = page.evaluate(f"seen => {STOPS}.filter((e, k) => !seen.includes(k)).map(e => e.outerHTML)", seen)
    assert found == []
    page.locator("details:has(table) > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open] table").first.is_visible()


def test_the_embedded_record_can_be_downloaded(visit, folder, tmp_path):
    page = visit("reviews")
    with page.expect_download() as waiting:
        page.get_by_text("Download record.json").click()
    waiting.value.save_as(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads((folder / "reviews.json").read_text())
    assert ba.verify(ba.Record.load(tmp_path / "r.json"), replay=True)


def test_hostile_names_are_shown_as_text(visit):
    page = visit("hostile")
    text = page.locator("body").inner_text()
    for name in HOSTILE[:2] + HOSTILE[3:]:
        assert name in text
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1


CONTRAST = """() => { const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.includes('rgba(0, 0, 0, 0)')) return c; } return 'rgb(255,255,255)'; };
  return ['p', 'a', '.note', 'figcaption', 'th', 'td', 'dt', 'dd', 'summary', '.good', 'pre'].map(s => {
    const e = document.querySelector(s); if (!e) return [s, 21];
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return [s, (a + 0.05) / (b + 0.05)]; }); }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(visit, scheme):
    page = visit("reviews", color_scheme=scheme)
    assert all(ratio >= 4.5 for _, ratio in page.evaluate(CONTRAST))


def test_the_whole_report_is_printed(visit, tmp_path):
    page = visit("reviews", 360)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.locator(".narrow").first.is_hidden()
    assert page.locator(".wide").first.is_visible()
    page.pdf(path=tmp_path / "r.pdf", format="A4")
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")


def test_a_report_of_a_thousand_clients_is_usable(visit, folder):
    assert (folder / "thousand.html").stat().st_size < 10_000_000
    page = visit("thousand", 360)
    page.get_by_text("By client").click()
    rows = page.locator("#costs details table tbody tr")
    assert rows.count() == 1000
    assert rows.first.is_visible()
