"""The messages of Fed-Bet for questions about several sites.

Uplink: a ``Part`` for each block, and ``Stopped``. Downlink: a ``Plan`` for each block, and the ``End``. The
messages of one sender arrive in order, so that no block has a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm.methods.bet.decisions import MOST_RATIO
from bestarm.methods.bet.downlink import RATIO_BITS
from bestarm.methods.bet.levels import (
    LEAST_BITS,
    ceil_level,
    ceiled,
    floor_level,
    floored,
    half_log2,
    report_precision,
)
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Block, Pairs, Stand
from bestarm.methods.bet.uplink import MOST_SUPPLY
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.messages import Stopped, canonical
from bestarm.stats.sums import Sums

CLAIM_BITS = 2


def precision(n: int, clients: int) -> int:
    """The bits of a mean in a part, unless rewards are 0/1. The rounding of all clients adds up."""
    return report_precision(n) + half_log2(clients)


@dataclass(frozen=True)
class Wire:
    """What both ends know. `stoppable`: pulls or data may run out; `finite`: parts say how many are left."""

    course: Course

    @property
    def arm_counts(self) -> tuple[int, ...]:
        return self.course.layout.arm_counts

    @property
    def finite(self) -> bool:
        """A liar could claim that it has none left, and end the run: where sites may lie, nobody is asked."""
        return self.course.layout.finite and not self.course.options.byzantine

    @property
    def stoppable(self) -> bool:
        return self.course.options.budget is not None or self.course.layout.finite

    @property
    def tells_steps(self) -> bool:
        """Whether the steps of clients depend on rewards, or on their pace."""
        return self.course.options.allocation in ("neyman", "pace")


@dataclass(frozen=True)
class Leg:
    """One race in a plan: the options that are in, among those of the race, the champion and c."""

    inside: tuple[bool, ...]
    champion: int
    ratio: int


@dataclass(frozen=True)
class Plan:
    """The next block: a leg for each race that is open.

    `step`: the pulls d, if data may run out. `steps`: the pulls of each client, if they depend on rewards.
    """

    legs: tuple[Leg | None, ...]
    step: int | None = None
    steps: tuple[int, ...] | None = None

    @staticmethod
    def of(
        course: Course, stands: Sequence[Stand], over: Sequence[bool], step: int | None, steps: Ints | None
    ) -> Plan:
        """The plan of a server, which has one trial."""
        legs = tuple(
            None if ended else Leg(*_places(own, stand))
            for own, stand, ended in zip(course.offered, stands, over, strict=True)
        )
        return Plan(legs, step, None if steps is None else tuple(steps.tolist()))

    def stands(self, course: Course) -> list[Stand | None]:
        """The legs as arrays over all options, with one trial."""
        found: list[Stand | None] = []
        for own, leg in zip(course.offered, self.legs, strict=True):
            if leg is None:
                found.append(None)
                continue
            inside = np.zeros((1, course.number), dtype=bool)
            inside[0, own] = leg.inside
            found.append(Stand(inside, own[[leg.champion]], np.array([leg.ratio])))
        return found

    def encode(self, wire: Wire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        for leg in self.legs:
            w.flag(leg is not None)
            if leg is not None:
                w.mask(leg.inside)
                w.fixed(leg.champion, width_of(len(leg.inside)))
                w.fixed(leg.ratio - 1, RATIO_BITS)
        for step in (*([] if self.step is None else [self.step]), *(self.steps or ())):
            w.gamma(step)
        return w.payload(), w.bits


def _places(own: Ints, stand: Stand) -> tuple[tuple[bool, ...], int, int]:
    inside = tuple(stand.inside[0, own].tolist())
    return inside, int(np.flatnonzero(own == stand.champion[0])[0]), int(stand.ratio[0])


@dataclass(frozen=True)
class End:
    """The end of the run: the best option of each race, or None; and the claims about a control."""

    winners: tuple[int | None, ...]
    claims: tuple[int, ...] = ()

    def encode(self, wire: Wire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(True)
        for winner, own in zip(self.winners, wire.course.offered, strict=True):
            w.flag(winner is not None)
            if winner is not None:
                w.fixed(winner, width_of(len(own)))
        for claim in self.claims:
            w.fixed(claim, CLAIM_BITS)
        return w.payload(), w.bits


def decode_down(data: bytes, wire: Wire) -> Plan | End:
    """Decode a message of the server."""
    r, course = Reader(data), wire.course
    message: Plan | End
    if r.flag():
        winners = tuple(_below(r, len(own)) if r.flag() else None for own in course.offered)
        claims = course.number if course.question.control is not None else 0
        message = End(winners, tuple(r.fixed(CLAIM_BITS) for _ in range(claims)))
    else:
        legs = tuple(_leg(r, len(own)) if r.flag() else None for own in course.offered)
        if not any(legs):
            raise Malformed("a block without players")
        step = r.gamma(MOST_SUPPLY) if wire.finite else None
        steps = tuple(r.gamma(MOST_SUPPLY) for _ in range(course.clients)) if wire.tells_steps else None
        message = Plan(legs, step, steps)
        if course.layout.paired and any(leg is not None and leg.ratio > 1 for leg in legs):
            raise Malformed("several pulls of the champion for each subject")
    canonical(data, message.encode(wire))
    return message


def _below(r: Reader, number: int) -> int:
    value = r.fixed(width_of(number))
    if value >= number:
        raise Malformed(f"option {value} of {number}")
    return value


def _leg(r: Reader, number: int) -> Leg:
    inside, champion, ratio = r.mask(number), _below(r, number), r.fixed(RATIO_BITS) + 1
    if not inside[champion] or ratio > MOST_RATIO:
        raise Malformed(f"champion {champion}, which is not in, or c = {ratio}")
    return Leg(inside, champion, ratio)


@dataclass(frozen=True)
class Report:
    """The rewards of one cell in a block: the exact sum of 0/1 rewards, else four levels.

    The levels are the mean rounded down, the mean square rounded up, the smallest reward rounded down and the
    largest rounded up.
    """

    count: int
    bits: int
    levels: tuple[int, ...]

    @staticmethod
    def of(count: int, bits: int, sums: Sequence[float], binary: bool) -> Report:
        """The report of `count` rewards with this sum, sum of squares, smallest and largest one."""
        total, squares, least, most = sums
        if binary:
            return Report(count, bits, (round(total),))
        levels = (floor_level(total / count, bits), ceil_level(squares / count, bits))
        ends = (floor_level(least, LEAST_BITS), ceil_level(most, LEAST_BITS))
        return Report(count, bits, tuple(int(level) for level in (*levels, *ends)))

    def write(self, w: Writer) -> None:
        for level, width in zip(
            self.levels, _widths(self.count, self.bits, len(self.levels) == 1), strict=True
        ):
            w.fixed(level, width)

    @staticmethod
    def read(r: Reader, count: int, bits: int, binary: bool) -> Report:
        levels = tuple(r.fixed(width) for width in _widths(count, bits, binary))
        if binary and levels[0] > count:
            raise Malformed(f"a sum of {levels[0]}, which {count} coins can't have")
        return Report(count, bits, levels)


def _widths(count: int, bits: int, binary: bool) -> tuple[int, ...]:
    return (width_of(count + 1),) if binary else (bits, bits, LEAST_BITS, LEAST_BITS)


@dataclass(frozen=True)
class Part:
    """A client's rewards in a block: a report of each of its options that was pulled, in their order.

    `supply`: the fewest rewards that one of these options still has, if they may run out. `pairs`: in a
    paired layout, a report of Y = (1 + X_reference − X)/2 for each option but the reference. For 0/1 rewards
    it is the number of subjects for which only the reference has a 1, which determines Y's moments.
    """

    reports: tuple[Report, ...]
    supply: int | None = None
    pairs: tuple[Report, ...] = ()

    @staticmethod
    def of(
        fresh: Sums, n: int, wire: Wire, binary: bool, supply: Ints, met: tuple[Sums, int] | None = None
    ) -> Part:
        """The part of a client with these rewards of its arms; `met`: Y, and the arm of the reference."""
        bits, pulled = precision(n, wire.course.clients), np.flatnonzero(fresh.count)
        rows = [[float(part[arm]) for part in fresh.parts] for arm in pulled.tolist()]
        reports = tuple(Report.of(int(count), bits, sums, binary) for count, *sums in rows)
        pairs = () if met is None else tuple(_pair_reports(*met, bits, binary))
        return Part(reports, int(supply[pulled].min()) if wire.finite else None, pairs)


def _pair_reports(met: Sums, reference: int, bits: int, binary: bool) -> Iterator[Report]:
    for arm in np.flatnonzero(met.count).tolist():
        count, total, squares, *ends = (float(part[arm]) for part in met.parts)
        if arm != reference:
            wins = 2 * squares - total  # each Y of 1 counts 1, and those of 0 and ½ count 0
            yield Report.of(int(count), bits, (wins if binary else total, squares, *ends), binary)


def encode(message: Part | Stopped, wire: Wire) -> tuple[bytes, int]:
    """Encode a client's message."""
    w = Writer()
    if wire.stoppable:
        w.flag(isinstance(message, Stopped))
    if isinstance(message, Part):
        for report in (*message.reports, *message.pairs):
            report.write(w)
        if message.supply is not None:
            w.gamma(message.supply + 1)
    return w.payload(), w.bits


