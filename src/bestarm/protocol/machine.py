"""The words between a machine and its driver.

A machine (client, server, peer) is a state machine without I/O: ``handle(event)`` gives back actions. It
never reads a clock, a socket, a file or a random generator. What it may be told in which state is a table
of its class; an event that the table does not hold raises ``IllegalEvent``, and nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from bestarm.protocol.verdict import Verdict

ALL = "*"  # the address of a broadcast


@dataclass(frozen=True)
class Start:
    """The run begins."""


@dataclass(frozen=True)
class Received:
    """A message came from a sender whose identity the driver vouches for.

    Each message is handed over once, and those of one sender in the order in which they were sent: most
    don't say which round they belong to. A driver whose network repeats or reorders sees to that.
    """

    sender: str
    data: bytes


@dataclass(frozen=True)
class Pulled:
    """Each arm of the outstanding ``Pull`` was pulled `times` more times; `sums` are their rewards.

    It may be less than was asked for, but it is the same number for every arm.
    """

    sums: tuple[float, ...]
    times: int


@dataclass(frozen=True)
class PatienceOver:
    """The driver waits no longer for what is missing in this round."""

    round: int


@dataclass(frozen=True)
class Stop:
    """No more can be had: the operator, the clock or the data ended it. To a client: no more pulls."""

    reason: str


@dataclass(frozen=True)
class Drop:
    """The operator's word: the run goes on without this client."""

    client: str


Event = Start | Received | Pulled | PatienceOver | Stop | Drop


@dataclass(frozen=True)
class Pull:
    """Pull each of these arms (indices) `times` times. It replaces the outstanding one; no arms: none."""

    arms: tuple[int, ...]
    times: int


@dataclass(frozen=True)
class Send:
    """Send this payload, whose first `bits` bits count."""

    to: str
    payload: bytes
    bits: int


@dataclass(frozen=True)
class Await:
    """Nothing to do before messages of this round come."""

    round: int


@dataclass(frozen=True)
class Decided:
    """The machine has its verdict."""

    verdict: Verdict


Action = Pull | Send | Await | Decided

# (state, event) -> the states it may lead to
Transitions = Mapping[tuple[str, type[Any]], frozenset[str]]


class IllegalEvent(RuntimeError):
    """A driver gave a machine an event that it can't take in its state: a mistake in the driver."""


class Machine(Protocol):
    """What every participant is."""

    transitions: ClassVar[Transitions]

    @property
    def state(self) -> str: ...

    def handle(self, event: Event) -> list[Action]: ...


def demand(machine: Machine, event: Event) -> None:
    """Raise ``IllegalEvent`` unless the machine's table holds this event in its state."""
    if (machine.state, type(event)) not in machine.transitions:
        raise IllegalEvent(f"{type(machine).__name__} can't take {event!r} while {machine.state}")
