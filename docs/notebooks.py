"""Notebooks without further dependencies: to run them, and to show them in the documentation.

``python docs/notebooks.py`` runs docs/notebooks/*.ipynb and stores what they print. ``conf.py`` turns a
notebook into Markdown when docs are built; ``tests/house/test_notebooks.py`` checks that outputs are current.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"


def source_of(cell: dict[str, Any]) -> str:
    """A cell's text."""
    return "".join(cell["source"])


def outputs(notebook: dict[str, Any]) -> list[str]:
    """Run the code cells in order, in an empty folder; what each of them prints."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, before = [], Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(c for c in notebook["cells"] if c["cell_type"] == "code"):
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(source_of(cell), f"cell {number}", "exec"), names)
                printed.append(out.getvalue())
        finally:
            os.chdir(before)
    return printed


def stored(cell: dict[str, Any]) -> str:
    """What a code cell printed when the notebook was last run."""
    return "".join(line for output in cell["outputs"] for line in output.get("text", []))


def to_markdown(text: str) -> str:
    """A notebook as a page."""
    blocks = []
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "markdown":
            blocks.append(source_of(cell))
        else:
            blocks.append(f"```python\n{source_of(cell)}\n```")
            if stored(cell):
                blocks.append(f"```text\n{stored(cell).rstrip()}\n```")
    return "\n\n".join(blocks) + "\n"


def refresh(path: Path) -> None:
    """Run a notebook and store what it prints."""
    notebook = json.loads(path.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, printed) in enumerate(zip(code, outputs(notebook), strict=True), start=1):
        stream = {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
        cell["outputs"], cell["execution_count"] = [stream] if printed else [], number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for found in sorted(FOLDER.glob("*.ipynb")):
        refresh(found)
        print(found)
