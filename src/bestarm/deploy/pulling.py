"""Pulling on a real machine, shared by the clients of a federation and the peers of a mesh.

``Puller`` asks a source for rewards, in batches that take about half a second, and passes them to the ledger
(``pull_ledger.Pulls``), which writes them to the journal before they count.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from bestarm.deploy.process import checkpoint, together
from bestarm.deploy.pull_ledger import Pulls, log
from bestarm.deploy.sources import Exhausted, FromCommand, FromCsv, FromHttp, FromPython, Source, SourceFailed
from bestarm.errors import UNSHOWN, InputError, RewardError
from bestarm.problem.coins import flips
from bestarm.problem.layout import Group
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Pull
from bestarm.protocol.machine import ForesightedClient

REDRAWN = "rewards are drawn from a file with replacement: what is said of these arms is about the file"
PLAYED = "each row of a file is played once: "
FIRST_BATCH, LARGEST_BATCH = 16, 10_000
BATCH_SECONDS = 0.5  # target duration of a batch: a crash can lose one
MOST_TURNS = 8  # turns of each arm in a batch, if a source returns many rewards per request


class Puller:
    """Makes the pulls of a site.

    Parameters
    ----------
    site : Pulls
        The fold that wants rewards.
    source : Source
        Where they come from.
    scale : Scale
        The scale of the rewards from the source.
    coins : bool
        Whether the method takes 0/1 rewards only. Others are then turned into coins with the same mean.
    end : str
        The reason to stop when the source has no more rewards.
    after : callable
        Called after each batch.
    rng : numpy.random.Generator, optional
        Flips the coins. Unseeded by default, so that nobody can predict a coin. After a restart, coins are
        read from the journal and not flipped again.
    """

    def __init__(
        self,
        site: Pulls,
        source: Source,
        scale: Scale,
        *,
        coins: bool,
        end: str,
        after: Callable[[], None],
        rng: np.random.Generator | None = None,
    ) -> None:
        self.site, self.source, self.scale, self.coins = site, source, scale, coins
        if scale.privacy is not None:
            source.private = scale
        self.end, self.after = end, after
        self.rng = rng or np.random.default_rng()
        self.changed = asyncio.Event()  # set when the pulls that the site wants change
        self.speed = 0.0  # pulls per second

    async def run(self) -> None:
        """Make the pulls that the site wants until the site is finished."""
        batch = FIRST_BATCH  # pulls of each arm, on average
        if not self.site.over:
            await self.source.open()
            self.source.demand_same(self.site.played, self.site.redrawn)
            if self.source.redraws:
                self.site.note(REDRAWN)
            elif self.source.marks and self.site.compared and self.scale.privacy is None:
                self.site.note(PLAYED + _told(self.source.marks))
            self.site.supply([self.source.left(arm) for arm in self.site.group.arms])
            self.after()
        if self.source.finite and not self.site.stoppable and not self.site.over:
            log.warning(
                "%s: these rewards can run out, and this run has no budget: if they do, all wait until there "
                "are more (budget = … in the scenario lets a client end)",
                self.source.name,
            )
        while not self.site.over:
            checkpoint()
            pull = self.site.pull
            if pull is None:
                self.changed.clear()
                await self.changed.wait()
                continue
            arms = len(pull.arms)
            some = pull.times if self.source.whole else batch * arms // pull.width or 1
            times, began = min(some, pull.times), time.monotonic()
            self._plan(pull)
            self.site.ask(pull, times)
            if self.source.whole:  # its rewards may take long: meanwhile more pulls may be announced
                await together(self._batch(pull, times), beside=[self._replanning()])
            else:  # without a task, which lets other work go first
                await self._batch(pull, times)
            self.after()
            await asyncio.sleep(0)  # recorded rewards never wait, and messages must still get through
            took = max(time.monotonic() - began, 1e-6)
            self.speed = times * pull.width / took
            batch = max(1, min(LARGEST_BATCH, 2 * batch, int(self.speed * BATCH_SECONDS / arms) or 1))

    async def _replanning(self) -> None:
        """Tell the source about pulls that are announced while rewards of earlier ones are still to come."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            if self.site.pull is not None:
                self._plan(self.site.pull)

    @cached_property
    def _foresees(self) -> bool:
        """Whether the machine knows its next pulls; asking it each time is slow."""
        return isinstance(self.site.machine, ForesightedClient)

    def _plan(self, pull: Pull) -> None:
        """Tell the source what will be pulled, as far as that is known."""
        machine, names = self.site.machine, self.site.group.arms
        ahead = cast(ForesightedClient, machine).upcoming if self._foresees else ()
        used = {name: self.site.made[name] - len(self.site.kept[a]) for a, name in enumerate(names)}
        self.source.plan(used, (pull, *ahead))

    async def _batch(self, pull: Pull, times: int) -> None:
        """Pull; rewards that arrived are written to the journal even after an error."""
        site = self.site
        got: dict[int, list[float]] = {arm: [] for arm in pull.arms}
        try:
            for rounds in self._turns(pull, times):
                for arm, share in zip(pull.arms, pull.each, strict=True):
                    while (missing := rounds * share - len(site.kept[arm]) - len(got[arm])) > 0:
                        name = site.group.arms[arm]
                        got[arm] += [self._unit(name, x) for x in await self.source.pull(name, missing)]
                        checkpoint()
        except Exhausted as end:
            self._keep(got)
            if not site.stoppable:
                raise SourceFailed(
                    f"{end}; without a budget the run cannot continue without them: add some and start this "
                    "client again while the server waits, or let its operator continue without this client "
                    "(bestarm federation drop)"
                ) from None
            log.warning("%s", end)
            site.note(str(end))
            site.stop(self.end)
        except BaseException:
            for arm in pull.arms:
                name = site.group.arms[arm]
                got[arm] += [self._unit(name, x) for x in self.source.arrived(name)]
            if any(got.values()):
                self._keep(got)
            raise
        else:
            self._keep(got)

    def _turns(self, pull: Pull, times: int) -> list[int]:
        """How many rounds of a batch are complete after each turn, in which every arm is pulled.

        With shares or moments, the method compares rewards of the same period: arms take turns, so that a
        drift of the rewards affects all of them alike.
        """
        if not (pull.shares or pull.moments):
            return [times]
        turns = min(times, MOST_TURNS) if self.source.batch else times
        return [times * turn // turns for turn in range(1, turns + 1)]

    def _keep(self, got: Mapping[int, Sequence[float]]) -> None:
        """Write the rewards, and the mark of their source, to the journal."""
        site, names = self.site, self.site.group.arms
        made = {names[a]: site.made[names[a]] + len(values) for a, values in got.items() if values}
        site.rewards(got, self.source.mark(made))

    def _unit(self, arm: str, reward: float) -> float:
        """Scale a reward to [0, 1]; flip a coin with that mean if the method takes 0/1 rewards only.

        With privacy the source gives random answers, which are 0 or 1.
        """
        if self.scale.privacy is not None:
            return reward
        unit = min(1.0, max(0.0, self.scale.inner(reward)))
        if unit in (0.0, 1.0):
            return float(unit)
        if self.coins:
            return float(flips(self.rng, unit))
        demand_coin(self.source, arm, reward, self.scale, self.site.group)
        return float(unit)


def demand_coin(source: Source, arm: str, reward: float, scale: Scale, group: Group) -> None:
    """Raise InputError if this group pays 0 or 1 only, and this reward is something in between."""
    if group.binary and min(1.0, max(0.0, scale.inner(reward))) not in (0.0, 1.0):
        about = {
            "where": f'{source.name}, arm "{arm}"',
            "expected": f"{scale.low:g} or {scale.high:g}: the scenario says that this group pays "
            "nothing in between",
            "fix": 'Write arms = ["name", "name"] in the scenario, without binary; or use method fisher',
        }
        plain = InputError(f"gave a reward in between ({UNSHOWN})", **about)
        raise RewardError(f"gave a reward of {reward!r}", **about, plain=plain)


def _told(marks: Mapping[int, str]) -> str:
    return ", ".join(f"{rows} rows {digest}" for rows, digest in marks.items())


def recordings(note: str) -> list[str]:
    """The recordings named in the note of a site; sites that play the same recording name the same.

    >>> recordings(PLAYED + _told({1024: "3f2a", 1500: "90ce"}))
    ['1024 rows 3f2a', '1500 rows 90ce']
    """
    return note.removeprefix(PLAYED).split(", ") if note.startswith(PLAYED) else []


def telling(note: str) -> list[str]:
    """Those of ``recordings`` that two sites can't have by chance: none if the note has one digest only.

    >>> telling(PLAYED + _told({1024: "3f2a", 1500: "90ce"})), telling(PLAYED + _told({3: "77aa"}))
    (['1024 rows 3f2a', '1500 rows 90ce'], [])
    """
    found = recordings(note)
    return found if len(found) > 1 else []


def source_from(
    scale: Scale,
    made: Mapping[str, int],
    seed: bytes,
    *,
    names: Sequence[str] = (),
    arms: str | None = None,
    command: str | None = None,
    http: str | None = None,
    csv: Path | None = None,
    rows: str = "once",
    arm_column: str = "arm",
    reward_column: str = "reward",
) -> Source:
    """Make the source of rewards that the operator chose; exactly one of the four is given.

    `made` is the number of pulls of each arm so far and `seed` some bytes that stay the same across restarts,
    so that a CSV file resumes where it was. The file must have rewards of all arms in `names`; the last three
    parameters say how to read it (see ``FromCsv``).
    """
    private = scale if scale.privacy is not None else None
    if arms is not None:
        sys.path.insert(0, "")  # the user's module may be in the current folder
        return FromPython(arms, made=made, low=scale.low, high=scale.high, private=private)
    if command is not None:
        return FromCommand(command, low=scale.low, high=scale.high, private=private)
    if http is not None:
        return FromHttp(http, low=scale.low, high=scale.high, private=private)
    return FromCsv(
        str(csv), arms=names, seed=int.from_bytes(seed[:6], "big"), start=made, rows=rows,
        arm_column=arm_column, reward_column=reward_column, low=scale.low, high=scale.high,
        private=private,
    )  # fmt: skip