def decode(
    data: bytes, wire: Wire, pulls: Ints, n: int, binary: bool, reference: int | None = None
) -> tuple[Part | Stopped, int]:
    """Decode a client's message about a block after n pulls; `pulls` are those of its arms in it."""
    r = Reader(data)
    message: Part | Stopped
    if wire.stoppable and r.flag():
        message = Stopped()
    else:
        bits = precision(n, wire.course.clients)
        reports = tuple(Report.read(r, count, bits, binary) for count in pulls.tolist() if count)
        pairs = () if reference is None else tuple(_read_pairs(r, reports, pulls, reference, binary))
        message = Part(reports, r.gamma(MOST_SUPPLY + 1) - 1 if wire.finite else None, pairs)
    return message, canonical(data, encode(message, wire))


def _read_pairs(
    r: Reader, reports: Sequence[Report], pulls: Ints, reference: int, binary: bool
) -> Iterator[Report]:
    place = int((pulls[:reference] > 0).sum())  # of the reference among the arms that were pulled
    own = reports[place]
    for i, other in enumerate(reports):
        if i == place:
            continue
        found = Report.read(r, other.count, other.bits, binary)
        (ones, *_), (others, *_), (wins, *_) = own.levels, other.levels, found.levels
        if binary and not max(0, ones - others) <= wins <= min(ones, other.count - others):
            raise Malformed(f"{wins} wins, which {ones} and {others} ones can't have")
        yield found


