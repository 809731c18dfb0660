"""The sizes of Fed-Bet's messages in bits, without encoding them: for the kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bestarm.methods.bet.downlink import RATIO_BITS
from bestarm.methods.bet.levels import LEAST_BITS, BetWire, Standing, report_precision, standing_precision
from bestarm.methods.bet.uplink import BOTH, FEWER, LEADS, OTHER, PLAIN, Context, Notice, Tag, encode
from bestarm.protocol.codec import width_of
from bestarm.protocol.decisions import Ints


def standing_bits(wire: BetWire, n: int) -> Ints:
    """The size in bits of a standing of each group after n pulls."""
    arms = zip(wire.arm_counts, wire.binary, strict=True)
    return np.array([width_of(k) + (2 - coins) * standing_precision(n, coins) for k, coins in arms])


def report_bits(wire: BetWire, count: ArrayLike, n: int) -> Ints:
    """The size in bits of a report of `count` pulls by each group, which is the last axis."""
    exact = np.ceil(np.log2(np.asarray(count)[..., None] + 1.0)).astype(np.int64)
    return np.where(np.array(wire.binary), exact, 2 * report_precision(n) + LEAST_BITS)


def _tag_bits(naming: ArrayLike) -> Ints:
    """The size in bits of prefix, kind and tag of a message that does not have a short code."""
    return OTHER + 2 + 1 + 2 * np.floor(np.log2(np.asarray(naming) + 1.0)).astype(np.int64) + 1


def part_bits(
    wire: BetWire, n: int, naming: ArrayLike, known: ArrayLike, changed: ArrayLike, leads: ArrayLike
) -> Ints:
    """The size in bits of parts, without their reports, of a block after which there are n pulls.

    The last axis is the group.
    """
    fewer, ahead = np.asarray(changed), np.asarray(leads)
    code = np.select([fewer & ahead, ahead, fewer], [BOTH, LEADS, FEWER], PLAIN)
    prefix = np.where(np.asarray(naming) == 0, code + 1, _tag_bits(naming) + 2)
    left = np.ceil(np.log2(np.maximum(np.asarray(known) - 1.0, 1.0))).astype(np.int64)
    return np.asarray(prefix + fewer * left + ahead * standing_bits(wire, n))


def notice_bits(wire: BetWire, n: int, naming: int, group: int, gone: bool) -> int:
    """The size in bits of a notice after n pulls."""
    said = None if gone else Standing.of(0, 0.0, 0.0, n, wire.binary[group])
    return encode(Notice(gone, standing=said), Context(wire, group, Tag(0, naming), n, 0, 1))[1]


def named_bits(wire: BetWire, n: int, new: ArrayLike) -> Ints:
    """The size in bits of the name of a champion of each group, which is the last axis."""
    standing = width_of(len(wire.arm_counts)) + standing_bits(wire, n)
    return 1 + np.where(np.asarray(new)[..., None], standing, 0) + RATIO_BITS


KIND_BITS = 3  # of every message of the server except ``Final``
LAST_BITS = KIND_BITS + 1
