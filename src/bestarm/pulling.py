"""Pulling on a real machine: what a client of a federation and a peer of a mesh have in common.

``Pulls`` is that part of a fold: the batch that a machine wants, the rewards that came and don't count yet,
the pulls that were made. The journal holds ``asked`` before a batch is pulled and ``rewards`` before it
counts: no pull that was paid for is lost, and none counts twice. ``Puller`` asks a source for rewards, in
batches that take about half a second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bestarm.errors import InputError
from bestarm.journal import Event
from bestarm.problem import Group
from bestarm.protocol.machine import Action, Decided, Pull, Pulled, Send, Stop
from bestarm.protocol.verdict import Verdict
from bestarm.rewards import Scale
from bestarm.sources import Exhausted, FromCommand, FromCsv, FromHttp, FromPython, Source, SourceFailed

REDRAWN = "rewards are drawn from a file with replacement: what is said of these arms is about the file"
FIRST_BATCH, LARGEST_BATCH = 16, 10_000
BATCH_SECONDS = 0.5  # what a batch should take: a crash can cost one
log = logging.getLogger("bestarm")


class Pulls(ABC):
    """What a machine wants, what was pulled for it, and what of that does not count yet.

    A room derives its own fold from it, which knows the journal and what else happens to the machine.
    """

    machine: Any

    def __init__(self, group: Group) -> None:
        self.group = group
        self.pull: Pull | None = None
        self.said: list[bytes] = []  # what the machine said
        self.verdict: Verdict | None = None
        self.kept: list[list[float]] = [[] for _ in group.arms]  # rewards that don't count yet
        self.made: Counter[str] = Counter()  # pulls of each arm
        self.unanswered: dict[str, Any] | None = None  # the batch that was asked for when the journal ended

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether nothing will be pulled any more."""

    @property
    def stoppable(self) -> bool:
        """Whether the others can be told that there are no more rewards here."""
        return True

    @abstractmethod
    def stop(self, reason: str) -> None:
        """There are no more rewards."""

    def write(self) -> None:  # noqa: B027 (a room may do it with each append)
        """What was appended is on the disk when this returns."""

    def note(self, text: str) -> None:  # noqa: B027 (a peer has nobody to tell)
        """A word to who runs this."""

    @abstractmethod
    def _append(self, kind: str, body: bytes) -> None:
        """Add an event to the journal."""

    @abstractmethod
    def _speak(self) -> None:
        """Make what the machine has said ready to be sent."""

    @property
    def pulls(self) -> int:
        return sum(self.made.values())

    def ask(self, arms: Sequence[int], times: int) -> None:
        """A batch is about to be pulled."""
        body = {"arms": [self.group.arms[a] for a in arms], "times": times}
        self._append("asked", json.dumps(body).encode())
        self.write()

    def rewards(self, got: Mapping[int, Sequence[float]]) -> None:
        """What came of a batch, in [0, 1]: as much of it counts now as the machine asked for."""
        for arm, values in got.items():
            self.kept[arm].extend(values)
        pull, times = self.pull, 0
        if pull is not None:
            times = min([pull.times, *(len(self.kept[a]) for a in pull.arms)])
        sums = [math.fsum(self.kept[a][:times]) for a in pull.arms] if pull and times else []
        for arm in pull.arms if pull and times else ():
            del self.kept[arm][:times]
        body = {
            "got": {self.group.arms[arm]: len(values) for arm, values in got.items()},
            "times": times,
            "sums": sums,
            "rest": {str(arm): values for arm, values in enumerate(self.kept) if values},
        }
        self._append("rewards", json.dumps(body).encode())
        self._count(body)
        self._speak()
        self.write()

    def _count(self, body: Mapping[str, Any]) -> None:
        self.made.update(body["got"])
        if body["times"]:
            self.pull = None  # the machine says anew what it still wants
            self._act(self.machine.handle(Pulled(tuple(body["sums"]), body["times"])))

    def _end(self, reason: str) -> None:
        self.pull = None
        self._act(self.machine.handle(Stop(reason)))

    def _act(self, actions: list[Action]) -> None:
        """Take up what the machine says."""
        for action in actions:
            match action:
                case Pull(arms, _):
                    self.pull = action if arms else None
                case Send(_, payload, _):
                    self.said.append(payload)
                case Decided(verdict):
                    self.verdict = verdict

    def _replay_pulls(self, event: Event) -> None:
        """What an event of the journal means for the pulls."""
        self.unanswered = json.loads(event.body) if event.kind == "asked" else None
        if event.kind == "rewards":
            plain = json.loads(event.body)
            self.kept = [plain["rest"].get(str(arm), []) for arm in range(len(self.group.arms))]
            self._count(plain)

    def warn(self, who: str) -> None:
        """Tell the operator of a batch that a crash may have cost."""
        if self.unanswered:
            log.warning(
                "%s: %d pulls of %s were asked for and not answered when it ended: they are asked for again",
                who, self.unanswered["times"], ", ".join(self.unanswered["arms"]),
            )  # fmt: skip


