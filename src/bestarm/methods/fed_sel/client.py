"""The client of Fed-SEL, as a machine without I/O."""

from __future__ import annotations

import bisect
from typing import Any, ClassVar

import numpy as np

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.elimination import Elimination
from bestarm.methods.fed_sel.messages import Bound, Refinement, Report, decode_downlink
from bestarm.methods.fed_sel.options import FedSel, wire_of
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Pull, Pulled, Received, Send, Start, Stop
from bestarm.protocol.machine import Transitions, demand_sums
from bestarm.protocol.messages import Final, Onward, Withdrawn
from bestarm.protocol.rounds import SERVER
from bestarm.protocol.served_client import ServedClient
from bestarm.stats.radii import radius

EXIT_COLUMNS = ("arm", "epoch", "sum", "top", "top_sum")


class Client(ServedClient[Onward | Bound]):
    """One client. It knows the layout, its own group and the options, but no true mean."""

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

    def __init__(self, layout: Layout, name: str, options: FedSel) -> None:
        super().__init__(layout, name)
        self.options = options
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
        self.round = 0
        self.arm = 0
        self.count = 0
        self.sum = 0.0
        self.target = 0
        self.asked = Pull((), 0)
        self.bound = -np.inf
        self.sent: list[tuple[int, float]] = []  # (count, sum) behind each message

    @property
    def pulls(self) -> tuple[int, int]:
        """Pulls made in Phase I and in Phase II."""
        return self.phase1.pulls, max(0, self.count - self.phase1.epoch)

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""
        return self.wire.stoppable

    def forget(self) -> None:
        del self.sent[:-1]

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate: each elimination and each message, with its sums."""
        return {
            "epoch": self.phase1.epoch,
            "arm": self.arm if self.sent else None,
            "count": self.count,
            "exits": {column: [getattr(e, column) for e in self.phase1.exits] for column in EXIT_COLUMNS},
            "sent": {"count": [n for n, _ in self.sent], "sum": [s for _, s in self.sent]},
        }

    def _pull(self) -> list[Action]:
        self._enter("exploring")
        return self._explore()

    def _stop(self) -> list[Action]:
        return self._report(unfinished=True) if self.state == "exploring" else self._exhausted()

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        demand_sums(self.name, sums, times, len(self.asked.arms), self.asked.times)
        if self.state == "exploring":
            self.phase1.absorb(sums, times)
            return self._explore()
        self.sum += sums[0]
        self.count += times
        if self.count < self.target:
            return [self._ask((self.arm,), self.target - self.count)]
        self._enter("reported")
        return self._refine()

    def _ask(self, arms: tuple[int, ...], times: int) -> Pull:
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
        return [self._ask(self.phase1.arms, epochs)]

    def _beaten(self, later: int = 0) -> bool:
        """Whether the server's bound beats every arm, now or after `later` epochs without any reward."""
        p, t = self.phase1, self.phase1.epoch + later
        return bool(
            np.isfinite(self.bound)
            and t > 0
            and fed_sel_decisions.beaten(p.sums, p.active, t, self.radius.alpha(t), self.bound)
        )

    def _until_beaten(self) -> int:
        """The fewest epochs after which the bound can beat every arm, given that sums never decrease."""
        most = self.phase1.batch()
        if most == 0 or not self._beaten(most):
            return most
        return bisect.bisect_left(range(1, most + 1), True, key=self._beaten) + 1

    def _withdraw(self) -> list[Action]:
        self._enter("done")
        self._settle()
        return [Pull((), 0), Send(SERVER, *Withdrawn().encode(self.wire, self.group))]

    def _report(self, *, unfinished: bool) -> list[Action]:
        p = self.phase1
        if p.epoch == 0 or (unfinished and not self.wire.stoppable):
            # There are no rewards, or the largest count is reached in a run without a message for that.
            self._enter("reported")
            self.spent = True
            return [Pull((), 0)]
        self._enter("reported")
        self.spent = unfinished
        self._settle()
        remaining = tuple(bool(a) for a in p.active) if unfinished else None
        report = Report(self.arm, self.count, self.sum / self.count, remaining)
        return [Pull((), 0), Send(SERVER, *self._encode(report))]

    def _settle(self) -> None:
        """End Phase I: the leading arm becomes the client's arm."""
        p = self.phase1
        self.arm, self.count, self.sum = p.best, p.epoch, float(p.sums[p.best])
        self.sent.append((self.count, self.sum))

    def _refine(self) -> list[Action]:
        mean = self.sum / self.count
        bits = int(fed_sel_decisions.precision(self.radius.alpha(self.count)))
        if self.options.quantiser:
            message = Refinement(index=int(fed_sel_decisions.bin_index(mean, bits)))
        else:
            message = Refinement(mean=mean)
        self.sent.append((self.count, self.sum))
        return [Send(SERVER, *self._encode(message, bits))]

    def _encode(self, message: Report | Refinement, bits: int = 0) -> tuple[bytes, int]:
        if isinstance(message, Report):
            return message.encode(self.wire, self.group)
        return message.encode(self.wire, self.group, self.count, bits)

    def _exhausted(self) -> list[Action]:
        self._enter("reported")
        self.spent = True
        if not self.wire.stoppable:
            return [Pull((), 0)]
        return [Pull((), 0), Send(SERVER, *self._encode(Refinement()))]

    def _decode(self, data: bytes) -> Onward | Bound | Final:
        return decode_downlink(data, self.wire)

    def _answer(self, message: Onward | Bound) -> list[Action]:
        match message:
            case Bound(value) if self.state == "exploring":
                self.bound = max(self.bound, value)
                return self._withdraw() if self._beaten() else []
            case Onward() if self.state == "reported":
                self.round += 1
                if not message.is_active(self.group):
                    self._enter("done")
                    return []
                if self.spent:
                    return []
                return self._sample()
        return []

    def _sample(self) -> list[Action]:
        pulls = fed_sel_decisions.period(self.round, self.options.period, self.options.period_growth)
        left = fed_sel_decisions.pulls_left(self.count, sum(self.pulls), self.options.budget)
        if pulls > left:
            return self._exhausted()
        self._enter("sampling")
        self.target = self.count + pulls
        return [self._ask((self.arm,), pulls)]
