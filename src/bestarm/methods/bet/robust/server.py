"""The server of Fed-Bet among liars: it publishes the bets of each block, trims, tests and names champions.

Bets, champions and centres are functions of what has arrived before a block is announced, and the wealth of
an arm follows from the announcements and the parts alone. A missing part is filled against leaving, and a
late one replaces what was filled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks
from bestarm.methods.bet.groups.messages import Block, sums_of
from bestarm.methods.bet.levels import report_precision
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.robust import decisions as robust_decisions
from bestarm.methods.bet.robust.blocks import Pool, robust_wire
from bestarm.methods.bet.robust.ledger import Bets, Ledger, filled
from bestarm.methods.bet.robust.messages import Down, Part, decode
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.decisions import Floats, Mask
from bestarm.protocol.events import Action
from bestarm.protocol.group_server import DISAGREE, GroupServer
from bestarm.protocol.messages import Stopped
from bestarm.stats.sums import Sums

FALSE_ALARM = 1e-6  # the largest probability of a warning about honest clients with the same means


class Server(GroupServer):
    """The server of Fed-Bet among liars. Arms are numbered through all groups."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.own_wire = robust_wire(layout, options)
        super().__init__(layout, self.own_wire, options.byzantine)
        self.options, self.blocks = options, Blocks(options)
        self.pool = Pool(layout, options)
        self.own, self.ledger = self.pool.own, Ledger(self.pool)
        arms, clients = len(self.pool.group), len(layout.clients)
        self.inside = np.ones(arms, dtype=bool)
        self.played = [Block(self.own_wire, 0, self.blocks.n1)]  # all blocks; the last one is open
        self.bets: list[Bets | None] = [None]  # their bets; the first pulls have none
        self.last = np.full(clients, -1)  # the last block of each client
        self.parts: dict[int, Sums] = {}  # of the open block, by client
        self.sums = Sums.none((arms, clients))  # of closed blocks, as far as they have arrived
        self.full = np.zeros(arms, dtype=np.int64)  # pulls of each client in closed blocks
        # How much larger than its true value each sum may be because of rounding, and how much smaller.
        self.above, self.below = np.zeros((2, arms, clients))
        self.exits: list[dict[str, Any]] = []
        self.wealths: list[dict[str, Any]] = []

    @property
    def number(self) -> int:
        """The number of the open block; block 0 is the first pulls."""
        return len(self.played) - 1

    # Messages

    def _take(self, i: int, data: bytes) -> None:
        due, j = int(self.last[i]) + 1, int(self.group[i])
        block = self.played[due] if due <= self.number else None
        message, bits = decode(data, self.own_wire, j, due, block)
        if self.spent[i]:
            raise Malformed("a message after it had stopped")
        self.bits_up += bits
        if isinstance(message, Stopped):
            self.spent[i] = True
            return
        self.last[i], fresh = due, self._read(message, j)
        if due == self.number:
            self.replied[i], self.parts[i] = True, fresh
            return
        self._add(due, i, fresh)
        if (bets := self.bets[due]) is not None:
            self.ledger.replace(bets, j, i, self._filled(due, j), fresh)
            self._test(self.number - 1)

    def _read(self, part: Part, j: int) -> Sums:
        """The rewards of a client in a block, for all arms."""
        block, sums = self.played[part.block], Sums.none(len(self.inside))
        for arm, report in zip(np.flatnonzero(block.pulls(j)).tolist(), part.reports, strict=True):
            mirrored = not self.own_wire.binary[j] and not block.is_champion(j, arm)
            for column, value in zip(sums.parts, sums_of(report, mirrored), strict=True):
                column[self.own[j].start + arm] = value
        return sums

    def _filled(self, number: int, j: int) -> Sums:
        return filled(self.played[number], j, self.own[j].start, len(self.inside))

    def _add(self, number: int, i: int, fresh: Sums) -> None:
        """Add a client's rewards to its sums, which steer bets and give the winner's interval."""
        block, j = self.played[number], int(self.group[i])
        whole = self.sums.at((slice(None), i)).plus(fresh)
        for column, values in zip(self.sums.parts, whole.parts, strict=True):
            column[:, i] = values
        if not self.own_wire.binary[j]:
            unit = fresh.count * 2.0 ** -report_precision(block.n)
            champion = [block.is_champion(j, arm - self.own[j].start) for arm in range(len(unit))]
            self.above[:, i] += np.where(champion, 0.0, unit)
            self.below[:, i] += np.where(champion, unit, 0.0)

    def _advance(self, changed: Any) -> list[Action]:
        if self.inside.sum() == 1 and self.history:  # a late part has decided the run
            return self._won(int(np.flatnonzero(self.inside)[0]))
        rest = [int(j) for j in changed if self.active[j]]
        if any(self._stuck(j) not in (None, "votes") and self.absent[self.members[j]].any() for j in rest):
            return self._undecided("silence")  # without these clients the question would be another one
        return super()._advance(rest)

    # Blocks

    def _close_round(self) -> list[Action]:
        before, n = self.active.copy(), self.played[-1].n + self.played[-1].step
        self._settle()
        self._check_agreement()
        self._note(before, n)
        most = self.options.max_rounds
        if self.inside.sum() == 1:
            return self._won(int(np.flatnonzero(self.inside)[0]))
        if self.blocks.is_last(n):
            return self._undecided("budget")
        if most is not None and self.rounds >= most:
            return self._undecided("rounds")
        return self._play(n)

    def _settle(self) -> None:
        """Close the open block: count its parts, fill the missing ones, and test."""
        number, bets, whole = self.number, self.bets[-1], Sums.none(self.sums.count.shape)
        for i, j in enumerate(self.group.tolist()):
            part = self.parts.get(i)
            if part is not None:
                self._add(number, i, part)
            for column, values in zip(whole.parts, (part or self._filled(number, j)).parts, strict=True):
                column[:, i] = values
        self.parts = {}
        self.full += np.concatenate([self.played[number].pulls(j) for j in range(len(self.own))])
        if bets is not None:
            self.ledger.close(bets, whole)
            self._test(number)

    def _test(self, closed: int) -> None:
        """Arms leave whose wealth has reached 1/δ times their price; `closed` is the last closed block."""
        wealth, means, bets = self.ledger.log_wealth(), self._means(), self.bets[closed]
        assert bets is not None
        place = {"epoch": 0, "block": closed, "round": self.round, "champion": bets.champion}
        if closed == self.number:
            rivals = [arm for arm in bets.rivals.tolist() if self.inside[arm]]
            self.wealths.append({**place, "arm": rivals, "log_wealth": wealth[rivals].tolist()})
        gone = robust_decisions.leaves(wealth, self.inside, self.options.delta)
        for arm in np.flatnonzero(gone).tolist():
            row = {"arm": arm, "log_wealth": float(wealth[arm]), "count": int(self.full[arm])}
            seen = {"mean": float(means[arm]), "champion_mean": float(means[bets.champion])}
            self.exits.append({**place, **row, **seen})
        self.inside &= ~gone
        self.active = np.array([bool(self.inside[own].any()) for own in self.own])
        if closed < self.number:  # the open block still needs its champion
            self.active[self.pool.group[self._champion]] = True

    @property
    def _champion(self) -> int:
        """The number of the open block's champion, or −1 before the first one."""
        last = self.played[-1].last
        return -1 if last is None else self.own[last.group].start + last.arm

    def _play(self, n: int) -> list[Action]:
        """Name the champion of the next block, and publish its bets."""
        sums = self.sums
        means = robust_decisions.median_of(sums.total + 0.5, sums.count + 1, self._known())
        champion = int(bet_decisions.top(means, self.inside))
        rivals, j = (
            np.flatnonzero(self.inside & (np.arange(len(means)) != champion)),
            int(self.pool.group[champion]),
        )
        c = int(bet_decisions.ratio(len(rivals)))
        ratio = self.pool.ratio(c, j, self.pool.group[rivals])
        centres = robust_decisions.centre_level(means[champion], means[rivals], ratio)
        inside, arm = tuple(self.inside.tolist()), champion - self.own[j].start
        down = Down(inside, j, arm, c, centres=tuple(centres.tolist()))
        self.played.append(Block(self.own_wire, n, self.blocks.step(n), down))
        self.bets.append(Bets.of(down, n, self.pool))
        return self._next_round(down)

    def _known(self) -> Mask:
        """Whose means count, by arm and client: those of the arm's group that have rewards of it."""
        return np.asarray((self.sums.count > 0) & ~self.out)

    def _means(self) -> Floats:
        """The medians of the clients' means, in the middle of what rounding leaves open."""
        total = self.sums.total + (self.below - self.above) / 2
        return robust_decisions.median_of(total, self.sums.count, self._known())

    def _check_agreement(self) -> None:
        """Warn if more than f of a group's clients disagree about the mean of an arm."""
        level = FALSE_ALARM / (self.sums.count.size * (self.number + 1) * (self.number + 2))
        low, high = robust_decisions.mean_bounds(self.sums, self.above, self.below, level)
        for j in np.flatnonzero(self.active):
            mine = self.members[j]
            for arm in range(self.own[j].start, self.own[j].stop):
                if decisions.disagree(low[arm, mine], high[arm, mine], self.f):
                    self._warn(int(j), DISAGREE)

    def _note(self, before: Mask, n: int) -> None:
        """Add this round's row to the certificate."""
        groups, means = np.flatnonzero(before), self._means()
        seconds = robust_decisions.median_of(self.sums.squares, self.sums.count, self._known())
        tops = [self._top(means, int(j)) for j in groups]
        self.history.append(
            {
                "round": self.round,
                "epoch": 0,
                "block": self.number,
                "pulls": n,
                "group": groups.tolist(),
                "arm": [top - self.own[j].start for top, j in zip(tops, groups, strict=True)],
                "count": (self.full[tops] * self.pool.kept[groups]).tolist(),
                "mean": means[tops].tolist(),
                "second": seconds[tops].tolist(),
                "replies": [int(self.replied[self.members[j]].sum()) for j in groups],
                "champion": self._champion,
                "left": int(self.inside.sum()),
                "out": np.flatnonzero(before & ~self.active).tolist(),
            }
        )

    def _top(self, means: Floats, j: int) -> int:
        """The number of the top arm of a group among those that are in, or among all if none is."""
        own = self.own[j]
        inside = self.inside[own] if self.inside[own].any() else np.ones(own.stop - own.start, dtype=bool)
        return own.start + int(bet_decisions.top(means[own], inside))

    # The end

    def _won(self, arm: int) -> list[Action]:
        j = int(self.pool.group[arm])
        mean, interval = float(self._means()[arm]), self._interval(arm)
        return self._identified(j, arm - self.own[j].start, mean=mean, interval=interval)

    def _interval(self, arm: int) -> tuple[float, float]:
        """An interval for an arm's mean, whatever f clients of its group say, with missing rewards filled."""
        at = (arm, self.members[self.pool.group[arm]])
        count, total, squares, least, most = self.sums.at(at).parts
        full = np.full(len(count), float(self.full[arm]))
        complete, above, below = count == full, self.above[at], self.below[at]
        ends, level = [], bet_decisions.interval_level(self.options.alpha)
        for first, second, smallest in (
            (total - above, squares, least),
            (count - total - below, count - 2 * total + squares, 1.0 - most),
        ):
            told = Sums(full, first, second, np.where(complete, smallest, 0.0), full)
            ends.append(float(robust_decisions.lower_ends(told, self.f, level)))
        return ends[0], 1.0 - ends[1]

    def _left(self, j: int) -> list[int]:
        return np.flatnonzero(self.inside[self.own[j]]).tolist()

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "exits": self.exits, "wealth": self.wealths}
