"""What a page does in a real Chromium: leaderboard, colours, interaction, themes. See docs/report.md."""

from __future__ import annotations

import csv
import io
import re

import pytest
from test_report_in_browser import DRAWN

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.report import page as pages
from bestarm.study.arena.result import Arena
from federations import Coins, Folds
from lives import SECONDS

pytestmark = pytest.mark.browser


def many():
    groups = {f"site{j}": {"a": 0.95 if j == 7 else 0.4, "b": 0.2} for j in range(20)}
    return ba.identify(ba.Problem.from_rewards(groups), "bet", seed=1)


RUNS = {
    "bet": lambda: ba.identify(ba.load("examples/target-detection.toml"), "bet", seed=7),
    "fed-sel": lambda: ba.identify(ba.Problem.paper_instance(5), "fed-sel", delta=0.1, seed=7, period=20_000),
    "robots": lambda: ba.identify(ba.load("examples/robots.toml")),
    "overall": lambda: ba.identify(ba.load("examples/hospitals.toml")),
    "control": lambda: ba.identify(
        ba.load("examples/hospitals.toml"), question="control", control="A", margin=0.04
    ),
    "undecided": lambda: ba.identify(ba.Problem.paper_instance(5), seed=7, budget=300),
    "many": many,
}
MORE = {  # checked for contrast, collisions and phones only
    "fisher": lambda: ba.identify(ba.Problem.paper_instance(5), "fisher", delta=0.1, seed=7),
    "fooled": lambda: fooled(),
    "each": lambda: ba.identify(ba.load("examples/hospitals.toml"), question="each"),
    "reviews": lambda: ba.identify(ba.load("examples/fake-reviews.toml")),
    "sites": lambda: sites(),
}
PAGES = [*RUNS, *MORE, "study", "evidence", "client", "arena"]


def fooled():
    rows = {f"s{j}": {"A": 0.2, "B": 0.4, "C": 0.3} for j in range(5)}
    liars = [ba.Adversary(site, "extreme") for site in ("s3", "s4")]
    return ba.identify(ba.Problem.from_rewards(rows), question="overall", adversaries=liars, seed=1)


def sites():
    rows = {f"site{j}": {"A": 0.2, "B": 0.9 if j < 9 else 0.1} for j in range(14)}
    return ba.identify(ba.Problem.from_rewards(rows), question="each", seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every kind of report on disk, and a notebook's output in the pages of notebooks."""
    made = tmp_path_factory.mktemp("pages")
    for name, run in RUNS.items():
        record = run()
        record.report(made / f"{name}.html", quick=name == "many")
        if name == "bet":
            for theme, attributes in NOTEBOOKS.items():
                body = f"<body {attributes}><div>{record._repr_html_()}</div></body>"
                (made / f"{theme}.html").write_text(f"<!DOCTYPE html><meta charset='utf-8'>{body}", "utf-8")
    for name, run in MORE.items():
        run().report(made / f"{name}.html")
    long_name = "a-record-whose-name-has-forty-six-characters-in-it.json"
    keys = {"option": "courier", "site": "city", "reward": "minutes late", "bounds": (0, 60), "goal": "min"}
    found = ba.evidence("examples/deliveries.csv", **keys)
    pages.write(pages.of_evidence(found, long_name), made / "evidence.html")
    files.init(ba.Scenario(ba.Problem.bernoulli([[0.9, 0.2], [0.6]]), "fisher"), made / "f", port=0)
    folds = Folds(made / "f", Coins(ba.Problem.bernoulli([[0.9, 0.2], [0.6]])))
    folds.go()
    folds.close()
    pages.write(pages.read(next((made / "f" / "clients").iterdir())), made / "client.html")
    vary = {"sigma": [1, 5, 15], "method": ["bet", "fisher"]}
    study = ba.study(ba.Problem.paper_instance, trials=10, seed=1, delta=0.1, workers=1, vary=vary)
    pages.write(pages.of_trials(study), made / "study.html")
    pages.write(pages.of_arena(Arena.load("docs/data/arena.json")), made / "arena.html")
    return made


NOTEBOOKS = {
    "jupyter-light": 'data-jp-theme-light="true" style="background: #fff"',
    "jupyter-dark": 'data-jp-theme-light="false" style="background: #111"',
    "vscode-light": 'class="vscode-light" style="background: #fff"',
    "vscode-dark": 'class="vscode-dark" style="background: #1e1e1e"',
    "plain": "",
}


@pytest.fixture
def visit(chromium, folder):
    """Opens a page from disk, offline; it may log nothing and fetch nothing."""
    said, contexts = [], []

    def go(name, width=1280, at="", **keys):
        context = chromium.new_context(viewport={"width": width, "height": 800}, **keys)
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        target = (folder / f"{name}.html").as_uri()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith((target, "blob:")) else said.append(r.url))
        page.goto(target + at)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


