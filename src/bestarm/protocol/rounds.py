"""The base class of servers that work in rounds: wait for active clients, close the round, inform them.

The server of a method defines how to process a message and how to close a round. This module does the rest:
it counts the traffic, ignores unknown senders, records proven faults, and ends with a verdict. ``SoloServer``
trusts the one client of each group and waits for all of them. ``GroupServer`` has groups in which some
clients may lie.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import (
    ALL,
    Action,
    Ahead,
    Decided,
    Drop,
    Event,
    Pace,
    PatienceOver,
    Pull,
    Quiet,
    Received,
    Send,
    Start,
    Stop,
)
from bestarm.protocol.machine import StateMachine, Transitions
from bestarm.protocol.messages import Arms, Final
from bestarm.protocol.options import Common
from bestarm.protocol.verdict import REASONS, Reason, Verdict
from bestarm.util.text import counted

SERVER = "server"
MAX_MESSAGE = 1 << 20  # bytes: far more than any message needs
DROPPED = "dropped by the operator"
OTHER_SITES = "the answer is about the other sites"
LEFT_OUT = f"{DROPPED}: the verdict is about the other groups"
LOST_TO_IT = f"{DROPPED}: arms that lost to it stay out, and the verdict is about the rest"


class Downlink(Protocol):
    """A message from the server."""

    def encode(self, wire: Any) -> tuple[bytes, int]: ...


def one_arm(layout: Layout) -> bool:
    """Whether there is only one arm, so that the answer is known from the start."""
    return layout.arm_counts == (1,)


def heard(rows: Iterable[Sequence[object]]) -> Iterator[Event]:
    """The events that a server received, read from its certificate."""
    for row in rows:
        match row:
            case ["received", str(sender), str(data)]:
                yield Received(sender, bytes.fromhex(data))
            case ["oversized", str(sender), int(size)]:
                yield Received(sender, bytes(size))
            case ["ignored", int(times), int(size)]:
                for k in range(times):
                    yield Received("", bytes(size if k == 0 else 0))
            case ["patience", int(k)]:
                yield PatienceOver(k)
            case ["drop", str(client)]:
                yield Drop(client)
            case ["stop", str(reason)]:
                yield Stop(reason)
            case ["ahead", str(client), [*paces]]:
                yield Ahead(client, tuple(pace for pace in paces if isinstance(pace, int)))
            case ["pace", [*paces]]:
                yield Pace(tuple(pace for pace in paces if isinstance(pace, int)))
            case _:
                raise InputError(f"event {row!r} is not an event of a server")


def the_end(layout: Layout, message: Final) -> list[Action]:
    """The actions of a client when the server ends the run."""
    if message.group is None or message.arm is None:
        return [Pull((), 0), Decided(Verdict(status="undecided"))]
    arm = layout.arm(message.group, message.arm)
    return [Pull((), 0), Decided(Verdict(status="identified", arm=arm))]


def refuse_epsilon(options: Common) -> None:
    """Raise InputError if epsilon is so large that every arm would be a valid answer."""
    if options.epsilon >= 1.0:
        raise InputError(
            "epsilon is as wide as the range of the rewards: every arm is that close to the best"
        )


def refuse_small_groups(layout: Layout, options: Common, times: int, what: str) -> None:
    """Raise InputError unless every group has times·f + 1 clients, f of which may lie."""
    least = times * options.byzantine + 1
    for group in layout.groups:
        if len(group.clients) < least:
            raise InputError(
                f'group "{group.name}" has {counted(len(group.clients), "client")}, too few for {what} to '
                f"tolerate {counted(options.byzantine, 'liar')}",
                expected=f"at least {least} clients per group ({times}f + 1)",
                fix=f"Set clients = {least}, or byzantine = {(len(group.clients) - 1) // times}",
            )


def led(history: Sequence[Mapping[str, Any]]) -> set[int]:
    """The groups that had the largest lower bound in a round in which other groups were dropped."""
    return {row["group"][_first(row["lower"])] for row in history if row["out"]}


def _first(lower: Sequence[float]) -> int:
    return int(decisions.leader(np.asarray(lower), np.ones(len(lower), dtype=bool)))


class RoundServer(StateMachine):
    """A server whose conclusions depend only on the messages it received, in order of arrival."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"waiting", "done"}),
        ("waiting", Received): frozenset({"waiting", "done"}),
        ("waiting", PatienceOver): frozenset({"waiting", "done"}),
        ("waiting", Quiet): frozenset({"waiting", "done"}),
        ("waiting", Stop): frozenset({"done"}),
        ("waiting", Drop): frozenset({"waiting", "done"}),
        ("done", Drop): frozenset({"done"}),
        ("done", Received): frozenset({"done"}),
        ("done", PatienceOver): frozenset({"done"}),
        ("done", Quiet): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, wire: Arms) -> None:
        super().__init__()
        self.layout, self.wire = layout, wire
        self.round = 0
        self.active = np.ones(len(layout.groups), dtype=bool)
        self.events: list[list[Any]] = []
        self.said: list[bytes] = []  # broadcasts, for an audit that repeats the clients
        self.history: list[dict[str, Any]] = []
        self._forgotten = 0  # rounds that are no longer in the history
        self._led: set[int] = set()  # groups to which others lost in these rounds
        self.faulty: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.ignored = 0
        self.gone: set[str] = set()  # dropped by the operator
        self.bits_up = self.bits_down = self.bits_after = self.bytes = 0
        self.verdict: Verdict | None = None

    @property
    def rounds(self) -> int:
        """The number of completed rounds; the first reports count as one."""
        return self._forgotten + len(self.history)

    @property
    @abstractmethod
    def ticking(self) -> bool:
        """Whether the driver's patience counts. In round 0 it starts when an honest client has reported."""

    @abstractmethod
    def missing_clients(self) -> list[str]:
        """The clients whose messages this round is still waiting for."""

    def _handle(self, event: Event) -> list[Action]:
        if self.state == "done":
            return []
        match event:
            case Start():
                self._enter("waiting")
                if one_arm(self.layout):
                    return self._end(Verdict(status="identified", arm=self.layout.arm(0, 0)))
                return []
            case Received(sender, data):
                self.bytes += len(data)
                if sender in self.gone or not self._expects(sender, data):
                    return self._ignore(data)
                if len(data) > MAX_MESSAGE:
                    self.events.append(["oversized", sender, len(data)])
                    data = bytes(MAX_MESSAGE + 1)
                else:
                    self.events.append(["received", sender, data.hex()])
                return self._received(sender, data)
            case PatienceOver(round):
                return self._tick(round)
            case Quiet(spent):  # recorded as the equivalent patience or stop event
                if self._waits_on(spent):
                    return self._tick(self.round)
                return self._stopped("budget" if spent else "silence")
            case Stop(reason):
                return self._stopped(reason)
            case Drop(client):
                self.events.append(["drop", client])
                if client in self.gone or client not in self.layout.group_of:
                    return []
                self.gone.add(client)
                return self._dropped(client)
        return []

    def _tick(self, round: int) -> list[Action]:
        self.events.append(["patience", round])
        return self._patience_over() if round == self.round else []

    def _stopped(self, reason: str) -> list[Action]:
        self.events.append(["stop", reason])
        return self._undecided(reason if reason in REASONS else "interrupted")  # type: ignore[arg-type]

    def _leave_out(self, j: int) -> None:
        """Leave out a group that has too few clients left, and add a warning to the record."""
        text = f"{LOST_TO_IT}{self._price_of_loss()}" if self._has_beaten(j) else LEFT_OUT
        self.active[j] = False
        self.warnings.append({"group": self.layout.groups[j].name, "round": self.round, "text": text})

    def _ignore(self, data: bytes) -> list[Action]:
        """Count an unexpected message without storing it, so that a flood can't fill the memory."""
        self.ignored += 1
        self.bits_up += 8 * len(data)
        if not self.events or self.events[-1][0] != "ignored":
            self.events.append(["ignored", 0, 0])
        self.events[-1][1] += 1
        self.events[-1][2] += len(data)
        return []

    def _convict(self, sender: str, data: bytes, error: Malformed) -> None:
        """Record that this client sent a message that no honest client can send."""
        self.bits_up += 8 * len(data)
        self.faulty.append({"client": sender, "round": self.round, "reason": str(error)})

    def _identified(self, j: int, arm: int, **facts: Any) -> list[Action]:
        verdict = Verdict(status="identified", arm=self.layout.arm(j, arm), **facts)
        return [self._send(Final(j, arm)), *self._end(verdict)]

    def _undecided(self, reason: Reason) -> list[Action]:
        names = tuple(
            self.layout.arm(int(j), arm) for j in np.flatnonzero(self.active) for arm in self._left(int(j))
        )
        gap = self._gap(reason) if names else None
        verdict = Verdict(status="undecided", reason=reason, candidates=names, gap=gap)
        return [self._send(Final(None, None)), *self._end(verdict)]

    def _end(self, verdict: Verdict) -> list[Action]:
        self._enter("done")
        self.verdict = verdict
        return [Decided(verdict)]

    def _send(self, message: Downlink) -> Send:
        payload, bits = message.encode(self.wire)
        self.said.append(payload)
        self.bits_down += bits
        self.bytes += len(payload)
        return Send(ALL, payload, bits)

    def forget(self) -> None:
        """Forget the messages so far, which only the certificate and its audit need."""
        self.events.clear()
        self.said.clear()

    def _forget_rounds(self) -> None:
        """Forget all rounds but the last, in a method in which nothing bounds their number."""
        past = self.history[:-1]
        self._led |= led(past)
        self._forgotten += len(past)
        del self.history[:-1]

    def certificate(self) -> dict[str, Any]:
        """The server's part of the certificate: what it received, in order, and its conclusions by round."""
        return {"events": self.events, "rounds": self.history, "ignored": self.ignored}

    @abstractmethod
    def _expects(self, sender: str, data: bytes) -> bool:
        """Whether this message from this sender is expected now."""

    @abstractmethod
    def _received(self, sender: str, data: bytes) -> list[Action]:
        """Process an expected message."""

    @abstractmethod
    def _patience_over(self) -> list[Action]:
        """Handle the end of the driver's patience in this round."""

    @abstractmethod
    def _waits_on(self, spent: bool) -> bool:
        """Whether the end of patience may still close the round when no more messages will arrive."""

    @abstractmethod
    def _dropped(self, client: str) -> list[Action]:
        """Handle a client that the operator dropped: it sends nothing more."""

    @abstractmethod
    def _close_round(self) -> list[Action]:
        """Close a round that has all the messages it needs."""

    def _left(self, j: int) -> list[int]:
        """The arms of an active group that may still be the best, as far as the server knows."""
        return list(range(self.layout.arm_counts[j]))

    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best arm, if known."""
        return None

    def _has_beaten(self, j: int) -> bool:
        """Whether arms of other groups may have lost to an arm of group j."""
        return j in self._led or j in led(self.history)

    def _price_of_loss(self) -> str:
        """A note about δ for the case that arms have lost to a group that is left out later.

        Empty if, on an event of probability 1 − δ, every arm that lost is worse than the arm it lost to.
        """
        return ""
