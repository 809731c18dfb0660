"""A federation with thousands of clients: CPU and memory of server and broker, and the time to start.

The server and its embedded broker are the real ones, with the defaults of ``federation init``. The clients
are light ones (``benchmarks.light``) in a process of their own. Each round of Fed-SEL is one pull, and all
rewards are equal, so that no client drops out. Here the clients share the machine with the server, and so
lengthen each round; CPU and memory are those of server and broker alone.

    python -m benchmarks.many_clients [CLIENTS ROUNDS]

measures one size.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bestarm as ba
from benchmarks.federation import cpu_seconds, megabytes
from bestarm.deploy.federation import files
from bestarm.deploy.federation.server import Server

SIZES = {100: 20, 1000: 5, 5000: 3}  # clients: rounds
LIMIT = 1800.0  # seconds for each size


def measure() -> list[dict[str, Any]]:
    return [measure_size(clients, rounds) for clients, rounds in SIZES.items()]


def measure_size(clients: int, rounds: int) -> dict[str, Any]:
    """Run one federation, and return what it took."""
    problem = ba.Problem.from_rewards({f"g{k}": {"arm": 0.5} for k in range(clients)})
    scenario = ba.Scenario(problem, "fed-sel", None, {"period": 1, "c": 2.0, "max_rounds": rounds + 1})
    folder = Path(tempfile.mkdtemp()) / "federation"
    try:
        begun = time.perf_counter()
        files.init(scenario, folder, port=0)
        took = time.perf_counter() - begun
        disk = sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))
        return {
            "clients": clients,
            "rounds": rounds,
            "init s": took,
            "init MB": disk / 1e6,
            **asyncio.run(_run(folder, rounds)),
        }
    finally:
        shutil.rmtree(folder.parent)


async def _run(folder: Path, rounds: int) -> dict[str, Any]:
    """Run the server until its verdict; the clients are started when it is ready for them."""
    begun = time.perf_counter()
    server = Server(folder, linger=120.0)
    running = asyncio.create_task(server.run())
    async with asyncio.timeout(LIMIT):
        await _until(lambda: server.ready, running)
        ready, idle = time.perf_counter(), _resources(server)
        command = [sys.executable, "-m", "benchmarks.light", str(folder)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            await _until(lambda: len(server.desk.broadcasts) >= 1, running)
            first, before = time.perf_counter(), _resources(server)
            await _until(lambda: server.desk.done, running)
            last, after = time.perf_counter(), _resources(server)
            await running
            left = time.perf_counter()
            light = json.loads((await process.communicate())[0])
        finally:
            if process.returncode is None:
                process.kill()
    if server.desk.refused or server.farewell.unheard:
        raise RuntimeError(
            f"refused: {server.desk.refused}, without the verdict: {len(server.farewell.unheard)}"
        )
    return {
        "server ready s": ready - begun,
        "connected s": light["connected"],
        "first round s": first - ready - light["made"],
        "round s": (last - first) / rounds,
        "server CPU s per round": (after["server CPU"] - before["server CPU"]) / rounds,
        "broker CPU s per round": (after["broker CPU"] - before["broker CPU"]) / rounds,
        "clients' CPU s": light["CPU"],
        "server CPU s to start": before["server CPU"],
        "broker CPU s to start": before["broker CPU"],
        "broker MB before clients": idle["broker MB"],
        "server MB": after["server MB"],
        "broker MB": after["broker MB"],
        "last client s": left - last,
    }


async def _until(condition: Any, running: asyncio.Task[Any]) -> None:
    while not condition():
        if running.done():
            running.result()
            raise RuntimeError("the server ended too early")
        await asyncio.sleep(0.02)


def _resources(server: Server) -> dict[str, float]:
    """CPU seconds so far and peak memory of the server, which is this process, and of its broker."""
    assert server.broker is not None
    assert server.broker.process is not None
    pid = server.broker.process.pid
    return {
        "server CPU": time.process_time(),
        "broker CPU": cpu_seconds(pid),
        "server MB": megabytes(os.getpid()),
        "broker MB": megabytes(pid),
    }


if __name__ == "__main__":
    print(json.dumps(measure_size(int(sys.argv[1]), int(sys.argv[2])), indent=1))