ROWS = "[...document.querySelectorAll('#leaderboard tbody tr')].map(row => row.cells[1].innerText.trim())"

# By option: all colours in which its marks are drawn anywhere on the page.
COLOURS = """() => { const found = {};
  for (const part of document.querySelectorAll('.line[data-option], tr[data-option] .dot')) {
    const option = part.dataset.option ?? part.closest('tr').dataset.option;
    (found[option] ??= []).push(getComputedStyle(part).color); }
  return Object.fromEntries(Object.entries(found).map(([k, v]) => [k, [...new Set(v)]])); }"""

# Every visible text whose contrast to its ground is too small.
FAINT = """() => { const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c) && c !== 'transparent') return c; } return 'rgb(255,255,255)'; };
  const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  return [...document.querySelectorAll('body *')].filter(e => own(e) && e.checkVisibility() &&
      !e.closest('title, style, script')).map(e => {
    const style = getComputedStyle(e), ink = e.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    return [e.tagName, e.textContent.trim().slice(0, 40), (a + 0.05) / (b + 0.05)]; })
    .filter(([, , ratio]) => ratio < 4.5); }"""


@pytest.mark.parametrize("name", ["bet", "fed-sel", "robots", "overall", "control"])
def test_every_option_is_ranked_in_the_first_section_after_the_verdict(visit, name):
    page = visit(name)
    record = RUNS[name]()
    ids = page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
    assert ids[:2] == ["top", "leaderboard"]
    shown = page.evaluate(ROWS)
    if name in ("overall", "control"):
        assert sorted(shown) == ["A", "B", "C"]
    else:
        assert sorted(shown) == sorted(
            f"{g['name']}/{a}" for g in record.problem["groups"] for a in g["arms"]
        )
    if record.verdict.arm:
        assert shown[0] == record.verdict.arm
        assert page.locator("#leaderboard tbody tr.won").count() == 1
        assert page.locator("#leaderboard tr.won [aria-label=winner]").count() == 1
    weight = "row => +getComputedStyle(row.querySelector('td')).fontWeight"
    if page.locator("#leaderboard tr.lost").count():
        lost = page.locator("#leaderboard tr.lost").first.evaluate(weight)
        assert page.locator("#leaderboard tr.won").evaluate(weight) > lost


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_option_has_one_colour_in_all_pictures_and_tables(visit, name, scheme):
    found = visit(name, color_scheme=scheme).evaluate(COLOURS)
    assert len(found) > 1
    assert all(len(colours) == 1 for colours in found.values()), found
    if len(found) <= 8:
        assert len({colours[0] for colours in found.values()}) == len(found)


def test_beyond_thirty_options_the_first_twenty_are_shown_and_the_rest_is_in_a_fold(visit):
    page = visit("many")
    first, rest = page.locator("#leaderboard table").all()
    assert first.locator("tbody tr").count() == 20
    assert (
        first.locator("caption").inner_text() == "The first 20 of 40 options; the rest is in the fold below"
    )
    assert not rest.is_visible()
    page.locator("#leaderboard summary", has_text="The other 20 options").click()
    assert rest.is_visible()
    assert rest.locator("tbody tr").count() == 20
    drawn = page.locator("#intervals .wide .chart").first.locator("[data-points]").count()
    assert f"{40 - drawn} further options" in page.locator("#intervals figcaption").first.inner_text()


def test_beyond_twelve_sites_the_first_answers_are_shown_and_the_rest_is_in_a_fold(visit):
    page = visit("sites")
    assert (
        page.locator("#verdict").inner_text()
        == "The best option is known at all 14 sites: B at 9 and A at 5."
    )
    assert page.locator(".verdict dt").filter(has_text="Best at", visible=True).count() == 12
    page.get_by_text("The other 2 sites").click()
    assert page.locator(".verdict dt").filter(has_text="Best at", visible=True).count() == 14


def test_the_race_of_a_betting_method_is_that_of_wealths(visit):
    page = visit("bet")
    chart = page.locator("#intervals .wide .chart").first
    assert chart.get_attribute("aria-label").startswith("Wealth of the bets against each option")
    assert chart.locator("[data-points]").count() == 9
    assert chart.locator(".limit").count() == 1
    assert chart.locator("[data-points].won .star").count() == 1
    assert chart.locator("[data-points].lost .cross").count() == 8
    assert visit("fed-sel").locator("#intervals .wide .chart").first.locator(".band").count() >= 2


