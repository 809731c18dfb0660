"""Light clients of a federation: thousands in one process, each with its own connection, keys and machine.

A light client says hello, checks and signs every message, and keeps the fold of a real client. It has no
source of rewards, and its journal is in memory, so it can't be resumed. Each reward is 0; those of the client
named as the winner are 1.

    python -m benchmarks.light FOLDER [WINNER]

runs a client for each slot of the federation in this folder, until all of them have the verdict.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bestarm.deploy.federation import files, wire
from bestarm.deploy.federation.broker import Unreachable, demand_open_files
from bestarm.deploy.federation.client import HELLO_SECONDS
from bestarm.deploy.federation.hello import HELLO, demand_newest, greet, read_answer, split_answer
from bestarm.deploy.federation.keys import Nkey
from bestarm.deploy.federation.site import Site
from bestarm.deploy.identity import Key
from bestarm.util.journal import Event

AT_ONCE = 16  # clients that connect at a time

WAIT_SECONDS = 5.0  # for a message: the time for which a request for messages stays open


class MemoryJournal:
    """The part of a journal that a site uses, in memory."""

    path = Path("memory")

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._events)

    def append_many(self, events: Iterable[tuple[str, bytes]]) -> range:
        first = len(self)
        self._events += [Event(seq, *event) for seq, event in enumerate(events, first)]
        return range(first, len(self))

    def events(self, start: int = 0) -> list[Event]:
        return self._events[start:]

    def read(self, seq: int) -> Event:
        return self._events[seq]

    def last(self, kind: str) -> Event | None:
        return next((event for event in reversed(self._events) if event.kind == kind), None)

    def close(self) -> None:
        pass


class LightClient:
    """A client whose rewards are all the same."""

    def __init__(self, place: files.Place, reward: float) -> None:
        self.place, self.reward = place, reward
        self.site = Site(place, MemoryJournal())  # type: ignore[arg-type]
        self.nc: Any = None

    async def connect(self) -> None:
        """Connect, and say hello until the server answers."""
        place, site = self.place, self.site
        inbox, ca = f"_INBOX_{place.slot}", place.folder / "ca.pem"
        while self.nc is None:
            try:
                self.nc = await wire.connect(place.setup.url, place.nkey, ca, place.client, inbox)
            except Unreachable as error:
                print(f"{place.client}: {error}; trying again", file=sys.stderr)
                await asyncio.sleep(1.0)
        while True:
            hello = greet(site)
            subject = f"{place.setup.subject}.{HELLO}.{place.slot}"
            parts = split_answer(await wire.request(self.nc, subject, hello, HELLO_SECONDS))
            for data in parts[1:]:
                site.received(data)
            if parts and (answer := read_answer(site, hello, parts[0])):
                demand_newest(site, answer)
                site.resend(answer.due)
                return
            if self.nc.is_closed:
                raise Unreachable(f"{place.client} lost its connection")

    async def run(self) -> None:
        """Answer broadcasts until the verdict arrives, or the connection is lost."""
        place, site = self.place, self.site
        feed = wire.Feed(self.nc, f"{place.setup.subject}.next.{place.slot}")
        await self._answer()
        while not site.over:
            messages = await feed.next(WAIT_SECONDS)
            for message in messages:
                site.received(message.data)
            await self._answer()
            wire.acknowledge(self.nc, messages)
            if self.nc.is_closed:
                raise Unreachable(f"{place.client} lost its connection")
        await self.nc.close()

    async def _answer(self) -> None:
        """Make the pulls that the machine wants, and send what it says."""
        site = self.site
        patient = wire.storing_seconds(len(self.place.setup.layout.clients))
        while site.pull is not None:
            counts = zip(site.pull.arms, site.pull.each, strict=True)
            site.rewards({arm: [self.reward] * (site.pull.times * n) for arm, n in counts})
        while site.sent < len(site.ups):
            subject = f"{self.place.setup.subject}.up.{self.place.slot}"
            await wire.publish(self.nc, subject, site.ups[site.sent], shortest=patient)
            site.sent += 1


def places(folder: Path) -> list[files.Place]:
    """The folder of each client. All of them share one setup."""
    federation = files.Federation.load(folder)
    found = []
    for slot, seat in federation.slots.items():
        if seat is not None:
            place = folder / "clients" / seat.folder
            key, nkey = Key.load(place / "client.key"), Nkey.load(place / "client.nk")
            found.append(files.Place(place, federation.setup, seat.client, slot, key, nkey))
    return found


async def run(folder: Path, winner: str = "") -> dict[str, float]:
    """Run a light client for each slot of a federation until all have the verdict.

    Parameters
    ----------
    folder : Path
        The server's folder.
    winner : str
        The client whose rewards are 1 instead of 0.

    Returns
    -------
    dict
        The number of clients, and seconds until they were made, until all were connected, until all had the
        verdict, and of CPU.
    """
    begun = time.perf_counter()
    clients = [LightClient(place, float(place.client == winner)) for place in places(folder)]
    demand_open_files(len(clients) + 256)
    made = time.perf_counter()
    few = asyncio.Semaphore(AT_ONCE)
    connected: dict[str, float] = {}

    async def take_part(client: LightClient) -> None:
        while not client.site.over:
            client.nc = None
            try:
                async with few:
                    await client.connect()
                connected.setdefault(client.place.client, time.perf_counter())
                await client.run()
            except Unreachable as error:  # thousands of clients in one process can be too slow to answer
                print(f"{error}; connecting again", file=sys.stderr)

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(take_part(client))
    ended = time.perf_counter()
    return {
        "clients": len(clients),
        "made": made - begun,
        "connected": max(connected.values()) - made,
        "verdict": ended - made,
        "CPU": time.process_time(),
    }


def main(arguments: Sequence[str]) -> None:
    for name in ("asyncio", "bestarm.federation"):  # they log every connection that ends
        logging.getLogger(name).setLevel(logging.ERROR)
    print(json.dumps(asyncio.run(run(Path(arguments[0]), *arguments[1:]))))


if __name__ == "__main__":
    main(sys.argv[1:])
