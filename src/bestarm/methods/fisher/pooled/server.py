"""The server of pooled Fed-Fisher."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import Looks, looks_of, price_of_loss, wire_of
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.fisher.pooled.messages import PoolDown, decode_sums
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action
from bestarm.protocol.group_server import DISAGREE, GroupServer
from bestarm.protocol.messages import Stopped
from bestarm.protocol.verdict import Reason
from bestarm.stats.intervals import clopper_pearson

FALSE_ALARM = 1e-6  # the largest probability of a warning about honest clients with the same rewards


class Pool:
    """How the server pools a group's sums, and the level of each test; fixed before the data are drawn."""

    def __init__(self, layout: Layout, options: Fisher, looks: Looks) -> None:
        self.f, self.looks = options.byzantine, looks
        self.arms = sum(layout.arm_counts)
        self.group = np.repeat(np.arange(len(layout.groups)), layout.arm_counts)
        self.sizes = np.array([len(group.clients) for group in layout.groups])
        self.kept = self.sizes - 2 * self.f  # h
        ways = np.array([float(comb(int(size) - self.f, self.f)) for size in self.sizes])
        self.price, self.ways = np.outer(ways, ways), ways

    def coins(self, look: int) -> decisions.Ints:
        """h·n_r: the number of coins that a group pools for each arm."""
        return np.asarray(self.kept * self.looks.size(look))

    def level(self, look: int) -> decisions.Floats:
        """The level of a test of an arm of one group against an arm of another."""
        return np.asarray(self.looks.level(look) / self.price)

    def interval_level(self, look: int) -> decisions.Floats:
        """The level of a one-sided bound on an arm of each group: also a union over the h-subsets."""
        return np.asarray(self.looks.interval_level(look) / self.ways)

    def shortfall(
        self, look: int, low: decisions.Ints, high: decisions.Ints, race: decisions.Mask
    ) -> tuple[int, float]:
        """The arm with the best exact lower bound, and how far it can be below the best arm."""
        coins, level = self.coins(look)[self.group], self.interval_level(look)[self.group]
        first, short = fisher_decisions.pooled_shortfall(low, high, race, coins, level)
        return int(first), float(short)


