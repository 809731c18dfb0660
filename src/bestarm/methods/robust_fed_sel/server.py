"""The server of Robust Fed-SEL."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.elimination import least_count
from bestarm.methods.fed_sel.messages import Report
from bestarm.methods.robust_fed_sel import decisions as robust_decisions
from bestarm.methods.robust_fed_sel.messages import Reply, decode_grouped
from bestarm.methods.robust_fed_sel.options import RobustFedSel, wire_of
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action
from bestarm.protocol.group_server import DISAGREE, GroupServer
from bestarm.protocol.messages import Onward, Stopped
from bestarm.protocol.verdict import Reason
from bestarm.stats.radii import radius


class Server(GroupServer):
    """The server of Robust Fed-SEL."""

    def __init__(self, layout: Layout, options: RobustFedSel) -> None:
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
        self.arm = np.full(groups, -1, dtype=np.int64)  # the elected arm of each group, or −1
        self.client_lower = np.full(clients, -np.inf)
        self.client_upper = np.full(clients, np.inf)
        self.torn = np.zeros(clients, dtype=bool)  # has sent disjoint intervals
        self.told: list[list[tuple[int, float]]] = [[] for _ in range(clients)]  # (count, mean): audit
        self.times = [0] * clients  # how often each has told a count
        self.first_count, self.last_count = [0] * clients, [0] * clients
        self.most = 0  # samples that the rounds so far can have added to those of a report
        self.lower, self.upper = np.full(groups, -np.inf), np.full(groups, np.inf)

    def _take(self, i: int, data: bytes) -> None:
        j = int(self.group[i])
        alpha = self.radii[j].alpha
        precision = (
            (lambda count: int(fed_sel_decisions.precision(alpha(count)))) if self.options.quantiser else None
        )
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
                if self.vote[i] < 0:  # this proves nothing: its report may have been lost
                    self.bits_up += bits
                    return
                if self.times[i] > self.round:
                    raise Malformed("more replies than there were rounds")
                before = self.last_count[i]
                if not before < count <= self.first_count[i] + self.most:
                    raise Malformed(f"{count} samples after {before}, which no round asked for")
                bits_of_bin = int(fed_sel_decisions.precision(alpha(count)))
                said = exact if index is None else decisions.bin_centre(index, bits_of_bin)
                self._take_interval(i, j, count, said)
            case Stopped():
                if self.spent[i]:
                    raise Malformed("a second stop")
                self.spent[i] = True
        self.bits_up += bits
        self.replied[i] = True

    def _take_interval(self, i: int, j: int, count: int, mean: Any) -> None:
        lower, upper = fed_sel_decisions.interval(mean, self.radii[j].alpha(count))
        if self.intersect:
            lower = np.maximum(lower, self.client_lower[i])
            upper = np.minimum(upper, self.client_upper[i])
            if decisions.empty(
                lower, upper
            ):  # impossible on the good event for an honest client with the same rewards
                self.torn[i] = True
                self._warn(j, f"the intervals of {self.layout.clients[i]} contradict each other")
        self.client_lower[i], self.client_upper[i] = lower, upper
        self.told[i].append((count, float(mean)))
        self.first_count[i] = self.first_count[i] if self.times[i] else count
        self.last_count[i] = count
        self.times[i] += 1

    def _elect(self, i: int, j: int) -> None:
        """Count a new vote."""
        mine, arms = self.members[j], self.layout.arm_counts[j]
        if self.tight:
            if self.arm[j] < 0:
                enough = np.flatnonzero(robust_decisions.tally(self._votes(mine), arms) > self.f)
                self.arm[j] = enough[0] if len(enough) else -1
            return
        if self.first[mine].sum() > 2 * self.f:
            return  # the first 2f+1 have reported, so this one deactivates
        self.first[i] = True
        if self.first[mine].sum() == 2 * self.f + 1:
            votes = robust_decisions.tally(np.where(self.first[mine], self.vote[mine], -1), arms)
            best = np.flatnonzero(votes == votes.max())
            self.arm[j] = best[0] if len(best) == 1 else -1

    def _votes(self, mine: slice) -> decisions.Ints:
        return np.where(self.out[mine], -1, self.vote[mine])

    def _voters(self, mine: slice) -> decisions.Mask:
        """The members whose votes count: all that voted, or those in C′."""
        voted: decisions.Mask = self.vote[mine] >= 0
        return voted if self.tight else voted & self.first[mine]

    def _suspects(self, j: int) -> decisions.Mask:
        """The members that are proven faulty, dissent, or contradict themselves."""
        mine = self.members[j]
        dissent = self._voters(mine) & (self.arm[j] >= 0) & (self.vote[mine] != self.arm[j])
        return np.asarray(self.out[mine] | dissent | self.torn[mine])

    def _trust(self, j: int) -> tuple[decisions.Mask, int]:
        """The clients of a group whose intervals count, and f_j, how many of them may lie."""
        mine, suspects = self.members[j], self._suspects(j)
        return self._voters(mine) & ~suspects, self.f - int(suspects.sum())

    def _hoped(self, j: int) -> decisions.Mask:
        """The clients whose intervals count or may count later; in the paper's rules no client joins C′."""
        if self.tight or self.arm[j] < 0:
            return np.asarray(~self._suspects(j))
        return self._trust(j)[0]

    def _tolerates_absence(self, j: int) -> bool:
        """Whether rounds of this group can close, and its bounds can narrow, without the absent clients.

        Up to f_j absent clients count as silent. More are tolerated as long as 2f_j + 1 others are left: the
        honest ones among those then outnumber the f_j that may lie.
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
            return True  # 2f+1 clients have reported
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
        if not self._tolerates_absence(j):
            return "silence"
        if self.arm[j] >= 0:
            return None
        to_come = (~(self.out[mine] | self.spent[mine] | (self.vote[mine] >= 0))).sum()
        if self.tight:
            hopeless = (
                robust_decisions.tally(self._votes(mine), self.layout.arm_counts[j]).max() + to_come <= self.f
            )
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
            self.lower[j], self.upper[j] = robust_decisions.trim(*bounds, faults)
            if decisions.disagree(bounds[0][members], bounds[1][members], faults):
                self._warn(int(j), DISAGREE)
            # At least one client that still pulls, or may join, must be honest.
            spent[j] = (self._hoped(int(j)) & ~self.spent[mine]).sum() <= faults
            rows.append((int(self.arm[j]), int(members.sum()), faults))
        last_round = self.options.max_rounds is not None and self.round + 1 >= self.options.max_rounds
        stay, outcome, first = fed_sel_decisions.close_round(
            self.lower, self.upper, self.active, self.arm >= 0, spent, last_round=last_round
        )
        self._note(stay, rows)
        if outcome == decisions.CONTRADICTION:
            return self._undecided("contradiction")
        self.active = stay
        if outcome == decisions.IDENTIFIED:
            low, high = float(self.lower[first]), float(self.upper[first])
            arm = int(self.arm[first])
            return self._identified(int(first), arm, mean=(low + high) / 2.0, interval=(low, high))
        if outcome != decisions.GO_ON:
            return self._undecided("budget" if outcome == decisions.BUDGET else "rounds")
        self.most += fed_sel_decisions.period(self.round + 1, self.options.period, self.options.period_growth)
        return self._next_round(Onward.of(self.active))

    def _note(self, stay: decisions.Mask, rows: list[tuple[int, int, int]]) -> None:
        """Add this round's row to the certificate: bounds of the active groups, and the dropped groups."""
        groups = np.flatnonzero(self.active)
        counts = [max(self.last_count[self.members[j]]) for j in groups]
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
                "threshold": float(decisions.threshold(self.lower, self.active)),
                "out": np.flatnonzero(self.active & ~stay).tolist(),
            }
        )

    def _left(self, j: int) -> list[int]:
        return [int(self.arm[j])] if self.arm[j] >= 0 else list(range(self.layout.arm_counts[j]))

    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best arm, if all intervals are known and valid."""
        if not np.isfinite(self.upper[self.active]).all() or reason in ("votes", "tie", "contradiction"):
            return None
        return min(max(float(fed_sel_decisions.shortfall(self.lower, self.upper, self.active)), 0.0), 1.0)

    def forget(self) -> None:
        super().forget()
        self._forget_rounds()
        for told in self.told:
            told.clear()

    def certificate(self) -> dict[str, Any]:
        return {**super().certificate(), "arms": [None if arm < 0 else int(arm) for arm in self.arm]}
