"""A federation with many light clients, which have real connections, keys and machines."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.deploy.federation.server import Server

CLIENTS = 1500
MOST_SECONDS = 600.0  # reached only if something never happens


@pytest.mark.slow
def test_1500_clients_reach_a_verdict_with_the_defaults(tmp_path):
    """One client's rewards are 1, all others' are 0. A broker's own limit is 1,000 consumers per stream."""
    problem = ba.Problem.from_rewards({f"g{k}": {"arm": 0.5} for k in range(CLIENTS)})
    case = ba.Scenario(problem, "fed-sel", None, {"period": 2000, "c": 2.0, "delta": 0.1})
    folder = tmp_path / "federation"
    made = files.init(case, folder, port=0)
    assert len(made.slots) == CLIENTS + 4

    async def main():
        server = Server(folder, linger=MOST_SECONDS)
        running = asyncio.create_task(server.run())
        while not server.ready and not running.done():
            await asyncio.sleep(0.05)
        assert server.ready, await running
        stream = await server.streams.api("STREAM.INFO.DOWN")
        assert stream["state"]["consumer_count"] == len(made.slots) <= stream["config"]["max_consumers"]
        command = [sys.executable, "-m", "benchmarks.light", str(folder), "g7-1"]
        clients = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            record = await running
            light = json.loads((await clients.communicate())[0])
        finally:
            if clients.returncode is None:
                clients.kill()
                await clients.wait()
        assert not server.desk.refused
        assert not server.farewell.unheard, "all clients have the verdict"
        return record, light

    record, light = asyncio.run(asyncio.wait_for(main(), MOST_SECONDS))
    assert record.verdict.status == "identified"
    assert record.verdict.arm == "g7/arm"
    assert light["clients"] == CLIENTS
