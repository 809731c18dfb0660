"""Every promise on the guarantees page names a proof, test or benchmark that exists.

A promise is a row of a table. Its label says what it needs: a proof (a link to a heading of the docs with
an argument below it), a test, or for simulated figures a test or a benchmark.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from docs.promises import folded
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
LABELS = ("proved", "tested", "simulated", "conjecture")
COLUMNS = ("promise", "status", "where")
ANCHORS = 3  # docs/conf.py: headings up to this level can be linked to
ARGUMENT = re.compile(r"\*Proof|\bWhy\b|\([Pp]roved: |∎")


@dataclass(frozen=True)
class Promise:
    """A row: its first cell, the words of its status, and the references in its last cell."""

    line: int
    text: str
    labels: tuple[str, ...]
    links: tuple[str, ...]
    tests: tuple[str, ...]
    files: tuple[str, ...]


def parse(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def rows(tokens: list[Token]) -> Iterator[tuple[int, list[Token]]]:
    """The line and the cells of each row of each table; a table's head comes first."""
    for at, token in enumerate(tokens):
        if token.type == "tr_open":
            end = next(k for k in range(at, len(tokens)) if tokens[k].type == "tr_close")
            assert token.map is not None
            yield token.map[0] + 1, [cell for cell in tokens[at:end] if cell.type == "inline"]


def promises(text: str) -> Iterator[Promise]:
    """The promises of a page: the rows of all tables except the one that explains the labels."""
    head: dict[str, int] = {}
    skipped = False
    tokens = parse(text)
    heads = {t.map[0] + 1 for t in tokens if t.type == "thead_open" and t.map is not None}
    for line, cells in rows(tokens):
        words = [cell.content for cell in cells]
        if line in heads:
            skipped = words[0] == "label"
            head = {word: place for place, word in enumerate(words)}
            assert skipped or set(COLUMNS) <= set(head), f"line {line}: a table without {COLUMNS}"
            continue
        if skipped:
            continue
        where = cells[head["where"]].children or []
        code = [t.content for t in where if t.type == "code_inline"]
        yield Promise(
            line,
            words[head["promise"]],
            tuple(re.split(r",\s*", words[head["status"]])),
            tuple(str(t.attrs["href"]) for t in where if t.type == "link_open"),
            tuple(c for c in code if "::" in c),
            tuple(c for c in code if "::" not in c),
        )


def slug(heading: Token) -> str:
    """The anchor of a heading, as MyST makes it."""
    text = "".join(t.content for t in heading.children or [] if t.type in ("text", "code_inline"))
    return re.sub(r"[^\w\- ]", "", text.lower().replace(" ", "-"))


@cache
def sections(page: Path) -> dict[str, str]:
    """The anchors of a page, and the text below each heading up to the next one of its rank."""
    text = page.read_text(encoding="utf-8")
    tokens, lines = parse(text), text.splitlines()
    heads = [
        (int(t.tag[1]), slug(tokens[k + 1]), t.map[0])
        for k, t in enumerate(tokens)
        if t.type == "heading_open" and t.map is not None
    ]
    found = {}
    for k, (level, anchor, start) in enumerate(heads):
        end = next((at for rank, _, at in heads[k + 1 :] if rank <= level), len(lines))
        if level <= ANCHORS:
            found.setdefault(anchor, "\n".join(lines[start + 1 : end]))
    return found


@cache
def names(file: Path) -> frozenset[str]:
    """What pytest collects from a file: functions, classes, and assigned Hypothesis state machines."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if name.startswith(("test_", "Test")))


def wrong_link(link: str, page: Path) -> str:
    """The error in a link to a proof, or an empty string."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not name.endswith(".md") and name:
        return f"{link} is no page of the docs"
    if not target.is_file():
        return f"{link}: there is no such page"
    if anchor not in sections(target):
        return f"{link}: there is no such heading"
    return ""


def wrong_test(test: str, root: Path) -> str:
    """The error in the name of a test, or an empty string."""
    file, _, name = test.partition("::")
    if not re.fullmatch(r"tests/(\w+/)*test_\w+\.py", file) or not (root / file).is_file():
        return f"{test}: there is no such file"
    return "" if name in names(root / file) else f"{test}: there is no such test"


