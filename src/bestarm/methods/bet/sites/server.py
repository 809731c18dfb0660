"""The server of Fed-Bet for questions about several sites.

It announces blocks, waits for all their parts, closes them in order, and lets the ledger decide. A block is
never void: a missing part is waited for, or the operator drops its client, which changes the question.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from bestarm.methods.bet.blocks import MAX_PULLS
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.answers import answers_of, end_of, status_of, worded
from bestarm.methods.bet.sites.course import Course, fitting
from bestarm.methods.bet.sites.decisions import Before, ControlRace, Stand, race_progress, values
from bestarm.methods.bet.sites.estimates import Closed, with_estimates
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.methods.bet.sites.messages import Plan, Wire, block_of, decode, fill
from bestarm.methods.bet.sites.tracks import OpenBlock, Track, tracks_of
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.events import Action, Ahead, Event, Pace, Start
from bestarm.protocol.machine import Transitions
from bestarm.protocol.messages import Stopped
from bestarm.protocol.rounds import DROPPED, OTHER_SITES, RoundServer
from bestarm.protocol.verdict import Reason

OTHERS = f"{DROPPED}: {OTHER_SITES}"


class Server(RoundServer):
    """The server of Fed-Bet for the questions "overall", "each" and "control"."""

    transitions: ClassVar[Transitions] = {
        **RoundServer.transitions,
        ("waiting", Ahead): frozenset({"waiting", "done"}),
        ("done", Ahead): frozenset({"done"}),
        ("waiting", Pace): frozenset({"waiting"}),
        ("done", Pace): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.course = Course(layout, options)
        self.own_wire = Wire(self.course)
        super().__init__(layout, self.own_wire)
        self.options = options
        self.index = {name: i for i, name in enumerate(layout.clients)}
        self.binary = [layout.groups[layout.group_of[name]].binary for name in layout.clients]
        self.present = np.ones(len(layout.clients), dtype=bool)
        self.ledger = Ledger(self.course, self.present)
        self.closed: list[Closed] = []
        self.tracks = tracks_of(self.course)
        # Of each client: its tracks, and the blocks whose parts are to come, in order.
        self.track = [next(t for t in self.tracks if t.members[i]) for i in range(len(layout.clients))]
        self.due: list[deque[OpenBlock]] = [deque(track.open) for track in self.track]
        self.out = np.zeros(len(layout.clients), dtype=bool)  # proven faulty, or makes no more pulls
        self.f = options.byzantine
        self.supply = np.full(len(layout.clients), MOST_SUPPLY)
        self.paces: Floats | None = None  # of the clients, if a driver tells them
        self.late = 0  # parts that came after their block was closed
        self.exits: list[dict[str, Any]] = []
        self.wealths: list[dict[str, Any]] = []
        self.made = np.zeros(len(layout.clients), dtype=np.int64)  # pulls in the parts that came
        self.stopped: list[dict[str, Any]] = []  # clients that the next block asks too much of

    # Messages

    def _handle(self, event: Event) -> list[Action]:
        if isinstance(event, Start):
            self._enter("waiting")
            return self._conclude() if self.ledger.over[0] else []
        if isinstance(event, Ahead):
            return self._hurry(event)
        if isinstance(event, Pace):
            if self.state != "done":
                self.events.append(["pace", list(event.paces)])
                self._keep_pace(event.paces)
            return []
        return super()._handle(event)

    def _hurry(self, event: Ahead) -> list[Action]:
        """Announce the next block while rewards of earlier ones are still to come."""
        if self.state == "done" or not self._wants(event.client):
            return []
        self.events.append(["ahead", event.client, list(event.paces)])
        self._keep_pace(event.paces)
        track = self.track[self.index[event.client]]
        return [*self._announce(track), *self._advance(track)]

    def _keep_pace(self, paces: tuple[int, ...]) -> None:
        if len(paces) == len(self.present):
            self.paces = np.maximum(np.array(paces, dtype=np.float64), 1.0)

    def _wants(self, client: str) -> bool:
        """Whether a race that is open needs this client, and a block may be announced for it."""
        i = self.index[client]
        races = [race for race in self.ledger.races if not race.over[0]]
        return self._may_open(self.track[i]) and any(i in race.clients for race in races)

    @property
    def open(self) -> list[OpenBlock]:
        """The blocks that are announced and not closed."""
        return [block for track in self.tracks for block in track.open]

    @property
    def rounds(self) -> int:
        """The number of blocks that are closed; of the track that has closed most, if there are several."""
        return max(track.closed for track in self.tracks)

    @property
    def ticking(self) -> bool:
        return self.round > 0 or any(block.parts for block in self.open)

    def missing_clients(self) -> list[str]:
        if self.state == "done":
            return []
        awaited, oldest = self.present & ~self.out, [track.open[0] for track in self.tracks if track.open]
        return [
            name
            for i, name in enumerate(self.layout.clients)
            if awaited[i] and any(block.waits_for(i) for block in oldest)
        ]

    def together(self, client: str) -> list[str]:
        """The clients that wait for this one's parts."""
        members = self.track[self.index[client]].members
        return [name for name, member in zip(self.layout.clients, members, strict=True) if member]

    def progress(self, client: str) -> tuple[float, float] | None:
        """The logarithm of the wealth that is furthest from its limit, and the limit."""
        track = self.track[self.index[client]]
        races = [self.ledger.races[r] for r in track.races if not self.ledger.races[r].over[0]]
        if not races or track.closed < 2:
            return None
        return min((race_progress(race, self.ledger.sums) for race in races), key=lambda p: p[0] / p[1])

    def unused(self) -> int:
        """The rewards in parts of blocks that are not closed."""
        return sum(int(block.pulls[i].sum()) for block in self.open for i in block.parts)

    def answer_at(self, client: str) -> str | None:
        """The answer of the client's own site, once it is known, where each site has one and its own pace."""
        if not self.course.own_pace:
            return None
        race = self.ledger.races[self.track[self.index[client]].races[0]]
        left = np.flatnonzero(race.inside[0])
        return self.course.cells.options[left[0]] if len(left) == 1 else None

    def _expects(self, sender: str, data: bytes) -> bool:
        return sender in self.index

    def _received(self, sender: str, data: bytes) -> list[Action]:
        try:
            return self._take(sender, data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._lose(self.index[sender], "votes")

    def _take(self, sender: str, data: bytes) -> list[Action]:
        i = self.index[sender]
        if self.out[i]:
            self.bits_up += 8 * len(data)
            return []
        while self.due[i] and not self.due[i][0].pulls[i].any():
            self.due[i].popleft()  # a block that it does not play
        if not self.due[i]:
            raise Malformed("a part of a block that was not announced, or a second one")
        block = self.due[i].popleft()
        own = block.pulls[i, list(self.course.cells.place[i])]
        reference = block.references[i]
        message, bits = decode(data, self.own_wire, own, block.n, self.binary[i], reference)
        self.bits_up += bits
        if isinstance(message, Stopped):
            self._note_stop(i, block.pulls[i])
            return self._lose(i, "budget")
        self.made[i] += int(block.pulls[i].sum())
        if block not in self.track[i].open:  # closed without it: what was filled in stays
            self.late += 1
            return []
        block.parts[i] = message
        if message.supply is not None:
            self.supply[i] = message.supply
        return self._advance(self.track[i])

    def _note_stop(self, i: int, pulls: Ints) -> None:
        """Note which pulls a client would have had to make, for people to read."""
        needs = {self.course.cells.options[k]: int(pulls[k]) for k in np.flatnonzero(pulls).tolist()}
        client = self.layout.clients[i]
        self.stopped.append({"client": client, "made": int(self.made[i]), "needs": needs})

    def _lose(self, i: int, reason: Reason) -> list[Action]:
        """Continue without the parts of a client, if its site is one of those that may lie; else end."""
        self.out[i] = True
        if self.course.own_pace:
            self.track[i].ended = reason
            self.track[i].open.clear()
            return self._advance(self.track[i])
        return self._undecided(reason) if self._sites(self.out) > self.f else self._advance()

    def _sites(self, clients: Mask) -> int:
        """How many sites these clients belong to."""
        return len(np.unique(self.course.cells.site[clients & self.present]))

    def _patience_over(self) -> list[Action]:
        """Fill the missing parts of the oldest block, if they can be those of lying sites; else end."""
        late = set(self.missing_clients())
        silent = np.array([name in late for name in self.layout.clients]) | self.out
        if self._sites(silent) > self.f:
            return self._undecided("silence")
        self.tracks[0].open[0].filled = True
        return self._advance()

    def _waits_on(self, spent: bool) -> bool:
        return self.f > 0 or not spent

    # Blocks

    def _complete(self, block: OpenBlock, track: Track) -> bool:
        """Whether all parts are in, except those that are filled."""
        awaited = np.flatnonzero(track.members & self.present & ~self.out).tolist()
        return block.filled or not any(block.waits_for(i) for i in awaited)

    def _advance(self, *tracks: Track) -> list[Action]:
        """Close the blocks of these tracks that are complete, announce the next ones, and end if all have."""
        found = [action for track in tracks or self.tracks for action in self._forward(track)]
        if self.ledger.over[0]:
            return [*found, *self._conclude()]
        left = [track.ended for track in self.tracks if not self._over(track)]
        return [*found, *self._undecided(left[0])] if left[0] and all(left) else found

    def _forward(self, track: Track) -> list[Action]:
        """Close the blocks of a track that are complete, in order, and announce the next one."""
        while track.open and self._complete(track.open[0], track):
            self._close(track.open.popleft(), track)
            if self._over(track):
                track.open.clear()
                return []
            if self.options.max_rounds is not None and track.closed >= self.options.max_rounds:
                track.ended = "rounds"
                track.open.clear()
        if track.ended is not None or self._over(track):
            return []
        if not track.open:
            return self._announce(track)
        ahead = any(self.present[i] for i in track.open[-1].parts)  # somebody has played all of them
        return self._announce(track) if ahead and track.closed and self._may_open(track) else []

    def _over(self, track: Track) -> bool:
        return all(bool(self.ledger.races[r].over[0]) for r in track.races)

    def _may_open(self, track: Track) -> bool:
        return track.ended is None and len(track.open) < self.options.open_blocks

    def _close_round(self) -> list[Action]:
        return self._advance()

    def _close(self, block: OpenBlock, track: Track) -> None:
        """Add a block to the ledger, and a row to the certificate. Its intervals are illustrative only."""
        parts = [block.parts.get(i) if self.present[i] else None for i in range(len(self.present))]
        found = block_of(parts, block.pulls, self.course, block.references)
        for i in np.flatnonzero(self.present).tolist():
            if block.waits_for(i):
                fill(found, i)
        self.closed.append(Closed(found, block.stands, block.step, track.races, block.before))
        track.closed += 1
        self._fold(len(self.closed) - 1)
        sums, race = self.ledger.sums, self.ledger.races[0]
        value, error = values(sums, race.weights, race.clients)
        count = sums.count[0].sum(axis=0)
        seen = np.flatnonzero(count)
        self.history.append(
            {
                "round": len(self.history),
                "pulls": block.n + block.step,
                "option": seen.tolist(),
                "count": count[seen].astype(int).tolist(),
                "value": value[0, seen].tolist(),
                "lower": np.clip(value - 2 * error, 0, 1)[0, seen].tolist(),
                "upper": np.clip(value + 2 * error, 0, 1)[0, seen].tolist(),
                "left": [int(race.inside[0].sum()) for race in self.ledger.races],
            }
        )

    def _fold(self, k: int) -> None:
        """Let the ledger decide about closed block k, and note the wealths and what was settled."""
        block, stands, step, races, known = self.closed[k]
        if self.f == 0:
            stands = self.ledger.refreshed(stands)
        before = [race.inside[0].copy() for race in self.ledger.races]
        self.ledger.close(block, stands, step, races, known)
        for r, openers in enumerate(self.ledger.openers if not stands else ()):
            race = self.ledger.races[r]
            for champion, option in openers:
                place = {"race": r, "block": k, "champion": champion}
                wealth = race.log_wealth[0, [option]].tolist()
                self.wealths.append({**place, "option": [option], "log_wealth": wealth})
                if not race.inside[0, option]:
                    self.exits.append({**place, "option": option, "claim": None})
        for r, (race, inside, stand) in enumerate(zip(self.ledger.races, before, stands, strict=False)):
            if stand is None:
                continue
            place = {"race": r, "block": k, "champion": int(stand.champion[0])}
            plays = np.flatnonzero(inside & stand.inside[0])
            wealth = race.log_wealth[..., 0, plays].tolist()
            self.wealths.append({**place, "option": plays.tolist(), "log_wealth": wealth})
            for option in np.flatnonzero(inside & ~race.inside[0]).tolist():
                claim = int(race.claim[0, option]) if isinstance(race, ControlRace) else None
                self.exits.append({**place, "option": option, "claim": claim})

    def _announce(self, track: Track) -> list[Action]:
        """Announce the next block of a track, from the blocks that are closed."""
        n, course = track.announced, self.course
        scale = self._scale()
        step, stands = course.blocks.step(n), self.ledger.stands()
        if n + step > MAX_PULLS:
            step = 0
        elif self.own_wire.finite:
            step = self._cut(step, stands, scale, track)
        if step == 0:
            track.ended = None if track.open else "budget"
            if track.ended and n + course.blocks.step(n) <= MAX_PULLS:
                self._note_short(track, stands, scale)
            return []
        steps = course.steps(step, scale)
        over = [bool(race.over[0]) or r not in track.races for r, race in enumerate(self.ledger.races)]
        told = step if self.own_wire.finite else None
        plan = Plan.of(course, stands, over, told, steps if self.own_wire.tells_steps else None)
        played = plan.stands(course)
        pulls = course.pulls(played, step, steps)[0]
        block = OpenBlock(n, step, pulls, played, references=course.references(played))
        if self.f:  # a liar may send its part of an earlier block after it has seen the others' of this one
            block.before = Before(self.ledger.sums)
        track.open.append(block)
        for i in np.flatnonzero(track.members).tolist():
            self.due[i].append(block)
        track.announced += step
        self.round = max(self.round, track.closed + len(track.open) - 1)
        return [self._send(plan), *self._forward(track)]

    def _note_short(self, track: Track, stands: list[Stand], scale: Floats | None) -> None:
        """Note the clients of a track whose data do not allow even the smallest block."""
        races, course = self.ledger.races, self.course
        open_ones = [
            stand if r in track.races and not races[r].over[0] else None for r, stand in enumerate(stands)
        ]
        pulls = course.pulls(open_ones, 1, course.steps(1, scale))[0]
        for i in np.flatnonzero(self.present & (pulls.max(axis=1) > self.supply)).tolist():
            self._note_stop(i, pulls[i])

    def _scale(self) -> Floats | None:
        """What the steps of clients are in proportion to; None for their weights."""
        if self.options.allocation == "pace":
            return self.course.weights if self.paces is None else self.paces
        return self.course.neyman(self.ledger.sums)[0] if self.own_wire.tells_steps else None

    def _cut(self, step: int, stands: list[Stand], scale: Floats | None, track: Track) -> int:
        """The largest step that the data allow; champions get fewer pulls if theirs run out."""
        due = sum(block.pulls.max(axis=1) for block in track.open)
        supply = np.where(self.present & track.members, self.supply - due, MOST_SUPPLY)
        step = fitting(self.course, step, supply, scale)
        most = int((supply // np.maximum(self.course.steps(step, scale), step)).min()) if step else 1
        for stand in stands:
            stand.ratio = np.minimum(stand.ratio, max(most, 1))
        return step

    # The end

    def _conclude(self) -> list[Action]:
        end = end_of(self.ledger)
        verdict = status_of(answers_of(self.course, end, None, self.ledger))
        verdict = with_estimates(verdict, self.ledger, self.closed)
        return [self._send(end), *self._end(worded(self.course, verdict))]

    def _undecided(self, reason: Reason) -> list[Action]:
        end = end_of(self.ledger)
        verdict = status_of(answers_of(self.course, end, reason, self.ledger))
        verdict = replace(with_estimates(verdict, self.ledger, self.closed), reason=reason)
        return [self._send(end), *self._end(worded(self.course, verdict))]

    def _dropped(self, client: str) -> list[Action]:
        """Fold all closed blocks again without this client: the question is now about the others."""
        i, j = self.index[client], self.layout.group_of[client]
        self.present[i] = False
        own = self.layout.groups[j]
        alone = self.gone.issuperset(own.clients)
        text = OTHERS if alone else f"{client} was {DROPPED}: the others stand for the site"
        self.warnings.append({"group": own.name, "round": self.round, "text": text})
        self.active[j] = self.active[j] and not alone
        self.ledger = Ledger(self.course, self.present.copy())
        self.exits, self.wealths = [], []
        for k in range(len(self.closed)):
            self._fold(k)
        if self._sites(self.present) <= 2 * self.f:  # also if nobody is left: no lead could be trusted
            return self._undecided("silence")
        return self._conclude() if self.closed and self.ledger.over[0] else self._advance()

    def certificate(self) -> dict[str, Any]:
        sums, total = self.ledger.sums, self.ledger.sums.total + self.ledger.rounded / 2
        cells = {"count": sums.count[0].astype(int).tolist(), "total": total[0].tolist()}
        return {
            **super().certificate(),
            "over_all": self.course.question.kind != "each",
            "levels": [race.level for race in self.ledger.races],
            "exits": self.exits,
            "wealth": self.wealths,
            "cells": cells,
            "stopped": self.stopped,
        }
