"""Code in README and docs runs as it stands, page by page.

The blocks of a page run in order, in one folder, in one shell and with one set of Python names, as a reader
would run them. Every block has a language, and every language a rule:

- ``sh``: each line is a command; it must exit with 0, or with the code in its comment ("# exit code 3"). A
  process that a line starts with ``&`` may run until the end of the page.
- ``python``: runs.
- ``toml``: a scenario that ``bestarm check`` must accept. Missing data files are generated for it.
- ``ini``: a systemd unit with known keys and a command line that bestarm accepts.
- ``text`` right after a block that ran: its output. A line "…" matches any lines; "…" in a line matches any
  text. Any other ``text`` is not code: none of its lines may look like a command.
- ``bibtex``: a reference.
- ``{code-block} toml`` (or text, python …) with ``:caption: NAME``: the file NAME, which later blocks use.

A block that can't run here has ``<!-- not run: WHY -->`` above it; its commands and options must exist. The
ports that a page names are replaced by free ones, so that it runs beside other programs.
"""

from __future__ import annotations

import configparser
import contextlib
import csv
import io
import itertools
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bestarm.cli import app
from bestarm.deploy.process import free_port
from marking import slow_but

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(ROOT.glob("*.md"))
PAGES += sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
LONG = (
    "README.md",
    "bring-your-method.md",
    "delta.md",
    "evidence.md",
    "experiments.md",
    "federation-howto.md",
    "federation-nats.md",
    "federation.md",
    "figures.md",
    "mesh-howto.md",
    "mesh.md",
    "networks.md",
    "plan.md",
    "questions.md",
    "records.md",
    "report.md",
    "start.md",
    "studies.md",
    "tutorial-csv.md",
    "tutorial-liars.md",
    "which-method.md",
    "tutorial-live.md",
    "tutorial-questions.md",
    "tutorial-study.md",
    "watch.md",
)  # run by make test-all
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->\s*\Z", re.DOTALL)
PORT = re.compile(r"((?:--(?:port|metrics) |(?:localhost|127\.0\.0\.1):))(\d{4,5})\b")
RUNS = {"sh", "python"}
LANGUAGES = RUNS | {"toml", "ini", "text", "bibtex"}
COMMAND = re.compile(
    r"\s*(?:\$|>>>|sudo |[A-Z_]+=\S* |(?:\S*/)?(?:bestarm|pip|pipx|uv|python|pytest|make|nats-server|sqlite3"
    r"|scp|ssh|curl|git|sh|systemctl|apt|cd)[\d.]*(?: |$))"
)
UNIT = {  # keys of our units, all documented in systemd.unit(5), systemd.service(5) or systemd.exec(5)
    "Unit": {"Description", "After", "Wants"},
    "Service": {
        "User", "ExecStart", "Restart", "RestartSec", "RestartPreventExitStatus", "KillSignal",
        "SuccessExitStatus", "LimitNOFILE",
    },
    "Install": {"WantedBy"},
}  # fmt: skip
SECONDS = 180  # a line that runs longer than this hangs


@dataclass(frozen=True)
class Block:
    """A fenced block: language, text, file name, reason why it isn't run, and whether it is output."""

    language: str
    text: str
    line: int
    file: str | None
    not_run: str | None
    output: bool

    @property
    def runs(self) -> bool:
        return self.language in RUNS and not self.file and not self.not_run


def tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def blocks(text: str) -> list[Block]:
    """All blocks of code on a page. Sphinx directives (pictures, lists) are not code."""
    found: list[Block] = []
    before: Token | None = None
    ran = False
    for token in tokens(text):
        if token.type in ("fence", "code_block"):
            info, body, line = token.info.strip(), token.content, token.map[0] + 2
            directive = re.fullmatch(r"\{code-block\}\s*(\w+)", info)
            caption = re.match(r":caption: (\S+)\n+", body) if directive else None
            marker = NOT_RUN.search(before.content) if before and before.type == "html_block" else None
            language = directive[1] if directive else info
            file = caption[1] if caption else None
            output = language == "text" and not file and ran and before is not None and before.type == "fence"
            block = Block(
                language, body[caption.end() :] if caption else body, line, file, marker and marker[1], output
            )
            ran = block.runs
            if not info.startswith("{") or directive:
                found.append(block)
        before = token
    return found


def lines(text: str) -> list[str]:
    """The commands of a block: one per line; a backslash continues a line."""
    joined = text.replace("\\\n", " ").splitlines()
    return [line for line in joined if line.strip() and not line.startswith("#")]


