"""Peer to peer (Algorithm 4), and past its assumption: one machine for every client of a network.

``exchange = "means"`` is the paper's protocol. A peer runs Algorithm 1 on its own arm-set and sends arm and
mean to its out-neighbours. Of every other arm-set it takes the first 2f+1 in-neighbours that report: majority
vote, trimmed mean, and on to its own out-neighbours. When it has all of them the largest is its answer. That
is right, on the good event, if the network is strongly (3f+1)-robust and all heterogeneity indices with the
best group are at most 1; the means don't show whether they are.

``exchange = "intervals"`` needs no such premise, and a strongly (2f+1)-robust network:

1. An arm of an arm-set is accepted on f+1 equal votes. Of the in-neighbours that vote for it, the (f+1)-th
   smallest upper and the (f+1)-th largest lower bound count, intersected over time. What is new is sent on:
   at once where the interval has shrunk by the factor `tighten` since it was last sent, and everything when
   a group has fallen; else with the next tick of the driver.
2. A peer samples until its group is beaten, or alone, *in its own view*. Adopting a verdict stops neither
   its sampling nor its relaying.
3. A peer whose group is alone in its view announces the verdict; others adopt it and send it on when f+1
   in-neighbours say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bestarm.confidence import MAX_COUNT, radius
from bestarm.errors import InputError
from bestarm.problem import Layout
from bestarm.protocol import decide, fedsel
from bestarm.protocol.codec import Malformed
from bestarm.protocol.elimination import Elimination
from bestarm.protocol.machine import (
    ALL,
    Action,
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
from bestarm.protocol.messages import Claim, Conclusion, decode_claim
from bestarm.protocol.options import Common, choice, number, option
from bestarm.protocol.verdict import REASONS, Reason, Verdict

EXCHANGES = ("means", "intervals")
SPENT = "spent"  # a reason to stop pulling, and no reason to stop listening
STEP = 8  # a peer that samples looks at its interval again after an eighth more pulls


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of `p2p`."""

    exchange: str = option(
        "means",
        'what peers tell each other: the paper\'s "means", or "intervals"',
        choice(*EXCHANGES),
        " or ".join(f'"{e}"' for e in EXCHANGES),
    )
    c: float = option(
        6.0,
        "β = cα: how far behind an arm falls in Phase I",
        number(2.0, below=1e6, above=2.0),
        "above 2, below a million",
    )
    tighten: float = option(
        0.5,
        "an interval is sent on at once when its width has shrunk by this factor",
        number(0.0, below=1.0, above=0.0),
        "a number in (0, 1), ends excluded",
    )


def refuse(layout: Layout, options: Options) -> None:
    """Raise InputError for options that peers can't serve; whether the network bears f is asked elsewhere."""
    if options.epsilon:
        raise InputError(
            f"epsilon = {options.epsilon} can't be used with p2p: honest peers of a group might then report "
            "different arms",
            fix='Leave it out, or use method = "fisher"',
        )
    if options.exchange == "means" and options.c <= 4.0:
        raise InputError(
            f'c = {options.c:g} is too small for exchange = "means"', expected="more than 4 (Theorem 3)"
        )
    if options.max_rounds is not None:
        raise InputError("max_rounds can't be used with p2p, which has no rounds", fix="Use budget")
    fedsel.refuse_budget(layout, options)


