"""The messages of the server of Fed-Bet.

``Down`` closes a block with the champion's report and names the next champion, ``Renamed`` names another one,
``Restart`` begins anew after a client was dropped, ``Last`` asks for summaries, and ``Final`` ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.methods.bet.decisions import MOST_RATIO
from bestarm.methods.bet.levels import BetWire, Report, Standing
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import Final, canonical, read_final

RATIO_BITS = width_of(MOST_RATIO)
DOWN, RENAMED, RESTART, LAST = range(4)


@dataclass(frozen=True)
class Named:
    """The champion of the next block, its standing if it is new, c, and d if rewards run out."""

    group: int
    arm: int
    standing: Standing | None
    ratio: int
    step: int | None = None

    def write(self, w: Writer, wire: BetWire) -> None:
        w.flag(self.standing is not None)
        if self.standing is not None:
            w.fixed(self.group, width_of(len(wire.arm_counts)))
            self.standing.write(w, wire, self.group)
        w.fixed(self.ratio - 1, RATIO_BITS)
        if self.step is not None:
            w.gamma(self.step + 1)

    @staticmethod
    def read(r: Reader, wire: BetWire, now: tuple[int, int] | None, n: int) -> Named:
        """Read it, after n pulls; without a standing, it is `now`, the champion of the closed block."""
        standing = None
        if r.flag():
            group = r.fixed(width_of(len(wire.arm_counts)))
            if group >= len(wire.arm_counts):
                raise Malformed(f"group {group} of {len(wire.arm_counts)}")
            standing = Standing.read(r, wire, group, n)
            arm = standing.arm
        elif now is None:
            raise Malformed("a champion without a standing")
        else:
            group, arm = now
        ratio = r.fixed(RATIO_BITS) + 1
        return Named(group, arm, standing, ratio, r.gamma(MOST_SUPPLY + 1) - 1 if wire.finite else None)


@dataclass(frozen=True)
class Down:
    """The end of a block: the report of its champion, and the next champion. The first has no report.

    `filled`: groups whose parts were missing, and how many of their arms play as far as the server knows.
    """

    report: Report | None
    next: Named
    filled: tuple[tuple[int, int], ...] = ()

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = _kind(DOWN)
        _write_filled(w, self.filled, wire)
        if self.report is not None:
            self.report.write(w)
        self.next.write(w, wire)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Renamed:
    """The named champion was not in: another one for the same block."""

    next: Named

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = _kind(RENAMED)
        self.next.write(w, wire)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Restart:
    """A client was dropped, to which arms had lost: all begin again with fresh pulls."""

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = _kind(RESTART)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Last:
    """The run ends: if the block was closed, count it, with the champion's report; then send a summary."""

    closed: bool
    report: Report | None = None
    filled: tuple[tuple[int, int], ...] = ()

    def encode(self, wire: BetWire) -> tuple[bytes, int]:
        w = _kind(LAST)
        _write_filled(w, self.filled, wire)
        w.flag(self.closed)
        if self.report is not None:
            self.report.write(w)
        return w.payload(), w.bits


def _kind(kind: int) -> Writer:
    w = Writer()
    w.flag(False)
    w.fixed(kind, 2)
    return w


def _write_filled(w: Writer, filled: tuple[tuple[int, int], ...], wire: BetWire) -> None:
    if wire.fills:
        counts = dict(filled)
        w.mask(group in counts for group in range(len(wire.arm_counts)))
        for group, known in filled:
            w.fixed(known, width_of(wire.arm_counts[group] + 1))


def _read_filled(r: Reader, wire: BetWire) -> tuple[tuple[int, int], ...]:
    if not wire.fills:
        return ()
    groups = [group for group, there in enumerate(r.mask(len(wire.arm_counts))) if there]
    return tuple((group, r.fixed(width_of(wire.arm_counts[group] + 1))) for group in groups)


Downlink = Down | Renamed | Restart | Last


@dataclass(frozen=True)
class Expected:
    """What decides how a message of the server is read: the open block, as the client knows it.

    `champion` is its champion, which makes `report` pulls in it, and `closed` that of the block before; `n`
    are the pulls before it, and `step` those of each rival in it.
    """

    wire: BetWire
    champion: tuple[int, int] | None
    closed: tuple[int, int] | None
    n: int
    step: int
    report: int


def decode_down(data: bytes, at: Expected) -> Downlink | Final:
    """Decode a message of the server."""
    r, wire = Reader(data), at.wire
    message: Downlink | Final
    if r.flag():
        message = read_final(r, wire.arm_counts)
        canonical(data, message.encode(wire))
        return message
    match r.fixed(2):
        case 0:
            filled = _read_filled(r, wire)
            message = Down(_read_report(r, at), Named.read(r, wire, at.champion, at.n + at.step), filled)
        case 1 if at.closed is None:
            raise Malformed("a second champion before a block was closed")
        case 1:
            message = Renamed(Named.read(r, wire, at.closed, at.n))
        case 2:
            message = Restart()
        case _:
            filled = _read_filled(r, wire)
            ended = r.flag()
            message = Last(ended, _read_report(r, at) if ended else None, filled)
    canonical(data, message.encode(wire))
    return message


def _read_report(r: Reader, at: Expected) -> Report | None:
    if at.champion is None:
        return None
    return Report.read(r, at.report, at.n, at.wire.binary[at.champion[0]])


@dataclass(frozen=True)
class Missed:
    """A block was closed without this client, which has no arms: the server does not know that yet."""


def decode_from_outside(data: bytes, wire: BetWire, group: int) -> Restart | Missed | Final | None:
    """Decode what matters to a client without arms, or None for everything else."""
    r = Reader(data)
    if r.flag():
        final = read_final(r, wire.arm_counts)
        canonical(data, final.encode(wire))
        return final
    kind = r.fixed(2)
    if kind in (DOWN, LAST) and dict(_read_filled(r, wire)).get(group):
        return Missed()
    return Restart() if kind == RESTART else None
