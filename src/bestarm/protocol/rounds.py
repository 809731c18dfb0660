"""What every server does that works in rounds: wait for the active clients, close the round, tell them.

A method's server says how a message is taken and how a round is closed; the rest is here: counting what
crossed the wire, ignoring strangers, proving faults, and ending with a verdict. ``SoloServer`` trusts the
one client of each group and waits for all of them; ``GroupServer`` has groups of which some may lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Drop,
    Event,
    PatienceOver,
    Pull,
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
MAX_MESSAGE = 1 << 20  # bytes: far more than any message needs
DROPPED = "dropped by the operator"
LEFT_OUT = f"{DROPPED}: the verdict is about the other groups"
LOST_TO_IT = f"{DROPPED}: arms that lost to it stay out, and the verdict is about the rest"
DISAGREE = "its clients disagree more than chance allows: they may see different rewards"


class Downlink(Protocol):
    """A message of the server's."""

    def encode(self, wire: Any) -> tuple[bytes, int]: ...


def one_arm(layout: Layout) -> bool:
    """Whether there is nothing to find out."""
    return layout.arm_counts == (1,)


def heard(rows: Iterable[Sequence[Any]]) -> Iterator[Event]:
    """What a server was told, from the events of its certificate."""
    for row in rows:
        match row:
            case ["received", sender, data]:
                yield Received(sender, bytes.fromhex(data))
            case ["oversized", sender, size]:
                yield Received(sender, bytes(size))
            case ["ignored", times, size]:
                for k in range(times):
                    yield Received("", bytes(size if k == 0 else 0))
            case ["patience", k]:
                yield PatienceOver(k)
            case ["drop", client]:
                yield Drop(client)
            case ["stop", reason]:
                yield Stop(reason)
            case _:
                raise InputError(f"event {row!r} is none that a server can take")


def the_end(layout: Layout, message: Final) -> list[Action]:
    """What a client does when the server says that it is over."""
    if message.group is None or message.arm is None:
        return [Pull((), 0), Decided(Verdict(status="undecided"))]
    arm = layout.arm(message.group, message.arm)
    return [Pull((), 0), Decided(Verdict(status="identified", arm=arm))]


def refuse_epsilon(options: Common) -> None:
    """Raise InputError for an epsilon with which there is nothing to find out."""
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
                f'group "{group.name}" has {len(group.clients)} clients, too few for {what} to bear '
                f"{options.byzantine} liars",
                expected=f"at least {least} clients a group ({times}f + 1)",
                fix=f"Set clients = {least}, or byzantine = {(len(group.clients) - 1) // times}",
            )


