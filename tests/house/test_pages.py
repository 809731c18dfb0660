"""The checks of built pages detect errors, and files that scripts generate for the docs are current."""

from __future__ import annotations

import re

import pytest
from docs import check_html, commands, gallery, pictures, showcase
from test_docs import blocks

import bestarm as ba

GOOD = (
    '<html><script src="a.js"></script><h1 id="top">A</h1>'
    '<a href="#top">x</a><a href="https://example.org">y</a></html>'
)


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("", None),
        ('<script src="https://cdn.example.org/a.js"></script>', "loads https"),
        ('<link rel="stylesheet" href="//fonts.example.org/a.css">', "loads //fonts"),
        ('<a href="gone.html">x</a>', "not there"),
        ('<a href="#nowhere">x</a>', "no such place"),
        ('<a href="a.html#nowhere">x</a>', "no such place"),
    ],
)
def test_a_built_page_loads_nothing_and_has_no_dead_links(tmp_path, added, said):
    (tmp_path / "a.html").write_text(GOOD.replace("</html>", added + "</html>"), encoding="utf-8")
    found = check_html.check(tmp_path)
    assert (found == []) if said is None else (len(found) == 1 and said in found[0])


def test_an_external_font_is_detected(tmp_path):
    (tmp_path / "a.html").write_text(GOOD, encoding="utf-8")
    (tmp_path / "a.css").write_text(
        "@font-face { src: url(https://fonts.example.org/a.woff2) }", encoding="utf-8"
    )
    assert "loads https" in check_html.check(tmp_path)[0]


def test_an_empty_folder_is_not_sound(tmp_path):
    assert check_html.check(tmp_path)


def test_every_picture_is_made_by_the_script_and_used(root, tmp_path):
    made = {path.name for path in pictures.make(tmp_path)}
    assert made == {path.name for path in (root / "docs/images").glob("how-*.svg")}
    text = "".join(path.read_text("utf-8") for path in (root / "docs").glob("*.md"))
    assert all(f"images/{name}" in text for name in made)


def test_every_picture_of_a_page_s_own_code_is_shown_by_one_page(root):
    text = "".join(path.read_text("utf-8") for path in (root / "docs").glob("*.md"))
    for path in (root / "docs/images/made").iterdir():
        assert text.count(f"images/made/{path.name}") == 1, path


TUTORIALS = (
    "start", "tutorial-csv", "tutorial-questions", "tutorial-live", "tutorial-function", "tutorial-liars",
    "tutorial-study", "federation", "mesh", "bring-your-method",
)  # fmt: skip


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_says_first_what_the_reader_will_have_and_shows_a_picture_that_it_makes(root, page):
    text = (root / f"docs/{page}.md").read_text("utf-8")
    assert "minutes you will" in text.split("\n\n")[1]
    assert "images/made/" in text


def test_the_files_of_the_federation_pages_are_those_that_the_tutorial_writes(root):
    written = {
        block.file: block.text
        for block in blocks((root / "docs/federation.md").read_text("utf-8"))
        if block.file
    }
    assert written == {
        path.name: path.read_text("utf-8") for path in (root / "examples/federation").iterdir()
    }


def test_the_home_page_has_its_gallery_with_a_light_and_a_dark_picture_of_each_page(root):
    assert (root / "docs/index.md").read_text("utf-8").count(showcase.PLACE) == 1
    taken = {path.name for path in showcase.FOLDER.iterdir()}
    assert taken == {f"{name}-{scheme}.png" for name in showcase.PAGES for scheme in ("light", "dark")}
    shown = showcase.markdown()
    assert all(f"pages/{name}.html" in shown and page.title in shown for name, page in showcase.PAGES.items())


def test_every_screen_has_its_four_pictures_and_is_shown(root):
    assert (root / "docs/gallery.md").read_text("utf-8").count(gallery.PLACE) == 1
    taken = {path.name for path in gallery.FOLDER.iterdir()}
    views = [f"{view}-{scheme}" for view in gallery.VIEWS for scheme in gallery.SCHEMES]
    assert taken == {f"{name}-{view}.webp" for name in gallery.SCREENS for view in views}
    assert all(gallery.markdown().count(picture) == 1 for picture in taken)


@pytest.mark.slow
def test_the_pages_of_the_gallery_can_be_made(tmp_path):
    made = showcase.make(tmp_path)
    assert [path.stem for path in made] == list(showcase.PAGES)
    assert all("<!DOCTYPE html>" in path.read_text("utf-8")[:200] for path in made)


def test_the_readme_fits_on_120_lines(root):
    assert len((root / "README.md").read_text("utf-8").splitlines()) <= 120


def test_pictures_are_small_and_load_nothing(root):
    for path in (root / "docs/images").rglob("*.svg"):
        text = path.read_text("utf-8")
        assert len(text) < 200_000, path
        assert not re.search(r"(?:href|src)=\"https?://|@import|url\(https?:", text), path


def test_the_reference_has_every_command_and_every_option():
    import typer

    from bestarm.cli import app

    text = commands.reference()
    for name, command in commands._commands(typer.main.get_command(app)):
        assert f"## bestarm {name}\n" in text
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and "_" not in option and option != "--help":
                    assert f"`{option}" in text, (name, option)


def test_the_page_of_commands_has_their_place(root):
    assert (root / "docs/cli.md").read_text("utf-8").count(commands.PLACE) == 1


def test_every_public_name_is_in_the_reference(root):
    text = (root / "docs/api.md").read_text("utf-8")
    for name in set(ba.__all__) - {"__version__"}:
        assert re.search(rf"bestarm\.{name}\b", text), name
