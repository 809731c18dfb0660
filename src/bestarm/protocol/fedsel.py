"""Fed-SEL (Algorithm 2): the client and the server as machines without I/O.

Phase I: each client runs Algorithm 1 on its arm-set and reports arm, mean and sample count (round 0).
Phase II: in each round k the server turns what it decoded into intervals r̃ ∓ 2α(t̄+kH), drops every group
whose upper bound is at most the largest lower bound, and tells all who is active; an active client pulls
its arm H more times and sends the bin of its new mean. With the default options this is the paper's
algorithm, literally; errata 4, 9b, 13, 16 and 21 are handled as the docs say.

Rounds count the Phase I reports: R = k*+1, and an active client makes H(R−1) pulls in Phase II.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bestarm.confidence import MAX_COUNT, RADII, radius
from bestarm.errors import InputError
from bestarm.problem import Layout
from bestarm.protocol import decide
from bestarm.protocol.codec import Malformed
from bestarm.protocol.elimination import Elimination, least_count
from bestarm.protocol.machine import (
    ALL,
    Action,
    Await,
    Decided,
    Event,
    IllegalEvent,
    PatienceOver,
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
    Bound,
    Final,
    Onward,
    Refinement,
    Report,
    Wire,
    Withdrawn,
    decode_downlink,
    decode_refinement,
    decode_report,
)
from bestarm.protocol.options import choice, number, option, switch, whole
from bestarm.protocol.verdict import REASONS, Reason, Verdict

SERVER = "server"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `fed-sel`; the defaults are the paper's."""

    delta: float = option(
        0.05, "failure probability", number(1e-100, below=1.0), "a number in (0, 1), ends excluded"
    )
    epsilon: float = option(
        0.0, "how far from the best the answer may be, in units of the rewards", number(0.0), "at least 0"
    )
    byzantine: int = option(0, "liars in each group", whole(0), "a whole number of at least 0")
    budget: int | None = option(
        None, "pulls that one client may make", whole(1, optional=True), "a whole number of at least 1"
    )
    max_rounds: int | None = option(
        None, "rounds that the run may take", whole(1, optional=True), "a whole number of at least 1"
    )
    c: float = option(
        8.0,
        "β = cα: how far behind an arm falls in Phase I",
        number(2.0, below=1e6),
        "at least 2, below a million",
    )
    period: int = option(100, "H: pulls between two rounds", whole(1, 2**40), "a whole number from 1 to 2^40")
    period_growth: float = option(
        1.0, "factor by which H grows each round", number(1.0, below=1e6), "at least 1, below a million"
    )
    quantiser: bool = option(True, "send bins instead of exact means", switch, "true or false")
    radius: str = option("paper", "confidence radius", choice(*RADII), " or ".join(f'"{r}"' for r in RADII))
    intersect: bool = option(False, "keep the running intersection of intervals", switch, "true or false")
    early_stop: bool = option(False, "tell clients in Phase I when they are beaten", switch, "true or false")


def refuse(layout: Layout, options: Options) -> None:
    """Raise InputError for a layout that Fed-SEL can't serve."""
    for group in layout.groups:
        if len(group.clients) != 1:
            raise InputError(
                f'group "{group.name}" has {len(group.clients)} clients, but fed-sel takes one a group',
                fix="Give the group one client, or use a method for groups of several",
            )
        if options.budget is not None and options.budget < len(group.arms):
            raise InputError(
                f"budget = {options.budget} does not pay for one pull of each of the {len(group.arms)} arms "
                f'of group "{group.name}"',
                expected=f"at least {max(layout.arm_counts)}",
            )
    if options.epsilon >= 1.0:
        raise InputError(
            "epsilon is as wide as the range of the rewards: every arm is that close to the best"
        )
    if options.byzantine:
        raise InputError(
            f"byzantine = {options.byzantine}, but fed-sel trusts every client",
            expected="byzantine = 0",
        )


