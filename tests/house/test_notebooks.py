"""Notebooks run, and their stored output is what they print."""

from __future__ import annotations

import json

import pytest
from docs import notebooks

FOUND = sorted(notebooks.FOLDER.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_a_notebook_prints_its_stored_output(path):
    notebook = json.loads(path.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = [notebooks.stored(cell) for cell in code]
    assert notebooks.outputs(notebook) == shown, "run: python docs/notebooks.py"


@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_a_notebook_becomes_a_page(path):
    page = notebooks.to_markdown(path.read_text("utf-8"))
    assert page.startswith("# ")
    assert page.count("```python") >= 3
    assert page.count("```") % 2 == 0


def test_there_are_notebooks_and_the_page_lists_them():
    listed = (notebooks.FOLDER / "index.md").read_text("utf-8").splitlines()
    assert len(FOUND) >= 2
    assert all(path.stem in listed for path in FOUND)
