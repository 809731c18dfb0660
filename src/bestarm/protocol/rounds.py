"""What every server does that works in rounds: wait for the active clients, close the round, tell them.

A method's server says how a message is taken and how a round is closed; the rest is here: counting what
crossed the wire, ignoring strangers and repetitions, proving faults, and ending with a verdict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np

from bestarm.errors import InputError
from bestarm.problem import Layout
from bestarm.protocol import decide
from bestarm.protocol.codec import Malformed
from bestarm.protocol.machine import (
    ALL,
    Action,
    Await,
    Decided,
    Event,
    PatienceOver,
    Received,
    Send,
    Start,
    Stop,
    Transitions,
    demand,
)
from bestarm.protocol.messages import Final, LookWire, Wire
from bestarm.protocol.options import Common
from bestarm.protocol.verdict import REASONS, Reason, Verdict

SERVER = "server"


class Downlink(Protocol):
    """A message of the server's."""

    def encode(self, wire: Any) -> tuple[bytes, int]: ...


def one_arm(layout: Layout) -> bool:
    """Whether there is nothing to find out."""
    return layout.arm_counts == (1,)


def refuse_groups(layout: Layout, options: Common, method: str) -> None:
    """Raise InputError for what no method with one trusted client a group can serve."""
    for group in layout.groups:
        if len(group.clients) != 1:
            raise InputError(
                f'group "{group.name}" has {len(group.clients)} clients, but {method} takes one a group',
                fix="Give the group one client",
            )
    if options.epsilon >= 1.0:
        raise InputError(
            "epsilon is as wide as the range of the rewards: every arm is that close to the best"
        )
    if options.byzantine:
        raise InputError(
            f"byzantine = {options.byzantine}, but {method} trusts every client", expected="byzantine = 0"
        )


class RoundServer(ABC):
    """A server. All that it concludes follows from what it was sent, in the order in which it came."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"waiting", "done"}),
        ("waiting", Received): frozenset({"waiting", "done"}),
        ("waiting", PatienceOver): frozenset({"waiting", "done"}),
        ("waiting", Stop): frozenset({"done"}),
        ("done", Received): frozenset({"done"}),
        ("done", PatienceOver): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, wire: Wire | LookWire) -> None:
        self.layout, self.wire = layout, wire
        groups = len(layout.groups)
        self.state = "new"
        self.round = 0
        self.active = np.ones(groups, dtype=bool)
        self.waiting = np.ones(groups, dtype=bool)
        self.missing = groups
        self.events: list[list[Any]] = []
        self.history: list[dict[str, Any]] = []
        self.faulty: list[dict[str, Any]] = []
        self.ignored = 0
        self.bits_up = self.bits_down = self.bytes = 0
        self.verdict: Verdict | None = None

    @property
    def rounds(self) -> int:
        """Rounds that were completed; the first reports are one."""
        return len(self.history)

    def handle(self, event: Event) -> list[Action]:
        demand(self, event)
        if self.state == "done":
            return []
        match event:
            case Start():
                self.state = "waiting"
                if one_arm(self.layout):
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
            actions = self._take(j, data)
        except Malformed as error:
            self.bits_up += 8 * len(data)
            self.faulty.append({"client": sender, "round": self.round, "reason": str(error)})
            return self._undecided("votes")
        self.waiting[j] = False
        self.missing -= 1
        return actions + (self._close_round() if self.missing == 0 else [])

    def _next_round(self, waiting: decide.Mask, message: Downlink) -> list[Action]:
        self.round += 1
        self.waiting = waiting
        self.missing = int(waiting.sum())
        return [self._send(message), Await(self.round)]

    def _identified(self, j: int, arm: int, **facts: Any) -> list[Action]:
        verdict = Verdict(status="identified", arm=self.layout.arm(j, arm), **facts)
        return [self._send(Final(j, arm)), *self._end(verdict)]

    def _undecided(self, reason: Reason) -> list[Action]:
        names = tuple(
            self.layout.arm(int(j), arm) for j in np.flatnonzero(self.active) for arm in self._left(int(j))
        )
        verdict = Verdict(status="undecided", reason=reason, candidates=names, gap=self._gap(reason))
        return [self._send(Final(None, None)), *self._end(verdict)]

    def _end(self, verdict: Verdict) -> list[Action]:
        self.state = "done"
        self.verdict = verdict
        return [Decided(verdict)]

    def _send(self, message: Downlink) -> Send:
        payload, bits = message.encode(self.wire)
        self.bits_down += bits
        self.bytes += len(payload)
        return Send(ALL, payload, bits)

    def certificate(self) -> dict[str, Any]:
        """The server's part: what it was sent, in order, and what it made of it, round by round."""
        return {"events": self.events, "rounds": self.history, "ignored": self.ignored}

    @abstractmethod
    def _take(self, j: int, data: bytes) -> list[Action]:
        """Take a message of group j, or raise Malformed."""

    @abstractmethod
    def _close_round(self) -> list[Action]:
        """All messages of the round are in."""

    @abstractmethod
    def _left(self, j: int) -> list[int]:
        """The arms of an active group that may still be the best, as far as the server knows."""

    @abstractmethod
    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best, if that is known."""
