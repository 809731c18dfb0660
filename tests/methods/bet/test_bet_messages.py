"""The messages of Fed-Bet have one encoding each, and round sums only as Lemma 2 allows."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm.methods.bet.downlink import (
    Down,
    Expected,
    Last,
    Missed,
    Named,
    Renamed,
    Restart,
    decode_down,
    decode_from_outside,
)
from bestarm.methods.bet.levels import (
    LEAST_BITS,
    BetWire,
    Report,
    Standing,
    report_precision,
    standing_precision,
    summary_levels,
)
from bestarm.methods.bet.sizes import (
    KIND_BITS,
    LAST_BITS,
    named_bits,
    notice_bits,
    part_bits,
    report_bits,
    standing_bits,
)
from bestarm.methods.bet.uplink import Context, Notice, Part, Stale, Stopped, Summary, Tag, decode, encode
from bestarm.protocol.codec import Malformed
from bestarm.protocol.messages import Final
from bestarm.stats.sums import Sums

pulls = st.one_of(st.integers(1, 300), st.integers(1, 2**36))


@st.composite
def wires(draw):
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    binary = draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    switches = (draw(st.booleans()) for _ in range(4))  # stoppable, covers, finite, fills
    return BetWire(tuple(counts), tuple(binary), *switches)


@st.composite
def contexts(draw):
    """A client's place: before the first part, or in a block, with a report to send or not."""
    wire = draw(wires())
    group = draw(st.integers(0, len(wire.arm_counts) - 1))
    arms, first = wire.arm_counts[group], draw(st.booleans())
    tag = Tag(draw(st.integers(0, 3)), 0 if first else draw(st.integers(0, 40)))
    n, step = 0 if first else draw(pulls), draw(pulls)
    report = None if first or draw(st.booleans()) else step * draw(st.integers(1, 16))
    known = arms if first else draw(st.integers(1, arms))
    count = draw(st.one_of(st.none(), pulls))
    return Context(wire, group, tag, n, step, known, report, count, draw(st.integers(0, 40)))


def levels(bits):
    return st.integers(0, 2**bits - 1)


def standings(wire, group, n):
    binary = wire.binary[group]
    bits = standing_precision(n, binary)
    arm = st.integers(0, wire.arm_counts[group] - 1)
    return st.builds(Standing, arm, st.just(bits), levels(bits), st.none() if binary else levels(bits))


def reports(count, n, binary):
    bits = report_precision(n)
    numbers = (
        st.tuples(st.integers(0, count)) if binary else st.tuples(*map(levels, (bits, bits, LEAST_BITS)))
    )
    return st.builds(Report, st.just(count), st.just(bits), numbers)


@st.composite
def parts(draw, at):
    standing = standings(at.wire, at.group, at.n + at.step)
    supply = draw(st.integers(0, 2**40)) if at.wire.finite else None
    if at.first:
        return Part(standing=draw(standing), supply=supply)
    others = [left for left in range(at.least, at.least + at.choices) if left != at.known]
    left = draw(st.sampled_from([None, *others]))
    report = None if at.report is None else draw(reports(at.report, at.n, at.wire.binary[at.group]))
    return Part(left, draw(st.one_of(st.none(), standing)), report, supply)


@st.composite
def summaries(draw, at):
    inside = tuple(draw(st.booleans()) for _ in range(at.wire.arm_counts[at.group]))
    if at.count is None:
        return Summary(inside, draw(st.booleans()))
    told = draw(pulls) if at.wire.tells_count else None
    if at.wire.binary[at.group]:
        numbers = (draw(st.integers(0, at.count if told is None else told)),)
    else:
        numbers = tuple(draw(levels(bits)) for bits in (24, 24, LEAST_BITS, LEAST_BITS))
    return Summary(inside, draw(st.booleans()), numbers, told)


