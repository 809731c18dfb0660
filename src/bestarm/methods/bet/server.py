"""The server of Fed-Bet: it names champions, passes on their reports, and counts the arms that are in."""

from __future__ import annotations

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.client import Champion
from bestarm.methods.bet.downlink import Down, Last, Named, Renamed, Restart
from bestarm.methods.bet.levels import Report, Standing, summary_interval
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.uplink import (
    MOST_SUPPLY,
    Context,
    Notice,
    Part,
    Stale,
    Stopped,
    Summary,
    Tag,
    Uplink,
    decode,
)
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action
from bestarm.protocol.solo_server import SoloServer
from bestarm.protocol.verdict import Reason

UNFINISHED = Last(False)  # the open block does not count


class Server(SoloServer):
    """The server of Fed-Bet."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.own_wire = wire_of(layout, options)
        super().__init__(layout, self.own_wire)
        self.options, self.blocks = options, Blocks(options)
        self.epoch = 0
        self.ends = False  # whether summaries are collected
        self.ending: Reason | None = None  # why, unless there is a winner
        self.decoded_at: tuple[int, ...] = ()
        self.decoded: dict[tuple[object, ...], tuple[Uplink | Stale, int]] = {}  # messages to this naming
        self._begin()

    def _begin(self) -> None:
        """The state before the first standings, also after a restart."""
        self.block, self.naming, self.n = 0, 0, 0
        self.step, self.ratio = self.blocks.n1, 1
        self.champion: Champion | None = None
        self.closed: Champion | None = None
        self.there = self.active.copy()  # clients that have arms in
        # Arms that play against the champion of the closed block, and that are in, as far as clients told.
        self.left = np.where(self.active, self.layout.arm_counts, 0)
        self.roster = self.left.copy()
        self.told: dict[int, int] = {}  # arms that play, by the parts of the open block
        self.candidates: dict[int, Standing] = {}  # sent in the block that was closed last, by group
        self.standings: dict[int, Standing] = {}  # sent in the open block
        self.parts: dict[int, bytes] = {}  # of the open block
        self.report: Report | None = None
        self.filled: tuple[
            tuple[int, int], ...
        ] = ()  # groups without a part, and how many of their arms play
        self.summaries: dict[int, Summary] = {}
        # Pulls of each arm, if it has never left.
        self.counts = np.zeros((len(self.left), max(self.layout.arm_counts)), dtype=np.int64)
        self.was_champion: set[int] = set()
        self.champions = self.answer = (
            0  # how many champions were named, until now and until the closed block
        )
        self.new_champion = False  # whether the open block is the first one of its champion
        self.supply: dict[int, int] = {}  # the fewest rewards that an arm of each client still has
        self.since = 0  # pulls of the closed block's champion since it was named

    def _decoded(self, j: int, data: bytes) -> tuple[Uplink | Stale, int]:
        """A message of group j and its size in bits; with thousands of clients, most send the same bytes."""
        wire, at = self.own_wire, self.context(j)
        place = self.epoch, self.block, self.naming, self.n, self.step
        if place != self.decoded_at:
            self.decoded_at, self.decoded = place, {}
        key = data, at.known, at.report, at.count, wire.arm_counts[j], wire.binary[j]
        found = self.decoded.get(key)
        if found is None:
            found = self.decoded[key] = decode(data, at)
        return found

    def context(self, j: int) -> Context:
        """What decides how the messages of group j are written now."""
        owes = self.champion is not None and self.champion.group == j
        report = self.ratio * self.step if owes else None
        tag, known = Tag(self.epoch, self.naming), int(self._playing[j])
        count = self._measured_count() if self.closed is not None and self.closed.group == j else None
        return Context(self.own_wire, j, tag, self.n, self.step, known, report, count, self.block)

    @property
    def _playing(self) -> decisions.Ints:
        """How many arms play against the champion of the open block; a new one wakes the covered arms."""
        woken = self.own_wire.covers and self.new_champion
        return np.where(self.there, self.roster, 0) if woken else self.left

    def _measured_count(self) -> int:
        """The rewards of the closed block's champion that its interval rests on."""
        assert self.closed is not None
        return self.since if self.own_wire.covers else int(self.counts[self.closed.name])

    def _expects(self, sender: str, data: bytes) -> bool:
        j = self.layout.group_of.get(sender)
        return j is not None and bool(self.there[j] or self.waiting[j])

    def _received(self, sender: str, data: bytes) -> list[Action]:
        try:
            return self._take(self.layout.group_of[sender], data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._undecided("votes")

    def _take(self, j: int, data: bytes) -> list[Action]:
        message, bits = self._decoded(j, data)
        if isinstance(message, Summary):
            self.bits_after += bits
            self._check(j, message)
            self.summaries[j] = message
            self.there[j] = self.active[j] = any(message.inside)
            return self._arrived(j)
        self.bits_up += bits
        match message:
            case _ if self.ends or isinstance(message, Stale):
                return []  # sent before it heard the server's last message
            case Stopped():
                return self._finish("budget")
            case Notice():
                return self._notice(j, message)
            case Part():
                return self._part(j, data, message)
        raise AssertionError(message)

    def _part(self, j: int, data: bytes, part: Part) -> list[Action]:
        if not self.waiting[j]:
            if self.parts.get(j) == data:
                return []  # the same bytes again
            raise Malformed("a second, different part of a block")
        if part.left is not None:
            self.told[j] = part.left
        if part.standing is not None:
            self.standings[j] = part.standing
        if part.report is not None:
            self.report = part.report
        if part.supply is not None:
            self.supply[j] = part.supply
        self.parts[j] = data
        return self._arrived(j)

    def _arrived(self, j: int) -> list[Action]:
        if self.waiting[j]:
            self.waiting[j] = False
            self.missing -= 1
        return self._close_if_complete()

    def _notice(self, j: int, notice: Notice) -> list[Action]:
        """A client has lost its arms, or the champion that was named is not in."""
        if self.closed is None or self.champion is None or j in self.parts:
            raise Malformed("a notice that does not follow a block")
        owner = self.champion.group == j
        if notice.gone:
            left = int(self.closed.group == j)
            if left >= self.left[j]:
                raise Malformed("a notice that its arms have left, for the second time")
            self.left[j] = left
            self.there[j] = self.active[j] = left > 0 or notice.rests
            if not notice.rests:
                self.candidates.pop(j, None)
        elif not owner or notice.standing is None or notice.standing.arm == self.champion.arm:
            raise Malformed("a notice without news")
        if self.left.sum() == 1:
            return self._finish(None)
        lost = not self.there[j] or (
            notice.gone and not notice.rests and self.champion.name != self.closed.name
        )
        if owner and (lost or notice.standing is not None):
            return self._rename(notice.standing)
        return [] if self.there[j] else self._arrived(j)

    # Rounds

    def _patience_over(self) -> list[Action]:
        """Close the block without the missing parts, if that was agreed before the run."""
        if not self.own_wire.fills or self.champion is None or self.ends:
            return super()._patience_over()
        silent = [int(j) for j in np.flatnonzero(self.waiting)]
        self.filled = tuple((j, int(self._playing[j])) for j in silent)
        if self.report is None:
            binary = self.own_wire.binary[self.champion.group]
            self.report = Report.filled(self.ratio * self.step, self.n, binary)
        self.waiting[:], self.missing = False, 0
        return self._close_round()

    def _close_round(self) -> list[Action]:
        if self.ends:
            self._note([])
            return self._conclude()
        self._count_pulls()
        self.n += self.step
        self.left = self._playing.copy()
        for j, left in self.told.items():
            self.left[j] = left
        if self.champion is not None:
            assert self.report is not None
            self.champion = self.champion.plus(self.report)
            self.since = self.report.count + (0 if self.new_champion else self.since)
            self.roster = self.left.copy() if self.new_champion else self.roster
            self.answer = self.champions
        report, self.closed = self.report, self.champion
        filled, self.filled = self.filled, ()
        self._note(self._seen())
        self.candidates = self.standings
        self._open_block()
        most = self.options.max_rounds
        if self.closed is not None and self.left.sum() == 1:
            return self._finish(None, Last(True, report, filled))
        if self.blocks.is_last(self.n):
            return self._finish("budget", Last(True, report, filled))
        if most is not None and self.rounds >= most - 1:
            return self._finish("rounds", Last(True, report, filled))
        supply, played = self._supply(), self.step
        if supply == 0 and played == 0:  # arms without rewards have had the time to leave
            return self._finish("budget", Last(True, report, filled))
        self.step = min(self.blocks.step(self.n), supply)
        self.block, self.naming = self.block + 1, 0
        named = self._name()
        return self._next_round(self.there.copy(), Down(report, named, filled))

    def _count_pulls(self) -> None:
        self.counts[self.there] += self.step
        if self.champion is not None:
            self.counts[self.champion.name] += (self.ratio - 1) * self.step

    def _name(self) -> Named:
        """Name a champion: that of the closed block, or one whose standing was sent in it."""
        epsilon = self.options.epsilon
        places: list[tuple[int, int, Standing | None]] = [
            (j, sent.arm, sent)
            for j, sent in self.candidates.items()
            if self.there[j] and (epsilon == 0.0 or self._leads(sent))
        ]
        moments = np.array([sent.moments for _, _, sent in places if sent is not None]).reshape(-1, 2)
        ranks: list[float] = bet_decisions.rank_at(moments[:, 0], moments[:, 1], self.n).tolist()
        if self.closed is not None and (epsilon == 0.0 or not places):
            places.append((*self.closed.name, None))
            ranks.append(float(bet_decisions.rank_of(self.closed.sums)))
        order = sorted(range(len(places)), key=lambda k: places[k][:2])  # ties: the first in the layout
        best = int(bet_decisions.named(np.array(ranks)[order], np.ones(len(order), dtype=bool)))
        group, arm, standing = places[order[best]]
        self.champion = self.closed if standing is None else Champion.of(group, standing, self.n)
        self.was_champion.add(group)
        self.new_champion = standing is not None or self.naming > 0
        self.champions += self.new_champion
        self.ratio = int(bet_decisions.ratio(self._playing.sum() - 1))
        if not self.own_wire.finite:
            return Named(group, arm, standing, self.ratio)
        self.ratio = max(1, min(self.ratio, self.supply[group] // max(self.step, 1)))
        return Named(group, arm, standing, self.ratio, self.step)

    def _leads(self, standing: Standing) -> bool:
        """Whether an arm is far enough ahead of the closed block's champion to replace it, with ε > 0."""
        if self.closed is None:
            return True
        champion, epsilon = self.closed.sums, self.options.epsilon
        return bool(bet_decisions.leads_at(*standing.moments, self.n, champion, epsilon))

    def _supply(self) -> int:
        """The fewest rewards that an arm still has, as far as clients told: what the next block may take."""
        if not self.own_wire.finite:
            return MOST_SUPPLY
        return min(self.supply[int(j)] for j in np.flatnonzero(self.there))

    def _rename(self, standing: Standing | None) -> list[Action]:
        """Name another champion of the same block, because the one that was named is not in.

        Parts of the block that have arrived are discarded, and its standings, which may depend on it.
        """
        assert self.champion is not None
        self._note([])
        self.candidates.pop(self.champion.group, None)
        if standing is not None:
            self.candidates[self.champion.group] = standing
        self.naming += 1
        self._open_block()
        return self._next_round(self.there.copy(), Renamed(self._name()))

    def _open_block(self) -> None:
        self.parts, self.standings, self.told, self.report = {}, {}, {}, None

    def _seen(self) -> list[tuple[int, int, float, float, float]]:
        """What this round told about arms: group, arm, pulls, sum and squares."""
        rows = []
        for j, standing in self.standings.items():
            mean, second = standing.moments
            rows.append((j, standing.arm, float(self.n), self.n * mean, self.n * second))
        if self.closed is not None:
            count, total, squares, _, _ = (float(part) for part in self.closed.sums.parts)
            rows = [row for row in rows if row[0] != self.closed.group]
            rows.append((*self.closed.name, count, total, squares))
        return sorted(rows)

    def _note(self, rows: list[tuple[int, int, float, float, float]]) -> None:
        """Add this round's row to the certificate."""
        self.history.append(
            {
                "round": self.round,
                "epoch": self.epoch,
                "block": self.block,
                "pulls": self.n,
                "group": [row[0] for row in rows],
                "arm": [row[1] for row in rows],
                "count": [int(row[2]) for row in rows],
                "mean": [row[3] / row[2] for row in rows],
                "second": [row[4] / row[2] for row in rows],
                "champion": None if self.closed is None else list(self.closed.name),
                "there": self.there.tolist(),
                "out": [],
            }
        )

    # The end

    def _finish(self, reason: Reason | None, last: Last = UNFINISHED) -> list[Action]:
        """Ask for summaries. Without a reason, the closed block's champion has won."""
        self.ends, self.ending = True, reason
        most = self.options.max_rounds
        if most is not None and self.rounds >= most:
            return self._conclude()
        return self._next_round(self.there.copy(), last)

    def _conclude(self) -> list[Action]:
        """The verdict: the closed block's champion, if no other arm plays against it any more."""
        if self.closed is None or any(self._contested(int(j)) for j in np.flatnonzero(self.there)):
            return super()._undecided(self.ending or "silence")
        group, arm = self.closed.name
        summary, options = self.summaries.get(group), self.options
        mean, interval = None, None
        if summary is not None and (count := self._count_in(summary)) > 0:
            level = bet_decisions.interval_level(options.alpha, options.epsilon, self.answer)
            mean, interval = summary_interval(summary.levels, count, level)
        return self._identified(group, arm, mean=mean, interval=interval)

    def _count_in(self, summary: Summary) -> int:
        """The rewards behind a summary of the closed block's champion."""
        return self._measured_count() if summary.count is None else summary.count

    def _contested(self, j: int) -> bool:
        """Whether an arm of a client plays against the closed block's champion, as far as it told."""
        assert self.closed is not None
        if j in self.summaries:
            return self.summaries[j].plays
        return bool(self.left[j] > int(self.closed.group == j))

    def _check(self, j: int, summary: Summary) -> None:
        """Refuse a summary that contradicts what the client said before."""
        if not self.ends or not self.waiting[j]:
            raise Malformed("a summary that nobody asked for")
        inside, mine = sum(summary.inside), self.closed is not None and self.closed.group == j
        fits = inside <= (self.roster if self.own_wire.covers else self.left)[j]
        if mine:
            assert self.closed is not None
            fits = fits and summary.inside[self.closed.arm]
            sums_fit = not self.own_wire.binary[j] or summary.levels[0] <= self._count_in(summary)
            fits = fits and sums_fit
        if not fits or (summary.plays and inside <= int(mine)):
            raise Malformed("a summary that contradicts its earlier messages")

    def _undecided(self, reason: Reason) -> list[Action]:
        if self.ends and reason != "votes":
            return self._conclude()
        return super()._undecided(reason)

    def _left(self, j: int) -> list[int]:
        if j in self.summaries:
            return [arm for arm, there in enumerate(self.summaries[j].inside) if there]
        if not self.there[j]:
            return []
        alone = not self.own_wire.covers and self.left[j] == 1
        if alone and self.closed is not None and self.closed.group == j:
            return [self.closed.arm]
        return list(range(self.layout.arm_counts[j]))

    def _dropped(self, client: str) -> list[Action]:
        """Without a client that was never champion, go on; else arms may have lost to it: begin again."""
        j = self.layout.group_of[client]
        self._leave_out(j)
        if j in self.was_champion:
            return self._restart()
        self.left[j], self.there[j] = 0, False
        self.summaries.pop(j, None)
        if self.left.sum() == 1 and self.closed is not None and not self.ends:
            return self._finish(None)
        return self._arrived(j) if self.waiting[j] else []

    def _has_beaten(self, j: int) -> bool:
        """No arm stays out because of a group that is left out."""
        return False

    def _restart(self) -> list[Action]:
        """Begin again with fresh pulls and wealth 1: arms that lost to the dropped client may be the best."""
        self.active = np.array(
            [not self.gone.issuperset(group.clients) for group in self.layout.groups], dtype=bool
        )
        if not self.active.any() or self.ending is not None:
            self.there, self.closed = self.active.copy(), None
            self.summaries.clear()
            return super()._undecided(self.ending or "silence")
        self.epoch, self.ends = self.epoch + 1, False
        self._begin()
        return self._next_round(self.there.copy(), Restart())