def wire_of(layout: Layout, options: Options) -> Wire:
    """What both ends know without being told."""
    stoppable = options.early_stop or options.budget is not None or layout.finite
    binary = tuple(group.binary for group in layout.groups)
    return Wire(layout.arm_counts, binary, stoppable, options.early_stop)


def _one_arm(layout: Layout) -> bool:
    return layout.arm_counts == (1,)


class Client:
    """One client. It knows the layout, its own group and the options; never a true mean."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"exploring", "done"}),
        ("exploring", Pulled): frozenset({"exploring", "reported", "done"}),
        ("exploring", Received): frozenset({"exploring", "done"}),
        ("exploring", Stop): frozenset({"reported"}),
        ("reported", Received): frozenset({"reported", "sampling", "done"}),
        ("reported", Stop): frozenset({"reported"}),
        ("sampling", Pulled): frozenset({"sampling", "reported"}),
        ("sampling", Received): frozenset({"sampling", "done"}),
        ("sampling", Stop): frozenset({"reported"}),
        ("done", Received): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, name: str, options: Options) -> None:
        self.layout, self.name, self.options = layout, name, options
        self.group = layout.group_of[name]
        self.wire = wire_of(layout, options)
        self.radius = radius(
            options.radius, len(layout.clients), len(layout.groups[self.group].arms), options.delta
        )
        self.phase1 = Elimination(
            layout.arm_counts[self.group],
            self.radius,
            options.c,
            epsilon=options.epsilon,
            budget=options.budget,
        )
        self.state = "new"
        self.round = 0
        self.arm = 0
        self.count = 0
        self.sum = 0.0
        self.target = 0
        self.asked = Pull((), 0)
        self.bound = -np.inf
        self.spent = False
        self.sent: list[tuple[int, float]] = []  # (count, sum) behind each message
        self.ignored = 0

    @property
    def pulls(self) -> tuple[int, int]:
        """Pulls made in Phase I and in Phase II."""
        return self.phase1.pulls, max(0, self.count - self.phase1.epoch)

    def handle(self, event: Event) -> list[Action]:
        demand(self, event)
        match event:
            case Start():
                if _one_arm(self.layout):
                    self.state = "done"
                    return []
                self.state = "exploring"
                return self._explore()
            case Pulled(sums, times):
                return self._pulled(sums, times)
            case Received(sender, data) if sender == SERVER:
                return self._received(data)
            case Stop():
                if self.state == "exploring":
                    return self._report(unfinished=True)
                if self.state == "sampling":
                    return self._exhausted()
                self.spent = True
        return []

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        arms, most = self.asked.arms, self.asked.times
        if len(sums) != len(arms) or not 0 < times <= most:
            raise IllegalEvent(f"{self.name} asked for {most} pulls of {len(arms)} arms")
        if not all(0.0 <= s <= times for s in sums):
            raise IllegalEvent(f"{self.name}: the sum of {times} rewards must lie in [0, {times}]")
        if self.state == "exploring":
            self.phase1.absorb(sums, times)
            return self._explore()
        self.sum += sums[0]
        self.count += times
        if self.count < self.target:
            return [self._pull((self.arm,), self.target - self.count)]
        self.state = "reported"
        return self._refine()

    def _pull(self, arms: tuple[int, ...], times: int) -> Pull:
        self.asked = Pull(arms, times)
        return self.asked

    def _explore(self) -> list[Action]:
        if self.phase1.finished:
            return self._report(unfinished=False)
        if self._beaten():
            return self._withdraw()
        epochs = min(self.phase1.batch(), self._until_beaten())
        if epochs == 0:
            return self._report(unfinished=True)
        return [self._pull(self.phase1.arms, epochs)]

    def _beaten(self, later: int = 0) -> bool:
        """Whether the server's bound beats every arm, now or after `later` epochs that pay nothing."""
        p, t = self.phase1, self.phase1.epoch + later
        return bool(t > 0 and decide.beaten(p.sums, p.active, t, self.radius.alpha(t), self.bound))

    def _until_beaten(self) -> int:
        """The fewest epochs after which the bound can beat every arm: sums never fall, so none sooner."""
        most = self.phase1.batch()
        if most == 0 or not self._beaten(most):
            return most
        return bisect.bisect_left(range(1, most + 1), True, key=self._beaten) + 1

    def _withdraw(self) -> list[Action]:
        self.state = "done"
        self._settle()
        return [Pull((), 0), Send(SERVER, *Withdrawn().encode(self.wire, self.group))]

    def _report(self, *, unfinished: bool) -> list[Action]:
        p = self.phase1
        if p.epoch == 0 or (unfinished and not self.wire.stoppable):
            # Not one reward came, or the counts are at their end in a run that has no word for that.
            self.state, self.spent = "reported", True
            return [Pull((), 0)]
        self.state = "reported"
        self.spent = unfinished
        self._settle()
        remaining = tuple(bool(a) for a in p.active) if unfinished else None
        report = Report(self.arm, self.count, self.sum / self.count, remaining)
        return [Pull((), 0), Send(SERVER, *report.encode(self.wire, self.group)), Await(1)]

    def _settle(self) -> None:
        """Phase I is over: from here on the leading arm is the client's arm."""
        p = self.phase1
        self.arm, self.count, self.sum = p.best, p.epoch, float(p.sums[p.best])
        self.sent.append((self.count, self.sum))

    def _refine(self) -> list[Action]:
        mean = self.sum / self.count
        bits = int(decide.precision(self.radius.alpha(self.count)))
        if self.options.quantiser:
            message = Refinement(index=int(decide.bin_index(mean, bits)))
        else:
            message = Refinement(mean=mean)
        self.sent.append((self.count, self.sum))
        return [
            Send(SERVER, *message.encode(self.wire, self.group, self.count, bits)),
            Await(self.round + 1),
        ]

    def _exhausted(self) -> list[Action]:
        self.state = "reported"
        self.spent = True
        if not self.wire.stoppable:
            return [Pull((), 0)]
        return [Pull((), 0), Send(SERVER, *Refinement().encode(self.wire, self.group, self.count, 0))]

    def _received(self, data: bytes) -> list[Action]:
        try:
            message = decode_downlink(data, self.wire)
        except Malformed:
            self.ignored += 1
            return []
        match message:
            case Final(group, arm):
                self.state = "done"
                if group is None or arm is None:
                    return [Pull((), 0), Decided(Verdict(status="undecided"))]
                return [Pull((), 0), Decided(Verdict(status="identified", arm=self.layout.arm(group, arm)))]
            case Bound(value) if self.state == "exploring":
                self.bound = max(self.bound, value)
                return self._withdraw() if self._beaten() else []
            case Onward() if self.state == "reported":
                self.round += 1
                if not message.is_active(self.group):
                    self.state = "done"
                    return []
                if self.spent:
                    return []
                return self._sample()
        return []

    def _sample(self) -> list[Action]:
        pulls = decide.period(self.round, self.options.period, self.options.period_growth)
        left = MAX_COUNT - self.count
        if self.options.budget is not None:
            left = min(left, self.options.budget - sum(self.pulls))
        if pulls > left:
            return self._exhausted()
        self.state = "sampling"
        self.target = self.count + pulls
        return [self._pull((self.arm,), pulls)]