def test_sites_that_disagree_are_marked_in_the_table_of_options_and_sites(visit):
    page = visit("overall")
    assert "1 of 4 sites disagrees" in page.locator("#options").inner_text()
    assert page.locator("#options th", has_text="disagrees").inner_text().startswith("west")
    assert page.locator("#options .best").count() == 4


def test_a_point_tells_its_values_under_the_pointer_and_on_touch(visit):
    page = visit("bet")
    chart = page.locator("#intervals .wide .chart").first
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": 300, "y": 150})
    tip = page.locator(".tip")
    assert re.search(r"/s\d, pulls [\d,]+: .+ times its start", tip.inner_text())
    assert page.locator("body.picked").count() == 1
    page.mouse.move(2, 2)
    assert tip.is_hidden()
    touch = visit("bet", 360, has_touch=True)
    small = touch.locator("#intervals .narrow .chart").first
    small.scroll_into_view_if_needed()
    small.tap(position={"x": 200, "y": 120})
    assert "pulls" in touch.locator(".tip").inner_text()
    box = touch.locator(".tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def test_the_keyboard_reaches_the_points_of_a_chart_and_the_entries_of_its_legend(visit):
    page = visit("fed-sel")
    chart = page.locator("#intervals .wide .chart").first
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".tip").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator(".tip").inner_text().split(",")[0] != first.split(",")[0]
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()
    key = chart.locator(".key").nth(1)
    key.focus()
    page.keyboard.press("Enter")
    assert key.get_attribute("aria-pressed") == "true"
    option = key.get_attribute("data-option")
    shown = page.evaluate("[...document.querySelectorAll('.on')].map(e => e.dataset.option)")
    assert set(shown) == {option}
    assert page.locator(f"#leaderboard tr.on[data-option='{option}']").count() == 1
    page.keyboard.press("Enter")
    assert page.locator(".on").count() == 0


def test_tables_sort_and_filter(visit):
    page = visit("bet")
    before = page.evaluate(ROWS)
    pulls = page.locator("#leaderboard th", has_text="pulls")
    pulls.locator("button").click()
    assert pulls.get_attribute("aria-sort") == "descending"
    at = pulls.evaluate("head => head.cellIndex")
    read = "at => [...document.querySelectorAll('#leaderboard tbody tr')].map(r => r.cells[at].innerText)"
    values = [int(text.replace(",", "")) for text in page.evaluate(read, at)]
    assert values == sorted(values, reverse=True)
    pulls.locator("button").click()
    assert [int(t.replace(",", "")) for t in page.evaluate(read, at)] == sorted(values)
    pulls.locator("button").click()
    assert page.evaluate(ROWS) == before
    page.locator("#leaderboard input[type=search]").fill("EAST/")
    visible = page.locator("#leaderboard tbody tr:visible")
    assert visible.count() == 3
    assert all("east/" in row.inner_text() for row in visible.all())


