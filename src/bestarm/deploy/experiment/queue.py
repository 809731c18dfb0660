"""Requests of many connections, carried out together: one write to the disk for all that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from bestarm.deploy.experiment.clerk import Request

MOST_WAITING = 10_000  # requests
MOST_TOGETHER = 1_000


class Busy(Exception):
    """Too many requests wait already."""


class Broken(Exception):
    """The journal can't be written, so nothing can be carried out any more."""


class Taker(Protocol):
    """What carries out requests: an experiment, or a site of a federation."""

    def run(self, requests: Sequence[Request]) -> None:
        """Carry out requests in order; each has its results or its error."""


class Queue:
    """Carries out requests in the order of arrival, in one thread."""

    def __init__(self, taker: Taker) -> None:
        self.taker = taker
        self.trouble = ""  # why it takes no more requests
        self._waiting: list[tuple[Request, asyncio.Future[None]]] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="experiment")
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Request:
        """Carry out a request. InputError if it is invalid, ``Busy`` if too many wait, or ``Broken``."""
        if self.trouble:
            raise Broken(self.trouble)
        if len(self._waiting) >= MOST_WAITING:
            raise Busy
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((request, done))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        await done
        if request.error is not None:
            raise request.error
        return request

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
            requests = [request for request, _ in batch]
            try:
                await loop.run_in_executor(self._worker, self.taker.run, requests)
            except Exception as error:  # the journal can't be written: nothing may take effect any more
                self.trouble = str(error)
                for _, done in batch:
                    if not done.done():
                        done.set_exception(Broken(self.trouble))
                continue
            for _, done in batch:
                if not done.done():  # its connection may be gone
                    done.set_result(None)
        self._task = None

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown()