class Server(GroupServer):
    """The server of pooled Fed-Fisher."""

    def __init__(self, layout: Layout, options: Fisher) -> None:
        self.own_wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        super().__init__(layout, self.own_wire, options.byzantine)
        self.options, self.pool = options, Pool(layout, options, self.looks)
        self.look = self.looks.quiet
        ends = np.cumsum(layout.arm_counts)
        self.own = [slice(int(e - k), int(e)) for e, k in zip(ends, layout.arm_counts, strict=True)]
        self.race = np.ones(self.pool.arms, dtype=bool)  # arms that have not been dropped
        self.asked: dict[int, decisions.Mask] = {self.look: self.race.copy()}
        self.sums: dict[int, decisions.Ints] = {}  # look -> (clients, arms); −1 is missing
        self.last = np.full(len(layout.clients), -1, dtype=np.int64)  # the last look of each client
        self.exits: list[dict[str, Any]] = []
        self.retested: int | None = None  # an earlier look with new replies

    def _table(self, look: int) -> decisions.Ints:
        shape = len(self.layout.clients), self.pool.arms
        return self.sums.setdefault(look, np.full(shape, -1, dtype=np.int64))

    def _take(self, i: int, data: bytes) -> None:
        own, quiet = self.own[self.group[i]], self.looks.quiet

        def asked(look: int) -> tuple[int, int]:
            return int(self.asked[look + quiet][own].sum()), self.looks.size(look + quiet)

        message, bits = decode_sums(data, self.own_wire, asked, self.look - quiet)
        if self.spent[i]:
            raise Malformed("a message after it had stopped")
        if isinstance(message, Stopped):
            self.spent[i] = True
        else:
            look, due = message.look + quiet, max(int(self.last[i]) + 1, quiet)
            if look != due:
                raise Malformed(f"sums of look {message.look}, when those of look {due - quiet} were due")
            arms = np.flatnonzero(self.asked[look][own]) + own.start
            left = self.race[arms]  # a client that is behind no longer pulls the others
            arms, sums = arms[left], np.asarray(message.sums, dtype=np.int64)[left]
            self._compare(i, look, arms, sums)
            self._table(look)[i, arms] = sums
            self.last[i] = look
            self.replied[i] = look == self.look
            if look < self.look:
                self._test(look)
                self.retested = look
        self.bits_up += bits

    def _compare(self, i: int, look: int, arms: decisions.Ints, sums: decisions.Ints) -> None:
        """Check that sums did not decrease since the last look, nor grow by more than the pulls."""
        if self.last[i] < 0:
            return
        before = self._table(int(self.last[i]))[i, arms]
        pulls = self.looks.size(look) - self.looks.size(int(self.last[i]))
        if not fisher_decisions.can_follow(before, sums, pulls):
            raise Malformed("sums that can't follow its last ones")

    def _advance(self, changed: Any) -> list[Action]:
        if self.race.sum() == 1 and self.history:  # a late reply has decided the run
            return self._won(int(np.flatnonzero(self.race)[0]), self.history[-1]["look"])
        look, self.retested = self.retested, None
        if look is not None and (first := self._close_enough(look, *self._pooled(look))) is not None:
            return self._won(first, look)
        return super()._advance([j for j in changed if self.active[j]])

    def _leave_out(self, j: int) -> None:
        super()._leave_out(j)
        self.race[self.own[j]] = False

    def _has_beaten(self, j: int) -> bool:
        group = self.pool.group
        return any(group[e["rival"]] == j != group[e["arm"]] for e in self.exits)

    def _price_of_loss(self) -> str:
        return price_of_loss(self.looks, self.options)

    def _pooled(self, look: int) -> tuple[decisions.Ints, decisions.Ints]:
        """The trimmed sums of every arm at a look, with missing sums replaced by 0 and by n."""
        n, table = self.looks.size(look), self._table(look)
        low, high = np.zeros((2, self.pool.arms), dtype=np.int64)
        for mine, own in zip(self.members, self.own, strict=True):
            sums = table[mine, own]
            low[own], high[own] = fisher_decisions.pool(sums, sums >= 0, n, self.f)
        return low, high

    def _test(self, look: int) -> None:
        """Drop the arms that lose at a look. The same look may be tested again later."""
        low, high = self._pooled(look)
        coins, level = self.pool.coins(look), self.pool.level(look)
        lost = fisher_decisions.pooled_losers(low, high, self.race, self.pool.group, coins, level)
        for arm in np.flatnonzero(lost):
            self.exits.append(self._exit(int(arm), look, low, high))
        self.race &= ~lost
        self.active = np.array([bool(self.race[own].any()) for own in self.own])

    def _exit(self, arm: int, look: int, low: decisions.Ints, high: decisions.Ints) -> dict[str, Any]:
        """An elimination with its p-value, against the rival that beats the arm most clearly."""
        group, coins, level = self.pool.group, self.pool.coins(look), self.pool.level(look)
        j = group[arm]
        rival, log_p = fisher_decisions.clearest_rival(
            high[arm], low, self.race, coins[j], coins[group], np.log(level[j, group])
        )
        k = group[rival]
        return {
            "arm": arm,
            "look": look,
            "round": self.round,
            "sum": int(high[arm]),
            "coins": int(coins[j]),
            "rival": rival,
            "rival_sum": int(low[rival]),
            "rival_coins": int(coins[k]),
            "log_level": float(np.log(level[j, k])),
            "log_p": log_p,
        }

    def _close_round(self) -> list[Action]:
        before = self.active.copy()
        self._check_agreement()
        self._test(self.look)
        low, high = self._pooled(self.look)
        self._note(before, low, high)
        alone = self.race.sum() == 1
        first = int(np.flatnonzero(self.race)[0]) if alone else self._close_enough(self.look, low, high)
        last_round = self.options.max_rounds is not None and self.rounds >= self.options.max_rounds
        code = int(fisher_decisions.outcome(first is not None, last_round=last_round))
        if first is not None:
            return self._won(first, self.look)
        if code != decisions.GO_ON:
            return self._undecided(decisions.REASON_OF[code])
        self.look += 1
        self.asked[self.look] = self.race.copy()
        return self._next_round(PoolDown(tuple(self.race.tolist())))

    def _close_enough(self, look: int, low: decisions.Ints, high: decisions.Ints) -> int | None:
        """An arm that is within ε of the best according to the intervals of a look, or None."""
        if self.options.epsilon == 0.0:
            return None
        first, short = self.pool.shortfall(look, low, high, self.race)
        return first if fisher_decisions.within(short, self.options.epsilon) else None

    def _check_agreement(self) -> None:
        """Warn if more than f of a group's clients disagree about the mean of an arm."""
        n, table = self.looks.size(self.look), self._table(self.look)
        level = FALSE_ALARM * self.looks.share(self.look) / (2 * self.pool.arms)
        for j in np.flatnonzero(self.active):
            sums = table[self.members[j], self.own[j]].T
            known = sums >= 0
            low, high = clopper_pearson(np.maximum(sums, 0), n, level / self.sizes[j])
            for arm, here in enumerate(known):
                if decisions.disagree(low[arm, here], high[arm, here], self.f):
                    self._warn(int(j), DISAGREE)

    def _won(self, arm: int, look: int) -> list[Action]:
        j = int(self.pool.group[arm])
        low, high = self._pooled(look)
        coins = int(self.pool.coins(look)[j])
        interval = None
        if self.options.epsilon > 0:
            level = self.pool.interval_level(look)[j]
            interval = (
                float(clopper_pearson(low[arm], coins, level)[0]),
                float(clopper_pearson(high[arm], coins, level)[1]),
            )
        mean = float(low[arm] + high[arm]) / (2.0 * coins)
        return self._identified(j, arm - self.own[j].start, mean=mean, interval=interval)

    def _note(self, before: decisions.Mask, low: decisions.Ints, high: decisions.Ints) -> None:
        """Add this look's row to the certificate: each group's best arm, and the dropped groups."""
        groups = np.flatnonzero(before)
        tops = [self._top(low, int(j)) for j in groups]
        self.history.append(
            {
                "round": self.round,
                "look": self.look,
                "pulls": self.looks.size(self.look),
                "group": groups.tolist(),
                "arm": [top - self.own[j].start for top, j in zip(tops, groups, strict=True)],
                "coins": self.pool.coins(self.look)[groups].tolist(),
                "lower": low[tops].tolist(),
                "upper": high[tops].tolist(),
                "replies": [int(self.replied[self.members[j]].sum()) for j in groups],
                "left": int(self.race.sum()),
                "out": np.flatnonzero(before & ~self.active).tolist(),
            }
        )

    def _top(self, low: decisions.Ints, j: int) -> int:
        """The arm of group j with the largest pooled sum."""
        sums = low[self.own[j]].astype(np.float64)
        return int(decisions.best_arm(sums, np.ones(len(sums), dtype=bool))) + self.own[j].start

    def _left(self, j: int) -> list[int]:
        return [int(a) for a in np.flatnonzero(self.race[self.own[j]])]

    def _gap(self, reason: Reason) -> float | None:
        """The gap is known only with ε > 0, which reserves a share of δ for intervals."""
        if self.options.epsilon == 0.0 or not self.history or reason in ("votes", "contradiction"):
            return None
        look = self.history[-1]["look"]
        _, short = self.pool.shortfall(look, *self._pooled(look), self.race)
        return min(max(short, 0.0), 1.0)

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "exits": self.exits}