def as_printed(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; … matches anything, and trailing spaces are ignored."""
    pattern = ""
    for line in shown.strip().splitlines():
        pattern += "(?:.*\n)*?" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + "\n"
    return bool(re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in printed.strip().splitlines())))


class Terminal:
    """The shell of a page. All processes that it started end with it."""

    def __init__(self, folder: Path) -> None:
        self.own = folder / ".bin"
        self.own.mkdir()
        command = self.own / "bestarm"  # the command of this source, wherever it is installed
        command.write_text('#!/bin/sh\nexec "$BESTARM_PYTHON" -m bestarm.cli "$@"\n')
        command.chmod(0o755)
        path = os.pathsep.join([str(self.own), str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**os.environ, "COLUMNS": "90", "BESTARM_PYTHON": sys.executable, "PATH": path}
        self.printed, self.errors, pipe = self.own / "printed", self.own / "errors", subprocess.PIPE
        self.printed.touch()
        with self.errors.open("ab") as errors:
            self.shell = subprocess.Popen(
                ["sh"],
                cwd=folder,
                env=env,
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(self, block: Block, where: str) -> str:
        start = self.printed.stat().st_size
        out, err = shlex.quote(str(self.printed)), shlex.quote(str(self.errors))
        for line in lines(block.text):
            said = re.search(r"# exit code (\d+)", line)
            self.shell.stdin.write(f"eval {shlex.quote(line)} </dev/null >>{out} 2>>{err}\necho $?\n")
            self.shell.stdin.flush()
            ended, _, _ = select.select([self.shell.stdout], [], [], SECONDS)
            code = self.shell.stdout.readline().strip() if ended else f"still running after {SECONDS} s"
            texts = self.printed.read_text("utf-8"), self.errors.read_text("utf-8")
            assert code == (said[1] if said else "0"), (where, line, code, *texts)
        return self.printed.read_bytes()[start:].decode()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGTERM)
            for pipe in (self.shell.stdin, self.shell.stdout):
                pipe.close()
            self.shell.wait()
            for _ in range(100):  # a client ends its own sensors if it has the time
                os.killpg(self.shell.pid, 0)
                time.sleep(0.1)
            os.killpg(self.shell.pid, signal.SIGKILL)


def run_python(block: Block, names: dict[str, object], where: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), names)
    return printed.getvalue()


def check_scenario(text: str, path: Path, where: str) -> None:
    path.write_text(text, encoding="utf-8")
    keys = tomllib.loads(text)
    data = keys.get("data", {})
    if data and not (path.parent / data["csv"]).exists():
        liars = [liar["group"] for liar in keys.get("adversary", ())]
        made_up(data, liars, path.parent / data["csv"])
    assert app(["check", str(path)], standalone_mode=False) == 0, f"{where} is no sound scenario"


def made_up(data: dict[str, object], groups: list[str], path: Path) -> None:
    """A small table with the columns that a recipe names."""
    numbers = {"reward": data.get("bounds", [0, 1]), "count": [9, 9], "successes": [3, 6], "trials": [9, 9]}
    columns = {data[key]: pair for key, pair in numbers.items() if key in data}
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([data["group"], data["arm"], *columns, *data.get("where", {})])
        for group, arm, k in itertools.product([*groups, "one", "two"], ("a", "b"), range(40)):
            numbers = [pair[k % 2] for pair in columns.values()]
            rows.writerow([group, arm, *numbers, *data.get("where", {}).values()])


@pytest.fixture
def terminal(tmp_path):
    if shutil.which("sh") is None or sys.platform == "win32":
        pytest.skip("the commands of the pages are written for a POSIX shell")
    shell = Terminal(tmp_path)
    yield shell
    shell.close()


@pytest.mark.parametrize(
    "page", slow_but([page for page in PAGES if page.name not in LONG], PAGES), ids=lambda p: p.name
)
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch, terminal):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # a reader's files can be imported
    shutil.copytree(ROOT / "examples", tmp_path / "examples")  # a page may write into it
    names: dict[str, object] = {"__name__": "page"}
    ports: dict[str, int] = {}
    text = PORT.sub(lambda m: f"{m[1]}{ports.setdefault(m[2], free_port())}", page.read_text("utf-8"))
    printed = ""
    for block in blocks(text):
        where = f"{page.name}:{block.line}"
        if block.output:
            assert as_printed(block.text, printed), f"{where} shows\n{block.text}\nprinted is\n{printed}"
        elif block.runs and block.language == "sh":
            printed = terminal.run(block, where)
        elif block.runs:
            printed = run_python(block, names, where)
        elif block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "toml":
            check_scenario(block.text, tmp_path / "unnamed.toml", where)
    for picture in re.findall(r"images/made/(\S+)", text):  # a picture that the page says its code makes
        assert (tmp_path / picture).exists(), f"{page.name} shows {picture}, and does not make it"
        if folder := os.environ.get("BESTARM_PICTURES"):  # make pictures
            shutil.copy(tmp_path / picture, ROOT / folder)  # the folder may be relative
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


OPERATORS = {"&", "&&", "|", "||", ";", ">", ">>", "<", "2>", "2>&1"}


def calls(line: str) -> Iterator[list[str]]:
    """The arguments that a line passes to ``bestarm``, if it calls it."""
    words = shlex.split(line, comments=True)
    for k, word in enumerate(words):
        before = words[k - 1] if k else ";"
        called = before in OPERATORS or "=" in before or (words[0] in ("sudo", "ssh") and before != "-u")
        if called and (word == "bestarm" or word.endswith("/bin/bestarm")):
            yield list(itertools.takewhile(lambda w: w not in OPERATORS, words[k + 1 :]))


def command_of(words: list[str]) -> tuple[typer.core.TyperCommand, list[str]]:
    """The command that these words name, and the remaining words."""
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def parse(words: list[str]) -> None:
    """Raise an error for arguments that bestarm would refuse; nothing is run."""
    command, rest = command_of(words)
    assert not hasattr(command, "commands"), f"{words} is no whole command"
    command.make_context("bestarm", rest)


def targets(line: str) -> set[str]:
    """The make targets that a line names."""
    words = shlex.split(line, comments=True)
    return set(words[1:]) if words[:1] == ["make"] else set()


MAKES = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_has_a_language_and_keeps_its_rule(page):
    found = blocks(page.read_text("utf-8"))
    for k, block in enumerate(found):
        where = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{where} is {block.language or 'without a language'}"
        if block.file:
            used = re.compile(rf"\b{re.escape(block.file.removesuffix('.py'))}\b")
            assert any(b.runs and used.search(b.text) for b in found[k:]), f"nothing uses the file at {where}"
        elif block.language == "text" and not block.output:
            hidden = [line for line in block.text.splitlines() if COMMAND.match(line)]
            assert not hidden, f"{where} hides {hidden}"
        elif block.language == "ini":
            check_unit(block.text, where)
        elif block.language == "python":
            compile(block.text, where, "exec")
        elif block.language == "sh" and block.not_run:
            check_commands(block.text, where)
        elif block.language == "sh":
            port = r"bestarm (federation|mesh) init (?!.*--(port|nats|address))"
            assert not [line for line in lines(block.text) if re.search(port, line)], f"{where} names no port"


def check_commands(text: str, where: str) -> None:
    for line in lines(text):
        for words in calls(line):
            try:
                parse(words)
            except (AssertionError, typer.TyperException) as error:
                pytest.fail(f"{where} {line}: {error}")
        assert targets(line) <= MAKES, f"{where} {line}"


def check_unit(text: str, where: str) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    for name in unit.sections():
        assert set(unit[name]) <= UNIT[name], f"{where}: a key in {name} that we don't know"
    found = list(calls(unit["Service"]["ExecStart"]))
    assert len(found) == 1, f"{where} does not start bestarm"
    check_commands(unit["Service"]["ExecStart"], where)


def test_the_readme_names_the_two_commands_to_start_with():
    assert {"demo", "test"} <= set(re.findall(r"\bmake ([a-z]+)", (ROOT / "README.md").read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_that_a_sentence_names_exist(page):
    inline = [child for token in tokens(page.read_text("utf-8")) for child in token.children or ()]
    for text in [child.content for child in inline if child.type == "code_inline"]:
        if text.startswith("make "):
            assert targets(text) <= MAKES, text
        if script := re.match(r"python (?:-m (benchmarks) (\w+)$|(\w+)/(\w+)\.py)", text):
            folder, name = script[1] or script[3], script[2] or script[4]
            assert (ROOT / folder / f"{name}.py").exists(), text
        for words in calls(text) if text.startswith("bestarm ") else ():
            known = {*words} & {"COMMAND", "--version"}
            command, rest = command_of([] if known else words)
            options = {name for parameter in command.params for name in parameter.opts}
            assert {word for word in rest if word.startswith("--")} <= options | {"--help"}, text


def test_blocks_are_found_with_their_files_reasons_and_outputs():
    page = (
        "```{code-block} toml\n:caption: a.toml\n\nx = 1\n```\n\n```sh\necho hello\n```\n\n"
        "```text\nhel…\n```\n\n<!-- not run: needs a field of sensors -->\n\n```sh\nmeasure\n```\n\n"
        "```text\nno output\n```\n\n```{image} a.svg\n```\n\n"
        "- a list\n\n  ```\n  bare\n  ```\n\nwords\n\n    code\n"
    )
    file, command, output, other, after, in_list, indented = blocks(page)
    assert (file.file, file.text) == ("a.toml", "x = 1\n")
    assert (command.language, command.not_run) == ("sh", None)
    assert (output.output, other.output, after.output) == (True, False, False)
    assert other.not_run == "needs a field of sensors"
    assert (in_list.language, in_list.text, indented.language) == ("", "bare\n", "")


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


def shell_block(text: str) -> Block:
    return Block("sh", text, 1, None, None, False)


def test_a_page_has_one_shell_and_its_processes_end_with_it(terminal):
    assert terminal.run(shell_block("x=3\nsh -c 'exit 4'   # exit code 4\nsleep 600 &\necho $!"), "a") != ""
    process = int(terminal.run(shell_block("echo $!"), "b"))
    assert terminal.run(shell_block("echo $x \\\n  more"), "c") == "3 more\n"
    with pytest.raises(AssertionError, match="false"):
        terminal.run(shell_block("false"), "d")
    with pytest.raises(AssertionError, match="wrong"):
        terminal.run(shell_block("echo 'wrong"), "e")
    os.kill(process, 0)
    terminal.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(terminal.shell.pid, 0)


def test_a_line_that_hangs_is_named(terminal, monkeypatch):
    monkeypatch.setitem(globals(), "SECONDS", 0.2)
    with pytest.raises(AssertionError, match="still running"):
        terminal.run(shell_block("sleep 600"), "a")


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("bestarm run a.toml --seed 7 --period 200", True),
        ("sudo -u bestarm /opt/bin/bestarm server fed &", True),
        ("pip install bestarm\nmake test lint   # both", True),
        ("bestarm walk a.toml", False),
        ("bestarm run a.toml --sead 7", False),
        ("bestarm run a.toml --seed seven", False),
        ("bestarm run", False),
        ("bestarm federation", False),
        ("SEED=1 bestarm mesh walk", False),
        ("echo hello && bestarm verify a b", False),
        ("make tea", False),
    ],
)
def test_commands_that_are_not_run_must_exist(text, sound):
    if sound:
        check_commands(text, "a page")
    else:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check_commands(text, "a page")


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("bestarm run a.toml", True),
        ("  $ ls", True),
        ("python3 -m bestarm.cli", True),
        ("sudo /usr/bin/make", True),
        ("SEED=1 nats-server", True),
        ("bestarm: best-arm identification", False),
        ("makes 3 rounds", False),
        ("north/a is the best arm.", False),
    ],
)
def test_a_text_block_cannot_hide_a_command(line, hidden):
    assert bool(COMMAND.match(line)) is hidden


@pytest.mark.parametrize("wrong", ["Restrat=always", "ExecStart=/bin/bestarm serve f", "ExecStart=/bin/true"])
def test_a_unit_that_would_not_start_is_detected(wrong):
    good = "[Service]\nExecStart=/opt/bin/bestarm server fed --patience 600\nRestart=on-failure\n"
    check_unit(good, "a page")
    key = wrong.partition("=")[0]
    kept = [line for line in good.splitlines() if not line.startswith(key)]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_unit("\n".join([*kept, wrong]), "a page")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_have_targets(page):
    prose = re.sub(r"^(`{3,}).*?^\1", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


BEGINS = re.compile(r"(?:\d+[.)]|[-+*]|#{1,6}|>) ")  # a list, a heading or a quotation


def broken(text: str) -> list[str]:
    """Lines of paragraphs that Markdown takes for the beginning of something else, such as "1. You want"."""
    prose = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    return [line for before, line in itertools.pairwise(prose) if BEGINS.match(line) and before[:1].isalpha()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_paragraph_turns_into_a_list(page):
    assert broken(page.read_text("utf-8")) == []


def test_a_paragraph_that_turns_into_a_list_is_detected():
    assert broken("between 0 and\n1. You want\n\n- an item\n- another\n\n# A heading\n") == ["1. You want"]
