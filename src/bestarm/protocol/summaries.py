"""Summaries: what each client says about all its arms once the verdict is known.

After the verdict every client sends one ``Summary``: how often it pulled each arm, the sum of the rewards,
and the sum of their squares. No decision depends on it. It tells the readers of a record what the server
could not know before, such as the means of arms that lost inside a client. Its bits count as `after`.

Drivers keep a ``Tally`` for each client, so that this works alike for every method. ``SummaryBook`` is the
server's side: it accepts one summary from each client and refuses everything else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from bestarm.problem.layout import Layout
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.events import Pull, Pulled
from bestarm.protocol.messages import canonical

MOST_PULLS = 1 << 50  # of one arm
SLACK = 1e-9  # per pull, for the rounding of sums


class Summary(msgspec.Struct, frozen=True):
    """The pulls of each arm of a client, the sums of their rewards in [0, 1], and those of their squares.

    `squares` is None if the method did not ask for them; they are at most `total`.
    """

    count: tuple[int, ...]
    total: tuple[float, ...]
    squares: tuple[float, ...] | None

    @property
    def ones(self) -> bool:
        """Whether these can be sums of 0/1 rewards."""
        return self.squares == self.total and all(float(x).is_integer() for x in self.total)

    def encode(self) -> tuple[bytes, int]:
        """The message and its size in bits.

        >>> Summary((4, 0), (3.0, 0.0), (3.0, 0.0)).encode()[1]
        10
        """
        w = Writer()
        w.flag(self.ones)
        if not self.ones:
            w.flag(self.squares is not None)
        for arm, n in enumerate(self.count):
            w.gamma(n + 1)
            if n and self.ones:
                w.fixed(int(self.total[arm]), width_of(n + 1))
            elif n:
                w.real(self.total[arm])
                if self.squares is not None:
                    w.real(self.squares[arm])
        return w.payload(), w.bits

    @staticmethod
    def decode(data: bytes, arms: int, binary: bool) -> tuple[Summary, int]:
        """The summary of a client with this many arms, and its size in bits.

        Raises
        ------
        Malformed
            If the bytes are not a summary, or if no rewards have these sums.
        """
        r = Reader(data)
        ones = r.flag()
        known = ones or r.flag()
        count, total, squares = [], [], []
        for _ in range(arms):
            n = r.gamma(MOST_PULLS + 1) - 1
            s = 0.0
            if n:
                s = float(r.fixed(width_of(n + 1))) if ones else r.real()
            q = r.real() if n and known and not ones else s
            if not _possible(n, s, q):
                raise Malformed("no rewards have the sums of this summary")
            count.append(n)
            total.append(s)
            squares.append(q)
        summary = Summary(tuple(count), tuple(total), tuple(squares) if known else None)
        if binary and not summary.ones:
            raise Malformed("the sums of 0/1 rewards are whole numbers")
        return summary, canonical(data, summary.encode())


def _possible(n: int, s: float, q: float) -> bool:
    """Whether n rewards in [0, 1] can have the sum s and the squares q, apart from rounding."""
    if not (math.isfinite(s) and math.isfinite(q)):
        return False
    slack = SLACK * n
    return 0.0 <= s <= n and 0.0 <= q <= s + slack and s * s <= n * (q + slack)


class Tally:
    """The rewards of one client so far, by arm.

    >>> tally = Tally(2, binary=False)
    >>> tally.add(Pull((0,), 3), Pulled((1.5,), 3))
    >>> tally.summary()
    Summary(count=(3, 0), total=(1.5, 0.0), squares=None)
    """

    def __init__(self, arms: int, binary: bool) -> None:
        self.binary, self.known = binary, True
        self.count, self.total, self.squares = [0] * arms, [0.0] * arms, [0.0] * arms

    def add(self, pull: Pull, pulled: Pulled) -> None:
        """Add the rewards of a pull."""
        squares = pulled.sums if self.binary else pulled.squares
        self.known &= len(squares) == len(pull.arms)
        for place, (arm, share) in enumerate(zip(pull.arms, pull.each, strict=True)):
            self.count[arm] += share * pulled.times
            self.total[arm] += pulled.sums[place]
            if self.known:
                self.squares[arm] += squares[place]

    def summary(self) -> Summary:
        """What the client sends after the verdict."""
        squares = [min(q, s) for q, s in zip(self.squares, self.total, strict=True)]
        return Summary(tuple(self.count), tuple(self.total), tuple(squares) if self.known else None)


class RefusedSummary(msgspec.Struct, frozen=True):
    """A summary that does not count: who sent it, why it was refused, and its size in bytes."""

    client: str
    reason: str
    bytes: int


class SummaryBook:
    """The summaries that the server has received after the verdict.

    Parameters
    ----------
    layout : Layout
        Groups, arms and clients.
    coins : bool
        Whether the method turns all rewards into 0/1.
    refuses : collection of str
        Clients whose summaries do not count: proven faulty, or dropped by the operator.
    """

    def __init__(self, layout: Layout, coins: bool = False, refuses: Collection[str] = ()) -> None:
        self.layout, self.coins, self.refuses = layout, coins, refuses
        self.accepted: dict[str, Summary] = {}
        self.refused: list[RefusedSummary] = []
        self.bits = 0
        self._decoded: dict[tuple[bytes, int, bool], tuple[Summary, int]] = {}

    def take(self, sender: str, data: bytes) -> bool:
        """Take a message from a client of the layout, and return whether it counts."""
        group = self.layout.groups[self.layout.group_of[sender]]
        reason = ""
        if sender in self.refuses:
            reason = "its sender is proven faulty or was dropped"
        elif sender in self.accepted:
            reason = "a second summary"
        elif len(data) > longest_summary(len(group.arms)):
            reason = "the message is too long"
        if not reason:
            try:
                key = data, len(group.arms), self.coins or group.binary
                if key not in self._decoded:  # with thousands of clients, many send the same
                    self._decoded[key] = Summary.decode(*key)
                self.accepted[sender], bits = self._decoded[key]
                self.bits += bits
                return True
            except Malformed as error:
                reason = str(error)
        self.bits += 8 * len(data)
        self.refused.append(RefusedSummary(sender, reason, len(data)))
        return False


def longest_summary(arms: int) -> int:
    """The most bytes that an honest summary takes."""
    return (2 + arms * (2 * MOST_PULLS.bit_length() + 128)) // 8 + 1


def summary_failures(
    again: SummaryBook, summaries: Mapping[str, Summary], refused: Sequence[RefusedSummary], bits: int
) -> Iterator[str]:
    """What is wrong with the summaries of a record that claims `bits` of them; `again` is an empty book."""
    layout = again.layout
    for name, summary in summaries.items():
        if name not in layout.group_of:
            yield f"a summary of {name}, which is not a client"
        elif not again.take(name, summary.encode()[0]):
            yield f"the summary of {name} is not one that a server accepts: {again.refused[-1].reason}"
    if any(row.client not in layout.group_of for row in refused):
        yield "a refused summary names no client"
    if bits != again.bits + 8 * sum(row.bytes for row in refused):
        yield "the bits after the verdict do not follow from the summaries"
