"""A federation on one computer, in a minute: a liar, a straggler, and a client that is killed and comes back.

Everything is real: a broker, a server and eight client processes with keys of their own. The liar has a
valid key and signs what no honest client can say; the straggler pulls slowly; one client is killed in the
middle of its work and started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.federation import files
from bestarm.federation.files import JOURNAL
from bestarm.federation.server import Server, Status, verify
from bestarm.journal import Journal
from bestarm.protocol.machine import Event, Send
from bestarm.record import Record
from bestarm.scenario import Scenario, scenario_from_dict
from bestarm.sources import MEANS, PAUSE, Coins, FromPython

KEYS = {
    "method": "robust-fed-sel",
    "delta": 0.05,
    "byzantine": 1,
    "period": 5000,
    "group": [
        {"name": "north", "clients": 4, "arms": {"a": 0.9, "b": 0.3}},
        {"name": "south", "clients": 4, "arms": {"c": 0.75, "d": 0.2}},
    ],
}
BEST = "north/a"
LIAR, STRAGGLER, KILLED = "south-4", "north-4", "north-2"
PATIENCE, HURRY = 60.0, 2.0  # with all, and with the straggler alone
LIMIT = 300.0


def scenario() -> Scenario:
    return scenario_from_dict(KEYS, Path())


class Liar:
    """A machine that says nonsense in its owner's name."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def __getattr__(self, key: str) -> Any:
        return getattr(self.machine, key)

    def handle(self, event: Event) -> list[Any]:
        actions = self.machine.handle(event)
        return [Send(a.to, b"\xff" * 9, 72) if isinstance(a, Send) else a for a in actions]


def lie(folder: str) -> None:
    """The liar's process."""
    from bestarm.deploy import until_stopped
    from bestarm.federation.client import Client

    def liar(place: files.Place) -> Any:
        return Liar(place.setup.room.client(place.setup.layout, place.client, place.setup.unit))

    client = Client(folder, lambda site: FromPython(Coins()), machine=liar)
    until_stopped(client.run())


@dataclass(frozen=True)
class Shown:
    """What the demo came to: right verdict, liar named, journal sound."""

    ok: bool
    record: Record
    notes: list[str]


def demo(folder: Path | None, seed: int, say: Callable[[str], None]) -> Shown:
    """Make a federation, run it, and check what it says. Nothing is left running."""
    notes: list[str] = []

    def tell(text: str) -> None:
        notes.append(text)
        say(text)

    with ExitStack() as stack:
        kept = folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "federation"
        made = files.init(scenario(), folder, port=0)
        where = str(folder) if kept else "DIR"
        tell("a whole federation here, in up to a minute; by hand it would be")
        tell(f"  bestarm federation init SCENARIO.toml --out {where}")
        tell(f"  bestarm client {where}/clients/CLIENT --csv FILE    # at each site")
        tell(f"  bestarm server {where} --patience {PATIENCE:g}")
        tell(f"{len(made.setup.layout.clients)} clients in two groups; one liar a group is borne")
        crowd = _Crowd(folder)
        stack.callback(crowd.end)
        for name in made.setup.layout.clients:
            crowd.start(name)
        tell(f"{LIAR} lies, {STRAGGLER} is slow, {KILLED} will be killed and started again")

        def hurry(status: Status) -> None:
            """On a slow computer the others are slow, too: only the straggler is not waited for."""
            server.patience = HURRY if status.desk.waiting_for() == [STRAGGLER] else PATIENCE

        server = Server(folder, patience=PATIENCE, linger=PATIENCE, watch=hurry)
        record = asyncio.run(_run(server, crowd, random.Random(seed), tell))
        found = verify(folder)
    liars = {fault["client"] for fault in record.proven_faulty}
    tell(f"the journal of {found.events} events is {'sound' if found.ok else 'NOT sound'}")
    look = f"bestarm verify {kept}, bestarm report {kept}" if kept else "--out DIR keeps the folder"
    tell(f"to look at it: {look}")
    return Shown(found.ok and record.verdict.arm == BEST and liars == {LIAR}, record, notes)


async def _run(server: Server, crowd: _Crowd, rng: random.Random, tell: Callable[[str], None]) -> Record:
    async def trouble() -> None:
        while crowd.events(KILLED) < 5:
            await asyncio.sleep(0.1)
        await asyncio.sleep(rng.random())
        crowd.kill(KILLED)
        events = crowd.events(KILLED)
        tell(f"{KILLED} was killed in the middle of its work ({events} events in its journal)")
        await asyncio.sleep(0.5)
        crowd.start(KILLED)
        tell(f"{KILLED} is back")

    task = asyncio.create_task(trouble())
    try:
        return await asyncio.wait_for(server.run(), LIMIT)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Crowd:
    """The client processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        groups: Any = KEYS["group"]
        means = next(g["arms"] for g in groups if name.startswith(g["name"]))
        pause = {STRAGGLER: "0.2", KILLED: "0.05"}.get(name, "0")
        place = self.folder / "clients" / name
        command = [
            sys.executable,
            "-m",
            "bestarm.cli",
            "client",
            str(place),
            "--arms",
            "bestarm.sources:Coins",
        ]
        if name == LIAR:
            command = [sys.executable, "-c", f"import {__name__} as d; d.lie({str(place)!r})"]
        environment = {**os.environ, MEANS: json.dumps(means), PAUSE: pause}
        with (place / "client.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def events(self, name: str) -> int:
        """How far a client is: the length of its journal."""
        with suppress(InputError), Journal.open(self.folder / "clients" / name / JOURNAL, write=False) as own:
            return len(own)
        return 0

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def end(self) -> None:
        """All end: by themselves, asked to, or killed."""
        for stop in (lambda p: None, subprocess.Popen.terminate, subprocess.Popen.kill):
            until = time.monotonic() + 3
            for process in self.processes.values():
                if process.poll() is None:
                    stop(process)
            for process in self.processes.values():
                try:
                    process.wait(max(0.01, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
