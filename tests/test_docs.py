"""Code in README and docs runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        for number, text in enumerate(
            re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        ):
            found.append(pytest.param(text, id=f"{page.name}-{number}"))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {})


@pytest.mark.parametrize("commands", [p for p in blocks("sh") if "bestarm " in p.values[0]])
def test_commands_run(commands, tmp_path):
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    for line in commands.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0, (line, done.stderr)


def test_make_targets_that_the_readme_names_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", (ROOT / "README.md").read_text("utf-8")))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
