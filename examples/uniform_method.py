"""Uniform: pull all arms equally often until one is ahead of all others. A method outside the package.

Look r = 0, 1, 2, … is made when every arm has n_r = n₀·2ʳ pulls. Each client then sends the sums of its arms,
and the server gives each of the K arms the interval mean ± w_r, w_r = √(ln(2K(r+1)(r+2)/δ) / (2n_r)). It
names the arm with the largest lower bound once no other arm's upper bound is more than ε above it.

Proof. By Hoeffding's inequality an interval misses its mean with probability at most
2·exp(−2·n_r·w_r²) = δ/(K(r+1)(r+2)). Over the K arms and all looks that sums to δ: Σ 1/((r+1)(r+2)) = 1.
If none misses, the named arm's mean is at least its lower bound, and no mean is more than ε above that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed, Reader, Writer
from bestarm.protocol.decisions import Floats, Ints
from bestarm.protocol.events import Action, Pull, Send
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.messages import Final, Onward, Wire, canonical, read_final
from bestarm.protocol.options import Common, option, whole
from bestarm.protocol.rounds import SERVER
from bestarm.protocol.solo_server import SoloServer


@dataclass(frozen=True, kw_only=True)
class Uniform(Common):
    """The common options, and the size of the first look."""

    n0: int = option(32, "pulls of each arm by the first look", whole(1, 2**30), "a whole number up to 2^30")

    def size(self, r: int) -> int:
        """n_r, the pulls of each arm by look r; none before the first."""
        return self.n0 << r if r >= 0 else 0

    def width(self, r: int, arms: int) -> float:
        """w_r, the half-width of the intervals at look r."""
        return float(np.sqrt(np.log(2 * arms * (r + 1) * (r + 2) / self.delta) / (2 * self.size(r))))


def refuse(layout: Layout, options: Uniform) -> None:
    """Raise InputError for a problem that the method cannot handle."""
    if options.byzantine or len(layout.clients) > len(layout.groups):
        raise ba.InputError("uniform trusts the one client of each group", fix='Use method = "fisher"')


def leader(means: Floats, w: float) -> tuple[int, int, float]:
    """The group and arm with the largest mean, and how far another upper bound is above its lower bound."""
    first = int(np.argmax(means))
    reach = np.delete(means, first).max(initial=-np.inf) + w
    return *divmod(first, means.shape[1]), float(reach - (means.flat[first] - w))


def encode(sums: Sequence[float] | None) -> tuple[bytes, int]:
    """A client's message: one bit, then 64 bits per arm for its sum. None means no more pulls."""
    w = Writer()
    w.flag(sums is None)
    for total in sums or ():
        w.real(total)
    return w.payload(), w.bits


def decode(data: bytes, arms: int, n: int) -> tuple[list[float] | None, int]:
    """The sums of n rewards of each arm, and the number of bits of the message."""
    r = Reader(data)
    sums = None if r.flag() else [r.real() for _ in range(arms)]
    if not all(0.0 <= total <= n for total in sums or ()):
        raise Malformed(f"a sum that {n} rewards cannot have")
    return sums, canonical(data, encode(sums))


class Client(LookClient[None]):
    """Brings every arm to n_r pulls, sends their sums, and waits until it is told to continue."""

    def __init__(self, layout: Layout, name: str, options: Uniform) -> None:
        super().__init__(layout, name)
        self.options, self.arms = options, tuple(range(layout.arm_counts[self.group]))
        self.sums, self.count = np.zeros(len(self.arms)), 0  # count: pulls of each arm
        self.sent: list[list[float]] = []  # the sums of each look

    def local(self) -> dict[str, Any]:
        """This client's part of the certificate."""
        return {"count": self.count, "sent": self.sent}

    def _pull(self) -> list[Action]:
        n, budget = self.options.size(len(self.sent)), self.options.budget
        if self.spent or n > 2**36 or (budget is not None and n * len(self.arms) > budget):
            return self._stop()
        self._enter("pulling")
        return [Pull(self.arms, n - self.count)]

    def _pulled(self, sums: tuple[float, ...], times: int) -> list[Action]:
        self.sums, self.count = self.sums + sums, self.count + times
        if self.count < self.options.size(len(self.sent)):
            return self._pull()
        self._enter("reported")
        self.sent.append(self.sums.tolist())
        return [Send(SERVER, *encode(self.sent[-1]))]

    def _stop(self) -> list[Action]:
        self._enter("reported")
        self.spent = True
        return [Pull((), 0), Send(SERVER, *encode(None))]

    def _decode(self, data: bytes) -> Final | None:
        reader = Reader(data)
        return read_final(reader, self.layout.arm_counts) if reader.flag() else None

    def _answer(self, message: None) -> list[Action]:
        return self._pull()


