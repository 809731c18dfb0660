"""All clients of Fed-Bet at once, as arrays of (client, arm); see ``protocol.crowd``.

It does what ``Client`` does for each of them, step by step in the same order, for runs without ε, budget and
filling. Decisions are made in ``decisions``, and messages are encoded by the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.batches import note_batch, spread
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.client import Champion
from bestarm.methods.bet.decisions import Bets
from bestarm.methods.bet.downlink import Down, Expected, Last, Named, Renamed, decode_down
from bestarm.methods.bet.levels import Report, Standing, summary_levels
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.uplink import MOST_SUPPLY, Context, Notice, Part, Summary, Tag, Uplink, encode
from bestarm.problem.layout import Layout
from bestarm.protocol.crowd import Said
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.events import Pull, Pulled
from bestarm.protocol.rounds import one_arm
from bestarm.stats.sums import Sums


class Crowd:
    """One client per group, none of which lies."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.options, self.blocks, self.wire = options, Blocks(options), wire_of(layout, options)
        counts = np.array(layout.arm_counts)
        shape = (len(counts), int(counts.max()))
        self.inside: Mask = np.arange(shape[1]) < counts[:, None]
        self.binary = np.array(layout.binary)
        self.supply = np.full(shape, MOST_SUPPLY)
        self.told_supply: list[list[int | None]] = [[] for _ in counts]
        self.there = np.ones(len(counts), dtype=bool)  # clients that have not left
        self.sums, self.fresh = Sums.none(shape), Sums.none(shape)  # earlier blocks, and this one
        self.log_wealth = np.zeros(shape)
        self.known = counts.copy()  # arms that are in, as the server knows it
        self.told = counts.copy()  # what it knows once the block is closed
        self.contested: Mask = np.ones(len(counts), dtype=bool)
        self.pulls: dict[int, Pull] = {}
        self.block, self.naming, self.n, self.times_heard = 0, 0, 0, 0
        self.step, self.ratio = self.blocks.n1, 1
        self.champion: Champion | None = None
        self.closed: Champion | None = None
        self.bets: Bets | None = None  # against all rivals, in the order of ``_rivals``
        self.made = np.zeros((2, len(counts)), dtype=np.int64)  # first pulls, and pulls in blocks
        self.batches: list[list[dict[str, Any]]] = [[] for _ in counts]
        self.wealths: list[list[dict[str, Any]]] = [[] for _ in counts]
        self.exits: list[list[dict[str, Any]]] = [[] for _ in counts]
        self.messages: dict[tuple[object, ...], bytes] = {}  # of the open block, by what they say
        self.plans: dict[tuple[int, ...], Pull] = {}

    def local(self, client: int) -> dict[str, Any]:
        """A client's part of the certificate, as plain values."""
        columns = ("arm", "epoch", "block", "pulls", "log_wealth", "champion")
        return {
            "pulls": self.made[:, client].tolist(),
            "supply": self.told_supply[client],
            "batches": self.batches[client],
            "wealth": self.wealths[client],
            "exits": {c: [row[c] for row in self.exits[client]] for c in columns},
        }

    # Events

    def start(self, supply: Sequence[tuple[int | None, ...]]) -> Said:
        """Begin the first pulls."""
        for i, left in enumerate(supply):
            self.told_supply[i] = list(left)
            self.supply[i, : len(left)] = [MOST_SUPPLY if n is None else min(n, MOST_SUPPLY) for n in left]
        return self._pull(self.there.copy())

    def took(self, rewards: Mapping[int, Pulled]) -> Said:
        """Take the rewards of all outstanding pulls."""
        asked, self.pulls = self.pulls, {}
        clients = [i for i in rewards for _ in asked[i].arms]
        arms = [a for i in rewards for a in asked[i].arms]
        new = Sums.none(self.log_wealth.shape)
        new.count[clients, arms] = [n * pulled.times for i, pulled in rewards.items() for n in asked[i].each]
        new.total[clients, arms] = [x for pulled in rewards.values() for x in pulled.sums]
        rich = [(pulled.squares or pulled.sums) for pulled in rewards.values()]
        new.squares[clients, arms] = [x for row in rich for x in row]
        new.least[clients, arms] = [x for p in rewards.values() for x in (p.least or (0.0,) * len(p.sums))]
        new.most[clients, arms] = [x for p in rewards.values() for x in (p.most or (1.0,) * len(p.sums))]
        self.fresh = self.fresh.plus(new)
        self.supply -= new.count.astype(np.int64)
        self.made[min(self.block, 1)] += new.count.sum(axis=1).astype(np.int64)
        for i, pulled in rewards.items():
            note_batch(self.batches[i], self.times_heard, asked[i], pulled)
        who = np.zeros(len(self.there), dtype=bool)
        who[list(rewards)] = True
        return self._pull(who)

    def heard(self, data: bytes) -> Said:
        """All clients that have arms in hear a message of the server."""
        champion, closed = (None if c is None else c.name for c in (self.champion, self.closed))
        at = Expected(self.wire, champion, closed, self.n, self.step, self.ratio * self.step)
        message = decode_down(data, at)
        self.pulls = {}
        self.messages.clear()
        self.times_heard += 1
        match message:
            case Last(ended, report, _):
                return self._end(ended, report)
            case Down(report, named, _):
                self._close(report)
                self.block, self.naming = self.block + 1, 0
                return self._play(named)
            case Renamed(named):
                self.naming += 1
                return self._play(named)
        return []  # the end

    # Who plays

    def _rivals(self) -> Mask:
        """The arms that play against the champion."""
        rivals = self.inside.copy()
        if self.champion is not None:
            rivals[self.champion.name] = False
        return rivals

    def _play(self, named: Named) -> Said:
        """Begin the block of a champion, after saying at once what the server can't wait for."""
        said: dict[int, list[bytes]] = {}
        if self.closed is not None and self.naming == 0:
            left = np.zeros(len(self.there), dtype=np.int64)
            left[self.closed.group] = self.inside[self.closed.name]
            tells = self.there & ~self.contested & (self.known != left)
            self.known[tells] = left[tells]
            for i in np.flatnonzero(tells).tolist():
                said[i] = [self._message(i, Notice(gone=True))]
        self.there &= self.inside.any(axis=1)
        if named.standing is None:
            self.champion = self.closed
        else:
            self.champion = Champion.of(named.group, named.standing, self.n)
        assert self.champion is not None
        self.ratio = named.ratio
        self.step = self.step if named.step is None else named.step
        plays, home = self.there.copy(), self.champion.group
        if plays[home] and not self.inside[self.champion.name]:  # another champion will be named
            plays[home] = False
            others = self.inside.copy()
            if self.closed is not None:
                others[self.closed.name] = False
            if others[home].any():
                said.setdefault(home, []).append(self._message(home, Notice(standing=self._next(others))))
        rivals = np.nonzero(self._rivals())
        self.bets = None
        if len(rivals[0]):
            ratio, own = np.full(len(rivals[0]), self.ratio), self.sums.at(rivals)
            self.bets = bet_decisions.bets(self.champion.sums, own, ratio, self.n, slope=self.blocks.slope)
        for i, payload in self._pull(plays):
            said.setdefault(i, []).append(payload)
        return [(i, payload) for i in sorted(said) for payload in said[i]]

    def _next(self, others: Mask) -> Standing:
        """The standing of the top arm of the named champion's client, which has left, among these."""
        assert self.champion is not None
        top, mean, second = self._tops(self.sums, others)
        home = self.champion.group
        arm = int(top[home])
        return Standing.of(arm, float(mean[home]), float(second[home]), self.n, bool(self.binary[home]))

    def _tops(self, sums: Sums, among: Mask) -> tuple[Ints, Floats, Floats]:
        """The top arm of each client among these, with its estimated mean and second moment."""
        top = bet_decisions.top(bet_decisions.rank_of(sums), among)
        at = np.arange(len(top)), top
        both = (bet_decisions.estimate(sums.count, x)[at] for x in (sums.total, sums.squares))
        return top, next(both), next(both)

    # Pulling

    def _pull(self, who: Mask) -> Said:
        """Let these clients make the pulls of the block that are missing, or send their part."""
        need = np.where(self._rivals() & who[:, None], self.step, 0)
        if self.champion is not None and who[self.champion.group]:
            need[self.champion.name] = self.ratio * self.step
        missing = np.where(who[:, None], need - self.fresh.count.astype(np.int64), 0)
        if self.block == 0:
            missing = np.minimum(missing, self.supply)
        pulls = missing.any(axis=1)
        for i in np.flatnonzero(pulls).tolist():
            binary = bool(self.binary[i])
            key = (*missing[i].tolist(), binary)
            if key not in self.plans:
                self.plans[key] = spread(missing[i], moments=not binary)
            self.pulls[i] = self.plans[key]
        return self._report(who & ~pulls)

    def _report(self, who: Mask) -> Said:
        """The parts of the block of these clients."""
        if not who.any():
            return []
        now, among = self.sums.plus(self.fresh), self._rivals()
        if self.champion is not None:
            among &= bet_decisions.leads(now, self.champion.sums, self.options.epsilon)
        leads = np.asarray(among.any(axis=1))
        top, mean, second = (part.tolist() for part in self._tops(now, among))
        told = self.inside.sum(axis=1)
        self.told[who] = told[who]
        scarce = np.where(self.inside, self.supply.clip(0), MOST_SUPPLY).min(axis=1)
        home = -1 if self.champion is None else self.champion.group
        said = []
        for i in np.flatnonzero(who).tolist():
            report = standing = None
            if i == home:
                report = self._reported()
            if leads[i]:
                standing = Standing.of(top[i], mean[i], second[i], self.n + self.step, bool(self.binary[i]))
            left = None if told[i] == self.known[i] else int(told[i])
            supply = int(scarce[i]) if self.wire.finite else None
            said.append((i, self._message(i, Part(left, standing, report, supply))))
        return said

    def _reported(self) -> Report:
        """The champion's rewards of the block."""
        assert self.champion is not None
        _, total, squares, least, _ = (float(part[self.champion.name]) for part in self.fresh.parts)
        binary = bool(self.binary[self.champion.group])
        return Report.of(self.ratio * self.step, self.n, total, squares, least, binary)

    def _message(self, i: int, message: Uplink) -> bytes:
        """The payload of a message of client i; most clients say the same thing."""
        report = count = None
        if self.champion is not None and self.champion.group == i:
            report = self.ratio * self.step
        if self.closed is not None and self.closed.group == i:
            count = int(self.sums.count[self.closed.name])
        known, arms = int(self.known[i]), self.wire.arm_counts[i]
        key = (message, known, arms, bool(self.binary[i]), report, count, self.naming)
        if key not in self.messages:
            tag = Tag(0, self.naming)
            at = Context(self.wire, i, tag, self.n, self.step, known, report, count, self.block)
            self.messages[key] = encode(message, at)[0]
        return self.messages[key]

    # The end of a block

    def _close(self, report: Report | None) -> None:
        """Take this block's rewards, update the wealths, and let the arms leave that have lost."""
        if self.champion is not None and report is not None:
            self._settle(self.champion, report)
            self.champion = self.champion.plus(report)
        self.known = np.where(self.there, self.told, self.known)
        self.sums, self.fresh = self.sums.plus(self.fresh), Sums.none(self.log_wealth.shape)
        self.n += self.step
        self.step = self.blocks.step(self.n)
        self.closed, self.contested = self.champion, np.asarray(self._rivals().any(axis=1))

    def _settle(self, champion: Champion, report: Report) -> None:
        """Update the wealths of the rivals that played this block."""
        rivals = self._rivals()
        at = np.nonzero(rivals)
        if len(at[0]):
            assert self.bets is not None
            told = dataclasses.replace(champion, sums=Sums.none(())).plus(report).sums
            self.log_wealth[at] += bet_decisions.log_factor(self.bets, told, self.fresh.at(at))
        gone = rivals & bet_decisions.leaves(self.log_wealth, self.options.delta)
        place = {"epoch": 0, "block": self.block, "pulls": self.n + self.step}
        arms, wealth = at[1].tolist(), self.log_wealth[at].tolist()
        ends = np.cumsum(rivals.sum(axis=1)).tolist()
        for i in np.flatnonzero(self.there).tolist():
            own = slice(ends[i - 1] if i else 0, ends[i])
            columns = {"arm": arms[own], "log_wealth": wealth[own]}
            self.wealths[i].append({**place, "champion": list(champion.name), **columns})
        for i, arm in zip(*(part.tolist() for part in np.nonzero(gone)), strict=True):
            row = {"arm": arm, **place, "log_wealth": float(self.log_wealth[i, arm])}
            self.exits[i].append({**row, "champion": list(champion.name)})
        self.inside &= ~gone

    def _end(self, ended: bool, report: Report | None) -> Said:
        """Update the wealths if the block was closed, and send the summaries."""
        if ended:
            self._close(report)
        said = []
        for i in np.flatnonzero(self.there).tolist():
            levels: tuple[int, ...] = ()
            count = None
            if self.closed is not None and self.closed.group == i:
                winner = self.sums.at(self.closed.name)
                levels = summary_levels(winner, bool(self.binary[i]))
                count = int(winner.count) if self.wire.tells_count else None
            inside = tuple(self.inside[i, : self.wire.arm_counts[i]].tolist())
            summary = Summary(inside, bool(self.contested[i]), levels, count)
            said.append((i, self._message(i, summary)))
        return said


def crowd_for(layout: Layout, options: Bet) -> Crowd | None:
    """The clients of a run as one, or None for budgets, ε and filling."""
    special = options.budget is not None or options.epsilon > 0.0 or options.silence != "wait"
    return None if special or one_arm(layout) or layout.paired else Crowd(layout, options)
