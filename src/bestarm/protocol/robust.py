"""Robust Fed-SEL (Algorithm 3): groups of clients of which up to f a group lie.

The tight rules (the default) need 2f+1 clients a group, the paper's 3f+1.

- *Vote.* Tight: the first arm with f+1 valid votes is the group's; one of them is honest. Paper: the
  majority among the first 2f+1 reports, C′.
- *Trim.* f_j = f − |proven faulty ∪ dissenters|. Those are out, with their intervals; of the members left
  (the voters for the group's arm) at most f_j lie. U is the (f_j+1)-th smallest upper bound, L the
  (f_j+1)-th largest lower bound. A client whose own intervals have no point in common counts as a dissenter:
  on the good event it lies.
- *Silence.* A member that is missing keeps its last valid interval. A round goes on after |C_j| − f replies
  of members (paper: after |C̄_j| − f_j), once the driver's patience is over; with all of them, at once.
- *Late.* Tight: a late reporter that voted for the group's arm is admitted. Paper: it deactivates.

Every reply carries its own sample count, so that a late or stale one is read with the right radius; a lie
about the count is harmless. It ends under eventual delivery; stale intervals admit no bound on pulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bestarm.confidence import radius
from bestarm.errors import InputError
from bestarm.problem import Layout
from bestarm.protocol import decide, fedsel
from bestarm.protocol.codec import Malformed
from bestarm.protocol.elimination import least_count
from bestarm.protocol.machine import Action, Pull, Pulled, Received, Transitions
from bestarm.protocol.messages import (
    Final,
    Onward,
    Refinement,
    Reply,
    Report,
    Stopped,
    Wire,
    decode_downlink,
    decode_grouped,
    encode_grouped,
)
from bestarm.protocol.options import choice, option
from bestarm.protocol.rounds import DISAGREE, GroupServer, refuse_small_groups, the_end
from bestarm.protocol.verdict import Reason

NEEDS = {"tight": 2, "paper": 3}  # times f, plus one: clients a group


@dataclass(frozen=True, kw_only=True)
class Options(fedsel.Options):
    """Options of `robust-fed-sel`."""

    rules: str = option(
        "tight",
        'vote and trim: "tight" bears f liars among 2f+1 clients, "paper" among 3f+1',
        choice(*NEEDS),
        " or ".join(f'"{r}"' for r in NEEDS),
    )


def refuse(layout: Layout, options: Options) -> None:
    """Raise InputError for a layout or options that Robust Fed-SEL can't serve."""
    for key in ("epsilon", "early_stop"):
        if getattr(options, key):
            raise InputError(
                f"{key} = {getattr(options, key)} can't be used with robust-fed-sel: honest clients of a "
                "group might then report different arms",
                fix='Leave it out, or use method = "fisher", which bears liars and has epsilon',
            )
    refuse_small_groups(layout, options, NEEDS[options.rules], f'rules = "{options.rules}"')
    fedsel.refuse_budget(layout, options)


def wire_of(layout: Layout, options: Options) -> Wire:
    """What both ends know without being told."""
    binary = tuple(group.binary for group in layout.groups)
    return Wire(layout.arm_counts, binary, stoppable=options.budget is not None or layout.finite)


class Client(fedsel.Client):
    """One client: Fed-SEL's, but for its words, and for what it does when it is late."""

    transitions: ClassVar[Transitions] = {
        **fedsel.Client.transitions,
        ("sampling", Pulled): frozenset({"sampling", "reported"}),
        ("sampling", Received): frozenset({"sampling", "done"}),
    }
    options: Options

    def __init__(self, layout: Layout, name: str, options: Options) -> None:
        super().__init__(layout, name, options)
        self.wire = wire_of(layout, options)
        self.stopped = False  # has said that it makes no more pulls
        self.behind = False  # heard of another round while it was pulling for one

    def _encode(self, message: Report | Refinement, bits: int = 0) -> tuple[bytes, int]:
        words: Report | Reply | Stopped
        if isinstance(message, Report):
            self.stopped = message.remaining is not None
            words = Stopped() if self.stopped else message  # without its arm it has no vote
        elif message.index is None and message.mean is None:
            words = Stopped()
        else:
            words = Reply(self.count, message.index, message.mean)
        return encode_grouped(words, self.wire, self.group, bits)

    def _refine(self) -> list[Action]:
        actions = super()._refine()
        if self.behind:
            self.behind = False
            actions = actions[:-1] + self._sample()
        return actions

    def _received(self, data: bytes) -> list[Action]:
        try:
            message = decode_downlink(data, self.wire)
        except Malformed:
            self.ignored += 1
            return []
        if isinstance(message, Final):
            self.state = "done"
            return the_end(self.layout, message)
        assert isinstance(message, Onward)  # the only other message of a run without early stop
        self.round += 1
        if not message.is_active(self.group) or (self.state == "exploring" and self.options.rules == "paper"):
            self.state = "done"
            return [Pull((), 0)]
        if self.state == "sampling":
            self.behind = True
        if self.state != "reported":
            return []
        return self._exhausted() if self.spent else self._sample()

    def _exhausted(self) -> list[Action]:
        actions = super()._exhausted()
        actions, self.stopped = actions[: 1 if self.stopped else 2], True
        return actions


