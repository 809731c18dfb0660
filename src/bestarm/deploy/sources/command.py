"""Rewards from a command's output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bestarm.deploy.sources.base import MAX_OUTPUT, Failed, Source, Text, number_in
from bestarm.errors import InputError
from bestarm.util.text import counted, shorten

SHELLS = ("sh", "ash", "bash", "dash", "zsh", "ksh", "fish")


class FromCommand(Source):
    """Rewards from a command's output, one per line.

    With ``{arm}`` in the command, a process is started for each pull, with the arm's name in place of
    ``{arm}``, and prints one reward; with ``{times}`` as well, it prints 1 to `times` rewards. Without
    ``{arm}``, one process is started and kept running: it reads one arm's name per line and answers each
    with one line at once. If it ends, it is started again. The command is not run through a shell.
    """

    def __init__(self, command: str, **options: Any) -> None:
        super().__init__(f"command {shorten(command)}", **options)
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"can't be read: {error}", where=self.name) from None
        if not self.words:
            raise InputError("is empty", where=self.name, expected="a program and its arguments")
        self.kept_running = not any("{arm}" in word for word in self.words)
        self.batch = not self.kept_running and any("{times}" in word for word in self.words)
        if "{arm}" in _program_text(self.words):
            raise InputError(
                "would pass the arm's name to a shell as program text",
                where=self.name,
                fix="""Write it as an argument of its own: sh -c 'read-sensor "$1"' sh {arm}""",
            )
        self._process: asyncio.subprocess.Process | None = None
        self._line: asyncio.Task[bytes] | None = None
        self._one = asyncio.Lock()

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        if self.kept_running:
            async with self._one:
                return [await self._answer(arm)]
        lines = await self._run([self._filled(word, arm, times) for word in self.words])
        if len(lines) > 1 and not self.batch:
            raise InputError(
                f"printed {counted(len(lines), 'line')}", where=self._where(arm), expected="one reward"
            )
        return lines

    def _filled(self, word: str, arm: str, times: int) -> str:
        if word.startswith("{arm}") and arm.startswith("-"):
            raise InputError(
                "a program would read this arm's name as an option",
                where=self._where(arm),
                fix="Give the arm another name, or attach it to an option: --arm={arm}",
            )
        values = {"{arm}": arm, "{times}": str(times)}
        return re.sub(r"\{arm\}|\{times\}", lambda found: values[found[0]], word)

    async def _start(
        self, words: Sequence[str], stdin: int, stderr: int | None
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *words,
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=MAX_OUTPUT,
                start_new_session=True,  # so that its children can be stopped with it
            )
        except (FileNotFoundError, PermissionError, ValueError) as error:
            raise InputError(
                f"can't be started: {error}",
                where=self.name,
                fix="Check that the program is on this computer, can be run, and is written with its path",
            ) from None

    async def _run(self, words: Sequence[str]) -> list[Text]:
        process = await self._start(words, asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.TaskGroup() as readers:
                stdout = readers.create_task(_first(process.stdout))
                stderr = readers.create_task(_first(process.stderr))
            code = await process.wait()
        except BaseException:
            await _end(process)
            raise
        output, errors = stdout.result(), stderr.result()
        if code:
            said = _lines(errors)
            raise Failed(f"{_ending(code)}{': ' + said[-1][:200] if said else ''}")
        if len(output) > MAX_OUTPUT:
            raise InputError(f"printed more than {MAX_OUTPUT} bytes", where=self.name)
        return _lines(output)

    async def _answer(self, arm: str) -> Text:
        if not arm.isprintable():
            raise InputError("this name is not a single line of text", where=self._where(arm))
        done = False
        try:
            process, line = await self._running(arm)
            assert process.stdin is not None
            with contextlib.suppress(ConnectionError):  # it has ended; reading the line shows it
                process.stdin.write(f"{arm}\n".encode())
                await process.stdin.drain()
            try:
                said = await line
            except ValueError:
                raise InputError(f"a line of more than {MAX_OUTPUT} bytes", where=self._where(arm)) from None
            if not said.endswith(b"\n"):
                raise Failed(f"it ended ({_ending(await process.wait())}) without an answer")
            text = Text(said.decode(errors="replace").strip())
            done = number_in(text) is not None
        finally:
            if not done:  # a later answer could belong to this question
                await self.close()
        self._read_on(process)
        return text

    async def _running(self, arm: str) -> tuple[asyncio.subprocess.Process, asyncio.Task[bytes]]:
        """The process and its next line of output. Starts the process if it is not running."""
        for _ in range(3):  # let the event loop, the reader and its task see what is in the pipe
            await asyncio.sleep(0)
        if self._line is not None and self._line.done():
            unasked = self._line.exception() is not None or self._line.result().endswith(b"\n")
            await self.close()
            if unasked:
                raise InputError(
                    "printed too many lines", where=self._where(arm), expected="one line for each arm"
                )
        if self._process is None:
            self._process = await self._start(self.words, asyncio.subprocess.PIPE, None)
            self._read_on(self._process)
        assert self._line is not None
        return self._process, self._line

    def _read_on(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._line = asyncio.create_task(process.stdout.readline())

    async def close(self) -> None:
        """Stop the process that was kept running."""
        process, line, self._process, self._line = self._process, self._line, None, None
        if line is not None:  # read across calls, so no TaskGroup could own it
            line.cancel()
            await asyncio.gather(line, return_exceptions=True)
        if process is not None:
            await _end(process)


def _program_text(words: Sequence[str]) -> str:
    """The program text that a shell among these words would run: the word after its -c."""
    shells = [i for i, word in enumerate(words) if Path(word).stem in SHELLS]
    rest = list(words[shells[0] + 1 :]) if shells else []
    while rest and not re.fullmatch(r"-\w*c\w*", rest[0]):
        rest.pop(0)
    return next((word for word in rest if not word.startswith("-")), "")


async def _first(stream: asyncio.StreamReader) -> bytes:
    """Read a little more than MAX_OUTPUT bytes of the stream; discard the rest."""
    kept = b""
    while data := await stream.read(1 << 16):
        if len(kept) <= MAX_OUTPUT:
            kept += data
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill all processes of its session."""
    assert process.stdout is not None
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None or not process.stdout.at_eof():  # its number may be reused by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    with contextlib.suppress(TimeoutError):  # a child that left the session may keep the pipe open
        async with asyncio.timeout(5):
            await _first(process.stdout)
            await process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def _lines(output: bytes) -> list[Text]:
    lines = (line.strip() for line in output.decode(errors="replace").splitlines())
    return [Text(line) for line in lines if line]
