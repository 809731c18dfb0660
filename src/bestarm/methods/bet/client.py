"""The client of Fed-Bet.

It pulls its arms in blocks, keeps the wealth of the gambler against each of them, and drops an arm when that
wealth reaches 1/δ. The bets of a block are fixed when its champion is named, from rewards of earlier blocks
only. An arm that is in plays every block in full.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.block_client import BlockClient
from bestarm.methods.bet.decisions import Bets
from bestarm.methods.bet.downlink import (
    Down,
    Downlink,
    Expected,
    Last,
    Missed,
    Named,
    Renamed,
    Restart,
    decode_down,
    decode_from_outside,
)
from bestarm.methods.bet.levels import Report, Standing, summary_levels
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.uplink import (
    Context,
    Notice,
    Part,
    Stopped,
    Summary,
    Tag,
    Uplink,
    encode,
)
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.decisions import Mask
from bestarm.protocol.events import Action, Pull, Pulled, Received, Send, Start, Stop, Supply
from bestarm.protocol.machine import Transitions
from bestarm.protocol.messages import Final
from bestarm.protocol.rounds import SERVER
from bestarm.stats.sums import Sums


@dataclass(frozen=True)
class Champion:
    """The champion of a block, and its rewards as everybody knows them."""

    group: int
    arm: int
    sums: Sums

    @property
    def name(self) -> tuple[int, int]:
        return self.group, self.arm

    def plus(self, report: Report) -> Champion:
        """The same champion after a report."""
        total, squares, least = report.sums
        new = Sums(*(np.asarray(x, dtype=np.float64) for x in (report.count, total, squares, least, 1.0)))
        return dataclasses.replace(self, sums=self.sums.plus(new))

    @staticmethod
    def of(group: int, standing: Standing, pulls: int) -> Champion:
        """A champion that is new: its standing counts as the mean of this many pulls."""
        mean, second = standing.moments
        sums = Sums(*(np.asarray(x, dtype=np.float64) for x in (pulls, pulls * mean, pulls * second, 0, 1)))
        return Champion(group, standing.arm, sums)


class Client(BlockClient[Downlink | Missed | None]):
    """One client. It knows the layout, its own group and the options, but no true mean."""

    transitions: ClassVar[Transitions] = {
        ("new", Supply): frozenset({"new"}),
        ("new", Start): frozenset({"pulling", "reported", "done"}),
        ("pulling", Supply): frozenset({"pulling"}),
        ("reported", Supply): frozenset({"reported"}),
        ("left", Supply): frozenset({"left"}),
        ("done", Supply): frozenset({"done"}),
        ("pulling", Pulled): frozenset({"pulling", "reported"}),
        ("pulling", Received): frozenset({"pulling", "reported", "left", "done"}),
        ("pulling", Stop): frozenset({"reported"}),
        ("reported", Received): frozenset({"reported", "pulling", "left", "done"}),
        ("reported", Stop): frozenset({"reported"}),
        ("left", Received): frozenset({"left", "pulling", "reported", "done"}),
        ("left", Stop): frozenset({"left"}),
        ("done", Received): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, name: str, options: Bet) -> None:
        super().__init__(layout, name, options)
        self.epoch = 0  # restarts so far
        self.sent: list[Uplink] = []
        self.wealths: list[dict[str, Any]] = []
        self.exits: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        """The state before the first pulls, also after a restart."""
        self.block, self.naming, self.n = 0, 0, 0
        self.step = self.blocks.n1  # d: pulls of each rival in this block
        self.ratio = 1  # c
        self.champion: Champion | None = None
        self.closed: Champion | None = None  # the champion of the block before
        self.champions = 0  # j: how many champions were named
        self.new_champion = False  # whether the open block is the first one of its champion
        self.bets: Bets | None = None
        self.cover_bets: Bets | None = None
        self.sums, self.fresh = Sums.none(self.arms), Sums.none(self.arms)  # earlier blocks, and this one
        self.since = Sums.none(())  # rewards of the closed block's champion since it was named, if it is mine
        self.log_wealth, self.log_cover = np.zeros(self.arms), np.zeros(self.arms)
        self.inside = np.ones(self.arms, dtype=bool)
        self.covered = np.zeros(self.arms, dtype=bool)  # rest until another champion is named
        self.contested = True  # whether an arm of mine plays against the closed block's champion
        self.known = self.roster = self.arms  # arms that play, and that are in, as the server knows it
        self.filled = False  # whether the server closed the block without this client
        self.told: int | None = None  # what the server knows once the block is closed
        self.asked = None

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: its rewards by block, the wealths, and who left."""
        columns = ("arm", "epoch", "block", "pulls", "log_wealth", "champion")
        exits = {c: [row[c] for row in self.exits] for c in columns}
        return {**super().local(), "wealth": self.wealths, "exits": exits}

    @property
    def _mine(self) -> int | None:
        """The champion, if it is one of this client's arms."""
        return self.champion.arm if self.champion and self.champion.group == self.group else None

    @property
    def _others(self) -> Mask:
        """The arms that are in, without the champion."""
        others = self.inside.copy()
        if self._mine is not None:
            others[self._mine] = False
        return others

    @property
    def _rivals(self) -> Mask:
        """The arms that play against the champion."""
        return self._others & ~self.covered

    # Pulling

    def _pull(self) -> list[Action]:
        """Make the pulls of this block that are still missing, or send its part if none is."""
        need = np.where(self._rivals, self.step, 0)
        if self._mine is not None:
            need[self._mine] = self.ratio * self.step
        missing = need - self.fresh.count.astype(np.int64)
        if self.block == 0:  # later blocks are cut by the server
            missing = np.minimum(missing, self.supply)
        if not missing.any():
            return self._report()
        return self._ask(missing)

    @property
    def _first(self) -> bool:
        return self.block == 0

    def _stopped(self) -> Send:
        return self._say(Stopped())

    # Messages

    def _context(self) -> Context:
        report = None if self._mine is None else self.ratio * self.step
        tag, winner = Tag(self.epoch, self.naming), self._measured()
        count = None if winner is None else int(winner.count)
        return Context(self.wire, self.group, tag, self.n, self.step, self.known, report, count, self.block)

    def _say(self, message: Uplink) -> Send:
        self.sent.append(message)
        return Send(SERVER, *encode(message, self._context()))

    def _measured(self) -> Sums | None:
        """The rewards that the interval of the closed block's champion rests on, if it is mine."""
        if self.closed is None or self.closed.group != self.group:
            return None
        return self.since if self.wire.covers else self.sums.at(self.closed.arm)

    def _report(self) -> list[Action]:
        """Send this client's part of the block."""
        self._enter("reported")
        now, among = self.sums.plus(self.fresh), self._others
        if self.champion is not None:
            among &= bet_decisions.leads(now, self.champion.sums, self.options.epsilon)
        standing = self._top(now, among, self.n + self.step)
        report, mine = None, self._mine
        if mine is not None:
            _, total, squares, least, _ = (float(part[mine]) for part in self.fresh.parts)
            report = Report.of(self.ratio * self.step, self.n, total, squares, least, self.binary)
        self.told = int(self._rivals.sum()) + (mine is not None)
        left = None if self.told == self.known else self.told
        supply = int(self.supply[self.inside].clip(0).min()) if self.wire.finite else None
        return [self._say(Part(left, standing, report, supply))]

    def _top(self, sums: Sums, among: Mask, n: int) -> Standing | None:
        """The standing of the top arm among these after n pulls, if there is one."""
        if not among.any():
            return None
        arm = int(bet_decisions.top(bet_decisions.rank_of(sums), among))
        mean, second = (bet_decisions.estimate(sums.count, x)[arm] for x in (sums.total, sums.squares))
        return Standing.of(arm, float(mean), float(second), n, self.binary)

    def _decode(self, data: bytes) -> Downlink | Missed | Final | None:
        if self.state == "left":
            return decode_from_outside(data, self.wire, self.group)
        champion, closed = (None if c is None else c.name for c in (self.champion, self.closed))
        report = self.ratio * self.step
        message = decode_down(data, Expected(self.wire, champion, closed, self.n, self.step, report))
        closes = isinstance(message, Down) or (isinstance(message, Last) and message.closed)
        if closes and self.state == "pulling" and not self._is_filled(message):
            raise Malformed("a block that was closed without this client's part")
        return message

    def _is_filled(self, message: object) -> bool:
        return isinstance(message, Down | Last) and self.group in dict(message.filled)

    def _answer(self, message: Downlink | Missed | None) -> list[Action]:
        self.heard += 1
        match message:
            case Restart():
                self.epoch += 1
                self._begin()
                return self._pull()
            case Missed():
                self.block += 1
                return [self._say(Notice(gone=True))]
            case Last(closed, report, filled):
                self._was_filled(filled)
                return self._end(closed, report)
            case Down(report, named, filled):
                self._was_filled(filled)
                self._close(report)
                self.block, self.naming = self.block + 1, 0
                return self._play(named, changed=named.standing is not None)
            case Renamed(named):
                self.naming += 1
                return self._play(named, changed=True)
        return []

    def _was_filled(self, filled: tuple[tuple[int, int], ...]) -> None:
        """If the block is closed without this client, its rivals' missing rewards count as 1, for good."""
        self.filled = self.group in dict(filled)
        if self.filled:
            self.told, self.known = None, dict(filled)[self.group]

    def _close(self, report: Report | None) -> None:
        """Take this block's rewards, update the wealths, and let the arms leave that have lost."""
        if self.champion is not None and report is not None:
            self._settle(self.champion, report)
            if (mine := self._mine) is not None:
                before = Sums.none(()) if self.new_champion else self.since
                self.since = before.plus(self.fresh.at(mine))
            self.champion = self.champion.plus(report)
        self.known = self.known if self.told is None else self.told
        if self.new_champion:
            self.roster = self.known
        self.sums, self.fresh, self.told = self.sums.plus(self.fresh), Sums.none(self.arms), None
        self.n += self.step
        self.step = self.blocks.step(self.n)
        self.closed, self.contested = self.champion, bool(self._rivals.any())

    def _settle(self, champion: Champion, report: Report) -> None:
        """Update the wealths of the rivals that played this block."""
        rivals, delta, epsilon = np.flatnonzero(self._rivals), self.options.delta, self.options.epsilon
        if len(rivals):
            assert self.bets is not None
            told = dataclasses.replace(champion, sums=Sums.none(())).plus(report).sums
            own = self.fresh.at(rivals)
            if self.filled:
                d, ones = np.full(len(rivals), float(self.step)), np.ones(len(rivals))
                own = Sums(d, d, d, ones, ones)
            self.log_wealth[rivals] += bet_decisions.log_factor(self.bets, told, own)
            if self.cover_bets is not None:
                self.log_cover[rivals] += bet_decisions.log_factor(self.cover_bets, told, own)
        gone = self._rivals & bet_decisions.leaves(self.log_wealth, delta, epsilon)
        if epsilon > 0.0:
            self.covered |= self._rivals & bet_decisions.covered(self.log_cover, delta, self.champions)
        columns = {"arm": rivals.tolist(), "log_wealth": self.log_wealth[rivals].tolist()}
        place = {"epoch": self.epoch, "block": self.block, "pulls": self.n + self.step}
        self.wealths.append({**place, "champion": list(champion.name), **columns})
        for arm in np.flatnonzero(gone).tolist():
            wealth = float(self.log_wealth[arm])
            self.exits.append({"arm": arm, **place, "log_wealth": wealth, "champion": list(champion.name)})
        self.inside &= ~gone

    def _play(self, named: Named, changed: bool) -> list[Action]:
        """Begin the block of a champion, after saying at once what the server can't wait for."""
        notice = self._notice()
        if not self.inside.any():
            self._enter("left")
            return [Pull((), 0), *notice]
        if named.standing is None:
            self.champion = self.closed
        else:
            self.champion = Champion.of(named.group, named.standing, self.n)
        assert self.champion is not None
        self.ratio, self.new_champion = named.ratio, changed
        self.step = self.step if named.step is None else named.step
        if changed:
            self.champions += 1
        if changed and self.wire.covers:  # evidence for ε belongs to one champion
            self.log_cover[:], self.covered[:] = 0.0, False
            self.known = self.roster
        if self.champion.group == self.group and not self.inside[self.champion.arm]:
            others = self.inside.copy()
            if self.closed is not None and self._is_in(self.closed):
                others[self.closed.arm] = False  # the server knows its rewards
            if others.any():  # else it has said that no other arm is in
                notice += [self._say(Notice(standing=self._top(self.sums, others, self.n)))]
            self._enter("reported")
            return [Pull((), 0), *notice]  # another champion will be named
        self._fix_bets()
        return notice + self._pull()

    def _notice(self) -> list[Action]:
        """Say that no arm plays against the closed block's champion, if the server does not know it."""
        if self.closed is None or self.contested:
            return []
        left, others = int(self._is_in(self.closed)), int(self.inside.sum())
        if self.known == left or self.naming > 0:
            return []
        self.known = left
        return [self._say(Notice(gone=True, rests=others > left))]

    def _is_in(self, champion: Champion) -> bool:
        return champion.group == self.group and bool(self.inside[champion.arm])

    def _fix_bets(self) -> None:
        """Fix the bets of this block from the rewards of earlier blocks."""
        assert self.champion is not None
        rivals, epsilon = np.flatnonzero(self._rivals), self.options.epsilon
        self.bets = self.cover_bets = None
        if len(rivals):
            own, ratio = self.sums.at(rivals), np.full(len(rivals), self.ratio)
            slope, champion = self.blocks.slope, self.champion.sums
            self.bets = bet_decisions.bets(champion, own, ratio, self.n, slope=slope)
            if epsilon > 0.0:
                self.cover_bets = bet_decisions.bets(champion, own, ratio, self.n, epsilon, slope)

    def _end(self, closed: bool, report: Report | None) -> list[Action]:
        """Update the wealths if the block was closed, and send the summary."""
        self._enter("reported")
        if closed:
            self._close(report)
        winner = self._measured()
        levels = () if winner is None else summary_levels(winner, self.binary)
        count = int(winner.count) if winner is not None and self.wire.tells_count else None
        summary = Summary(tuple(self.inside.tolist()), self.contested, levels, count)
        return [Pull((), 0), self._say(summary)]
