"""Bits on the wire: the stated number, one encoding per value, and a quantiser within half a radius."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.protocol import decisions
from bestarm.protocol.codec import Malformed, Reader, Writer, width_of


@given(st.integers(1, 2**50))
def test_elias_gamma_takes_2_log_n_plus_1_bits_and_round_trips(n):
    w = Writer()
    w.gamma(n)
    assert w.bits == 2 * int(math.log2(n) if n < 2**49 else n.bit_length() - 1) + 1
    assert len(w.payload()) == -(-w.bits // 8)
    assert Reader(w.payload()).gamma(2**50) == n


@given(
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(21, 40)), max_size=8), st.floats(allow_nan=False)
)
def test_fields_are_read_back_in_order(fields, real):
    w = Writer()
    for value, width in fields:
        w.fixed(value, width)
    w.mask([True, False, True])
    w.real(real)
    r = Reader(w.payload())
    assert [r.fixed(width) for _, width in fields] == [value for value, _ in fields]
    assert r.mask(3) == (True, False, True)
    assert r.real() == real
    assert w.bits == sum(width for _, width in fields) + 3 + 64


def test_a_number_out_of_range_or_cut_short_is_malformed():
    for data in (b"", b"\x00", b"\x00" * 100, b"\x00\x00\x00\xff"):
        with pytest.raises(Malformed):
            Reader(data).gamma(2**20)


def test_a_value_that_does_not_fit_is_not_written():
    with pytest.raises(ValueError, match="fit"):
        Writer().fixed(4, 2)
    with pytest.raises(ValueError, match="at least 1"):
        Writer().gamma(0)


@pytest.mark.parametrize(("n", "bits"), [(1, 0), (2, 1), (3, 2), (1024, 10), (1025, 11)])
def test_naming_one_of_n_takes_the_logarithm(n, bits):
    assert width_of(n) == bits


@given(st.floats(1e-9, 4.0))
def test_precision_is_the_paper_s_b_with_erratum_13(alpha):
    exact = max(1, math.ceil(math.log2(1 / alpha)))
    bits = int(fed_sel_decisions.precision(alpha))
    assert 2.0**-bits <= alpha or bits == 1
    assert bits == exact or abs(math.log2(1 / alpha) - round(math.log2(1 / alpha))) < 1e-12


def test_precision_at_powers_of_two():
    assert fed_sel_decisions.precision(2.0 ** -np.arange(1, 40)).tolist() == list(range(1, 40))


@given(st.floats(0.0, 1.0), st.floats(1e-7, 0.999))
def test_a_decoded_mean_is_within_half_a_radius(mean, alpha):
    bits = fed_sel_decisions.precision(alpha)
    index = int(fed_sel_decisions.bin_index(mean, bits))
    assert 0 <= index < 2 ** int(bits)
    assert abs(float(decisions.bin_centre(index, bits)) - mean) <= alpha / 2


@pytest.mark.parametrize("bits", [1, 2, 7, 16])
def test_every_bin_edge_and_its_neighbours(bits):
    alpha = 2.0**-bits
    edges = np.arange(2**bits + 1) / 2**bits
    means = np.concatenate([edges, np.nextafter(edges[1:], 0), np.nextafter(edges[:-1], 1)])
    index = fed_sel_decisions.bin_index(means, bits)
    assert ((index >= 0) & (index < 2**bits)).all()
    assert (np.abs(decisions.bin_centre(index, bits) - means) <= alpha / 2).all()
    assert fed_sel_decisions.bin_index(1.0, bits) == 2**bits - 1
