"""Fed-Fisher with groups of several clients, of which up to f a group may lie: robust pooling.

At look r every client of an active group brings each arm that is still in the race to n_r pulls and sends
the sums; clients never drop arms themselves. The server sums, per arm, the middle h = G − 2f of a group's G
sums, and tests arms on h·n_r coins at level x_r/(C(G−f, f)·C(G'−f, f)), one factor for each group. Sums that
are missing are filled against rejection: with n_r for the arm that may be dropped, with 0 for its rival. So
as replies come in p only falls, and a look may be tested again: the server goes on to the next look after
G − f replies of each group, once the driver's patience is over, and uses late ones when they come.

Who lies must be fixed before the data are drawn. K, n₀, q, f and G are fixed before, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import comb
from typing import Any

import numpy as np

from bestarm.exact import clopper_pearson, fisher_pvalue
from bestarm.problem import Layout
from bestarm.protocol import decide
from bestarm.protocol.codec import Malformed
from bestarm.protocol.fisher import (
    MAX_LOOK,
    LookClient,
    Looks,
    Options,
    looks_of,
    price_of_loss,
    wire_of,
)
from bestarm.protocol.machine import (
    Action,
    Await,
    Pull,
    Send,
)
from bestarm.protocol.messages import (
    Final,
    PoolDown,
    Stopped,
    Sums,
    decode_pool_down,
    decode_sums,
    encode_sums,
)
from bestarm.protocol.rounds import DISAGREE, SERVER, GroupServer, the_end
from bestarm.protocol.verdict import Reason

FALSE_ALARM = 1e-6  # how likely honest clients that see the same rewards are to be warned of, at most


class Client(LookClient):
    """One client: it pulls what is asked for and sends the sums."""

    def __init__(self, layout: Layout, name: str, options: Options) -> None:
        self.layout, self.name, self.options = layout, name, options
        self.group = layout.group_of[name]
        self.wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        before = sum(layout.arm_counts[: self.group])
        self.own = slice(before, before + layout.arm_counts[self.group])
        self.sums = np.zeros(layout.arm_counts[self.group], dtype=np.int64)
        self.arms = tuple(range(len(self.sums)))  # that it pulls for this look
        self.asked = self.arms  # of the newest look
        self.look = self.newest = self.looks.quiet
        self.state = "new"
        self.count = 0
        self.pulls = 0
        self.spent = False  # makes no more pulls
        self.stopped = False  # has said so
        self.sent: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []  # (look, arms, sums)
        self.ignored = 0

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: what it sent, look by look, and its pulls."""
        return {
            "count": self.count,
            "pulls": self.pulls,
            "sent": {c: [plain[k] for plain in self.sent] for k, c in enumerate(COLUMNS)},
        }

    def _pull(self) -> list[Action]:
        """Bring the arms that were asked for to the size of the newest look."""
        if self.spent:
            return self._stop()
        self.look, self.arms = self.newest, self.asked
        size = self.looks.size(self.look)
        cost = (size - self.count) * len(self.arms)
        if size > MAX_LOOK or (self.options.budget is not None and self.pulls + cost > self.options.budget):
            return self._stop()
        if cost == 0:  # two looks of one size: n₀ is tiny
            return self._report()
        self.state = "pulling"
        return [Pull(self.arms, size - self.count)]

    def _stop(self) -> list[Action]:
        self.state, self.spent = "reported", True
        if not self.wire.stoppable or self.stopped:
            return [Pull((), 0)]
        self.stopped = True
        return [Pull((), 0), Send(SERVER, *encode_sums(Stopped(), self.wire))]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        most = self.looks.size(self.look) - self.count
        self._demand_coins(sums, times, len(self.arms), most)
        self.sums[list(self.arms)] += np.asarray(sums, dtype=np.int64)
        self.count += times
        self.pulls += times * len(sums)
        return [Pull(self.arms, most - times)] if times < most else self._report()

    def _report(self) -> list[Action]:
        self.state = "reported"
        sums = tuple(int(s) for s in self.sums[list(self.arms)])
        message = Sums(self.look - self.looks.quiet, sums)
        self.sent.append((self.look, self.arms, sums))
        actions: list[Action] = [Send(SERVER, *encode_sums(message, self.wire, self.looks.size(self.look)))]
        if self.newest > self.look:  # another look was begun while this one was under way
            return actions + self._pull()
        return [*actions, Await(self.look - self.looks.quiet + 1)]

    def _received(self, data: bytes) -> list[Action]:
        try:
            message = decode_pool_down(data, self.wire)
        except Malformed:
            self.ignored += 1
            return []
        if isinstance(message, Final):
            self.state = "done"
            return the_end(self.layout, message)
        self.newest += 1
        self.asked = tuple(int(a) for a in np.flatnonzero(message.active[self.own]))
        if not self.asked:
            self.state = "done"
            return [Pull((), 0)]
        return self._pull() if self.state == "reported" else []


