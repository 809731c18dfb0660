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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bestarm.confidence import MAX_COUNT, RADII, Radius, radius
from bestarm.errors import InputError
from bestarm.problem import Layout
from bestarm.protocol import decide
from bestarm.protocol.codec import Malformed
from bestarm.protocol.elimination import Elimination, end_by_epsilon, least_count
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
from bestarm.protocol.options import Common, choice, number, option, switch, whole
from bestarm.protocol.rounds import SERVER, SoloServer, one_arm, refuse_epsilon, the_end
from bestarm.protocol.verdict import Reason

EXIT_COLUMNS = ("arm", "epoch", "sum", "top", "top_sum")


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `fed-sel`; the defaults are the paper's."""

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
    refuse_epsilon(options)
    for group in layout.groups:
        if len(group.clients) != 1:
            raise InputError(
                f'group "{group.name}" has {len(group.clients)} clients, but fed-sel takes one a group',
                fix='Give the group one client, or use method = "robust-fed-sel" or "fisher"',
            )
    if options.byzantine:
        raise InputError(
            f"byzantine = {options.byzantine}, but fed-sel trusts every client",
            expected="byzantine = 0",
            fix='Use method = "robust-fed-sel" or "fisher"',
        )
    refuse_budget(layout, options)


def refuse_budget(layout: Layout, options: Common) -> None:
    """Raise InputError for a budget that buys nothing."""
    most = max(layout.arm_counts)
    if options.budget is not None and options.budget < most:
        raise InputError(
            f"budget = {options.budget} does not pay for one pull of each arm of every group",
            expected=f"at least {most}",
        )


def wire_of(layout: Layout, options: Options) -> Wire:
    """What both ends know without being told."""
    stoppable = options.early_stop or options.budget is not None or layout.finite
    binary = tuple(group.binary for group in layout.groups)
    return Wire(layout.arm_counts, binary, stoppable, options.early_stop)


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

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: each elimination and each message, with its sums."""
        return {
            "epoch": self.phase1.epoch,
            "arm": self.arm if self.sent else None,
            "count": self.count,
            "exits": {column: [getattr(e, column) for e in self.phase1.exits] for column in EXIT_COLUMNS},
            "sent": {"count": [n for n, _ in self.sent], "sum": [s for _, s in self.sent]},
        }

    def handle(self, event: Event) -> list[Action]:
        demand(self, event)
        match event:
            case Start():
                if one_arm(self.layout):
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
        epochs = self.phase1.batch() if self.bound == -np.inf else self._until_beaten()
        if epochs == 0:
            return self._report(unfinished=True)
        return [self._pull(self.phase1.arms, epochs)]

    def _beaten(self, later: int = 0) -> bool:
        """Whether the server's bound beats every arm, now or after `later` epochs that pay nothing."""
        p, t = self.phase1, self.phase1.epoch + later
        return bool(
            self.bound > -np.inf
            and t > 0
            and decide.beaten(p.sums, p.active, t, self.radius.alpha(t), self.bound)
        )

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
        return [Pull((), 0), Send(SERVER, *self._encode(report)), Await(1)]

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
        return [Send(SERVER, *self._encode(message, bits)), Await(self.round + 1)]

    def _encode(self, message: Report | Refinement, bits: int = 0) -> tuple[bytes, int]:
        if isinstance(message, Report):
            return message.encode(self.wire, self.group)
        return message.encode(self.wire, self.group, self.count, bits)

    def _exhausted(self) -> list[Action]:
        self.state = "reported"
        self.spent = True
        if not self.wire.stoppable:
            return [Pull((), 0)]
        return [Pull((), 0), Send(SERVER, *self._encode(Refinement()))]

    def _received(self, data: bytes) -> list[Action]:
        try:
            message = decode_downlink(data, self.wire)
        except Malformed:
            self.ignored += 1
            return []
        match message:
            case Final():
                self.state = "done"
                return the_end(self.layout, message)
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


