"""Code in README and docs runs as it stands, page by page.

The blocks of a page run in order, in one folder and with one set of Python names, as a reader would run them.

- ``sh``: each line is a command; it must end with 0, or as its comment says ("# exit code 3").
- ``python``: runs.
- ``{code-block} toml`` (or text, python …) with ``:caption: NAME``: is written to the file NAME.
- ``text`` right after a block that ran: its output. A line "…" stands for any lines, in a line for any text.

What can't run here has ``<!-- not run: WHY -->`` above it; nothing that could run is left out silently.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bestarm import adversary

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(
    r"^(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)[ \t]*$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->\s*\Z", re.DOTALL)
RUNS = {"sh", "python"}
MUST_RUN = RUNS | {"console", "bash", "shell", "py", "pycon"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the file that it is, why it isn't run, and if it is output."""

    language: str
    text: str
    line: int
    file: str | None
    not_run: str | None
    follows: bool


def blocks(text: str) -> list[Block]:
    found, end = [], 0
    for match in FENCE.finditer(text):
        between, info, body = text[end : match.start()], match["info"].strip(), match["text"]
        directive = re.fullmatch(r"\{code-block\}\s*(\w+)", info)
        caption = re.match(r":caption: (\S+)\n+", body) if directive else None
        marker = NOT_RUN.search(between)
        found.append(
            Block(
                directive[1] if directive else info,
                body[caption.end() :] if caption else body,
                text.count("\n", 0, match.start()) + 2,
                caption[1] if caption else None,
                marker[1] if marker else None,
                bool(found) and not between.strip(),
            )
        )
        end = match.end()
    return found


def as_printed(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; … stands for anything, spaces at line ends for nothing."""
    pattern = ""
    for line in shown.strip().splitlines():
        pattern += "(?:.*\n)*?" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + "\n"
    return bool(re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in printed.strip().splitlines())))


def run_commands(block: Block, folder: Path, where: str) -> str:
    env = {**os.environ, "COLUMNS": "90", "BESTARM_PYTHON": sys.executable}
    env["PATH"] = os.pathsep.join(
        [str(folder / ".bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    printed = ""
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            code = re.search(r"# exit code (\d+)", line)
            done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True)
            wanted = int(code[1]) if code else 0
            assert done.returncode == wanted, (where, line, done.returncode, done.stdout, done.stderr)
            printed += done.stdout
    return printed


def run_python(block: Block, names: dict[str, object], where: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), names)
    return printed.getvalue()


@pytest.fixture(autouse=True)
def _no_attack_stays():  # a page may add some
    known = dict(adversary.ATTACKS)
    yield
    adversary.ATTACKS.clear()
    adversary.ATTACKS.update(known)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # a reader's own files can be imported
    if shutil.which("sh") is None:
        pytest.skip("the commands of the pages are written for a POSIX shell")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = tmp_path / ".bin" / "bestarm"  # the command of this source, wherever it is installed
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nexec "$BESTARM_PYTHON" -m bestarm.cli "$@"\n')
    command.chmod(0o755)
    names: dict[str, object] = {"__name__": "page"}
    printed: str | None = None
    for block in blocks(page.read_text("utf-8")):
        where = f"{page.name}:{block.line}"
        if block.language == "text" and block.follows and not block.file and printed is not None:
            assert as_printed(block.text, printed), f"{where} shows\n{block.text}\nprinted is\n{printed}"
            continue
        printed = None
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.not_run is None and block.language == "sh":
            printed = run_commands(block, tmp_path, where)
        elif block.not_run is None and block.language == "python":
            printed = run_python(block, names, where)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_block_is_left_out_without_a_reason(page):
    for block in blocks(page.read_text("utf-8")):
        if block.language in MUST_RUN and not block.file:
            assert block.language in RUNS or block.not_run, f"{page.name}:{block.line} is {block.language}"


def test_blocks_are_found_with_their_files_reasons_and_outputs():
    page = (
        "```{code-block} toml\n:caption: a.toml\n\nx = 1\n```\n\n```sh\necho hello\n```\n\n"
        "```text\nhel…\n```\n\n<!-- not run: needs a field of sensors -->\n\n```sh\nmeasure\n```\n"
    )
    file, command, output, other = blocks(page)
    assert (file.file, file.text) == ("a.toml", "x = 1\n")
    assert (command.language, command.not_run) == ("sh", None)
    assert (output.follows, other.follows) == (True, False)
    assert other.not_run == "needs a field of sensors"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb", "a  \nb\n", True),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nd", True),
        ("took … s", "took 3.1 s", True),
        ("a\nb", "a\nc", False),
        ("a", "a\nb", False),
    ],
)
def test_output_is_compared(shown, printed, same):
    assert as_printed(shown, printed) is same


def test_make_targets_that_the_readme_names_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", (ROOT / "README.md").read_text("utf-8")))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    prose = FENCE.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target