COLUMNS = ("look", "arms", "sums")


class Pool:
    """What the server computes from a group's sums, and what each test costs: fixed before the data."""

    def __init__(self, layout: Layout, options: Options, looks: Looks) -> None:
        self.f, self.looks = options.byzantine, looks
        self.arms = sum(layout.arm_counts)
        self.group = np.repeat(np.arange(len(layout.groups)), layout.arm_counts)
        self.sizes = np.array([len(group.clients) for group in layout.groups])
        self.kept = self.sizes - 2 * self.f  # h
        ways = np.array([float(comb(int(size) - self.f, self.f)) for size in self.sizes])
        self.price, self.ways = np.outer(ways, ways), ways

    def coins(self, look: int) -> decide.Ints:
        """h·n_r: coins that a group pools of each arm."""
        return np.asarray(self.kept * self.looks.size(look))

    def level(self, look: int) -> decide.Floats:
        """The level of a test of an arm of one group against one of another."""
        return np.asarray(self.looks.level(look) / self.price)

    def interval_level(self, look: int) -> decide.Floats:
        """The level of a one-sided bound on an arm of each group: a union over the h-subsets, too."""
        return np.asarray(self.looks.interval_level(look) / self.ways)

    def shortfall(
        self, look: int, low: decide.Ints, high: decide.Ints, race: decide.Mask
    ) -> tuple[int, float]:
        """The arm with the best exact lower bound, and by how much it can fall short of the best arm."""
        coins, level = self.coins(look)[self.group], self.interval_level(look)[self.group]
        lower = np.where(race, clopper_pearson(low, coins, level)[0], -np.inf)
        upper = np.where(race, clopper_pearson(high, coins, level)[1], -np.inf)
        first = int(np.argmax(lower))
        upper[first] = -np.inf
        return first, float(upper.max() - lower[first])