class Server(SoloServer):
    """The server of Fed-SEL."""

    def __init__(self, layout: Layout, options: Options) -> None:
        self.own_wire = wire_of(layout, options)
        super().__init__(layout, self.own_wire)
        self.options = options
        self.radius = radius(options.radius, len(layout.clients), layout.arm_counts, options.delta)
        sizes = {
            arms: radius(options.radius, len(layout.clients), arms, options.delta)
            for arms in set(layout.arm_counts)
        }
        least = {arms: least_count(r, options.c, options.epsilon) for arms, r in sizes.items()}
        self.radii = [sizes[arms] for arms in layout.arm_counts]
        self.least = [least[arms] for arms in layout.arm_counts]
        groups = len(layout.groups)
        self.reports: list[Report | None] = [None] * groups
        self.count = np.ones(groups, dtype=np.int64)
        self.mean = np.zeros(groups)
        self.lower = np.full(groups, -np.inf)
        self.upper = np.full(groups, np.inf)
        self.resolved = np.zeros(groups, dtype=bool)  # has reported the arm that it found
        self.spent = np.zeros(groups, dtype=bool)  # makes no more pulls: its last interval stands
        self.bound = -np.inf

    def _take(self, j: int, data: bytes) -> list[Action]:
        return self._report(j, data) if self.round == 0 else self._refinement(j, data)

    def _report(self, j: int, data: bytes) -> list[Action]:
        message, bits = decode_report(data, self.own_wire, j, self.least[j])
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
        message, size = decode_refinement(data, self.own_wire, j, count, bits, self.options.quantiser)
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
            return self._won(int(first))
        if outcome != decide.GO_ON:
            return self._undecided("budget" if outcome == decide.BUDGET else "rounds")
        return self._next_round(self.active & ~self.spent, Onward.of(self.active))

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

    def _won(self, j: int) -> list[Action]:
        report = self.reports[j]
        assert report is not None
        interval = (float(self.lower[j]), float(self.upper[j]))
        return self._identified(j, report.arm, mean=float(self.mean[j]), interval=interval)

    def _left(self, j: int) -> list[int]:
        report = self.reports[j]
        if report is None:
            return list(range(self.layout.arm_counts[j]))
        if report.remaining is None:
            return [report.arm]
        return [arm for arm, left in enumerate(report.remaining) if left]

    def _has_beaten(self, j: int) -> bool:
        told = self.options.early_stop and self.reports[j] is not None  # its bound may have been sent on
        return told or led(self.history, j)

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

    def certificate(self) -> dict[str, Any]:
        arms = [None if report is None else report.arm for report in self.reports]
        return {**super().certificate(), "arms": arms}


def led(history: Sequence[Mapping[str, Any]], j: int) -> bool:
    """Whether group j had the largest lower bound in a round in which others fell."""
    return any(row["out"] and row["group"][int(np.argmax(row["lower"]))] == j for row in history)


def pulls_of(part: Mapping[str, Any], arms: int, options: Common) -> tuple[int, int]:
    """Pulls of Phase I and of Phase II, from a client's part of the certificate."""
    exits = part["exits"]["epoch"]
    return sum(exits) + (arms - len(exits)) * part["epoch"], max(0, part["count"] - part["epoch"])