class Server(GroupServer):
    """The server of Robust Fed-SEL."""

    def __init__(self, layout: Layout, options: Options) -> None:
        self.own_wire = wire_of(layout, options)
        super().__init__(layout, self.own_wire, options.byzantine)
        self.options, self.tight = options, options.rules == "tight"
        self.intersect = options.intersect or self.tight
        radii = {
            arms: radius(options.radius, len(layout.clients), arms, options.delta)
            for arms in set(layout.arm_counts)
        }
        self.radii = [radii[arms] for arms in layout.arm_counts]
        self.least = [least_count(r, options.c) for r in self.radii]
        clients, groups = len(layout.clients), len(layout.groups)
        self.vote = np.full(clients, -1, dtype=np.int64)
        self.first = np.zeros(clients, dtype=bool)  # the paper's C′: the first 2f+1 of each group
        self.arm = np.full(groups, -1, dtype=np.int64)  # the group's arm, once it is elected
        self.client_lower = np.full(clients, -np.inf)
        self.client_upper = np.full(clients, np.inf)
        self.torn = np.zeros(clients, dtype=bool)  # has sent intervals that have no point in common
        self.told: list[list[tuple[int, float]]] = [[] for _ in range(clients)]  # (count, mean)
        self.most = 0  # samples that the rounds so far can have added to a report's
        self.lower, self.upper = np.full(groups, -np.inf), np.full(groups, np.inf)

    def _take(self, i: int, data: bytes) -> None:
        j = int(self.group[i])
        alpha = self.radii[j].alpha
        precision = (lambda count: int(decide.precision(alpha(count)))) if self.options.quantiser else None
        message, bits = decode_grouped(data, self.own_wire, j, self.least[j], precision)
        match message:
            case Report(arm, count, mean):
                if self.vote[i] >= 0:
                    raise Malformed("a second vote")
                if self.spent[i]:
                    raise Malformed("a vote after it had stopped")
                self._take_interval(i, j, count, mean)
                self.vote[i] = arm
                self._elect(i, j)
            case Reply(count, index, exact):
                if self.spent[i]:
                    raise Malformed("a reply after it had stopped")
                if self.vote[i] < 0:  # no proof of anything: its report may have been lost
                    self.bits_up += bits
                    return
                before = self.told[i]
                if len(before) > self.round:
                    raise Malformed("more replies than there were rounds")
                if not before[-1][0] < count <= before[0][0] + self.most:
                    raise Malformed(f"{count} samples after {before[-1][0]}, which no round asked for")
                bits_of_bin = int(decide.precision(alpha(count)))
                said = exact if index is None else decide.bin_centre(index, bits_of_bin)
                self._take_interval(i, j, count, said)
            case Stopped():
                if self.spent[i]:
                    raise Malformed("a second stop")
                self.spent[i] = True
        self.bits_up += bits
        self.replied[i] = True

    def _take_interval(self, i: int, j: int, count: int, mean: Any) -> None:
        lower, upper = decide.interval(mean, self.radii[j].alpha(count))
        if self.intersect:
            lower = np.maximum(lower, self.client_lower[i])
            upper = np.minimum(upper, self.client_upper[i])
            if lower > upper:  # not on the good event, if it is honest and sees what the others see
                self.torn[i] = True
                self._warn(j, f"the intervals of {self.layout.clients[i]} contradict each other")
        self.client_lower[i], self.client_upper[i] = lower, upper
        self.told[i].append((count, float(mean)))

    def _elect(self, i: int, j: int) -> None:
        """Count a new vote."""
        mine, arms = self.members[j], self.layout.arm_counts[j]
        if self.tight:
            if self.arm[j] < 0:
                enough = np.flatnonzero(decide.tally(self._votes(mine), arms) > self.f)
                self.arm[j] = enough[0] if len(enough) else -1
            return
        if self.first[mine].sum() > 2 * self.f:
            return  # the first 2f+1 are in; this one deactivates
        self.first[i] = True
        if self.first[mine].sum() == 2 * self.f + 1:
            votes = decide.tally(np.where(self.first[mine], self.vote[mine], -1), arms)
            best = np.flatnonzero(votes == votes.max())
            self.arm[j] = best[0] if len(best) == 1 else -1

    def _votes(self, mine: slice) -> decide.Ints:
        return np.where(self.out[mine], -1, self.vote[mine])

    def _voters(self, mine: slice) -> decide.Mask:
        """Whose votes count: everybody's, or those of C′."""
        voted: decide.Mask = self.vote[mine] >= 0
        return voted if self.tight else voted & self.first[mine]

    def _suspects(self, j: int) -> decide.Mask:
        """Proven faulty, dissenting, or at odds with itself: a union."""
        mine = self.members[j]
        dissent = self._voters(mine) & (self.arm[j] >= 0) & (self.vote[mine] != self.arm[j])
        return np.asarray(self.out[mine] | dissent | self.torn[mine])

    def _trust(self, j: int) -> tuple[decide.Mask, int]:
        """The members of a group, whose intervals count, and f_j: how many of them may lie."""
        mine, suspects = self.members[j], self._suspects(j)
        return self._voters(mine) & ~suspects, self.f - int(suspects.sum())

    def _hoped(self, j: int) -> decide.Mask:
        """Whose intervals count, or may yet: under the paper's rules nobody joins C′."""
        if self.tight or self.arm[j] < 0:
            return np.asarray(~self._suspects(j))
        return self._trust(j)[0]

    def _bears_absence(self, j: int) -> bool:
        """Whether rounds of this group can be closed, and its bounds can narrow, without the absent.

        Up to f_j of them are like any f_j that are silent. More can be borne while 2f_j + 1 others are
        left: then the honest ones of those outnumber the f_j that may lie.
        """
        absent = self.absent[self.members[j]]
        if not absent.any():
            return True
        hoped = self._hoped(j)
        faults = self.f - int(self._suspects(j).sum())
        return bool((hoped & absent).sum() <= faults or (hoped & ~absent).sum() > 2 * faults)

    def _is_ready(self, j: int) -> bool:
        if self.arm[j] < 0:
            return False
        if not self.tight and self.round == 0:
            return True  # it has heard from 2f+1
        mine = self.members[j]
        members, faults = self._trust(j)
        hoped, absent = self._hoped(j), self.absent[mine]
        here = hoped & (self.replied[mine] | (self.spent[mine] & ~absent))
        if not (hoped & ~absent & ~here).any():
            return True
        enough = self.sizes[j] - self.f if self.tight else members.sum() - faults
        return not self.patient and bool(here.sum() >= enough)

    def _stuck(self, j: int) -> Reason | None:
        mine = self.members[j]
        if (suspects := self._suspects(j)).sum() > self.f:
            self._warn(j, f"{suspects.sum()} clients are suspect, more than byzantine = {self.f}")
            return "votes"
        if not self._bears_absence(j):
            return "silence"
        if self.arm[j] >= 0:
            return None
        to_come = (~(self.out[mine] | self.spent[mine] | (self.vote[mine] >= 0))).sum()
        if self.tight:
            hopeless = decide.tally(self._votes(mine), self.layout.arm_counts[j]).max() + to_come <= self.f
        else:
            reports = self.first[mine].sum()
            hopeless = reports == 2 * self.f + 1 or reports + to_come <= 2 * self.f
        if not hopeless:
            return None
        return "budget" if self.spent[mine].any() else "tie"

    def _close_round(self) -> list[Action]:
        spent = np.zeros(len(self.active), dtype=bool)
        rows = []
        for j in np.flatnonzero(self.active):
            mine = self.members[j]
            members, faults = self._trust(int(j))
            bounds = self.client_lower[mine], self.client_upper[mine], members
            self.lower[j], self.upper[j] = decide.trim(*bounds, faults)
            if decide.disagree(bounds[0][members], bounds[1][members], faults):
                self._warn(int(j), DISAGREE)
            # Of those that still pull, or may join, at least one must be honest.
            spent[j] = (self._hoped(int(j)) & ~self.spent[mine]).sum() <= faults
            rows.append((int(self.arm[j]), int(members.sum()), faults))
        last_round = self.options.max_rounds is not None and self.round + 1 >= self.options.max_rounds
        stay, outcome, first = decide.close_round(
            self.lower, self.upper, self.active, self.arm >= 0, spent, last_round=last_round
        )
        self._note(stay, rows)
        if outcome == decide.CONTRADICTION:
            return self._undecided("contradiction")
        self.active = stay
        if outcome == decide.IDENTIFIED:
            low, high = float(self.lower[first]), float(self.upper[first])
            arm = int(self.arm[first])
            return self._identified(int(first), arm, mean=(low + high) / 2.0, interval=(low, high))
        if outcome != decide.GO_ON:
            return self._undecided("budget" if outcome == decide.BUDGET else "rounds")
        self.most += decide.period(self.round + 1, self.options.period, self.options.period_growth)
        return self._next_round(Onward.of(self.active))

    def _note(self, stay: decide.Mask, rows: list[tuple[int, int, int]]) -> None:
        """This round's line of the certificate: the robust bounds of each active group, and who fell."""
        groups = np.flatnonzero(self.active)
        counts = [max((t[-1][0] for t in self.told[self.members[j]] if t), default=0) for j in groups]
        lower, upper = self.lower[groups], self.upper[groups]
        self.history.append(
            {
                "round": self.round,
                "group": groups.tolist(),
                "arm": [arm for arm, _, _ in rows],
                "members": [members for _, members, _ in rows],
                "faults": [faults for _, _, faults in rows],
                "count": counts,
                "mean": ((lower + upper) / 2.0).tolist(),
                "lower": lower.tolist(),
                "upper": upper.tolist(),
                "threshold": float(decide.threshold(self.lower, self.active)),
                "out": np.flatnonzero(self.active & ~stay).tolist(),
            }
        )

    def _left(self, j: int) -> list[int]:
        return [int(self.arm[j])] if self.arm[j] >= 0 else list(range(self.layout.arm_counts[j]))

    def _has_beaten(self, j: int) -> bool:
        return fedsel.led(self.history, j)

    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best, where all intervals are known and hold."""
        if not np.isfinite(self.upper[self.active]).all() or reason in ("votes", "tie", "contradiction"):
            return None
        return min(max(float(decide.shortfall(self.lower, self.upper, self.active)), 0.0), 1.0)

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "arms": [None if arm < 0 else int(arm) for arm in self.arm]}


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check one honest client's eliminations, its counts, and its sums against what the server decoded."""
    i = server.index[name]
    j = int(server.group[i])
    r, options, arms, told = server.radii[j], server.options, server.layout.arm_counts[j], server.told[i]
    if server.out[i]:
        yield "is proven faulty, and shown as honest"
    yield from fedsel.audit_exits(part, r, arms, options.c)
    epoch, count, sent = part["epoch"], part["count"], part["sent"]
    counts, sums = np.asarray(sent["count"]), np.asarray(sent["sum"], dtype=np.float64)
    left = np.ones(arms, dtype=bool)
    left[part["exits"]["arm"]] = False
    if not 0 <= len(counts) - len(told) <= 1:
        yield "sent more, or less, than the server was told"
    if not len(counts):
        if part["arm"] is not None or count != 0:
            yield "says that it sent nothing, and that it found an arm"
        return
    least = server.least[j]
    ended = max([least if arms == 1 else 0, *part["exits"]["epoch"]])
    if told and (not decide.finished(left, epoch, least=least, over=np.inf) or epoch != ended):
        yield "says that it was finished, but its eliminations don't show it"
    if counts[0] != epoch or not left[part["arm"]]:
        yield "reported an arm or a count that is not its own"
    periods = [decide.period(k, options.period, options.period_growth) for k in range(1, server.round + 2)]
    if not (np.diff(counts) > 0).all() or counts[-1] > epoch + sum(periods):
        yield "sent counts that no rounds asked for"
    if not 0 <= count - counts[-1] < max(periods):
        yield "made more pulls than a round has"
    rises = np.diff(sums, prepend=0.0)
    if not ((rises >= 0) & (rises <= np.diff(counts, prepend=0))).all():
        yield "has sums that so many rewards can't have"
    if options.budget is not None and sum(fedsel.pulls_of(part, arms, options)) > options.budget:
        yield "made more pulls than its budget"
    means = sums / counts
    if options.quantiser:
        bits = decide.precision(r.alpha(counts))
        means[1:] = decide.bin_centre(decide.bin_index(means, bits), bits)[1:]
    if told != list(zip(counts.tolist(), means.tolist(), strict=True))[: len(told)]:
        yield "has sums that are not what the server was told"
    if told and server.vote[i] != part["arm"]:
        yield "voted for an arm that is not its own"
