"""Where a deployed client's rewards come from: a Python function, a command, a web address, a CSV file.

An arm's name and a number of pulls come in; rewards on the user's scale go out, each a finite number in
[low, high]. ``pull`` gives at least one reward and at most as many as were asked for, so ask again for
the rest. What was got before something went wrong is given first; the next call raises. So a reward that
was paid for gets to the caller, who writes it down before asking for more: how many are asked for at a
time is how many a crash can cost. A ``pull`` that is cancelled keeps what it has for the next one.

What may go wrong: ``InputError`` (no number, or out of range: a mistake in the set-up, never retried, for a
reward that is left out would bend the mean), ``SourceFailed`` (no answer, after several tries), ``Exhausted``
(there are no more rewards).
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import importlib
import inspect
import json
import math
import os
import random
import re
import shlex
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from bestarm.errors import InputError, nearest, shorten

PIECE = 10_000  # rewards that are asked for at a time
MAX_OUTPUT = 1 << 20  # bytes of one answer
MEANS, PAUSE = "BESTARM_DEMO_MEANS", "BESTARM_DEMO_PAUSE"
SHELLS = ("sh", "ash", "bash", "dash", "zsh", "ksh", "fish")


class SourceFailed(Exception):
    """A source gave no answer, though it was asked several times."""


class Exhausted(Exception):
    """A source has no more rewards of this arm. A user's function may raise it too."""