class Server(GroupServer):
    """The server of pooled Fed-Fisher."""

    def __init__(self, layout: Layout, options: Options) -> None:
        self.own_wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        super().__init__(layout, self.own_wire, options.byzantine)
        self.options, self.pool = options, Pool(layout, options, self.looks)
        self.look = self.looks.quiet
        ends = np.cumsum(layout.arm_counts)
        self.own = [slice(int(e - k), int(e)) for e, k in zip(ends, layout.arm_counts, strict=True)]
        self.race = np.ones(self.pool.arms, dtype=bool)  # arms that are still in it
        self.asked: dict[int, decide.Mask] = {self.look: self.race.copy()}
        self.sums: dict[int, decide.Ints] = {}  # look -> (clients, arms); −1 is missing
        self.last = np.full(len(layout.clients), -1, dtype=np.int64)  # the last look of each client
        self.exits: list[dict[str, Any]] = []

    def _table(self, look: int) -> decide.Ints:
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
            look = message.look + quiet
            if look <= self.last[i]:
                raise Malformed(f"sums of look {message.look} once more, or out of order")
            arms = np.flatnonzero(self.asked[look][own]) + own.start
            self._compare(i, look, arms, message.sums)
            self._table(look)[i, arms] = message.sums
            self.last[i] = look
            self.replied[i] = look == self.look
            if look < self.look:
                self._test(look)
        self.bits_up += bits

    def _compare(self, i: int, look: int, arms: decide.Ints, sums: tuple[int, ...]) -> None:
        """Sums are of one growing row of coins: from look to look they can't fall, nor rise too far."""
        if self.last[i] < 0:
            return
        rise = np.asarray(sums) - self._table(int(self.last[i]))[i, arms]
        most = self.looks.size(look) - self.looks.size(int(self.last[i]))
        if not ((rise >= 0) & (rise <= most)).all():
            raise Malformed("sums that can't follow its last ones")

    def _is_ready(self, j: int) -> bool:
        mine = self.members[j]
        here = self.replied[mine] & ~self.out[mine]
        if (here | self.out[mine] | self.spent[mine]).all():
            return True
        return not self.patient and bool(here.sum() >= self.sizes[j] - self.f)

    def _stuck(self, j: int) -> Reason | None:
        mine = self.members[j]
        if self.out[mine].sum() > self.f:
            self._warn(j, f"{self.out[mine].sum()} clients are proven faulty, more than byzantine = {self.f}")
            return "votes"
        if (self.out[mine] | self.spent[mine]).sum() <= self.f:
            return None
        return "silence" if self.absent[mine].any() else "budget"

    def _advance(self, changed: Any) -> list[Action]:
        if self.race.sum() == 1 and self.history:  # a late reply has settled it
            return self._won(int(np.argmax(self.race)), self.history[-1]["look"])
        return super()._advance([j for j in changed if self.active[j]])

    def _leave_out(self, j: int) -> None:
        super()._leave_out(j)
        self.race[self.own[j]] = False

    def _has_beaten(self, j: int) -> bool:
        group = self.pool.group
        return any(group[e["rival"]] == j != group[e["arm"]] for e in self.exits)

    def _price_of_loss(self) -> str:
        return price_of_loss(self.looks, self.options)

    def _pooled(self, look: int) -> tuple[decide.Ints, decide.Ints]:
        """The trimmed sums of every arm at a look: filled from below, and from above."""
        n, table = self.looks.size(look), self._table(look)
        low, high = np.zeros((2, self.pool.arms), dtype=np.int64)
        for mine, own in zip(self.members, self.own, strict=True):
            sums = table[mine, own]
            low[own], high[own] = decide.pool(sums, sums >= 0, n, self.f)
        return low, high

    def _test(self, look: int) -> None:
        """Drop the arms that lose at a look; the same look may be tested again."""
        low, high = self._pooled(look)
        coins, level = self.pool.coins(look), self.pool.level(look)
        lost = decide.pooled_losers(low, high, self.race, self.pool.group, coins, level)
        for arm in np.flatnonzero(lost):
            self.exits.append(self._exit(int(arm), look, low, high))
        self.race &= ~lost
        self.active = np.array([bool(self.race[own].any()) for own in self.own])

    def _exit(self, arm: int, look: int, low: decide.Ints, high: decide.Ints) -> dict[str, Any]:
        """An elimination with its p-value, against the rival that beats the arm most clearly."""
        group, coins, level = self.pool.group, self.pool.coins(look), self.pool.level(look)
        j = group[arm]
        log_p = np.where(
            self.race, fisher_pvalue(high[arm], low, coins[j], coins[group], log=True), np.inf
        ) - np.log(level[j, group])
        rival = int(np.argmin(log_p))
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
            "log_p": float(log_p[rival] + np.log(level[j, k])),
        }

    def _close_round(self) -> list[Action]:
        before = self.active.copy()
        self._check_agreement()
        self._test(self.look)
        low, high = self._pooled(self.look)
        self._note(before, low, high)
        if self.race.sum() == 1:
            return self._won(int(np.argmax(self.race)), self.look)
        if self.options.epsilon > 0:
            first, short = self.pool.shortfall(self.look, low, high, self.race)
            if short <= self.options.epsilon:
                return self._won(first, self.look)
        if self.options.max_rounds is not None and self.rounds >= self.options.max_rounds:
            return self._undecided("rounds")
        self.look += 1
        self.asked[self.look] = self.race.copy()
        return self._next_round(PoolDown(tuple(self.race.tolist())))

    def _check_agreement(self) -> None:
        """Warn where more than f of a group's clients can't all see the same mean of an arm."""
        n, table = self.looks.size(self.look), self._table(self.look)
        level = FALSE_ALARM * self.looks.share(self.look) / (2 * self.pool.arms)
        for j in np.flatnonzero(self.active):
            sums = table[self.members[j], self.own[j]].T
            known = sums >= 0
            low, high = clopper_pearson(np.maximum(sums, 0), n, level / self.sizes[j])
            for arm, here in enumerate(known):
                if decide.disagree(low[arm, here], high[arm, here], self.f):
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

    def _note(self, before: decide.Mask, low: decide.Ints, high: decide.Ints) -> None:
        """This look's line of the certificate: each group's best arm, and what fell."""
        groups = np.flatnonzero(before)
        tops = [int(np.argmax(low[self.own[j]])) + self.own[j].start for j in groups]
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

    def _left(self, j: int) -> list[int]:
        return [int(a) for a in np.flatnonzero(self.race[self.own[j]])]

    def _gap(self, reason: Reason) -> float | None:
        """Only with ε > 0 has a share of δ been set aside for a statement of that kind."""
        if self.options.epsilon == 0.0 or not self.history or reason in ("votes", "contradiction"):
            return None
        look = self.history[-1]["look"]
        _, short = self.pool.shortfall(look, *self._pooled(look), self.race)
        return min(max(short, 0.0), 1.0)

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "exits": self.exits}