class Peer:
    """One client of a network. It knows the layout, its in-neighbours and the options; never a true mean."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"exploring"}),
        ("new", Stop): frozenset({"resting"}),
        ("exploring", Pulled): frozenset({"exploring", "sampling", "resting"}),
        ("exploring", Received): frozenset({"exploring"}),
        ("exploring", PatienceOver): frozenset({"exploring"}),
        ("sampling", Pulled): frozenset({"sampling", "resting"}),
        ("sampling", Received): frozenset({"sampling", "resting"}),
        ("sampling", PatienceOver): frozenset({"sampling"}),
        ("resting", Received): frozenset({"resting"}),
        ("resting", PatienceOver): frozenset({"resting"}),
        ("exploring", Stop): frozenset({"resting"}),
        ("sampling", Stop): frozenset({"resting"}),
        ("resting", Stop): frozenset({"resting"}),
    }

    def __init__(self, layout: Layout, name: str, options: Options, neighbours: Sequence[str] = ()) -> None:
        self.layout, self.name, self.options = layout, name, options
        self.neighbours = {sender: i for i, sender in enumerate(neighbours)}  # whom it hears
        self.group = layout.group_of[name]
        self.f = options.byzantine
        self.radius = radius("paper", len(layout.clients), layout.arm_counts[self.group], options.delta)
        self.phase1 = Elimination(
            layout.arm_counts[self.group], self.radius, options.c, budget=options.budget
        )
        self.state = "new"
        self.asked = Pull((), 0)
        self.arm, self.count, self.sum = 0, 0, 0.0
        self.spent = False
        self.sent: list[tuple[int, float]] = []  # (count, sum) of its own arm behind what it said
        self.verdict: Verdict | None = None
        self.ignored = 0
        self.faulty: list[dict[str, Any]] = []
        self.out = np.zeros(len(neighbours), dtype=bool)  # proven faulty
        groups = len(layout.groups)
        # What it takes each arm-set's best arm to be, and (means) its mean or (intervals) its bounds.
        self.arms = np.full(groups, -1, dtype=np.int64)
        self.means = np.full(groups, np.nan)
        self.lower, self.upper = np.full(groups, -np.inf), np.full(groups, np.inf)
        # What its in-neighbours say, by (neighbour, arm-set).
        shape = (len(neighbours), groups)
        self.votes = np.full(shape, -1, dtype=np.int64)
        self.said_mean = np.zeros(shape)
        self.said_lower, self.said_upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        self.first: list[list[int]] = [[] for _ in range(groups)]  # the first 2f+1 that report
        self.concluded: dict[int, tuple[int, int]] = {}  # neighbour -> the verdict that it announced
        self.standing = np.ones(groups, dtype=bool)  # groups that are not beaten in its view
        self.told_lower, self.told_upper = np.full(groups, -np.inf), np.full(groups, np.inf)
        self.torn = False  # its bounds contradict each other: it says no more
        self.told = False  # has announced or sent on a verdict

    @property
    def pulls(self) -> int:
        return self.phase1.pulls + max(0, self.count - self.phase1.epoch)

    def local(self) -> dict[str, Any]:
        """This peer's part of the certificate: eliminations, own sums, what it believes, and its verdict."""
        return {
            "epoch": self.phase1.epoch,
            "arm": self.arm if self.sent else None,
            "count": self.count,
            "exits": {c: [getattr(e, c) for e in self.phase1.exits] for c in fedsel.EXIT_COLUMNS},
            "sent": {"count": [n for n, _ in self.sent], "sum": [s for _, s in self.sent]},
            "faulty": self.faulty,
            "ignored": self.ignored,
        }

    def handle(self, event: Event) -> list[Action]:
        demand(self, event)
        match event:
            case Start():
                self.state = "exploring"
                return self._explore()
            case Pulled(sums, times):
                return self._pulled(sums, times)
            case Received(sender, data):
                return self._received(sender, data)
            case PatienceOver():
                return self._tell(pending=True)
            case Stop(reason):
                return self._stop(reason)
        return []

    def _stop(self, reason: str) -> list[Action]:
        """No more pulls; and, unless only its data are at an end (SPENT), no more waiting."""
        actions: list[Action] = [] if self.state == "resting" else [Pull((), 0)]
        self.state = "resting"
        if reason == SPENT or self.verdict is not None:
            self.spent = True
            return actions
        return actions + self._undecided(reason if reason in REASONS else "interrupted")  # type: ignore[arg-type]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        if len(sums) != len(self.asked.arms) or not 0 < times <= self.asked.times:
            raise IllegalEvent(f"{self.name} asked for {self.asked}")
        if not all(0.0 <= s <= times for s in sums):
            raise IllegalEvent(f"{self.name}: the sum of {times} rewards must lie in [0, {times}]")
        if self.state == "exploring":
            self.phase1.absorb(sums, times)
            return self._explore()
        self.sum += sums[0]
        self.count += times
        return self._look() + (self._sample() if self.state == "sampling" else [])

    def _ask(self, arms: tuple[int, ...], times: int) -> list[Action]:
        self.asked = Pull(arms, times)
        return [self.asked]

    def _explore(self) -> list[Action]:
        """Step 1: Algorithm 1."""
        p = self.phase1
        if not p.finished:
            epochs = p.batch()
            if epochs:
                return self._ask(p.arms, epochs)
            self.state, self.spent = "resting", True
            return [Pull((), 0)]
        self.arm, self.count, self.sum = p.best, p.epoch, float(p.sums[p.best])
        self.arms[self.group] = self.arm
        if self.options.exchange == "means":
            self.state = "resting"
            self.sent.append((self.count, self.sum))
            return [Pull((), 0), *self._settle(self.group, self.sum / self.count)]
        self.state = "sampling"
        return self._look() + (self._sample() if self.state == "sampling" else [])

    def _sample(self) -> list[Action]:
        times = min(-(-self.count // STEP), MAX_COUNT - self.count)
        if self.options.budget is not None:
            times = min(times, self.options.budget - self.pulls)
        if times < 1:
            self.state, self.spent = "resting", True
            return [Pull((), 0)]
        return self._ask((self.arm,), times)

    def _received(self, sender: str, data: bytes) -> list[Action]:
        i = self.neighbours.get(sender)
        if i is None or self.out[i]:
            self.ignored += 1
            return []
        try:
            message = decode_claim(data, self.layout.arm_counts, self.options.exchange)
            if isinstance(message, Conclusion):
                return self._hear_verdict(i, message)
            return self._hear(i, message)
        except Malformed as error:
            self.faulty.append({"client": sender, "reason": str(error)})
            self.out[i] = True
            self.votes[i] = -1
            self.concluded.pop(i, None)
            return []

    def _hear(self, i: int, claim: Claim) -> list[Action]:
        """Step 2: what an in-neighbour says of an arm-set."""
        j, before = claim.group, int(self.votes[i, claim.group])
        if before >= 0 and before != claim.arm:
            raise Malformed(f"a second vote for arm-set {j}")
        if self.options.exchange == "means":
            if before >= 0 and self.said_mean[i, j] != claim.mean:
                raise Malformed(f"a second mean for arm-set {j}")
            self.votes[i, j], self.said_mean[i, j] = claim.arm, claim.mean
            if j == self.group or before >= 0 or len(self.first[j]) > 2 * self.f:
                return []
            self.first[j].append(i)
            return self._elect(j) if len(self.first[j]) == 2 * self.f + 1 else []
        if not self.said_lower[i, j] <= claim.lower <= claim.upper <= self.said_upper[i, j]:
            raise Malformed(f"an interval for arm-set {j} that is not within its last one")
        self.votes[i, j] = claim.arm
        self.said_lower[i, j], self.said_upper[i, j] = claim.lower, claim.upper
        return [] if j == self.group else self._narrow(j)

    def _elect(self, j: int) -> list[Action]:
        """Lines 3 and 4 of Algorithm 4: majority vote and trimmed mean of the first 2f+1."""
        votes, said = self.votes[self.first[j], j], self.said_mean[self.first[j], j]
        tally = decide.tally(votes, self.layout.arm_counts[j])
        best = np.flatnonzero(tally == tally.max())
        faults = self.f - len(votes) + int(tally.max())
        if faults < 0:  # more dissent than f liars can cause; a tied vote is one such case
            return self._undecided("tie" if len(best) > 1 else "votes") if self.verdict is None else []
        self.arms[j] = best[0]
        return self._settle(j, decide.trimmed_mean(said[votes == best[0]], faults))

    def _settle(self, j: int, mean: float) -> list[Action]:
        """An entry of I and R is known: pass it on; with the last one comes the answer (line 5)."""
        self.means[j] = mean
        claim = Claim(j, int(self.arms[j]), mean=mean)
        actions: list[Action] = [Send(ALL, *claim.encode(self.layout.arm_counts, "means"))]
        if self.verdict is None and not np.isnan(self.means).any():
            best = int(np.argmax(self.means))
            actions += self._conclude(best, int(self.arms[best]), float(self.means[best]))
        return actions

    def _narrow(self, j: int) -> list[Action]:
        """Rule 1, for another arm-set: f+1 votes, trimmed bounds, intersected."""
        if self.arms[j] < 0:
            enough = np.flatnonzero(decide.tally(self.votes[:, j], self.layout.arm_counts[j]) > self.f)
            if not len(enough):
                return []
            self.arms[j] = enough[0]
        low, high = decide.trim(
            self.said_lower[:, j], self.said_upper[:, j], self.votes[:, j] == self.arms[j], self.f
        )
        if low <= self.lower[j] and high >= self.upper[j]:
            return []
        self.lower[j], self.upper[j] = max(low, self.lower[j]), min(high, self.upper[j])
        return self._review()

    def _look(self) -> list[Action]:
        """Rule 1, for its own arm-set."""
        self.sent.append((self.count, self.sum))
        low, high = decide.interval(self.sum / self.count, self.radius.alpha(self.count))
        j = self.group
        self.lower[j], self.upper[j] = max(float(low), self.lower[j]), min(float(high), self.upper[j])
        return self._review()

    def _review(self) -> list[Action]:
        """What follows from the view: who has fallen, whether to go on sampling, and what to tell."""
        if self.torn or (self.lower >= self.upper).any():
            # Honest intervals hold their mean strictly inside: this is off the good event, and the end.
            self.torn = True
            actions = [] if self.verdict is not None else self._undecided("contradiction")
            if self.state == "sampling":
                self.state = "resting"
                actions.append(Pull((), 0))
            return actions
        everyone = np.ones(len(self.standing), dtype=bool)
        standing = decide.contenders(self.lower, self.upper, everyone)
        fell = bool((self.standing & ~standing).any())
        self.standing = standing
        actions = self._tell(everything=fell)
        alone = bool(self.arms[self.group] >= 0 and standing[self.group] and standing.sum() == 1)
        if alone and self.verdict is None:
            interval = (float(self.lower[self.group]), float(self.upper[self.group]))
            actions += self._announce(Conclusion(self.group, self.arm))
            actions += self._conclude(self.group, self.arm, sum(interval) / 2.0, interval)
        if self.state == "sampling" and self._may_rest(alone):
            self.state = "resting"
            actions.append(Pull((), 0))
        return actions

    def _may_rest(self, alone: bool) -> bool:
        """Rule 2: its group is beaten, or alone, in its own view; a verdict alone is no reason."""
        return alone or not self.standing[self.group]

    def _tell(self, everything: bool = False, pending: bool = False) -> list[Action]:
        """Send on what is new: all of it, or what has shrunk by the factor."""
        if self.options.exchange == "means" or self.torn:
            return []
        actions: list[Action] = []
        with np.errstate(invalid="ignore"):
            width, told = self.upper - self.lower, self.told_upper - self.told_lower
        changed = (self.lower > self.told_lower) | (self.upper < self.told_upper)
        due = changed & (self.arms >= 0) & np.isfinite(width)
        if not (everything or pending):
            due &= ~np.isfinite(told) | (width <= self.options.tighten * told)
        for j in np.flatnonzero(due):
            low, high = float(self.lower[j]), float(self.upper[j])
            self.told_lower[j], self.told_upper[j] = low, high
            claim = Claim(int(j), int(self.arms[j]), lower=low, upper=high)
            actions.append(Send(ALL, *claim.encode(self.layout.arm_counts, "intervals")))
        return actions

    @property
    def pending(self) -> bool:
        """Whether it knows something that it has not sent on."""
        changed = (self.lower > self.told_lower) | (self.upper < self.told_upper)
        talks = self.options.exchange == "intervals" and not self.torn
        return talks and bool((changed & (self.arms >= 0)).any())

    def _hear_verdict(self, i: int, message: Conclusion) -> list[Action]:
        """Rule 3: adopt a verdict on f+1 equal ones, and send it on."""
        found = (message.group, message.arm)
        if self.concluded.setdefault(i, found) != found:
            raise Malformed("a second verdict")
        if list(self.concluded.values()).count(found) <= self.f:
            return []
        return self._announce(message) + (self._conclude(*found) if self.verdict is None else [])

    def _announce(self, message: Conclusion) -> list[Action]:
        if self.told:
            return []
        self.told = True
        return [Send(ALL, *message.encode(self.layout.arm_counts, "intervals"))]

    def _conclude(
        self, group: int, arm: int, mean: float | None = None, interval: tuple[float, float] | None = None
    ) -> list[Action]:
        name = self.layout.arm(group, arm)
        self.verdict = Verdict(status="identified", arm=name, mean=mean, interval=interval)
        return [Decided(self.verdict)]

    def _undecided(self, reason: Reason) -> list[Action]:
        names = []
        for j in np.flatnonzero(self.standing):
            arms = [int(self.arms[j])] if self.arms[j] >= 0 else range(self.layout.arm_counts[j])
            names += [self.layout.arm(int(j), arm) for arm in arms]
        self.verdict = Verdict(status="undecided", reason=reason, candidates=tuple(names))
        return [Decided(self.verdict)]


def audit_client(part: Mapping[str, Any], layout: Layout, options: Options, name: str) -> Iterator[str]:
    """Check an honest peer's eliminations and its own counts."""
    j = layout.group_of[name]
    r = radius("paper", len(layout.clients), layout.arm_counts[j], options.delta)
    yield from fedsel.audit_exits(part, r, layout.arm_counts[j], options.c)
    counts, sums = np.asarray(part["sent"]["count"]), np.asarray(part["sent"]["sum"], dtype=np.float64)
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that so many rewards can't have"
    pulls = sum(fedsel.pulls_of(part, layout.arm_counts[j], options))
    if options.budget is not None and pulls > options.budget:
        yield "made more pulls than its budget"
