"""The server of Fed-SEL, as a machine without I/O."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.elimination import least_count
from bestarm.methods.fed_sel.messages import Bound, Report, decode_refinement, decode_report
from bestarm.methods.fed_sel.options import FedSel, wire_of
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.events import Action
from bestarm.protocol.messages import Onward, Withdrawn
from bestarm.protocol.solo_server import SoloServer
from bestarm.protocol.verdict import Reason
from bestarm.stats.radii import radius


class Server(SoloServer):
    """The server of Fed-SEL."""

    def __init__(self, layout: Layout, options: FedSel) -> None:
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
        self.resolved = np.zeros(groups, dtype=bool)  # the group has reported its best arm
        self.spent = np.zeros(groups, dtype=bool)  # makes no more pulls: its last interval remains valid
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
        lower, _ = fed_sel_decisions.interval(message.mean, self.radii[j].alpha(message.count))
        if not (self.options.early_stop and fed_sel_decisions.raises_bound(lower, self.bound)):
            return []
        self.bound = float(lower)
        return [self._send(Bound(self.bound))]

    def _refinement(self, j: int, data: bytes) -> list[Action]:
        # The count follows from the round, so it is not sent.
        count = int(self.count[j]) + fed_sel_decisions.period(
            self.round, self.options.period, self.options.period_growth
        )
        bits = int(fed_sel_decisions.precision(self.radii[j].alpha(count)))
        message, size = decode_refinement(data, self.own_wire, j, count, bits, self.options.quantiser)
        self.bits_up += size
        if message.index is None and message.mean is None:
            self.spent[j] = True
            return []
        self.count[j] = count
        self.mean[j] = (
            decisions.bin_centre(message.index, bits) if message.index is not None else message.mean
        )
        return []

    def _close_round(self) -> list[Action]:
        known = self.active
        lower, upper = fed_sel_decisions.interval(self.mean, self.radius.alpha(self.count))
        if self.options.intersect:
            lower, upper = np.maximum(lower, self.lower), np.minimum(upper, self.upper)
        self.lower = np.where(known, lower, self.lower)
        self.upper = np.where(known, upper, self.upper)
        last_round = self.options.max_rounds is not None and self.round + 1 >= self.options.max_rounds
        stay, outcome, first = fed_sel_decisions.close_round(
            self.lower,
            self.upper,
            self.active,
            self.resolved,
            self.spent,
            epsilon=self.options.epsilon,
            last_round=last_round,
        )
        self._note(stay)
        if outcome == decisions.CONTRADICTION:
            return self._undecided(decisions.REASON_OF[decisions.CONTRADICTION])
        self.active = stay
        if outcome == decisions.IDENTIFIED:
            return self._won(int(first))
        if outcome != decisions.GO_ON:
            return self._undecided(decisions.REASON_OF[int(outcome)])
        return self._next_round(self.active & ~self.spent, Onward.of(self.active))

    def _note(self, stay: decisions.Mask) -> None:
        """Add this round's row to the certificate: each active group, and the groups that were dropped."""
        groups = np.flatnonzero(self.active)
        self.history.append(
            {
                "round": self.round,
                "group": groups.tolist(),
                "count": self.count[groups].tolist(),
                "mean": self.mean[groups].tolist(),
                "lower": self.lower[groups].tolist(),
                "upper": self.upper[groups].tolist(),
                "threshold": float(decisions.threshold(self.lower, self.active)),
                "out": np.flatnonzero(self.active & ~stay).tolist(),
            }
        )

    def _shortfall(self) -> float:
        return float(fed_sel_decisions.shortfall(self.lower, self.upper, self.active))

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
        told = self.options.early_stop and self.reports[j] is not None  # others may know its bound
        return told or super()._has_beaten(j)

    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best arm, if all intervals are known and valid."""
        if not np.isfinite(self.upper[self.active]).all() or reason in ("votes", "contradiction"):
            return None
        first = int(decisions.leader(self.lower, self.active))
        report = self.reports[first]
        gap = self._shortfall() + self.options.epsilon / 2.0
        if report is not None and report.remaining is not None:
            gap = max(gap, float(self.upper[first] - self.lower[first]))
        return min(max(gap, 0.0), 1.0)

    def forget(self) -> None:
        super().forget()
        self._forget_rounds()

    def certificate(self) -> dict[str, Any]:
        arms = [None if report is None else report.arm for report in self.reports]
        return {**super().certificate(), "arms": arms}