def told(fresh: Sums, bits: int, binary: Mask) -> tuple[Sums, Floats]:
    """The rewards of cells as a server reads them from parts, and how much larger each sum may be.

    `binary` says which cells have 0/1 rewards.
    """
    count, total, squares, least, most = fresh.parts
    none = count == 0
    if binary.all():
        return Sums(count, total, total, np.where(none, 1.0, 0.0), np.where(none, 0.0, 1.0)), 0.0 * total
    some, coins = np.maximum(count, 1.0), binary
    mean = np.where(coins, total, count * floored(floor_level(total / some, bits), bits))
    second = np.where(coins, total, count * ceiled(ceil_level(squares / some, bits), bits))
    low = np.where(coins, 0.0, floored(floor_level(least, LEAST_BITS), LEAST_BITS))
    high = np.where(coins, 1.0, ceiled(ceil_level(most, LEAST_BITS), LEAST_BITS))
    sums = Sums(count, mean, np.where(none, 0.0, second), np.where(none, 1.0, low), np.where(none, 0.0, high))
    return sums, np.asarray(np.where(coins, 0.0, count * 2.0**-bits))


def block_of(
    parts: Sequence[Part | None], pulls: Ints, course: Course, references: Sequence[int | None] = ()
) -> Block:
    """The block that consists of these parts, with one trial; a client without a part has no rewards."""
    shape = (1, course.clients, course.number)
    fresh, unit = Sums.none(shape), np.zeros(shape)
    for i, part in enumerate(parts):
        if part is None:
            continue
        options = [k for k in course.cells.place[i] if pulls[i, k]]
        for k, report in zip(options, part.reports, strict=True):
            _read(report, fresh, unit, (0, i, k))
    pairs = _pairs_of(parts, pulls, course, references, fresh) if course.layout.paired else None
    return Block(pulls[None], fresh, unit, course.coins, pairs)


