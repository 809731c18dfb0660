"""A mesh on loopback: the time from the last Phase I report to the last verdict, against diameter × one hop.

The peers of the first rows run in this process and share its clock, each with its own keys, port and journal
(fsync on every write), so a hop waits for the work of all the others. A hop is the time from when a peer
sends its own report until an out-neighbour receives it: the median of all first arrivals in the run. One
group begins when the others have reported, and its peers get the same rewards, so that they finish together.
In the last row each peer is a process; the hop is taken from the row before. Messages and bytes are those
that a node sends on all its edges, including the reports that it forwards.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.mesh import files
from bestarm.deploy.mesh.demo import Crowd, scenario
from bestarm.deploy.mesh.node import Node
from bestarm.deploy.mesh.run import Run
from bestarm.deploy.sources import FromPython
from bestarm.graphs.generators import circulant, complete
from bestarm.graphs.graph import Graph
from bestarm.simulate.network import Network
from bestarm.simulate.setup import Scenario

GROUPS = {"north": {"a": 0.95, "b": 0.05}, "south": {"c": 0.5, "d": 0.02}, "west": {"e": 0.4, "f": 0.02}}

PAUSE = 0.002
LAST = "west"


class Watched(Node):
    """A node that notes when it sends and receives each report."""

    said_at: dict[Any, float]
    hops: list[float]

    def _say(self, envelope: Envelope) -> None:
        super()._say(envelope)
        self.said_at[envelope.slot] = time.perf_counter()

    def _learn(self, kind: str, body: bytes) -> None:
        if kind == "heard":
            self.hops.append(time.perf_counter() - self.said_at[Envelope.decode(body).slot])
        super()._learn(kind, body)


def diameter(graph: Graph) -> int:
    """The longest of all shortest paths."""
    longest = 0
    for start in range(graph.n):
        seen, queue = {start: 0}, deque([start])
        while queue:
            u = queue.popleft()
            for v in graph.targets[graph.starts[u] : graph.starts[u + 1]].tolist():
                if v not in seen:
                    seen[v] = seen[u] + 1
                    queue.append(v)
        longest = max(longest, *seen.values())
    return longest


async def go(folder: Path, case: Scenario) -> tuple[list[Run], list[float]]:
    Watched.said_at, Watched.hops = {}, []
    layout, runs, others_are_done = case.problem.layout, [], threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * len(layout.clients)))
    for name in layout.clients:
        j = layout.group_of[name]
        rng, means = np.random.default_rng(j), GROUPS[layout.groups[j].name]

        def pull(arm: str, times: int, rng: Any = rng, means: Any = means) -> list[float]:
            if arm in GROUPS[LAST]:
                others_are_done.wait()
            time.sleep(PAUSE)
            return (rng.random(times) < means[arm]).astype(float).tolist()

        runs.append(Run(files.place_of(folder, layout, name), lambda _, pull=pull: FromPython(pull)))  # type: ignore[misc]
        runs[-1].node.__class__ = Watched
    tasks = [asyncio.create_task(run.run()) for run in runs]
    early = [run for run in runs if run.node.group.name != LAST]
    while not all("report" in run.times for run in early) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.1)
    others_are_done.set()
    verdicts = await asyncio.gather(*tasks)
    assert {verdict.arm for verdict in verdicts if verdict} == {"north/a"}
    return runs, Watched.hops


def in_processes(hop: float) -> dict[str, Any]:
    """The mesh of the demo with honest peers, each a process: with intervals, all sample and send at once."""
    case = scenario()
    assert case.network is not None
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder), case, pause=0.01)
        try:
            for name in crowd.honest:
                crowd.start(name)
            everyone = set(crowd.honest)
            ended = crowd.wait(lambda found: {n for n, s in found.items() if s["done"]} == everyone)
            assert ended, crowd.logs()
            found = list(crowd.statuses().values())
        finally:
            crowd.end()
    span = max(s["times"]["verdict"] for s in found) - max(s["times"]["report"] for s in found)
    facts = {key: statistics.mean(s[key] for s in found) for key in ("reports", "messages", "bytes")}
    found_row = row("circulant, 5", case.network.graph, "intervals, processes", span, hop, facts)
    del found_row["ratio to diameter × hop"]  # a peer may adopt the verdict before its own Phase I ends
    return found_row


def row(
    title: str, graph: Graph, exchange: str, span: float, hop: float, facts: dict[str, float]
) -> dict[str, Any]:
    across = diameter(graph)
    return {
        "network": f"{title}, {graph.n} nodes",
        "exchange": exchange,
        "last report to last verdict s": span,
        "hop s": hop,
        "diameter": across,
        "ratio to diameter × hop": span / (across * hop),
        **{f"{key} a node": value for key, value in facts.items()},
    }


def measure() -> list[dict[str, Any]]:
    rows, hops = [], []
    for title, graph in (
        ("complete", complete(12)),
        ("circulant, 5", circulant(24, 5)),
        ("circulant, 5", circulant(12, 5)),
    ):
        problem = ba.Problem.from_rewards(GROUPS, clients=graph.n // 3)
        options = {"exchange": "means", "byzantine": 1, "delta": 0.1}
        case = Scenario(problem, "p2p", None, options, network=Network(graph))
        with tempfile.TemporaryDirectory() as folder:
            files.init(*files.terms_of(case, {}), Path(folder), port=0)
            runs, hops = asyncio.run(go(Path(folder), case))
        span = max(run.times["verdict"] for run in runs) - max(run.times["report"] for run in runs)
        facts = {
            "reports": statistics.mean(len(run.node.own) for run in runs),
            "messages": statistics.mean(sum(line.messages for line in run.lines) for run in runs),
            "bytes": statistics.mean(sum(line.bytes for line in run.lines) for run in runs),
        }
        rows.append(row(title, graph, "means", span, statistics.median(hops), facts))
    return [*rows, in_processes(statistics.median(hops))]
