"""Messages have only the bits that the paper needs, one encoding each, and nothing else is accepted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm.methods.fed_sel.messages import (
    Bound,
    Refinement,
    Report,
    decode_downlink,
    decode_refinement,
    decode_report,
)
from bestarm.protocol.codec import Malformed
from bestarm.protocol.messages import Final, Onward, Wire, Withdrawn

WIRES = [
    Wire((3, 1, 5), (True, True, False)),
    Wire((3, 1, 5), (True, True, False), stoppable=True),
    Wire((3, 1, 5), (True, True, False), stoppable=True, early_stop=True),
]


def test_a_report_takes_the_arm_elias_gamma_and_the_sum():
    payload, bits = Report(arm=2, count=1000, mean=0.9).encode(WIRES[0], 0)
    assert bits == 2 + 19 + 10  # ⌈log₂ 3⌉, 2⌊log₂ 1000⌋+1, ⌈log₂ 1001⌉
    assert len(payload) == 4


def test_a_refinement_takes_b_bits():
    assert Refinement(index=5).encode(WIRES[0], 0, 1000, 7)[1] == 7


@given(st.sampled_from(WIRES), st.integers(0, 2), st.integers(1, 2**50), st.floats(0, 1), st.data())
def test_reports_round_trip(wire, group, count, mean, data):
    arm = data.draw(st.integers(0, wire.arm_counts[group] - 1))
    if wire.binary[group]:
        mean = min(round(mean * count), count) / count
    remaining = None
    if wire.stoppable and data.draw(st.booleans()):
        remaining = tuple(a == arm or data.draw(st.booleans()) for a in range(wire.arm_counts[group]))
    report = Report(arm, count, abs(mean), remaining)
    payload, bits = report.encode(wire, group)
    assert len(payload) == -(-bits // 8)
    assert decode_report(payload, wire, group, least=1) == (report, bits)


@given(st.sampled_from(WIRES), st.integers(0, 2), st.binary(max_size=24))
def test_any_bytes_are_a_report_in_its_one_encoding_or_malformed(wire, group, data):
    try:
        message, bits = decode_report(data, wire, group, least=5)
    except Malformed:
        return
    assert message.encode(wire, group) == (data, bits)
    if isinstance(message, Report):
        assert 0 <= message.arm < wire.arm_counts[group]
        assert message.remaining is not None or message.count >= 5
        assert 0.0 <= message.mean <= 1.0


@given(
    st.sampled_from(WIRES),
    st.integers(0, 2),
    st.integers(1, 10**6),
    st.integers(1, 20),
    st.booleans(),
    st.binary(max_size=9),
)
def test_any_bytes_are_a_refinement_in_its_one_encoding_or_malformed(
    wire, group, count, bits, quantiser, data
):
    try:
        message, size = decode_refinement(data, wire, group, count, bits, quantiser)
    except Malformed:
        return
    assert message.encode(wire, group, count, bits) == (data, size)
    if message.index is not None:
        assert 0 <= message.index < 2**bits
    if message.mean is not None:
        assert 0.0 <= message.mean <= 1.0


@given(st.sampled_from(WIRES), st.binary(max_size=12))
def test_any_bytes_are_a_downlink_in_its_one_encoding_or_malformed(wire, data):
    try:
        message = decode_downlink(data, wire)
    except Malformed:
        return
    assert message.encode(wire)[0] == data


@pytest.mark.parametrize("wire", WIRES)
def test_downlinks_round_trip(wire):
    messages = [Onward.of((True, False, True)), Final(2, 4), Final(1, 0), Final(None, None)]
    if wire.early_stop:
        messages.append(Bound(-0.25))
    for message in messages:
        assert decode_downlink(message.encode(wire)[0], wire) == message


def test_lies_about_the_count_and_the_mean_are_malformed():
    wire = WIRES[0]
    real = Report(0, 100, 0.5).encode(wire, 2)[0]
    for mean in (math.nan, math.inf, -0.0, -1.0, 1.5):
        with pytest.raises(Malformed, match="a mean of"):
            decode_report(Report(0, 100, mean).encode(wire, 2)[0], wire, 2, least=1)
    with pytest.raises(Malformed, match="at least 101"):
        decode_report(real, wire, 2, least=101)
    with pytest.raises(Malformed, match="a sum of 3 from 2"):
        decode_report(bytes([0b00_010_11_0]), wire, 0, least=1)
    with pytest.raises(Malformed, match="arm 3 of"):
        decode_report(bytes([0b11_1_1_0000]), wire, 0, least=1)
    with pytest.raises(Malformed, match="too long"):
        decode_report(real + b"\0", wire, 2, least=1)
    with pytest.raises(Malformed, match="too short"):
        decode_report(real[:-1], wire, 2, least=1)


def test_a_withdrawal_is_valid_only_with_early_stop():
    payload, bits = Withdrawn().encode(WIRES[2], 0)
    assert decode_report(payload, WIRES[2], 0, least=1) == (Withdrawn(), bits)
    with pytest.raises(Malformed, match="withdrawal"):
        decode_report(payload, WIRES[1], 0, least=1)
