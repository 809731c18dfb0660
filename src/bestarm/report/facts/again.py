"""Reruns a recorded run from its seed, to get the history of every arm's sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm.problem.counted_recording import CountedRecording
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Recording
from bestarm.protocol.events import Pull, Pulled
from bestarm.records.record import Record
from bestarm.report.facts.reading import Reader
from bestarm.report.facts.structs import ArmSoFar, TraceFacts
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.draw import Drawn, Source
from bestarm.simulate.identify import as_pulled, prepare
from bestarm.simulate.network import Network
from bestarm.simulate.network_run import NetworkRun
from bestarm.simulate.run import Run

MOST_AGAIN = 20_000  # largest rounds times clients of a run that is rerun for its traces


class _Watched:
    """A source of rewards that records, by client and arm, the sum after each batch."""

    def __init__(self, source: Source, clients: set[int]) -> None:
        self.source, self.clients = source, clients
        self.points: dict[tuple[int, int], dict[int, float]] = {}
        self.last: dict[tuple[int, int], tuple[int, float]] = {}

    def draw(self, client: int, pull: Pull, times: int) -> Pulled | None:
        pulled = self.source.draw(client, pull, times)
        if client in self.clients and pulled is not None:
            for arm, share, total in zip(pull.arms, pull.each, pulled.sums, strict=True):
                n, before = self.last.get((client, arm), (0, 0.0))
                n, after = n + pulled.times * share, before + total
                self.last[client, arm] = (n, after)
                self.points.setdefault((client, arm), {})[n] = after
        return pulled


def traces_again(problem: Problem, record: Record) -> tuple[TraceFacts, ...] | None:
    """The history of every arm's sums, from a rerun; None unless the rerun gives the same record.

    None also for questions about several sites, whose lines are about options, not about a group's arms.
    """
    work = max(record.rounds, 1) * len(problem.layout.clients)
    by_option = problem.layout.question.kind != "anywhere"
    if record.seed is None or record.interrupted or work > MOST_AGAIN or by_option:
        return None
    _, _, options = prepare(problem, record.method, {**record.options, "delta": record.delta})
    liars = [Adversary(**keys) for keys in record.adversaries]
    lying = {client for a in record.adversaries for client in a["clients"]}
    told = Reader(record.method, record.delta, record.options, record.problem, record.verdict.certificate)
    layout, firsts = problem.layout, {}
    for j in told.leading():
        honest = [client for client in layout.groups[j].clients if client not in lying]
        if honest:
            firsts[layout.clients.index(honest[0])] = (honest[0], j)
    source = _Watched(Drawn(as_pulled(problem, record.method), record.seed), set(firsts))
    run: Run | NetworkRun
    if record.network is None:
        run = Run(problem, record.method, options, record.seed, source, adversaries=liars)
    else:
        network = Network.from_dict(record.network)
        run = NetworkRun(problem, record.method, options, record.seed, source, network, adversaries=liars)
    run.go()
    if run.record().verdict != record.verdict:
        return None
    points = {(*firsts[i], a): line for (i, a), line in source.points.items()}
    return told.drawn(dict(sorted(points.items(), key=lambda at: (at[0][1], at[0][2]))))


def so_far_of(problem: Problem, traces: Sequence[TraceFacts]) -> tuple[ArmSoFar, ...]:
    """Each arm's pulls and mean. With recorded rewards, the mean is that of the rewards, not of coins."""
    found = []
    for trace in traces:
        pulls, mean = trace.pulls[-1], trace.mean[-1]
        group = problem.layout.groups[trace.group]
        models = problem.rewards[problem.layout.clients.index(trace.client)]
        model = models[group.arms.index(trace.arm)]
        if isinstance(model, Recording | CountedRecording):
            mean = problem.scale.user(float(np.mean(model.values[:pulls])))
        found.append(ArmSoFar(f"{group.name}/{trace.arm}", pulls, mean))
    return tuple(found)
