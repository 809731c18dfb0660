"""Recorded rewards from a CSV file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bestarm.deploy.sources.base import Exhausted, Source, Text
from bestarm.errors import InputError, RewardError
from bestarm.problem.copies import TELLING_BITS, entropy
from bestarm.problem.csv_file import open_csv
from bestarm.util.text import nearest

DIGITS = 12  # length of a digest; enough to detect accidental changes


class FromCsv(Source):
    """Recorded rewards from a CSV file with the columns `arm` and `reward`, or others that you name.

    The file must have rewards of all `arms`. With ``rows="once"`` rewards are played in file order until the
    arm is ``Exhausted``; with ``rows="resample"`` each pull draws one of the arm's rewards at random, seeded.
    `start` says how many pulls of each arm were made before, so that a restarted client resumes where it was.
    Rows may be added at the end of the file meanwhile; ``demand_same`` refuses any other change of rows that
    were played.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        arms: Sequence[str] = (),
        arm_column: str = "arm",
        reward_column: str = "reward",
        rows: str = "once",
        seed: int | None = None,
        start: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(str(path), **options)
        self.redraws, self.finite = rows == "resample", rows == "once"
        self.arm_column, self.reward_column = arm_column, reward_column
        self._rows = _Rows(arms)
        try:
            self.rewards = self._read(Path(path))
        except RewardError as error:
            raise (error if self.private is None else error.unshown()) from None
        if not self.redraws and self.private is None:
            self.marks = self._rows.marks()
        self._played: dict[str, tuple[int, Any]] = {}  # by arm: number of rewards, and their hash
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
            generator.random(self._made[arm])  # one number per pull: skip those already used

    def _read(self, path: Path) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        with open_csv(path) as file:
            fix = "Name yours: --arm-column, --reward-column"
            file.demand(self.arm_column, self.reward_column, fix=fix)
            for row in file:
                self._take(row.cells, f"{self.name}, line {row.line}", found)
        if not found:
            raise InputError("there are no rewards in this file", where=self.name)
        return found

    def _take(self, row: Mapping[str, str], where: str, found: dict[str, list[float]]) -> None:
        arm = row[self.arm_column].strip()
        if not arm:
            raise InputError("the arm is missing", where=where)
        try:
            reward = self._checked(arm, Text(row[self.reward_column].strip()))
        except RewardError as error:
            raise RewardError(**_held(error, where), plain=InputError(**_held(error.plain, where))) from None
        except InputError as error:
            raise InputError(**_held(error, where)) from None
        found.setdefault(arm, []).append(reward)
        self._rows.take(arm, reward)

    def left(self, arm: str) -> int | None:
        """The rows of this arm that were not played yet."""
        return None if self.redraws else len(self.rewards.get(arm, ())) - self._made.get(arm, 0)

    def mark(self, made: Mapping[str, int]) -> dict[str, Any]:
        if self.redraws:
            return {"redrawn": True}
        return {"played": {arm: (times, self._digest(arm, times)) for arm, times in made.items()}}

    def _digest(self, arm: str, times: int) -> str:
        """Digest of the first rewards of an arm, extended step by step as `times` grows.

        With privacy there is none: it would tell which rewards these were.
        """
        if self.private is not None:
            return ""
        done, so_far = self._played.get(arm, (0, hashlib.sha256()))
        if times < done:
            done, so_far = 0, hashlib.sha256()
        so_far.update("".join(f"{reward!r}\n" for reward in self.rewards[arm][done:times]).encode())
        self._played[arm] = (times, so_far)
        return str(so_far.hexdigest()[:DIGITS])

    def demand_same(self, played: Mapping[str, tuple[int, str]], redrawn: bool) -> None:
        if redrawn and not self.redraws:
            what = "rows were drawn with replacement earlier in this run, and some could now count twice"
            raise InputError(what, where=self.name, expected="--rows resample, as before")
        if played and self.redraws:
            what = "rows were played once each earlier in this run, and would now be drawn again"
            raise InputError(what, where=self.name, expected="--rows once, as before")
        for arm, (times, digest) in played.items():
            if len(self.rewards.get(arm, ())) < times or self._digest(arm, times) != digest:
                raise InputError(
                    f'the first {times:,} rewards of arm "{arm}" differ from those that were played before',
                    where=self.name,
                    expected="the same rows, with new ones only after them",
                    fix="Restore the file and add rows only at its end, or start a new run",
                )

    def _demand(self, arm: str) -> None:
        if arm not in self.rewards:
            raise InputError(
                f'there are no rewards for arm "{arm}"', where=self.name, fix=nearest(arm, self.rewards)
            )

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        self._demand(arm)
        rewards, made = self.rewards[arm], self._made[arm]
        if self.redraws:
            places = (self._streams[arm].random(times) * len(rewards)).astype(int)
            given = [rewards[place] for place in places.tolist()]
        else:
            given = rewards[made : made + times]
        if not given:
            raise Exhausted(f"{self._where(arm)}: all {len(rewards)} rewards were played")
        self._made[arm] = made + len(given)
        return given


def _held(error: InputError, where: str) -> dict[str, str]:
    """What is wrong with a row, from an error about the reward that it gave."""
    what = error.what.replace("gave", "holds", 1)
    return {"what": what, "where": where, "expected": error.expected, "fix": error.fix}


class _Rows:
    """Reads a recording row by row and computes digests that identify another copy of it.

    There is one digest of all rows. A copy may have other rows at its end, so there is also one of the first
    2^k rows, for the smallest k for which these rows can't be equal by chance: the same k for every copy.
    """

    def __init__(self, arms: Sequence[str]) -> None:
        self.arms = frozenset(arms)
        self.count, self.hash = 0, hashlib.sha256()
        self.seen: dict[str, Counter[float]] = {}  # by arm: how often each reward occurred so far
        self.found: dict[int, str] = {}

    def take(self, arm: str, reward: float) -> None:
        if not self.arms or arm in self.arms:
            self.hash.update(f"{arm}\n{reward!r}\n".encode())
            self.count += 1
            if not self.found:
                self.seen.setdefault(arm, Counter())[reward] += 1
                if self.count.bit_count() == 1 and self._telling():
                    self._note()

    def _telling(self) -> bool:
        return sum(entropy(counts.values()) for counts in self.seen.values()) >= TELLING_BITS

    def _note(self) -> None:
        self.found[self.count] = self.hash.hexdigest()[:DIGITS]

    def marks(self) -> dict[int, str]:
        self._note()
        return self.found
