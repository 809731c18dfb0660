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
from dataclasses import dataclass
from pathlib import Path

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.alarms import Watch, words
from bestarm.deploy.experiment.callers import FILE as CALLERS
from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.clerk import Clerk, Request
from bestarm.deploy.experiment.folder import FIRST_CALLER
from bestarm.deploy.experiment.limits import RATE, Limits
from bestarm.deploy.experiment.queue import Queue
from bestarm.deploy.experiment.routing import winner_at
from bestarm.deploy.experiment.serve import TICK, listen, log, server_of
from bestarm.deploy.experiment.settings import Settings, make_settings
from bestarm.deploy.experiment.site_assignments import SiteAssignments
from bestarm.deploy.experiment.status import Status, site_status
from bestarm.deploy.experiment.web import application
from bestarm.deploy.experiment.webhooks import Hooks, news
from bestarm.deploy.sources.base import Source, SourceFailed, Standing
from bestarm.errors import InputError
from bestarm.problem.layout import Group, Layout
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Pull
from bestarm.protocol.verdict import Verdict
from bestarm.stats.alarms import Alarm
from bestarm.util.journal import Journal

FILE = "live.db"
POLL = 0.1  # seconds between two looks at the rewards
LAST_SECONDS = 10.0  # for telling webhooks the verdict


@dataclass(frozen=True)
class Serving:
    """How a client serves its subjects.

    Parameters
    ----------
    host, port : str, int
        Where to listen; port 0 chooses a free port.
    deadline, missing : float, optional
        When a reward that has not come counts as `missing`.
    webhooks : sequence of str
        The addresses that are told about the verdict, alarms and standstill.
    stalled : float, optional
        After how many seconds without progress the site counts as standing still.
    rate : float
        Requests per second of one caller.
    after : {"stop", "winner"}
        After the verdict: end, or go on serving and give the winner.
    """

    host: str
    port: int
    deadline: float | None = None
    missing: float | None = None
    webhooks: Sequence[str] = ()
    stalled: float | None = None
    rate: float = RATE
    after: str = "stop"


class LiveSite:
    """One site of a federation whose subjects arrive."""

    def __init__(
        self, path: Path, settings: Settings, clock: Callable[[], float] = time.time, share: float = 1.0
    ) -> None:
        if path.exists():
            journal = Journal.open(path, ledger.SITE)
            known = ledger.settings_of(journal)
            others = [name for name in known.differences(settings) if name not in ("seed", "options")]
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
        self.verdict: Verdict | None = None  # of the federation
        self.watch = Watch(self.assignments, share)

    @property
    def status(self) -> Status:
        """What the site looks like now."""
        self.clerk.tick()
        with self.clerk.working:
            return site_status(self.assignments, self.clock(), self.verdict)

    @property
    def alarms(self) -> list[Alarm]:
        """What speaks against the assumptions so far, at this site."""
        with self.clerk.working:
            return self.watch.alarms()

    def standing(self) -> Standing:
        """The pace of arrivals, and what is left of the pulls that are announced."""
        with self.clerk.working:
            found, now = self.assignments, self.clock()
            batches, pace = found.lanes[0].batches, found.tallies[0].pace(now, found.began)
            left = sum(batch.size - batch.given for batch in batches)
            return Standing(pace, left, sum(batch.given - batch.told for batch in batches))

    def end(self, verdict: Verdict, arm: int | None) -> None:
        """Give subjects this arm from now on; without one, the arm that leads here."""
        self.verdict = verdict
        with self.clerk.working:
            if not self.assignments.over:
                won = self.assignments.leader(0) if arm is None else arm
                self.clerk.commit([Request(entry=ledger.Won(self.clock(), won))])

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
        layout: Layout,
        group: Group,
        scale: Scale,
        made: Mapping[str, int],
        serving: Serving,
        ready: Callable[[str, str | None], None] = lambda url, token: None,
    ) -> None:
        self._layout, self._place, self._serving = layout, layout.groups.index(group), serving
        if scale.privacy is not None:
            raise InputError(
                "with privacy, rewards must not be stored, and a served client keeps them in a journal",
                where=str(folder),
                fix="Use --arms, --exec or --http",
            )
        super().__init__(f"subjects at {serving.host}:{serving.port}", low=scale.low, high=scale.high)
        settings = make_settings(
            {group.name: list(group.arms)}, None, "anywhere", delta=0.5, bounds=(scale.low, scale.high),
            goal=scale.goal, binary=group.binary, deadline=serving.deadline, missing=serving.missing,
            after="winner", seed=None, keys={}, name=group.name,
        )  # fmt: skip
        self.site = LiveSite(folder / FILE, settings, share=1.0 / len(layout.clients))
        self._callers, self._ready = Callers(folder / CALLERS), ready
        self._hooks = Hooks(serving.webhooks, folder, self.site.settings.key)
        self._arm = {name: arm for arm, name in enumerate(group.arms)}
        self._read = {name: made.get(name, 0) for name in group.arms}
        self._queue = Queue(self.site)
        self._leaving = contextlib.AsyncExitStack()
        self._open = False

    async def open(self) -> None:
        """Begin to serve."""
        token = None if self._callers.names else self._callers.add(FIRST_CALLER)
        host = self._serving.host
        door = self._leaving.enter_context(listen(host, self._serving.port))
        limits = Limits(self._serving.rate)
        server = server_of(application(self._queue, self.site, self._callers, limits=limits))
        serving = asyncio.create_task(server.serve(sockets=[door]))
        watching = asyncio.create_task(self._watching())
        self._open = True

        async def end() -> None:
            server.should_exit = True
            watching.cancel()
            await asyncio.gather(serving, watching, return_exceptions=True)

        self._leaving.push_async_callback(end)
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        shown = f"[{host}]" if ":" in host else host
        self._ready(f"http://{shown}:{door.getsockname()[1]}", token)

    async def _watching(self) -> None:
        """Notice new callers, and tell webhooks what happens."""
        while True:
            with contextlib.suppress(InputError):  # a file that can't be read: the callers stay as they were
                self._callers.refresh()
            try:
                found = await asyncio.to_thread(news, self.site, self._serving.stalled)
                await self._hooks.tell(found, time.monotonic())
            except InputError as error:
                log.error("%s", error)
            await asyncio.sleep(TICK)

    def standing(self) -> Standing:
        """The pace of its subjects."""
        return self.site.standing()

    def remarks(self) -> list[str]:
        """The alarms so far, in words."""
        return [words(alarm) for alarm in self.site.alarms]

    async def decided(self, verdict: Verdict) -> None:
        """Tell webhooks the verdict; then give subjects the winner for ever, or end."""
        self.site.end(verdict, winner_at(self._layout, self._place, verdict))
        found, until = news(self.site, None), time.monotonic() + LAST_SECONDS
        while not self._hooks.heard(found) and time.monotonic() < until:
            await self._hooks.tell(found, time.monotonic())
            await asyncio.sleep(POLL)
        if self._serving.after == "winner":
            if not self._open:  # a client that was started again after the verdict
                await self.open()
            log.warning("the run is over; subjects get the winner until this process is stopped")
            await asyncio.Event().wait()

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
