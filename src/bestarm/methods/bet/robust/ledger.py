"""The wealth of every arm among liars: bets as published, and each client's logarithms, added up over blocks.

For each arm a and stake g there are two tables: U for the clients of a's group (a's rewards as a rival), and
V for the clients of each group that gave a champion against a (its rewards). Nothing is trimmed before all
blocks are added up: a choice of clients in each block would not be paid for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bestarm.methods.bet.groups.messages import Block
from bestarm.methods.bet.robust import decisions
from bestarm.methods.bet.robust.blocks import Pool
from bestarm.methods.bet.robust.messages import Down
from bestarm.protocol.decisions import Floats, Ints
from bestarm.stats import betting
from bestarm.stats.sums import Sums


@dataclass(frozen=True)
class Bets:
    """The bets of a block: the rivals, and for each of them a centre, the champion's stakes and its own."""

    champion: int
    rivals: Ints
    centre: Floats
    stakes: Floats
    rival_stakes: Floats

    @staticmethod
    def of(down: Down, n: int, pool: Pool) -> Bets:
        """The bets that a message of the server publishes, for a block after n pulls."""
        champion = pool.own[down.group].start + down.arm
        rivals = np.array([arm for arm in np.flatnonzero(down.inside) if arm != champion], dtype=np.int64)
        ratio, centre = (
            pool.ratio(down.ratio, down.group, pool.group[rivals]),
            decisions.centre_at(down.centres),
        )
        stakes = betting.stakes_of(centre, ratio, pool.stakes(n))
        return Bets(champion, rivals, centre, stakes, ratio[:, None] * stakes)


def filled(block: Block, group: int, start: int, arms: int) -> Sums:
    """The part of a client that has sent none: rewards of 0 for the champion, and of 1 for the rivals.

    `start` is the number of the group's first arm, `arms` the number of all arms. No rewards are worse for
    the wealth of a rival.
    """
    sums, pulls = Sums.none(arms), block.pulls(group)
    at = start + np.flatnonzero(pulls)
    champion = np.array([block.is_champion(group, arm - start) for arm in at.tolist()], dtype=bool)
    sums.count[at] = pulls[pulls > 0]
    sums.total[at] = sums.squares[at] = np.where(champion, 0.0, sums.count[at])
    sums.least[at], sums.most[at] = 0.0, 1.0
    return sums


def _column(sums: Sums) -> Sums:
    """The rewards of one client, as a table with one column."""
    return Sums(*(part[:, None] for part in sums.parts))


class Ledger:
    """The tables U and V. Arms and clients are numbered through all groups."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.arms, clients = len(pool.group), pool.members[-1].stop
        self.lost, self.gained = np.zeros((2, self.arms, clients, 0))  # U and V
        self.met = np.zeros((self.arms, len(pool.own)), dtype=bool)  # groups that gave a champion against it

    def close(self, bets: Bets, parts: Sums) -> None:
        """Add a block. `parts` has the rewards of all arms and clients; missing ones are filled."""
        more = bets.stakes.shape[-1] - self.lost.shape[-1]
        if more > 0:  # the wealth on a stake that was not used so far is its weight
            wider = ((0, 0), (0, 0), (0, more))
            self.lost, self.gained = np.pad(self.lost, wider), np.pad(self.gained, wider)
        for j, mine in enumerate(self.pool.members):
            for table, arms, values in self._bounds(bets, j, parts.at((slice(None), mine))):
                table[arms, mine, : values.shape[-1]] += values
        self.met[bets.rivals, self.pool.group[bets.champion]] = True

    def replace(self, bets: Bets, group: int, client: int, before: Sums, now: Sums) -> None:
        """Replace the filled part of a client in a closed block by the one that has come."""
        one = slice(client, client + 1)
        for sign, part in ((-1.0, before), (1.0, now)):
            for table, arms, values in self._bounds(bets, group, _column(part)):
                table[arms, one, : values.shape[-1]] += sign * values

    def _bounds(self, bets: Bets, group: int, parts: Sums) -> Iterator[tuple[Floats, Ints, Floats]]:
        """For each table, the rivals that it concerns and what the rewards of a group's clients add to it."""
        at = np.flatnonzero(self.pool.group[bets.rivals] == group)
        told, centre = parts.at(bets.rivals[at]), bets.centre[at, None]
        yield self.lost, bets.rivals[at], decisions.lost(told, bets.rival_stakes[at, None], centre)
        if self.pool.group[bets.champion] == group:
            told = parts.at(slice(bets.champion, bets.champion + 1))
            yield self.gained, bets.rivals, decisions.gained(told, bets.stakes[:, None], bets.centre[:, None])

    def log_wealth(self) -> Floats:
        """The logarithm of every arm's wealth, less that of its price: an arm leaves at 1/δ."""
        pool, f = self.pool, self.pool.f
        total = np.zeros((self.arms, self.lost.shape[-1]))
        for own, mine in zip(pool.own, pool.members, strict=True):
            total[own] += decisions.trimmed(self.lost[own, mine], f)
            total += decisions.trimmed(self.gained[:, mine], f)
        price = pool.log_price[pool.group] + self.met @ pool.log_price
        return np.asarray(decisions.log_wealth(total) - price)
