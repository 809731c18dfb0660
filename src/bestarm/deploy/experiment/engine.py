"""The state of a live experiment: a fold over questions ("ask") and rewards ("tell"), without I/O or clock.

The engine drives the same machines as every other run. Each site is a client. Assignments fill the pulls that
its machine asks for, and the pulls that are announced for later; a batch counts when all its rewards are in,
or their deadline has passed and `missing` stands for those that did not come. Batches count in order, so
what the machines see does not depend on the order in which rewards arrive. If a site has assigned everything
that is announced, the server announces the next block from the blocks that are closed (``Ahead``; A3 in
docs/questions-proofs.md). Where it can't, subjects get the option that leads: recorded, and not counted.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import UTC, datetime
from typing import Any

import msgspec

from bestarm.deploy.experiment.assignments import Assignments, Given, Outcome, State, Tally
from bestarm.deploy.experiment.routing import winner_at
from bestarm.deploy.experiment.settings import Settings
from bestarm.protocol import events
from bestarm.protocol.machine import ClientMachine, ForesightedClient, ServerMachine, SiteServer
from bestarm.protocol.options import on_unit_scale
from bestarm.protocol.registry import method_for
from bestarm.protocol.rounds import SERVER
from bestarm.protocol.summaries import SummaryBook
from bestarm.protocol.verdict import Verdict
from bestarm.records.answer import answer_card
from bestarm.records.build import FILLED, conclude
from bestarm.records.card import AnswerCard
from bestarm.records.record import Record, Visitors
from bestarm.simulate.run import book_for

__all__ = ["Engine", "Given", "Outcome", "State", "Tally"]


class Engine(Assignments):
    """The machines of an experiment, and the assignments and rewards so far."""

    def __init__(self, settings: Settings) -> None:
        problem, self.method, self.options = settings.prepared()
        super().__init__(settings, problem)
        layout = self.problem.layout
        self.unit = on_unit_scale(self.options, self.problem.scale)
        room = method_for(self.method, layout, self.options)
        assert room.server is not None
        self.server: ServerMachine = room.server(layout, self.unit)
        self.clients: list[ClientMachine] = [room.client(layout, name, self.unit) for name in layout.clients]
        # Checks against a protocol are slow, and these never change.
        self._own_answers = self.server if isinstance(self.server, SiteServer) else None
        self._foresighted = [c if isinstance(c, ForesightedClient) else None for c in self.clients]
        self.pulls: list[events.Pull | None] = [None] * len(self.clients)
        self.mail: deque[tuple[int | None, int, bytes]] = deque()  # (receiver; None: server, sender, data)
        self.settled: dict[int, int] = {}  # by site: its own answer, where each has one
        self.dropped: set[int] = set()  # sites
        self._card: AnswerCard | None = None
        self.held: list[deque[bytes]] = [deque() for _ in self.clients]  # until the outstanding pull is done
        self._act(None, self.server.handle(events.Start()))
        for i, client in enumerate(self.clients):
            self._act(i, client.handle(events.Start()))
            self._plan(i)
        self._pump()

    @property
    def over(self) -> bool:
        """Whether there is a verdict."""
        return self.server.verdict is not None

    @property
    def verdict(self) -> Verdict | None:
        return self.server.verdict

    def ended(self, site: int) -> bool:
        """Whether there is a verdict, or this site has its own answer, or was dropped."""
        return self.over or site in self.settled or site in self.dropped

    def dropped_site(self, site: int) -> bool:
        """Whether the operator dropped this site."""
        return site in self.dropped

    # Events

    def stop(self, time: float, reason: str) -> None:
        """End the experiment without an answer."""
        self.tick(time)
        if not self.over:
            self._act(None, self.server.handle(events.Stop(reason)))
            self._pump()

    def drop(self, time: float, site: int) -> None:
        """Continue without a site: the question is now about the others."""
        self.tick(time)
        if not (self.over or site in self.dropped):
            self.dropped.add(site)
            self.lanes[site].batches.clear()
            self._act(None, self.server.handle(events.Drop(self.clients[site].name)))
        self._pump()

    # Machines

    def _count(self, i: int) -> None:
        """Give a site's machine its batches that are complete, in order."""
        lane = self.lanes[i]
        while not self.over and lane.batches and self.pulls[i] is not None and lane.batches[0].complete:
            pulled = lane.count()
            self.pulls[i] = None
            self._act(i, self.clients[i].handle(pulled))
            while self.held[i] and self.pulls[i] is None:
                self._act(i, self.clients[i].handle(events.Received(SERVER, self.held[i].popleft())))
            self._plan(i)
            self._pump()
            self._settle(i)

    def _settle(self, i: int) -> None:
        """Note the own answer of a site, if it is known now."""
        answer = self._own_answers.answer_at(self.clients[i].name) if self._own_answers else None
        if answer is not None:
            self.settled[i] = self.problem.layout.groups[i].arms.index(answer)

    def _hurry(self, i: int) -> None:
        """A site has assigned all that is announced: let the server announce the next block, if it can."""
        if (self.server.state, events.Ahead) not in self.server.transitions:
            return
        paces = tuple(tally.recent for tally in self.tallies)
        for tally in self.tallies:
            tally.recent = (tally.recent + 1) // 2
        self._act(None, self.server.handle(events.Ahead(self.clients[i].name, paces)))
        self._pump()

    def _act(self, i: int | None, actions: list[events.Action]) -> None:
        """Carry out the actions of a client, or of the server (None)."""
        for action in actions:
            match action:
                case events.Pull(arms) as pull if i is not None:
                    self.pulls[i] = pull if arms else None
                case events.Send(_, payload, _) if i is not None:
                    self.mail.append((None, i, payload))
                case events.Send(to, payload, _):
                    self.mail.extend(
                        (k, 0, payload)
                        for k, client in enumerate(self.clients)
                        if to in (events.ALL, client.name)
                    )
                case events.Decided() if i is None:
                    self.decided = self.now

    def _pump(self) -> None:
        """Deliver all messages in order."""
        while self.mail:
            to, sender, data = self.mail.popleft()
            if to is None:
                name = self.clients[sender].name
                self._act(None, self.server.handle(events.Received(name, data)))
            elif self._waits(to):
                self.held[to].append(data)
            else:
                self._act(to, self.clients[to].handle(events.Received(SERVER, data)))
                self._plan(to)

    def _waits(self, i: int) -> bool:
        """Whether a message could replace pulls of this client that are assigned already."""
        if self._foresighted[i] is not None or self.over:
            return False
        lane = self.lanes[i]
        return bool(self.held[i]) or (bool(lane.batches) and lane.batches[0].given > 0)

    def _plan(self, i: int) -> None:
        """Prepare the assignments of a site that its machine has asked for, or will ask for."""
        client, pull, lane = self._foresighted[i], self.pulls[i], self.lanes[i]
        if self.over or pull is None:
            lane.batches.clear()
            return
        upcoming = client.upcoming if client is not None else ()
        if lane.batches and lane.batches[0].pull != pull and lane.batches[0].given == 0:
            lane.batches.clear()
        lane.plan([pull, *upcoming])

    # What there is to see

    def winner(self, site: int) -> int:
        """The option that a site's subjects get after the verdict: the winner, or what leads."""
        if site in self.settled:
            return self.settled[site]
        found = winner_at(self.problem.layout, site, self.verdict)
        return self.leader(site) if found is None else found

    def record(self) -> Record:
        """The record of the experiment so far."""
        found = conclude(
            self.problem,
            self.method,
            self.options,
            self.unit,
            None,
            self.server,
            self.clients,
            time=None,
            warnings=self._warnings(),
            summaries=self._summaries(),
        )
        day = "" if math.isnan(self.began) else f"{datetime.fromtimestamp(self.began, UTC):%Y-%m-%d}"
        visitors = Visitors(
            assigned=len(self.time),
            told=sum(tally.told for tally in self.tallies),
            filled=sum(lane.filled for lane in self.lanes),
        )
        return msgspec.structs.replace(found, name=self.settings.name, date=day, visitors=visitors).sealed()

    @property
    def card(self) -> AnswerCard | None:
        """The answer card, once there is a verdict; nothing counts any more, so it does not change."""
        if self._card is None and self.over:
            self._card = answer_card(self.record())
        return self._card

    def _summaries(self) -> SummaryBook | None:
        """What counted of each option at each site, as clients of other runs send it after the verdict."""
        if not (self.over and self.options.summaries):
            return None
        room = method_for(self.method, self.problem.layout, self.options)
        book = book_for(self.problem.layout, room.coins, self.server)
        for name, lane, group in zip(self.index, self.lanes, self.problem.layout.groups, strict=True):
            if name not in self.server.gone:
                book.take(name, lane.summary(len(group.arms)).encode()[0])
        return book

    def _warnings(self) -> list[dict[str, Any]]:
        """What the record says about rewards that were filled in."""
        return [
            {
                "group": name,
                "round": self.server.rounds,
                "text": f"{lane.filled:,} of the {sum(lane.counts.values()):,} rewards that count {FILLED} "
                f"{self.settings.missing:g}",
            }
            for name, lane in zip(self.index, self.lanes, strict=True)
            if lane.filled
        ]
