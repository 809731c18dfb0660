"""Rewards of a federation's client from subjects that arrive: assigned over HTTP, told when they are known.

The machine of the client says how many rewards of each arm it needs. Subjects are given these arms in a
random order that keeps the proportions (``lane``). Those that come while nothing is needed get the arm that
leads here, and do not count. A journal of its own, ``live.db``, makes assignments and rewards survive a
crash: rewards are read from it in the order of assignment, from the first that the client's journal lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.callers import FILE as CALLERS
from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.clerk import Clerk, Request
from bestarm.deploy.experiment.folder import FIRST_CALLER
from bestarm.deploy.experiment.queue import Queue
from bestarm.deploy.experiment.serve import listen, server_of
from bestarm.deploy.experiment.settings import Settings, make_settings
from bestarm.deploy.experiment.site_assignments import SiteAssignments
from bestarm.deploy.experiment.status import Status, site_status
from bestarm.deploy.experiment.web import application
from bestarm.deploy.sources.base import Source, SourceFailed
from bestarm.errors import InputError
from bestarm.evidence.alarms import Alarm
from bestarm.problem.layout import Group
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Pull
from bestarm.util.journal import Journal

FILE = "live.db"
POLL = 0.1  # seconds between two looks at the rewards


class LiveSite:
    """One site of a federation whose subjects arrive."""

    def __init__(self, path: Path, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        if path.exists():
            journal = Journal.open(path, ledger.SITE)
            known = ledger.settings_of(journal)
            others = [name for name in known.differences(settings) if name != "seed"]
            if others:
                journal.close()
                raise InputError(
                    f"its journal has other settings: {', '.join(others)}",
                    where=str(path),
                    fix="Start it with the deadline and the value of missing rewards that it began with",
                )
            settings = known
        else:
            journal = ledger.create_journal(path, settings, ledger.SITE)
        self.settings, self.clock = settings, clock
        self.assignments = SiteAssignments(settings)
        self.clerk = Clerk(self.assignments, journal, clock)

    @property
    def status(self) -> Status:
        """What the site looks like now."""
        self.clerk.tick()
        with self.clerk.working:
            return site_status(self.assignments, self.clock())

    @property
    def alarms(self) -> list[Alarm]:
        """None: the server of the federation sees sums only, and this site does not decide."""
        return []

    def run(self, requests: Sequence[Request]) -> None:
        """Carry out requests."""
        self.clerk.run(requests)

    def want(self, made: Mapping[str, int], pulls: Sequence[Pull]) -> None:
        """Plan assignments for these pulls, as far as they are not planned yet."""
        names = self.assignments.problem.layout.groups[0].arms
        target = [made.get(name, 0) for name in names]
        for pull in pulls:
            for arm, share in zip(pull.arms, pull.each, strict=True):
                target[arm] += share * pull.times
            with self.clerk.working:
                planned = self.assignments.planned
                missing = [max(0, n - before) for n, before in zip(target, planned, strict=True)]
                if any(missing):
                    self.clerk.commit([Request(entry=ledger.Want(self.clock(), missing))])


class LiveSource(Source):
    """Rewards of subjects that arrive over HTTP."""

    limited = False
    whole = True

    def __init__(
        self,
        folder: Path,
        group: Group,
        scale: Scale,
        made: Mapping[str, int],
        *,
        host: str,
        port: int,
        deadline: float | None = None,
        missing: float | None = None,
        ready: Callable[[str, str | None], None] = lambda url, token: None,
    ) -> None:
        if scale.privacy is not None:
            raise InputError(
                "with privacy, rewards must not be stored, and a served client keeps them in a journal",
                where=str(folder),
                fix="Use --arms, --exec or --http",
            )
        super().__init__(f"subjects at {host}:{port}", low=scale.low, high=scale.high)
        settings = make_settings(
            {group.name: list(group.arms)}, None, "anywhere", delta=0.5, bounds=(scale.low, scale.high),
            goal=scale.goal, binary=group.binary, deadline=deadline, missing=missing, after="winner",
            seed=None, keys={},
        )  # fmt: skip
        self.site = LiveSite(folder / FILE, settings)
        self._callers, self._host, self._port, self._ready = Callers(folder / CALLERS), host, port, ready
        self._arm = {name: arm for arm, name in enumerate(group.arms)}
        self._read = {name: made.get(name, 0) for name in group.arms}
        self._queue = Queue(self.site)
        self._leaving = contextlib.AsyncExitStack()

    async def open(self) -> None:
        """Begin to serve."""
        token = None if self._callers.names else self._callers.add(FIRST_CALLER)
        door = self._leaving.enter_context(listen(self._host, self._port))
        server = server_of(application(self._queue, self.site, self._callers))
        serving = asyncio.create_task(server.serve(sockets=[door]))

        async def end() -> None:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)

        self._leaving.push_async_callback(end)
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        self._ready(f"http://{self._host}:{door.getsockname()[1]}", token)

    def plan(self, made: Mapping[str, int], pulls: Sequence[Pull]) -> None:
        """Let subjects be assigned what these pulls need."""
        self.site.want(made, pulls)

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        while True:
            if self._queue.trouble:
                raise SourceFailed(self._queue.trouble)
            await asyncio.to_thread(self.site.clerk.tick)
            with self.site.clerk.working:
                found = self.site.assignments.ready(self._arm[arm], self._read[arm], times)
            if found:
                self._read[arm] += len(found)
                return found
            await asyncio.sleep(POLL)

    async def close(self) -> None:
        """Stop to serve."""
        await self._leaving.aclose()
        self._queue.close()
        self.site.clerk.close()
