"""One peer, as a machine without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bestarm.methods import fed_sel
from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.elimination import Elimination
from bestarm.methods.p2p import decisions as p2p_decisions
from bestarm.methods.p2p.messages import Claim, Conclusion, decode_claim
from bestarm.methods.p2p.options import PeerToPeer
from bestarm.methods.robust_fed_sel import decisions as robust_decisions
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import (
    ALL,
    SPENT,
    Action,
    Decided,
    Event,
    PatienceOver,
    Pull,
    Pulled,
    Quiet,
    Received,
    Send,
    Start,
    Stop,
)
from bestarm.protocol.machine import StateMachine, Transitions, demand_sums
from bestarm.protocol.verdict import REASONS, Reason, Verdict
from bestarm.stats.radii import MAX_COUNT, radius

STEP = 8  # a sampling peer checks its interval again after 1/8 more pulls


class Peer(StateMachine):
    """One client of a network. It knows the layout, its in-neighbours and the options, but no true mean."""

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
        ("resting", Quiet): frozenset({"resting"}),
        ("exploring", Stop): frozenset({"resting"}),
        ("sampling", Stop): frozenset({"resting"}),
        ("resting", Stop): frozenset({"resting"}),
    }

    def __init__(
        self, layout: Layout, name: str, options: PeerToPeer, neighbours: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.layout, self.name, self.options = layout, name, options
        self.neighbours = {sender: i for i, sender in enumerate(neighbours)}  # the in-neighbours
        self.group = layout.group_of[name]
        self.f = options.byzantine
        self.radius = radius("paper", len(layout.clients), layout.arm_counts[self.group], options.delta)
        self.phase1 = Elimination(
            layout.arm_counts[self.group], self.radius, options.c, budget=options.budget
        )
        self.asked = Pull((), 0)
        self.arm, self.count, self.sum = 0, 0, 0.0
        self.spent = False
        self.sent: list[tuple[int, float]] = []  # (count, sum) of its own arm behind each message
        self.verdict: Verdict | None = None
        self.ignored = 0
        self.faulty: list[dict[str, Any]] = []
        self.out = np.zeros(len(neighbours), dtype=bool)  # proven faulty
        groups = len(layout.groups)
        # The believed best arm of each arm-set, with its mean or (intervals) its bounds.
        self.arms = np.full(groups, -1, dtype=np.int64)
        self.means = np.full(groups, np.nan)
        self.lower, self.upper = np.full(groups, -np.inf), np.full(groups, np.inf)
        # The claims of its in-neighbours, by (neighbour, arm-set).
        shape = (len(neighbours), groups)
        self.votes = np.full(shape, -1, dtype=np.int64)
        self.said_mean = np.zeros(shape)
        self.said_lower, self.said_upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        self.first: list[list[int]] = [[] for _ in range(groups)]  # the first 2f+1 that report
        self.concluded: dict[int, tuple[int, int]] = {}  # neighbour -> the verdict that it announced
        self.standing = np.ones(groups, dtype=bool)  # groups that are not beaten in its view
        self.told_lower, self.told_upper = np.full(groups, -np.inf), np.full(groups, np.inf)
        self.torn = False  # its bounds contradict each other, so it sends nothing more
        self.told = False  # has announced or relayed a verdict

    @property
    def pulls(self) -> int:
        return self.phase1.pulls + max(0, self.count - self.phase1.epoch)

    @property
    def stoppable(self) -> bool:
        """False: a peer cannot announce that it stops pulling. Its last claim remains valid."""
        return False

    def local(self) -> dict[str, Any]:
        """This peer's part of the certificate: eliminations, own sums, beliefs and verdict."""
        return {
            "epoch": self.phase1.epoch,
            "arm": self.arm if self.sent else None,
            "count": self.count,
            "exits": {c: [getattr(e, c) for e in self.phase1.exits] for c in fed_sel.EXIT_COLUMNS},
            "sent": {"count": [n for n, _ in self.sent], "sum": [s for _, s in self.sent]},
            "faulty": self.faulty,
            "ignored": self.ignored,
            **({"view": self._view()} if self.f and self.ticking else {}),
        }

    def _view(self) -> dict[str, Any]:
        """What it believes about the best arm of each arm-set, with its bounds; None where it has none."""
        sides = {"lower": self.lower, "upper": self.upper}
        ends = {key: [x if np.isfinite(x) else None for x in side.tolist()] for key, side in sides.items()}
        return {"arm": self.arms.tolist(), **ends}

    def _handle(self, event: Event) -> list[Action]:
        match event:
            case Start():
                self._enter("exploring")
                return self._explore()
            case Pulled(sums, times):
                return self._pulled(sums, times)
            case Received(sender, data):
                return self._received(sender, data)
            case PatienceOver():
                return self._tell(pending=True)
            case Quiet(spent):
                return [] if self.verdict is not None else self._undecided("budget" if spent else "silence")
            case Stop(reason):
                return self._stop(reason)
        return []

    def _stop(self, reason: str) -> list[Action]:
        """Stop pulling and, unless only the data have run out (SPENT), stop waiting too."""
        actions: list[Action] = [] if self.state == "resting" else [Pull((), 0)]
        self._enter("resting")
        if reason == SPENT or self.verdict is not None:
            self.spent = True
            return actions
        return actions + self._undecided(reason if reason in REASONS else "interrupted")  # type: ignore[arg-type]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        demand_sums(self.name, sums, times, len(self.asked.arms), self.asked.times)
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
            self._enter("resting")
            self.spent = True
            return [Pull((), 0)]
        self.arm, self.count, self.sum = p.best, p.epoch, float(p.sums[p.best])
        self.arms[self.group] = self.arm
        if self.options.exchange == "means":
            self._enter("resting")
            self.sent.append((self.count, self.sum))
            return [Pull((), 0), *self._settle(self.group, self.sum / self.count)]
        self._enter("sampling")
        return self._look() + (self._sample() if self.state == "sampling" else [])

    def _sample(self) -> list[Action]:
        times = min(-(-self.count // STEP), MAX_COUNT - self.count)
        if self.options.budget is not None:
            times = min(times, self.options.budget - self.pulls)
        if times < 1:
            self._enter("resting")
            self.spent = True
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
        """Step 2: process a claim of an in-neighbour about an arm-set."""
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
        last = float(self.said_lower[i, j]), float(self.said_upper[i, j])
        if not p2p_decisions.nested(claim.lower, claim.upper, *last):
            raise Malformed(f"an interval for arm-set {j} that is not within its last one")
        self.votes[i, j] = claim.arm
        self.said_lower[i, j], self.said_upper[i, j] = claim.lower, claim.upper
        return [] if j == self.group else self._narrow(j)

    def _elect(self, j: int) -> list[Action]:
        """Lines 3 and 4 of Algorithm 4: majority vote and trimmed mean of the first 2f+1."""
        votes, said = self.votes[self.first[j], j], self.said_mean[self.first[j], j]
        tally = robust_decisions.tally(votes, self.layout.arm_counts[j])
        best = np.flatnonzero(tally == tally.max())
        faults = self.f - len(votes) + int(tally.max())
        if faults < 0:  # more dissent than f liars can cause, for example a tied vote
            return self._undecided("tie" if len(best) > 1 else "votes") if self.verdict is None else []
        self.arms[j] = best[0]
        return self._settle(j, p2p_decisions.trimmed_mean(said[votes == best[0]], faults))

    def _settle(self, j: int, mean: float) -> list[Action]:
        """Store and relay a new entry of I and R; the last entry gives the answer (line 5)."""
        self.means[j] = mean
        claim = Claim(j, int(self.arms[j]), mean=mean)
        actions: list[Action] = [Send(ALL, *claim.encode(self.layout.arm_counts, "means"))]
        if self.verdict is None and not np.isnan(self.means).any():
            best = int(decisions.best_arm(self.means, np.ones(len(self.means), dtype=bool)))
            actions += self._conclude(best, int(self.arms[best]), float(self.means[best]))
        return actions

    def _narrow(self, j: int) -> list[Action]:
        """Rule 1, for another arm-set: f+1 votes, trimmed bounds, intersected."""
        if self.arms[j] < 0:
            enough = np.flatnonzero(
                robust_decisions.tally(self.votes[:, j], self.layout.arm_counts[j]) > self.f
            )
            if not len(enough):
                return []
            self.arms[j] = enough[0]
        low, high = robust_decisions.trim(
            self.said_lower[:, j], self.said_upper[:, j], self.votes[:, j] == self.arms[j], self.f
        )
        if not p2p_decisions.narrows(low, high, self.lower[j], self.upper[j]):
            return []
        self.lower[j], self.upper[j] = max(low, self.lower[j]), min(high, self.upper[j])
        return self._review()

    def _look(self) -> list[Action]:
        """Rule 1, for its own arm-set."""
        self.sent.append((self.count, self.sum))
        low, high = fed_sel_decisions.interval(self.sum / self.count, self.radius.alpha(self.count))
        j = self.group
        self.lower[j], self.upper[j] = max(float(low), self.lower[j]), min(float(high), self.upper[j])
        return self._review()

    def _review(self) -> list[Action]:
        """Update the view: which groups are beaten, whether to continue sampling, and what to send."""
        if self.torn or p2p_decisions.torn(self.lower, self.upper):
            # The good event has failed, so the run ends.
            self.torn = True
            actions = [] if self.verdict is not None else self._undecided("contradiction")
            if self.state == "sampling":
                self._enter("resting")
                actions.append(Pull((), 0))
            return actions
        everyone = np.ones(len(self.standing), dtype=bool)
        standing = fed_sel_decisions.contenders(self.lower, self.upper, everyone)
        fell = bool((self.standing & ~standing).any())
        self.standing = standing
        actions = self._tell(everything=fell)
        alone = bool(self.arms[self.group] >= 0 and standing[self.group] and standing.sum() == 1)
        if alone and self.verdict is None:
            interval = (float(self.lower[self.group]), float(self.upper[self.group]))
            actions += self._announce(Conclusion(self.group, self.arm))
            actions += self._conclude(self.group, self.arm, sum(interval) / 2.0, interval)
        if self.state == "sampling" and self._may_rest(alone):
            self._enter("resting")
            actions.append(Pull((), 0))
        return actions

    def _may_rest(self, alone: bool) -> bool:
        """Rule 2: stop if its group is beaten or alone in its own view; a verdict is not enough."""
        return alone or not self.standing[self.group]

    def _tell(self, everything: bool = False, pending: bool = False) -> list[Action]:
        """Send new intervals: all of them, or those that have shrunk by the factor."""
        if self.options.exchange == "means" or self.torn:
            return []
        actions: list[Action] = []
        with np.errstate(invalid="ignore"):
            width, told = self.upper - self.lower, self.told_upper - self.told_lower
        changed = p2p_decisions.narrows(self.lower, self.upper, self.told_lower, self.told_upper)
        due = changed & (self.arms >= 0) & np.isfinite(width)
        if not (everything or pending):
            due &= p2p_decisions.shrunk(width, told, self.options.tighten)
        for j in np.flatnonzero(due):
            low, high = float(self.lower[j]), float(self.upper[j])
            self.told_lower[j], self.told_upper[j] = low, high
            claim = Claim(int(j), int(self.arms[j]), lower=low, upper=high)
            actions.append(Send(ALL, *claim.encode(self.layout.arm_counts, "intervals")))
        return actions

    @property
    def ticking(self) -> bool:
        """Whether the peer needs ticks: only intervals are sent repeatedly."""
        return self.options.exchange == "intervals"

    @property
    def pending(self) -> bool:
        """Whether the peer has information that it has not sent yet."""
        changed = p2p_decisions.narrows(self.lower, self.upper, self.told_lower, self.told_upper)
        talks = self.options.exchange == "intervals" and not self.torn
        return talks and bool((changed & (self.arms >= 0)).any())

    def topic_of(self, data: bytes) -> str:
        """The group that a message is about; empty for a verdict. May raise ``Malformed``."""
        message = decode_claim(data, self.layout.arm_counts, self.options.exchange)
        return self.layout.groups[message.group].name if isinstance(message, Claim) else ""

    @property
    def settled(self) -> int:
        """A count of what the peer has found out: known arms, beaten groups and a verdict."""
        return int((self.arms >= 0).sum() + (~self.standing).sum()) + (self.verdict is not None)

    def missing_neighbours(self) -> list[str]:
        """The neighbours that have not yet reported on every group whose arm is still unknown."""
        if self.verdict is not None:
            return []
        unknown = self.arms < 0
        unknown[self.group] = False
        silent = (self.votes[:, unknown] < 0).any(axis=1) & ~self.out
        return [name for name, i in self.neighbours.items() if silent[i]]

    def _hear_verdict(self, i: int, message: Conclusion) -> list[Action]:
        """Rule 3: adopt and relay a verdict that f+1 in-neighbours announce."""
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
