"""The server of a rival: it waits for the sums of all clients, averages them, and drops what is behind."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.rivals import decisions
from bestarm.methods.rivals.answers import identified, undecided
from bestarm.methods.rivals.course import MOST, Course
from bestarm.methods.rivals.messages import End, Rest, RivalWire
from bestarm.methods.rivals.options import Rival
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.decisions import GO_ON, IDENTIFIED, REASON_OF, Floats, Mask
from bestarm.protocol.events import ALL, Action, Event, Send, Start
from bestarm.protocol.messages import Stopped
from bestarm.protocol.rounds import DROPPED, RoundServer
from bestarm.protocol.verdict import Reason


class Server(RoundServer):
    """The server of FedElim, FPE and collaborative exploration. It trusts every client and needs them all."""

    def __init__(self, layout: Layout, options: Rival) -> None:
        self.course = Course(layout, options)
        self.own_wire = RivalWire(self.course)
        super().__init__(layout, self.own_wire)
        self.options = options
        self.index = {name: i for i, name in enumerate(layout.clients)}
        self.inside: Mask = np.ones(self.course.number, dtype=bool)
        self.sums: Floats = np.zeros((self.course.players, self.course.number))
        self.waiting: Mask = np.ones(self.course.players, dtype=bool)
        self.told: dict[str, list[list[float]]] = {name: [] for name in layout.clients}
        self.spent = False  # a client makes no more pulls

    def _handle(self, event: Event) -> list[Action]:
        if isinstance(event, Start) and self.inside.sum() == 1:
            self._enter("waiting")
            return self._name(0, None, None)
        return super()._handle(event)

    @property
    def ticking(self) -> bool:
        return self.round > 0 or not self.waiting.all()

    def missing_clients(self) -> list[str]:
        if self.state == "done":
            return []
        return [self.layout.clients[i] for i in np.flatnonzero(self.waiting)]

    def _expects(self, sender: str, data: bytes) -> bool:
        return sender in self.index and bool(self.waiting[self.index[sender]])

    def _received(self, sender: str, data: bytes) -> list[Action]:
        try:
            self._take(sender, data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._undecided("votes")
        self.waiting[self.index[sender]] = False
        return [] if self.waiting.any() else self._close_round()

    def _take(self, sender: str, data: bytes) -> None:
        i, n = self.index[sender], self.course.size(self.round)
        options, binary = np.flatnonzero(self.inside), self.course.binary[i]
        message, bits = self.own_wire.decode(data, len(options), n, binary)
        if isinstance(message, Stopped):
            self.spent = True
        else:
            pulls = n - self.course.size(self.round - 1)
            slack = 0.0 if binary else 1e-9 * n
            new = np.array(message.sums)
            if not decisions.feasible(self.sums[i, options], new, pulls, slack):
                raise Malformed("sums that can't follow its last ones")
            self.sums[i, options] = new
            self.told[sender].append(list(message.sums))
        self.bits_up += bits

    def _patience_over(self) -> list[Action]:
        return self._undecided("silence")

    def _waits_on(self, spent: bool) -> bool:
        return not spent

    def _dropped(self, client: str) -> list[Action]:
        group = self.layout.groups[self.layout.group_of[client]].name
        text = f"{client} was {DROPPED}: the average over all clients can't be known"
        self.warnings.append({"group": group, "round": self.round, "text": text})
        return self._undecided("silence")

    def _close_round(self) -> list[Action]:
        if self.spent:
            return self._undecided("budget")
        n, margin = self.course.round(self.round)
        before, values = self.inside, decisions.averages(self.sums, n)
        self.inside = decisions.left(values, before, margin)
        self._note(before, values, n, margin)
        last_round = self.options.max_rounds is not None and self.rounds >= self.options.max_rounds
        last_size = self.course.size(self.round + 1) > MOST
        code = int(decisions.outcome(self.inside, last_round=last_round, last_size=last_size))
        if code == IDENTIFIED:
            option = int(np.flatnonzero(self.inside)[0])
            return self._name(option, float(values[option]), margin / 2.0)
        if code != GO_ON:
            return self._undecided(REASON_OF[code])
        self.round += 1
        self.waiting[:] = True
        return [self._tell(Rest(tuple(self.inside[before].tolist())))]

    def _note(self, before: Mask, values: Floats, n: int, margin: float) -> None:
        """This round's line of the certificate."""
        options = np.flatnonzero(before)
        line = {"round": self.round, "count": n, "margin": margin, "option": options.tolist()}
        line |= {"value": values[options].tolist(), "out": np.flatnonzero(before & ~self.inside).tolist()}
        self.history.append(line)

    def _name(self, option: int, mean: float | None, half: float | None) -> list[Action]:
        ends = None
        if self.options.proved and mean is not None and half is not None:
            ends = (float(np.maximum(mean - half, 0.0)), float(np.minimum(mean + half, 1.0)))
        return [self._tell(End(option)), *self._end(identified(self.course, option, mean, ends))]

    def _undecided(self, reason: Reason) -> list[Action]:
        return [self._tell(End(None)), *self._end(undecided(self.course, self.inside, reason))]

    def _tell(self, message: Rest | End) -> Send:
        payload, bits = self.own_wire.encode_down(message)
        self.said.append(payload)
        self.bits_down += bits
        self.bytes += len(payload)
        return Send(ALL, payload, bits)

    def certificate(self) -> dict[str, Any]:
        found = {**super().certificate(), "over_all": self.course.over_all}
        if self.course.over_all:
            count = np.zeros(self.sums.shape, dtype=np.int64)
            for row in self.history:
                count[:, row["option"]] = row["count"]
            found["cells"] = {"count": count.tolist(), "total": self.sums.tolist()}
            found["exits"] = [
                {"race": 0, "option": k, "block": row["round"]} for row in self.history for k in row["out"]
            ]
        return found
