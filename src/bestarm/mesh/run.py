"""One peer as a process: between its rewards, its journal and its neighbours. It decides nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.mesh.files import STATUS, Place, check_address, folder_name
from bestarm.mesh.node import Node, save_evidence
from bestarm.mesh.wire import Gate, Line
from bestarm.protocol.peer import SPENT
from bestarm.protocol.verdict import Verdict
from bestarm.pulling import Puller
from bestarm.sources import Source

LULL = 0.5  # after so long with nothing new, a node that is done asks for receipts
GRACE = 2.0  # before it leaves: a receipt that was lost is asked for again
LOOK = 0.25  # how often clock, status, receipts and evidence are looked after
BATCH = 256  # messages that share one write to the disk
log = logging.getLogger("bestarm.mesh")


class Run:
    """Drives a node. After its verdict it goes on serving until all its neighbours have theirs, too."""

    def __init__(
        self,
        folder: str | Path,
        source: Callable[[Node], Source],
        *,
        listen: str | None = None,
        linger: float | None = None,
        patience: float | None = None,
        watch: Callable[[dict[str, Any]], None] | None = None,
        machine: Callable[[Place], Any] | None = None,
        line: type[Line] = Line,
    ) -> None:
        self.place = Place.load(Path(folder))
        for address in (listen or self.place.address, *(n.address for n in self.place.neighbours)):
            check_address(address)
        for key, seconds in (("linger", linger), ("patience", patience)):
            if seconds is not None and not seconds >= 0:
                raise InputError(f"{key} = {seconds}", expected="a number of seconds of at least 0")
        self.linger, self.patience, self.watch = linger, patience, watch
        self.node = Node.open(self.place, machine(self.place) if machine else None)
        try:
            self.source = source(self.node)
        except BaseException:
            self.node.journal.close()
            raise
        self.puller = Puller(
            self.node, self.source, self.place.setup.scale, coins=False, end=SPENT, after=self._stir
        )
        self.done = asyncio.Event()
        self.inbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(BATCH)
        self.gate = Gate(self.place, self._deliver, self.done, listen)
        self.lines = [line(self.place, to, self.node.outbox) for to in self.place.heard]
        for neighbour in self.place.neighbours:
            if f"to {neighbour.name}" in self.node.receipts:
                self.gate.answered.add(neighbour.name)
        for each in self.lines:
            each.answered = f"from {each.to.name}" in self.node.receipts
        self.stirred, self.ticked = time.monotonic(), -math.inf
        self.listened = len(self.node.journal) == 0  # one that is run again first hears what it has said
        self.gave_up = ""  # the reason, if its patience came to an end
        self.filed: set[str] = set()  # whose evidence lies in the folder
        self.shown: dict[str, Any] = {}
        self.times: dict[str, float] = {}  # when its Phase I report and its verdict were there

    async def run(self) -> Verdict | None:
        """Go on until all neighbours have their verdict, or patience ends. Run again, it goes on."""
        self.node.warn(self.place.name)
        tasks: list[asyncio.Task[Any]] = []
        try:
            await self.gate.start()
            leaving = asyncio.create_task(self._leaving())
            tasks = [leaving, *(asyncio.create_task(line.run()) for line in self.lines)]
            tasks += [asyncio.create_task(part()) for part in (self._pulling, self._hearing, self._clock)]
            self._stir()
            waiting = set(tasks)
            while not leaving.done():
                over, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in over:
                    task.result()  # pulling ends before the rest; anything else that ends has failed
            return self.node.verdict
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.gate.stop()
            await self.source.close()
            self._show()
            self.node.journal.close()

    async def _pulling(self) -> None:
        until, both = time.monotonic() + GRACE, {n.name for n in self.place.heard if n.hears}
        while not (self.listened or both <= self.gate.words.keys() or time.monotonic() > until):
            await asyncio.sleep(0.05)
        self.listened = True
        await self.puller.run()

    async def _deliver(self, sender: str, data: bytes) -> None:
        await self.inbox.put((sender, data))

    async def _hearing(self) -> None:
        while True:
            batch = [await self.inbox.get()]
            while len(batch) < BATCH and not self.inbox.empty():
                batch.append(self.inbox.get_nowait())
            before = len(self.node.outbox)
            self.node.take(batch)
            if len(self.node.outbox) > before:
                self._stir()

    def _stir(self) -> None:
        """Something happened: whoever waits for it looks again."""
        node = self.node
        self.stirred = time.monotonic()
        self.puller.changed.set()
        if node.next[self.place.name, node.group.name]:
            self.times.setdefault("report", time.time())
        if node.verdict is not None:
            self.times.setdefault("verdict", time.time())
        if node.done:
            self.done.set()
        for line in self.lines:
            line.poke(False)

    async def _clock(self) -> None:
        while True:
            now = time.monotonic()
            if self.listened and self.node.machine.pending and now - self.ticked >= self.node.patience:
                self.ticked = now
                self.node.tick()
                self._stir()
            self._receipts()
            for source in self.node.evidence.keys() - self.filed:
                self.filed.add(source)
                name = folder_name(source, self.place.setup.layout.clients.index(source))
                save_evidence(self.place.folder / f"evidence-{name}.json", self.node.evidence[source])
                log.warning("%s: %s %s", self.place.name, source, self.node.suspects()[source])
            if self.node.done and now - self.stirred > LULL:
                for line in self.lines:
                    line.poke(True)
            self._show()
            await asyncio.sleep(LOOK)

    def _receipts(self) -> None:
        """Write down who needs nobody any more, so that a restart knows whom it need not wait for."""
        for name in self.gate.answered:
            self.node.receipt(f"to {name}")
        for line in self.lines:
            if line.answered:
                self.node.receipt(f"from {line.to.name}")

    def status(self) -> dict[str, Any]:
        """Where this peer is."""
        node, layout = self.node, self.place.setup.layout
        arms = node.machine.arms
        knows = {g.name: g.arms[a] if (a := int(arms[j])) >= 0 else None for j, g in enumerate(layout.groups)}
        return {
            "name": self.place.name,
            "state": node.machine.state,
            "pulls": node.pulls,
            "speed": round(self.puller.speed) if node.pull else 0,
            "knows": knows,
            "arm": node.verdict.arm if node.verdict else None,
            "decided": node.verdict is not None,
            "spent": bool(node.machine.spent),
            "hears": sorted(self.gate.words),
            "waits_for": node.waits_for(self.gate.live),
            "unreachable": [n.to.name for n in self.lines if not n.live and not n.answered],
            "suspects": node.suspects(),
            "refused": {f"{who}: {why}": n for (who, why), n in node.refused.items()},
            "turned_away": self.gate.turned_away,
            "messages": sum(line.messages for line in self.lines),
            "bytes": sum(line.bytes for line in self.lines),
            "reports": len(node.own),
            "done": self.done.is_set(),
            "times": dict(self.times),
        }

    def _show(self) -> None:
        status = self.status()
        if self.watch:
            self.watch(status)
        if status == self.shown:
            return
        self.shown = status
        scratch = self.place.folder / f".{STATUS}"
        scratch.write_text(json.dumps(status))
        scratch.replace(self.place.folder / STATUS)

    async def _leaving(self) -> None:
        """Return when nobody needs this peer any more, or when it has waited or lingered long enough."""
        while not self.done.is_set():
            idle = self.node.verdict is None and self.node.pull is None
            if self.patience is not None and idle and time.monotonic() - self.stirred > self.patience:
                self.gave_up = "budget" if self.node.machine.spent else "silence"
                return
            await asyncio.sleep(0.1)
        until = time.monotonic() + self.linger if self.linger is not None else None
        while until is None or time.monotonic() < until:
            heard = all(line.answered for line in self.lines)
            quiet = not self.gate.live and time.monotonic() - self.gate.called > GRACE
            if heard and quiet and self.gate.answered >= set(self.place.hears):
                self._receipts()
                return
            await asyncio.sleep(0.1)
