"""The frames of a live page: the sections of a page after a number of events.

``Live`` keeps one source (``report.follow``) up to date and turns it into frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeGuard

from bestarm.report import page
from bestarm.report.facts import Facts, RunFacts, SiteFacts, StudyFacts
from bestarm.report.follow import Filed, Journalled, Underway
from bestarm.report.forecaster import Forecaster
from bestarm.report.markup import clean, tag
from bestarm.report.page.now import signs
from bestarm.report.page.waiting import waiting_sections

POLL, SLICE = 0.25, 0.5  # seconds between two reads of the source, and the longest read

GAP = 0.3  # least seconds between two frames of a stream; more if a frame is slow to make

BEAT = 5.0  # seconds between heartbeats of an idle stream

KEPT = 32  # earlier moments that are kept

VIEWERS = 256  # most viewers that look back at once


@dataclass(frozen=True)
class Frame:
    """The sections of a page after `count` events of the journal number `epoch` and some forecasts."""

    epoch: int
    count: int
    forecasts: int
    title: str
    over: bool
    sections: tuple[page.Section, ...]

    def changed(self, known: dict[str, str]) -> dict[str, str]:
        """The sections whose digest is not known; `known` is brought up to date."""
        found = {}
        for key, _, body in self.sections:
            digest = hashlib.sha256(body.encode()).hexdigest()
            if known.get(key) != digest:
                known[key], found[key] = digest, str(body)
        return found


class Live:
    """A source, and the newest frame of it."""

    def __init__(self, source: Journalled | Filed) -> None:
        self.source = source
        self.boot = secrets.token_hex(4)  # event ids of another server are not valid here
        self.closing = False
        self.streams = 0
        self.took = 0.0  # seconds to make the last frame
        self._frame = Frame(0, 0, 0, "bestarm", False, ())
        self._made: tuple[int, int, int] | None = None
        self._news = asyncio.Event()
        self._making = asyncio.Lock()
        self._kept: OrderedDict[tuple[int, int], Frame] = OrderedDict()
        self._forecaster = Forecaster(self._foreseen)
        self._loop = asyncio.get_running_loop()
        self._wishes: dict[str, int] = {}  # the number of each viewer's newest request for an earlier moment
        self._worker = ThreadPoolExecutor(1, "watch")
        self._looker = ThreadPoolExecutor(1, "look-back")

    async def follow(self) -> None:
        """Keep the source up to date until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if await loop.run_in_executor(self._worker, self.source.catch_up, SLICE):
                self.tell()
            if self.source.trouble or self.source.count >= self.source.known:
                await asyncio.sleep(POLL)

    def tell(self) -> None:
        """Wake up all waiting streams."""
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all streams and close the source."""
        self.closing = True
        self.tell()
        self._forecaster.close()
        self._worker.shutdown(wait=True, cancel_futures=True)
        self._looker.shutdown(wait=True, cancel_futures=True)
        self.source.close()

    async def news(self) -> None:
        """Wait for a change, at most until the next heartbeat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEAT):
                await self._news.wait()

    async def pause(self) -> None:
        """Pause between two frames of a stream, unless the run is over."""
        until = time.monotonic() + max(GAP, 4 * self.took)
        while not self.closing and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(GAP, left))

    async def frame(self) -> Frame:
        """The newest frame, shared by simultaneous requests."""
        async with self._making:
            key = (self.source.epoch, self.source.count, self._forecaster.made)
            if self._made != key:
                began = time.monotonic()
                loop = asyncio.get_running_loop()
                self._frame = await loop.run_in_executor(self._worker, self._make)
                self._made = (self._frame.epoch, self._frame.count, self._frame.forecasts)
                self.took = time.monotonic() - began
            return self._frame

    def _make(self) -> Frame:
        epoch, count, made = self.source.epoch, self.source.count, self._forecaster.made
        facts = self.source.facts()
        if facts is None:
            sections = tuple(waiting_sections(self.source.path))
            return Frame(epoch, count, made, "bestarm: waiting", False, sections)
        if _is_running(facts) and (forecast := self.source.forecast(facts)):
            facts = self._forecaster.now(facts, forecast)
        return frame_of(facts, epoch, count, made, self.source.seen())

    def _make_earlier(self, facts: Facts | Underway, epoch: int, count: int) -> Frame:
        if _is_running(facts):
            facts = self._forecaster.earlier(facts, self.source.forecast(facts))
        return frame_of(facts, epoch, count)

    def _foreseen(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self.tell)

    async def at(self, n: int, viewer: str) -> Frame | None:
        """An earlier moment; None if this viewer has asked for another one meanwhile, or if there is none."""
        epoch, n = self.source.epoch, max(0, min(n, self.source.count))
        if (epoch, n) not in self._kept:
            if len(self._wishes) >= VIEWERS:
                self._wishes.clear()
            wish = self._wishes[viewer] = self._wishes.get(viewer, 0) + 1
            loop = asyncio.get_running_loop()

            def stop() -> bool:
                return self.closing or self._wishes.get(viewer) != wish

            facts = await loop.run_in_executor(self._looker, self.source.at, n, stop)
            if facts is None:
                return None
            self._kept[epoch, n] = await loop.run_in_executor(
                self._looker, self._make_earlier, facts, epoch, n
            )
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[epoch, n]

    def state(self, frame: Frame) -> dict[str, Any]:
        """The state shown besides the sections."""
        source = self.source
        state = "over" if frame.over else "going" if frame.epoch else "waiting"
        if source.trouble:
            state = "trouble"
        elif source.count < source.known:
            state = "reading"
        note = source.trouble or (f"{source.path} is not there yet" if state == "waiting" else "")
        quiet = source.quiet()
        return {
            "n": source.count,
            "known": source.known,
            "state": state,
            "note": clean(note, 500),
            "quiet": None if quiet is None else round(quiet, 1),
        }

    def identity(self, frame: Frame) -> str:
        """The id of the event that carries this frame."""
        return f"{self.boot}-{frame.epoch}-{frame.count}-{frame.forecasts}"