class Server:
    """The server. All that it concludes follows from what it was sent, in the order in which it came."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"waiting", "done"}),
        ("waiting", Received): frozenset({"waiting", "done"}),
        ("waiting", PatienceOver): frozenset({"waiting", "done"}),
        ("waiting", Stop): frozenset({"done"}),
        ("done", Received): frozenset({"done"}),
        ("done", PatienceOver): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, options: Options) -> None:
        self.layout, self.options = layout, options
        self.wire = wire_of(layout, options)
        self.radius = radius(options.radius, len(layout.clients), layout.arm_counts, options.delta)
        groups = len(layout.groups)
        sizes = {
            arms: radius(options.radius, len(layout.clients), arms, options.delta)
            for arms in set(layout.arm_counts)
        }
        least = {arms: least_count(r, options.c, options.epsilon) for arms, r in sizes.items()}
        self.radii = [sizes[arms] for arms in layout.arm_counts]
        self.least = [least[arms] for arms in layout.arm_counts]
        self.state = "new"
        self.round = 0
        self.reports: list[Report | None] = [None] * groups
        self.count = np.ones(groups, dtype=np.int64)
        self.mean = np.zeros(groups)
        self.lower = np.full(groups, -np.inf)
        self.upper = np.full(groups, np.inf)
        self.active = np.ones(groups, dtype=bool)
        self.resolved = np.zeros(groups, dtype=bool)  # has reported the arm that it found
        self.spent = np.zeros(groups, dtype=bool)  # makes no more pulls: its last interval stands
        self.waiting = np.ones(groups, dtype=bool)
        self.missing = groups
        self.bound = -np.inf
        self.events: list[list[Any]] = []
        self.history: list[dict[str, Any]] = []
        self.faulty: list[dict[str, Any]] = []
        self.ignored = 0
        self.bits_up = self.bits_down = self.bytes = 0
        self.verdict: Verdict | None = None

    @property
    def rounds(self) -> int:
        """Rounds that were completed, the Phase I reports included."""
        return len(self.history)

    def handle(self, event: Event) -> list[Action]:
        demand(self, event)
        if self.state == "done":
            return []
        match event:
            case Start():
                self.state = "waiting"
                if _one_arm(self.layout):
                    return self._end(Verdict(status="identified", arm=self.layout.arm(0, 0)))
                return [Await(0)]
            case Received(sender, data):
                self.events.append(["received", sender, data.hex()])
                self.bytes += len(data)
                return self._received(sender, data)
            case PatienceOver(round):
                self.events.append(["patience", round])
                return self._undecided("silence") if round == self.round else []
            case Stop(reason):
                self.events.append(["stop", reason])
                return self._undecided(reason if reason in REASONS else "interrupted")  # type: ignore[arg-type]
        return []

    def _received(self, sender: str, data: bytes) -> list[Action]:
        j = self.layout.group_of.get(sender)
        if j is None or not self.waiting[j]:
            self.ignored += 1
            self.bits_up += 8 * len(data)
            return []
        try:
            actions = self._report(j, data) if self.round == 0 else self._refinement(j, data)
        except Malformed as error:
            self.bits_up += 8 * len(data)
            self.faulty.append({"client": sender, "round": self.round, "reason": str(error)})
            return self._undecided("votes")
        self.waiting[j] = False
        self.missing -= 1
        return actions + (self._close_round() if self.missing == 0 else [])

    def _report(self, j: int, data: bytes) -> list[Action]:
        message, bits = decode_report(data, self.wire, j, self.least[j])
        self.bits_up += bits
        if isinstance(message, Withdrawn):
            self.active[j] = False
            return []
        self.reports[j] = message
        self.count[j], self.mean[j] = message.count, message.mean
        self.resolved[j] = message.remaining is None or sum(message.remaining) == 1
        self.spent[j] = message.remaining is not None
        lower, _ = decide.interval(message.mean, self.radii[j].alpha(message.count))
        if not self.options.early_stop or lower <= self.bound:
            return []
        self.bound = float(lower)
        return [self._send(Bound(self.bound))]

    def _refinement(self, j: int, data: bytes) -> list[Action]:
        # The count is implied by the round; the wire does not carry it.
        count = int(self.count[j]) + decide.period(
            self.round, self.options.period, self.options.period_growth
        )
        bits = int(decide.precision(self.radii[j].alpha(count)))
        message, size = decode_refinement(data, self.wire, j, count, bits, self.options.quantiser)
        self.bits_up += size
        if message.index is None and message.mean is None:
            self.spent[j] = True
            return []
        self.count[j] = count
        self.mean[j] = decide.bin_centre(message.index, bits) if message.index is not None else message.mean
        return []

    def _close_round(self) -> list[Action]:
        known = self.active
        lower, upper = decide.interval(self.mean, self.radius.alpha(self.count))
        if self.options.intersect:
            lower, upper = np.maximum(lower, self.lower), np.minimum(upper, self.upper)
        self.lower = np.where(known, lower, self.lower)
        self.upper = np.where(known, upper, self.upper)
        last_round = self.options.max_rounds is not None and self.round + 1 >= self.options.max_rounds
        stay, outcome, first = decide.close_round(
            self.lower,
            self.upper,
            self.active,
            self.resolved,
            self.spent,
            epsilon=self.options.epsilon,
            last_round=last_round,
        )
        self._note(stay)
        if outcome == decide.CONTRADICTION:
            return self._undecided("contradiction")
        self.active = stay
        if outcome == decide.IDENTIFIED:
            return self._identified(int(first))
        if outcome != decide.GO_ON:
            return self._undecided("budget" if outcome == decide.BUDGET else "rounds")
        self.round += 1
        self.waiting = self.active & ~self.spent
        self.missing = int(self.waiting.sum())
        return [self._send(Onward.of(self.active)), Await(self.round)]

    def _note(self, stay: decide.Mask) -> None:
        """This round's line of the certificate: what was known of each active group, and who fell."""
        groups = np.flatnonzero(self.active)
        self.history.append(
            {
                "round": self.round,
                "group": groups.tolist(),
                "count": self.count[groups].tolist(),
                "mean": self.mean[groups].tolist(),
                "lower": self.lower[groups].tolist(),
                "upper": self.upper[groups].tolist(),
                "threshold": float(decide.threshold(self.lower, self.active)),
                "out": np.flatnonzero(self.active & ~stay).tolist(),
            }
        )

    def _shortfall(self) -> float:
        return float(decide.shortfall(self.lower, self.upper, self.active))

    def _identified(self, j: int) -> list[Action]:
        report = self.reports[j]
        assert report is not None
        arm = report.arm
        verdict = Verdict(
            status="identified",
            arm=self.layout.arm(j, arm),
            mean=float(self.mean[j]),
            interval=(float(self.lower[j]), float(self.upper[j])),
        )
        return [self._send(Final(j, arm)), *self._end(verdict)]

    def _undecided(self, reason: Reason) -> list[Action]:
        verdict = Verdict(
            status="undecided", reason=reason, candidates=self._candidates(), gap=self._gap(reason)
        )
        return [self._send(Final(None, None)), *self._end(verdict)]

    def _candidates(self) -> tuple[str, ...]:
        names = []
        for j in np.flatnonzero(self.active):
            report = self.reports[j]
            if report is not None and report.remaining is None:
                arms = [report.arm]
            elif report is not None and report.remaining is not None:
                arms = [a for a, left in enumerate(report.remaining) if left]
            else:
                arms = list(range(self.layout.arm_counts[j]))
            names += [self.layout.arm(int(j), a) for a in arms]
        return tuple(names)

    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best, where all intervals are known and hold."""
        if not np.isfinite(self.upper[self.active]).all() or reason in ("votes", "contradiction"):
            return None
        first = int(decide.leader(self.lower, self.active))
        report = self.reports[first]
        gap = self._shortfall() + self.options.epsilon / 2.0
        if report is not None and report.remaining is not None:
            gap = max(gap, float(self.upper[first] - self.lower[first]))
        return min(max(gap, 0.0), 1.0)

    def _end(self, verdict: Verdict) -> list[Action]:
        self.state = "done"
        self.verdict = verdict
        return [Decided(verdict)]

    def _send(self, message: Onward | Bound | Final) -> Send:
        payload, bits = message.encode(self.wire)
        self.bits_down += bits
        self.bytes += len(payload)
        return Send(ALL, payload, bits)

    def certificate(self) -> dict[str, Any]:
        """The server's part: what it was sent, in order, and what it made of it, round by round."""
        arms = [None if report is None else report.arm for report in self.reports]
        return {"events": self.events, "arms": arms, "rounds": self.history, "ignored": self.ignored}