class RoundServer(ABC):
    """A server. All that it concludes follows from what it was sent, in the order in which it came."""

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"waiting", "done"}),
        ("waiting", Received): frozenset({"waiting", "done"}),
        ("waiting", PatienceOver): frozenset({"waiting", "done"}),
        ("waiting", Stop): frozenset({"done"}),
        ("waiting", Drop): frozenset({"waiting", "done"}),
        ("done", Drop): frozenset({"done"}),
        ("done", Received): frozenset({"done"}),
        ("done", PatienceOver): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }

    def __init__(self, layout: Layout, wire: Wire | LookWire) -> None:
        self.layout, self.wire = layout, wire
        self.state = "new"
        self.round = 0
        self.active = np.ones(len(layout.groups), dtype=bool)
        self.events: list[list[Any]] = []
        self.history: list[dict[str, Any]] = []
        self.faulty: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.ignored = 0
        self.gone: set[str] = set()  # dropped on the operator's word
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
                self.events.append(["patience", round])
                return self._patience_over() if round == self.round else []
            case Stop(reason):
                self.events.append(["stop", reason])
                return self._undecided(reason if reason in REASONS else "interrupted")  # type: ignore[arg-type]
            case Drop(client):
                self.events.append(["drop", client])
                if client in self.gone or client not in self.layout.group_of:
                    return []
                self.gone.add(client)
                return self._dropped(client)
        return []

    def _leave_out(self, j: int) -> None:
        """Nobody is left to speak for a group: its arms are compared no more, and the record says so."""
        text = f"{LOST_TO_IT}{self._price_of_loss()}" if self._has_beaten(j) else LEFT_OUT
        self.active[j] = False
        self.warnings.append({"group": self.layout.groups[j].name, "round": self.round, "text": text})

    def _ignore(self, data: bytes) -> list[Action]:
        """What nobody asked for is counted, and not kept: a flood must not fill the memory."""
        self.ignored += 1
        self.bits_up += 8 * len(data)
        if not self.events or self.events[-1][0] != "ignored":
            self.events.append(["ignored", 0, 0])
        self.events[-1][1] += 1
        self.events[-1][2] += len(data)
        return []

    def _convict(self, sender: str, data: bytes, error: Malformed) -> None:
        """This client sent what no honest client can send."""
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
    def _expects(self, sender: str, data: bytes) -> bool:
        """Whether this message of this sender may matter now."""

    @abstractmethod
    def _received(self, sender: str, data: bytes) -> list[Action]:
        """A message came that may matter."""

    @abstractmethod
    def _patience_over(self) -> list[Action]:
        """The driver waits no longer for what is missing in this round."""

    @abstractmethod
    def _dropped(self, client: str) -> list[Action]:
        """Nothing more comes from this client, by the operator's word."""

    @abstractmethod
    def _close_round(self) -> list[Action]:
        """The round has what it needs."""

    @abstractmethod
    def _left(self, j: int) -> list[int]:
        """The arms of an active group that may still be the best, as far as the server knows."""

    @abstractmethod
    def _gap(self, reason: Reason) -> float | None:
        """How far the leading candidate can be from the best, if that is known."""

    @abstractmethod
    def _has_beaten(self, j: int) -> bool:
        """Whether arms of other groups may have lost to one of group j."""

    def _price_of_loss(self) -> str:
        """What is to be said of δ where arms have lost to a group that is then left out.

        Nothing, if on an event of probability 1 − δ whoever lost is worse than whom it lost to.
        """
        return ""


class SoloServer(RoundServer):
    """A server that trusts the one client of each group, and waits for all of them."""

    def __init__(self, layout: Layout, wire: Wire | LookWire) -> None:
        super().__init__(layout, wire)
        self.waiting = np.ones(len(layout.groups), dtype=bool)
        self.missing = len(layout.groups)

    def _received(self, sender: str, data: bytes) -> list[Action]:
        j = self.layout.group_of[sender]
        try:
            actions = self._take(j, data)
        except Malformed as error:
            self._convict(sender, data, error)
            return self._undecided("votes")
        self.waiting[j] = False
        self.missing -= 1
        return actions + self._close_if_complete()

    def _close_if_complete(self) -> list[Action]:
        if self.missing:
            return []
        if self.gone and not self.active.any():  # all others have lost to one that was dropped
            return self._undecided("silence")
        return self._close_round()

    def _expects(self, sender: str, data: bytes) -> bool:
        return sender in self.layout.group_of and bool(self.waiting[self.layout.group_of[sender]])

    def _patience_over(self) -> list[Action]:
        return self._undecided("silence")

    def _dropped(self, client: str) -> list[Action]:
        j = self.layout.group_of[client]
        if not self.active[j]:
            return []
        self._leave_out(j)
        if self.waiting[j]:
            self.waiting[j] = False
            self.missing -= 1
        return self._close_if_complete()

    def _next_round(self, waiting: decide.Mask, message: Downlink) -> list[Action]:
        self.round += 1
        self.waiting = waiting
        self.missing = int(waiting.sum())
        return [self._send(message), Await(self.round)]

    @abstractmethod
    def _take(self, j: int, data: bytes) -> list[Action]:
        """Take a message of group j, or raise Malformed."""


