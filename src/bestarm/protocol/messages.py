"""The messages that several methods share: typed, bounded and canonical, as all messages on the wire.

``encode`` returns (payload, bits). A decoder returns (message, bits) for exactly the payloads that ``encode``
can return, and raises ``Malformed`` for everything else. Both ends share a ``Wire``: the facts that need not
be sent. No client message names its group, which follows from the sender. The other messages are in the
``messages`` module of each method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bestarm.protocol.codec import Malformed, Reader, Writer, width_of


class Arms(Protocol):
    """What every message needs to know."""

    @property
    def arm_counts(self) -> tuple[int, ...]:
        """The number of arms of each group."""


@dataclass(frozen=True)
class Wire:
    """What both ends know: the arms of each group, which groups have 0/1 rewards, and what may happen.

    `stoppable`: clients may run out of pulls or be beaten in Phase I, so uplink messages have a flag for it.
    In the paper's mode this cannot happen, and the flag is not sent.
    """

    arm_counts: tuple[int, ...]
    binary: tuple[bool, ...]
    stoppable: bool = False
    early_stop: bool = False


@dataclass(frozen=True)
class Withdrawn:
    """The bound that the server sent beats every arm of the client (Fed-SEL: in round 0, with early stop)."""

    def encode(self, wire: Wire, group: int) -> tuple[bytes, int]:
        w = Writer()
        w.fixed(0b11, 2)
        return w.payload(), w.bits


def canonical(data: bytes, encoded: tuple[bytes, int]) -> int:
    """The size of a message in bits, if the bytes are exactly the encoding of the decoded message.

    Parameters
    ----------
    data : bytes
        The received bytes.
    encoded : tuple of bytes and int
        The encoding of the message that was decoded from them.

    Returns
    -------
    int
        The message's size in bits.

    Raises
    ------
    Malformed
        If the bytes differ, because of trailing bytes or padding that is not zeros.
    """
    if encoded[0] != data:
        raise Malformed("the message is too long, or its padding is not zeros")
    return encoded[1]


@dataclass(frozen=True)
class Stopped:
    """The client makes no more pulls."""


@dataclass(frozen=True)
class Onward:
    """The groups that are still active: one bit each, group 0 first (erratum 21: bits, no threshold).

    Parameters
    ----------
    bits : int
        The bits as one number.
    groups : int
        The number of groups.
    """

    bits: int
    groups: int

    @staticmethod
    def of(active: Sequence[bool] | NDArray[np.bool_]) -> Onward:
        return Onward(int("".join("1" if a else "0" for a in active), 2), len(active))

    def is_active(self, group: int) -> bool:
        return bool(self.bits >> (self.groups - 1 - group) & 1)

    def encode(self, wire: Wire) -> tuple[bytes, int]:
        w = Writer()
        w.flag(False)
        if wire.early_stop:
            w.flag(False)
        w.fixed(self.bits, self.groups)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Final:
    """The end of the run.

    Parameters
    ----------
    group, arm : int or None
        The winner's group and arm; both are None if undecided.
    """

    group: int | None
    arm: int | None

    def encode(self, wire: Arms) -> tuple[bytes, int]:
        w = Writer()
        w.flag(True)
        w.flag(self.group is not None)
        if self.group is not None and self.arm is not None:
            w.fixed(self.group, width_of(len(wire.arm_counts)))
            w.fixed(self.arm, width_of(wire.arm_counts[self.group]))
        return w.payload(), w.bits


def final_bits(wire: Arms) -> NDArray[np.int64]:
    """Sizes in bits of ``Final``: for an arm of each group, and last for a message that names no arm.

    >>> final_bits(Wire((2, 5), (True, True))).tolist()
    [4, 6, 2]
    """
    named = [Final(group, 0).encode(wire)[1] for group in range(len(wire.arm_counts))]
    return np.array([*named, Final(None, None).encode(wire)[1]], dtype=np.int64)


def onward_bits(wire: Wire) -> int:
    """The size in bits of ``Onward``."""
    return Onward.of([True] * len(wire.arm_counts)).encode(wire)[1]


def read_final(r: Reader, arm_counts: tuple[int, ...]) -> Final:
    """Decode the rest of a ``Final``, after its first flag.

    Parameters
    ----------
    r : Reader
        The message; its first flag, which marks a ``Final``, has already been read.
    arm_counts : tuple of int
        The number of arms of each group.

    Returns
    -------
    Final
        The winner's group and arm, or None and None.

    Raises
    ------
    Malformed
        If the message names a group or an arm that does not exist.
    """
    group = arm = None
    if r.flag():
        group = r.fixed(width_of(len(arm_counts)))
        if group >= len(arm_counts):
            raise Malformed(f"group {group} of {len(arm_counts)}")
        arm = r.fixed(width_of(arm_counts[group]))
        if arm >= arm_counts[group]:
            raise Malformed(f"arm {arm} of an arm-set of {arm_counts[group]}")
    return Final(group, arm)
