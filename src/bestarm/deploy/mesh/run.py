"""The process of one peer: connects its rewards, its journal and its neighbours. It makes no decisions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bestarm.deploy.evidence import save_evidence
from bestarm.deploy.mesh.files import RECORD, STATUS, Place, check_address, folder_name
from bestarm.deploy.mesh.node import Node
from bestarm.deploy.mesh.wire import Gate, Line
from bestarm.deploy.process import together
from bestarm.deploy.pulling import Puller
from bestarm.deploy.sources import Source
from bestarm.errors import InputError
from bestarm.protocol.events import SPENT
from bestarm.protocol.verdict import Verdict
from bestarm.util.files import write

LULL = 0.5  # idle time after which a node that is done asks for receipts
GRACE = 2.0  # before it leaves, so that lost receipts can be asked for again, and summaries can arrive
LOOK = 0.25  # interval for clock, status, receipts and evidence
BATCH = 256  # messages that share one write to the disk
log = logging.getLogger("bestarm.mesh")


class Run:
    """Runs a node. After its verdict it keeps serving until all its neighbours have theirs.

    Parameters
    ----------
    folder : str or Path
        The node's folder.
    source : callable
        Makes the source of rewards for a node.
    listen : str, optional
        The address to listen on, if not the one that the neighbours know.
    linger : float, optional
        Seconds to serve after the verdict; by default until all neighbours have theirs.
    patience : float, optional
        Seconds without news after which it gives up; by default never.
    watch : callable, optional
        Called with the status several times per second.
    line : type
        How it sends to a neighbour.
    """

    def __init__(
        self,
        folder: str | Path,
        source: Callable[[Node], Source],
        *,
        listen: str | None = None,
        linger: float | None = None,
        patience: float | None = None,
        watch: Callable[[dict[str, Any]], None] | None = None,
        line: type[Line] = Line,
    ) -> None:
        self.place = Place.load(Path(folder))
        for address in (listen or self.place.address, *(n.address for n in self.place.neighbours)):
            check_address(address)
        for key, seconds in (("linger", linger), ("patience", patience)):
            if seconds is not None and not seconds >= 0:
                raise InputError(f"{key} = {seconds}", expected="a number of seconds of at least 0")
        self.linger, self.patience, self.watch = linger, patience, watch
        self.node = Node.open(self.place)
        try:
            self.source = source(self.node)
        except BaseException:
            self.node.journal.close()
            raise
        self.puller = Puller(
            self.node, self.source, self.place.setup.scale, coins=self.place.setup.room.coins, end=SPENT,
            after=self._stir,
        )  # fmt: skip
        self.done = asyncio.Event()
        self.inbox: asyncio.Queue[tuple[str, bytes | None]] = asyncio.Queue(BATCH)
        self.gate = Gate(self.place, self._deliver, self.done, listen)
        self.lines = [line(self.place, to, self.node.outgoing) for to in self.place.heard]
        for neighbour in self.place.neighbours:
            if f"to {neighbour.name}" in self.node.receipts:
                self.gate.answered.add(neighbour.name)
        for each in self.lines:
            each.answered = f"from {each.to.name}" in self.node.receipts
        self.stirred, self.ticked = time.monotonic(), -math.inf
        self.listened = len(self.node.journal) == 0  # after a restart, first receive own earlier reports
        self.gave_up = ""  # the reason, if its patience ran out
        self.filed: set[str] = set()  # sources with evidence files in the folder
        self.saved = (-1, 0)  # pieces of evidence and summaries in the record that was saved
        self.shown: dict[str, Any] = {}
        self.times: dict[str, float] = {}  # times of its Phase I report and its verdict

    async def run(self) -> Verdict | None:
        """Run until all neighbours have their verdict, or patience ends. Run again, it resumes."""
        self.node.warn(self.place.name)
        async with contextlib.AsyncExitStack() as leaving:  # every step is taken, even if one is interrupted
            for step in (self.node.journal.close, self._show, self._save):  # the last one comes first
                leaving.callback(step)
            leaving.push_async_callback(self.source.close)
            leaving.push_async_callback(self.gate.stop)
            await self.gate.start()
            self._stir()
            parts = [self._pulling(), self._hearing(), self._clock(), *(line.run() for line in self.lines)]
            await together(self._leaving(), beside=parts)
            return self.node.verdict

    async def _pulling(self) -> None:
        until = time.monotonic() + GRACE
        while not (self.listened or all(line.free for line in self.lines) or time.monotonic() > until):
            await asyncio.sleep(0.05)
        self.listened = True
        await self.puller.run()

    async def _deliver(self, sender: str, data: bytes | None) -> None:
        await self.inbox.put((sender, data))

    async def _hearing(self) -> None:
        while True:
            batch = [await self.inbox.get()]
            while len(batch) < BATCH and not self.inbox.empty():
                batch.append(self.inbox.get_nowait())
            before = len(self.node.outgoing)
            self.node.take([(sender, data) for sender, data in batch if data is not None])
            if len(self.node.outgoing) > before:
                self._stir()
            recalled = {sender for sender, data in batch if data is None}
            for line in self.lines:
                if line.to.name in recalled and not line.free:  # the journal is not an old copy
                    line.free = True
                    line.poke(line.ending)

    def _stir(self) -> None:
        """Wake up everything that waits for a change."""
        node = self.node
        self.stirred = time.monotonic()
        self.puller.changed.set()
        if node.outbox.signed[node.group.name]:
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
            if self.node.verdict is not None and self.saved != self._parts():
                self._save()
            if self.node.done and now - self.stirred > LULL:
                for line in self.lines:
                    line.poke(True)
            self._show()
            await asyncio.sleep(LOOK)

    def _save(self) -> None:
        """Save the record: at the verdict, when there is new evidence or a summary, and at the end."""
        if self.node.verdict is not None:
            self.saved = self._parts()
            self.node.record().save(self.place.folder / RECORD)

    def _parts(self) -> tuple[int, int]:
        """What may still be added to the record after the verdict: evidence and summaries."""
        return len(self.node.evidence), len(self.node.summaries)

    def _receipts(self) -> None:
        """Journal which neighbours are done, so that a restart does not wait for them."""
        for name in self.gate.answered:
            self.node.receipt(f"to {name}")
        for line in self.lines:
            if line.answered:
                self.node.receipt(f"from {line.to.name}")

    def status(self) -> dict[str, Any]:
        """The current status of this peer."""
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
        write(self.place.folder / STATUS, json.dumps(status).encode(), sync=False)

    async def _leaving(self) -> None:
        """Return when no neighbour needs this peer any more, or when patience or linger time is over."""
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
            told = not self.node.unheard or time.monotonic() - self.stirred > GRACE
            if heard and quiet and told and self.gate.answered >= set(self.place.hears):
                self._receipts()
                return
            await asyncio.sleep(0.1)
