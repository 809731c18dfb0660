"""Participants as state machines without I/O, and the interface that drivers use.

``handle(event)`` takes an event and returns actions. A machine never reads a clock, a socket, a file or a
random generator. Its class has a table, ``transitions``: the events that it accepts in each state, and the
states that each event may lead to. ``StateMachine`` enforces the table. An event that the table does not list
raises ``IllegalEvent`` before anything changes; a state that the table does not list cannot be entered.

``ClientMachine``, ``ServerMachine`` and ``PeerMachine`` define the members that drivers, records and
reports use. Everything else in a machine is private to its method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Event, Pull, Pulled
from bestarm.protocol.options import Common
from bestarm.protocol.verdict import Verdict

# (state, event) -> the possible next states
Transitions = Mapping[tuple[str, type[Event]], frozenset[str]]

NEW = "new"  # the initial state of every machine

NOWHERE: frozenset[str] = frozenset()


class IllegalEvent(RuntimeError):
    """A driver passed an event that the machine cannot accept in its state: a bug in the driver."""


class IllegalTransition(AssertionError):
    """A machine tried to enter a state that its table does not list: a bug in the machine."""


def demand_sums(name: str, sums: Sequence[float], times: int, arms: int, most: int) -> None:
    """Raise IllegalEvent unless these are sums of rewards in [0, 1] for the requested arms and pulls."""
    if len(sums) != arms or not 0 < times <= most:
        raise IllegalEvent(f"{name} expected at most {most} pulls of {arms} arms")
    if not all(0.0 <= s <= times for s in sums):
        raise IllegalEvent(f"{name}: the sum of {times} rewards must lie in [0, {times}]")


def demand_rewards(name: str, pull: Pull, pulled: Pulled) -> None:
    """Raise IllegalEvent unless these can be the rewards that `pull` asks for, or the first of them.

    Parameters
    ----------
    name : str
        The client's name.
    pull : Pull
        The outstanding pull.
    pulled : Pulled
        The rewards, in [0, 1].
    """
    arms, times = len(pull.arms), pulled.times
    if not 0 < times <= pull.times:
        raise IllegalEvent(f"{name} expected 1 to {pull.times} times {pull}, got {times}")
    lengths = [len(values) for values in (pulled.squares, pulled.least, pulled.most)]
    if len(pulled.sums) != arms or lengths != [arms if pull.moments else 0] * 3:
        raise IllegalEvent(f"{name} expected the rewards of {pull}, got {pulled}")
    for i, share in enumerate(pull.each):
        n, s = times * share, pulled.sums[i]
        if not 0.0 <= s <= n:
            raise IllegalEvent(f"{name}: the sum of {n} rewards must lie in [0, {n}]")
        if pull.moments and not _possible(n, s, pulled.squares[i], pulled.least[i], pulled.most[i]):
            raise IllegalEvent(f"{name}: no {n} rewards in [0, 1] have the moments of arm {i} in {pulled}")
    _demand_pairs(name, pull, pulled)


def _demand_pairs(name: str, pull: Pull, pulled: Pulled) -> None:
    """Raise IllegalEvent unless the differences between arms fit their sums."""
    if len(pulled.pairs) != (0 if pull.against is None else len(pull.arms)):
        raise IllegalEvent(f"{name} expected the pairs of {pull}, got {pulled}")
    if pull.against is None:
        return
    n, own = pulled.times, pulled.sums[pull.arms.index(pull.against)]
    for total, pair in zip(pulled.sums, pulled.pairs, strict=True):
        if len(pair) != 4 or not _possible(n, *pair) or abs(n + own - total - 2 * pair[0]) > 1e-9 * n:
            raise IllegalEvent(f"{name}: no {n} pairs of rewards have the moments of {pulled}")


def _possible(n: int, s: float, q: float, least: float, most: float) -> bool:
    """Whether these can be the sum, the squares and the extremes of n rewards, apart from rounding."""
    slack = 1e-9 * n
    return (
        0.0 <= least <= most <= 1.0
        and n * least - slack <= s <= n * most + slack
        and 0.0 <= q <= s + slack
        and s * s <= n * q * (1 + 1e-9) + 1e-300 * n * n  # squares below 1e-300 may be rounded to 0
    )


class StateMachine(ABC):
    """The base class of every machine. It stores the state and enforces the transition table."""

    transitions: ClassVar[Transitions]

    def __init__(self) -> None:
        self._state = NEW
        self._open = NOWHERE  # states that may be entered; empty unless an event is being handled

    @property
    def state(self) -> str:
        """The current state of the machine."""
        return self._state

    def handle(self, event: Event) -> list[Action]:
        """Handle an event and return the resulting actions.

        Parameters
        ----------
        event : Event
            What happened.

        Returns
        -------
        list of Action
            What the driver must do, in this order.

        Raises
        ------
        IllegalEvent
            If the table does not list the event in this state. The machine is unchanged.
        IllegalTransition
            If the machine violates its table, which is a bug.
        """
        before, targets = self._state, self.transitions.get((self._state, type(event)))
        if targets is None:
            raise IllegalEvent(f"{type(self).__name__} can't take {event!r} while {before}")
        self._open = targets
        try:
            actions = self._handle(event)
        finally:
            self._open = NOWHERE
        if self._state not in targets:
            raise IllegalTransition(f"{type(self).__name__} stayed {before} after {event!r}")
        return actions

    def _enter(self, state: str) -> None:
        """Change the state, if the table allows it for the event that is being handled."""
        if state not in self._open:
            raise IllegalTransition(f"{type(self).__name__} can't become {state} while {self._state}")
        self._state = state

    def forget(self) -> None:  # noqa: B027 (most machines keep little)
        """Forget what only the certificate needs. A driver with a journal can replay it for the record."""

    @abstractmethod
    def _handle(self, event: Event) -> list[Action]:
        """Handle an event that the table lists."""


class Machine(Protocol):
    """The interface of every participant."""

    transitions: ClassVar[Transitions]

    @property
    def state(self) -> str:
        """The current state."""

    def handle(self, event: Event) -> list[Action]:
        """Handle an event and return the resulting actions."""


class ClientMachine(Machine, Protocol):
    """The interface of a client, which pulls arms, for drivers, records and reports."""

    name: str
    layout: Layout
    group: int
    ignored: int

    def __init__(self, layout: Layout, name: str, options: Common) -> None: ...

    @property
    def spent(self) -> bool:
        """Whether the client makes no more pulls."""

    @property
    def sent(self) -> Sized:
        """The reports that the client has sent so far."""

    @property
    def stoppable(self) -> bool:
        """Whether the client can send a message that it makes no more pulls."""

    def forget(self) -> None:
        """Forget what only the certificate needs. A driver with a journal can replay it for the record."""

    def local(self) -> dict[str, Any]:
        """The client's part of the certificate, as plain values."""


