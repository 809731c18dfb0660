"""The messages of a client of Fed-Bet.

A ``Part`` for each block (the first one has only a standing), a ``Notice`` at once when a client has no more
rivals or its champion is not in, ``Stopped``, and a ``Summary`` at the end. A part without news is a single
bit. After a second naming in a block or a restart, messages say which one they answer, so that an answer to
an earlier one is recognised. Run, client and place in the order are in the signed envelope around every
message, and both ends count blocks alike, so a report can't be taken for that of another block or arm.
"""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.methods.bet.levels import LEAST_BITS, SUMMARY_BITS, BetWire, Report, Standing
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import canonical

PART, NOTICE, STOPPED, SUMMARY = range(4)
# Prefix codes of messages that answer the first naming: 0, 10, 110, 1110, 11110; 11111 begins all others. The
# first message of a client has none, unless it could also say that the client's pulls have run out.
PLAIN, FEWER, GONE, LEADS, BOTH, OTHER = range(6)
MOST_NAMINGS = MOST_SUPPLY = 1 << 40


@dataclass(frozen=True)
class Tag:
    """Which restart and which naming within the block a message answers."""

    epoch: int = 0
    naming: int = 0


@dataclass(frozen=True)
class Stale:
    """An answer to an earlier naming, or to a run before a restart: it is discarded."""


@dataclass(frozen=True)
class Part:
    """A client's part of a block, or its first standing.

    `left`: how many of its arms play, if that has changed since the server was told. `supply`: the fewest
    rewards that one of its arms still has, if they run out. `standing`: its top arm, if that leads the
    champion; always in the first part. `report`: the champion's rewards, if the
    champion is one of its arms.
    """

    left: int | None = None
    standing: Standing | None = None
    report: Report | None = None
    supply: int | None = None


@dataclass(frozen=True)
class Notice:
    """Sent at once.

    `gone`: no arm of the sender plays any more, except the closed block's champion. `rests`: but some of its
    arms are in; they are covered. `standing`: the named champion, which is the sender's, is not in; its next
    arm.
    """

    gone: bool = False
    rests: bool = False
    standing: Standing | None = None


@dataclass(frozen=True)
class Stopped:
    """The client can't make the pulls of this block."""


@dataclass(frozen=True)
class Summary:
    """The end: which arms are in, and whether one of them plays against the closed block's champion.

    `levels` are the numbers of that champion (0/1 rewards: its sum), if it is the sender's. `count`: its
    rewards, where the server can't know how many there were.
    """

    inside: tuple[bool, ...]
    plays: bool
    levels: tuple[int, ...] = ()
    count: int | None = None


Uplink = Part | Notice | Stopped | Summary


@dataclass(frozen=True)
class Context:
    """What decides how a client's message is written: its group, the tag, and what both ends know.

    `n`: the pulls before the block. `step`: the pulls of each rival in it. `known`: how many arms of the
    client play, as far as the server was told. `report`: the count of the champion's report, if the sender
    owes one. `count`: the rewards of the closed block's champion in a summary, if it is the sender's.
    `block`: the number of the block.
    """

    wire: BetWire
    group: int
    tag: Tag
    n: int
    step: int
    known: int
    report: int | None = None
    count: int | None = None
    block: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the message after the first pulls."""
        return self.n == 0

    @property
    def least(self) -> int:
        """The smallest number of arms that a part can tell: a client without arms has left, or they rest."""
        return 0 if self.wire.covers else 1

    @property
    def choices(self) -> int:
        """How many numbers of arms a part can tell. Without covers, they only become fewer."""
        return self.wire.arm_counts[self.group] + 1 if self.wire.covers else self.known - 1

    @property
    def prefixed(self) -> bool:
        """Whether messages begin with a prefix code. Before a restart all first messages have arrived."""
        return not self.first or self.tag != Tag() or self.wire.stoppable


def encode(message: Uplink, at: Context) -> tuple[bytes, int]:
    """Encode a client's message."""
    w = Writer()
    code = _code(message, at)
    if at.wire.fills:
        w.gamma(at.block + 1)
    if at.prefixed:
        w.fixed((1 << OTHER) - 1 if code == OTHER else ((1 << code) - 1) << 1, min(code + 1, OTHER))
    if code == OTHER:
        w.fixed((Part, Notice, Stopped, Summary).index(type(message)), 2)
        w.gamma(at.tag.epoch + 1)
        w.gamma(at.tag.naming + 1)
    match message:
        case Part(left, standing, report, supply):
            if code == OTHER and not at.first:
                w.flag(left is not None)
                w.flag(standing is not None)
            if left is not None:
                w.fixed(left - at.least, width_of(at.choices))
            if standing is not None:
                standing.write(w, at.wire, at.group)
            if report is not None:
                report.write(w)
            if supply is not None:
                w.gamma(supply + 1)
        case Notice(gone, rests, standing):
            if code == OTHER:
                w.flag(gone)
            if gone and at.wire.covers:
                w.flag(rests)
            if standing is not None:
                standing.write(w, at.wire, at.group)
        case Summary(inside, plays, levels, count):
            w.mask(inside)
            w.flag(plays)
            if count is not None:
                w.gamma(count + 1)
            widths = _summary_widths(at, count)
            for level, width in zip(levels, widths, strict=True):
                w.fixed(level, width)
    return w.payload(), w.bits


