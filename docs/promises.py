"""Pages with tables of promises and accidents as they are shown: the names of tests are in a fold."""

from __future__ import annotations

import re

SUPPORT = re.compile(r"(?:(?:, )?`(?:tests|benchmarks)/[^`]+`)+(?= \|$)", re.MULTILINE)
TESTS = re.compile(r"(?<=\| )`[\w./]+\.py`[^|]*(?= \|$)", re.MULTILINE)


def folded(text: str) -> str:
    """Put the names of tests and benchmarks at the end of a row into a fold."""
    return SUPPORT.sub(_fold, text)


def folded_cells(text: str) -> str:
    """Put the last cell of a row into a fold if it begins with the name of a file of tests."""
    return TESTS.sub(_fold_cell, text)


def _fold(found: re.Match[str]) -> str:
    names = re.findall(r"`([^`]+)`", found[0])
    tests = sum(name.startswith("tests/") for name in names)
    counts = [(tests, "test"), (len(names) - tests, "benchmark")]
    label = ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts if count)
    shown = "<br>".join(f"<code>{name}</code>" for name in names)
    return f" <details><summary>{label}</summary>{shown}</details>"


def _fold_cell(found: re.Match[str]) -> str:
    tests = len(re.findall(r"`test_\w+`", found[0]))
    label = f"{tests} test{'s' * (tests > 1)}" if tests else "a file of tests"
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", found[0])
    return f"<details><summary>{label}</summary>{shown}</details>"