def good_event(
    layout: Layout, options: Any, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool:
    """Whether every mean of an honest client that a decision rested on lay within α of its true mean."""
    for client, part in certificate["local"].items():
        if "attack" in part:
            continue
        j = layout.group_of[client]
        name = getattr(options, "radius", "paper")
        alpha = radius(name, len(layout.clients), layout.arm_counts[j], options.delta).alpha
        true = np.asarray(means[j], dtype=np.float64)
        exits, sent = part["exits"], part["sent"]
        arms = np.asarray([*exits["arm"], *exits["top"], *[part["arm"]] * len(sent["sum"])], dtype=np.int64)
        counts = np.asarray([*exits["epoch"], *exits["epoch"], *sent["count"]], dtype=np.float64)
        sums = np.asarray([*exits["sum"], *exits["top_sum"], *sent["sum"]])
        if len(arms) and not (np.abs(sums / counts - true[arms]) <= alpha(counts)).all():
            return False
    return True


def audit_exits(part: Mapping[str, Any], r: Radius, arms: int, c: float) -> Iterator[str]:
    """Check one client's eliminations in Phase I."""
    left = np.ones(arms, dtype=bool)
    before = 0
    for arm, at, total, top, top_total in zip(*(part["exits"][c] for c in EXIT_COLUMNS), strict=True):
        fair = arm != top and left[arm] and left[top] and before <= at <= part["epoch"]
        if not (fair and 0 <= total <= top_total <= at) or top_total - total < r.boundary(at, c):
            yield f"dropped arm {arm} in epoch {at}, which was not far enough behind"
        left[arm], before = False, at


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check one client's eliminations, its counts, and its sums against what the server decoded."""
    j = server.layout.group_of[name]
    options, r, arms = server.options, server.radii[j], server.layout.arm_counts[j]
    epoch, count, sent = part["epoch"], part["count"], part["sent"]
    yield from audit_exits(part, r, arms, options.c)
    left = np.ones(arms, dtype=bool)
    left[part["exits"]["arm"]] = False
    if not sent["count"]:
        if part["arm"] is not None or count != 0:
            yield "says that it sent nothing, and that it found an arm"
        return
    counts, sums = np.asarray(sent["count"]), np.asarray(sent["sum"], dtype=np.float64)
    periods = [decide.period(k, options.period, options.period_growth) for k in range(1, len(counts) + 1)]
    if counts[0] != epoch or np.diff(counts).tolist() != periods[:-1]:
        yield "sent counts that are not those of its rounds"
    if not 0 <= count - counts[-1] < periods[-1]:
        yield "made more pulls than a round has"
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that so many rewards can't have"
    spent = sum(part["exits"]["epoch"]) + int(left.sum()) * epoch + count - epoch
    if options.budget is not None and spent > options.budget:
        yield "made more pulls than its budget"
    report = server.reports[j]
    if report is None:
        bound = max(server.bound, server.history[0]["threshold"]) if server.history else np.inf
        if not decide.beaten(sums[:1], np.ones(1, dtype=bool), epoch, r.alpha(epoch), bound):
            yield "withdrew, but was not beaten"
        return
    yield from _audit_report(part, report, left, r, options)
    means = sums / counts
    if options.quantiser:
        bits = decide.precision(r.alpha(counts))
        means[1:] = decide.bin_centre(decide.bin_index(means, bits), bits)[1:]
    mine = list(zip(counts.tolist(), means.tolist(), strict=True))
    told = _told(server, j)
    if told != mine[: len(told)]:  # a last message may have come after the end
        yield "has sums that are not what the server was told"


def _audit_report(part: Any, report: Any, left: Any, r: Any, options: Any) -> Iterator[str]:
    """A finished report must be finished, just then; an unfinished one must name the arms that were left."""
    epoch = part["epoch"]
    if part["arm"] != report.arm or not left[report.arm] or report.count != epoch:
        yield "reported an arm or a count that is not its own"
    least, over = least_count(r, options.c, options.epsilon), end_by_epsilon(r, options.epsilon)
    done = bool(decide.finished(left, epoch, least=least, over=over))
    if report.remaining is not None:
        if done or list(report.remaining) != left.tolist():
            yield "says that it was not finished, with other arms than were left"
    elif not done or epoch not in (over, max([least if len(left) == 1 else 0, *part["exits"]["epoch"]])):
        yield "says that it was finished, but its eliminations don't show it"


def _told(server: Server, j: int) -> list[tuple[int, float]]:
    """What the server held of a group, round by round; where it stood still, once."""
    told: list[tuple[int, float]] = []
    for row in server.history:
        if j in row["group"]:
            place = row["group"].index(j)
            if (row["count"][place], row["mean"][place]) not in told[-1:]:
                told.append((row["count"][place], row["mean"][place]))
    return told
