"""Fed-Fisher: merged phases, synchronised geometric looks, exact tests.

At look r every active client brings each of its active arms to n_r = ⌈n₀·qʳ⌉ pulls and drops those that
lose to its own top arm: one-sided Fisher exact test, level x_r = δ·s_r/(K−1). It then sends the bin of its
top arm's mean. The server takes the leader (largest lower edge), drops every client whose upper edge loses
to that lower edge, and broadcasts the leader's bin; clients test their own exact sums against it. All
comparisons are between counts of the same look. The first `quiet` looks are local.

Rewards are 0/1 here; others are turned into coins (``rewards.coined``). With ε > 0 half of δ pays for exact
intervals at the looks, fixed in advance; without ε no interval is claimed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, log
from typing import Any, ClassVar

import numpy as np

from bestarm.errors import InputError
from bestarm.exact import clopper_pearson, fisher_pvalue
from bestarm.problem import Layout
from bestarm.protocol import decide
from bestarm.protocol.codec import Malformed
from bestarm.protocol.machine import (
    Action,
    Await,
    Event,
    IllegalEvent,
    Pull,
    Pulled,
    Received,
    Send,
    Start,
    Stop,
    Transitions,
    demand,
)
from bestarm.protocol.messages import (
    Final,
    LookDown,
    LookReport,
    LookStopped,
    LookWire,
    Withdrawn,
    decode_look_down,
    decode_look_report,
)
from bestarm.protocol.options import Common, choice, number, option, whole
from bestarm.protocol.rounds import SERVER, SoloServer, one_arm, refuse_epsilon, refuse_small_groups, the_end
from bestarm.protocol.verdict import Reason

MAX_LOOK = 2**36  # pulls of one arm: sums times bins stay below 2⁶³

# What to save: (n₀, q, quiet). Chosen by benchmarks/preferences.py, which shows what each costs elsewhere.
PREFERENCES = {"pulls": (32, 1.5, 0), "rounds": (16, 3.0, 3), "bits": (32, 2.0, 3)}


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `fisher`."""

    n0: int | None = option(
        None,
        "pulls of each arm by the first look",
        whole(1, 2**30, optional=True),
        "a whole number from 1 to 2^30",
        unset="by --prefer",
    )
    q: float | None = option(
        None,
        "factor by which pulls grow from look to look",
        lambda x: x is None or number(1.05, below=1000.5)(x),
        "a number from 1.05 to 1000",
        unset="by --prefer",
    )
    quiet: int | None = option(
        None,
        "looks that are local",
        whole(0, 60, optional=True),
        "a whole number from 0 to 60",
        unset="by --prefer",
    )
    prefer: str = option(
        "pulls",
        "what to save where n0, q and quiet are not given",
        choice(*PREFERENCES),
        " or ".join(f'"{p}"' for p in PREFERENCES),
    )


def refuse(layout: Layout, options: Options) -> None:
    """Raise InputError for a layout that Fed-Fisher can't serve."""
    refuse_epsilon(options)
    refuse_small_groups(layout, options, 2, "fisher")
    for group in layout.groups:
        size = len(group.clients)
        if log(comb(size - options.byzantine, options.byzantine)) > 300:
            raise InputError(
                f'group "{group.name}" has so many subsets of {options.byzantine} liars among {size} clients '
                "that no test could pay for them",
                fix="Lower byzantine, or split the group",
            )