def ups(at):
    """Every message that a client can send here; the first part has no prefix unless it could be another."""
    if not at.prefixed:
        return parts(at)
    offers = standings(at.wire, at.group, at.n) if at.n else st.nothing()
    rests = st.booleans() if at.wire.covers else st.just(False)
    notices = st.one_of(
        st.builds(Notice, st.just(True), rests), st.builds(Notice, st.just(False), st.just(False), offers)
    )
    return st.one_of(parts(at), notices, st.just(Stopped()), summaries(at))


@given(st.data(), contexts())
def test_a_client_s_message_is_read_as_it_was_written(data, at):
    message = data.draw(ups(at))
    payload, bits = encode(message, at)
    assert len(payload) == -(-bits // 8)
    assert decode(payload, at) == (message, bits)


@given(st.data(), contexts(), st.integers(0, 2), st.integers(0, 40))
def test_after_another_naming_only_the_news_that_arms_left_counts(data, at, epochs, naming):
    later = Tag(at.tag.epoch + epochs, naming if epochs else at.tag.naming + 1 + naming)
    if at.first:
        return  # a block has no second naming before the first champion
    message = data.draw(ups(at))
    payload, bits = encode(message, at)
    read, size = decode(payload, dataclasses.replace(at, tag=later, report=None))
    assert size == 8 * len(payload) >= bits
    gone = isinstance(message, Notice) and message.gone and not epochs
    assert read == (message if gone else Stale())


@given(st.data(), contexts(), st.integers(1, 9))
def test_a_message_of_a_block_that_was_closed_without_it_is_stale(data, at, blocks):
    at = dataclasses.replace(at, wire=dataclasses.replace(at.wire, fills=True))
    payload, _ = encode(data.draw(ups(at)), at)
    assert decode(payload, dataclasses.replace(at, block=at.block + blocks))[0] == Stale()
    if at.block >= blocks:
        with pytest.raises(Malformed):
            decode(payload, dataclasses.replace(at, block=at.block - blocks))


@given(st.data(), contexts())
def test_an_answer_to_a_naming_that_never_was_is_refused(data, at):
    later = dataclasses.replace(at, tag=Tag(at.tag.epoch, at.tag.naming + 1))
    if at.first:
        return
    payload, _ = encode(data.draw(ups(later)), later)
    with pytest.raises(Malformed):
        decode(payload, at)


def altered(data, payload):
    """Bytes that may be no message: any, or a message with a bit flipped, a byte more or a byte less."""
    size = 8 * len(payload)
    flips = st.integers(0, max(size - 1, 0)).map(
        lambda k: (int.from_bytes(payload, "big") ^ (1 << k) if size else 0).to_bytes(len(payload), "big")
    )
    more = st.binary(min_size=1, max_size=3).map(lambda tail: payload + tail)
    return data.draw(st.one_of(st.binary(max_size=24), flips, more, st.just(payload[:-1])))


@given(st.data(), contexts())
def test_any_bytes_are_a_client_s_message_in_its_one_encoding_or_stale_or_malformed(data, at):
    received = altered(data, encode(data.draw(ups(at)), at)[0])
    try:
        message, bits = decode(received, at)
    except Malformed:
        return
    if isinstance(message, Stale):
        assert at.tag != Tag() or at.block > 0
        return
    written = encode(message, at)
    early = isinstance(message, Notice) and message.gone and at.tag.naming > 0  # of an earlier naming
    assert written == (received, bits) or (early and bits == 8 * len(received))
    if isinstance(message, Part):
        assert (message.report is None) == (at.report is None)
        assert message.left is None or at.least <= message.left < at.least + at.choices


@st.composite
def places(draw):
    """The open block as a client knows it when a message of the server arrives."""
    wire = draw(wires())
    group = st.integers(0, len(wire.arm_counts) - 1)
    arm = group.flatmap(lambda j: st.tuples(st.just(j), st.integers(0, wire.arm_counts[j] - 1)))
    champion = draw(st.one_of(st.none(), arm))
    closed = None if champion is None else draw(st.one_of(st.none(), arm))
    n, step = (0 if champion is None else draw(pulls)), draw(pulls)
    return Expected(wire, champion, closed, n, step, step * draw(st.integers(1, 16)))


@st.composite
def named(draw, at, now, n):
    ratio, step = draw(st.integers(1, 16)), draw(st.integers(0, 2**40)) if at.wire.finite else None
    if now is not None and draw(st.booleans()):
        return Named(*now, None, ratio, step)
    group = draw(st.integers(0, len(at.wire.arm_counts) - 1))
    standing = draw(standings(at.wire, group, n))
    return Named(group, standing.arm, standing, ratio, step)


@st.composite
def filled(draw, wire):
    if not wire.fills:
        return ()
    groups = [j for j in range(len(wire.arm_counts)) if draw(st.booleans())]
    return tuple((j, draw(st.integers(0, wire.arm_counts[j]))) for j in groups)


def downs(at):
    report = st.none()
    if at.champion is not None:
        report = reports(at.report, at.n, at.wire.binary[at.champion[0]])
    finals = [
        Final(None, None),
        *(Final(j, k - 1) for j, k in enumerate(at.wire.arm_counts)),
    ]
    messages = [
        st.builds(Down, report, named(at, at.champion, at.n + at.step), filled(at.wire)),
        st.just(Restart()),
        st.builds(Last, st.just(False), st.none(), filled(at.wire)),
        st.builds(Last, st.just(True), report, filled(at.wire)),
        st.sampled_from(finals),
    ]
    if at.closed is not None:
        messages.append(st.builds(Renamed, named(at, at.closed, at.n)))
    return st.one_of(messages)


@given(st.data(), places())
def test_a_message_of_the_server_is_read_as_it_was_written(data, at):
    message = data.draw(downs(at))
    payload, bits = message.encode(at.wire)
    assert len(payload) == -(-bits // 8)
    assert decode_down(payload, at) == message
    told = message if isinstance(message, Restart | Final) else None
    for group in range(len(at.wire.arm_counts)):
        missed = isinstance(message, Down | Last) and dict(message.filled).get(group, 0) > 0
        assert decode_from_outside(payload, at.wire, group) == (Missed() if missed else told)


@given(st.data(), places())
def test_any_bytes_are_a_message_of_the_server_in_its_one_encoding_or_malformed(data, at):
    received = altered(data, data.draw(downs(at)).encode(at.wire)[0])
    try:
        message = decode_down(received, at)
    except Malformed:
        pass
    else:
        assert message.encode(at.wire)[0] == received
    try:
        told = decode_from_outside(received, at.wire, 0)
    except Malformed:
        return
    assert told is None or isinstance(told, Restart | Missed | Final)


@given(st.data(), contexts())
def test_sizes_without_encoding_are_those_of_the_encoding(data, at):
    plain = BetWire(at.wire.arm_counts, at.wire.binary)  # as in the kernel
    at = dataclasses.replace(at, tag=Tag(0, at.tag.naming), wire=plain)
    j, after = at.group, at.n + at.step
    part = data.draw(parts(at))
    size = encode(part, at)[1]
    if at.first:
        assert standing_bits(at.wire, after)[j] == size
        return
    known = np.full(len(at.wire.arm_counts), at.known)
    sizes = part_bits(at.wire, after, at.tag.naming, known, part.left is not None, part.standing is not None)
    report = 0 if at.report is None else report_bits(at.wire, at.report, at.n)[j]
    assert sizes[j] + report == size
    for notice in (Notice(gone=True), Notice(standing=data.draw(standings(at.wire, j, at.n)))):
        assert notice_bits(at.wire, at.n, at.tag.naming, j, notice.gone) == encode(notice, at)[1]


@given(st.data(), places())
def test_sizes_of_the_server_s_messages_are_those_of_their_encoding(data, at):
    at = dataclasses.replace(at, wire=BetWire(at.wire.arm_counts, at.wire.binary))
    message = data.draw(downs(at))
    size, report = message.encode(at.wire)[1], 0
    if at.champion is not None:
        report = report_bits(at.wire, [at.report], at.n)[0, at.champion[0]]
    match message:
        case Down(_, champion):
            new = champion.standing is not None
            bits = named_bits(at.wire, at.n + at.step, [new])[0, champion.group]
            assert size == KIND_BITS + report + bits
        case Renamed(champion):
            new = champion.standing is not None
            assert size == KIND_BITS + named_bits(at.wire, at.n, new)[champion.group]
        case Last(closed):
            assert size == LAST_BITS + report * closed
        case Restart():
            assert size == KIND_BITS


rewards = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 2.0**-14, 1 - 2.0**-14, 255 / 256, 1e-300])),
    min_size=1,
    max_size=40,
)