class _Failed(Exception):
    """One attempt failed; `final` if another one would too."""

    def __init__(self, text: str, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


@dataclass(frozen=True)
class Retry:
    """How often a pull is tried, how long it waits between tries, and how long one may take (seconds).

    The first pause is `wait`; each further one is `factor` times longer, up to `longest`.
    """

    attempts: int = 5
    wait: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or not (self.wait >= 0 and self.factor >= 1 and self.longest >= 0):
            raise InputError(
                f"{self}", expected="at least 1 attempt, waits of at least 0, a factor from 1 on"
            )
        if not self.timeout > 0:
            raise InputError(f"timeout = {self.timeout}", expected="a positive number of seconds")

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures.

        >>> [Retry(longest=3).pause(n) for n in (1, 2, 3, 4)]
        [0.5, 1.0, 2.0, 3]
        """
        return min(self.longest, self.wait * self.factor ** min(failures - 1, 60))


class Source(ABC):
    """One client's rewards. A subclass says how one piece is fetched."""

    limited = True  # whether one try ends after `retry.timeout`
    finite = False  # whether it is known that rewards run out
    redraws = False  # whether rewards that were recorded are drawn again and again

    def __init__(self, name: str, *, low: float = 0.0, high: float = 1.0, retry: Retry | None = None) -> None:
        if not (low < high and math.isfinite(high - low)):
            raise InputError(f"bounds = [{low}, {high}]", where=name, expected="[low, high] with low < high")
        self.name, self.low, self.high, self.retry = name, low, high, retry or Retry()
        self._kept: dict[str, list[float]] = {}
        self._owed: dict[str, Exception] = {}

    async def pull(self, arm: str, times: int) -> list[float]:
        """From 1 to `times` rewards of this arm, in the order in which they came."""
        if times < 1:
            raise InputError(f"{times} pulls", where=self.name, expected="at least 1")
        kept = self._kept.setdefault(arm, [])
        if not kept and arm in self._owed:
            raise self._owed.pop(arm)
        try:
            while len(kept) < times and arm not in self._owed:
                asked = min(PIECE, times - len(kept))
                found = await self._tried(arm, asked)
                if not 1 <= len(found) <= asked:
                    raise InputError(
                        f"gave {len(found)} rewards",
                        where=self._where(arm),
                        expected="1" if asked == 1 else f"1 to {asked}",
                    )
                for value in found:
                    kept.append(self._checked(arm, value))
        except (InputError, SourceFailed, Exhausted) as error:
            if not kept:
                raise
            self._owed[arm] = error
        given = kept[:times]
        del kept[:times]
        return given

    async def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """End what runs."""

    async def __aenter__(self) -> Source:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        """Up to `times` rewards, unchecked; any exception but those of ``pull`` is a failed try."""

    async def _tried(self, arm: str, times: int) -> Sequence[object]:
        failures = 0
        while True:
            limit = asyncio.timeout(self.retry.timeout if self.limited else None)
            try:
                async with limit:
                    return await self._fetch(arm, times)
            except (InputError, SourceFailed, Exhausted):
                raise
            except Exception as error:
                final = isinstance(error, _Failed) and error.final
                text = str(error) if isinstance(error, _Failed) else f"{type(error).__name__}: {error}"
                if limit.expired():
                    text = f"no answer within {self.retry.timeout:g} s"
                failures += 1
                if final or failures >= self.retry.attempts:
                    tries = "1 try" if failures == 1 else f"{failures} tries"
                    raise SourceFailed(f"{self._where(arm)}: {text} (given up after {tries})") from error
            await asyncio.sleep(self.retry.pause(failures))

    def _where(self, arm: str) -> str:
        return f'{self.name}, arm "{arm}"'

    def _checked(self, arm: str, value: object) -> float:
        number = _number(value)
        if number is None:
            raise InputError(f"gave {shorten(value)}", where=self._where(arm), expected="a finite number")
        if not self.low <= number <= self.high:
            raise InputError(
                f"gave a reward of {number!r}",
                where=self._where(arm),
                expected=f"a reward in [{self.low:g}, {self.high:g}]",
                fix="Declare bounds = [low, high] that hold every reward",
            )
        return number


def _number(value: object) -> float | None:
    """The finite number that this is (or whose text it is), if it is one."""
    number = math.nan
    if isinstance(value, Real | np.bool_) or (isinstance(value, _Text) and "_" not in value):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    return number if math.isfinite(number) else None


class _Text(str):
    """A line of a command's output: the one place where text may stand for a number."""


class FromPython(Source):
    """Rewards from ``package.module:object``, or from an object that is given as it is.

    The object is a function, or has a method ``pull``, or is a class of such (made without arguments). It
    is called as ``f(arm)`` for one reward, or as ``f(arm, times)`` for a list of 1 to `times` rewards if its
    second parameter is named `times` or has no default. It may be ``async``; if it is not, it runs in a
    thread, where no time limit can end it. It is called again if it raises; ``Exhausted`` and
    StopIteration mean that there is no more.
    """

    def __init__(self, what: str | object, **options: Any) -> None:
        super().__init__(what if isinstance(what, str) else getattr(what, "__name__", repr(what)), **options)
        found = _imported(what) if isinstance(what, str) else what
        if isinstance(found, type):
            try:
                found = found()
            except Exception as error:  # whatever the user's class raises
                raise InputError(
                    f"can't be made without arguments ({type(error).__name__}: {error})", where=self.name
                ) from error
        self._function: Any = getattr(found, "pull", found)
        if not callable(self._function):
            raise InputError(
                f"{shorten(found)} can't be called", where=self.name, expected="f(arm) or f(arm, times)"
            )
        self.batch = _takes_times(self._function, self.name)
        self.limited = any(
            inspect.iscoroutinefunction(f) for f in (self._function, type(self._function).__call__)
        )

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        arguments = (arm, times) if self.batch else (arm,)
        if self.limited:
            found = await self._function(*arguments)
        else:
            found = await asyncio.to_thread(self._called, *arguments)
            if inspect.isawaitable(found):
                found = await found
        if not self.batch:
            return [found]
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
            raise InputError(
                f"gave {shorten(found)}", where=self._where(arm), expected=f"a list of 1 to {times} rewards"
            )
        return list(found)

    def _called(self, *arguments: Any) -> Any:
        try:
            return self._function(*arguments)
        except StopIteration:  # can't leave a thread as what it is
            raise Exhausted(f"{self._where(arguments[0])}: there are no more rewards") from None


def _imported(what: str) -> object:
    module, colon, path = what.partition(":")
    if not colon or not module or not path:
        raise InputError(f'"{what}" names no object', expected="package.module:object")
    try:
        found: object = importlib.import_module(module)
    except Exception as error:  # whatever the user's module raises
        raise InputError(
            f'module "{module}" can\'t be imported ({type(error).__name__}: {error})', where=what
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise InputError(f'there is no "{name}"', where=what, fix=nearest(name, dir(found)))
        found = getattr(found, name)
    return found


def _takes_times(function: Any, where: str) -> bool:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return False  # some built-in functions don't tell
    places = [
        p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    batch = len(places) > 1 and (places[1].name == "times" or places[1].default is inspect.Parameter.empty)
    try:
        signature.bind(*(("arm", 1) if batch else ("arm",)))
    except TypeError:
        raise InputError(
            f"its parameters are {signature}", where=where, expected="f(arm) or f(arm, times)"
        ) from None
    return batch


class FromCommand(Source):
    """Rewards from a command's output, one a line.

    With ``{arm}`` in the command, a process is started for each pull, with the arm's name in that place, and
    prints one reward; with ``{times}`` as well, it prints 1 to `times` of them. Without ``{arm}``, one
    process is started and kept: it reads an arm's name a line and answers each with one line, at once. If
    it ends, it is started again. No shell sees the command or the arm's name.
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
        if "{arm}" in _program_text(self.words):
            raise InputError(
                "would hand the arm's name to a shell as program text",
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
        if len(lines) > 1 and not any("{times}" in word for word in self.words):
            raise InputError(f"gave {len(lines)} lines", where=self._where(arm), expected="one reward")
        return lines

    def _filled(self, word: str, arm: str, times: int) -> str:
        if word.startswith("{arm}") and arm.startswith("-"):
            raise InputError(
                "a program would take this arm's name for an option",
                where=self._where(arm),
                fix="Give the arm another name, or write it behind something: --arm={arm}",
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
                start_new_session=True,  # so that its children can be ended with it
            )
        except (FileNotFoundError, PermissionError, ValueError) as error:
            raise InputError(f"can't be started: {error}", where=self.name) from None

    async def _run(self, words: Sequence[str]) -> list[_Text]:
        process = await self._start(words, asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            output, errors = await asyncio.gather(_first(process.stdout), _first(process.stderr))
            code = await process.wait()
        except BaseException:
            await _end(process)
            raise
        if code:
            said = _lines(errors)
            raise _Failed(f"{_ending(code)}{': ' + said[-1][:200] if said else ''}")
        if len(output) > MAX_OUTPUT:
            raise InputError(f"printed more than {MAX_OUTPUT} bytes", where=self.name)
        return _lines(output)

    async def _answer(self, arm: str) -> _Text:
        if not arm.isprintable():
            raise InputError("this name is no line of text", where=self._where(arm))
        done = False
        try:
            process, line = await self._running(arm)
            assert process.stdin is not None
            with contextlib.suppress(ConnectionError):  # it has ended; the line says so
                process.stdin.write(f"{arm}\n".encode())
                await process.stdin.drain()
            try:
                said = await line
            except ValueError:
                raise InputError(f"a line of more than {MAX_OUTPUT} bytes", where=self._where(arm)) from None
            if not said.endswith(b"\n"):
                raise _Failed(f"it ended ({_ending(await process.wait())}) without an answer")
            text = _Text(said.decode(errors="replace").strip())
            done = _number(text) is not None
        finally:
            if not done:  # a later answer could belong to this question
                await self.close()
        self._read_on(process)
        return text

    async def _running(self, arm: str) -> tuple[asyncio.subprocess.Process, asyncio.Task[bytes]]:
        """The process and the line it will say next; started if there is none, or it has ended."""
        for _ in range(3):  # the loop sees what is in the pipe, then the reader does, then its task
            await asyncio.sleep(0)
        if self._line is not None and self._line.done():
            unasked = self._line.exception() is not None or self._line.result().endswith(b"\n")
            await self.close()
            if unasked:
                raise InputError(
                    "said more than it was asked", where=self._where(arm), expected="one line for each arm"
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
        """End the process that was kept running."""
        process, line, self._process, self._line = self._process, self._line, None, None
        if line is not None:
            line.cancel()
            await asyncio.gather(line, return_exceptions=True)
        if process is not None:
            await _end(process)


def _program_text(words: Sequence[str]) -> str:
    """What a shell among these words would run: what follows its -c."""
    shells = [i for i, word in enumerate(words) if Path(word).stem in SHELLS]
    rest = list(words[shells[0] + 1 :]) if shells else []
    while rest and not re.fullmatch(r"-\w*c\w*", rest[0]):
        rest.pop(0)
    return next((word for word in rest if not word.startswith("-")), "")


async def _first(stream: asyncio.StreamReader) -> bytes:
    """A little more than MAX_OUTPUT of the stream; the rest is read and thrown away."""
    kept = b""
    while data := await stream.read(1 << 16):
        if len(kept) <= MAX_OUTPUT:
            kept += data
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    """No process of its session is left."""
    assert process.stdout is not None
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None or not process.stdout.at_eof():  # else its number may be another's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    with contextlib.suppress(TimeoutError):  # a child that left the session may hold the pipe
        async with asyncio.timeout(5):
            await _first(process.stdout)
            await process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def _lines(output: bytes) -> list[_Text]:
    lines = (line.strip() for line in output.decode(errors="replace").splitlines())
    return [_Text(line) for line in lines if line]


class FromHttp(Source):
    """Rewards from a web address, by GET.

    ``{arm}`` in it is the arm's name, quoted; ``{times}`` how many are wanted. The answer is JSON: a number,
    or a list of 1 to `times` numbers (one, without ``{times}``). Answers 5xx, 408 and 429, and none at all,
    are tried again; other errors are not.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        if urllib.parse.urlsplit(url).scheme not in ("http", "https") or "{arm}" not in url:
            raise InputError(
                f"{shorten(url)} can't be used", expected="http:// or https://, with {arm} in it"
            )
        self.batch = "{times}" in url

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        values = {"{arm}": urllib.parse.quote(arm, safe=""), "{times}": str(times)}
        url = re.sub(r"\{arm\}|\{times\}", lambda found: values[found[0]], self.name)
        answer = await asyncio.to_thread(self._get, url)
        try:
            if len(answer) > MAX_OUTPUT:
                raise ValueError(f"more than {MAX_OUTPUT} bytes")
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise InputError(
                f"answered {shorten(answer)}", where=self._where(arm), expected="a number or a list, as JSON"
            ) from None
        found = found if isinstance(found, list) else [found]
        if len(found) > 1 and not self.batch:
            raise InputError(f"gave {len(found)} rewards", where=self._where(arm), expected="one")
        return found

    def _get(self, url: str) -> bytes:
        try:
            with urllib.request.urlopen(url, timeout=self.retry.timeout) as response:
                answer = bytes(response.read(MAX_OUTPUT + 1))
                if response.length and len(answer) <= MAX_OUTPUT:  # half a number is a number too
                    raise _Failed("the answer was cut off")
                return answer
        except urllib.error.HTTPError as error:
            error.close()
            again = error.code >= 500 or error.code in (408, 429)
            raise _Failed(f"HTTP {error.code} {error.reason}", final=not again) from None
        except urllib.error.URLError as error:
            raise _Failed(f"no answer: {error.reason}") from None
        except (OSError, HTTPException) as error:
            raise _Failed(f"no answer: {type(error).__name__} {error}") from None


class FromCsv(Source):
    """Rewards that were recorded, from a CSV file with the columns `arm` and `reward`, or as they are named.

    There must be rewards of all `arms` that will be asked for. With `replace` (the default) each pull draws
    one of the arm's rewards, seeded; without, they are played in their order, and then the arm is
    ``Exhausted``. `start` says how many pulls of each arm were made before: a client that starts again goes
    on where it was.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        arms: Sequence[str] = (),
        arm_column: str = "arm",
        reward_column: str = "reward",
        replace: bool = True,
        seed: int | None = None,
        start: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(str(path), **options)
        self.replace, self.redraws, self.finite = replace, replace, not replace
        self.arm_column, self.reward_column = arm_column, reward_column
        self.rewards = self._read(Path(path))
        for arm in arms:
            self._demand(arm)
        self._made = {arm: (start or {}).get(arm, 0) for arm in self.rewards}
        root = np.random.SeedSequence(seed)
        arms = sorted(self.rewards)
        self._streams = {
            arm: np.random.Generator(np.random.PCG64(child))
            for arm, child in zip(arms, root.spawn(len(arms)), strict=True)
        }
        for arm, generator in self._streams.items():
            generator.random(self._made[arm])  # one number a pull, so this is where it was

    def _read(self, path: Path) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file)
                header = [name.strip() for name in reader.fieldnames or []]
                reader.fieldnames = header
                for column in (self.arm_column, self.reward_column):
                    if header.count(column) != 1:
                        raise InputError(
                            f'there is no column "{column}", or more than one',
                            where=f"{self.name}, line 1",
                            expected=f"the columns {self.arm_column} and {self.reward_column}",
                            fix=f"There are: {', '.join(header)}. Name yours: --arm-column, --reward-column",
                        )
                for row in reader:
                    self._take(row, f"{self.name}, line {reader.line_num}", found)
        except UnicodeDecodeError as error:
            raise InputError(f"this is not a text file (byte {error.start})", where=self.name) from None
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=self.name) from None
        except csv.Error as error:
            raise InputError(f"can't be read: {error}", where=self.name) from None
        if not found:
            raise InputError("there are no rewards in this file", where=self.name)
        return found

    def _take(self, row: Mapping[str, str | None], where: str, found: dict[str, list[float]]) -> None:
        arm = (row[self.arm_column] or "").strip()
        if not arm:
            raise InputError("the arm is missing", where=where)
        try:
            reward = self._checked(arm, _Text((row[self.reward_column] or "").strip()))
        except InputError as error:
            raise InputError(
                error.what.replace("gave", "holds", 1), where=where, expected=error.expected, fix=error.fix
            ) from None
        found.setdefault(arm, []).append(reward)

    def _demand(self, arm: str) -> None:
        if arm not in self.rewards:
            raise InputError(
                f'there is no reward of arm "{arm}"', where=self.name, fix=nearest(arm, self.rewards)
            )

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        self._demand(arm)
        rewards, made = self.rewards[arm], self._made[arm]
        if self.replace:
            places = (self._streams[arm].random(times) * len(rewards)).astype(int)
            given = [rewards[place] for place in places.tolist()]
        else:
            given = rewards[made : made + times]
        if not given:
            raise Exhausted(f"{self._where(arm)}: all {len(rewards)} rewards were played")
        self._made[arm] = made + len(given)
        return given


class Coins:
    """0/1 rewards for demos, with the means that the environment names; a pause before each batch."""

    def __init__(self) -> None:
        self.means: dict[str, float] = json.loads(os.environ[MEANS])
        self.pause = float(os.environ.get(PAUSE, "0"))

    def pull(self, arm: str, times: int) -> list[int]:
        time.sleep(self.pause)
        return [int(random.random() < self.means[arm]) for _ in range(times)]