@runtime_checkable
class ForesightedClient(Protocol):
    """A client that knows its next pulls while rewards of the outstanding one are still to come.

    Messages of the server never replace its outstanding pull.
    """

    @property
    def upcoming(self) -> tuple[Pull, ...]:
        """The pulls after the outstanding one that are certain, in order."""


@runtime_checkable
class LackingClient(Protocol):
    """A client that says why it makes no more pulls, although rewards are left."""

    @property
    def lack(self) -> str:
        """What the next pulls are too many for, in words; empty if it is nothing."""


@runtime_checkable
class SiteServer(Protocol):
    """A server whose clients need not all wait for each other, and whose sites may have their own answers."""

    def together(self, client: str) -> list[str]:
        """The clients that wait for this one's messages, and itself."""

    def progress(self, client: str) -> tuple[float, float] | None:
        """How far the answer is that this client's rewards count for; None if there is no evidence yet.

        The logarithm of the wealth that is furthest from its limit, and the limit.
        """

    def unused(self) -> int:
        """How many rewards were reported and do not count yet, because other clients' are missing."""

    def answer_at(self, client: str) -> str | None:
        """The answer of the client's own site, if the site has one of its own and it is known already."""


class ServerMachine(Machine, Protocol):
    """The interface of a server, for drivers, records and reports."""

    layout: Layout
    round: int
    active: NDArray[np.bool_]  # groups that may still contain the best arm
    history: list[dict[str, Any]]  # one row per completed round
    faulty: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    ignored: int
    gone: set[str]  # clients that the operator dropped
    bits_up: int
    bits_down: int
    bits_after: int  # of messages after the answer is known
    bytes: int
    verdict: Verdict | None

    def __init__(self, layout: Layout, options: Common) -> None: ...

    @property
    def rounds(self) -> int:
        """The number of completed rounds; the first reports count as one."""

    @property
    def ticking(self) -> bool:
        """Whether the driver's patience already counts in this round."""

    def missing_clients(self) -> list[str]:
        """The clients whose messages this round is still waiting for."""

    def forget(self) -> None:
        """Forget what only the certificate needs. A driver with a journal can replay it for the record."""

    def certificate(self) -> dict[str, Any]:
        """The server's part of the certificate, as plain values."""


class PeerMachine(ClientMachine, Protocol):
    """The interface of a peer in a network without a server, for drivers, records and reports."""

    verdict: Verdict | None
    faulty: list[dict[str, Any]]
    out: NDArray[np.bool_]  # neighbours that are proven faulty
    votes: NDArray[np.int64]  # (neighbour, group): the arm that the neighbour votes for, or -1
    arms: NDArray[np.int64]  # the best arm of each group as far as the peer knows, or -1
    means: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    standing: NDArray[np.bool_]  # groups that are not beaten in its view

    def __init__(
        self, layout: Layout, name: str, options: Common, neighbours: Sequence[str] = ()
    ) -> None: ...

    @property
    def neighbours(self) -> Mapping[str, int]:
        """The in-neighbours, and their positions in `votes` and `out`."""

    @property
    def ticking(self) -> bool:
        """Whether the peer needs ``PatienceOver`` events."""

    @property
    def pending(self) -> bool:
        """Whether the peer has information that it has not sent yet."""

    def topic_of(self, data: bytes) -> str:
        """The group that a message is about; empty for a verdict. May raise ``Malformed``."""

    @property
    def settled(self) -> int:
        """A count of what the peer has found out: known arms, beaten groups and a verdict."""

    def missing_neighbours(self) -> list[str]:
        """The neighbours that have not yet reported on every group whose arm is still unknown."""
