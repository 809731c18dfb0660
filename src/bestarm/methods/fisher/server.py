"""The server of Fed-Fisher."""

from __future__ import annotations

from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import looks_of, price_of_loss, wire_of
from bestarm.methods.fisher.messages import LookDown, LookReport, decode_look_report
from bestarm.methods.fisher.options import Fisher
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Action
from bestarm.protocol.messages import Withdrawn
from bestarm.protocol.solo_server import SoloServer
from bestarm.protocol.verdict import Reason
from bestarm.stats.fisher_exact import fisher_pvalue
from bestarm.stats.intervals import clopper_pearson


class Server(SoloServer):
    """The server of Fed-Fisher."""

    def __init__(self, layout: Layout, options: Fisher) -> None:
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
            lower, upper = fisher_decisions.bin_edges(message.index, n, bits)
            if decisions.empty(lower, upper):
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
        lower, upper = fisher_decisions.bin_edges(self.index, self.n, self.looks.bits(self.look))
        stay, first = fisher_decisions.close_look(
            lower, upper, self.active, self.n, self.looks.level(self.look)
        )
        self._note(stay, int(first), lower, upper)
        self.active = stay
        j = self.leader = int(first)
        code = self._outcome(lower, upper)
        if code == decisions.IDENTIFIED:
            return self._won(j, lower, upper)
        if code != decisions.GO_ON:
            return self._undecided(decisions.REASON_OF[code])
        message = LookDown.of(self.active, int(self.index[j]), self.looks.bits(self.look))
        self.look += 1
        return self._next_round(self.active.copy(), message)

    def _outcome(self, lower: decisions.Ints, upper: decisions.Ints) -> int:
        """The outcome of this look. After the last look both ends know that no client can continue."""
        named = fisher_decisions.settled(
            lower,
            upper,
            self.active,
            self.single,
            np.asarray(self.leader),
            self.n,
            epsilon=self.options.epsilon,
            level=self.looks.interval_level(self.look),
        )
        most = self.options.max_rounds
        last_round = most is not None and self.rounds >= most
        return int(
            fisher_decisions.outcome(named, last_round=last_round, last_look=self.looks.is_last(self.look))
        )

    def _won(self, j: int, lower: decisions.Ints, upper: decisions.Ints) -> list[Action]:
        report = self.reports[j]
        assert report is not None
        interval = None
        if self.options.epsilon > 0:
            level = self.looks.interval_level(self.look)
            interval = (
                float(clopper_pearson(lower[j], self.n, level)[0]),
                float(clopper_pearson(upper[j], self.n, level)[1]),
            )
        mean = float(decisions.bin_centre(self.index[j], self.looks.bits(self.look)))
        return self._identified(j, report.arm, mean=mean, interval=interval)

    def _note(self, stay: decisions.Mask, first: int, lower: decisions.Ints, upper: decisions.Ints) -> None:
        """Add this look's row to the certificate, with the p-value of each group that was dropped."""
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
        """Whether group j was ever the leader: clients may have dropped arms against it without a report."""
        return any(row["leader"] == j for row in self.history)

    def _price_of_loss(self) -> str:
        return price_of_loss(self.looks, self.options)

    def _gap(self, reason: Reason) -> float | None:
        """The gap is known only with ε > 0, which reserves a share of δ for intervals."""
        known = all(self.reports[j] is not None for j in np.flatnonzero(self.active))
        if (
            self.options.epsilon == 0.0
            or not known
            or not self.history
            or reason in ("votes", "contradiction")
        ):
            return None
        row = self.history[-1]  # the last look at which all counts were equal
        lower, upper = np.zeros(len(self.active), dtype=np.int64), np.zeros(len(self.active), dtype=np.int64)
        lower[row["group"]], upper[row["group"]] = row["lower"], row["upper"]
        level = self.looks.interval_level(row["look"])
        single = np.zeros(len(self.active), dtype=bool)
        single[row["group"]] = row["single"]
        short = fisher_decisions.look_shortfall(
            lower,
            upper,
            self.active,
            single,
            decisions.leader(lower.astype(np.float64), self.active),
            row["pulls"],
            level,
        )
        return min(max(float(short), 0.0), 1.0)
