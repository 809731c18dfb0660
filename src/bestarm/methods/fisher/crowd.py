"""All clients of Fed-Fisher at once, as arrays of (client, arm); see ``protocol.crowd``.

It does what ``Client`` does for each of them, for runs without a budget. Decisions are made in ``decisions``,
and messages are encoded by the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.client import Exit
from bestarm.methods.fisher.looks import looks_of, wire_of
from bestarm.methods.fisher.messages import LookReport, LookStopped, decode_look_down, encode_withdrawn
from bestarm.methods.fisher.options import Fisher
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.crowd import Said
from bestarm.protocol.decisions import Ints, Mask
from bestarm.protocol.messages import Final
from bestarm.protocol.rounds import one_arm
from bestarm.stats.sums import Sums

ENDLESS = np.iinfo(np.int64).max


class Crowd:
    """One client per group, none of which lies."""

    def __init__(self, layout: Layout, options: Fisher) -> None:
        self.wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        counts = np.array(layout.arm_counts)
        shape = (len(counts), int(counts.max()))
        self.active: Mask = np.arange(shape[1]) < counts[:, None]
        self.there = np.ones(len(counts), dtype=bool)  # clients that take part in the next look
        self.sums, self.shares = np.zeros((2, *shape), dtype=np.int64)
        self.supply = np.full(shape, ENDLESS)
        self.times, self.count, self.look = np.zeros((3, len(counts)), dtype=np.int64)
        self.now = 0  # the look of all clients that take part
        self.reports: list[LookReport | None] = [None] * len(counts)
        self.payloads: dict[tuple[LookReport, LookReport | None, int], bytes] = {}  # many say the same
        self.exits: list[list[Exit]] = [[] for _ in counts]
        self.sent: list[list[tuple[int, int, int]]] = [[] for _ in counts]

    def local(self) -> list[dict[str, Any]]:
        """Each client's part of the certificate, as plain values."""
        made = zip(self.look.tolist(), self.count.tolist(), self.exits, self.sent, strict=True)
        return [
            {
                "look": look,
                "count": count,
                "exits": {c: [getattr(e, c) for e in exits] for c in ("arm", "look", "sum", "rival")},
                "sent": {c: [s[i] for s in sent] for i, c in enumerate(("look", "arm", "sum"))},
            }
            for look, count, exits, sent in made
        ]

    def start(self, supply: Sequence[tuple[int | None, ...]]) -> Said:
        """Begin the first look."""
        for i, left in enumerate(supply):
            self.supply[i, : len(left)] = [ENDLESS if n is None else n for n in left]
        return self._pull()

    def took(self, rewards: Sums) -> Said:
        """Take the rewards of all outstanding pulls."""
        new = rewards.count.astype(np.int64)
        self.sums += rewards.total.astype(np.int64)
        self.supply -= np.where(self.supply < ENDLESS, new, 0)
        self.count += self.times
        return self._at_look()

    def heard(self, data: bytes) -> Said:
        """All clients hear a message of the server."""
        self.times = np.zeros_like(self.times)
        if not self.there.any():
            return []
        n, bits = self.looks.size(self.now), self.looks.bits(self.now)
        message = decode_look_down(data, self.wire, bits)
        if isinstance(message, Final):
            self.there[:] = False
            return []
        self.there &= np.array([message.is_active(j) for j in range(len(self.there))])
        lower, _ = fisher_decisions.bin_edges(message.index, n, bits)
        self._drop(np.full(len(self.there), lower))
        self._next()
        gone = self.there & ~self.active.any(axis=1)
        self.there &= ~gone
        withdrawn, _ = encode_withdrawn(self.wire)
        return [*((i, withdrawn) for i in np.flatnonzero(gone).tolist()), *self._pull()]

    def _next(self) -> None:
        """Let all clients that take part go on to the next look."""
        self.look += self.there
        self.now += 1

    def _pull(self) -> Said:
        """Let every client pull its active arms up to the size of this look, as far as its rewards last."""
        if not self.there.any():
            return []
        self.shares = (self.active & self.there[:, None]).astype(np.int64)
        left = np.where(self.shares > 0, self.supply, ENDLESS).min(axis=1)
        self.times = np.where(self.there, np.minimum(self.looks.size(self.now) - self.count, left), 0)
        return [] if self.times.any() else self._at_look()

    def _at_look(self) -> Said:
        """Drop the arms that lose to their client's own top arm, and report or go on to the next look."""
        self.times = np.zeros_like(self.times)
        n, bits = self.looks.size(self.now), self.looks.bits(self.now)
        stopped = self.there & (self.count < n)  # its rewards have run out
        self.there &= ~stopped
        said = [(i, LookStopped().encode(self.wire)[0]) for i in np.flatnonzero(stopped).tolist()]
        top = decisions.best_arm(self.sums.astype(np.float64), self.active)
        best = np.take_along_axis(self.sums, top[:, None], axis=1)[:, 0]
        self._drop(best, keep=top)
        if self.now < self.looks.quiet:
            self._next()
            return [*said, *self._pull()]
        index, single = fisher_decisions.look_bin(best, n, bits), self.active.sum(axis=1) == 1
        columns = (part.tolist() for part in (top, single, index, best))
        for i, (arm, alone, level, total) in enumerate(zip(*columns, strict=True)):
            if self.there[i]:
                said.append((i, self._encoded(i, LookReport(arm, alone, level, bits))))
                self.sent[i].append((self.now, arm, total))
        return sorted(said)

    def _encoded(self, i: int, report: LookReport) -> bytes:
        """The payload of a report of client i, which is then its last one."""
        key = (report, self.reports[i], self.wire.arm_counts[i])
        if key not in self.payloads:
            self.payloads[key], _ = report.encode(self.wire, i, self.reports[i])
        self.reports[i] = report
        return self.payloads[key]

    def _drop(self, rival: Ints, keep: Ints | None = None) -> None:
        """Drop the active arms that lose to their client's rival sum at this look."""
        n, level = self.looks.size(self.now), self.looks.level(self.now)
        mine = self.active & self.there[:, None]
        against = np.broadcast_to(rival[:, None], mine.shape)
        lost = mine & fisher_decisions.loses(np.where(mine, self.sums, against), against, n, level)
        if keep is not None:
            np.put_along_axis(lost, keep[:, None], False, axis=1)
        for i, arm in zip(*(part.tolist() for part in np.nonzero(lost)), strict=True):
            self.exits[i].append(Exit(arm, self.now, int(self.sums[i, arm]), int(rival[i])))
        self.active &= ~lost


def crowd_for(layout: Layout, options: Fisher) -> Crowd | None:
    """The clients of a run as one, or None with a budget."""
    return None if options.budget is not None or one_arm(layout) else Crowd(layout, options)