class Server(SoloServer):
    """Waits for the sums of all clients, look by look, and names an arm when it is ahead of all others."""

    def __init__(self, layout: Layout, options: Uniform) -> None:
        super().__init__(layout, Wire(layout.arm_counts, (), stoppable=True))
        self.options, self.spent = options, False
        self.sums = np.full((len(layout.groups), max(layout.arm_counts)), -np.inf)  # no such arm: −∞

    def _take(self, j: int, data: bytes) -> list[Action]:
        sums, bits = decode(data, self.layout.arm_counts[j], self.options.size(self.round))
        self.bits_up += bits
        self.spent = self.spent or sums is None
        self.sums[j, : len(sums or ())] = sums or ()
        return []

    def _close_round(self) -> list[Action]:
        if self.spent:
            return self._undecided("budget")
        n, w = self.options.size(self.round), self.options.width(self.round, sum(self.layout.arm_counts))
        means = np.where(self.active[:, None], self.sums / n, -np.inf)
        j, arm, short = leader(means, w)
        settled, mean = short <= self.options.epsilon, float(means[j, arm])
        self._note(means.argmax(axis=1), means.max(axis=1), n, w, best=mean - w if settled else -np.inf)
        if settled:
            return self._identified(j, arm, mean=mean, interval=(max(mean - w, 0.0), min(mean + w, 1.0)))
        if self.rounds == self.options.max_rounds:
            return self._undecided("rounds")
        return self._next_round(self.active.copy(), Onward.of(self.active))

    def _note(self, arm: Ints, mean: Floats, n: int, w: float, best: float) -> None:
        """This look's line of the certificate: each group's sums, and its top arm with mean and interval."""
        groups = np.flatnonzero(self.active)
        columns = {"arm": arm, "mean": mean, "lower": mean - w, "upper": mean + w}
        line = {name: values[groups].tolist() for name, values in columns.items()}
        line |= {"round": self.round, "group": groups.tolist(), "count": [n] * len(groups)}
        sums = [self.sums[j, : self.layout.arm_counts[j]].tolist() for j in groups]
        self.history.append(line | {"out": groups[mean[groups] + w <= best].tolist(), "sums": sums})


def pulls_of(part: Mapping[str, Any], arms: int, options: Uniform) -> tuple[int, int]:
    """A client's pulls until the first look, and after it."""
    first = min(part["count"], options.n0)
    return arms * first, arms * (part["count"] - first)


def good_event(
    layout: Layout, options: Uniform, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool:
    """Whether every mean that was sent is within w_r of the true mean."""
    return all(
        abs(total / options.size(r) - mean) <= options.width(r, sum(layout.arm_counts))
        for name, part in certificate["local"].items()
        for r, sums in enumerate(part.get("sent", ()))
        for total, mean in zip(sums, means[layout.group_of[name]], strict=True)
    )


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check a client's sums and pulls against the messages to the server."""
    j, sums, size = server.layout.group_of[name], part["sent"], server.options.size
    told = [line["sums"][line["group"].index(j)] for line in server.history]
    if sums[: len(told)] != told or len(sums) > len(told) + 1:
        yield "has sums that differ from those sent to the server"
    if not size(len(sums) - 1) <= part["count"] <= size(len(sums)):
        yield "made a number of pulls that does not match its looks"


METHOD = ba.Method(
    name="uniform",
    title="Uniform",
    summary="Uniform (all arms equally often, until one is ahead of all others)",
    options=Uniform,
    client=Client,
    server=Server,
    refuse=refuse,
    pulls_of=pulls_of,
    good_event=good_event,
    audit_client=audit_client,
    phases=("first look", "later looks"),
    proof="in the docstring of its module",
)