class Looks:
    """The schedule, which both ends compute: sizes, levels, bins. K arms in all."""

    def __init__(self, options: Options, arms: int) -> None:
        n0, q, quiet = PREFERENCES[options.prefer]
        self.n0 = n0 if options.n0 is None else options.n0
        self.q = Fraction(q if options.q is None else options.q).limit_denominator(10**6)
        self.quiet = quiet if options.quiet is None else options.quiet
        self.arms = arms
        # With ε, half of δ is for the intervals.
        self.delta = options.delta / 2.0 if options.epsilon > 0 else options.delta
        self.early = int(np.ceil(14.0 * np.log(2.0) / np.log(float(self.q))))
        self._sizes: list[int] = []

    def size(self, r: int) -> int:
        """n_r = ⌈n₀·qʳ⌉, from integers; −1 is before the first look."""
        while len(self._sizes) <= r and self._sizes[-1:] != [MAX_LOOK + 1]:
            self._sizes.append(min(-int(-self.n0 * self.q ** len(self._sizes) // 1), MAX_LOOK + 1))
        return 0 if r < 0 else self._sizes[min(r, len(self._sizes) - 1)]

    def share(self, r: int) -> float:
        """s_r: 0.9 in equal parts over the early looks, then 0.1/((j+1)(j+2)); they add up to 1."""
        j = r - self.early
        return 0.9 / self.early if j < 0 else 0.1 / ((j + 1) * (j + 2))

    def level(self, r: int) -> float:
        """x_r, the level of each test at look r: a union over looks and the K−1 rivals of the best arm."""
        return self.delta * self.share(r) / (self.arms - 1)

    def interval_level(self, r: int) -> float:
        """The level of each one-sided bound at look r: a union over looks, K arms and two sides."""
        return self.delta * self.share(r) / (2 * self.arms)

    def bits(self, r: int) -> int:
        """b: the mean travels in bins of width 2^−b, b = ⌈½·log₂ n_r⌉ + 5."""
        return ((self.size(r) - 1).bit_length() + 1) // 2 + 5


def looks_of(layout: Layout, options: Options) -> Looks:
    """The schedule of a run."""
    return Looks(options, sum(layout.arm_counts))


def price_of_loss(looks: Looks, options: Options) -> str:
    """What is proved where arms have lost to a group that is then left out.

    δ pays for the tests of the best arm alone. If all pairs of arms are to be judged rightly, there are
    K(K−1)/2 of them instead of K−1; the intervals, which ε > 0 brings, hold for all arms anyway.
    """
    error = looks.arms / 2.0 * looks.delta + (options.delta - looks.delta)
    proved = f"at most {error:.3g}" if error < 1.0 else "unknown"
    return f"; the probability of an error is then {proved}, instead of delta = {options.delta:g}"


def wire_of(layout: Layout, options: Options) -> LookWire:
    """What both ends know without being told."""
    return LookWire(layout.arm_counts, stoppable=options.budget is not None or layout.finite)


@dataclass(frozen=True)
class Exit:
    """An arm that a client dropped: at which look, its sum, and the rival's sum that beat it."""

    arm: int
    look: int
    sum: int
    rival: int


class LookClient(ABC):
    """What every client does that works in looks: it pulls coins, and is told what follows."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"pulling", "reported", "done"}),
        ("pulling", Pulled): frozenset({"pulling", "reported"}),
        ("pulling", Received): frozenset({"pulling", "done"}),
        ("pulling", Stop): frozenset({"reported"}),
        ("reported", Received): frozenset({"reported", "pulling", "done"}),
        ("reported", Stop): frozenset({"reported"}),
        ("done", Received): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    layout: Layout
    name: str
    state: str
    spent: bool

    def handle(self, event: Event) -> list[Action]:
        demand(self, event)
        match event:
            case Start():
                if one_arm(self.layout):
                    self.state = "done"
                    return []
                return self._pull()
            case Pulled(sums, times):
                return self._pulled(sums, times)
            case Received(sender, data) if sender == SERVER:
                return self._received(data)
            case Stop():
                if self.state == "pulling":
                    return self._stop()
                self.spent = True
        return []

    def _demand_coins(self, sums: tuple[float, ...], times: int, arms: int, most: int) -> None:
        """Raise IllegalEvent unless these are sums of coins, of as many arms and pulls as were asked for."""
        if len(sums) != arms or not 0 < times <= most:
            raise IllegalEvent(f"{self.name} asked for {most} pulls of {arms} arms")
        if not all(0.0 <= s <= times and float(s).is_integer() for s in sums):
            raise IllegalEvent(f"{self.name}: the sum of {times} coins is a whole number in [0, {times}]")

    @abstractmethod
    def _pull(self) -> list[Action]:
        """Begin a look."""

    @abstractmethod
    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        """Coins came."""

    @abstractmethod
    def _received(self, data: bytes) -> list[Action]:
        """The server spoke."""

    @abstractmethod
    def _stop(self) -> list[Action]:
        """No more pulls."""


class Client(LookClient):
    """One client. It knows the layout, its own group and the options; never a true mean."""

    def __init__(self, layout: Layout, name: str, options: Options) -> None:
        self.layout, self.name, self.options = layout, name, options
        self.group = layout.group_of[name]
        self.wire, self.looks = wire_of(layout, options), looks_of(layout, options)
        arms = layout.arm_counts[self.group]
        self.sums = np.zeros(arms, dtype=np.int64)
        self.active = np.ones(arms, dtype=bool)
        self.state = "new"
        self.look = 0
        self.count = 0  # pulls of each active arm
        self.pulls = 0
        self.quiet_pulls = 0
        self.spent = False
        self.last: LookReport | None = None
        self.exits: list[Exit] = []
        self.sent: list[tuple[int, int, int]] = []  # (look, arm, sum) behind each report
        self.ignored = 0

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: each arm that it dropped and each report, with its sums."""
        return {
            "look": self.look,
            "count": self.count,
            "exits": {c: [getattr(e, c) for e in self.exits] for c in ("arm", "look", "sum", "rival")},
            "sent": {c: [s[i] for s in self.sent] for i, c in enumerate(("look", "arm", "sum"))},
        }

    @property
    def arms(self) -> tuple[int, ...]:
        return tuple(int(a) for a in np.flatnonzero(self.active))

    def _pull(self) -> list[Action]:
        """Bring every active arm to the size of this look."""
        needed = self.looks.size(self.look) - self.count
        cost = needed * len(self.arms)
        if self.looks.size(self.look) > MAX_LOOK or (
            self.options.budget is not None and self.pulls + cost > self.options.budget
        ):
            return self._stop()
        if needed == 0:  # two looks of one size: n₀ is tiny
            return self._at_look()
        self.state = "pulling"
        return [Pull(self.arms, needed)]

    def _stop(self) -> list[Action]:
        self.state, self.spent = "reported", True
        if not self.wire.stoppable:
            return [Pull((), 0)]
        return [Pull((), 0), Send(SERVER, *LookStopped().encode(self.wire))]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        most = self.looks.size(self.look) - self.count
        self._demand_coins(sums, times, len(self.arms), most)
        self.sums[self.active] += np.asarray(sums, dtype=np.int64)
        self.count += times
        self.pulls += times * len(sums)
        if self.look < self.looks.quiet:
            self.quiet_pulls += times * len(sums)
        if times < most:
            return [Pull(self.arms, most - times)]
        return self._at_look()

    def _at_look(self) -> list[Action]:
        top = int(decide.best_arm(self.sums.astype(np.float64), self.active))
        self._drop_losers(int(self.sums[top]), keep=top)
        if self.look < self.looks.quiet:
            self.look += 1
            return self._pull()
        self.state = "reported"
        n, bits = self.looks.size(self.look), self.looks.bits(self.look)
        report = LookReport(
            arm=top,
            single=len(self.arms) == 1,
            index=int(decide.look_bin(self.sums[top], n, bits)),
            bits=bits,
        )
        payload = report.encode(self.wire, self.group, self.last)
        self.last = report
        self.sent.append((self.look, top, int(self.sums[top])))
        return [Send(SERVER, *payload), Await(self.look - self.looks.quiet)]

    def _drop_losers(self, rival: int, keep: int | None = None) -> None:
        """Drop the active arms that lose to a rival's sum at this look."""
        n, level = self.looks.size(self.look), self.looks.level(self.look)
        lost = self.active & decide.loses(self.sums, rival, n, level)
        if keep is not None:
            lost[keep] = False
        for arm in np.flatnonzero(lost):
            self.exits.append(Exit(int(arm), self.look, int(self.sums[arm]), rival))
        self.active = self.active & ~lost

    def _received(self, data: bytes) -> list[Action]:
        try:
            message = decode_look_down(data, self.wire, self.looks.bits(self.look))
        except Malformed:
            self.ignored += 1
            return []
        if isinstance(message, Final):
            self.state = "done"
            return the_end(self.layout, message)
        if self.state != "reported":
            return []
        if not message.is_active(self.group):
            self.state = "done"
            return []
        # The leader's bin and the client's own sums are both of this look.
        lower, _ = decide.bin_edges(message.index, self.looks.size(self.look), self.looks.bits(self.look))
        self._drop_losers(int(lower))
        self.look += 1
        if not self.active.any():
            self.state = "done"
            return [Send(SERVER, *Withdrawn().encode_in_look(self.wire))]
        return self._stop() if self.spent else self._pull()


class Server(SoloServer):
    """The server of Fed-Fisher."""

    def __init__(self, layout: Layout, options: Options) -> None:
        self.own_wire = wire_of(layout, options)
        super().__init__(layout, self.own_wire)
        self.options, self.looks = options, looks_of(layout, options)
        groups = len(layout.groups)
        self.look = self.looks.quiet
        self.reports: list[LookReport | None] = [None] * groups
        self.index = np.zeros(groups, dtype=np.int64)
        self.single = np.zeros(groups, dtype=bool)
        self.stopped = np.zeros(groups, dtype=bool)
        self.leader: int | None = None
        self.withdrew: list[list[int]] = []  # (group, look before which it withdrew)

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "withdrew": self.withdrew}

    def _take(self, j: int, data: bytes) -> list[Action]:
        n, bits = self.looks.size(self.look), self.looks.bits(self.look)
        message, size = decode_look_report(data, self.own_wire, j, self.reports[j], bits)
        if isinstance(message, LookReport):
            lower, upper = decide.bin_edges(message.index, n, bits)
            if lower > upper:
                raise Malformed(f"bin {message.index}, which holds no sum of {n} coins")
            if self.layout.arm_counts[j] == 1 and not message.single:
                raise Malformed("a single arm that is not the only one")
            self.reports[j] = message
            self.index[j], self.single[j] = message.index, message.single
        elif isinstance(message, Withdrawn):
            if self.leader in (None, j):
                raise Malformed("a withdrawal by the leader, which can't have lost, or before there was one")
            self.active[j] = False
            self.withdrew.append([j, self.look])
        else:
            self.stopped[j] = True
        self.bits_up += size
        return []

    @property
    def n(self) -> int:
        return self.looks.size(self.look)

    def _close_round(self) -> list[Action]:
        if self.stopped[self.active].any():
            return self._undecided("budget")
        if not self.active.any():
            return self._undecided("contradiction")
        lower, upper = decide.bin_edges(self.index, self.n, self.looks.bits(self.look))
        stay, first = decide.close_look(lower, upper, self.active, self.n, self.looks.level(self.look))
        self._note(stay, int(first), lower, upper)
        self.active = stay
        j = self.leader = int(first)
        if self._settled(j, lower, upper):
            return self._won(j, lower, upper)
        if self.options.max_rounds is not None and self.rounds >= self.options.max_rounds:
            return self._undecided("rounds")
        message = LookDown.of(self.active, int(self.index[j]), self.looks.bits(self.look))
        self.look += 1
        return self._next_round(self.active.copy(), message)

    def _settled(self, j: int, lower: decide.Ints, upper: decide.Ints) -> bool:
        if bool(self.active.sum() == 1 and self.single[j]):
            return True
        if self.options.epsilon == 0.0:
            return False
        short = decide.look_shortfall(
            lower,
            upper,
            self.active,
            self.single,
            np.asarray(j),
            self.n,
            self.looks.interval_level(self.look),
        )
        return bool(short <= self.options.epsilon)

    def _won(self, j: int, lower: decide.Ints, upper: decide.Ints) -> list[Action]:
        report = self.reports[j]
        assert report is not None
        interval = None
        if self.options.epsilon > 0:
            level = self.looks.interval_level(self.look)
            interval = (
                float(clopper_pearson(lower[j], self.n, level)[0]),
                float(clopper_pearson(upper[j], self.n, level)[1]),
            )
        mean = float(decide.bin_centre(self.index[j], self.looks.bits(self.look)))
        return self._identified(j, report.arm, mean=mean, interval=interval)

    def _note(self, stay: decide.Mask, first: int, lower: decide.Ints, upper: decide.Ints) -> None:
        """This look's line of the certificate, with the p-value of each group that fell."""
        groups, out = np.flatnonzero(self.active), np.flatnonzero(self.active & ~stay)
        arms = [report.arm for j in groups if (report := self.reports[j]) is not None]
        self.history.append(
            {
                "round": self.round,
                "look": self.look,
                "pulls": self.n,
                "level": self.looks.level(self.look),
                "group": groups.tolist(),
                "arm": arms,
                "single": self.single[groups].tolist(),
                "lower": lower[groups].tolist(),
                "upper": upper[groups].tolist(),
                "leader": first,
                "out": out.tolist(),
                "log_p": fisher_pvalue(upper[out], lower[first], self.n, log=True).tolist(),
            }
        )

    def _left(self, j: int) -> list[int]:
        report = self.reports[j]
        if report is not None and report.single:
            return [report.arm]
        return list(range(self.layout.arm_counts[j]))

    def _has_beaten(self, j: int) -> bool:
        """A leader's bin is told to all: what clients drop against it they keep to themselves."""
        return any(row["leader"] == j for row in self.history)

    def _price_of_loss(self) -> str:
        return price_of_loss(self.looks, self.options)

    def _gap(self, reason: Reason) -> float | None:
        """Only with ε > 0 has a share of δ been set aside for a statement of that kind."""
        known = all(self.reports[j] is not None for j in np.flatnonzero(self.active))
        if (
            self.options.epsilon == 0.0
            or not known
            or not self.history
            or reason in ("votes", "contradiction")
        ):
            return None
        row = self.history[-1]  # the last look at which all counts were of the same size
        lower, upper = np.zeros(len(self.active), dtype=np.int64), np.zeros(len(self.active), dtype=np.int64)
        lower[row["group"]], upper[row["group"]] = row["lower"], row["upper"]
        level = self.looks.interval_level(row["look"])
        single = np.zeros(len(self.active), dtype=bool)
        single[row["group"]] = row["single"]
        short = decide.look_shortfall(
            lower,
            upper,
            self.active,
            single,
            decide.leader(lower.astype(np.float64), self.active),
            row["pulls"],
            level,
        )
        return min(max(float(short), 0.0), 1.0)


def pulls_of(part: Mapping[str, Any], arms: int, options: Options) -> tuple[int, int]:
    """Pulls of the quiet looks and of the others, from a client's part of the certificate."""
    looks = Looks(options, 2)  # sizes don't depend on the number of arms
    exits = [looks.size(look) for look in part["exits"]["look"]]
    made = np.asarray(exits + [part["count"]] * (arms - len(exits)), dtype=np.int64)
    quiet = np.minimum(made, looks.size(looks.quiet - 1))
    return int(quiet.sum()), int((made - quiet).sum())


def good_event(
    layout: Layout, options: Options, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether the best arm was never dropped; None if the best arm is not unique."""
    flat = [(mean, j, arm) for j, row in enumerate(means) for arm, mean in enumerate(row)]
    best = [(j, arm) for mean, j, arm in flat if mean == max(flat)[0]]
    if len(best) > 1:
        return None
    ((j, arm),) = best
    part = certificate["local"][layout.groups[j].clients[0]]
    lost = any(j in row["out"] for row in certificate["server"]["rounds"])
    return arm not in part["exits"]["arm"] and not lost


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check each arm that a client dropped by its p-value, and its reports against what the server held."""
    j = server.layout.group_of[name]
    looks, arms = server.looks, server.layout.arm_counts[j]
    exits = list(zip(*(part["exits"][c] for c in ("arm", "look", "sum", "rival")), strict=True))
    sent = list(zip(*(part["sent"][c] for c in ("look", "arm", "sum")), strict=True))
    held = {row["look"]: (row, row["group"].index(j)) for row in server.history if j in row["group"]}
    leaders = {row["look"]: row["lower"][row["group"].index(row["leader"])] for row in server.history}
    tops = {look: total for look, _, total in sent}
    last = looks.quiet + len(sent) - 1  # the last look that was reported
    if [look for look, _, _ in sent] != list(range(looks.quiet, last + 1)) or len(set(tops) - set(held)) > 1:
        yield "reported other looks than those that there were"
    if set(held) - set(tops):
        yield "is said to have reported what it did not report"
    ended = server.verdict is not None and (server.verdict.reason or "rounds") == "rounds"
    if sent:  # it stopped right after a report, or (unless the end came with a round) on the way to the next
        fits = looks.size(last) <= part["count"] <= looks.size(last if ended else last + 1)
        fits = fits and part["look"] - last in (0, 1)
    else:
        fits = 0 <= part["look"] <= looks.quiet and 0 <= part["count"] <= looks.size(part["look"])
    if not fits:
        yield "made another number of pulls than its looks have"
    if (
        server.options.budget is not None
        and sum(pulls_of(part, arms, server.options)) > server.options.budget
    ):
        yield "made more pulls than its budget"
    left, before = np.ones(arms, dtype=bool), 0
    for arm, look, total, rival in exits:
        n = looks.size(look)
        fair = left[arm] and before <= look <= max(last, looks.quiet - 1) and 0 <= total <= rival <= n
        known = look < looks.quiet or (
            rival in (tops.get(look), leaders.get(look)) and total <= tops.get(look, n)
        )
        if not fair or not known or not decide.loses(total, rival, n, looks.level(look)):
            yield f"dropped arm {arm} at look {look}, which its p-value does not allow"
        left[arm], before = False, look
    for look, arm, total in sent:
        gone = {a for a, at, _, _ in exits if at < look}
        own = {a for a, at, _, rival in exits if at == look and rival == total}
        if arm in gone | own or not 0 <= total <= looks.size(look):
            yield f"reported arm {arm} at look {look}, which it had dropped"
        if look in held:
            row, place = held[look]
            alone = arms - len(gone | own) == 1
            right = row["arm"][place] == arm and row["single"][place] == alone
            if not right or not row["lower"][place] <= total <= row["upper"][place]:
                yield f"has sums that are not what the server was told at look {look}"
    withdrawn = [look for group, look in server.withdrew if group == j]
    lost_all = not left.any()
    if withdrawn and not (
        lost_all and exits[-1][1] == withdrawn[0] - 1 and exits[-1][3] == leaders.get(last)
    ):
        yield "withdrew, but had not lost all its arms to the leader"
    if lost_all and ended and not withdrawn:
        yield "lost all its arms, and did not withdraw"