def argues(link: str, page: Path) -> bool:
    """Whether there is an argument below the heading that a link leads to."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.is_file() and bool(ARGUMENT.search(sections(target).get(anchor, "")))


def complaints(promise: Promise, page: Path = PAGE, root: Path = ROOT) -> list[str]:
    """The errors in a promise, one sentence each."""
    found = [wrong_link(link, page) for link in promise.links]
    found += [wrong_test(test, root) for test in promise.tests]
    for file in promise.files:
        known = re.fullmatch(r"benchmarks/\w+\.py", file) and (root / file).is_file()
        found.append("" if known else f"{file} is neither a test nor a benchmark")
    for label in promise.labels:
        if label not in LABELS:
            found.append(f'"{label}" is no label')
    if not (promise.links or promise.tests or promise.files):
        found.append("it names nothing that is behind it")
    if "proved" in promise.labels and not any(argues(link, page) for link in promise.links):
        found.append("it is called proved, and links to no proof")
    if "tested" in promise.labels and not promise.tests:
        found.append("it is called tested, and names no test")
    if "simulated" in promise.labels and not (promise.tests or promise.files):
        found.append("it is called simulated, and names neither a benchmark nor a test")
    return [complaint for complaint in found if complaint]


def test_every_promise_names_a_proof_or_test_that_exists():
    found = list(promises(PAGE.read_text(encoding="utf-8")))
    assert len(found) >= 40
    wrong = [
        f"docs/guarantees.md:{promise.line}: {promise.text[:60]} …: {complaint}"
        for promise in found
        for complaint in complaints(promise)
    ]
    assert wrong == []


def test_no_promise_is_a_conjecture():
    text = PAGE.read_text(encoding="utf-8")
    assert "No promise on this page is a conjecture at present." in text
    assert not any("conjecture" in promise.labels for promise in promises(text))


GOOD = "| it is so | proved, tested | [here](#fine), `tests/test_a.py::test_it` |"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (GOOD, None),
        ("| it is so | tested | `tests/test_a.py::TestGame` |", None),
        ("| it is so | simulated | `benchmarks/b.py` |", None),
        ("| it is so | proved | [there](other.md#two-words-c--8) |", None),
        ("| it is so | proved | |", "names nothing"),
        ("| it is so | proved | `tests/test_a.py::test_it` |", "links to no proof"),
        ("| it is so | proved | [here](#bare) |", "links to no proof"),
        ("| it is so | proved | [here](#gone), [here](#fine) |", "no such heading"),
        ("| it is so | proved | [here](gone.md#fine), [here](#fine) |", "no such page"),
        ("| it is so | proved | [here](other.md), [here](#fine) |", "no such heading"),
        ("| it is so | proved | [x](https://example.org#a), [here](#fine) |", "no page of the docs"),
        ("| it is so | proved | [deep](other.md#too-deep), [here](#fine) |", "no such heading"),
        ("| it is so | tested | [here](#fine) |", "names no test"),
        ("| it is so | tested | `tests/test_a.py::test_gone` |", "no such test"),
        ("| it is so | tested | `tests/test_a.py::helper` |", "no such test"),
        ("| it is so | tested | `tests/test_a.py::test_inside` |", "no such test"),
        ("| it is so | tested | `tests/test_gone.py::test_it` |", "no such file"),
        ("| it is so | tested | `src/a.py::test_it` |", "no such file"),
        ("| it is so | simulated | [here](#fine) |", "neither a benchmark nor a test"),
        ("| it is so | simulated | `benchmarks/gone.py` |", "neither a test nor a benchmark"),
        ("| it is so | surely | [here](#fine) |", "is no label"),
        ("| it is so | | [here](#fine) |", "is no label"),
    ],
)
def test_a_promise_without_support_is_detected(tmp_path, row, said):
    for folder in ("docs", "tests", "benchmarks"):
        (tmp_path / folder).mkdir()
    code = "def test_it():\n    def test_inside(): ...\ndef helper(): ...\nTestGame = Game.TestCase\n"
    (tmp_path / "tests" / "test_a.py").write_text(code, encoding="utf-8")
    (tmp_path / "benchmarks" / "b.py").write_text("", encoding="utf-8")
    other = '# Other\n\n## Two "words" (c = 8)\n\nWhy: because.\n\n#### Too deep\n'
    (tmp_path / "docs" / "other.md").write_text(other, encoding="utf-8")
    page = tmp_path / "docs" / "page.md"
    table = f"| promise | status | where |\n|---|---|---|\n{row}\n"
    labels = "| label | meaning |\n|---|---|\n| **proved** | yes |\n"
    page.write_text(
        f"{labels}\n{table}\n## Fine\n\n*Proof.* It is. ∎\n\n## Bare\n\nIt is.\n", encoding="utf-8"
    )
    (promise,) = promises(page.read_text(encoding="utf-8"))
    found = complaints(promise, page, tmp_path)
    assert (found == []) if said is None else any(said in complaint for complaint in found), found


def test_a_table_without_the_columns_is_detected():
    with pytest.raises(AssertionError, match="a table without"):
        list(promises("| promise | status |\n|---|---|\n| it is so | proved |\n"))


def test_the_page_that_is_shown_folds_the_names_of_all_tests():
    text = PAGE.read_text(encoding="utf-8")
    made = folded(text)
    for promise in promises(text):
        (row,) = made.splitlines()[promise.line - 1 : promise.line]
        fold = re.search(r"<details><summary>[^<]+</summary>(.*)</details> \|$", row)
        names = re.findall(r"<code>([^<]+)</code>", fold[1]) if fold else []
        assert sorted(names) == sorted(promise.tests + promise.files), promise.text
        assert "`tests/" not in row