def test_a_table_can_be_downloaded_as_csv(visit, tmp_path):
    page = visit("bet")
    with page.expect_download() as waiting:
        page.locator("#leaderboard .tools button", has_text="CSV").click()
    assert waiting.value.suggested_filename == "all-9-options.csv"
    waiting.value.save_as(tmp_path / "t.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text("utf-8"))))
    assert len(rows) == 10
    assert rows[1][1] == "west/s1"
    assert all(len(row) == len(rows[0]) for row in rows)


def test_a_command_can_be_copied_and_never_breaks_inside_a_word(visit):
    for width in (1280, 360):
        page = visit("bet", width, permissions=["clipboard-read", "clipboard-write"])
        block = page.locator("#reproduce pre").last
        block.scroll_into_view_if_needed()
        page.locator("#reproduce .copy").last.click()
        page.locator("#reproduce .copy", has_text="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == block.text_content()
        broken = """e => [...e.querySelectorAll('span')].filter(s => s.getClientRects().length > 1).length"""
        assert block.evaluate(broken) == 0
        assert "--delta" in block.text_content()


@pytest.mark.parametrize("width", [1280, 360])
def test_a_link_to_a_moment_shows_the_values_of_that_moment(visit, width):
    page = visit("fed-sel", width, at="#at=2")
    kind = ".wide" if width > 500 else ".narrow"
    assert page.locator(f"#intervals {kind} .cursor").count() == 1
    said = page.locator("#intervals .moment").first.inner_text()
    assert said.startswith("At round 2: ")
    assert "g1/a1, round 2: " in said
    assert "g3/a1, round 0: " in said  # it left before
    page.evaluate("location.hash = '#at=0'")
    page.locator("#intervals .moment", has_text="At round 0").first.wait_for()


def test_a_click_in_the_race_makes_a_link_to_the_moment(visit):
    page = visit("fed-sel")
    chart = page.locator("#intervals .wide .chart").first
    chart.scroll_into_view_if_needed()
    chart.click(position={"x": 800, "y": 150})
    assert re.search(r"#at=\d+$", page.url)
    assert page.locator("#intervals .wide .cursor").count() == 1


@pytest.mark.parametrize("name", ["bet", "overall", "study"])
def test_a_page_reads_the_same_without_script(visit, name):
    page = visit(name, java_script_enabled=False)
    for table in page.locator("main > section > .scroll > table").all():
        assert table.is_visible()
    assert page.locator("main svg:visible").count() > 2
    assert page.locator(".tools, .copy, .sort").count() == 0


def test_every_table_has_a_caption(visit):
    for name in (*RUNS, "study"):
        page = visit(name)
        bare = "[...document.querySelectorAll('table')].filter(t => !t.caption?.textContent.trim()).length"
        assert page.evaluate(bare) == 0
        headless = "[...document.querySelectorAll('.scroll')].filter(b => !b.ariaLabel).length"
        assert page.evaluate(headless) == 0


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(visit, name, scheme):
    assert visit(name, color_scheme=scheme).evaluate(FAINT) == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows_on_a_phone(visit, name):
    page = visit(name, 360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for picture in page.evaluate(DRAWN):
        assert picture["out"] == 0, picture
        assert picture["words"] == [], picture


@pytest.mark.parametrize("name", ["study", "bet", "fed-sel"])
def test_no_column_is_cut_off_at_1100(visit, name):
    page = visit(name, 1100)
    boxes = "[...document.querySelectorAll('.scroll')].map(b => b.scrollWidth - b.clientWidth)"
    assert max(page.evaluate(boxes)) <= 0


def test_axes_of_rounds_have_whole_numbers_and_cells_no_exponents(visit):
    page = visit("fed-sel")
    text = page.locator("#intervals .wide .chart").first.text_content()
    assert "0.5" not in re.sub(r"0\.\d{2,}", "", text.partition("round (0")[0].rpartition("mean reward")[0])
    cells = page.evaluate("[...document.querySelectorAll('.cell')].map(c => c.textContent)")
    assert cells
    assert not [cell for cell in cells if "e+" in cell]


# Pairs of labels of a picture that lie on top of each other.
COLLIDE = """() => [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).flatMap(s => {
  const all = [...s.querySelectorAll('text')].filter(t => !t.getAttribute('transform'))
    .map(t => [t.textContent, t.getBoundingClientRect()]);
  return all.flatMap(([one, a], k) => all.slice(k + 1).filter(([, b]) =>
    a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
    .map(([two]) => [one, two])); })"""


# Labels that reach over the edge of their picture, where they are cut off.
CUT = """() => [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).flatMap(s => {
  const b = s.getBoundingClientRect();
  return [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()])
    .filter(([, a]) => a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1)
    .map(([text]) => text); })"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 360])
def test_labels_of_a_picture_neither_collide_nor_are_cut_off(visit, name, width):
    page = visit(name, width)
    assert page.evaluate(COLLIDE) == []
    assert page.evaluate(CUT) == []


def test_nodes_of_a_network_have_names(visit):
    page = visit("robots")
    told = page.evaluate("[...document.querySelectorAll('#network [data-tip]')].map(n => n.dataset.tip)")
    assert len(told) >= 24
    assert all(re.match(r"(east|hill|shore)-\d", text) for text in told)


def test_paper_has_everything_and_no_controls(visit, tmp_path):
    page = visit("bet", 360, color_scheme="dark")
    page.emulate_media(media="print")
    for hidden in ("nav", ".tools", ".copy"):
        assert page.locator(hidden).first.is_hidden()
    assert page.locator("#leaderboard tbody tr:visible").count() == 9
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(FAINT) == []
    page.pdf(path=tmp_path / "r.pdf", format="A4")
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("theme", list(NOTEBOOKS))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_notebook_s_output_follows_the_notebook_and_not_the_system(visit, theme, scheme):
    page = visit(theme, color_scheme=scheme)
    wanted = scheme if theme == "plain" else theme.partition("-")[2]
    ground = page.evaluate("getComputedStyle(document.querySelector('.bestarm')).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[wanted]
    assert page.evaluate(FAINT) == []
    assert page.locator(".bestarm tr.won").count() == 1
    outside = page.evaluate("getComputedStyle(document.body).maxWidth")
    assert outside == "none"  # the output styles nothing but itself