def _code(message: Uplink, at: Context) -> int:
    """The prefix code of a message."""
    if at.tag != Tag():
        return OTHER
    match message:
        case Part() if at.first:
            return PLAIN
        case Part(left, standing):
            fewer, leads = left is not None, standing is not None
            return BOTH if fewer and leads else FEWER if fewer else LEADS if leads else PLAIN
        case Notice(True):
            return GONE
    return OTHER


def decode(data: bytes, at: Context) -> tuple[Uplink | Stale, int]:
    """Decode a client's message; the second value is its size in bits."""
    r = Reader(data)
    if at.wire.fills and (block := r.gamma(MOST_NAMINGS) - 1) != at.block:
        if block > at.block:
            raise Malformed("a message for a block that has not begun")
        return Stale(), 8 * len(data)  # the block was closed without it
    code = 0
    while at.prefixed and code < OTHER and r.flag():
        code += 1
    kind = NOTICE if code == GONE else PART if code < OTHER else r.fixed(2)
    tag = Tag() if code < OTHER else Tag(r.gamma(MOST_NAMINGS) - 1, r.gamma(MOST_NAMINGS) - 1)
    if (tag.epoch, tag.naming) < (at.tag.epoch, at.tag.naming):
        # Arms that left stay out, whoever is the champion; everything else is out of date.
        gone = kind == NOTICE and tag.epoch == at.tag.epoch and (code == GONE or r.flag())
        late = Notice(gone=True, rests=at.wire.covers and r.flag()) if gone else Stale()
        return late, 8 * len(data)
    if tag != at.tag:
        raise Malformed("an answer to a message that was not sent")
    message = _read(r, code, kind, at)
    return message, canonical(data, encode(message, at))


def _read(r: Reader, code: int, kind: int, at: Context) -> Uplink:
    """Read a message after its prefix."""
    if kind == PART:
        flags = [r.flag(), r.flag()] if code == OTHER and not at.first else [False, False]
        fewer, leads = flags[0] or code in (FEWER, BOTH), flags[1] or code in (LEADS, BOTH)
        if at.first and (fewer or leads):
            raise Malformed("a first message that is not a standing")
        left = r.fixed(width_of(at.choices)) + at.least if fewer and at.choices > 0 else None
        if fewer and (left is None or left >= at.least + at.choices or left == at.known):
            raise Malformed("a number of arms that it can't have now")
        standing = Standing.read(r, at.wire, at.group, at.n + at.step) if leads or at.first else None
        binary = at.wire.binary[at.group]
        report = None if at.report is None else Report.read(r, at.report, at.n, binary)
        return Part(left, standing, report, r.gamma(MOST_SUPPLY + 1) - 1 if at.wire.finite else None)
    if kind == NOTICE:
        gone = code == GONE or r.flag()
        rests = gone and at.wire.covers and r.flag()
        return Notice(gone, rests, None if gone else Standing.read(r, at.wire, at.group, at.n))
    if kind == STOPPED:
        return Stopped()
    inside, plays = r.mask(at.wire.arm_counts[at.group]), r.flag()
    count = r.gamma(MOST_SUPPLY + 1) - 1 if at.wire.tells_count and at.count is not None else None
    return Summary(inside, plays, tuple(map(r.fixed, _summary_widths(at, count))), count)


def _summary_widths(at: Context, told: int | None) -> tuple[int, ...]:
    """The bits of the numbers of the champion in a summary: sum, squares, smallest and largest reward."""
    if at.count is None:
        return ()
    if at.wire.binary[at.group]:
        return (width_of((at.count if told is None else told) + 1),)
    return SUMMARY_BITS, SUMMARY_BITS, LEAST_BITS, LEAST_BITS