class GroupServer(RoundServer):
    """A server of groups in each of which up to f clients may lie, fall silent or come late.

    A message that no honest client can send is proof: from then on the sender is out. The same message once
    more is none, since a network may repeat it. A round is closed when each active group has all replies
    that are still expected, or, once the driver's patience is over, as many as honest clients are sure to
    send. If the driver's patience with the same round ends once more, the run ends: "silence".

    A client that was dropped counts as silent: what it said stands, and it is still one of those of whom f
    may lie. A group that has too few others is left out.
    """

    def __init__(self, layout: Layout, wire: Wire | LookWire, byzantine: int) -> None:
        super().__init__(layout, wire)
        self.f = byzantine
        self.index: Mapping[str, int] = {name: i for i, name in enumerate(layout.clients)}
        sizes = np.array([len(group.clients) for group in layout.groups])
        self.sizes, ends = sizes, np.cumsum(sizes)
        self.members = [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]
        self.group = np.repeat(np.arange(len(sizes)), sizes)
        clients = len(layout.clients)
        self.out = np.zeros(clients, dtype=bool)  # proven faulty
        self.spent = np.zeros(clients, dtype=bool)  # makes no more pulls
        self.absent = np.zeros(clients, dtype=bool)  # dropped: spent, and never heard again
        self.replied = np.zeros(clients, dtype=bool)  # in this round
        self.patient = True
        self.ready = np.zeros(len(sizes), dtype=bool)
        self.warned: set[tuple[int, str]] = set()
        self.latest: list[bytes | None] = [None] * clients

    def _expects(self, sender: str, data: bytes) -> bool:
        i = self.index.get(sender)
        return (
            i is not None and not self.out[i] and bool(self.active[self.group[i]]) and data != self.latest[i]
        )

    def _received(self, sender: str, data: bytes) -> list[Action]:
        i = self.index[sender]
        j, self.latest[i] = int(self.group[i]), data
        try:
            self._take(i, data)
        except Malformed as error:
            self._convict(sender, data, error)
            self.out[i] = True
        return self._advance([j])

    def _patience_over(self) -> list[Action]:
        if not self.patient:
            return self._undecided("silence")
        self.patient = False
        return self._advance(np.flatnonzero(self.active))

    def _dropped(self, client: str) -> list[Action]:
        i = self.index[client]
        j = int(self.group[i])
        self.spent[i] = self.absent[i] = True
        if not self.active[j]:
            return []
        borne = ", and counts as silent" if self._stuck(j) is None else ""
        self._warn(j, f"{client} was {DROPPED}{borne}")
        return self._advance([j])

    def _advance(self, changed: Any) -> list[Action]:
        """Look at these groups again; end, close the round, or wait."""
        if self.state == "done":
            return []
        for j in changed:
            reason = self._stuck(int(j))
            if reason and reason != "votes" and self.absent[self.members[j]].any():
                self._leave_out(int(j))
                rest = [k for k in changed if self.active[k]]
                return self._advance(rest) if self.active.any() else self._undecided("silence")
            if reason:
                return self._undecided(reason)
            self.ready[j] = self._is_ready(int(j))
        return self._close_round() if self.ready[self.active].all() else []

    def _next_round(self, message: Downlink) -> list[Action]:
        self.round += 1
        self.replied[:] = False
        self.ready[:] = False
        self.patient = True
        actions: list[Action] = [self._send(message), Await(self.round)]
        # Where nobody is expected any more, the round is over at once.
        return actions + self._advance(np.flatnonzero(self.active))

    def _warn(self, j: int, text: str) -> None:
        if (j, text) not in self.warned:
            self.warned.add((j, text))
            name = self.layout.groups[j].name
            self.warnings.append({"group": name, "round": self.round, "text": text})

    @abstractmethod
    def _take(self, i: int, data: bytes) -> None:
        """Take a message of client i, or raise Malformed and leave everything as it was."""

    @abstractmethod
    def _is_ready(self, j: int) -> bool:
        """Whether group j has the replies that this round waits for."""

    @abstractmethod
    def _stuck(self, j: int) -> Reason | None:
        """Why group j can never have the replies that a round takes, if so."""
