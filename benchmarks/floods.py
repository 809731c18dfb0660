"""A flood by one valid client: the others' round time before, during and after it is cut off.

Sixteen clients of Fed-SEL, one pull per round. One more client, which the operator has dropped so that no
round waits for it, still has a valid key: another process uses it to publish as fast as it can, on as many
connections as it can get, and connects again whenever it is refused. "garbage" are random bytes, "old" is a
valid message that the server has already, "answered" the same with answers, and "oversized" messages make
the broker close the connection. The time until the flooder is named begins with its first connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bestarm as ba
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files, wire
from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.client import Client
from bestarm.deploy.federation.desk import NOTE
from bestarm.deploy.federation.server import Server
from bestarm.deploy.sources import FromPython
from bestarm.simulate.setup import Scenario

CLIENTS, FLOODER = 16, "flooder-1"
SECONDS = 8.0  # of rounds before the flood, and after the flooder was cut off
LIMIT = 60.0  # for the flooder to be named
CONNECTIONS = 3
KINDS = ("garbage", "old", "answered", "oversized")


def measure() -> list[dict[str, Any]]:
    logging.getLogger("bestarm.federation").setLevel(logging.CRITICAL)
    return [asyncio.run(_flooded(kind)) for kind in KINDS]


async def _flooded(kind: str) -> dict[str, Any]:
    groups = {f"g{k}": {"arm": 0.5} for k in range(CLIENTS)} | {"flooder": {"arm": 0.5}}
    options = {"period": 1, "c": 2.0, "max_rounds": 10**6}
    scenario = Scenario(ba.Problem.from_rewards(groups), "fed-sel", None, options)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "f"
        files.init(scenario, folder, port=0, spare=0)
        files.drop(folder, FLOODER)
        server = Server(folder)
        tasks = [asyncio.create_task(server.run())]
        while not server.ready:
            await asyncio.sleep(0.01)
        for name in scenario.problem.layout.clients:
            if name != FLOODER:
                client = Client(
                    folder / "clients" / name, lambda site: FromPython(lambda arm, times: [1.0] * times)
                )
                tasks.append(asyncio.create_task(client.run()))
        rounds: list[float] = []
        tasks.append(asyncio.create_task(_time(server, rounds)))
        try:
            return {"flood": kind, **await _phases(server, rounds, folder, kind)}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _time(server: Server, rounds: list[float]) -> None:
    """Append the time of each broadcast."""
    known = 0
    while True:
        if len(server.desk.broadcasts) > known:
            known = len(server.desk.broadcasts)
            rounds.append(time.monotonic())
        await asyncio.sleep(0.001)


async def _phases(server: Server, rounds: list[float], folder: Path, kind: str) -> dict[str, Any]:
    while len(rounds) < 20:
        await asyncio.sleep(0.1)
    begin = time.monotonic()
    await asyncio.sleep(SECONDS)
    with _flood(folder, kind) as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)  # it is connected
        began = time.monotonic()
        while FLOODER not in server.desk.cut_offs.now and time.monotonic() < began + LIMIT:
            await asyncio.sleep(0.01)
        named = time.monotonic()
        await asyncio.sleep(1.0)
        calm = time.monotonic()
        await asyncio.sleep(SECONDS)
        before, during, after = (
            _median(rounds, *span) for span in ((begin, began), (began, named), (calm, time.monotonic()))
        )
    return {
        "named after s": named - began if FLOODER in server.desk.cut_offs.now else "never",
        "why": server.desk.cut_offs.now.get(FLOODER, ""),
        "ms a round before": before,
        "during": during,
        "after": after,
        "after / before": after / before,
    }


def _median(rounds: list[float], start: float, end: float) -> float:
    """The median time between broadcasts in a span; the whole span if there are none."""
    times = [start, *(at for at in rounds if start < at < end), end]
    return 1e3 * statistics.median(b - a for a, b in itertools.pairwise(times))


@contextlib.contextmanager
def _flood(folder: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.floods", str(folder), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def _publish_for_ever(place: files.Place, kind: str) -> None:
    old = Envelope.sign(place.key, place.setup.run, place.client, NOTE, 0, b"old news").encode()
    data = {"garbage": os.urandom(500), "oversized": bytes(20_000)}.get(kind, old)
    subject = f"{place.setup.subject}.up.{place.slot}"

    async def ignore(message: Any) -> None:
        pass

    while True:
        with contextlib.suppress(Unreachable, Exception):
            ca, inbox = place.folder / "ca.pem", f"_INBOX_{place.slot}"
            nc = await wire.connect(place.setup.url, place.nkey, ca, "flooder", inbox)
            print("connected", flush=True)
            reply = nc.new_inbox() if kind == "answered" else ""
            if reply:
                await nc.subscribe(reply, cb=ignore)
            while nc.is_connected:
                for _ in range(100):
                    await nc.publish(subject, data, reply=reply)
                await nc.flush()
            await nc.close()
        await asyncio.sleep(0.01)


async def _main(folder: Path, kind: str) -> None:
    place = files.Place.load(folder / "clients" / FLOODER)
    await asyncio.gather(*(_publish_for_ever(place, kind) for _ in range(CONNECTIONS)))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
