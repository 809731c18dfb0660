"""Live experiments: assignments per second over HTTP, and the time to a verdict if one site is slow.

*Served*: 64 connections that are kept open, each of which asks for the next assignment when it has one. The
baseline is a bare Starlette route, on the same server, that inserts one row into SQLite and commits it, with
the same durability (WAL, synchronous = FULL). Per CPU second: of the server's process alone.

*Slow site*: two regions with the weight ½, one of which has a tenth of the other's visitors, and rewards that
come late. The same visitors come to an experiment that plans by pace, to one that plans by weights with
several blocks open, and to one in lockstep: one block at a time, and visitors in between do not count. The
same for an answer of each site, and for options of which every site has its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.deploy.experiment import folder
from bestarm.deploy.experiment.experiment import Request
from bestarm.deploy.experiment.settings import make_settings

CONNECTIONS, SECONDS = 64, 6.0
RUNS = 20

BARE = """
import sqlite3, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

db = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
db.execute("PRAGMA journal_mode=WAL")
db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE assigned (id INTEGER PRIMARY KEY, option TEXT)")

async def assign(request):
    await request.json()
    db.execute("INSERT INTO assigned (option) VALUES ('A')")
    return JSONResponse({"option": "A"})

app = Starlette(routes=[Route("/assign", assign, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
"""


def measure() -> list[dict[str, Any]]:
    bare, served = _bare(), _served()
    return [
        {
            "what": "assignments over HTTP, 64 connections",
            "per second": served[0],
            "per CPU second of the server": served[1],
            "bare route, per second": bare[0],
            "bare route, per CPU second": bare[1],
            "ratio, per second": served[0] / bare[0],
        },
        _in_process(),
        *_slow_site(),
    ]


def _load(port: int, token: str, process: subprocess.Popen[Any]) -> tuple[float, float]:
    """Requests per second, and per CPU second of the process."""
    body = b'{"site": "us"}'
    head = f"POST /assign HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    request, done = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, 0

    async def ask(until: float) -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < until:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in answer[:20], answer
            size = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(size)
            done += 1
        writer.close()

    async def main(seconds: float) -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(ask(until) for _ in range(CONNECTIONS)))

    asyncio.run(main(1.0))
    done, cpu, begun = 0, _cpu(process.pid), time.monotonic()
    asyncio.run(main(SECONDS))
    return done / (time.monotonic() - begun), done / max(_cpu(process.pid) - cpu, 1e-9)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bare() -> tuple[float, float]:
    from bestarm.deploy.process import free_port

    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-c", BARE, f"{place}/bare.db", str(port)]
        with subprocess.Popen(command) as process:
            try:
                _wait(port)
                return _load(port, "", process)
            finally:
                process.kill()


def _served() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as place:
        where = Path(place) / "experiment"
        settings = make_settings(
            ["A", "B"], ["us", "eu"], None, delta=0.05, bounds=(0.0, 1.0), goal="max", binary=True,
            deadline=None, missing=None, after="winner", seed=1, keys={},
        )  # fmt: skip
        token = folder.create(where, settings)
        command = [sys.executable, "-m", "bestarm.cli", "experiment", "serve", str(where), "--json"]
        command += ["--rate", "inf"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                url = json.loads(process.stdout.readline())["url"]
                return _load(int(url.rpartition(":")[2]), token, process)
            finally:
                process.kill()


def _wait(port: int) -> None:
    import socket

    for _ in range(300):
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


def _in_process() -> dict[str, Any]:
    """Ask and tell in a loop, without a journal, and with one write for a thousand of each."""
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1)
    begun = time.perf_counter()
    for _ in range(20_000):
        experiment.tell(experiment.ask().token, 1.0)
    alone = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as place:
        kept = ba.Experiment(["A", "B"], binary=True, seed=1, journal=Path(place) / "e.db")
        begun = time.perf_counter()
        for _ in range(20):
            given = kept.ask_many(times=1000)
            kept.tell_many([(own.token, 1.0) for own in given])
        together = time.perf_counter() - begun
        kept.close()
    return {
        "what": "ask and tell in a program",
        "µs without a journal": 1e6 * alone / 20_000,
        "µs with a journal, a thousand per call": 1e6 * together / 20_000,
    }


VARIANTS: dict[str, dict[str, Any]] = {
    "by pace": {},
    "by weights": {"allocation": "weights"},
    "lockstep": {"allocation": "weights", "open_blocks": 1},
    "each, own pace": {"question": "each"},
    "each, lockstep": {"question": "each", "open_blocks": 1},
    "anywhere, by pace": {"question": "anywhere"},
    "anywhere, lockstep": {"question": "anywhere", "open_blocks": 1},
}


def _slow_site() -> list[dict[str, Any]]:
    found = {name: [_race(seed, keys) for seed in range(RUNS)] for name, keys in VARIANTS.items()}
    return [
        {
            "what": f"one site ten times slower, {name}",
            "hours to the verdict": statistics.mean(race.hours for race in races),
            "hours to the fast site's answer": statistics.mean(race.first for race in races),
            "visitors outside the plan": statistics.mean(race.unplanned for race in races),
            "wrong": sum(race.wrong for race in races),
        }
        for name, races in found.items()
    ]


@dataclass(frozen=True)
class Race:
    """An experiment: hours to the verdict and to the fast site's answer, visitors that did not count."""

    hours: float
    first: float
    unplanned: int
    wrong: bool


def _race(seed: int, keys: dict[str, Any]) -> Race:
    """A minute at a time: 100 visitors per minute at us, 10 at eu; rewards after ten minutes on average."""
    rng, now, first = np.random.default_rng(seed), 0.0, math.nan
    apart = keys.get("question") == "anywhere"
    options: Any = {"us": ["A", "C"], "eu": ["B", "D"]} if apart else ["A", "B"]
    experiment = ba.Experiment(
        options, None if apart else ["us", "eu"], binary=True, seed=seed, clock=lambda: now, **keys
    )  # fmt: skip
    means, waiting = {"A": 0.40, "B": 0.45, "C": 0.35, "D": 0.35}, list[tuple[float, str, float]]()
    while experiment.verdict is None:
        now += 60.0
        asked = [Request(site="us", times=100), Request(site="eu", times=10)]
        experiment.run(asked)
        for own in (own for request in asked for own in request.assigned):
            reward = float(rng.random() < means[own.option])
            waiting.append((now + rng.exponential(600.0), own.token, reward))
        experiment.tell_many([(token, reward) for due, token, reward in waiting if due <= now])
        waiting = [row for row in waiting if row[0] > now]
        if math.isnan(first) and keys.get("question") == "each" and experiment.status.sites[0].answer:
            first = now
    verdict, sites = experiment.verdict, experiment.status.sites
    return Race(
        hours=now / 3600.0,
        first=(now if math.isnan(first) else first) / 3600.0,
        unplanned=sum(site.unplanned for site in sites),
        wrong=verdict.summary not in ("B", "eu/B", "us: B, eu: B"),
    )
