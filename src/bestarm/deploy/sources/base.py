"""The base class of all sources of rewards: it checks rewards, retries, and never loses a paid reward."""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from bestarm.deploy.process import checkpoint
from bestarm.errors import UNSHOWN, InputError, RewardError
from bestarm.problem.privacy import answer
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Pull
from bestarm.protocol.verdict import Verdict
from bestarm.util.text import counted, shorten

PIECE = 10_000  # rewards requested at a time

MAX_OUTPUT = 1 << 20  # bytes of one answer


class SourceFailed(Exception):
    """A source gave no answer after several attempts."""


class Exhausted(Exception):
    """A source has no more rewards of this arm. A user's function may also raise it."""


class Failed(Exception):
    """One attempt failed; `final` means that retrying would not help."""

    def __init__(self, text: str, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


@dataclass(frozen=True)
class Retry:
    """The number of attempts per pull, the pauses between them, and the time limit of each, in seconds.

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
        """Seconds to wait after this many failures.

        >>> [Retry(longest=3).pause(n) for n in (1, 2, 3, 4)]
        [0.5, 1.0, 2.0, 3]
        """
        return min(self.longest, self.wait * self.factor ** min(failures - 1, 60))


@dataclass(frozen=True)
class Standing:
    """How a source whose subjects arrive stands: its pace, and what is left of the pulls that are announced.

    `to_assign` of them have no subject yet, `to_come` have one whose reward is still to come.
    """

    per_hour: float
    to_assign: int
    to_come: int

    @property
    def ahead(self) -> bool:
        """Whether all that is announced is assigned, although rewards are still to come."""
        return self.to_assign == 0 and self.to_come > 0


class Source(ABC):
    """The rewards of one client. A subclass defines how one batch is fetched."""

    batch = True  # whether one request may return several rewards
    limited = True  # whether an attempt ends after `retry.timeout`
    finite = False  # whether the rewards are known to run out
    whole = False  # whether all pulls that the machine wants are asked for at once
    redraws = False  # whether recorded rewards are drawn with replacement
    marks: Mapping[int, str] = {}  # of a recording: number of first rows -> their digest

    def __init__(
        self,
        name: str,
        *,
        low: float = 0.0,
        high: float = 1.0,
        retry: Retry | None = None,
        private: Scale | None = None,
    ) -> None:
        if not (low < high and math.isfinite(high - low)):
            raise InputError(f"bounds = [{low}, {high}]", where=name, expected="[low, high] with low < high")
        self.name, self.low, self.high, self.retry = name, low, high, retry or Retry()
        self.private = private  # a scale with privacy: rewards become random answers as they arrive
        self._kept: dict[str, list[float]] = {}
        self._owed: dict[str, Exception] = {}

    async def pull(self, arm: str, times: int) -> list[float]:
        """Return 1 to `times` rewards of this arm, in the order of arrival."""
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
                        f"gave {counted(len(found), 'reward')}",
                        where=self._where(arm),
                        expected="1" if asked == 1 else f"1 to {asked}",
                    )
                for value in found:
                    kept.append(self._hidden(self._checked(arm, value)))
                checkpoint()
        except (InputError, SourceFailed, Exhausted) as error:
            if not kept:
                raise
            self._owed[arm] = error
        given = kept[:times]
        del kept[:times]
        return given

    def _hidden(self, reward: float) -> float:
        """The reward, or with privacy a random answer of 0 or 1. Nothing else ever sees the reward then."""
        if self.private is None or self.private.privacy is None:
            return reward
        return answer(self.private.share(reward), self.private.privacy)

    def arrived(self, arm: str) -> list[float]:
        """Return the rewards of this arm that have arrived, but not been returned: a pull was cancelled."""
        return self._kept.pop(arm, [])

    def left(self, arm: str) -> int | None:
        """How many more rewards of this arm there are; None if that is unknown or without end."""
        return None

    async def open(self) -> None:  # noqa: B027 (most sources have nothing to begin)
        """Begin, before the first pull."""

    def plan(self, made: Mapping[str, int], pulls: Sequence[Pull]) -> None:  # noqa: B027
        """Prepare for these pulls, in order; `made`: the rewards of each arm that earlier ones took."""

    def mark(self, made: Mapping[str, int]) -> dict[str, Any]:
        """What the journal stores about the rewards of these pulls, for ``demand_same`` after a restart."""
        return {}

    def demand_same(self, played: Mapping[str, tuple[int, str]], redrawn: bool) -> None:  # noqa: B027
        """InputError if rewards that counted before a restart could count again: see ``mark``."""

    def standing(self) -> Standing | None:
        """The pace of subjects that arrive, and what is left; None for rewards that are fetched."""
        return None

    def remarks(self) -> list[str]:
        """What the operator should know about the rewards so far."""
        return []

    async def decided(self, verdict: Verdict) -> None:  # noqa: B027 (most sources tell nobody)
        """The run has ended with this verdict."""

    async def close(self) -> None:  # noqa: B027 (most sources start no processes)
        """Stop anything that the source started."""

    async def __aenter__(self) -> Source:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        """Fetch up to `times` rewards, unchecked. Exceptions not named in ``pull`` are failed attempts."""

    async def _tried(self, arm: str, times: int) -> Sequence[object]:
        failures = 0
        while True:
            limit = asyncio.timeout(self.retry.timeout) if self.limited else None
            try:
                if limit is None:
                    return await self._fetch(arm, times)
                async with limit:
                    return await self._fetch(arm, times)
            except InputError as error:
                raise (error if self.private is None else self._unshown(arm, error)) from None
            except (SourceFailed, Exhausted) as end:
                if self.private is None:
                    raise
                what = "there are no more rewards" if isinstance(end, Exhausted) else "failed"
                raise type(end)(f"{self._where(arm)}: {what} (why is {UNSHOWN})") from None
            except Exception as error:
                final = isinstance(error, Failed) and error.final
                text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                if limit is not None and limit.expired():
                    text = f"no answer within {self.retry.timeout:g} s"
                elif self.private is not None:
                    text = f"an attempt failed ({type(error).__name__}; {UNSHOWN})"
                failures += 1
                if final or failures >= self.retry.attempts:
                    tries = "1 attempt" if failures == 1 else f"{failures} attempts"
                    cause = None if self.private else error
                    raise SourceFailed(f"{self._where(arm)}: {text} (gave up after {tries})") from cause
            checkpoint()
            await asyncio.sleep(self.retry.pause(failures))

    def _where(self, arm: str) -> str:
        return f'{self.name}, arm "{arm}"'

    def _unshown(self, arm: str, error: InputError) -> InputError:
        """An error about an answer, without the answer."""
        what = f"gave an answer that can't be used ({UNSHOWN})"
        return InputError(what, where=self._where(arm), expected=error.expected, fix=error.fix)

    def _checked(self, arm: str, value: object) -> float:
        number, where = number_in(value), self._where(arm)
        if number is None:
            raise self._refused(
                f"gave {shorten(value)}", f"gave no number ({UNSHOWN})", where, "a finite number"
            )
        if not self.low <= number <= self.high:
            raise self._refused(
                f"gave a reward of {number!r}",
                f"gave a reward out of bounds ({UNSHOWN})",
                where,
                f"a reward in [{self.low:g}, {self.high:g}]",
                "Correct the source; or ask the operator of this run for other bounds: they belong to "
                "its scenario, and need a new run",
            )
        return number

    def _refused(self, what: str, unshown: str, where: str, expected: str, fix: str = "") -> InputError:
        """An error that quotes a reward, which others than the site do not see; with privacy nobody does."""
        plain = InputError(unshown, where=where, expected=expected, fix=fix)
        if self.private is not None:
            return plain
        return RewardError(what, where=where, expected=expected, fix=fix, plain=plain)


def number_in(value: object) -> float | None:
    """Return this value (or its text) as a finite number, or None if it is not one."""
    if type(value) is float:  # the usual case
        return value if math.isfinite(value) else None
    number = math.nan
    if isinstance(value, Real | np.bool_) or (isinstance(value, Text) and "_" not in value):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    return number if math.isfinite(number) else None


class Text(str):
    """Text that may be read as a number: a line of a command's output or a cell of a CSV file."""