def check_rounding(sample, n):
    """A report's sum is rounded down, its squares up and its smallest reward down, by at most one level."""
    count, total, squares = len(sample), math.fsum(sample), math.fsum(x * x for x in sample)
    told = Report.of(count, n, total, squares, min(sample), False)
    low, high, least = told.sums
    level = count * 2.0 ** -report_precision(n)
    slack = 1e-12 * count
    assert total - level - slack <= low <= total + slack
    assert squares - slack <= high <= squares + level + slack
    assert high >= level
    assert min(sample) - 1 / 256 <= least <= min(sample)
    return told


@given(rewards, pulls)
def test_a_report_rounds_the_sum_and_the_smallest_down_and_the_squares_up(sample, n):
    check_rounding(sample, n)


@given(st.integers(0, 2**14), st.integers(1, 64))
def test_squares_on_the_boundary_of_a_level_stay_and_above_it_go_up(level, count):
    """S and Q are whole levels here, so that nothing needs to be rounded, except 1 and 0 themselves."""
    share = level * 2.0**-14
    told = Report.of(count, 16, count * share, count * share, share, False)
    low, high, _ = told.sums
    assert low == count * min(share, 1 - 2.0**-14)
    assert high == count * max(share, 2.0**-14)
    above = Report.of(count, 16, count * share, count * min(share + 1e-9, 1.0), share, False)
    assert above.sums[1] == count * min(share + 2.0**-14, 1.0)


