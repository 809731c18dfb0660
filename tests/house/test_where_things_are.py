"""The pages that describe the layout of the code name files that exist."""

from __future__ import annotations

import re

import pytest

FEATURES = (
    "an attack",
    "a reward model",
    "a command",
    "a column of a study",
    "a plot",
    "a message",
    "a source of rewards",
    "a radius",
    "a network generator",
    "a page of these docs",
)
PATH = re.compile(r"`((?:src|tests|docs|examples|benchmarks)/[^`\s]*)`")


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    below = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def exists(root, path: str) -> bool:
    return any(root.glob(path.rstrip("/")))


@pytest.fixture
def architecture(root) -> str:
    return (root / "docs/architecture.md").read_text("utf-8")


def test_for_each_of_ten_features_one_or_two_files_are_named(root, architecture):
    places = {row[0]: PATH.findall(row[1]) for row in table(architecture, "Where to change what")}
    assert set(FEATURES) <= set(places)
    for feature, paths in places.items():
        assert 1 <= len(paths) <= 2, feature
        assert all(exists(root, path) for path in paths), (feature, paths)


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/errata.md", "docs/own-method.md"]
)
def test_every_path_of_a_page_exists(root, page):
    paths = PATH.findall((root / page).read_text("utf-8"))
    assert paths
    assert [path for path in paths if not exists(root, path)] == []


@pytest.mark.parametrize("name", ["KINDS", "COLUMNS", "columns_of", "RADII", "GENERATORS", "MODELS"])
def test_the_names_of_the_table_are_in_its_files(root, architecture, name):
    (row,) = [row for row in table(architecture, "Where to change what") if f"`{name}`" in row[2]]
    files = [path for pattern in PATH.findall(row[1] + row[2]) for path in root.glob(pattern.rstrip("/"))]
    assert any(re.search(rf"\b{name}\b", path.read_text("utf-8")) for path in files if path.is_file())


def test_the_rooms_of_the_page_are_those_of_the_source(root, architecture):
    from docs.rooms import ROOMS

    shown = [row[0].strip("`/") for row in table(architecture, "The rooms")]
    folders = [room for room in ROOMS if (root / "src/bestarm" / room).is_dir()]
    assert shown == folders


def test_no_two_test_files_share_a_name(root):
    """Python imports a test file by its name alone, so the second one would not be run."""
    names = sorted(path.name for path in (root / "tests").rglob("test_*.py"))
    assert len(set(names)) == len(names)