def fill(block: Block, i: int) -> None:
    """Fill the missing part of client i: rewards that bets on an option count as 0, and bets against as 1."""
    pulls, fresh = block.pulls[0, i], block.fresh
    fresh.count[0, i], fresh.total[0, i], fresh.squares[0, i] = pulls, 0.0, 0.0
    fresh.least[0, i], fresh.most[0, i] = np.where(pulls > 0, 0.0, 1.0), np.where(pulls > 0, 1.0, 0.0)
    block.unit[0, i] = pulls


def _read(report: Report, fresh: Sums, unit: Floats, cell: tuple[int, int, int]) -> None:
    """Enter a report in the sums of a block."""
    fresh.count[cell] = report.count
    fresh.total[cell] = fresh.squares[cell] = report.levels[0]
    fresh.least[cell], fresh.most[cell] = 0.0, 1.0
    if len(report.levels) > 1:
        mean, second, least, most = report.levels
        fresh.total[cell] = report.count * floored(mean, report.bits)
        fresh.squares[cell] = report.count * ceiled(second, report.bits)
        fresh.least[cell] = floored(least, LEAST_BITS)
        fresh.most[cell] = ceiled(most, LEAST_BITS)
        unit[cell] = report.count * 2.0**-report.bits


def _pairs_of(
    parts: Sequence[Part | None],
    pulls: Ints,
    course: Course,
    references: Sequence[int | None],
    rewards: Sums,
) -> Pairs:
    """The pairs of a block; `rewards` are those of its cells."""
    met, unit = Sums.none(rewards.count.shape), np.zeros(rewards.count.shape)
    named, coins = np.full((1, course.clients), -1), np.zeros(course.clients, dtype=bool)
    for i, (part, reference) in enumerate(zip(parts, references, strict=True)):
        coins[i] = course.layout.groups[int(course.cells.site[i])].binary
        if part is None or reference is None:
            continue
        b = named[0, i] = course.cells.place[i][reference]
        options = [k for k in course.cells.place[i] if pulls[i, k] and k != b]
        for k, report in zip(options, part.pairs, strict=True):
            cell = (0, i, k)
            _read(report, met, unit, cell)
            if coins[i]:
                lead = rewards.total[0, i, b] - rewards.total[cell]
                met.total[cell] = (report.count + lead) / 2
                met.squares[cell] = (report.levels[0] + met.total[cell]) / 2
    return Pairs(named, met, unit, coins)


def part_bits(wire: Wire, pulls: Ints, n: int, binary: Mask) -> Ints:
    """The size in bits of all parts of a block: `pulls` is (trials, clients, options)."""
    exact = np.ceil(np.log2(pulls + 1.0)).astype(np.int64)
    size = np.where(binary, exact, 2 * (precision(n, wire.course.clients) + LEAST_BITS))
    return np.asarray(np.where(pulls > 0, size, 0).sum(axis=(1, 2)))


def plan_bits(course: Course) -> Ints:
    """The size in bits of the leg of each race that is open, without its flag."""
    return np.array([len(own) + width_of(len(own)) + RATIO_BITS for own in course.offered])


def gamma_bits(numbers: Ints) -> Ints:
    """The size in bits of numbers that are sent with ``Writer.gamma``."""
    return np.asarray(2 * np.floor(np.log2(numbers)).astype(np.int64) + 1)


def end_bits(course: Course, decided: Sequence[Mask]) -> Ints:
    """The size in bits of ``End``; `decided`: for each race, the trials in which it has a winner."""
    claims = course.number * CLAIM_BITS if course.question.control is not None else 0
    sizes = [
        1 + np.where(won, width_of(len(own)), 0) for own, won in zip(course.offered, decided, strict=True)
    ]
    return np.asarray(1 + claims + np.sum(sizes, axis=0))
