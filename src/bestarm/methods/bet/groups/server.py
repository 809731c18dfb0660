"""The server of Fed-Bet for groups of several clients: it adds up their rewards and keeps all wealths.

Every client of a group makes the same number of pulls in a block, so the mean of an arm is the average over
the clients of its group. The bets of a block are fixed before its pulls, and the server waits for all parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.decisions import Bets
from bestarm.methods.bet.groups.messages import CONFIRMED, Block, Down, Part, Restart, decode, sums_of
from bestarm.methods.bet.levels import report_precision
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.events import Action
from bestarm.protocol.messages import Stopped
from bestarm.protocol.rounds import DROPPED, RoundServer
from bestarm.stats import betting
from bestarm.stats.sums import Sums

AGAIN = f"{DROPPED}: the others begin again with fresh pulls"


class Server(RoundServer):
    """The server of Fed-Bet for groups of several clients. Arms are numbered through all groups."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.own_wire = wire_of(layout, options)
        super().__init__(layout, self.own_wire)
        self.options, self.blocks = options, Blocks(options)
        counts = layout.arm_counts
        self.own = [slice(a, b) for a, b in itertools.pairwise(itertools.accumulate(counts, initial=0))]
        self.group = np.repeat(np.arange(len(counts)), counts)
        self.binary = np.array(self.own_wire.binary)[self.group]
        self.epoch = 0  # restarts so far
        self.confirmed = dict.fromkeys(layout.clients, 0)  # how many of them each client has confirmed
        self.exits: list[dict[str, Any]] = []
        self.wealths: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        """The state before the first pulls, also after a restart."""
        groups = self.layout.groups
        self.clients = [tuple(name for name in group.clients if name not in self.gone) for group in groups]
        self.sizes = np.array([len(names) for names in self.clients])
        self.inside = self.sizes[self.group] > 0
        self.block, self.number = Block(self.own_wire, 0, self.blocks.n1), 0
        self.sums = Sums.none(len(self.group))  # of earlier blocks
        # How much larger than its true value each sum may be because of rounding, and how much smaller.
        self.above, self.below = np.zeros((2, len(self.group)))
        self.log_wealth = np.zeros(len(self.group))
        self.bets: Bets | None = None
        self._wait()

    def _wait(self) -> None:
        """Wait for all clients that have arms in."""
        self.active = np.array([bool(self.inside[own].any()) for own in self.own])
        self.parts: dict[str, Part] = {}
        self.waiting = {
            name for names, there in zip(self.clients, self.active, strict=True) if there for name in names
        }

    # Messages

    @property
    def ticking(self) -> bool:
        return self.round > 0 or bool(self.parts)

    def missing_clients(self) -> list[str]:
        return [] if self.state == "done" else [name for name in self.layout.clients if name in self.waiting]

    def _expects(self, sender: str, data: bytes) -> bool:
        j = self.layout.group_of.get(sender)
        return j is not None and bool(self.active[j])

    def _received(self, sender: str, data: bytes) -> list[Action]:
        if self.confirmed[sender] < self.epoch:  # whatever it sent before the restart is out of date
            self.confirmed[sender] += data == CONFIRMED
            self.bits_up += 8 * len(data)
            return []
        try:
            return self._take(sender, data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._undecided("votes")

    def _take(self, sender: str, data: bytes) -> list[Action]:
        message, bits = decode(data, self.block, self.layout.group_of[sender])
        if sender in self.parts and self.parts[sender] != message:
            raise Malformed("a second, different part of a block")
        self.bits_up += bits
        if isinstance(message, Stopped):
            return self._undecided("budget")
        if sender in self.parts:
            return []  # the same bytes again
        self.parts[sender] = message
        self.waiting.remove(sender)
        return [] if self.waiting else self._close_round()

    def _patience_over(self) -> list[Action]:
        return self._undecided("silence")

    def _waits_on(self, spent: bool) -> bool:
        return not spent

    # Blocks

    def _pooled(self) -> Sums:
        """The rewards of all arms in this block, added up over the clients of each group."""
        sums, mirrored = Sums.none(len(self.group)), self._mirrored
        for j, names in enumerate(self.clients):
            arms = np.flatnonzero(self.block.pulls(j)) + self.own[j].start
            for name in names if len(arms) else ():
                for arm, report in zip(arms.tolist(), self.parts[name].reports, strict=True):
                    count, total, squares, least, most = sums_of(report, bool(mirrored[arm]))
                    sums.count[arm] += count
                    sums.total[arm] += total
                    sums.squares[arm] += squares
                    sums.least[arm] = min(sums.least[arm], least)
                    sums.most[arm] = max(sums.most[arm], most)
        return sums

    @property
    def _champion(self) -> int:
        """The number of this block's champion, or −1 before the first one."""
        last = self.block.last
        return -1 if last is None else self.own[last.group].start + last.arm

    @property
    def _mirrored(self) -> Mask:
        """The arms of which clients send the sums of 1 − x."""
        return np.asarray(~self.binary & (np.arange(len(self.group)) != self._champion))

    def _close_round(self) -> list[Action]:
        fresh, before = self._pooled(), self.active
        self._settle(fresh)
        self.sums = self.sums.plus(fresh)
        unit = np.where(self.binary, 0.0, fresh.count * 2.0 ** -report_precision(self.block.n))
        self.above += np.where(self._mirrored, unit, 0.0)
        self.below += np.where(self._mirrored, 0.0, unit)
        n, parts = self.block.n + self.block.step, self.parts
        self._wait()
        self._note(before, n)
        supply = {name: _supply(parts[name]) for name in self.waiting}
        most = self.options.max_rounds
        if self.inside.sum() == 1:
            return self._won(int(np.flatnonzero(self.inside)[0]))
        if self.blocks.is_last(n) or min(supply.values()) == 0:
            return self._undecided("budget")
        if most is not None and self.rounds >= most:
            return self._undecided("rounds")
        return self._play(n, supply)

    def _settle(self, fresh: Sums) -> None:
        """Multiply the wealths by the factors of this block; arms leave whose wealth has reached 1/δ."""
        champion = self._champion
        if self.bets is None:
            return
        rivals = self._rivals(champion)
        self.log_wealth[rivals] += bet_decisions.log_factor(self.bets, fresh.at(champion), fresh.at(rivals))
        wealth = self.log_wealth[rivals]
        now = self.sums.plus(fresh)
        place = {"epoch": self.epoch, "block": self.number, "round": self.round, "champion": champion}
        self.wealths.append({**place, "arm": rivals.tolist(), "log_wealth": wealth.tolist()})
        gone = rivals[bet_decisions.leaves(wealth, self.options.delta)]
        for arm in gone.tolist():
            row = {"arm": arm, "log_wealth": float(self.log_wealth[arm]), "count": int(now.count[arm])}
            means = (float(now.total[a] / now.count[a]) for a in (arm, champion))
            self.exits.append({**place, **row, "mean": next(means), "champion_mean": next(means)})
        self.inside[gone] = False

    def _rivals(self, champion: int) -> Ints:
        """The arms that are in, without the champion."""
        rivals = self.inside.copy()
        rivals[champion] = False
        return np.flatnonzero(rivals)

    def _play(self, n: int, supply: Mapping[str, int]) -> list[Action]:
        """Name the champion of the next block after n pulls, and fix the bets from all rewards so far.

        `supply`: the fewest rewards that an arm of each client still has. The block takes no more.
        """
        champion = int(bet_decisions.top(bet_decisions.rank_of(self.sums), self.inside))
        rivals, j = self._rivals(champion), int(self.group[champion])
        step = min(self.blocks.step(n), *supply.values())
        most = min(supply[name] for name in self.clients[j]) // step
        c = min(int(bet_decisions.ratio(len(rivals))), most)
        told = step if self.own_wire.finite else None
        down = Down(tuple(self.inside.tolist()), j, champion - self.own[j].start, c, told)
        self.block, self.number = Block(self.own_wire, n, step, down), self.number + 1
        ratio = bet_decisions.pooled_ratio(c, self.sizes[j], self.sizes[self.group[rivals]])
        pulls, sums = n * int(self.sizes.max()), self.sums
        self.bets = bet_decisions.bets(
            sums.at(champion), sums.at(rivals), ratio, pulls, slope=self.blocks.slope
        )
        return self._next_round(down)

    def _next_round(self, message: Down | Restart) -> list[Action]:
        self.round += 1
        return [self._send(message)]

    def _note(self, before: Mask, n: int) -> None:
        """Add this round's row to the certificate. Its intervals are for illustration only."""
        groups = np.flatnonzero(before)
        ranks = bet_decisions.rank_of(self.sums)
        tops = [self._top(ranks, int(j)) for j in groups]
        lower, upper = self._intervals(np.array(tops), 0.05)
        self.history.append(
            {
                "round": self.round,
                "epoch": self.epoch,
                "block": self.number,
                "pulls": n,
                "group": groups.tolist(),
                "arm": [top - self.own[j].start for top, j in zip(tops, groups, strict=True)],
                "count": self.sums.count[tops].astype(int).tolist(),
                "mean": self._means(np.array(tops)).tolist(),
                "lower": lower.tolist(),
                "upper": upper.tolist(),
                "champion": self._champion,
                "left": int(self.inside.sum()),
                "out": np.flatnonzero(before & ~self.active).tolist(),
            }
        )

    def _top(self, ranks: Floats, j: int) -> int:
        """The number of the top arm of a group among those that are in, or among all if none is."""
        own = self.own[j]
        inside = self.inside[own] if self.inside[own].any() else np.ones(own.stop - own.start, dtype=bool)
        return own.start + int(bet_decisions.top(ranks[own], inside))

    # The end

    def _means(self, arms: Ints) -> Floats:
        """The means of arms, in the middle of what rounding leaves open."""
        total = self.sums.total[arms] + (self.below[arms] - self.above[arms]) / 2
        return np.asarray(total / self.sums.count[arms])

    def _intervals(self, arms: Ints, alpha: float) -> tuple[Floats, Floats]:
        """The ends of intervals, each of which contains its arm's mean with probability 1 − alpha."""
        count, total, squares, least, most = self.sums.at(arms).parts
        above, rounded = self.above[arms], (self.above + self.below)[arms]
        return betting.intervals(count, total - above, squares, least, most, alpha, rounded=rounded)

    def _won(self, arm: int) -> list[Action]:
        j, at = int(self.group[arm]), np.array([arm])
        mean, ends = (
            self._means(at).item(),
            self._intervals(at, bet_decisions.interval_level(self.options.alpha)),
        )
        interval = (ends[0].item(), ends[1].item())
        return self._identified(j, arm - self.own[j].start, mean=mean, interval=interval)

    def _left(self, j: int) -> list[int]:
        return np.flatnonzero(self.inside[self.own[j]]).tolist()

    def _has_beaten(self, j: int) -> bool:
        """No arm stays out because of a group that is left out."""
        return False

    def _dropped(self, client: str) -> list[Action]:
        """Begin again with fresh pulls and wealth 1: without this client the question is another one."""
        j = self.layout.group_of[client]
        if self.gone.issuperset(self.layout.groups[j].clients):
            self._leave_out(j)
        else:
            name = self.layout.groups[j].name
            self.warnings.append({"group": name, "round": self.round, "text": f"{client} was {AGAIN}"})
        self.epoch += 1
        self._begin()
        return self._next_round(Restart()) if self.active.any() else self._undecided("silence")

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "exits": self.exits, "wealth": self.wealths}


def _supply(part: Part) -> int:
    return MOST_SUPPLY if part.supply is None else part.supply
