"""The events that a driver passes to a machine, and the actions that the machine returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bestarm.protocol.verdict import Verdict

ALL = "*"  # the address of a broadcast

SPENT = "spent"  # the reason when a peer has no more data: it stops pulling but keeps listening


@dataclass(frozen=True)
class Start:
    """The run starts."""


@dataclass(frozen=True)
class Received:
    """A message arrived from a sender whose identity the driver has verified.

    The driver delivers each message once, and the messages of one sender in the order in which they were
    sent, because most messages do not say which round they belong to. If the network repeats or reorders
    messages, the driver must restore that order: servers and peers treat an older message that arrives late
    as proof of a fault. (A peer needs the order only among the claims of one sender about one arm-set.)
    """

    sender: str
    data: bytes


@dataclass(frozen=True)
class Pulled:
    """The outstanding ``Pull`` was carried out `times` times; `sums` are the sums of the rewards of each arm.

    `times` may be less than requested, but it is the same for every arm. If the ``Pull`` asked for moments,
    `squares` are the sums of the squares of the rewards, and `least` and `most` the smallest and the largest
    one of each arm; else these are empty. If it asked for pairs, `pairs` are for each arm the sum, the sum of
    squares, the smallest and the largest of Y = (1 + X − X_arm)/2, where X is the reward of the arm `against`
    which it is compared; else they are empty.
    """

    sums: tuple[float, ...]
    times: int
    squares: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    most: tuple[float, ...] = ()
    pairs: tuple[tuple[float, float, float, float], ...] = ()

    @classmethod
    def of(cls, arms: Iterable[Sequence[float]], times: int) -> Pulled:
        """The event with these rewards: for each arm its sum, or its sum, squares, least and most.

        >>> Pulled.of([[2.0, 1.5, 0.5, 1.0], [0.5, 0.25, 0.0, 0.5]], 3)
        Pulled(sums=(2.0, 0.5), times=3, squares=(1.5, 0.25), least=(0.5, 0.0), most=(1.0, 0.5), pairs=())
        """
        sums, *rest = zip(*arms, strict=True)
        return cls(sums, times, *rest)


@dataclass(frozen=True)
class PatienceOver:
    """The driver stops waiting for the missing messages of this round."""

    round: int


@dataclass(frozen=True)
class Quiet:
    """No client is pulling and no message is in transit, so nothing more will arrive. Only a simulator knows.

    `spent`: at least one honest client has no pulls left.
    """

    spent: bool


@dataclass(frozen=True)
class Stop:
    """The operator, a timeout or the end of the data stops the run. A client stops pulling."""

    reason: str


@dataclass(frozen=True)
class Drop:
    """The operator decided to continue the run without this client."""

    client: str


@dataclass(frozen=True)
class Supply:
    """How many more rewards each arm of the client has; None if they have no end.

    A driver that knows it tells a client whose table lists the event, before it pulls.
    """

    left: tuple[int | None, ...]


@dataclass(frozen=True)
class Ahead:
    """This client has begun all pulls that are announced, although rewards are still to come.

    `paces` says how fast each client makes pulls, in any unit; empty if that is not known. A driver whose
    rewards come late tells a server whose table lists the event, which may then announce the next block.
    """

    client: str
    paces: tuple[int, ...]


@dataclass(frozen=True)
class Pace:
    """How fast each client makes pulls, in any unit, for the plans of later blocks.

    A driver tells a server whose table lists the event.
    """

    paces: tuple[int, ...]


Event = Start | Received | Pulled | PatienceOver | Quiet | Stop | Drop | Supply | Ahead | Pace


@dataclass(frozen=True)
class Pull:
    """Pull each of these arms (indices) `times` times, instead of the outstanding ``Pull``. No arms: stop.

    With `shares`, arm i is pulled `shares[i]` times in each of the `times` rounds, so that the pulls of all
    arms are spread over the same period. With `moments`, the machine also needs the sums of the squares and
    the smallest and the largest reward of each arm. With `against` (an arm), all arms are tried on the same
    subjects, and the machine needs the moments of their differences from this arm.
    """

    arms: tuple[int, ...]
    times: int
    shares: tuple[int, ...] = ()
    moments: bool = False
    against: int | None = None

    @property
    def each(self) -> tuple[int, ...]:
        """The pulls of each arm in one of the `times` rounds.

        >>> Pull((0, 2), 10).each, Pull((0, 2), 10, shares=(3, 1)).each
        ((1, 1), (3, 1))
        """
        return self.shares or (1,) * len(self.arms)

    @property
    def width(self) -> int:
        """The pulls of all arms together in one of the `times` rounds."""
        return sum(self.each)


@dataclass(frozen=True)
class Send:
    """Send this payload, of which the first `bits` bits are the message."""

    to: str
    payload: bytes
    bits: int


@dataclass(frozen=True)
class Decided:
    """The machine has reached its verdict."""

    verdict: Verdict


Action = Pull | Send | Decided