def test_the_ends_of_the_range_round_in_the_same_directions():
    ones = check_rounding([1.0] * 7, 16)
    assert ones.levels == (2**14 - 1, 2**14 - 1, 255)
    assert ones.sums == (7 * (1 - 2.0**-14), 7.0, 255 / 256)
    zeros = check_rounding([0.0] * 7, 16)
    assert zeros.levels == (0, 0, 0)
    assert zeros.sums == (0.0, 7 * 2.0**-14, 0.0)
    for total in (0, 3, 7):
        coins = Report.of(7, 16, total, total, 0.0, True)
        assert coins.sums == (total, total, 0.0)


@given(st.floats(0, 1), st.floats(0, 1), pulls)
def test_a_standing_rounds_the_mean_down_and_the_second_moment_up(mean, second, n):
    for binary in (False, True):
        told, moment = Standing.of(0, mean, second, n, binary).moments
        level = 2.0 ** -standing_precision(n, binary)
        assert mean - level <= told <= mean
        assert moment == told if binary else min(second + level, 1) >= moment >= second


@given(rewards)
def test_a_summary_rounds_sum_and_smallest_down_and_squares_and_largest_up(sample):
    n, total, squares = len(sample), math.fsum(sample), math.fsum(x * x for x in sample)
    sums = Sums(*(np.asarray(float(x)) for x in (n, total, squares, min(sample), max(sample))))
    mean, second, least, most = summary_levels(sums, False)
    slack = 1e-12
    assert mean * 2.0**-24 <= total / n + slack
    assert (second + 1) * 2.0**-24 >= squares / n - slack
    assert least / 256 <= min(sample)
    assert (most + 1) / 256 >= max(sample)
