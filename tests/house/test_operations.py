"""Every row of the table of attacks and accidents names a test, and whatever it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.promises import folded_cells
from test_guarantees import ROOT, names, parse, rows

PAGE = ROOT / "docs" / "accidents.md"
HERE = ROOT / "tests" / "deploy" / "federation"  # the page says so
HEAD = ["attack or accident", "before", "now", "test"]


def attacks(text: str) -> Iterator[tuple[int, list[str]]]:
    """The line of each row of the table, and the code in its last cell."""
    wanted = False
    tokens = parse(text)
    heads = {t.map[0] + 1 for t in tokens if t.type == "thead_open" and t.map is not None}
    for line, cells in rows(tokens):
        if line in heads:
            wanted = [cell.content for cell in cells] == HEAD
        elif wanted:
            yield line, [t.content for t in cells[-1].children or [] if t.type == "code_inline"]


def complaints(code: list[str], folder: Path = HERE, root: Path = ROOT) -> list[str]:
    """What is wrong with the names in the last cell of a row."""
    file, found = None, []
    for name in code:
        if name.endswith(".py"):
            file = folder / name
            if not file.is_file() or not file.resolve().is_relative_to(root / "tests"):
                found.append(f"{name}: there is no such file of tests")
                file = None
        elif name.startswith("make "):
            if not re.search(rf"^{name.removeprefix('make ')}:", (root / "Makefile").read_text(), re.M):
                found.append(f"{name}: there is no such target")
        elif name.startswith("python -m benchmarks "):
            if not (root / "benchmarks" / f"{name.split()[-1]}.py").is_file():
                found.append(f"{name}: there is no such benchmark")
        elif file is None or name not in names(file):
            found.append(f"{name}: there is no such test")
    if not any(name.endswith(".py") for name in code):
        found.append("it names no test")
    return found


def test_every_attack_names_tests_that_exist():
    found = list(attacks(PAGE.read_text(encoding="utf-8")))
    assert len(found) >= 30
    assert [
        f"docs/accidents.md:{line}: {complaint}" for line, code in found for complaint in complaints(code)
    ] == []


def test_the_page_that_is_shown_folds_the_names_of_all_tests():
    text = PAGE.read_text(encoding="utf-8")
    made = folded_cells(text).splitlines()
    for line, code in attacks(text):
        fold = re.search(r"\| <details><summary>[^<]+</summary>(.*)</details> \|$", made[line - 1])
        assert fold, line
        assert re.findall(r"<code>([^<]+)</code>", fold[1]) == code


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("`test_a.py`", None),
        ("`test_a.py`: `test_it`, `../../test_b.py`: `test_that`", None),
        ("`test_a.py`: `test_it` (`make soak`, `python -m benchmarks b`)", None),
        ("", "names no test"),
        ("`make soak`", "names no test"),
        ("`test_it`", "no such test"),
        ("`test_a.py`: `test_that`", "no such test"),
        ("`test_gone.py`: `test_it`", "no such file"),
        ("`../../../b.py`", "no such file"),
        ("`test_a.py` (`make gone`)", "no such target"),
        ("`test_a.py` (`python -m benchmarks gone`)", "no such benchmark"),
    ],
)
def test_a_row_without_a_test_is_detected(tmp_path, cell, said):
    folder = tmp_path / "tests" / "deploy" / "federation"
    folder.mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    (folder / "test_a.py").write_text("def test_it(): ...\n")
    (tmp_path / "tests" / "test_b.py").write_text("def test_that(): ...\n")
    for path in ("b.py", "benchmarks/b.py"):
        (tmp_path / path).write_text("")
    (tmp_path / "Makefile").write_text("soak:\n\ttrue\n")
    table = f"| {' | '.join(HEAD)} |\n|---|---|---|---|\n| it breaks | badly | well | {cell} |\n"
    ((_, code),) = attacks(f"| what | then |\n|---|---|\n| x | y |\n\n{table}")
    found = complaints(code, folder, tmp_path)
    assert (found == []) if said is None else any(said in complaint for complaint in found), found