class Puller:
    """Drives the pulls of a site.

    `coins`: the method takes 0/1 rewards only; `end`: the reason to stop when the source has no more; `after`
    is called after each batch.
    """

    def __init__(
        self, site: Pulls, source: Source, scale: Scale, *, coins: bool, end: str, after: Callable[[], None]
    ) -> None:
        self.site, self.source, self.scale, self.coins = site, source, scale, coins
        self.end, self.after = end, after
        self.rng = np.random.default_rng()
        self.changed = asyncio.Event()  # set by who changes what the site wants
        self.speed = 0.0  # pulls a second

    async def run(self) -> None:
        """Pull while there is something to pull, until the site is over."""
        batch = FIRST_BATCH
        if self.source.redraws and not self.site.over:
            self.site.note(REDRAWN)
            self.after()
        if self.source.finite and not self.site.stoppable and not self.site.over:
            log.warning(
                "%s: these rewards can run out, and this run has no budget: if they do, all wait until there "
                "are more (budget = … in the scenario lets a client end)",
                self.source.name,
            )
        while not self.site.over:
            pull = self.site.pull
            if pull is None:
                self.changed.clear()
                await self.changed.wait()
                continue
            times, began = min(batch, pull.times), time.monotonic()
            self.site.ask(pull.arms, times)
            await self._batch(pull.arms, times)
            self.after()
            took = max(time.monotonic() - began, 1e-6)
            self.speed = times * len(pull.arms) / took
            batch = max(1, min(LARGEST_BATCH, 2 * batch, int(times * BATCH_SECONDS / took) or 1))

    async def _batch(self, arms: Sequence[int], times: int) -> None:
        """Pull; whatever happens, what was got is written down."""
        site = self.site
        got: dict[int, list[float]] = {}
        try:
            for arm in arms:
                mine = got.setdefault(arm, [])
                while (missing := times - len(site.kept[arm]) - len(mine)) > 0:
                    name = site.group.arms[arm]
                    mine += [self._unit(name, x) for x in await self.source.pull(name, missing)]
        except Exhausted as end:
            site.rewards(got)
            if not site.stoppable:
                raise SourceFailed(
                    f"{end}; without a budget nobody can go on without them: add some, and start it again "
                    "while the server waits, or let its operator go on without this client (bestarm "
                    "federation drop)"
                ) from None
            log.warning("%s", end)
            site.note(str(end))
            site.stop(self.end)
        except BaseException:
            if any(got.values()):
                site.rewards(got)
            raise
        else:
            site.rewards(got)

    def _unit(self, arm: str, reward: float) -> float:
        """A reward on [0, 1]; a coin of that mean, where the method takes 0/1 rewards only."""
        unit = min(1.0, max(0.0, self.scale.unit(reward)))
        if unit in (0.0, 1.0):
            return float(unit)
        if self.coins:
            return float(self.rng.random() < unit)
        if self.site.group.binary:
            raise InputError(
                f"gave a reward of {reward!r}",
                where=f'{self.source.name}, arm "{arm}"',
                expected=f"{self.scale.low:g} or {self.scale.high:g}: the scenario says that this group pays "
                "nothing in between",
                fix='Write arms = ["name", "name"] in the scenario, without binary; or use method fisher',
            )
        return float(unit)


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
    **table: Any,
) -> Source:
    """Where rewards come from, as the operator says: exactly one of the four is given.

    `made` are the pulls so far and `seed` some bytes that stay the same: a CSV file goes on after a restart.
    It must have rewards of all arms in `names`; `table` says more of it (see ``FromCsv``).
    """
    bounds: dict[str, Any] = {"low": scale.low, "high": scale.high}
    if arms is not None:
        sys.path.insert(0, "")  # the user's module may lie here
        return FromPython(arms, **bounds)
    if command is not None:
        return FromCommand(command, **bounds)
    if http is not None:
        return FromHttp(http, **bounds)
    number = int.from_bytes(seed[:6], "big")
    return FromCsv(str(csv), arms=names, seed=number, start=made, **table, **bounds)
