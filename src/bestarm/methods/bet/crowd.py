"""All clients of Fed-Bet at once, as arrays of (client, arm); see ``protocol.crowd``.

It does what ``Client`` does for each of them, step by step in the same order, for runs without ε, budget and
filling. Decisions are made in ``decisions``, and messages are encoded by the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.batches import spread_all
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.client import Champion
from bestarm.methods.bet.decisions import Bets
from bestarm.methods.bet.downlink import Down, Expected, Last, Named, Renamed, decode_down
from bestarm.methods.bet.levels import (
    Report,
    Standing,
    ceil_level,
    floor_level,
    standing_precision,
    summary_levels,
)
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.uplink import MOST_SUPPLY, Context, Notice, Part, Summary, Tag, Uplink, encode
from bestarm.problem.layout import Layout
from bestarm.protocol.crowd import Said
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.rounds import one_arm
from bestarm.stats.sums import Sums


@dataclasses.dataclass(frozen=True)
class _Batch:
    """The rewards of one pull of each client that pulls, and how many messages it had heard before."""

    heard: int
    times: Ints
    shares: Ints
    rewards: Sums


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
        self.times, self.shares = np.zeros(len(counts), dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.block, self.naming, self.n, self.times_heard = 0, 0, 0, 0
        self.step, self.ratio = self.blocks.n1, 1
        self.champion: Champion | None = None
        self.closed: Champion | None = None
        self.bets: Bets | None = None  # against all rivals, in the order of ``_rivals``
        self.made = np.zeros((2, len(counts)), dtype=np.int64)  # first pulls, and pulls in blocks
        self.batches: list[_Batch] = []
        self.wealths: list[list[dict[str, Any]]] = [[] for _ in counts]
        self.exits: list[list[dict[str, Any]]] = [[] for _ in counts]
        self.messages: dict[tuple[object, ...], bytes] = {}  # of the open block, by what they say

    def local(self) -> list[dict[str, Any]]:
        """Each client's part of the certificate, as plain values."""
        columns = ("arm", "epoch", "block", "pulls", "log_wealth", "champion")
        made, noted = self.made.T.tolist(), self._noted()
        return [
            {
                "pulls": made[i],
                "supply": self.told_supply[i],
                "batches": noted[i],
                "wealth": self.wealths[i],
                "exits": {c: [row[c] for row in self.exits[i]] for c in columns},
            }
            for i in range(len(made))
        ]

    def _noted(self) -> list[list[dict[str, Any]]]:
        """The rewards of each client by batch, as ``note_batch`` notes them."""
        noted: list[list[dict[str, Any]]] = [[] for _ in self.binary]
        binary = self.binary.tolist()
        for batch in self.batches:
            clients = np.flatnonzero(batch.times)
            shares, sums = batch.shares[clients], batch.rewards.at(clients)
            pulled = shares > 0
            ends = np.cumsum(pulled.sum(axis=1)).tolist()
            arms, each = np.nonzero(pulled)[1].tolist(), shares[pulled].tolist()
            parts = dict(zip(("sums", "squares", "least", "most"), sums.parts[1:], strict=True))
            columns = {name: part[pulled].tolist() for name, part in parts.items()}
            begin = 0
            for i, times, end in zip(clients.tolist(), batch.times[clients].tolist(), ends, strict=True):
                own, begin = slice(begin, end), end
                row = {"heard": batch.heard, "arms": arms[own], "each": each[own], "times": times}
                names = ("sums",) if binary[i] else tuple(columns)
                noted[i].append(row | {name: columns[name][own] for name in names})
        return noted

    # Events

    def start(self, supply: Sequence[tuple[int | None, ...]]) -> Said:
        """Begin the first pulls."""
        for i, left in enumerate(supply):
            self.told_supply[i] = list(left)
            self.supply[i, : len(left)] = [MOST_SUPPLY if n is None else min(n, MOST_SUPPLY) for n in left]
        return self._pull(self.there.copy())

    def took(self, rewards: Sums) -> Said:
        """Take the rewards of all outstanding pulls."""
        self.batches.append(_Batch(self.times_heard, self.times, self.shares, rewards))
        self.fresh = self.fresh.plus(rewards)
        new, who = rewards.count.astype(np.int64), self.times > 0
        self.supply -= new
        self.made[min(self.block, 1)] += new.sum(axis=1)
        return self._pull(who)

    def heard(self, data: bytes) -> Said:
        """All clients that have arms in hear a message of the server."""
        champion, closed = (None if c is None else c.name for c in (self.champion, self.closed))
        at = Expected(self.wire, champion, closed, self.n, self.step, self.ratio * self.step)
        message = decode_down(data, at)
        self.times = np.zeros_like(self.times)
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
        self.times, self.shares = spread_all(missing)
        return self._report(who & (self.times == 0))

    def _report(self, who: Mask) -> Said:
        """The parts of the block of these clients; those that say the same share a payload."""
        clients = np.flatnonzero(who)
        if not len(clients):
            return []
        now, among = self.sums.plus(self.fresh), self._rivals()
        if self.champion is not None:
            among &= bet_decisions.leads(now, self.champion.sums, self.options.epsilon)
        arms = self.inside.sum(axis=1)
        self.told[clients] = arms[clients]
        scarce = np.where(self.inside, self.supply.clip(0), MOST_SUPPLY).min(axis=1)
        mine = np.zeros(len(who), dtype=bool)
        if self.champion is not None:
            mine[self.champion.group] = True
        top, mean, second = self._levels(now, among)
        says = (
            mine, arms, self.known, among.any(axis=1), top, mean, second, scarce,
            self.binary, self.wire.arm_counts,
        )  # fmt: skip
        rows = np.stack([np.asarray(column, dtype=np.int64)[clients] for column in says], axis=1)
        rows[rows[:, 3] == 0, 4:7] = 0  # no standing
        rows[:, 7] *= self.wire.finite
        _, firsts, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        payloads = [self._part(int(clients[k]), rows[k].tolist()) for k in firsts]
        return [(i, payloads[k]) for i, k in zip(clients.tolist(), which.ravel().tolist(), strict=True)]

    def _levels(self, now: Sums, among: Mask) -> tuple[Ints, Ints, Ints]:
        """The top arm of each client among these, and the levels of its standing."""
        top, mean, second = self._tops(now, among)
        fine, coins = (standing_precision(self.n + self.step, binary) for binary in (False, True))
        means = np.where(self.binary, floor_level(mean, coins), floor_level(mean, fine))
        return top, means, np.where(self.binary, 0, ceil_level(second, fine))

    def _part(self, i: int, row: list[int]) -> bytes:
        """The part of client i, from its row of ``_report``."""
        mine, arms, known, leads, top, mean, second, scarce, binary, _ = row
        report = self._reported() if mine else None
        standing = None
        if leads:
            bits = standing_precision(self.n + self.step, bool(binary))
            standing = Standing(top, bits, mean, None if binary else second)
        left = None if arms == known else arms
        return self._message(i, Part(left, standing, report, scarce if self.wire.finite else None))

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