def _is_running(facts: Facts | Underway) -> TypeGuard[RunFacts]:
    """Whether these are the facts of a whole run that has no verdict yet."""
    return isinstance(facts, RunFacts) and not isinstance(facts, SiteFacts) and facts.verdict is None


def frame_of(
    facts: Facts | Underway,
    epoch: int,
    count: int,
    forecasts: int = 0,
    seen: Mapping[str, float] | None = None,
) -> Frame:
    """The frame of these facts; `seen` has the clients' last signs of life (None: an earlier moment)."""
    if isinstance(facts, Underway):
        return Frame(epoch, count, forecasts, facts.title, False, tuple(facts.sections()))
    study = isinstance(facts, StudyFacts)
    verdict = None if isinstance(facts, StudyFacts) else facts.verdict
    answer = "a study" if study else "not decided yet"
    if verdict:
        answer = verdict.summary or "undecided"
    over = verdict is not None or study
    link = None
    if verdict and not isinstance(facts, SiteFacts):
        link = tag("p", tag("a", "Download record.json", href="record.json", download="record.json"))
    made = page.sections(facts, link)
    if isinstance(facts, RunFacts) and seen is not None and (table := signs(facts, seen)):
        at = next((k + 1 for k, (key, _, _) in enumerate(made) if key == "top"), 0)
        made.insert(at, ("clients", "Last sign of life", table))
    return Frame(epoch, count, forecasts, f"bestarm: {clean(answer, 80)}", over, tuple(made))


def contents(frame: Frame, known: dict[str, str]) -> dict[str, Any]:
    """A frame for the page's script: the order of the sections, and those that it does not have yet."""
    order = [[key, title] for key, title, _ in frame.sections]
    shown = {"at": frame.count, "epoch": frame.epoch, "title": frame.title, "order": order}
    return {**shown, "sections": frame.changed(known)}