def pulls_of(part: Mapping[str, Any], arms: int, options: Options) -> tuple[int, int]:
    """Pulls of the quiet looks and of the others, from a client's part of the certificate."""
    looks = Looks(options, 2)  # sizes don't depend on the number of arms
    quiet = min(part["pulls"], arms * looks.size(looks.quiet - 1))
    return quiet, part["pulls"] - quiet


def good_event(
    layout: Layout, options: Options, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether no test on honest sums, of any h clients against any h, could drop the best arm.

    That is the event of the proof, with the first G − f honest clients of each group; None if the best arm is
    not unique, or a group has fewer honest clients.
    """
    looks = looks_of(layout, options)
    pool = Pool(layout, options, looks)
    flat = np.concatenate([np.asarray(row, dtype=np.float64) for row in means])
    (best,) = np.flatnonzero(flat == flat.max())[:1]
    if (flat == flat[best]).sum() > 1:
        return None
    starts = np.cumsum([0, *layout.arm_counts])
    small: dict[int, int] = {}  # look -> the least sum of the best arm over h honest clients
    large: dict[tuple[int, int], int] = {}  # (look, rival) -> the largest
    for j, group in enumerate(layout.groups):
        honest = [part for name in group.clients if "attack" not in (part := certificate["local"][name])]
        honest = honest[: len(group.clients) - options.byzantine]
        if len(honest) < len(group.clients) - options.byzantine:
            return None
        found: dict[tuple[int, int], list[int]] = {}
        for part in honest:
            for look, arms, sums in zip(*(part["sent"][c] for c in COLUMNS), strict=True):
                for arm, total in zip(arms, sums, strict=True):
                    found.setdefault((look, int(starts[j]) + arm), []).append(total)
        for (look, arm), sums in found.items():
            # A client that has not come so far has no sum yet: its coins are still to fall.
            fill = (len(honest) - len(sums)) * [0]
            if arm == best:
                full = sums + (len(honest) - len(sums)) * [looks.size(look)]
                small[look] = sum(sorted(full)[: pool.kept[j]])
            else:
                large[look, arm] = sum(sorted(sums + fill)[-pool.kept[j] :])
    own = pool.group[best]
    for (look, arm), total in large.items():
        if look in small:
            coins, level = pool.coins(look), pool.level(look)
            k = pool.group[arm]
            if decide.loses(small[look], total, coins[own], level[own, k], coins[k]):
                return False
    return True


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check that an honest client's sums are what the server was told, and its count of pulls."""
    i = server.index[name]
    own, looks = server.own[server.group[i]], server.looks
    sent = list(zip(*(part["sent"][c] for c in COLUMNS), strict=True))
    told = {look for look, table in server.sums.items() if table[i].max() >= 0}
    if server.out[i]:
        yield "is proven faulty, and shown as honest"
    if not 0 <= len(sent) - len(told) <= 1 or told - {look for look, _, _ in sent}:
        yield "sent more, or less, than the server was told"
    pulls = count = 0
    before: dict[int, int] = {}
    for look, arms, sums in sent:
        n = looks.size(look)
        if look not in server.asked or list(arms) != np.flatnonzero(server.asked[look][own]).tolist():
            yield f"reported other arms at look {look} than it was asked for"
        rises = [total - before.get(arm, 0) for arm, total in zip(arms, sums, strict=True)]
        if n < count or not all(0 <= rise <= n - count for rise in rises):
            yield f"has sums at look {look} that so many coins can't have"
        if look in told and server.sums[look][i, own][list(arms)].tolist() != list(sums):
            yield f"has sums that are not what the server was told at look {look}"
        pulls, count, before = pulls + (n - count) * len(arms), n, dict(zip(arms, sums, strict=True))
    later = part["count"] - count  # pulls of each arm on the way to the next look
    most = looks.size(server.look + 1) - count
    if not 0 <= later <= most or part["pulls"] - pulls not in _shares(later, own):
        yield "made another number of pulls than its looks have"
    if server.options.budget is not None and part["pulls"] > server.options.budget:
        yield "made more pulls than its budget"


def _shares(pulls: int, own: slice) -> list[int]:
    """What so many pulls of each arm add up to, for any number of arms."""
    return [pulls * arms for arms in range(1, own.stop - own.start + 1)]
